/* bytelevel.c: the printable bytes of Latin-1 represent themselves; the other 68 are written as
 * U+0100, U+0101, ... in order. */
#include "tokenizer/bytelevel.h"
#include "base/utf8.h"

static bool is_itself(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

/* The other bytes: 00-20 (33 bytes), 7F-A0 (34), AD. */
static uint32_t char_of(uint32_t b)
{
    if (is_itself(b))
        return b;
    return 0x100 + (b <= 0x20 ? b : b <= 0xA0 ? b - 0x7F + 33 : 67);
}

static int byte_of(uint32_t cp)
{
    if (cp < 0x100)
        return is_itself(cp) ? (int)cp : -1;
    cp -= 0x100;
    if (cp < 33)
        return (int)cp;
    return cp < 67 ? (int)(cp - 33 + 0x7F) : cp == 67 ? 0xAD : -1;
}

ptrdiff_t bytelevel_decode(struct str text, char *out)
{
    ptrdiff_t n = 0;
    uint32_t cp;

    while (text.n) {
        int len = utf8_decode(text, &cp);
        int byte = len > 0 ? byte_of(cp) : -1;
        if (byte < 0)
            return -1;
        out[n++] = (char)byte;
        text = str_skip(text, (size_t)len);
    }
    return n;
}

int bytelevel_encode(uint8_t byte, char out[4])
{
    return utf8_encode(char_of(byte), out);
}
