/* tests/golden/test_schema_suite.py compares the reader with the JSON Schema Test Suite. */
#include "constrain/schema/schema.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "constrain/schema/schema_uri.h"
#include "support/check.h"
#include "testing/schema_validate.h"

static struct schema *read_with(struct str text, const struct schema_options *o)
{
    struct schema *s = NULL;
    struct err e = { 0 };

    if (schema_new(&s, text, o, &e))
        fprintf(
            stderr, STR_FMT ": %s\n", STR_ARG(((struct str){ text.p, MIN(text.n, 200u) })), e.msg);
    EXPECT(s != NULL);
    return s;
}

static struct schema *read(const char *text)
{
    return read_with(str_of(text), NULL);
}

static const struct schema_node *root_of(const struct schema *s)
{
    return schema_node(s, schema_root(s));
}

static const struct schema_node *property_of(
    const struct schema *s, const struct schema_node *n, uint32_t k)
{
    EXPECT(k < n->n_properties);
    return schema_node(s, n->properties[k].value);
}

static bool accepts(const struct schema *s, const char *text)
{
    struct arena *a = arena_new(1 * MB);
    struct schema_validator *v;
    struct json *value;
    struct err e = { 0 };

    EXPECT(a && !json_parse(&value, str_of(text), a, NULL, &e));
    EXPECT(!schema_validator_new(&v, s, &e));
    int rc = schema_validate(v, value, &e);
    if (rc < 0)
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(rc >= 0);
    schema_validator_free(v);
    arena_free(a);
    return rc == 1;
}

/* ---- refused schemas */

static const struct {
    const char *schema, *error;
} refused[] = {
    { "", "#: line 1, column 1" },
    { "{\"type\":", "#: line 1" },
    { "{\"title\":\"\xff\"}", "#: line 1, column 11" },
    { "5", "#: a schema is an object or a boolean" },
    { "[]", "#: a schema is an object or a boolean" },
    { "{\"a\":1,\"b\":{\"c\":[{\"d\":1,\"d\":2}]}}", "#/b/c/0: the key \"d\" occurs twice" },
    { "{\"enum\":[{\"a~/\":1,\"a~/\":2}]}", "#/enum/0: the key \"a~/\" occurs twice" },
    { "{\"properties\":{\"a/b\":{\"pattern\":\"(?<=a)b\"}}}",
        "#/properties/a~1b/pattern: lookbehinds are not supported" },
    { "{\"pattern\":\"(a)\\\\1\"}", "#/pattern: backreferences are not supported" },
    { "{\"patternProperties\":{\"(\":true}}", "#/patternProperties: " },
    { "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/b\"}}}",
        "#/properties/a/$ref: \"/$defs/b\" is not in the document" },
    { "{\"$ref\":\"#b\"}", "#/$ref: \"#b\" is not in the document" },
    { "{\"$ref\":\"#/a%2\"}", "#/$ref: % is not followed by two hexadecimal digits" },
    { "{\"$ref\":\"http://a/b\"}",
        "#/$ref: \"http://a/b\" is not in the document, and nothing is fetched" },
    { "{\"$ref\":5}", "#/$ref: a string was expected" },
    { "{\"$ref\":\"#/title\",\"title\":\"a\"}", "#/title: a schema is an object or a boolean" },
    { "{\"$ref\":\"#\"}", "#: the schema refers to itself" },
    { "{\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/properties/a\"}]}}}",
        "#/properties/a: the schema refers to itself" },
    { "{\"items\":{\"not\":{\"$ref\":\"#/items\"}}}", "the schema refers to itself" },
    { "{\"if\":{\"$ref\":\"#\"}}", "#: the schema refers to itself" },
    { "{\"dependentSchemas\":{\"a\":{\"$ref\":\"#\"}}}", "#: the schema refers to itself" },
    { "{\"$defs\":{\"a\":{\"$anchor\":\"x\"},\"b\":{\"$anchor\":\"x\"}},\"$ref\":\"#x\"}",
        "#/$ref: \"#x\" is the anchor of several schemas" },
    { "{\"$defs\":{\"a\":{\"$id\":\"x\"},\"b\":{\"$id\":\"x\"}},\"$ref\":\"x\"}",
        "#/$ref: \"x\" is the URI of several schemas" },
    { "{\"$schema\":\"http://json-schema.org/draft-03/schema#\"}",
        "#/$schema: \"http://json-schema.org/draft-03/schema#\" is no known version" },
    { "{\"properties\":{\"a\":{\"type\":\"any\"}}}",
        "#/properties/a/type: null, boolean, integer, number, string, array or object" },
    { "{\"type\":[\"string\",1]}", "#/type: null, boolean" },
    { "{\"items\":{\"required\":true}}", "#/items/required: an array of strings" },
    { "{\"required\":[1]}", "#/required: an array of strings" },
    { "{\"properties\":[]}", "#/properties: an object of schemas" },
    { "{\"allOf\":[]}", "#/allOf: an array of schemas" },
    { "{\"anyOf\":{}}", "#/anyOf: an array of schemas" },
    { "{\"items\":{\"items\":5}}", "#/items/items: a schema is an object or a boolean" },
    { "{\"dependentRequired\":{\"a\":{}}}", "#/dependentRequired: an array of strings" },
    { "{\"minLength\":-1}", "#/minLength: an integer of 0 or more was expected" },
    { "{\"minLength\":1.5}", "#/minLength: an integer of 0 or more was expected" },
    { "{\"minLength\":\"1\"}", "#/minLength: a number was expected" },
    { "{\"minItems\":1e30}", "#/minItems: the count is out of range" },
    { "{\"minimum\":\"1\"}", "#/minimum: a number was expected" },
    { "{\"minimum\":1e99999}", "#/minimum: the magnitude of 1e99999 is out of range" },
    { "{\"multipleOf\":0}", "#/multipleOf: " },
    { "{\"multipleOf\":-2}", "#/multipleOf: " },
    { "{\"const\":1e99999}", "#/const: the magnitude of 1e99999 is out of range" },
    { "{\"enum\":5}", "#/enum: an array was expected" },
    { "{\"uniqueItems\":1}", "#/uniqueItems: a boolean was expected" },
    { "{\"format\":1}", "#/format: a string was expected" },
};

