/* tests/golden/test_schema_suite.py compares the validator with the JSON Schema Test Suite. */
#include "testing/schema_validate.h"

#include "base/mem.h"
#include "support/check.h"

static int validate(const char *schema, const char *text, struct err *e)
{
    struct arena *a = arena_new(1 * MB);
    struct schema *s = NULL;
    struct schema_validator *v = NULL;
    struct json *value;
    int rc = -1;

    EXPECT(a && !json_parse(&value, str_of(text), a, NULL, e));
    EXPECT(!schema_new(&s, str_of(schema), NULL, e));
    if (!schema_validator_new(&v, s, e))
        rc = schema_validate(v, value, e);
    schema_validator_free(v);
    schema_free(s);
    arena_free(a);
    return rc;
}

static const struct {
    const char *schema, *valid, *invalid;
} cases[] = {
    { "{\"type\":\"integer\"}", "10.0e-1", "1.5" },
    { "{\"multipleOf\":0.01}", "4.02", "4.021" },
    { "{\"multipleOf\":0.0001}", "1e300", "1.00005" },
    { "{\"multipleOf\":7}", "70000000000000000000000000000", "70000000000000000000000000001" },
    { "{\"exclusiveMinimum\":0.1}", "0.10000000000000000000000000001", "0.1" },
    { "{\"enum\":[1,{\"a\":[1,2]}]}", "{\"a\":[1.0,2e0]}", "1.0000000000000000000001" },
    { "{\"uniqueItems\":true}", "[1,true,\"1\",[1],{\"a\":1}]",
        "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]" },
    { "{\"maxLength\":2}", "\"\\ud83d\\ude00\\u00e9\"", "\"abc\"" },
    { "{\"contains\":{\"const\":1},\"maxContains\":1}", "[1,2]", "[1,1]" },
    { "{\"contains\":{\"const\":1},\"unevaluatedItems\":{\"const\":2}}", "[1,2]", "[1,3]" },
    { "{\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}}},{\"properties\":{\"b\":true}}],"
      "\"unevaluatedProperties\":false}",
        "{\"a\":1,\"b\":1}", "{\"a\":2,\"b\":1}" },
    { "{\"if\":{\"properties\":{\"a\":{\"const\":1}}},\"then\":{\"properties\":{\"b\":true}},"
      "\"else\":{\"properties\":{\"a\":true}},\"unevaluatedProperties\":false}",
        "{\"a\":1,\"b\":1}", "{\"a\":2,\"b\":1}" },
    { "{\"not\":{\"not\":{\"properties\":{\"a\":true}}},\"unevaluatedProperties\":false}", "{}",
        "{\"a\":1}" },
    { "{\"oneOf\":[{\"minimum\":1},{\"maximum\":3}]}", "0", "2" },
    { "{\"propertyNames\":{\"pattern\":\"^a\"},\"patternProperties\":{\"b$\":{\"type\":\"null\"}}}",
        "{\"ab\":null,\"a\":1}", "{\"ab\":1}" },
};

static void values_are_compared_by_the_definition(void)
{
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct err e = { 0 };
        int valid = validate(cases[k].schema, cases[k].valid, &e);
        int invalid = validate(cases[k].schema, cases[k].invalid, &e);
        if (valid != 1 || invalid)
            fprintf(stderr, "%s: %d %d %s\n", cases[k].schema, valid, invalid, e.msg);
        EXPECT_EQ(valid, 1);
        EXPECT_EQ(invalid, 0);
    }
}

static void numbers_out_of_range_are_errors(void)
{
    struct err e = { 0 };

    EXPECT_EQ(validate("{\"type\":\"number\"}", "1e99999", &e), -1);
    EXPECT(e.code == ERR_RANGE);
}

static void a_failed_allocation_is_an_error(void)
{
    static const char text[] = "{\"properties\":{\"a\":{\"pattern\":\"b\",\"format\":\"date\"}}}";
    struct arena *a = arena_new(1 * MB);
    struct schema *s = NULL;
    struct json *value;
    struct err e = { 0 };
    int n_failed = 0, rc = -1;

    EXPECT(a && !json_parse(&value, STR("{\"a\":\"b\"}"), a, NULL, &e));
    EXPECT(!schema_new(&s, str_of(text), NULL, &e));
    for (uint64_t nth = 1; rc < 0 && nth < 1000; nth++) {
        struct schema_validator *v = NULL;
        mem_fail_after(nth);
        if (!schema_validator_new(&v, s, &e))
            rc = schema_validate(v, value, &e);
        mem_fail_after(0);
        n_failed += rc < 0;
        schema_validator_free(v);
    }
    EXPECT_EQ(rc, 0);
    EXPECT(n_failed >= FAULTS_AT_LEAST(10));
    schema_free(s);
    arena_free(a);
}

TESTS(TEST(values_are_compared_by_the_definition), TEST(numbers_out_of_range_are_errors),
    TEST(a_failed_allocation_is_an_error))
