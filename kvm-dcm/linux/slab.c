// SPDX-License-Identifier: GPL-2.0-only
/*
 * slab.c - a VM's slabs: attached, moved, lost; and I/O on those of this host
 *
 * A slab is either at the other end of a link (link.c), and only its name is
 * known here; or it is a file: a donor on the same host passes a memfd, and a
 * fetch copies that file's pages straight into the frames the guest will have.
 * A donor revokes such a slab by truncating it: every access fails from then
 * on. I/O on it never waits for a donor, but may sleep for the file's memory.
 *
 * In the kernel dcm_io.data is the first struct page of a chain, not an
 * address.
 *
 * Locking: the list of slabs is under dcmfs_vm.control; a slab is freed when
 * the core has detached it.
 */
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/pagemap.h>
#include <linux/shmem_fs.h>
#include <linux/writeback.h> /* struct folio_batch */

#include "compat.h"
#include "dcmfs.h"

static void folio_copy_page(struct folio *folio, pgoff_t index, bool read,
			    struct page *page)
{
	if (read) {
		copy_highpage(page, folio_file_page(folio, index));
	} else {
		copy_highpage(folio_file_page(folio, index), page);
		folio_mark_dirty(folio);
	}
}

/*
 * Copy one page of a slab to or from @page. Through the file's page cache and
 * not by its write(), whose lock comes before the mmap lock that a fault holds.
 */
static int slab_page(struct dcmfs_vm_slab *slab, pgoff_t index, bool read,
		     struct page *page)
{
	struct address_space *mapping = slab->file->f_mapping;
	struct folio *folio = NULL;
	int err = shmem_get_folio(mapping->host, index, 0, &folio,
				  read ? SGP_READ : SGP_CACHE);

	if (err)
		return err;
	if (!folio) {
		/*
		 * A hole; or truncated since the file's size was read. The
		 * size is reduced before the pages are removed.
		 */
		smp_rmb();
		if (index >= (pgoff_t)i_size_read(mapping->host) >> PAGE_SHIFT)
			return -ESTALE;
		clear_highpage(page);
		return 0;
	}
	folio_copy_page(folio, index, read, page);
	folio_unlock(folio);
	folio_put(folio);
	return 0;
}

/*
 * As slab_page(), with a folio that was looked up before. False: the folio is not valid
 * any more, nothing was copied. For a read, a folio that is truncated meanwhile is
 * valid: our reference keeps its bytes. For a write it is not, as the write would be
 * lost.
 */
static bool slab_folio_copy(struct dcmfs_vm_slab *slab, struct folio *folio,
		       pgoff_t index, bool read, struct page *page)
{
	bool right;

	if (read && folio_test_uptodate(folio) &&
	    READ_ONCE(folio->mapping) == slab->file->f_mapping &&
	    index - folio->index < folio_nr_pages(folio)) {
		folio_copy_page(folio, index, read, page);
		return true;
	}
	folio_lock(folio);
	right = folio->mapping == slab->file->f_mapping &&
		folio_contains(folio, index) && folio_test_uptodate(folio);
	if (right)
		folio_copy_page(folio, index, read, page);
	folio_unlock(folio);
	return right;
}

static int slab_page_copy(struct dcmfs_vm_slab *slab, pgoff_t index, bool read,
		    struct page *page)
{
	struct folio *folio = filemap_get_folio(slab->file->f_mapping, index);
	bool done;

	if (IS_ERR(folio))
		return slab_page(slab, index, read, page);
	done = slab_folio_copy(slab, folio, index, read, page);
	folio_put(folio);
	return done ? 0 : slab_page(slab, index, read, page);
}

