/* pattern_in.h: the cursor of the pattern parser, and the parser of escapes and classes.
 *
 * After an error the cursor is at the end and `is_failed` is set, so that all loops end. Owner: the
 * call of pattern_compile. */
#pragma once

#include "constrain/regular/pattern.h"

struct pattern_cursor {
    struct exprs *x;
    struct str text;
    size_t at;
    enum text_mode mode;
    unsigned flags;
    int depth;
    bool is_failed;
    struct err *e;
};

static inline bool pattern_at_end(const struct pattern_cursor *c)
{
    return c->at >= c->text.n;
}
static inline bool pattern_sees(const struct pattern_cursor *c, const char *z)
{
    return str_starts(str_skip(c->text, c->at), str_of(z));
}
static inline bool pattern_skip(struct pattern_cursor *c, const char *z)
{
    bool is_there = pattern_sees(c, z);

    c->at += is_there ? strlen(z) : 0;
    return is_there;
}

/* Reports "pattern: WHAT at offset AT"; only the first error counts. */
void pattern_error(struct pattern_cursor *c, enum errcode code, size_t at, const char *what);
uint32_t pattern_next(struct pattern_cursor *c); /* code point at the cursor, which it passes */

/* Reads an escape after the backslash. Adds a class, or one character, to `set`. Returns the
 * character, or UINT32_MAX for a class. */
uint32_t pattern_escape(struct pattern_cursor *c, bool is_in_class, struct code_points *set);
/* Reads a class after `[`. */
void pattern_class(struct pattern_cursor *c, struct code_points *set);
