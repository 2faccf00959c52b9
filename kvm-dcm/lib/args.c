// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * args.c - the options that every daemon has on its command line
 *
 * No state, no locks.
 */
#include <errno.h>
#include <stdlib.h>

#include "args.h"

#define FD_MAX (1 << 20)

static int number_parse(struct argp_state *state, const char *name,
			const char *arg, long max)
{
	char *end;
	long v = strtol(arg, &end, 10);

	if (!*arg || *end || v < 0 || v > max)
		argp_error(state, "--%s %s: write a number from 0 to %ld", name,
			   arg, max);
	return (int)v;
}

error_t dcm_args_parse(struct dcm_args *args, int key, char *arg,
		       struct argp_state *state)
{
	switch (key) {
	case 'c':
		args->config = arg;
		return 0;
	case DCM_ARGS_CHECK:
		args->check_only = true;
		return 0;
	case DCM_ARGS_READY_FD:
		args->ready_fd = number_parse(state, "ready-fd", arg, FD_MAX);
		return 0;
	case DCM_ARGS_LOG_LEVEL:
		args->log_level =
			(enum dcm_log_level)number_parse(state, "log-level",
							 arg, DCM_LOG_DEBUG);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "%s: %s takes options only", arg,
			   args->program);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}
