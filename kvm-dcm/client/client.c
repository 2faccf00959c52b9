// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * client.c - the client thread
 *
 * One thread, one poll() over an eventfd, the RDMA connection manager's events,
 * every donor's control connection and every data connection that is being
 * made. It runs in a program's process (a VMM), so: no event library, no signal
 * handlers, all signals blocked, little stack, and no step that can take long
 * but the callbacks.
 *
 * Each round: read everything that has arrived, then handle other threads'
 * requests (bitmap of extents, stack of slabs), then timers. Timers come last,
 * so that a donor is judged silent only after all its messages have been read.
 *
 * Locking: all state is the client thread's. Members that other threads may touch are
 * atomic and listed in struct dcm_client; @lock guards only the status copy and
 * the wait for the first donor.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>

#include "client_int.h"
#include "../lib/clock.h"
#include "../lib/thread.h"

u64 client_now_ns(void)
{
	return dcm_clock_ns();
}

u64 client_now_ms(void)
{
	return client_now_ns() / 1000000u;
}

void client_kick(struct dcm_client *client)
{
	u64 one = 1;
	ssize_t n;

	/* ignore EAGAIN: the counter is full, and that wakes the thread as well */
	n = write(client->event, &one, sizeof(one));
	(void)n;
}

/* Descriptors to poll; fds[2 + donor * (1 + lanes)] is a control connection. */
static nfds_t fds_fill(struct dcm_client *client)
{
	struct pollfd *p = client->fds;
	u32 i, lane;

	*p++ = (struct pollfd){ .fd = client->event, .events = POLLIN };
	*p++ = (struct pollfd){ .fd = client_verbs_fd(client),
				.events = POLLIN };
	for (i = 0; i < client->nr_donors; i++) {
		struct client_donor *d = &client->donor[i];
		short ev = dcm_conn_events(&d->conn);

		*p++ = (struct pollfd){ .fd = ev ? d->conn.fd : -1,
					.events = ev };
		for (lane = 0; lane < client->nr_lanes; lane++) {
			struct dcm_conn *c = &d->slot[lane].conn;

			ev = dcm_conn_events(c);
			*p++ = (struct pollfd){ .fd = ev ? c->fd : -1,
						.events = ev };
		}
	}
	return (nfds_t)(p - client->fds);
}

static int timeout_ms(struct dcm_client *client, bool soon, u64 now)
{
	u64 t = CLIENT_TICK_MS;
	u32 i, lane;

	if (soon)
		return 1;
	for (i = 0; i < client->nr_donors; i++) {
		struct client_donor *d = &client->donor[i];

		if (d->st == SESSION_DOWN && d->member != MEMBER_NONE)
			t = min(t, d->retry_ms > now ? d->retry_ms - now : 0);
		for (lane = 0; d->want_data && d->st == SESSION_UP &&
			       lane < client->nr_lanes;
		     lane++) {
			struct client_lane_slot *s = &d->slot[lane];

			if (!s->live && s->conn.state == DCM_CONN_CLOSED &&
			    s->pair.st == PAIR_NONE)
				t = min(t, s->retry_ms > now ?
						   s->retry_ms - now :
						   0);
		}
	}
	if (client_place_ready(client))
		t = min(t, client->place_ms > now ? client->place_ms - now : 0);
	return (int)t;
}

static void *client_main(void *arg)
{
	struct dcm_client *client = arg;
	u64 now = client_now_ms(), before, count, published = 0;
	bool soon = false, populate = false;
	u32 i, lane, stride = 1 + client->nr_lanes;
	nfds_t nr;

	while (!smp_load_acquire(&client->stop)) {
		nr = fds_fill(client);
		if (poll(client->fds, nr,
			 populate ? 0 : timeout_ms(client, soon, now)) < 0)
			for (i = 0; i < nr; i++)
				client->fds[i].revents = 0;
		before = now;
		now = client_now_ms();
		for (i = 0;
		     now - before > CLIENT_STALL_MS && i < client->nr_donors;
		     i++)
			client_donor_stalled(&client->donor[i], now - before);
		if (client->fds[0].revents &&
		    read(client->event, &count, sizeof(count)) < 0)
			count = 0;
		client_verbs_events(client, now);
		for (i = 0; i < client->nr_donors; i++) {
			struct client_donor *d = &client->donor[i];
			struct pollfd *p = &client->fds[2 + i * stride];

			client_donor_io(d, p->revents, now);
			for (lane = 0; lane < client->nr_lanes; lane++)
				client_data_io(d, lane, p[1 + lane].revents,
					       now);
		}
		client_member_step(client, now);
		client_slabs_notes(client, now);
		client_place_wants(client);
		for (i = 0; i < client->nr_donors; i++) {
			client_member_timers(&client->donor[i]);
			client_donor_timers(&client->donor[i], now);
			client_data_timers(&client->donor[i], now);
		}
		client_place_step(client, now);
		soon = client_slabs_step(client, now);
		client_slabs_period(client, client_now_ns());
		/* one step, which takes well below a millisecond */
		populate = client_slabs_populate(client);
		if (now - published >= CLIENT_TICK_MS) {
			client_status_publish(client);
			published = now;
		}
	}
	return NULL;
}