/* Copy pages: those in the page cache by batches of folios, the others one by one. */
static int slab_pages_copy(struct dcmfs_vm_slab *slab, pgoff_t index,
			   pgoff_t end, bool read, struct page *page)
{
	struct folio_batch found;
	pgoff_t start = index;
	unsigned int i;
	int err = 0;

	folio_batch_init(&found);
	filemap_get_folios_contig(slab->file->f_mapping, &start, end - 1,
				  &found);
	for (i = 0; index < end && !err; index++) {
		if (i == folio_batch_count(&found) ||
		    !slab_folio_copy(slab, found.folios[i], index, read, page))
			err = slab_page(slab, index, read, page);
		if (i < folio_batch_count(&found) &&
		    index + 1 >= folio_next_index(found.folios[i]))
			i++;
		page = dcmfs_chain_next(page);
	}
	for (i = 0; i < folio_batch_count(&found); i++)
		folio_put(found.folios[i]);
	return err;
}

static bool slab_truncated(const struct dcmfs_vm_slab *slab)
{
	return i_size_read(slab->file->f_mapping->host) <
	       (loff_t)slab->ref.bytes;
}

/**
 * dcmfs_slab_io() - do an I/O on a slab that is a file here
 * @slab: the slab
 * @io: the I/O
 *
 * Return: 0, or a negative errno.
 */
int dcmfs_slab_io(struct dcmfs_vm_slab *slab, struct dcm_io *io)
{
	pgoff_t index = (pgoff_t)(io->offset >> PAGE_SHIFT);
	bool read = io->op == DCM_IO_READ;
	int err;

	if (io->bytes == PAGE_SIZE)
		err = slab_page_copy(slab, index, read, io->data);
	else
		err = slab_pages_copy(slab, index,
				      index + (io->bytes >> PAGE_SHIFT), read,
				      io->data);
	/*
	 * If the donor has truncated the slab, that is final. After any other
	 * error (-ENOMEM and -ENOSPC: the host has no page now; -EIO: one can't
	 * be swapped in) the core tries again; a write's page is still here.
	 */
	if (err && slab_truncated(slab) && !xchg(&slab->broken, true))
		pr_warn("kvm-dcm: slab %llu of extent %u can't be used any more: %s at %llu: %d\n",
			slab->number, slab->extent,
			io->op == DCM_IO_READ ? "read" : "write", io->offset,
			err);
	return err;
}

/**
 * dcmfs_slab_stale() - the donor says that the slab is not ours any more
 * @slab: the slab
 */
void dcmfs_slab_stale(struct dcmfs_vm_slab *slab)
{
	if (!xchg(&slab->broken, true))
		pr_warn("kvm-dcm: slab %llu of extent %u: its donor has taken it back\n",
			slab->number, slab->extent);
}

/* ---- the control plane ---- */

static struct dcmfs_vm_slab **slab_find(struct dcmfs_vm *vm, u64 id)
{
	struct dcmfs_vm_slab **p;

	for (p = &vm->slabs; *p; p = &(*p)->next)
		if ((*p)->number == id)
			break;
	return p;
}

static struct dcmfs_vm_slab *slab_under(struct dcmfs_vm *vm,
					  const struct dcmfs_slab *arg)
{
	struct dcmfs_vm_slab *slab = *slab_find(vm, arg->id);

	return slab && slab->extent == arg->extent ? slab : NULL;
}

static void slab_put(struct dcmfs_vm_slab *slab)
{
	if (slab->file)
		fput(slab->file);
	kfree(slab);
}

static void slab_free(struct dcmfs_vm *vm, struct dcmfs_vm_slab *slab)
{
	*slab_find(vm, slab->number) = slab->next;
	vm->nr_slabs--;
	slab_put(slab);
}

/* A memfd or a file on tmpfs, of an extent's size, readable and writable. */
static bool file_fits(const struct dcmfs_vm *vm, const struct file *file)
{
	return shmem_mapping(file->f_mapping) && (file->f_mode & FMODE_READ) &&
	       (file->f_mode & FMODE_WRITE) &&
	       i_size_read(file->f_mapping->host) >=
		       (loff_t)vm->core->extent_pages << PAGE_SHIFT;
}

/* The rank (DCM_RANK_*) of the slab that user space describes. */
static u8 rank_of(const struct dcmfs_slab *arg)
{
	if (!(arg->flags & DCMFS_SLAB_REMOTE))
		return DCM_RANK_HOST;
	return arg->flags & DCMFS_SLAB_FILE ? DCM_RANK_FILE : DCM_RANK_MEMORY;
}

