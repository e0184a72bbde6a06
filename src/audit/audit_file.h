/* audit_file.h: the file of the audit log: a chain of JSON lines, each with the hash of the line
 * before it.
 *
 *     {"prev":"<SHA-256 of the line before, 64 hex digits; zeros in the first line>", ...}\n
 *
 * The file is locked (flock), so that one process at a time writes to it. Opening reads only the
 * last AUDIT_TAIL_BYTES. Bytes after the last complete line (a torn write of a full disk or a power
 * cut) are removed and returned, so that the caller records them in a new line. A damaged line
 * before the last one is found by audit_file_verify only.
 *
 * Owner: one thread at a time; the calls block. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum {
    AUDIT_HASH = 32,
    AUDIT_HEX = 2 * AUDIT_HASH,
    AUDIT_LINE_BYTES = 8192, /* longest line */
    AUDIT_TAIL_BYTES = 4 * AUDIT_LINE_BYTES
};

struct audit_file {
    char *path;
    int fd;                   /* -1: not open */
    char last[AUDIT_HEX + 1]; /* hash of the last line, in hex */
    /* A failed write left bytes after `size`, which could not be removed yet. */
    bool is_torn;
    uint64_t size;
};

/* Creates the file or continues its chain. Appends the removed bytes of a torn tail to `torn`.
 * ERR_IO, ERR_INVALID (another process has the lock, or no regular file), ERR_CORRUPT (not an audit
 * log). The messages name the file. */
int audit_file_open(struct audit_file *f, const char *path, struct buf *torn, struct err *e);
void audit_file_close(struct audit_file *f); /* fdatasync; accepts a closed file */

/* Appends the line `{"prev":"...",` + rest + newline. On failure the file is as before. ERR_IO. */
int audit_file_append(struct audit_file *f, struct str rest, struct err *e);
int audit_file_sync(struct audit_file *f, struct err *e);

/* True if the path names another file than the open one, or none: it was renamed or removed. */
bool audit_file_was_moved(const struct audit_file *f);

/* Reads a whole file and counts its lines. Each line must contain the hash of the line before it.
 * `last` is the hash of the last line of the file that this one follows, or ""; then a line
 * must refer to it. It is set to the hash of the last line. Returns 0, or -1 with the number of the
 * first line that breaks the chain. */
int audit_file_verify(const char *path, char last[AUDIT_HEX + 1], int64_t *n_lines, struct err *e);

/* SHA-256 in hex, with a final NUL. */
void audit_hash(struct str bytes, char hex[AUDIT_HEX + 1]);
void audit_to_hex(const unsigned char hash[AUDIT_HASH], char hex[AUDIT_HEX + 1]);
