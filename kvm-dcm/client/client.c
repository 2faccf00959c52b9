// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * client.c - the control thread
 *
 * One thread, one poll() over an eventfd, the RDMA connection manager's events,
 * every donor's control connection and every data connection that is being
 * made. It lives in someone else's process (a VMM), so: no event library, no
 * signal handlers, all signals blocked, a small stack's worth of locals, and no
 * step that can take long but the owner's callbacks.
 *
 * Each round: read everything that has arrived, then what other threads want
 * (bitmap of extents, stack of slabs), then timers. Timers come last on
 * purpose: whether a donor is silent is only judged with nothing of it unread.
 *
 * Locking: all state is the control thread's; what other threads may touch is
 * atomic and listed in struct dcm_ctl; @lock guards only the status copy and
 * the wait for the first donor.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>

#include "client_int.h"
#include "../lib/inside.h"

u64 ctl_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

u64 ctl_now_ms(void)
{
	return ctl_now_ns() / 1000000u;
}

void ctl_kick(struct dcm_ctl *ctl)
{
	u64 one = 1;
	ssize_t n;

	/* a counter that is full wakes the thread just as well */
	n = write(ctl->event, &one, sizeof(one));
	(void)n;
}

/* Descriptors to poll; fds[2 + donor * (1 + lanes)] is the donor's control. */
static nfds_t fds_fill(struct dcm_ctl *ctl)
{
	struct pollfd *p = ctl->fds;
	u32 i, lane;

	*p++ = (struct pollfd){ .fd = ctl->event, .events = POLLIN };
	*p++ = (struct pollfd){ .fd = ctl_verbs_fd(ctl), .events = POLLIN };
	for (i = 0; i < ctl->nr_donors; i++) {
		struct ctl_donor *d = &ctl->donor[i];
		short ev = dcm_conn_events(&d->conn);

		*p++ = (struct pollfd){ .fd = ev ? d->conn.fd : -1,
					.events = ev };
		for (lane = 0; lane < ctl->nr_lanes; lane++) {
			struct dcm_conn *c = &d->slot[lane].conn;

			ev = dcm_conn_events(c);
			*p++ = (struct pollfd){ .fd = ev ? c->fd : -1,
						.events = ev };
		}
	}
	return (nfds_t)(p - ctl->fds);
}

static int timeout_ms(struct dcm_ctl *ctl, bool soon, u64 now)
{
	u64 t = CTL_TICK_MS;
	u32 i, lane;

	if (soon)
		return 1;
	for (i = 0; i < ctl->nr_donors; i++) {
		struct ctl_donor *d = &ctl->donor[i];

		if (d->st == SESSION_DOWN && d->member != MEMBER_NONE)
			t = min(t, d->retry_ms > now ? d->retry_ms - now : 0);
		for (lane = 0; d->want_data && d->st == SESSION_UP &&
			       lane < ctl->nr_lanes;
		     lane++) {
			struct ctl_lane_slot *s = &d->slot[lane];

			if (!s->live && s->conn.state == DCM_CONN_CLOSED &&
			    s->pair.st == PAIR_NONE)
				t = min(t, s->retry_ms > now ?
						   s->retry_ms - now :
						   0);
		}
	}
	if (ctl_place_ready(ctl))
		t = min(t, ctl->place_ms > now ? ctl->place_ms - now : 0);
	return (int)t;
}

static void *ctl_main(void *arg)
{
	struct dcm_ctl *ctl = arg;
	u64 now = ctl_now_ms(), before, count, published = 0;
	bool soon = false, populate = false;
	u32 i, lane, stride = 1 + ctl->nr_lanes;
	nfds_t nr;

	while (!__atomic_load_n(&ctl->stop, __ATOMIC_ACQUIRE)) {
		nr = fds_fill(ctl);
		if (poll(ctl->fds, nr,
			 populate ? 0 : timeout_ms(ctl, soon, now)) < 0)
			for (i = 0; i < nr; i++)
				ctl->fds[i].revents = 0;
		before = now;
		now = ctl_now_ms();
		for (i = 0; now - before > CTL_STALL_MS && i < ctl->nr_donors;
		     i++)
			ctl_donor_stalled(&ctl->donor[i], now - before);
		if (ctl->fds[0].revents &&
		    read(ctl->event, &count, sizeof(count)) < 0)
			count = 0;
		ctl_verbs_events(ctl, now);
		for (i = 0; i < ctl->nr_donors; i++) {
			struct ctl_donor *d = &ctl->donor[i];
			struct pollfd *p = &ctl->fds[2 + i * stride];

			ctl_donor_io(d, p->revents, now);
			for (lane = 0; lane < ctl->nr_lanes; lane++)
				ctl_data_io(d, lane, p[1 + lane].revents, now);
		}
		ctl_member_step(ctl, now);
		ctl_slabs_notes(ctl, now);
		ctl_place_wants(ctl);
		for (i = 0; i < ctl->nr_donors; i++) {
			ctl_member_timers(&ctl->donor[i]);
			ctl_donor_timers(&ctl->donor[i], now);
			ctl_data_timers(&ctl->donor[i], now);
		}
		ctl_place_step(ctl, now);
		soon = ctl_slabs_step(ctl, now);
		ctl_slabs_period(ctl, ctl_now_ns());
		/* a step takes well below a millisecond */
		populate = ctl_slabs_populate(ctl);
		if (now - published >= CTL_TICK_MS) {
			ctl_status_publish(ctl);
			published = now;
		}
	}
	return NULL;
}

