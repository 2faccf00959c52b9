/* SPDX-License-Identifier: GPL-2.0-or-later */
/* collect.h - GC workers as the donor runs them: one a session, at most */
#ifndef DCM_COLLECT_H
#define DCM_COLLECT_H

#include "donor.h"

/* Find the program; says so when there is none. */
void dcm_collect_start(struct dcm_donor *donor);
/* All workers have been told to end: wait until they have. */
void dcm_collect_stop(struct dcm_donor *donor);
/* Bury those that have ended; four times a second. */
void dcm_collect_quarter(struct dcm_donor *donor);

/* Threads that trace, of each worker. */
u32 dcm_collect_threads(const struct dcm_donor *donor);
/* How much memory workers take now; once a second. */
void dcm_collect_second(struct dcm_donor *donor);

/* HELLO of the gc role, of a session that was found. %DCM_WS_OK, or why not. */
u32 dcm_collect_attach(struct dcm_conn *conn, struct dcm_session *s);
/* The connection is over: so is its worker. */
void dcm_collect_detach(struct dcm_conn *conn);
/* The session is. */
void dcm_collect_session_end(struct dcm_session *s);

/* False: it must be shown again, after dcm_conn_resume(). */
bool dcm_collect_message(struct dcm_conn *conn, const struct dcm_wire_msg *msg);
/* What the host sends can't be taken now. */
bool dcm_collect_stuck(const struct dcm_conn *conn);
/* There may be room for what the worker says. */
void dcm_collect_update(struct dcm_conn *conn);

#endif /* DCM_COLLECT_H */
