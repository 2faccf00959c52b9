// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/uffd/status.c kvm-dcm/uffd/vmsock.c kvm-dcm/client/config.c kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c kvm-dcm/client/activity.c kvm-dcm/client/risk.c kvm-dcm/core/ahead.c kvm-dcm/core/chunk.c kvm-dcm/lib/context_user.c kvm-dcm/core/demote.c kvm-dcm/core/discard.c kvm-dcm/core/doubt.c kvm-dcm/core/eblk.c kvm-dcm/core/evict.c kvm-dcm/core/extent.c kvm-dcm/core/fault.c kvm-dcm/core/fetch.c kvm-dcm/core/fifo.c kvm-dcm/core/fresh.c kvm-dcm/core/ghost.c kvm-dcm/core/hint.c kvm-dcm/core/hist.c kvm-dcm/core/lag.c kvm-dcm/core/move.c kvm-dcm/core/pd.c kvm-dcm/core/reuse.c kvm-dcm/core/seal.c kvm-dcm/core/slot.c kvm-dcm/core/stream.c kvm-dcm/core/sum.c kvm-dcm/core/sync.c kvm-dcm/core/tables.c kvm-dcm/core/vm.c kvm-dcm/core/watched.c kvm-dcm/core/writeback.c kvm-dcm/core/wrong.c tests/fuzz/json_memory.c tests/fuzz/sockets.c kvm-dcm/client/redundancy.c */
/* libs: -ljansson -Wl,--wrap=pthread_join,--wrap=json_dumps,--wrap=poll,--wrap=eventfd,--wrap=socket,--wrap=bind,--wrap=listen,--wrap=connect,--wrap=accept4,--wrap=setsockopt,--wrap=send,--wrap=recv,--wrap=read,--wrap=write,--wrap=close */
/*
 * status_fuzz.c - libFuzzer on the control socket of a paging process
 *
 * An input is clients: they connect, say lines that are requests, half of one or
 * anything, read their answers or little of them, and hang up. Whatever they do:
 * each whole line has one answer, a line with one JSON object that says whether
 * it is "ok"; what reaches the control plane is a valid name and address; and no
 * client holds up the others for longer than it may.
 *
 * The thread's loop (here, in this thread: its poll() is where steps are taken),
 * the JSON and a core's VM are real; of the pager and its control plane there is
 * what vmsock.c calls. Sockets are sockets.c's, with little room.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../kvm-dcm/core/internal.h"
#include "../../kvm-dcm/uffd/slab_worker.h"
#include "../../kvm-dcm/lib/thread.h"
#include "../../kvm-dcm/uffd/vmsock.h"
#include "input.h"
#include "json_memory.h"
#include "sockets.h"

#define CLIENTS 8u
#define LINE 4096u
#define HEARD (1u << 20)
#define ROOM_BYTES (16u << 10) /* three statuses and more */
#define PART (12u << 10) /* of it */
#define KNOWN 8u
#define TURN_NS 1100000000ull /* a client's answers may take, and a little */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_poll(struct pollfd *fds, nfds_t nr, int ms);
int __wrap_pthread_join(pthread_t t, void **ret);

/**
 * struct client - one connected client
 * @deaf: answers are read only when there is room for no more
 * @unsure: it may be cut off, or have been: not all lines have answers
 * @lines: whole ones said
 * @answers: heard
 * @tail: bytes said of a line that is not whole
 */
struct client {
	int fd;
	bool deaf;
	bool unsure;
	u32 lines;
	u32 answers;
	size_t tail;
	size_t n;
	u8 *got;
};

static struct dcm_pager pg;
static struct dcm_ops no_ops;
static struct client clients[CLIENTS];
static struct in in;
static struct sockaddr_un where = { .sun_family = AF_UNIX };
static void *(*thread_fn)(void *);
static void *thread_arg;
static u64 now_ns, turn_ns;
static bool left;

/* ---- what vmsock.c calls ---- */

int dcm_thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	*t = pthread_self();
	thread_fn = fn;
	thread_arg = arg;
	return 0;
}

int __wrap_pthread_join(pthread_t t, void **ret)
{
	(void)t;
	(void)ret;
	return 0;
}

u64 dcm_now_ns(void)
{
	return now_ns;
}

