#include "tokenizer/unicode.h"

#include <utf8proc.h>

/* L, U: lower-case and upper-case letters; N: numbers; P, Y: punctuation, symbols; O: others; S, R:
 * blanks and line breaks */
#define L U_LETTER | U_LOWER
#define U U_LETTER | U_UPPER
#define N U_NUMBER
#define O U_OTHER | U_UNMARKED
#define P O | U_PUNCT
#define Y O | U_SYMBOL
#define S U_SPACE
#define R U_SPACE | U_NEWLINE
/* clang-format off */
const uint16_t unicode_ascii[128] = {
    O, O, O, O, O, O, O, O, O, S, R, S, S, R, O, O,
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, P, P, P, Y, P, P, P, P, P, P, Y, P, P, P, P,
    N, N, N, N, N, N, N, N, N, N, P, P, Y, Y, Y, P,
    P, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U,
    U, U, U, U, U, U, U, U, U, U, U, P, P, P, Y, P,
    Y, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, P, Y, P, Y, O,
};
/* clang-format on */
#undef L
#undef U
#undef N
#undef O
#undef P
#undef Y
#undef S
#undef R

static bool is_space(uint32_t cp)
{
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

struct han_range {
    uint32_t from, to;
};

/* Script=Han in Unicode 15, sorted. */
static const struct han_range han[] = {
    { 0x2E80, 0x2E99 },
    { 0x2E9B, 0x2EF3 },
    { 0x2F00, 0x2FD5 },
    { 0x3005, 0x3005 },
    { 0x3007, 0x3007 },
    { 0x3021, 0x3029 },
    { 0x3038, 0x303B },
    { 0x3400, 0x4DBF },
    { 0x4E00, 0x9FFF },
    { 0xF900, 0xFA6D },
    { 0xFA70, 0xFAD9 },
    { 0x16FE2, 0x16FE3 },
    { 0x16FF0, 0x16FF6 },
    { 0x20000, 0x2A6DF },
    { 0x2A700, 0x2B81E },
    { 0x2B820, 0x2CEAD },
    { 0x2CEB0, 0x2EBE0 },
    { 0x2EBF0, 0x2EE5D },
    { 0x2F800, 0x2FA1D },
    { 0x30000, 0x3134A },
    { 0x31350, 0x33479 },
};

static bool is_han(uint32_t cp)
{
    size_t lo = 0, hi = ARRAY_LEN(han);

    if (cp < han[0].from)
        return false;
    while (lo < hi) { /* the first range that ends at cp or later */
        size_t mid = (lo + hi) / 2;
        if (han[mid].to < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < ARRAY_LEN(han) && cp >= han[lo].from;
}

static uint16_t category_class(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return U_LETTER | U_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return U_LETTER | U_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return U_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return U_NUMBER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return U_OTHER | U_MARK;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return U_OTHER | U_UNMARKED | U_PUNCT;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
        return U_OTHER | U_UNMARKED | U_SYMBOL;
    default:
        return is_space(cp) ? U_SPACE : U_OTHER | U_UNMARKED;
    }
}

uint16_t unicode_class(uint32_t cp)
{
    if (cp < 128)
        return unicode_ascii[cp];
    return (uint16_t)(category_class(cp) | (is_han(cp) ? U_HAN : 0));
}

int unicode_next_slow(const char *p, const char *end, uint32_t *cp, uint16_t *class)
{
    int n = utf8_decode((struct str){ p, (size_t)(end - p) }, cp);

    if (n <= 0) {
        *cp = 0xFFFD;
        *class = U_OTHER | U_UNMARKED;
        return 1;
    }
    *class = unicode_class(*cp);
    return n;
}
