// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * shim.c - libdcm-preload.so: a pager for an unmodified program
 *
 * Loaded by LD_PRELOAD with DCM_CONFIG naming the configuration (dcmctl run
 * does both), it makes a pager before main() and then watches the calls that
 * map, unmap and advise memory.
 *
 * mode=qemu: a mapping that QEMU makes over its reservation of guest RAM (fixed
 * address, anonymous, private, read-write, of at least threshold bytes) is put
 * under the pager in place. TCG's code buffer is mapped differently, shared
 * memory is not private: both stay ordinary memory.
 *
 * mode=program: anonymous private read-write mappings of at least threshold
 * bytes come out of one paged mapping, the arena; the program's allocator must
 * be one whose mmap() calls can be seen, which the C library's are not.
 *
 *	program: mmap -> take addresses    munmap -> discard, give back
 *	         MADV_DONTNEED -> discard  mremap -> map, copy, unmap
 *	         MAP_FIXED over it -> its pages leave the pager; then as asked
 *
 * A child after fork() has none of the paged memory and no pager; a program it
 * executes starts afresh, without a pager.
 *
 * Locking: none of its own. System calls are made raw, so nothing here depends
 * on symbols being resolved.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/log.h"
#include "shim.h"

#define ARENA_ALIGN	(2ull << 20)
#define COPY_STEP	(1ull << 20)
#define ENV_PID		"DCM_PAGER_PID"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

struct dcm_shim dcm_shim;

static inline bool arena_has(u64 addr, u64 bytes)
{
	return addr < dcm_shim.arena + dcm_shim.arena_bytes &&
	       addr + bytes > dcm_shim.arena;
}

static void *mmap_raw(void *addr, u64 len, int prot, int flags, int fd,
		      off_t off)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

static void shim_die(const char *why)
{
	dcm_log(DCM_LOG_ERR, "%s", why);
	dcm_log_flush(1000);
	_exit(125);
}

/* ---- mmap ---- */

/* The only kind of mapping that is ever paged. */
static bool wanted_kind(u64 len, int prot, int flags)
{
	return (flags & MAP_ANONYMOUS) && (flags & MAP_TYPE) == MAP_PRIVATE &&
	       !(flags &
		 (MAP_HUGETLB | MAP_GROWSDOWN | MAP_STACK | MAP_32BIT)) &&
	       prot == (PROT_READ | PROT_WRITE) && len >= dcm_shim.threshold;
}

