// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * guest.c - a guest of a few instructions, whose memory is a dcmfs file
 *
 * KVM without a VMM around it, so that it is known which side touches a page: the guest
 * writes one half of its pages, which this process never does before, and this
 * process the other half, which the guest never does before. Then the budget
 * goes down until none can have stayed, and each side reads what the other
 * wrote. A write that only the guest's page tables know of is lost unless what
 * KVM leaves on a page when it drops it is looked at.
 *
 * A guest whose budget holds all of its memory is to run in huge pages: KVM's own
 * figures of this VM tell.
 *
 * The same machine, with interrupts, waits for a donor that says nothing: then
 * a kernel thread of KVM's does, and the memory must go nevertheless.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/kvm.h>

#include "dcmfs_test.h"
#include "wire_donor.h"

#define CODE 0x1000u
#define DATA 0x100000u /* the first page that is written */

/*
 * 32 bits, flat. edi: first page, esi: end, eax: value of the first page.
 *
 *	1: mov [edi], eax	or	cmp [edi], eax; jne 2f
 *	   add eax, 0x1000
 *	   add edi, 0x2000	every other page
 *	   cmp edi, esi
 *	   jb 1b
 *	   hlt
 *	2: ud2 (a triple fault)
 */
static const uint8_t writer[] = {
	0x89, 0x07, 0x05, 0x00, 0x10, 0x00, 0x00, 0x81, 0xc7,
	0x00, 0x20, 0x00, 0x00, 0x39, 0xf7, 0x72, 0xef, 0xf4,
};

static const uint8_t reader[] = {
	0x39, 0x07, 0x75, 0x10, 0x05, 0x00, 0x10, 0x00, 0x00, 0x81, 0xc7,
	0x00, 0x20, 0x00, 0x00, 0x39, 0xf7, 0x72, 0xed, 0xf4, 0x0f, 0x0b,
};

/**
 * struct machine - a guest
 * @irqs: it has interrupts, and they are on: KVM may then let it halt and have
 *	memory that it needs looked up by another thread
 */
struct machine {
	char *mem;
	size_t size;
	bool irqs;
	int kvm;
	int vm;
	int vcpu;
	struct kvm_run *run;
};

static int must(int ret, const char *what)
{
	if (ret < 0)
		fail("%s: %s", what, strerror(errno));
	return ret;
}

