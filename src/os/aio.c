#include "os/aio.h"
#include "base/fault.h"
#include "base/mem.h"
#include "os/files.h"
#include "os/thread.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_THREADS = 4, OP = 1, STOP };

/* memory shared with the kernel, which writes *sq_head and *cq_tail; this thread writes the other
 * two */
struct ring {
    int fd;
    uint32_t *sq_head, *sq_tail, *sq_array, sq_mask;
    uint32_t *cq_head, *cq_tail, cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    void *map, *sqe_map;
    size_t map_bytes, sqe_bytes;
};

struct aio_thread {
    pthread_t id;
    struct mailbox *inbox, *completions;
    struct msg stop;
};

struct aio {
    bool is_uring;
    int n_in_flight;
    struct ring ring;
    struct aio_thread threads[N_THREADS];
    int n_threads, next_thread;
    struct mailbox *completions;
    struct msg *done; /* complete, but not yet returned by aio_wait */
};

static size_t required_bytes(const struct aio_op *op)
{
    return op->least ? op->least : op->n;
}

/* ---- io_uring */

static void ring_close(struct ring *r)
{
    if (r->sqe_map)
        munmap(r->sqe_map, r->sqe_bytes);
    if (r->map)
        munmap(r->map, r->map_bytes);
    if (r->fd >= 0)
        close(r->fd);
    *r = (struct ring){ .fd = -1 };
}

static void *map_ring(int fd, size_t n, uint64_t offset)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)offset);

    return p == MAP_FAILED ? NULL : p;
}

static uint32_t *ring_field(void *map, uint32_t offset)
{
    return (uint32_t *)(void *)((uint8_t *)map + offset);
}

/* FEAT_RW_CUR_POS is present since the kernel version that introduced IORING_OP_READ and WRITE. */
static bool ring_open(struct ring *r)
{
    const uint32_t needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;
    struct io_uring_params p = { 0 };

    *r = (struct ring){ .fd = (int)syscall(__NR_io_uring_setup, AIO_DEPTH, &p) };
    if (r->fd < 0 || (p.features & needed) != needed || p.sq_entries < AIO_DEPTH)
        goto fail;
    r->map_bytes = MAX(p.sq_off.array + p.sq_entries * sizeof(uint32_t),
        p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe));
    r->sqe_bytes = p.sq_entries * sizeof(struct io_uring_sqe);
    r->map = map_ring(r->fd, r->map_bytes, IORING_OFF_SQ_RING);
    r->sqe_map = map_ring(r->fd, r->sqe_bytes, IORING_OFF_SQES);
    if (!r->map || !r->sqe_map)
        goto fail;
    r->sq_head = ring_field(r->map, p.sq_off.head);
    r->sq_tail = ring_field(r->map, p.sq_off.tail);
    r->sq_array = ring_field(r->map, p.sq_off.array);
    r->sq_mask = *ring_field(r->map, p.sq_off.ring_mask);
    r->cq_head = ring_field(r->map, p.cq_off.head);
    r->cq_tail = ring_field(r->map, p.cq_off.tail);
    r->cq_mask = *ring_field(r->map, p.cq_off.ring_mask);
    r->cqes = (struct io_uring_cqe *)(void *)ring_field(r->map, p.cq_off.cqes);
    r->sqes = r->sqe_map;
    return true;

fail:
    ring_close(r);
    return false;
}

/* Submits the queued entries and waits until n_wait are complete. Returns 0 or an errno. */
static int ring_enter(struct ring *r, uint32_t n_submit, uint32_t n_wait)
{
    for (;;) {
        long n = syscall(__NR_io_uring_enter, r->fd, n_submit, n_wait,
            n_wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
        if (n >= 0 || errno != EINTR)
            return n >= 0 ? 0 : errno;
    }
}

static void ring_push(struct ring *r, struct aio_op *op, size_t most)
{
    uint32_t tail = *r->sq_tail, i = tail & r->sq_mask;

    r->sqes[i] = (struct io_uring_sqe){
        .opcode = op->is_write ? IORING_OP_WRITE : IORING_OP_READ,
        .fd = op->fd,
        .off = op->offset + op->n_done,
        .addr = (uint64_t)(uintptr_t)(op->p + op->n_done),
        .len = (uint32_t)MIN(most, (size_t)1 << 30),
        .user_data = (uint64_t)(uintptr_t)op,
    };
    r->sq_array[i] = i;
    /* release: the kernel sees the entry before the new tail */
    __atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
}

/* Removes one completion, if there is one. */
static bool ring_pop(struct ring *r, struct aio_op **op, int *result)
{
    uint32_t head = *r->cq_head;

    if (head == __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE))
        return false;
    const struct io_uring_cqe *c = &r->cqes[head & r->cq_mask];
    *op = (struct aio_op *)(uintptr_t)c->user_data;
    *result = c->res;
    /* release: the completion is read before its slot is reused */
    __atomic_store_n(r->cq_head, head + 1, __ATOMIC_RELEASE);
    return true;
}

