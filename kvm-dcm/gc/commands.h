/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * commands.h - the table of commands: what each needs of pages and workers
 *
 * DCM_GC_COMMANDS(x) calls x(name, freeze, sync, run, targets, take) for each:
 *
 *	name	of VIRTIO_GC_name
 *	freeze	accesses to its regions wait until the workers have answered
 *	sync	how its regions are written back first:
 *		NONE; KEEP: pages stay in this host; OUT: none stays
 *		(ranges of TRACE_ROOTS and TRACE_CARDS, and its sources: KEEP)
 *	run	command.c: this host's part; run_workers() freezes, syncs
 *		and calls the workers for the rest
 *	targets	workers.c: which workers it needs:
 *		NONE; SPACE: those that know the space, or that take() starts;
 *		TRACE: all workers of its trace, which must exist; PLACES: the
 *		same, and they must know the places of all its regions
 *	take	workers*.c: ask the workers and take their answers
 */
#ifndef DCM_GC_COMMANDS_H
#define DCM_GC_COMMANDS_H

/* clang-format off */
#define DCM_GC_COMMANDS(x)                                                      \
	x(SPACE_CREATE,  false, NONE, run_create,  SPACE,  gc_do_create)        \
	x(SPACE_DESTROY, false, NONE, run_destroy, SPACE,  gc_do_destroy)       \
	x(SPACE_DONORS,  false, NONE, run_workers, SPACE,  gc_do_donors)        \
	x(TYPES_ADD,     false, NONE, run_workers, SPACE,  gc_do_types)         \
	x(CLEAN,         false, KEEP, run_clean,   NONE,   NULL)                \
	x(TRACE_START,   true,  KEEP, run_start,   SPACE,  gc_do_start)         \
	x(TRACE_ROOTS,   false, NONE, run_refs,    TRACE,  gc_do_roots)         \
	x(TRACE_MET,     false, NONE, run_workers, TRACE,  gc_do_met)           \
	x(TRACE_FINISH,  false, NONE, run_workers, TRACE,  gc_do_finish)        \
	x(TRACE_RESULTS, false, NONE, run_workers, TRACE,  gc_do_results)       \
	x(TRACE_STATE,   false, NONE, run_workers, TRACE,  gc_do_state)         \
	x(TRACE_ASK,     false, NONE, run_workers, TRACE,  gc_do_trace_ask)     \
	x(TRACE_BITMAPS, false, NONE, run_workers, TRACE,  gc_do_bitmaps)       \
	x(TRACE_CARDS,   false, NONE, run_refs,    TRACE,  gc_do_cards)         \
	x(EVACUATE,      true,  OUT,  run_workers, PLACES, gc_do_evacuate)      \
	x(UPDATE,        true,  OUT,  run_refs,    PLACES, gc_do_update)        \
	x(FORWARD,       false, NONE, run_workers, TRACE,  gc_do_forward)       \
	x(RELEASE,       false, NONE, run_release, TRACE,  gc_do_status)        \
	x(COMPACT,       true,  OUT,  run_workers, PLACES, gc_do_compact)       \
	x(HINT,          false, NONE, run_hint,    NONE,   NULL)                \
	x(CANCEL,        false, NONE, run_cancel,  NONE,   NULL)
/* clang-format on */

#endif /* DCM_GC_COMMANDS_H */
