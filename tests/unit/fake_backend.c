// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_backend.c - the fake backend's making and end, and what its files share
 *
 * See fake_backend.h. The core's allocator is here too, so that it can fail on
 * demand and the sanitizers see each table's bounds; and the message about a
 * broken rule, which ends the program.
 *
 * The store has the contents of frames, landing buffers and slabs, in this
 * order; the window has an address for each.
 */
#include "fake_backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fake_priv.h"

char fb_repro[160];
unsigned int fb_alloc_fail_at;
unsigned int fb_alloc_calls;
long fb_alloc_live;

/* The core's allocator, from malloc() so that ASan watches the tables. */
void *vzalloc(unsigned long bytes)
{
	void *p;

	fb_alloc_calls++;
	if (fb_alloc_fail_at && fb_alloc_calls == fb_alloc_fail_at)
		return NULL;
	if (!bytes)
		return NULL;
	p = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
	if (!p)
		return NULL;
	memset(p, 0, bytes);
	fb_alloc_live++;
	return p;
}

void vfree(const void *p)
{
	if (p)
		fb_alloc_live--;
	free((void *)(uintptr_t)p);
}

u64 fb_random(u64 *state)
{
	u64 z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void fb_violation(const struct fake_backend *fb, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "\nVIOLATION at tick %llu: ",
		fb ? (unsigned long long)READ_ONCE(fb->tick) : 0ull);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	if (fb && fb->vm)
		fprintf(stderr,
			"\nbudget %llu direct %lld (mapped %lld frames %lld) writeback %lld inactive %lld active %u proactive %u",
			(unsigned long long)READ_ONCE(fb->vm->budget),
			(long long)atomic64_read(&fb->vm->direct),
			(long long)fb->mapped, (long long)fb->frames,
			(long long)atomic64_read(&fb->vm->wb_pages),
			(long long)atomic64_read(&fb->vm->inactive_pages),
			fb->vm->active.nr_pages, fb->vm->proactive.nr_pages);
	fprintf(stderr, "\nagain: %s\n",
		fb_repro[0] ? fb_repro : "(table test)");
	fflush(stderr);
	abort();
}

/* One line about a page, for messages. */
const char *fb_page_text(const struct fake_backend *fb, u32 gfn)
{
	static __thread char buf[8][256];
	static __thread unsigned int at;
	char *p = buf[at++ % 8], pd[160];

	dcm_pd_text(fb->vm, gfn, pd, sizeof(pd));
	snprintf(p, 256, "[%s; word %#llx truth %#llx]", pd,
		 (unsigned long long)READ_ONCE(fb->page[gfn]),
		 (unsigned long long)READ_ONCE(fb->truth[gfn]));
	return p;
}

bool fb_chance(struct fake_backend *fb, u32 lane, u32 per_10000)
{
	return per_10000 && fb_random(&fb->lane[lane].rng) % 10000 < per_10000;
}

/* Another lane gets its chance while this one is inside an op. */
void fb_nest(struct fake_backend *fb, u32 lane)
{
	u32 other;

	if (!fb->cfg.nest || fb->depth >= 3 ||
	    !fb_chance(fb, lane, fb->cfg.p_nest))
		return;
	other = (u32)(fb_random(&fb->lane[lane].rng) % fb->cfg.nr_lanes);
	if (fb->lane[other].in_core)
		return;
	fb->depth++;
	fb->nr_nested++;
	fb->cfg.nest(fb->cfg.arg, other);
	fb->depth--;
}

void fb_wake_pages(struct fake_backend *fb, u32 gfn, u32 nr)
{
	u32 i;

	for (i = gfn; i < gfn + nr && i < fb->cfg.nr_pages; i++)
		__atomic_fetch_add(&fb->wakes[i], 1, __ATOMIC_RELEASE);
}

static u64 content_of(u64 version)
{
	return version & 1 ? 0 : version;
}

