/* SPDX-License-Identifier: GPL-2.0-or-later */
/* client_int.h - shared by the client's files; client.h is the interface */
#ifndef DCM_CLIENT_INT_H
#define DCM_CLIENT_INT_H

#include <pthread.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <unistd.h>

#include "choose.h"
#include "../transport/shm.h"
#include "../transport/tcp.h"
#include "../transport/verbs.h"
#include "conn.h"
#include "client.h"
#include "request.h"
#include "../lib/log.h"

#define CLIENT_JOBS 128u /* extents being placed at once */
#define CLIENT_BACKOFF_MIN_MS 50u
#define CLIENT_BACKOFF_MAX_MS 2000u
#define CLIENT_CONNECT_MS 5000u /* to connect, shake hands, be welcomed */
#define CLIENT_RECONNECT_MS 2500u /* silent for so long: try a new connection */
#define CLIENT_WAIT_MS 200u /* placement waits so long for an answer */
#define CLIENT_SILENT_MS 2000u /* silent for so long: asked for no slab */
#define CLIENT_FIRST_MS 1000u /* at the start: wait for all donors */
#define CLIENT_FIRST_STEP_MS 10u
#define CLIENT_EXPOSED_MS \
	1000u /* between looks for extents with too few slabs */
#define CLIENT_REDRAWS 4u /* of donors that have more than their part */
/* placement.c: use a donor's first answer for so long */
#define CLIENT_BURST_MS 1000u
#define CLIENT_MAP_MS 30000u /* a donor may have to zero a slab first */
#define CLIENT_PATIENCE_MS 60000u /* with a silent donor, by default */
/* an operation succeeded within this time: the donor serves its memory */
#define CLIENT_SERVES_MS 2000u
#define CLIENT_HELD_MAX 4u
#define CLIENT_LEAVE_MAX 4u /* slabs moved off a silent donor at a time */
#define CLIENT_COLD_MS \
	600000u /* cold for so long: may go to files, by default */
#define CLIENT_EXCHANGES 4u /* extents that make room in memory at a time */
/* a donor of files gets at least this to answer */
#define CLIENT_FILE_LATE_MS 2000u
#define CLIENT_STALL_MS 500u /* between two rounds: this host was stopped */
#define CLIENT_SAY_MS 60000u /* shortest time between equal log lines */
#define CLIENT_TICK_MS 100u
#define CLIENT_PAIR_FAILS 3u /* failed queue pairs in a row: then use tcp */
#define CLIENT_VERBS_DEVICES 4u
#define CLIENT_UNMAPS_MAX 256u /* requests in flight: no more UNMAPs */
/* with a MAP for each job, an ASK_TICKET for each lane, and a QUERY_MEM */
#define CLIENT_REQUESTS_MAX \
	(CLIENT_UNMAPS_MAX + CLIENT_JOBS + DCM_CLIENT_LANES_MAX + 1)
#ifndef DCM_CLIENT_LATE_MS /* tests on very slow machines only */
#define DCM_CLIENT_LATE_MS 100u
#endif
#define CLIENT_GRACE_MS 2000u /* to connect at the start, before complaints */

enum client_session {
	SESSION_DOWN, /* no connection: next try at @retry_ms */
	SESSION_CONNECTING, /* up to the TLS handshake */
	SESSION_HELLO, /* HELLO sent */
	SESSION_UP,
};

/* Are a session's slabs reached over verbs? Decided once in its life. */
enum client_verbs {
	VERBS_OFF,
	VERBS_TRY, /* the donor offers it: no slab until this is decided */
	VERBS_ON,
};

enum client_pair_state {
	PAIR_NONE,
	PAIR_TICKET, /* ASK_TICKET sent */
	PAIR_ADDRESS,
	PAIR_ROUTE,
	PAIR_CONNECT,
	PAIR_READY, /* waits until the lane has given its old one back */
};

/**
 * struct client_pair - a queue pair being made; the client thread's
 * @tag: the tag of ASK_TICKET
 * @fails: how many attempts have failed in a row
 * @id: owned here from PAIR_ADDRESS to PAIR_ROUTE, then by @ep
 * @shown: the ticket that is shown to the donor
 */
struct client_pair {
	enum client_pair_state st;
	u64 tag;
	u64 since_ms;
	u32 fails;
	struct rdma_cm_id *id;
	struct dcm_endpoint *ep;
	struct dcm_wire_shown shown;
};

/* A device, with the protection domain that all endpoints on it share. */
struct client_verbs_device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *area; /* %NULL: can't be locked; READs are copied */
};

