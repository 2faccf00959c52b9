/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * compat.h - what differs between kernels and between architectures
 */
#ifndef DCMFS_COMPAT_H
#define DCMFS_COMPAT_H

#include <linux/mm.h>

/*
 * A mapping whose entries begin not young, so that an accessed bit means an
 * access. Elsewhere than on x86 pages count as touched when they are mapped.
 */
static inline pgprot_t dcmfs_prot_old(pgprot_t prot)
{
#ifdef CONFIG_X86
	return __pgprot(pgprot_val(prot) & ~(pgprotval_t)_PAGE_ACCESSED);
#else
	return prot;
#endif
}

#endif /* DCMFS_COMPAT_H */
