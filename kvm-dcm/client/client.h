/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * client.h - the client of donors, inside a paging process
 *
 * One client thread talks to all donors: sessions, heartbeats, slabs coming
 * and going. Lanes (fault threads) get endpoints from it and never wait for
 * it. Which thread may call what:
 *
 *   client thread only	the functions in struct dcm_client_ops
 *   one thread at a time	dcm_client_start(), dcm_client_stop()
 *   the lane's thread only	dcm_client_io_*(), dcm_client_endpoint()
 *   any thread			everything else; a fault thread too: no function
 *				sleeps or allocates unless it says so
 *
 * A slab's life:
 *
 *   dcm_client_want(extent) -> ops->attached(extent, slab)
 *      use it by dcm_client_io_post() ...
 *   ops->evict(slab): the donor wants it back: dcm_client_want_other(slab) ->
 *      ops->attached(extent, another); copy; dcm_client_release(slab)
 *   ops->lost(slab): gone with what was on it: dcm_client_release(slab)
 *
 * Every slab that was given to ops->attached() is released by exactly one
 * dcm_client_release(), or else by dcm_client_stop(). ops->lost() may follow
 * ops->evict(); neither follows dcm_client_release().
 */
#ifndef DCM_CLIENT_H
#define DCM_CLIENT_H

#include <poll.h>
#include <sys/socket.h>

#include "activity.h"
#include "../transport/transport.h"
#include "config.h"

#define DCM_CLIENT_LANES_MAX 64u
#define DCM_CLIENT_COPIES_MAX 3u
/* descriptors one lane may have to wait for */
#define DCM_CLIENT_FDS_MAX (2 * DCM_CONFIG_DONORS_MAX)

struct dcm_client;
struct dcm_tcp_args;
struct dcm_tls;
struct dcm_wire_shown;
struct sockaddr_storage;

/**
 * struct dcm_client_links - makes endpoints for lanes whose I/O the kernel does
 * @data: make an endpoint from a connection that has been welcomed; called instead of
 *	dcm_transport_tcp.open(), with the same meaning
 * @pair: make an endpoint for a queue pair, and begin to connect that to @to, showing
 *	the ticket @shown; called instead of librdmacm
 * @paired: is the queue pair that @pair returned connected?
 *
 * Called in the client thread; @arg is the callbacks'. @data and @pair return
 * %NULL and a negative errno in @err on failure.
 */
struct dcm_client_links {
	struct dcm_endpoint *(*data)(void *arg, u32 donor, u32 lane,
				     const struct dcm_tcp_args *args, int *err);
	struct dcm_endpoint *(*pair)(void *arg, u32 donor, u32 lane,
				     const struct sockaddr_storage *to,
				     const struct dcm_wire_shown *shown,
				     u32 late_ms, int *err);
	bool (*paired)(struct dcm_endpoint *ep);
};

