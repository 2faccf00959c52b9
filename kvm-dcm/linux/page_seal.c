// SPDX-License-Identifier: GPL-2.0-only
/*
 * page_seal.c - pages that are encrypted before they leave: cipher, key, tables
 *
 * core/seal.c says when pages are sealed. The cipher is AES-256-GCM of the kernel's
 * crypto API. The control plane asks for it before a file's first slab
 * (DCMFS_IOC_SEAL), and can't undo it. The key is random, made at that time. Only the
 * cipher has it, which all lanes of the file share, and which wipes it at the end. No
 * ioctl returns it. (None of the papers encrypts.)
 *
 * A page on its way out is encrypted from its frame into a page of the write-back,
 * which never holds a plain byte: a socket may still send that page after its WRITE has
 * failed. A page that came in is decrypted where it landed, or into the lane's own page
 * if only its seal is checked.
 *
 * Memory is freed by evicting, so sealing must allocate none: each write-back has its
 * pages, and each lane its request, from the beginning, and ciphers that allocate
 * (those of accelerator cards) are not used. The others work at once, in the caller.
 * Debian's 6.12 still marks AES with CPU instructions as asynchronous, because where
 * the FPU can't be used it is passed to a thread. A lane, under a mutex, may use the
 * FPU; it may also sleep, and waits if a cipher does not answer at once.
 *
 * Locking: the cipher, and the tables, which extents get before their first slab,
 * are added under dcmfs_vm.control. A sealer belongs to its lane.
 */
#include <crypto/aead.h>
#include <linux/crypto.h>
#include <linux/random.h>
#include <linux/scatterlist.h>

#include "dcmfs.h"
#include "jitter.h"

#define KEY_BYTES 32u

/* Pages that a lane needs: for its write-backs, and one to decrypt into. */
#define LANE_PAGES (DCM_WBS_MAX * DCM_BLOCK_MAX + 1)

/**
 * struct dcmfs_sealer - a lane's buffers and request to the cipher
 * @nonce: nonce of the page that is sealed or opened
 * @tag: tag of that page
 * @in: input: its bytes, and @tag
 * @out: output: the page to write to, and @tag
 * @page: a page to decrypt into when the sealed bytes must stay
 * @request: the request to the cipher
 * @wait: to wait for the cipher's answer
 */
struct dcmfs_sealer {
	u8 nonce[DCM_SEAL_NONCE] __aligned(16);
	u8 tag[DCM_SEAL_TAG];
	struct scatterlist in[2];
	struct scatterlist out[2];
	struct page *page;
	struct aead_request *request;
	struct crypto_wait wait;
};

/* ---- in lanes ---- */

/** dcmfs_op_seal() - dcm_ops.seal */
int dcmfs_op_seal(struct dcm_lane *lane, void *to, const void *from, u32 gfn,
		  struct dcm_seal *s)
{
	struct dcmfs_sealer *sealer = dcmfs_lane_of(lane)->sealer;
	int err;

	if (dcmfs_jitter_fails())
		return -ENOMEM;
	dcm_seal_nonce(sealer->nonce, gfn, s);
	sg_set_page(&sealer->in[0], (struct page *)from, PAGE_SIZE, 0);
	sg_set_page(&sealer->out[0], to, PAGE_SIZE, 0);
	aead_request_set_crypt(sealer->request, sealer->in, sealer->out,
			       PAGE_SIZE, sealer->nonce);
	err = crypto_wait_req(crypto_aead_encrypt(sealer->request),
			      &sealer->wait);
	memcpy(s->tag, sealer->tag, DCM_SEAL_TAG);
	return err;
}

