/* ctl_limits.c: `inferctl admin limits|tenants|rate-limit|usage ...`: limits, prices and usage of
 * a server (/v1/admin/limits, /v1/admin/tenants, /v1/admin/rate_limit, /v1/admin/usage). */
#include "cmd/ctl.h"

#include <stdio.h>

enum { BODY_MAX = 16 * 1024, PATH_MAX_BYTES = 1024 };

static const struct action {
    const char *name, *method;
    bool has_subject, has_values;
} actions[] = {
    { "list", "GET", false, false },
    { "show", "GET", true, false },
    { "put", "PUT", true, true },
    { "delete", "DELETE", true, false },
    { "get", "GET", false, false },
    { "set", "PUT", false, true },
};

static const struct object {
    const char *name, *path;
} objects[] = {
    { "limits", "/v1/admin/limits" },
    { "tenants", "/v1/admin/tenants" },
    { "usage", "/v1/admin/usage" },
    { "rate-limit", "/v1/admin/rate_limit" },
};

void ctl_put_path(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                        (c >= 'A' && c <= 'Z') || strchr("-._~/", c);
        if (is_plain && c)
            buf_putc(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}

/* A text that is no number is sent as a string, and the server names the field. */
static void put_value(struct jw *w, struct str text)
{
    int64_t n;

    if (str_to_i64(text, &n))
        jw_i64(w, n);
    else
        jw_str(w, text);
}

/* "name=1,name=2" as an object. */
static void put_values(struct jw *w, struct str rest)
{
    jw_object(w);
    while (rest.n) {
        ptrdiff_t comma = str_find(rest, STR(","));
        struct str item = { rest.p, comma < 0 ? rest.n : (size_t)comma };
        ptrdiff_t is = str_find(item, STR("="));
        jw_key_str(w, (struct str){ item.p, is < 0 ? item.n : (size_t)is });
        put_value(w, is < 0 ? STR("") : str_skip(item, (size_t)is + 1));
        rest = comma < 0 ? STR_NONE : str_skip(rest, (size_t)comma + 1);
    }
    jw_end_object(w);
}

static void put_body(struct buf *out, bool is_rate_limit, const char *values)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, is_rate_limit ? "tokens_per_minute" : "limits");
    if (is_rate_limit)
        put_value(&w, str_of(values));
    else
        put_values(&w, str_of(values));
    jw_end_object(&w);
}

/* Returns `last_id` of a page after which more follow, else STR_NONE. */
static struct str next_page(const struct ctl_response *r, struct arena *a)
{
    struct json *root;
    struct err e;

    if (json_parse(&root, buf_str(&r->body), a, &json_limits_default, &e))
        return STR_NONE;
    const struct json *more = json_get(root, "has_more"), *last = json_get(root, "last_id");
    if (!more || !more->b || !last)
        return STR_NONE;
    return arena_str(a, last->kind == JSON_STRING ? last->s : last->raw);
}

int ctl_list(struct ctl *c, const char *base)
{
    struct str after = STR("");
    struct arena *a = arena_new(64 * MB);
    int rc = a ? EXIT_OK : ctl_fail("no memory");

    while (rc == EXIT_OK && after.p) {
        struct ctl_response r;
        struct buf path;
        buf_init(&path, PATH_MAX_BYTES);
        buf_printf(&path, "%s?limit=500&after=", base);
        ctl_put_path(&path, after);
        buf_putc(&path, '\0');
        ctl_request(c, path.p, NULL, &r);
        rc = ctl_check(&r);
        if (rc == EXIT_OK)
            ctl_printf("%.*s\n", STR_ARG(buf_str(&r.body)));
        after = rc == EXIT_OK ? next_page(&r, a) : STR_NONE;
        buf_clear(&r.body);
        buf_clear(&path);
    }
    arena_free(a);
    return rc;
}

static int send(struct ctl *c, const struct object *o, const struct action *action, char **argv)
{
    bool is_rate_limit = o == &objects[ARRAY_LEN(objects) - 1];
    struct ctl_response r;
    struct buf path, body;

    buf_init(&path, PATH_MAX_BYTES);
    buf_init(&body, BODY_MAX);
    buf_putz(&path, o->path);
    if (action->has_subject) {
        buf_putc(&path, '/');
        ctl_put_path(&path, str_of(argv[1]));
    }
    buf_putc(&path, '\0');
    if (action->has_values)
        put_body(&body, is_rate_limit, argv[1 + action->has_subject]);
    int rc = buf_ok(&path) && buf_ok(&body) ? EXIT_OK : ctl_fail("the arguments are too long");
    if (rc == EXIT_OK) {
        struct str text = buf_str(&body);
        ctl_send(c, action->method, path.p, action->has_values ? &text : NULL, &r);
        rc = ctl_check(&r);
        if (rc == EXIT_OK)
            ctl_printf("%.*s\n", STR_ARG(buf_str(&r.body)));
        buf_clear(&r.body);
    }
    buf_clear(&path);
    buf_clear(&body);
    return rc;
}

/* argv[-1] is the object, argv[0] the action (ctl_admin). */
int ctl_limits(struct ctl *c, int argc, char **argv)
{
    size_t o = 0, i = 0;

    while (o < ARRAY_LEN(objects) && strcmp(argv[-1], objects[o].name))
        o++;
    while (i < ARRAY_LEN(actions) && strcmp(argv[0], actions[i].name))
        i++;
    CHECK(o < ARRAY_LEN(objects) && i < ARRAY_LEN(actions));
    if (argc != 1 + actions[i].has_subject + actions[i].has_values)
        return ctl_usage("admin %s %s: wrong number of arguments", argv[-1], argv[0]);
    return strcmp(argv[0], "list") ? send(c, &objects[o], &actions[i], argv)
                                   : ctl_list(c, objects[o].path);
}