static void refused_schemas_name_the_place(void)
{
    for (size_t k = 0; k < ARRAY_LEN(refused); k++) {
        struct schema *s = NULL;
        struct err e = { 0 };
        int rc = schema_new(&s, str_of(refused[k].schema), NULL, &e);
        if (rc != -1 || e.code != ERR_INVALID || !strstr(e.msg, refused[k].error))
            fprintf(stderr, "%s: %d \"%s\"\n", refused[k].schema, rc, e.msg);
        EXPECT_EQ(rc, -1);
        EXPECT(e.code == ERR_INVALID);
        EXPECT(strstr(e.msg, refused[k].error) != NULL && e.msg[0] == '#' && !s);
    }
}

static void errors_in_unused_definitions_have_no_effect(void)
{
    struct schema *s = read("{\"$defs\":{\"a\":{\"pattern\":\"(\"},\"b\":5},\"type\":\"null\"}");

    EXPECT_EQ(root_of(s)->kinds, KIND_NULL);
    schema_free(s);
}

/* ---- the graph */

static void booleans_and_empty_schemas_are_the_constant_nodes(void)
{
    struct schema *s = read("{\"properties\":{\"a\":true,\"b\":false,\"c\":{}}}");
    const struct schema_node *n = root_of(s);

    EXPECT_EQ(n->properties[0].value.i, NODE_TRUE.i);
    EXPECT_EQ(n->properties[1].value.i, NODE_FALSE.i);
    EXPECT_EQ(n->properties[2].value.i, NODE_TRUE.i);
    EXPECT_EQ(schema_count(s), 3u);
    EXPECT_EQ(n->not_of.i, NODE_FALSE.i);
    EXPECT(n->max_items == UINT64_MAX && n->max_length == UINT64_MAX);
    EXPECT(n->max_contains == UINT64_MAX && n->max_properties == UINT64_MAX);
    schema_free(s);
    s = read("false");
    EXPECT_EQ(schema_root(s).i, NODE_FALSE.i);
    EXPECT(!accepts(s, "1"));
    schema_free(s);
}