static void ctl_free(struct dcm_ctl *ctl)
{
	u32 i;

	for (i = 0; ctl->donor && i < ctl->nr_donors; i++) {
		struct ctl_donor *d = &ctl->donor[i];

		if (d->slot)
			ctl_data_close(d);
		ctl_donor_exit(d);
		explicit_bzero(d->secret, sizeof(d->secret));
		free(d->slot);
	}
	ctl_slabs_free(ctl);
	ctl_verbs_exit(ctl);
	dcm_tls_exit(&ctl->tls);
	if (ctl->event >= 0)
		close(ctl->event);
	pthread_cond_destroy(&ctl->cond);
	pthread_mutex_destroy(&ctl->asking);
	pthread_mutex_destroy(&ctl->lock);
	free(ctl->donor);
	free(ctl->lane);
	free(ctl->fds);
	free(ctl->want);
	free(ctl->pending);
	free(ctl->placing);
	free(ctl->starved);
	free(ctl->scratch);
	free(ctl->cur);
	free(ctl);
}

/* All zero, and aligned for what no two threads shall share a line of. */
void *ctl_zalloc(size_t n, size_t size)
{
	size_t len = (n * size + 63) & ~(size_t)63;
	void *p = aligned_alloc(64, len);

	if (p)
		memset(p, 0, len);
	return p;
}

static int donors_init(struct dcm_ctl *ctl, const struct dcm_ctl_config *cfg)
{
	int ret;
	u32 i;

	for (i = 0; i < ctl->nr_donors; i++) {
		struct ctl_donor *d = &ctl->donor[i];

		d->ctl = ctl;
		d->member = MEMBER_IN;
		d->idx = i;
		ctl_donor_init(d);
		memcpy(d->name, cfg->donors[i].name, sizeof(d->name));
		memcpy(d->address, cfg->donors[i].address, sizeof(d->address));
		ret = ctl_address_resolve(d);
		if (!ret)
			ret = ctl_member_slots(d);
		if (ret)
			return ret;
	}
	return 0;
}

static bool config_valid(const struct dcm_ctl_config *cfg)
{
	return cfg->nr_donors <= DCM_CONFIG_DONORS_MAX && cfg->nr_lanes &&
	       cfg->nr_lanes <= DCM_CTL_LANES_MAX && cfg->size &&
	       cfg->size <= 1ull << 48 &&
	       (cfg->transport != DCM_TRANSPORT_VERBS ||
		!cfg->data_encryption) &&
	       (!cfg->extent || (cfg->extent >= DCM_WIRE_SLAB_MIN &&
				 !(cfg->extent & (cfg->extent - 1)))) &&
	       cfg->key_len >= DCM_WIRE_KEY_MIN &&
	       cfg->key_len <= DCM_WIRE_KEY_MAX && cfg->tenant[0] &&
	       strlen(cfg->tenant) <= DCM_WIRE_TENANT_MAX;
}

static int thread_start(struct dcm_ctl *ctl)
{
	int ret = dcm_thread_start(&ctl->thread, ctl_main, ctl);

	if (!ret)
		pthread_setname_np(ctl->thread, "dcm-ctl");
	return ret;
}

