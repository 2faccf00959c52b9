/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_session.h - the donor's GC workers: at most one a session */
#ifndef DCM_GC_SESSION_H
#define DCM_GC_SESSION_H

#include "donor.h"

/* Find the worker's program; logs if there is none. */
void dcm_gc_session_start(struct dcm_donor *donor);
/* Wait for the end of all workers, which have been killed. */
void dcm_gc_session_stop(struct dcm_donor *donor);
/* Reap workers that have ended; called four times a second. */
void dcm_gc_session_reap(struct dcm_donor *donor);

/* Threads that trace in each worker. */
u32 dcm_gc_session_threads(const struct dcm_donor *donor);
/* Measure the memory of workers; called once a second. */
void dcm_gc_session_measure(struct dcm_donor *donor);

/* Handle HELLO of the gc role, for a session. %DCM_WS_OK, or why it is refused. */
u32 dcm_gc_session_attach(struct dcm_conn *conn, struct dcm_session *s);
/* The connection has ended: kill its worker. */
void dcm_gc_session_detach(struct dcm_conn *conn);
/* The session has ended: end its worker and the connection. */
void dcm_gc_session_end(struct dcm_session *s);

/* Pass on a message. False: call again with the same one, after dcm_conn_resume(). */
bool dcm_gc_session_message(struct dcm_conn *conn,
			    const struct dcm_wire_msg *msg);
/* Does the worker take no message of the host now? */
bool dcm_gc_session_stuck(const struct dcm_conn *conn);
/* Go on reading the worker's messages, as the connection may have room for them. */
void dcm_gc_session_update(struct dcm_conn *conn);

#endif /* DCM_GC_SESSION_H */