/** dcmfs_op_open() - dcm_ops.open */
int dcmfs_op_open(struct dcm_lane *lane, void *data, u32 nr, u32 gfn,
		  const struct dcm_seal *s, bool keep)
{
	struct dcmfs_sealer *sealer = dcmfs_lane_of(lane)->sealer;
	struct page *page = data;

	while (nr--)
		page = dcmfs_chain_next(page);
	dcm_seal_nonce(sealer->nonce, gfn, s);
	memcpy(sealer->tag, s->tag, DCM_SEAL_TAG);
	sg_set_page(&sealer->in[0], page, PAGE_SIZE, 0);
	sg_set_page(&sealer->out[0], sealer->page, PAGE_SIZE, 0);
	aead_request_set_crypt(sealer->request, sealer->in,
			       keep ? sealer->out : sealer->in,
			       PAGE_SIZE + DCM_SEAL_TAG, sealer->nonce);
	return crypto_wait_req(crypto_aead_decrypt(sealer->request),
			       &sealer->wait);
}

/* ---- making and freeing ---- */

/* Free a chain of pages of pages_alloc(), which are no frames of the VM. */
static void pages_free(struct page *page)
{
	while (page) {
		struct page *next = dcmfs_chain_next(page);

		set_page_private(page, 0);
		__free_page(page);
		page = next;
	}
}

static struct page *pages_alloc(unsigned int nr)
{
	struct page *first = NULL;

	while (nr--) {
		struct page *page = alloc_page(GFP_KERNEL_ACCOUNT);

		if (!page) {
			pages_free(first);
			return NULL;
		}
		set_page_private(page, (unsigned long)first);
		first = page;
		/* The core's handle has 32 bits. */
		if (page_to_pfn(page) >= DCM_NIL) {
			pages_free(first);
			return NULL;
		}
	}
	return first;
}

static void lane_free(struct dcmfs_lane *dl)
{
	struct dcmfs_sealer *sealer = dl->sealer;
	unsigned int i;

	for (i = 0; i < DCM_WBS_MAX; i++) {
		struct dcm_wb *wb = &dl->core->wb[i];

		if (wb->sealed)
			pages_free(pfn_to_page(wb->sealed));
		wb->sealed = 0;
	}
	if (!sealer)
		return;
	if (sealer->page)
		__free_page(sealer->page);
	aead_request_free(sealer->request);
	kfree_sensitive(sealer);
	dl->sealer = NULL;
}

static int sealer_make(struct dcmfs_lane *dl, struct crypto_aead *cipher)
{
	struct dcmfs_sealer *sealer =
		kzalloc(sizeof(*sealer), GFP_KERNEL_ACCOUNT);

	dl->sealer = sealer;
	if (!sealer)
		return -ENOMEM;
	sealer->page = alloc_page(GFP_KERNEL_ACCOUNT);
	sealer->request = aead_request_alloc(cipher, GFP_KERNEL);
	if (!sealer->page || !sealer->request)
		return -ENOMEM;
	sg_init_table(sealer->in, 2);
	sg_init_table(sealer->out, 2);
	sg_set_buf(&sealer->in[1], sealer->tag, DCM_SEAL_TAG);
	sg_set_buf(&sealer->out[1], sealer->tag, DCM_SEAL_TAG);
	crypto_init_wait(&sealer->wait);
	aead_request_set_callback(sealer->request, CRYPTO_TFM_REQ_MAY_BACKLOG,
				  crypto_req_done, &sealer->wait);
	aead_request_set_ad(sealer->request, 0);
	return 0;
}

static int lane_make(struct dcmfs_lane *dl, struct crypto_aead *cipher)
{
	int err = sealer_make(dl, cipher);
	unsigned int i;

	for (i = 0; !err && i < DCM_WBS_MAX; i++) {
		struct page *page = pages_alloc(DCM_BLOCK_MAX);

		if (page)
			dl->core->wb[i].sealed = (u32)page_to_pfn(page);
		else
			err = -ENOMEM;
	}
	return err;
}

static struct crypto_aead *cipher_make(void)
{
	struct crypto_aead *cipher =
		crypto_alloc_aead("gcm(aes)", 0, CRYPTO_ALG_ALLOCATES_MEMORY);
	u8 key[KEY_BYTES];
	int err;

