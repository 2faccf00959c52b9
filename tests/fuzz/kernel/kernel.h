/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * kernel.h - what kvm-dcm/linux/tcp.c calls of the kernel, in user space
 *
 * A socket is a descriptor, and what is asked of it goes to the system's calls
 * (ksocket.c). Locks are none: there is one thread. Only the names and fields
 * that are used are here.
 */
#ifndef FUZZ_KERNEL_H
#define FUZZ_KERNEL_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../../kvm-dcm/lib/dcm_context.h"
#include "../../../kvm-dcm/core/pd.h"
#include "../../../kvm-dcm/include/dcmfs.h"
#include "../../../kvm-dcm/proto/wire_format.h"
#include "../../../kvm-dcm/transport/transport.h"

#define HZ 250
#define PAGE_SIZE 4096ul
#define time_after(a, b) ((long)((b) - (a)) < 0)
#define struct_size(p, member, n) (sizeof(*(p)) + (n) * sizeof((p)->member[0]))

extern unsigned long jiffies;
u64 ktime_get_ns(void);

/* ---- memory ---- */

#define GFP_KERNEL 0
#define GFP_NOIO 0
#define __GFP_NOWARN 0
#define kvzalloc(bytes, how) calloc(1, bytes)
#define kvfree(p) free(p)

static inline unsigned int memalloc_noreclaim_save(void)
{
	return 0;
}

static inline void memalloc_noreclaim_restore(unsigned int how)
{
	(void)how;
}

/* A page: as the frames of a chain, whose next is in @private. */
struct page {
	struct page *private;
	u8 *bytes;
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

static inline void bvec_set_page(struct bio_vec *bv, struct page *page,
				 unsigned int len, unsigned int offset)
{
	*bv = (struct bio_vec){ page, len, offset };
}

struct kvec {
	void *iov_base;
	size_t iov_len;
};

enum { ITER_DEST, ITER_SOURCE };

struct iov_iter {
	const struct bio_vec *bvec;
	unsigned long nr;
	size_t count;
};

static inline void iov_iter_bvec(struct iov_iter *i, unsigned int direction,
				 const struct bio_vec *bv, unsigned long nr,
				 size_t count)
{
	(void)direction;
	*i = (struct iov_iter){ bv, nr, count };
}

/* ---- sockets ---- */

#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define IPPROTO_TCP 6
#define SHUT_RDWR 2
#define MSG_DONTWAIT 0x40
#define MSG_NOSIGNAL 0x4000
#define MSG_MORE 0x8000
#define MSG_SPLICE_PAGES 0x8000000

enum { TCP_ESTABLISHED = 1, TCP_CLOSE_WAIT = 8 };

struct msghdr {
	struct iov_iter msg_iter;
	int msg_flags;
};

struct lock_class_key {
	int none;
};

struct sock {
	int sk_family;
	int sk_type;
	int sk_protocol;
	int sk_state;
	int sk_err;
	int sk_lock;
	int sk_callback_lock;
	int sk_allocation;
	bool sk_use_task_frag;
	void *sk_user_data;
	void (*sk_data_ready)(struct sock *sk);
	void (*sk_write_space)(struct sock *sk);
	void (*sk_state_change)(struct sock *sk);
};

struct socket {
	struct sock *sk;
	int fd;
};

#define read_lock_bh(lock) ((void)(lock))
#define read_unlock_bh(lock) ((void)(lock))
#define write_lock_bh(lock) ((void)(lock))
#define write_unlock_bh(lock) ((void)(lock))
#define lockdep_set_class_and_name(lock, key, name) ((void)(key))
#define sk_set_memalloc(sk) ((void)(sk))
#define tcp_sock_set_nodelay(sk) ((void)(sk))
#define sock_no_linger(sk) ((void)(sk))

struct socket *sockfd_lookup(int fd, int *err);
void sockfd_put(struct socket *sock);
void kernel_sock_shutdown(struct socket *sock, int how);
int kernel_sendmsg(struct socket *sock, struct msghdr *msg, struct kvec *vec,
		   size_t nr, size_t bytes);
int kernel_recvmsg(struct socket *sock, struct msghdr *msg, struct kvec *vec,
		   size_t nr, size_t bytes, int flags);
int sock_sendmsg(struct socket *sock, struct msghdr *msg);
int sock_recvmsg(struct socket *sock, struct msghdr *msg, int flags);

/* Calls of sockets end so from now on: ksocket.c says how. */
void ksocket_how(u32 how);
/* Call the socket's callbacks, as softirqs do: bytes have come, there is room, the end. */
void ksocket_events(struct socket *sock);

/* ---- what dcmfs.h has, which is not read ---- */

#define DCMFS_INTERNAL_H

struct dcmfs_vm;
struct dcmfs_lane;

void dcmfs_lane_event(struct dcmfs_vm *vm, struct dcmfs_lane *lane);
struct dcm_endpoint *dcmfs_tcp_open(struct dcmfs_vm *vm,
				    struct dcmfs_lane *lane,
				    const struct dcmfs_link *arg, int *err);

static inline unsigned long dcmfs_late_ticks(u32 late_ms)
{
	return (late_ms ? late_ms : DCM_WIRE_SILENCE_MS) * HZ / 1000;
}

static inline struct page *dcmfs_chain_next(struct page *page)
{
	return page->private;
}

#endif /* FUZZ_KERNEL_H */
