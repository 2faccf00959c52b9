// SPDX-License-Identifier: GPL-2.0-only
/*
 * fifo.c - LRU-3's queues, and each lane's buffers in front of them
 *
 * Three kinds of FIFO hold every block that is in direct memory and not on
 * its way out (dcm-tc18, 3.2 and fig. 7):
 *
 *	  lane buffers             shared             lane buffers
 *	[ins Proactive] --batch--> Proactive
 *	                              | over its share
 *	                              v
 *	[ins Active]    --batch--> Active --batch--> [victims]
 *	                                                | unmapped, together
 *	                                                v
 *	                          each lane's own Inactive --> out
 *
 * Second round: a page that was re-referenced, in Inactive or soon after its eviction,
 * is not evicted when it gets to the end of Inactive for the first time. It goes back
 * to the tail, still unmapped, so it has twice as long to be touched as a page that was
 * used once. That takes no fault. The paper has no such thing; S3-FIFO's main queue
 * counts uses, which can't be seen here. Larger blocks get no second round: only one of
 * their pages is known to be touched, and the others would stay with it.
 *
 * The buffers hold hints, not members: a block in one is marked in its
 * descriptor (BUFFER, VICTIM), and a hint is checked under the block's lock
 * when it is used. A block that has moved on meanwhile (merged by STRETCH,
 * discarded) leaves a stale hint, which is dropped. If a stale hint becomes
 * true again, a block is taken a little early, no more.
 *
 * Locking: see internal.h. With a queue locked, a block's lock is only tried:
 * a block that another lane works on is skipped.
 */
#include "internal.h"

#define POP_SCAN 8 /* blocks looked at before giving up on a queue */
/* second rounds in one search, then a page goes all the same */
#define LET_OFF 8

void dcm_fifo_init(struct dcm_fifo *f)
{
	spin_lock_init(&f->lock);
	f->head = DCM_NIL;
	f->tail = DCM_NIL;
	f->nr_blocks = 0;
	f->nr_pages = 0;
}

static void fifo_add_tail(struct dcm_vm *vm, struct dcm_fifo *f, u32 gfn,
			  unsigned int order)
{
	struct dcm_pd *pd = pd_of(vm, gfn);

	pd->next = DCM_NIL;
	pd->prev = f->tail;
	if (f->tail != DCM_NIL)
		pd_of(vm, f->tail)->next = gfn;
	else
		f->head = gfn;
	f->tail = gfn;
	WRITE_ONCE(f->nr_blocks, f->nr_blocks + 1);
	WRITE_ONCE(f->nr_pages, f->nr_pages + (1u << order));
}

static void fifo_add_head(struct dcm_vm *vm, struct dcm_fifo *f, u32 gfn,
			  unsigned int order)
{
	struct dcm_pd *pd = pd_of(vm, gfn);

	pd->prev = DCM_NIL;
	pd->next = f->head;
	if (f->head != DCM_NIL)
		pd_of(vm, f->head)->prev = gfn;
	else
		f->tail = gfn;
	f->head = gfn;
	WRITE_ONCE(f->nr_blocks, f->nr_blocks + 1);
	WRITE_ONCE(f->nr_pages, f->nr_pages + (1u << order));
}

static void fifo_del(struct dcm_vm *vm, struct dcm_fifo *f, u32 gfn,
		     unsigned int order)
{
	struct dcm_pd *pd = pd_of(vm, gfn);

	if (pd->prev != DCM_NIL)
		pd_of(vm, pd->prev)->next = pd->next;
	else
		f->head = pd->next;
	if (pd->next != DCM_NIL)
		pd_of(vm, pd->next)->prev = pd->prev;
	else
		f->tail = pd->prev;
	pd->prev = DCM_NIL;
	pd->next = DCM_NIL;
	WRITE_ONCE(f->nr_blocks, f->nr_blocks - 1);
	WRITE_ONCE(f->nr_pages, f->nr_pages - (1u << order));
}

static struct dcm_fifo *fifo_of(struct dcm_vm *vm, enum dcm_state s)
{
	return s == DCM_PROACTIVE ? &vm->proactive : &vm->active;
}

