#include "constrain/forced.h"

#include "constrain/automaton_acceptor.h"
#include "support/language_kit.h"
#include "support/token_kit.h"

static struct acceptor *acceptor_of(struct language *l, const char *pattern)
{
    struct acceptor *a = NULL;
    expr_id root;

    language_begin(l);
    EXPECT_EQ(pattern_compile(l->x, str_of(pattern), TEXT_UTF8, PATTERN_SEARCH, &root, &l->e), 0);
    EXPECT_EQ(automaton_acceptor_new(&a, l->x, root, kit_automaton_limits, &l->e), 0);
    return a;
}

static void text_is_forced_up_to_the_first_choice(void)
{
    static const struct {
        const char *pattern, *forced;
    } rows[] = { { "^\\{\"order(?:Id)?\":[0-9]$", "{\"order" }, { "^abc$", "abc" },
        { "^abc?$", "ab" }, { "^(?:\\xe9|\\xe8)$", "\xC3" }, { "^(?=ab)[a-z]{2}!$", "ab!" },
        { "^a*$", "" }, { "^(?=a)b", "" } };

    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        struct language l;
        char text[32];
        struct acceptor *a = acceptor_of(&l, rows[k].pattern);
        pos_id end;
        size_t n = forced_text(a, POS_START, text, sizeof(text), &end);
        EXPECT(str_is((struct str){ text, n }, rows[k].forced));
        EXPECT_EQ(forced_text(a, POS_START, text, 2, &end), MIN(n, (size_t)2));
        EXPECT_EQ(forced_control(a, end), TOKEN_NONE);
        a->ops->free(a);
        language_end(&l);
    }
}

static void forced_text_is_split_into_the_longest_tokens(void)
{
    struct str tokens[] = { STR("a"), STR("ab"), STR("{\""), STR("abc"), STR("b"), STR("end") };
    struct token_kit k = { .tokens = tokens, .n = 6, .end = 5 };
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    int32_t ids[8];

    EXPECT_EQ(forced_tokens(&t->trie, STR("{\"abcaba"), ids, 8), 4u);
    EXPECT(!memcmp(ids, (int32_t[]){ 2, 3, 1, 0 }, 16));
    EXPECT_EQ(forced_tokens(&t->trie, STR("{\"abcaba"), ids, 2), 2u);
    EXPECT_EQ(forced_tokens(&t->trie, STR("a-b"), ids, 8), 1u);
    EXPECT_EQ(forced_tokens(&t->trie, STR("end"), ids, 8), 0u); /* the token matches by id only */
    EXPECT_EQ(forced_tokens(&t->trie, STR(""), ids, 8), 0u);
    vocab_tables_free(t);
}

/* Draft tokens of a forced text are permitted one after the other. */
static void forced_tokens_are_permitted(void)
{
    struct token_kit k = token_kit_random(2000, "order\":{", true, 1);
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    struct language l;
    char text[64];
    int32_t ids[64];

    struct acceptor *a = acceptor_of(&l, "^\\{\"order\":\\{\"order\":(?:1|2)\\}\\}$");
    pos_id end, p = POS_START;
    size_t n = forced_text(a, p, text, sizeof(text), &end);
    size_t n_ids = forced_tokens(&t->trie, (struct str){ text, n }, ids, 64);
    EXPECT(n == 18 && n_ids > 1 && n_ids < n);
    for (size_t i = 0; i < n_ids; i++) {
        struct str bytes = src.bytes(src.ctx, ids[i]);
        for (size_t c = 0; c < bytes.n; c++)
            p = a->ops->step(a, p, (uint8_t)bytes.p[c]);
        EXPECT(p.i != 0);
    }
    EXPECT_EQ(a->ops->key(a, p), a->ops->key(a, end));
    a->ops->free(a);
    language_end(&l);
    vocab_tables_free(t);
    token_kit_clear(&k);
}

TESTS(TEST(text_is_forced_up_to_the_first_choice),
    TEST(forced_text_is_split_into_the_longest_tokens), TEST(forced_tokens_are_permitted))
