/* moe.h: mixture of experts: a feed-forward network of which each row uses a few of many experts.
 *
 * A router computes a score for each expert and row. The top-k experts are used, and a softmax over
 * their scores gives their weights. Equal scores: the lower expert index comes first. The expert
 * outputs of a row are added in the order of the top-k list, so the bits of a row depend on that
 * row only.
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
    float *expert_out; /* [n_entries][d_stride]: expert outputs */
};

/* Top-k: the indices of the n_used highest of n scores, highest first, and their softmax
 * numerators; returns the sum of these, by which the caller divides. NaN counts as -inf. */
struct kernels;
double moe_topk(
    const struct kernels *k, const float *scores, int n, int n_used, int *topk, float *weights);

/* Sorts the entries of n_rows rows by expert: computes entry, row and first from topk. */
void moe_sort(struct moe *x, const struct hparams *h, int n_rows);
