#include "constrain/constraint.h"

#include "support/compiled_constraints.h"
#include "support/token_kit.h"

static struct constraint_source source_of(enum constraint_kind kind, const char *text)
{
    return (struct constraint_source){ .kind = kind, .text = str_of(text) };
}

static struct constraint_state *open_state(
    const struct vocab_tables *t, enum constraint_kind kind, const char *text)
{
    struct constraint_source src = source_of(kind, text);
    struct constraint *c = NULL;
    struct constraint_state *s = NULL;
    struct err e = { 0 };

    if (constraint_new(&c, &src, t, &e) || constraint_state_new(&s, c, &e))
        fprintf(stderr, "%s: %s\n", text, e.msg);
    EXPECT(s != NULL);
    constraint_unref(c); /* the state holds a reference */
    return s;
}

static void expect_refused(
    const struct vocab_tables *t, enum constraint_kind kind, const char *text, const char *message)
{
    struct constraint_source src = source_of(kind, text);
    struct constraint *c = NULL;
    struct err e = { 0 };

    EXPECT_EQ(constraint_new(&c, &src, t, &e), -1);
    if (!strstr(e.msg, message))
        fprintf(stderr, "%s: %s\n", text, e.msg);
    EXPECT(strstr(e.msg, message) != NULL);
}

/* The mask as a set, computed in parts of `steps`. */
static void mask_of(struct constraint_state *s, uint64_t steps, uint32_t *set, size_t n_words)
{
    struct sample_constraint k = constraint_state_ops(s);
    enum mask_progress progress = MASK_MORE;
    struct token_mask m = { 0 };
    struct err e = { 0 };

    while (progress == MASK_MORE)
        progress = k.ops->mask(k.self, steps, &m, &e);
    EXPECT_EQ((int)progress, (int)MASK_DONE);
    memset(set, m.form == MASK_FORM_ALL ? 0xff : 0, n_words * sizeof(*set));
    if (m.form == MASK_FORM_BITS)
        memcpy(set, m.bits, n_words * sizeof(*set));
    for (int i = 0; m.form == MASK_FORM_IDS && i < m.n_ids; i++)
        token_set_add(set, m.ids[i]);
}

static bool has_token(struct constraint_state *s, int32_t id)
{
    struct sample_constraint k = constraint_state_ops(s);
    struct token_mask m = { 0 };
    struct err e = { 0 };
    bool is_listed = false;

    EXPECT_EQ((int)k.ops->mask(k.self, UINT64_MAX, &m, &e), (int)MASK_DONE);
    for (int i = 0; m.form == MASK_FORM_IDS && i < m.n_ids; i++)
        is_listed = is_listed || m.ids[i] == id;
    return m.form == MASK_FORM_BITS ? token_set_has(m.bits, id)
                                    : is_listed || m.form == MASK_FORM_ALL;
}

static bool push_text(struct constraint_state *s, const char *text)
{
    struct sample_constraint k = constraint_state_ops(s);

    for (; *text; text++)
        if (!k.ops->push(k.self, (uint8_t)*text)) /* the first 256 tokens are bytes */
            return false;
    return true;
}

/* Whether the text is accepted as a whole. */
static bool accepts(
    const struct vocab_tables *t, enum constraint_kind kind, const char *language, const char *text)
{
    struct constraint_state *s = open_state(t, kind, language);
    bool is_accepted = push_text(s, text) && constraint_state_accepts(s);

    constraint_state_free(s);
    return is_accepted;
}

struct kit {
    struct token_kit k;
    struct token_source src;
    struct vocab_tables *t;
};

static void kit_open(struct kit *k, const char *letters, bool has_bytes)
{
    k->k = token_kit_random(1200, letters, has_bytes, 5);
    k->src = token_kit_source(&k->k);
    k->t = token_kit_tables(&k->src);
}

static void kit_close(struct kit *k)
{
    vocab_tables_free(k->t);
    token_kit_clear(&k->k);
}

/* ---- tests */

