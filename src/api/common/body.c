#include "api/common/body.h"

int body_object(
    struct json **out, struct str body, const struct json_limits *l, struct arena *a, struct err *e)
{
    if (json_parse(out, body, a, l, e)) {
        if (e->code == ERR_TOO_LARGE)
            e->code = ERR_SYNTAX;
        return e->code == ERR_MEMORY ? -1 : err_wrap(e, "The body is not valid JSON");
    }
    if ((*out)->kind != JSON_OBJECT)
        return err_set(e, ERR_INVALID, "The body must be a JSON object.");
    return 0;
}

/* Returns 1 if the member exists and has the type, 0 if absent, -1 on error. */
static int find_member(const struct json **v, const struct json *o, const char *key,
    enum json_kind kind, struct err *e)
{
    static const char *const names[] = {
        [JSON_STRING] = "a string", [JSON_BOOL] = "a boolean", [JSON_ARRAY] = "an array"
    };

    *v = json_get(o, key);
    if (json_is_null(*v))
        return 0;
    if ((*v)->kind != kind)
        return err_param(e, ERR_INVALID, key, "'%s' must be %s.", key, names[kind]);
    return 1;
}

int body_text(const struct json *o, const char *key, struct str *out, struct err *e)
{
    const struct json *v;
    int rc = find_member(&v, o, key, JSON_STRING, e);

    if (rc > 0)
        *out = v->s;
    return MIN(rc, 0);
}

int body_flag(const struct json *o, const char *key, bool *out, struct err *e)
{
    const struct json *v;
    int rc = find_member(&v, o, key, JSON_BOOL, e);

    if (rc > 0)
        *out = v->b;
    return MIN(rc, 0);
}

int body_array(const struct json *o, const char *key, const struct json **out, struct err *e)
{
    const struct json *v;
    int rc = find_member(&v, o, key, JSON_ARRAY, e);

    if (rc > 0)
        *out = v;
    return MIN(rc, 0);
}
