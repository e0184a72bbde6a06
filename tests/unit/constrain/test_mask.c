#include "constrain/mask.h"

#include "constrain/automaton_acceptor.h"
#include "constrain/regular/json_string.h"
#include "constrain/regular/number.h"
#include "support/language_kit.h"
#include "support/text_kit.h"
#include "support/token_kit.h"

#include <pthread.h>

enum { CACHE_BYTES = 64 * 1024 };

static struct acceptor *acceptor_of(struct exprs *x, expr_id root, struct automaton_limits limits)
{
    struct acceptor *a = NULL;
    struct err e = { 0 };

    EXPECT_EQ(automaton_acceptor_new(&a, x, root, limits, &e), 0);
    return a;
}

static struct mask *mask_of(const struct vocab_tables *t, struct acceptor *a)
{
    struct mask *m = NULL;
    struct err e = { 0 };

    EXPECT_EQ(mask_new(&m, t, a, CACHE_BYTES, &e), 0);
    return m;
}

/* Computes the mask in parts of random size, or as a whole. */
static const uint32_t *compute(struct mask *m, pos_id p, struct rng *parts)
{
    enum mask_progress status = MASK_MORE;
    struct err e = { 0 };

    mask_begin(m, p);
    while (status == MASK_MORE)
        status = mask_run(m, parts ? 1 + rng_below(parts, 400) : UINT64_MAX, &e);
    EXPECT_EQ((int)status, (int)MASK_DONE);
    return mask_tokens(m);
}

static void expect_definition(
    const struct token_source *src, struct acceptor *a, pos_id p, const uint32_t *mask)
{
    for (int32_t id = 0; id < src->n_tokens; id++)
        if (token_set_has(mask, id) != token_kit_permits(src, a, p, id)) {
            struct str b = src->bytes(src->ctx, id);
            printf("token %d '" STR_FMT "' in mask: %d\n", id, STR_ARG(b), token_set_has(mask, id));
            EXPECT(!"the mask differs from its definition");
        }
}

/* A permitted token, or -1. */
static int32_t pick(const struct token_source *src, const uint32_t *mask, struct rng *r)
{
    int32_t start = (int32_t)rng_below(r, (uint64_t)src->n_tokens);

    for (int32_t k = 0; k < src->n_tokens; k++) {
        int32_t id = (start + k) % src->n_tokens;
        if (token_set_has(mask, id) && src->bytes(src->ctx, id).n)
            return id;
    }
    return -1;
}

/* The forms of a mask agree. */
static void expect_forms(const struct mask *m, int32_t n_tokens)
{
    struct token_mask f = mask_form(m);
    const uint32_t *bits = mask_tokens(m);
    int n = 0;

    for (int32_t id = 0; id < n_tokens; id++) {
        if (f.form == MASK_FORM_IDS && token_set_has(bits, id))
            EXPECT(n < f.n_ids && f.ids[n] == id);
        n += token_set_has(bits, id);
    }
    if (f.form == MASK_FORM_IDS)
        EXPECT(n == f.n_ids && n <= n_tokens / 50);
    else if (f.form == MASK_FORM_ALL)
        EXPECT_EQ(n, n_tokens);
    else
        EXPECT(n > n_tokens / 50 && n < n_tokens && f.bits == bits);
}

/* The position after a token; older positions stay valid. */
static pos_id step_bytes(struct acceptor *a, pos_id p, struct str bytes)
{
    uint32_t mark = a->ops->mark(a);

    for (size_t k = 0; k < bytes.n && p.i; k++)
        p = a->ops->step(a, p, (uint8_t)bytes.p[k]);
    return p.i ? a->ops->keep(a, mark, p) : p;
}

/* Walks over permitted tokens; each mask equals the definition and the mask in parts. */
static void expect_walk(const struct token_source *src, const struct vocab_tables *t,
    struct acceptor *a, int n_tokens, uint64_t seed)
{
    struct mask *m = mask_of(t, a), *in_parts = mask_of(t, a);
    struct rng r = { .key = seed };
    pos_id p = POS_START;

