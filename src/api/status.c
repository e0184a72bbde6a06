#include "api/status.h"
#include "base/json.h"

#include <stdio.h>

#define BAD  "invalid_request_error"
#define OURS "server_error"
#define BUSY "overloaded"

/* No default: a new code does not compile until somebody has decided what it is called. */
struct status status_of(enum errcode code)
{
    switch (code) {
    case ERR_NONE:
        break;
    case ERR_INVALID:
        return (struct status){ 400, BAD, "invalid_value", "Bad Request", RETRY_NO_WORD };
    case ERR_MISSING:
        return (
            struct status){ 400, BAD, "missing_required_parameter", "Bad Request", RETRY_NO_WORD };
    case ERR_SYNTAX:
        return (struct status){ 400, BAD, "invalid_json", "Bad Request", RETRY_NO_WORD };
    case ERR_RANGE:
        return (struct status){ 400, BAD, "invalid_value", "Bad Request", RETRY_NO_WORD };
    case ERR_UNSUPPORTED:
        return (struct status){ 400, BAD, "unsupported_parameter", "Bad Request", RETRY_NO_WORD };
    case ERR_CONTEXT:
        return (struct status){ 400, BAD, "context_length_exceeded", "Bad Request", RETRY_NO_WORD };
    case ERR_AUTH:
        return (struct status){ 401, BAD, "invalid_api_key", "Unauthorized", RETRY_NO_WORD };
    case ERR_FORBIDDEN:
        return (struct status){ 403, "permission_error", "insufficient_scope", "Forbidden",
            RETRY_NO_WORD };
    case ERR_NOT_FOUND:
        return (struct status){ 404, BAD, "not_found", "Not Found", RETRY_NO_WORD };
    case ERR_TOO_LARGE:
        return (struct status){ 413, BAD, "request_too_large", "Content Too Large", RETRY_NO_WORD };
    case ERR_RATE:
        return (struct status){ 429, "rate_limit_error", "rate_limit_exceeded", "Too Many Requests",
            RETRY_LATER };
    case ERR_CANCELLED:
        return (struct status){ 499, BAD, "cancelled", "Client Closed Request", RETRY_POINTLESS };
    case ERR_CORRUPT:
        return (
            struct status){ 500, OURS, "model_corrupt", "Internal Server Error", RETRY_POINTLESS };
    case ERR_IO:
        return (struct status){ 500, OURS, "io_error", "Internal Server Error", RETRY_NO_WORD };
    case ERR_INTERNAL:
        return (
            struct status){ 500, OURS, "internal_error", "Internal Server Error", RETRY_NO_WORD };
    case ERR_OVERLOADED:
        return (struct status){ 503, BUSY, "queue_full", "Service Unavailable", RETRY_LATER };
    case ERR_NOT_READY:
        return (struct status){ 503, BUSY, "model_not_ready", "Service Unavailable", RETRY_LATER };
    case ERR_DRAINING:
        return (struct status){ 503, BUSY, "shutting_down", "Service Unavailable", RETRY_LATER };
    case ERR_MEMORY:
        return (struct status){ 503, BUSY, "out_of_memory", "Service Unavailable", RETRY_LATER };
    case ERR_TIMEOUT: /* the same work would take the same time again */
        return (struct status){ 504, OURS, "timeout", "Gateway Timeout", RETRY_POINTLESS };
    }
    return (struct status){ 500, OURS, "internal_error", "Internal Server Error", RETRY_NO_WORD };
}

int err_context(struct err *e, const char *param, int n_prompt_tokens, int n_ctx)
{
    return err_param(e, ERR_CONTEXT, param,
        "This model's maximum context length is %d tokens. However, your request has %d tokens and "
        "exceeds the available context size. Please reduce the length of the %s.",
        n_ctx, n_prompt_tokens, param);
}

static const char *code_of(const struct err *e, const struct error_extra *x)
{
    if (x && x->code)
        return x->code;
    if (e->code == ERR_NOT_FOUND && !strcmp(e->param, "model"))
        return "model_not_found";
    if (e->code == ERR_UNSUPPORTED && !e->param[0])
        return "unsupported";
    return status_of(e->code).code;
}

static const char *message_of(const struct err *e)
{
    return e->msg[0] ? e->msg : status_of(e->code).title;
}

void openai_error(struct buf *out, const struct err *e, const struct error_extra *x)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "error");
    jw_object(&w);
    jw_key(&w, "message");
    jw_z(&w, message_of(e));
    jw_key(&w, "type");
    jw_z(&w, status_of(e->code).type);
    jw_key(&w, "param");
    jw_z(&w, e->param[0] ? e->param : NULL);
    jw_key(&w, "code");
    jw_z(&w, code_of(e, x));
    if (e->code == ERR_CONTEXT && x) {
        jw_key(&w, "n_prompt_tokens");
        jw_i64(&w, x->n_prompt_tokens);
        jw_key(&w, "n_ctx");
        jw_i64(&w, x->n_ctx);
    }
    jw_end_object(&w);
    jw_end_object(&w);
}

void problem_error(struct buf *out, const struct err *e, const struct error_extra *x)
{
    struct status s = status_of(e->code);
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "type");
    jw_z(&w, "about:blank");
    jw_key(&w, "title");
    jw_z(&w, s.title);
    jw_key(&w, "status");
    jw_i64(&w, s.http);
    jw_key(&w, "detail");
    jw_z(&w, message_of(e));
    if (x && x->instance) {
        jw_key(&w, "instance");
        jw_z(&w, x->instance);
    }
    if (e->param[0]) {
        jw_key(&w, "param");
        jw_z(&w, e->param);
    }
    jw_key(&w, "code");
    jw_z(&w, code_of(e, x));
    jw_end_object(&w);
}

int status_fields(
    enum errcode code, const struct error_extra *x, struct http_field *out, char scratch[16])
{
    uint32_t seconds = x && x->retry_after_s ? x->retry_after_s : 1;

    switch (status_of(code).retry) {
    case RETRY_NO_WORD:
        return 0;
    case RETRY_LATER:
        snprintf(scratch, 16, "%u", seconds);
        out[0] = (struct http_field){ STR("Retry-After"), str_of(scratch) };
        return 1;
    case RETRY_POINTLESS:
        out[0] = (struct http_field){ STR("x-should-retry"), STR("false") };
        return 1;
    }
    return 0;
}

void status_reply(struct sink *s, enum error_form form, const struct err *e,
    const struct error_extra *x, const struct http_field *fields, int n_fields)
{
    enum { MOST = 24 };
    struct http_field all[MOST + RETRY_FIELDS_MAX];
    char scratch[16];
    struct buf body;

    int n = MIN(n_fields, (int)MOST);
    if (n)
        memcpy(all, fields, (size_t)n * sizeof(*all));
    n += status_fields(e->code, x, all + n, scratch);
    buf_init(&body, 16 * KB);
    if (form == ERROR_OPENAI)
        openai_error(&body, e, x);
    else
        problem_error(&body, e, x);
    /* Errors must work when memory does not. */
    struct str text = buf_ok(&body) ? buf_str(&body)
                                    : STR("{\"error\":{\"message\":\"out of memory\",\"type\":"
                                          "\"server_error\",\"param\":null,\"code\":null}}");
    const char *type = form == ERROR_OPENAI ? "application/json" : "application/problem+json";
    sink_reply(s, status_of(e->code).http, type, text, all, n);
    buf_clear(&body);
}
