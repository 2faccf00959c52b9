// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * dcmtest.c - the torture test, in the manner of ztest
 *
 *	dcmtest [-s SEED] [-t SECONDS] [-n VMS] [-d DONORS] [-v] [-k]
 *
 * Several VM processes live on several real donors, over shm and tcp, while
 * everything that can happen to them does: budgets go down to almost nothing
 * and back, donors get less to lend (slabs are moved or pulled back), drain and
 * come again, are stopped, continued, killed; VM processes are stopped,
 * continued, killed. Every page holds its number and a sequence number and
 * every read is checked. In the first third of the run nothing happens that
 * may lose a page, and none may be lost; after that, what is lost must be
 * reported as such, and everything else be right.
 *
 * What happens when is the seed's; how it interleaves is the machine's. Silent
 * but for a line every few seconds. Exit status 0: all right; 1: not; 2: could
 * not run.
 */
#include "torture.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STUCK_S 60.0 /* a VM that runs and does nothing for so long hangs */

struct vm {
	pid_t pid;
	uint32_t round;
	double cont_at; /* stopped: let it go on then */
	uint64_t seen_ops;
	double seen_at;
	uint64_t ops, checked, lost, discards, budgets; /* ended incarnations */
};

struct vm_shared *shared;
char top_dir[64];
const char *donord;
bool verbose;

static struct vm vm[VMS_MAX];
static struct donor donor[DONORS_MAX];
static int nr_vms = 2, nr_donors = 4;
static uint64_t seed, rng;
static bool keep;
static int losing; /* things that lose pages happen by now */
static volatile sig_atomic_t interrupted;
static uint64_t n_squeeze, n_drain, n_stop, n_long_stop, n_kill, n_vm_stop,
	n_vm_long, n_vm_kill;

uint64_t rnd(uint64_t *state, uint64_t n)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return (z ^ (z >> 31)) % n;
}

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void end_all(void)
{
	int i;

	for (i = 0; i < nr_vms; i++) {
		if (vm[i].pid > 0) {
			kill(vm[i].pid, SIGKILL);
			waitpid(vm[i].pid, NULL, 0);
		}
		vm[i].pid = 0;
	}
	for (i = 0; i < nr_donors; i++) {
		if (donor[i].pid > 0) {
			kill(donor[i].pid, SIGKILL);
			waitpid(donor[i].pid, NULL, 0);
		}
		donor[i].pid = 0;
	}
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_files(void)
{
	if (top_dir[0] && !keep)
		nftw(top_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "dcmtest: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	end_all();
	exit(2);
}

void write_file(const char *path, const char *fmt, ...)
{
	FILE *f = fopen(path, "w");
	va_list ap;

	if (!f)
		die("%s: %s", path, strerror(errno));
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	if (fclose(f))
		die("%s: %s", path, strerror(errno));
}

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	static double start;
	va_list ap;

	if (!start)
		start = now_s();
	if (!verbose)
		return;
	printf("  %6.1f ", now_s() - start);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

/* A VM went wrong: say all that helps, keep the files. */
static void failed(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));
static void failed(const char *fmt, ...)
{
	va_list ap;

	printf("FAILED: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\nagain: dcmtest -s %llu; logs are in %s\n",
	       (unsigned long long)seed, top_dir);
	keep = true;
	end_all();
	exit(1);
}

/* ---- VM processes ---- */

static void vm_config(int i)
{
	char path[128], text[1600];
	size_t n = 0;
	int d;

	n += (size_t)snprintf(text, sizeof(text),
			      "[vm]\nname = torture-%d-%d\nbudget = 8M\n"
			      "size = 64M\nmode = program\nlanes = %d\n"
			      "on-loss = sigbus\n[key]\ntenant = torture\n"
			      "file = %s/keys\n",
			      (int)getpid(), i, 1 + i % 3, top_dir);
	for (d = 0; d < nr_donors; d++) {
		if (donor[d].shm)
			n += (size_t)snprintf(text + n, sizeof(text) - n,
					      "[donor %s]\naddress = unix:%s\n",
					      donor[d].name, donor[d].sock);
		else
			n += (size_t)
				snprintf(text + n, sizeof(text) - n,
					 "[donor %s]\naddress = tcp:127.0.0.1:%d\n",
					 donor[d].name, donor[d].port);
	}
	snprintf(path, sizeof(path), "%s/vm%d.ini", top_dir, i);
	write_file(path, "%s", text);
}

static void vm_start(int i, bool may_lose)
{
	struct vm_shared *s = &shared[i];
	char path[128], log[128];

	vm[i].round++;
	memset(s, 0, sizeof(*s));
	s->round = vm[i].round;
	s->may_lose = may_lose;
	vm[i].seen_ops = 0;
	vm[i].seen_at = now_s();
	vm[i].cont_at = 0;
	snprintf(path, sizeof(path), "%s/vm%d.ini", top_dir, i);
	snprintf(log, sizeof(log), "%s/vm%d.log", top_dir, i);
	fflush(stdout);
	vm[i].pid = fork();
	if (vm[i].pid < 0)
		die("fork: %s", strerror(errno));
	if (!vm[i].pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen(log, "a", stderr))
			_exit(2);
		/* not exit(): the files are the controller's to remove */
		i = vm_main(i, path,
			    seed * 7919 + vm[i].round * 31 + (uint64_t)i);
		_exit(i);
	}
}

