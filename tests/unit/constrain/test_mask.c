#include "constrain/mask.h"

#include "constrain/json_string.h"
#include "constrain/number.h"
#include "support/language_kit.h"
#include "support/text_kit.h"
#include "support/token_kit.h"

#include <pthread.h>

enum { CACHE_BYTES = 64 * 1024 };

static struct mask *mask_of(const struct vocab_tables *t, struct automaton *a)
{
    struct mask *m = NULL;
    struct err e = { 0 };

    EXPECT_EQ(mask_new(&m, t, a, CACHE_BYTES, &e), 0);
    return m;
}

/* Computes the mask in parts of random size, or as a whole. */
static const uint32_t *compute(struct mask *m, state_id s, struct rng *parts)
{
    enum mask_status status = MASK_PAUSED;
    struct err e = { 0 };

    mask_begin(m, s);
    while (status == MASK_PAUSED)
        status = mask_run(m, parts ? 1 + rng_below(parts, 400) : UINT64_MAX, &e);
    EXPECT_EQ((int)status, (int)MASK_READY);
    return mask_tokens(m);
}

static void expect_definition(
    const struct token_source *src, struct automaton *a, state_id s, const uint32_t *mask)
{
    struct automaton_roots roots = { .ids = &s, .n = 1 };

    automaton_add_roots(a, &roots);
    for (int32_t id = 0; id < src->n_tokens; id++)
        if (token_set_has(mask, id) != token_kit_permits(src, a, s, id)) {
            struct str b = src->bytes(src->ctx, id);
            printf("token %d '" STR_FMT "' in mask: %d\n", id, STR_ARG(b), token_set_has(mask, id));
            EXPECT(!"the mask differs from its definition");
        }
    automaton_remove_roots(a, &roots);
}

/* A permitted token, or -1. */
static int32_t pick(const struct token_source *src, const uint32_t *mask, struct rng *r)
{
    int32_t start = (int32_t)rng_below(r, (uint64_t)src->n_tokens);

    for (int32_t k = 0; k < src->n_tokens; k++) {
        int32_t id = (start + k) % src->n_tokens;
        if (token_set_has(mask, id) && !src->is_end(src->ctx, id))
            return id;
    }
    return -1;
}

/* Walks over permitted tokens; each mask equals the definition and the mask in parts. */
static void expect_walk(const struct token_source *src, const struct vocab_tables *t,
    struct automaton *a, int n_tokens, uint64_t seed)
{
    struct mask *m = mask_of(t, a), *in_parts = mask_of(t, a);
    struct rng r = { .key = seed };
    state_id s[1] = { automaton_start(a) };
    struct automaton_roots roots = { .ids = s, .n = 1 };

    automaton_add_roots(a, &roots);
    for (int k = 0; k < n_tokens; k++) {
        const uint32_t *mask = compute(m, s[0], NULL);
        expect_definition(src, a, s[0], mask);
        EXPECT(!memcmp(mask, compute(in_parts, s[0], &r), token_set_words(t->n_tokens) * 4));
        int32_t id = pick(src, mask, &r);
        if (id < 0)
            break;
        s[0] = automaton_run(a, s[0], src->bytes(src->ctx, id));
    }
    automaton_remove_roots(a, &roots);
    mask_free(m);
    mask_free(in_parts);
}

/* ---- languages */

static expr_id in_quotes(struct exprs *x, struct json_string_limits l)
{
    struct err e = { 0 };
    expr_id body, quote = expr_literal(x, STR("\""));

    EXPECT_EQ(expr_json_string(x, &l, &body, &e), 0);
    return expr_cat(x, quote, expr_cat(x, body, quote));
}

static expr_id pattern_of(struct exprs *x, const char *p)
{
    struct err e = { 0 };
    expr_id root;

    EXPECT_EQ(pattern_compile(x, str_of(p), TEXT_UTF8, PATTERN_SEARCH, &root, &e), 0);
    return root;
}

