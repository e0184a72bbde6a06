#include "base/base64.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct buf *out, struct str bytes)
{
    for (size_t i = 0; i < bytes.n; i += 3) {
        size_t n = MIN(bytes.n - i, (size_t)3);
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (k < n ? (unsigned char)bytes.p[i + k] : 0);
        char four[4] = { digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
            n > 2 ? digits[v & 63] : '=' };
        buf_put(out, four, 4);
    }
}

void base64url_encode(struct buf *out, struct str bytes)
{
    size_t from = out->n;

    base64_encode(out, bytes);
    if (!buf_ok(out))
        return;
    for (size_t i = from; i < out->n; i++)
        out->p[i] = (char)(out->p[i] == '+' ? '-' : out->p[i] == '/' ? '_' : out->p[i]);
    while (out->n > from && out->p[out->n - 1] == '=')
        out->n--;
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct buf *out, struct str text)
{
    uint32_t v = 0;
    int n_bits = 0;

    if (text.n % 4 == 0 && text.n && text.p[text.n - 1] == '=')
        text.n -= text.p[text.n - 2] == '=' ? 2 : 1;
    if (text.n % 4 == 1)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        int d = value_of(text.p[i]);
        if (d < 0)
            return false;
        v = v << 6 | (uint32_t)d;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            buf_putc(out, (char)(v >> n_bits & 255));
        }
    }
    return buf_ok(out);
}

static int url_value_of(char c)
{
    if (c == '-' || c == '_')
        return c == '-' ? 62 : 63;
    return c == '+' || c == '/' ? -1 : value_of(c);
}

ptrdiff_t base64url_decode(void *out, struct str text)
{
    uint8_t *p = out;
    uint32_t v = 0;
    int n_bits = 0;

    if (text.n % 4 == 1)
        return -1;
    for (size_t i = 0; i < text.n; i++) {
        int d = url_value_of(text.p[i]);
        if (d < 0)
            return -1;
        v = v << 6 | (uint32_t)d;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            *p++ = (uint8_t)(v >> n_bits & 255);
        }
    }
    return v & ((1u << n_bits) - 1) ? -1 : p - (uint8_t *)out;
}
