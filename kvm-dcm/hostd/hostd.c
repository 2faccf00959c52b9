// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostd.c - dcm-hostd: donors for the kernel pager's files
 *
 * The kernel pages VMs' memory (files on dcmfs), but has no sessions with donors. This
 * daemon has them: for each file it keeps sessions with donors, as libdcm does for
 * a process, gives the slabs that they lend to the kernel, and takes them away when
 * donors want them back or are lost. Pages never pass through this process.
 *
 * If this process ends for good, donors take a VM's memory back: those on this host
 * after 5 s, others when nothing has used it for the patience, a minute. Pages that
 * only they had are lost. So SIGTERM does not end it while a process uses a file that
 * is served; it logs which files, and ends when they are no longer used. A
 * second SIGTERM does not wait: everything that is on donors is marked lost
 * first, so that the kernel never reads from a slab that another VM has, and
 * the exit status is 1. On SIGHUP it restarts itself, with the program and the
 * configuration as they are then, and takes everything over (adopt.c); so does
 * a dcm-hostd that is started soon after another was killed.
 *
 * On SIGUSR1 it reads the donors of the configuration again (donor.c).
 *
 * Donors on this host (unix:) hand over memory that the kernel reads and writes
 * by itself; for others (tcp:) the kernel gets connections, made here.
 *
 * Locking: the main thread's. Signals are blocked in all threads and read from
 * a descriptor, but for SIGALRM, which ends a slice of a DETACH.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "../gc/ipc.h"
#include "../lib/args.h"
#include "../lib/notify.h"
#include "hostd.h"

#define DEFAULT_CONFIG "/etc/kvm-dcm/hostd.conf"
#define DEFAULT_STATUS "/run/dcm-hostd/status.sock"
#define DEFAULT_GC DCM_GC_IPC_SOCKET
#define ENDING_MS 500
#define SURE_NS (2000ull * 1000 * 1000)

/* argp looks this symbol up by name; libdcm's compiler flags hide all others. */
__attribute__((visibility("default")))
const char *argp_program_version = "dcm-hostd " DCM_VERSION;

/* environment variable: the daemon has restarted itself */
#define AGAIN "DCM_HOSTD_AGAIN"

static struct dcm_args args = DCM_ARGS_INIT("dcm-hostd");
static const char *status_path = DEFAULT_STATUS;
static const char *gc_path = DEFAULT_GC;
static char **arguments;

enum {
	OPT_STATUS = DCM_ARGS_FIRST,
	OPT_GC,
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case OPT_STATUS:
		status_path = arg;
		return 0;
	case OPT_GC:
		gc_path = arg;
		return 0;
	default:
		return dcm_args_parse(&args, key, arg, state);
	}
}

static void parse_command_line(int argc, char **argv)
{
	static const struct argp_option options[] = {
		DCM_ARGS_OPTIONS(
			"Read FILE (" DEFAULT_CONFIG ")",
			"Say whether the configuration and the key are good, and end",
			"When ready, write READY=1 to descriptor N and close it"),
		{ "status", OPT_STATUS, "PATH", 0,
		  "Socket that tells the status (" DEFAULT_STATUS ")", 0 },
		{ "gc", OPT_GC, "PATH", 0,
		  "Socket for virtio-gc devices (" DEFAULT_GC ")", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.doc = "Give the memory of donors to the kernel pager's files.\v"
		       "SIGTERM ends it when no file is in use any more, a second one at once. See dcm-hostd(8).",
	};

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
}

static const char *config_file(void)
{
	return args.config ? args.config : DEFAULT_CONFIG;
}

static int config_read(struct hostd *h)
{
	char err[DCM_ERR_MAX];

	if (dcm_hostd_config_load(config_file(), &h->cfg, err) ||
	    dcm_key_load(h->cfg.key_file, h->cfg.tenant, &h->key, err)) {
		dcm_log(DCM_LOG_ERR, "%s", err);
		return -EINVAL;
	}
	return 0;
}

/* Raise the limit on open files: each slab needs one. */
static void raise_fd_limit(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) || rl.rlim_cur == rl.rlim_max)
		return;
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl))
		dcm_log(DCM_LOG_WARNING,
			"the limit of open files stays low: %s",
			strerror(errno));
}

static void on_alarm(int signum)
{
	(void)signum; /* its only effect is to interrupt a call */
}

