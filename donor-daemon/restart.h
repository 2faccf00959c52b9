/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restart.h - slabs and sessions that outlive the process */
#ifndef DCM_RESTART_H
#define DCM_RESTART_H

struct dcm_donor;
struct dcm_session;
struct dcm_slab;

/**
 * dcm_restart_begin() - restore sessions and slabs of an earlier process
 * @donor: its pool and tenants are there, nobody can connect yet
 *
 * Without systemd's descriptor store nothing is kept, and @donor->keep stays
 * %NULL. The functions below do nothing then.
 */
void dcm_restart_begin(struct dcm_donor *donor);

/* To be called before a host is told about its session, or about its slab. */
void dcm_restart_session(struct dcm_session *s);
void dcm_restart_slab(struct dcm_slab *slab);

/* A session, a slab has ended; to be called also for those that are not kept. */
void dcm_restart_session_end(struct dcm_session *s);
void dcm_restart_slab_end(struct dcm_slab *slab);

/* The slab's memory is free. */
void dcm_restart_slab_freed(const struct dcm_donor *donor,
			    const struct dcm_slab *slab);

/* Keys have been read again: sessions go on with the new ones. */
void dcm_restart_keys(struct dcm_donor *donor);

/* The donor ends, and every session has ended: nothing stays in the store. */
void dcm_restart_end(struct dcm_donor *donor);

#endif /* DCM_RESTART_H */
