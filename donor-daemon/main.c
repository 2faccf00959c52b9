// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * main.c - dcm-donord: start, reload, drain, end
 *
 * SIGHUP reads the configuration and the keys again; if a file is bad nothing
 * changes, and that is logged. SIGTERM drains: every slab is asked back, the
 * hosts move them elsewhere and send DONE; after drain-timeout the rest is
 * logged and taken. A second SIGTERM does not wait. In each of these cases slabs
 * are truncated before the end, so that a memfd that a host still maps holds no
 * memory of this host. A donor that is killed keeps its slabs (restart.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "../kvm-dcm/lib/args.h"
#include "../kvm-dcm/lib/notify.h"
#include "gc_session.h"
#include "donor.h"
#include "fd_limit.h"
#include "log_limit.h"
#include "rdma.h"
#include "ready.h"
#include "restart.h"
#include "gc_cpu.h"

#define DEFAULT_CONFIG	"/etc/kvm-dcm/donor.conf"
#define OVERRIDES_MAX	64u
#define ERR_LEN		512
/* Shorter than the protocol asks for: other work of the loop may delay a heartbeat. */
#define BEAT_MS		(DCM_WIRE_HEARTBEAT_MS * 3 / 4)
/* Random bits of the first slab's serial; half of all serials are left to count up. */
#define SERIAL_BITS	39

const char *argp_program_version = "dcm-donord " DCM_DONOR_VERSION;

/* Command line options override files, also at every reload. */
static struct {
	const char *section;
	const char *key;
	const char *value;
} overrides[OVERRIDES_MAX];
static unsigned int nr_overrides;

static struct dcm_args args = DCM_ARGS_INIT("dcm-donord");

enum {
	OPT_SET = DCM_ARGS_FIRST,
	OPT_FIRST,	/* keys from here on are those of dcm_options[] */
};

static int override_add(struct argp_state *state, const char *section,
			const char *key, const char *value)
{
	struct dcm_config probe;
	char err[ERR_LEN];
	int ret;

	if (nr_overrides == OVERRIDES_MAX)
		argp_error(state, "too many options");
	dcm_config_init(&probe);
	ret = dcm_config_set(&probe, section, key, value, err, sizeof(err));
	dcm_config_free(&probe);
	if (ret) {
		argp_error(state, "%s", err);
		return EINVAL;
	}
	overrides[nr_overrides].section = section;
	overrides[nr_overrides].key = key;
	overrides[nr_overrides++].value = value;
	return 0;
}

/* Take --set's "SECTION.KEY=VALUE"; the section may have a space: "tenant NAME". */
static int override_set(struct argp_state *state, char *arg)
{
	char *eq = strchr(arg, '=');
	char *dot;

	if (eq)
		*eq = 0;
	dot = eq ? strrchr(arg, '.') : NULL;
	if (!dot) {
		argp_error(state, "--set %s: write SECTION.KEY=VALUE", arg);
		return EINVAL;
	}
	*dot = 0;
	return override_add(state, arg, dot + 1, eq + 1);
}

static error_t option_parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case OPT_SET:
		return override_set(state, arg);
	default:
		if (key >= OPT_FIRST && key < OPT_FIRST + DCM_OPTIONS_NR) {
			const struct dcm_option *o =
				&dcm_options[key - OPT_FIRST];

			return override_add(state, o->section, o->key, arg);
		}
		return dcm_args_parse(&args, key, arg, state);
	}
}

#define OPTIONS \
	(DCM_ARGS_NR + 1) /* and --set; dcm_options[] follow */

/* Make an option's entry for --help: its flag, or its name for --set; help, default. */
static void option_help(const struct dcm_option *o, int key,
			struct argp_option *option)
{
	static char names[DCM_OPTIONS_NR][64], docs[DCM_OPTIONS_NR][160];
	char *name = names[o - dcm_options], *doc = docs[o - dcm_options];

	snprintf(name, sizeof(names[0]), "--set %s.%s=%s", o->section, o->key,
		 o->arg);
	if (*o->def)
		snprintf(doc, sizeof(docs[0]), "%s (%s)", o->help, o->def);
	else
		snprintf(doc, sizeof(docs[0]), "%s", o->help);
	*option = (struct argp_option){
		.name = name, .flags = OPTION_DOC, .doc = doc, .group = 1
	};
	if (*o->flag)
		*option = (struct argp_option){ .name = o->flag,
						.key = key,
						.arg = o->arg,
						.doc = doc,
						.group = 1 };
}

