/* Guardrails over texts in pieces: compared with the definition of scan.h for words, and with the
 * text in one piece for patterns and detectors. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "guardrails/fold.h"
#include "guardrails/scan.h"
#include "support/check.h"

static const struct guardrails *make(const char *const *jsons, int n)
{
    const struct guard_set *sets[GUARD_SETS_MAX];
    struct guardrails *g = NULL;
    struct err e;

    for (int i = 0; i < n; i++) {
        struct guard_set *s = NULL;
        char name[8];
        snprintf(name, sizeof(name), "s%d", i);
        if (guard_set_parse(&s, str_of(name), str_of(jsons[i]), &e))
            fail_msg("%s", e.msg);
        sets[i] = s;
    }
    if (guardrails_new(&g, sets, n, &e))
        fail_msg("%s", e.msg);
    return g;
}

struct result {
    struct buf text;
    int n_hits;
};

static void on_text(void *ctx, struct str raw)
{
    struct result *r = ctx;

    buf_puts(&r->text, raw);
}

static void on_hit(void *ctx, const struct guard_hit *hit)
{
    struct result *r = ctx;

    EXPECT(hit->end > hit->begin);
    r->n_hits++;
}

/* cut(i): a piece ends before byte i. Returns whether the text was blocked. */
static bool scan(struct result *out, const struct guardrails *g, struct str text, uint64_t cuts)
{
    struct guard_scan s;
    struct err e;
    size_t from = 0;

    EXPECT(!guard_scan_init(&s, g, UINT64_MAX, &e));
    buf_init(&out->text, MB);
    out->n_hits = 0;
    s.on_text = on_text;
    s.on_hit = on_hit;
    s.ctx = out;
    for (size_t i = 1; i <= text.n; i++) {
        bool is_inside = i < text.n && ((unsigned char)text.p[i] & 0xC0) == 0x80;
        if (is_inside || (i < text.n && !(cuts >> i % 64 & 1)))
            continue;
        guard_scan_put(&s, (struct str){ text.p + from, i - from });
        EXPECT(s.is_blocked || s.chars.n / 7 <= GUARD_SPAN_MAX + 8);
        from = i;
    }
    guard_scan_end(&s);
    EXPECT(!s.has_failed);
    bool is_blocked = s.is_blocked;
    guard_scan_clear(&s);
    return is_blocked;
}

static void expect(const struct guardrails *g, const char *text, const char *want, bool want_block)
{
    for (int round = 0; round < 66; round++) {
        struct result r;
        uint64_t cuts = round == 0 ? 0 : round == 1 ? UINT64_MAX : UINT64_C(1) << (round - 2);
        bool is_blocked = scan(&r, g, str_of(text), cuts);
        if (!str_is(buf_str(&r.text), want) || is_blocked != want_block)
            fail_msg("'%s': '%.*s', blocked %d, cuts %d; wanted '%s'", text,
                STR_ARG(buf_str(&r.text)), is_blocked, round, want);
        buf_clear(&r.text);
    }
}

/* ---- definition for blocklists */

struct entry {
    const char *text;
    bool is_block, is_whole;
};

/* Positions of characters and their folded forms. */
struct folded {
    char bytes[64][8];
    size_t n[64], at[65];
    bool is_word[64];
    int count;
};

static void fold_all(struct folded *f, struct str text)
{
    uint32_t cp;

    f->count = 0;
    for (size_t at = 0; at < text.n; f->count++) {
        int len = utf8_decode(str_skip(text, at), &cp);
        char to[FOLD_BYTES_MAX];
        f->n[f->count] = fold_char(cp, to);
        memcpy(f->bytes[f->count], to, MIN(f->n[f->count], (size_t)8));
        f->is_word[f->count] = fold_is_word(cp);
        f->at[f->count] = at;
        at += (size_t)len;
        f->at[f->count + 1] = at;
    }
}

