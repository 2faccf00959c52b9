// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * metrics.c - /metrics: Prometheus text format 0.0.4
 *
 * Names as prometheus.io/docs/practices/naming asks: one prefix, base units,
 * _total for counters. Labels are bounded: tenants come from the key file,
 * sessions and addresses are never labels.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <dirent.h>
#include <unistd.h>

#include "donor.h"
#include "rdma.h"

struct out {
	FILE *f;
	const char *last;
};

/* Print a sample; a family's header only once. */
__attribute__((format(printf, 6, 7))) static void
metric(struct out *o, const char *name, const char *type, const char *help,
       double value, const char *labels, ...)
{
	va_list ap;

	if (!o->last || strcmp(o->last, name))
		fprintf(o->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
			type);
	o->last = name;
	fputs(name, o->f);
	if (labels) {
		fputc('{', o->f);
		va_start(ap, labels);
		vfprintf(o->f, labels, ap);
		va_end(ap);
		fputc('}', o->f);
	}
	if (value == (double)(u64)value)
		fprintf(o->f, " %" PRIu64 "\n", (u64)value);
	else
		fprintf(o->f, " %.6f\n", value);
}

#define GAUGE(name, help, v) metric(o, name, "gauge", help, (double)(v), NULL)
#define COUNTER(name, help, v) \
	metric(o, name, "counter", help, (double)(v), NULL)

static void metrics_memory(struct out *o, const struct dcm_donor *donor)
{
	static const char name[] = "dcm_donor_slabs";
	static const char help[] = "Slabs by state.";
	const struct dcm_pool *p = &donor->pool;

	metric(o, "dcm_donor_medium_info", "gauge",
	       "What slabs are: memory or files; always 1.", 1, "medium=\"%s\"",
	       p->dir >= 0 ? "file" : "memory");
	GAUGE("dcm_donor_capacity_bytes", "Most that may ever be lent.",
	      p->capacity);
	GAUGE("dcm_donor_allowed_bytes",
	      "What may be lent now: the capacity, less what the head room takes.",
	      p->allowed);
	GAUGE("dcm_donor_reserved_bytes",
	      "Slabs lent and spare, whether their pages are there yet or not.",
	      (u64)(p->nr_mapped + p->nr_evicting + p->nr_spare +
		    p->nr_releasing) *
		      p->slab_bytes);
	GAUGE("dcm_donor_used_bytes", "Slabs lent.",
	      (u64)(p->nr_mapped + p->nr_evicting) * p->slab_bytes);
	GAUGE("dcm_donor_backed_bytes",
	      "Slab bytes that are in memory, or on the disk.", p->backed);
	GAUGE("dcm_donor_head_room_bytes",
	      "Memory, or disk, to be left free for the host itself.",
	      p->head_room);
	GAUGE("dcm_donor_host_memory_bytes",
	      "The host's memory, or the limit of this cgroup, or the disk of the files.",
	      p->total);
	GAUGE("dcm_donor_host_free_bytes",
	      "Free memory, caches included; or free space of that disk.",
	      p->free_now);
	metric(o, name, "gauge", help, p->nr_spare, "state=\"spare\"");
	metric(o, name, "gauge", help, p->nr_mapped, "state=\"mapped\"");
	metric(o, name, "gauge", help, p->nr_evicting, "state=\"evicting\"");
	metric(o, name, "gauge", help, p->nr_releasing, "state=\"releasing\"");
	COUNTER("dcm_donor_slabs_made_total", "Slabs made.", p->made_total);
	COUNTER("dcm_donor_slabs_released_total",
		"Slabs whose memory went back to the host.", p->released_total);
	COUNTER("dcm_donor_slab_failures_total",
		"Slabs that could not be allocated.", p->failed_total);
}

static void metrics_tenants(struct out *o, const struct dcm_donor *donor)
{
	const struct dcm_tenant *t;

#define EACH(family, kind, what, v)                                         \
	dcm_list_for_each(t, &donor->tenants.list, struct dcm_tenant, node) \
		metric(o, family, kind, what, (double)(v), "tenant=\"%s\"", \
		       t->name)
	EACH("dcm_donor_tenant_used_bytes", "gauge",
	     "Slabs lent to the tenant, and what its GC workers may take.",
	     t->bytes);
	EACH("dcm_donor_tenant_gc_bytes", "gauge",
	     "Memory that the tenant's GC workers may take.", t->gc_bytes);
	EACH("dcm_donor_tenant_gc_workers", "gauge",
	     "GC workers of the tenant, or connections for one.", t->workers);
	EACH("dcm_donor_tenant_quota_bytes", "gauge",
	     "Most that the tenant may hold.", t->quota_bytes);
	EACH("dcm_donor_tenant_connections", "gauge",
	     "Proven connections of the tenant.", t->connections);
	EACH("dcm_donor_tenant_sessions", "gauge", "Sessions of the tenant.",
	     t->sessions);
	EACH("dcm_donor_tenant_quota_refusals_total", "counter",
	     "Requests refused because a quota was used up.", t->refusals);
#undef EACH
}

