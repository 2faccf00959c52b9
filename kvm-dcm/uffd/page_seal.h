/* SPDX-License-Identifier: GPL-2.0-or-later */
/* page_seal.h - pages that are encrypted before they leave (page_seal.c) */
#ifndef DCM_UFFD_PAGE_SEAL_H
#define DCM_UFFD_PAGE_SEAL_H

#include <gnutls/crypto.h>

#include "../core/core.h"

struct dcm_pager;

/**
 * struct dcm_page_sealer - a lane's cipher
 * @cipher: cipher context with the VM's key
 * @page: a page to decrypt into when the sealed bytes must stay
 */
struct dcm_page_sealer {
	gnutls_aead_cipher_hd_t cipher;
	void *page;
};

/**
 * dcm_page_seals_start() - make the VM's key, and each lane's sealer
 * @pg: the pager of a sealed VM, with lanes and frames but no thread yet
 *
 * Return: 0 or a negative errno.
 */
int dcm_page_seals_start(struct dcm_pager *pg);

/** dcm_page_seals_free() - free sealers and tables of seals; no lane is in the core */
void dcm_page_seals_free(struct dcm_pager *pg);

/**
 * dcm_page_seals_add() - give an extent its table of seals, if it has none
 *
 * To be called before each dcm_extent_attach(). Slab worker only.
 *
 * Return: 0 or -ENOMEM: the extent can have no slab.
 */
int dcm_page_seals_add(struct dcm_pager *pg, u32 extent);

#endif /* DCM_UFFD_PAGE_SEAL_H */
