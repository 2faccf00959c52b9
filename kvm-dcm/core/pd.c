// SPDX-License-Identifier: GPL-2.0-only
/*
 * pd.c - block locks and state transitions
 *
 * The lock of a block is a bit in its head's descriptor. Which page is the
 * head depends on the block's size, and STRETCH and REDUCE change that while
 * other lanes wait: so lock the head that the size names, then check the size
 * (dcm-tc18, algorithm 3). STRETCH holds the locks of both halves and REDUCE
 * those of all members while sizes change, so a size read under the lock of
 * the head it names is valid.
 *
 * States (dcm-tc18, 3.2) and the moves between them:
 *
 *	          fetch                 demote               clean or zero
 *	NotDirect -----> Active -------------------> Inactive ----------> NotDirect
 *	                 |    ^ demote                |    \ dirty
 *	         epsilon v    |       re-reference    |     v    done
 *	                 Proactive <------------------+  Writeback -----> NotDirect
 *	                     ^          cancel               |
 *	                     +-------------------------------+ failed: Inactive
 *
 * Besides, a discard takes any mapped or Inactive block to NotDirect, and with
 * keep_clean off a clean Active one goes there as it is unmapped.
 */
#include "internal.h"

bool dcm_state_legal(enum dcm_state from, enum dcm_state to)
{
	return from < DCM_NR_STATES && to < DCM_NR_STATES &&
	       (dcm_from[to] & 1u << from);
}

/* Count a transition that the table does not allow; nothing is changed. */
bool dcm_state_illegal(struct dcm_lane *lane, u32 head, enum dcm_state from,
		       enum dcm_state to)
{
	dcm_count(lane, DCM_C_ILLEGAL, 1);
	atomic64_set(&lane->vm->illegal,
		     (s64)((u64)head << 8 | (u64)from << 4 | to));
	return false;
}

/**
 * dcm_block_lock() - LOCK_BLOCK, dcm-tc18 algorithm 3
 * @vm: the VM
 * @gfn: any page of the block
 * @order: out: the block's size
 *
 * Return: the head, locked.
 */
u32 dcm_block_lock(struct dcm_vm *vm, u32 gfn, unsigned int *order)
{
	struct dcm_pd *pd = pd_of(vm, gfn);

	for (;;) {
		unsigned int o = pd_order(pd_word(pd));
		u32 inside = gfn & ((1u << o) - 1);

		/* pd - inside is the head: a block's descriptors are adjacent. */
		pd_lock(pd - inside);
		if (likely(pd_order(pd_word(pd)) == o)) {
			*order = o;
			return gfn - inside;
		}
		pd_unlock(pd - inside);
	}
}

u16 dcm_block_flags(const struct dcm_pd *pd, unsigned int order, u32 flag)
{
	u16 m = 0;
	u32 i;

	for (i = 0; i < 1u << order; i++)
		if (pd_word(&pd[i]) & flag)
			m |= (u16)(1u << i);
	return m;
}

struct dcm_sets dcm_block_sets(const struct dcm_pd *pd, unsigned int order)
{
	u32 at = PD_AT, lost = 0, some = 0, i;

	for (i = 0; i < 1u << order; i++) {
		u32 w = pd_word(&pd[i]);

		lost |= w;
		if (w & PD_AT) {
			at &= w;
			some |= 1u << i;
		}
	}
	if (unlikely(lost & PD_LOST))
		at = 0;
	return (struct dcm_sets){ .some = (u16)some, .at = pd_at(at) };
}

/* Clear BUSY and unlock; wake the accesses that waited. */
void dcm_block_unbusy(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_pd *pd = pd_of(lane->vm, head);
	bool waiter = pd_word(pd) & PD_WAITER;

	pd_unlock_clear(pd, PD_BUSY | PD_WAITER);
	if (waiter)
		lane->vm->ops->wake(lane, head, 1u << order);
}

static char *put_str(char *p, char *end, const char *s)
{
	while (*s && p < end)
		*p++ = *s++;
	return p;
}

static char *put_num(char *p, char *end, u64 v)
{
	char tmp[20];
	unsigned int n = 0;

	do {
		tmp[n++] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	while (n && p < end)
		*p++ = tmp[--n];
	return p;
}

int dcm_pd_text(const struct dcm_vm *vm, u64 gfn, char *buf, unsigned int len)
{
	static const struct {
		u32 bit;
		const char *name;
	} flags[] = {
		{ PD_LOCK, " lock" },
		{ PD_BUSY, " busy" },
		{ PD_WAITER, " waiter" },
		{ 1u << PD_AT_SHIFT, " slot0" },
		{ 2u << PD_AT_SHIFT, " slot1" },
		{ 4u << PD_AT_SHIFT, " slot2" },
		{ PD_LOST, " lost" },
		{ PD_DIRTY, " dirty" },
		{ PD_TOUCHED, " touched" },
		{ PD_OBSERVED, " observed" },
		{ PD_INFLIGHT, " inflight" },
		{ PD_PREFETCHED, " prefetched" },
	};
	char *p = buf, *end = buf + len;
	enum dcm_state state;
	u32 w, head;
	unsigned int i;

	if (!len)
		return 0;
	end--;
	if (gfn >= vm->nr_pages) {
		p = put_str(p, end, "no such page");
		*p = 0;
		return (int)(p - buf);
	}
	w = pd_word(pd_of(vm, (u32)gfn));
	head = (u32)gfn & ~((1u << pd_order(w)) - 1);
	state = pd_state(pd_word(pd_of(vm, head)));
	p = put_str(p, end, "gfn ");
	p = put_num(p, end, gfn);
	p = put_str(p, end, " head ");
	p = put_num(p, end, head);
	p = put_str(p, end, " size ");
	p = put_num(p, end, 4u << pd_order(w));
	p = put_str(p, end, "K ");
	p = put_str(p, end, dcm_state_names[state % DCM_NR_STATES]);
	for (i = 0; i < ARRAY_SIZE(flags); i++)
		if (w & flags[i].bit)
			p = put_str(p, end, flags[i].name);
	if (w & PD_WROTE)
		p = put_str(p, end,
			    state == DCM_NOTDIRECT ? " wrote" : " again");
	*p = 0;
	return (int)(p - buf);
}
