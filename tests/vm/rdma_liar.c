// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rdma_liar.c - a donor over RDMA that lies, and a dcmfs file that depends on it
 *
 *	rdma_liar DIR ADDRESS PORT
 *
 * One process is the control plane and the donor, its children use the memory.
 * The keys, addresses and lengths of slabs are what the donor says they are,
 * its end of a queue pair does what it likes. Pages may be lost to a liar, and
 * then they say so (SIGBUS, and are counted); none may ever hold another page's
 * bytes. Each check has a name that is printed when it passed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs.h"

#define PAGE 4096u
#define SIZE (16u << 20)
#define PAGES (SIZE / PAGE)
#define DONOR 1
#define PEERS_MAX 1024
#define SLABS_MAX 64

enum lie { TRUTH, LIE_KEY, LIE_ADDRESS, LIE_LENGTH };
enum manner { PROPER, REJECTS, NO_READS, HANGS_UP, INTRUDES };

static struct {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *peer[PEERS_MAX];
	unsigned int peers;
	unsigned int asked;
	enum manner manner;
} donor;

/**
 * struct slab - one extent's memory at the donor
 * @id: 0: the extent has none
 * @lie: what the file was told of it
 */
struct slab {
	uint64_t id;
	enum lie lie;
	char *mem;
	struct ibv_mr *mr;
};

static struct {
	int fd;
	char *mem;
	struct dcmfs_info info;
	int *link;
	struct slab slab[SLABS_MAX];
	enum lie lie;
} vm;

/* Shared with the children: pages that can't be had. */
static _Atomic unsigned int *gone;
static const char *dir;
static struct sockaddr_in addr = { .sin_family = AF_INET };
static sigjmp_buf bus;

static void __attribute__((noreturn, format(printf, 1, 2)))
fail(const char *fmt, ...)
{
	va_list ap;

	printf("FAILED: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	_exit(1);
}

/* ---- the donor's end of queue pairs ---- */

static void peer_accept(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param param = {
		.responder_resources = donor.manner == NO_READS ? 0 : 16,
	};

	if (donor.manner == REJECTS) {
		rdma_reject(id, "no", 2);
		rdma_destroy_id(id);
		return;
	}
	if (donor.peers == PEERS_MAX)
		fail("more than %u connections", PEERS_MAX);
	if (rdma_create_qp(id, donor.listener->pd, &attr) ||
	    rdma_accept(id, &param))
		fail("accepting: %s", strerror(errno));
	donor.peer[donor.peers++] = id;
}

/* Into memory of the host's that nobody has offered. */
static void peer_intrude(struct rdma_cm_id *id, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)vm.slab[0].mem,
			       .length = 64,
			       .lkey = vm.slab[0].mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE },
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)vm.mem;
	wr.wr.rdma.rkey = rkey;
	ibv_post_send(id->qp, &wr, &bad);
}

static void donor_serve(void)
{
	struct pollfd p = { .fd = donor.events->fd, .events = POLLIN };
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	while (poll(&p, 1, 0) == 1 && !rdma_get_cm_event(donor.events, &ev)) {
		id = ev->event == RDMA_CM_EVENT_CONNECT_REQUEST ? ev->id : NULL;
		rdma_ack_cm_event(ev);
		if (id) {
			donor.asked++;
			peer_accept(id);
		}
	}
}

static void donor_forget(void)
{
	while (donor.peers) {
		struct rdma_cm_id *id = donor.peer[--donor.peers];

		rdma_disconnect(id);
		rdma_destroy_qp(id);
		/* Its events come first, or this would wait for them. */
		donor_serve();
		rdma_destroy_id(id);
	}
}

