/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * torture.h - what the torture test's processes share
 *
 * One controller, several donors (dcm-donord), several VM processes (libdcm).
 * A VM process tells the controller what it does through one shared page, and
 * the controller tells it there which losses may have happened to it.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define VMS_MAX 4
#define DONORS_MAX 4
#define THREADS 3
#define PAGE 4096u
#define WORDS (PAGE / sizeof(uint64_t))
#define MIB (1ull << 20)
#define SLAB_BYTES (2 * MIB)
#define VM_BYTES (32 * MIB)

/**
 * struct vm_shared - one VM's line to the controller
 * @ops: operations done
 * @checked: pages compared with what was last written there
 * @lost: accesses that got SIGBUS or EFAULT
 * @discards: pages discarded
 * @budgets: times the budget was changed
 * @round: incarnation
 * @ready: it has memory and runs
 * @may_lose: set before something happens that may cost this VM pages
 * @told_ms: when the status was made that the next five are of
 * @whole: nothing is exposed
 * @up: donors that are up, a bit each
 * @lost_pages: pages lost so far
 * @together: bytes that are lost with two donors, [lower][higher]
 * @stop: end cleanly
 * @failed: @why says what
 */
struct vm_shared {
	uint64_t ops;
	uint64_t checked;
	uint64_t lost;
	uint64_t discards;
	uint64_t budgets;
	uint64_t told_ms;
	uint64_t whole;
	uint64_t up;
	uint64_t lost_pages;
	uint64_t together[DONORS_MAX][DONORS_MAX];
	uint32_t round;
	uint32_t ready;
	uint32_t may_lose;
	uint32_t stop;
	uint32_t failed;
	char why[400];
} __attribute__((aligned(64)));

struct donor {
	char dir[96];
	char sock[128];
	char name[16];
	bool shm; /* reached by UNIX socket: shm, else tcp */
	int port;
	int capacity_mib;
	pid_t pid;
	uint32_t starts;
	double back_at; /* dead: start it again then; 0: it runs */
	double cont_at; /* stopped: let it go on then; 0: it runs */
	double normal_at; /* squeezed: give capacity back then */
	bool draining;
	struct proxy *proxy; /* tcp: the line to it */
	char line[64]; /* its address */
	double heal_at; /* cut off: until then; 0: it is not */
};

extern struct vm_shared *shared; /* VMS_MAX of them */
extern char top_dir[64];
extern const char *donord;
extern bool verbose;

uint64_t rnd(uint64_t *state, uint64_t n);
double now_s(void);
void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void write_file(const char *path, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* donor.c */
void donor_init(struct donor *d, int i);
void donor_start(struct donor *d);
void donor_capacity(struct donor *d, int mib);
void donor_kill(struct donor *d, int sig);

/* status.c: false if @text is no status */
bool status_tell(struct vm_shared *s, const char *text);

/* vm.c */
int vm_main(int index, const char *config, uint64_t seed);

#endif /* TORTURE_H */
