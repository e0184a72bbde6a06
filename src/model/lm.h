/* lm.h: what the engine asks of a language model. Rows in, logits out.
 *
 * A row is one token at one absolute position of one sequence; a run is consecutive rows of one
 * sequence, and a sequence has at most one run in a forward. The bits of a row's logits depend on
 * the tokens before it in its sequence and on nothing else: not on the other rows, not on how
 * the prompt was cut into runs, not on threads.
 *
 * Owner: the engine thread calls what is in lm_ops, but for read_page and write_page; everything is
 * allocated when the model is opened, a step allocates nothing and cannot fail.
 *
 * Implementations: llama.c (the real one), fake.c (the next token is a hash of the prefix, read
 * back from the pages; for the simulator and the promise test), script.c (answers are given in
 * the request). */
#pragma once

#include "base/err.h"
#include "kernel/page.h"

enum { LOGIT_GROUP = 256 }; /* logits that have a peak in common */

static inline int logit_groups(int n_vocab)
{
    return (n_vocab + LOGIT_GROUP - 1) / LOGIT_GROUP;
}

/* What one row says about the next token. */
struct logits {
    const float *x;    /* [n_vocab] */
    const float *peak; /* [logit_groups(n_vocab)] the largest of each group, NaN counts as -inf;
                          NULL: not known */
};

struct lm_run {
    const int32_t *tokens; /* [n] */
    int n;                 /* >= 1 */
    int pos;               /* absolute position of tokens[0] */
    const page_id *pages;  /* the sequence's table; covers positions 0 .. pos + n - 1 */
    int n_logits;          /* wanted for the last n_logits rows: 0 .. n */
    const float *logits;   /* out: [n_logits][n_vocab], valid until the next forward */
    const float *peaks;    /* out: [n_logits][logit_groups(n_vocab)] of them; or NULL */
    int from_layer;        /* a run that was paused goes on with this layer; else 0 */
    int end_layer;         /* it pauses before this one; 0: it does not */
};

/* Pausing: one run of a forward, of at most max_paused rows, may stop between two layers, with
 * no logits yet. The model keeps what its rows are there. A later forward goes on with the same
 * tokens, pos and pages, or the first of them, from where it stopped, for some layers or to the
 * end; forwards between them compute other sequences. What is kept is forgotten when another run
 * pauses, and untouched by a forward that was stopped: the same part may be computed again. Until
 * the end its pages hold rubbish from pos on. Bits are those of a run in one piece. */
struct lm;

struct lm_ops {
    /* Computes all runs, appends their keys and values to their pages. Sum of n <= max_rows,
     * sum of n_logits <= max_logits. `stop` is polled between layers; when it becomes true the
     * call returns false, logits are undefined and the rows' pages hold rubbish beyond pos. */
    bool (*forward)(struct lm *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop);
    void (*copy_page)(struct lm *m, page_id from, page_id to); /* for copy-on-write */
    void (*clear_page)(struct lm *m, page_id page);            /* nothing of what it held is left */
    /* All of a page, page_bytes, to and from memory. These two from any thread, as long as nobody
     * writes to the page, or reads it, meanwhile. */
    void (*read_page)(struct lm *m, page_id page, void *out);
    void (*write_page)(struct lm *m, page_id page, const void *in);
    /* fn on each of the n_threads threads that compute, the caller among them (member 0); returns
     * when all have. Not during a forward. NULL where n_threads is 1 or 0. */
    void (*spread)(struct lm *m, void (*fn)(void *arg, int member, int n_members), void *arg);
    void (*close)(struct lm *m);
};

struct lm {
    const struct lm_ops *ops;
    int n_vocab;
    int n_ctx_train;     /* positions the model was made for */
    int max_rows;        /* per forward */
    int max_logits;      /* per forward */
    int n_layers;        /* a run may pause between them; 0, 1: it may not */
    int max_paused;      /* rows of a run that pauses; 0 likewise */
    int n_threads;       /* that compute; 0: the caller's */
    uint32_t n_pages;    /* pages its KV arena has */
    size_t page_bytes;   /* of one page, all layers; 0: pages without content */
    uint32_t kv_kind;    /* number format and layout of what is in a page, and the sums it is of */
    size_t weight_bytes; /* as held in memory */
    uint64_t n_params;

    /* What a step costs, for benchmarks; 0 when nothing is computed. */
    size_t step_bytes;   /* of weights read; of experts, those that one row uses */
    uint64_t row_macs;   /* multiply-adds of a row up to the head */
    uint64_t key_macs;   /* more of them for each key that a row attends to */
    uint64_t logit_macs; /* more of them for a row whose logits are wanted */
    bool is_integer;     /* most of them are integer dots */
};

/* Of the i-th row that logits were wanted for. */
static inline struct logits lm_logits(const struct lm *m, const struct lm_run *r, int i)
{
    size_t n_groups = (size_t)logit_groups(m->n_vocab);

    return (struct logits){ r->logits + (size_t)i * (size_t)m->n_vocab,
        r->peaks ? r->peaks + (size_t)i * n_groups : NULL };
}