static bool matches(const struct folded *f, int from, int to, struct str entry)
{
    char all[512];
    size_t n = 0;

    for (int i = from; i < to; i++) {
        memcpy(all + n, f->bytes[i], f->n[i]);
        n += f->n[i];
    }
    return n && str_eq((struct str){ all, n }, entry) && f->n[from] && f->n[to - 1];
}

static void define(
    struct buf *out, bool *is_blocked, struct str text, const struct entry *entries, int n_entries)
{
    struct folded f;
    bool covered[64] = { false };
    int block = 64;

    fold_all(&f, text);
    for (int k = 0; k < n_entries; k++)
        for (int from = 0; from < f.count; from++)
            for (int to = from + 1; to <= f.count; to++) {
                bool is_bounded =
                    !(from && f.is_word[from - 1]) && !(to < f.count && f.is_word[to]);
                if (!matches(&f, from, to, str_of(entries[k].text)) ||
                    (entries[k].is_whole && !is_bounded))
                    continue;
                if (entries[k].is_block)
                    block = MIN(block, from);
                for (int i = from; !entries[k].is_block && i < to; i++)
                    covered[i] = true;
            }
    *is_blocked = block < 64;
    buf_init(out, MB);
    for (int i = 0; i < f.count && i < block; i++) {
        if (!covered[i])
            buf_put(out, text.p + f.at[i], f.at[i + 1] - f.at[i]);
        else if (!i || !covered[i - 1])
            buf_putz(out, GUARD_MARKER);
    }
}

static void words_agree_with_the_definition_on_random_texts(void)
{
    /* folded, as the definition compares them */
    static const struct entry entries[] = { { "ab", false, false }, { "abba", false, false },
        { "b\xC3\xA9", false, false }, { "ss", false, false }, { "a", false, true },
        { "cab", false, true }, { "bbc", true, false }, { "cc", true, true } };
    static const char *const sets[] = {
        "{\"action\":\"redact\",\"blocklist\":[\"aB\",\"abba\",\"ss\"]}",
        "{\"action\":\"redact\",\"whole_words\":true,\"blocklist\":[\"a\",\"Cab\"]}",
        "{\"action\":\"block\",\"blocklist\":[\"BBC\"]}",
        "{\"action\":\"block\",\"whole_words\":true,\"blocklist\":[\"cc\"]}",
    };
    static const char *const letters[] = { "a", "B", "b", "A", "c", "s", "\xC3\x9F", "-", " ",
        "\xEF\xBD\x81", "\xE2\x80\x8B" }; /* sharp s, full-width a, zero-width space */
    enum { SEED = 11 };
    int rounds = 20000;
    const struct guardrails *g = make(sets, ARRAY_LEN(sets));
    uint64_t x = SEED;
    int n_blocked = 0, n_redacted = 0;

    printf("seed %d\n", SEED);
#ifdef __SANITIZE_ADDRESS__
    rounds = 3000;
#endif
    for (int round = 0; round < rounds; round++) {
        struct buf text, want;
        struct result got;
        bool must_block;
        buf_init(&text, MB);
        for (int i = 0; i < 14; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            buf_putz(&text, letters[(x >> 40) % ARRAY_LEN(letters)]);
        }
        define(&want, &must_block, buf_str(&text), entries, ARRAY_LEN(entries));
        for (int k = 0; k < 4; k++) {
            uint64_t cuts = k == 0 ? 0 : k == 1 ? UINT64_MAX : x >> (k * 3);
            bool is_blocked = scan(&got, g, buf_str(&text), cuts);
            if (!str_eq(buf_str(&got.text), buf_str(&want)) || is_blocked != must_block)
                fail_msg("round %d '%.*s': '%.*s' (%d), wanted '%.*s' (%d)", round,
                    STR_ARG(buf_str(&text)), STR_ARG(buf_str(&got.text)), is_blocked,
                    STR_ARG(buf_str(&want)), must_block);
            buf_clear(&got.text);
        }
        n_blocked += must_block;
        n_redacted += str_find(buf_str(&want), STR("[")) >= 0;
        buf_clear(&want);
        buf_clear(&text);
    }
    EXPECT(n_blocked > rounds / 20 && n_redacted > rounds / 4);
    guardrails_unref(g);
}