static void *arena_map(struct dcm_pager *pg, u64 len)
{
	static bool said;
	u64 at;
	sigset_t old;

	(void)pg;
	dcm_thread_enter(&old);
	at = dcm_arena_take(shim_page_up(len),
			    len >= ARENA_ALIGN ? ARENA_ALIGN : SHIM_PAGE);
	if (!at && !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		dcm_log(DCM_LOG_WARNING,
			"a mapping of %llu MiB does not fit the configured size and is not paged",
			(unsigned long long)len >> 20);
	dcm_thread_leave(&old);
	return (void *)at;
}

static void pages_adopt(struct dcm_pager *pg, void *p, u64 len)
{
	int rc = dcm_pager_adopt(pg, p, len);

	if (rc)
		dcm_log(DCM_LOG_WARNING,
			"a mapping of %llu MiB can't be paged: %s%s",
			(unsigned long long)len >> 20, strerror(-rc),
			rc == -ENOSPC ? " (size= in the configuration)" :
			rc == -EBUSY  ? " (it has a userfaultfd already)" :
					"");
}

/* Every page of the range is paged already. */
static bool range_is_paged(struct dcm_pager *pg, u64 addr, u64 len)
{
	return dcm_pager_covers(pg, (void *)addr, len);
}

/*
 * Put a new mapping in the place of paged pages. It is made elsewhere first:
 * the kernel may refuse it for many reasons, and then the pages must stay.
 */
static void *range_map_over(struct dcm_pager *pg, void *addr, u64 len, int prot,
		      int flags, int fd, off_t off)
{
	void *p = mmap_raw(NULL, len, prot, flags & ~(MAP_FIXED | MAP_32BIT),
			   fd, off);
	int rc;

	if (p == MAP_FAILED)
		return p;
	rc = dcm_pager_replace(pg, addr, len, p, len,
			       MREMAP_MAYMOVE | MREMAP_FIXED);
	if (!rc)
		return addr;
	syscall(SYS_munmap, p, len);
	errno = -rc;
	return MAP_FAILED;
}

static void *range_map_fixed(struct dcm_pager *pg, void *addr, u64 len,
			     int prot, int flags, int fd, off_t off)
{
	bool anon = (flags & MAP_ANONYMOUS) &&
		    (flags & MAP_TYPE) == MAP_PRIVATE &&
		    !(flags & (MAP_HUGETLB | MAP_GROWSDOWN));
	u64 a = (u64)addr, bytes = len;
	void *p;
	int rc;

	len = shim_page_up(len);
	/* Let the kernel report the error. */
	if (((u64)off | a) & (SHIM_PAGE - 1) || a + len <= a)
		return mmap_raw(addr, bytes, prot, flags, fd, off);
	/* Allocators give memory back and take it again in place. */
	if (anon && !(prot & PROT_EXEC) && range_is_paged(pg, a, len)) {
		if (flags & MAP_FIXED_NOREPLACE) {
			errno = EEXIST;
			return MAP_FAILED;
		}
		if (mprotect(addr, len, prot))
			return MAP_FAILED;
		rc = dcm_pager_discard(pg, addr, len);
		return shim_result(rc) ? MAP_FAILED : addr;
	}
	if (!(flags & MAP_FIXED_NOREPLACE) && dcm_pager_owns(pg, addr, len))
		p = range_map_over(pg, addr, len, prot, flags, fd, off);
	else
		p = mmap_raw(addr, len, prot, flags, fd, off);
	if (p == addr && wanted_kind(len, prot, flags))
		pages_adopt(pg, p, len);
	return p;
}

DCM_EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd,
		      off_t off)
{
	struct dcm_pager *pg = shim_pager();
	void *p;

	if (unlikely(dcm_shim.orphan) && (flags & MAP_FIXED) &&
	    dcm_shim.mode == DCM_MODE_QEMU && wanted_kind(len, prot, flags))
		shim_die(
			"guest RAM in a child process, which has no pager: run QEMU without -daemonize");
	if (likely(!pg) || !len)
		return mmap_raw(addr, len, prot, flags, fd, off);
	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
		return range_map_fixed(pg, addr, len, prot, flags, fd, off);
	if (dcm_shim.mode == DCM_MODE_PROGRAM &&
	    wanted_kind(len, prot, flags)) {
		p = arena_map(pg, len);
		if (p)
			return p;
	}
	return mmap_raw(addr, len, prot, flags, fd, off);
}

DCM_EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd,
			off_t off) __attribute__((alias("mmap")));

/* ---- munmap, mremap ---- */

/* Give addresses of the arena back, paged and empty as at first. */
static int arena_unmap(struct dcm_pager *pg, u64 addr, u64 len)
{
	void *p = (void *)addr;
	sigset_t old;

	if (range_is_paged(pg, addr, len)) {
		if (READ_ONCE(dcm_shim.protected) &&
		    mprotect(p, len, PROT_READ | PROT_WRITE))
			return -1;
		if (shim_result(dcm_pager_discard(pg, p, len)))
			return -1;
	} else {
		/* Some other mapping has replaced a part meanwhile. */
		if (range_map_over(pg, p, len, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				   -1, 0) != p)
			return -1;
		pages_adopt(pg, p, len);
	}
	dcm_thread_enter(&old);
	dcm_arena_give(addr, len);
	dcm_thread_leave(&old);
	return 0;
}

