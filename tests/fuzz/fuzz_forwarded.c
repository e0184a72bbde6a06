/* Fuzzes the reader of Forwarded and X-Forwarded-For. Addresses that are read are written as both
 * fields, and reading these gives the same addresses. */
#include "base/buf.h"
#include "http/forwarded.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int read_field(const char *name, struct str value, struct str out[FORWARDED_MAX], int *n)
{
    struct http_field f = { str_of(name), value };
    struct http_request r = { .fields = &f, .n_fields = 1 };
    struct err e;
    int rc = forwarded_read(&r, out, n, &e);

    CHECK(!rc || e.code == ERR_SYNTAX || e.code == ERR_RANGE);
    return rc;
}

static void check_again(const char *name, struct str text, const struct str *nodes, int n)
{
    struct str again[FORWARDED_MAX];
    int n_again;

    CHECK(!read_field(name, text, again, &n_again) && n_again == n);
    for (int i = 0; i < n; i++)
        CHECK(str_eq(again[i], nodes[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "Forwarded", "x-forwarded-for" };
    struct str nodes[FORWARDED_MAX], value = { (const char *)data, size };
    struct buf elements, list;
    int n;

    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        if (read_field(names[k], value, nodes, &n))
            continue;
        CHECK(n >= 0 && n <= FORWARDED_MAX);
        buf_init(&elements, 64 * KB);
        buf_init(&list, 64 * KB);
        for (int i = 0; i < n; i++) {
            bool is_v6 = memchr(nodes[i].p, ':', nodes[i].n) != NULL;
            buf_printf(&elements, "%sfor=\"%s" STR_FMT "%s\"", i ? "," : "", is_v6 ? "[" : "",
                STR_ARG(nodes[i]), is_v6 ? "]" : "");
            buf_printf(&list, "%s%s" STR_FMT "%s", i ? ", " : "", is_v6 ? "[" : "",
                STR_ARG(nodes[i]), is_v6 ? "]" : "");
        }
        check_again("Forwarded", buf_str(&elements), nodes, n);
        check_again("x-forwarded-for", buf_str(&list), nodes, n);
        buf_clear(&elements);
        buf_clear(&list);
    }
    return 0;
}
