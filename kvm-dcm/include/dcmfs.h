/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dcmfs.h - what a program asks of dcmfs, the file system of the kernel pager
 *
 * A regular file on dcmfs is one VM's memory. open(), ftruncate(), mmap() with
 * MAP_SHARED, fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), unlink()
 * and stat() mean what they mean on hugetlbfs; read() and write() are not
 * there. The rest are ioctls on the open file. Those that change anything need
 * CAP_SYS_ADMIN in the initial user namespace, whoever owns the file: a VMM
 * must not choose its own budget. Fields called reserved, and unknown flags,
 * must be 0 (EINVAL).
 *
 * All ioctls return 0 or -1 with errno: EPERM, EFAULT, EINVAL, ENODATA (the
 * file has no size yet), ENOTTY (no such request), and what is said below.
 */
#ifndef DCMFS_H
#define DCMFS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define DCMFS_MAGIC 0x64636d66 /* statfs() */
#define DCMFS_NAME_MAX 32
#define DCMFS_NOTE_MAX 512
#define DCMFS_DONORS_MAX 64
#define DCMFS_VERSION 7
#define DCMFS_SLABS 3 /* slabs that an extent may have */
#define DCMFS_FAULT_BUCKETS 336
#define DCMFS_LIMIT_MAX_MS 60000

/**
 * struct dcmfs_info - DCMFS_IOC_INFO: one file, as it is now
 * @version: DCMFS_VERSION
 * @lanes: threads that can be inside the pager at once
 * @pages: size the file was first given, in 4 KiB pages
 * @extent_pages: pages of an extent; a slab has at least as many
 * @extents: number of extents
 * @budget_pages: direct budget
 * @min_budget_pages: the smallest budget taken
 * @direct_pages: pages of the budget in use; never more than it and what is
 *	in flight
 * @frames: page frames held, those in flight and the reserve included
 * @reserve: of those, frames kept for when the host has none
 * @metadata_bytes: memory taken for descriptors and what goes with them; it
 *	grows as pages are first used, and shrinks with large holes
 * @wanted: extents that have to have a slab before their pages can leave
 * @lost_pages: pages whose content went with a slab
 * @flags: DCMFS_INFO_SEALED: its pages are encrypted before they leave
 */
struct dcmfs_info {
	__u32 version;
	__u32 lanes;
	__u64 pages;
	__u64 extent_pages;
	__u64 extents;
	__u64 budget_pages;
	__u64 min_budget_pages;
	__u64 direct_pages;
	__u64 frames;
	__u64 reserve;
	__u64 metadata_bytes;
	__u64 wanted;
	__u64 lost_pages;
	__u64 flags;
	__u64 reserved[3];
};

#define DCMFS_INFO_SEALED 0x1

/**
 * struct dcmfs_tune - DCMFS_IOC_TUNE: change a tunable of the core
 * @name: as docs/libdcm.md lists them, NUL-terminated. ENOENT: no such
 * @value: ERANGE: out of its bounds
 */
struct dcmfs_tune {
	char name[DCMFS_NAME_MAX];
	__u64 value;
};

/**
 * struct dcmfs_slab - DCMFS_IOC_ATTACH, _DETACH, _LOST: a slab under an extent
 * @extent: number of the extent
 * @fd: ATTACH of a slab on this host: a file of its own, of at least an
 *	extent's size, open to read and write, that holds the bytes: a donor's
 *	memfd (of small pages) or any file on tmpfs; else -1
 * @id: the caller's name for the slab, not 0, its own among the file's slabs
 * @flags: ATTACH: DCMFS_SLAB_REMOTE: it is reached over links, with DCMFS_SLAB_FILE
 *	if it is a file on the donor's disk, which is read last; else 0
 * @donor: a number of the caller's; with that flag the one in DCMFS_IOC_LINK
 * @remote: what the donor calls the slab
 * @base: with that, for links over RDMA: where the slab is there; else 0
 * @rkey: and the key to it
 * @order: out, SLAB: larger than that of slabs which its extent got before; else 0
 *
 * An extent may have DCMFS_SLABS slabs. A page is written to each of them, and read
 * from any that has it; DCMFS_IOC_FILL copies to a slab what it lacks. EEXIST: @id
 * is taken; EBUSY: the extent has all the slabs that it may have. DETACH returns
 * when nothing is on the slab any more: what only that slab had went to the
 * extent's other slabs, or into direct memory (ENOSPC: it does not fit; nothing is
 * lost). EINTR: a signal; ENOMEM: no memory to do it with; call again to go on.
 * LOST returns when what only that slab had is marked lost. ENOENT: no such slab
 * under that extent.
 *
 * DCMFS_IOC_SLAB: of the slabs with a larger @id than the one given, that with
 * the smallest, as it was attached, @fd -1, DCMFS_SLAB_CLOSED set if its DETACH
 * has begun: nothing is written to it any more. The other fields must be 0, @fd -1.
 * ENOENT: there is none.
 */
