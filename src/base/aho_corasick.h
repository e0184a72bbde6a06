/* aho_corasick.h: Aho-Corasick matcher for a few dozen short strings, as a dense table.
 *
 * The state after a byte is the longest suffix of the text that is a prefix of some string. The
 * bytes of that suffix are known from the strings, so a caller which holds it back need not store
 * it. A step is one table lookup per byte, for any strings.
 *
 * Built once, read-only afterwards: any thread. The state is a number which the caller keeps; in
 * the root state no byte is held. */
#pragma once

#include "base/arena.h"

enum { AHO_CORASICK_MAX_STRINGS = 64, AHO_CORASICK_MAX_BYTES = 2048 }; /* strings; total bytes */
enum { AHO_CORASICK_ROOT = 0 };

struct aho_corasick_node {
    uint16_t depth;        /* bytes held in this state */
    uint16_t string_index; /* index of a string whose first `depth` bytes lead to this state */
    int16_t hit;           /* index of the longest string that ends here, or -1 */
};

struct aho_corasick {
    unsigned char class_of[256]; /* 0: the byte occurs in no string */
    uint16_t n_classes, n_nodes;
    unsigned shift; /* a table row has 1 << shift cells */
    uint16_t *next; /* [n_nodes][1 << shift] */
    struct aho_corasick_node *nodes;
    const struct str *strings;
    bool starts[256];  /* some string begins with this byte */
    bool starts_blank; /* some string begins with a blank */
};

/* The strings are borrowed and must outlive the matcher. None is empty. NULL if there is no
 * memory. */
struct aho_corasick *aho_corasick_new(struct arena *a, const struct str *strings, int n) MUST_CHECK;

static inline uint16_t aho_corasick_step(const struct aho_corasick *m, uint16_t state, char byte)
{
    return m->next[((size_t)state << m->shift) + m->class_of[(unsigned char)byte]];
}
static inline size_t aho_corasick_depth(const struct aho_corasick *m, uint16_t state)
{
    return m->nodes[state].depth;
}
static inline int aho_corasick_hit(const struct aho_corasick *m, uint16_t state)
{
    return m->nodes[state].hit;
}
/* The bytes held in this state. */
static inline struct str aho_corasick_held(const struct aho_corasick *m, uint16_t state)
{
    return (struct str){ m->strings[m->nodes[state].string_index].p, m->nodes[state].depth };
}
/* The first byte in [p, end) with which a string may begin; `end` if there is none. */
static inline const char *aho_corasick_skip(
    const struct aho_corasick *m, const char *p, const char *end)
{
    while (p < end && !m->starts[(unsigned char)*p])
        p++;
    return p;
}