static void command_line_parse(int argc, char **argv)
{
	static struct argp_option options[OPTIONS + DCM_OPTIONS_NR + 1] = {
		DCM_ARGS_OPTIONS(
			"Read FILE and FILE.d/*.conf (" DEFAULT_CONFIG ")",
			"Check the configuration and the keys, then exit",
			"When ready, write the bound addresses to descriptor N and close it"),
		{ "set", OPT_SET, "SECTION.KEY=VALUE", 0,
		  "Set any option of the configuration file; repeatable", 0 },
	};
	struct argp argp = {
		.options = options,
		.parser = option_parse,
		.doc = "Lend this host's spare memory to hosts that prove a key.\v"
		       "SIGHUP reloads, SIGTERM drains and ends, a second SIGTERM does not wait. See dcm-donord(8).",
	};

	for (int i = 0; i < DCM_OPTIONS_NR; i++)
		option_help(&dcm_options[i], OPT_FIRST + i,
			    &options[OPTIONS + i]);
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
}

/* Read files, then the command line, then check the whole. */
static int config_read(struct dcm_config *cfg, char *err, size_t err_len)
{
	const char *path = args.config ? args.config : DEFAULT_CONFIG;
	bool listens = false;
	int ret;

	dcm_config_init(cfg);
	if (args.config || !access(path, F_OK) || errno != ENOENT) {
		ret = dcm_config_load(cfg, path, err, err_len);
		if (ret)
			goto fail;
	}
	for (unsigned int i = 0; i < nr_overrides; i++) {
		if (!listens && !strcmp(overrides[i].key, "listen") &&
		    !strcmp(overrides[i].section, "donor")) {
			listens = true;
			cfg->nr_listen = 0;
		}
		ret = dcm_config_set(cfg, overrides[i].section,
				     overrides[i].key, overrides[i].value, err,
				     err_len);
		if (ret)
			goto fail;
	}
	ret = dcm_config_check(cfg, err, err_len);
	if (ret)
		goto fail;
	return 0;
fail:
	dcm_config_free(cfg);
	return ret;
}

static int psk_find(void *arg, const void *name, size_t len, const u8 **key,
		    size_t *key_bytes)
{
	struct dcm_donor *donor = arg;
	struct dcm_tenant *t = dcm_tenant_find(&donor->tenants, name, len);

	if (!t)
		return -ENOENT;
	*key = t->key;
	*key_bytes = t->key_bytes;
	return 0;
}

/* Keep the old values of options that need a restart, and log which have changed. */
static void config_keep(const struct dcm_config *old, struct dcm_config *new)
{
	for (int i = 0; i < DCM_OPTIONS_NR; i++) {
		const struct dcm_option *o = &dcm_options[i];
		const char *from = (const char *)old + o->at;
		char *to = (char *)new + o->at;

		if (!o->restart || !memcmp(from, to, o->bytes))
			continue;
		dcm_warn("[%s] %s has changed, and keeps its old value until the donor is restarted",
			 o->section, o->key);
		memcpy(to, from, o->bytes);
	}
	new->nr_listen = old->nr_listen;
}

static void donor_reload(struct dcm_donor *donor)
{
	struct dcm_config cfg;
	char err[ERR_LEN];

	dcm_notify("RELOADING=1");
	if (config_read(&cfg, err, sizeof(err)))
		goto bad;
	config_keep(&donor->cfg, &cfg);
	if (dcm_fd_limit_check(&cfg, err, sizeof(err)) ||
	    dcm_tenants_load(&donor->tenants, cfg.keys, err, sizeof(err))) {
		dcm_config_free(&cfg);
		goto bad;
	}
	dcm_config_free(&donor->cfg);
	donor->cfg = cfg;
	dcm_pool_limits(&donor->pool, &donor->cfg);
	dcm_fd_limit_warn(&donor->cfg, dcm_size_bytes(&donor->cfg.capacity,
						      donor->pool.total));
	dcm_tenants_quota(&donor->tenants, &donor->cfg, donor->pool.total);
	dcm_restart_keys(donor);
	dcm_pool_balance(&donor->pool);
	dcm_evict_start(donor);
	donor->stats.reloads++;
	dcm_notice("reloaded: capacity %llu MiB, head room %llu MiB",
		   (unsigned long long)(donor->pool.capacity >> 20),
		   (unsigned long long)(donor->pool.head_room >> 20));
	dcm_notify("READY=1");
	return;
bad:
	donor->stats.reloads_failed++;
	dcm_err("not reloaded, everything stays as it was: %s", err);
	dcm_notify("READY=1");
}

