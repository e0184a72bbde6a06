/* ctl_audit_list.c: `inferctl admin audit list`: lines of the audit log of a server
 * (/v1/admin/audit), the newest first. */
#include "cmd/ctl.h"

#include <curl/curl.h>
#include <stdio.h>

enum { PATH_BYTES = 16 * 1024, PAGE = 500, LINES = 100 };

static const char *const options[] = {
    "from=", "to=", "key=", "tenant=", "model=", "action=", "status=", "limit=", "json"
};
enum { LIMIT_AT = 7, JSON_AT = 8 };

static void print_line(const struct json *line, struct arena *a)
{
    static const char *const columns[] = { "time", "action", "event", "status", "key", "tenant",
        "model", "route", "request_id" };
    bool is_first = true;

    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        const struct json *v = json_get(line, columns[i]);
        struct str text = json_is_null(v) ? STR("-") : v->kind == JSON_STRING ? v->s : v->raw;
        ctl_printf("%s%s", is_first ? "" : "  ", ctl_cell(text.n ? text : STR("-"), a));
        is_first = false;
    }
    ctl_printf("\n");
}

/* Prints up to *n_left lines of a page. before: number for the next page; 0: none. */
static int print_page(
    struct ctl *c, const struct ctl_response *r, uint64_t *n_left, int64_t *before)
{
    struct arena *a = arena_new(256 * MB);
    struct json *root;
    struct err e;

    *before = 0;
    if (!a || json_parse(&root, buf_str(&r->body), a, &json_limits_default, &e)) {
        arena_free(a);
        return ctl_fail("the response is not a list of audit lines");
    }
    const struct json *data = json_get(root, "data"), *next = json_get(root, "next_before"),
                      *complete = json_get(root, "is_complete");
    for (const struct json *l = data ? data->child : NULL; l && *n_left; l = l->next, --*n_left) {
        if (c->as_json)
            ctl_printf("%.*s\n", STR_ARG(l->raw));
        else
            print_line(l, a);
    }
    if (json_is_null(next) || !json_i64(next, before))
        *before = 0;
    if (!*before && complete && !complete->b)
        ctl_warn("the index is being made: older lines may be missing\n");
    arena_free(a);
    return EXIT_OK;
}

/* Appends `name=value`, percent-encoded, to the path. False: it is too long. */
static bool add_parameter(char path[PATH_BYTES], struct str name, const char *value)
{
    size_t n = strlen(path);
    char *escaped = curl_easy_escape(NULL, value, 0);

    CHECK(escaped);
    int added = snprintf(path + n, PATH_BYTES - n, "&" STR_FMT "=%s", STR_ARG(name), escaped);
    curl_free(escaped);
    return added >= 0 && (size_t)added < PATH_BYTES - n;
}

static int read_arguments(
    struct ctl *c, int argc, char **argv, char path[PATH_BYTES], uint64_t *n_left)
{
    struct ctl_args a = { .argc = argc, .argv = argv };

    for (int i; (i = ctl_next(&a, options, ARRAY_LEN(options))) != -1;) {
        if (i == -3)
            return EXIT_USAGE;
        if (i == -2)
            return ctl_usage("audit list takes no argument '%s'", a.value);
        struct str name = str_of(options[i]);
        if (i == JSON_AT)
            c->as_json = true;
        else if (i == LIMIT_AT && (!str_to_u64(str_of(a.value), n_left) || !*n_left))
            return ctl_usage("--limit needs a number of lines, not '%s'", a.value);
        else if (i != LIMIT_AT && !add_parameter(path, (struct str){ name.p, name.n - 1 }, a.value))
            return ctl_usage("the arguments are too long");
    }
    return EXIT_OK;
}

int ctl_audit_list(struct ctl *c, int argc, char **argv)
{
    char filter[PATH_BYTES], path[PATH_BYTES + 64];
    uint64_t n_left = LINES;
    int64_t before = 0;

    *filter = '\0';
    int rc = read_arguments(c, argc, argv, filter, &n_left);
    do {
        char place[40] = "";
        struct ctl_response r;
        if (rc != EXIT_OK)
            break;
        if (before)
            snprintf(place, sizeof(place), "&before=%lld", (long long)before);
        snprintf(path, sizeof(path), "/v1/admin/audit?limit=%d%s%s",
            (int)MIN(n_left, (uint64_t)PAGE), filter, place);
        ctl_request(c, path, NULL, &r);
        rc = ctl_check(&r);
        if (rc == EXIT_OK)
            rc = print_page(c, &r, &n_left, &before);
        buf_clear(&r.body);
    } while (rc == EXIT_OK && before && n_left);
    return rc;
}
