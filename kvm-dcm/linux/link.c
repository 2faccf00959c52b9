// SPDX-License-Identifier: GPL-2.0-only
/*
 * link.c - a lane's I/O: on a slab of this host, or over its link to a donor
 *
 * A link is a lane's connection to one donor (tcp.c, verbs.c), made by the
 * control plane and passed in. Each lane has its own to each donor, so that
 * lanes share nothing (dcm-tc18, 3.4); transport.h describes endpoints.
 *
 *	none -> connecting -> up -> dead -> none
 *
 * A link that dies completes all that was in flight with an error, and the core
 * tries again until there is a new link or the slab is declared lost. The VM's
 * thread removes a dead link.
 *
 * I/O on a slab of this host is complete when post() returns; poll() only
 * returns it.
 *
 * Locking: a lane's links and its list of complete I/Os belong to the lane.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/poll.h>

#include "compat.h"
#include "dcmfs.h"
#include "jitter.h"

/* Allocate the frames that a fetch's READ lands in; the guest gets them as they are. */
static int landing_of(struct dcm_lane *lane, struct dcm_io *io)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	struct dcm_fetch *f = io->owner;
	unsigned int i = (unsigned int)(f - lane->fetch);

	/* An earlier fetch that ended in a loss may have left its frames here. */
	if (dl->landing_nr[i] != f->nr)
		dcmfs_landing_free(lane, i);
	if (!dl->landing[i])
		dl->landing[i] = dcmfs_chain_alloc(lane, f->nr);
	dl->landing_nr[i] = dl->landing[i] ? f->nr : 0;
	io->data = dl->landing[i];
	return io->data ? 0 : -EAGAIN;
}

/**
 * dcmfs_landing_free() - free the pages that a READ was to fill
 * @lane: the lane
 * @i: number of the fetch
 */
void dcmfs_landing_free(struct dcm_lane *lane, unsigned int i)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);

	dcmfs_chain_free(lane, dl->landing[i], dl->landing_nr[i]);
	dl->landing[i] = NULL;
	dl->landing_nr[i] = 0;
}

/** dcmfs_io_post() - dcm_ops.io_post */
int dcmfs_io_post(struct dcm_lane *lane, struct dcm_io *io)
{
	struct dcmfs_vm_slab *slab =
		container_of(io->slab, struct dcmfs_vm_slab, ref);
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	struct dcmfs_vm *vm = lane_vm(lane);
	struct dcm_endpoint *ep;
	int err;

	if (READ_ONCE(slab->broken))
		return -ESTALE;
	ep = dl->link[slab->donor];
	if (!slab->file && !ep)
		return -ENOTCONN;
	if (io->op == DCM_IO_READ && !io->data && landing_of(lane, io))
		return -EAGAIN;
	dcmfs_jitter(DCMFS_AT_POST);
	dcmfs_write_count_add(vm, slab, io, 1);
	if (!slab->file) {
		err = ep->ops->post(ep, io);
		if (!err)
			dl->busy |= 1ull << slab->donor;
		else
			dcmfs_write_count_add(vm, slab, io, -1);
		return err;
	}
	err = dcmfs_slab_io(slab, io);
	dcmfs_write_count_add(vm, slab, io, 1);
	dcm_done_add(&dl->done, io, err);
	return 0;
}

/** dcmfs_io_flush() - dcm_ops.io_flush */
void dcmfs_io_flush(struct dcm_lane *lane)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	u64 busy;

	for (busy = dl->busy; busy; busy &= busy - 1) {
		struct dcm_endpoint *ep = dl->link[__ffs64(busy)];

		ep->ops->flush(ep);
	}
}

static int link_poll(struct dcmfs_vm *vm, struct dcmfs_lane *dl,
		     unsigned int donor, struct dcm_io **done, int max)
{
	struct dcm_endpoint *ep = dl->link[donor];
	int n = ep->ops->poll(ep, done, max);
	struct dcm_io *io;

	for (io = n ? *done : NULL; io; io = io->next) {
		struct dcmfs_vm_slab *slab =
			container_of(io->slab, struct dcmfs_vm_slab, ref);

		dcmfs_write_count_add(vm, slab, io, 1);
		/* The donor has taken the slab back; dcm-hostd is told by the donor. */
		if (io->status == -ESTALE)
			dcmfs_slab_stale(slab);
	}
	if (!ep->ops->in_flight(ep))
		dl->busy &= ~(1ull << donor);
	return n;
}

/*
 * When a donor has accepted a lane's new link, it has finished with older ones: tell
 * the core (dcm_lane_fenced()). Under the lane's lock.
 */
