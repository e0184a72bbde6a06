/* ctl_policy.c: `inferctl admin roles ...`: roles of a server (/v1/admin/roles). */
#include "cmd/ctl.h"

#include <stdio.h>

#define ROLES_PATH "/v1/admin/roles"

enum { BODY_MAX = 4 * 1024 * 1024, PATH_MAX_BYTES = 1024 };

/* Sends the request for one object and prints the response. `body` NULL = none. */
static int send_object(
    struct ctl *c, const char *method, const char *base, const char *name, const struct str *body)
{
    struct ctl_response r;
    struct buf path;

    buf_init(&path, PATH_MAX_BYTES);
    buf_printf(&path, "%s/", base);
    ctl_put_path(&path, str_of(name));
    buf_putc(&path, '\0');
    if (!buf_ok(&path)) {
        buf_clear(&path);
        return ctl_fail("the name is too long");
    }
    ctl_send(c, method, path.p, body, &r);
    int rc = ctl_check(&r);
    if (rc == EXIT_OK)
        ctl_printf("%.*s\n", STR_ARG(buf_str(&r.body)));
    buf_clear(&r.body);
    buf_clear(&path);
    return rc;
}

/* "a,b" as an array; "name=1,name=2" as an object of numbers. A text that is no number is sent as a
 * string, and the server names the field. */
static void put_items(struct jw *w, struct str rest, bool is_object)
{
    while (rest.n) {
        ptrdiff_t comma = str_find(rest, STR(","));
        struct str item = { rest.p, comma < 0 ? rest.n : (size_t)comma };
        ptrdiff_t is = is_object ? str_find(item, STR("=")) : -1;
        struct str value = is < 0 ? item : str_skip(item, (size_t)is + 1);
        int64_t n;
        if (is_object)
            jw_key_str(w, (struct str){ item.p, is < 0 ? item.n : (size_t)is });
        if (is_object && str_to_i64(value, &n))
            jw_i64(w, n);
        else
            jw_str(w, value);
        rest = comma < 0 ? STR_NONE : str_skip(rest, (size_t)comma + 1);
    }
}

/* Writes the body of a role from its options. Returns an EXIT_ status after an error, else -1. */
static int read_role(struct ctl_args *a, struct jw *w, const char **name)
{
    static const char *const options[] = {
        "description=", "scopes=", "models=", "claims=", "limits="
    };
    static const char *const members[] = { "description", "scopes", "models", "claims", "limits" };
    enum { DESCRIPTION, LIMITS = ARRAY_LEN(options) - 1 };

    jw_object(w);
    for (int i; (i = ctl_next(a, options, ARRAY_LEN(options))) != -1;) {
        if (i == -3 || (i == -2 && *name))
            return i == -3 ? EXIT_USAGE : ctl_usage("more than one name");
        if (i == -2) {
            *name = a->value;
            continue;
        }
        jw_key(w, members[i]);
        if (i == DESCRIPTION) {
            jw_z(w, a->value);
        } else if (i == LIMITS) {
            jw_object(w);
            put_items(w, str_of(a->value), true);
            jw_end_object(w);
        } else {
            jw_array(w);
            put_items(w, str_of(a->value), false);
            jw_end_array(w);
        }
    }
    jw_end_object(w);
    return *name ? -1 : ctl_usage("put needs the name of a role");
}

static int put_role(struct ctl *c, int argc, char **argv)
{
    struct ctl_args a = { .argc = argc, .argv = argv };
    const char *name = NULL;
    struct buf body;
    struct jw w;

    buf_init(&body, BODY_MAX);
    jw_init(&w, &body);
    int rc = read_role(&a, &w, &name);
    if (rc < 0 && !buf_ok(&body))
        rc = ctl_fail("the arguments are too long");
    if (rc < 0) {
        struct str text = buf_str(&body);
        rc = send_object(c, "PUT", ROLES_PATH, name, &text);
    }
    buf_clear(&body);
    return rc;
}

int ctl_roles(struct ctl *c, int argc, char **argv)
{
    bool is_list = !strcmp(argv[0], "list");

    if (!strcmp(argv[0], "put"))
        return put_role(c, argc, argv);
    if (argc != 2 - is_list)
        return ctl_usage("admin roles %s: wrong number of arguments", argv[0]);
    if (is_list)
        return ctl_list(c, ROLES_PATH);
    return send_object(c, strcmp(argv[0], "show") ? "DELETE" : "GET", ROLES_PATH, argv[1], NULL);
}