static void properties_keep_their_order_and_required_ones_follow(void)
{
    struct schema *s =
        read("{\"required\":[\"z\",\"b\"],\"properties\":{\"b\":{\"type\":\"null\"},\"a\":true}}");
    const struct schema_node *n = root_of(s);

    EXPECT_EQ(n->n_properties, 3u);
    EXPECT(str_is(n->properties[0].key, "b") && n->properties[0].is_required);
    EXPECT(str_is(n->properties[1].key, "a") && !n->properties[1].is_required);
    EXPECT(str_is(n->properties[2].key, "z") && n->properties[2].is_required);
    EXPECT(n->properties[1].is_declared && !n->properties[2].is_declared);
    EXPECT(str_is(property_of(s, n, 0)->pointer, "#/properties/b"));
    schema_free(s);
}

static void references_that_double_share_nodes(void)
{
    struct buf b;
    struct schema *s;

    buf_init(&b, 1 * MB);
    buf_putz(&b, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int k = 0; k < 60; k++)
        buf_printf(&b,
            "\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},", k,
            k + 1, k + 1);
    buf_putz(&b, "\"d60\":{\"type\":\"null\"}}}");
    s = read_with(buf_str(&b), NULL);
    EXPECT(schema_count(s) < 200);
    schema_free(s);
    buf_clear(&b);
}

static void recursion_through_members_is_a_cycle_of_nodes(void)
{
    struct schema *s = read("{\"properties\":{\"next\":{\"$ref\":\"#\"}},\"type\":\"object\"}");
    const struct schema_node *next = property_of(s, root_of(s), 0);

    EXPECT_EQ(next->all_of.n, 1u);
    EXPECT_EQ(next->all_of.ids[0].i, schema_root(s).i);
    EXPECT(accepts(s, "{\"next\":{\"next\":{}}}") && !accepts(s, "{\"next\":{\"next\":1}}"));
    schema_free(s);
}

static void a_location_in_two_dynamic_scopes_is_two_nodes(void)
{
    struct schema *s = read("{\"$id\":\"http://a/\",\"properties\":{\"n\":{\"$ref\":\"numbers\"},"
                            "\"s\":{\"$ref\":\"strings\"}},\"$defs\":{"
                            "\"l\":{\"$id\":\"list\",\"items\":{\"$dynamicRef\":\"#t\"},"
                            "\"$defs\":{\"d\":{\"$dynamicAnchor\":\"t\"}}},"
                            "\"n\":{\"$id\":\"numbers\",\"$ref\":\"list\",\"$defs\":{\"t\":{"
                            "\"$dynamicAnchor\":\"t\",\"type\":\"number\"}}},"
                            "\"s\":{\"$id\":\"strings\",\"$ref\":\"list\",\"$defs\":{\"t\":{"
                            "\"$dynamicAnchor\":\"t\",\"type\":\"string\"}}}}}");

    EXPECT(accepts(s, "{\"n\":[1],\"s\":[\"a\"]}"));
    EXPECT(!accepts(s, "{\"n\":[\"a\"]}") && !accepts(s, "{\"s\":[1]}"));
    schema_free(s);
}

