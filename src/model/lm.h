/* lm.h: interface between the engine and a language model: batch rows in, logits out.
 *
 * A row is one token at one absolute position of one sequence. A run is a set of consecutive rows
 * of one sequence; a sequence has at most one run per forward pass. The bits of a row's logits
 * depend only on the preceding tokens of its sequence: not on the other rows, not on the division
 * of the prompt into runs, not on the number of threads.
 *
 * Owner: the engine thread calls the functions of lm_ops, except read_page and write_page. All
 * memory is allocated when the model is opened; a step allocates nothing and cannot fail.
 *
 * Implementations: llama.c (transformer), fake.c (the next token is a hash of the prefix, which is
 * read back from the KV pages; for the simulator and the schedule invariance test), script.c (the
 * output is part of the request), hooked.c (another model with a function that is called after each
 * forward pass; in timed.c it advances a simulated clock). */
#pragma once

#include "base/err.h"
#include "format/gguf.h"
#include "kernel/page.h"
#include "os/mapfile.h"
#include "os/thread.h"

enum {
    LOGIT_GROUP = 256, /* logits that share one maximum in `peaks` */
    LOGIT_PANEL = 16,  /* logits that a model computes together */
};

/* Recurrent state. A layer that is not an attention layer keeps a state of constant size instead of
 * keys and values. A state slot, a numbered block of `state_bytes` bytes, contains the state of one
 * sequence in all these layers. For each layer it has a base position, the state before that
 * position, and the updates of at most STATE_LOG_ROWS positions from there on (the log). So the
 * sequence can resume at several positions: rejected draft tokens need no copy of the state, and an
 * interrupted pass can be repeated although some layers have passed it.
 *
 * A run of n rows at `pos` reads lm_run.state, which must be able to resume at pos, and writes
 * lm_run.state_out, which can resume at pos + max(n - STATE_LOG_ROWS, 0) .. pos + n afterwards. The
 * slots may be equal if n <= STATE_LOG_ROWS; an interrupted pass then leaves a slot that can resume
 * at pos. If they differ, `state` is only read, so several runs may share it, and the content of
 * state_out is undefined until the run has passed all layers. */
enum { STATE_LOG_ROWS = 8 };

/* Windowed layers. A row attends to the last `window` positions in these layers. Their keys and
 * values are in an arena and in pages of their own, numbered from 0, so that a page can be freed
 * when no later row of its sequence attends to it. A row at position p reads the pages from
 * kv_window_from(p) on, since it reads whole key blocks (kernel/attn.h). */

static inline int logit_groups(int n_vocab)
{
    return (n_vocab + LOGIT_GROUP - 1) / LOGIT_GROUP;
}

static inline int logit_panels(int n_vocab)
{
    return (n_vocab + LOGIT_PANEL - 1) / LOGIT_PANEL;
}

/* Output of one row: the distribution of the next token. */
struct logits {
    const float *x; /* [n_vocab] */
    /* [logit_groups(n_vocab)] maximum of each group, NaN counts as -inf; NULL: not available */
    const float *peak;
};

struct lm_run {
    const int32_t *tokens; /* [n] */
    int n;                 /* >= 1 */
    int pos;               /* absolute position of tokens[0] */
    const page_id *pages;  /* page table of the sequence; covers positions 0 .. pos + n - 1 */
    /* Page table of the windowed layers, with the same indices; covers positions
     * kv_window_from(&lm->window, pos) .. pos + n - 1. NULL: the numbers of `pages`. */
    const page_id *window_pages;
    int n_logits; /* the last n_logits rows get logits: 0 .. n */
    /* Bit set of the panels of logits that are needed: bit `i % 32` of word `i / 32` is for the
     * logits LOGIT_PANEL i .. LOGIT_PANEL (i + 1) - 1 of all n_logits rows. The others are
     * undefined afterwards, and `peaks` is NULL; the needed ones have the same bits as without the
     * set. A model may compute all. NULL: all are needed. */
    const uint32_t *panels;
    const float *logits; /* out: [n_logits][n_vocab], valid until the next forward pass */
    const float *peaks;  /* out: [n_logits][logit_groups(n_vocab)] group maxima; or NULL */
    int from_layer;      /* first layer of this pass: a partial run resumes here; else 0 */
    int end_layer;       /* a partial run stops before this layer; 0: it runs all layers */
    /* Slots of the recurrent state before and after the run, if the model has one. `state` is
     * STATE_NONE exactly if pos is 0. A partial run has the same slots in all its passes, and the
     * same rows unless it has at most STATE_LOG_ROWS of them. */
    state_id state, state_out;
};

/* Layered prefill: one run of a forward pass, of at most max_partial_rows rows, may stop between
 * two layers (a partial run); it has no logits yet. The model stores the residual stream of its
 * rows. A later forward pass resumes at that layer with the same tokens, pos and pages, or the
 * first of them, for some layers or to the end; forward passes in between compute other sequences.
 * The stored state is discarded when another run becomes partial. A forward pass that was stopped
 * does not change it, so the same part can be computed again. Until the last layer is done, the
 * content of the run's pages from pos on is undefined. The results have the same bits as those of a
 * run in one pass. */
struct lm;

