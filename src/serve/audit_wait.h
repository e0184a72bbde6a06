/* audit_wait.h: requests that wait until the queue of the audit log has room for their line
 * (audit.when_full: block).
 *
 *     PREPARING -> no room -> wait -> room, in the order of arrival -> RUNNING
 *                               \-> deadline, cancelled, key revoked, or the client left
 *
 * The thread that makes room posts one message to each io thread, which then reserves room for its
 * requests, the oldest first. Owner: the io thread, unless stated otherwise. */
#pragma once

#include "serve/inflight.h"

/* Reserves room for the line of the request (has_audit_room) without waiting. ERR_OVERLOADED: the
 * queue is full, and its requests are refused. Returns 1 if the request has to wait, else 0. */
int audit_wait_reserve(struct inflight *r, struct err *e);
/* Takes over the caller's reference. `continue_fn` receives it when the room is reserved. If the
 * request ends before that, the reference is dropped. */
void audit_wait_start(struct inflight *r, void (*continue_fn)(struct inflight *r));
void audit_wait_stop(struct inflight *r); /* the request has ended: continue_fn is not called */

void audit_wait_message(struct io *io); /* handles MSG_AUDIT_ROOM */

/* The queue has room. Any thread. */
void audit_wait_notify(struct io *io);
