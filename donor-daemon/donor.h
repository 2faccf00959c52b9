/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * donor.h - the daemon as a whole, and the interfaces of its parts
 *
 * One event loop owns everything but data connections: listeners, handshakes,
 * control connections, sessions, slabs, eviction, HTTP. Data connections belong
 * to worker threads (data_worker.c), which use other parts only through
 * dcm_slab_get(), counters and dcm_data_gone()'s list.
 */
#ifndef DCM_DONOR_H
#define DCM_DONOR_H

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <uv.h>

#include "chan.h"
#include "config.h"
#include "admission.h"
#include "pool.h"
#include "tenant.h"

#define DCM_DONOR_VERSION	DCM_VERSION
#define DCM_LISTENERS_MAX	(DCM_CONFIG_LISTEN_MAX + 1)

struct dcm_gc_session;
struct dcm_conn;
struct dcm_donor;
struct dcm_rdma_pd;
struct dcm_http;
struct dcm_keep;
struct dcm_rdma;
struct dcm_worker;

/* A listening socket, with seats of its own. */
struct dcm_listener {
	uv_poll_t poll;
	struct dcm_donor *donor;
	struct dcm_admission admission;
	int fd;
	bool is_unix;
	bool paused;	/* no memory or descriptor: for a quarter second */
	char name[DCM_CONFIG_PATH_MAX + 8];	/* "tcp:127.0.0.1:9740" */
};

/* Counters that only grow; read by /metrics. */
struct dcm_stats {
	u64 accepted;
	u64 handshake_failed;
	u64 handshake_timeout;
	u64 handshake_dropped;
	u64 hello_refused;
	u64 protocol_errors;
	u64 sessions_made;
	u64 sessions_resumed;
	u64 sessions_goodbye;
	u64 sessions_silent;
	u64 sessions_gone;
	u64 maps;
	u64 maps_refused;
	u64 unmaps;
	u64 evict_rounds;
	u64 evict_asked;
	u64 evict_done;
	u64 evict_forced;
	u64 gc_started;
	u64 gc_lost;
	u64 sessions_restored;	/* by the last start */
	u64 slabs_restored;
	u64 reloads;
	u64 reloads_failed;
	/* of data connections that have ended; workers have the rest */
	u64 data_connections;
};

/* One batch eviction: E of E+E' (infiniswap-nsdi17, 5.2). */
struct dcm_evict {
	bool asking;
	u32 candidates;
	u32 unanswered;
	u64 deadline;
	u64 next_tag;
};

struct dcm_donor {
	uv_loop_t loop;
	uv_timer_t second;	/* sampling */
	uv_timer_t beat;	/* heartbeats */
	uv_timer_t quarter;	/* deadlines */
	uv_async_t gone_async;
	uv_signal_t signals[3];
	struct dcm_config cfg;
	struct dcm_pool pool;
	struct dcm_tenants tenants;
	struct dcm_tls_server *tls;
	struct dcm_listener listeners[DCM_LISTENERS_MAX];
	u32 nr_listeners;
	struct dcm_list conns;
	u32 nr_conns;		/* data connections and queue pairs too */
	u32 nr_handshakes;	/* of these, without a role */
	struct dcm_admission proven;	/* a key is shown, no role yet */
	int spare_fd;		/* given up to refuse a connection; -1: none */
	struct dcm_list sessions;
	u32 nr_sessions;
	u32 nr_lost;		/* sessions without a control connection */
	u64 donor_id;
	u64 quarter_at;		/* when the quarter timer last ran */
	u64 stalled_at;		/* when the donor last continued after it was stopped */
	u64 started_at;
	struct dcm_worker *workers;
	cpu_set_t cpus; /* on which it may run */
	u32 nr_workers;
	pthread_mutex_t gone_lock;
	struct dcm_list gone;	/* data connections to be forgotten */
	struct dcm_evict evict;
	bool draining;
	bool stopping;
	u64 drain_deadline;
	int exit_status;
	struct dcm_list gc_sessions;	/* GC workers, gc_session.c */
	u32 nr_gc_sessions;
	u32 nr_dying;		/* how many of these are killed but not reaped */
	int gc_cgroup;		/* parent of the tenants' cgroups; -1: none */
	char gc_path[DCM_CONFIG_PATH_MAX + 64];
	struct dcm_rdma *rdma;	/* rdma.c */
	char rdma_why[256];	/* why it is off */
	struct dcm_keep *keep;	/* restart.c; NULL: nothing outlives a restart */
	struct dcm_http *http;
	char http_name[64];
	struct dcm_stats stats;
};