int dcm_ctl_start(const struct dcm_ctl_config *cfg,
		  const struct dcm_ctl_ops *cb, void *arg, struct dcm_ctl **out)
{
	pthread_condattr_t attr;
	struct dcm_ctl *ctl;
	size_t words;
	u64 unit;
	int ret;

	if (!config_valid(cfg)) {
		dcm_log(DCM_LOG_ERR, "control plane: bad configuration");
		return -EINVAL;
	}
	ctl = ctl_zalloc(1, sizeof(*ctl));
	if (!ctl)
		return -ENOMEM;
	ctl->cb = cb;
	ctl->arg = arg;
	ctl->event = -1;
	ctl->nr_lanes = cfg->nr_lanes;
	ctl->nr_donors = cfg->nr_donors;
	ctl->extent_bytes = cfg->extent;
	ctl->data_encryption = cfg->data_encryption;
	ctl->patience_ms = cfg->patience_ms ? cfg->patience_ms :
					      CTL_PATIENCE_MS;
	ctl->populate = !cfg->no_populate;
	ctl->transport = cfg->transport;
	ctl->area = cfg->area;
	ctl->area_bytes = cfg->area_bytes;
	ctl->links = cfg->links;
	ctl->wrap = cfg->wrap;
	ctl->wrap_arg = cfg->wrap_arg;
	ctl->start_ms = ctl_now_ms();
	ctl->rng = cfg->seed;
	while (!ctl->rng)
		if (getrandom(&ctl->rng, sizeof(ctl->rng), 0) < 0)
			ctl->rng = ctl_now_ns();
	pthread_mutex_init(&ctl->lock, NULL);
	pthread_mutex_init(&ctl->asking, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ctl->cond, &attr);
	pthread_condattr_destroy(&attr);

	unit = cfg->extent ? cfg->extent : DCM_WIRE_SLAB_MIN;
	ctl->nr_extents = (u32)((cfg->size + unit - 1) / unit);
	words = (ctl->nr_extents + 63) / 64;
	ctl->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	/* calloc(): pages of places that are never used stay away */
	ctl->donor = calloc(DCM_CONFIG_DONORS_MAX, sizeof(*ctl->donor));
	ctl->lane = ctl_zalloc(ctl->nr_lanes, sizeof(*ctl->lane));
	ctl->fds = calloc(2 + DCM_CONFIG_DONORS_MAX * (1 + ctl->nr_lanes),
			  sizeof(*ctl->fds));
	ctl->want = calloc(words, sizeof(u64));
	ctl->pending = calloc(words, sizeof(u64));
	ctl->placing = calloc(words, sizeof(u64));
	ctl->starved = calloc(words, sizeof(u64));
	ctl->scratch = calloc(words, sizeof(u64));
	ctl->cur = calloc(ctl->nr_extents, sizeof(*ctl->cur));
	ret = -ENOMEM;
	if (ctl->event < 0 || !ctl->donor || !ctl->lane || !ctl->fds ||
	    !ctl->want || !ctl->pending || !ctl->placing || !ctl->starved ||
	    !ctl->scratch || !ctl->cur)
		goto err;
	ret = ctl_verbs_init(ctl);
	if (!ret)
		ret = donors_init(ctl, cfg);
	if (ret)
		goto err;
	ret = dcm_tls_init(&ctl->tls, cfg->tenant, cfg->key, cfg->key_len);
	if (ret) {
		dcm_log(DCM_LOG_ERR, "TLS: %s", gnutls_strerror(ret));
		ret = -EINVAL;
		goto err;
	}
	if (cfg->adopt)
		cfg->adopt(arg, ctl);
	ctl_status_publish(ctl);
	ret = thread_start(ctl);
	if (ret)
		goto err;
	*out = ctl;
	return 0;
err:
	ctl_free(ctl);
	return ret;
}

/* Say GOODBYE everywhere and see it off. */
static void ctl_goodbye(struct dcm_ctl *ctl)
{
	u64 end = ctl_now_ms() + 1000;
	struct pollfd p;
	u32 i;

	for (i = 0; i < ctl->nr_donors; i++)
		ctl_donor_goodbye(&ctl->donor[i]);
	for (i = 0; i < ctl->nr_donors; i++) {
		struct dcm_conn *c = &ctl->donor[i].conn;

		while (c->state == DCM_CONN_OPEN && c->out_len &&
		       ctl_now_ms() < end) {
			p = (struct pollfd){ .fd = c->fd, .events = POLLOUT };
			poll(&p, 1, 10);
			dcm_conn_step(c);
		}
	}
}

void dcm_ctl_stop(struct dcm_ctl *ctl)
{
	__atomic_store_n(&ctl->stop, true, __ATOMIC_RELEASE);
	ctl_kick(ctl);
	pthread_join(ctl->thread, NULL);
	ctl_goodbye(ctl);
	ctl_free(ctl);
}

u64 dcm_ctl_extent_bytes(struct dcm_ctl *ctl, u32 timeout)
{
	struct timespec ts;
	u64 bytes = READ_ONCE(ctl->extent_bytes), end;

	if (bytes || !timeout)
		return bytes;
	end = ctl_now_ns() + (u64)timeout * 1000000u;
	ts.tv_sec = (time_t)(end / 1000000000u);
	ts.tv_nsec = (long)(end % 1000000000u);
	pthread_mutex_lock(&ctl->lock);
	while (!(bytes = READ_ONCE(ctl->extent_bytes)))
		if (pthread_cond_timedwait(&ctl->cond, &ctl->lock, &ts))
			break;
	pthread_mutex_unlock(&ctl->lock);
	return bytes;
}
