/* SPDX-License-Identifier: GPL-2.0-or-later */
/* keep.h - records of sessions and slabs, in a memfd that outlives the process */
#ifndef DCM_KEEP_H
#define DCM_KEEP_H

#include "../kvm-dcm/lib/dcm_context.h"
#include "../kvm-dcm/proto/wire_format.h"

struct dcm_keep;

/* Values that do not change as long as the memfd is used. */
struct dcm_keep_shape {
	u64 donor_id;
	u64 slab_bytes;
	u64 huge_bytes;
	u32 nr_sessions; /* number of sessions that there is room for */
	u32 nr_slabs;
};

/* A session's record. @tenant ends with NUL, and all bytes behind it are NUL, too. */
struct dcm_keep_session {
	u64 id;
	u8 secret[16];
	char tenant[DCM_WIRE_TENANT_MAX + 8];
};

struct dcm_keep_slab {
	u64 id;
	u64 serial; /* the serial that the id was made of */
	u64 session;
	u64 cookie;
	u32 transport; /* enum dcm_wire_transport */
	u32 reserved;
};

/**
 * dcm_keep_new() - make an empty state
 * @shape: copied
 * @error: a negative errno on failure
 *
 * Return: the state, or %NULL.
 */
struct dcm_keep *dcm_keep_new(const struct dcm_keep_shape *shape, int *error);

/**
 * dcm_keep_adopt() - take over the records of the earlier process
 * @fd: its memfd: owned by this function
 * @why: what is wrong with it, on failure
 *
 * Everything is checked: each record by its sum, that no id comes twice, that no
 * slab has a serial beyond dcm_keep_serial()'s.
 *
 * Return: the state, or %NULL.
 */
struct dcm_keep *dcm_keep_adopt(int fd, const char **why);

/* Free @k, which may be %NULL. The memfd itself lives while others have it open. */
void dcm_keep_free(struct dcm_keep *k);

int dcm_keep_fd(const struct dcm_keep *k);
const struct dcm_keep_shape *dcm_keep_shape(const struct dcm_keep *k);

/* The highest serial that a slab's id was made of. */
u64 dcm_keep_serial(const struct dcm_keep *k);

/**
 * dcm_keep_session_add() - write a session's record
 * @print: print of its tenant's key; dcm_keep_session_print() may change it
 *
 * Return: the record's number, from 1; 0: there is no room.
 */
u32 dcm_keep_session_add(struct dcm_keep *k, const struct dcm_keep_session *s,
			 u64 print);
void dcm_keep_session_print(struct dcm_keep *k, u32 number, u64 print);
void dcm_keep_session_drop(struct dcm_keep *k, u32 number);

/* Write a slab's record; first raises dcm_keep_serial() to its serial. */
u32 dcm_keep_slab_add(struct dcm_keep *k, const struct dcm_keep_slab *s);
void dcm_keep_slab_drop(struct dcm_keep *k, u32 number);

/* Read a record by its number, from 1 on; false: it is free. */
bool dcm_keep_session_get(const struct dcm_keep *k, u32 number,
			  struct dcm_keep_session *s, u64 *print);
bool dcm_keep_slab_get(const struct dcm_keep *k, u32 number,
		       struct dcm_keep_slab *s);

#endif /* DCM_KEEP_H */