    for (int k = 0; k < n_tokens; k++) {
        const uint32_t *mask = compute(m, p, NULL);
        expect_definition(src, a, p, mask);
        EXPECT(!memcmp(mask, compute(in_parts, p, &r), token_set_words(t->n_tokens) * 4));
        expect_forms(m, src->n_tokens);
        int32_t id = pick(src, mask, &r);
        if (id < 0)
            break;
        p = step_bytes(a, p, src->bytes(src->ctx, id));
    }
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

/* ---- an acceptor that is not an automaton: forwards to one, and permits a control token at some
 * positions */

struct proxy {
    struct acceptor base;
    struct acceptor *of;
    int32_t control;
};

static struct acceptor *target(struct acceptor *a)
{
    return container_of(a, struct proxy, base)->of;
}

static size_t proxy_tokens(struct acceptor *a, pos_id p, int32_t *ids, size_t cap)
{
    bool is_permitted = target(a)->ops->key(target(a), p) % 2;

    if (cap && is_permitted)
        ids[0] = container_of(a, struct proxy, base)->control;
    return is_permitted;
}

static pos_id proxy_step_token(struct acceptor *a, pos_id p, int32_t token)
{
    int32_t id;

    return proxy_tokens(a, p, &id, 1) && id == token ? p : POS_DEAD;
}

static pos_id proxy_step(struct acceptor *a, pos_id p, uint8_t byte)
{
    return target(a)->ops->step(target(a), p, byte);
}

static bool proxy_accepts(struct acceptor *a, pos_id p)
{
    return target(a)->ops->accepts(target(a), p);
}

static uint32_t proxy_reach(struct acceptor *a, pos_id p, enum token_class class, uint32_t n_max)
{
    return target(a)->ops->reach(target(a), p, class, n_max);
}

static bool proxy_permits_all(struct acceptor *a, pos_id p)
{
    return target(a)->ops->permits_all(target(a), p);
}

static uint64_t proxy_key(struct acceptor *a, pos_id p)
{
    return target(a)->ops->key(target(a), p);
}

static uint64_t proxy_generation(struct acceptor *a)
{
    return target(a)->ops->generation(target(a));
}

static uint32_t proxy_mark(struct acceptor *a)
{
    return target(a)->ops->mark(target(a));
}

static void proxy_release(struct acceptor *a, uint32_t mark)
{
    target(a)->ops->release(target(a), mark);
}

static pos_id proxy_keep(struct acceptor *a, uint32_t mark, pos_id p)
{
    return target(a)->ops->keep(target(a), mark, p);
}

static int proxy_check(const struct acceptor *a, struct err *e)
{
    const struct proxy *p = (const void *)a;

    return p->of->ops->check(p->of, e);
}

static const struct acceptor_ops proxy_ops = { .step = proxy_step,
    .step_token = proxy_step_token,
    .tokens = proxy_tokens,
    .accepts = proxy_accepts,
    .reach = proxy_reach,
    .permits_all = proxy_permits_all,
    .key = proxy_key,
    .generation = proxy_generation,
    .mark = proxy_mark,
    .release = proxy_release,
    .keep = proxy_keep,
    .check = proxy_check };

/* An id without bytes, for a control token. */
static int32_t without_bytes(const struct token_source *src)
{
    for (int32_t id = 0; id < src->n_tokens; id++)
        if (!src->bytes(src->ctx, id).n && !src->is_end(src->ctx, id))
            return id;
    return 0;
}

/* Walks with the steps of the automaton, and with those of an acceptor. */
static void expect_walk_both(const struct token_source *src, const struct vocab_tables *t,
    struct exprs *x, expr_id root, int n_tokens, uint64_t seed)
{
    struct acceptor *a = acceptor_of(x, root, kit_automaton_limits);
    struct proxy proxy = { { &proxy_ops }, a, without_bytes(src) };