/*
 * Move a buffer's blocks into their queue, under buf_lock. Blocks that are
 * locked, perhaps by the caller, stay.
 */
static void buffer_flush(struct dcm_vm *vm, struct dcm_buffer *b,
			 enum dcm_state s)
{
	struct dcm_fifo *f = fifo_of(vm, s);
	u32 i, kept = 0;

	spin_lock(&f->lock);
	for (i = 0; i < b->nr; i++) {
		u32 gfn = b->gfn[i];
		struct dcm_pd *pd = pd_of(vm, gfn);
		u32 w;

		if (!pd_trylock(pd)) {
			b->gfn[kept++] = gfn;
			continue;
		}
		w = pd_word(pd);
		if (pd_where(w) == DCM_W_BUFFER && pd_state(w) == s &&
		    !(gfn & ((1u << pd_order(w)) - 1))) {
			fifo_add_tail(vm, f, gfn, pd_order(w));
			pd_set_where(pd, DCM_W_QUEUE);
		}
		pd_unlock(pd);
	}
	b->nr = kept;
	spin_unlock(&f->lock);
}

static void inactive_add(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);

	pd_assign(pd, PD_WHERE_MASK | PD_LANE_MASK,
		  ((u32)DCM_W_QUEUE << PD_WHERE_SHIFT) |
			  lane->id << PD_LANE_SHIFT);
	spin_lock(&lane->inactive.lock);
	fifo_add_tail(vm, &lane->inactive, head, order);
	spin_unlock(&lane->inactive.lock);
	atomic64_add(1 << order, &vm->inactive_pages);
}

/**
 * dcm_queue_in() - put a block at the tail of the queue of its state
 * @lane: the lane whose buffers, or whose Inactive queue, it goes to
 * @head: locked, in no queue
 * @order: its size
 */
void dcm_queue_in(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	enum dcm_state s = pd_state(pd_word(pd));
	struct dcm_buffer *b;

	if (s == DCM_INACTIVE) {
		inactive_add(lane, head, order);
		return;
	}
	b = &lane->ins[s == DCM_PROACTIVE];
	spin_lock(&lane->buf_lock);
	if (b->nr == DCM_BUFFER_MAX)
		buffer_flush(vm, b, s);
	if (likely(b->nr < DCM_BUFFER_MAX)) {
		pd_set_where(pd, DCM_W_BUFFER);
		b->gfn[b->nr++] = head;
	} else {
		struct dcm_fifo *f = fifo_of(vm, s);

		pd_set_where(pd, DCM_W_QUEUE);
		spin_lock(&f->lock);
		fifo_add_tail(vm, f, head, order);
		spin_unlock(&f->lock);
	}
	spin_unlock(&lane->buf_lock);
}

/**
 * dcm_queue_out() - take a block out of whatever queue or buffer it is in
 * @vm: the VM
 * @head: locked
 * @order: its size
 */
void dcm_queue_out(struct dcm_vm *vm, u32 head, unsigned int order)
{
	struct dcm_pd *pd = pd_of(vm, head);
	u32 w = pd_word(pd);
	struct dcm_fifo *f;

	if (pd_where(w) == DCM_W_QUEUE) {
		if (pd_state(w) == DCM_INACTIVE) {
			f = &vm->lane[pd_lane(w)].inactive;
			atomic64_sub(1 << order, &vm->inactive_pages);
		} else {
			f = w & PD_KEPT ? &vm->kept : fifo_of(vm, pd_state(w));
		}
		spin_lock(&f->lock);
		fifo_del(vm, f, head, order);
		spin_unlock(&f->lock);
	}
	pd_assign(pd, PD_WHERE_MASK | PD_KEPT, 0);
}

/* Queue an Active or Inactive block as the next victim. Locked, unqueued. */
void dcm_queue_first(struct dcm_vm *vm, u32 head, unsigned int order)
{
	struct dcm_pd *pd = pd_of(vm, head);
	u32 w = pd_word(pd);
	struct dcm_fifo *f = &vm->active;

	if (pd_state(w) == DCM_INACTIVE) {
		f = &vm->lane[pd_lane(w)].inactive;
		atomic64_add(1 << order, &vm->inactive_pages);
	}
	pd_assign(pd, PD_WHERE_MASK | PD_AGAIN,
		  (u32)DCM_W_QUEUE << PD_WHERE_SHIFT);
	spin_lock(&f->lock);
	fifo_add_head(vm, f, head, order);
	spin_unlock(&f->lock);
}

