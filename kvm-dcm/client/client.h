/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * client.h - the client of donors, inside a paging process
 *
 * One client thread talks to all donors: sessions, heartbeats, slabs coming
 * and going. Lanes (fault threads) get endpoints from it and never wait for
 * it. What may be called where:
 *
 *   client thread only	the functions in struct dcm_client_ops
 *   one thread at a time	dcm_client_start(), dcm_client_stop()
 *   the lane's thread only	dcm_client_io_*(), dcm_client_endpoint()
 *   any thread			everything else; a fault thread too: nothing
 *				here sleeps or allocates unless it says so
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
/* descriptors one lane may have to wait for */
#define DCM_CLIENT_FDS_MAX (2 * DCM_CONFIG_DONORS_MAX)

struct dcm_client;
struct dcm_tcp_args;
struct dcm_tls;
struct dcm_wire_shown;
struct sockaddr_storage;

/**
 * struct dcm_client_links - makes endpoints of lanes that do their I/O elsewhere
 * @data: of a connection that has been welcomed; instead of
 *	dcm_transport_tcp.open(), and as that
 * @pair: of a queue pair that is yet to be connected, to where the donor said,
 *	showing its ticket; instead of all that librdmacm does
 * @paired: the one that @pair gave is connected
 *
 * In the client thread; @arg is the callbacks'. %NULL and a negative errno.
 */
struct dcm_client_links {
	struct dcm_endpoint *(*data)(void *arg, u32 donor, u32 lane,
				     const struct dcm_tcp_args *args, int *err);
	struct dcm_endpoint *(*pair)(void *arg, u32 donor, u32 lane,
				     const struct sockaddr_storage *to,
				     const struct dcm_wire_shown *shown,
				     int *err);
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
 * @data_encryption: page contents go through TLS. If not: in plain bytes, if
 *	the donor agrees
 * @patience_ms: how long a donor that is silent is waited for; 0: a minute
 * @transport: to donors that are not on this host; verbs only without
 *	@data_encryption
 * @area: memory that READs land in: with verbs it is locked and registered, and
 *	they land without a copy. %NULL: none
 * @area_bytes: of it; it must outlive the client
 * @no_populate: do not map the pages of shm slabs ahead of use
 * @seed: of placement; 0: a random one
 * @links: %NULL: lanes do their I/O by this library
 * @adopt: called by dcm_client_start() with the callbacks' argument before anything
 *	else is done: the place for dcm_client_adopt_*(); may be %NULL
 * @wrap: tests: given every new endpoint, returns what lanes get instead (a
 *	hostile one); called by the client thread, or by dcm_client_start() for
 *	shm, whose endpoints are never replaced: don't let those die
 * @wrap_arg: its argument
 *
 * An shm slab is mapped read-only into the process. With population the control
 * thread fills in its page tables in the background: a fetch then costs 0.9 us
 * instead of 2.2 us for a first touch of 16 pages (measured, copy of 4 KiB
 * included), pages of the donor count in this process's RssShmem, not in its
 * memory cgroup, and it is only done for slabs whose memory the donor has
 * allocated already: nothing is ever allocated on the host's account.
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
	u32 patience_ms;
	enum dcm_host_transport transport;
	void *area;
	size_t area_bytes;
	bool no_populate;
	u64 seed;
	const struct dcm_client_links *links;
	void (*adopt)(void *arg, struct dcm_client *client);
	struct dcm_endpoint *(*wrap)(void *arg, struct dcm_endpoint *ep);
	void *wrap_arg;
};

/**
 * struct dcm_client_count - what one lane did on one slab; the lane's to write
 */
struct dcm_client_count {
	u64 reads;
	u64 writes;
	u64 pages;
	u64 in_flight;
} ____cacheline_aligned;

