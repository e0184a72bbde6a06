/* bench.h: speed of a model, compared with the limits of the machine.
 *
 * The limits (a roofline) are measured: all threads read memory in several streams each; and
 * multiply-adds in registers, or in tiles on a processor with a matrix unit, with the widest
 * instruction of the machine, whatever kernel set the model uses. A figure counts the bytes and
 * multiply-adds that the network requires, not those of caches and kernels.
 *
 * On shared machines the speed changes from second to second: compare a figure with the higher of
 * two limits, measured directly before and after it.
 *
 * Owner: the thread that owns the model; no other load on the machine during a measurement. */
#pragma once

#include "base/err.h"
#include "model/lm.h"

struct bench_roof {
    double read_gb_s;  /* memory bandwidth of all threads; GB = 1e9 bytes */
    double dot_gmac_s; /* 8-bit integer multiply-adds */
    double fma_gmac_s; /* float multiply-adds: bf16 in tiles if available, else single precision */
};

/* Reads one word of every cache line of n bytes; returns the sum, so that the compiler keeps the
 * loads. `way` selects an access pattern (streams, lines per visit, prefetch distance); the limit
 * is the best of all patterns. */
enum { BENCH_PATTERNS = 4 };
uint64_t bench_read(const uint8_t *p, size_t n, int pattern);

/* State for measuring limits: its own threads and 256 MB of memory. */
struct bench_meter;

int bench_meter_open(struct bench_meter **out, int n_threads, struct err *e); /* ERR_MEMORY */
void bench_meter_close(struct bench_meter *b);                                /* accepts NULL */

/* Measures the limits; takes about 0.3 s. */
struct bench_roof bench_meter_read(struct bench_meter *b);

/* One measurement with a temporary meter. ERR_MEMORY. */
int bench_measure_roof(struct bench_roof *out, int n_threads, struct err *e);

/* maximum of each limit */
struct bench_roof bench_roof_max(struct bench_roof a, struct bench_roof b);

struct bench_case {
    int n_ctx;   /* positions that each sequence already has */
    int n_seqs;  /* sequences in each step */
    int n_rows;  /* rows of each sequence: 1 is decode, more is a prompt chunk */
    int n_steps; /* timed steps; each continues where the previous one ended */
    /* The first n_ctx positions are in the same KV pages for all sequences, except for a last
     * partial page. */
    bool is_shared;
    uint64_t seed; /* seed of the tokens: see bench_token */
};

struct bench_result {
    double tokens_s;
    double step_ms; /* median */
    double gb_s;    /* weights once per step, KV of every sequence; shared KV once */
    double gmac_s;
    double read_share;    /* share of roof.read_gb_s, 0 .. 1 */
    double compute_share; /* share of the limit of the instructions that do most of the work */
    int64_t n_cached;     /* tokens of the timed steps that were not computed */
};

/* Sets the shares for another roof. */
void bench_set_shares(struct bench_result *f, const struct lm *m, const struct bench_roof *roof);

/* Token of a sequence at a position: one of 0 .. n_vocab - 1, pseudo-random (the finaliser of
 * splitmix64 over seed, sequence and position; bench/compare_llama.py uses the same function). */
int32_t bench_token(uint64_t seed, int seq, int pos, int n_vocab);

/* The KV pages of the first n_ctx positions are copies of one page: the bytes read are the same,
 * without the time to compute them. ERR_RANGE: the case needs more rows or pages than the model
 * has. */
int bench_run(struct bench_result *out, struct lm *m, const struct bench_case *c,
    const struct bench_roof *roof, struct err *e);

/* Pages that a case needs, to open the model with enough pages. */
uint32_t bench_n_pages(const struct bench_case *c);
/* State slots that a case needs if the model has recurrent layers. */
uint32_t bench_n_states(const struct bench_case *c);