/* Make a slab as user space describes it; its number is not checked. */
static struct dcmfs_vm_slab *slab_make(struct dcmfs_vm *vm,
				    const struct dcmfs_slab *arg)
{
	struct dcmfs_vm_slab *slab = kzalloc(sizeof(*slab), GFP_KERNEL);
	int err = -EINVAL;

	if (!slab)
		return ERR_PTR(-ENOMEM);
	slab->number = arg->id;
	slab->extent = arg->extent;
	slab->ref.bytes = (u64)vm->core->extent_pages << PAGE_SHIFT;
	slab->ref.fd = -1;
	slab->ref.rank = rank_of(arg);
	slab->ref.id = arg->remote;
	slab->ref.base = arg->base;
	slab->ref.rkey = arg->rkey;
	slab->donor = arg->donor;
	slab->ref.peer = arg->donor;
	if (arg->donor >= DCMFS_DONORS_MAX) {
		err = -EINVAL;
	} else if (arg->flags & DCMFS_SLAB_REMOTE) {
		if (arg->fd == -1 && arg->base <= U64_MAX - slab->ref.bytes)
			return slab;
	} else {
		slab->file = fget(arg->fd);
		if (!slab->file)
			err = -EBADF;
		else if (file_fits(vm, slab->file))
			return slab;
	}
	slab_put(slab);
	return ERR_PTR(err);
}

/**
 * dcmfs_slab_attach() - give an extent a slab
 * @vm: the VM
 * @arg: from user space
 *
 * Return: 0, or a negative errno; see struct dcmfs_slab. Takes control.
 */
int dcmfs_slab_attach(struct dcmfs_vm *vm, const struct dcmfs_slab *arg)
{
	struct dcmfs_vm_slab *slab;
	int err;

	if (arg->extent >= vm->core->nr_extents || !arg->id)
		return -EINVAL;
	slab = slab_make(vm, arg);
	if (IS_ERR(slab))
		return PTR_ERR(slab);
	mutex_lock(&vm->control);
	slab->next = vm->slabs;
	if (vm->nr_slabs >= DCMFS_SLABS_MAX)
		err = -ENOSPC;
	else if (*slab_find(vm, arg->id))
		err = -EEXIST;
	else
		err = dcmfs_sums_add(vm, arg->extent);
	if (!err)
		err = dcmfs_seals_add(vm, arg->extent);
	if (!err)
		err = dcm_extent_attach(vm->core, arg->extent, &slab->ref);
	if (err) {
		mutex_unlock(&vm->control);
		slab_put(slab);
		return err;
	}
	vm->slabs = slab;
	vm->nr_slabs++;
	dcmfs_unwant(vm, arg->extent);
	mutex_unlock(&vm->control);
	dcmfs_kick(vm);
	return 0;
}

/**
 * dcmfs_move_buffers_free() - free the buffers of moves, and frames that fetches that
 *	were given up have left, if no I/O uses them
 * @lane: the control lane, locked
 *
 * Called when a batch of moves has been started, and by the VM's thread: the
 * program that asked for the batch may never ask for another.
 */
void dcmfs_move_buffers_free(struct dcm_lane *lane)
{
	unsigned int i;

	if (dcm_pending(lane))
		return;
	for (i = 0; i < DCM_MOVES_MAX; i++) {
		if (lane->fetch[i].buf)
			dcmfs_chain_free(lane, lane->fetch[i].buf,
					 DCM_BLOCK_MAX);
		lane->fetch[i].buf = NULL;
	}
	for (i = 0; i < DCM_FETCHES_MAX; i++)
		dcmfs_landing_free(lane, i);
}

/**
 * dcmfs_move_buffers() - allocate the buffers that moves read into and write from
 * @lane: the control lane, locked
 *
 * Return: 0 or -ENOMEM.
 */
