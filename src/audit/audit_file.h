/* audit_file.h: the files of the audit log: the current file, its checkpoint, and the files before.
 *
 *     PATH                    current file: lines of one chain (audit_line.h)
 *     PATH.checkpoint         its end at the last fdatasync (checkpoint.h)
 *     PATH.<20 digits>        file that was closed by rotation, named after its first line
 *     PATH.damaged-<digits>   file that did not contain the line of the checkpoint, moved aside
 *
 * Every file begins with an event `begin` that states the reason: "new", "rotated", "reopened" (the
 * file was renamed by another program), or "missing" (the file that the checkpoint describes was
 * removed, cut or damaged). A file that another one follows ends with an event `end`.
 *
 * The file is locked (flock), so that one process at a time writes to it. Opening reads only the
 * lines after the checkpoint. Bytes after the last complete line of the chain (a torn write of a
 * full disk or a power cut) are removed and returned, so that the caller records them.
 *
 * Owner: one thread at a time; the calls block. */
#pragma once

#include "audit/checkpoint.h"

struct audit_file {
    char *path;
    int fd;                  /* -1: not open */
    struct audit_keys *keys; /* borrowed */
    struct checkpoint_file checkpoint;
    struct audit_chain chain; /* end of the last line */
    uint64_t size;            /* bytes up to the end of the last line */
    uint64_t first;           /* number of the first line of the file */
    int64_t began_s;          /* Unix time of the first line, or of the start of this process */
    /* A failed write left bytes after `size`, which could not be removed yet. */
    bool is_torn;
    bool is_synced; /* the checkpoint describes the end of the last line */
};

/* Creates the log or continues its chain. Appends the removed bytes of a torn end to `torn`, of
 * which at most torn->max are kept; *n_torn is their number. ERR_IO, ERR_INVALID (another process
 * has the lock, no regular file, or a key is missing), ERR_CORRUPT (not an audit log). The messages
 * name the file. */
int audit_file_open(struct audit_file *f, const char *path, struct audit_keys *keys,
    struct buf *torn, uint64_t *n_torn, struct err *e);
/* Writes a checkpoint. Accepts a closed file. */
void audit_file_close(struct audit_file *f);

/* Appends one line for each of the n strings of members, with one write. On failure the file is as
 * before. ERR_IO, ERR_MEMORY. */
int audit_file_append(struct audit_file *f, const struct str *members, size_t n, struct err *e);
/* fdatasync, then a checkpoint. No effect if nothing was written since. ERR_IO. */
int audit_file_sync(struct audit_file *f, struct err *e);

/* Closes the file with an event `end`, renames it, and begins the next one. If a step fails, the
 * log continues in the file that is open, and the call can be repeated. ERR_IO. */
int audit_file_rotate(struct audit_file *f, struct err *e);

/* The same for a file that another program has renamed. Then *was_moved is true; else there is
 * nothing to do. */
int audit_file_reopen(struct audit_file *f, bool *was_moved, struct err *e);
