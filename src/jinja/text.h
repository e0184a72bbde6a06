/* text.h: strings of a template rendering, with the origin of every byte.
 *
 * A byte is trusted if it comes from the template, and untrusted if it comes from the request.
 * Filters, concatenation, slices and tojson preserve the origin, so that the tokenizer reads
 * control tokens from trusted bytes only.
 *
 * A text is a piece of borrowed memory with one origin, or a piece of a blob: a growing buffer with
 * a list of runs, each of one origin. `a + b` appends to the blob of a if a is at its end, so that
 * building a string in a loop is linear. Memory is freed with the arena of the rendering only.
 *
 * Owner: the thread that renders. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct text_run {
    size_t end; /* end offset in the blob; the run begins at the end of the previous run */
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
    size_t at;         /* offset in the blob */
    struct blob *blob; /* NULL: all bytes have one origin */
    bool trusted;      /* origin, if there is no blob */
    uint8_t ascii;     /* enum ascii; computed on first use */
};

/* State of one rendering that all layers need: memory, step limits, error. */
struct rt {
    struct arena *a;
    struct err *e;
    uint64_t fuel, reserve;   /* steps until the next check of `stop`; steps left after that */
    const _Atomic bool *stop; /* true: cancel the rendering. May be NULL */
    int depth, max_depth;     /* current and maximum nesting of evaluations */
    size_t max_output, max_memory;
    uint32_t line;
    int64_t now;
    const struct jinja *t;
    struct blob *out;    /* destination of output: the prompt, or the captured output of a macro */
    struct scope *scope; /* innermost scope; NULL: the template's own variables */
    struct scope *free_scopes; /* free list of scopes */
    struct val *variables;     /* the template's own variables, by number */
    struct text **texts;       /* copies of the node texts, created on first use */
};

/* ERR_INVALID "line 3: ..."; returns -1. */
int rt_fail(struct rt *rt, const char *fmt, ...) PRINTF(2, 3);
/* Consumes steps: -1 with ERR_TOO_LARGE if none are left, ERR_CANCELLED after `stop`. One step is
 * about 20 ns. */
int rt_spend(struct rt *rt, size_t steps) MUST_CHECK;
int rt_spend_bytes(struct rt *rt, size_t n) MUST_CHECK;
void *rt_alloc(struct rt *rt, size_t n) MUST_CHECK; /* zeroed; NULL with the error set */
char *rt_bytes(struct rt *rt, size_t n) MUST_CHECK; /* like rt_alloc, not zeroed */
/* Encloses every recursion whose depth depends on the template or the request. rt_leave is called
 * only if rt_enter returned 0. */
int rt_enter(struct rt *rt) MUST_CHECK;
static inline void rt_leave(struct rt *rt)
{
    rt->depth--;
}

/* These functions return -1 or NULL with the error set. */
struct blob *blob_new(struct rt *rt) MUST_CHECK;
int blob_put(struct rt *rt, struct blob *b, struct str s, bool trusted) MUST_CHECK;
int blob_put_text(struct rt *rt, struct blob *b, const struct text *t) MUST_CHECK;
int blob_put_part(
    struct rt *rt, struct blob *b, const struct text *t, size_t from, size_t n) MUST_CHECK;
struct text *blob_text(struct rt *rt, struct blob *b) MUST_CHECK; /* the whole blob */

/* bytes are borrowed */
struct text *text_new(struct rt *rt, struct str s, bool trusted) MUST_CHECK;
struct text *text_copy(struct rt *rt, struct str s, bool trusted) MUST_CHECK;
/* the rendering's clock (rt.now) in local time, in a format of strftime */
struct text *text_of_now(struct rt *rt, const char *format, bool trusted) MUST_CHECK;
struct text *text_part(struct rt *rt, const struct text *t, size_t from, size_t n) MUST_CHECK;
struct text *text_cat(struct rt *rt, struct text *a, const struct text *b) MUST_CHECK;

static inline struct str text_str(const struct text *t)
{
    return (struct str){ t->p, t->n };
}
/* The origin of byte i, and the end of its run (an offset in t, at most t->n). */
bool text_origin(const struct text *t, size_t i, size_t *end);
static inline bool text_trusted_at(const struct text *t, size_t i)
{
    size_t end;
    return text_origin(t, i, &end);
}

/* Characters are code points. An invalid byte counts as one character. */
int text_is_ascii(struct rt *rt, struct text *t, bool *out) MUST_CHECK;
int text_n_chars(struct rt *rt, struct text *t, size_t *out) MUST_CHECK;
/* Byte offset of the nth character; t->n if there are fewer. */
int text_offset(struct rt *rt, struct text *t, size_t nth, size_t *out) MUST_CHECK;
/* bytes of the first character; s is not empty; cp may be NULL */
size_t char_len(struct str s, uint32_t *cp);
bool char_is_space(uint32_t cp);     /* whitespace as in Python's str.isspace and \s */
size_t leading_space(struct str s);  /* bytes of whitespace at the start */
size_t trailing_space(struct str s); /* bytes of whitespace at the end */
