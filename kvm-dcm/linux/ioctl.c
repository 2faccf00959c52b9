// SPDX-License-Identifier: GPL-2.0-only
/*
 * ioctl.c - requests of the control plane, dcm-hostd, about a file
 *
 * Everything from user space is hostile: arguments are copied once, fields
 * that have no meaning must be zero, numbers are compared before they are
 * used. include/dcmfs.h says what each request does.
 */
#include <linux/capability.h>
#include <linux/uaccess.h>

#include "dcmfs.h"

static long ioc_info(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcm_vm *core = vm->core;
	struct dcmfs_info info = {
		.version = DCMFS_VERSION,
		.lanes = vm->nr_lanes,
		.pages = core->nr_pages,
		.extent_pages = core->extent_pages,
		.extents = core->nr_extents,
		.budget_pages = READ_ONCE(core->budget),
		.min_budget_pages = dcm_min_budget(core),
		.direct_pages = (u64)max(atomic64_read(&core->direct), 0ll),
		.frames = (u64)atomic64_read(&vm->frames) + dcmfs_reserve(vm),
		.reserve = dcmfs_reserve(vm),
		.metadata_bytes = dcmfs_metadata_bytes(vm),
		.wanted = (u64)atomic_read(&vm->wanted),
		.flags = READ_ONCE(core->sealed) ? DCMFS_INFO_SEALED : 0,
	};
	struct dcm_stats *st = kvmalloc(sizeof(*st), GFP_KERNEL);

	if (!st)
		return -ENOMEM;
	dcm_vm_stats(core, st);
	info.lost_pages = st->count[DCM_C_LOST_PAGES];
	kvfree(st);
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long ioc_budget(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_lane *lane;
	u64 pages;
	int err;

	if (copy_from_user(&pages, arg, sizeof(pages)))
		return -EFAULT;
	/* The VM's thread changes the budget for a moment, while it holds this lane. */
	lane = dcmfs_control_try(vm);
	if (!lane)
		return -EINTR;
	err = dcm_set_budget(vm->core, pages);
	dcmfs_lane_put(vm, lane);
	dcmfs_kick(vm);
	return err ? -ERANGE : 0;
}

static long ioc_tune(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_tune tune;

	if (copy_from_user(&tune, arg, sizeof(tune)))
		return -EFAULT;
	if (strnlen(tune.name, sizeof(tune.name)) == sizeof(tune.name))
		return -EINVAL;
	return dcm_tunable_set(vm->core, tune.name, tune.value);
}

static long ioc_seal(struct dcmfs_vm *vm, const void __user *arg)
{
	u32 cipher;

	if (copy_from_user(&cipher, arg, sizeof(cipher)))
		return -EFAULT;
	return dcmfs_seal(vm, cipher);
}

static long ioc_slab(struct dcmfs_vm *vm, unsigned int cmd, void __user *arg)
{
	struct dcmfs_slab slab;

	if (copy_from_user(&slab, arg, sizeof(slab)))
		return -EFAULT;
	if (slab.order)
		return -EINVAL;
	if (cmd == DCMFS_IOC_SLAB) {
		int err = dcmfs_slab_after(vm, &slab);

		if (err)
			return err;
		return copy_to_user(arg, &slab, sizeof(slab)) ? -EFAULT : 0;
	}
	if (slab.flags & ~(DCMFS_SLAB_REMOTE | DCMFS_SLAB_FILE) ||
	    (cmd != DCMFS_IOC_ATTACH &&
	     (slab.fd != -1 || slab.flags || slab.donor || slab.remote)) ||
	    (!(slab.flags & DCMFS_SLAB_REMOTE) &&
	     (slab.flags || slab.base || slab.rkey)))
		return -EINVAL;
	switch (cmd) {
	case DCMFS_IOC_ATTACH:
		return dcmfs_slab_attach(vm, &slab);
	case DCMFS_IOC_DETACH:
		return dcmfs_slab_detach(vm, &slab);
	default:
		return dcmfs_slab_lost(vm, &slab);
	}
}

static long ioc_wanted(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_wanted wanted;

	if (copy_from_user(&wanted, arg, sizeof(wanted)))
		return -EFAULT;
	if (wanted.first >= vm->core->nr_extents)
		return -ENOENT;
	wanted.extent = dcmfs_wanting(vm, wanted.first);
	if (wanted.extent >= vm->core->nr_extents)
		return -ENOENT;
	return copy_to_user(arg, &wanted, sizeof(wanted)) ? -EFAULT : 0;
}

static long ioc_link(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_link link;

	if (copy_from_user(&link, arg, sizeof(link)))
		return -EFAULT;
	if (link.flags)
		return -EINVAL;
	return dcmfs_link_set(vm, &link);
}

static long ioc_keep(struct dcmfs_vm *vm, const void __user *arg)
{
	struct dcmfs_keep keep;

	if (copy_from_user(&keep, arg, sizeof(keep)))
		return -EFAULT;
	return dcmfs_keep(vm, &keep);
}

static long ioc_note(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_note *note = memdup_user(arg, sizeof(*note));
	long err;

	if (IS_ERR(note))
		return PTR_ERR(note);
	err = dcmfs_note(vm, note);
	if (!err && copy_to_user(arg, note, sizeof(*note)))
		err = -EFAULT;
	kfree_sensitive(note);
	return err;
}

static long ioc_pair(struct dcmfs_vm *vm, struct dcmfs_pair __user *arg)
{
	struct dcmfs_pair pair;
	int err;

	if (copy_from_user(&pair, arg, sizeof(pair)))
		return -EFAULT;
	if (pair.flags || pair.fd)
		err = -EINVAL;
	else
		err = dcmfs_pair_set(vm, &pair, &arg->fd);
	memzero_explicit(&pair, sizeof(pair));
	return err;
}

static long ioc_activity(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_activity act;
	const struct dcm_extent *e;

	if (copy_from_user(&act, arg, sizeof(act)))
		return -EFAULT;
	if (act.flags || act.extent >= vm->core->nr_extents)
		return -EINVAL;
	e = &vm->core->extent[act.extent];
	act.ops = (u64)atomic64_read(&e->ops);
	act.lag = dcm_extent_lag(vm->core, act.extent);
	if (READ_ONCE(e->thin))
		act.flags |= DCMFS_EXTENT_THIN;
	return copy_to_user(arg, &act, sizeof(act)) ? -EFAULT : 0;
}

static long ioc_fill(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_fill fill;
	int err;

	if (copy_from_user(&fill, arg, sizeof(fill)))
		return -EFAULT;
	if (fill.extent >= vm->core->nr_extents)
		return -ENOENT;
	err = dcmfs_slabs_fill(vm, &fill);
	return copy_to_user(arg, &fill, sizeof(fill)) ? -EFAULT : err;
}

static long ioc_faults(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcm_hist *h = kvmalloc(sizeof(*h), GFP_KERNEL);
	long err = 0;

	static_assert(sizeof(*h) == sizeof(struct dcmfs_faults));
	if (!h)
		return -ENOMEM;
	dcm_vm_hist(vm->core, DCM_H_FAULT, h);
	if (copy_to_user(arg, h, sizeof(*h)))
		err = -EFAULT;
	kvfree(h);
	return err;
}

static long ioc_range(struct dcmfs_vm *vm, const struct file *file,
		      unsigned int cmd, void __user *arg)
{
	struct dcmfs_range r;
	int err;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	switch (cmd) {
	case DCMFS_IOC_FREEZE:
		return dcmfs_freeze(vm, file, &r);
	case DCMFS_IOC_SYNC:
		err = dcmfs_sync(vm, &r);
		/* @r is now the part that is left */
		if (err != -EINVAL && copy_to_user(arg, &r, sizeof(r)))
			return -EFAULT;
		return err;
	case DCMFS_IOC_SPREAD:
		err = dcmfs_spread(vm, file, &r);
		if (err != -EINVAL && copy_to_user(arg, &r, sizeof(r)))
			return -EFAULT;
		return err;
	case DCMFS_IOC_REVERT:
		return dcmfs_revert(vm, file, &r);
	default:
		return dcmfs_hint(vm, &r);
	}
}

static long ioc_write_count(struct dcmfs_vm *vm, void __user *arg)
{
	struct dcmfs_write_count t;
	int err;

	if (copy_from_user(&t, arg, sizeof(t)))
		return -EFAULT;
	err = dcmfs_write_count(vm, &t);
	if (err)
		return err;
	return copy_to_user(arg, &t, sizeof(t)) ? -EFAULT : 0;
}

/** dcmfs_ioctl() - see include/dcmfs.h */
long dcmfs_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct dcmfs_vm *vm = dcmfs_vm_of(file_inode(file));
	void __user *p = (void __user *)arg;

	switch (cmd) {
	case DCMFS_IOC_INFO:
	case DCMFS_IOC_ACTIVITY:
	case DCMFS_IOC_FAULTS:
		break;
	case DCMFS_IOC_BUDGET:
	case DCMFS_IOC_TUNE:
	case DCMFS_IOC_ATTACH:
	case DCMFS_IOC_DETACH:
	case DCMFS_IOC_LOST:
	case DCMFS_IOC_WANTED:
	case DCMFS_IOC_LINK:
	case DCMFS_IOC_PAIR:
	case DCMFS_IOC_SLAB:
	case DCMFS_IOC_NOTE:
	case DCMFS_IOC_KEEP:
	case DCMFS_IOC_FREEZE:
	case DCMFS_IOC_SYNC:
	case DCMFS_IOC_SPREAD:
	case DCMFS_IOC_REVERT:
	case DCMFS_IOC_HINT:
	case DCMFS_IOC_WRITE_COUNT:
	case DCMFS_IOC_FILL:
	case DCMFS_IOC_SEAL:
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		break;
	default:
		return -ENOTTY;
	}
	if (!vm)
		return -ENODATA;
	switch (cmd) {
	case DCMFS_IOC_INFO:
		return ioc_info(vm, p);
	case DCMFS_IOC_BUDGET:
		return ioc_budget(vm, p);
	case DCMFS_IOC_TUNE:
		return ioc_tune(vm, p);
	case DCMFS_IOC_SEAL:
		return ioc_seal(vm, p);
	case DCMFS_IOC_WANTED:
		return ioc_wanted(vm, p);
	case DCMFS_IOC_LINK:
		return ioc_link(vm, p);
	case DCMFS_IOC_PAIR:
		return ioc_pair(vm, p);
	case DCMFS_IOC_NOTE:
		return ioc_note(vm, p);
	case DCMFS_IOC_KEEP:
		return ioc_keep(vm, p);
	case DCMFS_IOC_ACTIVITY:
		return ioc_activity(vm, p);
	case DCMFS_IOC_FAULTS:
		return ioc_faults(vm, p);
	case DCMFS_IOC_FILL:
		return ioc_fill(vm, p);
	case DCMFS_IOC_FREEZE:
	case DCMFS_IOC_SYNC:
	case DCMFS_IOC_SPREAD:
	case DCMFS_IOC_REVERT:
	case DCMFS_IOC_HINT:
		return ioc_range(vm, file, cmd, p);
	case DCMFS_IOC_WRITE_COUNT:
		return ioc_write_count(vm, p);
	default:
		return ioc_slab(vm, cmd, p);
	}
}
