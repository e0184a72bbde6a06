/* ctl_api_keys.c: `inferctl admin api-keys list|show|create|replace|delete`: API keys of a server
 * (/v1/admin/api_keys). */
#include "cmd/ctl.h"

#include <stdio.h>

#define KEYS_PATH "/v1/admin/api_keys"

enum { BODY_MAX = 256 * 1024, LINE_MAX_BYTES = 512, ID_BYTES = 64, PAGE = 500 };

/* ---- list */

static void print_row(const struct json *key, struct arena *a)
{
    static const char *const columns[] = { "id", "name", "tenant", "scopes", "expires_at" };

    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        const struct json *v = json_get(key, columns[i]);
        struct str text = json_is_null(v) ? STR("never") : v->kind == JSON_STRING ? v->s : v->raw;
        ctl_printf("%s%s", i ? "  " : "", ctl_cell(text.n ? text : STR("-"), a));
    }
    ctl_printf("\n");
}

/* Prints a page. after: the id of its last key if more follow, else "". */
static int print_page(struct ctl *c, const struct ctl_response *r, char after[ID_BYTES])
{
    struct arena *a = arena_new(64 * MB);
    struct json *root;
    struct err e;

    *after = '\0';
    if (!a || json_parse(&root, buf_str(&r->body), a, &json_limits_default, &e)) {
        arena_free(a);
        return ctl_fail("the response is not a list of API keys");
    }
    const struct json *data = json_get(root, "data"), *more = json_get(root, "has_more"),
                      *last = json_get(root, "last_id");
    for (const struct json *k = data ? data->child : NULL; k; k = k->next) {
        if (c->as_json)
            ctl_printf("%.*s\n", STR_ARG(k->raw));
        else
            print_row(k, a);
    }
    if (more && more->b && last && last->kind == JSON_STRING)
        snprintf(after, ID_BYTES, STR_FMT, STR_ARG(last->s));
    arena_free(a);
    return EXIT_OK;
}

static int list_keys(struct ctl *c)
{
    char path[LINE_MAX_BYTES], after[ID_BYTES] = "";
    int rc;

    do {
        struct ctl_response r;
        snprintf(path, sizeof(path), KEYS_PATH "?limit=%d&after=%s", PAGE, after);
        ctl_request(c, path, NULL, &r);
        rc = ctl_check(&r);
        if (rc == EXIT_OK)
            rc = print_page(c, &r, after);
        buf_clear(&r.body);
    } while (rc == EXIT_OK && *after);
    return rc;
}

/* ---- attributes of create and replace */

static const struct option {
    const char *name, *member;
    enum { TEXT, NUMBER, TIME, LIST, LIMITS } kind;
} attributes[] = {
    { "name=", "name", TEXT },
    { "scopes=", "scopes", LIST },
    { "expires-at=", "expires_at", TIME },
    { "tenant=", "tenant", TEXT },
    { "cache-group=", "cache_group", TEXT },
    { "weight=", "weight", NUMBER },
    { "priority=", "priority", NUMBER },
    { "models=", "models", LIST },
    { "networks=", "networks", LIST },
    { "limits=", "limits", LIMITS },
    { "roles=", "roles", LIST },
};

/* A text that is no number is sent as a string, and the server names the field. */
static void put_number(struct jw *w, struct str text)
{
    int64_t i;
    double d;

    if (str_to_i64(text, &i))
        jw_i64(w, i);
    else if (str_to_f64(text, &d))
        jw_f64(w, d);
    else
        jw_str(w, text);
}

/* "a,b" as an array; "name=1,name=2" as an object of numbers. */
static void put_items(struct jw *w, struct str rest, bool is_object)
{
    while (rest.n) {
        ptrdiff_t comma = str_find(rest, STR(","));
        struct str item = { rest.p, comma < 0 ? rest.n : (size_t)comma };
        ptrdiff_t is = str_find(item, STR("="));
        if (is_object) {
            jw_key_str(w, (struct str){ item.p, is < 0 ? item.n : (size_t)is });
            put_number(w, is < 0 ? STR("") : str_skip(item, (size_t)is + 1));
        } else {
            jw_str(w, item);
        }
        rest = comma < 0 ? STR_NONE : str_skip(rest, (size_t)comma + 1);
    }
}

