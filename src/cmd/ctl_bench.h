/* ctl_bench.h: the two benchmarks behind `inferctl bench`. One thread; see ctl.h. */
#pragma once

#include "cmd/ctl.h"

struct workload_args {
    const char *name;                   /* of a workload, or "all" */
    const char *path, *draft, *kernels; /* draft: a small model, or NULL */
    int threads;                        /* 0 = one per processor */
    int draft_max;                      /* -1 = the engine's own */
    int n_answer;                       /* tokens; 0 = 256 */
    int edit_every;                     /* tokens from one edit to the next, on average */
    int n_repeats;                      /* of each request, after the first time */
    bool as_json;
};

/* Measures and prints; an EXIT_ status: failed also when guessing has changed an answer. */
int workload_run(const struct workload_args *a);
bool workload_exists(const char *name);
