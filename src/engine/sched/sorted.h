/* sorted.h: ordered sets with augmented search: treaps whose nodes are in an array of the caller.
 *
 * Several sets may share an array; a node is in at most one of them. A set is the index of its
 * root, a node is identified by its index. The caller sets `key` (sort order) and `tag` (order
 * among equal keys; unique per key) before insertion and does not change them while the node is in
 * a set.
 *
 * Each operation visits about 2 log2 n nodes: node priorities are hashes of the index, so they do
 * not depend on the keys. Owner: the engine thread. No allocation. */
#pragma once

#include "base/base.h"

struct sorted_node {
    int64_t key;
    uint64_t tag;
    uint64_t least; /* smallest tag of the subtree */
    uint32_t left, right;
};

struct sorted {
    struct sorted_node *n;
    uint64_t n_visited; /* visited nodes in total, to measure cost */
};

#define SORTED_NONE UINT32_MAX /* the empty set; no node */

void sorted_insert(struct sorted *s, uint32_t *set, uint32_t i);
void sorted_remove(struct sorted *s, uint32_t *set, uint32_t i); /* the node must be in the set */

uint32_t sorted_first(struct sorted *s, uint32_t set);             /* smallest key */
uint32_t sorted_find(struct sorted *s, uint32_t set, int64_t key); /* first with this key */
/* Among keys <= most: smallest tag. */
uint32_t sorted_upto(struct sorted *s, uint32_t set, int64_t most);

/* Last node before node i, which need not be in the set. */
uint32_t sorted_before(struct sorted *s, uint32_t set, uint32_t i);

/* Order-preserving conversion of a non-negative number to a key. */
int64_t sorted_key_of(double v);