static void put_attribute(struct jw *w, const struct option *o, struct str text)
{
    int64_t seconds;

    jw_key(w, o->member);
    switch (o->kind) {
    case TEXT:
        jw_str(w, text);
        return;
    case TIME:
        if (str_to_i64(text, &seconds))
            jw_i64(w, seconds);
        else
            jw_str(w, text);
        return;
    case NUMBER:
        put_number(w, text);
        return;
    case LIST:
        jw_array(w);
        put_items(w, text, false);
        jw_end_array(w);
        return;
    case LIMITS:
        jw_object(w);
        put_items(w, text, true);
        jw_end_object(w);
        return;
    }
}

/* Reads the options and the id. Returns an EXIT_ status after an error, else -1. */
static int read_arguments(struct ctl *c, struct ctl_args *a, struct jw *w, const char **id)
{
    const char *names[ARRAY_LEN(attributes) + 1];
    const int n = ARRAY_LEN(attributes);

    for (int i = 0; i < n; i++)
        names[i] = attributes[i].name;
    names[n] = "json";
    jw_object(w);
    for (int i; (i = ctl_next(a, names, n + 1)) != -1;) {
        if (i == -3)
            return EXIT_USAGE;
        if (i == -2 && *id)
            return ctl_usage("more than one id");
        if (i == -2)
            *id = a->value;
        else if (i == n)
            c->as_json = true;
        else
            put_attribute(w, &attributes[i], str_of(a->value));
    }
    jw_end_object(w);
    return -1;
}

/* ---- commands */

static bool is_id(const char *id)
{
    size_t n = strlen(id);

    return n > 0 && n < ID_BYTES && strspn(id, "0123456789abcdef") == n;
}

/* Prints the secret of a new key alone, so that a script can store it; with --json the object. */
static int print_result(struct ctl *c, const struct ctl_response *r)
{
    struct arena *a = arena_new(MB);
    struct json *root;
    struct err e;
    bool is_read = a && !json_parse(&root, buf_str(&r->body), a, &json_limits_default, &e);
    const struct json *key = is_read ? json_get(root, "key") : NULL;

    if (c->as_json || !key || key->kind != JSON_STRING)
        ctl_printf("%.*s\n", STR_ARG(buf_str(&r->body)));
    else
        ctl_printf("%.*s\n", STR_ARG(key->s));
    arena_free(a);
    return EXIT_OK;
}

static int run_action(struct ctl *c, int argc, char **argv)
{
    static const struct {
        const char *name, *method;
        bool has_id, has_body;
    } actions[] = { { "show", "GET", true, false }, { "create", "POST", false, true },
        { "replace", "PUT", true, true }, { "delete", "DELETE", true, false } };
    struct ctl_args a = { .argc = argc, .argv = argv };
    char path[LINE_MAX_BYTES];
    const char *id = NULL;
    struct ctl_response r;
    struct buf body;
    struct jw w;
    size_t i = 0;

    while (i < ARRAY_LEN(actions) && strcmp(argv[0], actions[i].name))
        i++;
    if (i == ARRAY_LEN(actions))
        return ctl_usage("unknown command 'admin api-keys %s'", argv[0]);
    buf_init(&body, BODY_MAX);
    jw_init(&w, &body);
    int rc = read_arguments(c, &a, &w, &id);
    if (rc < 0 && actions[i].has_id != (id != NULL))
        rc = ctl_usage("%s %s", argv[0], id ? "takes no id" : "needs the id of a key");
    if (rc < 0 && id && !is_id(id))
        rc = ctl_fail("'%.40s' is not the id of an API key", id);
    if (rc < 0) {
        struct str text = buf_str(&body);
        snprintf(path, sizeof(path), "%s%s%s", KEYS_PATH, id ? "/" : "", id ? id : "");
        ctl_send(c, actions[i].method, path, actions[i].has_body ? &text : NULL, &r);
        rc = ctl_check(&r);
        if (rc == EXIT_OK)
            rc = print_result(c, &r);
        buf_clear(&r.body);
    }
    buf_clear(&body);
    return rc;
}

int ctl_api_keys(struct ctl *c, int argc, char **argv)
{
    if (strcmp(argv[0], "list"))
        return run_action(c, argc, argv);
    c->as_json = c->as_json || (argc == 2 && !strcmp(argv[1], "--json"));
    return argc == 1 || (argc == 2 && c->as_json) ? list_keys(c)
                                                  : ctl_usage("list takes no arguments");
}
