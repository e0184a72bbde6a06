#include "constrain/vocab/token_trie.h"

#include "constrain/vocab/vocab_tables.h"
#include "support/text_kit.h"
#include "support/token_kit.h"

static const char *const vocab_files[] = { "vocab/ggml-vocab-gpt-2.gguf",
    "vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-deepseek-llm.gguf" };

/* All invariants of the array, and the bytes of all tokens. */
static void expect_trie_of(
    const struct token_trie *t, const struct token_source *src, const uint32_t *chosen)
{
    uint8_t path[TOKEN_TRIE_DEPTH_MAX];
    uint32_t n_tokens = 0, before = 0;

    for (uint32_t i = 0; i < t->n_nodes; i++) {
        const struct trie_node *k = &t->nodes[i];
        uint32_t depth = trie_depth(k);
        EXPECT(depth >= 1 && depth <= before + 1 && depth <= t->depth_max);
        EXPECT(trie_size(k) >= 1 && i + trie_size(k) <= t->n_nodes);
        EXPECT(i + trie_size(k) == t->n_nodes || trie_depth(k + trie_size(k)) <= depth);
        EXPECT(trie_size(k) == 1 || trie_depth(k + 1) == depth + 1);
        path[depth - 1] = trie_byte(k);
        before = depth;
        EXPECT_EQ(trie_first(k), n_tokens);
        for (; n_tokens < trie_first(k + 1); n_tokens++) {
            struct str s = src->bytes(src->ctx, t->ids[n_tokens]);
            EXPECT(s.n == depth && !memcmp(s.p, path, depth));
        }
    }
    EXPECT_EQ(n_tokens, t->n_ids);
    uint32_t n_chosen = 0;
    for (int32_t id = 0; id < src->n_tokens; id++) {
        struct str s = src->bytes(src->ctx, id);
        bool has = s.n && s.n <= TOKEN_TRIE_DEPTH_MAX && (!chosen || token_set_has(chosen, id));
        n_chosen += has;
        EXPECT(!has || token_trie_find(t, s) < t->n_nodes);
    }
    EXPECT_EQ(n_chosen, n_tokens);
}

static void random_tokens_form_a_trie(void)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct token_kit k =
            token_kit_random(300 + (int32_t)seed * 10, "ab \xC3\xA9\xFF", seed % 2, seed);
        struct token_source src = token_kit_source(&k);
        struct token_trie t;
        struct err e = { 0 };
        struct rng r = { .key = seed };
        uint32_t chosen[32];
        for (size_t w = 0; w < 32; w++)
            chosen[w] = (uint32_t)rng_next(&r);
        EXPECT_EQ(token_trie_init(&t, &src, seed % 3 ? NULL : chosen, &e), 0);
        expect_trie_of(&t, &src, seed % 3 ? NULL : chosen);
        token_trie_clear(&t);
        token_kit_clear(&k);
    }
}

static void tokens_with_equal_bytes_are_all_listed(void)
{
    struct str tokens[] = { STR("ab"), STR(""), STR("a"), STR("ab"), STR("\0"), STR("ab"),
        STR("b") };
    struct token_kit k = { .tokens = tokens, .n = 7, .end = 6 };
    struct token_source src = token_kit_source(&k);
    struct token_trie t;
    struct err e = { 0 };

    EXPECT_EQ(token_trie_init(&t, &src, NULL, &e), 0);
    expect_trie_of(&t, &src, NULL);
    uint32_t node = token_trie_find(&t, STR("ab"));
    EXPECT_EQ(trie_first(&t.nodes[node + 1]) - trie_first(&t.nodes[node]), 3u);
    EXPECT_EQ(token_trie_find(&t, STR("b")), TRIE_NONE); /* the end token */
    EXPECT(token_trie_find(&t, STR("\0")) != TRIE_NONE);
    EXPECT_EQ(t.n_nodes, 3u);
    token_trie_clear(&t);
}

