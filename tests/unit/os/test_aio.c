/* Asynchronous file I/O: the io_uring and the thread back end return the same results. */
#include "base/fault.h"
#include "base/rng.h"
#include "os/aio.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { PART = 4096, PARTS = 64 };

static char dir[TMPDIR_NAME];

static int open_file(void)
{
    char path[TMPDIR_NAME + 8];

    tmpdir_make(dir);
    snprintf(path, sizeof(path), "%s/file", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    EXPECT(fd >= 0);
    return fd;
}

static void close_file(int fd)
{
    close(fd);
    tmpdir_remove(dir);
}

/* Returns NULL if this back end is not available on the machine. */
static struct aio *open_aio(enum aio_kind kind)
{
    struct aio *a;
    struct err e;

    if (!aio_open(&a, kind, &e))
        return a;
    EXPECT(kind == AIO_URING && e.code == ERR_UNSUPPORTED);
    printf("     io_uring is not available\n");
    return NULL;
}

static void each_kind(void (*fn)(struct aio *a))
{
    static const enum aio_kind kinds[] = { AIO_URING, AIO_THREADS, AIO_AUTO };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct aio *a = open_aio(kinds[i]);
        if (a)
            fn(a);
        aio_close(a);
    }
}

/* Writes in random order with a random number of operations in flight, then reads everything
 * back. */
static void write_and_read(struct aio *a)
{
    static uint8_t in[PARTS][PART], out[PARTS][PART];
    static struct aio_op ops[PARTS];
    struct rng r = { .key = 7 };
    int fd = open_file();

    for (int round = 0; round < 2; round++) {
        int n_begun = 0, n_ended = 0;
        while (n_ended < PARTS) {
            int n_under_way = n_begun - n_ended;
            if (n_begun < PARTS && n_under_way < AIO_DEPTH && rng_below(&r, 3) > 0) {
                int i = n_begun++;
                uint8_t *p = round ? out[i] : in[i];
                memset(in[i], i + 1, PART);
                ops[i] = (struct aio_op){ fd, !round, p, PART, 0, (uint64_t)i * PART, 0, 0, { 0 } };
                aio_submit(a, &ops[i]);
            } else if (n_under_way > 0) {
                struct aio_op *op = aio_wait(a);
                EXPECT(op && op >= ops && op < ops + PARTS && op->why == 0);
                n_ended++;
            }
        }
        EXPECT(!aio_wait(a));
    }
    EXPECT(!memcmp(in, out, sizeof(in)));
    close_file(fd);
}

static int run_one(struct aio *a, int fd, bool is_write, uint8_t *p, size_t n, uint64_t offset)
{
    struct aio_op op = { fd, is_write, p, n, 0, offset, 0, 0, { 0 } };

    aio_submit(a, &op);
    EXPECT(aio_wait(a) == &op);
    return op.why;
}

static void expect_errno(struct aio *a)
{
    uint8_t bytes[10] = "0123456789", back[10];
    int fd = open_file();

    EXPECT_EQ(run_one(a, fd, true, bytes, 10, 0), 0);
    EXPECT_EQ(run_one(a, fd, false, back, 10, 5), EIO); /* the file ends there */
    EXPECT_EQ(run_one(a, fd, false, back, 10, 100), EIO);
    EXPECT_EQ(run_one(a, -1, false, back, 10, 0), EBADF);
    EXPECT_EQ(run_one(a, fd, false, back, 10, 0), 0);
    EXPECT(!memcmp(bytes, back, 10));
    close_file(fd);
}

static void expect_faults_and_short_transfers(struct aio *a)
{
#ifdef TESTING
    uint8_t bytes[9] = "012345678", back[9] = { 0 };
    int fd = open_file();

    fault_arm(FAULT_DISK_SHORT, 1);
    EXPECT_EQ(run_one(a, fd, true, bytes, 9, 0), 0);
    fault_arm(FAULT_DISK_SHORT, 1);
    EXPECT_EQ(run_one(a, fd, false, back, 9, 0), 0);
    EXPECT(!memcmp(bytes, back, 9));
    fault_arm(FAULT_DISK_READ, 1);
    EXPECT_EQ(run_one(a, fd, false, back, 9, 0), EIO);
    fault_arm(FAULT_DISK_WRITE, 1);
    EXPECT_EQ(run_one(a, fd, true, bytes, 9, 0), ENOSPC);
    fault_arm(FAULT_DISK_SHORT, 0);
    close_file(fd);
#endif
}

static void written_bytes_are_read_back(void)
{
    each_kind(write_and_read);
}

static void an_error_is_an_errno(void)
{
    each_kind(expect_errno);
}

static void injected_faults_are_reported_as_errors(void)
{
    each_kind(expect_faults_and_short_transfers);
}

TESTS(TEST(written_bytes_are_read_back), TEST(an_error_is_an_errno),
    TEST(injected_faults_are_reported_as_errors))
