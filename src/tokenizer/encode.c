/* encode.c: spans to tokens. Special tokens are cut out first. The text between them is split into
 * words (BPE: by the pre-tokenizer; SPM: before blanks), and each word is looked up or merged.
 * Owner: the thread that encodes. */
#include "base/mem.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocab_in.h"

#include <stdatomic.h>

enum { MAX_TEXT = 1 << 30 };

struct encoder {
    const struct vocab *v;
    struct tokens *out;
    struct merge merge;
    struct buf spm; /* buffer for normalised text of SPM and of BPE on characters */
    struct err *e;
};

int tokens_push(struct tokens *t, int32_t id, struct err *e)
{
    if (t->n == t->cap) {
        size_t cap = MAX(t->cap * 2, (size_t)64);
        int32_t *ids = arena_realloc(t->arena, t->ids, t->cap * sizeof(*ids), cap * sizeof(*ids));
        if (!ids)
            return err_set(e, ERR_MEMORY, "no memory after %zu tokens", t->n);
        t->ids = ids;
        t->cap = cap;
    }
    t->ids[t->n++] = id;
    return 0;
}

static int put_token(struct encoder *c, int32_t id)
{
    return tokens_push(c->out, id, c->e);
}

/* Text without a token is encoded byte by byte; bytes without a byte token become the unknown
 * token. */
static int put_bytes(struct encoder *c, struct str s)
{
    bool is_lost = false;

    for (size_t i = 0; i < s.n; i++) {
        int32_t id = c->v->byte_token[(unsigned char)s.p[i]];
        is_lost |= id == TOKEN_NONE;
        if (id != TOKEN_NONE && put_token(c, id))
            return -1;
    }
    return is_lost && c->v->unk != TOKEN_NONE ? put_token(c, c->v->unk) : 0;
}

static int put_merged(struct encoder *c, struct str word)
{
    const struct merge_symbol *s = c->merge.symbols;

    for (int32_t i = 0; i >= 0; i = s[i].next) {
        bool is_token = s[i].id >= 0 && s[i].id < c->v->n;
        if (is_token ? put_token(c, s[i].id) : put_bytes(c, (struct str){ word.p + i, s[i].n }))
            return -1;
    }
    return 0;
}

static int put_word(void *ctx, struct str word)
{
    struct encoder *c = ctx;
    const struct vocab *v = c->v;
    uint32_t id;

    if (c->out->stop && atomic_load_explicit(c->out->stop, memory_order_relaxed))
        return err_set(c->e, ERR_CANCELLED, "the request was cancelled");
    /* a word of BPE on characters is a line, or a run of newlines, which is not merged */
    const bool is_whole = v->ignores_merges || (v->type == VOCAB_CHAR_BPE && word.p[0] == '\n');
    if (word.n <= v->longest && str_map_get(v->by_bytes, word, &id) &&
        (is_whole || vocab_merges_to_self(v, id)))
        return put_token(c, (int32_t)id);
    if (word.n > MERGE_MAX_WORD)
        return err_set(c->e, ERR_TOO_LARGE, "%zu bytes of text without a break; at most %d", word.n,
            MERGE_MAX_WORD);
    if (merge_word(&c->merge, v, word))
        return err_set(c->e, ERR_MEMORY, "no memory to merge a word of %zu bytes", word.n);
    return put_merged(c, word);
}

/* ---- SPM */

/* Drops blanks at both ends and reduces runs of blanks to one. */
static struct str squeeze_blanks(struct buf *b, size_t from)
{
    size_t n = from;

    for (size_t i = from; i < b->n; i++)
        if (b->p[i] != ' ' || (n > from && b->p[n - 1] != ' '))
            b->p[n++] = b->p[i];
    b->n = n - (n > from && b->p[n - 1] == ' ');
    return buf_str(b);
}

/* If no token has a blank after another character, text can be split before blanks: the tokens are
 * the same, and the words are short. */
static int put_words(void *ctx, struct str text)
{
    struct encoder *c = ctx;
    size_t from = 0;

    for (size_t i = 1; c->v->splits_at_blanks && i < text.n; i++) {
        if (text.p[i] != ' ' || text.p[i - 1] == ' ')
            continue;
        if (put_word(c, (struct str){ text.p + from, i - from }))
            return -1;
        from = i;
    }
    return from < text.n ? put_word(c, str_skip(text, from)) : 0;
}

static int put_spm(struct encoder *c, struct str text, bool is_first)
{
    const struct vocab *v = c->v;
    bool prefix = v->add_space_prefix && is_first;

    if (prefix || v->squeezes_blanks) {
        buf_reset(&c->spm);
        if (prefix)
            buf_putc(&c->spm, ' ');
        buf_puts(&c->spm, text);
        if (!buf_ok(&c->spm))
            return err_set(c->e, ERR_MEMORY, "no memory for %zu bytes of text", text.n);
        text = v->squeezes_blanks ? squeeze_blanks(&c->spm, prefix) : buf_str(&c->spm);
    }
    return put_words(c, text);
}