    expect_walk(src, t, a, n_tokens, seed);
    expect_walk(src, t, &proxy.base, n_tokens, seed);
    a->ops->free(a);
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
        expect_walk_both(&src, t, l.x, random_expr(l.x, &r, 4), 12, seed);
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
        expect_walk_both(&src, t, l.x, typical(l.x, which), 10, which);
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
        struct automaton_limits small = { (which % 3 ? 160 : 1200) * KB, 1000000 };
        struct acceptor *a = acceptor_of(l.x, root, small);
        expect_walk(&src, t, a, 60, which);
        EXPECT_EQ(a->ops->check(a, &l.e), 0);
        EXPECT(a->ops->generation(a) > 1);
        a->ops->free(a);
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

    language_begin(&l);
    struct acceptor *a = acceptor_of(l.x, pattern_of(l.x, "^ab*$"), kit_automaton_limits);
    struct mask *m = mask_of(t, a);
    pos_id p = POS_START;
    EXPECT_EQ(compute(m, p, NULL)[0], 1u);
    p = a->ops->step(a, p, 'a');
    EXPECT_EQ(compute(m, p, NULL)[0], 6u);
    EXPECT_EQ(compute(m, POS_DEAD, NULL)[0], 0u);
    mask_free(m);
    a->ops->free(a);
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
    struct json_string_limits limits = { .max_length = 100000 };
    struct acceptor *a = acceptor_of(l.x, in_quotes(l.x, limits), kit_automaton_limits);
    struct mask *m = mask_of(t, a);
    pos_id p = step_bytes(a, POS_START, STR("\"some"));
    compute(m, p, NULL);
    p = step_bytes(a, p, STR(" text"));
    compute(m, p, NULL);
    EXPECT(t->irregular.n_nodes < t->trie.n_nodes / 3);
    /* The chain of uniform states is stored up to the length of the longest token. */
    EXPECT(mask_steps(m) < t->irregular.n_nodes + 5000);
    mask_free(m);
    a->ops->free(a);
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

    language_begin(&l);
    struct acceptor *a = acceptor_of(l.x, pattern_of(l.x, "^[a-z ]*[^0-9]$"), kit_automaton_limits);
    struct mask *m = mask_of(t, a);
    compute(m, POS_START, NULL);
    EXPECT(mask_steps(m) > 1000);
    noalloc_begin("mask");
    mask_begin(m, POS_START);
    EXPECT_EQ((int)mask_run(m, 1, &e), (int)MASK_DONE);
    EXPECT_EQ(mask_steps(m), 0u);
    noalloc_end();
    expect_definition(&src, a, POS_START, mask_tokens(m));
    EXPECT(mask_bytes(m) < 256 * KB);
    mask_free(m);
    a->ops->free(a);
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

    language_begin(&l);
    expr_id root = pattern_of(l.x, "^[a-c ]{0,9}[12]*$");
    struct acceptor *a = acceptor_of(l.x, root, kit_automaton_limits);
    struct mask *first = mask_of(t, a), *m = mask_of(t, a);
    compute(first, POS_START, NULL);
    noalloc_begin("mask");
    compute(m, POS_START, &r);
    noalloc_end();
    EXPECT(mask_steps(m) > 400);
    mask_free(first);
    mask_free(m);
    a->ops->free(a);
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
    expect_walk_both(w->src, w->t, l.x, typical(l.x, w->which), 20, w->which);
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
    struct acceptor *a = acceptor_of(l.x, root, (struct automaton_limits){ 16 * MB, 400 });
    struct mask *m = mask_of(t, a);
    mask_begin(m, POS_START);
    EXPECT_EQ((int)mask_run(m, UINT64_MAX, &e), (int)MASK_ERROR);
    EXPECT(strstr(e.msg, "400 steps") != NULL);
    mask_free(m);
    a->ops->free(a);
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

    language_begin(&l);
    struct acceptor *a = acceptor_of(l.x, pattern_of(l.x, "^a*$"), kit_automaton_limits);
    for (uint64_t nth = 1; nth < 12; nth++) {
        struct mask *m = NULL;
        struct err e = { 0 };
        mem_fail_after(nth);
        int rc = mask_new(&m, t, a, CACHE_BYTES, &e);
        mem_fail_after(0);
        EXPECT_EQ(rc, m ? 0 : -1);
        EXPECT(m || e.code == ERR_MEMORY);
        n_failed += rc != 0;
        mask_free(m);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(6));
    a->ops->free(a);
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