static void a_pattern_matches_the_whole_output(void)
{
    struct kit k;

    kit_open(&k, "ab", true);
    EXPECT(accepts(k.t, CONSTRAINT_REGEX, "a+b?", "aaab"));
    EXPECT(!accepts(k.t, CONSTRAINT_REGEX, "a+b?", "aaabb"));
    EXPECT(!accepts(k.t, CONSTRAINT_REGEX, "a+b?", "baab"));
    EXPECT(accepts(k.t, CONSTRAINT_REGEX, "a|b|", ""));
    EXPECT(!accepts(k.t, CONSTRAINT_REGEX, "(?!ab)[a-c]+", "abc"));
    EXPECT(accepts(k.t, CONSTRAINT_REGEX, "\\u00e9{2}", "\xC3\xA9\xC3\xA9"));
    kit_close(&k);
}

static void a_choice_accepts_exactly_its_strings(void)
{
    static const char *const strings[] = { "", "a", "ab", "abc", "b", "bbc", "\xC3\xA9", "\xC3\xA8",
        "a\"b", "abcd" };
    static const char choice[] =
        "[\"abc\", \"\", \"a\\\"b\", \"b\", \"\\u00e9\", \"\xC3\xA8\", \"abc\", \"ab\"]";
    static const char present[] = "1011101111"; /* one digit per string; see the list above */
    struct kit k;

    kit_open(&k, "ab", true);
    for (size_t n = 0; n < ARRAY_LEN(strings); n++) {
        bool is_present = present[n] == '1' && strcmp(strings[n], "abcd");
        EXPECT_EQ(accepts(k.t, CONSTRAINT_CHOICE, choice, strings[n]), is_present);
    }
    kit_close(&k);
}

/* A choice of thousands of strings that share prefixes. */
static void a_large_choice_is_a_trie(void)
{
    static char text[400000];
    struct kit k;
    size_t n = 1;

    text[0] = '[';
    for (int i = 0; i < 20000; i++)
        n += (size_t)snprintf(
            text + n, sizeof(text) - n, "%s\"k%x\"", i ? "," : "", i * 7919 % 65536);
    text[n] = ']';
    kit_open(&k, "k0123456789abcdef", true);
    struct constraint_source src = { CONSTRAINT_CHOICE, { text, n + 1 }, .bytes_max = 1 << 20 };
    struct constraint *c = NULL;
    struct constraint_state *s = NULL;
    struct err e = { 0 };
    EXPECT_EQ(constraint_new(&c, &src, k.t, &e), 0);
    EXPECT_EQ(constraint_state_new(&s, c, &e), 0);
    EXPECT(push_text(s, "k1eef") && constraint_state_accepts(s));
    EXPECT(constraint_bytes(c) < 8 * MB && constraint_work(c) > 0);
    constraint_state_free(s);
    constraint_unref(c);
    kit_close(&k);
}

static void a_refused_source_names_the_reason(void)
{
    struct str tokens[] = { STR("a"), STR("b"), STR("</s>") };
    struct token_kit two = { .tokens = tokens, .n = 3, .end = 2 };
    struct token_source src = token_kit_source(&two);
    struct vocab_tables *t = token_kit_tables(&src);
    static char large[20000];

    memset(large, 'a', sizeof(large) - 1);
    expect_refused(t, CONSTRAINT_REGEX, large, "19999 bytes; at most 16384");
    expect_refused(t, CONSTRAINT_REGEX, "a(?<=b)", "lookbehind");
    expect_refused(t, CONSTRAINT_REGEX, "a[^\\u0000-\\u{10ffff}]", "no text satisfies");
    expect_refused(t, CONSTRAINT_REGEX, "ab*c", "byte 0x63 (c)");
    expect_refused(t, CONSTRAINT_CHOICE, "[\"xyz\"]", "for which the vocabulary has no token");
    expect_refused(t, CONSTRAINT_CHOICE, "[]", "at least one string");
    expect_refused(t, CONSTRAINT_CHOICE, "{\"a\": 1}", "array");
    expect_refused(t, CONSTRAINT_CHOICE, "[\"a\", 1]", "#/1: ");
    expect_refused(t, CONSTRAINT_CHOICE, "[\"a\"", "line 1");
    vocab_tables_free(t);
}