static void metrics_events(struct out *o, const struct dcm_donor *donor)
{
	const struct dcm_stats *s = &donor->stats;
	const struct dcm_session *session;
	u32 silent = 0, held = 0;

	dcm_list_for_each(session, &donor->sessions, struct dcm_session, node) {
		silent += session->silent;
		held += session->silent ? session->nr_slabs : 0;
	}
	GAUGE("dcm_donor_sessions", "Sessions.", donor->nr_sessions);
	GAUGE("dcm_donor_sessions_silent",
	      "Sessions nothing has been heard of for a while; kept for their tenant's patience.",
	      silent);
	GAUGE("dcm_donor_silent_bytes", "Slabs lent to them.",
	      (u64)held * donor->pool.slab_bytes);
	GAUGE("dcm_donor_connections", "Connections of all kinds.",
	      donor->nr_conns);
	GAUGE("dcm_donor_handshakes", "Connections that have no role yet.",
	      donor->nr_handshakes);
	GAUGE("dcm_donor_draining", "1 while the donor gives up its slabs.",
	      donor->draining);
	COUNTER("dcm_donor_accepted_total", "Connections taken.", s->accepted);
	COUNTER("dcm_donor_handshake_failures_total",
		"Connections that showed no valid key.", s->handshake_failed);
	COUNTER("dcm_donor_handshake_timeouts_total",
		"Connections that took too long to show one.",
		s->handshake_timeout);
	COUNTER("dcm_donor_handshake_drops_total",
		"Connections without a role that gave way to others.",
		s->handshake_dropped);
	COUNTER("dcm_donor_hello_refusals_total", "HELLOs refused.",
		s->hello_refused);
	COUNTER("dcm_donor_protocol_errors_total",
		"Control connections closed for what they said.",
		s->protocol_errors);
	COUNTER("dcm_donor_sessions_started_total", "Sessions begun.",
		s->sessions_made);
	COUNTER("dcm_donor_sessions_resumed_total",
		"Sessions that came back in time.", s->sessions_resumed);
	COUNTER("dcm_donor_sessions_lost_total",
		"Sessions whose host was silent for longer than its tenant's patience.",
		s->sessions_silent);
	COUNTER("dcm_donor_sessions_gone_total",
		"Sessions whose host had closed its connections and did not come back.",
		s->sessions_gone);
	COUNTER("dcm_donor_maps_total", "Slabs lent.", s->maps);
	COUNTER("dcm_donor_map_refusals_total", "MAPs refused.",
		s->maps_refused);
	COUNTER("dcm_donor_unmaps_total", "Slabs given back unasked.",
		s->unmaps);
	COUNTER("dcm_donor_eviction_rounds_total", "Batch evictions.",
		s->evict_rounds);
#define EVICT "dcm_evictions_total", "counter", "Slabs asked back, by outcome."
	metric(o, EVICT, (double)s->evict_asked, "outcome=\"asked\"");
	metric(o, EVICT, (double)s->evict_done, "outcome=\"done\"");
	metric(o, EVICT, (double)s->evict_forced, "outcome=\"forced\"");
#undef EVICT
	GAUGE("dcm_donor_gc_workers", "GC workers, or connections for one.",
	      donor->nr_gc_sessions);
	GAUGE("dcm_donor_gc_charged_bytes",
	      "Memory that GC workers may take beside slabs.",
	      donor->pool.charged);
	GAUGE("dcm_donor_gc_backed_bytes", "What they have taken of it.",
	      donor->pool.charged_backed);
	COUNTER("dcm_donor_gc_started_total", "GC workers started.",
		s->gc_started);
	COUNTER("dcm_donor_gc_lost_total", "GC workers that ended unasked.",
		s->gc_lost);
	metric(o, "dcm_donor_reloads_total", "counter",
	       "Configurations reloaded, by outcome.", (double)s->reloads,
	       "outcome=\"ok\"");
	metric(o, "dcm_donor_reloads_total", "counter", "",
	       (double)s->reloads_failed, "outcome=\"failed\"");
}

