/* aho_corasick.h: Aho-Corasick matcher of strings: a trie with failure links.
 *
 * The state after a byte is the longest suffix of the text that is a prefix of some string. The
 * bytes of that suffix are known from the strings, so a caller which holds it back need not store
 * it. Time is linear in the text, for any strings. With a few dozen short strings the transitions
 * are one table. With more, the states near the root, which most texts do not leave, have rows in a
 * table, and the others are searched in the children and the failure links, so that memory is
 * linear in the strings.
 *
 * Built once, read-only afterwards: any thread. The state is a number which the caller keeps; in
 * the root state no byte is held. */
#pragma once

#include "base/arena.h"

enum {
    AHO_CORASICK_STRINGS_LIMIT = 1 << 18,
    AHO_CORASICK_BYTES_LIMIT = 1 << 22,   /* of all strings together */
    AHO_CORASICK_STRING_MAX = UINT16_MAX, /* bytes of one string */
    AHO_CORASICK_MAX_STRINGS = 64,        /* bounds of callers that have few strings */
    AHO_CORASICK_MAX_BYTES = 4096
};
enum { AHO_CORASICK_ROOT = 0 };

struct aho_corasick_node {
    uint32_t child, sibling; /* first child, next child of the same node; 0: there is none */
    uint32_t fail;           /* the longest proper suffix that is in the trie */
    uint32_t end;            /* the state, or its longest suffix, that is a string; 0: none is */
    uint32_t string_index;   /* index of a string whose first `depth` bytes lead to this state */
    int32_t hit;             /* index of the longest string that ends here, or -1 */
    uint16_t depth;          /* bytes held in this state */
    char byte;               /* last byte of the state */
};

struct aho_corasick {
    unsigned char class_of[256]; /* column of the table; 0: the byte occurs in no string */
    uint32_t n_nodes;
    unsigned shift;       /* a table row has 1 << shift cells */
    const uint16_t *next; /* table of the transitions: [n_nodes][1 << shift]; NULL: too large */
    const uint32_t *rows; /* then: rows of the states below n_rows */
    uint32_t n_rows;
    struct aho_corasick_node *nodes;
    const struct str *strings;
    bool starts[256];  /* some string begins with this byte */
    bool starts_blank; /* some string begins with a blank */
};

/* The strings are borrowed and must outlive the matcher. Empty ones never match. Of equal strings,
 * the first one matches. NULL if there is no memory. */
struct aho_corasick *aho_corasick_new(struct arena *a, const struct str *strings, int n) MUST_CHECK;

uint32_t aho_corasick_search(const struct aho_corasick *m, uint32_t state, char byte);

static inline uint32_t aho_corasick_step(const struct aho_corasick *m, uint32_t state, char byte)
{
    if (!m->next)
        return aho_corasick_search(m, state, byte);
    return m->next[((size_t)state << m->shift) + m->class_of[(unsigned char)byte]];
}
static inline size_t aho_corasick_depth(const struct aho_corasick *m, uint32_t state)
{
    return m->nodes[state].depth;
}
static inline int aho_corasick_hit(const struct aho_corasick *m, uint32_t state)
{
    return m->nodes[state].hit;
}
/* All strings that end here, the longest first: those at the states `end`, which are ROOT after the
 * last one. */
static inline uint32_t aho_corasick_end(const struct aho_corasick *m, uint32_t state)
{
    return m->nodes[state].end;
}
static inline uint32_t aho_corasick_next_end(const struct aho_corasick *m, uint32_t end)
{
    return m->nodes[m->nodes[end].fail].end;
}
/* The bytes held in this state. */
static inline struct str aho_corasick_held(const struct aho_corasick *m, uint32_t state)
{
    return (struct str){ m->strings[m->nodes[state].string_index].p, m->nodes[state].depth };
}
/* Reads the text up to the end of the first string that it completes. Returns the number of bytes
 * read; sets *hit to the index of the string, or to -1 if the text completes none, and *state to
 * the state after these bytes. */
size_t aho_corasick_find(const struct aho_corasick *m, uint32_t *state, struct str text, int *hit);