/**
 * struct dcm_client_slab - one slab lent to this VM
 * @ref: what operations name; never changes while the slab lives
 * @client: whose it is
 * @donor: index of its donor
 * @extent: which extent it was asked for
 * @transport: enum dcm_wire_transport
 * @caps: DCM_TR_* of the transport
 * @dead: set before ops->lost(): every operation fails from then on
 * @activity_milli: page operations a second, EWMA, times 1000; READ_ONCE()
 * @priv: the pager's, never touched here
 * @tags: one for %DCM_CLIENT_TAG_BYTES, counts writes begun and ended; or %NULL
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
	u64 activity_milli;
	void *priv;
	u32 *tags;

	struct dcm_activity activity;
	struct dcm_client_slab *next;
	struct dcm_client_slab *next_note;
	atomic_t notes;
	u32 state;
	bool evicting; /* the donor wants it back */
	bool leaving; /* we want to be off that donor */
	u64 tag;
	u64 populated;
	u64 pages_seen;
	struct dcm_client_count lane[];
};

/**
 * struct dcm_client_session - what is needed to go on with a session
 * @id: as the donor calls it
 * @donor_id: of the donor process
 * @secret: proves that it is ours
 */
struct dcm_client_session {
	u64 id;
	u64 donor_id;
	u8 secret[16];
};

/**
 * struct dcm_client_ops - what the pager wants to hear; in the client thread, but
 *	for @fenced
 * @attached: an extent that was asked for has a slab
 * @evict: the donor wants a slab back (memory is short there, or it drains).
 *	It can be used until released; a donor that waits too long takes it
 *	(ops->lost). Once per slab. It can cross a release, as @lost can
 * @lost: a slab and what was on it are gone: the donor is gone or was silent for
 *	longer than our patience, ended the
 *	session, was restarted, or took it back. Once per slab. @donor is its
 *	name. It can cross a release another thread makes at the same moment:
 *	@slab is valid during the call in any case
 * @starved: no donor can give a slab for this extent now; it goes on being
 *	tried. Once until it is attached
 * @up: a donor's session is on (again); may be %NULL
 * @fenced: in the lane's thread: a lane uses a new data connection or queue pair
 *	to a donor. What the older one brought has happened or never will, and all
 *	that was in flight on it has been polled. May be %NULL
 * @donor: one was added, by that number from now on; a number may come again,
 *	of a donor that was removed. May be %NULL
 * @session: a session with a donor has begun, or has ended (@s is %NULL); may be
 *	%NULL. dcm_client_stop() ends all without a word
 *
 * May call every any-thread function of this header. Should not take long:
 * heartbeats wait meanwhile.
 */
struct dcm_client_ops {
	void (*attached)(void *arg, u32 extent, struct dcm_client_slab *slab);
	void (*evict)(void *arg, struct dcm_client_slab *slab);
	void (*lost)(void *arg, struct dcm_client_slab *slab,
		     const char *donor);
	void (*starved)(void *arg, u32 extent);
	void (*up)(void *arg, const char *donor);
	void (*session)(void *arg, u32 donor,
			const struct dcm_client_session *s);
	void (*donor)(void *arg, u32 donor, const struct dcm_host_donor *d);
	void (*fenced)(void *arg, u32 lane, u32 donor);
};

/**
 * dcm_client_start() - start the client thread
 * @cfg: read during the call only
 * @cb: must outlive the client
 * @arg: given to every callback
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
 * dcm_client_stop() - give everything back and end
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
 * Ignored while the extent has one that is not lost, or one is being sought.
 * Never sleeps; a bit and, the first time, a write to an eventfd.
 */
void dcm_client_want(struct dcm_client *client, u32 extent);

/**
 * dcm_client_want_other() - a slab's extent needs another one
 * @slab: not released; if the extent has a newer one already nothing is done
 *
 * On another donor if one has room; on the same one only if that does not
 * drain. Never sleeps.
 */
void dcm_client_want_other(struct dcm_client *client,
			   struct dcm_client_slab *slab);

/**
 * dcm_client_release() - the pager is through with a slab
 *
 * No operation on it is posted any more. Those in flight may still complete;
 * after the last the donor gets the slab back and @slab is gone. Never sleeps.
 */
