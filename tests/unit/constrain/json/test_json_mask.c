/* Masks of JSON values equal each token tried alone, byte by byte. */
#include "constrain/json/json_program.h"
#include "constrain/mask.h"
#include "support/token_kit.h"

enum { N_TOKENS = 3000, WALKS = 6, WALK_TOKENS = 40, CACHE_BYTES = 64 * 1024 };

static const char *const schemas[] = {
    "true",
    "{\"type\":[\"string\",\"number\",\"null\"]}",
    "{\"properties\":{\"a\":{\"type\":\"string\"},\"ab\":{\"type\":\"integer\"},\"b1\":{}}}",
    "{\"properties\":{\"a\":{\"maxLength\":3},\"b\":{\"minLength\":2}},"
    "\"additionalProperties\":false}",
    "{\"additionalProperties\":{\"enum\":[\"a\",\"ab\",\"b\\\"\",1,12,null]}}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^a+b?$\"}}",
    "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":[\"string\",\"integer\"]}}",
    "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"object\","
    "\"additionalProperties\":{\"type\":\"string\"}}}",
    "{\"type\":\"object\",\"patternProperties\":{\"^a.*b$\":{\"type\":\"integer\"},\"b\":"
    "{\"type\":\"string\"}},\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":2}",
    "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-b]{1,9}$\"},\"maxProperties\":3}",
    "{\"type\":\"object\",\"propertyNames\":{\"minLength\":2},\"required\":[\"ab1\"]}",
    "{\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}}},{\"properties\":{\"a\":"
    "{\"pattern\":\"a.*1\"}},\"required\":[\"b\"]}],\"type\":\"object\"}",
    "{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}},"
    "\"required\":[\"b\"]},\"dependentRequired\":{\"a\":[\"ab\"]},\"maxProperties\":4}",
};

static void expect_definition(const struct token_source *src, const char *schema,
    struct acceptor *a, pos_id p, const uint32_t *mask)
{
    for (int32_t id = 0; id < src->n_tokens; id++)
        if (token_set_has(mask, id) != token_kit_permits(src, a, p, id)) {
            print_error("%s: token %d '" STR_FMT "' in mask: %d\n", schema, id,
                STR_ARG(src->bytes(src->ctx, id)), token_set_has(mask, id));
            EXPECT(!"the mask differs from its definition");
        }
}

static void compute(struct mask *m, pos_id p, struct rng *parts)
{
    enum mask_progress status = MASK_MORE;
    struct err e = { 0 };

    mask_begin(m, p);
    while (status == MASK_MORE)
        status = mask_run(m, parts ? 1 + rng_below(parts, 300) : UINT64_MAX, &e);
    EXPECT_EQ((int)status, (int)MASK_DONE);
}

/* A permitted token with bytes, or -1. */
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

static void expect_walk(const struct token_source *src, const struct vocab_tables *t,
    const char *schema, struct acceptor *a, struct rng *r)
{
    struct mask *whole = NULL, *in_parts = NULL;
    struct err e = { 0 };
    pos_id p = POS_START;

    EXPECT_EQ(mask_new(&whole, t, a, CACHE_BYTES, &e), 0);
    EXPECT_EQ(mask_new(&in_parts, t, a, 0, &e), 0);
    for (int k = 0; k < WALK_TOKENS && p.i; k++) {
        compute(whole, p, NULL);
        expect_definition(src, schema, a, p, mask_tokens(whole));
        compute(in_parts, p, r);
        EXPECT(!memcmp(mask_tokens(whole), mask_tokens(in_parts),
            token_set_words(src->n_tokens) * sizeof(uint32_t)));
        EXPECT_EQ(mask_steps(whole) ? mask_steps(in_parts) : 0, mask_steps(whole));
        int32_t id = pick(src, mask_tokens(whole), r);
        struct str bytes = id < 0 ? STR_NONE : src->bytes(src->ctx, id);
        uint32_t mark = a->ops->mark(a);
        for (size_t c = 0; c < bytes.n; c++)
            p = a->ops->step(a, p, (uint8_t)bytes.p[c]);
        p = bytes.n ? a->ops->keep(a, mark, p) : POS_DEAD;
    }
    mask_free(whole);
    mask_free(in_parts);
}

static void masks_equal_their_definition(void)
{
    static const struct json_program_options none = { 0 };
    static const char *const letters[] = { "\"\"ab1:,", "\"ab\\{}:, \n",
        "[]:,\"1ab\xc3\xa9\xe2\x82\xac" };

    for (size_t n = 0; n < ARRAY_LEN(letters); n++) {
        struct token_kit kit = token_kit_random(N_TOKENS, letters[n], true, 7 + n);
        struct token_source src = token_kit_source(&kit);
        struct vocab_tables *t = token_kit_tables(&src);
        struct rng r = { .key = n };
        for (size_t k = 0; k < ARRAY_LEN(schemas); k++) {
            struct schema *s = NULL;
            struct json_program *p = NULL;
            struct err e = { 0 };
            EXPECT_EQ(schema_new(&s, str_of(schemas[k]), &schema_options_default, &e), 0);
            EXPECT_EQ(json_program_new(&p, s, &none, &e), 0);
            for (int w = 0; w < WALKS; w++) {
                struct acceptor *a = NULL;
                EXPECT_EQ(json_acceptor_new(&a, p, &e), 0);
                expect_walk(&src, t, schemas[k], a, &r);
                a->ops->free(a);
            }
            json_program_free(p);
            schema_free(s);
        }
        vocab_tables_free(t);
        token_kit_clear(&kit);
    }
}

TESTS(TEST(masks_equal_their_definition))