static void vm_tally(int i)
{
	vm[i].ops += shared[i].ops;
	vm[i].checked += shared[i].checked;
	vm[i].lost += shared[i].lost;
	vm[i].discards += shared[i].discards;
	vm[i].budgets += shared[i].budgets;
}

/* Ended without having been told to: why? */
static void vm_ended(int i, int status)
{
	struct vm_shared *s = &shared[i];

	vm[i].pid = 0;
	if (s->failed)
		failed("vm%d: %s", i, s->why);
	if (WIFSIGNALED(status))
		failed("vm%d: killed by signal %d", i, WTERMSIG(status));
	failed("vm%d: ended with status %d", i, WEXITSTATUS(status));
}

static void vms_look(void)
{
	double now = now_s();
	int i, status;

	for (i = 0; i < nr_vms; i++) {
		if (vm[i].pid > 0 &&
		    waitpid(vm[i].pid, &status, WNOHANG) == vm[i].pid)
			vm_ended(i, status);
		if (shared[i].failed == 2)
			failed("vm%d: %s", i, shared[i].why);
		if (vm[i].cont_at || shared[i].ops != vm[i].seen_ops) {
			vm[i].seen_ops = shared[i].ops;
			vm[i].seen_at = now;
		} else if (now - vm[i].seen_at > STUCK_S) {
			failed("vm%d hangs: no operation ends for %.0f s", i,
			       STUCK_S);
		}
		if (vm[i].cont_at && now >= vm[i].cont_at) {
			kill(vm[i].pid, SIGCONT);
			vm[i].cont_at = 0;
		}
	}
}

static void all_may_lose(void)
{
	int i;

	for (i = 0; i < nr_vms; i++)
		__atomic_store_n(&shared[i].may_lose, 1, __ATOMIC_SEQ_CST);
}

static void vm_event(bool losses)
{
	int i = (int)rnd(&rng, (uint64_t)nr_vms);

	if (vm[i].cont_at || !shared[i].ready)
		return;
	switch (rnd(&rng, losses ? 4 : 2)) {
	case 2: /* longer than a connection may be silent: nothing is lost */
		say("vm%d is stopped for 7 s", i);
		kill(vm[i].pid, SIGSTOP);
		vm[i].cont_at = now_s() + 7;
		n_vm_long++;
		break;
	case 3:
		say("vm%d is killed", i);
		kill(vm[i].pid, SIGKILL);
		waitpid(vm[i].pid, NULL, 0);
		vm_tally(i);
		if (shared[i].failed == 2)
			failed("vm%d: %s", i, shared[i].why);
		vm_start(i, losses); /* donors may be down just now */
		n_vm_kill++;
		break;
	default:
		say("vm%d is stopped for a moment", i);
		kill(vm[i].pid, SIGSTOP);
		vm[i].cont_at = now_s() + 0.1 + (double)rnd(&rng, 10) / 10;
		n_vm_stop++;
	}
}

/* ---- donors ---- */

/* Donors that are there and not being hurt already. */
static int donors_well(void)
{
	int i, n = 0;

	for (i = 0; i < nr_donors; i++)
		n += donor[i].pid > 0 && !donor[i].cont_at &&
		     !donor[i].draining && donor[i].capacity_mib >= 64;
	return n;
}

static void donor_event(bool losses)
{
	struct donor *d = &donor[rnd(&rng, (uint64_t)nr_donors)];
	double now = now_s();

	if (d->pid <= 0 || d->cont_at || d->draining || donors_well() < 3)
		return;
	switch (rnd(&rng, losses ? 7 : 5)) {
	case 0:
	case 1:
		d->normal_at = now + 1 + (double)rnd(&rng, 30) / 10;
		say("%s may lend 2 MiB only", d->name);
		donor_capacity(d, 2);
		n_squeeze++;
		break;
	case 2:
	case 3:
		say("%s drains", d->name);
		d->draining = true;
		if (losses)
			all_may_lose(); /* others may be down or full */
		donor_kill(d, SIGTERM);
		n_drain++;
		break;
	case 4:
		say("%s is stopped for a moment", d->name);
		donor_kill(d, SIGSTOP);
		d->cont_at = now + 0.1 + (double)rnd(&rng, 10) / 10;
		n_stop++;
		break;
	case 5:
		say("%s is stopped for 8 s", d->name);
		donor_kill(d, SIGSTOP);
		d->cont_at = now + 8;
		n_long_stop++;
		break;
	default:
		say("%s is killed", d->name);
		all_may_lose();
		donor_kill(d, SIGKILL);
		waitpid(d->pid, NULL, 0);
		d->pid = 0;
		d->back_at = now + 0.2 + (double)rnd(&rng, 40) / 10;
		n_kill++;
	}
}

