/* llama.h: the Llama shape: attention and a gated feed-forward, each behind a norm and a residual.
 *
 * Implements struct lm for every row of family.c. Owns its weights, its KV arena, its scratch and
 * its team; borrows nothing: the gguf may be closed after lm_open_llama.
 *
 * Owner: as lm.h says. */
#pragma once

#include "format/gguf.h"
#include "kernel/kernels.h"
#include "model/lm.h"

struct llama_options {
    const struct kernels *kernels; /* NULL: the best this machine runs */
    int n_threads;                 /* 0: as many as processors */
    uint32_t n_pages;              /* of the KV arena, >= 1 */
    enum kv_type kv_type;
    int max_rows;                              /* per forward; 0: 512 */
    int max_logits;                            /* per forward; 0: 32 */
    void (*progress)(void *arg, double share); /* while loading, 0 .. 1; NULL: none */
    void *progress_arg;
    const char *packfile;    /* packed weights of an earlier start, if they fit; NULL: none */
    bool packfile_to_memory; /* read, not mapped */
};

/* ERR_CORRUPT, ERR_UNSUPPORTED, ERR_RANGE name what is wrong with the file; ERR_MEMORY. */
int lm_open_llama(
    struct lm **out, const struct gguf *g, const struct llama_options *o, struct err *e);

/* What opening would take, from the metadata alone: to choose n_pages by a budget. */
struct llama_needs {
    int n_vocab, n_ctx_train;
    size_t page_bytes;
};
int llama_needs(struct llama_needs *out, const struct gguf *g, enum kv_type kv_type, struct err *e);

/* Opened with a packfile that was not there or did not fit: the next start could use one. */
bool llama_wants_packfile(const struct lm *lm);
/* Writes it. From any thread, also while it computes; packfile.h says the rest. */
int llama_write_packfile(
    const struct lm *lm, const char *path, const _Atomic bool *stop, struct err *e);