	if (IS_ERR(cipher))
		return cipher;
	err = get_random_bytes_wait(key, sizeof(key)) ? -EINTR : 0;
	if (!err)
		err = crypto_aead_setkey(cipher, key, sizeof(key));
	memzero_explicit(key, sizeof(key));
	if (!err)
		err = crypto_aead_setauthsize(cipher, DCM_SEAL_TAG);
	if (!err)
		return cipher;
	crypto_free_aead(cipher);
	return ERR_PTR(err);
}

static u64 lanes_bytes(const struct dcmfs_vm *vm)
{
	return (u64)vm->nr_lanes * LANE_PAGES * PAGE_SIZE;
}

static void cipher_free(struct dcmfs_vm *vm)
{
	u32 i;

	for (i = 0; i < vm->nr_lanes; i++)
		lane_free(&vm->lane[i]);
	crypto_free_aead(vm->cipher);
	vm->cipher = NULL;
	dcmfs_metadata_drop(vm, lanes_bytes(vm));
}

static int seal_begin(struct dcmfs_vm *vm)
{
	struct crypto_aead *cipher = cipher_make();
	int err;
	u32 i;

	if (IS_ERR(cipher))
		return PTR_ERR(cipher);
	err = dcmfs_metadata_add(vm, lanes_bytes(vm));
	if (err) {
		crypto_free_aead(cipher);
		return err;
	}
	vm->cipher = cipher;
	for (i = 0; i < vm->nr_lanes && !err; i++)
		err = lane_make(&vm->lane[i], cipher);
	if (err)
		cipher_free(vm);
	else
		dcm_vm_seal(vm->core);
	return err;
}

/**
 * dcmfs_seal() - seal a file's pages from now on
 * @vm: the VM
 * @cipher: DCMFS_SEAL_AES_256_GCM
 *
 * Return: 0, also if it is sealed already, or a negative errno; see
 * DCMFS_IOC_SEAL. Takes control.
 */
int dcmfs_seal(struct dcmfs_vm *vm, u32 cipher)
{
	int err = 0;

	if (cipher != DCMFS_SEAL_AES_256_GCM)
		return -EINVAL;
	/* kvmalloc() allocates at most INT_MAX bytes: an extent's table must fit */
	if ((u64)vm->core->extent_pages * sizeof(struct dcm_seal) > INT_MAX)
		return -EFBIG;
	if (mutex_lock_interruptible(&vm->control))
		return -EINTR;
	if (!vm->cipher)
		err = vm->nr_slabs ? -EBUSY : seal_begin(vm);
	mutex_unlock(&vm->control);
	return err;
}

/**
 * dcmfs_seals_add() - make the table of an extent that gets its first slab
 * @vm: the VM
 * @extent: the extent
 *
 * Return: 0, -ENOSPC: more than is left of the mount's metadata=; -ENOMEM.
 * Takes control.
 */
int dcmfs_seals_add(struct dcmfs_vm *vm, u32 extent)
{
	struct dcm_seal *mem;

	if (!vm->cipher || dcm_extent_seals_of(vm->core, extent))
		return 0;
	mem = dcmfs_table_alloc(vm, sizeof(*mem));
	if (IS_ERR(mem))
		return PTR_ERR(mem);
	dcm_extent_seals(vm->core, extent, mem);
	return 0;
}

/** dcmfs_seals_free() - free tables and cipher with the VM, after its last I/O */
void dcmfs_seals_free(struct dcmfs_vm *vm)
{
	u32 e;

	if (!vm->cipher)
		return;
	for (e = 0; e < vm->core->nr_extents; e++)
		dcmfs_table_free(vm, dcm_extent_seals_of(vm->core, e),
				 sizeof(struct dcm_seal));
	cipher_free(vm);
}
