/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dcmfs.h - shared by the files of the kernel pager
 *
 * A dcmfs file is one VM's memory: struct dcmfs_vm, made when the file is first
 * given a size and freed with its inode. It is the kernel's pager of the core:
 *
 *	fault.c   a page fault of QEMU, KVM or vhost: calls the core on a lane
 *	backend.c the core's ops: mapping blocks
 *	unmap.c   the core's ops: unmapping and discarding blocks
 *	frame.c   page frames, their chains, the reserve
 *	huge.c    spans: 2 MiB in one huge page, until a part of it leaves
 *	slab.c    slabs: attached, moved, lost; I/O on those of this host
 *	link.c    a lane's I/O, and its links to donors
 *	tcp.c     a link that is a socket
 *	verbs.c   a link that is a queue pair; a module of its own
 *	memory.c  struct dcmfs_vm: its life, its thread, its lanes
 *	sum.c     sums of pages
 *	page_seal.c pages that are encrypted before they leave
 *	file.c    mmap, truncate, fallocate, poll
 *	ioctl.c   requests of the control plane, dcm-hostd
 *	freeze.c    block faults on a range while a GC worker accesses its slabs
 *	spread.c    copy a GC worker's changes to an extent's other slabs
 *	inspect.c debugfs
 *	jitter.c  delays and failures, for tests
 *	super.c   mount, directories, the module
 *
 * Lock order: mmap_lock or a VMA's lock -> lane -> i_mmap_rwsem, page locks (by
 * trylock only) -> the core's own. inode lock -> discard lane, which waits for
 * page locks; control -> control lane. A fault that may be retried drops the mmap lock
 * before it waits for a donor.
 */
#ifndef DCMFS_INTERNAL_H
#define DCMFS_INTERNAL_H

#include <linux/fs.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/wait.h>

#include "../core/core.h"
#include "../proto/wire_format.h"
#include "../transport/transport.h"
#include "../include/dcmfs.h"

struct crypto_aead;
struct dcmfs_sealer;

#define DCMFS_LANES_MAX 32u /* fault lanes of a VM */
#define DCMFS_BUCKETS 64u /* wait queues of blocks being worked on */
#define DCMFS_RESERVE 64 /* frames kept for when the host has none */
#define DCMFS_SPAN_PAGES 512u /* 2 MiB (huge.c) */
#define DCMFS_HUGE_LOCKS 16u
#define DCMFS_SLABS_MAX 65536u /* slabs of a VM */

static_assert(DCMFS_DONORS_MAX <= 64, "a bit for each in dcmfs_lane.busy");
static_assert(DCMFS_SLABS == DCM_SLOTS, "an extent has a slot for each slab");

/**
 * struct dcmfs_options - options of a mount; each file is made with them
 * @budget: direct budget in bytes, 0: @share
 * @share: direct budget in percent of the file's size
 * @extent: bytes of an extent
 * @metadata: most bytes that all files together take besides frames
 * @pause: a thread that needs lost memory waits until killed; else SIGBUS
 */
struct dcmfs_options {
	u64 budget;
	u32 share;
	u64 extent;
	u64 metadata;
	u32 lanes;
	bool pause;
	umode_t mode;
	kuid_t uid;
	kgid_t gid;
};

/**
 * struct dcmfs_sb - a mount
 * @opt: its options
 * @metadata: bytes that files have taken of @opt.metadata
 * @debug: debugfs directory of the files' directories
 */
struct dcmfs_sb {
	struct dcmfs_options opt;
	atomic64_t metadata;
	struct dentry *debug;
};

/**
 * struct dcmfs_access - the access that a lane serves
 * @vmf: the fault, to map the pages around its page; %NULL once the mmap lock was
 *	dropped
 * @gfn: the page that it needs
 * @want: return the page in @page
 * @page: out: that page, locked, with a reference
 * @busy: out: that page, with a reference, as another thread has it locked
 * @lost: out: its content is lost
 * @major: out: it was fetched
 */
struct dcmfs_access {
	struct vm_fault *vmf;
	u32 gfn;
	bool want;
	struct page *page;
	struct page *busy;
	bool lost;
	bool major;
};

