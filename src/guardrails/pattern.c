/* pattern.c: PCRE2 patterns over a text that arrives in pieces. A match depends only on the
 * GUARD_WINDOW bytes from its start and the GUARD_LOOKBEHIND_MAX characters before, so the result
 * does not depend on the pieces: partial matching (PCRE2_PARTIAL_HARD) reports every position whose
 * result needs more text, and a position with a whole window is decided by that window alone. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "guardrails/pattern.h"

#include "base/mem.h"

#include <pcre2.h>
#include <stdio.h>

/* A search that exceeds them counts as a hit, so that a text cannot evade a pattern by its cost. */
enum { MATCH_LIMIT = 10000, DEPTH_LIMIT = 1000, HEAP_LIMIT_KB = 256, NEST_LIMIT = 50 };

struct guard_pattern {
    pcre2_code *code;
};

struct guard_search {
    pcre2_match_data *data;
    pcre2_match_context *limits;
};

/* Constructs whose result depends on where a search begins, or that set options of the search. */
static const char *find_forbidden(struct str s)
{
    for (size_t i = 0; i + 1 < s.n; i++) {
        if (s.p[i] == '(' && s.p[i + 1] == '*')
            return "(*";
        if (s.p[i] != '\\')
            continue;
        if (s.p[i + 1] == 'G')
            return "\\G";
        i++;
    }
    return NULL;
}

static int bad(struct err *e, int index, const char *fmt, const char *what, unsigned at)
{
    char param[32];

    snprintf(param, sizeof(param), "patterns[%d]", index);
    return err_param(e, ERR_INVALID, param, fmt, index, what, at);
}

int guard_pattern_new(struct guard_pattern **out, struct str text, int index, struct err *e)
{
    const char *forbidden = find_forbidden(text);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    struct guard_pattern *p = try_calloc(1, sizeof(*p));
    int code = 0, failed = 0;
    size_t at = 0;
    uint32_t behind = 0;

    if (!context || !p) {
        failed = err_set(e, ERR_MEMORY, "no memory for the guardrails");
    } else if (forbidden) {
        failed =
            bad(e, index, "patterns[%d] has %s, which guardrails do not support.", forbidden, 0);
    } else {
        pcre2_set_parens_nest_limit(context, NEST_LIMIT);
        p->code = pcre2_compile((PCRE2_SPTR)text.p, text.n,
            PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
        if (!p->code) {
            PCRE2_UCHAR why[128] = "";
            pcre2_get_error_message(code, why, sizeof(why));
            failed = bad(e, index, "patterns[%d]: %s at byte %u.", (const char *)why, (unsigned)at);
        }
    }
    if (!failed && (pcre2_pattern_info(p->code, PCRE2_INFO_MAXLOOKBEHIND, &behind) ||
                       behind > GUARD_LOOKBEHIND_MAX))
        failed = bad(e, index, "patterns[%d] looks behind by more than %s%u characters.", "",
            GUARD_LOOKBEHIND_MAX);
    if (!failed) /* without executable memory the interpreter is used */
        (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    pcre2_compile_context_free(context);
    if (failed) {
        guard_pattern_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void guard_pattern_free(struct guard_pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    mem_free(p);
}

/* ---- search */

struct guard_search *guard_search_new(void)
{
    struct guard_search *s = try_calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->data = pcre2_match_data_create(1, NULL);
    s->limits = pcre2_match_context_create(NULL);
    if (!s->data || !s->limits) {
        guard_search_free(s);
        return NULL;
    }
    pcre2_set_match_limit(s->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(s->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(s->limits, HEAP_LIMIT_KB);
    return s;
}

void guard_search_free(struct guard_search *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->limits);
    mem_free(s);
}

static bool is_inside_character(struct str text, size_t i)
{
    return i < text.n && ((unsigned char)text.p[i] & 0xC0) == 0x80;
}

/* The end of the window that begins at `from`, at the end of a character. */
static size_t window_end(struct str text, size_t from)
{
    size_t end = MIN(text.n, from + GUARD_WINDOW);

    while (is_inside_character(text, end))
        end--;
    return end;
}

static size_t next_character(struct str text, size_t i)
{
    do
        i++;
    while (is_inside_character(text, i));
    return i;
}

/* \K can move the reported start and end. */
static struct guard_range match_of(const struct guard_search *s, size_t from)
{
    const size_t *range = pcre2_get_ovector_pointer(s->data);
    size_t begin = MAX(range[0], from);

    return (struct guard_range){ begin, MAX(range[1], begin) };
}

/* Decides the position by its whole window. */
static bool match_here(const struct guard_pattern *p, struct guard_search *s, struct str text,
    size_t at, bool is_end, struct guard_range *out)
{
    size_t stop = window_end(text, at);
    bool is_last = is_end && stop == text.n;
    int rc = pcre2_match(p->code, (PCRE2_SPTR)text.p, stop, at,
        PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK | (is_last ? 0 : PCRE2_NOTEOL), s->data, s->limits);

    if (rc == PCRE2_ERROR_NOMATCH)
        return false;
    *out = (struct guard_range){ at, stop };
    if (rc >= 0)
        *out = match_of(s, at);
    return true;
}

enum guard_found guard_pattern_find(const struct guard_pattern *p, struct guard_search *s,
    struct str text, bool is_end, struct guard_range *out)
{
    size_t from = out->begin;

    while (from < text.n) {
        size_t stop = window_end(text, from);
        bool is_last = is_end && stop == text.n;
        int rc = pcre2_match(p->code, (PCRE2_SPTR)text.p, stop, from,
            PCRE2_NO_UTF_CHECK | (is_last ? 0 : PCRE2_PARTIAL_HARD), s->data, s->limits);
        if (rc >= 0) {
            *out = match_of(s, from);
            return GUARD_FOUND;
        }
        if (rc == PCRE2_ERROR_NOMATCH) {
            from = stop;
            continue;
        }
        /* A partial match, or the limits were exceeded somewhere in the window: decide the position
         * with its own window. */
        size_t at = rc == PCRE2_ERROR_PARTIAL ? pcre2_get_startchar(s->data) : from;
        bool is_whole = is_end || window_end(text, at) < text.n || text.n - at >= GUARD_WINDOW;
        if (at > from && window_end(text, at) > stop) {
            from = at;
            continue;
        }
        if (!is_whole) {
            out->begin = at;
            return GUARD_FOUND_MORE;
        }
        if (match_here(p, s, text, at, is_end, out))
            return GUARD_FOUND;
        from = next_character(text, at);
    }
    return GUARD_FOUND_NONE;
}
