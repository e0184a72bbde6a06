#include "registry/kv_sizes.h"

/* Checkpoints of the prefix cache per sequence, if their memory is not configured. */
enum { CHECKPOINTS_PER_SEQ = 2 };

static uint64_t pages_for(uint64_t n_tokens)
{
    return (n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
}

/* Window pages before a checkpoint, wherever the window begins in a page. */
static uint64_t window_pages(const struct llama_needs *n)
{
    return pages_for((uint64_t)n->window.size + (uint64_t)n->window.align + PAGE_TOKENS) + 1;
}

/* Pages of both classes for one sequence of a context of n_pages pages. */
struct seq_pages {
    uint64_t n, n_windows, bytes;
};

static struct seq_pages pages_of_seq(const struct kv_budget *b, uint64_t n_pages)
{
    const struct llama_needs *needs = b->needs;
    struct seq_pages s = { .n = n_pages };

    if (needs->window.size)
        s.n_windows = MIN(window_pages(needs) + pages_for((uint64_t)b->prefill_chunk) + 1, n_pages);
    s.bytes = s.n * needs->page_bytes + s.n_windows * needs->window_page_bytes;
    return s;
}

static uint64_t bytes_limit(const struct kv_budget *b, const struct seq_pages *seq)
{
    uint64_t limit = b->kv_bytes ? b->kv_bytes : b->available / 4;

    if (b->is_ctx_fixed && !b->kv_bytes)
        limit = MAX(limit, MIN(seq->bytes, b->available / 4 * 3));
    return limit;
}

/* Window pages of checkpoints, in addition to those of running sequences. */
static uint64_t cached_windows(const struct kv_budget *b, uint64_t used)
{
    uint64_t left = b->available - MIN(b->available, used);

    if (!b->needs->window.size)
        return 0;
    if (b->cache_bytes)
        return b->cache_bytes / b->needs->window_page_bytes;
    return MIN(CHECKPOINTS_PER_SEQ * (uint64_t)b->max_batch * window_pages(b->needs),
        left / 8 / b->needs->window_page_bytes);
}

int kv_sizes_choose(struct kv_sizes *out, const struct kv_budget *b, struct err *e)
{
    enum { MOST = UINT32_MAX / 8 - 1 };
    const uint64_t page_bytes = b->needs->page_bytes, window_bytes = b->needs->window_page_bytes;
    const struct seq_pages seq = pages_of_seq(b, pages_for((uint64_t)b->n_ctx) + 1);
    const uint64_t limit = bytes_limit(b, &seq), max_batch = (uint64_t)b->max_batch;
    uint64_t n_windows = seq.n_windows * MAX(MIN(limit / MAX(seq.bytes, 1u), max_batch), 1u);

    if (seq.bytes > limit) /* a shorter context */
        n_windows = MIN(seq.n_windows, limit / (page_bytes + window_bytes));
    uint64_t left = limit - n_windows * window_bytes, n_pages = seq.n * max_batch;
    if (page_bytes && (b->kv_bytes || left / page_bytes < n_pages))
        n_pages = left / page_bytes;
    if (n_windows < seq.n_windows) /* the whole context is within a window */
        n_pages = n_windows;
    if (n_pages < 1 || (b->is_ctx_fixed && n_pages < seq.n))
        return err_set(e, ERR_MEMORY,
            "the KV cache of a context of %d tokens takes %llu MB, and the limit is %llu MB",
            b->n_ctx, (unsigned long long)(seq.bytes / MB + 1), (unsigned long long)(limit / MB));
    n_windows += cached_windows(b, n_pages * page_bytes + n_windows * window_bytes);
    *out = (struct kv_sizes){ (uint32_t)MIN(n_pages, (uint64_t)MOST),
        (uint32_t)MIN(n_windows, (uint64_t)MOST) };
    return 0;
}

uint64_t kv_sizes_bytes(const struct kv_sizes *s, const struct llama_needs *needs)
{
    return (uint64_t)s->n_pages * needs->page_bytes +
           (uint64_t)s->n_window_pages * needs->window_page_bytes;
}