/**
 * struct dcmfs_lane - the pager's part of a lane
 * @lock: held by the one thread that is in the core with it
 * @core: the core's part
 * @access: the fault it serves, if any
 * @done: I/Os on slabs of this host that are complete but not polled
 * @landing: by fetch: the frames that its READ lands in; if a fetch ends in a loss the
 *	next one uses its frames
 * @landing_nr: by fetch: the number of these frames
 * @spare: frames freed on this lane, kept for its next fetches; a chain
 * @nr_spare: number of frames in @spare
 * @max_spare: the most frames that @spare may have
 * @link: by donor: the lane's link, or %NULL
 * @links: donors with a link, a bit each
 * @busy: of these: donors with operations in flight on the link
 * @fresh: of @links: donors that are not known to have accepted the link yet
 * @event: something has arrived on a link
 * @wait: threads that wait for @event, without @lock
 * @sealer: encrypts and decrypts the lane's pages, in a sealed VM
 */
struct dcmfs_lane {
	struct mutex lock;
	struct dcm_lane *core;
	struct dcmfs_access *access;
	struct dcm_done done;
	struct page *landing[DCM_FETCHES_MAX];
	u8 landing_nr[DCM_FETCHES_MAX];
	struct page *spare;
	u32 nr_spare;
	u32 max_spare;
	struct dcm_endpoint *link[DCMFS_DONORS_MAX];
	u64 links;
	u64 busy;
	u64 fresh;
	bool event;
	wait_queue_head_t wait;
	struct dcmfs_sealer *sealer;
};

struct dcmfs_bucket {
	wait_queue_head_t wait;
	atomic_t seq;
};

/**
 * struct dcmfs_vm_slab - a slab of a VM
 * @ref: the core's part; its id is the donor's id of the slab
 * @number: the control plane's number
 * @extent: the extent that has it
 * @file: if its memory is on this host: the memfd; else %NULL
 * @donor: if not: the donor that has it
 * @broken: its bytes can't be reached any more: DETACH fails, only LOST works
 * @next: the VM's next slab
 */
struct dcmfs_vm_slab {
	struct dcm_slab_ref ref;
	u64 number;
	u32 extent;
	struct file *file;
	u32 donor;
	bool broken;
	struct dcmfs_vm_slab *next;
};

/**
 * struct dcmfs_vm - one file's memory
 * @inode: the file
 * @opt: its mount's options
 * @core: the core's part
 * @own_bytes: bytes that it keeps until it ends, counted by its mount; under @control
 * @cipher: the cipher and key that its pages are sealed with; %NULL: not sealed. Under
 *	@control
 * @sum_secret: the seed of its pages' sums
 * @lane: lanes; the last is the control lane, for moves and the thread; the one
 *	before it is for discards
 * @nr_lanes: how many in all
 * @bucket: threads that wait for a block
 * @frames: number of page frames that it has
 * @reserve: frames to use when the host has none
 * @short_of: frames were taken from the reserve: direct memory must shrink
 * @huge: spans that are pages of 2 MiB, a bit each
 * @huge_lock: by span: guards descriptors' references to pages of the span
 * @huge_spare: frames to split a span when the host has none; a chain
 * @huge_split: how many spans were split
 * @slabs: all slabs; under @control
 * @nr_slabs: number of slabs
 * @kept: by donor: a socket that the control plane wants kept open
 * @ping_at: time, in jiffies, of the next ping to donors; the thread's
 * @tick_ms: time until dcm_reuse_tick() is due; the thread's
 * @note: by donor: a note that the control plane has left for the next one
 * @control: serializes requests of the control plane
 * @want: extents that need a slab, a bit each
 * @wanted: how many extents that are
 * @events: for poll() on @wanted
 * @frozen: blocks whose accesses wait, a bit each; %NULL: there never were any
 * @freezer: the open file that froze them, if any are frozen
 * @thaw_at: if that file was closed: when its pages are thawed, in jiffies
 * @handed: since the freeze pages were synced for a worker that may change them
 * @write_counts: by 64 KiB: write counts; %NULL: never asked for
 * @freeze_lock: guards the last five; pages stay frozen while it is held
 * @thread: the VM's thread (memory.c)
 * @work: the thread waits here
 * @kicked: the thread has something to do
 * @dormant: the thread sleeps until kicked
 */