static void links_check_fresh(struct dcmfs_lane *dl)
{
	u64 fresh;

	for (fresh = dl->fresh; fresh; fresh &= fresh - 1) {
		unsigned int donor = __ffs64(fresh);
		struct dcm_endpoint *ep = dl->link[donor];

		if (ep->ops->ready && !ep->ops->ready(ep))
			continue;
		dl->fresh &= ~(1ull << donor);
		dcm_lane_fenced(dl->core, donor);
	}
}

/** dcmfs_io_poll() - dcm_ops.io_poll */
int dcmfs_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	u64 busy = dl->busy;
	int n;

	if (unlikely(dl->fresh))
		links_check_fresh(dl);
	if (dl->done.nr || busy)
		dcmfs_jitter(DCMFS_AT_DONE);
	n = dcm_done_take(&dl->done, done, max);
	if (!busy)
		return n;
	/* Clear it before the polls: anything that arrives later sets it again. */
	WRITE_ONCE(dl->event, false);
	smp_mb(); /* pairs with dcmfs_lane_event() */
	for (; busy && n < max; busy &= busy - 1) {
		struct dcm_io **end = done;

		while (n && *end)
			end = &(*end)->next;
		n += link_poll(lane_vm(lane), dl, __ffs64(busy), end, max - n);
	}
	return n;
}

/**
 * dcmfs_lane_event() - something has arrived for a lane
 * @vm: the VM
 * @dl: the lane
 *
 * Any context. Wakes the threads that wait for the lane; if none does, the VM's thread.
 */
void dcmfs_lane_event(struct dcmfs_vm *vm, struct dcmfs_lane *dl)
{
	WRITE_ONCE(dl->event, true);
	if (wq_has_sleeper(&dl->wait))
		wake_up_all(&dl->wait);
	else
		dcmfs_kick(vm);
}
EXPORT_SYMBOL_GPL(dcmfs_lane_event);

/*
 * Kill a lane's link, complete all that is in flight on it, and take it from the lane.
 * Under the lane's lock. The loop waits for no peer: the endpoint is dead, so no
 * operation can be posted, and each poll completes as many as one poll returns. For
 * that a queue pair is destroyed first, which takes as long as the adapter's driver
 * needs and can't be cut short: an adapter that still has the queue pair may write into
 * frames. The lane is busy meanwhile; faults use other lanes.
 */
static struct dcm_endpoint *link_take(struct dcmfs_vm *vm,
				      struct dcmfs_lane *dl, unsigned int donor)
{
	struct dcm_endpoint *ep = dl->link[donor];

	if (!ep)
		return NULL;
	ep->ops->kill(ep);
	while (ep->ops->in_flight(ep))
		dcm_poll(dl->core);
	pr_debug("kvm-dcm: file %lu: lane %u: link to donor %u ends: %s\n",
		 dcmfs_ino(vm->inode), dl->core->id, donor, ep->ops->why(ep));
	dl->link[donor] = NULL;
	dl->links &= ~(1ull << donor);
	dl->busy &= ~(1ull << donor);
	dl->fresh &= ~(1ull << donor);
	return ep;
}

/*
 * Close an endpoint that no lane has, or %NULL. Waits for the connection's handlers, so
 * the caller has no lane locked, as faults should not wait for these.
 */
static void link_close(struct dcm_endpoint *ep)
{
	struct module *owner;

	if (!ep)
		return;
	owner = ep->ops->owner;
	ep->ops->close(ep);
	module_put(owner);
}

/* Give the lane its new link (%NULL: none); if killed, close it instead. */
static int link_put(struct dcmfs_vm *vm, struct dcmfs_lane *lane, u32 donor,
		    struct dcm_endpoint *ep)
{
	struct dcm_endpoint *old;

	if (mutex_lock_killable(&lane->lock)) {
		link_close(ep);
		return -EINTR;
	}
	old = link_take(vm, lane, donor);
	lane->link[donor] = ep;
	if (ep) {
		lane->links |= 1ull << donor;
		lane->fresh |= 1ull << donor;
	}
	dcmfs_lane_put(vm, lane);
	link_close(old);
	return 0;
}

/**
 * dcmfs_link_set() - set a lane's link to a donor, or remove it
 * @vm: the VM
 * @arg: from user space
 *
 * Return: 0, or a negative errno; see struct dcmfs_link.
 */
int dcmfs_link_set(struct dcmfs_vm *vm, const struct dcmfs_link *arg)
{
	struct dcm_endpoint *ep = NULL;
	int err;

	if (arg->lane >= vm->nr_lanes || arg->donor >= DCMFS_DONORS_MAX)
		return -EINVAL;
	if (arg->fd != -1) {
		if (!arg->window || arg->window > DCM_WIRE_INFLIGHT_MAX ||
		    arg->late_ms > DCMFS_LIMIT_MAX_MS)
			return -EINVAL;
		ep = dcmfs_tcp_open(vm, &vm->lane[arg->lane], arg, &err);
		if (!ep)
			return err;
	} else if (arg->window || arg->late_ms) {
		return -EINVAL;
	}
	return link_put(vm, &vm->lane[arg->lane], arg->donor, ep);
}

