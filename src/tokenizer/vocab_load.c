/* vocab_load.c: builds the tables of a vocabulary from the metadata of a model file. All input is
 * validated: kinds, array lengths that must agree, types, byte tokens, scores. Owner: the thread
 * that opens the model. */
#include "base/mem.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocab_in.h"

#include <math.h>

#define BLANK STR("\xE2\x96\x81") /* SPM writes a blank as U+2581 */

int string_table_init(struct string_table *s, size_t cap, size_t cap_bytes)
{
    *s = (struct string_table){ .cap = cap, .cap_bytes = cap_bytes };
    s->data = try_malloc(cap_bytes);
    s->ends = try_malloc(cap * sizeof(*s->ends));
    return s->data && s->ends ? 0 : -1;
}

void string_table_clear(struct string_table *s)
{
    mem_free(s->data);
    mem_free(s->ends);
    *s = (struct string_table){ 0 };
}

void string_table_put(struct string_table *s, const void *p, size_t n)
{
    CHECK(s->n < s->cap && n <= s->cap_bytes - s->bytes);
    if (n)
        memcpy(s->data + s->bytes, p, n);
    s->bytes += n;
    s->ends[s->n++] = (uint32_t)s->bytes;
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_MEMORY, "no memory for the vocabulary");
}

/* A mandatory array, of strings or of another type. */
static const struct gguf_value *find_array(
    const struct gguf *g, const char *key, bool of_strings, struct err *e)
{
    const struct gguf_value *a = gguf_find(g, key);

    if (!a || a->kind != GGUF_ARR || (a->arr.kind == GGUF_STR) != of_strings) {
        err_set(e, ERR_CORRUPT, "%s is %s", key, a ? "of the wrong type" : "missing");
        return NULL;
    }
    return a;
}

/* An array of numbers with an entry per token. */
static const struct gguf_value *find_token_array(
    const struct vocab *v, const struct gguf *g, const char *key, struct err *e)
{
    const struct gguf_value *a = find_array(g, key, false, e);

    if (a && a->arr.n != (uint64_t)v->n) {
        err_set(e, ERR_CORRUPT, "%s has %llu entries for %d tokens", key,
            (unsigned long long)a->arr.n, v->n);
        return NULL;
    }
    return a;
}

/* ---- types and texts */

/* Before memory is allocated for the texts. */
static int check_text_sizes(const struct gguf_value *a, size_t max, const char *what, struct err *e)
{
    struct str s;
    uint64_t at = 0;

    for (uint64_t i = 0; gguf_arr_next_str(a, &at, &s); i++)
        if (s.n > max)
            return err_set(e, ERR_TOO_LARGE, "%s %llu has %zu bytes, more than %zu", what,
                (unsigned long long)i, s.n, max);
    return 0;
}

static int load_texts(struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct gguf_value *a = find_array(g, "tokenizer.ggml.tokens", true, e);
    struct str s;
    uint64_t at = 0;

    if (!a)
        return -1;
    if (a->arr.n < 1)
        return err_set(e, ERR_CORRUPT, "tokenizer.ggml.tokens is empty");
    if (a->arr.n > VOCAB_MAX_TOKENS || a->arr.bytes - 8 * a->arr.n > VOCAB_MAX_BYTES)
        return err_set(e, ERR_TOO_LARGE, "tokenizer.ggml.tokens: more than %d tokens or %d bytes",
            VOCAB_MAX_TOKENS, VOCAB_MAX_BYTES);
    if (check_text_sizes(a, VOCAB_TEXT_MAX, "tokenizer.ggml.tokens: token", e))
        return -1;
    v->n = (int32_t)a->arr.n;
    size_t bytes = (size_t)(a->arr.bytes - 8 * a->arr.n);
    v->attr = try_malloc((size_t)v->n);
    v->is_end = try_calloc((size_t)v->n, 1);
    if (string_table_init(&v->text, (size_t)v->n, bytes) ||
        string_table_init(&v->bytes, (size_t)v->n, bytes) || !v->attr || !v->is_end)
        return no_memory(e);
    while (gguf_arr_next_str(a, &at, &s))
        string_table_put(&v->text, s.p, s.n);
    CHECK(v->text.n == (size_t)v->n);
    return 0;
}

