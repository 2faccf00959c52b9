// SPDX-License-Identifier: GPL-2.0-only
/*
 * slab.c - slabs that are files of this host, and the I/O on them
 *
 * The local transport: a donor on the same host hands over a memfd, the
 * control plane attaches it, and a fetch is a read of that file straight into
 * the frames the guest will have. A donor revokes its slab by truncating it:
 * reads come back short, and the slab is as good as gone.
 *
 * In the kernel dcm_io.data is the first struct page of a chain, not an address.
 * An I/O is complete when post() returns; poll() only tells. So a lane never
 * sleeps for a donor with this transport, but may sleep for the file's memory.
 *
 * Locking: a lane's list of complete I/Os is the lane's; the list of slabs is
 * under dcmfs_vm.control; a slab is freed when the core says that nothing will
 * touch it again.
 */
#include <linux/bvec.h>
#include <linux/file.h>
#include <linux/uio.h>

#include "dcmfs.h"

/* Where a fetch's READ goes: frames that become the guest's as they are. */
static int landing_of(struct dcm_lane *lane, struct dcm_io *io)
{
	struct dcm_fetch *f = io->owner;
	struct page **landing = &lane_home(lane)->landing[f - lane->fetch];

	if (!*landing)
		*landing = dcmfs_chain_alloc(lane_vm(lane), f->nr);
	io->data = *landing;
	return *landing ? 0 : -EAGAIN;
}

static int slab_io(struct dcmfs_slab_file *slab, struct dcm_io *io)
{
	struct bio_vec bv[DCM_BLOCK_MAX];
	struct page *page = io->data;
	loff_t pos = (loff_t)io->offset;
	struct iov_iter iter;
	unsigned int i, nr = io->bytes >> PAGE_SHIFT;
	ssize_t n;

	for (i = 0; i < nr; i++, page = dcmfs_chain_next(page))
		bvec_set_page(&bv[i], page, PAGE_SIZE, 0);
	if (io->op == DCM_IO_READ) {
		iov_iter_bvec(&iter, ITER_DEST, bv, nr, io->bytes);
		n = vfs_iter_read(slab->file, &iter, &pos, 0);
	} else {
		iov_iter_bvec(&iter, ITER_SOURCE, bv, nr, io->bytes);
		n = vfs_iter_write(slab->file, &iter, &pos, 0);
	}
	if (n == (ssize_t)io->bytes)
		return 0;
	pr_warn_ratelimited("kvm-dcm: slab %llu of extent %u: %s at %llu: %zd\n",
			    slab->ref.id, slab->extent,
			    io->op == DCM_IO_READ ? "read" : "write",
			    io->offset, n);
	return n < 0 ? (int)n : -EIO;
}

/** dcmfs_io_post() - dcm_ops.io_post */
int dcmfs_io_post(struct dcm_lane *lane, struct dcm_io *io)
{
	struct dcmfs_slab_file *slab =
		container_of(io->slab, struct dcmfs_slab_file, ref);
	struct dcmfs_lane *home = lane_home(lane);

	if (io->op == DCM_IO_READ && !io->data && landing_of(lane, io))
		return -EAGAIN;
	io->posted_ns = ktime_get_ns();
	io->status = slab_io(slab, io);
	io->next = NULL;
	*home->done_tail = io;
	home->done_tail = &io->next;
	return 0;
}

/** dcmfs_io_poll() - dcm_ops.io_poll */
int dcmfs_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	struct dcmfs_lane *home = lane_home(lane);
	struct dcm_io **end = &home->done;
	int n = 0;

	while (*end && n < max) {
		end = &(*end)->next;
		n++;
	}
	if (!n)
		return 0;
	*done = home->done;
	home->done = *end;
	if (!home->done)
		home->done_tail = &home->done;
	*end = NULL;
	return n;
}

/* ---- the control plane ---- */

static struct dcmfs_slab_file **slab_find(struct dcmfs_vm *vm, u64 id)
{
	struct dcmfs_slab_file **p;

	for (p = &vm->slabs; *p; p = &(*p)->next)
		if ((*p)->ref.id == id)
			break;
	return p;
}

static struct dcmfs_slab_file *slab_under(struct dcmfs_vm *vm,
					  const struct dcmfs_slab *arg)
{
	struct dcmfs_slab_file *slab = *slab_find(vm, arg->id);

	return slab && slab->extent == arg->extent ? slab : NULL;
}

static void slab_free(struct dcmfs_vm *vm, struct dcmfs_slab_file *slab)
{
	*slab_find(vm, slab->ref.id) = slab->next;
	vm->nr_slabs--;
	fput(slab->file);
	kfree(slab);
}

/* A file to keep memory in: not this file system's, which would need itself. */
static bool file_fits(const struct dcmfs_vm *vm, const struct file *file)
{
	const struct inode *inode = file_inode(file);
	fmode_t all = FMODE_READ | FMODE_WRITE | FMODE_CAN_READ |
		      FMODE_CAN_WRITE;

	return (S_ISREG(inode->i_mode) || S_ISBLK(inode->i_mode)) &&
	       !dcmfs_is_ours(inode) && (file->f_mode & all) == all &&
	       !(file->f_flags & O_APPEND) &&
	       i_size_read(file->f_mapping->host) >=
		       (loff_t)vm->core->extent_pages << PAGE_SHIFT;
}

/**
 * dcmfs_slab_attach() - an extent has a slab from now on
 * @vm: whose
 * @arg: which, as user space gave it
 *
 * Return: 0, or a negative errno; see struct dcmfs_slab. Takes control.
 */
