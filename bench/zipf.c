// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * zipf.c - a zipfian load for a Redis server on a UNIX socket, every reply checked
 *
 *   zipf SOCKET KEYS VALUE_BYTES REQUESTS [CONNECTIONS]
 *
 * YCSB's workload B: keys of zipfian popularity (0.99), the popular ones
 * spread over all keys, 95 % GET and 5 % SET, one request in flight on each
 * connection (redis-benchmark's and memtier's default of 50 connections, no
 * pipelining). First all keys are set. Connection c has the keys of rank
 * r % CONNECTIONS == c to itself, so what each GET must return is known.
 */
#include <errno.h>
#include <math.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common.h"

#define SKEW	    0.99
#define SET_PERCENT 5
#define VALUE_MAX   65536u
#define CONNS_MAX   200u

struct conn {
	int fd;
	unsigned int id;
	uint64_t rng;
	uint32_t nr_keys; /* its own */
	double *cdf;
	uint8_t *version;
	uint64_t left; /* requests to go */
	uint32_t key;  /* in flight */
	bool set;
	uint64_t sent_ns;
	char *reply;
	size_t got, want;
};

static struct conn conns[CONNS_MAX];
static unsigned int nr_conns = 50;
static uint32_t nr_keys;
static size_t value_bytes;
static uint64_t checksum, wrong, done;
static uint32_t *latency;
static uint64_t nr_latency, max_latency;

static void value_make(char *out, uint64_t key, unsigned int version)
{
	uint64_t page[PAGE / 8];

	for (size_t at = 0; at < value_bytes; at += PAGE) {
		size_t n = value_bytes - at < PAGE ? value_bytes - at : PAGE;

		bench_page_fill(page, key * 256 + version + at, CONTENT_MIXED);
		memcpy(out + at, page, n);
	}
}

/* Which key a rank is: popular ones lie anywhere. */
static uint64_t key_number(const struct conn *c, uint32_t index)
{
	uint64_t k = (uint64_t)index * nr_conns + c->id;

	return (k * 0x9e3779b97f4a7c15ull) % 1000000007ull * 1000 + k % 1000;
}

static void request_send(struct conn *c)
{
	static char buf[VALUE_MAX + 256];
	uint64_t key = key_number(c, c->key);
	size_t n;

	if (c->set) {
		c->version[c->key]++;
		n = (size_t)
			sprintf(buf,
				"*3\r\n$3\r\nSET\r\n$24\r\nuser%020llu\r\n$%zu\r\n",
				    (unsigned long long)key, value_bytes);
		value_make(buf + n, key, c->version[c->key]);
		n += value_bytes;
		buf[n++] = '\r';
		buf[n++] = '\n';
		c->want = 5;
	} else {
		n = (size_t)sprintf(buf,
				    "*2\r\n$3\r\nGET\r\n$24\r\nuser%020llu\r\n",
				    (unsigned long long)key);
		c->want = (size_t)snprintf(NULL, 0, "$%zu\r\n", value_bytes) +
			  value_bytes + 2;
	}
	c->got = 0;
	c->sent_ns = bench_now_ns();
	for (size_t at = 0; at < n;) {
		ssize_t w = send(c->fd, buf + at, n - at, MSG_NOSIGNAL);

		if (w <= 0)
			die("zipf: the server hung up: %s", strerror(errno));
		at += (size_t)w;
	}
}

static void reply_check(struct conn *c)
{
	static char value[VALUE_MAX];
	size_t head = c->want - value_bytes - 2;

	if (c->set) {
		if (memcmp(c->reply, "+OK\r\n", 5))
			die("zipf: SET failed: %.*s", (int)c->got, c->reply);
		return;
	}
	value_make(value, key_number(c, c->key), c->version[c->key]);
	if (c->reply[0] != '$' || memcmp(c->reply + head, value, value_bytes))
		wrong++;
	for (size_t i = 0; i < value_bytes; i += 8) {
		uint64_t w = 0;

		memcpy(&w, c->reply + head + i,
		       value_bytes - i < 8 ? value_bytes - i : 8);
		checksum += (w ^ i) * 0x9e3779b97f4a7c15ull;
	}
}

/* Receive some; true when the reply is whole. */
static bool reply_receive(struct conn *c)
{
	ssize_t n = recv(c->fd, c->reply + c->got, c->want - c->got, 0);

	if (n <= 0)
		die("zipf: the server hung up: %s",
		    n ? strerror(errno) : "end of file");
	c->got += (size_t)n;
	if (c->reply[0] == '-')
		die("zipf: the server says %.*s", (int)c->got, c->reply);
	return c->got == c->want;
}