void dcm_client_release(struct dcm_client *client,
			struct dcm_client_slab *slab);

/**
 * dcm_client_stale() - the donor has taken a slab back under our hands
 *
 * For a home that finds out by itself: UFFDIO_COPY from an shm slab failed
 * with EFAULT. Operations that complete with -ESTALE are reported by
 * dcm_client_io_poll(). ops->lost() follows. Never sleeps.
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

/* Doorbell of everything posted. */
void dcm_client_io_flush(struct dcm_client *client, u32 lane);

/*
 * Take up to @max completions of all donors into a list; how many. A lane whose
 * connection broke takes over the next here, or when it posts: ops->fenced.
 */
int dcm_client_io_poll(struct dcm_client *client, u32 lane,
		       struct dcm_io **done, int max);

/**
 * dcm_client_io_fds() - what to poll() for while operations are in flight
 * @fds: filled in, up to @max; %DCM_CLIENT_FDS_MAX is always enough
 *
 * Call dcm_client_io_poll() until it returns less than its @max first: what TLS has
 * decrypted already is not seen by poll(). Nor is a donor that stops answering:
 * wake up now and then (100 ms) and call dcm_client_io_poll().
 *
 * Return: how many. With operations in flight and 0 there are completions to
 * take at once.
 */
int dcm_client_io_fds(struct dcm_client *client, u32 lane, struct pollfd *fds,
		      int max);

#define DCM_CLIENT_TAG_BYTES (64u << 10)

/**
 * dcm_client_tag() - has a piece of a slab been written to? (semeru-osdi20, fig. 6)
 * @donor: index of its donor
 * @slab: its id
 * @offset: of the piece, and
 * @bytes: its size; what it touches of %DCM_CLIENT_TAG_BYTES counts as well
 *
 * Any thread; takes a lock the client thread holds briefly.
 *
 * Return: the same as before if no write was begun or ended meanwhile, and odd
 * while one is on its way. %U32_MAX for a slab that is gone, and always if lanes
 * do their I/O elsewhere: then nobody here knows.
 */
u32 dcm_client_tag(struct dcm_client *client, u32 donor, u64 slab, u64 offset,
		   u64 bytes);

/* Operations of this lane posted and not yet polled. */
u32 dcm_client_io_in_flight(struct dcm_client *client, u32 lane);

/**
 * dcm_client_endpoint() - the lane's endpoint to a slab's donor
 *
 * Takes over a new one and hands a dead one back. dcm_client_io_*() do this and
 * count; use one or the other for a slab, not both.
 *
 * Return: the endpoint, %NULL while there is none.
 */
struct dcm_endpoint *dcm_client_endpoint(struct dcm_client *client,
					 struct dcm_client_slab *slab,
					 u32 lane);

/**
 * struct dcm_client_door - what another connection of a session is made with
 * @sa: where the donor is
 * @tls: our credentials; they live as long as the client
 * @s: the session
 */
struct dcm_client_door {
	const struct sockaddr_storage *sa;
	socklen_t sa_len;
	struct dcm_tls *tls;
	struct dcm_client_session s;
};

/* False: there is no session with that donor now. Any thread. */
bool dcm_client_door(struct dcm_client *client, u32 donor,
		     struct dcm_client_door *door);
u32 dcm_client_donors(const struct dcm_client *client);

/* ---- donors that come and go ---- */

/**
 * dcm_client_donor_add() - use another donor, or one again that is being left
 * @donor: name and address, as in the configuration
 *
 * May sleep: looks up a host's name, and waits for the client thread. Not to be
 * called by callbacks.
 *
 * Return: 0; -EALREADY: it is used already; -EEXIST: one of that name has another
 * address; -EADDRINUSE: one of another name has that address; -ENOSPC: there are
 * too many; -EINVAL, -EHOSTUNREACH: the address can't be used, which has been
 * logged; -ETIMEDOUT, -ENOMEM.
 */
