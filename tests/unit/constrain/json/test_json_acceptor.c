#include "constrain/json/json_acceptor_in.h"

#include "base/mem.h"
#include "base/rng.h"
#include "constrain/json/json_instance.h"
#include "support/check.h"
#include "support/schema_random.h"
#include "testing/schema_validate.h"

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        EXPECT(false);                                                                             \
    } while (0)

/* A schema with its acceptor. */
struct kit {
    struct schema *s;
    struct json_program *p;
    struct acceptor *a;
    struct err e;
};

static int kit_try(struct kit *k, const char *schema, const struct json_program_options *o)
{
    *k = (struct kit){ 0 };
    if (schema && schema_new(&k->s, str_of(schema), &schema_options_default, &k->e))
        return -1;
    if (json_program_new(&k->p, k->s, o, &k->e))
        return -1;
    return json_acceptor_new(&k->a, k->p, &k->e);
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

    if (kit_try(k, schema, &none))
        FAIL("%s: %s", schema, k->e.msg);
}

static pos_id read_text(struct acceptor *a, pos_id p, const char *text)
{
    for (; *text && p.i; text++)
        p = a->ops->step(a, p, (uint8_t)*text);
    return p;
}

static bool accepts(struct acceptor *a, const char *text)
{
    pos_id p = read_text(a, POS_START, text);

    return p.i && a->ops->accepts(a, p);
}

static void expect_texts(const char *schema, const char *const *yes, const char *const *no)
{
    struct kit k;

    kit_init(&k, schema);
    for (; *yes; yes++)
        if (!accepts(k.a, *yes))
            FAIL("%s rejects %s", schema, *yes);
    for (; *no; no++)
        if (accepts(k.a, *no))
            FAIL("%s accepts %s", schema, *no);
    kit_clear(&k);
}

#define TEXTS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void json_mode_reads_every_object_and_nothing_else(void)
{
    static const struct json_program_options mode = { .object_only = true };
    struct kit k;

    EXPECT_EQ(kit_try(&k, NULL, &mode), 0);
    EXPECT(accepts(k.a, "{}"));
    EXPECT(accepts(k.a, "{\"a\": [1, -2.5e3, {\"b\":null}],\n  \"c\":\"\\u0041\\n\"}"));
    EXPECT(!accepts(k.a, "[]"));
    EXPECT(!accepts(k.a, "{\"a\":1,\"a\":2}"));
    EXPECT(!accepts(k.a, "{\"a\":01}"));
    EXPECT(!accepts(k.a, "{\"a\":1,}"));
    EXPECT(!accepts(k.a, "{\"a\":\"\\ud800\"}"));
    EXPECT(!accepts(k.a, "{}\n"));
    kit_clear(&k);
}

static void nesting_ends_at_128_containers(void)
{
    struct kit k;
    pos_id p = POS_START;

    kit_init(&k, "true");
    for (int n = 0; n < JSON_DEPTH_MAX; n++) {
        p = k.a->ops->step(k.a, p, '[');
        EXPECT(p.i != 0);
    }
    EXPECT(!k.a->ops->step(k.a, p, '[').i);
    EXPECT(!k.a->ops->step(k.a, p, '{').i);
    EXPECT(k.a->ops->step(k.a, p, '1').i != 0);
    kit_clear(&k);
}

static void objects_follow_the_order_of_the_schema(void)
{
    expect_texts("{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"enum\":[\"x\",[1]]}},"
                 "\"required\":[\"b\"],\"additionalProperties\":{\"type\":\"null\"}}",
        TEXTS("{\"a\":1,\"b\":\"x\"}", "{\"b\":[1]}", "{\"b\":\"x\",\"c\":null}", "7"),
        TEXTS("{\"b\":\"x\",\"a\":1}", "{\"a\":1}", "{\"b\":\"y\"}", "{\"b\":\"x\",\"c\":1}"));
}

static void keys_match_patterns_and_names(void)
{
    expect_texts("{\"type\":\"object\",\"patternProperties\":{\"^[ab]$\":{\"type\":\"boolean\"}},"
                 "\"additionalProperties\":false,\"minProperties\":2}",
        TEXTS("{\"a\":true,\"b\":false}"), TEXTS("{\"a\":true}", "{\"a\":true,\"c\":1}"));
    expect_texts("{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1}}",
        TEXTS("{\"a\":1,\"b\":2}", "{}"), TEXTS("{\"ab\":1}"));
}

