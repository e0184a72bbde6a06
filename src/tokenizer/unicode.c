#include "tokenizer/unicode.h"

#include <utf8proc.h>

#define L U_LETTER
#define N U_NUMBER
#define O U_OTHER
#define P (U_OTHER | U_PUNCT)
#define S U_SPACE
#define R (U_SPACE | U_NEWLINE)
const uint8_t unicode_ascii[128] = {
    /* 00 */ O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    S,
    R,
    S,
    S,
    R,
    O,
    O,
    /* 10 */ O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    O,
    /*    */ S,
    P,
    P,
    P,
    O,
    P,
    P,
    P,
    P,
    P,
    P,
    O,
    P,
    P,
    P,
    P,
    /* 0  */ N,
    N,
    N,
    N,
    N,
    N,
    N,
    N,
    N,
    N,
    P,
    P,
    O,
    O,
    O,
    P,
    /* @A */ P,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    /* P  */ L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    P,
    P,
    P,
    O,
    P,
    /* `a */ O,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    /* p  */ L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    L,
    P,
    O,
    P,
    O,
    O,
};
#undef L
#undef N
#undef O
#undef P
#undef S
#undef R

static bool is_space(uint32_t cp)
{
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

uint8_t unicode_class(uint32_t cp)
{
    if (cp < 128)
        return unicode_ascii[cp];
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return U_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return U_NUMBER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return U_OTHER | U_PUNCT;
    default:
        return is_space(cp) ? U_SPACE : U_OTHER;
    }
}

int unicode_next_slow(const char *p, const char *end, uint32_t *cp, uint8_t *class)
{
    int n = utf8_decode((struct str){ p, (size_t)(end - p) }, cp);

    if (n <= 0) {
        *cp = 0xFFFD;
        *class = U_OTHER;
        return 1;
    }
    *class = unicode_class(*cp);
    return n;
}
