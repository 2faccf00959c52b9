/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.h - what a pager does for the core
 *
 * struct dcm_ops is the core's only way out, and struct dcm_fetch and struct
 * dcm_unmap are what passes through it: a block on its way into direct memory,
 * and one on its way out. The fields that are not marked as the pager's are
 * the core's, and constant while an op runs.
 */
#ifndef DCM_CORE_OPS_H
#define DCM_CORE_OPS_H

#include "../lib/dcm_context.h"
#include "io.h"

struct dcm_vm;
struct dcm_lane;

enum dcm_fetch_state {
	DCM_FETCH_FREE,
	DCM_FETCH_IO, /* READ in flight */
	DCM_FETCH_RETRY, /* READ failed or queue full: again at @again_ns */
};

/**
 * struct dcm_fetch - one block on its way into direct memory
 * @io: the READ; @io.data on completion is where page @first's bytes are
 * @gfn: head of the block
 * @order: block is 2^order pages
 * @state: enum dcm_fetch_state
 * @first: index of the first page in the READ
 * @nr: number of pages in the READ; 0: nothing is read, all pages are zero
 * @zero: pages that are zero whatever the READ brought (bit per page)
 * @writable: pages to map writable; the others are mapped so that their first
 *	write faults with DCM_FF_WP (a pager that learns dirtiness from page
 *	tables may map those in any way)
 * @fault_page: index of the page that was asked for; %DCM_BLOCK_MAX if none
 * @sample: the pager may leave one page unmapped to learn about locality
 * @hide: a page that should be left unmapped, a bit; 0: none
 * @pull: no access asked for the block: its slab is being emptied
 * @ahead: no access has asked for the block yet (ahead.c, stream.c)
 * @stream: @ahead is set, and stream.c began the fetch
 * @write: the access that asked for the block is a write
 * @again: the block was evicted only recently
 * @hidden: out of install: pages left unmapped; ops->reveal() maps one
 * @buf: the pager's landing buffer, 64 KiB, for transports without
 *	%DCM_TR_DIRECT; the pager sets it once, when it makes the lane
 * @at: the extent's slots that hold the block
 * @tried: of @at: slots on which a READ failed since the fetch last waited to retry
 * @slot: of @at: the slot that the block is read from
 * @tries: READs that failed
 * @failed: a READ failed, brought wrong bytes, or gave bytes in a slab that was cut off
 * @reread: a READ brought wrong bytes from the last slot, and was tried again
 * @again_ns: when to try again
 * @t_fault: when the fault was taken
 * @t_read: when the READ ended; 0: there was none
 * @t_there: out of install: when the block was mapped, just before waiting
 *	accesses were woken (they may run before install returns); 0: the core
 *	takes the time after install; %DCM_TIME_NONE: not known
 */
struct dcm_fetch {
	struct dcm_io io;
	u32 gfn;
	u8 order;
	u8 state;
	u8 first;
	u8 nr;
	u16 zero;
	u16 writable;
	u8 fault_page;
	bool sample;
	bool pull;
	bool ahead;
	bool stream;
	bool write;
	bool again;
	u16 hide;
	u16 hidden;
	u8 at;
	u8 tried;
	u8 slot;
	u16 tries;
	bool failed;
	bool reread;
	void *buf;
	u64 again_ns;
	u64 t_fault;
	u64 t_read;
	u64 t_there;
};

#define DCM_TIME_NONE (~0ull)

#define DCM_SEAL_TAG 14u /* bytes; NIST SP 800-38D allows 12 to 16 */

/**
 * struct dcm_seal - what is needed to open a sealed page (seal.c)
 * @version: how often the page has been sealed: low bits
 * @version_high: high bits
 * @tag: of its bytes
 *
 * 20 bytes: 48 bits of version and a tag of 14 bytes. A version of 32 bits would leave
 * 16 bytes for the tag, but a page that is written all the time would use it up in
 * days.
 */