static void client_free(struct dcm_client *client)
{
	u32 i;

	for (i = 0; client->donor && i < client->nr_donors; i++) {
		struct client_donor *d = &client->donor[i];

		if (d->slot)
			client_data_close(d);
		client_donor_exit(d);
		explicit_bzero(d->secret, sizeof(d->secret));
		free(d->slot);
	}
	client_slabs_free(client);
	client_verbs_exit(client);
	dcm_tls_exit(&client->tls);
	if (client->event >= 0)
		close(client->event);
	pthread_cond_destroy(&client->cond);
	pthread_mutex_destroy(&client->asking);
	pthread_mutex_destroy(&client->lock);
	free(client->donor);
	free(client->lane);
	free(client->fds);
	free(client->want);
	free(client->pending);
	free(client->placing);
	free(client->starved);
	free(client->scratch);
	free(client->of_extent);
	free(client);
}

/* Zeroed memory that shares no cache line with other allocations. */
void *client_zalloc(size_t n, size_t size)
{
	size_t len = (n * size + 63) & ~(size_t)63;
	void *p = aligned_alloc(64, len);

	if (p)
		memset(p, 0, len);
	return p;
}

static int donors_init(struct dcm_client *client,
		       const struct dcm_client_config *cfg)
{
	int ret;
	u32 i;

	for (i = 0; i < client->nr_donors; i++) {
		struct client_donor *d = &client->donor[i];

		d->client = client;
		d->member = MEMBER_IN;
		d->idx = i;
		client_donor_init(d);
		memcpy(d->name, cfg->donors[i].name, sizeof(d->name));
		memcpy(d->address, cfg->donors[i].address, sizeof(d->address));
		memcpy(d->group, cfg->donors[i].group, sizeof(d->group));
		ret = client_address_resolve(d);
		if (!ret)
			ret = client_member_slots(d);
		if (ret)
			return ret;
	}
	return 0;
}

static bool config_valid(const struct dcm_client_config *cfg)
{
	return cfg->nr_donors <= DCM_CONFIG_DONORS_MAX && cfg->nr_lanes &&
	       cfg->nr_lanes <= DCM_CLIENT_LANES_MAX && cfg->size &&
	       cfg->size <= 1ull << 48 &&
	       (cfg->transport != DCM_TRANSPORT_VERBS ||
		!cfg->data_encryption) &&
	       cfg->redundancy < DCM_REDUNDANCY_NR &&
	       (!cfg->extent || (cfg->extent >= DCM_WIRE_SLAB_MIN &&
				 cfg->extent <= DCM_WIRE_SLAB_MAX &&
				 !(cfg->extent & (cfg->extent - 1)))) &&
	       cfg->key_len >= DCM_WIRE_KEY_MIN &&
	       cfg->key_len <= DCM_WIRE_KEY_MAX && cfg->tenant[0] &&
	       strlen(cfg->tenant) <= DCM_WIRE_TENANT_MAX;
}

static int thread_start(struct dcm_client *client)
{
	int ret = dcm_thread_start(&client->thread, client_main, client);

	if (!ret)
		pthread_setname_np(client->thread, "dcm-client");
	return ret;
}

int dcm_client_start(const struct dcm_client_config *cfg,
		     const struct dcm_client_ops *cb, void *arg,
		     struct dcm_client **out)
{
	pthread_condattr_t attr;
	struct dcm_client *client;
	size_t words;
	u64 unit;
	int ret;

