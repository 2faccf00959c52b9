// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * access.c - touch memory in a known order and say how long it took
 *
 * One program for both sides of every comparison. Without --pager it takes
 * ordinary anonymous memory, and bench/run starts it in a memory cgroup (swap
 * on zram); with it the memory comes from dcm_pager_map() of libdcm.so, and the
 * pager's status is part of what is printed. All else is the same.
 *
 *   access --pages N --pattern seq|rand|cycle|skew|stride [--step N]
 *          [--write PERCENT] [--content mixed|random] [--threads N] [--warm N]
 *          [--ops N] [--seconds S]
 *          [--pager CONFIG.ini [--alternate TUNABLE | --beside CONFIG.ini]]
 *
 * seq     page after page, wrapping around
 * stride  every --step'th page, to the end; then the same from one page further on
 * rand    uniformly random pages
 * cycle   each page once in a random order, then again in that order: the time
 *         between two touches of a page is always all of the memory, so that
 *         each touch is a fault whatever the replacement policy (nearly)
 * skew    random, half of the touches go to an eighth of the pages (the cube of a
 *         uniform number)
 *
 * Every page is filled first, with what compresses 2:1 or not at all; each
 * touch reads a cache line, checks that it is of the right page, and writes a
 * word of it in PERCENT of cases. --warm touches before the clock starts.
 * A touch of less than a microsecond was no fault: no fault is that short.
 *
 * With --alternate the first thread sets a tunable of the pager to 1 and to 0
 * in turn, for 64 of its faults each; "ns" is then of 1, and "ns_0" of 0. How
 * threads wait for each other changes from second to second, and from run to
 * run, by more than a tunable may cost: so both have the same of that. With
 * --beside the one thread has the same pages on a second pager, and touches those
 * of either in turn, for 64 faults each; "ns_0" is then of the second pager.
 *
 * Samples live in .bss: small, and not in memory that anybody pages.
 */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "common.h"
#include "libdcm.h"

#define SAMPLES_MAX 131072u
#define THREADS_MAX 8u
#define FAULT_NS    1000u
#define TURN_FAULTS 64u

enum pattern { SEQ, RAND, CYCLE, SKEW, STRIDE };

/* Memory, and the pager it is on, if any; the second is --beside's. */
static struct area {
	char *memory;
	struct dcm_pager *pager;
} areas[2];

struct worker {
	pthread_t thread;
	unsigned int id;
	uint64_t rng;
	uint64_t at;
	uint64_t touches;
	uint64_t faults;
	uint64_t samples;
	uint64_t writes;
	uint64_t ns;
	uint64_t wrong;
};

static uint32_t samples[THREADS_MAX][SAMPLES_MAX], samples_0[SAMPLES_MAX];
static uint64_t nr_samples_0;
static struct worker workers[THREADS_MAX];
static pthread_barrier_t barrier;

static uint64_t pages, ops, warm, step = 1;
static double seconds;
static unsigned int nr_threads = 1, write_percent, page_bits;
static enum pattern pattern;
static enum bench_content content;
static const char *pager_config, *beside_config, *alternate;
static __typeof__(dcm_pager_set) *pager_set;
static void *libdcm;
static uint64_t cpu_start, cpu_end;

/* A bijection on page_bits bits: the order of cycle. */
static uint64_t page_mix(uint64_t i)
{
	uint64_t mask = (1ull << page_bits) - 1;

	i = (i * 0x9e3779b97f4a7c15ull + 12345) & mask;
	i ^= i >> (page_bits / 2);
	i = (i * 0xd6e8feb86659fd93ull) & mask;
	i ^= i >> (page_bits / 3 + 1);
	return i & mask;
}

static uint64_t page_next(struct worker *w)
{
	uint64_t i;
	double u;

	switch (pattern) {
	case SEQ:
		return w->at++ % pages;
	case CYCLE:
		do
			i = page_mix(w->at++);
		while (i >= pages);
		return i;
	case SKEW:
		u = (double)(bench_rand(&w->rng) >> 16) / (double)(1ull << 48);
		return (uint64_t)((double)pages * u * u * u) % pages;
	case STRIDE:
		i = w->at;
		w->at += step;
		if (w->at >= pages)
			w->at = (i % step + 1) % step;
		return i;
	default:
		return (bench_rand(&w->rng) >> 16) % pages;
	}
}

static void page_touch(struct worker *w, const struct area *a, uint64_t page)
{
	volatile uint64_t *p = (volatile uint64_t *)(a->memory + page * PAGE);

	if (p[PAGE_MARK] != bench_page_mark(page))
		w->wrong++;
	if (write_percent &&
	    (bench_rand(&w->rng) >> 32) % 100 < write_percent) {
		p[PAGE_WRITE] = w->rng;
		w->writes++;
	}
}