u64 dcm_guest_next(const struct dcm_guest *g, u64 va, u64 end, u64 *len,
		   u64 *gfn)
{
	(void)g;
	*len = va ? 0 : 4096;
	*gfn = 0;
	return va ? end : 4096;
}

int dcm_pager_set_budget(struct dcm_pager *p, uint64_t bytes)
{
	int err = dcm_set_budget(p->vm, bytes >> DCM_PAGE_SHIFT);

	if (!err)
		p->budget_bytes = bytes;
	return err;
}

uint64_t dcm_pager_min_budget(struct dcm_pager *p)
{
	return dcm_min_budget(p->vm) << DCM_PAGE_SHIFT;
}

uint64_t dcm_pager_budget(struct dcm_pager *p)
{
	return p->budget_bytes;
}

int dcm_pager_set(struct dcm_pager *p, const char *name, uint64_t value)
{
	return dcm_tunable_set(p->vm, name, value);
}

int dcm_pager_redundancy_set(struct dcm_pager *p,
			     enum dcm_host_redundancy redundancy)
{
	EXPECT(redundancy < DCM_REDUNDANCY_NR);
	if (p->cfg.redundancy == redundancy)
		return -EALREADY;
	p->cfg.redundancy = redundancy;
	return 0;
}

u64 dcm_client_extent_bytes(struct dcm_client *client, u32 ms)
{
	(void)client;
	(void)ms;
	return 2u << 20;
}

void dcm_slab_worker_risk(struct dcm_slab_worker *w, struct dcm_risk *risk)
{
	(void)w;
	*risk = (struct dcm_risk){ .alone = { 7 } };
	dcm_risk_add(risk, 3, false);
}

void dcm_client_status(struct dcm_client *client, struct dcm_client_status *st)
{
	(void)client;
	st->nr_donors = 1;
	strcpy(st->donor[0].name, "d");
}

const char *dcm_client_donor_state_name(enum dcm_client_donor_state state)
{
	(void)state;
	return "up";
}

int dcm_client_donor_add(struct dcm_client *client,
			 const struct dcm_host_donor *d)
{
	(void)client;
	EXPECT(dcm_name_valid(d->name) && dcm_address_valid(d->address));
	return -EEXIST;
}

int dcm_client_donor_drain(struct dcm_client *client, const char *name,
			   bool drain)
{
	(void)client;
	EXPECT(dcm_name_valid(name));
	return drain ? 0 : -ENOENT;
}

int dcm_client_donor_remove(struct dcm_client *client, const char *name)
{
	(void)client;
	EXPECT(dcm_name_valid(name));
	return -ETIMEDOUT;
}

/* ---- clients ---- */

static void client_close(struct client *c)
{
	if (c->fd < 0)
		return;
	close(c->fd);
	c->fd = -1;
	left = true;
}

