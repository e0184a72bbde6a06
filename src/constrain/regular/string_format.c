#include "constrain/regular/string_format.h"

#include "base/buf.h"
#include "constrain/regular/pattern.h"

/* ---- RFC 3339 */

/* February 29 exists in years divisible by 4, except by 100, unless by 400. */
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"                                    \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define HOUR           "(?:[01]\\d|2[0-3])"
#define MINUTE         "[0-5]\\d"
#define TIME           HOUR ":" MINUTE ":" MINUTE "(?:\\.\\d+)?(?:[Zz]|[+-]" HOUR ":" MINUTE ")"
#define DURATION_TIME  "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define DURATION_MONTH "\\d+M(?:\\d+D)?"
#define DURATION                                                                                   \
    "P(?:(?:\\d+D|" DURATION_MONTH "|\\d+Y(?:" DURATION_MONTH ")?)(?:" DURATION_TIME               \
    ")?|" DURATION_TIME "|\\d+W)"

/* ---- host names and addresses */

#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  OCTET "(?:\\." OCTET "){3}"
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(?:" H16 ":" H16 "|" IPV4 ")"
#define H(n)  "(?:" H16 ":){" #n "}"
#define TO(n) "(?:(?:" H16 ":){0," #n "}" H16 ")?::"
/* RFC 3986, section 3.2.2 */
#define IPV6                                                                                       \
    "(?:" H(6) LS32 "|::" H(5) LS32 "|" TO(0) H(4) LS32 "|" TO(1) H(3) LS32 "|" TO(2) H(2) LS32    \
        "|" TO(3) H16 ":" LS32 "|" TO(4) LS32 "|" TO(5) H16 "|" TO(6) ")"
/* A label with `--` in the third place is reserved (RFC 5890, 2.3.1), for example for Punycode. */
#define LABEL    "(?!..--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOSTNAME "(?=.{1,253}$)" LABEL "(?:\\." LABEL ")*"
/* Labels of IDNA 2008 (RFC 5892): characters that are valid (PVALID) in names from left to right,
 * namely lower-case Latin, Greek and Cyrillic, Hangul syllables, Han, Hiragana, Katakana, some
 * Devanagari; and characters that need a context (appendix A): the middle dot between two l, keraia
 * before Greek, the katakana middle dot with kana or Han, joiners after virama. A label of at most
 * 11 characters has at most 63 octets as A-label: 4 for `xn--`, 5 for each. */
#define KANA       "\\u3007\\u3400-\\u4dbf\\u4e00-\\u9fff\\u3041-\\u3096\\u30a1-\\u30fa"
#define DEVANAGARI "[\\u0905-\\u0939]"
#define IDN_CHARACTER                                                                              \
    "(?:[a-km-z0-9\\u00df-\\u00f6\\u00f8-\\u00ff\\u03ac-\\u03ce\\u0430-\\u045f\\u0f0b\\u30fc"      \
    "\\uac00-\\ud7a3" KANA "]|l(?:\\u00b7l)*|\\u0375[\\u03ac-\\u03ce]|" DEVANAGARI                 \
    "(?:\\u094d[\\u200c\\u200d]?" DEVANAGARI ")*)"
#define IDN_DOT    "(?:" IDN_CHARACTER "|\\u30fb)"
#define IDN_NO_DOT "[^.\\u3002\\uff0e\\uff61]"
#define IDN_LABEL                                                                                  \
    "(?:" LABEL "|(?!..--)(?=" IDN_NO_DOT "{1,11}(?!" IDN_NO_DOT "))(?:" IDN_CHARACTER             \
    "(?:-*" IDN_CHARACTER ")*|(?=" IDN_NO_DOT "*[" KANA "])" IDN_DOT "(?:-*" IDN_DOT ")*))"
/* A name from right to left is one label, for which RFC 5893 holds: letters first, no digits of
 * other kinds. ZERO WIDTH NON-JOINER is between two letters that join on both sides. Extended
 * Arabic-Indic digits are a label by themselves. */
#define ARABIC "\\u0621-\\u063a\\u0641-\\u064a\\u06fd\\u06fe"
#define DUAL   "[\\u0626\\u0628\\u062a-\\u062e\\u0633-\\u063a\\u0641-\\u0647\\u064a]"
#define IDN_RTL                                                                                    \
    "(?=.{1,11}$)(?:[\\u05d0-\\u05ea][\\u05d0-\\u05ea\\u05f3\\u05f4]*|(?:[" ARABIC "]|" DUAL       \
    "(?:\\u200c" DUAL ")+)(?:[" ARABIC "\\u0660-\\u0669]|" DUAL "(?:\\u200c" DUAL                  \
    ")+)*|[\\u06f0-\\u06f9][0-9\\u06f0-\\u06f9]*)"
