/* schema_random.h: random JSON schemas and values over a few keys, for tests of src/constrain.
 *
 * Owner: the test. */
#pragma once

#include "base/buf.h"
#include "base/rng.h"

/* Schemas without subschemas. */
static const char *const schema_atoms[] = { "true", "{\"type\":\"integer\"}",
    "{\"enum\":[1,\"a\",null]}", "{\"type\":[\"string\",\"array\"]}", "{\"maxLength\":1}",
    "{\"minimum\":2}", "false", "{\"type\":\"object\"}", "{\"required\":[\"b\"]}",
    "{\"maxItems\":1}", "{\"const\":{\"a\":1}}" };

/* Appends a schema of at most `depth` nested subschemas. */
static inline void random_schema(struct buf *b, struct rng *r, int depth)
{
    static const char *const forms[] = { "{\"properties\":{\"a\":%,\"b\":%}}",
        "{\"properties\":{\"a\":%},\"additionalProperties\":%}",
        "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":%}}",
        "{\"items\":%,\"minItems\":1}", "{\"prefixItems\":[%],\"items\":%}", "{\"contains\":%}",
        "{\"anyOf\":[%,%]}", "{\"oneOf\":[%,%]}", "{\"allOf\":[%,%]}", "{\"not\":%}",
        "{\"if\":%,\"then\":%,\"else\":%}", "{\"uniqueItems\":true,\"items\":%}",
        "{\"patternProperties\":{\"^a\":%},\"minProperties\":1}",
        "{\"dependentSchemas\":{\"a\":%}}",
        "{\"dependentRequired\":{\"a\":[\"b\"]},\"maxProperties\":2}",
        "{\"allOf\":[%],\"unevaluatedProperties\":false}",
        "{\"anyOf\":[%,%],\"unevaluatedItems\":%}" };

    if (!depth || !rng_below(r, 4)) {
        buf_putz(b, schema_atoms[rng_below(r, ARRAY_LEN(schema_atoms))]);
        return;
    }
    for (const char *at = forms[rng_below(r, ARRAY_LEN(forms))]; *at; at++)
        if (*at == '%')
            random_schema(b, r, depth - 1);
        else
            buf_putc(b, *at);
}

/* Appends a value of at most `depth` nested containers. */
static inline void random_value(struct buf *b, struct rng *r, int depth)
{
    static const char *const scalars[] = { "null", "1", "2", "1.5", "\"a\"", "\"ab\"", "\"\"",
        "true", "{\"a\":1}" };
    static const char *const keys[] = { "\"a\":", "\"b\":", "\"c\":" };
    bool is_first = true;

    switch (depth ? rng_below(r, 4) : 0) {
    case 2:
        buf_putc(b, '[');
        for (uint64_t n = rng_below(r, 4), k = 0; k < n; k++) {
            buf_putz(b, k ? "," : "");
            random_value(b, r, depth - 1);
        }
        buf_putc(b, ']');
        break;
    case 3:
        buf_putc(b, '{');
        for (size_t k = 0; k < ARRAY_LEN(keys); k++)
            if (rng_below(r, 2)) {
                buf_putz(b, is_first ? "" : ",");
                buf_putz(b, keys[k]);
                random_value(b, r, depth - 1);
                is_first = false;
            }
        buf_putc(b, '}');
        break;
    default:
        buf_putz(b, scalars[rng_below(r, ARRAY_LEN(scalars))]);
    }
}