struct dcm_seal {
	u32 version;
	u16 version_high;
	u8 tag[DCM_SEAL_TAG];
};

static_assert(sizeof(struct dcm_seal) == 20, "20 bytes a page");

static inline u64 dcm_seal_version(const struct dcm_seal *s)
{
	return (u64)s->version_high << 32 | s->version;
}

#define DCM_SEAL_NONCE 12u /* bytes */

/* Make the nonce that a page is sealed with: its gfn and its version, little-endian. */
static inline void dcm_seal_nonce(u8 *nonce, u32 gfn, const struct dcm_seal *s)
{
	u64 version = dcm_seal_version(s);
	unsigned int i;

	for (i = 0; i < 4; i++)
		nonce[i] = (u8)(gfn >> 8 * i);
	for (i = 0; i < 8; i++)
		nonce[4 + i] = (u8)(version >> 8 * i);
}

/**
 * struct dcm_unmap - one block to be unmapped from the guest
 * @gfn: head
 * @order: block is 2^order pages
 * @drop: in: the bytes of a block found clean need not be kept
 * @open: for copy, in: the pages may stay writable; out: they did
 * @dirty: in: pages the core knows dirty; out: also those the pager knows
 * @touched: out: pages known to have been accessed
 * @observed: out: pages of which it is known whether they were accessed
 * @frame: out: handle of the bytes, or %DCM_NIL where they were not kept
 * @err: out: 0, or -EBUSY when the block is in use by I/O and stays mapped
 */
struct dcm_unmap {
	u32 gfn;
	u8 order;
	bool drop;
	bool open;
	u16 dirty;
	u16 touched;
	u16 observed;
	u32 frame;
	int err;
};

/**
 * struct dcm_ops - what a pager does for the core
 *
 * Every op gets the lane it is called on, and is called without any lock of
 * the core. While an op runs, no op but wake and lost runs for the same pages.
 *
 * @install: map a fetched block and wake the accesses that wait for it.
 *	0, or a negative errno: the block was not installed at all.
 * @remap: map an unmapped block again from @frame and wake. @writable and @hide
 *	as in struct dcm_fetch. With @keep the frame's bytes must stay where they
 *	are: a write-back still reads them, and ops->release() follows.
 *	Otherwise the pager takes the frame back. Must not fail.
 * @fresh: map @nr pages, whole blocks within an aligned 2 MiB, as zeroes, writable,
 *	and wake. 0, or a negative errno: none of them is mapped. %NULL: this
 *	pager gains nothing by runs.
 * @reveal: a fault hit a page of a mapped block: map it if install, remap or hide
 *	left it out (return 1), else only wake (return 0).
 * @hide: unmap one page of a mapped block, which stays direct: the next access to
 *	it faults. @dirty: the core knows it dirty. 0; 1: it was hidden already; or a
 *	negative errno: it stays mapped, and is tried again later. %NULL: this pager
 *	can't, and there is no sample of touches (reuse.c).
 * @unprotect: let pages be written, wake.
 * @unmap: unmap @nr blocks, so that no access is possible any more on return.
 *	Fills in the out fields.
 * @copy: copy the pages under @v->dirty of a mapped block to their places in
 *	a frame, as @unmap does, but leave all pages mapped; the next write to
 *	a copied page faults, unless @v->open. Then accesses go on meanwhile, and each
 *	aligned word of the copy is what it was at some time of the call. Not called on
 *	a pager that learns dirtiness from page tables: there the core calls unmap and
 *	remap.
 * @wake: let every access waiting on these pages try again.
 * @zero_mask: which of the pages under @mask of a frame are all zero.
 * @sum: compute a sum of the bytes of page @page of @data. @data is where a READ
 *	landed, or an address of frame_data(). Only called if dcm_extent_sums() was.
 * @seal: encrypt a page, from a frame to another frame (addresses of frame_data()),
 *	by the VM's key and a nonce of @gfn and the version in @s; sets the tag. 0,
 *	or a negative errno. Like @open only called after dcm_vm_seal().
 * @open: the opposite of @seal, in place: decrypt page @page of @data, where a READ
 *	landed. 0, or -EBADMSG: the bytes do not match their seal, and what is left
 *	in their place must not be used. With @keep the bytes are only checked and stay
 *	encrypted.
 * @wrong: a donor gave wrong bytes for the pages under @pages, counted from @gfn;
 *	@lost of them no other donor has. For the log. Only called where @sum or @open
 *	is.
 * @frame_data: address of page @page of a frame, for a WRITE.
 * @release: give a frame's memory back.
 * @discard: drop the content of @nr mapped pages, whole blocks: unmap and free
 *	them.
 * @io_post: start an I/O of this lane; errors as in dcm_transport_ops.post,
 *	-ENOTCONN also while the donor can't be reached.
 * @io_flush: send what io_post() has queued.
 * @io_poll: completions, as in dcm_transport_ops.poll.
 * @frozen: do accesses to the block at @gfn wait, as a donor's GC worker uses its
 *	pages? Then it is not brought in ahead of them. %NULL: they never do.
 * @want_slab: the extent needs a slab; the pager answers some time later with
 *	dcm_extent_attach(). Called again and again while it is needed.
 * @lost: an access needs pages that are lost. The pager stops that access.
 * @now_ns: monotonic clock.
 * @relax: called in loops that wait for another lane. %false: stop waiting
 *	(the kernel: the waiting process is being killed).
 */
