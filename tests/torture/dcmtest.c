// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * dcmtest.c - the torture test, in the manner of ztest
 *
 *	dcmtest [-s SEED] [-t SECONDS] [-n VMS] [-d DONORS] [-r COPIES [-D]] [-v] [-k]
 *
 * Several VM processes live on several real donors, over shm and tcp, while
 * everything that can happen to them does: budgets go down to almost nothing
 * and back, donors get less to lend (slabs are moved or pulled back), drain and
 * come again, are stopped, continued, killed; VM processes are stopped,
 * continued, killed. Every page holds its number and a sequence number and
 * every read is checked. In the first third of the run nothing happens that
 * may lose a page, and none may be lost; after that, what is lost must be
 * reported as such, and everything else be right. With copies (-r) donors die,
 * and nothing else happens; no page may be lost, or with two donors at once (-D)
 * none that was not named (copies.c).
 *
 * What happens when is the seed's; how it interleaves is the machine's. Silent
 * but for a line every few seconds. Exit status 0: all right; 1: not; 2: could
 * not run.
 */
#include "../framework/proxy.h"
#include "controller.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct vm_shared *shared;
char top_dir[64];
const char *donord;
bool verbose;

int nr_vms = 2, nr_donors = 4;
uint64_t seed, rng;
int losing;
struct events events;

#define LONGEST_S 150.0

static bool keep;
static volatile sig_atomic_t interrupted;

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

void say(const char *fmt, ...)
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

void failed(const char *fmt, ...)
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

static void heal(void)
{
	int i;

	for (i = 0; i < nr_donors; i++) {
		if (donor[i].cont_at)
			donor[i].cont_at = now_s();
		if (donor[i].back_at)
			donor[i].back_at = now_s();
		donor[i].normal_at = 0;
		if (donor[i].heal_at)
			proxy_open(donor[i].proxy);
		donor[i].heal_at = 0;
	}
	for (i = 0; i < nr_vms; i++)
		if (vm[i].cont_at)
			vm[i].cont_at = now_s();
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

	/* a machine that is busy may take long until nothing is exposed */
	while (!interrupted &&
	       ((now = now_s()) < start + seconds ||
		(copies > 1 && !copies_hits() && now < start + LONGEST_S))) {
		vms_look();
		donors_look();
		if (copies > 1) {
			copies_look();
		} else if (now >= next) {
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
	       (unsigned long long)events.squeeze,
	       (unsigned long long)events.drain,
	       (unsigned long long)events.stop,
	       (unsigned long long)events.long_stop,
	       (unsigned long long)events.kill,
	       (unsigned long long)events.vm_stop,
	       (unsigned long long)events.vm_long,
	       (unsigned long long)events.vm_kill);
	if (copies > 1)
		copies_summary();
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
	while ((opt = getopt(argc, argv, "s:t:n:d:r:Dvkh")) != -1) {
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
		case 'r':
			copies = (int)number(optarg, 2, 3);
			break;
		case 'D':
			two_at_once = true;
			break;
		case 'v':
			verbose = true;
			break;
		case 'k':
			keep = true;
			break;
		default:
			printf("usage: dcmtest [-s SEED] [-t SECONDS] [-n VMS] [-d DONORS] [-r COPIES [-D]] [-v] [-k]\n");
			return opt == 'h' ? 0 : 2;
		}
	}
	if (nr_donors < copies + 1 + two_at_once ||
	    (two_at_once && copies != 2))
		die("-r 2 needs 3 donors, -r 3 and -r 2 -D need 4");
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
