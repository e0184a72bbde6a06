/* merge.h: splits one word into tokens by BPE merges or SPM scores.
 *
 * A word is a unit of pre-tokenisation, across which tokens do not merge. The best pair of adjacent
 * symbols is merged, of equal ones the leftmost, until no pair is left. The initial pairs are in a
 * sorted queue. New pairs go to a heap; if they are not needed before the queue is empty, they
 * become the next queue. A pair is discarded if one of its halves has changed meanwhile. O(n log n)
 * for any word, O(n) for a run of one character.
 *
 * Owner: the thread that encodes; the vocabulary is read-only. */
#pragma once

#include "base/limits.h"
#include "tokenizer/vocab_in.h"

enum {
    MERGE_MAX_WORD = 2 << 20, /* bytes; a longer word is rejected to limit its cost */
    MERGE_MEMO = 512,
    /* minimum text size in bytes; below it, clearing the memo costs more than it saves */
    MERGE_MEMO_FROM = SMALL ? 2 : 1024,
};

struct merge_symbol {
    int32_t prev, next; /* -1: none */
    int32_t id;         /* TOKEN_NONE: a character without a token */
    uint32_t n;         /* bytes; 0: merged into its left neighbour */
};

struct merge_pair {
    uint64_t key; /* rank << 32 | left: the smallest is merged next */
    uint32_t id;  /* symbol that results from the merge */
    uint32_t n;   /* bytes of both halves when the pair was created */
};

struct merge_memo_entry {
    uint64_t not_pair; /* ~(left << 32 | right), so that a zeroed entry is empty */
    uint32_t rank, id; /* id MERGE_NEVER: the pair does not merge */
};

/* Scratch memory that grows to the longest word; zeroed = empty. For one thread at a time, and
 * always for the same vocabulary. */
struct merge {
    struct merge_symbol *symbols;
    struct merge_pair *queue, *heap;
    size_t cap_symbols, cap_queue, cap_heap;
    size_t at_queue, n_queue;
    size_t n_heap, n_fresh; /* heap[n_heap .. n_heap + n_fresh) is not yet ordered */
    uint64_t least_fresh;   /* smallest key of the fresh pairs; valid if n_fresh > 0 */
    struct merge_memo_entry
        *memo;        /* [MERGE_MEMO] direct-mapped cache of pair lookups; NULL: none */
    uint64_t n_steps; /* pairs taken and heap moves, counted for tests */
};

void merge_clear(struct merge *m);

/* Enables the cache of pair lookups if n_bytes of text, which follow, justify it. */
void merge_enable_memo(struct merge *m, size_t n_bytes);

/* Fills m->symbols; the first is symbol 0, the others follow by `next`. -1: no memory. */
int merge_word(struct merge *m, const struct vocab *v, struct str word) MUST_CHECK;
