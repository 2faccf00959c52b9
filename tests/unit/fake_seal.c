// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_seal.c - sealing of the fake backend's pages, and its rules
 *
 * A page is one word, and so are its sealed bytes: the word, changed by a mask that
 * only this gfn and version have. The tag is a hash of all of that. Checked: each
 * version of a page is higher than all before, so no nonce comes twice; nothing but
 * sealed bytes goes out or lies on a slab; they are opened once, in their place.
 */
#include "fake_backend.h"
#include "fake_priv.h"

static u64 mixed(u64 x)
{
	return fb_random(&x);
}

static u64 mask_of(u32 gfn, u64 version)
{
	return mixed((u64)gfn << 20 ^ version * 0x9e3779b97f4a7c15ull);
}

static u64 tag_of(u64 word, u32 gfn, u64 version)
{
	return mixed(word ^ mixed(mask_of(gfn, version)));
}

/* Open a sealed word of the page @gfn; false: it does not open. */
static bool word_open(const struct dcm_seal *s, u32 gfn, u64 word, u64 *content)
{
	u64 version = dcm_seal_version(s), tag = tag_of(word, gfn, version);

	*content = word ^ mask_of(gfn, version);
	return version && !memcmp(s->tag, &tag, sizeof(tag));
}

bool fb_slab_word(const struct fake_backend *fb, u32 gfn, u64 *word)
{
	const struct dcm_seal *s = fb->seals + gfn;

	return !fb->cfg.seal || word_open(s, gfn, *word, word);
}

int fb_op_seal(struct dcm_lane *lane, void *to, const void *from, u32 gfn,
	       struct dcm_seal *s)
{
	struct fake_backend *fb = lane->priv;
	u64 version = dcm_seal_version(s), tag, *word;

	if (gfn >= fb->cfg.nr_pages || s != fb->seals + gfn)
		fb_violation(fb, "the seal of page %u is another's", gfn);
	if (version <= fb->sealed[gfn])
		fb_violation(fb, "a nonce comes twice: version %llu of %s",
			     (unsigned long long)version,
			     fb_page_text(fb, gfn));
	fb->sealed[gfn] = version;
	if (fb_chance(fb, lane->id, fb->cfg.p_no_seal))
		return -EIO;
	word = &fb->store[fb_index(fb, to)];
	*word = fb->store[fb_index(fb, from)] ^ mask_of(gfn, version);
	tag = tag_of(*word, gfn, version);
	memset(s->tag, 0, sizeof(s->tag));
	memcpy(s->tag, &tag, sizeof(tag));
	fb_nest(fb, lane->id);
	return 0;
}

int fb_op_open(struct dcm_lane *lane, void *data, u32 page, u32 gfn,
	       const struct dcm_seal *s, bool keep)
{
	struct fake_backend *fb = lane->priv;
	u64 *word = &fb->store[fb_index(fb, data) + page], content;
	bool right;

	if (gfn >= fb->cfg.nr_pages || s != fb->seals + gfn)
		fb_violation(fb, "the seal of page %u is another's", gfn);
	right = word_open(s, gfn, *word, &content);
	/* a wrong page is garbage in its place, too */
	if (!keep)
		*word = right ? content : FH_TORN;
	fb_nest(fb, lane->id);
	return right ? 0 : -EBADMSG;
}