static void boolean_operators_are_exact(void)
{
    expect_texts("{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\"}",
        TEXTS("{\"a\":1}", "{\"b\":1,\"c\":2}"), TEXTS("{}", "{\"a\":1,\"b\":1}"));
    expect_texts("{\"not\":{\"items\":{\"type\":\"integer\"}}}", TEXTS("[\"x\"]", "[1,null]"),
        TEXTS("[]", "[1,2]", "5"));
    expect_texts("{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"v\":{}},"
                 "\"required\":[\"k\",\"v\"],\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},"
                 "\"then\":{\"properties\":{\"v\":{\"type\":\"string\"}}},"
                 "\"else\":{\"properties\":{\"v\":{\"type\":\"null\"}}}}",
        TEXTS("{\"k\":\"a\",\"v\":\"\"}", "{\"k\":\"b\",\"v\":null}"),
        TEXTS("{\"k\":\"a\",\"v\":null}", "{\"k\":\"b\",\"v\":\"\"}"));
}

static void items_are_counted_and_unique(void)
{
    expect_texts("{\"type\":\"array\",\"contains\":{\"type\":\"null\"},\"maxContains\":1,"
                 "\"maxItems\":2}",
        TEXTS("[null]", "[1,null]"), TEXTS("[]", "[1,2]", "[null,null]", "[1,2,null]"));
    expect_texts("{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true}",
        TEXTS("[1,2]", "[2]", "[]"), TEXTS("[1,1]", "[1,2,1]"));
    expect_texts("{\"items\":{\"items\":true},\"uniqueItems\":true,\"type\":\"array\"}",
        TEXTS("[[1],[2]]", "[{\"a\":1,\"b\":2},{\"a\":2,\"b\":1}]"),
        TEXTS("[[1],[1]]", "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]"));
    /* After both values no item is left, so the comma is forbidden. */
    struct kit k;
    kit_init(&k, "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"uniqueItems\":true}");
    pos_id p = read_text(k.a, POS_START, "[1,2");
    EXPECT(p.i != 0);
    EXPECT(!k.a->ops->step(k.a, p, ',').i);
    kit_clear(&k);
}

static void an_unsatisfiable_schema_is_an_error(void)
{
    static const struct json_program_options none = { 0 };
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
        "{\"type\":\"string\",\"enum\":[1]}", "{\"allOf\":[{\"type\":\"null\"},false]}",
        "{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}",
        "{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":1}",
        "{\"type\":\"object\",\"allOf\":[{\"minProperties\":1},{\"maxProperties\":0}]}",
        "{\"type\":\"object\",\"required\":[\"b\"],\"additionalProperties\":false}"
    };

    for (size_t n = 0; n < ARRAY_LEN(schemas); n++) {
        struct kit k;
        EXPECT_EQ(kit_try(&k, schemas[n], &none), -1);
        EXPECT(k.e.code == ERR_INVALID);
        EXPECT(strstr(k.e.msg, "no value satisfies") != NULL);
        kit_clear(&k);
    }
}

/* ---- random schemas */

/* A random text that is completed byte by byte. */
static void walk(struct kit *k, struct schema_validator *v, struct rng *r)
{
    struct acceptor *a = k->a;
    struct buf text;
    uint32_t mark = a->ops->mark(a);
    pos_id p = POS_START;

    buf_init(&text, 1 * MB);
    for (int n = 0; n < 400; n++) {
        struct byte_set next = a->ops->next_bytes(a, p);
        uint8_t byte;
        if (a->ops->accepts(a, p)) {
            struct arena *m = arena_new(16 * MB);
            struct json *value;
            EXPECT_EQ(json_parse(&value, buf_str(&text), m, &json_limits_default, &k->e), 0);
            if (schema_validate(v, value, &k->e) != 1)
                FAIL("walk: " STR_FMT, STR_ARG(buf_str(&text)));
            arena_free(m);
            break;
        }
        if (byte_set_is_empty(&next))
            FAIL("dead end after " STR_FMT, STR_ARG(buf_str(&text)));
        do {
            byte = (uint8_t)rng_below(r, 256);
        } while (!byte_set_has(&next, byte));
        if (rng_below(r, 2) && byte_set_has(&next, '"'))
            byte = '"';
        buf_putc(&text, (char)byte);
        p = a->ops->step(a, p, byte);
        EXPECT(p.i != 0);
        if (rng_below(r, 2))
            p = a->ops->keep(a, mark, p);
    }
    buf_clear(&text);
    a->ops->release(a, mark);
}