/* Log slabs that were not given back, then end. */
static void drain_end(struct dcm_donor *donor)
{
	const struct dcm_session *s;

	dcm_list_for_each(s, &donor->sessions, struct dcm_session, node) {
		if (!s->nr_slabs)
			continue;
		dcm_err("not given back: %u slabs (%llu MiB) of %s, session %llx from %s; their content is lost",
			s->nr_slabs,
			(unsigned long long)(s->nr_slabs *
						     donor->pool.slab_bytes >>
					     20),
			s->tenant->name, (unsigned long long)s->id, s->peer);
		donor->exit_status = 1;
	}
	uv_stop(&donor->loop);
}

static void drain_check(struct dcm_donor *donor)
{
	bool empty = !donor->pool.nr_mapped && !donor->pool.nr_evicting &&
		     !donor->pool.nr_releasing;

	if (!donor->draining || donor->stopping)
		return;
	if (empty)
		dcm_info("drained: every slab is back");
	if (empty || dcm_now(donor) >= donor->drain_deadline) {
		donor->stopping = true;
		drain_end(donor);
	}
}

static void on_signal(uv_signal_t *handle, int signum)
{
	struct dcm_donor *donor = handle->data;

	if (signum == SIGHUP) {
		donor_reload(donor);
		return;
	}
	if (donor->draining) {
		dcm_warn(
			"told to end a second time: not waiting for slabs any longer");
		donor->stopping = true;
		drain_end(donor);
		return;
	}
	donor->draining = true;
	donor->drain_deadline = dcm_now(donor) + donor->cfg.drain_ms;
	dcm_notice("draining: %u slabs are asked back, for up to %u ms",
		   donor->pool.nr_mapped + donor->pool.nr_evicting,
		   donor->cfg.drain_ms);
	dcm_notify("STOPPING=1\nSTATUS=draining");
	dcm_evict_proceed(donor);
	drain_check(donor);
}

static void on_second(uv_timer_t *timer)
{
	struct dcm_donor *donor = timer->data;

	dcm_gc_session_measure(donor);
	dcm_pool_sample(&donor->pool, true);
	if (!donor->draining) {
		dcm_pool_balance(&donor->pool);
		dcm_evict_start(donor);
	}
	dcm_ready_watchdog();
}

static void on_beat(uv_timer_t *timer)
{
	dcm_control_heartbeats(timer->data);
}

static void on_quarter(uv_timer_t *timer)
{
	struct dcm_donor *donor = timer->data;
	u64 now = dcm_now(donor);

	if (now > donor->quarter_at + 2000)
		donor->stalled_at = now;
	donor->quarter_at = now;
	dcm_conn_deadlines(donor);
	dcm_listen_resume(donor);
	dcm_rdma_deadlines(donor);
	dcm_gc_session_reap(donor);
	dcm_evict_proceed(donor);
	drain_check(donor);
}

static int donor_start(struct dcm_donor *donor, char *err, size_t err_len)
{
	static const int numbers[] = { SIGHUP, SIGTERM, SIGINT };
	int ret;

	dcm_tenants_init(&donor->tenants);
	dcm_list_init(&donor->conns);
	dcm_list_init(&donor->sessions);
	dcm_gc_session_start(donor);
	ret = dcm_tenants_load(&donor->tenants, donor->cfg.keys, err, err_len);
	if (ret)
		return ret;
	if (getrandom(&donor->donor_id, sizeof(donor->donor_id), 0) !=
	    sizeof(donor->donor_id)) {
		ret = -errno;
		snprintf(err, err_len, "no random numbers: %s", strerror(-ret));
		return ret;
	}
	dcm_admission_init(&donor->proven, donor->donor_id);
	donor->tls = dcm_tls_server_new(psk_find, donor, err, err_len);
	if (!donor->tls)
		return -EIO;
	uv_loop_init(&donor->loop);
	uv_update_time(&donor->loop);
	donor->started_at = dcm_now(donor);
	donor->quarter_at = donor->started_at;
	ret = dcm_pool_init(&donor->pool, &donor->loop, &donor->cfg, err,
			    err_len);
	if (ret)
		return ret;
	/*
	 * Begin at another serial than the donor before this one. Hosts may not know
	 * yet that its slabs are lost: their READs must not find new slabs.
	 */
	donor->pool.serial = donor->donor_id >> (64 - SERIAL_BITS);
	donor->pool.done = dcm_control_slab_gone;
	donor->pool.done_arg = donor;
	dcm_fd_limit_warn(&donor->cfg, dcm_size_bytes(&donor->cfg.capacity,
						      donor->pool.total));
	dcm_tenants_quota(&donor->tenants, &donor->cfg, donor->pool.total);
	dcm_restart_begin(donor);
	ret = dcm_data_start(donor, err, err_len);
	if (!ret)
		ret = dcm_listen_start(donor, err, err_len);
	if (!ret)
		ret = dcm_rdma_start(donor, err, err_len);
	if (!ret)
		ret = dcm_http_start(donor, err, err_len);
	if (ret)
		return ret;
	for (unsigned int i = 0; i < ARRAY_SIZE(numbers); i++) {
		uv_signal_init(&donor->loop, &donor->signals[i]);
		donor->signals[i].data = donor;
		uv_signal_start(&donor->signals[i], on_signal, numbers[i]);
	}
	donor->second.data = donor;
	donor->quarter.data = donor;
	donor->beat.data = donor;
	uv_timer_init(&donor->loop, &donor->second);
	uv_timer_init(&donor->loop, &donor->quarter);
	uv_timer_init(&donor->loop, &donor->beat);
	uv_timer_start(&donor->second, on_second, 1000, 1000);
	uv_timer_start(&donor->quarter, on_quarter, 250, 250);
	uv_timer_start(&donor->beat, on_beat, BEAT_MS, BEAT_MS);
	dcm_pool_balance(&donor->pool);
	if (donor->gc_path[0])
		dcm_gc_cpu_start(donor);
	return 0;
}

