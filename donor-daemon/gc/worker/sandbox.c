// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sandbox.c - what a GC worker gives up
 *
 * It has its slabs' memory and one socket, and needs nothing else of the
 * kernel: it maps what it is passed, starts threads, waits. Any other system
 * call ends it: no file is opened, no socket made, no program run, no process
 * looked at or signalled. Private memory is bounded by RLIMIT_DATA, which
 * does not count shared mappings: slabs are free, tables are not.
 *
 * Sanitizers need more than this; a build with them has the limits only.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandbox.h"

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
/* the call of this number is allowed */
#define CALL(name)                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), ALLOW
/* allowed if none of @bits is in argument @n, whose low half decides */
#define CALL_WITHOUT(name, n, bits)                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 4),    \
		LOAD(args[n]),                                      \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (bits), 0, 1), \
		KILL, ALLOW
/* allowed if all of @bits are */
#define CALL_WITH(name, n, bits)                                  \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 5),   \
		LOAD(args[n]),                                     \
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (bits)),      \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (bits), 0, 1), \
		ALLOW, KILL

static const struct sock_filter filter[] = {
	LOAD(arch),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
	KILL,
	LOAD(nr),
	CALL(futex),
	CALL(sendmsg),
	CALL(recvmsg),
	CALL(sendto),
	CALL(recvfrom),
	CALL(clock_gettime),
	CALL(clock_nanosleep),
	CALL(sched_yield),
	CALL(munmap),
	CALL(madvise),
	CALL(brk),
	CALL(close),
	CALL(fstat),
#ifdef __NR_newfstatat
	CALL(newfstatat),
#endif
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
	CALL_WITHOUT(mmap, 2, PROT_EXEC),
	CALL_WITHOUT(mprotect, 2, PROT_EXEC),
	/* threads, not processes; clone3's flags can't be seen from here */
	CALL_WITH(clone, 0, CLONE_VM | CLONE_THREAD | CLONE_SIGHAND),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	KILL,
};

static int limit(int which, uint64_t value)
{
	struct rlimit l = { .rlim_cur = value, .rlim_max = value };

	return setrlimit(which, &l);
}

int dcm_gc_sandbox(uint64_t memory, const char **what)
{
	struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(*filter),
		.filter = (struct sock_filter *)filter,
	};

	*what = "RLIMIT_CORE";
	if (limit(RLIMIT_CORE, 0))
		return -1;
	*what = "RLIMIT_FSIZE";
	if (limit(RLIMIT_FSIZE, 0))
		return -1;
	*what = "not dumpable";
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		return -1;
	*what = "no new privileges";
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	if (SANITIZED)
		return 0;
	*what = "RLIMIT_DATA";
	if (limit(RLIMIT_DATA, memory))
		return -1;
	*what = "seccomp";
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}
