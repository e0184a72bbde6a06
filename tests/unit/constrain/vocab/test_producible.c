#include "constrain/vocab/producible.h"

#include "support/language_kit.h"
#include "support/token_kit.h"

/* Restricts the pattern to the tokens; -1 with l->e. The caller ends the language. */
static int restrict_to(struct language *l, struct str *tokens, int32_t n, const char *pattern)
{
    struct token_kit k = { .tokens = tokens, .n = n, .end = -1 };
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    expr_id root, out = EXPR_NONE;

    language_begin(l);
    EXPECT_EQ(pattern_compile(l->x, str_of(pattern), TEXT_UTF8, PATTERN_SEARCH, &root, &l->e), 0);
    int rc = producible_restrict(&t->producible, l->x, root, &out, &l->e);
    vocab_tables_free(t);
    return rc ? rc : language_start(l, out);
}

static void a_missing_byte_is_named(void)
{
    struct str tokens[] = { STR("a"), STR("b"), STR("0"), STR("ab\xC3"), STR("\xE2\x82\xAC") };
    static const struct {
        const char *pattern, *message;
    } rows[] = { { "^\\{a\\}$", "byte 0x7B ({)" }, { "^(?:ax|b#)$", "byte 0x78 (x)" },
        { "^a\\nb$", "byte 0x0A," }, { "^(?:\\xe9|\\{)$", "byte 0xA9," },
        { "^[x-z]$", "byte 0x7A (z)" }, { "^\\u20ad$", "byte 0xAD," },
        { "^c{3}", "byte 0x63 (c)" } };

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        struct language l;
        EXPECT_EQ(restrict_to(&l, tokens, 5, rows[k].pattern), -1);
        if (!strstr(l.e.msg, rows[k].message))
            printf("%s: %s\n", rows[k].pattern, l.e.msg);
        EXPECT(strstr(l.e.msg, rows[k].message) != NULL);
        EXPECT(l.e.code == ERR_INVALID);
        language_end(&l);
    }
}

/* Bytes that only occur in longer tokens are produced by these tokens alone. */
static void texts_are_sequences_of_tokens(void)
{
    struct str tokens[] = { STR("a"), STR("b"), STR("xy"), STR("axy"), STR("\xC3\xA9"),
        STR("b\xC3"), STR("xz") };
    struct language l;

    EXPECT_EQ(restrict_to(&l, tokens, 7, "^[\\s\\S]*$"), 0);
    EXPECT(language_has(&l, "") && language_has(&l, "abxyaxyb") && language_has(&l, "xz"));
    EXPECT(language_has(&l, "\xC3\xA9") && !language_has(&l, "\xC3\xA8"));
    EXPECT(!language_has(&l, "x") && !language_has(&l, "yx") && !language_has(&l, "c"));
    EXPECT_EQ(automaton_step(l.a, automaton_start(l.a), 'y').i, 0u);
    language_end(&l);
}

/* Texts of random tokens are exactly the concatenations of tokens. */
static void random_texts_equal_the_definition(void)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct str tokens[6];
        char text[6][4], word[9] = { 0 };
        struct rng r = { .key = seed };
        for (int k = 0; k < 6; k++) {
            tokens[k] = (struct str){ text[k], 1 + rng_below(&r, 3) };
            for (size_t c = 0; c < tokens[k].n; c++)
                text[k][c] = "abc"[rng_below(&r, 3)];
        }
        struct language l;
        EXPECT_EQ(restrict_to(&l, tokens, 6, "^[\\s\\S]*$"), 0);
        for (int n = 0; n < 200; n++) {
            bool reached[9] = { true };
            size_t length = rng_below(&r, 8);
            for (size_t c = 0; c < length; c++)
                word[c] = "abc"[rng_below(&r, 3)];
            word[length] = 0;
            for (size_t c = 0; c < length; c++)
                for (int k = 0; k < 6 && reached[c]; k++)
                    if (str_starts((struct str){ word + c, length - c }, tokens[k]))
                        reached[c + tokens[k].n] = true;
            EXPECT_EQ(language_has(&l, word), reached[length]);
        }
        language_end(&l);
    }
}

static void a_vocabulary_with_all_bytes_changes_nothing(void)
{
    struct token_kit k = token_kit_random(300, "ab", true, 1);
    struct token_source src;
    struct language l;
    expr_id root, out;

    k.end = -1;
    src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    EXPECT_EQ(t->producible.units.n_nodes, 0u);
    language_begin(&l);
    EXPECT_EQ(pattern_compile(l.x, STR("^\\w+$"), TEXT_UTF8, PATTERN_SEARCH, &root, &l.e), 0);
    EXPECT_EQ(producible_restrict(&t->producible, l.x, root, &out, &l.e), 0);
    EXPECT_EQ(out.i, root.i);
    language_end(&l);
    vocab_tables_free(t);
    token_kit_clear(&k);
}

/* An empty language is not an error of the vocabulary. */
static void an_empty_language_stays_empty(void)
{
    struct str tokens[] = { STR("a") };
    struct language l;

    EXPECT_EQ(restrict_to(&l, tokens, 1, "^(?=a)b"), 0);
    EXPECT_EQ(automaton_start(l.a).i, 0u);
    language_end(&l);
}

TESTS(TEST(a_missing_byte_is_named), TEST(texts_are_sequences_of_tokens),
    TEST(random_texts_equal_the_definition), TEST(a_vocabulary_with_all_bytes_changes_nothing),
    TEST(an_empty_language_stays_empty))