static void patterns_do_not_depend_on_the_pieces(void)
{
    static const char *const sets[] = {
        "{\"action\":\"redact\",\"patterns\":[\"\\\\bACME-\\\\d{3}\\\\b\",\"ab+?c\",\"(?<=x)y+\","
        "\"^start\",\"end$\",\"foo(?!bar)\",\"(?i)stra\xC3\x9F"
        "e\",\"q*\"]}",
    };
    const struct guardrails *g = make(sets, 1);

    expect(g, "an ACME-123 and ACME-1234", "an [redacted] and ACME-1234", false);
    expect(g, "abbbbbc abbb", "[redacted] abbb", false);
    expect(g, "yy xyyyz", "yy x[redacted]z", false);
    expect(g, "start start end end", "[redacted] start end [redacted]", false);
    expect(g, "foobar foobaz foo", "foobar [redacted]baz [redacted]", false);
    expect(g,
        "STRA\xC3\x9F"
        "E \xE2\x82\xAC",
        "[redacted] \xE2\x82\xAC", false);
    expect(g, "xqqqq.", "x[redacted].", false);
    guardrails_unref(g);
}

/* A match that needs more than the window, and one whose search exceeds the limits. */
static void windows_and_limits_bound_a_pattern(void)
{
    static const char *const sets[] = { "{\"action\":\"redact\",\"patterns\":[\"<[^>]*>\"]}" };
    static const char *const slow[] = { "{\"action\":\"redact\","
                                        "\"patterns\":[\"(a|aa|aaa)+[!?]\"]}" };
    const struct guardrails *g = make(sets, 1), *h = make(slow, 1);
    struct buf text;
    struct result r;

    buf_init(&text, MB);
    for (int cut = 0; cut < 2; cut++) {
        buf_reset(&text);
        buf_putz(&text, "<");
        for (int i = 0; i < 254; i++)
            buf_putc(&text, 'a');
        buf_putz(&text, cut ? "a>" : ">");
        for (int pieces = 0; pieces < 2; pieces++) {
            EXPECT(!scan(&r, g, buf_str(&text), pieces ? UINT64_MAX : 0));
            EXPECT(cut ? str_eq(buf_str(&r.text), buf_str(&text))
                       : str_is(buf_str(&r.text), GUARD_MARKER));
            buf_clear(&r.text);
        }
    }
    buf_reset(&text);
    for (int i = 0; i < 300; i++)
        buf_putc(&text, 'a');
    EXPECT(!scan(&r, h, buf_str(&text), 0) && r.n_hits > 0);
    struct result one;
    EXPECT(!scan(&one, h, buf_str(&text), UINT64_MAX));
    EXPECT(str_eq(buf_str(&r.text), buf_str(&one.text)));
    buf_clear(&r.text);
    buf_clear(&one.text);
    buf_clear(&text);
    guardrails_unref(g);
    guardrails_unref(h);
}