/* Should a donor be used? See member.c. */
enum client_member {
	MEMBER_NONE,
	MEMBER_IN,
	MEMBER_DRAINED,
	MEMBER_LEAVING,
};

enum client_ask_op {
	ASK_NOTHING,
	ASK_ADD,
	ASK_DRAIN,
	ASK_KEEP,
	ASK_REMOVE,
	ASK_REDUNDANCY,
};

/**
 * struct client_ask - another thread's request, about a donor or about redundancy
 * @op: ASK_NOTHING: the request is done
 * @donor: its name; to add one its address too, looked up in @sa
 * @redundancy: for ASK_REDUNDANCY
 * @ret: 0 or a negative errno
 * @seq: number of the request
 */
struct client_ask {
	enum client_ask_op op;
	struct dcm_host_donor donor;
	struct sockaddr_storage sa;
	socklen_t sa_len;
	bool local;
	enum dcm_host_redundancy redundancy;
	int ret;
	u32 seq;
};

/* dcm_client_slab.notes: messages of any thread to the client thread */
#define NOTE_QUEUED 0x1
#define NOTE_RELEASE 0x2
#define NOTE_STALE 0x4
#define NOTE_OTHER 0x8

/* dcm_client_slab.state */
enum client_slab_state {
	SLAB_ATTACHED, /* the pager has it */
	SLAB_RELEASED, /* waits for the last operation, or the donor */
	SLAB_UNMAPPING, /* UNMAP sent */
};

/**
 * struct client_lane_slot - how one lane reaches one donor
 * @next: client thread -> lane: a new endpoint (exchange)
 * @spent: lane -> client thread: a dead endpoint (store, then exchange)
 * @cur: the endpoint that the lane uses; the lane's
 * @shm: the lane's endpoint to a donor on AF_UNIX, from start to stop
 * @rtt_ns: round trip time; written by the lane
 * @live: the endpoint that the lane was given and has not given back; the client
 *	thread's
 * @raw: the tcp or verbs endpoint inside @live; the same one, except in tests
 * @donor: the slot's donor
 */
struct client_lane_slot {
	struct dcm_endpoint *next;
	struct dcm_endpoint *spent;
	struct dcm_endpoint *cur;
	struct dcm_endpoint *shm;
	u64 rtt_ns;
	u64 reads;
	u64 writes;

	struct dcm_endpoint *live ____cacheline_aligned;
	struct dcm_endpoint *raw;
	struct client_donor *donor;
	struct dcm_conn conn;
	struct client_pair pair;
	bool hello_sent;
	u64 retry_ms;
	u32 backoff_ms;
} ____cacheline_aligned;

/**
 * struct client_donor - one donor; the client thread's alone but for the slots
 * @member: should it be used?
 * @session: the session's id, 0: none. Kept while the connection is down, to resume it
 * @donor_id: id of the donor process that gave the session
 * @heard_ms: time of its last message
 * @data_ms: when an operation on its memory was last found to have succeeded;
 *	not set for shm, which works without the donor
 * @refused_ms: since when its machine answers that nothing listens at its address; 0:
 *	it does not
 * @silent: its session was silent for %DCM_WIRE_SILENCE_MS, and that was logged
 * @held: sockets of control connections that were given up but are kept open: until
 *	its next WELCOME the donor takes the client for alive because of them; -1: none
 * @tag: tag of the newest request
 * @query_tag: tag of the QUERY_MEM in flight, 0: none
 * @request: requests that wait for their answers, @nr_requests of them
 * @list: the request for the session's slabs that is under way (list.c)
 * @others: slabs it has lent to other VMs, by its first answer in this burst
 * @others_ms: time of that answer
 * @full_until_ms: it has refused a MAP: do not ask it again before this time
 * @about: the figures that it gave about itself, if @told
 * @was_lost: declared lost, and no message since
 * @gone: nothing listens at its address; its session is kept for its @orphans
 * @orphans: how many slabs outlived it
 */
struct client_donor {
	struct dcm_client *client;
	u32 idx;
	char name[DCM_NAME_MAX + 1];
	char address[DCM_ADDRESS_MAX + 1];
	char group[DCM_NAME_MAX + 1];
	struct sockaddr_storage sa;
	socklen_t sa_len;
	bool local;