static void metrics_data(struct out *o, const struct dcm_donor *donor)
{
	struct dcm_data_counters t;
	u32 connections = dcm_data_totals(donor, &t);

#define OPS "dcm_transport_operations_total", "counter", \
	    "Data operations served."
	metric(o, OPS, (double)t.reads, "op=\"read\",transport=\"tcp\"");
	metric(o, OPS, (double)t.writes, "op=\"write\",transport=\"tcp\"");
#undef OPS
#define BYTES "dcm_transport_bytes_total", "counter", "Bytes of them."
	metric(o, BYTES, (double)t.read_bytes, "op=\"read\",transport=\"tcp\"");
	metric(o, BYTES, (double)t.written_bytes,
	       "op=\"write\",transport=\"tcp\"");
#undef BYTES
	COUNTER("dcm_transport_refusals_total",
		"Data operations refused: no such slab, or outside of it.",
		t.refused);
	COUNTER("dcm_donor_disk_errors_total",
		"Data operations that the disk failed.", t.disk_errors);
	COUNTER("dcm_transport_batches_total",
		"Groups of answers sent together.", t.batches);
	GAUGE("dcm_transport_connections", "Data connections.", connections);
}

static void metrics_rdma(struct out *o, const struct dcm_donor *donor)
{
	struct dcm_rdma_status st;

	dcm_rdma_status_read(donor, &st);
	GAUGE("dcm_rdma_up", "1 while queue pairs can be had.",
	      strcmp(st.name, "off") != 0);
	GAUGE("dcm_rdma_connections", "Queue pairs.", st.connections);
	COUNTER("dcm_rdma_connections_total", "Queue pairs established.",
		st.connections_total);
	COUNTER("dcm_rdma_rejections_total",
		"Connection requests rejected, most for want of a good ticket.",
		st.rejected);
	COUNTER("dcm_rdma_errors_total",
		"Queue pairs that failed, most for an access to a slab taken back.",
		st.errors);
	COUNTER("dcm_rdma_tickets_total", "Tickets handed out.",
		st.tickets_total);
	COUNTER("dcm_rdma_tickets_expired_total",
		"Tickets that were not shown in time.", st.tickets_expired);
	GAUGE("dcm_rdma_registered_bytes",
	      "Slab bytes that devices may reach; they are pinned.",
	      st.registered_bytes);
}

static unsigned int fds_count(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n - 3;	/* ".", ".." and the directory itself */
}

static void metrics_process(struct out *o)
{
	unsigned long size, rss = 0;
	struct rusage ru;
	struct rlimit rl;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f) {
		if (fscanf(f, "%lu %lu", &size, &rss) != 2)
			rss = 0;
		fclose(f);
	}
	getrusage(RUSAGE_SELF, &ru);
	COUNTER("process_cpu_seconds_total", "User and system CPU time.",
		(double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
			(double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) /
				1e6);
	GAUGE("process_resident_memory_bytes", "Resident memory.",
	      (double)rss * (double)sysconf(_SC_PAGESIZE));
	GAUGE("process_open_fds", "Open file descriptors.", fds_count());
	if (!getrlimit(RLIMIT_NOFILE, &rl))
		GAUGE("process_max_fds", "Most of them.", rl.rlim_cur);
}

char *dcm_metrics_text(struct dcm_donor *donor, size_t *len)
{
	char *text = NULL;
	struct out out = { .f = open_memstream(&text, len) };
	struct out *o = &out;

	if (!out.f)
		return NULL;
	metric(o, "dcm_build_info", "gauge", "Version; always 1.", 1,
	       "version=\"%s\",protocol=\"%u\"", DCM_DONOR_VERSION,
	       DCM_WIRE_VERSION_MAX);
	GAUGE("dcm_donor_up", "1 while the donor lends.",
	      !donor->draining && !donor->stopping);
	GAUGE("dcm_donor_uptime_seconds", "Time since the start.",
	      (double)(dcm_now(donor) - donor->started_at) / 1000);
	metrics_memory(o, donor);
	metrics_tenants(o, donor);
	metrics_events(o, donor);
	metrics_data(o, donor);
	metrics_rdma(o, donor);
	metrics_process(o);
	if (fclose(out.f)) {
		free(text);
		return NULL;
	}
	return text;
}
