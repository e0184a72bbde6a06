/* mapfile.h: read-only memory mapping of a file.
 *
 * A file that is truncated while mapped, or a disk that cannot be read, raises SIGBUS on access.
 * After mapfile_catch_faults the pages from there on are replaced by zeros, and mapfile_is_lost
 * returns true: the thread that has read the zeros ends its work with an error.
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

/* Mappings of a process at a time; a model may have half of them (format/gguf.c, hf_files.c). */
enum { MAPFILES_MAX = 8192 };

struct mapfile_guard;

struct mapfile {
    const uint8_t *p;
    size_t n;
    struct file_id id;
    struct mapfile_guard *guard; /* state of the mapping for the signal handler */
};

/* Main thread, before a file is mapped: handles SIGBUS of all mappings of the process. For
 * programs; a library does not change signal handlers. */
void mapfile_catch_faults(void);
/* A part of the file could not be read: pages of the mapping are zero. Any thread. */
bool mapfile_is_lost(const struct mapfile *m);

/* Overwrites *m. ERR_NOT_FOUND; ERR_INVALID: a directory, FIFO or device; ERR_CORRUPT: an empty
 * file; ERR_IO; ERR_TOO_LARGE: MAPFILES_MAX files are mapped. Does not wait for a writer of a
 * FIFO. */
int mapfile_open(struct mapfile *m, const char *path, struct err *e);
void mapfile_close(struct mapfile *m); /* an empty one is allowed */
/* The file still has this name and was not written to. */
bool mapfile_is_unchanged(const struct mapfile *m, const char *path);
/* releases these pages from memory */
void mapfile_dontneed(const struct mapfile *m, size_t off, size_t n);
