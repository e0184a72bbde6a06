/* syntax.h: what the readers of GBNF and Lark have in common: a cursor that reports lines and
 * columns, and a stack for nested alternatives, so that no reader recurses.
 *
 * After an error the cursor is at the end and `is_failed` is set, so that all loops end. Owner: the
 * call of the reader. */
#pragma once

#include "constrain/regular/code_points.h"
#include "constrain/grammar/grammar.h"

/* A group: finished alternatives, then the parts of the current one, on the stack of parts. */
struct syntax_group {
    uint32_t first, current;
    size_t at;  /* offset of the bracket */
    char close; /* closing bracket; 0: the body of a rule */
};

struct syntax {
    struct grammar *g;
    struct str text;
    size_t at;
    bool is_failed;
    struct err *e;
    part_id *parts;
    uint32_t n_parts, cap_parts;
    struct syntax_group *groups;
    uint32_t n_groups, cap_groups;
};

void syntax_clear(struct syntax *s);
/* Reports "line L, column C: WHAT" for an offset; only the first error counts. */
void syntax_error(struct syntax *s, enum errcode code, size_t at, const char *fmt, ...)
    PRINTF(4, 5);
/* The same without a place: what is wrong has none. */
void syntax_fail(struct syntax *s, enum errcode code, const char *what);

static inline bool syntax_at_end(const struct syntax *s)
{
    return s->at >= s->text.n;
}
/* The next byte; 0 at the end. */
static inline char syntax_peek(const struct syntax *s)
{
    return syntax_at_end(s) ? 0 : s->text.p[s->at];
}
static inline bool syntax_sees(const struct syntax *s, const char *z)
{
    return str_starts(str_skip(s->text, s->at), str_of(z));
}
bool syntax_skip(struct syntax *s, const char *z);   /* passes the text if it is next */
void syntax_expect(struct syntax *s, const char *z); /* the same; an error if it is not */
uint32_t syntax_next(struct syntax *s);              /* code point at the cursor, which it passes */
/* The characters at the cursor for which is_part is true. */
struct str syntax_word(struct syntax *s, bool (*is_part)(char c));
/* Decimal number; false if there is none. A number above REPEAT_MAX is an error. */
bool syntax_number(struct syntax *s, uint32_t *value);
/* Exactly n hexadecimal digits of a character. */
uint32_t syntax_hex(struct syntax *s, int n);

/* One character of the set, which is cleared. */
part_id syntax_class(struct syntax *s, struct code_points *set);

/* ---- nested alternatives */

void syntax_open(struct syntax *s, char close);
void syntax_add(struct syntax *s, part_id p);
void syntax_next_alternative(struct syntax *s);
part_id syntax_close(struct syntax *s); /* removes the group; its alternatives are one part */
struct syntax_group *syntax_group(struct syntax *s);
/* Repeats the last part of the current alternative. An error at offset `at` if there is none. */
void syntax_repeat_last(struct syntax *s, size_t at, uint32_t min, uint32_t max);
