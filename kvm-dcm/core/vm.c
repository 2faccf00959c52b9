// SPDX-License-Identifier: GPL-2.0-only
/*
 * vm.c - a VM's life, tunables and figures; the completion dispatcher
 *
 * All memory is taken at creation: descriptors (16 bytes a page; but see
 * chunk.c), extents and lanes. After that nothing in the core allocates, so a
 * host without a free page still pages.
 */
#include "internal.h"

#define POLL_MAX 32

static bool config_ok(const struct dcm_vm_config *cfg)
{
	return cfg->ops && cfg->nr_pages && cfg->nr_pages < U32_MAX &&
	       cfg->extent_pages >= DCM_BLOCK_MAX &&
	       !(cfg->extent_pages & (cfg->extent_pages - 1)) &&
	       cfg->nr_lanes && cfg->nr_lanes <= DCM_LANES_MAX;
}

static u32 extents_nr(const struct dcm_vm_config *cfg)
{
	return (u32)((cfg->nr_pages + cfg->extent_pages - 1) >>
		     ilog2((u64)cfg->extent_pages));
}

static u64 habits_nr(u64 nr_pages)
{
	return (nr_pages >> DCM_HABIT_SHIFT) + 1;
}

u64 dcm_vm_bytes(const struct dcm_vm_config *cfg)
{
	return sizeof(struct dcm_vm) +
	       dcm_chunk_bytes(cfg->nr_pages, cfg->sparse) +
	       extents_nr(cfg) * sizeof(struct dcm_extent) +
	       cfg->nr_lanes * sizeof(struct dcm_lane) +
	       habits_nr(cfg->nr_pages) * sizeof(struct dcm_habit) +
	       dcm_reuse_bytes(cfg->ops);
}

static void lane_init(struct dcm_vm *vm, u32 id, u64 seed)
{
	struct dcm_lane *lane = &vm->lane[id];

	lane->vm = vm;
	lane->id = id;
	lane->move.failed = DCM_NIL;
	lane->rng = (seed + id + 1) * 0x9e3779b97f4a7c15ull;
	if (!lane->rng)
		lane->rng = 1;
	spin_lock_init(&lane->buf_lock);
	dcm_fifo_init(&lane->inactive);
	lane->look_at = (id + 1) % vm->nr_lanes;
}

struct dcm_vm *dcm_vm_create(const struct dcm_vm_config *cfg, int *err)
{
	struct dcm_vm *vm;
	u32 i;

	*err = -EINVAL;
	if (!config_ok(cfg))
		return NULL;
	*err = -ENOMEM;
	vm = vzalloc(sizeof(*vm));
	if (!vm)
		return NULL;
	vm->ops = cfg->ops;
	vm->priv = cfg->priv;
	vm->nr_pages = (u32)cfg->nr_pages;
	vm->extent_pages = cfg->extent_pages;
	vm->extent_shift = (u32)ilog2((u64)cfg->extent_pages);
	vm->nr_extents = extents_nr(cfg);
	vm->nr_lanes = cfg->nr_lanes;
	vm->dirty_late = cfg->dirty_late;
	vm->waits = cfg->waits;
	for (i = 0; i < DCM_T_NR; i++)
		vm->tunable[i] = dcm_tunables[i].def;
	dcm_fifo_init(&vm->active);
	dcm_fifo_init(&vm->proactive);
	dcm_fifo_init(&vm->kept);
	spin_lock_init(&vm->ahead.lock);
	spin_lock_init(&vm->streams.lock);
	vm->extent = vzalloc(sizeof(*vm->extent) * vm->nr_extents);
	vm->lane = vzalloc(sizeof(*vm->lane) * vm->nr_lanes);
	vm->habit = vzalloc(habits_nr(cfg->nr_pages) * sizeof(*vm->habit));
	if (!dcm_chunks_init(vm, cfg->sparse) || !vm->extent || !vm->lane ||
	    !vm->habit || !dcm_reuse_init(vm, cfg->budget_pages))
		goto fail;
	for (i = 0; i < vm->nr_lanes; i++)
		lane_init(vm, i, cfg->seed);
	*err = dcm_set_budget(vm, cfg->budget_pages);
	if (*err)
		goto fail;
	return vm;
fail:
	dcm_vm_destroy(vm);
	return NULL;
}

void dcm_vm_destroy(struct dcm_vm *vm)
{
	if (!vm)
		return;
	dcm_reuse_exit(vm);
	vfree(vm->habit);
	vfree(vm->lane);
	vfree(vm->extent);
	dcm_chunks_exit(vm);
	vfree(vm);
}

/* Learn from a completion whether its donor is down for this lane. */
static void io_note(struct dcm_lane *lane, const struct dcm_io *io)
{
	if (likely(!io->status)) {
		if (unlikely(lane->cut))
			dcm_lane_up(lane, io->slab->peer,
				    io->op == DCM_IO_WRITE);
	} else if (io->status == -ENOTCONN) {
		dcm_lane_down(lane, io->slab->peer);
	}
}

/* Count an I/O for the extent's activity. Moves are not counted: they are not use. */
static void io_count(struct dcm_lane *lane, const struct dcm_io *io, u32 gfn)
{
	if (likely(!io->status))
		atomic64_add(1, &extent_of(lane->vm, gfn)->ops);
}