/* ---- links over RDMA, and their state in user space ---- */

/**
 * struct dcmfs_link_end - a link's state for user space; outlives the link
 * @refs: references: one of the link, one of the file
 * @state: enum dcmfs_link_state
 * @wait: for poll() on the file
 */
struct dcmfs_link_end {
	refcount_t refs;
	int state;
	wait_queue_head_t wait;
};

static const struct dcmfs_pair_maker *pair_maker;
static DEFINE_MUTEX(pair_maker_lock);

/**
 * dcmfs_pair_maker_set() - register the module that makes links over RDMA
 * @maker: %NULL: unregister
 *
 * Return: 0, -EBUSY.
 */
int dcmfs_pair_maker_set(const struct dcmfs_pair_maker *maker)
{
	int err = 0;

	mutex_lock(&pair_maker_lock);
	if (maker && pair_maker)
		err = -EBUSY;
	else
		pair_maker = maker;
	mutex_unlock(&pair_maker_lock);
	return err;
}
EXPORT_SYMBOL_GPL(dcmfs_pair_maker_set);

/* Returns the maker with a reference to its module. */
static const struct dcmfs_pair_maker *pair_maker_get(void)
{
	const struct dcmfs_pair_maker *maker;

	mutex_lock(&pair_maker_lock);
	maker = pair_maker;
	if (maker && !try_module_get(maker->owner))
		maker = NULL;
	mutex_unlock(&pair_maker_lock);
	return maker;
}

/** dcmfs_link_end_tell() - set a link's state; any context */
void dcmfs_link_end_tell(struct dcmfs_link_end *end,
			 enum dcmfs_link_state state)
{
	WRITE_ONCE(end->state, state);
	wake_up_all(&end->wait);
}
EXPORT_SYMBOL_GPL(dcmfs_link_end_tell);

/** dcmfs_link_end_put() - drop a reference */
void dcmfs_link_end_put(struct dcmfs_link_end *end)
{
	if (refcount_dec_and_test(&end->refs))
		kfree(end);
}
EXPORT_SYMBOL_GPL(dcmfs_link_end_put);

static __poll_t end_poll(struct file *file, poll_table *wait)
{
	struct dcmfs_link_end *end = file->private_data;

	poll_wait(file, &end->wait, wait);
	switch (READ_ONCE(end->state)) {
	case DCMFS_LINK_UP:
		return EPOLLOUT;
	case DCMFS_LINK_DEAD:
		return EPOLLHUP | EPOLLRDHUP;
	default:
		return 0;
	}
}

static int end_release(struct inode *inode, struct file *file)
{
	dcmfs_link_end_put(file->private_data);
	return 0;
}

static const struct file_operations end_fops = {
	.owner = THIS_MODULE,
	.poll = end_poll,
	.release = end_release,
};

/* Make a link's state and its file, with two references: the link's and the file's. */
static struct file *end_make(struct dcmfs_link_end **end)
{
	struct dcmfs_link_end *e = kzalloc(sizeof(*e), GFP_KERNEL);
	struct file *file;

	if (!e)
		return ERR_PTR(-ENOMEM);
	refcount_set(&e->refs, 2);
	init_waitqueue_head(&e->wait);
	file = anon_inode_getfile("[dcmfs-link]", &end_fops, e, O_RDONLY);
	if (IS_ERR(file))
		kfree(e);
	else
		*end = e;
	return file;
}

/* Begin a link over RDMA. One reference to @end goes to the link, or is dropped. */
static int pair_begin(struct dcmfs_vm *vm, const struct dcmfs_pair *arg,
		      struct dcmfs_link_end *end)
{
	struct dcmfs_lane *lane = &vm->lane[arg->lane];
	const struct dcmfs_pair_maker *maker = pair_maker_get();
	struct dcm_endpoint *ep;
	int err;

	if (!maker) {
		request_module("kvm-dcm-verbs");
		maker = pair_maker_get();
	}
	if (!maker) {
		dcmfs_link_end_put(end);
		return -ENODEV;
	}
	ep = maker->open(vm, lane, arg, end, &err);
	if (!ep) {
		module_put(maker->owner);
		dcmfs_link_end_put(end);
		return err;
	}
	return link_put(vm, lane, arg->donor, ep);
}

/**
 * dcmfs_pair_set() - begin to connect a lane to a donor over RDMA
 * @vm: the VM
 * @arg: from user space
 * @to: where to store the link's descriptor
 *
 * Return: 0, or a negative errno; see struct dcmfs_pair.
 */
