// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rdma_ping.c - ping the queue pairs of hosts that are silent
 *
 * A one-sided operation leaves no trace in this process. A VM of the kernel pager
 * uses its memory over RDMA alone while dcm-hostd is not running, and would look dead.
 * So a session that is silent, but has a queue pair, is sent a ping over it: a WRITE of
 * zero bytes, which needs neither memory nor a key at the other end, and which the
 * host's device acknowledges.
 *
 *	quiet -> asked, PING_MS after the last sign of life -> answered: quiet
 *	              '-> failed: the queue pair is closed
 *
 * An answer shows that the process, or the VM, that made the queue pair has not
 * ended: the session goes on. It does not show that anyone there works, so the
 * session counts as silent all the same, and its slabs are asked back first. The
 * device of a machine whose kernel has hung may answer too.
 *
 * A session has one WRITE in flight at a time: its completion queue has one place. A
 * completion that a closed queue pair has left there is taken out before the next
 * WRITE.
 *
 * On the event loop.
 */
#include "log_limit.h"
#include "rdma_int.h"

#define PING_MS 1000u

static void on_answer(struct dcm_session *s, enum ibv_wc_status status)
{
	struct rdma_conn *c = s->pd->asked;

	s->pd->asked = NULL;
	if (!c)
		return;
	if (status == IBV_WC_SUCCESS) {
		s->answered_at = dcm_now(s->donor);
		return;
	}
	if (status == IBV_WC_RETRY_EXC_ERR)
		WRITE_ONCE(s->cut, true);
	dcm_rdma_conn_close(c, ibv_wc_status_str(status));
}

static void session_ask(struct dcm_session *s)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;
	struct rdma_conn *c;

	dcm_list_for_each(c, &s->rdma, struct rdma_conn, session_node) {
		if (!c->open)
			continue;
		if (ibv_post_send(c->id->qp, &wr, &bad))
			dcm_rdma_conn_close(c, "it takes no WRITE");
		else
			s->pd->asked = c;
		return;
	}
}

void dcm_rdma_pings(struct dcm_donor *donor)
{
	u64 now = dcm_now(donor), last;
	struct dcm_session *s;
	struct ibv_wc wc;

	dcm_list_for_each(s, &donor->sessions, struct dcm_session, node) {
		if (!s->pd || s->pd->dead)
			continue;
		while (ibv_poll_cq(s->pd->cq, 1, &wc) > 0)
			on_answer(s, wc.status);
		last = max(READ_ONCE(s->heard_at), s->answered_at);
		if (!s->pd->asked && now >= last + PING_MS)
			session_ask(s);
	}
}
