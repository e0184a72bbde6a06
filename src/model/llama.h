/* llama.h: the Llama architecture: attention and a gated feed-forward network, each with a norm
 * before it and a residual.
 *
 * Implements struct lm for every row of family.c. Owns its weights, KV arena, scratch memory and
 * thread pool, and borrows nothing: the gguf may be closed after lm_open_llama.
 *
 * Owner: see lm.h. */
#pragma once

#include "format/gguf.h"
#include "kernel/kernels.h"
#include "model/lm.h"

struct llama_options {
    const struct kernels *kernels; /* NULL: the best set that this machine supports */
    int n_threads;                 /* 0: one per processor */
    uint32_t n_pages;              /* size of the KV arena, >= 1 */
    uint32_t n_window_pages;       /* size of the arena of windowed layers; 0: n_pages */
    uint32_t n_states;             /* state slots, >= 2 if llama_needs.state_bytes > 0 */
    enum kv_type kv_type;
    int n_ctx;    /* longest context, which selects the factors of longrope; 0: that of the file */
    int max_rows; /* per forward pass; 0: 512 */
    int max_logits;                            /* per forward pass; 0: 32 */
    void (*progress)(void *arg, double share); /* called during the load, 0 .. 1; NULL: none */
    void *progress_arg;
    const _Atomic bool *stop; /* true: the load ends with ERR_CANCELLED; NULL: never */
    const char *packfile; /* packed weights of an earlier start, used if they match; NULL: none */
    bool packfile_to_memory; /* read into memory instead of mapped */
};

/* ERR_CORRUPT, ERR_UNSUPPORTED and ERR_RANGE name the defect of the file; ERR_MEMORY. */
int lm_open_llama(
    struct lm **out, const struct gguf *g, const struct llama_options *o, struct err *e);

/* Sizes of a model from its metadata alone, to choose n_pages for a memory budget. */
struct llama_needs {
    int n_vocab, n_ctx_train;
    size_t page_bytes; /* 0: all attention layers have a window */
    struct kv_window window;
    size_t window_page_bytes;
    size_t state_bytes; /* size of a slot of recurrent state; 0: no recurrent layers */
};
int llama_needs(struct llama_needs *out, const struct gguf *g, enum kv_type kv_type, struct err *e);

/* Opened with a packfile that did not exist or did not match: writing one speeds up the next
 * start. */
bool llama_wants_packfile(const struct lm *lm);
/* Writes the packfile. Any thread, also during forward passes; see packfile.h. */
int llama_write_packfile(
    const struct lm *lm, const char *path, const _Atomic bool *stop, struct err *e);