DCM_EXPORT int munmap(void *addr, size_t bytes)
{
	struct dcm_pager *pg = shim_pager();
	u64 a = (u64)addr, len = shim_page_up(bytes), from, to;

	if (likely(!pg) || (a & (SHIM_PAGE - 1)) || !len || a + len < a)
		return (int)syscall(SYS_munmap, addr, bytes);
	if (!arena_has(a, len)) {
		if (!dcm_pager_owns(pg, addr, len))
			return (int)syscall(SYS_munmap, addr, bytes);
		return shim_result(dcm_pager_unmap(pg, addr, len));
	}
	from = max(a, dcm_shim.arena);
	to = min(a + len, dcm_shim.arena + dcm_shim.arena_bytes);
	if (a < from && munmap(addr, from - a))
		return -1;
	if (a + len > to && munmap((void *)to, a + len - to))
		return -1;
	return arena_unmap(pg, from, to - from);
}

/* Refuse mremap() of paged memory for the kernel's reasons. */
static int remap_is_refused(u64 old, u64 old_len, u64 new_len, int flags,
			    u64 to)
{
	bool fixed = flags & MREMAP_FIXED;

	if (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP) ||
	    (fixed && !(flags & MREMAP_MAYMOVE)) ||
	    (flags & MREMAP_DONTUNMAP &&
	     (!(flags & MREMAP_MAYMOVE) || new_len != old_len)))
		return -EINVAL;
	if (!new_len || old + old_len <= old ||
	    (fixed && (to & (SHIM_PAGE - 1) || to + new_len <= to)))
		return -EINVAL;
	if (fixed && to < old + old_len && old < to + new_len)
		return -EINVAL;
	return 0;
}

static void *range_remap(struct dcm_pager *pg, u64 old, u64 old_len,
			 u64 new_len, int flags, void *fixed)
{
	u64 at, n = min(old_len, new_len), step;
	char *to;

	int rc = remap_is_refused(old, old_len, new_len, flags, (u64)fixed);

	if (shim_result(rc))
		return MAP_FAILED;
	if (new_len <= old_len &&
	    !(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))) {
		if (new_len < old_len &&
		    munmap((void *)(old + new_len), old_len - new_len))
			return MAP_FAILED;
		return (void *)old;
	}
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	to = mmap(fixed, new_len, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			  (flags & MREMAP_FIXED ? MAP_FIXED : 0),
		  -1, 0);
	if (to == MAP_FAILED)
		return MAP_FAILED;
	/* Discard what is copied, so that it is not here twice. */
	for (at = 0; at < n; at += step) {
		step = min(n - at, (u64)COPY_STEP);
		memcpy(to + at, (char *)old + at, step);
		dcm_pager_discard(pg, (char *)old + at, step);
	}
	if (!(flags & MREMAP_DONTUNMAP))
		munmap((void *)old, old_len);
	return to;
}

DCM_EXPORT void *mremap(void *old, size_t old_len, size_t new_len, int flags,
			...)
{
	struct dcm_pager *pg = shim_pager();
	void *fixed = NULL;
	va_list ap;

	va_start(ap, flags);
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
		fixed = va_arg(ap, void *);
	va_end(ap);
	if (pg && !((u64)old & (SHIM_PAGE - 1)) && old_len && new_len &&
	    dcm_pager_owns(pg, old, shim_page_up(old_len)))
		return range_remap(pg, (u64)old, shim_page_up(old_len),
				   shim_page_up(new_len), flags, fixed);
	if (pg && (flags & MREMAP_FIXED) && new_len &&
	    dcm_pager_owns(pg, fixed, shim_page_up(new_len)))
		return shim_result(dcm_pager_replace(pg, fixed,
						      shim_page_up(new_len), old,
						      old_len, flags)) ?
			       MAP_FAILED :
			       fixed;
	return (void *)syscall(SYS_mremap, old, old_len, new_len, flags, fixed);
}

/* ---- fork ---- */

static pid_t pager_pid;

