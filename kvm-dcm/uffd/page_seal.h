/* SPDX-License-Identifier: GPL-2.0-or-later */
/* page_seal.h - pages that are encrypted before they leave (page_seal.c) */
#ifndef DCM_UFFD_PAGE_SEAL_H
#define DCM_UFFD_PAGE_SEAL_H

#include <gnutls/crypto.h>

#include "../core/core.h"

struct dcm_pager;

/**
 * struct dcm_page_sealer - a lane's
 * @cipher: with the VM's key
 * @page: where a page is opened whose sealed bytes stay
 */
struct dcm_page_sealer {
	gnutls_aead_cipher_hd_t cipher;
	void *page;
};

/**
 * dcm_page_seals_start() - make the VM's key, and what lanes seal by
 * @pg: a sealed VM's, with lanes and frames, and no thread yet
 *
 * Return: 0 or a negative errno.
 */
int dcm_page_seals_start(struct dcm_pager *pg);

/** dcm_page_seals_free() - free all, and the tables; no lane is in the core */
void dcm_page_seals_free(struct dcm_pager *pg);

/**
 * dcm_page_seals_add() - before a slab is attached; slab worker only
 *
 * Return: 0 or -ENOMEM: the extent can have no slab.
 */
int dcm_page_seals_add(struct dcm_pager *pg, u32 extent);

#endif /* DCM_UFFD_PAGE_SEAL_H */