static void donor_start(void)
{
	donor.events = rdma_create_event_channel();
	if (!donor.events ||
	    rdma_create_id(donor.events, &donor.listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(donor.listener, (struct sockaddr *)&addr) ||
	    rdma_listen(donor.listener, 64))
		fail("listening: %s", strerror(errno));
}

/* ---- the control plane ---- */

/* Links that have ended are made again; how many had. */
static unsigned int mend(void)
{
	unsigned int n = 0;
	uint32_t i;

	donor_serve();
	for (i = 0; i < vm.info.lanes; i++) {
		struct pollfd p = { .fd = vm.link[i], .events = POLLOUT };
		struct dcmfs_pair arg = { .donor = DONOR,
					  .lane = i,
					  .port = ntohs(addr.sin_port) };

		if (p.fd >= 0 && (poll(&p, 1, 0) < 1 || p.revents == POLLOUT))
			continue;
		if (p.fd >= 0) {
			close(p.fd);
			n++;
		}
		arg.addr[10] = arg.addr[11] = 0xff;
		memcpy(arg.addr + 12, &addr.sin_addr, 4);
		if (ioctl(vm.fd, DCMFS_IOC_PAIR, &arg))
			fail("DCMFS_IOC_PAIR: %s", strerror(errno));
		vm.link[i] = arg.fd;
	}
	return n;
}

static void slab_give(uint32_t extent)
{
	struct slab *s = &vm.slab[extent];
	size_t bytes = vm.info.extent_pages * PAGE;
	struct dcmfs_slab arg = { .extent = extent,
				  .fd = -1,
				  .flags = DCMFS_SLAB_REMOTE,
				  .donor = DONOR };
	static uint64_t last;

	s->lie = vm.lie;
	s->mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	s->mr = ibv_reg_mr(donor.listener->pd, s->mem,
			   s->lie == LIE_LENGTH ? bytes / 2 : bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE);
	if (s->mem == MAP_FAILED || !s->mr)
		fail("a slab: %s", strerror(errno));
	arg.id = arg.remote = s->id = ++last;
	arg.base = (uintptr_t)s->mem + (s->lie == LIE_ADDRESS ? bytes : 0);
	arg.rkey = s->mr->rkey ^ (s->lie == LIE_KEY ? 0x5a00 : 0);
	if (ioctl(vm.fd, DCMFS_IOC_ATTACH, &arg))
		fail("DCMFS_IOC_ATTACH: %s", strerror(errno));
}

static void slab_free(struct slab *s)
{
	if (!s->id)
		return;
	ibv_dereg_mr(s->mr);
	munmap(s->mem, vm.info.extent_pages * PAGE);
	s->id = 0;
}

static unsigned int serve(void)
{
	struct pollfd p = { .fd = vm.fd, .events = POLLPRI };
	struct dcmfs_wanted w = { .first = 0 };
	unsigned int mended = mend();

	poll(&p, 1, 2);
	while (!ioctl(vm.fd, DCMFS_IOC_WANTED, &w)) {
		slab_give(w.extent);
		w.first = w.extent + 1;
	}
	return mended;
}

/* It was found out: what it has is given up, and it lies no more. */
static void confess(void)
{
	uint32_t e;

	vm.lie = TRUTH;
	for (e = 0; e < vm.info.extents; e++) {
		struct slab *s = &vm.slab[e];
		struct dcmfs_slab arg = { .extent = e, .fd = -1, .id = s->id };

		if (!s->id || s->lie == TRUTH)
			continue;
		if (ioctl(vm.fd, DCMFS_IOC_LOST, &arg))
			fail("DCMFS_IOC_LOST: %s", strerror(errno));
		slab_free(s);
	}
}

/* ---- the program that uses the memory ---- */

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(bus, 1);
}

static void write_page(size_t i)
{
	*(volatile uint64_t *)(vm.mem + i) = i + 1;
	*(volatile uint64_t *)(vm.mem + i + PAGE - 8) = ~i;
}

static void check_page(size_t i)
{
	uint64_t a = *(volatile uint64_t *)(vm.mem + i);
	uint64_t b = *(volatile uint64_t *)(vm.mem + i + PAGE - 8);

	if (a != i + 1 || b != ~i)
		fail("page %zu holds %#jx, %#jx", i / PAGE, (uintmax_t)a,
		     (uintmax_t)b);
}

static pid_t child(void (*page)(size_t i))
{
	pid_t pid;

	atomic_store(gone, 0);
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid)
		return pid;
	signal(SIGBUS, on_bus);
	for (volatile size_t i = 0; i < SIZE; i += PAGE) {
		if (sigsetjmp(bus, 1))
			atomic_fetch_add(gone, 1);
		else
			page(i);
	}
	_exit(0);
}

static bool ended(pid_t pid)
{
	int status;

	if (!waitpid(pid, &status, WNOHANG))
		return false;
	if (status)
		fail("a child ended with %#x", status);
	return true;
}

/* Returns how many links were made again. */
static unsigned int run(void (*page)(size_t i))
{
	pid_t pid = child(page);
	unsigned int mended = 0;

	while (!ended(pid))
		mended += serve();
	return mended;
}

