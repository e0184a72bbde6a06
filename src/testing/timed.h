/* timed.h: a model that computes nothing and takes its time: the one given, on a clock of ours.
 *
 * For simulating a server: requests bring their answers as scripts, and each forward pass moves
 * the clock on by what a law says. Same contract as lm.h, except that there are no logits. */
#pragma once

#include "model/lm.h"

struct timed_law { /* nanoseconds; keys: positions that rows attend to, over all rows */
    double fixed, per_row, per_key;
    double free_rows; /* a step's first rows cost nothing: the weights going by hide them */
    double jitter;    /* up to this share longer, evenly spread, by seed */
    uint64_t seed;
};

struct timed_options {
    int n_vocab, n_ctx_train, max_rows;
    uint32_t n_pages;
    int n_layers; /* that share the time of a row; 0 = 1: no run may pause */
    struct timed_law law;
    uint64_t *clock; /* moved on; the caller's, outlives the model */
};

int lm_open_timed(struct lm **out, const struct timed_options *o, struct err *e) MUST_CHECK;
