/* case.c: upper, lower and title case as in Python: Unicode's full case mappings and the final
 * sigma. Every character keeps its origin. Owner: the thread that renders. */
#include "base/utf8.h"
#include "jinja/call.h"

#include <utf8proc.h>

static const struct special_case {
    uint32_t cp;
    const char *upper, *title;
} specials[] = {
#define SPECIAL(cp, upper, title) { cp, upper, title },
#include "jinja/case.def"
#undef SPECIAL
};

static const struct special_case *special_find(uint32_t cp)
{
    size_t lo = 0, hi = ARRAY_LEN(specials);

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (specials[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < ARRAY_LEN(specials) && specials[lo].cp == cp ? &specials[lo] : NULL;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

static bool is_cased(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

static bool is_case_ignorable(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x2019 ||
           c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK;
}

static size_t put_cp(uint32_t cp, char *out)
{
    return (size_t)utf8_encode(cp, out);
}

static size_t to_upper(uint32_t cp, bool title, char out[16])
{
    const struct special_case *s = cp < 0x80 ? NULL : special_find(cp);

    if (s) {
        const char *z = title ? s->title : s->upper;
        memcpy(out, z, strlen(z));
        return strlen(z);
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    return put_cp((uint32_t)(title ? utf8proc_totitle(c) : utf8proc_toupper(c)), out);
}

/* True if the sigma at byte i is the last letter of a word. */
static bool is_final_sigma(struct str s, size_t i)
{
    bool before = false;
    uint32_t cp;

    for (size_t k = 0; k < i;) {
        size_t n = char_len((struct str){ s.p + k, i - k }, &cp);
        if (!is_case_ignorable(cp))
            before = is_cased(cp);
        k += n;
    }
    for (size_t k = i + 2; k < s.n && before;) {
        size_t n = char_len(str_skip(s, k), &cp);
        if (!is_case_ignorable(cp))
            return !is_cased(cp);
        k += n;
    }
    return before;
}

/* i: byte offset of the character in s; of s only the possible word around it is examined. */
static size_t to_lower(struct str s, size_t i, uint32_t cp, char out[16])
{
    if (cp == 0x130) {
        memcpy(out, "i\xCC\x87", 3);
        return 3;
    }
    if (cp == 0x3A3)
        return put_cp(is_final_sigma(s, i) ? 0x3C2 : 0x3C3, out);
    return put_cp((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), out);
}

/* Word separators of Jinja's title filter. */
static bool parts_words(uint32_t cp)
{
    return char_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
}

/* The rest of a word after its first letter, which Jinja lowers separately. */
static struct str rest_of_word(struct str s, size_t from)
{
    struct str word = str_skip(s, from);

    for (size_t i = 0; i < word.n;) {
        uint32_t cp;
        size_t n = char_len(str_skip(word, i), &cp);
        if (parts_words(cp))
            word.n = i;
        i += n;
    }
    return word;
}

static bool wants_upper(
    enum change_case how, uint32_t cp, bool is_first, bool follows_cased, bool begins_word)
{
    switch (how) {
    case CASE_UPPER:
        return true;
    case CASE_TITLE:
        return !follows_cased;
    case CASE_WORDS:
        return begins_word;
    case CASE_CAPITALIZE:
        return is_first;
    case CASE_SWAP:
        return category(cp) == UTF8PROC_CATEGORY_LL;
    default:
        return false;
    }
}

int str_case(struct rt *rt, struct text *t, enum change_case how, struct val *out)
{
    struct blob *b = blob_new(rt);
    struct str s = text_str(t);
    bool follows_cased = false, begins_word = true;
    size_t word = 0; /* start of the current word after its first letter */
    char mapped[16];

    if (!b || rt_spend(rt, t->n / 2))
        return -1;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t cp;
        len = char_len(str_skip(s, i), &cp);
        size_t n;
        if (cp == 0x3A3 && rt_spend(rt, s.n / 8))
            return -1;
        if (utf8_decode(str_skip(s, i), &cp) <= 0) {
            mapped[0] = s.p[i];
            n = 1;
        } else if (wants_upper(how, cp, i == 0, follows_cased, begins_word)) {
            n = to_upper(cp, how == CASE_TITLE || how == CASE_CAPITALIZE, mapped);
        } else {
            bool alone = how == CASE_WORDS && cp == 0x3A3;
            struct str context = alone ? rest_of_word(s, word) : s;
            n = to_lower(context, i - (size_t)(context.p - s.p), cp, mapped);
        }
        if (blob_put(rt, b, (struct str){ mapped, n }, text_trusted_at(t, i)))
            return -1;
        word = begins_word ? i + len : word;
        follows_cased = is_cased(cp);
        begins_word = parts_words(cp);
    }
    struct text *result = blob_text(rt, b);
    if (result)
        *out = V_STR(result);
    return result ? 0 : -1;
}

static bool is_letter(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_numeral(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

static bool is_of_class(uint32_t cp, enum char_class cls)
{
    switch (cls) {
    case CLASS_ALPHA:
        return is_letter(cp);
    case CLASS_DECIMAL:
        return category(cp) == UTF8PROC_CATEGORY_ND;
    case CLASS_DIGIT: /* includes superscripts and subscripts */
        return category(cp) == UTF8PROC_CATEGORY_ND || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 ||
               (cp >= 0x2070 && cp <= 0x2089);
    case CLASS_NUMERIC:
        return is_numeral(cp);
    case CLASS_ALNUM:
        return is_letter(cp) || is_numeral(cp);
    case CLASS_SPACE:
        return char_is_space(cp);
    case CLASS_ASCII:
        return cp < 0x80;
    default:
        return false;
    }
}

bool str_is_class(struct str s, enum char_class cls)
{
    bool wants_case = cls == CLASS_UPPER || cls == CLASS_LOWER, has_case = false;

    if (!s.n)
        return cls == CLASS_ASCII;
    while (s.n) {
        uint32_t cp;
        size_t n = char_len(s, &cp);
        if (!wants_case && !is_of_class(cp, cls))
            return false;
        if (wants_case && is_cased(cp)) {
            bool is_upper = category(cp) == UTF8PROC_CATEGORY_LU;
            if (is_upper != (cls == CLASS_UPPER))
                return false;
            has_case = true;
        }
        s = str_skip(s, n);
    }
    return wants_case ? has_case : true;
}