static void equal_values_of_enum_are_removed(void)
{
    struct schema *s =
        read("{\"enum\":[1,1.0,10e-1,\"1\",{\"a\":1,\"b\":[2]},{\"b\":[2.0],\"a\":1},"
             "true,null,true,1.0000000000000000000001]}");
    const struct schema_node *n = root_of(s);

    EXPECT(n->has_enum);
    EXPECT_EQ(n->n_values, 6u);
    EXPECT(str_is(n->values[0]->raw, "1") && str_is(n->values[2]->raw, "{\"a\":1,\"b\":[2]}"));
    schema_free(s);
    s = read("{\"const\":2,\"enum\":[1,2.0]}");
    EXPECT_EQ(root_of(s)->n_values, 1u);
    EXPECT(accepts(s, "2") && !accepts(s, "1"));
    schema_free(s);
    s = read("{\"enum\":[1],\"const\":2}");
    EXPECT(root_of(s)->has_enum && root_of(s)->n_values == 0);
    EXPECT(!accepts(s, "1") && !accepts(s, "2"));
    schema_free(s);
}

static void the_tighter_of_two_bounds_counts(void)
{
    struct schema *s = read("{\"minimum\":1,\"exclusiveMinimum\":1,\"maximum\":3,"
                            "\"exclusiveMaximum\":3.5,\"format\":\"uint32\",\"maxLength\":1e30}");
    const struct schema_node *n = root_of(s);

    EXPECT(n->range.is_min_exclusive && !n->range.is_max_exclusive);
    EXPECT_EQ(n->max_length, UINT64_MAX);
    EXPECT_EQ(n->kinds, KIND_ANY & ~KIND_FRACTION);
    EXPECT(accepts(s, "2") && accepts(s, "3") && accepts(s, "\"a\""));
    EXPECT(!accepts(s, "1") && !accepts(s, "2.5") && !accepts(s, "4"));
    schema_free(s);
}

static void ignored_keywords_are_reported_in_order(void)
{
    uint32_t n;
    struct schema *s = read("{\"x-b\":1,\"title\":\"t\",\"properties\":{\"a\":{\"format\":\"blob\","
                            "\"contentEncoding\":\"base64\",\"x-b\":2}}}");
    const struct str *names = schema_ignored(s, &n);

    EXPECT_EQ(n, 3u);
    EXPECT(str_is(names[0], "contentEncoding") && str_is(names[1], "format: blob"));
    EXPECT(str_is(names[2], "x-b"));
    schema_free(s);
}

static void pointers_are_escaped_and_shortened(void)
{
    struct buf b;
    struct schema *s;

    buf_init(&b, 1 * MB);
    buf_putz(&b, "{\"properties\":{\"a~\\u0001/b\":{\"type\":\"null\"},\"");
    for (int k = 0; k < 4000; k++)
        buf_putz(&b, "\xC3\xA9");
    buf_putz(&b, "\":{\"items\":{\"properties\":{\"last\":{\"type\":\"null\"}}}}}}");
    s = read_with(buf_str(&b), NULL);
    EXPECT(str_is(property_of(s, root_of(s), 0)->pointer, "#/properties/a~0?~1b"));
    const struct schema_node *items = schema_node(s, property_of(s, root_of(s), 1)->items);
    struct str pointer = property_of(s, items, 0)->pointer;
    EXPECT(pointer.n <= 300 && str_ends(pointer, STR("/items/properties/last")));
    EXPECT(utf8_valid(pointer));
    schema_free(s);
    buf_clear(&b);
}

/* ---- drafts */