static int load_types(struct vocab *v, const struct gguf *g, struct err *e)
{
    const char *key = "tokenizer.ggml.token_type";
    int64_t type;

    for (int32_t i = 0; i < v->n; i++)
        v->attr[i] = vocab_names_control(string_table_at(&v->text, (size_t)i)) ? TOKEN_CONTROL
                                                                               : TOKEN_NORMAL;
    if (!gguf_find(g, key))
        return 0;
    const struct gguf_value *a = find_token_array(v, g, key, e);
    if (!a)
        return -1;
    for (int32_t i = 0; i < v->n; i++) {
        if (!gguf_arr_i64(a, (uint64_t)i, &type) || type < 0 || type > TOKEN_BYTE)
            return err_set(e, ERR_CORRUPT, "%s: token %d has an unknown type", key, i);
        v->attr[i] = type ? (uint8_t)type : TOKEN_NORMAL;
    }
    return 0;
}

/* ---- bytes of tokens */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Value of "<0x0A>", exactly in this form, or -1. */
static int byte_token_value(struct str s)
{
    if (s.n != 6 || memcmp(s.p, "<0x", 3) || s.p[5] != '>' || hex_value(s.p[3]) < 0 ||
        hex_value(s.p[4]) < 0)
        return -1;
    return hex_value(s.p[3]) << 4 | hex_value(s.p[4]);
}

/* Replaces every U+2581 by a blank. `out` has room for s.n bytes. */
static size_t unescape_blanks(struct str s, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n;) {
        if (str_starts(str_skip(s, i), BLANK)) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = s.p[i++];
        }
    }
    return n;
}

static int load_byte_token(struct vocab *v, int32_t id, struct err *e)
{
    int byte = byte_token_value(string_table_at(&v->text, (size_t)id));

    if (byte < 0)
        return err_set(
            e, ERR_CORRUPT, "tokenizer.ggml.tokens: byte token %d is not written as <0xNN>", id);
    v->byte_token[byte] = id;
    string_table_put(&v->bytes, &(char){ (char)byte }, 1);
    return 0;
}

/* `scratch` has room for the longest text. */
static int load_bytes_of(struct vocab *v, int32_t id, char *scratch, struct err *e)
{
    struct str s = string_table_at(&v->text, (size_t)id);
    ptrdiff_t n;

    switch ((enum token_attr)v->attr[id]) {
    case TOKEN_UNKNOWN:
    case TOKEN_UNUSED:
        string_table_put(&v->bytes, NULL, 0);
        return 0;
    case TOKEN_CONTROL:
        string_table_put(&v->bytes, s.p, s.n);
        return 0;
    case TOKEN_BYTE:
        if (vocab_has_plain_texts(v) || byte_token_value(s) >= 0)
            return load_byte_token(v, id, e);
        break;
    case TOKEN_USER_DEFINED:
    case TOKEN_NORMAL:
        break;
    }
    if (vocab_has_plain_texts(v)) {
        string_table_put(&v->bytes, scratch, unescape_blanks(s, scratch));
        return 0;
    }
    /* A text outside the byte-level alphabet represents itself. */
    n = v->attr[id] == TOKEN_USER_DEFINED ? -1 : bytelevel_decode(s, scratch);
    if (n < 0)
        string_table_put(&v->bytes, s.p, s.n);
    else
        string_table_put(&v->bytes, scratch, (size_t)n);
    return 0;
}

static int load_bytes(struct vocab *v, struct err *e)
{
    size_t longest = 0;

    for (size_t i = 0; i < (size_t)v->n; i++)
        longest = MAX(longest, string_table_at(&v->text, i).n);
    char *scratch = try_malloc(longest);
    if (!scratch)
        return no_memory(e);
    int rc = 0;
    for (int32_t i = 0; i < v->n && !rc; i++)
        rc = load_bytes_of(v, i, scratch, e);
    mem_free(scratch);
    return rc;
}

/* ---- maps */

/* True if ordinary text may become this token. */
static bool is_ordinary(const struct vocab *v, uint32_t id)
{
    if (!string_table_at(&v->bytes, id).n || special_needs_trust(v, id))
        return false;
    if (!vocab_has_plain_texts(v))
        return true;
    /* Byte tokens are used only if nothing else matches; and a blank in a token's text is not the
     * blank of texts, which is U+2581 there. */
    return v->attr[id] != TOKEN_BYTE &&
           !memchr(string_table_at(&v->text, id).p, ' ', string_table_at(&v->text, id).n);
}