	enum client_member member;
	enum client_session st;
	struct dcm_conn conn;
	u64 session;
	u8 secret[16];
	u64 donor_id;
	u32 inflight_max;
	bool want_data;
	enum client_verbs verbs;
	bool told;
	struct dcm_about about;
	bool was_lost;
	bool gone;
	u32 orphans;
	u64 up_ms;
	u64 heard_ms;
	u64 data_ms;
	u64 refused_ms;
	bool silent;
	int held[CLIENT_HELD_MAX];
	u64 sent_ms;
	u64 retry_ms;
	u32 backoff_ms;
	u64 tag;
	u64 query_tag;
	u64 query_ns;
	u64 query_ms;
	u64 others;
	u64 others_ms;
	u64 rtt_ns;
	u64 full_until_ms;
	/* for dcm_client_session_ref_get(), under @lock */
	struct dcm_client_session published;
	struct dcm_choose_donor load;
	char why[160];
	struct dcm_log_rate say_conn;
	struct dcm_log_rate say_refused;
	struct dcm_log_rate say_data;
	struct client_lane_slot *slot;
	u32 nr_requests;
	struct client_request request[CLIENT_REQUESTS_MAX];
	struct client_list list;
};

enum client_job_state {
	JOB_FREE,
	JOB_QUERY,
	JOB_MAP,
};

enum client_asked {
	ASKED_WAIT,
	ASKED_LATE, /* no longer waited for */
	ASKED_ANSWERED,
};

/* The kind of donor on which an extent should get its next slab. */
enum client_medium {
	MEDIUM_NONE, /* it gets none */
	MEDIUM_ANY, /* memory; files if no donor of memory has room */
	MEDIUM_MEMORY,
	MEDIUM_FILE,
};

/**
 * struct client_job - one extent being placed
 * @medium: the kind of donor that is drawn
 * @tried: donors that refused this time, a bit each
 * @never: donors that have a member already, or are unsuitable; a bit each
 * @near: donors that may die together with a member's, a bit each
 * @strange: donors that are not partners of all members' donors, a bit each (choose.c)
 * @avoid: donors to use only if there is no other, a bit each
 * @unused: the VM had no slab on the donors drawn when they were drawn
 * @redraws: draws repeated because even the better donor lends much already
 * @asked: by donor drawn: has it answered?
 * @since_ms: when it entered its state
 */
struct client_job {
	enum client_job_state st;
	u32 extent;
	enum client_medium medium;
	u64 tried;
	u64 never;
	u64 near;
	u64 strange;
	u64 avoid;
	unsigned int nr;
	unsigned int pick[2];
	u64 tag[2];
	bool unused;
	unsigned int redraws;
	enum client_asked asked[2];
	u64 since_ms;
	u64 deadline_ms;
};

/**
 * struct client_lane - a lane's operations under way; the lane's alone
 * @busy_tcp: donors with operations in flight, over tcp or verbs, a bit each
 * @busy_shm: the same for shm
 * @broken: donors whose connection was given back and not yet replaced
 */
struct client_lane {
	u64 busy_tcp;
	u64 busy_shm;
	u64 broken;
} ____cacheline_aligned;

/**
 * struct client_exchange - a cold extent and a busy one that change places: tier.c
 * @cold: the extent that goes to files
 * @busy: the extent that goes to memory
 * @from: the donor of memory whose slab the cold extent gives back
 * @memory: how many members @busy had on donors of memory at the start
 * @left: the slab of @from is being given back; false: a slab on files is sought first
 * @since_ms: since when a slab is sought
 */
struct client_exchange {
	u32 cold;
	u32 busy;
	u32 from;
	u32 memory;
	bool left;
	u64 since_ms;
};

/**
 * struct dcm_client - the client of one VM
 * @want: set by any thread, taken by the client thread; a bit per extent
 * @notes: slabs with new notes, a stack that any thread pushes on
 * @pending: extents to place (client thread), a bit each
 * @placing: extents with a job
 * @starved: extents whose starvation was reported
 * @burst_ms: when this burst of placements began
 * @scratch: a bitmap of extents for temporary use; all clear between uses
 * @of_extent: the slabs of each extent, newest first
 * @copies: how many members each extent should have
 * @files: how many of these members should be on donors of files
 * @scatter: on how many donors of memory the copies of one's pages are; 0: any number
 * @uneven: extents may have more members than @copies, or other ones than they should
 * @cold_s: for how long an extent has to be cold before it may go to files
 * @exchange: extents that change places, @nr_exchanges of them
 * @exchange_ms: when the next exchange may begin
 * @nr_near: extents of which two members may die together
 * @exposed_ms: when to look for extents that don't have the slabs they should have
 * @donor: %DCM_CONFIG_DONORS_MAX places, of which @nr_donors are or were used
 * @counted_slab: the last slab whose write count was asked for, under @lock
 * @status: copy for dcm_client_status(), under @lock
 * @asking: mutex held by the thread that has a request in @ask, until it is
 *	done
 * @ask: under @lock
 */
