/* token_trie.h: trie of the bytes of tokens, as one array in depth-first order.
 *
 * A node has 8 bytes. Its subtree is the range [i, i + size) of nodes, so that a walk skips it by
 * an addition, and its tokens are a range of `ids`: those of node i are ids[first(i) ..
 * first(i + 1)), those of its subtree ids[first(i) .. first(i + size)). Children are in ascending
 * order of their bytes. Several tokens may have the same bytes.
 *
 * A node may carry marks: all tokens of its subtree belong to a token class (token_class.h), so
 * that a walk which has added the class skips the subtree.
 *
 * Not in the trie: tokens without bytes, and tokens longer than TOKEN_TRIE_DEPTH_MAX, which a mask
 * therefore never permits.
 *
 * Read-only after creation: any thread. */
#pragma once

#include "constrain/vocab/token_source.h"

enum { TOKEN_TRIE_DEPTH_MAX = 511, TOKEN_TRIE_NODES_MAX = (1 << 24) - 1, N_TRIE_MARKS = 2 };

#define TRIE_NONE UINT32_MAX
#define TRIE_ROOT (UINT32_MAX - 1) /* has no entry in the array */

struct trie_node {
    uint32_t byte_size;        /* byte | nodes of the subtree << 8 */
    uint32_t first_depth_mark; /* first token | depth << 21 | marks << 30 */
};

struct token_trie {
    struct trie_node *nodes; /* [n_nodes + 1]; the last one ends the ranges of tokens */
    int32_t *ids;            /* [n_ids] */
    uint32_t n_nodes, n_ids;
    uint32_t depth_max; /* bytes of the longest token */
    uint32_t n_long;    /* tokens that are too long */
    uint32_t top[256];  /* node of the first byte, or TRIE_NONE */
};

/* Tokens whose bit in `chosen` is set; NULL: all. -1: out of memory, or a vocabulary with more than
 * TOKEN_IDS_MAX tokens or TOKEN_TRIE_NODES_MAX nodes. */
int token_trie_init(struct token_trie *t, const struct token_source *src, const uint32_t *chosen,
    struct err *e) MUST_CHECK;
void token_trie_clear(struct token_trie *t); /* accepts a zeroed trie */
size_t token_trie_bytes(const struct token_trie *t);

/* Marks the nodes whose subtrees contain only tokens of the set. -1: out of memory. */
int token_trie_mark(struct token_trie *t, unsigned mark, const uint32_t *set) MUST_CHECK;

/* TRIE_NONE if there is none. */
uint32_t token_trie_child(const struct token_trie *t, uint32_t node, uint8_t byte);
/* Node of exactly these bytes; TRIE_NONE if there is none. */
uint32_t token_trie_find(const struct token_trie *t, struct str bytes);
/* The lowest id among the longest tokens that `text` begins with; *n is its length in bytes.
 * TOKEN_NONE if there is none. */
int32_t token_trie_longest(const struct token_trie *t, struct str text, size_t *n);

static inline uint8_t trie_byte(const struct trie_node *k)
{
    return (uint8_t)k->byte_size;
}
static inline uint32_t trie_size(const struct trie_node *k) /* nodes, with the node itself */
{
    return k->byte_size >> 8;
}
static inline uint32_t trie_first(const struct trie_node *k)
{
    return k->first_depth_mark & (2 * TOKEN_IDS_MAX - 1);
}
static inline uint32_t trie_depth(const struct trie_node *k) /* bytes from the root: 1 or more */
{
    return k->first_depth_mark >> 21 & TOKEN_TRIE_DEPTH_MAX;
}
static inline uint32_t trie_marks(const struct trie_node *k) /* one bit per mark */
{
    return k->first_depth_mark >> 30;
}

/* Sets of tokens: bit `id % 32` of word `id / 32`. */
static inline size_t token_set_words(int32_t n_tokens)
{
    return ((size_t)n_tokens + 31) / 32;
}
static inline void token_set_add(uint32_t *set, int32_t id)
{
    set[(uint32_t)id >> 5] |= (uint32_t)1 << (id & 31);
}
static inline bool token_set_has(const uint32_t *set, int32_t id)
{
    return set[(uint32_t)id >> 5] >> (id & 31) & 1;
}