struct dcmfs_vm {
	struct inode *inode;
	const struct dcmfs_options *opt;
	struct dcm_vm *core;
	u64 own_bytes;
	struct crypto_aead *cipher;
	u64 sum_secret;
	struct dcmfs_lane *lane;
	u32 nr_lanes;
	struct dcmfs_bucket bucket[DCMFS_BUCKETS];
	atomic64_t frames;
	mempool_t reserve;
	atomic_t short_of;
	unsigned long *huge;
	spinlock_t huge_lock[DCMFS_HUGE_LOCKS];
	struct page *huge_spare;
	atomic64_t huge_split;
	struct dcmfs_vm_slab *slabs;
	u32 nr_slabs;
	u8 *note[DCMFS_DONORS_MAX];
	struct file *kept[DCMFS_DONORS_MAX];
	unsigned long ping_at;
	unsigned int tick_ms;
	struct mutex control;
	unsigned long *want;
	atomic_t wanted;
	wait_queue_head_t events;
	unsigned long *frozen;
	const struct file *freezer;
	unsigned long thaw_at;
	bool handed;
	atomic_t *write_counts;
	struct mutex freeze_lock;
	struct task_struct *thread;
	wait_queue_head_t work;
	atomic_t kicked;
	bool dormant;
	struct dentry *debug;
};

static inline struct dcmfs_vm *dcmfs_vm_of(const struct inode *inode)
{
	/* Pairs with dcmfs_vm_create(): if we see a VM, it is set up. */
	return smp_load_acquire((struct dcmfs_vm **)&inode->i_private);
}

static inline struct dcmfs_vm *lane_vm(const struct dcm_lane *lane)
{
	return lane->vm->priv;
}

static inline struct dcmfs_lane *dcmfs_lane_of(const struct dcm_lane *lane)
{
	return lane->priv;
}

/* memory.c */
int dcmfs_vm_create(struct inode *inode, u64 bytes);
void dcmfs_vm_destroy(struct dcmfs_vm *vm);
struct dcmfs_lane *dcmfs_lane_get(struct dcmfs_vm *vm);
struct dcmfs_lane *dcmfs_control_get(struct dcmfs_vm *vm);
struct dcmfs_lane *dcmfs_control_try(struct dcmfs_vm *vm);
void dcmfs_lane_put(struct dcmfs_vm *vm, struct dcmfs_lane *lane);
void dcmfs_kick(struct dcmfs_vm *vm);
int dcmfs_discard(struct dcmfs_vm *vm, u64 first, u64 nr);
u64 dcmfs_metadata_bytes(const struct dcmfs_vm *vm);
int dcmfs_metadata_take(struct dcmfs_vm *vm, u64 bytes);
void dcmfs_metadata_give(struct dcmfs_vm *vm, u64 bytes);
int dcmfs_metadata_add(struct dcmfs_vm *vm, u64 bytes);
void dcmfs_metadata_drop(struct dcmfs_vm *vm, u64 bytes);
void *dcmfs_table_alloc(struct dcmfs_vm *vm, size_t entry);
void dcmfs_table_free(struct dcmfs_vm *vm, void *mem, size_t entry);

/* frame.c */
int dcmfs_frames_init(struct dcmfs_vm *vm);
void dcmfs_frames_exit(struct dcmfs_vm *vm);
struct page *dcmfs_frame_alloc(struct dcm_lane *lane, bool zero);
struct page *dcmfs_frame_must(struct dcm_lane *lane);
void dcmfs_frame_free(struct dcm_lane *lane, struct page *page);
void dcmfs_spares_free(struct dcmfs_vm *vm, struct dcmfs_lane *dl);
bool dcmfs_frame_used(struct page *page, bool *touched);
void *dcmfs_chunk_alloc(struct dcmfs_vm *vm);
void dcmfs_chunk_free(struct dcmfs_vm *vm, void *chunk);
struct page *dcmfs_chain_alloc(struct dcm_lane *lane, unsigned int nr);
void dcmfs_chain_free(struct dcm_lane *lane, struct page *page,
		      unsigned int nr);

/* The number of frames in the reserve. */
static inline u32 dcmfs_reserve(const struct dcmfs_vm *vm)
{
	return DCMFS_RESERVE +
	       (READ_ONCE(vm->huge_spare) ? DCMFS_SPAN_PAGES : 0);
}

struct page *dcmfs_plain_alloc(unsigned int nr);
void dcmfs_plain_free(struct page *page);

/* A frame is a page of its own, so it is its folio's head: no look-up. */
static inline struct folio *dcmfs_frame_folio(struct page *page)
{
	return (struct folio *)page;
}

static inline struct folio *dcmfs_frame_at(const struct dcm_pd *pd)
{
	return dcmfs_frame_folio(pfn_to_page(pd->frame));
}

static inline struct page *dcmfs_chain_next(struct page *page)
{
	return (struct page *)page_private(page);
}