struct dcmfs_slab {
	__u32 extent;
	__s32 fd;
	__u64 id;
	__u32 flags;
	__u32 donor;
	__u64 remote;
	__u64 base;
	__u32 rkey;
	__u32 order;
};

#define DCMFS_SLAB_REMOTE 0x1
#define DCMFS_SLAB_CLOSED 0x2
#define DCMFS_SLAB_FILE 0x4

/**
 * struct dcmfs_fill - DCMFS_IOC_FILL: copy to an extent's slabs what they lack
 * @extent: number of the extent
 * @cursor: 0: begin a pass; in and out: where it goes on
 * @filled: out: pages that were copied so far for all extents of the file
 *
 * Does a part of it and returns. EAGAIN: call again; with @cursor 0 a pass is
 * over, and pages had to be left, as a donor does not answer. EBUSY: the extent has
 * frozen pages. ENOENT: no such extent; ENOMEM: no memory to do it with; EINTR: a
 * signal.
 */
struct dcmfs_fill {
	__u32 extent;
	__u32 cursor;
	__u64 filled;
};

/**
 * struct dcmfs_faults - DCMFS_IOC_FAULTS: how long faults took that had to wait for a
 * donor, ever
 * @bucket: how many, by nanoseconds: 8 buckets an octave (core/hist.h)
 */
struct dcmfs_faults {
	__u64 bucket[DCMFS_FAULT_BUCKETS];
};

/**
 * struct dcmfs_note - DCMFS_IOC_NOTE: what a control plane leaves for the next
 * @donor: number of a donor
 * @set: 1: keep @bytes with it; 0: what is kept with it, all 0 if nothing
 *
 * Nothing of it means anything to the kernel, which keeps it as long as the file
 * has its memory: a control plane that comes after another can find its sessions
 * with donors, as it finds its slabs.
 */
struct dcmfs_note {
	__u32 donor;
	__u32 set;
	__u8 bytes[DCMFS_NOTE_MAX];
};

/**
 * struct dcmfs_keep - DCMFS_IOC_KEEP: a socket that outlives the control plane
 * @donor: number of a donor, less than DCMFS_DONORS_MAX
 * @fd: a socket, -1: none any more
 *
 * The file holds the socket, in the place of the one there was, as long as it has
 * its memory, and does nothing with it: a donor on this host sees by its control
 * connection that the memory which it lends is in use, also while no control plane
 * runs; and sees it end with the file. EBADF, ENOTSOCK.
 */
struct dcmfs_keep {
	__u32 donor;
	__s32 fd;
};

/**
 * struct dcmfs_link - DCMFS_IOC_LINK: a lane's way to a donor
 * @donor: a number of the caller's, less than DCMFS_DONORS_MAX
 * @lane: less than dcmfs_info.lanes
 * @fd: a connected TCP socket that has been welcomed in the data role, with
 *	kTLS on it both ways if data is to be encrypted; -1: no link any more
 * @window: operations in flight at most, as the donor's WELCOME says, 1 to 256;
 *	with -1: 0
 * @late_ms: the link is given up when nothing has come for so long while something
 *	was awaited, up to DCMFS_LIMIT_MAX_MS; 0: 5000. With another copy of its pages
 *	elsewhere an access need not wait for a donor any longer
 *
 * Takes the place of the link there was; what was in flight on that is done again.
 * Over one link to each donor, if that is idle, a READ of slab 0 is sent once a
 * second, so that the donor knows that its memory is in use.
 * The file keeps the socket until then. Nobody else may use it; its end can
 * be waited for: poll() on it says POLLHUP when it has been shut down, by the
 * donor or by the file; SO_ERROR is then ETIMEDOUT if the donor was late, and
 * EPROTO if it sent what is no answer. Lanes without a link to the donor of a slab
 * can't reach that slab; they wait, until it is given another or the slab is lost.
 * EBADF, ENOTSOCK, EINVAL: not such a socket; ENOTCONN: not
 * connected; EBUSY: the kernel uses it for something else; ENOMEM; EINTR: a
 * signal, and the connection is over.
 */
struct dcmfs_link {
	__u32 donor;
	__u32 lane;
	__s32 fd;
	__u32 window;
	__u32 flags;
	__u32 late_ms;
};

