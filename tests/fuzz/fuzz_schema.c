/* Fuzzes the reader of JSON Schema: memory and the number of nodes stay within their bounds, ids
 * are in range, nodes that are applied to the same value form no cycle, and the validator ends.
 *
 * The input is a schema, optionally followed by a zero byte and a value. */
#include "base/mem.h"
#include "support/schema_small.h"
#include "testing/schema_validate.h"

enum { TEXT_MAX = 4096, VALUE_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_id(const struct schema *s, node_id id)
{
    CHECK(id.i < schema_count(s));
}

static void check_list(const struct schema *s, struct node_list list)
{
    for (uint32_t k = 0; k < list.n; k++)
        check_id(s, list.ids[k]);
}

static void check_node(const struct schema *s, const struct schema_node *n)
{
    const node_id ids[] = { n->not_of, n->if_of, n->then_of, n->else_of, n->items, n->contains,
        n->unevaluated_items, n->additional_properties, n->property_names,
        n->unevaluated_properties };
    const struct node_list lists[] = { n->all_of, n->any_of, n->one_of, n->prefix_items };

    for (size_t k = 0; k < ARRAY_LEN(ids); k++)
        check_id(s, ids[k]);
    for (size_t k = 0; k < ARRAY_LEN(lists); k++)
        check_list(s, lists[k]);
    for (uint32_t k = 0; k < n->n_properties; k++) {
        check_id(s, n->properties[k].value);
        CHECK(n->properties[k].is_declared || n->properties[k].value.i == NODE_TRUE.i);
    }
    for (uint32_t k = 0; k < n->n_pattern_properties; k++)
        check_id(s, n->pattern_properties[k].value);
    for (uint32_t k = 0; k < n->n_dependencies; k++)
        check_id(s, n->dependencies[k].schema);
    for (uint32_t k = 0; k < n->n_values; k++)
        for (uint32_t l = 0; l < k && k < 20; l++)
            CHECK(!json_equal(n->values[k], n->values[l]));
    CHECK(n->pointer.n && n->pointer.n < 400);
}

static void validate(const struct schema *s, struct str text)
{
    struct arena *a = arena_new(1 * MB);
    struct schema_validator *v;
    struct json *value;
    struct err e = { 0 };

    CHECK(a);
    if (schema_is_small(s) && !json_parse(&value, text, a, NULL, &e) &&
        !schema_validator_new(&v, s, &e)) {
        int rc = schema_validate(v, value, &e);
        CHECK(rc >= -1 && rc <= 1);
        schema_validator_free(v);
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    struct str text = { (const char *)data, MIN(n, (size_t)TEXT_MAX) };
    struct str value = { (const char *)data + n + (zero != NULL), size - n - (zero != NULL) };
    struct schema_options o = { .bytes_max = TEXT_MAX, .nodes_max = 5000 };

    for (int k = 0; k < 2; k++) {
        struct schema *s = NULL;
        struct err e = { 0 };
        o.closed_objects = k;
        if (schema_new(&s, text, &o, &e)) {
            CHECK(!s && e.msg[0]);
            CHECK(e.code == ERR_INVALID || e.code == ERR_TOO_LARGE || e.code == ERR_MEMORY);
            continue;
        }
        CHECK(schema_count(s) <= 5000 && schema_bytes(s) < 34 * MB);
        check_id(s, schema_root(s));
        for (uint32_t id = 0; id < schema_count(s); id++)
            check_node(s, schema_node(s, (node_id){ id }));
        validate(s, (struct str){ value.p, MIN(value.n, (size_t)VALUE_MAX) });
        schema_free(s);
    }
    return 0;
}