/* backend.c */
extern const struct dcm_ops dcmfs_ops;
extern const struct address_space_operations dcmfs_aops;
void dcmfs_unwant(struct dcmfs_vm *vm, u32 extent);
u32 dcmfs_wanting(struct dcmfs_vm *vm, u32 first);
void dcmfs_frames_drop(struct dcmfs_vm *vm);
void dcmfs_frame_put_under(struct dcm_lane *lane, u32 gfn, struct page *page);

/* unmap.c */
void dcmfs_op_unmap(struct dcm_lane *lane, struct dcm_unmap *v,
		    unsigned int nr);
void dcmfs_op_discard(struct dcm_lane *lane, u32 gfn, u32 nr);

/* huge.c */
static inline u32 dcmfs_span_of(u32 gfn)
{
	return gfn / DCMFS_SPAN_PAGES;
}

/** dcmfs_huge_there() - has this page's span a folio of 2 MiB? A hint, without locks */
static inline bool dcmfs_huge_there(const struct dcmfs_vm *vm, u32 gfn)
{
	return test_bit(dcmfs_span_of(gfn), vm->huge);
}

int dcmfs_huge_init(struct dcmfs_vm *vm);
void dcmfs_huge_exit(struct dcmfs_vm *vm);
u32 dcmfs_huge_count(const struct dcmfs_vm *vm);
struct page *dcmfs_huge_page(struct dcmfs_vm *vm, u32 gfn);
int dcmfs_huge_make(struct dcm_lane *lane, u32 gfn);
int dcmfs_huge_apart(struct dcm_lane *lane, u32 gfn, u32 nr);
u32 dcmfs_huge_discard(struct dcm_lane *lane, u32 gfn, u32 most);
void dcmfs_huge_drop(struct dcmfs_vm *vm, struct page *page);
bool dcmfs_huge_fits(const struct vm_fault *vmf);
vm_fault_t dcmfs_huge_map(struct vm_fault *vmf, struct page *page);
vm_fault_t dcmfs_huge_map_some(struct vm_fault *vmf, struct page *page);

/* sum.c */
u32 dcmfs_op_sum(struct dcm_lane *lane, const void *data, u32 nr);
void dcmfs_op_wrong(struct dcm_lane *lane, u32 gfn, u16 pages, u32 peer,
		    u32 lost);
int dcmfs_sums_add(struct dcmfs_vm *vm, u32 extent);
void dcmfs_sums_free(struct dcmfs_vm *vm);

/* page_seal.c */
int dcmfs_op_seal(struct dcm_lane *lane, void *to, const void *from, u32 gfn,
		  struct dcm_seal *s);
int dcmfs_op_open(struct dcm_lane *lane, void *data, u32 nr, u32 gfn,
		  const struct dcm_seal *s, bool keep);
int dcmfs_seal(struct dcmfs_vm *vm, u32 cipher);
int dcmfs_seals_add(struct dcmfs_vm *vm, u32 extent);
void dcmfs_seals_free(struct dcmfs_vm *vm);

/* slab.c */
int dcmfs_slab_attach(struct dcmfs_vm *vm, const struct dcmfs_slab *arg);
int dcmfs_move_buffers(struct dcm_lane *lane);
void dcmfs_move_buffers_free(struct dcm_lane *lane);
int dcmfs_slabs_fill(struct dcmfs_vm *vm, struct dcmfs_fill *arg);
int dcmfs_slab_detach(struct dcmfs_vm *vm, const struct dcmfs_slab *arg);
int dcmfs_slab_lost(struct dcmfs_vm *vm, const struct dcmfs_slab *arg);
int dcmfs_slab_after(struct dcmfs_vm *vm, struct dcmfs_slab *arg);
int dcmfs_note(struct dcmfs_vm *vm, struct dcmfs_note *note);
void dcmfs_slabs_free(struct dcmfs_vm *vm);
int dcmfs_slab_io(struct dcmfs_vm_slab *slab, struct dcm_io *io);
void dcmfs_slab_stale(struct dcmfs_vm_slab *slab);

/* link.c */
enum dcmfs_link_state {
	DCMFS_LINK_CONNECTING,
	DCMFS_LINK_UP,
	DCMFS_LINK_DEAD,
};

struct dcmfs_link_end;

/* Jiffies of silence after which a link is given up. */
static inline unsigned long dcmfs_late_ticks(u32 late_ms)
{
	return msecs_to_jiffies(late_ms ? late_ms : DCM_WIRE_SILENCE_MS);
}