static void client_open(struct client *c)
{
	const int room = ROOM_BYTES;

	client_close(c);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	EXPECT(c->fd >= 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	c->deaf = false;
	/* somebody's place may not be known to be free */
	c->unsure = left;
	c->lines = c->answers = 0;
	c->tail = c->n = 0;
	if (connect(c->fd, (struct sockaddr *)&where, sizeof(where))) {
		close(c->fd);
		c->fd = -1;
	}
}

/* Answers that were checked: most come again. */
static struct {
	size_t n;
	u8 bytes[ROOM_BYTES];
} known[KNOWN];

UNTRACED static bool answer_known(const u8 *at, size_t n)
{
	return n <= ROOM_BYTES && known[n % KNOWN].n == n &&
	       !memcmp(known[n % KNOWN].bytes, at, n);
}

static void answer_check(const u8 *at, size_t n)
{
	json_t *o;

	if (answer_known(at, n))
		return;
	json_memory_read();
	o = json_loadb((const char *)at, n, 0, NULL);
	EXPECT(json_is_boolean(json_object_get(o, "ok")));
	json_decref(o);
	json_memory_back();
	if (n <= ROOM_BYTES) {
		known[n % KNOWN].n = n;
		memcpy(known[n % KNOWN].bytes, at, n);
	}
}

static void heard(struct client *c)
{
	u8 *nl, *at = c->got;

	while ((nl = memchr(at, '\n', c->n))) {
		answer_check(at, (size_t)(nl - at));
		c->n -= (size_t)(nl + 1 - at);
		at = nl + 1;
		c->answers++;
	}
	memmove(c->got, at, c->n);
	EXPECT(c->answers <= c->lines);
}

static void client_read(struct client *c, size_t max)
{
	ssize_t n;

	if (c->fd < 0)
		return;
	n = recv(c->fd, c->got + c->n, min(max, HEARD - c->n), MSG_DONTWAIT);
	if (n > 0) {
		c->n += (size_t)n;
		heard(c);
		return;
	}
	if (!n || errno != EAGAIN) {
		/* cut off, for a reason */
		EXPECT(c->unsure);
		client_close(c);
	}
}

static void say(struct client *c, const char *bytes, size_t n)
{
	ssize_t sent;

	if (c->fd < 0)
		return;
	sent = send(c->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	for (ssize_t i = 0; i < sent; i++) {
		c->tail = bytes[i] == '\n' ? 0 : c->tail + 1;
		c->lines += bytes[i] == '\n';
		c->unsure |= c->tail >= LINE;
	}
	/* so much may be answered that it is cut off */
	c->unsure |= c->deaf || sent < (ssize_t)n;
}

static void say_request(struct client *c)
{
	static const char *const names[] = {
		"far", "a b", "", "idle_ms", "x", "largest_block"
	};
	static const char *const values[] = {
		"0",
		"-1",
		"65536",
		"9223372036854775807",
		"1e9",
		"\"1\"",
		"9223372036854775808",
		"null",
	};
	static const char *const ops[] = { "add", "drain", "keep", "remove",
					   "\\u0000" };
	static const char *const copies[] = { "\"none\"", "\"replica:2\"",
					      "\"replica:3\"",
					      "\"replica:4\"" };
	static const char *const addresses[] = {
		"tcp:h:1", "unix:/a", "tcp:", "unix:", "\\ud800",
	};
	const u32 how = byte(&in), a = byte(&in), b = byte(&in);
	char text[256];

	switch (how % 7) {
	case 6:
		snprintf(text, sizeof(text),
			 "{\"cmd\":\"redundancy\",\"value\":%s}",
			 a & 4 ? values[b % ARRAY_SIZE(values)] :
				 copies[a % ARRAY_SIZE(copies)]);
		break;
	case 0:
		snprintf(text, sizeof(text), "{\"cmd\":\"status\"}");
		break;
	case 1:
		snprintf(text, sizeof(text),
			 "{\"cmd\":\"budget\",\"bytes\":%s}",
			 values[a % ARRAY_SIZE(values)]);
		break;
	case 2:
		snprintf(text, sizeof(text), "{\"cmd\":\"tunables\"}");
		break;
	case 3:
		snprintf(text, sizeof(text),
			 "{\"cmd\":\"set\",\"name\":\"%s\",\"value\":%s}",
			 a & 1 ? names[(a >> 1) % ARRAY_SIZE(names)] :
				 dcm_tunables[a % DCM_T_NR].name,
			 values[b % ARRAY_SIZE(values)]);
		break;
	case 4:
		snprintf(text, sizeof(text),
			 "{\"cmd\":\"donor\",\"op\":\"%s\",\"name\":\"%s\",\"address\":\"%s\",\"group\":\"%s\"}",
			 ops[a % ARRAY_SIZE(ops)], names[b % ARRAY_SIZE(names)],
			 addresses[(b >> 3) % ARRAY_SIZE(addresses)],
			 names[a % ARRAY_SIZE(names)]);
		break;
	default:
		snprintf(text, sizeof(text), "{\"cmd\":%s}",
			 values[a % ARRAY_SIZE(values)]);
	}
	/* a byte of it another, or a part of it */
	if (how & 0x40)
		text[a % strlen(text)] = (char)b;
	text[strcspn(text, "\n")] = 0;
	/* to a client that does not read, more requests than there is room for answers */
	for (u32 i = 0; i < (how & 0x80 ? (c->deaf ? 6 : 3) : 1); i++) {
		say(c, text, strlen(text));
		say(c, "\n", 1);
	}
}

static void say_deep(struct client *c, u32 how)
{
	static char text[LINE];

	memset(text, how & 1 ? '[' : '"', sizeof(text));
	say(c, text, sizeof(text) - (how & 0x40 ? 0 : 1));
	say(c, "\n", 1);
}

static void say_junk(struct client *c)
{
	char buf[32];
	const u32 n = byte(&in) % sizeof(buf);

	for (u32 i = 0; i < n; i++)
		buf[i] = (char)byte(&in);
	say(c, buf, n);
}

static u32 step(void)
{
	const u32 what = byte(&in);
	struct client *c = &clients[what >> 3 & 7];

	switch (what & 7) {
	case 0:
		client_open(c);
		break;
	case 1:
	case 2:
	case 3:
		say_request(c);
		break;
	case 4:
		say_junk(c);
		break;
	case 5:
		say_deep(c, byte(&in));
		break;
	case 6:
		c->deaf ^= 1;
		c->unsure = true;
		break;
	default:
		client_close(c);
	}
	return what;
}

/* ---- the thread's poll() ---- */

static void clients_read(bool deaf, size_t max)
{
	for (u32 i = 0; i < CLIENTS; i++)
		if (clients[i].deaf == deaf)
			client_read(&clients[i], max);
}

/*
 * The status thread has no room for an answer. A client that reads its answers does
 * so at once. If only deaf clients are left time passes, and then they read a part.
 */
static int wait_for_room(struct pollfd *p, int ms)
{
	u32 deaf = 0;

	clients_read(false, HEARD);
	if (sockets_poll(p, 1))
		return 1;
	for (u32 i = 0; i < CLIENTS; i++)
		deaf += clients[i].deaf;
	clients_read(true, PART);
	now_ns += (u64)ms * 900000;
	EXPECT(now_ns - turn_ns <= deaf * TURN_NS);
	return sockets_poll(p, 1);
}

int __wrap_poll(struct pollfd *fds, nfds_t nr, int ms)
{
	static u32 quiet;
	int n;

	if (nr == 1)
		return wait_for_room(fds, ms);
	EXPECT(json_memory_is_free());
	clients_read(false, HEARD);
	left = false;
	quiet = in.at < in.end ? 0 : quiet + 1;
	while (in.at < in.end && step() & 0x80)
		;
	n = sockets_poll(fds, nr);
	turn_ns = now_ns;
	pg.stop = quiet > 1 && n <= 0;
	return n;
}

/* ---- a socket's life ---- */

static void begin(void)
{
	static const struct dcm_vm_config cfg = {
		.nr_pages = 4096,
		.extent_pages = 512,
		.nr_lanes = 2,
		.budget_pages = 1024,
		.seed = 1,
		.ops = &no_ops,
	};
	static char dir[] = "/tmp/dcm-status-fuzz-XXXXXX";
	int err;

	EXPECT(mkdtemp(dir) && !setenv("DCM_RUNTIME_DIR", dir, 1));
	snprintf(where.sun_path, sizeof(where.sun_path), "%s/vm/vm.sock", dir);
	json_memory_start();
	pg.vm = dcm_vm_create(&cfg, &err);
	EXPECT(pg.vm);
	for (u32 i = 0; i < CLIENTS; i++) {
		clients[i].fd = -1;
		clients[i].got = malloc(HEARD);
		EXPECT(clients[i].got);
	}
}

/* Nothing of it stays in /tmp. */
static void directory_end(void)
{
	char path[sizeof(where.sun_path)];

	snprintf(path, sizeof(path), "%s", where.sun_path);
	for (u32 i = 0; i < 2; i++) {
		*strrchr(path, '/') = 0;
		rmdir(path);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;
	char err[256];

	if (size > 1024)
		return 0;
	if (!begun) {
		begin();
		atexit(directory_end);
	}
	begun = true;
	in = (struct in){ data, data + size };
	now_ns = turn_ns = 1000000000u;
	left = false;
	pg.stop = false;
	strcpy(pg.cfg.name, "vm");
	EXPECT(!dcm_vmsock_start(&pg, err, sizeof(err)));
	thread_fn(thread_arg);
	for (u32 i = 0; i < CLIENTS; i++) {
		client_read(&clients[i], HEARD);
		EXPECT(clients[i].fd < 0 || clients[i].unsure ||
		     clients[i].answers == clients[i].lines);
	}
	dcm_vmsock_stop(&pg);
	for (u32 i = 0; i < CLIENTS; i++)
		client_close(&clients[i]);
	EXPECT(json_memory_is_free() && !sockets_open());
	return 0;
}
