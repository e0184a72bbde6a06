#include "api/common/path.h"

#include <stdio.h>

struct path_text path_format(const struct path *p)
{
    enum { DEEPEST = 8 };
    const struct path *chain[DEEPEST];
    struct path_text t = { "" };
    size_t n = 0, at = 0;

    for (; p && n < DEEPEST; p = p->up)
        chain[n++] = p;
    while (n-- > 0 && at < sizeof(t.z)) {
        const char *dot = at ? "." : "";
        const struct path *c = chain[n];
        at += (size_t)(c->index < 0 ? snprintf(t.z + at, sizeof(t.z) - at, "%s%s", dot, c->member)
                                    : snprintf(t.z + at, sizeof(t.z) - at, "%s%s[%d]", dot,
                                          c->member, c->index));
    }
    return t;
}

int path_wrong_kind(struct fields *f, const struct path *at, const char *want, const struct json *v)
{
    return field_wrong_kind(f, path_format(at).z, want, v);
}

int path_missing(struct fields *f, const struct path *at)
{
    return field_missing(f, path_format(at).z);
}

int path_unsupported(struct fields *f, const struct path *at, const char *what)
{
    return field_unsupported(f, path_format(at).z, what);
}

int path_need_text(struct fields *f, const struct path *at, const struct json *v, struct str *out)
{
    if (json_is_null(v))
        return path_missing(f, at);
    if (v->kind != JSON_STRING)
        return path_wrong_kind(f, at, "a string", v);
    *out = v->s;
    return 0;
}

int path_need_role(struct fields *f, const struct path *where, const char *words, struct message *m)
{
    struct str role;

    if (path_need_text(f, AT(where, "role"), json_get(m->raw, "role"), &role))
        return -1;
    if (role_parse(role, &m->role))
        return 0;
    struct path_text at = path_format(AT(where, "role"));
    return err_param(f->e, ERR_INVALID, at.z, "'%s' must be one of %s, not '%.*s'.", at.z, words,
        (int)MIN(role.n, (size_t)40), role.p);
}

int path_take_text(struct fields *f, const struct path *at, const struct json *v, struct str *out)
{
    return json_is_null(v) ? 0 : path_need_text(f, at, v, out);
}
