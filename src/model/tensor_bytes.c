#include "model/tensor_bytes.h"
#include "base/mem.h"

enum { TASK_BYTES = 256 * 1024 };

struct read_job {
    struct tensor_bytes *b;
    const struct gguf_tensor *t;
    uint64_t n_rows, row_bytes, rows_per_task;
};

static void read_tiles(void *arg, int thread, int n_threads)
{
    struct read_job *j = arg;
    (void)thread;
    (void)n_threads;
    for (;;) {
        uint64_t from = (uint64_t)thread_pool_next_task(j->b->thread_pool) * j->rows_per_task;
        if (from >= j->n_rows)
            return;
        gguf_read_rows(j->b->g, j->t, from, MIN(j->rows_per_task, j->n_rows - from),
            j->b->buf + from * j->row_bytes);
    }
}

int tensor_bytes_get(
    struct tensor_bytes *b, const struct gguf_tensor *t, const uint8_t **out, struct err *e)
{
    struct read_job job = { .b = b, .t = t, .n_rows = t->dims[1] * t->dims[2] * t->dims[3] };

    *out = t->data;
    if (t->data)
        return 0;
    if (gguf_check_rows(b->g, t, e))
        return -1;
    if (b->cap < t->bytes) {
        mem_free(b->buf);
        b->buf = try_malloc((size_t)t->bytes);
        b->cap = b->buf ? (size_t)t->bytes : 0;
    }
    if (!b->buf)
        return err_set(e, ERR_MEMORY, "no memory for %llu MB of a tensor",
            (unsigned long long)(t->bytes / MB));
    job.row_bytes = t->bytes / job.n_rows;
    job.rows_per_task = MAX((uint64_t)TASK_BYTES / job.row_bytes, 1u);
    thread_pool_run(b->thread_pool, read_tiles, &job);
    *out = b->buf;
    return 0;
}

void tensor_bytes_clear(struct tensor_bytes *b)
{
    mem_free(b->buf);
    b->buf = NULL;
    b->cap = 0;
}
