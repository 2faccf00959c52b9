// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sandbox.c - restrict a GC worker to memory, threads and its socket
 *
 * A worker reads data of its tenant, so it is trusted no more than the tenant:
 * if it is taken over it must reach nothing that the tenant does not have, and
 * cost no more than the tenant was charged for it. It has its slabs' memory and
 * one socket, and needs little of the kernel: it maps the slabs it gets, starts
 * threads, waits. Any other system call kills it (seccomp): it can open or stat
 * no file, make no socket, run no program, inspect or signal no process, though
 * they have the same user. It sends by writev(), which can't pass descriptors
 * to the donor, and only to its socket: standard error, which may be the
 * donor's log, is /dev/null from here on.
 *
 * Limits on its cost:
 *
 *   private memory	RLIMIT_DATA, which does not count slabs. Other memory
 *			that it does not count can't be mapped: shared anonymous
 *			memory, more stack, huge pages; nor can it be locked.
 *   page tables	RLIMIT_AS bounds how much of slabs is mapped, and how often
 *   threads		RLIMIT_NPROC, which counts all of the user's; where the
 *			donor has a cgroup of its own, the tenant's (child.c)
 *   descriptors	RLIMIT_NOFILE: those it was started with, and one slab
 *
 * Not used: namespaces, because the donor would need the right to make user
 * namespaces, which its service lacks (RestrictNamespaces=), and they would
 * only hide objects that no remaining call can reach. Landlock, because it restricts
 * only calls that seccomp forbids anyway, and a service manager that does not know
 * Landlock's own calls would kill the worker for them.
 *
 * Sanitizers need more than this; a build with them has the limits only.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox.h"

/* RLIMIT_NPROC: more threads than all programs of the user need together. */
#define USER_THREADS_MAX 4096u
#define STACK_BYTES	 (1u << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "which architecture do system calls have here?"
#endif

#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define LOAD(what)                      \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, \
		 offsetof(struct seccomp_data, what))
/* allow the system call @name */
#define CALL(name)                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), ALLOW
/* allow it if argument @n has none of @bits, which are in its low half */
#define CALL_WITHOUT(name, n, bits)                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 4),    \
		LOAD(args[n]),                                      \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, 1), \
		KILL, ALLOW
/* allow it if argument @n has all of @bits */
#define CALL_WITH(name, n, bits)                                  \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 5),   \
		LOAD(args[n]),                                     \
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (bits)),      \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (bits), 0, 1), \
		ALLOW, KILL

/* allow it if argument @n is @value */
#define CALL_IF(name, n, value)                                    \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 4),    \
		LOAD(args[n]),                                      \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, 1), \
		ALLOW, KILL

/* The high half of an argument, on little endian machines. */
#define LOAD_HIGH(n)                             \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS,        \
		 offsetof(struct seccomp_data, args[n]) + 4)
#define IF_EQUAL(value, yes, no) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), yes, no)

