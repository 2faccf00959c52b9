// SPDX-License-Identifier: GPL-2.0-only
/*
 * file.c - file operations of dcmfs
 *
 * A file is memory to be mapped: truncated to its size, mapped shared, punched.
 * Sizes and holes are whole pages. There is no read() or write(): programs map
 * the file instead. mlock() finds nothing to lock, and MAP_LOCKED is refused,
 * since pages of this file may always be evicted.
 *
 * Locking: the inode's lock around size and holes.
 */
#include <linux/fs.h>
#include <linux/falloc.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/poll.h>

#include "compat.h"
#include "dcmfs.h"

static int file_mmap(struct file *file, struct vm_area_struct *vma)
{
	/*
	 * A private copy would be ordinary memory of the host. (A shared
	 * mapping of a file opened read-only has no VM_SHARED.)
	 */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_flags & VM_LOCKED)
		return -EAGAIN;
	file_accessed(file);
	vm_flags_set(vma, VM_MIXEDMAP);
	vma->vm_page_prot = dcmfs_prot_old(vma->vm_page_prot);
	/* A process with MMU notifiers is a VMM that has made its VM already. */
	vma->vm_ops = mm_has_notifiers(vma->vm_mm) ? &dcmfs_vm_guest_ops :
						     &dcmfs_vm_ops;
	return 0;
}

static long file_fallocate(struct file *file, int mode, loff_t offset,
			   loff_t len)
{
	struct inode *inode = file_inode(file);
	struct dcmfs_vm *vm = dcmfs_vm_of(inode);
	loff_t end;
	int err = 0;

	if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	if (!PAGE_ALIGNED(offset) || !PAGE_ALIGNED(len))
		return -EINVAL;
	if (!vm)
		return 0;
	if (down_write_killable(&inode->i_rwsem))
		return -EINTR;
	end = min(offset + len, i_size_read(inode));
	if (offset < end)
		err = dcmfs_discard(vm, (u64)offset >> PAGE_SHIFT,
				    (u64)(end - offset) >> PAGE_SHIFT);
	inode_unlock(inode);
	return err;
}

static __poll_t file_poll(struct file *file, poll_table *wait)
{
	struct dcmfs_vm *vm = dcmfs_vm_of(file_inode(file));

	if (!vm)
		return EPOLLERR;
	poll_wait(file, &vm->events, wait);
	return atomic_read(&vm->wanted) ? EPOLLPRI : 0;
}

static int file_release(struct inode *inode, struct file *file)
{
	struct dcmfs_vm *vm = dcmfs_vm_of(inode);

	if (vm)
		dcmfs_freeze_end(vm, file);
	return 0;
}

static int file_resize(struct inode *inode, loff_t size)
{
	struct dcmfs_vm *vm = dcmfs_vm_of(inode);
	loff_t old = i_size_read(inode);

	if (!PAGE_ALIGNED(size))
		return -EINVAL;
	if (!vm && size) {
		int err = dcmfs_vm_create(inode, (u64)size);

		if (err)
			return err;
	} else if (vm && size > (loff_t)vm->core->nr_pages << PAGE_SHIFT) {
		return -EFBIG;
	}
	i_size_write(inode, size);
	if (size < old) {
		int err;

		unmap_mapping_range(inode->i_mapping, size, 0, 1);
		err = dcmfs_discard(vm, (u64)size >> PAGE_SHIFT,
				    vm->core->nr_pages -
					    ((u64)size >> PAGE_SHIFT));
		/* Killed half-way: keep the old size, or old pages could reappear. */
		if (err) {
			i_size_write(inode, old);
			return err;
		}
	}
	inode_set_mtime_to_ts(inode, inode_set_ctime_current(inode));
	return 0;
}

static int file_setattr(struct mnt_idmap *idmap, struct dentry *dentry,
			struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	int err = setattr_prepare(idmap, dentry, attr);

	if (err)
		return err;
	if (attr->ia_valid & ATTR_SIZE) {
		err = file_resize(inode, attr->ia_size);
		if (err)
			return err;
	}
	setattr_copy(idmap, inode, attr);
	return 0;
}

static int file_getattr(struct mnt_idmap *idmap, const struct path *path,
			struct kstat *stat, u32 mask, unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);
	struct dcmfs_vm *vm = dcmfs_vm_of(inode);

	generic_fillattr(idmap, mask, inode, stat);
	/* du shows how much of this host's memory the file takes. */
	if (vm)
		stat->blocks = (u64)atomic64_read(&vm->frames)
			       << (PAGE_SHIFT - 9);
	return 0;
}

const struct file_operations dcmfs_file_ops = {
	.owner = THIS_MODULE,
	.llseek = generic_file_llseek,
	.mmap = file_mmap,
	.get_unmapped_area = thp_get_unmapped_area, /* aligned to 2 MiB */
	.release = file_release,
	.fsync = noop_fsync,
	.fallocate = file_fallocate,
	.poll = file_poll,
	.unlocked_ioctl = dcmfs_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

const struct inode_operations dcmfs_file_inode_ops = {
	.setattr = file_setattr,
	.getattr = file_getattr,
};