/* Block the signals that end or reload; returns a descriptor for them. */
static int signals_take(void)
{
	struct sigaction alarm = { .sa_handler = on_alarm };
	sigset_t set;

	sigemptyset(&alarm.sa_mask);
	sigaction(SIGALRM, &alarm, NULL); /* without SA_RESTART */
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigemptyset(&alarm.sa_mask);
	sigaddset(&alarm.sa_mask, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &alarm.sa_mask, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static u32 files_used(const struct hostd *h)
{
	const struct hostd_file *f;
	u32 n = 0;

	for (f = h->files; f; f = f->next)
		n += READ_ONCE(f->used);
	return n;
}

static void ending_say(const struct hostd *h)
{
	const struct hostd_file *f;

	for (f = h->files; f; f = f->next)
		if (READ_ONCE(f->used))
			dcm_log(DCM_LOG_WARNING,
				"told to end, but %s is in use: what it has on donors would be lost. Waiting until its VM has ended; a second SIGTERM does not wait",
				f->path);
	dcm_notify("STOPPING=1\nSTATUS=waiting for VMs to end");
}

#define FLUSH_MS 200u

/* Replace this process by a new one, unless its configuration is wrong. */
static void start_again(void)
{
	static struct dcm_host_config cfg;
	char err[DCM_ERR_MAX];

	if (dcm_hostd_config_load(config_file(), &cfg, err)) {
		dcm_log(DCM_LOG_ERR, "SIGHUP: %s: going on as before", err);
		return;
	}
	dcm_log(DCM_LOG_NOTICE, "SIGHUP: starting again");
	setenv(AGAIN, "1", 1);
	dcm_log_flush(FLUSH_MS);
	execvp(arguments[0], arguments);
	dcm_log(DCM_LOG_ERR, "SIGHUP: %s: %s: going on as before", arguments[0],
		strerror(errno));
}

#define PLACES 5u

/* Serve until told to end. Returns the exit status. */
static int files_serve(struct hostd *h, int signals)
{
	struct signalfd_siginfo info;
	bool ending = false;
	eventfd_t count;
	u64 since = 0;
	u32 n;

	for (;;) {
		struct pollfd p[PLACES + 1] = {
			{ .fd = signals, .events = POLLIN },
			{ .fd = h->ended, .events = POLLIN },
			{ .fd = ending ? -1 : h->inotify, .events = POLLIN },
			{ .fd = ending ? -1 : h->mounts, .events = POLLPRI },
			{ .fd = h->status, .events = POLLIN },
		};

		n = hostd_gc_poll(h, p + PLACES);
		if (poll(p, PLACES + n,
			 ending || hostd_gc_waits(h) ? ENDING_MS : -1) < 0 &&
		    errno != EINTR) {
			dcm_log(DCM_LOG_ERR,
				"can't wait for events (poll): %s: dcm-hostd ends",
				strerror(errno));
			return 1;
		}
		if (p[1].revents && !eventfd_read(h->ended, &count)) {
			hostd_gc_reap(h);
			hostd_files_reap(h);
		}
		if (p[2].revents)
			hostd_watch_read(h);
		if (p[3].revents)
			hostd_watch_mounts(h);
		if (p[4].revents)
			hostd_status_tell(h);
		hostd_gc_handle(h, p + PLACES, n);
		while (read(signals, &info, sizeof(info)) == sizeof(info)) {
			if (info.ssi_signo == SIGHUP) {
				start_again();
				continue;
			}
			if (info.ssi_signo == SIGUSR1) {
				hostd_donors_read(h, config_file());
				continue;
			}
			if (ending)
				return 1;
			ending = true;
			since = hostd_now_ns();
			ending_say(h);
		}
		/* After SURE_NS each file's thread has looked for users again. */
		if (ending && (!h->files || (hostd_now_ns() - since > SURE_NS &&
					     !files_used(h))))
			return 0;
	}
}

int main(int argc, char **argv)
{
	static struct hostd h = {
		.ended = -1, .inotify = -1, .mounts = -1, .status = -1, .gc = -1
	};
	int signals, status = 2;

	arguments = argv;
	dcm_log_name("dcm-hostd", false);
	parse_command_line(argc, argv);
	dcm_log_setup(args.log_level, -1);
	if (config_read(&h))
		return 2;
	if (args.check_only) {
		dcm_key_wipe(&h.key);
		printf("the configuration is good\n");
		return 0;
	}
	if (geteuid())
		dcm_log(DCM_LOG_WARNING,
			"not root: the kernel lets only CAP_SYS_ADMIN serve files");
	raise_fd_limit();
	dcm_log_start();
	signals = signals_take();
	h.ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (signals < 0 || h.ended < 0) {
		dcm_log(DCM_LOG_ERR, "%s", strerror(errno));
		return 2;
	}
	dcm_log(DCM_LOG_NOTICE, "dcm-hostd " DCM_VERSION ": %u donor%s",
		h.cfg.nr_donors, h.cfg.nr_donors == 1 ? "" : "s");
	if (!hostd_watch_start(&h)) {
		hostd_status_start(&h, status_path);
		hostd_gc_start(&h, gc_path);
		dcm_notify("READY=1");
		if (args.ready_fd >= 0 && !getenv(AGAIN)) {
			dprintf(args.ready_fd, "READY=1\nPID=%d\n",
				(int)getpid());
			close(args.ready_fd);
		}
		status = files_serve(&h, signals);
		hostd_unlisten(&h.status, status_path);
		hostd_gc_end(&h, gc_path);
	}
	while (h.files)
		hostd_file_stop(&h, h.files);
	hostd_watch_stop(&h);
	dcm_key_wipe(&h.key);
	dcm_log(DCM_LOG_NOTICE, "ended");
	return status;
}
