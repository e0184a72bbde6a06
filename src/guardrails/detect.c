#include "guardrails/detect.h"

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alpha(unsigned char c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z';
}

static bool is_alnum(unsigned char c)
{
    return is_digit(c) || is_alpha(c);
}

static unsigned char at(struct str s, size_t i)
{
    return i < s.n ? (unsigned char)s.p[i] : 0;
}

/* The text ends inside what may become a value. */
static enum detect_result more(struct str s, size_t i, bool is_end)
{
    return i >= s.n && !is_end ? DETECT_MORE : DETECT_NONE;
}

/* ---- e-mail: local@label.label, with at least two labels, the last of two or more letters */

static bool is_local(unsigned char c)
{
    return is_alnum(c) || (c && memchr("._%+-", c, 5));
}

static enum detect_result find_email(struct str s, unsigned char before, bool is_end, size_t *n)
{
    enum { LOCAL_MAX = 64 };
    size_t i = 0, end = 0;

    if (is_local(before) || !is_local(at(s, 0)))
        return DETECT_NONE;
    while (i <= LOCAL_MAX && is_local(at(s, i)))
        i++;
    if (i > LOCAL_MAX || at(s, i) != '@')
        return more(s, i, is_end);
    for (i++; i < s.n;) { /* labels */
        size_t start = i;
        bool is_name = true;
        for (; is_alnum(at(s, i)) || at(s, i) == '-'; i++)
            is_name = is_name && is_alpha(at(s, i));
        if (i == start)
            break;
        bool is_top = at(s, start - 1) == '.' && is_name && i - start >= 2;
        end = is_top ? i : end;
        if (at(s, i) != '.')
            break;
        i++;
    }
    if (i >= s.n && !is_end)
        return DETECT_MORE;
    *n = end;
    return end ? DETECT_FOUND : DETECT_NONE;
}

/* ---- card numbers: 13 to 19 digits, single spaces or hyphens between them */

static bool is_luhn(const unsigned char *digits, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++) {
        int d = digits[n - 1 - i];
        sum += i % 2 ? 2 * d - (d > 4 ? 9 : 0) : d;
    }
    return sum % 10 == 0;
}

static enum detect_result find_card(struct str s, unsigned char before, bool is_end, size_t *n)
{
    enum { MIN_DIGITS = 13, MAX_DIGITS = 19 };
    unsigned char digits[MAX_DIGITS];
    int count = 0;
    size_t i = 0;

    /* Issuers' numbers begin with 2 to 6. */
    if (is_alnum(before) || at(s, 0) < '2' || at(s, 0) > '6')
        return DETECT_NONE;
    *n = 0;
    for (;; i++) {
        bool is_separator = i > 0 && (at(s, i) == ' ' || at(s, i) == '-') && is_digit(at(s, i - 1));
        if (is_digit(at(s, i)) && count < MAX_DIGITS)
            digits[count++] = (unsigned char)(at(s, i) - '0');
        else if (!is_separator)
            break;
        bool is_group = is_digit(at(s, i)) && !is_alnum(at(s, i + 1)) && (i + 1 < s.n || is_end);
        if (count >= MIN_DIGITS && is_group && is_luhn(digits, count))
            *n = i + 1;
    }
    if (i >= s.n && !is_end)
        return DETECT_MORE;
    return *n ? DETECT_FOUND : DETECT_NONE;
}

/* ---- IBAN: the registry's length for the country, spaces between groups, mod 97 */

static int iban_length(unsigned char a, unsigned char b)
{
    static const char lengths[] =
        "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29"
        "ES24FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20LB28"
        "LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29PT25"
        "QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20"
        "YE30";

    a &= 0xdf, b &= 0xdf; /* upper case */
    for (size_t i = 0; i + 4 < sizeof(lengths); i += 4)
        if (lengths[i] == a && lengths[i + 1] == b)
            return (lengths[i + 2] - '0') * 10 + lengths[i + 3] - '0';
    return 0;
}

static unsigned add_mod97(unsigned rest, unsigned char c)
{
    if (is_digit(c))
        return (rest * 10 + c - '0') % 97;
    return (rest * 100 + (c | 32) - 'a' + 10u) % 97;
}

static enum detect_result find_iban(struct str s, unsigned char before, bool is_end, size_t *n)
{
    unsigned char text[40];
    int count = 0;
    size_t i = 0;

