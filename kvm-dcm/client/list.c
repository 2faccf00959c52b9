// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * list.c - give back slabs that the donor has lent but the client does not know
 *
 * When the answer to a MAP is lost with its connection, the donor has lent a slab
 * that this client never heard of. The like happens when a connection takes with it
 * a DONE, or an UNMAP of a slab that has no record here any more. Such slabs would
 * stay lent until the session ends. So after each resume the donor is asked which slabs
 * the session has, and gets back those that are not known here.
 *
 *	LIST after 0 -> up to 64 SLAB_IS -> LIST after the last -> ... -> none left
 *
 * Answers come in the order of requests: a MAP that was sent after LIST is answered
 * before the next LIST is looked at, so its slab is known by then. A slab is given back
 * if it has no record here, or if its record says that it is lost.
 *
 * Bounds: one LIST is in flight; ids must ascend over all answers, so a donor can't
 * make it go on for ever with slabs that it does not have. The connection to a donor
 * that answers otherwise is closed.
 *
 * Locking: none, only the client thread uses it.
 */
#include "client_int.h"

/* Ask for slabs above @after; 0: from the beginning. */
void client_list_ask(struct client_donor *d, u64 after, u64 now)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_LIST,
		.tag = ++d->tag,
		.list.after = after,
	};

	d->list = (struct client_list){
		.tag = msg.tag,
		.last = after,
		.left = DCM_WIRE_LIST_MAX,
		.returned = after ? d->list.returned : 0,
	};
	client_donor_send(d, &msg, now);
}

/* The control connection is lost; the next resume asks again. */
void client_list_down(struct client_donor *d)
{
	d->list.tag = 0;
}

static void list_end(struct client_donor *d)
{
	d->list.tag = 0;
	if (d->list.returned)
		dcm_log(DCM_LOG_NOTICE,
			"donor %s (%s): had lent %u slab%s that nobody here knows: given back",
			d->name, d->address, d->list.returned,
			d->list.returned > 1 ? "s" : "");
}

/* SLAB_IS; false: it is no answer to LIST. */
bool client_list_answer(struct client_donor *d, const struct dcm_wire_msg *m,
			u64 now)
{
	struct client_list *l = &d->list;
	bool more = m->slab_is.flags & DCM_SLAB_IS_MORE;

	if (!l->tag || m->tag != l->tag)
		return false;
	if (!m->slab_is.slab) {
		/* "no slab": allowed only as the whole answer */
		if (l->left != DCM_WIRE_LIST_MAX)
			return false;
		list_end(d);
		return true;
	}
	if (m->slab_is.slab <= l->last)
		return false;
	l->last = m->slab_is.slab;
	l->left--;
	if (!client_slab_known(d, l->last)) {
		client_slab_refuse(d, l->last, now);
		l->returned++;
	}
	if (!more)
		list_end(d);
	else if (!l->left)
		client_list_ask(d, l->last, now);
	return true;
}
