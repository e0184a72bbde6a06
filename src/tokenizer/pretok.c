/* pretok.c: a pre-tokenizer is a list of stages, each one regular expression. A stage cuts every
 * piece it receives into its matches and the gaps between them; the next stage gets all of those.
 * Most pre-tokenizers have a single stage.
 *
 * A stage function examines one position and returns the number of bytes consumed, and whether they
 * match. On a mismatch it may skip all bytes that cannot begin a match: this keeps runs of blanks
 * linear. */
#include "tokenizer/pretok.h"
#include "tokenizer/unicode.h"

typedef size_t stage_fn(const char *p, const char *end, bool *is_match);

enum { MAX_STAGES = 6 };

struct pretok {
    stage_fn *stages[MAX_STAGES];
    bool ignores_merges, adds_bos;
};

/* ---- building blocks */

static uint16_t class_at(const char *p, const char *end, int *n)
{
    uint32_t cp;
    uint16_t class;

    if (p == end) {
        *n = 0;
        return 0;
    }
    *n = unicode_next(p, end, &cp, &class);
    return class;
}

/* The end of the run of characters that have one of these classes. */
static const char *skip_class(const char *p, const char *end, uint16_t classes)
{
    uint32_t cp;
    uint16_t class;

    while (p < end) {
        int n = unicode_next(p, end, &cp, &class);
        if (!(class & classes))
            break;
        p += n;
    }
    return p;
}

/* Length of 's 't 're 've 'm 'll 'd, or 0. U+017F is an s in either case: (?i) folds it. */
static size_t contraction(const char *p, const char *end, bool any_case)
{
    static const char twos[][2] = { { 'r', 'e' }, { 'v', 'e' }, { 'l', 'l' } };
    size_t left = (size_t)(end - p);
    char fold = any_case ? 0x20 : 0;

    if (left < 2 || *p != '\'')
        return 0;
    char a = (char)(p[1] | fold), b = left > 2 ? (char)(p[2] | fold) : '\0';
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    for (size_t i = 0; i < ARRAY_LEN(twos); i++)
        if (a == twos[i][0] && b == twos[i][1])
            return 3;
    return any_case && left > 2 && !memcmp(p + 1, "\xC5\xBF", 2) ? 3 : 0;
}

/* \s+(?!\S)|\s+ : the whole run if it is at the end of the piece or has one blank; otherwise all
 * but the last blank, which belongs to the next match. */
static size_t whitespace_run(const char *p, const char *end)
{
    const char *last = p, *at = p;
    uint16_t class;
    int n;

    while ((class = class_at(at, end, &n)) & U_SPACE) {
        last = at;
        at += n;
    }
    return (size_t)((at == end || last == p ? at : last) - p);
}

/* ---- stages */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t gpt2(const char *p, const char *end, bool *is_match)
{
    size_t n = contraction(p, end, false);
    int len;

    *is_match = true;
    if (n)
        return n;
    const char *at = *p == ' ' ? p + 1 : p;
    uint16_t class = class_at(at, end, &len);
    if (!class || (class & U_SPACE))
        return whitespace_run(p, end);
    class &= U_LETTER | U_NUMBER | U_OTHER;
    return (size_t)(skip_class(at + len, end, class) - p);
}

/* `\s*[\r\n]+|\s+(?!\S)|\s+` */
static size_t blanks(const char *p, const char *end)
{
    const char *newline = NULL, *at;
    uint16_t class;
    int len;

    for (at = p; (class = class_at(at, end, &len)) & U_SPACE; at += len)
        if (class & U_NEWLINE)
            newline = at + len;
    return newline ? (size_t)(newline - p) : whitespace_run(p, end);
}

/* ` ?[others]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+` if no other alternative matches */
static size_t others_or_blanks(const char *p, const char *end, uint16_t others)
{
    const char *at = *p == ' ' ? p + 1 : p;
    int len;

    if (class_at(at, end, &len) & others)
        return (size_t)(skip_class(skip_class(at, end, others), end, U_NEWLINE) - p);
    return blanks(p, end);
}

