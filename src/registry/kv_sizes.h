/* kv_sizes.h: number of KV pages of a model, from its sizes and a memory budget.
 *
 * A sequence needs pages for its whole context. Of the windowed layers (model/lm.h) it needs pages
 * for a window and a prefill chunk, and the prefix cache needs pages for the windows before its
 * checkpoints.
 *
 * Pure; any thread. */
#pragma once

#include "base/err.h"
#include "model/llama.h"

struct kv_budget {
    const struct llama_needs *needs;
    int n_ctx;
    bool is_ctx_fixed;    /* a shorter context is an error */
    int max_batch;        /* sequences that run at a time */
    int prefill_chunk;    /* tokens */
    uint64_t kv_bytes;    /* limit without the pages of checkpoints; 0: automatic */
    uint64_t cache_bytes; /* limit of the window pages of checkpoints; 0: automatic */
    uint64_t available;   /* bytes of memory */
};

struct kv_sizes {
    uint32_t n_pages, n_window_pages; /* n_window_pages: 0 without windowed layers */
};

/* A full context for each sequence that may run, limited by kv_bytes or by a quarter of the
 * available memory. If not even one context fits, the context shrinks to that size. A fixed context
 * may use three quarters of the memory. ERR_MEMORY: it does not fit. */
int kv_sizes_choose(struct kv_sizes *out, const struct kv_budget *b, struct err *e) MUST_CHECK;
/* Bytes of both classes. */
uint64_t kv_sizes_bytes(const struct kv_sizes *s, const struct llama_needs *needs);
