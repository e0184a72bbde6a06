/* detok.c: token ids -> text that consists of complete UTF-8 characters; see vocab.h. */
#include "base/utf8.h"
#include "tokenizer/vocab_in.h"

/* Length of an invalid sequence at s: the longest prefix of a valid character, so that the number
 * of replacement characters equals that of other decoders. */
static size_t broken_length(struct str s)
{
    uint32_t cp;
    size_t n = 1;

    for (size_t k = 1; k < MIN(s.n, (size_t)4); k++)
        if (utf8_decode((struct str){ s.p, k }, &cp) < 0)
            n = k;
    return n;
}

/* Appends the complete part of s; returns the number of incomplete bytes at its end. */
static size_t put_whole(struct str s, struct buf *out)
{
    uint32_t cp;
    size_t from = 0, i = 0;

    while (i < s.n) {
        int n = utf8_decode(str_skip(s, i), &cp);
        if (n < 0)
            break;
        if (n > 0) {
            i += (size_t)n;
            continue;
        }
        buf_put(out, s.p + from, i - from);
        buf_puts(out, UTF8_REPLACEMENT);
        i += broken_length(str_skip(s, i));
        from = i;
    }
    buf_put(out, s.p + from, i - from);
    return s.n - i;
}

/* Appends s after the held bytes. Only the first few bytes of s can belong to the held
 * character. */
static void put_bytes(struct detok *d, struct str s, struct buf *out)
{
    char seam[8];

    while (d->n_held && s.n) {
        size_t n = d->n_held, taken = MIN(s.n, (size_t)(4 - n));
        memcpy(seam, d->held, n);
        memcpy(seam + n, s.p, taken);
        uint32_t cp;
        struct str both = { seam, n + taken };
        int len = utf8_decode(both, &cp);
        if (len < 0) { /* still incomplete: all bytes are held */
            memcpy(d->held, seam, both.n);
            d->n_held = (uint8_t)both.n;
            return;
        }
        size_t used = len > 0 ? (size_t)len : broken_length(both);
        if (len > 0)
            buf_put(out, seam, used);
        else
            buf_puts(out, UTF8_REPLACEMENT);
        CHECK(used >= n); /* the held bytes begin a character, so they are consumed together */
        d->n_held = 0;
        s = str_skip(s, used - n);
    }
    size_t left = put_whole(s, out);
    memcpy(d->held + d->n_held, s.p + s.n - left, left);
    d->n_held = (uint8_t)(d->n_held + left);
}

void detok_put(
    struct detok *d, const struct vocab *v, int32_t id, bool show_control, struct buf *out)
{
    struct str s = vocab_bytes(v, id);

    if (!s.n || (v->attr[id] == TOKEN_CONTROL && !show_control))
        return;
    bool drops_blank =
        !d->has_begun && v->type == VOCAB_SPM && v->add_space_prefix && v->attr[id] == TOKEN_NORMAL;
    if (drops_blank && s.p[0] == ' ')
        s = str_skip(s, 1);
    d->has_begun = true;
    if (s.n)
        put_bytes(d, s, out);
}

void detok_end(struct detok *d, struct buf *out)
{
    if (d->n_held)
        buf_puts(out, UTF8_REPLACEMENT);
    *d = (struct detok){ 0 };
}