struct dcm_client {
	const struct dcm_client_ops *cb;
	void *arg;
	struct dcm_tls tls;
	u32 nr_lanes;
	u32 nr_donors;
	u32 nr_extents;
	bool data_encryption;
	bool populate;
	bool no_map; /* slabs of shm */
	u64 extent_bytes;
	u64 patience_ms;
	enum dcm_host_transport transport;
	void *area;
	size_t area_bytes;
	struct rdma_event_channel *channel; /* %NULL: no verbs */
	struct client_verbs_device device[CLIENT_VERBS_DEVICES];
	u32 nr_devices;
	u64 start_ms;
	bool was_up;
	const struct dcm_client_links *links;
	bool has_verbs;
	struct dcm_endpoint *(*wrap)(void *arg, struct dcm_endpoint *ep);
	void *wrap_arg;
	u64 rng;
	int event;
	bool stop;
	bool has_populate;
	pthread_t thread;
	struct client_donor *donor;
	struct client_lane *lane;
	struct pollfd *fds;

	u64 *want;
	struct dcm_client_slab *notes;

	u64 *pending;
	u64 *placing;
	u64 *starved;
	u64 *scratch;
	struct dcm_client_slab **of_extent;
	u32 copies;
	u32 files;
	u32 scatter;
	bool uneven;
	u64 cold_s;
	u32 nr_exchanges;
	struct client_exchange exchange[CLIENT_EXCHANGES];
	u64 exchange_ms;
	u32 nr_near;
	u64 exposed_ms;
	u32 cursor;
	u32 nr_pending;
	u64 place_ms;
	u32 place_backoff_ms;
	u64 burst_ms;
	struct client_job job[CLIENT_JOBS];
	struct dcm_client_slab *slabs;
	struct dcm_client_slab *counted_slab;
	u64 nr_lost;
	struct dcm_log_rate say_starved;
	struct dcm_log_rate say_exposed;

	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct dcm_client_status status;
	pthread_mutex_t asking;
	struct client_ask ask;
};

/* How long a data connection may wait for an answer before it is given up. */
static inline u32 client_late_ms(const struct dcm_client *client)
{
	return client->copies > 1 ? DCM_CLIENT_LATE_MS : DCM_WIRE_SILENCE_MS;
}

/* As client_late_ms(), for one donor: a donor of files gets more time, for its disk. */
static inline u32 client_donor_late_ms(const struct client_donor *d)
{
	return d->load.file ?
		       max(client_late_ms(d->client), CLIENT_FILE_LATE_MS) :
		       client_late_ms(d->client);
}

static inline bool bit_test(const u64 *map, u32 n)
{
	return map[n / 64] >> n % 64 & 1;
}

static inline void bit_set(u64 *map, u32 n)
{
	map[n / 64] |= 1ull << n % 64;
}

static inline void bit_clear(u64 *map, u32 n)
{
	map[n / 64] &= ~(1ull << n % 64);
}

u64 client_now_ms(void);
u64 client_now_ns(void);
void client_kick(struct dcm_client *client);

void *client_zalloc(size_t n, size_t size);

/* address.c */
int client_address_resolve(struct client_donor *d);
bool client_donors_near(const struct client_donor *a,
			const struct client_donor *b);

/* session.c: messages of a session */
void client_session_publish(struct client_donor *d);
void client_session_hello(struct client_donor *d, u64 now);
void client_session_message(struct client_donor *d,
			    const struct dcm_wire_msg *m, u64 now);

/* donor.c: connections, silence, loss */
void client_donor_lost(struct client_donor *d, const char *why);
void client_donor_held_close(struct client_donor *d);
void client_donor_stalled(struct client_donor *d, u64 ms);
void client_donor_timers(struct client_donor *d, u64 now);
void client_donor_io(struct client_donor *d, short revents, u64 now);
void client_donor_send(struct client_donor *d, struct dcm_wire_msg *msg,
		       u64 now);
u64 client_donor_query(struct client_donor *d, u64 now);
void client_donor_goodbye(struct client_donor *d);
void client_donor_forget(struct client_donor *d);
void client_donor_init(struct client_donor *d);
void client_donor_exit(struct client_donor *d);
bool client_donor_usable(const struct client_donor *d, u64 now);

/* request.c: requests that wait for their answers */
u64 client_request_add(struct client_donor *d, enum client_request_kind kind,
		       void *owner);
