// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * page_seal.c - pages that are encrypted before they leave: cipher, key, tables
 *
 * core/seal.c says when pages are sealed. The cipher is AES-256-GCM by GnuTLS, which
 * the connections use too; on a CPU with AES instructions a page takes about a
 * microsecond. The key is random, made when the VM starts. It is in no file and no
 * message, only in cipher contexts of this process.
 *
 * A page on its way out is copied to a frame of the write-back and encrypted there;
 * one that came in is decrypted where it landed, or into the lane's own page if only
 * its seal is checked. Each lane has a cipher context of its own, made before it
 * starts, and nothing is allocated later.
 *
 * Locking: none; a cipher context belongs to its lane.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "op.h"

#define KEY_BYTES 32u

int dcm_op_seal(struct dcm_lane *lane, void *to, const void *from, u32 gfn,
		struct dcm_seal *s)
{
	giovec_t iov = { to, DCM_PAGE_SIZE };
	size_t len = sizeof(s->tag);
	u8 nonce[DCM_SEAL_NONCE];

	dcm_seal_nonce(nonce, gfn, s);
	memcpy(to, from, DCM_PAGE_SIZE);
	if (!gnutls_aead_cipher_encryptv2(pg_lane_of(lane)->sealer.cipher,
					  nonce, sizeof(nonce), NULL, 0, &iov,
					  1, s->tag, &len) &&
	    len == sizeof(s->tag))
		return 0;
	memset(to, 0, DCM_PAGE_SIZE);
	return -EIO;
}

int dcm_op_open(struct dcm_lane *lane, void *data, u32 page, u32 gfn,
		const struct dcm_seal *s, bool keep)
{
	const struct dcm_page_sealer *sealer = &pg_lane_of(lane)->sealer;
	giovec_t iov = { (char *)data + page * DCM_PAGE_SIZE, DCM_PAGE_SIZE };
	u8 nonce[DCM_SEAL_NONCE], tag[DCM_SEAL_TAG];

	dcm_seal_nonce(nonce, gfn, s);
	memcpy(tag, s->tag, sizeof(tag));
	if (keep)
		iov.iov_base =
			memcpy(sealer->page, iov.iov_base, DCM_PAGE_SIZE);
	return gnutls_aead_cipher_decryptv2(sealer->cipher, nonce,
					    sizeof(nonce), NULL, 0, &iov, 1,
					    tag, sizeof(tag)) ?
		       -EBADMSG :
		       0;
}

static int key_make(u8 *key)
{
	size_t n = 0;

	while (n < KEY_BYTES) {
		ssize_t got = getrandom(key + n, KEY_BYTES - n, 0);

		if (got < 0 && errno != EINTR)
			return -errno;
		n += got > 0 ? (size_t)got : 0;
	}
	return 0;
}

static int lane_start(struct dcm_pg_lane *l, const gnutls_datum_t *key)
{
	bool full = false;
	u32 i;

	l->sealer.page = vzalloc(DCM_PAGE_SIZE);
	if (!l->sealer.page ||
	    gnutls_aead_cipher_init(&l->sealer.cipher,
				    GNUTLS_CIPHER_AES_256_GCM, key))
		return -ENOMEM;
	for (i = 0; i < DCM_WBS_MAX; i++) {
		full = false;
		l->core->wb[i].sealed =
			dcm_frame_get(l->pg, DCM_ORDER_MAX, &full);
	}
	return 0;
}

int dcm_page_seals_start(struct dcm_pager *pg)
{
	u8 bytes[KEY_BYTES];
	const gnutls_datum_t key = { bytes, sizeof(bytes) };
	int err = key_make(bytes);
	u32 i;

	for (i = 0; !err && i < pg->nr_lanes; i++)
		err = lane_start(&pg->lane[i], &key);
	explicit_bzero(bytes, sizeof(bytes));
	if (!err)
		dcm_vm_seal(pg->vm);
	return err;
}

void dcm_page_seals_free(struct dcm_pager *pg)
{
	u32 i;

	for (i = 0; pg->lane && i < pg->nr_lanes; i++) {
		if (pg->lane[i].sealer.cipher)
			gnutls_aead_cipher_deinit(pg->lane[i].sealer.cipher);
		vfree(pg->lane[i].sealer.page);
	}
	for (i = 0; pg->vm && i < pg->vm->nr_extents; i++)
		vfree(dcm_extent_seals_of(pg->vm, i));
}

int dcm_page_seals_add(struct dcm_pager *pg, u32 extent)
{
	struct dcm_seal *mem;

	if (!pg->cfg.seal || dcm_extent_seals_of(pg->vm, extent))
		return 0;
	mem = vzalloc(pg->vm->extent_pages * sizeof(*mem));
	if (!mem)
		return -ENOMEM;
	dcm_extent_seals(pg->vm, extent, mem);
	return 0;
}