/* The bytes of @gfn, wherever they are now, must be what was last written. */
void fb_check_content(struct fake_backend *fb, u32 gfn, u64 content,
		      const char *what)
{
	u64 t = READ_ONCE(fb->truth[gfn]), m = READ_ONCE(fb->maybe[gfn]);

	/* a page under discard is zero a little before the backend is told */
	if (t == FH_LOST && m != FH_LOST && content == content_of(m))
		return;
	if (t == FH_LOST)
		fb_violation(fb, "%s: lost page %s gets content %#llx", what,
			     fb_page_text(fb, gfn),
			     (unsigned long long)content);
	if (content == content_of(t) || content == content_of(m))
		return;
	fb_violation(fb, "%s: page %s has %#llx instead of %#llx", what,
		     fb_page_text(fb, gfn), (unsigned long long)content,
		     (unsigned long long)content_of(t));
}

/* ---- addresses ---- */

void *fb_ptr(const struct fake_backend *fb, u64 index)
{
	return fb->window + index * DCM_PAGE_SIZE;
}

u64 fb_index(const struct fake_backend *fb, const void *p)
{
	u64 off = (u64)((const char *)p - fb->window);

	if ((const char *)p < fb->window || off % DCM_PAGE_SIZE ||
	    off / DCM_PAGE_SIZE >= fb->nr_store)
		fb_violation(fb, "pointer %p leads nowhere", p);
	return off / DCM_PAGE_SIZE;
}

/* ---- life ---- */

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void slabs_make(struct fake_backend *fb, u32 base)
{
	u32 i;

	fb->slab = must(calloc(fb->cfg.nr_slabs, sizeof(*fb->slab)));
	for (i = 0; i < fb->cfg.nr_slabs; i++) {
		struct fb_slab *s = &fb->slab[i];

		s->donor = i % fb->cfg.nr_donors;
		s->base = base + i * fb->cfg.extent_pages;
		s->busy = must(calloc(fb->cfg.extent_pages, 1));
		s->sure = must(calloc(fb->cfg.extent_pages, 1));
		s->ref.id = i;
		s->ref.peer = s->donor;
		s->ref.rank = fb->cfg.files >> s->donor & 1 ? DCM_RANK_FILE :
							      DCM_RANK_HOST;
		s->ref.bytes = (u64)fb->cfg.extent_pages * DCM_PAGE_SIZE;
		s->ref.fd = -1;
		s->ref.map = fb->cfg.direct ? fb : NULL;
	}
}

int fb_tunable(struct fake_backend *fb, const char *name, u64 value)
{
	int err = dcm_tunable_set(fb->vm, name, value);

	fb->lag_most =
		max(fb->lag_most, dcm_tunable_get(fb->vm, DCM_T_lag_pages));
	return err;
}

struct fake_backend *fb_create(const struct fb_config *cfg)
{
	struct fake_backend *fb = must(calloc(1, sizeof(*fb)));
	struct dcm_vm_config vc = {
		.nr_pages = cfg->nr_pages,
		.extent_pages = cfg->extent_pages,
		.nr_lanes = cfg->nr_lanes,
		.budget_pages = cfg->budget,
		.sparse = cfg->sparse,
		.dirty_late = cfg->dirty_bits,
		.waits = cfg->waits,
		.seed = cfg->seed,
		.ops = &fb->ops,
		.priv = fb,
	};
	u32 i, j, n = cfg->nr_pages, bufs;
	int err = 0;

	fb->cfg = *cfg;
	fb->ops = fb_ops;
	if (!cfg->fresh)
		fb->ops.fresh = NULL;
	if (!cfg->watch)
		fb->ops.hide = NULL;
	fb->cfg.direct &= !cfg->seal;
	if (!fb->cfg.nr_donors)
		fb->cfg.nr_donors = 1;
	if (!fb->cfg.qdepth || fb->cfg.qdepth > FH_QUEUE_MAX)
		fb->cfg.qdepth = FH_QUEUE_MAX;
	fb->page = must(calloc(n, sizeof(*fb->page)));
	fb->truth = must(calloc(n, sizeof(*fb->truth)));
	fb->maybe = must(calloc(n, sizeof(*fb->maybe)));
	fb->seq = must(calloc(n, sizeof(*fb->seq)));
	fb->wakes = must(calloc(n, sizeof(*fb->wakes)));
	fb->witness = must(calloc(n, sizeof(*fb->witness)));
	fb->op = must(calloc(n, 1));
	fb->wlock = must(calloc(n, 1));
	fb->want = must(calloc(n, 1));
	fb->cancels = must(calloc(n, sizeof(*fb->cancels)));
	fb->sums = must(calloc(n + cfg->extent_pages, sizeof(*fb->sums)));
	fb->seals = must(calloc(n + cfg->extent_pages, sizeof(*fb->seals)));
	fb->sealed = must(calloc(n, sizeof(*fb->sealed)));
	fb->filling = DCM_NIL;
	if (cfg->sparse)
		fb->descriptors = must(
			calloc(n + DCM_PDS_PAGES, sizeof(*fb->descriptors)));
	fb->lane = must(calloc(cfg->nr_lanes, sizeof(*fb->lane)));
	for (i = 0; i < n; i++)
		fb->truth[i] = fb->maybe[i] = (u64)i << FH_GFN_SHIFT | 1;
	for (i = 0; i < cfg->nr_lanes; i++)
		fb->lane[i].rng = cfg->seed * 977 + i;