int dcmfs_slab_attach(struct dcmfs_vm *vm, const struct dcmfs_slab *arg)
{
	struct dcmfs_slab_file *slab;
	int err = -EINVAL;

	if (arg->extent >= vm->core->nr_extents || !arg->id)
		return -EINVAL;
	slab = kzalloc(sizeof(*slab), GFP_KERNEL);
	if (!slab)
		return -ENOMEM;
	slab->file = fget(arg->fd);
	if (!slab->file) {
		kfree(slab);
		return -EBADF;
	}
	slab->extent = arg->extent;
	slab->ref.id = arg->id;
	slab->ref.bytes = (u64)vm->core->extent_pages << PAGE_SHIFT;
	slab->ref.fd = -1;
	mutex_lock(&vm->control);
	if (!file_fits(vm, slab->file))
		goto fail;
	err = -ENOSPC;
	if (vm->nr_slabs >= DCMFS_SLABS_MAX)
		goto fail;
	err = -EEXIST;
	if (*slab_find(vm, arg->id))
		goto fail;
	slab->next = vm->slabs;
	vm->slabs = slab;
	vm->nr_slabs++;
	err = dcm_extent_attach(vm->core, arg->extent, &slab->ref);
	if (err) {
		slab_free(vm, slab);
		mutex_unlock(&vm->control);
		return err;
	}
	dcmfs_unwant(vm, arg->extent);
	mutex_unlock(&vm->control);
	dcmfs_kick(vm);
	return 0;
fail:
	mutex_unlock(&vm->control);
	fput(slab->file);
	kfree(slab);
	return err;
}

static void move_buffers_free(struct dcmfs_vm *vm, struct dcm_lane *lane)
{
	unsigned int i;

	for (i = 0; i < DCM_MOVES_MAX; i++) {
		if (lane->fetch[i].buf)
			dcmfs_chain_free(vm, lane->fetch[i].buf, DCM_BLOCK_MAX);
		lane->fetch[i].buf = NULL;
	}
}

/* A move reads into buffers of the control lane and writes from there. */
static int move_buffers(struct dcmfs_vm *vm, struct dcm_lane *lane)
{
	unsigned int i;

	for (i = 0; i < DCM_MOVES_MAX; i++) {
		if (!lane->fetch[i].buf)
			lane->fetch[i].buf =
				dcmfs_chain_alloc(vm, DCM_BLOCK_MAX);
		if (!lane->fetch[i].buf) {
			move_buffers_free(vm, lane);
			return -ENOMEM;
		}
	}
	return 0;
}

/* Until it returns anything but -EAGAIN; a lane a batch, for others' sake. */
static int slab_empty(struct dcmfs_vm *vm, struct dcmfs_slab_file *slab)
{
	u32 cursor = 0;
	int err;

	for (;;) {
		struct dcmfs_lane *lane = dcmfs_control_get(vm);

		err = move_buffers(vm, lane->core);
		if (!err)
			err = dcm_extent_move(lane->core, slab->extent,
					      &slab->ref, &cursor);
		/* Nothing is under way in the buffers when it ends. */
		if (err != -EAGAIN && !dcm_pending(lane->core))
			move_buffers_free(vm, lane->core);
		dcmfs_lane_put(vm, lane);
		if (err != -EAGAIN)
			return err;
		if (signal_pending(current))
			return -EINTR;
		if (atomic_read(&vm->wanted))
			schedule_timeout_interruptible(1);
		cond_resched();
	}
}

/**
 * dcmfs_slab_detach() - empty a slab and let it go
 * @vm: whose
 * @arg: which
 *
 * Return: 0, or a negative errno; see struct dcmfs_slab. Takes control.
 */
int dcmfs_slab_detach(struct dcmfs_vm *vm, const struct dcmfs_slab *arg)
{
	struct dcmfs_slab_file *slab;
	int err = -ENOENT;

	if (mutex_lock_interruptible(&vm->control))
		return -EINTR;
	slab = slab_under(vm, arg);
	if (slab) {
		err = slab_empty(vm, slab);
		if (!err)
			slab_free(vm, slab);
	}
	mutex_unlock(&vm->control);
	return err;
}

/**
 * dcmfs_slab_lost() - a slab is gone with its donor
 * @vm: whose
 * @arg: which
 *
 * Return: 0, or a negative errno; see struct dcmfs_slab. Takes control.
 */
int dcmfs_slab_lost(struct dcmfs_vm *vm, const struct dcmfs_slab *arg)
{
	struct dcmfs_slab_file *slab;
	int err = -ENOENT;

	if (mutex_lock_interruptible(&vm->control))
		return -EINTR;
	slab = slab_under(vm, arg);
	while (slab) {
		struct dcmfs_lane *lane = dcmfs_control_get(vm);
		s64 lost = dcm_extent_lost(lane->core, arg->extent, &slab->ref);

		dcmfs_lane_put(vm, lane);
		err = lost < 0 ? (int)lost : 0;
		if (!err) {
			pr_warn("kvm-dcm: file %lu: slab %llu of extent %u is lost, and %lld pages with it\n",
				vm->inode->i_ino, arg->id, arg->extent, lost);
			slab_free(vm, slab);
			break;
		}
		if (err != -EAGAIN)
			break;
		if (signal_pending(current)) {
			err = -EINTR;
			break;
		}
		dcmfs_kick(vm);
		schedule_timeout_interruptible(1);
	}
	mutex_unlock(&vm->control);
	return err;
}

/** dcmfs_slabs_free() - with the VM, after its last I/O */
void dcmfs_slabs_free(struct dcmfs_vm *vm)
{
	while (vm->slabs)
		slab_free(vm, vm->slabs);
}