static void vm_open(void)
{
	uint64_t budget = PAGES / 2;
	uint32_t i;

	memset(&vm, 0, sizeof(vm));
	vm.fd = open(dir, O_TMPFILE | O_RDWR, 0600);
	if (vm.fd < 0 || ftruncate(vm.fd, SIZE) ||
	    ioctl(vm.fd, DCMFS_IOC_INFO, &vm.info) ||
	    ioctl(vm.fd, DCMFS_IOC_BUDGET, &budget))
		fail("a file in %s: %s", dir, strerror(errno));
	if (vm.info.extents > SLABS_MAX)
		fail("%ju extents", (uintmax_t)vm.info.extents);
	vm.mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, vm.fd, 0);
	vm.link = calloc(vm.info.lanes, sizeof(*vm.link));
	if (vm.mem == MAP_FAILED || !vm.link)
		fail("mmap: %s", strerror(errno));
	for (i = 0; i < vm.info.lanes; i++)
		vm.link[i] = -1;
}

static unsigned int lost(void)
{
	struct dcmfs_info info;

	if (ioctl(vm.fd, DCMFS_IOC_INFO, &info))
		fail("DCMFS_IOC_INFO: %s", strerror(errno));
	return (unsigned int)info.lost_pages;
}

static void vm_close(void)
{
	uint32_t i;

	donor.manner = PROPER;
	munmap(vm.mem, SIZE);
	close(vm.fd);
	for (i = 0; i < vm.info.lanes; i++)
		close(vm.link[i]);
	free(vm.link);
	donor_forget();
	for (i = 0; i < vm.info.extents; i++)
		slab_free(&vm.slab[i]);
}

/* ---- what is checked ---- */

static void there_and_back(void)
{
	vm_open();
	run(write_page);
	if (run(check_page) || lost() || *gone)
		fail("%u pages lost, %u gone", lost(), *gone);
	vm_close();
}

/* Slabs that are not where, or not as long as, or not under the key it says. */
static void lies(enum lie lie)
{
	unsigned int mended = 0, written;
	pid_t pid;

	vm_open();
	vm.lie = lie;
	pid = child(write_page);
	while (!ended(pid)) {
		mended += serve();
		if (mended && vm.lie != TRUTH)
			confess();
	}
	if (!mended)
		fail("nobody noticed lie %d", lie);
	written = *gone;
	run(check_page);
	if (*gone != lost() || *gone < written)
		fail("%u pages gone, %u before, %u lost", *gone, written,
		     lost());
	/* Where nothing could be written, nothing is lost. */
	if (lie != LIE_LENGTH && *gone)
		fail("%u pages lost by lie %d", *gone, lie);
	vm_close();
}

static void lies_of_keys(void)
{
	lies(LIE_KEY);
}

static void lies_of_addresses(void)
{
	lies(LIE_ADDRESS);
}

static void lies_of_lengths(void)
{
	lies(LIE_LENGTH);
}

/* It is rude while memory is read, until ten links have had to be made again. */
static void rude(enum manner manner)
{
	unsigned int mended = 0, turn = 0;

	vm_open();
	run(write_page);
	donor.manner = manner;
	if (manner == NO_READS || manner == REJECTS)
		donor_forget();
	while (mended < 10) {
		pid_t pid = child(check_page);

		while (!ended(pid)) {
			struct rdma_cm_id *id;

			mended += serve();
			if (mended >= 10)
				donor.manner = PROPER;
			if (!donor.peers)
				continue;
			id = donor.peer[donor.peers - 1 -
					turn++ % donor.peers % vm.info.lanes];
			if (donor.manner == HANGS_UP)
				rdma_disconnect(id);
			else if (donor.manner == INTRUDES && vm.slab[0].id)
				peer_intrude(id, turn);
		}
	}
	run(check_page);
	if (*gone || lost())
		fail("%u pages gone, %u lost", *gone, lost());
	vm_close();
}

static void hangs_up(void)
{
	rude(HANGS_UP);
}

static void rejects(void)
{
	rude(REJECTS);
}

static void grants_no_reads(void)
{
	rude(NO_READS);
}

static void intrudes(void)
{
	rude(INTRUDES);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} checks[] = {
		{ "there and back", there_and_back },
		{ "lies of keys", lies_of_keys },
		{ "lies of addresses", lies_of_addresses },
		{ "lies of lengths", lies_of_lengths },
		{ "hangs up", hangs_up },
		{ "rejects", rejects },
		{ "grants no reads", grants_no_reads },
		{ "intrudes", intrudes },
	};
	size_t i;

	if (argc != 4 || inet_pton(AF_INET, argv[2], &addr.sin_addr) != 1) {
		fprintf(stderr, "usage: rdma_liar DIR ADDRESS PORT\n");
		return 2;
	}
	dir = argv[1];
	addr.sin_port = htons((uint16_t)atoi(argv[3]));
	gone = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (gone == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	donor_start();
	for (i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		checks[i].run();
		printf("passed: %s\n", checks[i].name);
	}
	return 0;
}