/**
 * struct dcmfs_pair_maker - makes links over RDMA
 * @owner: its module
 * @open: begin to make a link; on success it owns @end. On failure %NULL and *@err.
 */
struct dcmfs_pair_maker {
	struct module *owner;
	struct dcm_endpoint *(*open)(struct dcmfs_vm *vm,
				     struct dcmfs_lane *lane,
				     const struct dcmfs_pair *arg,
				     struct dcmfs_link_end *end, int *err);
};

int dcmfs_pair_maker_set(const struct dcmfs_pair_maker *maker);
void dcmfs_link_end_tell(struct dcmfs_link_end *end,
			 enum dcmfs_link_state state);
void dcmfs_link_end_put(struct dcmfs_link_end *end);
int dcmfs_link_set(struct dcmfs_vm *vm, const struct dcmfs_link *arg);
int dcmfs_pair_set(struct dcmfs_vm *vm, const struct dcmfs_pair *arg,
		   __s32 __user *fd);
u64 dcmfs_links_dead(const struct dcmfs_lane *dl);
void dcmfs_links_reap(struct dcmfs_vm *vm, struct dcmfs_lane *dl, u64 dead);
void dcmfs_links_close(struct dcmfs_vm *vm);
void dcmfs_links_ping(struct dcmfs_vm *vm);
int dcmfs_keep(struct dcmfs_vm *vm, const struct dcmfs_keep *arg);
void dcmfs_kept_close(struct dcmfs_vm *vm);
void dcmfs_landing_free(struct dcm_lane *lane, unsigned int i);
void dcmfs_lane_event(struct dcmfs_vm *vm, struct dcmfs_lane *dl);
int dcmfs_io_post(struct dcm_lane *lane, struct dcm_io *io);
void dcmfs_io_flush(struct dcm_lane *lane);
int dcmfs_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max);

/* tcp.c */
struct dcm_endpoint *dcmfs_tcp_open(struct dcmfs_vm *vm,
				    struct dcmfs_lane *lane,
				    const struct dcmfs_link *arg, int *err);

/* write_count.c */
void dcmfs_write_count_change(struct dcmfs_vm *vm,
			      const struct dcmfs_vm_slab *slab,
		     const struct dcm_io *io, int by);

/* Count an operation that begins or has ended, if it is a write. */
static inline void dcmfs_write_count_add(struct dcmfs_vm *vm,
				 const struct dcmfs_vm_slab *slab,
				 const struct dcm_io *io, int by)
{
	if (io->op == DCM_IO_WRITE)
		dcmfs_write_count_change(vm, slab, io, by);
}

int dcmfs_write_count(struct dcmfs_vm *vm, struct dcmfs_write_count *arg);

/* freeze.c */
bool dcmfs_range_good(const struct dcmfs_vm *vm, u64 first, u64 pages);

/* Must accesses to this page wait? The caller has a lane. */
static inline bool dcmfs_frozen(const struct dcmfs_vm *vm, u32 gfn)
{
	return unlikely(READ_ONCE(vm->freezer)) &&
	       test_bit(gfn / DCM_BLOCK_MAX, vm->frozen);
}

bool dcmfs_extent_frozen(const struct dcmfs_vm *vm, u32 extent);
void dcmfs_freeze_end(struct dcmfs_vm *vm, const struct file *file);
bool dcmfs_thaw_due(struct dcmfs_vm *vm);
int dcmfs_freeze(struct dcmfs_vm *vm, const struct file *file,
	       const struct dcmfs_range *r);
int dcmfs_sync(struct dcmfs_vm *vm, struct dcmfs_range *r);
int dcmfs_hint(struct dcmfs_vm *vm, const struct dcmfs_range *r);

/* spread.c */
int dcmfs_spread(struct dcmfs_vm *vm, const struct file *file,
		 struct dcmfs_range *r);
int dcmfs_revert(struct dcmfs_vm *vm, const struct file *file,
		 const struct dcmfs_range *r);
void dcmfs_revert_frozen(struct dcmfs_vm *vm);

/* fault.c, file.c, ioctl.c, inspect.c */
extern const struct vm_operations_struct dcmfs_vm_ops;
extern const struct vm_operations_struct dcmfs_vm_guest_ops;
extern const struct file_operations dcmfs_file_ops;
extern const struct inode_operations dcmfs_file_inode_ops;
long dcmfs_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
void dcmfs_inspect_add(struct dcmfs_vm *vm);
void dcmfs_inspect_remove(struct dcmfs_vm *vm);

#endif /* DCMFS_INTERNAL_H */