static void the_longest_token_is_found(void)
{
    struct str tokens[] = { STR("a"), STR("abcd"), STR("ab"), STR("ab"), STR("x") };
    struct token_kit k = { .tokens = tokens, .n = 5, .end = -1 };
    struct token_source src = token_kit_source(&k);
    struct token_trie t;
    struct err e = { 0 };
    size_t n;

    EXPECT_EQ(token_trie_init(&t, &src, NULL, &e), 0);
    EXPECT_EQ(token_trie_longest(&t, STR("abcx"), &n), 2);
    EXPECT_EQ(n, 2u);
    EXPECT_EQ(token_trie_longest(&t, STR("abcdx"), &n), 1);
    EXPECT_EQ(n, 4u);
    EXPECT_EQ(token_trie_longest(&t, STR("bab"), &n), TOKEN_NONE);
    EXPECT_EQ(token_trie_longest(&t, STR(""), &n), TOKEN_NONE);
    token_trie_clear(&t);
}

static void marks_cover_subtrees_of_a_class(void)
{
    struct str tokens[] = { STR("1"), STR("12"), STR("1a"), STR("2"), STR("23"), STR("a1") };
    struct token_kit k = { .tokens = tokens, .n = 6, .end = -1 };
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    static const struct {
        const char *bytes;
        bool is_marked;
    } rows[] = { { "1", false }, { "12", true }, { "1a", false }, { "2", true }, { "23", true },
        { "a", false }, { "a1", false } };

    for (size_t n = 0; n < ARRAY_LEN(rows); n++) {
        uint32_t node = token_trie_find(&t->trie, str_of(rows[n].bytes));
        EXPECT_EQ(trie_marks(&t->trie.nodes[node]), rows[n].is_marked ? 1u << MARK_DIGITS : 0u);
    }
    vocab_tables_free(t);
}

static void tokens_above_the_longest_are_left_out(void)
{
    static char text[600];
    memset(text, 'a', sizeof(text));
    struct str tokens[] = { { text, 511 }, { text, 512 }, { text, 600 } };
    struct token_kit k = { .tokens = tokens, .n = 3, .end = -1 };
    struct token_source src = token_kit_source(&k);
    struct token_trie t;
    struct err e = { 0 };

    EXPECT_EQ(token_trie_init(&t, &src, NULL, &e), 0);
    EXPECT_EQ(t.n_ids, 1u);
    EXPECT_EQ(t.n_long, 2u);
    EXPECT_EQ(t.depth_max, 511u);
    expect_trie_of(&t, &src, NULL);
    token_trie_clear(&t);
}

static void sizes_out_of_range_are_refused(void)
{
    struct token_kit k = { .end = -1 };
    struct token_source src = token_kit_source(&k);
    struct token_trie t;
    struct err e = { 0 };

    EXPECT_EQ(token_trie_init(&t, &src, NULL, &e), -1);
    EXPECT(strstr(e.msg, "vocabulary of 0 tokens") != NULL);
    src.n_tokens = TOKEN_IDS_MAX + 1;
    EXPECT_EQ(token_trie_init(&t, &src, NULL, &e), -1);
    EXPECT(strstr(e.msg, "1048577 tokens") != NULL);
}

static void expect_tables_of_vocab(const char *path)
{
    struct vocab *v = kit_open_vocab(path);
    struct token_source src = token_source_of_vocab(v);
    struct vocab_tables *t = token_kit_tables(&src);

    expect_trie_of(&t->trie, &src, NULL);
    EXPECT_EQ(t->trie.n_long, 0u);
    EXPECT(t->n_ends > 0);
    for (int32_t id = 0; id < src.n_tokens; id++)
        if (vocab_attr(v, id) == TOKEN_CONTROL || vocab_is_end(v, id))
            EXPECT_EQ(src.bytes(src.ctx, id).n, 0u);
    uint32_t n_string = t->classes.n_ids[CLASS_STRING][TOKEN_CLASS_CHARS_MAX];
    EXPECT_EQ(n_string + t->irregular.n_ids, t->trie.n_ids);
    EXPECT(n_string > t->trie.n_ids / 2);
    double per_token = (double)vocab_tables_bytes(t) / vocab_n_tokens(v);
    printf("%s: %d tokens, %.1f bytes per token\n", path, vocab_n_tokens(v), per_token);
    EXPECT(per_token <= 40 || vocab_n_tokens(v) < 10000);
    vocab_tables_free(t);
    vocab_close(v);
}