/**
 * struct dcm_client_config - what a client is started with
 * @donors: names and addresses ("tcp:HOST:PORT" or "unix:/path"); host names
 *	are looked up once, at the start
 * @nr_donors: at most %DCM_CONFIG_DONORS_MAX
 * @tenant: TLS PSK identity
 * @key: the tenant's key; copied
 * @key_len: its bytes
 * @nr_lanes: lanes, 1 to %DCM_CLIENT_LANES_MAX
 * @size: bytes of the VM's paged address space
 * @extent: bytes of an extent, a power of two; a donor with slabs of another
 *	size is not used. 0: the first donor that answers decides, see
 *	dcm_client_extent_bytes()
 * @data_encryption: page contents go through TLS; if not, in plain bytes, if
 *	the donor agrees
 * @redundancy: which slabs each extent should have, each on another donor. If a data
 *	connection has operations in flight and nothing arrives on it for a while, it
 *	is given up: after %DCM_CLIENT_LATE_MS if there are several slabs, as pages can
 *	be read from another copy, else after %DCM_WIRE_SILENCE_MS
 * @scatter: how many other donors of memory, at most, have the copies of one donor's
 *	pages, as long as these have room (choose.c); 0: any number
 * @cold_after_ms: how long an extent has to be cold before it may be moved to files to
 *	make room in memory for a busy one (tier.c); 0: ten minutes
 * @patience_ms: how long to wait for a silent donor; 0: a minute
 * @transport: to donors that are not on this host; verbs only without
 *	@data_encryption
 * @area: memory that READs land in: with verbs it is locked and registered, and
 *	READs land without a copy. %NULL: none
 * @area_bytes: size of @area, which must outlive the client
 * @no_populate: do not map the pages of shm slabs ahead of use
 * @no_map: do not map shm slabs: READs copy their bytes, so that the copy can be
 *	changed in place
 * @seed: seed of placement's choices; 0: a random one
 * @links: the pager's, if the kernel does its lanes' I/O; %NULL: this library does
 * @adopt: called by dcm_client_start() with the callbacks' argument before
 *	anything else is done, to call dcm_client_adopt_*(); may be %NULL
 * @wrap: for tests: gets every new endpoint, and returns the (hostile) one that lanes
 *	get instead. Called by the client thread, but for shm by dcm_client_start():
 *	endpoints of shm are never replaced, so these must not die
 * @wrap_arg: argument of @wrap
 *
 * An shm slab is mapped read-only into the process. With population the client
 * thread fills in its page tables in the background: a fetch then costs 0.9 us
 * instead of 2.2 us for a first touch of 16 pages (measured, copy of 4 KiB
 * included). Pages of the donor count in this process's RssShmem, not in its
 * memory cgroup. Only slabs whose memory the donor has already allocated are
 * populated, so that no page is allocated, and charged to this host.
 */
struct dcm_client_config {
	const struct dcm_host_donor *donors;
	u32 nr_donors;
	const char *tenant;
	const u8 *key;
	size_t key_len;
	u32 nr_lanes;
	u64 size;
	u64 extent;
	bool data_encryption;
	enum dcm_host_redundancy redundancy;
	u32 scatter;
	u32 cold_after_ms;
	u32 patience_ms;
	enum dcm_host_transport transport;
	void *area;
	size_t area_bytes;
	bool no_populate;
	bool no_map;
	u64 seed;
	const struct dcm_client_links *links;
	void (*adopt)(void *arg, struct dcm_client *client);
	struct dcm_endpoint *(*wrap)(void *arg, struct dcm_endpoint *ep);
	void *wrap_arg;
};

/**
 * struct dcm_client_count - one lane's I/O on one slab; written by that lane
 * @pages: pages that were used
 * @moved: pages that went from or to another slab (%DCM_IO_MOVE)
 */
struct dcm_client_count {
	u64 reads;
	u64 writes;
	u64 pages;
	u64 moved;
	u64 in_flight;
} ____cacheline_aligned;

/**
 * struct dcm_client_slab - one slab lent to this VM
 * @ref: names the slab in operations; never changes while the slab lives
 * @client: the client that has it
 * @donor: index of its donor
 * @extent: the extent it was asked for
 * @transport: enum dcm_wire_transport
 * @caps: DCM_TR_* of the transport
 * @dead: set before ops->lost(): every operation fails from then on
 * @member: it counts as one of the slabs that its extent should have: it is neither
 *	lost nor being replaced by another
 * @orphan: its donor has ended, and its bytes are mapped here: orphan.c;
 *	READ_ONCE()
 * @activity_milli: page operations a second, EWMA, times 1000; READ_ONCE()
 * @priv: the pager's, never touched here
 * @write_counts: for each %DCM_CLIENT_COUNTED_BYTES how many writes began or
 *	ended; %NULL if lanes do their I/O elsewhere
 *
 * The rest is slab.c's.
 */
struct dcm_client_slab {
	struct dcm_slab_ref ref;
	struct dcm_client *client;
	u32 donor;
	u32 extent;
	u32 transport;
	u32 caps;
	bool dead;
	bool orphan;
	u64 activity_milli;
	void *priv;
	u32 *write_counts;