struct client_request client_request_take(struct client_donor *d, u64 tag,
					  u32 kinds);
void client_request_drop(struct client_donor *d, u64 tag);

/* data.c: data connections */
void client_data_timers(struct client_donor *d, u64 now);
void client_data_io(struct client_donor *d, u32 lane, short revents, u64 now);
void client_data_kill(struct client_donor *d);
void client_data_close(struct client_donor *d);
void client_data_retry(struct client_lane_slot *s, u64 now);
void client_data_out(struct client_lane_slot *s, struct dcm_endpoint *ep);

/* verbs.c: queue pairs */
int client_verbs_init(struct dcm_client *client);
void client_verbs_exit(struct dcm_client *client);
void client_verbs_welcome(struct client_donor *d, bool offered, bool resume);
void client_verbs_lost(struct client_donor *d, u64 now);
void client_verbs_start(struct client_lane_slot *s, u64 now);
bool client_verbs_timers(struct client_lane_slot *s, u64 now);
void client_verbs_abort(struct client_lane_slot *s);
void client_verbs_down(struct client_donor *d);
bool client_verbs_ticket(struct client_donor *d, const struct dcm_wire_msg *m,
			 u64 now);
void client_verbs_refused(struct client_lane_slot *s, u32 status, u64 now);
int client_verbs_fd(const struct dcm_client *client);
void client_verbs_events(struct dcm_client *client, u64 now);

/* slab.c */
void client_slab_attach(struct client_donor *d, u32 extent,
			const struct dcm_wire_msg *msg, int fd, u64 now);
void client_slab_refuse(struct client_donor *d, u64 id, u64 now);
bool client_slab_known(struct client_donor *d, u64 id);

/* list.c */
void client_list_ask(struct client_donor *d, u64 after, u64 now);
void client_list_down(struct client_donor *d);
bool client_list_answer(struct client_donor *d, const struct dcm_wire_msg *m,
			u64 now);
void client_slab_evict(struct client_donor *d, u64 id, u64 tag, u64 now);
void client_slab_activity(struct client_donor *d, u64 id, u64 tag, u64 now);
void client_slab_unmapped(struct dcm_client_slab *s);
void client_slab_taken(struct client_donor *d, u64 id);
void client_slab_lost(struct dcm_client *client, struct dcm_client_slab *s);
void client_slabs_resumed(struct client_donor *d);
void client_slabs_notes(struct dcm_client *client, u64 now);
bool client_slabs_step(struct dcm_client *client, u64 now);
void client_slabs_period(struct dcm_client *client, u64 now);
void client_slabs_free(struct dcm_client *client);
u32 client_slab_members(const struct dcm_client *client, u32 extent);
u64 client_slab_pages(const struct dcm_client_slab *s);
bool client_slab_held(const struct dcm_client_slab *s);

/* slab_map.c: mappings of shm slabs */
bool client_slab_map(struct client_donor *d, struct dcm_client_slab *s, int fd);
void client_slab_unmap(struct dcm_client_slab *s);
bool client_slabs_populate(struct dcm_client *client);

/* orphan.c: slabs of shm that outlive their donor */
void client_orphan_end(struct dcm_client_slab *s);
void client_orphans_resumed(struct client_donor *d);
void client_donor_relieve(struct client_donor *d, bool orphans, u64 now);
void client_donor_gone(struct client_donor *d, const char *why);
void client_slabs_lost(struct client_donor *d, const char *why);

/* placement.c */
void client_place_wants(struct dcm_client *client);
void client_place_want(struct dcm_client *client, u32 extent);
void client_place_want_again(struct dcm_client *client, u32 extent);
bool client_place_ready(struct dcm_client *client);
void client_place_step(struct dcm_client *client, u64 now);
bool client_place_mr_info(struct client_donor *d, u64 tag, u32 *extent,
			  u64 now);
void client_place_free_mem(struct client_donor *d, const struct dcm_wire_msg *m,
			   u64 now);
void client_place_refused(struct client_donor *d, struct client_job *j,
			  u32 status, u64 now);
void client_place_down(struct client_donor *d, u64 now);
void client_place_soon(struct dcm_client *client, u64 now);
void client_place_done(struct dcm_client *client, u32 extent);

/* member.c: adding and removing donors */
int client_member_slots(struct client_donor *d);
void client_member_step(struct dcm_client *client, u64 now);
void client_member_timers(struct client_donor *d);
void client_member_slab_leave(struct dcm_client_slab *s);

/* status.c */
void client_status_publish(struct dcm_client *client);

#endif /* DCM_CLIENT_INT_H */