static void child_segv(int sig, siginfo_t *si, void *ctx)
{
	static const char text[] =
		"libdcm: a child process touched paged memory, which fork() does not copy: the program can't run under a pager in mode=program\n";
	u64 a = (u64)si->si_addr;

	(void)ctx;
	if (getpid() != pager_pid && arena_has(a, 1))
		dcm_log_now(text, sizeof(text) - 1);
	signal(sig, SIG_DFL);
}

static void fork_prepare(void)
{
	dcm_heap_lock();
}

static void fork_parent(void)
{
	dcm_heap_unlock();
}

static void fork_child(void)
{
	dcm_heap_unlock();
	dcm_shim.pg = NULL;
	dcm_shim.orphan = true;
}

/*
 * Set up before any fork(): the allocator's own fork handlers are the first to
 * touch memory that a child lacks. A program's own handler stays.
 */
static void child_watch(void)
{
	struct sigaction sa, had;

	pager_pid = getpid();
	if (sigaction(SIGSEGV, NULL, &had) || had.sa_handler != SIG_DFL)
		return;
	memset(&sa, 0, sizeof(sa));
	sa.sa_sigaction = child_segv;
	sa.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER;
	sigaction(SIGSEGV, &sa, NULL);
}

/* ---- life ---- */

static void arena_make(struct dcm_pager *pg, u64 bytes)
{
	char why[128];
	void *p = dcm_pager_map(pg, bytes);

	if (!p || dcm_arena_init((u64)p, bytes)) {
		snprintf(why, sizeof(why), "no addresses for %llu MiB: %s",
			 (unsigned long long)bytes >> 20, strerror(errno));
		shim_die(why);
	}
	dcm_shim.arena = (u64)p;
	dcm_shim.arena_bytes = bytes;
}

/* Is this process to be paged? Programs it executes are not, unless asked. */
static bool process_is_meant(void)
{
	const char *pid = getenv(ENV_PID);
	char own[16];

	if (pid && atoi(pid) != (int)getpid() && !getenv("DCM_CHILDREN"))
		return false;
	snprintf(own, sizeof(own), "%d", (int)getpid());
	return !setenv(ENV_PID, own, 1);
}

static void pager_start(const char *path)
{
	struct dcm_host_config *cfg = calloc(1, sizeof(*cfg));
	char err[DCM_ERR_MAX + 64];
	struct dcm_pager *pg;
	u64 arena = 0;

	if (!cfg)
		shim_die("no memory");
	if (dcm_host_config_load(path, cfg, err))
		shim_die(err);
	dcm_shim.mode = cfg->mode;
	dcm_shim.threshold = cfg->threshold;
	if (cfg->mode == DCM_MODE_PROGRAM) {
		/* As much again for mappings at fixed addresses. */
		arena = (cfg->size + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
		cfg->size = 2 * arena;
	}
	pg = dcm_pager_create(cfg, err, sizeof(err));
	if (!pg)
		shim_die(err);
	dcm_shim.no_direct = !dcm_pager_pin_safe(pg);
	if (arena) {
		arena_make(pg, arena);
		child_watch();
	}
	pthread_atfork(fork_prepare, fork_parent, fork_child);
	free(cfg);
	smp_store_release(&dcm_shim.pg, pg);
}

__attribute__((constructor)) static void shim_start(void)
{
	const char *path = getenv("DCM_CONFIG");

	dcm_thread_inside++;
	dcm_malloc_ready();
	dcm_open_ready();
	if (path && *path && process_is_meant())
		pager_start(path);
	dcm_thread_inside--;
}

/*
 * QEMU's RAM is not touched after exit(), so the donors get it back at once. A
 * program's heap is used by code that runs after this; donors free its slabs
 * when they notice that the client is gone.
 */
__attribute__((destructor)) static void shim_stop(void)
{
	struct dcm_pager *pg = dcm_shim.pg;

	if (!pg || dcm_shim.mode != DCM_MODE_QEMU)
		return;
	smp_store_release(&dcm_shim.pg, NULL);
	dcm_pager_close(pg);
}
