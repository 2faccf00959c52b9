// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * plugin.c - counts the instructions that an emulated machine executes
 *
 * A plugin of QEMU's. Counting is by block of code (a function each time one
 * begins) so where the instructions went is known too. A string instruction
 * with a prefix that repeats it counts once, as on a real processor; QEMU
 * begins a block of one instruction for each repetition, by which these are
 * told apart, and they have a count of their own.
 *
 * Programs in the machine say what is counted, by a no-operation that has a
 * number in it (marker() in touch.c): 1 begins from nothing, 2 adds what was
 * counted since to the file out=. A line "total KERNEL USER REPEATED", then "at
 * ADDRESS INSTRUCTIONS" for the kernel's blocks, then "end".
 *
 * For a machine of one processor: nothing is locked.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../qemu_plugin.h"

int qemu_plugin_version = 1;

/* nopl 0x64636dNN(%rax) */
static const uint8_t marker[] = { 0x0f, 0x1f, 0x80 };
#define MARKER 0x64636d00u

/**
 * struct block - code that is executed in one piece
 * @next: all there are
 * @at: where it begins
 * @insns: its instructions
 * @repeats: where the repeated one is with which it ends, 0: none
 * @count: how often it began
 */
struct block {
	struct block *next;
	uint64_t at;
	uint64_t insns;
	uint64_t repeats;
	uint64_t count;
};

static struct block *blocks;
static uint64_t repeated;
static uint64_t before; /* the block executed last ended with this one */
static const char *out;

static void executed(unsigned int vcpu, void *data)
{
	struct block *b = data;

	(void)vcpu;
	if (b->repeats && b->insns == 1 && before == b->repeats)
		repeated++;
	else
		b->count++;
	before = b->repeats;
}

static void begin(void)
{
	struct block *b;

	repeated = 0;
	for (b = blocks; b; b = b->next)
		b->count = 0;
}

static void tell(void)
{
	uint64_t kernel = 0, user = 0;
	FILE *f = fopen(out, "a");
	struct block *b;

	if (!f) {
		perror(out);
		abort();
	}
	for (b = blocks; b; b = b->next)
		*(b->at >> 63 ? &kernel : &user) += b->count * b->insns;
	fprintf(f, "total %ju %ju %ju\n", (uintmax_t)kernel, (uintmax_t)user,
		(uintmax_t)repeated);
	for (b = blocks; b; b = b->next)
		if (b->count && b->at >> 63)
			fprintf(f, "at %jx %ju\n", (uintmax_t)b->at,
				(uintmax_t)(b->count * b->insns));
	fprintf(f, "end\n");
	if (fclose(f)) {
		perror(out);
		abort();
	}
}

static void marked(unsigned int vcpu, void *data)
{
	(void)vcpu;
	if ((uintptr_t)data == 1)
		begin();
	else
		tell();
}

/* movs, cmps, stos, lods, scas, after a repeating prefix and any others. */
static int is_repeated(const uint8_t *code, size_t n)
{
	int prefix = 0;
	size_t i;

	for (i = 0; i + 1 < n; i++) {
		if (code[i] == 0xf2 || code[i] == 0xf3)
			prefix = 1;
		else if (code[i] != 0x66 && code[i] != 0x67 &&
			 (code[i] & 0xf0) != 0x40)
			return 0;
	}
	return prefix && n && code[i] >= 0xa4 && code[i] <= 0xaf &&
	       (code[i] & 0xfe) != 0xa8;
}

static void look(struct qemu_plugin_insn *insn, struct block *b)
{
	const uint8_t *code = qemu_plugin_insn_data(insn);
	size_t n = qemu_plugin_insn_size(insn);
	uint32_t what;

	b->repeats = is_repeated(code, n) ? qemu_plugin_insn_vaddr(insn) : 0;
	if (n != sizeof(marker) + sizeof(what) ||
	    memcmp(code, marker, sizeof(marker)) != 0)
		return;
	memcpy(&what, code + sizeof(marker), sizeof(what));
	if (what == (MARKER | 1) || what == (MARKER | 2))
		qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, 0,
						       (void *)(uintptr_t)(what &
									   0xff));
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct block *b = calloc(1, sizeof(*b));
	size_t i;

	(void)id;
	if (!b)
		abort();
	b->at = qemu_plugin_tb_vaddr(tb);
	b->insns = qemu_plugin_tb_n_insns(tb);
	for (i = 0; i < b->insns; i++)
		look(qemu_plugin_tb_get_insn(tb, i), b);
	b->next = blocks;
	blocks = b;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, 0, b);
}

API int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
			    int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
		fprintf(stderr, "plugin: out=FILE\n");
		return -1;
	}
	out = strdup(argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return out ? 0 : -1;
}
