/* merge.h: one word into tokens, by the merges of BPE or the scores of SPM.
 *
 * Of all pairs of neighbours the best is merged, the leftmost of equals, until none is left. The
 * first pairs wait in a sorted queue, those that merging makes in a heap, or, when they turn out
 * not to be needed before the queue is used up, as its successor; a pair is dropped when one of
 * its halves has changed meanwhile. O(n log n) for any word, O(n) for a run of one character. */
#pragma once

#include "base/limits.h"
#include "tokenizer/vocab_in.h"

enum {
    MERGE_MAX_WORD = 2 << 20, /* bytes; a longer one is refused rather than paid for */
    MERGE_MEMO = 512,
    MERGE_MEMO_FROM = SMALL ? 2 : 1024, /* bytes of text; for less, clearing it costs more */
};

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

struct merge_known {
    uint64_t not_pair; /* ~(left << 32 | right), so that zeroed = empty */
    uint32_t rank, id; /* id MERGE_NEVER: they do not merge */
};

/* Scratch that grows with the longest word; zeroed = empty. One user at a time, and only ever
 * for one vocabulary. */
struct merge {
    struct merge_symbol *symbols;
    struct merge_pair *queue, *heap;
    size_t cap_symbols, cap_queue, cap_heap;
    size_t at_queue, n_queue;
    size_t n_heap, n_fresh;   /* heap[n_heap .. n_heap + n_fresh) is not in order yet */
    uint64_t least_fresh;     /* key; of use when n_fresh > 0 */
    struct merge_known *memo; /* [MERGE_MEMO]; NULL: none, see merge_remember */
    uint64_t n_steps;         /* pairs taken, and places they moved in the heap: what tests count */
};

void merge_clear(struct merge *m);

/* So much text is coming: when it is worth it, pairs that were looked up once are remembered. */
void merge_remember(struct merge *m, size_t n_bytes);

/* Fills m->symbols; the first is 0, the rest follow by `next`. -1: no memory. */
int merge_word(struct merge *m, const struct vocab *v, struct str word) MUST_CHECK;
