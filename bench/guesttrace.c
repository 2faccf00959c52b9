// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * guesttrace.c - a plugin of QEMU's: the pages a whole guest touches
 *
 * For a guest what pagetrace.c is for a program. It notes loads and stores of an
 * emulated guest, its kernel's too, by guest-physical page, in the RAM below and
 * above the hole for devices. It sees neither writes of devices nor the fetching of
 * instructions.
 *
 *   -plugin guesttrace.so,out=FILE,records=N
 *
 * For a machine of one processor: nothing is locked.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pagelog.h"
#include "qemu_plugin.h"

int qemu_plugin_version = 1;

static struct pagelog pages;
static int out = -1;
/* The last one of each kind, which is mostly the next one as well. */
static uint64_t last_page[2] = { UINT64_MAX, UINT64_MAX };

static void pagelog_write(struct pagelog *log)
{
	size_t at = 0;

	while (at < log->used) {
		ssize_t n = write(out, log->buffer + at, log->used - at);

		if (n < 0) {
			fprintf(stderr, "guesttrace: %s\n", strerror(errno));
			_exit(1);
		}
		at += (size_t)n;
	}
}

/* The guest goes on. */
static void pagelog_full(struct pagelog *log)
{
	(void)log;
}

static void touched(unsigned int vcpu, qemu_plugin_meminfo_t info,
		    uint64_t vaddr, void *data)
{
	bool store = qemu_plugin_mem_is_store(info);
	struct qemu_plugin_hwaddr *where;

	(void)vcpu;
	(void)data;
	if (vaddr >> 12 == last_page[store])
		return;
	last_page[store] = vaddr >> 12;
	where = qemu_plugin_get_hwaddr(info, vaddr);
	if (where && !qemu_plugin_hwaddr_is_io(where))
		pagelog_put(&pages, qemu_plugin_hwaddr_phys_addr(where) >> 12,
			    store);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i;

	(void)id;
	for (i = 0; i < qemu_plugin_tb_n_insns(tb); i++)
		qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i),
						 touched,
						 QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, NULL);
}

static void ended(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	pagelog_flush(&pages);
}

API int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
			    int argc, char **argv)
{
	(void)info;
	if (argc != 2 || strncmp(argv[0], "out=", 4) != 0 ||
	    strncmp(argv[1], "records=", 8) != 0) {
		fprintf(stderr, "guesttrace: out=FILE,records=N\n");
		return -1;
	}
	pages.records_max = strtoll(argv[1] + 8, NULL, 10);
	out = open(argv[0] + 4, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0) {
		fprintf(stderr, "guesttrace: %s: %s\n", argv[0] + 4,
			strerror(errno));
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
