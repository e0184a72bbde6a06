/* Memory of the acceptor of JSON values. */
#include "base/mem.h"
#include "base/rng.h"
#include "constrain/json_program.h"
#include "support/check.h"

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

TESTS(TEST(an_acceptor_allocates_nothing_after_creation))