/* CPU time of the whole process, the pager's threads included. */
static uint64_t cpu_ns(void)
{
	return bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* Of the first thread: whose turn it is, that of "ns" or that of "ns_0". */
static bool turn(uint64_t fault)
{
	bool on = !(fault / TURN_FAULTS % 2);
	int why;

	if (!alternate || fault % TURN_FAULTS)
		return on;
	why = pager_set(areas[0].pager, alternate, on);
	if (why)
		die("access: %s = %d: %s", alternate, on, strerror(-why));
	return on;
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	bool turns = (alternate || beside_config) && !w->id;
	uint64_t start, end, limit, kept = 0;
	bool on = true;

	for (uint64_t i = 0; i < warm; i++) {
		uint64_t page = page_next(w);

		page_touch(w, &areas[0], page);
		if (beside_config)
			page_touch(w, &areas[1], page);
	}
	w->writes = 0;
	pthread_barrier_wait(&barrier);
	if (!w->id)
		cpu_start = cpu_ns();
	start = end = bench_now_ns();
	limit = seconds > 0 ? start + (uint64_t)(seconds * 1e9) : UINT64_MAX;
	if (turns)
		on = turn(0);
	while ((!ops || w->touches < ops) && end < limit) {
		uint64_t page = page_next(w), t = bench_now_ns();

		page_touch(w, &areas[beside_config && !on], page);
		end = bench_now_ns();
		w->touches++;
		if (end - t < FAULT_NS)
			continue;
		if (on && kept < SAMPLES_MAX)
			samples[w->id][kept++] = (uint32_t)(end - t);
		else if (!on && nr_samples_0 < SAMPLES_MAX)
			samples_0[nr_samples_0++] = (uint32_t)(end - t);
		w->faults++;
		if (turns)
			on = turn(w->faults);
	}
	w->samples = kept;
	w->ns = end - start;
	if (!w->id)
		cpu_end = cpu_ns();
	return NULL;
}

static uint64_t number(const char *s, const char *what, uint64_t lo,
		       uint64_t hi)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(s, &end, 0);
	if (errno || *end || end == s || v < lo || v > hi)
		die("access: %s must be a number from %llu to %llu", what,
		    (unsigned long long)lo, (unsigned long long)hi);
	return v;
}

static unsigned int choice(const char *s, const char *const *names,
			   unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (!strcmp(s, names[i]))
			return i;
	die("access: '%s' is none of the choices", s);
}

static void options_read(int argc, char **argv)
{
	static const char *const patterns[] = { "seq", "rand", "cycle", "skew",
						"stride" };
	static const char *const contents[] = { "mixed", "random" };
	static const struct option opts[] = {
		{ "pages", 1, NULL, 'p' },   { "pattern", 1, NULL, 'a' },
		{ "write", 1, NULL, 'w' },   { "content", 1, NULL, 'c' },
		{ "threads", 1, NULL, 't' }, { "warm", 1, NULL, 'm' },
		{ "ops", 1, NULL, 'o' },     { "seconds", 1, NULL, 's' },
		{ "pager", 1, NULL, 'g' },   { "alternate", 1, NULL, 'n' },
		{ "step", 1, NULL, 'e' },    { "beside", 1, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	int o;

	while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (o) {
		case 'p':
			pages = number(optarg, "--pages", 1, 1u << 28);
			break;
		case 'a':
			pattern = choice(optarg, patterns, 5);
			break;
		case 'w':
			write_percent =
				(unsigned int)number(optarg, "--write", 0, 100);
			break;
		case 'c':
			content = choice(optarg, contents, 2);
			break;
		case 't':
			nr_threads = (unsigned int)number(optarg, "--threads",
							  1, THREADS_MAX);
			break;
		case 'm':
			warm = number(optarg, "--warm", 0, UINT64_MAX);
			break;
		case 'o':
			ops = number(optarg, "--ops", 1, UINT64_MAX);
			break;
		case 's':
			seconds = atof(optarg);
			break;
		case 'g':
			pager_config = optarg;
			break;
		case 'b':
			beside_config = optarg;
			break;
		case 'n':
			alternate = optarg;
			break;
		case 'e':
			step = number(optarg, "--step", 1, 1u << 28);
			break;
		default:
			exit(2);
		}
	}
	if (!pages || (!ops && seconds <= 0))
		die("access: --pages and one of --ops and --seconds are needed");
	if ((alternate || beside_config) && !pager_config)
		die("access: --alternate and --beside need --pager");
	if (beside_config && (alternate || nr_threads > 1))
		die("access: --beside is for one thread, and not for --alternate");
	if (step > pages)
		die("access: --step is larger than --pages");
}

static void *libdcm_function(const char *name)
{
	void *f = dlsym(libdcm, name);

	if (!f)
		die("access: %s", dlerror());
	return f;
}

static void area_make(struct area *a, const char *config, size_t bytes)
{
	if (config) {
		__typeof__(dcm_pager_open) *open_pager;
		__typeof__(dcm_pager_map) *map;
		char err[512] = "";

		libdcm = dlopen("libdcm.so", RTLD_NOW);
		if (!libdcm)
			die("access: %s", dlerror());
		open_pager = libdcm_function("dcm_pager_open");
		map = libdcm_function("dcm_pager_map");
		pager_set = libdcm_function("dcm_pager_set");
		a->pager = open_pager(config, err, sizeof(err));
		if (!a->pager)
			die("access: %s", err);
		a->memory = map(a->pager, bytes);
		if (!a->memory)
			die("access: dcm_pager_map: %s", strerror(errno));
	} else {
		a->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				 -1, 0);
		if (a->memory == MAP_FAILED)
			die("access: no memory for %zu bytes", bytes);
	}
	/* Filled outside: a page is built on the stack and copied in once. */
	for (uint64_t i = 0; i < pages; i++) {
		uint64_t page[PAGE / 8];

		bench_page_fill(page, i, content);
		memcpy(a->memory + i * PAGE, page, PAGE);
	}
}