/* \p{N}{1,digits} from a number on */
static size_t digits_run(const char *p, const char *end, int digits)
{
    const char *at = p;
    int len;

    for (; digits && (class_at(at, end, &len) & U_NUMBER); digits--)
        at += len;
    return (size_t)(at - p);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[letters]+|\p{N}{1,digits}|
 *  ?[others]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
struct cl100k {
    uint16_t letters, others;
    int digits;
};

static size_t match_cl100k(const char *p, const char *end, struct cl100k x)
{
    size_t n = contraction(p, end, true);
    int len, next_len;

    if (n)
        return n;
    uint16_t class = class_at(p, end, &len);
    if (class & x.letters)
        return (size_t)(skip_class(p + len, end, x.letters) - p);
    if (class & U_NUMBER)
        return digits_run(p, end, x.digits);
    if (!(class & U_NEWLINE) && (class_at(p + len, end, &next_len) & x.letters))
        return (size_t)(skip_class(p + len + next_len, end, x.letters) - p);
    return others_or_blanks(p, end, x.others);
}

static size_t llama3(const char *p, const char *end, bool *is_match)
{
    *is_match = true;
    return match_cl100k(p, end, (struct cl100k){ U_LETTER, U_OTHER, 3 });
}

static size_t qwen2(const char *p, const char *end, bool *is_match)
{
    *is_match = true;
    return match_cl100k(p, end, (struct cl100k){ U_LETTER, U_OTHER, 1 });
}

static size_t qwen35(const char *p, const char *end, bool *is_match)
{
    *is_match = true;
    return match_cl100k(p, end, (struct cl100k){ U_LETTER | U_MARK, U_UNMARKED, 1 });
}

/* ---- words by case: [^\r\n\p{L}\p{N}]?[A]*[B]+ or, if that fails, [^\r\n\p{L}\p{N}]?[A]+[B]*,
 * with A = Lu, Lt, Lm, Lo, M and B = Ll, Lm, Lo, M */

enum { U_ANY_LETTER = U_LETTER | U_MARK };

static bool is_of_word(uint16_t class, uint16_t excluded)
{
    return (class & U_ANY_LETTER) && !(class & excluded);
}

/* Returns the end of [A]*[B]+ at p, or p if it does not match there; *upper is the end of [A]+. */
static const char *cased_run(const char *p, const char *end, uint16_t excluded, const char **upper)
{
    const char *at = p, *last_both = p;
    uint16_t class = 0;
    int len = 0;

    while (is_of_word(class = class_at(at, end, &len), excluded) && !(class & U_LOWER)) {
        last_both = class & U_UPPER ? last_both : at + len;
        at += len;
    }
    *upper = at;
    if (!is_of_word(class, excluded))
        return last_both; /* the last character of [A]* that is also in [B] */
    while (is_of_word(class = class_at(at, end, &len), excluded) && !(class & U_UPPER))
        at += len;
    return at;
}

/* The alternatives in the order of the expression: the first one with and without the character
 * before the word, then the second one. */
static size_t cased_words(const char *p, const char *end, uint16_t excluded)
{
    const char *upper, *upper_after, *word = cased_run(p, end, excluded, &upper);
    int len;
    uint16_t class = class_at(p, end, &len);

    if (class & (U_LETTER | U_NUMBER | U_NEWLINE))
        return (size_t)((word > p ? word : upper) - p);
    const char *after = p + len, *word_after = cased_run(after, end, excluded, &upper_after);
    if (word_after > after)
        return (size_t)(word_after - p);
    if (word > p)
        return (size_t)(word - p);
    return (size_t)((upper_after > after ? upper_after : upper) - p);
}

/* ` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+` */
static size_t others_with_slashes(const char *p, const char *end)
{
    const char *at = *p == ' ' ? p + 1 : p;
    int len;

    if (!(class_at(at, end, &len) & U_OTHER))
        return blanks(p, end);
    at = skip_class(at, end, U_OTHER);
    while (at < end && (*at == '\r' || *at == '\n' || *at == '/'))
        at++;
    return (size_t)(at - p);
}

/* cased words|\p{N}|others with slashes */
static size_t tekken(const char *p, const char *end, bool *is_match)
{
    size_t n = cased_words(p, end, 0);

    *is_match = true;
    if (!n)
        n = digits_run(p, end, 1);
    return n ? n : others_with_slashes(p, end);
}

/* cased words with a contraction|\p{N}{1,3}|others with slashes */
static size_t o200k(const char *p, const char *end, bool *is_match)
{
    size_t n = cased_words(p, end, 0);

    *is_match = true;
    if (n)
        return n + contraction(p + n, end, true);
    n = digits_run(p, end, 3);
    return n ? n : others_with_slashes(p, end);
}

/* [\p{Han}]+|cased words without Han, with a contraction|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t kimi_k2(const char *p, const char *end, bool *is_match)
{
    size_t n = (size_t)(skip_class(p, end, U_HAN) - p);

    *is_match = true;
    if (n)
        return n;
    n = cased_words(p, end, U_HAN);
    if (n)
        return n + contraction(p + n, end, true);
    n = digits_run(p, end, 3);
    return n ? n : others_or_blanks(p, end, U_OTHER);
}

/* ---- DeepSeek V3 */

/* \p{N}{1,3} */
static size_t three_numbers(const char *p, const char *end, bool *is_match)
{
    size_t n = digits_run(p, end, 3);
    int len;

    *is_match = n > 0;
    (void)class_at(p, end, &len);
    return n ? n : (size_t)len;
}

static bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_ascii_punctuation(char c)
{
    return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !(c >= '0' && c <= '9');
}

/* [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t deepseek_v3_words(const char *p, const char *end, bool *is_match)
{
    enum { SIGNS = U_PUNCT | U_SYMBOL };
    const char *at = p + 1;
    int len, next_len;
    uint16_t class = class_at(p, end, &len);

    *is_match = true;
    if (is_ascii_punctuation(*p) && at < end && is_ascii_letter(*at)) {
        while (at < end && is_ascii_letter(*at))
            at++;
        return (size_t)(at - p);
    }
    if (class & U_ANY_LETTER)
        return (size_t)(skip_class(p + len, end, U_ANY_LETTER) - p);
    if (!(class & (U_NEWLINE | SIGNS)) && (class_at(p + len, end, &next_len) & U_ANY_LETTER))
        return (size_t)(skip_class(p + len, end, U_ANY_LETTER) - p);
    at = *p == ' ' ? p + 1 : p;
    if (class_at(at, end, &next_len) & SIGNS)
        return (size_t)(skip_class(skip_class(at, end, SIGNS), end, U_NEWLINE) - p);
    *is_match = class & U_SPACE;
    return *is_match ? blanks(p, end) : (size_t)len;
}

/* \p{N}+ */
static size_t numbers(const char *p, const char *end, bool *is_match)
{
    int len;

    *is_match = class_at(p, end, &len) & U_NUMBER;
    return *is_match ? (size_t)(skip_class(p + len, end, U_NUMBER) - p) : (size_t)len;
}

/* \p{N} */
static size_t number(const char *p, const char *end, bool *is_match)
{
    int len;

    *is_match = class_at(p, end, &len) & U_NUMBER;
    return (size_t)len;
}

/* [\r\n] */
static size_t newline(const char *p, const char *end, bool *is_match)
{
    int len;

    *is_match = class_at(p, end, &len) & U_NEWLINE;
    return (size_t)len;
}

/* [0-9][0-9][0-9] */
static size_t three_digits(const char *p, const char *end, bool *is_match)
{
    int n = 0, len;

    while (n < 3 && p + n < end && p[n] >= '0' && p[n] <= '9')
        n++;
    *is_match = n == 3;
    (void)class_at(p, end, &len);
    return n == 3 ? 3 : (size_t)MAX(n, len);
}

/* [\p{P}\$\+<=>\^~\|]+ */
static size_t punctuation_run(const char *p, const char *end, bool *is_match)
{
    const char *at = p;
    uint16_t class;
    int len = 1;

    while (((class = class_at(at, end, &len)) & U_PUNCT) ||
           (len == 1 && *at && strchr("$+<=>^~|", *at)))
        at += len;
    *is_match = at > p;
    return at > p ? (size_t)(at - p) : (size_t)len;
}

/* \s+$ */
static size_t blanks_at_end(const char *p, const char *end, bool *is_match)
{
    int len;
    const char *at = skip_class(p, end, U_SPACE);

    *is_match = at > p && at == end;
    (void)class_at(p, end, &len);
    /* a match cannot begin inside a run that is not at the end */
    return (size_t)(at > p ? at - p : len);
}

struct code_range {
    uint32_t from, to;
};

struct ranges {
    const struct code_range *r; /* sorted, followed by a sentinel */
    size_t n;
    uint64_t ascii[2]; /* bitmap of the ranges below 128 */
};

static bool in_ranges(uint32_t cp, const struct ranges *s)
{
    size_t lo = 0, n = s->n;

    if (cp < 128)
        return s->ascii[cp >> 6] >> (cp & 63) & 1;
    while (n) { /* the first range that ends at cp or later */
        size_t half = n / 2;
        if (s->r[lo + half].to < cp) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return cp >= s->r[lo].from && cp <= s->r[lo].to;
}

/* \s?[ranges]+, without the \s? if blank is false. The blank may itself be in the ranges. */
static size_t ranged(
    const char *p, const char *end, const struct ranges *s, bool blank, bool *is_match)
{
    const char *at = p;
    uint32_t cp;
    uint16_t class;
    int first = unicode_next(p, end, &cp, &class), len;

    if (blank && (class & U_SPACE) && p + first < end) {
        (void)unicode_next(p + first, end, &cp, &class);
        at = in_ranges(cp, s) ? p + first : p;
    }
    const char *start = at;
    for (; at < end; at += len) {
        len = unicode_next(at, end, &cp, &class);
        if (!in_ranges(cp, s))
            break;
    }
    *is_match = at > start;
    return *is_match ? (size_t)(at - p) : (size_t)first;
}

#define SENTINEL                                                                                   \
    {                                                                                              \
        UINT32_MAX, UINT32_MAX                                                                     \
    }

/* Cased letters as listed in tokenizer.json of the DeepSeek models. */
static const struct code_range cased[] = {
    { 0x41, 0x5A },
    { 0x61, 0x7A },
    { 0xB5, 0xB5 },
    { 0xC0, 0xD6 },
    { 0xD8, 0xF6 },
    { 0xF8, 0x1BA },
    { 0x1BC, 0x1BF },
    { 0x1C4, 0x293 },
    { 0x295, 0x2AF },
    { 0x370, 0x373 },
    { 0x376, 0x377 },
    { 0x37B, 0x37D },
    { 0x37F, 0x37F },
    { 0x386, 0x386 },
    { 0x388, 0x38A },
    { 0x38C, 0x38C },
    { 0x38E, 0x3A1 },
    { 0x3A3, 0x3F5 },
    { 0x3F7, 0x481 },
    { 0x48A, 0x52F },
    { 0x531, 0x556 },
    { 0x10A0, 0x10C5 },
    { 0x13A0, 0x13F5 },
    { 0x13F8, 0x13FD },
    { 0x1C90, 0x1CBA },
    { 0x1CBD, 0x1CBF },
    { 0x1D00, 0x1D2B },
    { 0x1D6B, 0x1D77 },
    { 0x1D79, 0x1D9A },
    { 0x1E00, 0x1F15 },
    { 0x1F18, 0x1F1D },
    { 0x1F20, 0x1F45 },
    { 0x1F48, 0x1F4D },
    { 0x1F50, 0x1F57 },
    { 0x1F59, 0x1F59 },
    { 0x1F5B, 0x1F5B },
    { 0x1F5D, 0x1F5D },
    { 0x1F5F, 0x1F7D },
    { 0x1F80, 0x1FB4 },
    { 0x1FB6, 0x1FBC },
    { 0x1FBE, 0x1FBE },
    { 0x1FC2, 0x1FC4 },
    { 0x1FC6, 0x1FCC },
    { 0x1FD0, 0x1FD3 },
    { 0x1FD6, 0x1FDB },
    { 0x1FE0, 0x1FEC },
    { 0x1FF2, 0x1FF4 },
    { 0x1FF6, 0x1FFC },
    { 0x2102, 0x2102 },
    { 0x2107, 0x2107 },
    { 0x210A, 0x2113 },
    { 0x2115, 0x2115 },
    { 0x2119, 0x211D },
    { 0x2124, 0x2124 },
    { 0x2126, 0x2126 },
    { 0x2128, 0x2128 },
    { 0x212A, 0x212D },
    { 0x212F, 0x2134 },
    { 0x2139, 0x2139 },
    { 0x213C, 0x213F },
    { 0x2145, 0x2149 },
    { 0x214E, 0x214E },
    { 0x2183, 0x2184 },
    { 0x2C00, 0x2C7B },
    { 0x2C7E, 0x2CE4 },
    { 0x2CEB, 0x2CEE },
    { 0x2CF2, 0x2CF3 },
    { 0xA640, 0xA66D },
    { 0xA680, 0xA69B },
    { 0xA722, 0xA76F },
    { 0xA771, 0xA787 },
    { 0xA78B, 0xA78E },
    { 0xAB70, 0xABBF },
    { 0xFB00, 0xFB06 },
    { 0xFB13, 0xFB17 },
    { 0xFF21, 0xFF3A },
    { 0xFF41, 0xFF5A },
    { 0x10400, 0x1044F },
    { 0x104B0, 0x104D3 },
    { 0x104D8, 0x104FB },
    { 0x10C80, 0x10CB2 },
    { 0x10CC0, 0x10CF2 },
    { 0x118A0, 0x118DF },
    { 0x1E900, 0x1E943 },
    SENTINEL,
};

static size_t cased_word(const char *p, const char *end, bool *is_match)
{
    static const struct ranges s = { cased, ARRAY_LEN(cased) - 1, { 0, 0x07FFFFFE07FFFFFE } };

    return ranged(p, end, &s, true, is_match);
}

/* \s?[!-/:-~<fullwidth !-/ and :-~><quotes><ideographic space, comma, stop>]+ */
static size_t cased_punctuation(const char *p, const char *end, bool *is_match)
{
    static const struct code_range r[] = { { 0x21, 0x2F }, { 0x3A, 0x7E }, { 0x2018, 0x201F },
        { 0x3000, 0x3002 }, { 0xFF01, 0xFF0F }, { 0xFF1A, 0xFF5E }, SENTINEL };
    static const struct ranges s = { r, ARRAY_LEN(r) - 1,
        { 0xFC00FFFE00000000, 0x7FFFFFFFFFFFFFFF } };

    return ranged(p, end, &s, true, is_match);
}

/* [\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+ */
static size_t cjk_kana(const char *p, const char *end, bool *is_match)
{
    static const struct code_range r[] = { { 0x3040, 0x30FF }, { 0x4E00, 0x9FA5 }, SENTINEL };
    static const struct ranges s = { r, ARRAY_LEN(r) - 1, { 0, 0 } };

    return ranged(p, end, &s, false, is_match);
}

static size_t cjk(const char *p, const char *end, bool *is_match)
{
    static const struct code_range r[] = { { 0x800, 0x9FA5 }, { 0xAC00, 0xD7FF }, SENTINEL };
    static const struct ranges s = { r, ARRAY_LEN(r) - 1, { 0, 0 } };

    return ranged(p, end, &s, false, is_match);
}

/* \s?\p{L}+ and \s?\p{P}+ */
static size_t after_blank(const char *p, const char *end, uint16_t wanted, bool *is_match)
{
    int first, len;
    uint16_t class = class_at(p, end, &first);
    const char *at = (class & U_SPACE) ? p + first : p;

    *is_match = class_at(at, end, &len) & wanted;
    return *is_match ? (size_t)(skip_class(at + len, end, wanted) - p) : (size_t)first;
}

static size_t letters_after_blank(const char *p, const char *end, bool *is_match)
{
    return after_blank(p, end, U_LETTER, is_match);
}

static size_t puncts_after_blank(const char *p, const char *end, bool *is_match)
{
    return after_blank(p, end, U_PUNCT, is_match);
}

/* [^\n]+|\n+ */
static size_t lines(const char *p, const char *end, bool *is_match)
{
    const char *at = p;

    while (at < end && (*at == '\n') == (*p == '\n'))
        at++;
    *is_match = true;
    return (size_t)(at - p);
}

/* ---- pre-tokenizers by llama.cpp's names, which model files use */

static const struct {
    const char *name;
    struct pretok p;
} pretokenizers[] = {
    { "gpt-2", { { gpt2 } } },
    { "gpt2", { { gpt2 } } },
    { "llama-bpe", { { llama3 }, true, true } },
    { "llama3", { { llama3 }, true, true } },
    { "llama-v3", { { llama3 }, true, true } },
    { "falcon3", { { llama3 }, true, true } },
    { "falcon-h1", { { llama3 }, true, true } },
    { "pixtral", { { llama3 }, true, true } },
    { "lfm2", { { llama3 }, true, true } },
    { "dbrx", { { llama3 } } },
    { "smaug-bpe", { { llama3 } } },
    { "chatglm-bpe", { { llama3 } } },
    { "glm4", { { llama3 }, true, false } },
    { "glm5", { { llama3 }, true, false } },
    { "qwen2", { { qwen2 } } },
    { "qwen35", { { qwen35 } } },
    { "stablelm2", { { qwen2 } } },
    { "megrez", { { qwen2 } } },
    { "tekken", { { tekken }, true, true } },
    { "gemma4", { { lines }, false, true } },
    { "gpt-4o", { { o200k } } },
    { "llama4", { { o200k } } },
    { "minimax-m2", { { o200k } } },
    { "kimi-k2", { { kimi_k2 } } },
    { "deepseek-v3", { { three_numbers, cjk_kana, deepseek_v3_words } } },
    { "hunyuan-dense", { { three_numbers, cjk_kana, deepseek_v3_words } } },
    { "deepseek-r1-qwen", { { qwen2 } } },
    { "deepseek-llm", { { newline, cased_word, cased_punctuation, blanks_at_end, cjk, numbers } } },
    { "deepseek-coder", { { newline, letters_after_blank, puncts_after_blank, cjk, number } } },
    { "phi-2", { { gpt2 } } },
    { "olmo", { { gpt2 } } },
    { "granite-docling", { { gpt2 } } },
    { "smollm", { { number, gpt2 } } },
    { "refact", { { number, gpt2 } } },
    { "command-r", { { number, gpt2 } } },
    { "exaone", { { number, gpt2 } } },
    { "starcoder", { { number, gpt2 } } },
    { "default", { { punctuation_run, gpt2, numbers, three_digits } } },
};

const struct pretok *pretok_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(pretokenizers); i++)
        if (str_is(name, pretokenizers[i].name))
            return &pretokenizers[i].p;
    return NULL;
}

