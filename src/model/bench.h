/* bench.h: how fast a model runs, beside what this machine could do at best.
 *
 * The roofs are measured, not looked up: all threads reading memory in several streams each, and
 * multiply-adds that never leave the registers. A figure counts the bytes and multiply-adds that
 * the network needs, not what the caches or kernels make of them.
 *
 * Owner: the thread that owns the model; nothing else may run on the machine meanwhile. */
#pragma once

#include "base/err.h"
#include "model/lm.h"

struct bench_roof {
    double read_gb_s;  /* memory, all threads at once; GB = 1e9 bytes */
    double dot_gmac_s; /* 8-bit integer multiply-adds */
    double fma_gmac_s; /* single-precision multiply-adds */
};

/* Takes about a second and 256 MB. ERR_MEMORY. */
int bench_roof(struct bench_roof *out, int n_threads, struct err *e);

struct bench_case {
    int n_ctx;   /* positions a sequence already has */
    int n_seqs;  /* sequences in each step */
    int n_rows;  /* rows of each: 1 is decode, more a chunk of a prompt */
    int n_steps; /* timed steps; each goes on where the last one ended */
    /* The first n_ctx positions are in the same pages for all sequences, but for a last page that
     * is not whole. */
    bool is_shared;
};

struct bench_figure {
    double tokens_s;
    double step_ms; /* median */
    double gb_s;    /* weights once a step, keys and values of every sequence; shared ones once */
    double gmac_s;
    double read_share;    /* of roof.read_gb_s, 0 .. 1 */
    double compute_share; /* of the roof of the instructions that do most of the work */
};

/* Keys and values of the first n_ctx positions are copies of one page: the same bytes to read,
 * none of the time to compute them. ERR_RANGE: the case needs more rows or pages than the model
 * was opened with. */
int bench_run(struct bench_figure *out, struct lm *m, const struct bench_case *c,
    const struct bench_roof *roof, struct err *e);

/* Pages that a case needs, to open the model with enough. */
uint32_t bench_pages(const struct bench_case *c);
