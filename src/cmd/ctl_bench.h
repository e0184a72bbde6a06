/* ctl_bench.h: speculative decoding benchmark, `inferctl bench --workload`. The other benchmark is
 * in ctl_bench.c. One thread. */
#pragma once

#include "cmd/ctl.h"

struct workload_args {
    const char *name;                   /* name of a workload, or "all" */
    const char *path, *draft, *kernels; /* draft: path of the draft model, or NULL */
    int threads;                        /* 0 = one per processor */
    int draft_max;                      /* draft tokens per step; -1 = the engine's default */
    int n_output;                       /* output tokens; 0 = 256 */
    int edit_every;                     /* mean distance between edits, in tokens */
    int n_repeats;                      /* repetitions of each request after the first run */
    bool as_json;
};

/* Measures and prints; returns an EXIT_ status. A difference between the outputs with and without
 * speculative decoding is a failure. */
int workload_run(const struct workload_args *a);
bool workload_exists(const char *name);