int dcmfs_move_buffers(struct dcm_lane *lane)
{
	unsigned int i;

	for (i = 0; i < DCM_MOVES_MAX; i++) {
		if (!lane->fetch[i].buf)
			lane->fetch[i].buf =
				dcmfs_chain_alloc(lane, DCM_BLOCK_MAX);
		if (!lane->fetch[i].buf) {
			dcmfs_move_buffers_free(lane);
			return -ENOMEM;
		}
	}
	return 0;
}

/* Move batches, unlocking in between, until the result is not -EAGAIN. */
static int slab_empty(struct dcmfs_vm *vm, struct dcmfs_vm_slab *slab)
{
	u32 cursor = 0;
	int err;

	for (;;) {
		struct dcmfs_lane *lane = dcmfs_control_try(vm);

		if (!lane)
			return -EINTR;
		/* The VM's thread polls the operations that are in flight. */
		if (dcmfs_extent_frozen(vm, slab->extent)) {
			dcmfs_lane_put(vm, lane);
			if (schedule_timeout_interruptible(1))
				return -EINTR;
			continue;
		}
		err = dcmfs_move_buffers(lane->core);
		if (!err)
			err = dcm_extent_drain(lane->core, slab->extent,
					      &slab->ref, &cursor);
		dcmfs_move_buffers_free(lane->core);
		dcmfs_lane_put(vm, lane);
		if (err != -EAGAIN)
			return err;
		if (signal_pending(current))
			return -EINTR;
		if (atomic_read(&vm->wanted))
			schedule_timeout_interruptible(1);
		else if (dcm_pending(lane->core))
			wait_event_interruptible_timeout(lane->wait,
							 READ_ONCE(lane->event),
							 1);
		cond_resched();
	}
}

/* Copy one batch. Returns as dcm_extent_fill(), or -EBUSY: a page is frozen. */
static int fill_batch(struct dcmfs_vm *vm, struct dcmfs_lane *lane,
		      struct dcmfs_fill *arg)
{
	struct dcm_lane *core = lane->core;
	int err;

	/* A GC worker may change the slab: a copy would be out of date. */
	if (dcmfs_extent_frozen(vm, arg->extent))
		return -EBUSY;
	err = dcmfs_move_buffers(core);
	if (err)
		return err;
	err = dcm_extent_fill(core, arg->extent, &arg->cursor);
	arg->filled = READ_ONCE(core->count[DCM_C_FILLED_PAGES]);
	dcmfs_move_buffers_free(core);
	return err;
}

/**
 * dcmfs_slabs_fill() - copy pages to slabs of an extent that lack them
 * @vm: the VM
 * @arg: in and out, from and to user space
 *
 * Return: 0, or a negative errno; see struct dcmfs_fill. Takes control.
 */
int dcmfs_slabs_fill(struct dcmfs_vm *vm, struct dcmfs_fill *arg)
{
	struct dcmfs_lane *lane;
	bool pending;
	int err = -EINTR;

	if (mutex_lock_interruptible(&vm->control))
		return -EINTR;
	lane = dcmfs_control_try(vm);
	if (lane) {
		err = fill_batch(vm, lane, arg);
		pending = dcm_pending(lane->core);
		dcmfs_lane_put(vm, lane);
		if (err == -EAGAIN && pending)
			wait_event_interruptible_timeout(lane->wait,
							 READ_ONCE(lane->event),
							 1);
	}
	mutex_unlock(&vm->control);
	return err;
}

/**
 * dcmfs_slab_detach() - empty a slab and release it
 * @vm: the VM
 * @arg: from user space
 *
 * Return: 0, or a negative errno; see struct dcmfs_slab. Takes control.
 */
