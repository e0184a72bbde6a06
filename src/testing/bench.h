/* bench.h: how fast a model runs, beside what this machine could do at best.
 *
 * The roofs are measured, not looked up: all threads reading memory in several streams each, and
 * multiply-adds that never leave the registers (or tiles, where the processor has a matrix unit),
 * of the widest instruction that runs here, whatever the model's kernels use. A figure counts the
 * bytes and multiply-adds that the network needs, not what the caches or kernels make of them.
 *
 * Machines with neighbours change from second to second: a figure says most beside roofs of the
 * same seconds, the higher of before and after.
 *
 * Owner: the thread that owns the model; nothing else may run on the machine meanwhile. */
#pragma once

#include "base/err.h"
#include "model/lm.h"

struct bench_roof {
    double read_gb_s;  /* memory, all threads at once; GB = 1e9 bytes */
    double dot_gmac_s; /* 8-bit integer multiply-adds */
    double fma_gmac_s; /* float multiply-adds: of bf16 in tiles where there are, else single */
};

/* Reads one word of every line of n bytes; returns their sum, so that nothing is optimised away. A
 * way is which line comes when; a roof is what the best of them gets. */
enum { BENCH_WAYS = 4 };
uint64_t bench_read(const uint8_t *p, size_t n, int way);

/* What roofs are measured with: threads of its own and 256 MB. */
struct bench_meter;

int bench_meter_open(struct bench_meter **out, int n_threads, struct err *e); /* ERR_MEMORY */
void bench_meter_close(struct bench_meter *b);                                /* NULL is fine */

/* Takes some 0.3 s. */
struct bench_roof bench_meter_read(struct bench_meter *b);

/* One reading of a meter of its own. ERR_MEMORY. */
int bench_roof(struct bench_roof *out, int n_threads, struct err *e);

struct bench_roof bench_higher(struct bench_roof a, struct bench_roof b); /* of each kind */

struct bench_case {
    int n_ctx;   /* positions a sequence already has */
    int n_seqs;  /* sequences in each step */
    int n_rows;  /* rows of each: 1 is decode, more a chunk of a prompt */
    int n_steps; /* timed steps; each goes on where the last one ended */
    /* The first n_ctx positions are in the same pages for all sequences, but for a last page that
     * is not whole. */
    bool is_shared;
    uint64_t seed; /* of the tokens: see bench_token */
};

struct bench_figure {
    double tokens_s;
    double step_ms; /* median */
    double gb_s;    /* weights once a step, keys and values of every sequence; shared ones once */
    double gmac_s;
    double read_share;    /* of roof.read_gb_s, 0 .. 1 */
    double compute_share; /* of the roof of the instructions that do most of the work */
    int64_t n_cached;     /* tokens of the timed steps that were not computed */
};

/* The shares of another roof. */
void bench_against(struct bench_figure *f, const struct lm *m, const struct bench_roof *roof);

/* The token of a sequence at a position: one of 0 .. n_vocab - 1, random by seed (the finaliser of
 * splitmix64 over seed, sequence and position; bench/compare_llama.py has the same). */
int32_t bench_token(uint64_t seed, int seq, int pos, int n_vocab);

/* Keys and values of the first n_ctx positions are copies of one page: the same bytes to read,
 * none of the time to compute them. ERR_RANGE: the case needs more rows or pages than the model
 * was opened with. */
int bench_run(struct bench_figure *out, struct lm *m, const struct bench_case *c,
    const struct bench_roof *roof, struct err *e);

/* Pages that a case needs, to open the model with enough. */
uint32_t bench_pages(const struct bench_case *c);
