// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vcpu.c - a guest of a few instructions goes through its memory in order
 *
 *	vcpu anon|FILE MIB ROUNDS
 *
 * KVM without a VMM around it. Each page is written once from here; then the
 * guest reads a word of each page and writes it back plus one, page after page:
 * one round that is not measured, then ROUNDS. With 0 ROUNDS the guest's one round
 * is measured instead, and is the first touch of each page. At the end each word is
 * looked at from here. The command LOOK is run before and after, as in touch.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <linux/kvm.h>

#define PAGE 4096u
#define CODE 0x1000u
#define DATA 0x10000u

/* 1: inc dword [edi]; add edi, 0x1000; cmp edi, esi; jb 1b; hlt */
static const uint8_t code[] = {
	0xff, 0x07, 0x81, 0xc7, 0x00, 0x10, 0x00,
	0x00, 0x39, 0xf7, 0x72, 0xf4, 0xf4,
};

static char *mem;
static size_t size;

static int must(int ret, const char *what)
{
	if (ret < 0) {
		fprintf(stderr, "vcpu: %s: %s\n", what, strerror(errno));
		_exit(1);
	}
	return ret;
}

static struct kvm_run *machine(int *vcpu)
{
	int kvm = must(open("/dev/kvm", O_RDWR), "/dev/kvm");
	int vm = must(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM"), bytes;
	struct kvm_userspace_memory_region slot = {
		.memory_size = size,
		.userspace_addr = (uintptr_t)mem,
	};
	struct kvm_run *run;

	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot), "memory");
	*vcpu = must(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
	bytes = must(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "mmap size");
	run = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		   *vcpu, 0);
	if (run == MAP_FAILED)
		must(-1, "vcpu");
	return run;
}

static void flat(struct kvm_segment *s, int is_code)
{
	memset(s, 0, sizeof(*s));
	s->limit = ~0u;
	s->selector = is_code ? 8 : 16;
	s->type = is_code ? 11 : 3;
	s->present = 1;
	s->s = 1;
	s->db = 1;
	s->g = 1;
}

static void one_round(int vcpu, const struct kvm_run *run)
{
	struct kvm_regs regs = { .rip = CODE, .rflags = 2 };
	struct kvm_sregs sregs;

	must(ioctl(vcpu, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	flat(&sregs.cs, 1);
	flat(&sregs.ds, 0);
	sregs.es = sregs.ds;
	sregs.ss = sregs.ds;
	sregs.cr0 |= 1;
	must(ioctl(vcpu, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
	regs.rdi = DATA;
	regs.rsi = size;
	must(ioctl(vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
	while (ioctl(vcpu, KVM_RUN, 0))
		if (errno != EINTR && errno != EAGAIN)
			must(-1, "KVM_RUN");
	if (run->exit_reason != KVM_EXIT_HLT) {
		fprintf(stderr, "vcpu: exit %u\n", run->exit_reason);
		_exit(1);
	}
}

static void look(const char *when)
{
	const char *command = getenv("LOOK");

	printf("%s\n", when);
	fflush(stdout);
	if (command)
		must(system(command) ? -1 : 0, "LOOK");
}

int main(int argc, char **argv)
{
	struct rusage before, after;
	struct kvm_run *run;
	uint32_t rounds, i;
	int fd = -1, vcpu;
	bool first;
	size_t p;

	if (argc != 4) {
		fprintf(stderr, "usage: vcpu anon|FILE MIB ROUNDS\n");
		return 2;
	}
	size = (size_t)strtoull(argv[2], NULL, 0) << 20;
	rounds = (uint32_t)atoi(argv[3]);
	if (strcmp(argv[1], "anon") != 0)
		fd = must(open(argv[1], O_RDWR), argv[1]);
	mem = mmap(NULL, size, PROT_READ | PROT_WRITE,
		   fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		must(-1, "mmap");
	first = !rounds;
	rounds += first;
	for (p = DATA; !first && p < size; p += PAGE)
		*(volatile uint32_t *)(mem + p) = (uint32_t)p;
	memcpy(mem + CODE, code, sizeof(code));
	run = machine(&vcpu);
	if (!first)
		one_round(vcpu, run);
	look("before");
	getrusage(RUSAGE_SELF, &before);
	for (i = 0; i < rounds; i++)
		one_round(vcpu, run);
	getrusage(RUSAGE_SELF, &after);
	look("after");
	for (p = DATA; p < size; p += PAGE)
		if (*(volatile uint32_t *)(mem + p) !=
		    rounds + (first ? 0 : p + 1)) {
			fprintf(stderr, "vcpu: page %#zx is wrong\n", p);
			return 1;
		}
	printf("done\nmajflt %ld\nminflt %ld\npages %zu\n",
	       after.ru_majflt - before.ru_majflt,
	       after.ru_minflt - before.ru_minflt,
	       (size - DATA) / PAGE * rounds);
	return 0;
}