/* A vocabulary of two tokens produces only some of the choices: the others are not permitted. */
static void masks_avoid_texts_that_the_vocabulary_cannot_produce(void)
{
    struct str tokens[] = { STR("ab"), STR("b"), STR("</s>") };
    struct token_kit two = { .tokens = tokens, .n = 3, .end = 2 };
    struct token_source src = token_kit_source(&two);
    struct vocab_tables *t = token_kit_tables(&src);
    struct constraint_state *s = open_state(t, CONSTRAINT_CHOICE, "[\"abc\", \"abb\", \"bba\"]");
    struct sample_constraint k = constraint_state_ops(s);

    EXPECT(has_token(s, 0) && !has_token(s, 1) && !has_token(s, 2));
    EXPECT(k.ops->push(k.self, 0) && !k.ops->push(k.self, 0) && !k.ops->push(k.self, 2));
    EXPECT(!has_token(s, 0) && has_token(s, 1) && !k.ops->is_complete(k.self));
    EXPECT(k.ops->push(k.self, 1) && k.ops->is_complete(k.self));
    EXPECT(!has_token(s, 0) && !has_token(s, 1) && has_token(s, 2));
    constraint_state_free(s);
    vocab_tables_free(t);
}

static void a_grammar_is_read_byte_by_byte(void)
{
    struct kit k;

    kit_open(&k, "ab[]", true);
    EXPECT(accepts(k.t, CONSTRAINT_GBNF, "root ::= \"[\" root* \"]\"", "[[][[]]]"));
    EXPECT(!accepts(k.t, CONSTRAINT_GBNF, "root ::= \"[\" root* \"]\"", "[[][[]]"));
    EXPECT(accepts(k.t, CONSTRAINT_GBNF, "root ::= [ab]{2,4} \"c\"?", "abbac"));
    EXPECT(accepts(k.t, CONSTRAINT_LARK, "start: \"a\" start? \"b\"", "aabb"));
    EXPECT(!accepts(k.t, CONSTRAINT_LARK, "start: \"a\" start? \"b\"", "aab"));
    static const char tag[] =
        "{\"type\": \"structural_tag\", \"format\": {\"type\": \"tag\", \"begin\": "
        "\"<a>\", \"content\": {\"type\": \"json_schema\", \"json_schema\": "
        "{\"type\": \"integer\"}}, \"end\": \"</a>\"}}";
    EXPECT(accepts(k.t, CONSTRAINT_STRUCTURAL_TAG, tag, "<a>12</a>"));
    EXPECT(!accepts(k.t, CONSTRAINT_STRUCTURAL_TAG, tag, "<a>1.5</a>"));
    expect_refused(k.t, CONSTRAINT_GBNF, "root ::= \"a", "line 1");
    expect_refused(k.t, CONSTRAINT_GBNF, "rot ::= \"a\"", "root");
    kit_close(&k);
}

