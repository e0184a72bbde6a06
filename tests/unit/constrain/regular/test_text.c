#include "constrain/regular/text.h"

#include "base/utf8.h"
#include "support/language_kit.h"

static struct language l;

static void begin(enum text_mode mode)
{
    language_begin(&l);
    EXPECT_EQ(language_start(&l, text_any_star(l.x, mode)), 0);
}

static state_id run(const char *bytes, size_t n)
{
    return automaton_run(l.a, automaton_start(l.a), (struct str){ bytes, n });
}

static void utf8_texts_are_exactly_the_valid_ones(void)
{
    state_id start;

    begin(TEXT_UTF8);
    start = automaton_start(l.a);
    for (uint32_t cp = 0; cp <= CODE_POINT_MAX; cp += cp < 0x3000 ? 1 : 37) {
        char bytes[4];
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        EXPECT_EQ(run(bytes, (size_t)utf8_encode(cp, bytes)).i, start.i);
    }
    /* all byte pairs, and triples with critical bytes */
    for (unsigned k = 0; k < 256 * 256; k++) {
        static const uint8_t third[] = { 0x00, 0x7F, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF };
        for (size_t j = 0; j < ARRAY_LEN(third); j++) {
            char bytes[3] = { (char)(k >> 8), (char)k, (char)third[j] };
            bool is_valid = utf8_valid((struct str){ bytes, 3 });
            EXPECT_EQ(automaton_accepts(l.a, run(bytes, 3)), is_valid);
        }
    }
    language_end(&l);
}

static void json_texts_have_one_form_per_character(void)
{
    static const char *const in[] = { "", "a", "\\\"", "\\\\", "\\n", "\\b\\f\\r\\t", "/", "\\/",
        "\xC3\xA9", "\x7F" };
    static const char *const out[] = { "\"", "\\", "\n", "\\u0041", "\\u0001", "\x01", "\\a",
        "\xC3", "\\N" };

    begin(TEXT_JSON);
    for (size_t k = 0; k < ARRAY_LEN(in); k++)
        EXPECT(language_has(&l, in[k]));
    for (size_t k = 0; k < ARRAY_LEN(out); k++)
        EXPECT(!language_has(&l, out[k]));
    language_end(&l);
}

static void u_escapes_denote_scalar_values(void)
{
    static const char *const in[] = { "\\u0041", "\\u001f", "\\uD7FF", "\\uE000", "\\ufFfF",
        "\\uD83D\\uDe00", "a\\u0020\\n" };
    static const char *const out[] = { "\\uD800", "\\uDC00", "\\uD83Dx", "\\uD83D\\u0041",
        "\\uD83D\\uD83D", "\\u12", "\\u12g4", "\\U0041" };

    begin(TEXT_JSON_U_ESCAPE);
    for (size_t k = 0; k < ARRAY_LEN(in); k++)
        EXPECT(language_has(&l, in[k]));
    for (size_t k = 0; k < ARRAY_LEN(out); k++)
        EXPECT(!language_has(&l, out[k]));
    EXPECT_EQ(run("\\uD83D", 6).i != 0, 1); /* can be completed by a low surrogate only */
    EXPECT_EQ(automaton_forced_byte(l.a, run("\\uD83D", 6)), '\\');
    EXPECT_EQ(automaton_forced_byte(l.a, run("\\uD83D\\", 7)), 'u');
    language_end(&l);
}

static void classes_contain_their_characters_only(void)
{
    static const uint32_t edges[] = { 0, 9, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000,
        0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF };

    for (size_t i = 0; i < ARRAY_LEN(edges); i++)
        for (size_t j = i; j < ARRAY_LEN(edges); j += 3) {
            struct code_points s = { 0 };
            code_points_add(&s, edges[i], edges[j]);
            language_begin(&l);
            EXPECT_EQ(language_start(&l, text_class(l.x, &s, TEXT_UTF8)), 0);
            for (size_t k = 0; k < ARRAY_LEN(edges); k++) {
                char bytes[4];
                int n = utf8_encode(edges[k], bytes);
                EXPECT_EQ(automaton_accepts(l.a, run(bytes, (size_t)n)), k >= i && k <= j);
            }
            code_points_clear(&s);
            language_end(&l);
        }
}

static void literals_are_escaped(void)
{
    language_begin(&l);
    EXPECT_EQ(language_start(&l, text_literal(l.x, STR("a\"\n\xC3\xA9"), TEXT_JSON)), 0);
    EXPECT(language_has(&l, "a\\\"\\n\xC3\xA9"));
    EXPECT(expr_eq(text_literal(l.x, STR("a\x01"), TEXT_JSON), EXPR_NONE));
    EXPECT(expr_eq(text_literal(l.x, STR("a\xC3"), TEXT_JSON), EXPR_NONE));
    language_end(&l);
}

TESTS(TEST(utf8_texts_are_exactly_the_valid_ones), TEST(json_texts_have_one_form_per_character),
    TEST(u_escapes_denote_scalar_values), TEST(classes_contain_their_characters_only),
    TEST(literals_are_escaped))