/* 253 octets: a character becomes at most 5 */
#define IDN_HOSTNAME                                                                               \
    "(?:(?=[ -~]{1,253}$|.{1,50}$)" IDN_LABEL "(?:[.\\u3002\\uff0e\\uff61]" IDN_LABEL              \
    ")*|" IDN_RTL ")"

#define ATEXT  "A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-"
#define DOMAIN "(?:" LABEL "(?:\\." LABEL ")*|\\[(?:" IPV4 "|IPv6:" IPV6 ")\\])"
#define MAILBOX(more)                                                                              \
    "(?=[^@]{1,64}@[^@]{1,189}$)(?:[" ATEXT more "]+(?:\\.[" ATEXT more                            \
    "]+)*|\"(?:[ !#-?A-\\[\\]-~" more "]|\\\\[ -?A-~])*\")@"

/* ---- RFC 3986, 3987, 6570 */

#define UCS                                                                                        \
    "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"      \
    "\\u{30000}-\\u{3fffd}\\u{e1000}-\\u{efffd}"
#define IPRIVATE    "\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}"
#define PCT         "%[0-9A-Fa-f]{2}"
#define PLAIN       "A-Za-z0-9._~!$&'()*+,;=\\-"
#define PCHAR(more) "(?:[" PLAIN ":@" more "]|" PCT ")"
#define AUTHORITY(more)                                                                            \
    "(?:(?:[" PLAIN ":" more "]|" PCT ")*@)?(?:\\[(?:" IPV6 "|[vV][0-9A-Fa-f]+\\.[" PLAIN          \
    ":]+)\\]|(?:[" PLAIN more "]|" PCT ")*)(?::\\d*)?"
#define SEGMENTS(more) "(?:/" PCHAR(more) "*)*"
#define QUERY(more, private)                                                                       \
    "(?:\\?(?:[/?" private "]|" PCHAR(more) ")*)?(?:#(?:[/?]|" PCHAR(more) ")*)?"
#define PATHS(more, first)                                                                         \
    "(?://" AUTHORITY(more) SEGMENTS(more) "|/(?:" PCHAR(more) "+" SEGMENTS(more) ")?|" first      \
    SEGMENTS(more) "|)"
#define URI(more, private)                                                                         \
    "[A-Za-z][A-Za-z0-9+.-]*:" PATHS(more, PCHAR(more) "+") QUERY(more, private)
#define RELATIVE(more, private)                                                                    \
    PATHS(more, "(?:[" PLAIN "@" more "]|" PCT ")+") QUERY(more, private)
#define VARNAME "(?:[A-Za-z0-9_]|" PCT ")(?:\\.?(?:[A-Za-z0-9_]|" PCT "))*"
#define VARSPEC VARNAME "(?::[1-9]\\d{0,3}|\\*)?"
#define URI_TEMPLATE                                                                               \
    "(?:[!#$&-;=?-\\[\\]_a-z~" UCS IPRIVATE "]|" PCT "|\\{[+#./;?&]?" VARSPEC "(?:," VARSPEC       \
    ")*\\})*"
#define POINTER "(?:/(?:[^/~]|~[01])*)*"

/* ---- patterns */

#define RE_CLASS                                                                                   \
    "\\[\\^?(?:a-z|A-Z|0-9|[^\\\\\\[\\]^-]|\\\\[dDwWsSnrtfv\\\\.*+?^${}()|\\[\\]/-])*\\]"
#define RE_COUNT "(?:(?:[*+?]|\\{\\d{1,3},?\\})[?]?)?"
#define RE_ATOM                                                                                    \
    "(?:[^\\\\\\[\\](){}|*+?^$]|\\\\(?:[dDwWsSnrtfv\\\\.*+?^${}()|\\[\\]/]|c[A-Za-z])|" RE_CLASS ")"
#define RE_0            "(?:" RE_ATOM RE_COUNT "|[\\^$|])*"
#define RE_GROUP(inner) "(?:\\((?:\\?:)?" inner "\\)" RE_COUNT "|\\(\\?[=!]" inner "\\))"
#define RE_1            "(?:" RE_ATOM RE_COUNT "|[\\^$|]|" RE_GROUP(RE_0) ")*"
#define RE_2            "(?:" RE_ATOM RE_COUNT "|[\\^$|]|" RE_GROUP(RE_1) ")*"

