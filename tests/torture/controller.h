/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * controller.h - what the parts of the torture test's controller share
 *
 * dcmtest.c has the run, vms.c the VM processes, donors.c the donors, copies.c
 * how donors die when VMs have copies.
 */
#ifndef TORTURE_CONTROLLER_H
#define TORTURE_CONTROLLER_H

#include <stdbool.h>
#include <stdint.h>

#include "torture.h"

struct vm {
	pid_t pid;
	uint32_t round;
	double cont_at; /* stopped: let it go on then */
	uint64_t seen_ops;
	double seen_at;
	uint64_t ops, checked, lost, discards, budgets; /* ended incarnations */
};

/* How often what was done to them. */
struct events {
	uint64_t squeeze, drain, stop, long_stop, kill;
	uint64_t vm_stop, vm_long, vm_kill;
	uint64_t cut, lost, named;
};

extern struct vm vm[VMS_MAX];
extern struct donor donor[DONORS_MAX];
extern int nr_vms, nr_donors;
extern uint64_t seed, rng;
extern int losing; /* things that lose pages happen by now */
extern struct events events;

/* One line of what happens, with -v. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A VM went wrong: say all that helps, keep the files. */
void failed(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

/* vms.c */
void vm_config(int i);
void vm_start(int i, bool may_lose);
void vms_look(void);
void all_may_lose(void);
void vm_event(bool losses);
void vms_stop(void);

/* donors.c */
int donors_well(void);
void donor_event(bool losses);
void donors_look(void);
void donors_stop(void);

/* copies.c */
extern int copies; /* of each page; 1: donors' deaths lose pages */
extern bool two_at_once; /* donors that die */
void copies_look(void);
uint64_t copies_hits(void); /* donors hit so far */
void copies_summary(void);

#endif /* TORTURE_CONTROLLER_H */
