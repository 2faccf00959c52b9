/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * context_user.h - the kernel words of dcm_context.h, for user space
 *
 * Only what core/ uses. Semantics are the kernel's: a plain atomic_*() that
 * returns a value is fully ordered, atomic_read/set are relaxed, the
 * _acquire/_release forms say what they do. vzalloc() is mmap(): large
 * sparse tables cost only what is touched, and a pager never takes memory
 * from an allocator whose memory it may be paging.
 */
#ifndef DCM_CONTEXT_USER_H
#define DCM_CONTEXT_USER_H

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define U32_MAX UINT32_MAX
#define U64_MAX UINT64_MAX

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define smp_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define smp_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define container_of(ptr, type, member) \
	((type *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define ____cacheline_aligned __attribute__((aligned(64)))
#define static_assert _Static_assert

#define min(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a < _b ? _a : _b;      \
	})
#define max(a, b)                       \
	({                              \
		__typeof__(a) _a = (a); \
		__typeof__(b) _b = (b); \
		_a > _b ? _a : _b;      \
	})

static inline unsigned int hweight16(u16 w)
{
	return (unsigned int)__builtin_popcount(w);
}

static inline int ilog2(u64 v)
{
	return 63 - __builtin_clzll(v);
}

static inline unsigned int ffs_u32(u32 v)
{
	return (unsigned int)__builtin_ffs((int)v);
}

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	s64 counter;
} atomic64_t;

static inline int atomic_read(const atomic_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);
}

static inline int atomic_read_acquire(const atomic_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_ACQUIRE);
}

static inline void atomic_set(atomic_t *v, int i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELAXED);
}

static inline void atomic_inc(atomic_t *v)
{
	__atomic_fetch_add(&v->counter, 1, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_inc(atomic_t *v)
{
	return __atomic_fetch_add(&v->counter, 1, __ATOMIC_SEQ_CST);
}

static inline int atomic_dec_return_release(atomic_t *v)
{
	return __atomic_sub_fetch(&v->counter, 1, __ATOMIC_RELEASE);
}

static inline void atomic_or(int m, atomic_t *v)
{
	__atomic_fetch_or(&v->counter, m, __ATOMIC_RELAXED);
}

static inline void atomic_andnot(int m, atomic_t *v)
{
	__atomic_fetch_and(&v->counter, ~m, __ATOMIC_RELAXED);
}

static inline int atomic_fetch_or(int m, atomic_t *v)
{
	return __atomic_fetch_or(&v->counter, m, __ATOMIC_SEQ_CST);
}

static inline int atomic_fetch_andnot(int m, atomic_t *v)
{
	return __atomic_fetch_and(&v->counter, ~m, __ATOMIC_SEQ_CST);
}

static inline void dcm_andnot_release(int m, atomic_t *v)
{
	__atomic_fetch_and(&v->counter, ~m, __ATOMIC_RELEASE);
}

static inline bool atomic_try_cmpxchg(atomic_t *v, int *old, int new)
{
	return __atomic_compare_exchange_n(&v->counter, old, new, false,
					   __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline bool atomic_try_cmpxchg_acquire(atomic_t *v, int *old, int new)
{
	return __atomic_compare_exchange_n(&v->counter, old, new, false,
					   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

#define cmpxchg(p, old, new)                                               \
	({                                                                 \
		__typeof__(*(p)) _old = (old);                             \
		__atomic_compare_exchange_n((p), &_old, (new), false,      \
					    __ATOMIC_SEQ_CST,              \
					    __ATOMIC_RELAXED);             \
		_old;                                                      \
	})

static inline s64 atomic64_read(const atomic64_t *v)
{
	return __atomic_load_n(&v->counter, __ATOMIC_RELAXED);
}

static inline void atomic64_set(atomic64_t *v, s64 i)
{
	__atomic_store_n(&v->counter, i, __ATOMIC_RELAXED);
}

static inline void atomic64_add(s64 i, atomic64_t *v)
{
	__atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);
}

static inline void atomic64_sub(s64 i, atomic64_t *v)
{
	__atomic_fetch_sub(&v->counter, i, __ATOMIC_RELAXED);
}

static inline s64 atomic64_add_return(s64 i, atomic64_t *v)
{
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);
}

static inline s64 atomic64_xchg(atomic64_t *v, s64 i)
{
	return __atomic_exchange_n(&v->counter, i, __ATOMIC_SEQ_CST);
}

/* Only the kernel has tracepoints. */
static inline void dcm_trace_state(const void *priv, u32 gfn, u32 order,
				   u32 from, u32 to)
{
	(void)priv;
	(void)gfn;
	(void)order;
	(void)from;
	(void)to;
}

/* Does nothing: in user space a thread that holds a block lock can be preempted. */
static inline void preempt_disable(void)
{
}

static inline void preempt_enable(void)
{
}

/* Called while spinning: let the lock's holder run, as it may have been preempted. */
static inline void cpu_relax(void)
{
	static __thread unsigned int spins;

	if (++spins % 64 == 0)
		sched_yield();
	else
		__builtin_ia32_pause();
}

typedef struct {
	int locked;
} spinlock_t;

static inline void spin_lock_init(spinlock_t *l)
{
	__atomic_store_n(&l->locked, 0, __ATOMIC_RELAXED);
}

static inline bool spin_trylock(spinlock_t *l)
{
	return !__atomic_load_n(&l->locked, __ATOMIC_RELAXED) &&
	       !__atomic_exchange_n(&l->locked, 1, __ATOMIC_ACQUIRE);
}

static inline void spin_lock(spinlock_t *l)
{
	while (!spin_trylock(l))
		cpu_relax();
}

static inline void spin_unlock(spinlock_t *l)
{
	__atomic_store_n(&l->locked, 0, __ATOMIC_RELEASE);
}

/* Allocate zeroed, page-aligned memory, populated only as it is used; or %NULL. */
void *vzalloc(unsigned long bytes);
void vfree(const void *p);

#endif /* DCM_CONTEXT_USER_H */