/* Queue an Active block so that it is no victim. Locked, in no queue. */
void dcm_queue_keep(struct dcm_vm *vm, u32 head, unsigned int order)
{
	pd_assign(pd_of(vm, head), PD_WHERE_MASK | PD_KEPT,
		  ((u32)DCM_W_QUEUE << PD_WHERE_SHIFT) | PD_KEPT);
	spin_lock(&vm->kept.lock);
	fifo_add_tail(vm, &vm->kept, head, order);
	spin_unlock(&vm->kept.lock);
}

/* Lock the first old block that is free; under the fifo's lock. */
static u32 fifo_first_free(struct dcm_vm *vm, struct dcm_fifo *f)
{
	u32 gfn = f->head;
	unsigned int n;

	for (n = 0; gfn != DCM_NIL && n < POP_SCAN; n++) {
		struct dcm_pd *pd = pd_of(vm, gfn);

		if (pd_trylock(pd)) {
			if (!(pd_word(pd) & PD_BUSY))
				return gfn;
			pd_unlock(pd);
		}
		gfn = pd->next;
	}
	return DCM_NIL;
}

/*
 * An Inactive page that was re-referenced before goes to the end of its queue, once,
 * instead of out. Locked on entry; if true, not on return. Under the fifo's lock.
 */
static bool let_off(struct dcm_vm *vm, struct dcm_fifo *f, u32 gfn)
{
	struct dcm_pd *pd = pd_of(vm, gfn);
	u32 w = pd_word(pd);

	if (pd_state(w) != DCM_INACTIVE || !(w & PD_AGAIN) || pd_order(w))
		return false;
	fifo_del(vm, f, gfn, 0);
	fifo_add_tail(vm, f, gfn, 0);
	/* when it leaves, ghost.c sees PD_TOUCHED alone: it was re-referenced */
	pd_unlock_clear(pd, PD_AGAIN | PD_OBSERVED);
	return true;
}

/*
 * dcm_fifo_pop_locked() - take the oldest block that no lane works on
 *
 * Return: its head, locked and in no queue, or %DCM_NIL.
 */
u32 dcm_fifo_pop_locked(struct dcm_vm *vm, struct dcm_fifo *f)
{
	unsigned int n = 0;
	u32 gfn;

	if (!READ_ONCE(f->nr_blocks))
		return DCM_NIL;
	spin_lock(&f->lock);
	do {
		gfn = fifo_first_free(vm, f);
	} while (gfn != DCM_NIL && n++ < LET_OFF && let_off(vm, f, gfn));
	if (gfn != DCM_NIL) {
		u32 w = pd_word(pd_of(vm, gfn));

		fifo_del(vm, f, gfn, pd_order(w));
		if (pd_state(w) == DCM_INACTIVE)
			atomic64_sub(1 << pd_order(w), &vm->inactive_pages);
		pd_assign(pd_of(vm, gfn), PD_WHERE_MASK | PD_KEPT, 0);
	}
	spin_unlock(&f->lock);
	return gfn;
}

static u32 buffer_shift(struct dcm_buffer *b)
{
	u32 gfn = b->gfn[b->first++];

	if (b->first == b->nr) {
		b->first = 0;
		b->nr = 0;
	}
	return gfn;
}

static void buffer_pack(struct dcm_buffer *b)
{
	u32 i;

	for (i = b->first; i < b->nr; i++)
		b->gfn[i - b->first] = b->gfn[i];
	b->nr -= b->first;
	b->first = 0;
}

/* Put a block that was just taken behind the others. */
static void buffer_put_back(struct dcm_buffer *b, u32 gfn)
{
	if (b->nr == DCM_BUFFER_MAX)
		buffer_pack(b);
	b->gfn[b->nr++] = gfn;
}