static const char schema[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\", "
                             "\"items\": {\"enum\": [1, \"ab\", "
                             "null]}, \"uniqueItems\": true}, \"b\": {\"type\": \"string\", "
                             "\"maxLength\": 20}, \"c\": {\"$ref\": "
                             "\"#\"}}, \"required\": [\"a\"]}";

static enum constraint_kind kind_of(const char *text)
{
    return str_starts(str_of(text), STR("root")) ? CONSTRAINT_GBNF
           : text == schema                      ? CONSTRAINT_JSON_SCHEMA
                                                 : CONSTRAINT_REGEX;
}

static void a_schema_accepts_its_instances(void)
{
    struct kit k;

    kit_open(&k, "ab", true);
    EXPECT(accepts(k.t, CONSTRAINT_JSON_SCHEMA, schema, "{\"a\":[1,null], \"c\": {\"a\":[]}}"));
    EXPECT(!accepts(k.t, CONSTRAINT_JSON_SCHEMA, schema, "{\"a\":[1,1]}"));
    EXPECT(!accepts(k.t, CONSTRAINT_JSON_SCHEMA, schema, "{\"b\":\"\"}"));
    EXPECT(accepts(k.t, CONSTRAINT_JSON, "", "{\"x\":[1.5,{\"\":null}]}"));
    EXPECT(!accepts(k.t, CONSTRAINT_JSON, "", "[1]"));
    expect_refused(k.t, CONSTRAINT_JSON_SCHEMA, "{\"pattern\": \"(?<=a)b\"}", "#/pattern");
    expect_refused(k.t, CONSTRAINT_JSON_SCHEMA, "{\"enum\": []}", "#");
    kit_close(&k);
    kit_open(&k, "ab{}\":", false);
    expect_refused(k.t, CONSTRAINT_JSON, "", "for which the vocabulary has no token");
    kit_close(&k);
}

/* Random pushes and pops against a list of tokens that are pushed to a new state. */
static void a_state_is_a_function_of_the_pushed_tokens(void)
{
    static const char *const patterns[] = { "(?:[ab]{1,5}c|\"[^\"]*\"|[0-9 ]{3,200})*",
        "(?!.*aba)[ab1 ]{0,4000}", "[^]*", "(?:a(?:b|c\"){2,700}1?)+",
        "root ::= item*\nitem ::= \"a\" item \"b\" | [0-9 c]{1,9} | \"\\\"\" [^\"]{0,20} \"\\\"\"",
        schema };
    static int32_t tokens[3000];
    uint32_t set[38], other[38];
    struct kit kit;

    kit_open(&kit, "abc1 \"{}[]:,", true);
    for (uint64_t seed = 0; seed < 24; seed++) {
        const char *pattern = patterns[seed % ARRAY_LEN(patterns)];
        struct constraint_state *s = open_state(kit.t, kind_of(pattern), pattern);
        struct sample_constraint k = constraint_state_ops(s);
        struct rng r = { .key = seed };
        int n = 0, n_poppable = 0;
        for (int round = 0; round < 600; round++) {
            int32_t id = (int32_t)rng_below(&r, 1200);
            mask_of(s, 1 + rng_below(&r, 300), set, ARRAY_LEN(set));
            bool is_permitted = token_set_has(set, id);
            bool is_end = id == kit.k.end;
            EXPECT_EQ(is_end ? k.ops->accepts(k.self) : k.ops->push(k.self, id), is_permitted);
            if (is_permitted && !is_end)
                tokens[n++] = id, n_poppable = MIN(n_poppable + 1, (int)CONSTRAINT_POP_MAX);
            if (rng_below(&r, 6) == 0) {
                int n_pops = (int)rng_below(&r, (uint64_t)n_poppable + 1);
                k.ops->pop(k.self, n_pops);
                n -= n_pops;
                n_poppable -= n_pops;
            }
        }
        mask_of(s, 100, set, ARRAY_LEN(set));
        k.ops->reset(k.self);
        for (int i = 0; i < n; i++)
            EXPECT(k.ops->push(k.self, tokens[i]));
        mask_of(s, UINT64_MAX, other, ARRAY_LEN(other));
        EXPECT(!memcmp(set, other, sizeof(set)));
        EXPECT(constraint_state_bytes(s) < 8 * MB);
        constraint_state_free(s);
    }
    kit_close(&kit);
}

static void a_prefix_is_read_before_the_first_token(void)
{
    struct kit kit;

    kit_open(&kit, "ab", true);
    struct constraint_state *s = open_state(kit.t, CONSTRAINT_REGEX, "abc+d");
    struct sample_constraint k = constraint_state_ops(s);
    EXPECT_EQ(constraint_state_read(s, STR("ab")), 2u);
    EXPECT_EQ(constraint_state_read(s, STR("cx")), 1u);
    EXPECT(!has_token(s, 'a') && has_token(s, 'c') && has_token(s, 'd'));
    EXPECT(push_text(s, "cd") && k.ops->accepts(k.self));
    k.ops->reset(k.self);
    EXPECT(has_token(s, 'd') && !k.ops->accepts(k.self));
    EXPECT(push_text(s, "d") && constraint_state_accepts(s));
    constraint_state_free(s);
    kit_close(&kit);
}

/* The mask in progress is dropped by a push or pop, and not disturbed by the other calls. */
static void a_mask_in_progress_survives_queries(void)
{
    uint32_t set[38], other[38];
    struct token_mask m;
    struct err e = { 0 };
    struct kit kit;
    int32_t ids[8];

    kit_open(&kit, "abc", true);
    struct constraint_state *s = open_state(kit.t, CONSTRAINT_REGEX, "a{3}[abc]{0,30}");
    struct constraint_state *t = open_state(kit.t, CONSTRAINT_REGEX, "a{3}[abc]{0,30}");
    struct sample_constraint k = constraint_state_ops(s);
    EXPECT(k.ops->forced(k.self, ids, 8) > 0);
    EXPECT(push_text(s, "aaab") && push_text(t, "aaab"));
    mask_of(t, UINT64_MAX, other, ARRAY_LEN(other));
    EXPECT_EQ((int)k.ops->mask(k.self, 5, &m, &e), (int)MASK_MORE);
    EXPECT_EQ(k.ops->forced(k.self, ids, 8), 0);
    EXPECT(!k.ops->is_complete(k.self) && k.ops->accepts(k.self));
    mask_of(s, 10, set, ARRAY_LEN(set));
    EXPECT(!memcmp(set, other, sizeof(set)));
    EXPECT(push_text(s, "b") && push_text(t, "ba"));
    EXPECT_EQ((int)k.ops->mask(k.self, 5, &m, &e), (int)MASK_MORE);
    EXPECT(push_text(s, "a"));
    mask_of(t, UINT64_MAX, other, ARRAY_LEN(other));
    EXPECT_EQ((int)k.ops->mask(k.self, 5, &m, &e), (int)MASK_MORE);
    mask_of(s, UINT64_MAX, set, ARRAY_LEN(set));
    EXPECT(!memcmp(set, other, sizeof(set)));
    EXPECT_EQ((int)k.ops->mask(k.self, 5, &m, &e), (int)MASK_DONE);
    constraint_state_free(s);
    constraint_state_free(t);
    kit_close(&kit);
}

/* After creation a state allocates nothing, also while its automaton is flushed. */
static void a_state_allocates_nothing(void)
{
    static const char *const patterns[] = { "(?:[ab]{1,5}c|\"[^\"]*\"|[0-9 ]{3,200})*",
        "(?!.*aba.{7}1)[ab1 ]{0,4000}(?:c.{0,900}){3}",
        "root ::= item*\nitem ::= \"a\" item \"b\" | [0-9 c]{1,9} | \"\\\"\" [^\"]{0,20} \"\\\"\"",
        schema };
    struct kit kit;
    uint32_t set[38];
    int32_t ids[8];

    kit_open(&kit, "abc1 \"{}[]:,", true);
    for (uint64_t seed = 0; seed < ARRAY_LEN(patterns); seed++) {
        struct constraint_state *s = open_state(kit.t, kind_of(patterns[seed]), patterns[seed]);
        struct sample_constraint k = constraint_state_ops(s);
        struct rng r = { .key = seed };
        noalloc_begin("constraint");
        for (int round = 0; round < 1000; round++) {
            mask_of(s, 1 + rng_below(&r, 3000), set, ARRAY_LEN(set));
            k.ops->forced(k.self, ids, 8);
            if (!k.ops->push(k.self, (int32_t)rng_below(&r, 1199)) && rng_below(&r, 200) == 0)
                k.ops->reset(k.self);
        }
        noalloc_end();
        EXPECT(constraint_state_bytes(s) < 8 * MB);
        constraint_state_free(s);
    }
    kit_close(&kit);
}

static void forced_text_is_proposed_as_tokens(void)
{
    struct kit kit;
    int32_t ids[64];
    char text[64];
    size_t n_bytes = 0;

    kit_open(&kit, "order\":{", true);
    struct constraint_state *s = open_state(kit.t, CONSTRAINT_REGEX, "\\{\"order\":\\{\"o[rx]");
    struct sample_constraint k = constraint_state_ops(s);
    int n = k.ops->forced(k.self, ids, 64);
    for (int i = 0; i < n; i++) {
        struct str b = kit.src.bytes(kit.src.ctx, ids[i]);
        memcpy(text + n_bytes, b.p, b.n);
        n_bytes += b.n;
        EXPECT(k.ops->push(k.self, ids[i]));
    }
    EXPECT(str_is((struct str){ text, n_bytes }, "{\"order\":{\"o") && n < 12);
    EXPECT_EQ(k.ops->forced(k.self, ids, 64), 0);
    k.ops->reset(k.self);
    EXPECT_EQ(k.ops->forced(k.self, ids, 1), 1);
    constraint_state_free(s);
    kit_close(&kit);
}

/* Follows random permitted tokens in both states. */
static void compare_states(struct constraint_state *s, struct constraint_state *t, uint64_t seed)
{
    struct sample_constraint k = constraint_state_ops(s), l = constraint_state_ops(t);
    uint32_t set[(CC_VOCAB + 31) / 32], other[(CC_VOCAB + 31) / 32];
    struct rng r = { .key = seed };

    for (int round = 0; round < 40; round++) {
        mask_of(s, 1 + rng_below(&r, 300), set, ARRAY_LEN(set));
        mask_of(t, UINT64_MAX, other, ARRAY_LEN(other));
        EXPECT(!memcmp(set, other, sizeof(set)));
        int32_t id = (int32_t)rng_below(&r, CC_END);
        while (id < CC_END && !token_set_has(set, id))
            id++;
        if (id < CC_END)
            EXPECT(k.ops->push(k.self, id) && l.ops->push(l.self, id));
    }
}

/* A state that an earlier choice has used equals a new one, also after a prefix was read. */
static void a_kept_state_equals_a_new_one(void)
{
    struct compiled_constraints all;
    struct err e = { 0 };

    compiled_constraints_open(&all);
    for (int i = 0; i < all.n; i++) {
        struct constraint_source src = source_of(cc_sources[i].kind, cc_sources[i].text);
        struct constraint *keeps;
        EXPECT_EQ(constraint_new(&keeps, &src, all.tables, &e), 0);
        constraint_keep_states(keeps);
        struct constraint_state *before = NULL;
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct constraint_state *s, *t;
            EXPECT_EQ(constraint_state_new(&s, keeps, &e), 0);
            EXPECT_EQ(constraint_state_new(&t, all.all[i], &e), 0);
            EXPECT(!before || s == before || constraint_state_bytes(t) > CONSTRAINT_IDLE_BYTES / 2);
            size_t n = seed % 2 ? constraint_state_read(s, STR("{ \"ci")) : 0;
            EXPECT_EQ(seed % 2 ? constraint_state_read(t, STR("{ \"ci")) : 0, n);
            compare_states(s, t, seed * 100 + (uint64_t)i);
            before = s;
            constraint_state_free(s);
            constraint_state_free(t);
        }
        constraint_unref(keeps);
    }
    compiled_constraints_close(&all);
}

