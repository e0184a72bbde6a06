/* merge.h: one word into tokens, by the merges of BPE or the scores of SPM.
 *
 * Pairs of neighbours wait in a heap, best first (the leftmost of equals); a pair is dropped when
 * one of its halves has changed meanwhile. O(n log n) for any word. */
#pragma once

#include "text/vocab_in.h"

enum { MERGE_MAX_WORD = 4 << 20 }; /* bytes; a longer one is refused rather than paid for */

struct merge_symbol {
    int32_t prev, next; /* -1: none */
    int32_t id;         /* TOKEN_NONE: a character that has no token */
    uint32_t n;         /* bytes; 0: merged into its left neighbour */
};

struct merge_pair {
    uint64_t key; /* rank << 32 | left: the least is next */
    uint32_t id;  /* what it becomes */
    uint32_t n;   /* bytes of both halves when it was made */
};

/* Scratch that grows with the longest word; zeroed = empty. One user at a time. */
struct merge {
    struct merge_symbol *symbols;
    struct merge_pair *heap;
    size_t cap_symbols, cap_heap, n_heap;
    uint64_t n_steps; /* pairs taken from the heap so far: what tests count */
};

void merge_clear(struct merge *m);

/* Fills m->symbols; the first is 0, the rest follow by `next`. -1: no memory. */
int merge_word(struct merge *m, const struct vocab *v, struct str word) MUST_CHECK;

/* BPE: the rank of a pair and what it becomes. SPM: NULL for a text that is no token. */
bool merge_ranks_pair(const struct vocab *v, uint32_t left, uint32_t right, uint32_t *rank);
