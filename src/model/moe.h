/* moe.h: mixture of experts: a feed-forward network of which each row uses a few of many experts.
 *
 * A router computes a score for each expert and row. The top-k experts are used; their weights are
 * a function of their scores (enum router_fn). Equal scores: the lower expert index comes first.
 * If the experts are in groups, those of the groups with the best two experts are available. The
 * expert outputs of a row are added in the order of the top-k list, so the bits of a row depend on
 * that row only.
 *
 * The rows of a step are processed expert by expert. An `entry` is one (row, expert) pair; entries
 * are sorted by expert, so that the weights of an expert are read once for all its rows.
 *
 * Owner: the owner of the struct llama that contains it. */
#pragma once

#include "model/hparams.h"

struct moe {
    float *scores;  /* [n_rows][stride]: router output */
    size_t stride;  /* row length of scores, in floats */
    int *topk;      /* [n_rows][n_used]: indices of the top-k experts, highest score first */
    float *weights; /* [n_rows][n_used]: their weights, sum 1 */
    int *entry;     /* [n_rows][n_used]: index of the (row, expert) pair among the entries */
    int *row;       /* [n_entries]: input row of the entry */
    int *first;     /* [n_experts + 1]: first entry of each expert; the last element is n_entries */
    float *expert_out; /* [n_entries][out_stride]: expert outputs */
    size_t out_stride;
    /* [n_rows][out_stride]: projected inputs of the experts, then the sums of their outputs; NULL:
     * the experts have no such projections */
    float *latent;
    /* [n_rows][PANEL]: element 0 of a row is the score of the shared expert, then its factor */
    float *shared;
};

/* Top-k: the indices of the n_used highest of n scores, highest first, and these scores. NaN counts
 * as -inf. */
void moe_topk(const float *scores, int n, int n_used, int *topk, float *values);

struct kernels;
/* Selects the experts of a row and computes their weights from the scores, which are overwritten.
 * bias: [n_experts], added for the selection only; or NULL. */
void moe_route(const struct kernels *k, const struct hparams *h, float *scores, const float *bias,
    int *topk, float *weights);

/* Sorts the entries of n_rows rows by expert: computes entry, row and first from topk. */
void moe_sort(struct moe *x, const struct hparams *h, int n_rows);
