/* check_schema.c: validates JSON values over the graph of a schema, for tests against other
 * implementations.
 *
 * Each line of the input is a JSON object, each line of the output its result:
 *
 *     {"schema": S, "tests": [VALUE, ..], "documents": {URI: S, ..}}
 *     ok 0110 NODES BYTES IGNORED..    one digit per value; `-` without values; names with commas
 *     error MESSAGE
 *
 * The length of a schema is limited to 1 MiB. */
#include "base/mem.h"
#include "support/lines.h"
#include "testing/schema_validate.h"

#include <stdio.h>

static int check_values(
    const struct schema *s, const struct json *values, struct buf *out, struct err *e)
{
    struct schema_validator *v;

    if (!values || !values->n)
        return 0;
    if (schema_validator_new(&v, s, e))
        return -1;
    int rc = 0;
    for (const struct json *m = values->child; m && rc >= 0; m = m->next) {
        rc = schema_validate(v, m, e);
        buf_putc(out, rc > 0 ? '1' : '0');
    }
    schema_validator_free(v);
    return rc < 0 ? -1 : 0;
}

static void print_result(const struct schema *s, struct str digits)
{
    uint32_t n;
    const struct str *ignored = schema_ignored(s, &n);

    printf("ok " STR_FMT " %u %zu ", STR_ARG(digits.n ? digits : STR("-")), schema_count(s),
        schema_bytes(s));
    for (uint32_t k = 0; k < n; k++)
        printf("%s" STR_FMT, k ? "," : "", STR_ARG(ignored[k]));
    printf("\n");
}

static void check_line(char *text, size_t n, void *ctx)
{
    struct str line = { text, n };
    struct arena *a = arena_new(1u << 30);
    struct json_limits limits = { 100000, 4000000 };
    struct schema_document documents[128];
    struct schema_options o = { .bytes_max = 1 * MB, .nodes_max = 500000, .documents = documents };
    struct buf digits;
    struct schema *s = NULL;
    struct json *request;
    struct err e = { 0 };

    buf_init(&digits, 1 * MB);
    CHECK(a);
    int rc = json_parse(&request, line, a, &limits, &e);
    const struct json *schema = rc ? NULL : json_get(request, "schema");
    const struct json *known = rc ? NULL : json_get(request, "documents");
    CHECK(schema);
    for (const struct json *m = known ? known->child : NULL; m; m = m->next) {
        CHECK(o.n_documents < ARRAY_LEN(documents));
        documents[o.n_documents++] = (struct schema_document){ m->key, m->raw };
    }
    if (!rc)
        rc = schema_new(&s, schema->raw, &o, &e);
    if (!rc)
        rc = check_values(s, json_get(request, "tests"), &digits, &e);
    if (rc)
        printf("error %s\n", e.msg);
    else
        print_result(s, buf_str(&digits));
    schema_free(s);
    buf_clear(&digits);
    arena_free(a);
}

int main(void)
{
    lines_each(check_line, NULL);
    return 0;
}