static void compare_values(struct kit *k, struct schema_validator *v, struct rng *r,
    const char *schema, unsigned *n_valid, unsigned *n_missed)
{
    for (int n = 0; n < 12; n++) {
        struct arena *m = arena_new(16 * MB);
        struct buf b, text;
        struct json *value;
        uint32_t mark = k->a->ops->mark(k->a);
        buf_init(&b, 1 * MB);
        buf_init(&text, 1 * MB);
        random_value(&b, r, 2);
        EXPECT_EQ(json_parse(&value, buf_str(&b), m, &json_limits_default, &k->e), 0);
        bool is_valid = schema_validate(v, value, &k->e) == 1;
        pos_id p = json_instance_read(k->a, POS_START, value, &text);
        bool is_accepted = p.i && k->a->ops->accepts(k->a, p);
        if (is_accepted && !is_valid)
            FAIL("%s accepts " STR_FMT, schema, STR_ARG(buf_str(&b)));
        *n_valid += is_valid;
        *n_missed += is_valid && !is_accepted;
        k->a->ops->release(k->a, mark);
        buf_clear(&b);
        buf_clear(&text);
        arena_free(m);
    }
}

static void random_schemas_agree_with_a_validator(void)
{
    static const struct json_program_options none = { 0 };
    struct rng r = { .key = 7 };
    unsigned n_valid = 0, n_missed = 0;

    for (int n = 0; n < 600; n++) {
        struct kit k;
        struct schema_validator *v = NULL;
        struct buf b;
        buf_init(&b, 1 * MB);
        random_schema(&b, &r, 3);
        buf_putc(&b, '\0');
        if (!kit_try(&k, b.p, &none)) {
            EXPECT_EQ(schema_validator_new(&v, k.s, &k.e), 0);
            compare_values(&k, v, &r, b.p, &n_valid, &n_missed);
            walk(&k, v, &r);
        }
        schema_validator_free(v);
        kit_clear(&k);
        buf_clear(&b);
    }
    EXPECT(n_valid > 500);
    EXPECT(n_missed * 20 < n_valid); /* the output policy is narrower than the schema */
}

/* ---- positions */

static void positions_are_persistent(void)
{
    struct kit k;

    kit_init(&k, "{\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}");
    struct acceptor *a = k.a;
    pos_id p = read_text(a, POS_START, "{\"a\":[\"x\"");
    uint32_t mark = a->ops->mark(a);
    pos_id q = read_text(a, p, ",\"y\"],\"more\":{\"k\":1}}");
    EXPECT(a->ops->accepts(a, q));
    EXPECT(read_text(a, p, "]}").i != 0);
    a->ops->release(a, mark);
    EXPECT(!a->ops->step(a, p, '}').i);
    q = a->ops->keep(a, mark, read_text(a, p, ",\"y\""));
    EXPECT_EQ(a->ops->mark(a), mark + 1);
    EXPECT(a->ops->accepts(a, read_text(a, q, "]}")));
    EXPECT(a->ops->accepts(a, read_text(a, p, "]}")));
    EXPECT_EQ(a->ops->key(a, q), a->ops->key(a, read_text(a, p, ",\"zz\"")));
    kit_clear(&k);
}

static void free_strings_permit_characters_by_number(void)
{
    struct kit k;

    kit_init(&k, "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":9}}");
    pos_id p = read_text(k.a, POS_START, "[\"ab");
    EXPECT_EQ(k.a->ops->reach(k.a, p, CLASS_STRING, 32), 7u);
    kit_clear(&k);
    kit_init(&k, "{\"type\":\"string\"}");
    EXPECT_EQ(k.a->ops->reach(k.a, read_text(k.a, POS_START, "\"ab"), CLASS_STRING, 32), 32u);
    kit_clear(&k);
}

TESTS(TEST(json_mode_reads_every_object_and_nothing_else), TEST(nesting_ends_at_128_containers),
    TEST(objects_follow_the_order_of_the_schema), TEST(keys_match_patterns_and_names),
    TEST(boolean_operators_are_exact), TEST(items_are_counted_and_unique),
    TEST(an_unsatisfiable_schema_is_an_error), TEST(random_schemas_agree_with_a_validator),
    TEST(positions_are_persistent), TEST(free_strings_permit_characters_by_number))
