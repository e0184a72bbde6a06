#include "base/utf8.h"

int utf8_decode(struct str s, uint32_t *cp)
{
    /* The bounds of the second byte exclude overlong forms, surrogates and values above 10FFFF. */
    unsigned char lo = 0x80, hi = 0xBF;
    int n;

    if (!s.n)
        return -1;
    unsigned char b = (unsigned char)s.p[0];
    if (b < 0x80) {
        *cp = b;
        return 1;
    }
    if (b >= 0xC2 && b <= 0xDF) {
        n = 2;
        *cp = b & 0x1F;
    } else if (b >= 0xE0 && b <= 0xEF) {
        n = 3;
        *cp = b & 0x0F;
        lo = b == 0xE0 ? 0xA0 : lo;
        hi = b == 0xED ? 0x9F : hi;
    } else if (b >= 0xF0 && b <= 0xF4) {
        n = 4;
        *cp = b & 0x07;
        lo = b == 0xF0 ? 0x90 : lo;
        hi = b == 0xF4 ? 0x8F : hi;
    } else {
        return 0;
    }
    for (int i = 1; i < n; i++) {
        if ((size_t)i >= s.n)
            return -1;
        unsigned char c = (unsigned char)s.p[i];
        if (c < lo || c > hi)
            return 0;
        *cp = *cp << 6 | (c & 0x3F);
        lo = 0x80;
        hi = 0xBF;
    }
    return n;
}

int utf8_encode(uint32_t cp, char out[4])
{
    DCHECK(cp <= 0x10FFFF && (cp < 0xD800 || cp > 0xDFFF));
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(struct str s)
{
    uint32_t cp;

    while (s.n) {
        int n = utf8_decode(s, &cp);
        if (n <= 0)
            return false;
        s = str_skip(s, (size_t)n);
    }
    return true;
}

size_t utf8_complete(struct str s)
{
    uint32_t cp;

    /* Only the last three bytes can start an incomplete character. */
    for (size_t back = MIN(s.n, (size_t)3); back > 0; back--) {
        size_t at = s.n - back;
        if (((unsigned char)s.p[at] & 0xC0) == 0x80)
            continue;
        if (utf8_decode(str_skip(s, at), &cp) < 0)
            return at;
    }
    return s.n;
}

bool utf8_is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp <= 0x9F) || cp == 0x061C ||
           (cp >= 0x200E && cp <= 0x200F) || (cp >= 0x202A && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

bool utf8_is_printable(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7F)
            return false;
    return utf8_valid(s);
}