static bool blank_inside(struct str s)
{
    for (size_t i = 1; i < s.n; i++)
        if (s.p[i] == ' ' && s.p[i - 1] != ' ')
            return true;
    return false;
}

static bool word_inside(struct str s)
{
    for (size_t i = 1; i < s.n; i++)
        if (vocab_ends_word(s.p[i - 1], s.p[i]))
            return true;
    return false;
}

/* Texts may occur twice; encoding gives the last token with a text. */
static int load_maps(struct vocab *v, struct err *e)
{
    v->by_text = str_map_new((size_t)v->n);
    v->by_bytes = str_map_new((size_t)v->n);
    if (!v->by_text || !v->by_bytes)
        return no_memory(e);
    v->splits_at_blanks = v->splits_at_word_ends = true;
    for (uint32_t i = (uint32_t)v->n; i-- > 0;) {
        struct str text = string_table_at(&v->text, i), bytes = string_table_at(&v->bytes, i);
        if (text.n && str_map_put(v->by_text, text, i) < 0)
            return no_memory(e);
        if (!is_ordinary(v, i))
            continue;
        if (str_map_put(v->by_bytes, bytes, i) < 0)
            return no_memory(e);
        v->longest = MAX(v->longest, bytes.n);
        v->splits_at_blanks &= !blank_inside(bytes);
        v->splits_at_word_ends &= !word_inside(bytes);
    }
    return 0;
}

static void load_byte_tokens(struct vocab *v)
{
    uint32_t id;

    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        bool found = str_map_get(v->by_bytes, (struct str){ &c, 1 }, &id);
        if (v->byte_token[b] == TOKEN_NONE && found)
            v->byte_token[b] = (int32_t)id;
    }
}

static int load_scores(struct vocab *v, const struct gguf *g, struct err *e)
{
    const char *key = "tokenizer.ggml.scores";
    double score;

    v->scores = try_calloc((size_t)v->n, sizeof(*v->scores));
    if (!v->scores)
        return no_memory(e);
    if (!gguf_find(g, key))
        return 0; /* all scores are equal: the leftmost pair is merged first */
    const struct gguf_value *a = find_token_array(v, g, key, e);
    if (!a)
        return -1;
    for (int32_t i = 0; i < v->n; i++) {
        if (!gguf_arr_f64(a, (uint64_t)i, &score) || isnan(score))
            return err_set(e, ERR_CORRUPT, "%s: the score of token %d is not a number", key, i);
        v->scores[i] = (float)score;
    }
    return 0;
}

int vocab_load_tokens(struct vocab *v, const struct gguf *g, struct err *e)
{
    memset(v->byte_token, 0xFF, sizeof(v->byte_token)); /* TOKEN_NONE */
    if (load_texts(v, g, e) || load_types(v, g, e) || load_bytes(v, e) || load_maps(v, e))
        return -1;
    load_byte_tokens(v);
    return v->type == VOCAB_SPM ? load_scores(v, g, e) : 0;
}

/* ---- merges */

struct merge_loader {
    struct vocab *v;
    struct str_map *others; /* symbols of byte strings that are not tokens */
    char *bytes;            /* storage of their keys until the last merge is read */
    size_t n;
    uint32_t n_symbols;
};

/* The symbol of a byte string, created if there is none; -1: no memory. */
static int64_t symbol_of(struct merge_loader *l, struct str s, bool *is_new)
{
    uint32_t id;

    if (str_map_get(l->v->by_bytes, s, &id) || str_map_get(l->others, s, &id))
        return id;
    *is_new = true;
    return str_map_put(l->others, s, l->n_symbols) < 0 ? -1 : (int64_t)l->n_symbols++;
}

/* The bytes of one half of a merge; -1: no text has this spelling. */
static ptrdiff_t decode_half(const struct vocab *v, struct str text, char *out)
{
    return vocab_has_plain_texts(v) ? (ptrdiff_t)unescape_blanks(text, out)
                                    : bytelevel_decode(text, out);
}

