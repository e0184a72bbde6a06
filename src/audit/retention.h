/* retention.h: removal of the former files of the audit log after their time.
 *
 * Only files that audit_file.h has named are removed: PATH.<20 digits>, which rotation has closed,
 * and PATH.damaged-<20 digits>. Their age is that of the last change. Files that another program
 * renamed remain.
 *
 * Owner: one thread at a time; the calls block. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Removes the former files of the log that are older than age_s seconds. Calls `removed` with the
 * name of each. ERR_IO: the directory cannot be read, or a file not be removed; others are then
 * removed nevertheless. */
int audit_remove_old(const char *path, int64_t age_s, void (*removed)(void *ctx, struct str name),
    void *ctx, struct err *e);
