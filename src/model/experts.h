/* experts.h: a feed-forward of which every token uses a few of many.
 *
 * A router scores all experts for a token; the best few are used, the score deciding which and, by
 * a softmax over theirs, how much each counts. Equal scores: the lower number. What they say is
 * added in that order, best first, so that a row's bits depend on the row alone.
 *
 * The rows of a step are gone through expert by expert: an `entry` is one row at one expert, and
 * entries lie sorted by expert, so that each expert's weights are read once for all its rows.
 *
 * Owner: as struct llama, which holds it. */
#pragma once

#include "model/hparams.h"

struct experts {
    float *scores;  /* [rows][stride] */
    size_t stride;  /* of scores, in floats */
    int *chosen;    /* [rows][n_used]: experts, best first */
    float *weights; /* [rows][n_used]: what they count */
    int *entry;     /* [rows][n_used]: where that use lies among the entries */
    int *row;       /* [entries]: the input row */
    int *first;     /* [n_experts + 1]: an expert's first entry; behind the last: how many */
    float *said;    /* [entries][d_stride] */
};

/* The n_used highest of n scores, best first, and their weights before division by the returned
 * sum of them. NaN counts as -inf. */
struct kernels;
double experts_choose(
    const struct kernels *k, const float *scores, int n, int n_used, int *chosen, float *weights);

/* Sorts the uses of n_rows rows by expert: entry, row and first from chosen. */
void experts_sort(struct experts *x, const struct hparams *h, int n_rows);
