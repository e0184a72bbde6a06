/* aio.h: reads and writes of files that go on while their owner does something else.
 *
 *     aio_begin, aio_begin, ... aio_wait -> one that is done, aio_wait -> another
 *
 * io_uring where the system has it and lets us (containers often do not), else a few threads that
 * call pread and pwrite: the results are the same. What comes back short is gone on with until all
 * is there.
 *
 * Owner: one thread. An operation and its bytes are ours from aio_begin until aio_wait gives it
 * back. */
#pragma once

#include "base/err.h"
#include "os/mailbox.h"

enum aio_kind { AIO_AUTO, AIO_URING, AIO_THREADS };
enum { AIO_DEPTH = 16 }; /* under way at once, at most */

struct aio_op {
    int fd;
    bool is_write;
    uint8_t *p; /* read from, when it is a write */
    size_t n;
    size_t least; /* of a read: the rest may be behind the end of the file; 0 = n */
    uint64_t offset;
    int why;       /* out: 0, or an errno; the end of a file is EIO */
    size_t n_done; /* ours, as the next */
    struct msg msg;
};

struct aio;

/* ERR_UNSUPPORTED: AIO_URING and there is none. ERR_MEMORY, ERR_IO. */
int aio_open(struct aio **out, enum aio_kind kind, struct err *e) MUST_CHECK;
void aio_close(struct aio *a); /* NULL is fine; nothing is under way */
const char *aio_name(const struct aio *a);

void aio_begin(struct aio *a, struct aio_op *op);
/* Sleeps until one is done; NULL: none is under way. */
struct aio_op *aio_wait(struct aio *a);