static void donors_look(void)
{
	double now = now_s();
	int i, status;

	for (i = 0; i < nr_donors; i++) {
		struct donor *d = &donor[i];

		if (d->cont_at && now >= d->cont_at) {
			donor_kill(d, SIGCONT);
			d->cont_at = 0;
		}
		if (d->capacity_mib < 64 && d->pid > 0 && !d->draining &&
		    !d->cont_at && now >= d->normal_at)
			donor_capacity(d, 128);
		if (d->pid > 0 && waitpid(d->pid, &status, WNOHANG) == d->pid) {
			d->pid = 0;
			/* 1: it left slabs behind, for want of other donors */
			if (!d->draining || !WIFEXITED(status) ||
			    WEXITSTATUS(status) > losing)
				failed("donor %s ended with status %#x",
				       d->name, status);
			say("%s has drained (%d)", d->name,
			    WEXITSTATUS(status));
			d->capacity_mib = 128;
			d->back_at = now + (double)rnd(&rng, 20) / 10;
		}
		if (!d->pid && d->back_at && now >= d->back_at) {
			donor_start(d);
			say("%s is back", d->name);
		}
	}
}

/* ---- the run ---- */

static void heal(void)
{
	int i;

	for (i = 0; i < nr_donors; i++) {
		if (donor[i].cont_at)
			donor[i].cont_at = now_s();
		if (donor[i].back_at)
			donor[i].back_at = now_s();
		donor[i].normal_at = 0;
	}
	for (i = 0; i < nr_vms; i++)
		if (vm[i].cont_at)
			vm[i].cont_at = now_s();
}

static void vms_stop(void)
{
	double end = now_s() + 120;
	int i, status, left = nr_vms;

	for (i = 0; i < nr_vms; i++)
		__atomic_store_n(&shared[i].stop, 1, __ATOMIC_SEQ_CST);
	while (left) {
		for (i = 0; i < nr_vms; i++) {
			if (vm[i].cont_at && now_s() >= vm[i].cont_at) {
				kill(vm[i].pid, SIGCONT);
				vm[i].cont_at = 0;
			}
			if (!vm[i].pid ||
			    waitpid(vm[i].pid, &status, WNOHANG) != vm[i].pid)
				continue;
			if (!WIFEXITED(status) || WEXITSTATUS(status))
				vm_ended(i, status);
			vm[i].pid = 0;
			vm_tally(i);
			left--;
		}
		donors_look();
		if (now_s() > end)
			failed("%d VMs do not end", left);
		usleep(20000);
	}
}

/*
 * The last donors have nobody's slabs any more but those of sessions that died
 * in the last 5 s. One that drains is not told again: to it that would mean
 * not to wait for them.
 */
static void donors_stop(void)
{
	double end = now_s() + 60;
	int i, left = 0, status;

	for (i = 0; i < nr_donors; i++) {
		if (donor[i].pid <= 0)
			continue;
		if (!donor[i].draining)
			donor_kill(&donor[i], SIGTERM);
		left++;
	}
	while (left) {
		for (i = 0; i < nr_donors; i++) {
			if (donor[i].pid <= 0 ||
			    waitpid(donor[i].pid, &status, WNOHANG) !=
				    donor[i].pid)
				continue;
			donor[i].pid = 0;
			left--;
			if (!WIFEXITED(status) || WEXITSTATUS(status))
				failed("donor %s ended with status %#x",
				       donor[i].name, status);
		}
		if (now_s() > end)
			failed("%d donors do not end", left);
		usleep(10000);
	}
}

static void progress(double start)
{
	uint64_t ops = 0, checked = 0, lost = 0;
	int i;

	for (i = 0; i < nr_vms; i++) {
		ops += vm[i].ops + shared[i].ops;
		checked += vm[i].checked + shared[i].checked;
		lost += vm[i].lost + shared[i].lost;
	}
	printf("torture: %3.0f s: %llu operations, %llu pages checked, %llu lost ones reported, %d donors well\n",
	       now_s() - start, (unsigned long long)ops,
	       (unsigned long long)checked, (unsigned long long)lost,
	       donors_well());
	fflush(stdout);
}