struct dcm_ops {
	int (*install)(struct dcm_lane *lane, struct dcm_fetch *f);
	void (*remap)(struct dcm_lane *lane, u32 gfn, unsigned int order,
		      u32 frame, u16 writable, u16 hide, bool keep);
	int (*fresh)(struct dcm_lane *lane, u32 gfn, u32 nr);
	int (*reveal)(struct dcm_lane *lane, u32 gfn, bool write);
	int (*hide)(struct dcm_lane *lane, u32 gfn, bool dirty);
	void (*unprotect)(struct dcm_lane *lane, u32 gfn, u32 nr);
	void (*unmap)(struct dcm_lane *lane, struct dcm_unmap *v,
		      unsigned int nr);
	void (*copy)(struct dcm_lane *lane, struct dcm_unmap *v);
	void (*wake)(struct dcm_lane *lane, u32 gfn, u32 nr);
	u16 (*zero_mask)(struct dcm_lane *lane, u32 frame, unsigned int order,
			 u16 mask);
	u32 (*sum)(struct dcm_lane *lane, const void *data, u32 page);
	int (*seal)(struct dcm_lane *lane, void *to, const void *from, u32 gfn,
		    struct dcm_seal *s);
	int (*open)(struct dcm_lane *lane, void *data, u32 page, u32 gfn,
		    const struct dcm_seal *s, bool keep);
	void (*wrong)(struct dcm_lane *lane, u32 gfn, u16 pages, u32 peer,
		      u32 lost);
	void *(*frame_data)(struct dcm_lane *lane, u32 frame,
			    unsigned int page);
	void (*release)(struct dcm_lane *lane, u32 frame, unsigned int order);
	void (*discard)(struct dcm_lane *lane, u32 gfn, u32 nr);
	int (*io_post)(struct dcm_lane *lane, struct dcm_io *io);
	void (*io_flush)(struct dcm_lane *lane);
	int (*io_poll)(struct dcm_lane *lane, struct dcm_io **done, int max);
	bool (*frozen)(struct dcm_lane *lane, u32 gfn);
	void (*want_slab)(struct dcm_vm *vm, u32 extent);
	void (*lost)(struct dcm_lane *lane, u32 gfn, u32 nr);
	u64 (*now_ns)(void);
	bool (*relax)(struct dcm_lane *lane);
};

#endif /* DCM_CORE_OPS_H */