int dcm_client_donor_add(struct dcm_client *client,
			 const struct dcm_host_donor *donor);

/**
 * dcm_client_donor_drain() - move everything off a donor and ask it for no more
 * @drain: false: no more of that
 *
 * Begins it, and sleeps until then. What is on it stays until there is room
 * elsewhere. dcm_client_status() tells how far it is.
 *
 * Return: 0, -ENOENT, -EALREADY, -ETIMEDOUT.
 */
int dcm_client_donor_drain(struct dcm_client *client, const char *name,
			   bool drain);

/* The same, and then forget it. */
int dcm_client_donor_remove(struct dcm_client *client, const char *name);

/* ---- going on where another client was stopped or killed ---- */

/**
 * dcm_client_adopt_session() - a session that the donor may still keep for us
 *
 * For dcm_client_config.adopt(). It is resumed; if the donor does not know it any
 * more, its slabs are lost like any.
 */
void dcm_client_adopt_session(struct dcm_client *client, u32 donor,
			      const struct dcm_client_session *s);

/**
 * dcm_client_adopt_slab() - a slab of that session
 * @donor: whose session was adopted
 * @extent: which extent it is under
 * @ref: id, and for verbs base and key; shm slabs need no descriptor: it is not
 *	mapped, so only a home that reaches it by itself may adopt one
 * @current: write-backs go there; not one that its extent is moving off
 *
 * Return: the slab, as if ops->attached() had brought it; %NULL: no memory, or
 * there is no such extent.
 */
struct dcm_client_slab *dcm_client_adopt_slab(struct dcm_client *client,
					      u32 donor, u32 extent,
					      const struct dcm_slab_ref *ref,
					      bool current);

/* ---- for a home that moves data by itself ---- */

/**
 * dcm_client_lane_look() - take over new endpoints, hand dead ones back
 *
 * dcm_client_endpoint() for all donors, for who does not call dcm_client_io_*().
 */
void dcm_client_lane_look(struct dcm_client *client, u32 lane);

/**
 * dcm_client_count() - so many pages were read from and written to a slab until now
 *
 * What donors are told of its activity. One thread.
 */
void dcm_client_count(struct dcm_client_slab *slab, u64 pages);

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
 * @state: enum dcm_client_donor_state
 * @slabs: slabs of this VM there
 * @bytes: their size
 * @rtt_ns: of data operations if there were any (tcp), else of QUERY_MEM
 * @reads: READs completed well
 * @writes: WRITEs completed well
 * @slabs_free: slabs it would give, as it last said
 * @slabs_total: slabs it has in all, lent or not; 0: not known
 * @slabs_used: slabs it has lent, to anybody
 * @silent_ms: since its control connection last said something; 0: no session
 * @patience_ms: how long that may be before it is given up
 * @why: of what the last connection or attempt failed, "" if it did not
 */
struct dcm_client_donor_status {
	char name[DCM_NAME_MAX + 1];
	char address[DCM_ADDRESS_MAX + 1];
	const char *transport;
	enum dcm_client_donor_state state;
	u64 slabs;
	u64 bytes;
	u64 rtt_ns;
	u64 reads;
	u64 writes;
	u64 slabs_free;
	u64 slabs_total;
	u64 slabs_used;
	u64 silent_ms;
	u64 patience_ms;
	char why[160];
};

struct dcm_client_status {
	u32 nr_donors;
	u32 wanted; /* extents waiting for a slab */
	u32 evicting; /* slabs asked back and not released */
	u64 slabs;
	u64 lost; /* slabs lost so far */
	struct dcm_client_donor_status donor[DCM_CONFIG_DONORS_MAX];
};

/* Up to a tenth of a second old. Takes a lock the client thread holds briefly. */
void dcm_client_status(struct dcm_client *client, struct dcm_client_status *st);

/* "connecting", "up", "lost", "draining", "silent" */
const char *dcm_client_donor_state_name(enum dcm_client_donor_state state);

#endif /* DCM_CLIENT_H */