static void request_next(struct conn *c)
{
	double u = (double)(bench_rand(&c->rng) >> 11) / 9007199254740992.0;
	uint32_t lo = 0, hi = c->nr_keys - 1;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (c->cdf[mid] < u)
			lo = mid + 1;
		else
			hi = mid;
	}
	c->key = lo;
	c->set = (bench_rand(&c->rng) >> 32) % 100 < SET_PERCENT;
	request_send(c);
}

static void run(int ep, bool load)
{
	unsigned int open = nr_conns;

	for (unsigned int i = 0; i < nr_conns; i++) {
		if (load) {
			conns[i].key = 0;
			conns[i].set = true;
			request_send(&conns[i]);
		} else {
			request_next(&conns[i]);
		}
	}
	while (open) {
		struct epoll_event ev[CONNS_MAX];
		int n = epoll_wait(ep, ev, CONNS_MAX, -1);

		if (n < 0 && errno != EINTR)
			die("zipf: epoll: %s", strerror(errno));
		for (int i = 0; i < n; i++) {
			struct conn *c = ev[i].data.ptr;

			if (!reply_receive(c))
				continue;
			reply_check(c);
			if (load) {
				if (++c->key < c->nr_keys)
					request_send(c);
				else
					open--;
				continue;
			}
			if (nr_latency < max_latency)
				latency[nr_latency++] =
					(uint32_t)(bench_now_ns() - c->sent_ns);
			done++;
			if (--c->left)
				request_next(c);
			else
				open--;
		}
	}
}

static void conn_open(struct conn *c, const char *path, int ep)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
	double sum = 0;

	if (strlen(path) >= sizeof(a.sun_path))
		die("zipf: %s is too long a path for a socket", path);
	strcpy(a.sun_path, path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof(a)))
		die("zipf: %s: %s", path, strerror(errno));
	epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
	c->rng = 0xabcdef + c->id * 0x9e3779b97f4a7c15ull;
	c->nr_keys = (nr_keys + nr_conns - 1 - c->id) / nr_conns;
	c->cdf = malloc(c->nr_keys * sizeof(*c->cdf));
	c->version = calloc(c->nr_keys, 1);
	c->reply = malloc(value_bytes + 64);
	if (!c->cdf || !c->version || !c->reply)
		die("zipf: no memory");
	for (uint32_t i = 0; i < c->nr_keys; i++)
		c->cdf[i] = sum +=
			1.0 / pow((double)i * nr_conns + c->id + 1, SKEW);
	for (uint32_t i = 0; i < c->nr_keys; i++)
		c->cdf[i] /= sum;
}

int main(int argc, char **argv)
{
	uint64_t requests, t0, t1, t2;
	int ep = epoll_create1(EPOLL_CLOEXEC);

	if (argc < 5)
		die("usage: zipf SOCKET KEYS VALUE_BYTES REQUESTS [CONNECTIONS]");
	nr_keys = (uint32_t)strtoul(argv[2], NULL, 10);
	value_bytes = strtoul(argv[3], NULL, 10);
	requests = strtoull(argv[4], NULL, 10);
	if (argc > 5)
		nr_conns = (unsigned int)strtoul(argv[5], NULL, 10);
	if (!nr_conns || nr_conns > CONNS_MAX || nr_keys < nr_conns ||
	    value_bytes < 8 || value_bytes > VALUE_MAX || requests < nr_conns)
		die("zipf: numbers out of range");
	max_latency = requests;
	latency = malloc(max_latency * sizeof(*latency));
	if (!latency || ep < 0)
		die("zipf: no memory");
	for (unsigned int i = 0; i < nr_conns; i++) {
		conns[i].id = i;
		conns[i].left = requests / nr_conns;
		conn_open(&conns[i], argv[1], ep);
	}
	t0 = bench_now_ns();
	run(ep, true);
	t1 = bench_now_ns();
	run(ep, false);
	t2 = bench_now_ns();
	printf("{\"load_s\":%.3f,\"run_s\":%.3f,\"requests\":%llu,\"wrong\":%llu,"
	       "\"checksum\":\"%016llx\",",
	       (double)(t1 - t0) / 1e9, (double)(t2 - t1) / 1e9,
	       (unsigned long long)done, (unsigned long long)wrong,
	       (unsigned long long)checksum);
	bench_percentiles_print("ns", latency, nr_latency);
	printf("}\n");
	return wrong != 0;
}
