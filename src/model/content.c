#include "model/content.h"
#include "base/mem.h"

#include <openssl/sha.h>

enum { CHUNK_BYTES = 1 << 20 };

static size_t n_chunks(const struct gguf_tensor *t)
{
    return (size_t)((t->bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

int content_init(
    struct content *c, const struct gguf *g, struct thread_pool *thread_pool, struct err *e)
{
    size_t most = 1, n = gguf_n_tensors(g);

    for (size_t i = 0; i < n; i++)
        most = MAX(most, n_chunks(gguf_tensor_at(g, i)));
    *c = (struct content){ .g = g, .thread_pool = thread_pool };
    c->sums = try_calloc(MAX(n, (size_t)1), CONTENT_BYTES);
    c->leaves = try_calloc(most, CONTENT_BYTES);
    c->is_summed = try_calloc(MAX(n, (size_t)1), sizeof(*c->is_summed));
    c->all = EVP_MD_CTX_new();
    if (c->sums && c->leaves && c->is_summed && c->all &&
        EVP_DigestInit_ex(c->all, EVP_sha256(), NULL))
        return 0;
    content_clear(c);
    return err_set(e, ERR_MEMORY, "no memory for the digests of %zu tensors", n);
}

void content_clear(struct content *c)
{
    mem_free(c->sums);
    mem_free(c->leaves);
    mem_free(c->is_summed);
    EVP_MD_CTX_free(c->all);
    *c = (struct content){ 0 };
}

struct leaf_job {
    struct thread_pool *thread_pool;
    const struct gguf_tensor *t;
    const uint8_t *bytes;
    uint8_t *leaves;
};

static void digest_chunks(void *arg, int thread, int n_threads)
{
    struct leaf_job *j = arg;
    (void)thread;
    (void)n_threads;
    for (;;) {
        size_t i = (size_t)thread_pool_next_task(j->thread_pool), from = i * CHUNK_BYTES;
        if (i >= n_chunks(j->t))
            return;
        CHECK(SHA256(j->bytes + from, MIN((size_t)j->t->bytes - from, (size_t)CHUNK_BYTES),
            j->leaves + i * CONTENT_BYTES));
    }
}

static void add_leaves(struct content *c, const struct gguf_tensor *t)
{
    size_t i = (size_t)(t - gguf_tensor_at(c->g, 0));

    CHECK(!c->is_summed[i]);
    c->is_summed[i] = true;
    CHECK(SHA256(c->leaves, n_chunks(t) * CONTENT_BYTES, c->sums + i * CONTENT_BYTES));
    c->n_summed++;
}

void content_add(struct content *c, const struct gguf_tensor *t, const uint8_t *bytes)
{
    struct leaf_job job = { c->thread_pool, t, bytes, c->leaves };

    thread_pool_run(c->thread_pool, digest_chunks, &job);
    add_leaves(c, t);
}

struct row_job {
    const struct content *c;
    const struct gguf_tensor *t;
    size_t row_bytes, stride;
    uint8_t *rows; /* [n_threads][stride]: the rows of which a chunk is a part */
};

static void digest_row_chunks(void *arg, int thread, int n_threads)
{
    struct row_job *j = arg;
    uint8_t *rows = j->rows + (size_t)thread * j->stride;
    (void)n_threads;
    for (;;) {
        size_t i = (size_t)thread_pool_next_task(j->c->thread_pool), from = i * CHUNK_BYTES;
        if (i >= n_chunks(j->t))
            return;
        const size_t n = MIN((size_t)j->t->bytes - from, (size_t)CHUNK_BYTES);
        const size_t first = from / j->row_bytes,
                     end = (from + n + j->row_bytes - 1) / j->row_bytes;
        gguf_read_rows(j->c->g, j->t, first, end - first, rows);
        CHECK(SHA256(rows + (from - first * j->row_bytes), n, j->c->leaves + i * CONTENT_BYTES));
    }
}

int content_add_rows(struct content *c, const struct gguf_tensor *t, struct err *e)
{
    const size_t n_rows = (size_t)(t->dims[1] * t->dims[2] * t->dims[3]);
    struct row_job job = { .c = c, .t = t, .row_bytes = (size_t)t->bytes / n_rows };

    job.stride = CHUNK_BYTES + 2 * job.row_bytes;
    job.rows = try_calloc((size_t)thread_pool_size(c->thread_pool), job.stride);
    if (!job.rows)
        return err_set(e, ERR_MEMORY, "no memory for the digest of a tensor");
    thread_pool_run(c->thread_pool, digest_row_chunks, &job);
    mem_free(job.rows);
    add_leaves(c, t);
    return 0;
}

bool content_has(const struct content *c, size_t i)
{
    return c->is_summed[i];
}

static void digest_u64(EVP_MD_CTX *to, uint64_t v)
{
    CHECK(EVP_DigestUpdate(to, &v, sizeof(v)));
}

static void digest_tensor(EVP_MD_CTX *to, const struct gguf_tensor *t, const uint8_t *sum)
{
    digest_u64(to, t->name.n);
    CHECK(EVP_DigestUpdate(to, t->name.p, t->name.n));
    digest_u64(to, (uint64_t)t->type);
    for (int i = 0; i < 4; i++)
        digest_u64(to, t->dims[i]);
    digest_u64(to, t->bytes);
    CHECK(EVP_DigestUpdate(to, sum, CONTENT_BYTES));
}

void content_end(struct content *c, uint8_t out[CONTENT_BYTES])
{
    CHECK(c->n_summed == gguf_n_tensors(c->g));
    digest_u64(c->all, c->n_summed);
    for (size_t i = 0; i < c->n_summed; i++)
        digest_tensor(c->all, gguf_tensor_at(c->g, i), c->sums + i * CONTENT_BYTES);
    CHECK(EVP_DigestFinal_ex(c->all, out, NULL));
}