static const struct {
    const char *schema, *valid, *invalid;
} old_forms[] = {
    /* without $schema */
    { "{\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}", "[null]", "[null,1]" },
    { "{\"minimum\":1,\"exclusiveMinimum\":true}", "1.5", "1" },
    { "{\"maximum\":1,\"exclusiveMaximum\":true}", "0", "1" },
    { "{\"exclusiveMaximum\":1}", "0", "1" },
    { "{\"$ref\":\"#/definitions/a\",\"definitions\":{\"a\":{\"type\":\"null\"}}}", "null", "1" },
    { "{\"$ref\":\"b\",\"definitions\":{\"a\":{\"id\":\"b\",\"type\":\"null\"}}}", "null", "1" },
    { "{\"$ref\":\"#b\",\"definitions\":{\"a\":{\"$id\":\"#b\",\"type\":\"null\"}}}", "null", "1" },
    { "{\"dependencies\":{\"a\":[\"b\"]}}", "{\"a\":1,\"b\":1}", "{\"a\":1}" },
    { "{\"dependencies\":{\"a\":{\"required\":[\"b\"]}}}", "{\"b\":1}", "{\"a\":1}" },
    { "{\"type\":\"string\",\"nullable\":true}", "null", "1" },
    { "{\"type\":\"string\",\"nullable\":false}", "\"a\"", "null" },
    { "{\"$ref\":\"#/components/schemas/"
      "a\",\"components\":{\"schemas\":{\"a\":{\"type\":\"null\"}}}}",
        "null", "1" },
    { "{\"$ref\":\"#/$defs/a\",\"maxLength\":1,\"$defs\":{\"a\":{\"type\":\"string\"}}}", "\"a\"",
        "\"ab\"" },
    { "{\"properties\":{\"a\":{\"$recursiveRef\":\"#\"}},\"additionalProperties\":false}",
        "{\"a\":{}}", "{\"a\":{\"b\":1}}" },
    { "{\"$ref\":\"https://json-schema.org/draft-07/schema\"}", "{\"type\":\"null\"}",
        "{\"type\":1}" },
    { "{\"$schema\":\"https://spec.openapis.org/oas/3.1/dialect/base\",\"prefixItems\":[false]}",
        "[]", "[1]" },
    { "{\"$schema\":\"https://json-schema.org/draft-07/schema\",\"$ref\":\"#/definitions/a\","
      "\"maxLength\":0,\"definitions\":{\"a\":{\"type\":\"string\"}}}",
        "\"ab\"", "1" },
};

static void older_forms_keep_their_meaning(void)
{
    for (size_t k = 0; k < ARRAY_LEN(old_forms); k++) {
        struct schema *s = read(old_forms[k].schema);
        if (!accepts(s, old_forms[k].valid) || accepts(s, old_forms[k].invalid))
            fprintf(stderr, "%s\n", old_forms[k].schema);
        EXPECT(accepts(s, old_forms[k].valid) && !accepts(s, old_forms[k].invalid));
        schema_free(s);
    }
}

static void documents_of_the_caller_resolve_references(void)
{
    static const struct schema_document documents[] = {
        { { "http://a/b", 10 }, { "{\"type\":\"null\",\"$defs\":{\"c\":5}}", 31 } },
        { { "http://a/bad", 12 }, { "{", 1 } },
    };
    struct schema_options o = schema_options_default;
    struct schema *s;
    struct err e = { 0 };

    o.documents = documents;
    o.n_documents = ARRAY_LEN(documents);
    s = read_with(STR("{\"$id\":\"http://a/x\",\"$ref\":\"b\"}"), &o);
    EXPECT(accepts(s, "null") && !accepts(s, "1"));
    schema_free(s);
    EXPECT_EQ(schema_new(&s, STR("{\"$ref\":\"http://a/b#/$defs/c\"}"), &o, &e), -1);
    EXPECT(strstr(e.msg, "http://a/b#/$defs/c: a schema is an object or a boolean") != NULL);
    EXPECT_EQ(schema_new(&s, STR("{\"$ref\":\"http://a/bad\"}"), &o, &e), -1);
    EXPECT(strstr(e.msg, "#/$ref: http://a/bad#: line 1") != NULL);
}

/* ---- closed_objects */

