/* SPDX-License-Identifier: GPL-2.0-or-later */
/* restart.h - slabs and sessions that outlive the process */
#ifndef DCM_RESTART_H
#define DCM_RESTART_H

struct dcm_donor;
struct dcm_session;
struct dcm_slab;

/**
 * dcm_restart_begin() - go on where the process before was killed
 * @donor: its pool and tenants are there, nobody can connect yet
 *
 * Without systemd's descriptor store nothing is kept, and @donor->keep stays
 * %NULL. The functions below do nothing then.
 */
void dcm_restart_begin(struct dcm_donor *donor);

/* Before a host hears of its session, of its slab. */
void dcm_restart_session(struct dcm_session *s);
void dcm_restart_slab(struct dcm_slab *slab);

/* They have ended; called for those that are not kept, too. */
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