int dcmfs_pair_set(struct dcmfs_vm *vm, const struct dcmfs_pair *arg,
		   __s32 __user *to)
{
	struct dcmfs_link_end *end;
	struct file *file;
	int fd, err;

	if (arg->lane >= vm->nr_lanes || arg->donor >= DCMFS_DONORS_MAX ||
	    arg->late_ms > DCMFS_LIMIT_MAX_MS)
		return -EINVAL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	err = put_user(fd, to);
	if (err)
		goto no_file;
	file = end_make(&end);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		goto no_file;
	}
	err = pair_begin(vm, arg, end);
	if (err) {
		fput(file);
		goto no_file;
	}
	fd_install(fd, file);
	return 0;
no_file:
	put_unused_fd(fd);
	return err;
}

/* ---- closing links ---- */

/**
 * dcmfs_links_dead() - which links of a lane are dead
 * @dl: the lane, locked
 *
 * Return: a bit for each donor.
 */
u64 dcmfs_links_dead(const struct dcmfs_lane *dl)
{
	u64 links, dead = 0;

	for (links = dl->links; links; links &= links - 1) {
		unsigned int donor = __ffs64(links);

		if (dl->link[donor]->ops->dead(dl->link[donor]))
			dead |= 1ull << donor;
	}
	return dead;
}

/**
 * dcmfs_links_reap() - close links that are dead
 * @vm: the VM
 * @dl: the lane, not locked; if a thread has it, dead links are left for the next call
 * @dead: the donors, from dcmfs_links_dead(); they may have new links by now
 */
void dcmfs_links_reap(struct dcmfs_vm *vm, struct dcmfs_lane *dl, u64 dead)
{
	for (; dead; dead &= dead - 1) {
		unsigned int donor = __ffs64(dead);
		struct dcm_endpoint *ep;

		if (!mutex_trylock(&dl->lock))
			return;
		ep = dl->link[donor];
		if (ep && ep->ops->dead(ep))
			link_take(vm, dl, donor);
		else
			ep = NULL;
		mutex_unlock(&dl->lock);
		link_close(ep);
	}
}

/* Is an operation of the core in flight, or may a failed WRITE still land? */
static bool lane_waits(const struct dcmfs_lane *dl)
{
	return dcm_pending(dl->core) || dcm_doubtful(dl->core);
}

/**
 * dcmfs_links_ping() - send donors a sign of life, over links that are idle
 * @vm: the VM
 *
 * One ping to each donor, over links of the lanes that are used least. A lane that is
 * busy is skipped: it has just talked to its donors, or the next round finds it idle.
 */
void dcmfs_links_ping(struct dcmfs_vm *vm)
{
	u64 told = 0, links;
	struct dcm_io *none;
	u32 i = vm->nr_lanes;

	while (i--) {
		struct dcmfs_lane *dl = &vm->lane[i];

		if (!mutex_trylock(&dl->lock))
			continue;
		for (links = dl->links & ~told; links; links &= links - 1) {
			unsigned int donor = __ffs64(links);
			struct dcm_endpoint *ep = dl->link[donor];

			if (!ep->ops->ping || ep->ops->dead(ep))
				continue;
			/* the core does not poll while it waits for nothing */
			if (!lane_waits(dl))
				ep->ops->poll(ep, &none, 1);
			ep->ops->ping(ep);
			told |= 1ull << donor;
		}
		mutex_unlock(&dl->lock);
	}
}

/**
 * dcmfs_keep() - keep the control plane's socket open, or no longer
 * @vm: the VM
 * @arg: from user space
 *
 * Return: 0, or a negative errno; see struct dcmfs_keep.
 */
int dcmfs_keep(struct dcmfs_vm *vm, const struct dcmfs_keep *arg)
{
	struct file *file = NULL;

	if (arg->donor >= DCMFS_DONORS_MAX)
		return -EINVAL;
	if (arg->fd != -1) {
		file = fget(arg->fd);
		if (!file)
			return -EBADF;
		if (!S_ISSOCK(file_inode(file)->i_mode)) {
			fput(file);
			return -ENOTSOCK;
		}
	}
	file = xchg(&vm->kept[arg->donor], file);
	if (file)
		fput(file);
	return 0;
}

/** dcmfs_kept_close() - close the kept sockets: the VM ends, and donors may notice */
void dcmfs_kept_close(struct dcmfs_vm *vm)
{
	u32 i;

	for (i = 0; i < DCMFS_DONORS_MAX; i++)
		if (vm->kept[i])
			fput(vm->kept[i]);
}

/** dcmfs_links_close() - close all links; no thread uses a lane any more */
void dcmfs_links_close(struct dcmfs_vm *vm)
{
	u32 i, donor;

	for (i = 0; i < vm->nr_lanes; i++)
		for (donor = 0; donor < DCMFS_DONORS_MAX; donor++)
			link_close(link_take(vm, &vm->lane[i], donor));
}
