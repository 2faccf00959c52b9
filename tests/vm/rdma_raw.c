// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rdma_raw.c - a queue pair that does what it is told, for tests of the donor
 *
 * Commands on standard input, one answer each on standard output:
 *
 *	connect ADDRESS PORT HEX	HEX: private data. "connected N", "rejected"
 *					or "failed WHY"
 *	read N RKEY OFFSET BYTES	"ok HEX", of what was read
 *	write N RKEY OFFSET HEX		"ok"
 *	add N RKEY OFFSET		an atomic operation
 *	send N				one that needs a receive
 *	close N
 *
 * An operation that fails is "error WHY". Nothing is checked here: what must
 * not be possible is tried.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAIRS 64
#define BUF 65536u

static struct pair {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
} pairs[PAIRS];

static uint8_t buf[BUF];

static size_t unhex(const char *s, uint8_t *to, size_t room)
{
	size_t n = 0;
	unsigned int v;

	while (n < room && sscanf(s, "%2x", &v) == 1) {
		to[n++] = (uint8_t)v;
		s += 2;
	}
	return n;
}

static void say(const char *what, const char *why)
{
	printf("%s%s%s\n", what, why ? " " : "", why ? why : "");
	fflush(stdout);
}

static void do_connect(const char *address, int port, const char *hex)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons((uint16_t)port) };
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	uint8_t data[56], ack = 14;
	struct rdma_conn_param param = { .private_data = data,
					 .initiator_depth = 4,
					 .retry_count = 3,
					 .rnr_retry_count = 1 };
	struct pair *p = pairs;
	char text[32];

	while (p->id)
		p++;
	param.private_data_len = (uint8_t)unhex(hex, data, sizeof(data));
	inet_pton(AF_INET, address, &sin.sin_addr);
	if (rdma_create_id(NULL, &p->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&sin, 2000) ||
	    rdma_resolve_route(p->id, 2000) ||
	    rdma_create_qp(p->id, NULL, &attr)) {
		say("failed", strerror(errno));
		goto end;
	}
	p->mr = ibv_reg_mr(p->id->pd, buf, BUF, IBV_ACCESS_LOCAL_WRITE);
	rdma_set_option(p->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack,
			sizeof(ack));
	if (!p->mr || rdma_connect(p->id, &param)) {
		if (errno == ECONNREFUSED)
			say("rejected", NULL);
		else
			say("failed", strerror(errno));
		goto end;
	}
	snprintf(text, sizeof(text), "%d", (int)(p - pairs));
	say("connected", text);
	return;
end:
	if (p->mr)
		ibv_dereg_mr(p->mr);
	if (p->id && p->id->qp)
		rdma_destroy_qp(p->id);
	if (p->id)
		rdma_destroy_id(p->id);
	memset(p, 0, sizeof(*p));
}

/* One operation, to its end. */
static const char *operate(struct pair *p, enum ibv_wr_opcode op, uint32_t rkey,
			   uint64_t offset, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = (uint64_t)buf,
			       .length = bytes,
			       .lkey = p->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = op,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	time_t end = time(NULL) + 20;
	struct ibv_wc wc;
	int n;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = offset;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = offset;
		wr.wr.rdma.rkey = rkey;
	}
	if (ibv_post_send(p->id->qp, &wr, &bad))
		return "not taken";
	while (!(n = ibv_poll_cq(p->id->send_cq, 1, &wc)))
		if (time(NULL) > end)
			return "no completion";
	if (n < 0)
		return "completion queue";
	return wc.status ? ibv_wc_status_str(wc.status) : NULL;
}

static void do_read(struct pair *p, uint32_t rkey, uint64_t at, uint32_t bytes)
{
	const char *why;
	uint32_t i;

	memset(buf, 0xee, sizeof(buf));
	why = operate(p, IBV_WR_RDMA_READ, rkey, at, bytes);
	if (why) {
		say("error", why);
		return;
	}
	printf("ok ");
	for (i = 0; i < bytes; i++)
		printf("%02x", buf[i]);
	say("", NULL);
}

static void answer(const char *why)
{
	if (why)
		say("error", why);
	else
		say("ok", NULL);
}

int main(void)
{
	static char line[2 * BUF + 128], hex[2 * BUF + 1], address[64];
	unsigned int n, rkey, bytes;
	unsigned long long at;
	int port;

	while (fgets(line, sizeof(line), stdin)) {
		hex[0] = 0;
		if (sscanf(line, "connect %63s %d %112s", address, &port,
			   hex) >= 2)
			do_connect(address, port, hex);
		else if (sscanf(line, "read %u %u %llu %u", &n, &rkey, &at,
				&bytes) == 4)
			do_read(&pairs[n], rkey, at, bytes);
		else if (sscanf(line, "write %u %u %llu %131072s", &n, &rkey,
				&at, hex) == 4)
			answer(operate(&pairs[n], IBV_WR_RDMA_WRITE, rkey, at,
				       (uint32_t)unhex(hex, buf, BUF)));
		else if (sscanf(line, "add %u %u %llu", &n, &rkey, &at) == 3)
			answer(operate(&pairs[n], IBV_WR_ATOMIC_FETCH_AND_ADD,
				       rkey, at, 8));
		else if (sscanf(line, "send %u", &n) == 1)
			answer(operate(&pairs[n], IBV_WR_SEND, 0, 0, 64));
		else if (sscanf(line, "close %u", &n) == 1) {
			rdma_disconnect(pairs[n].id);
			rdma_destroy_qp(pairs[n].id);
			ibv_dereg_mr(pairs[n].mr);
			rdma_destroy_id(pairs[n].id);
			memset(&pairs[n], 0, sizeof(pairs[n]));
			answer(NULL);
		} else {
			say("error", "what?");
		}
	}
	return 0;
}
