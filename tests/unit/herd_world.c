// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * herd_world.c - VMs with the real placement of client/, on simulated donors
 *
 * See herd_world.h. Defines what donor.c and placement.c of client/ call of its
 * other files: the clock, connections, slabs. A message waits in a queue of its
 * direction until its time has come. In each step donors read and answer, then
 * each VM has one round of its client thread, beginning with a random VM.
 *
 * Locking: none, there is one thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "herd_world.h"

#define SLAB (1ull << 30)
#define STEP 500u

struct herd_world herd;

u64 herd_random(u64 n)
{
	return (dcm_choose_random(&herd.rng) >> 16) % n;
}

/* ---- the world below client/donor.c ---- */

u64 client_now_ns(void)
{
	return herd.now * 1000;
}

u64 client_now_ms(void)
{
	return herd.now / HERD_MS;
}

void client_kick(struct dcm_client *client)
{
	(void)client;
}

static struct herd_line *line_of(struct dcm_conn *c)
{
	struct client_donor *d =
		(void *)((char *)c - offsetof(struct client_donor, conn));
	struct herd_vm *vm =
		(void *)((char *)d->client - offsetof(struct herd_vm, client));

	return &vm->line[d->idx];
}

static void way_put(struct herd_way *way, const struct dcm_wire_msg *m,
		    const struct herd_donor *fd)
{
	u64 due = herd.now + fd->one_way +
		  (fd->jitter ? herd_random(fd->jitter) : 0);

	assert_true(way->tail - way->head < HERD_QUEUE);
	if (way->tail != way->head)
		due = max(due, way->due[(way->tail - 1) % HERD_QUEUE]);
	way->msg[way->tail % HERD_QUEUE] = *m;
	way->due[way->tail++ % HERD_QUEUE] = due;
}

static bool way_take(struct herd_way *way, struct dcm_wire_msg *m)
{
	if (way->head == way->tail ||
	    way->due[way->head % HERD_QUEUE] > herd.now)
		return false;
	*m = way->msg[way->head++ % HERD_QUEUE];
	return true;
}

void dcm_conn_start(struct dcm_conn *c, struct dcm_tls *tls,
		    const struct sockaddr *sa, socklen_t len, u64 now_ms)
{
	struct herd_line *l = line_of(c);

	(void)tls, (void)sa, (void)len;
	memset(l, 0, sizeof(*l));
	c->state = DCM_CONN_OPEN;
	c->since_ms = now_ms;
}

void dcm_conn_step(struct dcm_conn *c)
{
	(void)c;
}

void dcm_conn_send(struct dcm_conn *c, const struct dcm_wire_msg *m)
{
	struct herd_line *l = line_of(c);
	struct client_donor *d =
		(void *)((char *)c - offsetof(struct client_donor, conn));

	if (c->state == DCM_CONN_OPEN)
		way_put(&l->out, m, &herd.donor[d->idx]);
}

bool dcm_conn_recv(struct dcm_conn *c, struct dcm_wire_msg *m)
{
	return c->state == DCM_CONN_OPEN && way_take(&line_of(c)->in, m);
}

int dcm_conn_take_fd(struct dcm_conn *c)
{
	(void)c;
	return -1;
}

void dcm_conn_fail(struct dcm_conn *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	c->state = DCM_CONN_FAILED;
}

void dcm_conn_close(struct dcm_conn *c)
{
	c->state = DCM_CONN_CLOSED;
}

/* ---- functions that the client calls ---- */

int dcm_conn_hold(struct dcm_conn *c)
{
	dcm_conn_close(c);
	return -1;
}

void client_donor_relieve(struct client_donor *d, bool orphans, u64 now)
{
	(void)d, (void)orphans, (void)now;
}

void client_donor_gone(struct client_donor *d, const char *why)
{
	client_donor_lost(d, why);
}

void client_orphans_resumed(struct client_donor *d)
{
	(void)d;
}

void client_member_slab_leave(struct dcm_client_slab *s)
{
	(void)s;
	fail(); /* nobody changes copies here */
}

void client_data_kill(struct client_donor *d)
{
	(void)d;
}

