// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * status.c - /status: the donor as one JSON object
 *
 * Fields are only ever added. Sizes are bytes, times milliseconds unless the
 * name says otherwise. It never has keys or session secrets.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "donor.h"
#include "rdma.h"
#include "gc_cpu.h"

#define LOAD(x) READ_ONCE(x)

static void json_put_int(json_t *o, const char *key, u64 v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

static void json_put_text(json_t *o, const char *key, const char *v)
{
	json_object_set_new(o, key, json_string(v));
}

static void json_put_id(json_t *o, const char *key, u64 v)
{
	char hex[17];

	/* a JSON reader may round numbers above 2^53 */
	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)v);
	json_put_text(o, key, hex);
}

static const char *slab_state_name(enum dcm_slab_state state)
{
	switch (state) {
	case DCM_SLAB_SPARE:
		return "spare";
	case DCM_SLAB_MAPPED:
		return "mapped";
	case DCM_SLAB_EVICTING:
		return "evicting";
	default:
		return "releasing";
	}
}

static json_t *status_sessions(const struct dcm_donor *donor)
{
	const struct dcm_session *s;
	json_t *list = json_array();

	dcm_list_for_each(s, &donor->sessions, struct dcm_session, node) {
		json_t *o = json_object();
		u64 heard = LOAD(s->heard_at);
		u64 now = dcm_now(donor);

		json_put_id(o, "session", s->id);
		json_put_text(o, "tenant", s->tenant->name);
		json_put_text(o, "peer", s->peer);
		json_put_text(o, "state",
			 s->silent ? "silent" :
			 s->conn   ? "alive" :
				     "lost");
		json_put_int(o, "age_ms", now - s->made_at);
		json_put_int(o, "silent_ms", now > heard ? now - heard : 0);
		json_put_int(o, "patience_ms", s->tenant->patience_ms);
		json_put_int(o, "data_connections", s->nr_data);
		json_put_int(o, "queue_pairs", s->nr_rdma);
		json_put_int(o, "slabs", s->nr_slabs);
		json_put_int(o, "bytes", s->nr_slabs * donor->pool.slab_bytes);
		json_put_int(o, "reads", LOAD(s->reads));
		json_put_int(o, "writes", LOAD(s->writes));
		json_put_int(o, "read_bytes", LOAD(s->read_bytes));
		json_put_int(o, "written_bytes", LOAD(s->written_bytes));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *status_tenants(const struct dcm_donor *donor)
{
	const struct dcm_tenant *t;
	json_t *list = json_array();

	dcm_list_for_each(t, &donor->tenants.list, struct dcm_tenant, node) {
		json_t *o = json_object();

		json_put_text(o, "tenant", t->name);
		json_object_set_new(o, "removed", json_boolean(t->gone));
		json_put_int(o, "bytes", t->bytes);
		json_put_int(o, "quota_bytes", t->quota_bytes);
		json_put_int(o, "connections", t->connections);
		json_put_int(o, "quota_connections", t->quota_connections);
		json_put_int(o, "sessions", t->sessions);
		json_put_int(o, "patience_ms", t->patience_ms);
		json_put_int(o, "gc_workers", t->workers);
		json_put_int(o, "quota_gc_workers", t->quota_workers);
		json_put_int(o, "gc_bytes", t->gc_bytes);
		json_put_int(o, "quota_refusals", t->refusals);
		json_put_int(o, "data_turns", LOAD(t->data_turns));
		json_put_int(o, "data_cost", LOAD(t->data_cost));
		json_put_int(o, "data_turn_max", LOAD(t->data_turn_max));
		json_put_int(o, "data_wait_max", LOAD(t->data_wait_max));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *status_slabs(const struct dcm_donor *donor)
{
	const struct dcm_slab *slab;
	json_t *list = json_array();

	dcm_list_for_each(slab, &donor->pool.slabs, struct dcm_slab, node) {
		json_t *o = json_object();

		json_put_int(o, "slab", slab->id);
		json_put_text(o, "state", slab_state_name(slab->state));
		json_put_int(o, "backed_bytes", slab->backed);
		if (slab->session) {
			json_put_id(o, "session", slab->session->id);
			json_put_text(o, "tenant", slab->tenant->name);
			json_put_text(o, "transport", slab->export->name);
			json_put_int(o, "cookie", slab->cookie);
			json_put_int(o, "activity_milli",
				slab->export->unseen ? slab->said_milli :
						     slab->ewma_milli);
		}
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *status_memory(const struct dcm_donor *donor)
{
	const struct dcm_pool *p = &donor->pool;
	json_t *o = json_object();

	json_put_text(o, "medium", p->dir >= 0 ? "file" : "memory");
	json_put_text(o, "path", p->path);
	json_put_int(o, "slab_bytes", p->slab_bytes);
	json_put_int(o, "capacity_bytes", p->capacity);
	json_put_int(o, "head_room_bytes", p->head_room);
	json_put_int(o, "host_total_bytes", p->total);
	json_put_int(o, "host_free_bytes", p->free_now);
	json_put_int(o, "room_bytes", p->room > 0 ? (u64)p->room : 0);
	json_put_int(o, "allowed_bytes", p->allowed);
	json_put_int(o, "used_bytes",
		(u64)(p->nr_mapped + p->nr_evicting) * p->slab_bytes);
	json_put_int(o, "backed_bytes", p->backed);
	json_put_int(o, "huge_page_bytes", p->huge_bytes);
	json_put_int(o, "slabs_mapped", p->nr_mapped);
	json_put_int(o, "slabs_evicting", p->nr_evicting);
	json_put_int(o, "slabs_spare", p->nr_spare);
	json_put_int(o, "slabs_releasing", p->nr_releasing);
	json_put_int(o, "slabs_free", dcm_pool_free_slabs(p));
	json_put_int(o, "slabs_made", p->made_total);
	json_put_int(o, "slabs_released", p->released_total);
	return o;
}

static json_t *status_data(const struct dcm_donor *donor)
{
	struct dcm_data_counters t;
	u32 connections = dcm_data_totals(donor, &t);
	json_t *o = json_object();

	json_put_int(o, "connections", connections);
	json_put_int(o, "reads", t.reads);
	json_put_int(o, "writes", t.writes);
	json_put_int(o, "read_bytes", t.read_bytes);
	json_put_int(o, "written_bytes", t.written_bytes);
	json_put_int(o, "refused", t.refused);
	json_put_int(o, "batches", t.batches);
	json_put_int(o, "disk_errors", t.disk_errors);
	return o;
}

static json_t *status_rdma(const struct dcm_donor *donor)
{
	struct dcm_rdma_status st;
	json_t *o = json_object();

	dcm_rdma_status_read(donor, &st);
	json_put_text(o, "listen", st.name);
	json_put_text(o, "why_off", st.why);
	json_put_int(o, "connections", st.connections);
	json_put_int(o, "connections_made", st.connections_total);
	json_put_int(o, "rejected", st.rejected);
	json_put_int(o, "errors", st.errors);
	json_put_int(o, "tickets", st.tickets);
	json_put_int(o, "tickets_made", st.tickets_total);
	json_put_int(o, "tickets_expired", st.tickets_expired);
	json_put_int(o, "tickets_bad", st.tickets_bad);
	json_put_int(o, "registered_bytes", st.registered_bytes);
	return o;
}

static json_t *status_gc(const struct dcm_donor *donor)
{
	json_t *o = json_object();

	json_put_text(o, "worker", donor->gc_path);
	json_put_int(o, "workers", donor->nr_gc_sessions);
	json_put_int(o, "charged_bytes", donor->pool.charged);
	json_put_int(o, "backed_bytes", donor->pool.charged_backed);
	json_put_text(o, "cpu", dcm_gc_cpu_name(donor));
	json_put_int(o, "started", donor->stats.gc_started);
	json_put_int(o, "lost", donor->stats.gc_lost);
	return o;
}

static json_t *status_events(const struct dcm_stats *s)
{
	json_t *o = json_object();

	json_put_int(o, "accepted", s->accepted);
	json_put_int(o, "handshakes_failed", s->handshake_failed);
	json_put_int(o, "handshakes_timed_out", s->handshake_timeout);
	json_put_int(o, "handshakes_dropped", s->handshake_dropped);
	json_put_int(o, "hellos_refused", s->hello_refused);
	json_put_int(o, "protocol_errors", s->protocol_errors);
	json_put_int(o, "sessions_made", s->sessions_made);
	json_put_int(o, "sessions_resumed", s->sessions_resumed);
	json_put_int(o, "sessions_restored", s->sessions_restored);
	json_put_int(o, "slabs_restored", s->slabs_restored);
	json_put_int(o, "sessions_goodbye", s->sessions_goodbye);
	json_put_int(o, "sessions_silent", s->sessions_silent);
	json_put_int(o, "sessions_gone", s->sessions_gone);
	json_put_int(o, "maps", s->maps);
	json_put_int(o, "maps_refused", s->maps_refused);
	json_put_int(o, "unmaps", s->unmaps);
	json_put_int(o, "reloads", s->reloads);
	json_put_int(o, "reloads_failed", s->reloads_failed);
	return o;
}

static json_t *status_evictions(const struct dcm_stats *s)
{
	json_t *o = json_object();

	json_put_int(o, "rounds", s->evict_rounds);
	json_put_int(o, "asked", s->evict_asked);
	json_put_int(o, "done", s->evict_done);
	json_put_int(o, "forced", s->evict_forced);
	return o;
}

char *dcm_status_json(struct dcm_donor *donor, size_t *len)
{
	json_t *o = json_object();
	json_t *listen = json_array();
	char *text;

	json_put_text(o, "version", DCM_DONOR_VERSION);
	json_put_int(o, "protocol", DCM_WIRE_VERSION_MAX);
	json_put_int(o, "pid", (u64)getpid());
	json_put_id(o, "donor_id", donor->donor_id);
	json_put_int(o, "uptime_ms", dcm_now(donor) - donor->started_at);
	json_put_text(o, "state",
		 donor->stopping ? "stopping" :
		 donor->draining ? "draining" :
				   "lending");
	for (u32 i = 0; i < donor->nr_listeners; i++)
		json_array_append_new(listen,
				      json_string(donor->listeners[i].name));
	json_object_set_new(o, "listen", listen);
	json_put_text(o, "http", donor->http_name);
	json_object_set_new(o, "data_encryption",
			    json_boolean(donor->cfg.data_encryption));
	json_put_int(o, "connections", donor->nr_conns);
	json_put_int(o, "handshakes", donor->nr_handshakes);
	json_object_set_new(o, "memory", status_memory(donor));
	json_object_set_new(o, "data", status_data(donor));
	json_object_set_new(o, "rdma", status_rdma(donor));
	json_object_set_new(o, "gc", status_gc(donor));
	json_object_set_new(o, "evictions", status_evictions(&donor->stats));
	json_object_set_new(o, "events", status_events(&donor->stats));
	json_object_set_new(o, "tenants", status_tenants(donor));
	json_object_set_new(o, "sessions", status_sessions(donor));
	json_object_set_new(o, "slabs", status_slabs(donor));
	text = json_dumps(o, JSON_INDENT(2));
	json_decref(o);
	*len = text ? strlen(text) : 0;
	return text;
}