	struct dcm_activity activity;
	struct dcm_client_slab *next;
	struct dcm_client_slab *next_of_extent;
	struct dcm_client_slab *next_note;
	u32 notes;
	u32 state;
	bool member;
	bool evicting; /* the donor wants it back */
	bool leaving; /* the client wants to be off that donor */
	bool disowned; /* no donor counts it: its session is over */
	u64 tag;
	u64 populated;
	u64 pages_seen;
	struct dcm_client_count lane[];
};

/**
 * struct dcm_client_session - what is needed to resume a session
 * @id: the donor's id of the session
 * @donor_id: id of the donor process
 * @secret: proves that the session is the client's
 */
struct dcm_client_session {
	u64 id;
	u64 donor_id;
	u8 secret[16];
};

/**
 * struct dcm_client_ops - callbacks, in the client thread except for @fenced
 * @attached: an extent gets a slab (after dcm_client_want(), or as one more copy)
 * @evict: the donor wants a slab back (memory is short there, or it drains).
 *	It can be used until released; a donor that waits too long takes it
 *	(ops->lost). Called once per slab. It may be called while another thread
 *	releases the slab, as @lost may
 * @lost: a slab and its content are gone: the donor is gone, was silent for
 *	longer than the patience, ended the session, was restarted, or took the
 *	slab back. Not called for a slab all of whose bytes are mapped here: that is
 *	moved (@evict) when its donor is gone. Called once per slab. @donor is its
 *	donor. It may be called while another thread releases the slab; @slab is
 *	valid during the call in any case
 * @starved: no donor can give a slab for this extent now; the client keeps
 *	trying. Called once until the extent gets a slab
 * @up: a donor's session is up (again); may be %NULL
 * @welcomed: a control connection is up; @fd is its socket. For a pager whose memory is
 *	used even when this process is gone (dcmfs): a donor on this host keeps its
 *	slabs lent as long as the socket is open anywhere. May be %NULL
 * @fenced: in the lane's thread: a lane uses a new data connection or queue pair
 *	to a donor. Operations sent over the older one have happened or never will,
 *	and those in flight on it have been polled. May be %NULL
 * @donor: a donor was added and has that number from now on; a number may be
 *	used again after a donor was removed. May be %NULL
 * @session: a session with a donor has begun, or has ended (@s is %NULL); may be
 *	%NULL. dcm_client_stop() ends all sessions without this callback
 *
 * May call every any-thread function of this header. Must not take long:
 * heartbeats wait meanwhile.
 */
struct dcm_client_ops {
	void (*attached)(void *arg, u32 extent, struct dcm_client_slab *slab);
	void (*evict)(void *arg, struct dcm_client_slab *slab);
	void (*lost)(void *arg, struct dcm_client_slab *slab,
		     const struct dcm_host_donor *donor);
	void (*starved)(void *arg, u32 extent);
	void (*up)(void *arg, const char *donor);
	void (*session)(void *arg, u32 donor,
			const struct dcm_client_session *s);
	void (*donor)(void *arg, u32 donor, const struct dcm_host_donor *d);
	void (*welcomed)(void *arg, u32 donor, int fd);
	void (*fenced)(void *arg, u32 lane, u32 donor);
};

/**
 * dcm_client_start() - start the client thread
 * @cfg: read during the call only
 * @cb: must outlive the client
 * @arg: passed to every callback
 * @client: filled in
 *
 * Looks up host names (may sleep); does not wait for any donor.
 *
 * Return: 0, -EINVAL, -ENOMEM, -EHOSTUNREACH for an address that can't be
 * looked up, -ENODEV when verbs is a must and there is no RDMA device; the
 * reason has been logged.
 */
int dcm_client_start(const struct dcm_client_config *cfg,
		     const struct dcm_client_ops *cb, void *arg,
		     struct dcm_client **client);

/**
 * dcm_client_stop() - give all slabs back and end
 *
 * Lanes must have stopped. Slabs not released are given back now (GOODBYE),
 * without a callback. Sleeps for at most about a second.
 */