static int load_merge(struct merge_loader *l, struct str text, uint32_t rank, struct err *e)
{
    struct vocab *v = l->v;
    ptrdiff_t at = text.n ? str_find(str_skip(text, 1), STR(" ")) + 1 : 0;
    char *p = l->bytes + l->n;
    uint32_t old;
    bool is_new = false;

    if (at < 1 || (size_t)at + 1 == text.n)
        return err_set(e, ERR_CORRUPT, "tokenizer.ggml.merges: merge %u is not a pair", rank);
    ptrdiff_t n = decode_half(v, (struct str){ text.p, (size_t)at }, p);
    ptrdiff_t m = n < 0 ? -1 : decode_half(v, str_skip(text, (size_t)at + 1), p + n);
    if (n <= 0 || m <= 0)
        return 0; /* no text has this spelling, so the merge never applies */
    int64_t left = symbol_of(l, (struct str){ p, (size_t)n }, &is_new);
    int64_t right = symbol_of(l, (struct str){ p + n, (size_t)m }, &is_new);
    int64_t both = symbol_of(l, (struct str){ p, (size_t)(n + m) }, &is_new);
    if (left < 0 || right < 0 || both < 0)
        return no_memory(e);
    l->n += is_new ? (size_t)(n + m) : 0;
    v->splits_at_blanks &= !is_new || !blank_inside((struct str){ p, (size_t)(n + m) });
    v->merged[rank] = (uint32_t)both;
    uint64_t pair = (uint64_t)left << 32 | (uint64_t)right;
    if (!u64_map_get(v->merges, pair, &old) && u64_map_put(v->merges, pair, rank))
        return no_memory(e);
    return 0;
}

static void load_byte_symbols(struct merge_loader *l)
{
    struct vocab *v = l->v;
    uint32_t id;

    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        struct str s = { &c, 1 };
        bool found = str_map_get(v->by_bytes, s, &id) || str_map_get(l->others, s, &id);
        v->byte_symbol[b] = found ? (int32_t)id : TOKEN_NONE;
    }
}

int vocab_load_merges(struct vocab *v, const struct gguf *g, struct err *e)
{
    const struct gguf_value *a = find_array(g, "tokenizer.ggml.merges", true, e);
    struct merge_loader l = { .v = v, .n_symbols = (uint32_t)v->n };
    struct str s;
    uint64_t at = 0;
    uint32_t rank = 0;
    int rc = -1;

    if (!a)
        return -1;
    if (a->arr.n > VOCAB_MAX_TOKENS || a->arr.bytes - 8 * a->arr.n > VOCAB_MAX_BYTES)
        return err_set(e, ERR_TOO_LARGE, "tokenizer.ggml.merges: more than %d merges or %d bytes",
            VOCAB_MAX_TOKENS, VOCAB_MAX_BYTES);
    if (check_text_sizes(a, 2 * VOCAB_TEXT_MAX + 1, "tokenizer.ggml.merges: merge", e))
        return -1;
    v->merged = try_calloc((size_t)a->arr.n, sizeof(*v->merged));
    v->merges = u64_map_new((size_t)a->arr.n);
    l.others = str_map_new(16);
    l.bytes = try_malloc((size_t)(a->arr.bytes - 8 * a->arr.n));
    if (!v->merged || !v->merges || !l.others || !l.bytes) {
        no_memory(e);
        goto out;
    }
    while (gguf_arr_next_str(a, &at, &s))
        if (load_merge(&l, s, rank++, e))
            goto out;
    load_byte_symbols(&l);
    rc = 0;
out:
    str_map_free(l.others);
    mem_free(l.bytes);
    return rc;
}

/* ---- tokens which equal the merge result of their bytes */

int vocab_load_self_merging(struct vocab *v, struct err *e)
{
    struct merge m = { 0 };
    int rc = 0;

    v->merges_to_self = try_calloc((size_t)v->n / 8 + 1, 1);
    if (!v->merges_to_self)
        return no_memory(e);
    merge_enable_memo(&m, (size_t)v->n);
    for (uint32_t i = 0; i < (uint32_t)v->n && !rc; i++) {
        struct str s = string_table_at(&v->bytes, i);
        /* Longer tokens are rare and are merged each time. */
        if (!s.n || s.n > 64 || !is_ordinary(v, i))
            continue;
        rc = merge_word(&m, v, s);
        if (!rc && m.symbols[0].next < 0 && m.symbols[0].id == (int32_t)i)
            v->merges_to_self[i >> 3] |= (uint8_t)(1 << (i & 7));
    }
    merge_clear(&m);
    return rc ? no_memory(e) : 0;
}