/* ---- BPE on characters */

/* U+2581 in a text means a blank, as in the texts of tokens. */
static int put_char_bpe(struct encoder *c, struct str text)
{
    const struct str mark = STR("\xE2\x96\x81");
    ptrdiff_t at = str_find(text, mark);

    if (at < 0)
        return pretok_split(c->v->pre, text, put_words, c);
    buf_reset(&c->spm);
    for (; at >= 0; at = str_find(text, mark)) {
        buf_put(&c->spm, text.p, (size_t)at);
        buf_putc(&c->spm, ' ');
        text = str_skip(text, (size_t)at + mark.n);
    }
    buf_puts(&c->spm, text);
    if (!buf_ok(&c->spm))
        return err_set(c->e, ERR_MEMORY, "no memory for %zu bytes of text", text.n);
    return pretok_split(c->v->pre, buf_str(&c->spm), put_words, c);
}

/* ---- texts and special tokens */

static int put_text(struct encoder *c, struct str text, bool is_first)
{
    if (!text.n)
        return 0;
    if (c->v->type == VOCAB_SPM)
        return put_spm(c, text, is_first);
    return c->v->type == VOCAB_BPE ? pretok_split(c->v->pre, text, put_word, c)
                                   : put_char_bpe(c, text);
}

static int put_all(struct encoder *c, const struct special_text *t)
{
    size_t from = 0, at, n;
    int32_t id;
    bool is_first = true;

    while ((id = special_next(c->v, t, from, &at, &n)) != TOKEN_NONE) {
        if (put_text(c, (struct str){ t->text.p + from, at - from }, is_first) || put_token(c, id))
            return -1;
        from = at + n;
        /* SPM begins a new text after a control token, but not after a user-defined one. */
        is_first = special_needs_trust(c->v, (uint32_t)id);
    }
    return put_text(c, str_skip(t->text, from), is_first);
}

/* Joins the spans; `bytes` holds the text followed by one trust flag per byte. */
static char *join_spans(const struct span *spans, size_t n_spans, size_t n, struct special_text *t)
{
    char *bytes = try_malloc(2 * n), *p = bytes;

    for (size_t i = 0; bytes && i < n_spans; i++) {
        if (spans[i].text.n)
            memcpy(p, spans[i].text.p, spans[i].text.n);
        memset(p + n, spans[i].is_trusted, spans[i].text.n);
        p += spans[i].text.n;
    }
    *t = (struct special_text){ { bytes, n }, (uint8_t *)bytes + n, false };
    return bytes;
}

int vocab_encode(const struct vocab *v, const struct span *spans, size_t n_spans, bool with_bos,
    struct tokens *out, struct err *e)
{
    struct encoder c = { .v = v, .out = out, .e = e };
    struct special_text t = { 0 };
    char *joined = NULL;
    size_t n = 0, mixed = 0;

    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].text.n > MAX_TEXT - n)
            return err_set(e, ERR_TOO_LARGE, "more than %d bytes of text", MAX_TEXT);
        n += spans[i].text.n;
        mixed += spans[i].text.n > 0;
    }
    for (size_t i = 0; mixed == 1 && i < n_spans; i++)
        if (spans[i].text.n)
            t = (struct special_text){ spans[i].text, NULL, spans[i].is_trusted };
    if (mixed > 1 && !(joined = join_spans(spans, n_spans, n, &t)))
        return err_set(e, ERR_MEMORY, "no memory for %zu bytes of text", n);
    buf_init(&c.spm, MAX_TEXT + 1u);
    merge_enable_memo(&c.merge, n);
    int rc = 0;
    if (with_bos && v->add_bos && v->bos != TOKEN_NONE)
        rc = put_token(&c, v->bos);
    if (!rc && n)
        rc = put_all(&c, &t);
    buf_clear(&c.spm);
    merge_clear(&c.merge);
    mem_free(joined);
    return rc;
}

/* ---- lower bound without encoding */

/* A token has at most `longest` bytes. If no token has a blank after a printable character, none
 * contains bytes of two words. Bytes without a token of their own may yield none. */
size_t vocab_min_tokens(const struct vocab *v, struct str text)
{
    size_t n = 0, word = 0, longest = MAX(v->longest, (size_t)1);

    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        word += c > ' ' && v->byte_token[c] != TOKEN_NONE;
        if (i && v->splits_at_word_ends && vocab_ends_word(text.p[i - 1], text.p[i])) {
            n += (word + longest - 1) / longest;
            word = 0;
        }
    }
    return n + (word + longest - 1) / longest;
}
