// SPDX-License-Identifier: GPL-2.0-only
/*
 * tables.c - the names of states, tunables, counters and histograms
 *
 * Each table is made from the one list in its header, so that an enum, its
 * text and its documentation can't drift apart.
 */
#include "core.h"

const char *const dcm_state_names[DCM_NR_STATES] = {
	[DCM_NOTDIRECT] = "NotDirect", [DCM_ACTIVE] = "Active",
	[DCM_PROACTIVE] = "Proactive", [DCM_INACTIVE] = "Inactive",
	[DCM_WRITEBACK] = "Writeback",
};

const struct dcm_tunable dcm_tunables[DCM_T_NR] = {
#define X(id, unit, def, lo, hi, why) \
	[DCM_T_##id] = { #id, unit, def, lo, hi, why },
	DCM_TUNABLES(X)
#undef X
};

const char *const dcm_counter_names[DCM_C_NR] = {
#define X(id, text) [DCM_C_##id] = #id,
	DCM_COUNTERS(X)
#undef X
};

const char *const dcm_counter_texts[DCM_C_NR] = {
#define X(id, text) [DCM_C_##id] = text,
	DCM_COUNTERS(X)
#undef X
};

const char *const dcm_hist_names[DCM_H_NR] = {
	[DCM_H_FAULT] = "fault",
	[DCM_H_FETCH] = "fetch",
	[DCM_H_WRITEBACK] = "writeback",
};