void client_verbs_welcome(struct client_donor *d, bool offered, bool resume)
{
	(void)d, (void)offered, (void)resume;
}

void client_verbs_lost(struct client_donor *d, u64 now)
{
	(void)d, (void)now;
}

void client_verbs_down(struct client_donor *d)
{
	(void)d;
}

bool client_verbs_ticket(struct client_donor *d, const struct dcm_wire_msg *m,
			 u64 now)
{
	(void)d, (void)m, (void)now;
	return false;
}

void client_verbs_refused(struct client_lane_slot *s, u32 status, u64 now)
{
	(void)s, (void)status, (void)now;
}

void client_slab_attach(struct client_donor *d, u32 extent,
			const struct dcm_wire_msg *m, int fd, u64 now)
{
	struct herd_vm *vm =
		(void *)((char *)d->client - offsetof(struct herd_vm, client));

	(void)m, (void)fd, (void)now;
	d->load.mine++;
	/* no real slab: placement only looks whether there is one */
	assert_false(vm->has[extent]);
	vm->has[extent] = true;
	vm->on[d->idx]++;
	vm->attached++;
	client_place_done(d->client, extent);
}

u32 client_slab_members(const struct dcm_client *client, u32 extent)
{
	const struct herd_vm *vm =
		(const void *)((const char *)client -
			       offsetof(struct herd_vm, client));

	return vm->has[extent];
}

bool client_slab_known(struct client_donor *d, u64 id)
{
	(void)d;
	(void)id;
	return true;
}

void client_slab_refuse(struct client_donor *d, u64 id, u64 now)
{
	struct dcm_wire_msg m = { .type = DCM_MSG_UNMAP, .tag = ++d->tag };

	m.slab.slab = id;
	client_donor_send(d, &m, now);
}

void client_slab_evict(struct client_donor *d, u64 id, u64 tag, u64 now)
{
	(void)d, (void)id, (void)tag, (void)now;
}

void client_slab_activity(struct client_donor *d, u64 id, u64 tag, u64 now)
{
	(void)d, (void)id, (void)tag, (void)now;
}

void client_slab_unmapped(struct dcm_client_slab *s)
{
	(void)s;
}

void client_slab_taken(struct client_donor *d, u64 id)
{
	(void)d, (void)id;
}

void client_slabs_lost(struct client_donor *d, const char *why)
{
	(void)d, (void)why;
}

void client_slabs_resumed(struct client_donor *d)
{
	(void)d;
}

static void on_starved(void *arg, u32 extent)
{
	struct herd_vm *vm = arg;

	(void)extent;
	vm->nr_starved++;
}

/* ---- donors ---- */

static void donor_answer(struct herd_donor *fd, struct herd_line *l,
			 const struct dcm_wire_msg *m)
{
	struct dcm_wire_msg r = { .tag = m->tag };

	switch (m->type) {
	case DCM_MSG_HELLO:
		l->welcomed = true;
		r.type = DCM_MSG_WELCOME;
		r.welcome.version = DCM_WIRE_VERSION_MAX;
		r.welcome.inflight_max = 64;
		r.welcome.session = 1;
		r.welcome.slab_bytes = SLAB;
		r.welcome.donor_id = (u64)(fd - herd.donor) + 1;
		break;
	case DCM_MSG_QUERY_MEM:
		r.type = DCM_MSG_FREE_MEM;
		r.free_mem.slabs_total = fd->total;
		r.free_mem.slabs_free = fd->total - fd->used;
		r.free_mem.slab_bytes = SLAB;
		r.free_mem.used_bytes = fd->used * SLAB;
		break;
	case DCM_MSG_MAP:
		if (fd->used == fd->total) {
			r.type = DCM_MSG_ERROR;
			r.error.status = DCM_WS_NO_MEMORY;
			break;
		}
		fd->used++;
		r.type = DCM_MSG_MR_INFO;
		r.mr_info.slab = ++herd.slab_id;
		r.mr_info.bytes = SLAB;
		r.mr_info.transport = DCM_WT_TCP;
		break;
	case DCM_MSG_UNMAP:
		fd->used--;
		r.type = DCM_MSG_DONE;
		break;
	default:
		return;
	}
	way_put(&l->in, &r, fd);
}