static const struct {
    const char *schema, *valid, *invalid;
} closed[] = {
    { "{\"properties\":{\"a\":true}}", "{\"a\":1}", "{\"b\":1}" },
    { "{\"items\":{\"properties\":{\"a\":true}}}", "[{\"a\":1}]", "[{\"b\":1}]" },
    { "{\"$ref\":\"#/$defs/d\",\"$defs\":{\"d\":{\"properties\":{\"a\":true}}}}", "{\"a\":1}",
        "{\"b\":1}" },
    { "{\"allOf\":[{\"properties\":{\"a\":true}},{\"properties\":{\"b\":true}}]}",
        "{\"a\":1,\"b\":1}", "{\"c\":1}" },
    { "{\"properties\":{\"a\":true},\"anyOf\":[{\"properties\":{\"b\":true}}]}",
        "{\"a\":1,\"b\":1}", "{\"c\":1}" },
    { "{\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]},"
      "{\"type\":\"object\",\"maxProperties\":1}]}",
        "{\"c\":1}", "{\"a\":null,\"b\":1}" },
    { "{\"properties\":{\"a\":true},\"additionalProperties\":{\"type\":\"null\"}}", "{\"b\":null}",
        "{\"b\":1}" },
    { "{\"properties\":{\"a\":true},\"if\":{\"properties\":{\"a\":{\"const\":1}}},"
      "\"then\":{\"properties\":{\"b\":true}}}",
        "{\"a\":1,\"b\":1}", "{\"a\":2,\"b\":1}" },
    { "{\"not\":{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]}}", "{\"b\":1}",
        "{\"a\":1,\"b\":1}" },
};

static void objects_with_properties_are_closed_on_request(void)
{
    struct schema_options o = schema_options_default;

    o.closed_objects = true;
    for (size_t k = 0; k < ARRAY_LEN(closed); k++) {
        struct schema *s = read_with(str_of(closed[k].schema), &o);
        if (!accepts(s, closed[k].valid) || accepts(s, closed[k].invalid))
            fprintf(stderr, "%s\n", closed[k].schema);
        EXPECT(accepts(s, closed[k].valid) && !accepts(s, closed[k].invalid));
        schema_free(s);
    }
    struct schema *s =
        read_with(STR("{\"allOf\":[{\"type\":\"object\"},{\"minProperties\":1}]}"), &o);
    EXPECT(accepts(s, "{\"b\":1}")); /* lists no properties */
    schema_free(s);
}

/* ---- bounds */

/* `head`, n times `part` with its number, `tail` */
static struct buf repeated(const char *head, const char *part, int n, const char *tail)
{
    struct buf b;

    buf_init(&b, 16 * MB);
    buf_putz(&b, head);
    for (int k = 0; k < n; k++)
        buf_printf(&b, part, k, k + 1);
    buf_putz(&b, tail);
    EXPECT(buf_ok(&b));
    return b;
}

static int error_of(struct buf b, const struct schema_options *o, const char *message)
{
    struct schema *s = NULL;
    struct err e = { 0 };

    if (!schema_new(&s, buf_str(&b), o, &e))
        schema_free(s);
    else if (!strstr(e.msg, message))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(strstr(e.msg, message) != NULL);
    buf_clear(&b);
    return (int)e.code;
}

static void bounds_are_errors(void)
{
    struct schema_options o = { .bytes_max = 1 * MB, .nodes_max = 500000 };
    struct schema_options few = { .bytes_max = 1 * MB, .nodes_max = 10 };

    EXPECT_EQ(
        error_of(repeated("[", "%d,%d,", 4000, "0]"), NULL, "the limit is 16384"), ERR_TOO_LARGE);
    EXPECT_EQ(error_of(repeated("", "[", 60000, ""), &o, "nested too deeply"), ERR_TOO_LARGE);
    EXPECT_EQ(error_of(repeated("{\"enum\":[", "%d,", 100000, "0]}"), &o, ""), ERR_NONE);
    EXPECT_EQ(error_of(repeated("{\"anyOf\":[", "{\"const\":%d},", 20, "true]}"), &few,
                  "more than 10 subschemas"),
        ERR_TOO_LARGE);
    EXPECT_EQ(error_of(repeated("{\"$defs\":{", "\"%d\":{\"$ref\":\"#/$defs/%d\"},", 5000,
                           "\"5000\":{}},\"$ref\":\"#/$defs/0\"}"),
                  &o, ""),
        ERR_NONE);
    EXPECT_EQ(error_of(repeated("{\"$defs\":{", "\"%d\":{\"$ref\":\"#/$defs/%d\"},", 5000,
                           "\"5000\":{\"$ref\":\"#/$defs/0\"}},\"$ref\":\"#/$defs/0\"}"),
                  &o, "the schema refers to itself"),
        ERR_INVALID);
}