static void handle_close(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void donor_end(struct dcm_donor *donor)
{
	struct dcm_session *s, *s_tmp;
	struct dcm_conn *c, *c_tmp;

	donor->stopping = true;
	dcm_listen_stop(donor);
	dcm_http_stop(donor);
	dcm_list_for_each_safe(s, s_tmp, &donor->sessions, struct dcm_session,
			       node)
		dcm_session_end(s, "the donor ends");
	dcm_list_for_each_safe(c, c_tmp, &donor->conns, struct dcm_conn, node)
		dcm_conn_close(c);
	dcm_data_stop(donor);
	dcm_gc_session_stop(donor);
	while (!dcm_pool_stop(&donor->pool))
		uv_run(&donor->loop, UV_RUN_ONCE);
	dcm_restart_end(donor);
	dcm_rdma_stop(donor);
	uv_walk(&donor->loop, handle_close, NULL);
	uv_run(&donor->loop, UV_RUN_DEFAULT);
	if (uv_loop_close(&donor->loop))
		dcm_err("internal error: the event loop still has handles at the end");
	dcm_rdma_free(donor);
	dcm_pool_free(&donor->pool);
	dcm_tenants_free(&donor->tenants);
	dcm_tls_server_free(donor->tls);
	dcm_config_free(&donor->cfg);
}

int main(int argc, char **argv)
{
	static struct dcm_donor donor;
	char err[ERR_LEN];

	command_line_parse(argc, argv);
	dcm_log_init(args.log_level);
	signal(SIGPIPE, SIG_IGN);
	if (config_read(&donor.cfg, err, sizeof(err))) {
		dcm_err("%s", err);
		return 2;
	}
	if (args.check_only) {
		dcm_tenants_init(&donor.tenants);
		if (dcm_tenants_load(&donor.tenants, donor.cfg.keys, err,
				     sizeof(err))) {
			dcm_err("%s", err);
			return 2;
		}
		dcm_tenants_free(&donor.tenants);
		dcm_config_free(&donor.cfg);
		printf("the configuration is good\n");
		return 0;
	}
	if (dcm_log_start())
		dcm_warn(
			"no thread for the log: lines are dropped while standard error is not ready");
	if (dcm_fd_limit_check(&donor.cfg, err, sizeof(err)) ||
	    donor_start(&donor, err, sizeof(err))) {
		dcm_err("%s", err);
		return 2;
	}
	dcm_notice("dcm-donord %s: lending up to %llu MiB in slabs of %llu MiB, keeping %llu MiB free%s%s",
		   DCM_DONOR_VERSION,
		   (unsigned long long)(donor.pool.capacity >> 20),
		   (unsigned long long)(donor.pool.slab_bytes >> 20),
		   (unsigned long long)(donor.pool.head_room >> 20),
		   donor.pool.dir >= 0 ? ", as files in " : "",
		   donor.pool.path);
	dcm_ready_report(&donor, args.ready_fd);
	uv_run(&donor.loop, UV_RUN_DEFAULT);
	donor_end(&donor);
	dcm_notice("dcm-donord has ended");
	return donor.exit_status;
}