/**
 * struct dcm_session - one host's life with this donor
 * @secret: proves that a later connection belongs to it
 * @conn: its control connection, or %NULL while that is lost
 * @heard_at: when something was last received on any of its connections, loop
 *	time in ms; workers write it (__atomic)
 * @answered_at: when a queue pair of its last answered (rdma_ping.c)
 * @sources: its host's address as a source, at its listener and for proven seats
 * @left_at: when the last of its connections ended
 * @cut: since its last resume one of its connections was ended by the network
 * @silent: silent for %DCM_WIRE_SILENCE_MS, and that was logged
 * @silent_from: when something was last received before that
 * @probation: it looked dead; it is checked once more
 * @nr_joined: data connections, counted by the event loop
 * @no_verbs: it has slabs whose keys ended with the earlier process
 * @keep: number of its record in donor->keep; 0: none
 * @refs: references: one of the list, one of each data connection and queue pair, and
 *	one of a slab that is being registered for it
 * @ended: nothing of it may be used any more (__atomic, workers read)
 *
 * ALIVE (conn) <-> LOST (no conn) -> ended, as session.c says.
 */
struct dcm_session {
	struct dcm_list node;
	struct dcm_donor *donor;
	u64 id;
	u8 secret[16];
	struct dcm_tenant *tenant;
	struct dcm_conn *conn;
	struct dcm_source *sources[2];
	uv_timer_t timer;
	bool probation;
	bool ended;
	bool cut;		/* __atomic, workers set it */
	bool silent;
	u64 silent_from;
	u64 left_at;
	u64 heard_at;
	u64 answered_at;
	u64 made_at;
	unsigned int refs;
	struct dcm_list slabs;
	u32 nr_slabs;
	struct dcm_pool_want want;
	bool want_busy;
	bool no_verbs;
	u32 keep;
	u64 want_tag;
	u64 want_cookie;
	const struct dcm_export_ops *want_export;
	u32 map_serial;		/* counts control connections */
	struct dcm_rdma_pd *pd;
	struct dcm_gc_session *gc;
	struct dcm_list rdma;	/* queue pairs */
	u32 nr_rdma;
	pthread_mutex_t data_lock;
	struct dcm_list data;
	u32 nr_data;
	u32 nr_joined;
	/* __atomic, workers add */
	u64 reads;
	u64 writes;
	u64 read_bytes;
	u64 written_bytes;
	char peer[64];
};

/* listen.c */
/**
 * dcm_address_parse() - "HOST:PORT", "[V6]:PORT", both also after "tcp:"
 * @key: the option's name, for errors
 * @text: the address
 * @port: replaces the one in @text; %NULL: use that
 *
 * Return: 0, or -EINVAL and one line.
 */
int dcm_address_parse(const char *key, const char *text, const char *port,
		      struct sockaddr_storage *ss, socklen_t *len, char *err,
		      size_t err_len);
/* 0, or a negative errno and one line. */
int dcm_listen_start(struct dcm_donor *donor, char *err, size_t err_len);
void dcm_listen_stop(struct dcm_donor *donor);
/* Called every quarter second: there may be memory and descriptors again. */
void dcm_listen_resume(struct dcm_donor *donor);

/* conn.c */
/**
 * enum dcm_conn_state - a connection on the event loop
 * @DCM_CONN_HANDSHAKE: TLS; the peer has no name yet. It has a seat of its
 *	listener; a proven one once it has shown a key
 * @DCM_CONN_HELLO: the key is proven; it has a proven seat
 * @DCM_CONN_CONTROL: the control connection of a session
 * @DCM_CONN_GC: the connection of a session's GC worker
 * @DCM_CONN_LINGER: refused; waits a little until the peer has read why, on a
 *	proven seat
 * @DCM_CONN_CLOSED: only its memory is left
 */
enum dcm_conn_state {
	DCM_CONN_HANDSHAKE,
	DCM_CONN_HELLO,
	DCM_CONN_CONTROL,
	DCM_CONN_GC,
	DCM_CONN_LINGER,
	DCM_CONN_CLOSED,
};

struct dcm_conn {
	struct dcm_list node;
	struct dcm_donor *donor;
	struct dcm_chan *chan;
	uv_poll_t poll;
	int events;
	enum dcm_conn_state state;
	struct dcm_seat seat;
	struct dcm_admission *admission;		/* its listener's */
	struct dcm_origin origin;
	bool is_unix;
	bool in_event;
	bool again;	/* there is more to read than one event may */
	bool held;	/* messages in the buffer wait until answers are sent */
	bool wants_about;
	bool told_about;
	struct dcm_about about;	/* what it was told last */
	u64 since;
	u64 deadline;
	struct dcm_tenant *tenant;
	struct dcm_session *session;
	struct dcm_gc_session *gc;
	char peer[64];
};

/**
 * dcm_conn_accept() - take a new connection
 * @adm: its listener's limit
 * @fd: owned by this function
 * @peer: from accept(); unused for a UNIX socket
 */
void dcm_conn_accept(struct dcm_donor *donor, struct dcm_admission *adm, int fd,
		     bool is_unix, const struct sockaddr_storage *peer);
void dcm_conn_close(struct dcm_conn *conn);
/* Reset a connection that has a seat of @adm; false: there is none. */
bool dcm_conn_drop(struct dcm_donor *donor, struct dcm_admission *adm);
/* The connection has a role now: give its seat back. */
void dcm_conn_seat_release(struct dcm_conn *conn);
/*
 * May no more connections get a role? One is reserved for every session that has lost
 * its control connection.
 */