/* The pager's own figures, then its memory is no more. */
static void pager_end(struct dcm_pager *pager, const char *name)
{
	__typeof__(dcm_pager_status) *status =
		libdcm_function("dcm_pager_status");
	__typeof__(dcm_pager_close) *close_pager =
		libdcm_function("dcm_pager_close");
	char *text = status(pager);

	printf(",\"%s\":%s", name, text ? text : "null");
	free(text);
	close_pager(pager);
}

int main(int argc, char **argv)
{
	uint64_t touches = 0, faults = 0, writes = 0, ns = 0, wrong = 0,
		 kept = 0;
	double rate = 0, fault_rate = 0;
	struct rusage ru;

	options_read(argc, argv);
	while (1ull << page_bits < pages)
		page_bits++;
	area_make(&areas[0], pager_config, pages * PAGE);
	if (beside_config)
		area_make(&areas[1], beside_config, pages * PAGE);
	if (pthread_barrier_init(&barrier, NULL, nr_threads))
		die("access: no barrier");
	for (unsigned int i = 0; i < nr_threads; i++) {
		workers[i].id = i;
		workers[i].rng = 0x1234567 + i * 0x9e3779b97f4a7c15ull;
		workers[i].at = pattern == SEQ ?
					pages / nr_threads * i :
						 (1ull << page_bits) / nr_threads * i;
		if (i && pthread_create(&workers[i].thread, NULL, worker_run,
					&workers[i]))
			die("access: can't start a thread");
	}
	worker_run(&workers[0]);
	for (unsigned int i = 0; i < nr_threads; i++) {
		struct worker *w = &workers[i];
		uint64_t n;

		if (i)
			pthread_join(w->thread, NULL);
		touches += w->touches;
		faults += w->faults;
		writes += w->writes;
		wrong += w->wrong;
		rate += (double)w->touches * 1e9 / (double)w->ns;
		fault_rate += (double)w->faults * 1e9 / (double)w->ns;
		if (w->ns > ns)
			ns = w->ns;
		n = w->samples;
		if (n > sizeof(samples) / sizeof(samples[0][0]) - kept)
			n = 0;
		memmove(&samples[0][0] + kept, samples[i],
			n * sizeof(samples[0][0]));
		kept += n;
	}
	getrusage(RUSAGE_SELF, &ru);
	printf("{\"touches\":%llu,\"faults\":%llu,\"writes\":%llu,\"wrong\":%llu,"
	       "\"elapsed_ns\":%llu,\"cpu_ns\":%llu,\"ns_per_touch\":%.1f,\"touches_per_s\":%.0f,"
	       "\"faults_per_s\":%.0f,\"maxrss_kib\":%ld,\"majflt\":%ld,",
	       (unsigned long long)touches, (unsigned long long)faults,
	       (unsigned long long)writes, (unsigned long long)wrong,
	       (unsigned long long)ns,
	       (unsigned long long)(cpu_end - cpu_start),
	       touches ? (double)ns * nr_threads / (double)touches : 0.0, rate,
	       fault_rate, ru.ru_maxrss, ru.ru_majflt);
	bench_percentiles_print("ns", &samples[0][0], kept);
	if (alternate || beside_config) {
		printf(",");
		bench_percentiles_print("ns_0", samples_0, nr_samples_0);
	}
	if (areas[0].pager)
		pager_end(areas[0].pager, "pager");
	if (areas[1].pager)
		pager_end(areas[1].pager, "beside");
	printf("}\n");
	if (wrong) {
		fprintf(stderr,
			"access: %llu reads found another page's bytes\n",
			(unsigned long long)wrong);
		return 1;
	}
	return 0;
}