static void detectors_find_their_values(void)
{
    static const char *const sets[] = { "{\"action\":\"redact\",\"detectors\":[\"email\",\"card\","
                                        "\"iban\",\"secret\"]}" };
    static const char *const hidden[] = {
        "ann.lee+x@mail.example.co.uk",
        "4111 1111 1111 1111",
        "5500005555555559",
        "3782-822463-10005",
        "DE89370400440532013000",
        "GB82 WEST 1234 5698 7654 32",
        "de89 3704 0044 0532 0130 00",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
        "xoxb-123456789012-abcdefABCDEF",
        "AIzaSyA0123456789abcdefghijklmnopqrstuv",
        "sk_live_0123456789abcdefABCDEF",
        "sk-ant-api03-0123456789_abcdefghij-XYZ",
        "sk-proj-0123456789abcdefghijABCDEFGHIJ0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "-----BEGIN RSA PRIVATE "
        "KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MbzYLdZ7\n"
        "ZvVy7F7V\n-----END RSA PRIVATE KEY-----",
    };
    static const char *const kept[] = { "a@b", "x@y.1", "4111 1111 1111 1112",
        "12345678901234567890", "DE89370400440532013001", "AKIA", "sk-short", "ghp_012345",
        "-----BEGIN PUBLIC KEY-----", "order 1234-5678", "the task-force of 2024" };
    const struct guardrails *g = make(sets, 1);
    char text[600], want[600];

    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        snprintf(text, sizeof(text), "say %s, or not", hidden[i]);
        /* a token of Base64 may go on with the punctuation of a JWT, not with a comma */
        expect(g, text, "say [redacted], or not", false);
    }
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        snprintf(want, sizeof(want), "say %s, or not", kept[i]);
        expect(g, want, want, false);
    }
    guardrails_unref(g);
}

/* The text ends before the block hit that begins first, with the redactions before it. */
static void block_ends_the_text_where_the_first_hit_begins(void)
{
    static const char *const sets[] = { "{\"action\":\"block\",\"blocklist\":[\"stop\"],"
                                        "\"patterns\":[\"ab+c\"]}",
        "{\"action\":\"redact\",\"blocklist\":[\"red\"]}",
        "{\"action\":\"log\",\"blocklist\":"
        "[\"plain\"]}" };
    const struct guardrails *g = make(sets, 3);
    struct result r;

    expect(g, "a red plain text", "a [redacted] plain text", false);
    expect(g, "a red STOP here", "a [redacted] ", true);
    expect(g, "x abbbstop y", "x abbb", true);
    expect(g, "x abbbc stop y", "x ", true);
    expect(g, "stop", "", true);
    EXPECT(!scan(&r, g, STR("plain"), 0) && r.n_hits == 1);
    buf_clear(&r.text);
    guardrails_unref(g);
}

static void bad_sets_are_refused_with_the_name_of_the_member(void)
{
    static const struct {
        const char *json, *param;
    } bad[] = {
        { "{\"blocklist\":[\"a\"]}", "action" },
        { "{\"action\":\"warn\"}", "action" },
        { "{\"action\":\"log\",\"blocklist\":\"a\"}", "blocklist" },
        { "{\"action\":\"log\",\"blocklist\":[\"a\",\"\"]}", "blocklist[1]" },
        { "{\"action\":\"log\",\"blocklist\":[\"\\u200b\"]}", "blocklist[0]" },
        { "{\"action\":\"log\",\"blocklist\":[1]}", "blocklist[0]" },
        { "{\"action\":\"log\",\"detectors\":[\"phone\"]}", "detectors[0]" },
        { "{\"action\":\"log\",\"apply_to\":[\"all\"]}", "apply_to[0]" },
        { "{\"action\":\"log\",\"models\":{}}", "models" },
        { "{\"action\":\"log\",\"words\":[]}", "guardrails" },
        { "{\"action\":\"log\",\"whole_words\":1}", "whole_words" },
        { "{\"action\":\"log\",\"patterns\":[\"a\",\"(\"]}", "patterns[1]" },
        { "{\"action\":\"log\",\"patterns\":[\"\\\\Ga\"]}", "patterns[0]" },
        { "{\"action\":\"log\",\"patterns\":[\"a\\\\Cb\"]}", "patterns[0]" },
        { "{\"action\":\"log\",\"patterns\":[\"(*COMMIT)a\"]}", "patterns[0]" },
        { "{\"action\":\"log\",\"patterns\":[\"(?<=aaaaaaaaaaaaaaaaaaaaaaaa)b\"]}", "patterns[0]" },
    };
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct guard_set *s = NULL;
        struct guardrails *g = NULL;
        e.code = ERR_NONE;
        if (!guard_set_parse(&s, STR("x"), str_of(bad[i].json), &e)) {
            const struct guard_set *take = s;
            EXPECT(guardrails_new(&g, &take, 1, &e) < 0);
        }
        if (strcmp(e.param, bad[i].param))
            fail_msg("%s: param '%s', '%s'", bad[i].json, e.param, e.msg);
    }
    struct guard_set *s = NULL;
    EXPECT(guard_set_parse(&s, STR("a/b"), STR("{\"action\":\"log\"}"), &e) < 0);
}