/* As a VMM does: first a VM, and then memory for it. */
static void machine_make(struct machine *m)
{
	m->kvm = must(open("/dev/kvm", O_RDWR), "/dev/kvm");
	m->vm = must(ioctl(m->kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
}

static void machine_memory(struct machine *m)
{
	struct kvm_userspace_memory_region slot = {
		.memory_size = m->size,
		.userspace_addr = (uintptr_t)m->mem,
	};
	int bytes;

	must(ioctl(m->vm, KVM_SET_USER_MEMORY_REGION, &slot), "memory");
	if (m->irqs)
		must(ioctl(m->vm, KVM_CREATE_IRQCHIP, 0), "KVM_CREATE_IRQCHIP");
	m->vcpu = must(ioctl(m->vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
	bytes = must(ioctl(m->kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "mmap size");
	m->run = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		      m->vcpu, 0);
	if (m->run == MAP_FAILED)
		fail("vcpu: %s", strerror(errno));
}

static void flat(struct kvm_segment *s, bool code)
{
	memset(s, 0, sizeof(*s));
	s->limit = ~0u;
	s->selector = code ? 8 : 16;
	s->type = code ? 11 : 3;
	s->present = 1;
	s->s = 1;
	s->db = 1;
	s->g = 1;
}

/* Run code over every other page from @first; false: it found another value. */
static bool run(struct machine *m, const uint8_t *code, size_t bytes,
		uint32_t first, uint32_t start)
{
	struct kvm_regs regs = { .rip = CODE,
				 .rflags = 2 | (m->irqs ? 0x200 : 0) };
	struct kvm_sregs sregs;

	memcpy(m->mem + CODE, code, bytes);
	must(ioctl(m->vcpu, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	flat(&sregs.cs, true);
	flat(&sregs.ds, false);
	sregs.es = sregs.ds;
	sregs.ss = sregs.ds;
	sregs.cr0 |= 1;
	must(ioctl(m->vcpu, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
	regs.rdi = first;
	regs.rsi = m->size;
	regs.rax = start;
	must(ioctl(m->vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
	while (ioctl(m->vcpu, KVM_RUN, 0))
		if (errno != EINTR && errno != EAGAIN)
			fail("KVM_RUN: %s", strerror(errno));
	if (m->run->exit_reason == KVM_EXIT_HLT)
		return true;
	if (m->run->exit_reason != KVM_EXIT_SHUTDOWN)
		fail("the guest ended with %u", m->run->exit_reason);
	return false;
}

/* The content of every other page from @first after the guest wrote from @start. */
static uint32_t value(uint32_t first, uint32_t page, uint32_t start)
{
	return start + (page - first) / 2;
}

/* A machine with a new file of that many MiB; slabs for all, before one is needed. */
static void machine_on(struct machine *m, struct control *c, char **argv)
{
	int fd = must(open(argv[2], O_RDWR | O_CREAT, 0600), argv[2]);
	uint32_t e;

	m->size = (size_t)strtoull(argv[3], NULL, 0) << 20;
	must(ftruncate(fd, (off_t)m->size), "ftruncate");
	machine_make(m);
	m->mem = map_shared(fd, m->size);
	machine_memory(m);
	control_open(c, fd);
	for (e = 0; e < c->info.extents; e++)
		control_provide(c, e);
}

/* guest FILE MIB */
int guest(int argc, char **argv)
{
	struct machine m = { 0 };
	struct control c;
	uint32_t p, round;

	(void)argc;
	machine_on(&m, &c, argv);
	/* Twice: what is new is dirty anyway, what was fetched to be read not. */
	for (round = 0; round < 2; round++) {
		uint32_t start = 0x5000001u + round * 0x1000000u;

		if (round && !(run(&m, reader, sizeof(reader), DATA,
				   start - 0x1000000u)))
			fail("the guest does not find what it wrote");
		if (!run(&m, writer, sizeof(writer), DATA, start))
			fail("the writer");
		for (p = DATA + PAGE; p < m.size; p += 2 * PAGE) {
			uint32_t *w = (uint32_t *)(m.mem + p);

			if (round &&
			    *w != value(DATA + PAGE, p, start - 0x1000000u))
				fail("page %#x, written here: %#x", p, *w);
			*w = value(DATA + PAGE, p, start);
		}
		control_squeeze(&c);
		for (p = DATA; p < m.size; p += 2 * PAGE)
			if (*(uint32_t *)(m.mem + p) != value(DATA, p, start))
				fail("page %#x, written by the guest only: %#x",
				     p, *(uint32_t *)(m.mem + p));
		control_squeeze(&c);
		if (!run(&m, reader, sizeof(reader), DATA + PAGE, start))
			fail("the guest does not find what was written here");
	}
	/* A reader that can't find a difference proves nothing. */
	(*(uint32_t *)(m.mem + DATA + 6 * PAGE))++;
	control_squeeze(&c);
	if (run(&m, reader, sizeof(reader), DATA, 0x6000001u))
		fail("the guest does not see a wrong value");
	printf("guest: %zu pages right both ways\n", m.size / PAGE);
	return 0;
}

/* A figure that KVM has of a machine. */
static unsigned long figure(const struct machine *m, const char *name)
{
	char path[128], line[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/sys/kernel/debug/kvm/%d-%d/%s", getpid(),
		 m->vm, name);
	f = fopen(path, "r");
	if (!f || !fgets(line, sizeof(line), f))
		fail("%s: %s", path, strerror(errno));
	fclose(f);
	return strtoul(line, NULL, 10);
}

/* spans FILE MIB: all of it is direct; the guest touches each page first */
int guest_in_spans(int argc, char **argv)
{
	struct machine m = { 0 };
	unsigned long exits;
	struct control c;
	uint32_t p;

	(void)argc;
	machine_on(&m, &c, argv);
	if (!run(&m, writer, sizeof(writer), DATA, 1) ||
	    !run(&m, writer, sizeof(writer), DATA + PAGE, 1))
		fail("the writer");
	exits = figure(&m, "exits");
	printf("spans: %lu of 2 MiB, %lu of 4 KiB, %lu exits, %zu pages\n",
	       figure(&m, "pages_2m"), figure(&m, "pages_4k"), exits,
	       m.size / PAGE);
	/* The guest's writes to huge pages leave with the pages. */
	control_squeeze(&c);
	for (p = DATA; p < m.size; p += 2 * PAGE)
		if (*(uint32_t *)(m.mem + p) != value(DATA, p, 1) ||
		    *(uint32_t *)(m.mem + p + PAGE) != value(DATA, p, 1))
			fail("page %#x: %#x", p, *(uint32_t *)(m.mem + p));
	if (!run(&m, reader, sizeof(reader), DATA, 1))
		fail("the guest does not find what it wrote");
	printf("spans: %zu pages right afterwards\n", m.size / PAGE);
	return 0;
}

/* Every page that the reader looks at holds what it expects, if it begins with 1. */
static void fill(char *mem, size_t size)
{
	uint32_t p;

	for (p = DATA; p < size; p += 2 * PAGE)
		*(uint32_t *)(mem + p) = value(DATA, p, 1);
}

/* Ended by @sig, or not at all: within a minute. */
static bool ended(pid_t pid, int sig)
{
	uint64_t until = now_ns() + 60000000000u;
	int status;

	while (!waitpid(pid, &status, WNOHANG)) {
		if (now_ns() > until)
			return false;
		usleep(20000);
	}
	if (status != sig)
		fail("a child ended with %#x", status);
	return true;
}

/* silent DIR: the caller looks whether the memory is gone */
int silent(int argc, char **argv)
{
	struct machine m = { .size = 16u << 20, .irqs = true };
	struct control c;
	int fd, status;
	pid_t pid;

	(void)argc;
	setenv("DCMFS_TEST_TCP", "1", 1);
	fd = file_make(argv[2], (off_t)m.size);
	m.mem = map_shared(fd, m.size);
	control_open(&c, fd);
	pid = must(fork(), "fork");
	if (!pid) {
		fill(m.mem, m.size);
		_exit(0);
	}
	while (!waitpid(pid, &status, WNOHANG))
		control_serve(&c, 5);
	if (status)
		fail("a child ended with %#x", status);
	control_squeeze(&c);
	m.mem[CODE] = 0; /* the guest's code stays here */
	wire_donor_sleep(true);
	pid = must(fork(), "fork");
	if (!pid) {
		machine_make(&m);
		m.mem = map_shared(fd, m.size);
		machine_memory(&m);
		/* It reads on over pages that are direct still, to one that is not. */
		if (!run(&m, reader, sizeof(reader), DATA, 1))
			fail("the guest does not find what was written");
		_exit(0);
	}
	usleep(700000);
	if (waitpid(pid, &status, WNOHANG))
		fail("the guest did not wait: it ended with %#x", status);
	kill(pid, SIGKILL);
	if (!ended(pid, SIGKILL))
		fail("the guest's process does not end");
	printf("silent: ended\n");
	return 0;
}