/**
 * struct dcmfs_pair - DCMFS_IOC_PAIR: a lane's way to a donor over RDMA
 * @donor: as in struct dcmfs_link
 * @lane: as there
 * @addr: of the donor, IPv6 or IPv4 mapped
 * @scope: of that, for link-local ones
 * @port: of the RDMA connection manager's TCP port space
 * @shown: private data of the connection request: a ticket (wire_format.h)
 * @late_ms: as there
 * @fd: out: stands for the link, close-on-exec; poll() says POLLOUT once it is
 *	connected, POLLHUP when it has ended. Closing it ends nothing.
 *
 * Begins to connect, and takes the place of the link there was. ENODEV: this
 * kernel has no RDMA, or kvm-dcm-verbs.ko can't be loaded; EINVAL; ENOMEM; EMFILE;
 * what the connection manager says; EINTR as there.
 */
struct dcmfs_pair {
	__u32 donor;
	__u32 lane;
	__u8 addr[16];
	__u32 scope;
	__u16 port;
	__u16 flags;
	__u8 shown[32];
	__s32 fd;
	__u32 late_ms;
};

/**
 * struct dcmfs_activity - DCMFS_IOC_ACTIVITY: how busy an extent is
 * @extent: number of the extent
 * @flags: 0; out: DCMFS_EXTENT_THIN: a slab of it may lack pages that another has
 * @ops: out: reads and writes of slabs that succeeded under it, ever; not those that
 *	took pages from one slab to another
 * @lag: out: how many pages its slabs of files lack, at most, of those that left
 *	without them (tunable lag_pages); DCMFS_IOC_FILL copies them
 */
struct dcmfs_activity {
	__u32 extent;
	__u32 flags;
	__u64 ops;
	__u64 lag;
};

#define DCMFS_EXTENT_THIN 0x1

/**
 * struct dcmfs_wanted - DCMFS_IOC_WANTED: which extent needs a slab
 * @first: where to begin looking
 * @extent: out: the first that needs one, at @first or after. ENOENT: none
 *
 * poll() on the file says POLLPRI while there is any.
 */
struct dcmfs_wanted {
	__u32 first;
	__u32 extent;
};

/**
 * struct dcmfs_range - DCMFS_IOC_FREEZE, _SYNC, _SPREAD, _REVERT, _HINT: pages, for a
 * caller that has GC workers change the slabs themselves
 * @first: first page
 * @pages: how many; the file must have them all
 * @flags: SYNC: DCMFS_SYNC_KEEP, with or without DCMFS_SYNC_EXACT; REVERT:
 *	DCMFS_REVERT_KEEP; HINT: one of DCMFS_HINT_*; else 0
 * @limit_ms: SYNC, SPREAD: not longer, 1 to DCMFS_LIMIT_MAX_MS; else 0
 *
 * GC workers use one slab of an extent, the *primary*: of the slabs whose DETACH or
 * LOST has not begun the one that the extent has had for the longest, but one that is
 * DCMFS_SLAB_FILE only if all are.
 *
 * FREEZE: accesses to these pages wait from now on, until the open file by which
 * it was asked asks for @first 0 and @pages 0, or is closed. No extent with such
 * a page is moved (DETACH waits); content can be discarded. EBUSY: another open
 * file froze some; ENOMEM; EINTR: killed, they may be frozen.
 *
 * SYNC returns when the primaries have all of the pages as they are, also those
 * that were never written, as zeroes, and none is here; with DCMFS_SYNC_KEEP
 * they may be; with DCMFS_SYNC_EXACT, too, only pages that are written to are written
 * back later, and the first write to each is a fault. If they are not frozen all this
 * is so for a moment only. ETIMEDOUT; EBUSY: a page stays in use by I/O; EIO: one is lost; ENOMEM: no memory for
 * descriptors; EINTR: killed. In all these cases it is done in part. It takes
 * memory that is the caller's for pages that had no descriptors, and slabs.
 * Then @first and @pages are what is left, so that it can be gone on with; for
 * EIO the page that is lost is among the first 16 of them.
 *
 * SPREAD and REVERT take pages that this open file has frozen (EINVAL: they are not),
 * and that were synced without DCMFS_SYNC_KEEP, so that a worker may have changed them
 * on the primaries. SPREAD returns when the extents' other slabs have the same.
 * ETIMEDOUT, also when there is no memory to do it with; EINTR: killed: @first and
 * @pages are what is left: go on with these, or REVERT all of it.
 *
 * REVERT: what was done to the pages on the primaries does not count: other slabs have
 * what was there before, or what SPREAD has copied. Pages that no other slab has are
 * what they are. With DCMFS_REVERT_KEEP it counts, and the other slabs have these
 * pages no more, until DCMFS_IOC_FILL. EINTR: killed.
 *
 * When the open file is closed while pages are frozen, and any were synced without
 * DCMFS_SYNC_KEEP, all of them are reverted before accesses go on.
 *
 * HINT: DIRECT: keep them in this host as far as a quarter of the budget goes;
 * NORMAL: no longer; COLD: they leave first; FETCH: they are brought in, in the
 * background, as far as pages that were not used for long make room, and a quarter
 * of the budget; FORGET: what FETCH has named and has not come yet is not brought in.
 * What was never used is passed over. EINTR: killed.
 *
 * FREEZE, SYNC, SPREAD and REVERT take multiples of 16 pages.
 */
