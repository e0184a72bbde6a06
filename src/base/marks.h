/* marks.h: a few dozen short strings looked for in one pass (Aho-Corasick), as a dense table.
 *
 * The state after a byte is the longest tail of the text that is a prefix of some string; its
 * bytes are known from the strings, so whoever holds a tail back need not store it. A step is
 * one look-up per byte, whatever the strings.
 *
 * Built once, read-only afterwards: any thread. The state is a number that the caller keeps;
 * MARKS_ROOT is the state in which nothing is held back. */
#pragma once

#include "base/arena.h"

enum { MARKS_MAX = 64, MARKS_BYTES_MAX = 2048 }; /* strings; bytes of all together */
enum { MARKS_ROOT = 0 };

struct marks_node {
    uint16_t depth; /* bytes held in this state */
    uint16_t of;    /* a string whose first `depth` bytes lead here */
    int16_t hit;    /* the longest string that ends here, or -1 */
};

struct marks {
    unsigned char class_of[256]; /* 0: in no string */
    uint16_t n_classes, n_nodes;
    unsigned shift; /* a row of the table has 1 << shift cells */
    uint16_t *next; /* [n_nodes][1 << shift] */
    struct marks_node *nodes;
    const struct str *strings;
    bool starts[256];  /* some string begins with this byte */
    bool starts_blank; /* or with a blank */
};

/* The strings are borrowed: they outlive the marks. None is empty. NULL when memory is gone. */
struct marks *marks_new(struct arena *a, const struct str *strings, int n) MUST_CHECK;

static inline uint16_t marks_step(const struct marks *m, uint16_t at, char byte)
{
    return m->next[((size_t)at << m->shift) + m->class_of[(unsigned char)byte]];
}
static inline size_t marks_depth(const struct marks *m, uint16_t at)
{
    return m->nodes[at].depth;
}
static inline int marks_hit(const struct marks *m, uint16_t at)
{
    return m->nodes[at].hit;
}
/* What is held back in this state. */
static inline struct str marks_held(const struct marks *m, uint16_t at)
{
    return (struct str){ m->strings[m->nodes[at].of].p, m->nodes[at].depth };
}
/* The first byte in [p, end) with which a string may begin; end when there is none. */
static inline const char *marks_skip(const struct marks *m, const char *p, const char *end)
{
    while (p < end && !m->starts[(unsigned char)*p])
        p++;
    return p;
}