struct lm_ops {
    /* Forward pass: computes all runs and appends their keys and values to their KV pages. The sum
     * of n is at most max_rows, the sum of n_logits at most max_logits. `stop` is polled between
     * layers; if it is true, the call returns false, the logits are undefined, and so is the
     * content of the runs' pages from pos on. */
    bool (*forward)(struct lm *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop);
    /* Pages: the functions lm_copy_page to lm_write_page below, if the KV arena is in memory.
     * copy_page: for copy-on-write. */
    void (*copy_page)(struct lm *m, page_id from, page_id to);
    void (*clear_page)(struct lm *m, page_id page); /* overwrites the previous content */
    /* Copy a whole page (page_bytes) to and from memory. Any thread may call these two, as long as
     * no other thread writes to the page, or reads it, at the same time. */
    void (*read_page)(struct lm *m, page_id page, void *out);
    void (*write_page)(struct lm *m, page_id page, const void *in);
    /* The same for state slots (state_bytes); NULL without recurrent layers. read_state writes
     * zeros for unused parts. write_state returns the first position at which the slot can resume;
     * -1 if `in`, which may come from a damaged file or another process, cannot resume at pos in
     * every layer, and then the slot is undefined. */
    void (*read_state)(struct lm *m, state_id state, void *out);
    int (*write_state)(struct lm *m, state_id state, const void *in, int pos);
    /* Calls fn on each of the n_threads compute threads, including the caller (thread 0), and
     * returns when all calls have returned. Not during a forward pass. NULL if n_threads is 1 or
     * 0. */
    void (*run_on_threads)(
        struct lm *m, void (*fn)(void *arg, int thread, int n_threads), void *arg);
    void (*close)(struct lm *m);
};

struct lm {
    const struct lm_ops *ops;
    int n_vocab;
    int n_ctx_train;          /* context length of the training */
    int max_rows;             /* per forward pass */
    int max_logits;           /* per forward pass */
    int n_layers;             /* a partial run may stop between layers; 0, 1: no partial runs */
    int max_partial_rows;     /* largest number of rows of a partial run; 0: no partial runs */
    int n_threads;            /* compute threads; 0: only the caller's thread */
    uint32_t n_pages;         /* pages in the KV arena */
    size_t page_bytes;        /* bytes of one page, all layers without a window; 0: no content */
    uint8_t *arena;           /* KV arena, [n_pages][page_bytes]; NULL: pages have no content */
    struct kv_window window;  /* attention window; size 0: no windowed layers */
    uint32_t n_window_pages;  /* pages of the windowed layers */
    size_t window_page_bytes; /* bytes of one of them, all windowed layers */
    uint8_t *window_arena;    /* [n_window_pages][window_page_bytes] */
    uint32_t n_states;        /* state slots, at least 2; 0: no recurrent layers */
    size_t state_bytes;       /* bytes of one slot, all layers */
    struct owner owner;       /* engine thread; a model may take it in its first forward pass */
    /* number format, layout and numerics id of the page content: only pages of one kind may be
     * mixed */
    uint32_t kv_kind;
    /* weights that are mapped from a file: packed ones, and rows of the model file; NULL: none */
    const struct mapfile *weights_file;
    const struct gguf *table_file;
    size_t weight_bytes; /* weights in memory */
    uint64_t n_params;

    /* Cost of a step, for benchmarks; 0 if the model computes nothing. */
    size_t step_bytes;   /* weights read per step; of experts, those that one row uses */
    uint64_t row_macs;   /* multiply-adds of one row up to the output projection */
    uint64_t key_macs;   /* additional multiply-adds for each key that a row attends to */
    uint64_t logit_macs; /* additional multiply-adds for a row that gets logits */
    bool is_integer;     /* most multiply-adds are integer dot products */
};

/* Page functions of struct lm_ops for a KV arena in memory; pages without content are only checked
 * against n_pages. */
void lm_copy_page(struct lm *m, page_id from, page_id to);
void lm_clear_page(struct lm *m, page_id page);
void lm_read_page(struct lm *m, page_id page, void *out);
void lm_write_page(struct lm *m, page_id page, const void *in);
/* The same for pages of the windowed layers, whose arena is in memory in every model. */
void lm_copy_window_page(struct lm *m, page_id from, page_id to);
void lm_clear_window_page(struct lm *m, page_id page);
void lm_read_window_page(struct lm *m, page_id page, void *out);
void lm_write_window_page(struct lm *m, page_id page, const void *in);

/* Bytes of both arenas. */
static inline size_t lm_kv_bytes(const struct lm *m)
{
    return m->n_pages * m->page_bytes + m->n_window_pages * m->window_page_bytes;
}

/* A file with weights was truncated or could not be read: logits are wrong from then on. */
static inline bool lm_is_file_lost(const struct lm *m)
{
    return (m->weights_file && mapfile_is_lost(m->weights_file)) ||
           (m->table_file && gguf_is_lost(m->table_file));
}

/* Logits of the i-th of the run's n_logits rows. */
static inline struct logits lm_logits(const struct lm *m, const struct lm_run *r, int i)
{
    size_t n_groups = (size_t)logit_groups(m->n_vocab);

    return (struct logits){ r->logits + (size_t)i * (size_t)m->n_vocab,
        r->peaks ? r->peaks + (size_t)i * n_groups : NULL };
}