static void run(double seconds)
{
	double start = now_s(), line = start + 5, next = start + 1, now;

	while ((now = now_s()) < start + seconds && !interrupted) {
		vms_look();
		donors_look();
		if (now >= next) {
			losing = now > start + seconds / 3;
			if (rnd(&rng, 3))
				donor_event(losing);
			else
				vm_event(losing);
			next = now + 0.1 + (double)rnd(&rng, 12) / 10;
		}
		if (now >= line) {
			progress(start);
			line = now + 5;
		}
		usleep(20000);
	}
}

static void summary(double start)
{
	uint64_t ops = 0, checked = 0, lost = 0, discards = 0, budgets = 0;
	int i;

	for (i = 0; i < nr_vms; i++) {
		ops += vm[i].ops;
		checked += vm[i].checked;
		lost += vm[i].lost;
		discards += vm[i].discards;
		budgets += vm[i].budgets;
	}
	printf("torture: %.0f s, seed %llu: %llu operations, %llu pages checked, none wrong; %llu accesses to lost pages, all reported; %llu pages discarded, %llu budget changes\n",
	       now_s() - start, (unsigned long long)seed,
	       (unsigned long long)ops, (unsigned long long)checked,
	       (unsigned long long)lost, (unsigned long long)discards,
	       (unsigned long long)budgets);
	printf("torture: donors squeezed %llu, drained %llu, stopped %llu + %llu long, killed %llu; VMs stopped %llu + %llu long, killed %llu\n",
	       (unsigned long long)n_squeeze, (unsigned long long)n_drain,
	       (unsigned long long)n_stop, (unsigned long long)n_long_stop,
	       (unsigned long long)n_kill, (unsigned long long)n_vm_stop,
	       (unsigned long long)n_vm_long, (unsigned long long)n_vm_kill);
	if (!checked)
		failed("nothing was checked");
}

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static void setup(void)
{
	char path[128];
	int i;

	snprintf(top_dir, sizeof(top_dir), "%s/dcm-torture-XXXXXX",
		 getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 30 ?
			 getenv("TMPDIR") :
			 "/tmp");
	if (!mkdtemp(top_dir))
		die("mkdtemp: %s", strerror(errno));
	atexit(remove_files);
	snprintf(path, sizeof(path), "%s/keys", top_dir);
	umask(077);
	write_file(path, "torture:%016llx%016llx%016llx%016llx\n", 1ull, 2ull,
		   3ull, (unsigned long long)seed);
	setenv("DCM_RUNTIME_DIR", top_dir, 1);
	for (i = 0; i < nr_donors; i++) {
		donor_init(&donor[i], i);
		donor_start(&donor[i]);
	}
	for (i = 0; i < nr_vms; i++) {
		vm_config(i);
		vm_start(i, false);
	}
}

static uint64_t number(const char *s, uint64_t lo, uint64_t hi)
{
	char *end;
	uint64_t v = strtoull(s, &end, 0);

	if (!*s || *end || v < lo || v > hi) {
		fprintf(stderr,
			"dcmtest: '%s' is no number from %llu to %llu\n", s,
			(unsigned long long)lo, (unsigned long long)hi);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	uint64_t seconds = 60;
	struct timespec ts;
	double start;
	int opt;

	clock_gettime(CLOCK_REALTIME, &ts);
	seed = (uint64_t)ts.tv_nsec ^ (uint64_t)ts.tv_sec << 20;
	seed &= 0xffffffff;
	while ((opt = getopt(argc, argv, "s:t:n:d:vkh")) != -1) {
		switch (opt) {
		case 's':
			seed = number(optarg, 0, UINT64_MAX);
			break;
		case 't':
			seconds = number(optarg, 1, 1000000);
			break;
		case 'n':
			nr_vms = (int)number(optarg, 1, VMS_MAX);
			break;
		case 'd':
			nr_donors = (int)number(optarg, 3, DONORS_MAX);
			break;
		case 'v':
			verbose = true;
			break;
		case 'k':
			keep = true;
			break;
		default:
			printf("usage: dcmtest [-s SEED] [-t SECONDS] [-n VMS] [-d DONORS] [-v] [-k]\n");
			return opt == 'h' ? 0 : 2;
		}
	}
	donord = getenv("DCM_DONORD");
	if (!donord)
		die("DCM_DONORD must name the dcm-donord to use");
	rng = seed;
	printf("torture: seed %llu, %llu s, %d VMs, %d donors\n",
	       (unsigned long long)seed, (unsigned long long)seconds, nr_vms,
	       nr_donors);
	fflush(stdout);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	shared = mmap(NULL, sizeof(*shared) * VMS_MAX, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	setup();
	start = now_s();
	run((double)seconds);
	heal();
	vms_stop();
	donors_stop();
	if (interrupted)
		die("interrupted");
	summary(start);
	return 0;
}
