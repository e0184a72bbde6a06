/* reply.c: whole replies in the format of their route, and query parameters. Owner: the io
 * thread. */
#include "http/parse.h"
#include "serve/io.h"

#include <stdio.h>

void reply_json(
    struct http_exchange *x, const struct route_call *c, int status, const struct buf *body)
{
    if (buf_ok(body)) {
        sink_respond(&x->sink, status, "application/json", buf_str(body), c->fields, c->n_fields);
        return;
    }
    struct err e;
    err_set(&e, ERR_MEMORY, "no memory for the response");
    reply_error(x, c, &e, NULL);
}

void audit_refused_call(
    const struct http_exchange *x, const struct route_call *c, const struct err *e)
{
    const struct route *near = c->route ? c->route : c->route_near;

    if (!c->io->o->audit || (c->route && c->route->scope == SCOPE_NONE && !c->is_login))
        return;
    audit_refuse(
        c->io->o->audit, &(struct audit_refusal){ .request_id = c->request_id,
                             .key_id = c->caller.id,
                             .tenant = c->caller.tenant,
                             .peer = x->req->peer,
                             .method = x->req->method,
                             .path = c->route ? str_of(c->route->path) : x->req->path,
                             .status = status_http(route_errors(near, x->req->path), e->code),
                             .reason = errcode_name(e->code),
                             .guardrails = c->guardrails });
}

void reply_error(struct http_exchange *x, const struct route_call *c, const struct err *e,
    const struct error_extra *extra)
{
    const struct route *r = c->route ? c->route : c->route_near;

    if (!c->has_audit_line)
        audit_refused_call(x, c, e);
    status_reply(&x->sink, route_errors(r, x->req->path), e, extra, c->fields, c->n_fields);
}

/* Splits off the query up to the next `&`. */
static struct str next_pair(struct str *rest)
{
    ptrdiff_t at = str_find(*rest, STR("&"));
    struct str pair = { rest->p, at < 0 ? rest->n : (size_t)at };

    *rest = at < 0 ? STR_NONE : str_skip(*rest, (size_t)at + 1);
    return pair;
}

int query_get(const struct http_exchange *x, const char *name, struct str *out, struct err *e)
{
    for (struct str rest = x->req->query; rest.n;) {
        struct str pair = next_pair(&rest);
        ptrdiff_t is = str_find(pair, STR("="));
        if (is < 0 || !str_is((struct str){ pair.p, (size_t)is }, name))
            continue;
        struct str value = str_skip(pair, (size_t)is + 1);
        char *text = arena_alloc(x->arena, value.n + 1);
        if (!text)
            return err_set(e, ERR_MEMORY, "no memory for the request");
        ptrdiff_t n = http_percent_decode(value, text);
        if (n < 0)
            return err_param(e, ERR_SYNTAX, name, "The query parameter '%s' is invalid.", name);
        *out = (struct str){ text, (size_t)n };
        return 0;
    }
    return 0;
}

int query_check(const struct http_exchange *x, const char *const *names, int n, struct err *e)
{
    for (struct str rest = x->req->query; rest.n;) {
        struct str name = next_pair(&rest);
        ptrdiff_t is = str_find(name, STR("="));
        char text[48];
        int i = 0;
        name.n = is < 0 ? name.n : (size_t)is;
        while (i < n && !str_is(name, names[i]))
            i++;
        if (i < n || !name.n)
            continue;
        snprintf(text, sizeof(text), "%.*s", (int)MIN(name.n, sizeof(text) - 1), name.p);
        return err_param(e, ERR_INVALID, text, "Unknown query parameter '%s'.", text);
    }
    return 0;
}

int query_if_match(
    const struct http_exchange *x, bool *has_version, uint64_t *version, struct err *e)
{
    struct str tag = str_trim(http_field_get(x->req, "if-match"));

    *has_version = tag.n && !str_is(tag, "*");
    if (!*has_version)
        return 0;
    bool is_quoted = tag.n > 2 && *tag.p == '"' && str_ends(tag, STR("\""));
    struct str number = is_quoted ? (struct str){ tag.p + 1, tag.n - 2 } : tag;
    if (str_to_u64(number, version))
        return 0;
    return err_param(e, ERR_INVALID, "If-Match", "If-Match must be * or a version such as \"12\".");
}

int model_check_allowed(const struct model_spec *m, const struct policy_key *key, struct err *e)
{
    if (!key || policy_key_allows_model(key, m->id))
        return 0;
    return err_param(e, ERR_FORBIDDEN, "model", "This key may not use the model '%s'.", m->id);
}

struct model *take_ready_model(
    const struct io *io, const struct policy_key *key, struct str name, struct err *e)
{
    struct registry_entry *m = registry_find(io->o->registry, name, e);
    struct model *model = NULL;

    if (m && (model_check_allowed(registry_entry_spec(m), key, e) ||
                 registry_take(m, &model, e) != TAKE_OK))
        model = NULL;
    registry_entry_unref(m);
    return model;
}