static void victims_fill(struct dcm_lane *lane)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_fifo *f = &vm->active;
	struct dcm_buffer *b = &lane->victims;

	buffer_pack(b);
	spin_lock(&f->lock);
	while (b->nr < DCM_BUFFER_MAX) {
		u32 gfn = fifo_first_free(vm, f);

		if (gfn == DCM_NIL)
			break;
		fifo_del(vm, f, gfn, pd_order(pd_word(pd_of(vm, gfn))));
		pd_set_where(pd_of(vm, gfn), DCM_W_VICTIM);
		pd_unlock(pd_of(vm, gfn));
		b->gfn[b->nr++] = gfn;
	}
	spin_unlock(&f->lock);
}

/* Take a victim that is still one; locked, in no queue. */
static u32 victim_from(struct dcm_lane *from)
{
	struct dcm_vm *vm = from->vm;

	while (from->victims.nr) {
		u32 gfn = buffer_shift(&from->victims);
		struct dcm_pd *pd = pd_of(vm, gfn);
		u32 w;

		if (!pd_trylock(pd)) {
			/* busy for a moment: to the end of the buffer */
			buffer_put_back(&from->victims, gfn);
			return DCM_NIL;
		}
		w = pd_word(pd);
		if (pd_where(w) == DCM_W_VICTIM && pd_state(w) == DCM_ACTIVE &&
		    !(w & PD_BUSY) && !(gfn & ((1u << pd_order(w)) - 1))) {
			pd_set_where(pd, DCM_W_NONE);
			return gfn;
		}
		if (pd_where(w) == DCM_W_VICTIM && (w & PD_BUSY) &&
		    pd_state(w) == DCM_ACTIVE) {
			buffer_put_back(&from->victims, gfn);
			pd_unlock(pd);
			return DCM_NIL;
		}
		pd_unlock(pd);
	}
	return DCM_NIL;
}

/**
 * dcm_victim_take() - next block to be unmapped: the oldest of Active
 * @lane: whose victim buffer it comes from
 *
 * Refills the buffer from the shared queue when it is empty, and when that is
 * empty too, looks in other lanes' buffers. Insert buffers come last, the
 * caller's own after the others': it has the block that was just fetched, and
 * taking that before older ones would starve the access that needs it.
 *
 * Return: its head, locked and in no queue, or %DCM_NIL.
 */
u32 dcm_victim_take(struct dcm_lane *lane)
{
	struct dcm_vm *vm = lane->vm;
	u32 n = vm->nr_lanes, gfn, i;

	spin_lock(&lane->buf_lock);
	if (!lane->victims.nr)
		victims_fill(lane);
	gfn = victim_from(lane);
	spin_unlock(&lane->buf_lock);
	for (i = 1; gfn == DCM_NIL && i < n; i++) {
		struct dcm_lane *other = &vm->lane[(lane->id + i) % n];

		spin_lock(&other->buf_lock);
		gfn = victim_from(other);
		spin_unlock(&other->buf_lock);
	}
	if (gfn != DCM_NIL)
		return gfn;
	for (i = 1; i <= n; i++) {
		struct dcm_lane *other = &vm->lane[(lane->id + i) % n];

		spin_lock(&other->buf_lock);
		if (other->ins[0].nr)
			buffer_flush(vm, &other->ins[0], DCM_ACTIVE);
		spin_unlock(&other->buf_lock);
	}
	spin_lock(&lane->buf_lock);
	victims_fill(lane);
	gfn = victim_from(lane);
	spin_unlock(&lane->buf_lock);
	return gfn;
}

/* Move all insert buffers into their queues, to find the last blocks. */
void dcm_buffers_flush(struct dcm_vm *vm)
{
	u32 i;

	for (i = 0; i < vm->nr_lanes; i++) {
		struct dcm_lane *l = &vm->lane[i];

		spin_lock(&l->buf_lock);
		if (l->ins[0].nr)
			buffer_flush(vm, &l->ins[0], DCM_ACTIVE);
		if (l->ins[1].nr)
			buffer_flush(vm, &l->ins[1], DCM_PROACTIVE);
		spin_unlock(&l->buf_lock);
	}
}