/* Each resource refers to two others, and each adds a dynamic anchor: the number of dynamic scopes
 * is exponential. */
static void dynamic_scopes_are_bounded(void)
{
    struct schema_options o = { .bytes_max = 1 * MB, .nodes_max = 500000 };
    struct buf b = repeated("{\"$id\":\"http://a/\",\"$ref\":\"0\",\"$defs\":{",
        "\"%1$d\":{\"$id\":\"%1$d\",\"$dynamicAnchor\":\"a%1$d\",\"properties\":{\"a\":{\"$ref\":"
        "\"%2$d\"},\"b\":{\"$ref\":\"x%2$d\"}}},"
        "\"x%1$d\":{\"$id\":\"x%1$d\",\"$dynamicAnchor\":\"b%1$d\",\"properties\":{\"a\":{\"$ref\":"
        "\"%2$d\"},\"b\":{\"$ref\":\"x%2$d\"}}},",
        40, "\"40\":{\"$id\":\"40\"},\"x40\":{\"$id\":\"x40\"}}}");

    EXPECT_EQ(error_of(b, &o, "KiB of memory"), ERR_TOO_LARGE);
}

static void memory_is_proportional_to_the_text(void)
{
    struct schema_options o = { .bytes_max = 1 * MB, .nodes_max = 500000 };
    struct buf b = repeated(
        "{\"properties\":{", "\"property%d\":{\"type\":\"string\"},", 5000, "\"a\":true}}");
    struct schema *s = read_with(buf_str(&b), &o);

    EXPECT(schema_bytes(s) < 40 * b.n + 64 * KB);
    schema_free(s);
    buf_clear(&b);
}

static const char rich[] =
    "{\"$id\":\"http://a/"
    "\",\"$dynamicAnchor\":\"n\",\"x\":1,\"properties\":{\"a\":{\"$ref\":\"b\"},"
    "\"c\":{\"$dynamicRef\":\"#n\"},\"d\":{\"pattern\":\"^a\",\"format\":\"date\",\"maxLength\":5}}"
    ","
    "\"required\":[\"a\",\"q\"],\"allOf\":[{\"enum\":[1,{\"a\":[2]}]},{\"multipleOf\":0.5}],"
    "\"dependencies\":{\"a\":[\"b\"],\"c\":{\"anyOf\":[{\"$ref\":\"#/components/e\"}]}},"
    "\"components\":{\"e\":{\"$anchor\":\"k\",\"type\":\"null\"}},\"patternProperties\":{\"b\":"
    "{\"$ref\":\"http://json-schema.org/draft-04/schema\"}},\"$defs\":{\"b\":{\"$id\":\"b\","
    "\"a1\":1,\"a2\":1,\"a3\":1,\"a4\":1,\"a5\":1,\"a6\":1,\"a7\":1,\"a8\":1,\"a9\":1,\"a10\":1,"
    "\"a11\":1,\"a12\":1,\"a13\":1,\"a14\":1,\"a15\":1,\"a16\":1,\"items\":{\"const\":\"\\n\"}}}}";

static void a_failed_allocation_is_an_error(void)
{
    int n_failed = 0, rc = -1;

    for (uint64_t nth = 1; rc && nth < 2000; nth++) {
        struct schema *s = NULL;
        struct err e = { 0 };
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        rc = schema_new(&s, str_of(rich), NULL, &e);
        mem_fail_after(0);
        if (!rc && mem_failures() > before)
            rc = 1; /* the result does not need the allocation */
        /* a pool of expressions without memory is too large */
        EXPECT(s || e.code == ERR_MEMORY || e.code == ERR_TOO_LARGE);
        n_failed += rc < 0;
        schema_free(s);
    }
    EXPECT_EQ(rc, 0);
    EXPECT(n_failed >= FAULTS_AT_LEAST(40));
}