/* Compiles and makes a state, while the nth allocation fails. True: none failed. */
static bool is_made_despite_failure(
    const struct constraint_source *src, const struct vocab_tables *t, uint64_t nth)
{
    struct constraint *c = NULL;
    struct constraint_state *s = NULL;
    struct err e = { 0 };

    mem_fail_after(nth);
    int rc = constraint_new(&c, src, t, &e) || constraint_state_new(&s, c, &e);
    mem_fail_after(0);
    EXPECT_EQ(rc, s ? 0 : 1);
    EXPECT(s || e.code == ERR_MEMORY || e.code == ERR_TOO_LARGE);
    constraint_state_free(s);
    constraint_unref(c);
    return rc == 0;
}

/* For each kind the nth allocation fails. Of a source with many allocations about FAILURES_MAX at
 * equal distances are tested. */
static void a_failed_allocation_is_an_error(void)
{
    enum { FAILURES_MAX = 200 };
    struct compiled_constraints all;

    compiled_constraints_open(&all);
    for (int i = 0; i < all.n; i++) {
        struct constraint_source src = source_of(cc_sources[i].kind, cc_sources[i].text);
        int n_failed = 0;
        uint64_t n = 1;
        while (!is_made_despite_failure(&src, all.tables, n) && n < ((uint64_t)1 << 20))
            n *= 2;
        uint64_t stride = n / FAILURES_MAX + 1;
        for (uint64_t nth = 1 + (uint64_t)i % stride; nth < n; nth += stride)
            n_failed += !is_made_despite_failure(&src, all.tables, nth);
        EXPECT(n_failed >= FAULTS_AT_LEAST(5));
    }
    compiled_constraints_close(&all);
}

TESTS(TEST(a_pattern_matches_the_whole_output), TEST(a_choice_accepts_exactly_its_strings),
    TEST(a_large_choice_is_a_trie), TEST(a_refused_source_names_the_reason),
    TEST(a_grammar_is_read_byte_by_byte), TEST(a_schema_accepts_its_instances),
    TEST(masks_avoid_texts_that_the_vocabulary_cannot_produce),
    TEST(a_state_is_a_function_of_the_pushed_tokens), TEST(a_prefix_is_read_before_the_first_token),
    TEST(a_mask_in_progress_survives_queries), TEST(a_state_allocates_nothing),
    TEST(forced_text_is_proposed_as_tokens), TEST(a_kept_state_equals_a_new_one),
    TEST(a_failed_allocation_is_an_error))
