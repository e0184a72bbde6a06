/* audit_record.h: what the audit log records of the output of one request: a SHA-256 of the token
 * ids of each choice and, in debug mode, the first tokens, which become text at the end.
 *
 * The hash of a choice covers its token ids (4 bytes each, little-endian) in order, so it does not
 * depend on the interleaving of choices. Owner: the io thread of the request. */
#pragma once

#include "serve/inflight.h"

enum { AUDIT_RECORD_TOKENS = 16 * 1024 }; /* kept for the texts of one request */

struct audit_record;

/* Returns NULL if the server has no audit log. ERR_MEMORY. */
int audit_record_open(struct audit_record **out, const struct inflight *r, struct err *e);
void audit_record_token(struct audit_record *a, int choice, int32_t id); /* accepts NULL */
/* Writes the line of the request that has ended. */
void audit_record_write(const struct inflight *r, const char *finish, int status);
void audit_record_free(struct audit_record *a); /* accepts NULL */

/* Changes by an administrator: reserves room for the line before the change is made.
 * ERR_OVERLOADED: the queue is full, and audit.when_full is not "drop". */
int audit_change_reserve(const struct io *io, struct err *e);
/* Writes the line of a change whose room was reserved. before, after: JSON. */
void audit_change_write(const struct route_call *c, const char *action, const struct buf *before,
    const struct buf *after);
