/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * compat.h - differences between kernels and between architectures
 *
 * Debian's 6.12 is tested. Differences of other kernels are told by the types of
 * functions where that is possible, else by the version.
 */
#ifndef DCMFS_COMPAT_H
#define DCMFS_COMPAT_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#include <linux/pfn_t.h>
#endif

/*
 * Protection of a new mapping without the accessed bit, so that a set bit means
 * an access. Except on x86, pages count as touched when they are mapped.
 */
static inline pgprot_t dcmfs_prot_old(pgprot_t prot)
{
#ifdef CONFIG_X86
	return __pgprot(pgprot_val(prot) & ~(pgprotval_t)_PAGE_ACCESSED);
#else
	return prot;
#endif
}

/* An inode's number, which has 64 bits in some kernel after 6.12. */
static inline unsigned long dcmfs_ino(const struct inode *inode)
{
	return (unsigned long)inode->i_ino;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
#define inode_just_drop generic_delete_inode
#endif

/*
 * Make a name that stays until it is removed, though nothing else refers to it. From
 * 6.19 on the kernel has this function itself.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
static inline void d_make_persistent(struct dentry *dentry, struct inode *inode)
{
	d_instantiate(dentry, inode);
	dget(dentry);
}

static inline void dcmfs_kill_names(struct super_block *super)
{
	kill_litter_super(super);
}
#else
static inline void dcmfs_kill_names(struct super_block *super)
{
	kill_anon_super(super);
}
#endif

/* Map the aligned 2 MiB of a fault by one entry, if it has none. */
#if !defined(CONFIG_TRANSPARENT_HUGEPAGE)
static inline vm_fault_t dcmfs_insert_pmd(struct vm_fault *vmf,
					  unsigned long pfn, bool write)
{
	return VM_FAULT_FALLBACK;
}
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
static inline vm_fault_t dcmfs_insert_pmd(struct vm_fault *vmf,
					  unsigned long pfn, bool write)
{
	return vmf_insert_pfn_pmd(vmf, pfn_to_pfn_t(pfn), write);
}
#else
static inline vm_fault_t dcmfs_insert_pmd(struct vm_fault *vmf,
					  unsigned long pfn, bool write)
{
	return vmf_insert_pfn_pmd(vmf, pfn, write);
}
#endif

/* Select the function whose type this kernel's inode_operations.@op has. */
#define dcmfs_op(op, now, before)                                       \
	__builtin_choose_expr(                                          \
		__builtin_types_compatible_p(                           \
			typeof(((const struct inode_operations *)NULL)  \
				       ->op),                           \
			typeof(&(before))),                             \
		before, now)

#endif /* DCMFS_COMPAT_H */
