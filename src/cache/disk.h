/* disk.h: records of pages in files that are only ever appended to.
 *
 *     DIR/lock   DIR/kv-0000000000000001.seg   DIR/kv-0000000000000002.seg   ...
 *
 * A segment is one record (record.h) after the other, each on a multiple of RECORD_ALIGN. When all
 * together would exceed the limit, the oldest segment is deleted, whole. What is there is found
 * again by reading the heads when it is opened: so a process that is killed loses what it was
 * writing, and nothing else. Nothing is synced: after a power failure sums do not fit, and what
 * they do not fit is not there.
 *
 * What is read goes past the system's memory where it can (O_DIRECT): a page comes once, and then
 * the model has it. What is in that memory still, because it was just written, comes from there.
 *
 * A segment is never written to by a later process, and one directory belongs to one process at a
 * time (a lock says so). Owner: one thread at a time, the tier's. */
#pragma once

#include "cache/record.h"
#include "os/aio.h"
#include "os/files.h"

struct disk_at { /* where a record is */
    uint32_t segment, n_bytes;
    uint64_t offset;
};

struct disk_options {
    const char *dir; /* made if it is not there */
    uint64_t max_bytes;
    struct record_kind kind;
    struct aio *aio; /* borrowed */
    int max_tokens;  /* of a record; longer ones are skipped */
    void (*found)(void *arg, const struct record *r, struct disk_at at); /* while opening */
    void *arg;
};

struct disk;

/* ERR_IO; ERR_MEMORY. */
int disk_open(struct disk **out, const struct disk_options *o, struct err *e) MUST_CHECK;
void disk_close(struct disk *d); /* NULL is fine */

/* Writes a sealed record. ERR_IO: nothing of it is there. */
int disk_append(struct disk *d, uint8_t *bytes, size_t n, struct disk_at *at, struct err *e);
/* Of a record's bytes when they are read: they lie somewhere in it, aligned to RECORD_ALIGN. */
static inline size_t disk_space(size_t n)
{
    return (n + FILE_ALIGN - 1) / FILE_ALIGN * FILE_ALIGN + FILE_ALIGN;
}

struct disk_reading { /* a record under way */
    uint8_t *space;   /* disk_space(n_bytes), aligned to FILE_ALIGN */
    uint8_t *bytes;   /* out */
    struct aio_op op; /* its `why` tells how it ended */
    bool is_there;
};

/* Begins to read it back as it is, unchecked. What the system has in its memory is there at once
 * (is_there), else aio_wait tells. False: its segment was deleted, and nothing has begun. No
 * disk_append before it is done. */
bool disk_read_begin(struct disk *d, struct disk_at at, struct disk_reading *r);
/* It is done. The errno that it ended with; 0: it is there. */
int disk_read_end(struct disk *d, struct disk_at at, struct disk_reading *r);

uint32_t disk_first_segment(const struct disk *d); /* those before it are gone */
uint64_t disk_bytes(const struct disk *d);