bool dcm_conn_full(const struct dcm_donor *donor);
/* Send a message with its payload; a negative errno: the connection is closed. */
int dcm_conn_send(struct dcm_conn *conn, const struct dcm_wire_msg *msg);
int dcm_conn_error(struct dcm_conn *conn, u64 tag, u32 status);
/* Send the reason, then close. */
void dcm_conn_refuse(struct dcm_conn *conn, u64 tag, u32 status);
/* May the donor send a message that is no answer now? */
bool dcm_conn_has_room(const struct dcm_conn *conn);
/* Hand the channel over to a worker; the connection is closed without it. */
struct dcm_chan *dcm_conn_detach(struct dcm_conn *conn);
/* The session can take requests again. */
void dcm_conn_resume(struct dcm_conn *conn);
void dcm_conn_deadlines(struct dcm_donor *donor);
/* No longer count this connection against limits. */
void dcm_conn_uncount(struct dcm_donor *donor, struct dcm_tenant *tenant);

/* hello.c */
void dcm_hello_handle(struct dcm_conn *conn, const struct dcm_wire_msg *msg);

/* control.c */
void dcm_control_handle(struct dcm_conn *conn, const struct dcm_wire_msg *msg);
void dcm_control_heartbeats(struct dcm_donor *donor);
void dcm_control_slab_gone(void *arg, struct dcm_slab *slab);
/* Cancel a MAP that waits for its slab; it gets no answer. */
void dcm_control_want_cancel(struct dcm_session *s);
void dcm_control_want_ready(struct dcm_pool_want *want, struct dcm_slab *slab);

/* session.c */
struct dcm_session *dcm_session_new(struct dcm_conn *conn);
/*
 * Make a session that was open before the donor's restart. It has no connection until
 * its host comes back. %NULL: out of memory.
 */
struct dcm_session *dcm_session_restore(struct dcm_donor *donor,
					struct dcm_tenant *tenant, u64 id,
					const u8 *secret);
struct dcm_session *dcm_session_find(struct dcm_donor *donor, u64 id,
				     const u8 *secret,
				     const struct dcm_tenant *tenant);
void dcm_session_attach(struct dcm_session *s, struct dcm_conn *conn);
/* The control connection of @s has ended; @cut: by the network. */
void dcm_session_detach(struct dcm_session *s, bool cut);
/* Another connection of @s has ended. */
void dcm_session_left(struct dcm_session *s);
void dcm_session_heard(struct dcm_session *s);
void dcm_session_end(struct dcm_session *s, const char *why);
void dcm_session_get(struct dcm_session *s);
void dcm_session_put(struct dcm_session *s);

/* evict.c */
/* Begin to take back slabs if too many are lent; called once a second. */
void dcm_evict_start(struct dcm_donor *donor);
/* Act on deadlines, drain, tenants without keys; called each quarter second. */
void dcm_evict_proceed(struct dcm_donor *donor);
void dcm_evict_answer(struct dcm_donor *donor, struct dcm_slab *slab,
		      u64 ewma_milli);
void dcm_evict_slab(struct dcm_donor *donor, struct dcm_slab *slab,
		    u64 deadline);
/* Send EVICTs not yet sent to @s; all of them @again after a resume. */
void dcm_evict_pump(struct dcm_session *s, bool again);

/* data.c */
struct dcm_data;
int dcm_data_adopt(struct dcm_donor *donor, struct dcm_session *session,
		   struct dcm_tenant *tenant, struct dcm_chan *chan, u16 lane);
void dcm_data_shutdown(struct dcm_session *session);

/*
 * Is there a data connection of the session that was shut down, but that its worker has
 * not finished with? Then another one must not be welcomed: if the host writes a page
 * again over it, the earlier WRITE must not take effect later. First shuts down a
 * connection of the same @lane, as the host has given it up, noticed here or not.
 */
bool dcm_data_ending(struct dcm_session *session, u16 lane);

/* data_worker.c */
int dcm_data_start(struct dcm_donor *donor, char *err, size_t err_len);
void dcm_data_stop(struct dcm_donor *donor);

/* Operations of data connections: a worker's, or all workers'. */
struct dcm_data_counters {
	u64 reads;
	u64 writes;
	u64 read_bytes;
	u64 written_bytes;
	u64 refused;
	u64 batches;
	u64 disk_errors;
};

/* Sum over all workers; returns the number of data connections. */
u32 dcm_data_totals(const struct dcm_donor *donor, struct dcm_data_counters *t);

/* status.c, metrics.c: malloc'ed text */
char *dcm_status_json(struct dcm_donor *donor, size_t *len);
char *dcm_metrics_text(struct dcm_donor *donor, size_t *len);

/* http.c */
/* 0, or a negative errno and one line. */
int dcm_http_start(struct dcm_donor *donor, char *err, size_t err_len);
void dcm_http_stop(struct dcm_donor *donor);

static inline u64 dcm_now(const struct dcm_donor *donor)
{
	return uv_now(&donor->loop);
}

#endif /* DCM_DONOR_H */