bool pretok_ignores_merges(const struct pretok *p)
{
    return p->ignores_merges;
}

bool pretok_adds_bos(const struct pretok *p)
{
    return p->adds_bos;
}

/* ---- splitting; the recursion depth is the number of stages */

static int split_stage(
    const struct pretok *p, int stage, struct str piece, pretok_fn *fn, void *ctx)
{
    const char *at = piece.p, *end = piece.p + piece.n, *gap = at;
    int rc = 0;

    if (stage == MAX_STAGES || !p->stages[stage])
        return fn(ctx, piece);
    while (at < end && !rc) {
        bool is_match;
        size_t n = p->stages[stage](at, end, &is_match);
        DCHECK(n > 0 && n <= (size_t)(end - at));
        if (is_match && gap < at)
            rc = split_stage(p, stage + 1, (struct str){ gap, (size_t)(at - gap) }, fn, ctx);
        if (is_match && !rc)
            rc = split_stage(p, stage + 1, (struct str){ at, n }, fn, ctx);
        at += n;
        gap = is_match ? at : gap;
    }
    if (gap < end && !rc)
        rc = split_stage(p, stage + 1, (struct str){ gap, (size_t)(end - gap) }, fn, ctx);
    return rc;
}

int pretok_split(const struct pretok *p, struct str text, pretok_fn *fn, void *ctx)
{
    return text.n ? split_stage(p, 0, text, fn, ctx) : 0;
}