	if (!config_valid(cfg)) {
		dcm_log(DCM_LOG_ERR,
			"the client's configuration is invalid: please report this");
		return -EINVAL;
	}
	client = client_zalloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->cb = cb;
	client->arg = arg;
	client->event = -1;
	client->nr_lanes = cfg->nr_lanes;
	client->nr_donors = cfg->nr_donors;
	client->extent_bytes = cfg->extent;
	client->copies = dcm_redundancies[cfg->redundancy].copies;
	client->files = dcm_redundancies[cfg->redundancy].files;
	client->scatter = cfg->scatter;
	client->cold_s =
		(cfg->cold_after_ms ? cfg->cold_after_ms : CLIENT_COLD_MS) /
		1000;
	client->data_encryption = cfg->data_encryption;
	client->patience_ms = cfg->patience_ms ? cfg->patience_ms :
						 CLIENT_PATIENCE_MS;
	client->populate = !cfg->no_populate;
	client->no_map = cfg->no_map;
	client->transport = cfg->transport;
	client->area = cfg->area;
	client->area_bytes = cfg->area_bytes;
	client->links = cfg->links;
	client->wrap = cfg->wrap;
	client->wrap_arg = cfg->wrap_arg;
	client->start_ms = client_now_ms();
	client->rng = cfg->seed;
	while (!client->rng)
		if (getrandom(&client->rng, sizeof(client->rng), 0) < 0)
			client->rng = client_now_ns();
	pthread_mutex_init(&client->lock, NULL);
	pthread_mutex_init(&client->asking, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&client->cond, &attr);
	pthread_condattr_destroy(&attr);

	unit = cfg->extent ? cfg->extent : DCM_WIRE_SLAB_MIN;
	client->nr_extents = (u32)((cfg->size + unit - 1) / unit);
	words = (client->nr_extents + 63) / 64;
	client->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	/* calloc(): places that are never used take no memory */
	client->donor = calloc(DCM_CONFIG_DONORS_MAX, sizeof(*client->donor));
	client->lane = client_zalloc(client->nr_lanes, sizeof(*client->lane));
	client->fds = calloc(2 + DCM_CONFIG_DONORS_MAX * (1 + client->nr_lanes),
			     sizeof(*client->fds));
	client->want = calloc(words, sizeof(u64));
	client->pending = calloc(words, sizeof(u64));
	client->placing = calloc(words, sizeof(u64));
	client->starved = calloc(words, sizeof(u64));
	client->scratch = calloc(words, sizeof(u64));
	client->of_extent =
		calloc(client->nr_extents, sizeof(*client->of_extent));
	ret = -ENOMEM;
	if (client->event < 0 || !client->donor || !client->lane ||
	    !client->fds || !client->want || !client->pending ||
	    !client->placing || !client->starved || !client->scratch ||
	    !client->of_extent)
		goto err;
	ret = client_verbs_init(client);
	if (!ret)
		ret = donors_init(client, cfg);
	if (ret)
		goto err;
	ret = dcm_tls_init(&client->tls, cfg->tenant, cfg->key, cfg->key_len);
	if (ret) {
		dcm_log(DCM_LOG_ERR, "tenant %s: TLS can't be set up: %s",
			cfg->tenant, gnutls_strerror(ret));
		ret = -EINVAL;
		goto err;
	}
	if (cfg->adopt)
		cfg->adopt(arg, client);
	client_status_publish(client);
	ret = thread_start(client);
	if (ret)
		goto err;
	*out = client;
	return 0;
err:
	client_free(client);
	return ret;
}

/* Send GOODBYE to all donors, and wait up to a second for it to leave. */
static void client_goodbye(struct dcm_client *client)
{
	u64 end = client_now_ms() + 1000;
	struct pollfd p;
	u32 i;

	for (i = 0; i < client->nr_donors; i++)
		client_donor_goodbye(&client->donor[i]);
	for (i = 0; i < client->nr_donors; i++) {
		struct dcm_conn *c = &client->donor[i].conn;

		while (c->state == DCM_CONN_OPEN && c->out_len &&
		       client_now_ms() < end) {
			p = (struct pollfd){ .fd = c->fd, .events = POLLOUT };
			poll(&p, 1, 10);
			dcm_conn_step(c);
		}
	}
}

void dcm_client_stop(struct dcm_client *client)
{
	smp_store_release(&client->stop, true);
	client_kick(client);
	pthread_join(client->thread, NULL);
	client_goodbye(client);
	client_free(client);
}

u64 dcm_client_extent_bytes(struct dcm_client *client, u32 timeout)
{
	struct timespec ts;
	u64 bytes = READ_ONCE(client->extent_bytes), end;

	if (bytes || !timeout)
		return bytes;
	end = client_now_ns() + (u64)timeout * 1000000u;
	ts.tv_sec = (time_t)(end / 1000000000u);
	ts.tv_nsec = (long)(end % 1000000000u);
	pthread_mutex_lock(&client->lock);
	while (!(bytes = READ_ONCE(client->extent_bytes)))
		if (pthread_cond_timedwait(&client->cond, &client->lock, &ts))
			break;
	pthread_mutex_unlock(&client->lock);
	return bytes;
}