void dcm_client_stop(struct dcm_client *client);

/**
 * dcm_client_extent_bytes() - size of an extent
 * @timeout_ms: how long to wait for the first donor if it is not known; 0:
 *	don't sleep
 *
 * Return: bytes, or 0 when no donor has answered.
 */
u64 dcm_client_extent_bytes(struct dcm_client *client, u32 timeout_ms);

/**
 * dcm_client_want() - this extent needs a slab
 *
 * Ignored while the extent has as many slabs as it should have, or one is being
 * sought. If it should have several, one call is enough: once it has one, the client
 * seeks the others by itself.
 *
 * Never sleeps: sets a bit and, the first time, writes to an eventfd.
 */
void dcm_client_want(struct dcm_client *client, u32 extent);

/**
 * dcm_client_want_other() - a slab's extent needs another one in its place
 * @slab: not released; if the extent has enough other slabs nothing is done
 *
 * On another donor if one has room; on the same donor only if that is not
 * draining. Never sleeps.
 */
void dcm_client_want_other(struct dcm_client *client,
			   struct dcm_client_slab *slab);

/**
 * dcm_client_release() - the pager no longer uses a slab
 *
 * No operation on it is posted any more. Those in flight may still complete;
 * after the last the donor gets the slab back and @slab is gone. Never sleeps.
 */
void dcm_client_release(struct dcm_client *client,
			struct dcm_client_slab *slab);

/**
 * dcm_client_stale() - the pager found that the donor has taken a slab back
 *
 * For a pager that sees this itself: UFFDIO_COPY from an shm slab failed with
 * EFAULT. dcm_client_io_poll() reports operations that complete with -ESTALE.
 * ops->lost() follows. Never sleeps.
 */
void dcm_client_stale(struct dcm_client *client, struct dcm_client_slab *slab);

/* ---- a lane's I/O: struct dcm_ops' io_post, io_flush and io_poll ---- */

/**
 * dcm_client_io_post() - start an operation on a slab
 * @io: @io->slab is &slab->ref of a slab that is not released
 *
 * Return: as dcm_transport_ops.post; -ENOTCONN also while the donor can't be
 * reached, -ESTALE once the slab is lost.
 */
int dcm_client_io_post(struct dcm_client *client, u32 lane, struct dcm_io *io);

/* Send what was posted. */
void dcm_client_io_flush(struct dcm_client *client, u32 lane);

/*
 * Take up to @max completions of all donors into a list; returns their number.
 * If a connection of the lane broke and there is a new one, the lane begins to use
 * it here or in dcm_client_io_post(), and ops->fenced is called.
 */
int dcm_client_io_poll(struct dcm_client *client, u32 lane,
		       struct dcm_io **done, int max);

/**
 * dcm_client_io_fds() - what to poll() for while operations are in flight
 * @fds: filled in, up to @max; %DCM_CLIENT_FDS_MAX is always enough
 *
 * Call dcm_client_io_poll() first until it returns less than its @max: poll()
 * does not see what TLS has decrypted already. Nor does it see a donor that
 * stops answering: wake up now and then (100 ms) and call dcm_client_io_poll().
 *
 * Return: how many. 0 with operations in flight: there are completions to take
 * at once.
 */
int dcm_client_io_fds(struct dcm_client *client, u32 lane, struct pollfd *fds,
		      int max);

#define DCM_CLIENT_COUNTED_BYTES (64u << 10)

/**
 * dcm_client_write_count() - has a part of a slab been written?
 * @donor: index of its donor
 * @slab: its id
 * @offset: of the part, in bytes
 * @bytes: its size; rounded out to whole units of %DCM_CLIENT_COUNTED_BYTES
 *
 * Any thread; takes a lock that the client thread holds briefly.
 *
 * Return: a sum of how many writes began and ended. If it is the same twice, no write
 * began or ended in between; writes that are on their way at the first call are not
 * excluded. %U32_MAX for a slab that is gone, and always if lanes do their I/O
 * elsewhere: then writes are not seen here.
 * Semeru has this in the donor's memory: semeru-osdi20, fig. 6.
 */