static int filter_set(unsigned int sock)
{
	const struct sock_filter filter[] = {
		LOAD(arch),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		KILL,
		LOAD(nr),
		CALL(futex),
		CALL_IF(writev, 0, sock),
		CALL_IF(recvmsg, 0, sock),
		CALL(clock_gettime),
		CALL(clock_nanosleep),
		CALL(sched_yield),
		CALL(munmap),
		CALL(brk),
		CALL(close),
		CALL(lseek),
		CALL(exit),
		CALL(exit_group),
		CALL(set_robust_list),
		CALL(rseq),
		CALL(rt_sigaction),
		CALL(rt_sigprocmask),
		CALL(rt_sigreturn),
		CALL(restart_syscall),
		CALL(getrandom),
		CALL(gettid),
		CALL(getpid),
		CALL_WITHOUT(mprotect, 2, PROT_EXEC),
		/* threads, not processes; clone3's flags can't be read */
		CALL_WITH(clone, 0, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND),
		IF_EQUAL(__NR_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		/* memory may be given back; other advice is refused */
		IF_EQUAL(__NR_madvise, 0, 4),
		LOAD(args[2]),
		IF_EQUAL(MADV_DONTNEED, 0, 1),
		ALLOW,
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		/*
		 * A slab, or private memory; only where the kernel chooses, as
		 * mappings far apart take a page table each.
		 */
		IF_EQUAL(__NR_mmap, 1, 0),
		KILL,
		LOAD(args[0]),
		IF_EQUAL(0, 1, 0),
		KILL,
		LOAD_HIGH(0),
		IF_EQUAL(0, 1, 0),
		KILL,
		LOAD(args[2]),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
		KILL,
		LOAD(args[3]),
		IF_EQUAL(MAP_SHARED, 0, 1),
		ALLOW,
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K,
			 ~(unsigned int)(MAP_NORESERVE | MAP_STACK)),
		IF_EQUAL(MAP_PRIVATE | MAP_ANONYMOUS, 0, 1),
		ALLOW,
		KILL,
	};
	const struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(*filter),
		.filter = (struct sock_filter *)filter,
	};

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
		return -errno;
	return 0;
}

static int limit_set(int which, uint64_t value)
{
	struct rlimit l;

	if (getrlimit(which, &l))
		return -errno;
	/* a lower limit stays: only root may raise it */
	l.rlim_max = value < l.rlim_max ? value : l.rlim_max;
	l.rlim_cur = l.rlim_max;
	return setrlimit(which, &l) ? -errno : 0;
}

/*
 * Drop all capabilities, in case the donor runs as root: then limits hold, and the
 * calls that are left have no privileges. If there are none, don't call capset(), which
 * a service may forbid.
 */
static int capabilities_drop(void)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3,
	};
	struct __user_cap_data_struct has[2], none[2] = { 0 };

	if (syscall(SYS_capget, &head, has))
		return -errno;
	if (!(has[0].permitted | has[1].permitted | has[0].inheritable |
	      has[1].inheritable))
		return 0;
	return syscall(SYS_capset, &head, none) ? -errno : 0;
}

/* Limit the worker to the memory that the tenant was charged for. */
static int limits_set(int sock, uint64_t memory, uint64_t address)
{
	const struct {
		int which;
		uint64_t value;
	} limits[] = {
		{ RLIMIT_MEMLOCK, 0 },
		{ RLIMIT_STACK, STACK_BYTES },
		{ RLIMIT_DATA, memory },
		{ RLIMIT_AS, memory + address },
		{ RLIMIT_NPROC, USER_THREADS_MAX },
		{ RLIMIT_NOFILE, (uint64_t)sock + 2 },
	};
	int ret = 0;

	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits) && !ret; i++)
		ret = limit_set(limits[i].which, limits[i].value);
	return ret;
}

int dcm_gc_sandbox(int sock, uint64_t memory, uint64_t address,
		   const char **what)
{
	int ret;

	*what = "RLIMIT_CORE";
	ret = limit_set(RLIMIT_CORE, 0);
	if (ret)
		return ret;
	*what = "RLIMIT_FSIZE";
	ret = limit_set(RLIMIT_FSIZE, 0);
	if (ret)
		return ret;
	*what = "not dumpable";
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -errno;
	*what = "no new privileges";
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	*what = "SIGPIPE";
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return -errno;
	if (SANITIZED)
		return 0;
	/* one arena: others reserve address space beyond the limit */
	*what = "M_ARENA_MAX";
	if (!mallopt(M_ARENA_MAX, 1))
		return -EINVAL;
	*what = "limits";
	ret = limits_set(sock, memory, address);
	if (ret)
		return ret;
	*what = "capabilities";
	ret = capabilities_drop();
	if (ret)
		return ret;
	*what = "standard error";
	if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
		return -errno;
	*what = "seccomp";
	return filter_set((unsigned int)sock);
}
