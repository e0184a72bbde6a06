/* digest.h: identifies the files of a model by SHA-256: of all bytes of a single file; for a model
 * in several parts, of the concatenated digests of the parts.
 *
 * Reading gigabytes takes seconds. Therefore digests are cached in the file `.digests` of a
 * directory that the operator configures, one line per model file:
 *
 *     DEVICE INODE BYTES MTIME_NS CTIME_NS DIGEST
 *
 * A line is valid while none of these values has changed; a write to a file changes its ctime. A
 * line that cannot be read or written is ignored. The directory is created if it is missing.
 *
 * Any thread. */
#pragma once

#include "os/mapfile.h"

struct opened_file { /* a file of an open model */
    struct file_id id;
    char *path; /* heap */
};

/* files: [n], in the order of the model; dir: directory of the cached digests, NULL or "" = no
 * cache. ERR_IO: a file cannot be read, or was modified while it was read. */
int digest_of_model(uint8_t out[32], const struct opened_file *files, size_t n, const char *dir,
    struct err *e) MUST_CHECK;