/* Typical languages: strings with and without limits, numbers, blanks. */
static expr_id typical(struct exprs *x, unsigned which)
{
    static const struct json_string_limits limits[] = { { .max_length = UINT64_MAX },
        { .max_length = 7 }, { .min_length = 3, .max_length = 5 },
        { .min_length = 20, .max_length = 1000 } };
    static const struct str pattern = { "^[a-z ]{2,9}$", 13 };
    static const char *const patterns[] = { "^(?:[ \\t]{0,9}|\\n[ \\t]{0,40})[1-9]?[0-9]{0,12}$",
        "^-?(?:0|[1-9][0-9]*)(?:\\.[0-9]{1,3})?$", "^[^a]{0,3}b.*$", "^(?:ab|ba)*c?$",
        "^.{0,5}(?:\\xe9|ab)$", "^[0-9 ]*$" };

    if (which < ARRAY_LEN(limits))
        return in_quotes(x, limits[which]);
    which -= ARRAY_LEN(limits);
    if (which == 0)
        return in_quotes(x, (struct json_string_limits){
                                .patterns = &pattern, .n_patterns = 1, .max_length = UINT64_MAX });
    if (which == 1)
        return expr_cat(x, expr_literal(x, STR("{ ")), EXPR_ALL);
    return pattern_of(x, patterns[which - 2]);
}
enum { N_TYPICAL = 12 };

/* Random expressions over a few bytes. */
static expr_id random_expr(struct exprs *x, struct rng *r, int depth)
{
    static const char letters[] = "ab1 \"\xC3\xA9";
    uint8_t byte = (uint8_t)letters[rng_below(r, sizeof(letters) - 1)];

    if (!depth)
        return expr_range(x, byte, byte);
    expr_id a = random_expr(x, r, depth - 1), b = random_expr(x, r, depth - 1);
    switch (rng_below(r, 7)) {
    case 0:
        return expr_or(x, a, b);
    case 1:
        return expr_and(x, expr_repeat(x, a, 0, REPEAT_INF), expr_not(x, b));
    case 2:
        return expr_repeat(x, a, 0, 1 + (uint32_t)rng_below(r, 40));
    case 3:
        return expr_repeat(x, expr_or(x, a, b), 0, REPEAT_INF);
    case 4:
        return expr_cat(x, a, expr_repeat(x, text_any(x, TEXT_JSON), 0, 5));
    case 5:
        return expr_cat(x, a, expr_or(x, b, EXPR_ALL));
    default:
        return expr_cat(x, a, b);
    }
}

/* ---- tests */

static void masks_of_random_languages_equal_the_definition(void)
{
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct token_kit k = token_kit_random(400, "ab1 \"\xC3\xA9", seed % 2, seed);
        struct token_source src = token_kit_source(&k);
        struct vocab_tables *t = token_kit_tables(&src);
        struct rng r = { .key = seed };
        struct language l;
        language_begin(&l);
        EXPECT_EQ(language_start(&l, random_expr(l.x, &r, 4)), 0);
        expect_walk(&src, t, l.a, 12, seed);
        language_end(&l);
        vocab_tables_free(t);
        token_kit_clear(&k);
    }
}

static void expect_masks_of_vocab(const char *path)
{
    struct vocab *v = kit_open_vocab(path);
    struct token_source src = token_source_of_vocab(v);
    struct vocab_tables *t = token_kit_tables(&src);

    for (unsigned which = 0; which < N_TYPICAL; which++) {
        struct language l;
        language_begin(&l);
        EXPECT_EQ(language_start(&l, typical(l.x, which)), 0);
        expect_walk(&src, t, l.a, 10, which);
        language_end(&l);
    }
    vocab_tables_free(t);
    vocab_close(v);
}

static void masks_of_model_files_equal_the_definition(void)
{
    static const char *const files[] = { "vocab/ggml-vocab-gpt-2.gguf",
        "vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-deepseek-llm.gguf" };
    char path[512];

    expect_masks_of_vocab("models/demo.gguf");
    for (size_t k = 0; k < ARRAY_LEN(files); k++)
        if (kit_data_path(path, files[k]))
            expect_masks_of_vocab(path);
}