static void tables_of_model_files_contain_all_tokens(void)
{
    char path[512];

    expect_tables_of_vocab("models/demo.gguf");
    for (size_t k = 0; k < ARRAY_LEN(vocab_files); k++)
        if (kit_data_path(path, vocab_files[k]))
            expect_tables_of_vocab(path);
}

static void blanks_and_bytes_of_spm_are_decoded(void)
{
    static struct kit_vocab k;
    struct vocab *v = NULL;
    struct err e = { 0 };

    kit_add_token(&k, "<unk>", TOKEN_UNKNOWN);
    kit_add_token(&k, "</s>", TOKEN_CONTROL);
    kit_add_bytes(&k, false);
    int32_t word = kit_add_scored(&k, "\xE2\x96\x81the", -1);
    int32_t user = kit_add_token(&k, "<tool>", TOKEN_USER_DEFINED);
    EXPECT_EQ(kit_make_vocab(&v, &k, "llama", gguf_writer_new(32), &e), 0);
    struct token_source src = token_source_of_vocab(v);
    struct vocab_tables *t = token_kit_tables(&src);
    size_t n;
    EXPECT_EQ(token_trie_longest(&t->trie, STR(" them"), &n), word);
    EXPECT_EQ(token_trie_longest(&t->trie, STR("<tool>"), &n), user);
    EXPECT_EQ(token_trie_longest(&t->trie, STR("\xFFx"), &n), 2 + 0xFF);
    EXPECT_EQ(token_trie_longest(&t->trie, STR("</s>"), &n), 2 + '<');
    EXPECT_EQ(token_trie_find(&t->trie, STR("<0x0A>")), TRIE_NONE);
    vocab_tables_free(t);
    vocab_close(v);
}

static void classes_count_characters(void)
{
    static const struct {
        enum token_class class;
        const char *bytes;
        uint32_t n;
    } rows[] = { { CLASS_STRING, "a b", 3 }, { CLASS_STRING, "\xC3\xA9\xF0\x9F\x98\x80x", 3 },
        { CLASS_STRING, "a\"", 0 }, { CLASS_STRING, "\\", 0 }, { CLASS_STRING, "a\n", 0 },
        { CLASS_STRING, "\xC3", 0 }, { CLASS_STRING, "\xA9", 0 }, { CLASS_STRING, "a\xE2\x82", 0 },
        { CLASS_STRING, "\xED\xA0\x80", 0 }, { CLASS_STRING, "\xC0\x80", 0 },
        { CLASS_STRING, "\x7F", 1 }, { CLASS_STRING, "", 0 },
        { CLASS_STRING, "01234567890123456789012345678901", 32 },
        { CLASS_STRING, "012345678901234567890123456789012", 0 }, { CLASS_DIGITS, "019", 3 },
        { CLASS_DIGITS, "1.", 0 }, { CLASS_BLANKS, " \t ", 3 }, { CLASS_BLANKS, " \n", 0 } };

    for (size_t k = 0; k < ARRAY_LEN(rows); k++)
        EXPECT_EQ(token_class_length(rows[k].class, str_of(rows[k].bytes)), rows[k].n);
}

static void a_failed_allocation_is_an_error(void)
{
    struct token_kit k = token_kit_random(400, "ab1 ", true, 1);
    struct token_source src = token_kit_source(&k);
    int n_failed = 0;

    for (uint64_t nth = 1; nth < 40; nth++) {
        struct vocab_tables *t = NULL;
        struct err e = { 0 };
        mem_fail_after(nth);
        int rc = vocab_tables_new(&t, &src, &e);
        mem_fail_after(0);
        EXPECT_EQ(rc, t ? 0 : -1);
        EXPECT(t || e.code == ERR_MEMORY);
        n_failed += rc != 0;
        vocab_tables_free(t);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(10));
    token_kit_clear(&k);
}

TESTS(TEST(random_tokens_form_a_trie), TEST(tokens_with_equal_bytes_are_all_listed),
    TEST(the_longest_token_is_found), TEST(marks_cover_subtrees_of_a_class),
    TEST(tokens_above_the_longest_are_left_out), TEST(sizes_out_of_range_are_refused),
    TEST(tables_of_model_files_contain_all_tokens), TEST(blanks_and_bytes_of_spm_are_decoded),
    TEST(classes_count_characters), TEST(a_failed_allocation_is_an_error))
