/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * args.h - the options that every daemon has on its command line
 *
 * A daemon lists DCM_ARGS_OPTIONS() among its own options, and its parser hands
 * the keys it does not know to dcm_args_parse().
 */
#ifndef DCM_ARGS_H
#define DCM_ARGS_H

#include <argp.h>
#include <stdbool.h>

#include "log.h"

/* Keys of a daemon's own options begin at %DCM_ARGS_FIRST. */
enum {
	DCM_ARGS_CHECK = 256,
	DCM_ARGS_READY_FD,
	DCM_ARGS_LOG_LEVEL,
	DCM_ARGS_FIRST,
};

#define DCM_ARGS_NR 4 /* options of DCM_ARGS_OPTIONS() */

/*
 * Entries of a struct argp_option array. Arguments: help texts, except --log-level's.
 */
#define DCM_ARGS_OPTIONS(config, check, ready)                                  \
	{ "config", 'c', "FILE", 0, config, 0 },                                \
		{ "check-config", DCM_ARGS_CHECK, NULL, 0, check, 0 },          \
		{ "ready-fd", DCM_ARGS_READY_FD, "N", 0, ready, 0 },            \
	{                                                                       \
		"log-level", DCM_ARGS_LOG_LEVEL, "N", 0,                        \
			"3 errors, 4 warnings, 5 notices, 6 info (default), 7 debug", \
			0                                                       \
	}

/**
 * struct dcm_args - values of these options
 * @program: the daemon's name
 * @config: --config's file; %NULL when it was not given
 * @check_only: --check-config
 * @ready_fd: --ready-fd's descriptor, or -1
 * @log_level: --log-level's level
 */
struct dcm_args {
	const char *program;
	const char *config;
	bool check_only;
	int ready_fd;
	enum dcm_log_level log_level;
};

/* Initial values, before the command line is read. */
#define DCM_ARGS_INIT(name) \
	{                                                                    \
		.program = (name), .ready_fd = -1, .log_level = DCM_LOG_INFO \
	}

/**
 * dcm_args_parse() - take one of these options
 * @args: filled in
 * @key: argp's
 * @arg: its argument
 * @state: argp's
 *
 * If @arg is wrong, ends the program with a usage message.
 *
 * Return: 0, or %ARGP_ERR_UNKNOWN for other keys.
 */
error_t dcm_args_parse(struct dcm_args *args, int key, char *arg,
		       struct argp_state *state);

#endif /* DCM_ARGS_H */
