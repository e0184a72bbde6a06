/* mapfile.h: a file as read-only memory. Any thread may read it. A file that is truncated while
 * mapped would raise SIGBUS: the loader copies or packs what it keeps for the hot path. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Which file, in which state. Whoever writes to it changes ctime, which nobody can set back. */
struct file_id {
    uint64_t dev, ino, size;
    int64_t mtime_ns, ctime_ns;
};
bool file_id_is(const struct file_id *id, const char *path); /* still the one under this name */

struct mapfile {
    const uint8_t *p;
    size_t n;
    struct file_id id;
};

/* *m is overwritten. ERR_NOT_FOUND; ERR_INVALID: a folder, pipe or device; ERR_CORRUPT: an empty
 * file; ERR_IO. A pipe that somebody names is waited for, until it has a writer; one that is found
 * where a file was looked for is not. */
int mapfile_open(struct mapfile *m, const char *path, struct err *e);
int mapfile_open_found(struct mapfile *m, const char *path, struct err *e);
void mapfile_close(struct mapfile *m); /* an empty one is fine */
/* Still under this name, and not written to since. */
bool mapfile_is_unchanged(const struct mapfile *m, const char *path);
void mapfile_dontneed(const struct mapfile *m, size_t off, size_t n); /* give page cache back */