/* Flushes of the automaton in the middle of a mask, and between its parts, do not change it. */
static void masks_are_exact_while_the_automaton_is_flushed(void)
{
    static const char *const patterns[] = {
        "^(?!\\.)(?!.*\\.\\.)[a-z\\p{Lo}.]{1,640}@(?:[a-z\\p{Lo}]{1,20}\\.){1,50}[a-z]{2,}$",
        "^[a-h]{0,3000}(?:[0-9 ]{0,2000}.{0,1000})?$"
    };
    struct token_kit k = token_kit_random(2000, "abcdefgh.@ 01", true, 7);
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);

    for (unsigned which = 0; which < 6; which++) {
        struct language l;
        struct json_string_limits limits = { .max_length = 3000 };
        language_begin(&l);
        expr_id root =
            which % 3 < 2 ? pattern_of(l.x, patterns[which % 3]) : in_quotes(l.x, limits);
        struct automaton_limits small = { (which % 3 ? 96 : 400) * KB, 1000000 };
        EXPECT_EQ(automaton_new(&l.a, l.x, root, small, &l.e), 0);
        expect_walk(&src, t, l.a, 60, which);
        EXPECT_EQ(automaton_check(l.a, &l.e), 0);
        EXPECT(automaton_generation(l.a) > 1);
        language_end(&l);
    }
    vocab_tables_free(t);
    token_kit_clear(&k);
}

static void end_tokens_are_permitted_in_accepting_states_only(void)
{
    struct str tokens[] = { STR("a"), STR("b"), STR("</s>") };
    struct token_kit k = { .tokens = tokens, .n = 3, .end = 2 };
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    struct language l;

    EXPECT_EQ(language_of_pattern(&l, "^ab*$", TEXT_UTF8), 0);
    struct mask *m = mask_of(t, l.a);
    state_id s = automaton_start(l.a);
    EXPECT_EQ(compute(m, s, NULL)[0], 1u);
    s = automaton_step(l.a, s, 'a');
    EXPECT_EQ(compute(m, s, NULL)[0], 6u);
    EXPECT_EQ(compute(m, STATE_DEAD, NULL)[0], 0u);
    mask_free(m);
    language_end(&l);
    vocab_tables_free(t);
}

/* Tokens of a limited string are added by class: only the others are tried. */
static void limited_strings_try_irregular_tokens_only(void)
{
    struct vocab *v = kit_open_vocab("models/demo.gguf");
    struct token_source src = token_source_of_vocab(v);
    struct vocab_tables *t = token_kit_tables(&src);
    struct language l;

    language_begin(&l);
    EXPECT_EQ(
        language_start(&l, in_quotes(l.x, (struct json_string_limits){ .max_length = 100000 })), 0);
    struct mask *m = mask_of(t, l.a);
    state_id s = automaton_run(l.a, automaton_start(l.a), STR("\"some"));
    compute(m, s, NULL);
    s = automaton_run(l.a, s, STR(" text"));
    compute(m, s, NULL);
    EXPECT(t->irregular.n_nodes < t->trie.n_nodes / 3);
    /* The chain of uniform states is stored up to the length of the longest token. */
    EXPECT(mask_steps(m) < t->irregular.n_nodes + 5000);
    mask_free(m);
    language_end(&l);
    vocab_tables_free(t);
    vocab_close(v);
}

static void a_stored_mask_takes_no_steps(void)
{
    struct vocab *v = kit_open_vocab("models/demo.gguf");
    struct token_source src = token_source_of_vocab(v);
    struct vocab_tables *t = token_kit_tables(&src);
    struct language l;
    struct err e = { 0 };

    EXPECT_EQ(language_of_pattern(&l, "^[a-z ]*[^0-9]$", TEXT_UTF8), 0);
    struct mask *m = mask_of(t, l.a);
    state_id s = automaton_start(l.a);
    compute(m, s, NULL);
    EXPECT(mask_steps(m) > 1000);
    noalloc_begin("mask");
    mask_begin(m, s);
    EXPECT_EQ((int)mask_run(m, 1, &e), (int)MASK_READY);
    EXPECT_EQ(mask_steps(m), 0u);
    noalloc_end();
    expect_definition(&src, l.a, s, mask_tokens(m));
    EXPECT(mask_bytes(m) < 256 * KB);
    mask_free(m);
    language_end(&l);
    vocab_tables_free(t);
    vocab_close(v);
}