/* ---- URIs */

static void references_are_resolved_as_in_rfc_3986(void)
{
    static const struct {
        const char *reference, *target;
    } cases[] = {
        /* section 5.4, without fragments */
        { "g:h", "g:h" },
        { "g", "http://a/b/c/g" },
        { "./g", "http://a/b/c/g" },
        { "g/", "http://a/b/c/g/" },
        { "/g", "http://a/g" },
        { "//g", "http://g" },
        { "?y", "http://a/b/c/d;p?y" },
        { "g?y", "http://a/b/c/g?y" },
        { ";x", "http://a/b/c/;x" },
        { "", "http://a/b/c/d;p?q" },
        { ".", "http://a/b/c/" },
        { "./", "http://a/b/c/" },
        { "..", "http://a/b/" },
        { "../", "http://a/b/" },
        { "../g", "http://a/b/g" },
        { "../..", "http://a/" },
        { "../../g", "http://a/g" },
        { "../../../g", "http://a/g" },
        { "/./g", "http://a/g" },
        { "/../g", "http://a/g" },
        { "g.", "http://a/b/c/g." },
        { "..g", "http://a/b/c/..g" },
        { "./../g", "http://a/b/g" },
        { "./g/.", "http://a/b/c/g/" },
        { "g/./h", "http://a/b/c/g/h" },
        { "g/../h", "http://a/b/c/h" },
        { "g;x=1/../y", "http://a/b/c/y" },
        { "g?y/./x", "http://a/b/c/g?y/./x" },
    };
    struct uri_text out;
    struct err e = { 0 };

    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct str reference = str_of(cases[k].reference);
        EXPECT_EQ(uri_resolve(&out, STR("http://a/b/c/d;p?q"), reference, &e), 0);
        out.p[out.n] = '\0';
        EXPECT_STR(out.p, cases[k].target);
    }
    EXPECT(!uri_resolve(&out, STR(""), STR("./a/b"), &e) &&
           str_is((struct str){ out.p, out.n }, "a/b"));
    EXPECT(!uri_resolve(&out, STR(""), ((struct str){ "a\0b", 3 }), &e) && out.n == 3);
    char longer[URI_BYTES_MAX + 1];
    memset(longer, 'a', sizeof(longer));
    EXPECT_EQ(uri_resolve(&out, STR("a:/"), ((struct str){ longer, sizeof(longer) }), &e), -1);
    EXPECT_EQ(uri_resolve(&out, STR("a:/"), ((struct str){ longer, sizeof(longer) - 1 }), &e), -1);
    EXPECT(e.code == ERR_TOO_LARGE);
}

TESTS(TEST(refused_schemas_name_the_place), TEST(errors_in_unused_definitions_have_no_effect),
    TEST(booleans_and_empty_schemas_are_the_constant_nodes),
    TEST(properties_keep_their_order_and_required_ones_follow),
    TEST(references_that_double_share_nodes), TEST(recursion_through_members_is_a_cycle_of_nodes),
    TEST(a_location_in_two_dynamic_scopes_is_two_nodes), TEST(equal_values_of_enum_are_removed),
    TEST(the_tighter_of_two_bounds_counts), TEST(ignored_keywords_are_reported_in_order),
    TEST(pointers_are_escaped_and_shortened), TEST(older_forms_keep_their_meaning),
    TEST(documents_of_the_caller_resolve_references),
    TEST(objects_with_properties_are_closed_on_request), TEST(bounds_are_errors),
    TEST(dynamic_scopes_are_bounded), TEST(memory_is_proportional_to_the_text),
    TEST(a_failed_allocation_is_an_error), TEST(references_are_resolved_as_in_rfc_3986))
