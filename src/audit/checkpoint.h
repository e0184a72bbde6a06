/* checkpoint.h: the end of the audit log at its last fdatasync, in a file of its own, so that a
 * log that was cut at its end is detected, and so that only the lines after it are read at start.
 *
 * Two slots of CHECKPOINT_SLOT bytes are written in turn, each followed by fdatasync, so a torn
 * write leaves the one before. A slot is a line, filled with spaces:
 *
 *     audit-checkpoint 1 COUNTER LINES MAC OFFSET CLOSED KID HMAC\n
 *
 * LINES and MAC are the position in the chain (audit_line.h), OFFSET the end of the last line in
 * the file, CLOSED is 1 if another file follows this one. HMAC is that of the text before it, with
 * the chain key KID. The slot with the higher counter is valid.
 *
 * Owner: one thread at a time; the calls block. */
#pragma once

#include "audit/audit_line.h"

enum { CHECKPOINT_SLOT = 512 };

struct checkpoint {
    struct audit_chain chain;
    uint64_t offset;
    bool is_closed;
    uint64_t counter;
};

struct checkpoint_file {
    char *path;
    int fd; /* -1: not open */
    uint64_t counter;
};

enum checkpoint_state { CHECKPOINT_NEW, CHECKPOINT_DAMAGED, CHECKPOINT_VALID };

/* Opens or creates the file and reads the last checkpoint. DAMAGED: the file has no valid slot; the
 * next write makes it valid. ERR_IO; ERR_INVALID: no regular file, or the key file lacks the
 * key. */
int checkpoint_open(struct checkpoint_file *f, const char *path, const struct audit_keys *keys,
    struct checkpoint *out, enum checkpoint_state *state, struct err *e);
void checkpoint_close(struct checkpoint_file *f);

/* The checkpoint is on the disk when the call returns 0. Sets c->counter. ERR_IO. */
int checkpoint_write(
    struct checkpoint_file *f, struct checkpoint *c, const struct audit_key *key, struct err *e);

/* Reads the file of a log that another process may write. ERR_NOT_FOUND, ERR_IO, ERR_CORRUPT. */
int checkpoint_read(
    const char *path, const struct audit_keys *keys, struct checkpoint *out, struct err *e);