u32 dcm_client_write_count(struct dcm_client *client, u32 donor, u64 slab,
			   u64 offset, u64 bytes);

/* Operations of this lane posted and not yet polled. */
u32 dcm_client_io_in_flight(struct dcm_client *client, u32 lane);

/**
 * dcm_client_endpoint() - the lane's endpoint to a slab's donor
 *
 * Takes over a new endpoint and hands a dead one back. dcm_client_io_*() do
 * this and count; for one slab use these or this function, not both.
 *
 * Return: the endpoint, %NULL while there is none.
 */
struct dcm_endpoint *dcm_client_endpoint(struct dcm_client *client,
					 struct dcm_client_slab *slab,
					 u32 lane);

/**
 * struct dcm_client_session_ref - what is needed to add a connection to a session
 * @sa: the donor's address
 * @tls: the client's credentials; they live as long as the client
 * @s: the session
 */
struct dcm_client_session_ref {
	const struct sockaddr_storage *sa;
	socklen_t sa_len;
	struct dcm_tls *tls;
	struct dcm_client_session s;
};

/* Copy a donor's session to @ref. False: there is none now. Any thread. */
bool dcm_client_session_ref_get(struct dcm_client *client, u32 donor,
				struct dcm_client_session_ref *ref);
u32 dcm_client_donors(const struct dcm_client *client);

/* ---- adding and removing donors ---- */

/**
 * dcm_client_donor_add() - use another donor, or again one that is being left
 * @donor: name and address, as in the configuration
 *
 * May sleep: looks up a host's name, and waits for the client thread. Not to be
 * called by callbacks.
 *
 * Return: 0; -EALREADY: it is used already; -EEXIST: a donor of that name has
 * another address; -EADDRINUSE: another donor has that address; -ENOSPC: there
 * are too many; -EINVAL, -EHOSTUNREACH: the address can't be used, which has
 * been logged; -ETIMEDOUT, -ENOMEM.
 */
int dcm_client_donor_add(struct dcm_client *client,
			 const struct dcm_host_donor *donor);

/**
 * dcm_client_donor_drain() - move everything off a donor and ask it for no more
 * @drain: false: use the donor again
 *
 * Sleeps until the drain has begun. Slabs stay until there is room elsewhere.
 * dcm_client_status() shows how far it is.
 *
 * Return: 0, -ENOENT, -EALREADY, -ETIMEDOUT.
 */
int dcm_client_donor_drain(struct dcm_client *client, const char *name,
			   bool drain);

/* As dcm_client_donor_drain(); the donor is forgotten once it has no slab of the VM. */
int dcm_client_donor_remove(struct dcm_client *client, const char *name);

/* ---- taking over from a client that was stopped or killed ---- */

/**
 * dcm_client_adopt_session() - adopt a session that the donor may still keep
 *
 * For dcm_client_config.adopt(). It is resumed; if the donor no longer knows
 * it, its slabs are lost like any others.
 */
void dcm_client_adopt_session(struct dcm_client *client, u32 donor,
			      const struct dcm_client_session *s);

/**
 * dcm_client_adopt_slab() - adopt a slab of an adopted session
 * @donor: the session's donor
 * @extent: the extent it belongs to
 * @ref: id, and for verbs base and key; shm slabs need no descriptor: it is not
 *	mapped, so only a pager that reaches it by itself may adopt one
 * @current: write-backs go to it; false: its extent is being moved off it
 *
 * Return: the slab, as if ops->attached() had brought it; %NULL: no memory, or
 * there is no such extent.
 */
struct dcm_client_slab *dcm_client_adopt_slab(struct dcm_client *client,
					      u32 donor, u32 extent,
					      const struct dcm_slab_ref *ref,
					      bool current);

/* ---- for a pager that moves data by itself ---- */

/**
 * dcm_client_lane_look() - take over new endpoints, hand dead ones back
 *
 * As dcm_client_endpoint(), for all donors; for lanes that don't call
 * dcm_client_io_*(), which does the same.
 */
