/* sorted.h: sets in the order of a number, whose first and whose oldest up to a number are found
 * without looking at all: treaps whose nodes lie in an array of the caller.
 *
 * Several sets may share an array, a node being in one of them at most: a set is the index of its
 * root. A node is named by its index. Who puts it in has set `key` (what it is sorted by) and
 * `tag` (who came first among equals; unlike any other of the set with the same key), and changes
 * neither while it is in.
 *
 * Each operation looks at some 2 log2 n nodes: what a node weighs is a hash of its index, which
 * keys have no part in. Owner: the engine thread. No allocation. */
#pragma once

#include "base/base.h"

struct sorted_node {
    int64_t key;
    uint64_t tag;
    uint64_t least; /* of the tags from here down */
    uint32_t left, right;
};

struct sorted {
    struct sorted_node *n;
    uint64_t n_looks; /* at nodes, ever: what all of it cost */
};

#define SORTED_NONE UINT32_MAX /* the empty set; no node */

void sorted_put(struct sorted *s, uint32_t *set, uint32_t i);
void sorted_drop(struct sorted *s, uint32_t *set, uint32_t i); /* it must be in */

uint32_t sorted_first(struct sorted *s, uint32_t set);              /* the least key */
uint32_t sorted_find(struct sorted *s, uint32_t set, int64_t key);  /* the first with it */
uint32_t sorted_upto(struct sorted *s, uint32_t set, int64_t most); /* of keys <= most: least tag */

/* The last before node i, which need not be in. */
uint32_t sorted_before(struct sorted *s, uint32_t set, uint32_t i);

/* A number that is not negative as a key of the same order. */
int64_t sorted_key_of(double v);