	/* the last are for sealed bytes */
	fb->nr_groups = n + cfg->nr_lanes * (2 * DCM_WBS_MAX + DCM_FETCHES_MAX);
	fb->group = must(calloc(fb->nr_groups, sizeof(*fb->group)));
	bufs = cfg->nr_lanes * FH_LANE_BUFS * DCM_BLOCK_MAX;
	fb->nr_store = (u64)fb->nr_groups * DCM_BLOCK_MAX + bufs +
		       (u64)cfg->nr_slabs * cfg->extent_pages;
	fb->store = must(calloc(fb->nr_store, sizeof(*fb->store)));
	for (i = 0; i < fb->nr_store; i++)
		fb->store[i] = FH_POISON;
	fb->window = mmap(NULL, fb->nr_store * DCM_PAGE_SIZE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (fb->window == MAP_FAILED)
		abort();
	slabs_make(fb, fb->nr_groups * DCM_BLOCK_MAX + bufs);

	pthread_mutex_init(&fb->late_lock, NULL);
	fb->limit = cfg->budget;
	fb_advance(fb, 0);
	fb->vm = dcm_vm_create(&vc, &err);
	if (!fb->vm) {
		if (!fb_alloc_fail_at)
			fb_violation(fb, "dcm_vm_create: %d", err);
		if (err != -ENOMEM)
			fb_violation(fb,
				     "dcm_vm_create: %d when allocation fails",
				     err);
		fb_destroy(fb);
		return NULL;
	}
	if (cfg->seal)
		dcm_vm_seal(fb->vm);
	for (i = 0; i < cfg->nr_lanes; i++) {
		fb->vm->lane[i].priv = fb;
		for (j = 0; cfg->seal && j < DCM_WBS_MAX; j++) {
			u32 group = fb->nr_groups - 1 - (i * DCM_WBS_MAX + j);

			fb->group[group] = page_mask(DCM_ORDER_MAX);
			fb->vm->lane[i].wb[j].sealed = group * DCM_BLOCK_MAX;
		}
		for (j = 0; j < FH_LANE_BUFS; j++)
			fb_set_buf(fb->vm, i, j,
				   fb_ptr(fb,
					  (u64)fb->nr_groups * DCM_BLOCK_MAX +
						  (i * FH_LANE_BUFS + j) *
							  DCM_BLOCK_MAX));
	}
	return fb;
}

void fb_destroy(struct fake_backend *fb)
{
	u32 i;

	if (fb->vm)
		dcm_vm_destroy(fb->vm);
	pthread_mutex_destroy(&fb->late_lock);
	for (i = 0; i < fb->cfg.nr_slabs; i++) {
		free(fb->slab[i].busy);
		free(fb->slab[i].sure);
	}
	munmap(fb->window, fb->nr_store * DCM_PAGE_SIZE);
	free(fb->slab);
	free(fb->store);
	free(fb->group);
	free(fb->lane);
	free(fb->descriptors);
	free(fb->want);
	free(fb->cancels);
	free(fb->sums);
	free(fb->seals);
	free(fb->sealed);
	free(fb->wlock);
	free(fb->op);
	free(fb->witness);
	free(fb->wakes);
	free(fb->seq);
	free(fb->maybe);
	free(fb->truth);
	free(fb->page);
	free(fb);
}