static void donors_step(void)
{
	static const struct dcm_wire_msg beat = { .type = DCM_MSG_HEARTBEAT };
	struct dcm_wire_msg m;
	u32 i, v, o = (u32)herd_random(herd.nr_vms);

	for (i = 0; i < herd.nr_donors; i++) {
		struct herd_donor *fd = &herd.donor[i];
		bool tick = herd.now >= fd->beat;

		if (fd->deaf)
			continue;
		if (tick)
			fd->beat = herd.now + 1000 * HERD_MS;
		for (v = 0; v < herd.nr_vms; v++) {
			struct herd_vm *vm = &herd.vm[(v + o) % herd.nr_vms];

			while (way_take(&vm->line[i].out, &m))
				donor_answer(fd, &vm->line[i], &m);
			if (tick && vm->line[i].welcomed)
				way_put(&vm->line[i].in, &beat, fd);
		}
	}
}

/* ---- VMs ---- */

/* A round of the client thread, as client_main() goes. */
static void vm_step(struct herd_vm *vm)
{
	struct dcm_client *client = &vm->client;
	u64 now = client_now_ms();
	u32 i;

	for (i = 0; i < client->nr_donors; i++)
		client_donor_io(&client->donor[i], POLLIN, now);
	client_place_wants(client);
	for (i = 0; i < client->nr_donors; i++)
		client_donor_timers(&client->donor[i], now);
	client_place_step(client, now);
}

static const struct dcm_client_ops ops = { .starved = on_starved };

void herd_init(u64 seed, u32 nr_donors, u32 nr_vms)
{
	u32 v, i;

	herd.rng = seed;
	herd.now = 1000000 * HERD_MS;
	herd.nr_donors = nr_donors;
	herd.nr_vms = nr_vms;
	herd.slab_id = 0;
	memset(herd.donor, 0, sizeof(herd.donor));
	herd.vm = calloc(nr_vms, sizeof(*herd.vm));
	assert_non_null(herd.vm);
	for (i = 0; i < nr_donors; i++)
		herd.donor[i] = (struct herd_donor){
			.total = 512,
			.one_way = 50,
			.jitter = 200,
			.beat = herd.now + herd_random(1000) * HERD_MS,
		};
	for (v = 0; v < nr_vms; v++) {
		struct herd_vm *vm = &herd.vm[v];
		struct dcm_client *client = &vm->client;

		client->cb = &ops;
		client->arg = vm;
		client->nr_donors = nr_donors;
		client->nr_extents = HERD_EXTENTS;
		client->extent_bytes = SLAB;
		client->patience_ms = CLIENT_PATIENCE_MS;
		client->start_ms = client_now_ms();
		client->rng = dcm_choose_random(&herd.rng);
		client->want = vm->want;
		client->pending = vm->pending;
		client->placing = vm->placing;
		client->starved = vm->starved;
		client->of_extent = vm->of_extent;
		client->copies = 1;
		client->donor = calloc(nr_donors, sizeof(*client->donor));
		assert_non_null(client->donor);
		pthread_mutex_init(&client->lock, NULL);
		pthread_cond_init(&client->cond, NULL);
		for (i = 0; i < nr_donors; i++) {
			struct client_donor *d = &client->donor[i];

			d->client = client;
			d->idx = i;
			d->member = MEMBER_IN;
			memset(d->held, -1, sizeof(d->held));
			snprintf(d->name, sizeof(d->name), "d%u", i);
		}
	}
}

void herd_free(void)
{
	u32 v;

	for (v = 0; v < herd.nr_vms; v++) {
		pthread_mutex_destroy(&herd.vm[v].client.lock);
		pthread_cond_destroy(&herd.vm[v].client.cond);
		free(herd.vm[v].client.donor);
	}
	free(herd.vm);
}

void herd_step(void)
{
	u32 v, o = (u32)herd_random(herd.nr_vms);

	herd.now += STEP;
	donors_step();
	for (v = 0; v < herd.nr_vms; v++)
		vm_step(&herd.vm[(v + o) % herd.nr_vms]);
}

void herd_run(u64 us)
{
	u64 end = herd.now + us;

	while (herd.now < end)
		herd_step();
}
