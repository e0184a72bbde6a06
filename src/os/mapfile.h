/* mapfile.h: read-only memory mapping of a file.
 *
 * A file that is truncated while mapped raises SIGBUS on access; the loader therefore copies or
 * packs all data that is used after the load.
 *
 * Owner: the caller; any thread may read the mapping. */
#pragma once

#include "base/err.h"
#include "base/str.h"

/* Identity and state of a file. A write changes ctime, which cannot be set back. */
struct file_id {
    uint64_t dev, ino, size;
    int64_t mtime_ns, ctime_ns;
};
/* the file under this name is unchanged */
bool file_id_is(const struct file_id *id, const char *path);

struct mapfile {
    const uint8_t *p;
    size_t n;
    struct file_id id;
};

/* Overwrites *m. ERR_NOT_FOUND; ERR_INVALID: a directory, FIFO or device; ERR_CORRUPT: an empty
 * file; ERR_IO. Does not wait for a writer of a FIFO. */
int mapfile_open(struct mapfile *m, const char *path, struct err *e);
void mapfile_close(struct mapfile *m); /* an empty one is allowed */
/* The file still has this name and was not written to. */
bool mapfile_is_unchanged(const struct mapfile *m, const char *path);
/* releases these pages from memory */
void mapfile_dontneed(const struct mapfile *m, size_t off, size_t n);