/* After the states are known, a mask allocates nothing, also in parts. */
static void computing_a_mask_allocates_nothing(void)
{
    struct token_kit k = token_kit_random(2000, "abc 12\"", true, 3);
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    struct language l;
    struct rng r = { .key = 1 };

    EXPECT_EQ(language_of_pattern(&l, "^[a-c ]{0,9}[12]*$", TEXT_UTF8), 0);
    struct mask *first = mask_of(t, l.a), *m = mask_of(t, l.a);
    compute(first, automaton_start(l.a), NULL);
    noalloc_begin("mask");
    compute(m, automaton_start(l.a), &r);
    noalloc_end();
    EXPECT(mask_steps(m) > 400);
    mask_free(first);
    mask_free(m);
    language_end(&l);
    vocab_tables_free(t);
    token_kit_clear(&k);
}

struct walker {
    pthread_t thread;
    const struct token_source *src;
    const struct vocab_tables *t;
    unsigned which;
};

static void *run_walker(void *arg)
{
    struct walker *w = arg;
    struct language l;

    language_begin(&l);
    EXPECT_EQ(language_start(&l, typical(l.x, w->which)), 0);
    expect_walk(w->src, w->t, l.a, 20, w->which);
    language_end(&l);
    return NULL;
}

static void threads_share_the_tables(void)
{
    struct token_kit k = token_kit_random(2000, "abc 12\"", true, 3);
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    struct walker w[4];

    for (unsigned n = 0; n < ARRAY_LEN(w); n++) {
        w[n] = (struct walker){ .src = &src, .t = t, .which = n };
        EXPECT_EQ(pthread_create(&w[n].thread, NULL, run_walker, &w[n]), 0);
    }
    for (unsigned n = 0; n < ARRAY_LEN(w); n++)
        EXPECT_EQ(pthread_join(w[n].thread, NULL), 0);
    vocab_tables_free(t);
    token_kit_clear(&k);
}

static void an_exceeded_bound_fails_the_mask(void)
{
    struct token_kit k = token_kit_random(500, "ab", false, 3);
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    struct language l;
    struct err e = { 0 };

    language_begin(&l);
    expr_id root = pattern_of(l.x, "^(?:(?:a|b|ab){0,50}c?){0,50}$");
    EXPECT_EQ(automaton_new(&l.a, l.x, root, (struct automaton_limits){ 16 * MB, 400 }, &l.e), 0);
    struct mask *m = mask_of(t, l.a);
    mask_begin(m, automaton_start(l.a));
    EXPECT_EQ((int)mask_run(m, UINT64_MAX, &e), (int)MASK_FAILED);
    EXPECT(strstr(e.msg, "400 steps") != NULL);
    mask_free(m);
    language_end(&l);
    vocab_tables_free(t);
    token_kit_clear(&k);
}

static void a_failed_allocation_is_an_error(void)
{
    struct token_kit k = token_kit_random(300, "ab", true, 3);
    struct token_source src = token_kit_source(&k);
    struct vocab_tables *t = token_kit_tables(&src);
    struct language l;
    int n_failed = 0;

    EXPECT_EQ(language_of_pattern(&l, "^a*$", TEXT_UTF8), 0);
    for (uint64_t nth = 1; nth < 12; nth++) {
        struct mask *m = NULL;
        struct err e = { 0 };
        mem_fail_after(nth);
        int rc = mask_new(&m, t, l.a, CACHE_BYTES, &e);
        mem_fail_after(0);
        EXPECT_EQ(rc, m ? 0 : -1);
        EXPECT(m || e.code == ERR_MEMORY);
        n_failed += rc != 0;
        mask_free(m);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(6));
    language_end(&l);
    vocab_tables_free(t);
    token_kit_clear(&k);
}

TESTS(TEST(masks_of_random_languages_equal_the_definition),
    TEST(masks_of_model_files_equal_the_definition),
    TEST(masks_are_exact_while_the_automaton_is_flushed),
    TEST(end_tokens_are_permitted_in_accepting_states_only),
    TEST(limited_strings_try_irregular_tokens_only), TEST(a_stored_mask_takes_no_steps),
    TEST(computing_a_mask_allocates_nothing), TEST(threads_share_the_tables),
    TEST(an_exceeded_bound_fails_the_mask), TEST(a_failed_allocation_is_an_error))
