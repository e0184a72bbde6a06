/* aio.h: asynchronous reads and writes of files.
 *
 *     aio_submit, aio_submit, ... aio_wait -> a completed operation, aio_wait -> another
 *
 * Uses io_uring if the system has it and permits it (many containers do not), else a few threads
 * that call pread and pwrite; the results are the same. A short read or write is continued until it
 * is complete.
 *
 * Owner: one thread. The operation and its buffer must not be touched between aio_submit and the
 * aio_wait that returns it. */
#pragma once

#include "base/err.h"
#include "os/mailbox.h"

enum aio_kind { AIO_AUTO, AIO_URING, AIO_THREADS };
enum { AIO_DEPTH = 16 }; /* maximum number of operations in flight */

struct aio_op {
    int fd;
    bool is_write;
    uint8_t *p; /* buffer; source of a write */
    size_t n;
    size_t least; /* reads: required bytes, the rest may be past the end of the file; 0 = n */
    uint64_t offset;
    int why;       /* out: 0 or an errno; a read past the end of the file gives EIO */
    size_t n_done; /* internal, like msg */
    struct msg msg;
};

struct aio;

/* ERR_UNSUPPORTED: AIO_URING was requested and is not available. ERR_MEMORY, ERR_IO. */
int aio_open(struct aio **out, enum aio_kind kind, struct err *e) MUST_CHECK;
void aio_close(struct aio *a); /* accepts NULL; no operation may be in flight */
const char *aio_name(const struct aio *a);

void aio_submit(struct aio *a, struct aio_op *op);
/* Waits until an operation is complete and returns it; NULL: none is in flight. */
struct aio_op *aio_wait(struct aio *a);
