// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * keep.c - records of sessions and slabs, in a memfd that outlives the process
 *
 * The process may be killed between any two instructions, and the next process reads
 * the records as they are then. So every change takes effect by one single store:
 *
 *	head | session records | slab records
 *
 * A record is free while its mark is 0. To write a record, its fields are written
 * first, and then its mark, a sum of the fields; to free it, the mark is cleared first.
 * So a record with a mark has all of its fields. The serial of slabs, and the print (a
 * hash) of a tenant's key, which may change while sessions live, are words of their own
 * and not in the sum.
 *
 * No flush is needed: after the process is killed its stores are in memory in the order
 * in which it made them, and a memfd does not outlive the machine.
 *
 * The next process trusts nothing in it: the memfd must have its seals (else a
 * holder could shrink it under a mapping), the size that its head says, and
 * records with good sums and values. A damaged memfd is not used at all.
 *
 * In infiniswap-nsdi17 a daemon's slabs are lost when it ends.
 *
 * Locking: none, all on the event loop.
 * Invariant: while a host knows a session or a slab, its record has a mark.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keep.h"

#define MAGIC	0x70656b2d6d6364ull /* "dcm-kep" */
#define VERSION 1u
#define SEALS	(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define NR_MAX	(1u << 20)
#define SERIAL_MAX (1ull << 40)

struct head {
	u64 magic;
	u32 version;
	u32 reserved;
	struct dcm_keep_shape shape;
	u64 mark;   /* of all above */
	u64 serial; /* one store */
};

struct session_record {
	u64 mark;
	u64 print; /* one store */
	struct dcm_keep_session s;
};

struct slab_record {
	u64 mark;
	struct dcm_keep_slab s;
};

static_assert(sizeof(struct dcm_keep_shape) == 32, "no hidden bytes");
static_assert(sizeof(struct session_record) == 112, "no hidden bytes");
static_assert(sizeof(struct slab_record) == 48, "no hidden bytes");

/* Numbers of free records; the last one is taken next. */
struct spare {
	u32 *number;
	u32 nr;
};

struct dcm_keep {
	int fd;
	size_t bytes;
	struct head *head;
	struct session_record *sessions;
	struct slab_record *slabs;
	/* a copy of the head's, as other processes could change that */
	struct dcm_keep_shape shape;
	struct spare spare_sessions;
	struct spare spare_slabs;
};

/*
 * A record's sum, FNV-1a; never 0. @kind: so a record of another kind has another sum.
 */
static u64 record_sum(u64 kind, const void *data, size_t len)
{
	const u8 *p = data;
	u64 h = 0xcbf29ce484222325ull ^ kind;

	while (len--)
		h = (h ^ *p++) * 0x100000001b3ull;
	return h | 1;
}

static u64 sum_head(const struct head *h)
{
	return record_sum(1, h, offsetof(struct head, mark));
}

static u64 sum_session(const struct session_record *r)
{
	return record_sum(2, &r->s, sizeof(r->s));
}

static u64 sum_slab(const struct slab_record *r)
{
	return record_sum(3, &r->s, sizeof(r->s));
}

static size_t bytes_of(const struct dcm_keep_shape *shape)
{
	return sizeof(struct head) +
	       shape->nr_sessions * sizeof(struct session_record) +
	       shape->nr_slabs * sizeof(struct slab_record);
}

/* Free a record: clear its mark before anything else of it changes. */
static void mark_clear(u64 *mark)
{
	__atomic_exchange_n(mark, 0, __ATOMIC_SEQ_CST);
}

