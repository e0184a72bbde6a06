#include "guardrails/fold.h"
#include "base/utf8.h"

#include <utf8proc.h>

/* The longest decomposition of a character has 18 characters. */
enum { CHARACTERS_MAX = 32 };

size_t fold_char(uint32_t cp, char out[FOLD_BYTES_MAX])
{
    utf8proc_int32_t to[CHARACTERS_MAX];
    size_t n = 0;

    if (cp < 0x80) {
        out[0] = (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp);
        return 1;
    }
    int boundary = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)cp, to, CHARACTERS_MAX,
        UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE, &boundary);
    if (count < 0 || count > CHARACTERS_MAX)
        return (size_t)utf8_encode(cp, out);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        n += (size_t)utf8_encode((uint32_t)to[i], out + n);
    return n;
}

bool fold_is_word(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || (cp >= '0' && cp <= '9') ||
               cp == '_';
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}