void dcm_client_lane_look(struct dcm_client *client, u32 lane);

/**
 * dcm_client_count() - set how many pages were read from and written to a slab so far
 *
 * From this the client computes the slab's activity, which donors ask for. To be called
 * by one thread only.
 */
void dcm_client_count(struct dcm_client_slab *slab, u64 pages);

/**
 * dcm_client_redundancy_set() - change which slabs each extent should have
 * @client: the client
 * @redundancy: the new value
 *
 * Missing slabs are sought. Surplus slabs are given back as if their donors had asked
 * for them: ops->evict() is called for each. Data connections are made anew if the time
 * after which they are given up changes (dcm_client_config.redundancy). Any thread but
 * the client's; waits until the client thread has taken the new value.
 *
 * Return: 0, -EINVAL, -EALREADY, -ETIMEDOUT.
 */
int dcm_client_redundancy_set(struct dcm_client *client,
			      enum dcm_host_redundancy redundancy);

/* ---- looking ---- */

enum dcm_client_donor_state {
	DCM_DONOR_CONNECTING,
	DCM_DONOR_UP,
	DCM_DONOR_LOST,
	DCM_DONOR_DRAINING,
	DCM_DONOR_SILENT,
};

/**
 * struct dcm_client_donor_status - one donor
 * @transport: "tcp", "shm" or "verbs"
 * @file: it lends files of a disk; false too if that is not known yet
 * @state: enum dcm_client_donor_state
 * @leaving: it was removed, and its slabs are moved before it is forgotten
 * @number: the client's number of the donor
 * @slabs: slabs of this VM there
 * @bytes: their size
 * @orphans: of @slabs: those that outlived the donor and are mapped here
 * @orphans_waiting: of @orphans: those that no other donor has room for
 * @rtt_ns: round trip time of data operations if there were any (tcp), else of
 *	QUERY_MEM
 * @reads: READs that succeeded
 * @writes: WRITEs that succeeded
 * @slabs_free: slabs it would give, as it last said
 * @slabs_total: slabs it has in all, lent or not; 0: not known
 * @slabs_used: slabs it has lent, to all hosts
 * @told: the donor has sent the next four figures
 * @capacity_bytes: the most that it may lend
 * @lent_bytes: lent to all hosts
 * @head_room_bytes: kept free for its own machine
 * @sessions: sessions with all hosts
 * @silent_ms: time since the last message on its control connection; 0: no session
 * @patience_ms: the donor is lost when silent for longer
 * @why: how the last connection or attempt failed, "" if it did not
 */
struct dcm_client_donor_status {
	u32 number;
	char name[DCM_NAME_MAX + 1];
	char address[DCM_ADDRESS_MAX + 1];
	const char *transport;
	bool file;
	bool leaving;
	enum dcm_client_donor_state state;
	u64 slabs;
	u64 bytes;
	u64 orphans;
	u64 orphans_waiting;
	u64 rtt_ns;
	u64 reads;
	u64 writes;
	u64 slabs_free;
	u64 slabs_total;
	u64 slabs_used;
	bool told;
	u64 capacity_bytes;
	u64 lent_bytes;
	u64 head_room_bytes;
	u32 sessions;
	u64 silent_ms;
	u64 patience_ms;
	char why[160];
};

struct dcm_client_status {
	u32 nr_donors;
	u32 wanted; /* extents waiting for a slab */
	u32 evicting; /* slabs asked back and not released */
	u32 near; /* extents with copies on one host or in one group */
	u64 slabs;
	u64 lost; /* slabs lost so far */
	struct dcm_client_donor_status donor[DCM_CONFIG_DONORS_MAX];
};

/* Copy the status, up to 0.1 s old. Waits for the client thread, briefly. */
void dcm_client_status(struct dcm_client *client, struct dcm_client_status *st);

/* "connecting", "up", "lost", "draining", "silent" */
const char *dcm_client_donor_state_name(enum dcm_client_donor_state state);

#endif /* DCM_CLIENT_H */
