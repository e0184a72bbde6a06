/* disk.h: append-only segment files of KV page records.
 *
 *     DIR/lock   DIR/kv-0000000000000001.seg   DIR/kv-0000000000000002.seg   ...
 *
 * A segment is a sequence of records (record.h), each aligned to RECORD_ALIGN. If the total size
 * would exceed the limit, the oldest segment is deleted. Opening reads the headers of all records
 * to find them; a killed process loses only the record it was writing. Nothing is synced: after a
 * power failure checksums fail, and those records count as absent.
 *
 * Reads bypass the page cache if possible (O_DIRECT), since a page is read once and then is in the
 * KV cache. Recently written records that are still in the page cache are read from there.
 *
 * A later process never appends to an existing segment. A lock file restricts the directory to one
 * process. Owner: one thread at a time, the tier thread. */
#pragma once

#include "cache/record.h"
#include "os/aio.h"
#include "os/files.h"

struct disk_pos { /* position of a record */
    uint32_t segment, n_bytes;
    uint64_t offset;
};

struct disk_options {
    const char *dir; /* created if it does not exist */
    uint64_t max_bytes;
    struct record_kind kind;
    struct aio *aio; /* borrowed */
    int max_tokens;  /* longer records are skipped */
    /* Called for each record during disk_open. */
    void (*found)(void *arg, const struct record *r, struct disk_pos at);
    void *arg;
};

struct disk;

/* ERR_IO; ERR_MEMORY. */
int disk_open(struct disk **out, const struct disk_options *o, struct err *e) MUST_CHECK;
void disk_close(struct disk *d); /* NULL is fine */

/* Appends a sealed record. ERR_IO: nothing is appended. */
int disk_append(struct disk *d, uint8_t *bytes, size_t n, struct disk_pos *at, struct err *e);
/* Buffer size to read a record of n bytes, which then starts within it, aligned to RECORD_ALIGN. */
static inline size_t disk_space(size_t n)
{
    return (n + FILE_ALIGN - 1) / FILE_ALIGN * FILE_ALIGN + FILE_ALIGN;
}

struct disk_read {    /* a record being read */
    uint8_t *space;   /* disk_space(n_bytes) bytes, aligned to FILE_ALIGN */
    uint8_t *bytes;   /* result: start of the record */
    struct aio_op op; /* op.why is its result */
    bool is_read;
};

/* Starts to read a record, unverified. A record in the page cache is read immediately (is_read),
 * otherwise aio_wait reports its end. Returns false if the segment was deleted. No disk_append
 * until it has ended. */
bool disk_read_begin(struct disk *d, struct disk_pos at, struct disk_read *r);
/* After the end of the read: 0, or its errno. */
int disk_read_end(struct disk *d, struct disk_pos at, struct disk_read *r);

uint32_t disk_first_segment(const struct disk *d); /* all earlier segments are deleted */
uint64_t disk_bytes(const struct disk *d);
