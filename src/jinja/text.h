/* text.h: strings of a template's run that remember where their bytes came from.
 *
 * Every byte is trusted (it stood in the template) or not (it came with the request). Filters,
 * concatenation, slices and tojson carry that along, so that the tokenizer can be told which
 * bytes may become control tokens.
 *
 * A text is a piece of foreign memory of one origin, or a piece of a blob: a growing buffer with
 * a list of runs. `a + b` appends to a's blob where a is its end, so that building a string in
 * a loop is linear. Nothing is ever freed: all lives in the run's arena.
 *
 * Owner: the thread that renders. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct text_run {
    size_t end; /* offset in the blob; where the run begins is where the one before it ends */
    bool trusted;
};

struct blob {
    char *p;
    size_t n, cap;
    struct text_run *runs;
    uint32_t n_runs, cap_runs;
};

enum ascii { ASCII_UNKNOWN, ASCII_YES, ASCII_NO };

struct text {
    const char *p;
    size_t n;
    size_t at;         /* where it begins in the blob */
    struct blob *blob; /* NULL: all bytes are of one origin */
    bool trusted;      /* when there is no blob */
    uint8_t ascii;     /* enum ascii; found out when first asked for */
};

/* The state of a run that everything below a statement needs: memory, fuel, where errors go. */
struct rt {
    struct arena *a;
    struct err *e;
    uint64_t fuel, reserve;   /* steps until `stop` is looked at again; those behind that */
    const _Atomic bool *stop; /* true: nobody waits for it. May be NULL */
    int depth, max_depth;     /* nested evaluations now, and at most */
    size_t max_output, max_memory;
    uint32_t line;
    int64_t now;
    const struct jinja *t;
    struct blob *out;      /* where output goes: the prompt, or what a macro collects */
    struct scope *scope;   /* innermost; NULL: the template's own variables */
    struct scope *spare;   /* scopes that were left, to be used again */
    struct val *variables; /* the template's own, by name */
    struct text **texts;   /* of its nodes, as far as they were needed */
};

/* ERR_INVALID "line 3: ..."; returns -1. */
int rt_fail(struct rt *rt, const char *fmt, ...) PRINTF(2, 3);
/* -1 with ERR_TOO_LARGE when a run has used up its steps, ERR_CANCELLED when it is to stop. One
 * step is about 20 ns. */
int rt_spend(struct rt *rt, size_t steps) MUST_CHECK;
int rt_spend_bytes(struct rt *rt, size_t n) MUST_CHECK;
void *rt_alloc(struct rt *rt, size_t n) MUST_CHECK; /* zeroed; NULL with the error set */
char *rt_bytes(struct rt *rt, size_t n) MUST_CHECK; /* the same, not zeroed */
/* Brackets whatever may recurse on what a template or a client wrote. rt_leave only after 0. */
int rt_enter(struct rt *rt) MUST_CHECK;
static inline void rt_leave(struct rt *rt)
{
    rt->depth--;
}

/* All -1 or NULL with the error set. */
struct blob *blob_new(struct rt *rt) MUST_CHECK;
int blob_put(struct rt *rt, struct blob *b, struct str s, bool trusted) MUST_CHECK;
int blob_put_text(struct rt *rt, struct blob *b, const struct text *t) MUST_CHECK;
int blob_put_part(
    struct rt *rt, struct blob *b, const struct text *t, size_t from, size_t n) MUST_CHECK;
struct text *blob_text(struct rt *rt, struct blob *b) MUST_CHECK; /* all of it */

struct text *text_new(struct rt *rt, struct str s, bool trusted) MUST_CHECK; /* bytes borrowed */
struct text *text_copy(struct rt *rt, struct str s, bool trusted) MUST_CHECK;
struct text *text_part(struct rt *rt, const struct text *t, size_t from, size_t n) MUST_CHECK;
struct text *text_cat(struct rt *rt, struct text *a, const struct text *b) MUST_CHECK;

static inline struct str text_str(const struct text *t)
{
    return (struct str){ t->p, t->n };
}
/* The origin of byte i, and where the run that it is in ends (an offset in t, at most t->n). */
bool text_origin(const struct text *t, size_t i, size_t *end);
static inline bool text_trusted_at(const struct text *t, size_t i)
{
    size_t end;
    return text_origin(t, i, &end);
}

/* Characters. A byte that is no part of one counts as one. */
int text_is_ascii(struct rt *rt, struct text *t, bool *out) MUST_CHECK;
int text_n_chars(struct rt *rt, struct text *t, size_t *out) MUST_CHECK;
/* The byte offset of the character with this number; t->n when there are fewer. */
int text_offset(struct rt *rt, struct text *t, size_t nth, size_t *out) MUST_CHECK;
size_t char_len(struct str s, uint32_t *cp); /* of the first; s not empty; cp may be NULL */
bool char_is_space(uint32_t cp);             /* what Python's str.isspace and \s hold for blank */
size_t space_ahead(struct str s);            /* bytes of blanks at the start */
size_t space_behind(struct str s);           /* and at the end */