static void io_done(struct dcm_lane *lane, struct dcm_io *io)
{
	struct dcm_fetch *f;
	struct dcm_wb *wb;

	io_note(lane, io);
	switch (io->kind) {
	case DCM_IO_FETCH:
		f = io->owner;
		io_count(lane, io, f->gfn);
		dcm_fetch_io_done(lane, f);
		break;
	case DCM_IO_WRITE_BACK:
		wb = io->owner;
		io_count(lane, io, wb->gfn);
		dcm_wb_io_done(lane, wb, io);
		break;
	case DCM_IO_MOVE:
		dcm_move_io_done(lane, io->owner);
		break;
	}
}

unsigned int dcm_poll(struct dcm_lane *lane)
{
	unsigned int steps = 0;
	struct dcm_io *io;
	int n;

	if (!dcm_pending(lane) && !lane->nr_doubt)
		return 0;
	if (unlikely(lane->nr_doubt))
		steps += dcm_doubt_poll(lane);
	steps += dcm_fetch_retry(lane);
	if (lane->wb_unposted)
		steps += dcm_wb_post(lane);
	if (lane->wb_parked)
		steps += dcm_wb_unpark(lane);
	do {
		io = NULL;
		if (unlikely(lane->fenced))
			dcm_doubt_fence(lane);
		n = lane->vm->ops->io_poll(lane, &io, POLL_MAX);
		while (io) {
			struct dcm_io *next = io->next;

			io_done(lane, io);
			steps++;
			io = next;
		}
	} while (n == POLL_MAX);
	if (steps)
		lane->vm->ops->io_flush(lane);
	return steps;
}

bool dcm_pending(const struct dcm_lane *lane)
{
	return lane->nr_fetch || lane->nr_ahead || lane->nr_wb ||
	       lane->move.left;
}

bool dcm_doubtful(const struct dcm_lane *lane)
{
	return READ_ONCE(lane->nr_doubt);
}

u64 dcm_min_budget(const struct dcm_vm *vm)
{
	return 64 + 16ull * vm->nr_lanes;
}

int dcm_set_budget(struct dcm_vm *vm, u64 pages)
{
	if (pages < dcm_min_budget(vm) || pages > (u64)U32_MAX * 2)
		return -EINVAL;
	WRITE_ONCE(vm->budget, pages);
	return 0;
}

static bool name_is(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

int dcm_tunable_set(struct dcm_vm *vm, const char *name, u64 value)
{
	unsigned int i;

	for (i = 0; i < DCM_T_NR; i++) {
		const struct dcm_tunable *t = &dcm_tunables[i];

		if (!name_is(t->name, name))
			continue;
		if (value < t->lo || value > t->hi)
			return -ERANGE;
		if ((i == DCM_T_largest_block || i == DCM_T_fresh_block) &&
		    (value & (value - 1)))
			return -ERANGE;
		WRITE_ONCE(vm->tunable[i], value);
		return 0;
	}
	return -ENOENT;
}

u64 dcm_tunable_get(const struct dcm_vm *vm, enum dcm_tunable_id id)
{
	return READ_ONCE(vm->tunable[id]);
}

/* Bytes of the structures that grow with the VM's memory. */
static u64 metadata_bytes(const struct dcm_vm *vm)
{
	u64 bytes = dcm_chunk_bytes(vm->nr_pages, true) +
		    (u64)atomic64_read(&vm->nr_chunks) * DCM_PDS_PAGES *
			    sizeof(struct dcm_pd) +
		    vm->nr_extents * sizeof(struct dcm_extent) +
		    habits_nr(vm->nr_pages) * sizeof(struct dcm_habit);
	u32 i;

	for (i = 0; i < vm->nr_extents; i++) {
		const struct dcm_extent *e = &vm->extent[i];

		bytes += ((READ_ONCE(e->sum) ? sizeof(*e->sum) : 0) +
			  (READ_ONCE(e->seal) ? sizeof(*e->seal) : 0)) *
			 vm->extent_pages;
	}
	return bytes;
}

void dcm_vm_stats(const struct dcm_vm *vm, struct dcm_stats *st)
{
	u32 l, i;

	memset(st, 0, sizeof(*st));
	for (l = 0; l < vm->nr_lanes; l++)
		for (i = 0; i < DCM_C_NR; i++)
			st->count[i] += READ_ONCE(vm->lane[l].count[i]);
	st->budget = READ_ONCE(vm->budget);
	st->direct = (u64)max(atomic64_read(&vm->direct), (s64)0);
	st->inactive = (u64)max(atomic64_read(&vm->inactive_pages), (s64)0);
	st->in_writeback = (u64)max(atomic64_read(&vm->wb_pages), (s64)0);
	st->ahead = READ_ONCE(vm->ahead.pages);
	st->metadata = metadata_bytes(vm);
	st->evicted = (u64)atomic64_read(&vm->evicted);
	st->in_flight_max = (u64)vm->nr_lanes * DCM_BLOCK_MAX *
			    dcm_tunable_get(vm, DCM_T_writebacks);
}

static void hist_sum(struct dcm_hist *sum, const struct dcm_hist *one)
{
	u32 i;

	for (i = 0; i < DCM_HIST_BUCKETS; i++)
		sum->bucket[i] += READ_ONCE(one->bucket[i]);
}

void dcm_vm_hist(const struct dcm_vm *vm, enum dcm_hist_id id,
		 struct dcm_hist *sum)
{
	u32 l;

	memset(sum, 0, sizeof(*sum));
	for (l = 0; l < vm->nr_lanes; l++)
		hist_sum(sum, &vm->lane[l].hist[id]);
}

void dcm_vm_away(const struct dcm_vm *vm, struct dcm_hist *sum)
{
	u32 l;

	memset(sum, 0, sizeof(*sum));
	for (l = 0; l < vm->nr_lanes; l++)
		hist_sum(sum, &vm->lane[l].away);
}