/* Written and read again, a set is the same. */
static void text_form_is_complete(void)
{
    static const char json[] =
        "{\"blocklist\":[\"a\",\"\xC3\xA9\\\"\"],\"whole_words\":true,\"patterns\":[\"x\\\\d\"],"
        "\"detectors\":[\"iban\"],\"action\":\"redact\",\"apply_to\":[\"output\"],"
        "\"models\":[\"m\"],\"tenants\":[\"t\"]}";
    struct guard_set *s = NULL;
    struct buf b;
    struct err e;

    EXPECT(!guard_set_parse(&s, STR("x"), str_of(json), &e));
    buf_init(&b, MB);
    guard_set_text(s, &b);
    EXPECT(str_is(buf_str(&b), json));
    EXPECT(guard_set_covers(s, "m", "t") && !guard_set_covers(s, "m", "") &&
           !guard_set_covers(s, "n", "t"));
    buf_clear(&b);
    guard_set_unref(s);
}

/* Each failed allocation is an error or ends the output; nothing is released twice or kept. */
static void failed_allocations_never_pass_text(void)
{
    static const char json[] = "{\"action\":\"redact\",\"blocklist\":[\"secret\"],\"detectors\":"
                               "[\"email\"],\"patterns\":[\"a+b\"]}";
    int n_failed = 0;

    for (uint64_t nth = 1; nth < 60; nth++) {
        struct guard_set *s = NULL;
        struct guardrails *g = NULL;
        struct guard_scan scan_;
        struct result r = { 0 };
        struct err e;
        bool is_ready = false;
        uint64_t before = mem_failures();
        buf_init(&r.text, MB);
        mem_fail_after(nth);
        if (!guard_set_parse(&s, STR("x"), str_of(json), &e)) {
            const struct guard_set *take = s;
            is_ready =
                !guardrails_new(&g, &take, 1, &e) && !guard_scan_init(&scan_, g, UINT64_MAX, &e);
        }
        if (is_ready) {
            scan_.on_text = on_text;
            scan_.ctx = &r;
            guard_scan_put(&scan_, STR("a secret word"));
            guard_scan_end(&scan_);
            mem_fail_after(0);
            EXPECT(str_find(buf_str(&r.text), STR("secret")) < 0);
            EXPECT(scan_.has_failed || !buf_ok(&r.text) ||
                   str_is(buf_str(&r.text), "a [redacted] word"));
            guard_scan_clear(&scan_);
        } else {
            mem_fail_after(0);
            EXPECT(e.code == ERR_MEMORY);
        }
        n_failed += mem_failures() > before;
        buf_clear(&r.text);
        guardrails_unref(g);
    }
#ifdef TESTING /* other builds inject no failures */
    EXPECT(n_failed > 8);
#else
    EXPECT(n_failed == 0);
#endif
}

TESTS(TEST(words_agree_with_the_definition_on_random_texts),
    TEST(patterns_do_not_depend_on_the_pieces), TEST(windows_and_limits_bound_a_pattern),
    TEST(detectors_find_their_values), TEST(block_ends_the_text_where_the_first_hit_begins),
    TEST(bad_sets_are_refused_with_the_name_of_the_member), TEST(text_form_is_complete),
    TEST(failed_allocations_never_pass_text))