    if (is_alnum(before) || !is_alpha(at(s, 0)))
        return DETECT_NONE;
    if (s.n < 2)
        return more(s, 2, is_end);
    int length = is_alpha(at(s, 1)) ? iban_length(at(s, 0), at(s, 1)) : 0;
    for (; count < length; i++) {
        unsigned char c = at(s, i);
        bool is_space = c == ' ' && i > 0 && is_alnum(at(s, i - 1));
        if (!is_alnum(c) && !is_space)
            return more(s, i, is_end);
        if (count >= 2 && count < 4 && !is_space && !is_digit(c))
            return DETECT_NONE;
        if (!is_space)
            text[count++] = c;
    }
    if (!length || is_alnum(at(s, i)))
        return DETECT_NONE;
    if (i >= s.n && !is_end)
        return DETECT_MORE;
    unsigned rest = 0;
    for (int k = 0; k < length; k++)
        rest = add_mod97(rest, text[(k + 4) % length]);
    *n = i;
    return rest == 1 ? DETECT_FOUND : DETECT_NONE;
}

/* ---- secret keys */

enum charset { UPPER_DIGITS, ALNUM, WORD, TOKEN, DOTTED, BASE64 };

static bool in_charset(enum charset set, unsigned char c)
{
    switch (set) {
    case UPPER_DIGITS:
        return is_digit(c) || (c >= 'A' && c <= 'Z');
    case ALNUM:
        return is_alnum(c);
    case WORD:
        return is_alnum(c) || c == '_';
    case TOKEN:
        return is_alnum(c) || c == '_' || c == '-';
    case DOTTED:
        return is_alnum(c) || c == '_' || c == '-' || c == '.';
    case BASE64:
        return is_alnum(c) || c == '/' || c == '+' || c == '=';
    }
    return false;
}

/* Prefix, then at least `min` characters of the set. Sources: the documents of the issuers. */
static const struct secret {
    const char *prefix;
    enum charset set;
    size_t min;
} secrets[] = {
    { "AKIA", UPPER_DIGITS, 16 }, /* AWS: access key ids */
    { "ASIA", UPPER_DIGITS, 16 },
    { "ABIA", UPPER_DIGITS, 16 },
    { "ACCA", UPPER_DIGITS, 16 },
    { "aws_secret_access_key=", BASE64, 40 }, /* AWS: secret keys in files and shells */
    { "aws_secret_access_key = ", BASE64, 40 },
    { "AWS_SECRET_ACCESS_KEY=", BASE64, 40 },
    { "ghp_", ALNUM, 36 }, /* GitHub */
    { "gho_", ALNUM, 36 },
    { "ghu_", ALNUM, 36 },
    { "ghs_", ALNUM, 36 },
    { "ghr_", ALNUM, 36 },
    { "github_pat_", WORD, 22 },
    { "glpat-", TOKEN, 20 }, /* GitLab */
    { "xoxb-", TOKEN, 10 },  /* Slack */
    { "xoxp-", TOKEN, 10 },
    { "xoxa-", TOKEN, 10 },
    { "xoxr-", TOKEN, 10 },
    { "xoxs-", TOKEN, 10 },
    { "xoxe-", TOKEN, 10 },
    { "xapp-", TOKEN, 10 },
    { "https://hooks.slack.com/services/", BASE64, 20 },
    { "AIza", TOKEN, 35 }, /* Google */
    { "ya29.", TOKEN, 20 },
    { "GOCSPX-", TOKEN, 28 },
    { "sk_live_", ALNUM, 16 }, /* Stripe */
    { "sk_test_", ALNUM, 16 },
    { "rk_live_", ALNUM, 16 },
    { "rk_test_", ALNUM, 16 },
    { "whsec_", BASE64, 24 },
    { "sk-ant-", TOKEN, 20 },  /* Anthropic */
    { "sk-proj-", TOKEN, 20 }, /* OpenAI */
    { "sk-svcacct-", TOKEN, 20 },
    { "sk-admin-", TOKEN, 20 },
    { "sk-", ALNUM, 32 },
    { "hf_", ALNUM, 34 }, /* Hugging Face */
    { "npm_", ALNUM, 36 },
};

static enum detect_result find_prefixed(
    const struct secret *k, struct str s, bool is_end, size_t *n)
{
    struct str prefix = str_of(k->prefix);
    size_t i = MIN(prefix.n, s.n);

    if (memcmp(s.p, prefix.p, i))
        return DETECT_NONE;
    for (; i < s.n && i < prefix.n + k->min; i++)
        if (!in_charset(k->set, at(s, i)))
            return DETECT_NONE;
    *n = i;
    return i == prefix.n + k->min ? DETECT_FOUND : more(s, i, is_end);
}

/* A JSON Web Token: header.claims, both beginning with '{"' in Base64; what follows is its tail. */
static enum detect_result find_jwt(struct str s, bool is_end, size_t *n)
{
    size_t i = 0;

