/* special.c: the tokens are sorted by text; each further byte narrows the range of candidates by
 * binary search. An automaton is not needed: a vocabulary has tens to a few thousand special
 * tokens, nearly all begin with '<', and the first bitmap excludes most bytes of a text. */
#include "tokenizer/special.h"
#include "base/mem.h"
#include "tokenizer/vocab_in.h"

#include <stdlib.h>

static bool has_bit(const uint8_t set[32], unsigned char c)
{
    return set[c >> 3] >> (c & 7) & 1;
}

/* Mark-up has a meaning for the model, so untrusted text must not become such a token. */
static bool looks_like_markup(struct str s)
{
    static const struct str pairs[][2] = { { { "<", 1 }, { ">", 1 } }, { { "[", 1 }, { "]", 1 } },
        { { "\xEF\xBD\x9C", 3 }, { "\xEF\xBD\x9C", 3 } } };

    s = str_trim(s);
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        if (s.n > 1 && str_starts(s, pairs[i][0]) && str_ends(s, pairs[i][1]))
            return true;
    return str_starts(s, STR("<|")) || str_ends(s, STR("|>"));
}

bool special_needs_trust(const struct vocab *v, uint32_t id)
{
    switch ((enum token_attr)v->attr[id]) {
    case TOKEN_NORMAL:
    case TOKEN_BYTE:
        return false;
    case TOKEN_USER_DEFINED:
        return looks_like_markup(string_table_at(&v->bytes, id));
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
    case TOKEN_UNUSED:
        break;
    }
    return true;
}

static bool is_plain(const struct vocab *v, uint32_t id)
{
    return !special_needs_trust(v, id);
}

static bool is_special(const struct vocab *v, uint32_t id)
{
    size_t n = string_table_at(&v->bytes, id).n;

    if (n == 0 || n > SPECIAL_MAX_BYTES)
        return false;
    return v->attr[id] == TOKEN_CONTROL || v->attr[id] == TOKEN_USER_DEFINED;
}

static int by_text(const void *a, const void *b, void *arg)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct vocab *v = arg;
    struct str x = string_table_at(&v->bytes, i), y = string_table_at(&v->bytes, j);
    int c = memcmp(x.p, y.p, MIN(x.n, y.n));

    if (c || x.n != y.n)
        return c ? c : (x.n > y.n) - (x.n < y.n);
    return (i < j) - (i > j); /* the last of tokens with equal text comes first and is used */
}

int special_init(struct special *s, const struct vocab *v)
{
    size_t n = 0;

    for (uint32_t i = 0; i < (uint32_t)v->n; i++)
        n += is_special(v, i);
    s->ids = try_malloc(n * sizeof(*s->ids));
    if (!s->ids)
        return -1;
    for (uint32_t i = 0; i < (uint32_t)v->n; i++) {
        if (!is_special(v, i))
            continue;
        s->ids[s->n++] = i;
        unsigned char c = (unsigned char)string_table_at(&v->bytes, i).p[0];
        s->first[c >> 3] |= (uint8_t)(1 << (c & 7));
        if (is_plain(v, i))
            s->first_plain[c >> 3] |= (uint8_t)(1 << (c & 7));
    }
    qsort_r(s->ids, s->n, sizeof(*s->ids), by_text, (void *)(uintptr_t)v);
    return 0;
}

void special_clear(struct special *s)
{
    mem_free(s->ids);
    *s = (struct special){ 0 };
}

/* The first of ids[lo, hi) whose byte at `depth` is at least c. All have the same bytes before
 * `depth`; a token that ends there sorts first. */
static size_t lower_bound(const struct vocab *v, size_t lo, size_t hi, size_t depth, int c)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        struct str s = string_table_at(&v->bytes, v->special.ids[mid]);
        int have = depth < s.n ? (unsigned char)s.p[depth] : -1;
        if (have < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The longest special token at offset `from` of the text. */
static int32_t longest_at(
    const struct vocab *v, const struct special_text *t, size_t from, size_t *n)
{
    size_t lo = 0, hi = v->special.n, left = t->text.n - from;
    int32_t best = TOKEN_NONE;
    bool is_trusted = true; /* all bytes up to depth */

    for (size_t depth = 0; depth < left && lo < hi; depth++) {
        int c = (unsigned char)t->text.p[from + depth];
        is_trusted = is_trusted && (t->trusted ? t->trusted[from + depth] : t->all_trusted);
        lo = lower_bound(v, lo, hi, depth, c);
        hi = lower_bound(v, lo, hi, depth, c + 1);
        if (lo == hi)
            break;
        uint32_t id = v->special.ids[lo];
        if (string_table_at(&v->bytes, id).n == depth + 1 && (is_trusted || is_plain(v, id))) {
            best = (int32_t)id;
            *n = depth + 1;
        }
    }
    return best;
}

int32_t special_next(
    const struct vocab *v, const struct special_text *t, size_t from, size_t *at, size_t *n)
{
    const struct special *s = &v->special;

    if (!s->n)
        return TOKEN_NONE;
    for (size_t i = from; i < t->text.n; i++) {
        unsigned char c = (unsigned char)t->text.p[i];
        bool is_trusted = t->trusted ? t->trusted[i] : t->all_trusted;
        if (!has_bit(is_trusted ? s->first : s->first_plain, c))
            continue;
        int32_t id = longest_at(v, t, i, n);
        if (id != TOKEN_NONE) {
            *at = i;
            return id;
        }
    }
    return TOKEN_NONE;
}
