/* retention.h: removal of rotated files of the audit log after their time.
 *
 * Only files that audit_file_rotate has named are removed: PATH.<20 digits>. Their age is that of
 * the last change. Files that another program renamed and damaged files remain.
 *
 * Owner: one thread at a time; the calls block. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Removes the rotated files of the log that are older than age_s seconds. Calls `removed` with the
 * name of each. ERR_IO: the directory cannot be read, or a file not be removed; others are then
 * removed nevertheless. */
int audit_remove_old(const char *path, int64_t age_s, void (*removed)(void *ctx, struct str name),
    void *ctx, struct err *e);