static const struct {
    const char *name;
    const char *pattern;
    const char *or_before_leap; /* an alternative: this text, then a time with a leap second */
} formats[] = {
    { "date-time", DATE "[Tt]" TIME, DATE "[Tt]" },
    { "date", DATE, NULL },
    { "time", TIME, "" },
    { "duration", DURATION, NULL },
    { "email", MAILBOX("") DOMAIN, NULL },
    { "idn-email",
        MAILBOX("\\u0080-\\u{10ffff}") "(?:" IDN_LABEL "(?:\\." IDN_LABEL ")*|\\[(?:" IPV4
                                       "|IPv6:" IPV6 ")\\])",
        NULL },
    { "hostname", HOSTNAME, NULL },
    { "idn-hostname", IDN_HOSTNAME, NULL },
    { "ipv4", IPV4, NULL },
    { "ipv6", IPV6, NULL },
    { "uri", URI("", ""), NULL },
    { "uri-reference", "(?:" URI("", "") "|" RELATIVE("", "") ")", NULL },
    { "iri", URI(UCS, IPRIVATE), NULL },
    { "iri-reference", "(?:" URI(UCS, IPRIVATE) "|" RELATIVE(UCS, IPRIVATE) ")", NULL },
    { "uri-template", URI_TEMPLATE, NULL },
    { "uuid", "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", NULL },
    { "json-pointer", POINTER, NULL },
    { "relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" POINTER ")", NULL },
    { "regex", RE_2, NULL },
    { "byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", NULL },
};

static const size_t NOT_FOUND = ARRAY_LEN(formats);

static size_t find_format(struct str name)
{
    size_t k = 0;

    while (k < ARRAY_LEN(formats) && !str_is(name, formats[k].name))
        k++;
    return k;
}

bool string_format_is_known(struct str name)
{
    return find_format(name) != NOT_FOUND;
}

/* ---- leap seconds */

/* Writes an alternative per hour or minute: local, sign and offset of times that are 23:59:60 UTC.
 * `n` is 24 or 60; the offset is local + shift, or shift - local. */
static void put_relation(struct buf *b, int n, bool is_hour, char sign, int shift)
{
    for (int local = 0; local < n; local++) {
        int offset = sign == '+' ? local + shift : shift - local;
        if (!is_hour && offset >= n) /* minute 59 with offset +xx:00 is another case */
            continue;
        buf_printf(b, is_hour ? "%s%02d:..:60[.\\d]*[%c]%02d:" : "%s..:%02d:60[.\\d]*[%c]..:%02d",
            local ? "|" : "(?=", local, sign, offset % n);
    }
    buf_putz(b, ")");
}

/* The offset hh:mm of a local time HH:MM:60 satisfies HH:MM = 23:59 + hh:mm, or 23:59 - hh:mm for a
 * negative offset:
 *
 *     +hh:00   HH = hh - 1, MM = 59        +hh:mm   HH = hh, MM = mm - 1
 *     -hh:mm   HH = 23 - hh, MM = 59 - mm                                   */
static void put_leap_seconds(struct buf *b)
{
    static const char any[] = HOUR ":" MINUTE ":60(?:\\.\\d+)?[+-]" HOUR ":" MINUTE;

    buf_putz(b, "(?:23:59:60(?:\\.\\d+)?[Zz]|");
    put_relation(b, 24, true, '+', 1);
    buf_putz(b, "(?=..:59:60[.\\d]*[+]..:00)");
    buf_printf(b, "%s|", any);
    put_relation(b, 24, true, '+', 0);
    put_relation(b, 60, false, '+', 1);
    buf_printf(b, "%s|", any);
    put_relation(b, 24, true, '-', 23);
    put_relation(b, 60, false, '-', 59);
    buf_printf(b, "%s)", any);
}

int string_format_compile(
    struct exprs *x, struct str name, enum text_mode mode, expr_id *out, struct err *e)
{
    size_t k = find_format(name);
    expr_id leap = EXPR_NONE;
    struct buf b;
    int rc = 0;

    CHECK(k != NOT_FOUND);
    buf_init(&b, 64 * KB);
    if (formats[k].or_before_leap) {
        buf_putz(&b, formats[k].or_before_leap);
        put_leap_seconds(&b);
        rc = buf_ok(&b) ? pattern_compile(x, buf_str(&b), mode, PATTERN_FULL, &leap, e)
                        : err_set(e, ERR_MEMORY, "no memory for a string format");
    }
    buf_clear(&b);
    if (!rc)
        rc = pattern_compile(x, str_of(formats[k].pattern), mode, PATTERN_FULL, out, e);
    if (!rc)
        *out = expr_or(x, *out, leap);
    return rc ? err_wrap(e, "format " STR_FMT, STR_ARG(name)) : exprs_check(x, e);
}