struct dcmfs_range {
	__u64 first;
	__u64 pages;
	__u32 flags;
	__u32 limit_ms;
};

/**
 * struct dcmfs_write_count - has a range been written to on its primaries?
 * @first: first page
 * @pages: how many; both multiples of 16, and the file has them all
 * @count: 0; out: how many writes to them began or ended. The same count twice
 *	means that none did in between, if none was on its way at the first (SYNC)
 * @reserved: 0
 *
 * ENOMEM: of memory that is the caller's, 4 bytes for 64 KiB of the file when it
 * is first asked. EINTR: killed.
 */
struct dcmfs_write_count {
	__u64 first;
	__u64 pages;
	__u32 count;
	__u32 reserved;
};

#define DCMFS_SYNC_KEEP 0x1
#define DCMFS_SYNC_EXACT 0x2
#define DCMFS_REVERT_KEEP 0x1
#define DCMFS_HINT_DIRECT 0
#define DCMFS_HINT_NORMAL 1
#define DCMFS_HINT_COLD 2
#define DCMFS_HINT_FETCH 3
#define DCMFS_HINT_FORGET 4

#define DCMFS_IOC_INFO _IOR(0xDC, 0x01, struct dcmfs_info)
#define DCMFS_IOC_BUDGET _IOW(0xDC, 0x02, __u64) /* pages; ERANGE: too few */
#define DCMFS_IOC_TUNE _IOW(0xDC, 0x03, struct dcmfs_tune)
#define DCMFS_IOC_ATTACH _IOW(0xDC, 0x04, struct dcmfs_slab)
#define DCMFS_IOC_DETACH _IOW(0xDC, 0x05, struct dcmfs_slab)
#define DCMFS_IOC_LOST _IOW(0xDC, 0x06, struct dcmfs_slab)
#define DCMFS_IOC_WANTED _IOWR(0xDC, 0x07, struct dcmfs_wanted)
#define DCMFS_IOC_LINK _IOW(0xDC, 0x08, struct dcmfs_link)
#define DCMFS_IOC_SLAB _IOWR(0xDC, 0x0B, struct dcmfs_slab)
#define DCMFS_IOC_NOTE _IOWR(0xDC, 0x0C, struct dcmfs_note)
#define DCMFS_IOC_PAIR _IOWR(0xDC, 0x0A, struct dcmfs_pair)
#define DCMFS_IOC_ACTIVITY _IOWR(0xDC, 0x09, struct dcmfs_activity)
#define DCMFS_IOC_FREEZE _IOW(0xDC, 0x0D, struct dcmfs_range)
#define DCMFS_IOC_SYNC _IOWR(0xDC, 0x0E, struct dcmfs_range)
#define DCMFS_IOC_HINT _IOW(0xDC, 0x0F, struct dcmfs_range)
#define DCMFS_IOC_WRITE_COUNT _IOWR(0xDC, 0x10, struct dcmfs_write_count)
#define DCMFS_IOC_FILL _IOWR(0xDC, 0x11, struct dcmfs_fill)
#define DCMFS_IOC_FAULTS _IOR(0xDC, 0x12, struct dcmfs_faults)
#define DCMFS_IOC_KEEP _IOW(0xDC, 0x13, struct dcmfs_keep)
#define DCMFS_IOC_SPREAD _IOWR(0xDC, 0x15, struct dcmfs_range)
#define DCMFS_IOC_REVERT _IOW(0xDC, 0x16, struct dcmfs_range)

/*
 * DCMFS_IOC_SEAL: encrypt and authenticate each page before it leaves, from now on
 * and for good, by a key that only the kernel has. The argument is the cipher,
 * DCMFS_SEAL_AES_256_GCM. A page whose slabs do not have what was written to them is
 * read from none, and is lost when none is left. 20 bytes a page, and 4 MiB and 4 KiB
 * for each of dcmfs_info.lanes, are counted as metadata.
 *
 * 0: also if it is sealed already. EBUSY: it has slabs, and pages may be there as
 * they are; EFBIG: its extents have more than 256 GiB; ENOENT: this kernel has no such
 * cipher; ENOSPC: more than is left of the mount's metadata=; ENOMEM; EINTR: a signal.
 */
#define DCMFS_SEAL_AES_256_GCM 1
#define DCMFS_IOC_SEAL _IOW(0xDC, 0x14, __u32)

#endif /* DCMFS_H */