static int keep_map(struct dcm_keep *k)
{
	void *p = mmap(NULL, k->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		       k->fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	/* secrets must not get into a core dump */
	madvise(p, k->bytes, MADV_DONTDUMP);
	k->head = p;
	return 0;
}

/* Compute the positions and sizes of all parts from @k->shape. */
static int keep_layout(struct dcm_keep *k)
{
	u32 i;

	k->sessions = (void *)(k->head + 1);
	k->slabs = (void *)(k->sessions + k->shape.nr_sessions);
	k->spare_sessions.number = calloc(k->shape.nr_sessions, sizeof(u32));
	k->spare_slabs.number = calloc(k->shape.nr_slabs, sizeof(u32));
	if (!k->spare_sessions.number || !k->spare_slabs.number)
		return -ENOMEM;
	for (i = k->shape.nr_sessions; i; i--)
		if (!k->sessions[i - 1].mark)
			k->spare_sessions.number[k->spare_sessions.nr++] = i;
	for (i = k->shape.nr_slabs; i; i--)
		if (!k->slabs[i - 1].mark)
			k->spare_slabs.number[k->spare_slabs.nr++] = i;
	return 0;
}

void dcm_keep_free(struct dcm_keep *k)
{
	if (!k)
		return;
	if (k->head)
		munmap(k->head, k->bytes);
	if (k->fd >= 0)
		close(k->fd);
	free(k->spare_sessions.number);
	free(k->spare_slabs.number);
	free(k);
}

static int keep_make(struct dcm_keep *k)
{
	int ret;

	k->fd = memfd_create("dcm-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (k->fd < 0)
		return -errno;
	/* allocate all pages now: a page that can't be had later would be SIGBUS */
	ret = -posix_fallocate(k->fd, 0, (off_t)k->bytes);
	if (ret)
		return ret;
	if (fcntl(k->fd, F_ADD_SEALS, SEALS))
		return -errno;
	ret = keep_map(k);
	if (ret)
		return ret;
	k->head->magic = MAGIC;
	k->head->version = VERSION;
	k->head->shape = k->shape;
	smp_store_release(&k->head->mark, sum_head(k->head));
	return keep_layout(k);
}

struct dcm_keep *dcm_keep_new(const struct dcm_keep_shape *shape, int *error)
{
	struct dcm_keep *k = calloc(1, sizeof(*k));

	*error = -ENOMEM;
	if (!k)
		return NULL;
	k->fd = -1;
	k->shape = *shape;
	k->shape.nr_sessions = min(k->shape.nr_sessions, NR_MAX);
	k->shape.nr_slabs = min(k->shape.nr_slabs, NR_MAX);
	k->bytes = bytes_of(&k->shape);
	*error = keep_make(k);
	if (!*error)
		return k;
	dcm_keep_free(k);
	return NULL;
}

static int id_compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Does a number occur twice? Sorts them. */
static bool ids_repeat(u64 *id, u32 nr)
{
	u32 i;

	if (nr)
		qsort(id, nr, sizeof(*id), id_compare);
	for (i = 1; i < nr; i++)
		if (id[i] == id[i - 1])
			return true;
	return false;
}

static bool tenant_good(const struct dcm_keep_session *s)
{
	size_t len = strnlen(s->tenant, sizeof(s->tenant));

	return len && len <= DCM_WIRE_TENANT_MAX;
}

static const char *sessions_check(const struct dcm_keep *k, u64 *id)
{
	const struct session_record *r;
	u32 i, nr = 0;

	for (i = 0; i < k->shape.nr_sessions; i++) {
		r = &k->sessions[i];
		if (!r->mark)
			continue;
		if (r->mark != sum_session(r))
			return "a session's record is damaged";
		if (!r->s.id || !tenant_good(&r->s))
			return "a session's record has bad values";
		id[nr++] = r->s.id;
	}
	return ids_repeat(id, nr) ? "a session is there twice" : NULL;
}

static const char *slabs_check(const struct dcm_keep *k, u64 *id)
{
	const struct slab_record *r;
	u32 i, nr = 0;

	for (i = 0; i < k->shape.nr_slabs; i++) {
		r = &k->slabs[i];
		if (!r->mark)
			continue;
		if (r->mark != sum_slab(r))
			return "a slab's record is damaged";
		if (r->s.serial > k->head->serial || !r->s.id ||
		    (r->s.transport != DCM_WT_TCP &&
		     r->s.transport != DCM_WT_SHM &&
		     r->s.transport != DCM_WT_VERBS))
			return "a slab's record has bad values";
		id[nr++] = r->s.id;
	}
	return ids_repeat(id, nr) ? "a slab is there twice" : NULL;
}

static const char *records_check(const struct dcm_keep *k)
{
	u64 *id = calloc(max(k->shape.nr_sessions, k->shape.nr_slabs) + 1u,
			 sizeof(*id));
	const char *why = "out of memory";

	if (id)
		why = sessions_check(k, id);
	if (!why)
		why = slabs_check(k, id);
	free(id);
	return why;
}

/* Check all records. %NULL, or what is wrong. */
static const char *keep_check(struct dcm_keep *k)
{
	const struct head *h;
	struct stat st;
	int seals = fcntl(k->fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(k->fd, &st) ||
	    st.st_size < (off_t)sizeof(*h) ||
	    st.st_size > (off_t)(NR_MAX * sizeof(struct session_record) * 2))
		return "it is no memfd of a donor";
	k->bytes = (size_t)st.st_size;
	if (keep_map(k))
		return "it can't be mapped";
	h = k->head;
	if (h->magic != MAGIC || h->version != VERSION)
		return "it is of another version of dcm-donord";
	k->shape = h->shape;
	if (h->mark != sum_head(h) || h->reserved || h->serial > SERIAL_MAX ||
	    k->shape.nr_sessions > NR_MAX || k->shape.nr_slabs > NR_MAX ||
	    bytes_of(&k->shape) != k->bytes)
		return "its head is damaged";
	if (keep_layout(k))
		return "out of memory";
	return records_check(k);
}

struct dcm_keep *dcm_keep_adopt(int fd, const char **why)
{
	struct dcm_keep *k = calloc(1, sizeof(*k));

	*why = "out of memory";
	if (!k) {
		close(fd);
		return NULL;
	}
	k->fd = fd;
	*why = keep_check(k);
	if (!*why)
		return k;
	dcm_keep_free(k);
	return NULL;
}

int dcm_keep_fd(const struct dcm_keep *k)
{
	return k->fd;
}

const struct dcm_keep_shape *dcm_keep_shape(const struct dcm_keep *k)
{
	return &k->shape;
}

u64 dcm_keep_serial(const struct dcm_keep *k)
{
	return READ_ONCE(k->head->serial);
}

u32 dcm_keep_session_add(struct dcm_keep *k, const struct dcm_keep_session *s,
			 u64 print)
{
	struct session_record *r;
	u32 number;

	if (!k->spare_sessions.nr)
		return 0;
	number = k->spare_sessions.number[--k->spare_sessions.nr];
	r = &k->sessions[number - 1];
	r->s = *s;
	WRITE_ONCE(r->print, print);
	smp_store_release(&r->mark, sum_session(r));
	return number;
}

void dcm_keep_session_print(struct dcm_keep *k, u32 number, u64 print)
{
	WRITE_ONCE(k->sessions[number - 1].print, print);
}

void dcm_keep_session_drop(struct dcm_keep *k, u32 number)
{
	struct session_record *r = &k->sessions[number - 1];

	mark_clear(&r->mark);
	explicit_bzero(&r->s, sizeof(r->s));
	k->spare_sessions.number[k->spare_sessions.nr++] = number;
}

u32 dcm_keep_slab_add(struct dcm_keep *k, const struct dcm_keep_slab *s)
{
	struct slab_record *r;
	u32 number;

	if (!k->spare_slabs.nr)
		return 0;
	if (s->serial > dcm_keep_serial(k))
		smp_store_release(&k->head->serial, s->serial);
	number = k->spare_slabs.number[--k->spare_slabs.nr];
	r = &k->slabs[number - 1];
	r->s = *s;
	smp_store_release(&r->mark, sum_slab(r));
	return number;
}

void dcm_keep_slab_drop(struct dcm_keep *k, u32 number)
{
	mark_clear(&k->slabs[number - 1].mark);
	k->spare_slabs.number[k->spare_slabs.nr++] = number;
}

bool dcm_keep_session_get(const struct dcm_keep *k, u32 number,
			  struct dcm_keep_session *s, u64 *print)
{
	const struct session_record *r = &k->sessions[number - 1];

	if (!r->mark)
		return false;
	*s = r->s;
	*print = r->print;
	return true;
}

bool dcm_keep_slab_get(const struct dcm_keep *k, u32 number,
		       struct dcm_keep_slab *s)
{
	const struct slab_record *r = &k->slabs[number - 1];

	if (!r->mark)
		return false;
	*s = r->s;
	return true;
}