static void complete(struct aio *a, struct aio_op *op, int why)
{
    op->why = why;
    op->msg.next = a->done;
    a->done = &op->msg;
}

static void uring_begin(struct aio *a, struct aio_op *op)
{
    size_t n = op->n - op->n_done;

    if (fault_hit(op->is_write ? FAULT_DISK_WRITE : FAULT_DISK_READ)) {
        complete(a, op, op->is_write ? ENOSPC : EIO);
        return;
    }
    ring_push(&a->ring, op, file_call_size(n));
    int why = ring_enter(&a->ring, 1, 0);
    if (!why)
        return;
    /* The submission failed. The kernel reads the queue only in ring_enter, so the entry can be
     * removed. */
    CHECK(*a->ring.sq_tail - __atomic_load_n(a->ring.sq_head, __ATOMIC_ACQUIRE) == 1);
    __atomic_store_n(a->ring.sq_tail, *a->ring.sq_tail - 1, __ATOMIC_RELEASE);
    complete(a, op, why);
}

static void uring_wait(struct aio *a)
{
    struct aio_op *op;
    int result;

    while (!a->done) {
        if (!ring_pop(&a->ring, &op, &result)) {
            int why = ring_enter(&a->ring, 0, 1);
            CHECK(!why || why == EAGAIN || why == EBUSY);
            continue;
        }
        if (result > 0)
            op->n_done += (size_t)result;
        if (op->n_done >= required_bytes(op))
            complete(a, op, 0);
        else if (result > 0 || result == -EINTR || result == -EAGAIN)
            uring_begin(a, op);
        else
            complete(a, op, result ? -result : op->is_write ? ENOSPC : EIO);
    }
}

/* ---- threads */

static void *aio_thread_main(void *arg)
{
    struct aio_thread *t = arg;

    for (;;) {
        struct msg *m = mailbox_drain(t->inbox), *next;
        if (!m)
            mailbox_wait(t->inbox, UINT64_MAX);
        for (; m; m = next) {
            next = m->next;
            if (m->kind == STOP)
                return NULL;
            struct aio_op *op = container_of(m, struct aio_op, msg);
            int failed = op->is_write ? file_write(op->fd, op->p, op->n, op->offset)
                                      : file_read_least(
                                            op->fd, op->p, op->n, required_bytes(op), op->offset);
            op->why = failed ? errno : 0;
            mailbox_post(t->completions, m);
        }
    }
}

static int start_threads(struct aio *a, struct err *e)
{
    if (mailbox_open(&a->completions, e))
        return -1;
    for (int i = 0; i < N_THREADS; i++) {
        struct aio_thread *t = &a->threads[i];
        t->completions = a->completions;
        t->stop.kind = STOP;
        if (mailbox_open(&t->inbox, e))
            return -1;
        if (thread_start(&t->id, "file", aio_thread_main, t, e)) {
            mailbox_close(t->inbox);
            return -1;
        }
        a->n_threads++;
    }
    return 0;
}

static void stop_threads(struct aio *a)
{
    for (int i = 0; i < a->n_threads; i++) {
        mailbox_post(a->threads[i].inbox, &a->threads[i].stop);
        pthread_join(a->threads[i].id, NULL);
        mailbox_close(a->threads[i].inbox);
    }
    if (a->completions)
        mailbox_close(a->completions);
}

/* ---- common part */

int aio_open(struct aio **out, enum aio_kind kind, struct err *e)
{
    struct aio *a = xcalloc(1, sizeof(*a));

    a->is_uring = kind != AIO_THREADS && ring_open(&a->ring);
    if (!a->is_uring)
        a->ring.fd = -1;
    if (kind == AIO_URING && !a->is_uring)
        err_set(e, ERR_UNSUPPORTED, "io_uring is not available");
    else if (a->is_uring || !start_threads(a, e)) {
        *out = a;
        return 0;
    }
    aio_close(a);
    return -1;
}

void aio_close(struct aio *a)
{
    if (!a)
        return;
    CHECK(a->n_in_flight == 0);
    stop_threads(a);
    ring_close(&a->ring);
    mem_free(a);
}

const char *aio_name(const struct aio *a)
{
    return a->is_uring ? "io_uring" : "threads";
}

void aio_submit(struct aio *a, struct aio_op *op)
{
    CHECK(a->n_in_flight < AIO_DEPTH && op->n > 0);
    a->n_in_flight++;
    op->n_done = 0;
    op->why = 0;
    op->msg.kind = OP;
    if (a->is_uring) {
        uring_begin(a, op);
        return;
    }
    mailbox_post(a->threads[a->next_thread].inbox, &op->msg);
    a->next_thread = (a->next_thread + 1) % a->n_threads;
}

struct aio_op *aio_wait(struct aio *a)
{
    if (a->n_in_flight == 0)
        return NULL;
    if (a->is_uring)
        uring_wait(a);
    while (!a->done && !(a->done = mailbox_drain(a->completions)))
        mailbox_wait(a->completions, UINT64_MAX);
    struct msg *m = a->done;
    a->done = m->next;
    a->n_in_flight--;
    return container_of(m, struct aio_op, msg);
}