int dcmfs_slab_detach(struct dcmfs_vm *vm, const struct dcmfs_slab *arg)
{
	struct dcmfs_vm_slab *slab;
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
 * @vm: the VM
 * @arg: from user space
 *
 * Return: 0, or a negative errno; see struct dcmfs_slab. Takes control.
 */
int dcmfs_slab_lost(struct dcmfs_vm *vm, const struct dcmfs_slab *arg)
{
	struct dcmfs_vm_slab *slab;
	int err = -ENOENT;

	if (mutex_lock_interruptible(&vm->control))
		return -EINTR;
	slab = slab_under(vm, arg);
	while (slab) {
		struct dcmfs_lane *lane = dcmfs_control_try(vm);
		s64 lost;

		err = -EINTR;
		if (!lane)
			break;
		lost = dcm_extent_lost(lane->core, arg->extent, &slab->ref);
		dcmfs_lane_put(vm, lane);
		err = lost < 0 ? (int)lost : 0;
		if (!err) {
			pr_warn("kvm-dcm: file %lu: slab %llu of extent %u is lost, and %lld pages with it\n",
				dcmfs_ino(vm->inode), arg->id, arg->extent,
				lost);
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

/**
 * dcmfs_slab_after() - list the VM's slabs, one by one
 * @vm: the VM
 * @arg: in: id of the previous slab; out: the next one
 *
 * Return: 0, -EINVAL, -EINTR, -ENOENT: there is no next slab. Takes control.
 */
int dcmfs_slab_after(struct dcmfs_vm *vm, struct dcmfs_slab *arg)
{
	const struct dcmfs_slab want = { .fd = -1, .id = arg->id };
	const struct dcmfs_vm_slab *slab, *next = NULL;

	if (memcmp(arg, &want, sizeof(want)))
		return -EINVAL;
	if (mutex_lock_interruptible(&vm->control))
		return -EINTR;
	for (slab = vm->slabs; slab; slab = slab->next)
		if (slab->number > want.id &&
		    (!next || slab->number < next->number))
			next = slab;
	if (next) {
		const struct dcm_extent *e = &vm->core->extent[next->extent];
		int slot;

		arg->extent = next->extent;
		arg->id = next->number;
		arg->flags = next->file ? 0 : DCMFS_SLAB_REMOTE;
		if (next->ref.rank == DCM_RANK_FILE)
			arg->flags |= DCMFS_SLAB_FILE;
		slot = dcm_slot_of(e, &next->ref);
		if (slot >= 0)
			arg->order = READ_ONCE(e->slot[slot].since);
		if (slot < 0 || !(READ_ONCE(e->open) >> slot & 1))
			arg->flags |= DCMFS_SLAB_CLOSED;
		arg->donor = next->donor;
		arg->remote = next->ref.id;
		arg->base = next->ref.base;
		arg->rkey = next->ref.rkey;
	}
	mutex_unlock(&vm->control);
	return next ? 0 : -ENOENT;
}

/**
 * dcmfs_note() - keep a control plane's note for the next one, or return it
 * @vm: the VM
 * @note: in: the note to keep, or its donor; out: the note that is kept
 *
 * Return: 0, -EINVAL, -ENOMEM, -EINTR. Takes control.
 */
int dcmfs_note(struct dcmfs_vm *vm, struct dcmfs_note *note)
{
	u8 **kept;
	int err = 0;

	if (note->donor >= DCMFS_DONORS_MAX || note->set > 1)
		return -EINVAL;
	kept = &vm->note[note->donor];
	if (mutex_lock_interruptible(&vm->control))
		return -EINTR;
	if (note->set && !*kept)
		*kept = kmalloc(DCMFS_NOTE_MAX, GFP_KERNEL_ACCOUNT);
	if (!note->set)
		memset(note->bytes, 0, DCMFS_NOTE_MAX);
	if (note->set && *kept)
		memcpy(*kept, note->bytes, DCMFS_NOTE_MAX);
	else if (*kept)
		memcpy(note->bytes, *kept, DCMFS_NOTE_MAX);
	else if (note->set)
		err = -ENOMEM;
	mutex_unlock(&vm->control);
	return err;
}

/** dcmfs_slabs_free() - free all slabs and notes with the VM, after its last I/O */
void dcmfs_slabs_free(struct dcmfs_vm *vm)
{
	u32 i;

	while (vm->slabs)
		slab_free(vm, vm->slabs);
	for (i = 0; i < DCMFS_DONORS_MAX; i++)
		kfree_sensitive(vm->note[i]);
}
