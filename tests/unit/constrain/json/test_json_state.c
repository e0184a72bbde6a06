/* Memory of the acceptor of JSON values. */
#include "base/mem.h"
#include "base/rng.h"
#include "constrain/json/json_program.h"
#include "support/token_kit.h"

static const char *const schemas[] = {
    "{\"type\":\"array\",\"contains\":{\"type\":\"integer\"},\"minContains\":3,\"maxContains\":5,"
    "\"minItems\":6}",
    "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":[\"integer\",\"string\","
    "\"array\"],\"items\":{\"enum\":[1,2]}}}",
    "{\"type\":\"array\",\"not\":{\"contains\":{\"type\":\"null\"}},"
    "\"contains\":{\"type\":\"string\"},\"minContains\":2}",
    "{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}},"
    "{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}],"
    "\"unevaluatedProperties\":false}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],"
    "\"contains\":{\"type\":\"object\"},\"unevaluatedItems\":{\"type\":\"boolean\"}}",
    "{\"type\":\"object\",\"patternProperties\":{\"^a.*z$\":{\"type\":\"integer\"},\"b\":"
    "{\"type\":\"string\"}},\"additionalProperties\":{\"type\":\"null\"},\"minProperties\":2}",
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"number\"},"
    "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},\"required\":"
    "[\"v\",\"next\"],\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
    "{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}},"
    "\"required\":[\"b\"]},\"dependentRequired\":{\"a\":[\"c\"]},\"maxProperties\":4}",
    "true"
};

/* A schema with its acceptor. */
struct kit {
    struct schema *s;
    struct json_program *p;
    struct acceptor *a;
};

static int kit_try(
    struct kit *k, const char *schema, const struct json_program_options *o, struct err *e)
{
    *k = (struct kit){ 0 };
    if (schema_new(&k->s, str_of(schema), &schema_options_default, e) ||
        json_program_new(&k->p, k->s, o, e))
        return -1;
    return json_acceptor_new(&k->a, k->p, e);
}

static void kit_clear(struct kit *k)
{
    if (k->a)
        k->a->ops->free(k->a);
    json_program_free(k->p);
    schema_free(k->s);
}

static void kit_init(struct kit *k, const char *schema)
{
    static const struct json_program_options none = { 0 };
    struct err e = { 0 };

    if (kit_try(k, schema, &none, &e))
        print_error("%s: %s\n", schema, e.msg);
    EXPECT(k->a != NULL);
}

static uint8_t random_byte(const struct byte_set *next, struct rng *r)
{
    static const char ends[] = "}],\"";
    uint8_t byte;

    for (size_t k = 0; k < sizeof(ends) - 1; k++)
        if (byte_set_has(next, (uint8_t)ends[k]) && !rng_below(r, 3))
            return (uint8_t)ends[k];
    do {
        byte = (uint8_t)rng_below(r, 256);
    } while (!byte_set_has(next, byte));
    return byte;
}

/* Random texts; each operation of the acceptor is called. Returns the number of bytes. */
static unsigned walk(struct acceptor *a, struct rng *r, int n_steps)
{
    const struct acceptor_ops *ops = a->ops;
    uint32_t first = ops->mark(a);
    pos_id p = POS_START;
    unsigned n = 0;

    for (int k = 0; k < n_steps; k++) {
        struct byte_set next = ops->next_bytes(a, p);
        if (byte_set_is_empty(&next)) {
            EXPECT(ops->accepts(a, p));
            ops->release(a, first);
            p = POS_START;
            continue;
        }
        ops->key(a, p);
        ops->accepts(a, p);
        for (int class = 0; class < N_TOKEN_CLASSES; class ++)
            ops->reach(a, p, (enum token_class) class, 32);
        uint32_t mark = ops->mark(a);
        for (int j = 0; j < 3; j++)
            ops->step(a, p, (uint8_t)rng_below(r, 256));
        p = ops->step(a, p, random_byte(&next, r));
        EXPECT(p.i != 0);
        p = ops->keep(a, rng_below(r, 3) ? mark : first, p);
        n++;
    }
    ops->release(a, first);
    return n;
}

static void an_acceptor_allocates_nothing_after_creation(void)
{
    struct rng r = { .key = 3 };

    for (size_t n = 0; n < ARRAY_LEN(schemas); n++) {
        struct kit k;
        struct err e = { 0 };
        kit_init(&k, schemas[n]);
        noalloc_begin("JSON acceptor");
        unsigned n_bytes = walk(k.a, &r, 2000);
        noalloc_end();
        EXPECT(n_bytes > 500);
        EXPECT_EQ(k.a->ops->check(k.a, &e), 0);
        kit_clear(&k);
    }
}

/* ---- bounds */

static void too_many_positions_are_an_error(void)
{
    struct kit k;
    struct err e = { 0 };
    size_t n = 1;

    kit_init(&k, "{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}");
    const struct acceptor_ops *ops = k.a->ops;
    pos_id p = ops->step(k.a, POS_START, '[');
    for (; p.i && n < 1000000; n++) /* no position is freed */
        p = ops->step(k.a, p, n % 2 ? '7' : ',');
    EXPECT(!p.i && n > 10000);
    EXPECT_EQ(ops->check(k.a, &e), -1);
    EXPECT(e.code == ERR_TOO_LARGE && strstr(e.msg, "more memory than a choice has"));
    EXPECT(ops->bytes(k.a) <= JSON_MEMORY_MAX);
    kit_clear(&k);
}

static void walks_stay_within_the_memory_of_a_choice(void)
{
    struct rng r = { .key = 4 };

    for (size_t n = 0; n < ARRAY_LEN(schemas); n++) {
        struct kit k;
        struct err e = { 0 };
        kit_init(&k, schemas[n]);
        walk(k.a, &r, 3000);
        EXPECT_EQ(k.a->ops->check(k.a, &e), 0);
        EXPECT(k.a->ops->bytes(k.a) < 2 * MB);
        kit_clear(&k);
    }
}

/* ---- long outputs */

enum { OUTPUT_BYTES = 200000 };

/* Pushes `text` and then `part` until OUTPUT_BYTES are read, and at last `end`. The memory does not
 * exceed `bytes_max`. */
static void push_long(const struct vocab_tables *t, const char *schema, const char *text,
    const char *part, const char *end, size_t bytes_max)
{
    struct constraint_source src = { .kind = CONSTRAINT_JSON_SCHEMA, .text = str_of(schema) };
    struct constraint *c = NULL;
    struct constraint_state *s = NULL;
    struct err e = { 0 };
    bool is_read = true;

    EXPECT_EQ(constraint_new(&c, &src, t, &e), 0);
    EXPECT_EQ(constraint_state_new(&s, c, &e), 0);
    struct sample_constraint k = constraint_state_ops(s);
    noalloc_begin("long output");
    for (; *text; text++)
        is_read = is_read && k.ops->push(k.self, (uint8_t)*text);
    for (size_t n = 0; n < OUTPUT_BYTES && is_read; n++)
        is_read = k.ops->push(k.self, (uint8_t)part[n % strlen(part)]);
    for (; *end; end++)
        is_read = is_read && k.ops->push(k.self, (uint8_t)*end);
    noalloc_end();
    EXPECT(is_read && constraint_state_accepts(s));
    EXPECT(constraint_state_bytes(s) <= bytes_max);
    constraint_state_free(s);
    constraint_unref(c);
}

static void long_outputs_need_constant_memory(void)
{
    struct token_kit kit = token_kit_random(300, "a\"[],1", true, 1);
    struct token_source src = token_kit_source(&kit);
    struct vocab_tables *t = token_kit_tables(&src);

    push_long(
        t, "{\"type\":\"array\",\"items\":{\"type\":\"number\"}}", "[", "12.5, -3,", "0]", 1 * MB);
    push_long(
        t, "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}", "[\"", "text ", "\"]", 1 * MB);
    push_long(t, "{\"properties\":{\"a\":{\"type\":\"string\"}},\"additionalProperties\":false}",
        "{\"a\":\"", "text ", "\"}", 1 * MB);
    push_long(t,
        "{\"items\":{\"properties\":{\"k\":{\"enum\":[1,2]}},\"required\":[\"k\"],"
        "\"type\":\"object\"},\"type\":\"array\",\"contains\":{\"const\":{\"k\":2}}}",
        "[{\"k\":2}", ",{\"k\":1}", "]", 1 * MB);
    vocab_tables_free(t);
    token_kit_clear(&kit);
}

/* ---- failures */

static void a_failed_allocation_is_an_error(void)
{
    static const struct json_program_options none = { 0 };
    int n_failed = 0;

    for (size_t n = 0; n < ARRAY_LEN(schemas); n++) {
        bool is_done = false;
        for (uint64_t nth = 1; nth < 1000 && !is_done; nth++) {
            struct kit k = { 0 };
            struct err e = { 0 };
            EXPECT_EQ(schema_new(&k.s, str_of(schemas[n]), &schema_options_default, &e), 0);
            mem_fail_after(nth);
            uint64_t before = mem_failures();
            int rc = json_program_new(&k.p, k.s, &none, &e) || json_acceptor_new(&k.a, k.p, &e);
            mem_fail_after(0);
            is_done = mem_failures() == before;
            if (!rc && !is_done)
                print_error("no error: %s, allocation %u\n", schemas[n], (unsigned)nth);
            EXPECT_EQ(rc, is_done ? 0 : 1);
            EXPECT(!rc || e.code == ERR_MEMORY || e.code == ERR_TOO_LARGE);
            n_failed += rc != 0;
            kit_clear(&k);
        }
        EXPECT(is_done);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(300));
}

/* ---- the output policy */

static bool accepts(struct acceptor *a, const char *text)
{
    pos_id p = POS_START;

    for (; *text && p.i; text++)
        p = a->ops->step(a, p, (uint8_t)*text);
    return p.i && a->ops->accepts(a, p);
}

static const char *const pair_schema =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"items\":{\"type\":"
    "\"integer\"},\"type\":\"array\"},\"c\":{}},\"required\":[\"b\"],\"maxProperties\":3}";

static void expect_policy(
    const struct json_program_options *o, const char *const *texts, const bool *is_accepted)
{
    struct kit k;
    struct err e = { 0 };

    EXPECT_EQ(kit_try(&k, pair_schema, o, &e), 0);
    for (size_t n = 0; texts[n]; n++) {
        if (accepts(k.a, texts[n]) != is_accepted[n])
            print_error("wrong: %s\n", texts[n]);
        EXPECT(accepts(k.a, texts[n]) == is_accepted[n]);
    }
    kit_clear(&k);
}

static void properties_have_any_order_on_request(void)
{
    static const char *const texts[] = { "{\"a\":1,\"b\":[]}", "{\"b\":[],\"a\":1}",
        "{\"x\":0,\"b\":[1],\"a\":1}", "{\"x\":0,\"y\":0,\"z\":0}", "{\"x\":0,\"a\":1}",
        "{\"b\":[],\"a\":1,\"b\":[]}", "{\"x\":0,\"b\":[],\"x\":0}",
        "{\"x\":0,\"a\":1,\"c\":1,\"b\":[]}", NULL };
    static const bool any[] = { true, true, true, false, false, false, false, false };
    static const bool ordered[] = { true, false, false, false, false, false, false, false };
    struct json_program_options o = { .any_order = true };

    expect_policy(&o, texts, any);
    o.any_order = false;
    expect_policy(&o, texts, ordered);
}

static void whitespace_follows_the_policy(void)
{
    static const char *const texts[] = { "{\"a\":1,\"b\":[1,2]}", "{\"a\": 1, \"b\":[1 ,2]}",
        "{\"a\":  1,\"b\":[]}", "\n\t {\"b\" :\t[ \n\n\n ]\r}\n ", "{\"b\":[]} ", " {\"b\":[]}",
        "{\"b\":[1\n2]}", "{\"b \":[]}", NULL };
    static const bool expected[][8] = {
        [JSON_WS_DEFAULT] = { true, true, false, false, false, true, false, false },
        [JSON_WS_COMPACT] = { true, false, false, false, false, false, false, false },
        [JSON_WS_ANY] = { true, true, true, true, true, true, false, false },
    };

    for (int policy = JSON_WS_DEFAULT; policy <= JSON_WS_ANY; policy++) {
        struct json_program_options o = { .whitespace = (enum json_whitespace)policy };
        expect_policy(&o, texts, expected[policy]);
    }
}

TESTS(TEST(an_acceptor_allocates_nothing_after_creation), TEST(too_many_positions_are_an_error),
    TEST(walks_stay_within_the_memory_of_a_choice), TEST(long_outputs_need_constant_memory),
    TEST(a_failed_allocation_is_an_error), TEST(properties_have_any_order_on_request),
    TEST(whitespace_follows_the_policy))