    for (int part = 0; part < 2; part++) {
        for (size_t k = 0; k < 3; k++, i++)
            if (at(s, i) != (unsigned char)"eyJ"[k])
                return more(s, i, is_end);
        size_t start = i;
        while (part == 0 && in_charset(TOKEN, at(s, i)))
            i++;
        if (part == 0 && (i - start < 8 || at(s, i++) != '.'))
            return more(s, i, is_end);
    }
    *n = i;
    return DETECT_FOUND;
}

/* "-----BEGIN ... PRIVATE KEY-----"; at the end of a block `word` is "END". */
static enum detect_result find_key_line(struct str s, const char *word, bool is_end, size_t *n)
{
    static const char key[] = "PRIVATE KEY";
    enum { LABEL_MAX = 40, DASHES = 5 };
    size_t i = 0, n_word = strlen(word), n_key = sizeof(key) - 1;

    for (; i < DASHES + n_word + 1; i++) {
        char c = i < DASHES ? '-' : i < DASHES + n_word ? word[i - DASHES] : ' ';
        if (at(s, i) != (unsigned char)c)
            return more(s, i, is_end);
    }
    size_t start = i;
    while (i - start < LABEL_MAX && (in_charset(UPPER_DIGITS, at(s, i)) || at(s, i) == ' '))
        i++;
    if (i >= s.n)
        return more(s, i, is_end);
    bool has_key = i - start >= n_key && !memcmp(s.p + i - n_key, key, n_key);
    /* "PRIVATE KEY BLOCK" of PGP */
    static const char block[] = "PRIVATE KEY BLOCK";
    has_key |= i - start >= sizeof(block) - 1 &&
               !memcmp(s.p + i - (sizeof(block) - 1), block, sizeof(block) - 1);
    for (size_t k = 0; has_key && k < DASHES; k++, i++)
        if (at(s, i) != '-')
            return more(s, i, is_end);
    *n = i;
    return has_key ? DETECT_FOUND : DETECT_NONE;
}

static enum detect_result find_secret(
    struct str s, unsigned char before, bool is_end, size_t *n, enum detect_tail *tail)
{
    bool is_waiting = false;

    if (at(s, 0) == '-') {
        *tail = TAIL_KEY_BLOCK;
        return find_key_line(s, "BEGIN", is_end, n);
    }
    if (is_alnum(before) || before == '_')
        return DETECT_NONE;
    *tail = TAIL_TOKEN;
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
        if (secrets[i].prefix[0] != s.p[0])
            continue;
        enum detect_result r = find_prefixed(&secrets[i], s, is_end, n);
        if (r == DETECT_FOUND)
            return r;
        is_waiting |= r == DETECT_MORE;
    }
    enum detect_result r = at(s, 0) == 'e' ? find_jwt(s, is_end, n) : DETECT_NONE;
    return r == DETECT_NONE && is_waiting ? DETECT_MORE : r;
}

enum detect_result detect(enum guard_detector d, struct str s, unsigned char before, bool is_end,
    size_t *n, enum detect_tail *tail)
{
    *tail = TAIL_NONE;
    if (!s.n)
        return more(s, 0, is_end);
    switch (d) {
    case DETECT_EMAIL:
        return find_email(s, before, is_end, n);
    case DETECT_CARD:
        return find_card(s, before, is_end, n);
    case DETECT_IBAN:
        return find_iban(s, before, is_end, n);
    case DETECT_SECRET:
        return find_secret(s, before, is_end, n, tail);
    case N_GUARD_DETECTORS:
        break;
    }
    return DETECT_NONE;
}

size_t detect_tail(enum detect_tail *tail, struct str s, bool is_end)
{
    size_t i = 0, n_end = 0;

    if (*tail == TAIL_TOKEN) {
        while (i < s.n && (in_charset(DOTTED, at(s, i)) || in_charset(BASE64, at(s, i))))
            i++;
        if (i < s.n)
            *tail = TAIL_NONE;
        return i;
    }
    for (; i < s.n; i++) {
        unsigned char c = at(s, i);
        struct str rest = { s.p + i, MIN(s.n - i, (size_t)DETECT_WINDOW) };
        bool is_whole = is_end || rest.n == DETECT_WINDOW;
        enum detect_result r =
            c == '-' ? find_key_line(rest, "END", is_whole, &n_end) : DETECT_NONE;
        if (r == DETECT_MORE)
            return i;
        bool belongs = in_charset(BASE64, c) || (c && memchr(" -\r\n\t:,.\\", c, 9));
        if (r == DETECT_FOUND || !belongs) {
            *tail = TAIL_NONE;
            return r == DETECT_FOUND ? i + n_end : i;
        }
    }
    return i;
}
