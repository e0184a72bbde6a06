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
    case ERR_METHOD:
        return (
            struct status){ 405, BAD, "method_not_allowed", "Method Not Allowed", RETRY_NO_WORD };
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

static void put_overflow(struct jw *w, const struct err *e, const struct error_extra *x)
{
    if (e->code != ERR_CONTEXT || !x || !x->n_ctx)
        return;
    jw_key(w, "n_prompt_tokens");
    jw_i64(w, x->n_prompt_tokens);
    jw_key(w, "n_ctx");
    jw_i64(w, x->n_ctx);
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
    put_overflow(&w, e, x);
    jw_end_object(&w);
    jw_end_object(&w);
}

/* No default, as above. */
static const char *anthropic_type(enum errcode code)
{
    switch (code) {
    case ERR_NONE:
        break;
    case ERR_INVALID:
    case ERR_MISSING:
    case ERR_SYNTAX:
    case ERR_RANGE:
    case ERR_UNSUPPORTED:
    case ERR_CONTEXT:
    case ERR_METHOD:
    case ERR_CANCELLED:
        return BAD;
    case ERR_AUTH:
        return "authentication_error";
    case ERR_FORBIDDEN:
        return "permission_error";
    case ERR_NOT_FOUND:
        return "not_found_error";
    case ERR_TOO_LARGE:
        return "request_too_large";
    case ERR_RATE:
        return "rate_limit_error";
    case ERR_OVERLOADED:
    case ERR_NOT_READY:
    case ERR_DRAINING:
    case ERR_MEMORY:
        return "overloaded_error";
    case ERR_TIMEOUT:
        return "timeout_error";
    case ERR_CORRUPT:
    case ERR_IO:
    case ERR_INTERNAL:
        break;
    }
    return "api_error";
}

void anthropic_error(struct buf *out, const struct err *e, const struct error_extra *x)
{
    bool is_overflow = e->code == ERR_CONTEXT && x && x->n_ctx;
    char words[80]; /* which its clients look for */
    struct jw w;

    if (is_overflow)
        snprintf(words, sizeof(words), "prompt is too long: %d tokens > %d maximum",
            x->n_prompt_tokens, x->n_ctx);
    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "type");
    jw_z(&w, "error");
    jw_key(&w, "error");
    jw_object(&w);
    jw_key(&w, "type");
    jw_z(&w, anthropic_type(e->code));
    jw_key(&w, "message");
    jw_z(&w, is_overflow ? words : message_of(e));
    jw_end_object(&w);
    jw_key(&w, "request_id");
    if (x && x->request_id.n)
        jw_str(&w, x->request_id);
    else
        jw_null(&w);
    jw_end_object(&w);
}

void ollama_error(struct buf *out, const struct err *e, const struct error_extra *x)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "error");
    jw_z(&w, message_of(e));
    jw_end_object(&w);
}

static const char *llama_type(enum errcode code)
{
    switch (code) {
    case ERR_NONE:
        break;
    case ERR_INVALID:
    case ERR_MISSING:
    case ERR_SYNTAX:
    case ERR_RANGE:
    case ERR_UNSUPPORTED:
    case ERR_TOO_LARGE:
    case ERR_RATE:
    case ERR_METHOD:
    case ERR_CANCELLED:
        return BAD;
    case ERR_CONTEXT:
        return "exceed_context_size_error";
    case ERR_AUTH:
        return "authentication_error";
    case ERR_FORBIDDEN:
        return "permission_error";
    case ERR_NOT_FOUND:
        return "not_found_error";
    case ERR_OVERLOADED:
    case ERR_NOT_READY:
    case ERR_DRAINING:
    case ERR_MEMORY:
        return "unavailable_error";
    case ERR_CORRUPT:
    case ERR_IO:
    case ERR_INTERNAL:
    case ERR_TIMEOUT:
        break;
    }
    return OURS;
}

void llama_error(struct buf *out, const struct err *e, const struct error_extra *x)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "error");
    jw_object(&w);
    jw_key(&w, "code");
    jw_i64(&w, status_of(e->code).http);
    jw_key(&w, "message");
    jw_z(&w, message_of(e));
    jw_key(&w, "type");
    jw_z(&w, llama_type(e->code));
    put_overflow(&w, e, x);
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

static const struct {
    const char *type; /* Content-Type */
    void (*put)(struct buf *out, const struct err *e, const struct error_extra *x);
} forms[] = {
    [ERROR_OPENAI] = { "application/json", openai_error },
    [ERROR_PROBLEM] = { "application/problem+json", problem_error },
    [ERROR_ANTHROPIC] = { "application/json", anthropic_error },
    [ERROR_OLLAMA] = { "application/json", ollama_error },
    [ERROR_LLAMA] = { "application/json", llama_error },
};

int status_http(enum error_form form, enum errcode code)
{
    return form == ERROR_ANTHROPIC && code == ERR_OVERLOADED ? 529 : status_of(code).http;
}

struct str status_request_id(const struct http_field *fields, int n)
{
    for (int i = 0; i < n; i++)
        if (str_is(fields[i].name, "request-id"))
            return fields[i].value;
    return STR_NONE;
}

void status_reply(struct sink *s, enum error_form form, const struct err *e,
    const struct error_extra *x, const struct http_field *fields, int n_fields)
{
    enum { MOST = 24 };
    struct http_field all[MOST + RETRY_FIELDS_MAX];
    struct error_extra extra = x ? *x : (struct error_extra){ 0 };
    char scratch[16];
    struct buf body;

    int n = MIN(n_fields, (int)MOST);
    if (n)
        memcpy(all, fields, (size_t)n * sizeof(*all));
    n += status_fields(e->code, x, all + n, scratch);
    if (!extra.request_id.n)
        extra.request_id = status_request_id(fields, n_fields);
    buf_init(&body, 16 * KB);
    forms[form].put(&body, e, &extra);
    /* Errors must work when memory does not. */
    struct str text = buf_ok(&body) ? buf_str(&body)
                                    : STR("{\"error\":{\"message\":\"out of memory\",\"type\":"
                                          "\"server_error\",\"param\":null,\"code\":null}}");
    sink_reply(s, status_http(form, e->code), forms[form].type, text, all, n);
    buf_clear(&body);
}
