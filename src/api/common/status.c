#include "api/common/status.h"
#include "base/json.h"

#include <stdio.h>

/* Strings that several table entries share. */
#define BAD  "invalid_request_error"
#define OURS "server_error"
#define BUSY "overloaded"
#define FULL "overloaded_error"

static const struct status_entry {
    struct status status;
    int http_anthropic;
    const char *type_anthropic, *type_llama;
} status_table[] = {
#define STATUS(name, http, http_a, again, title, type, code, type_a, type_l)                       \
    [ERR_##name] = { { http, type, code, title, RETRY_##again }, http_a, type_a, type_l },
#include "api/common/status.def"
#undef STATUS
};

/* The table has one entry for each code; a second entry for a code is a compiler warning. */
enum {
    N_CODES = 0
#define ERR(name, meaning) +1
#include "base/errors.def"
#undef ERR
    ,
    N_ROWS = 0
#define STATUS(name, ...) +1
#include "api/common/status.def"
#undef STATUS
};
_Static_assert(N_CODES == N_ROWS, "every code of base/errors.def has an entry in status.def");

/* ERR_NONE and unknown codes map to ERR_INTERNAL. */
static const struct status_entry *entry_of(enum errcode code)
{
    bool is_code = code > ERR_NONE && (size_t)code < ARRAY_LEN(status_table);

    return &status_table[is_code ? code : ERR_INTERNAL];
}

struct status status_of(enum errcode code)
{
    return entry_of(code)->status;
}

static const char *code_of(const struct err *e, const struct error_extra *x)
{
    if (x && x->code)
        return x->code;
    if (e->code == ERR_NOT_FOUND && !strcmp(e->param, "model"))
        return "model_not_found";
    if (e->code == ERR_NOT_FOUND && !strcmp(e->param, "previous_response_id"))
        return "previous_response_not_found";
    if (e->code == ERR_UNSUPPORTED && !e->param[0])
        return "unsupported";
    return status_of(e->code).code;
}

static const char *message_of(const struct err *e)
{
    return e->msg[0] ? e->msg : status_of(e->code).title;
}

static void put_context_sizes(struct jw *w, const struct err *e, const struct error_extra *x)
{
    if (e->code != ERR_CONTEXT || !x || !x->n_ctx)
        return;
    jw_key(w, "n_prompt_tokens");
    jw_i64(w, x->n_prompt_tokens);
    jw_key(w, "n_ctx");
    jw_i64(w, x->n_ctx);
}

static void put_constraint(struct jw *w, const struct error_extra *x)
{
    if (!x || !x->constraint)
        return;
    jw_key(w, "constraint");
    jw_object(w);
    jw_key(w, "kind");
    jw_z(w, x->constraint);
    jw_key(w, "complete");
    jw_bool(w, false);
    jw_end_object(w);
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
    put_context_sizes(&w, e, x);
    jw_end_object(&w);
    put_constraint(&w, x);
    jw_end_object(&w);
}

/* Anthropic's clients send the whole conversation each time after they receive this code. */
static void put_thread_details(struct jw *w, const struct err *e)
{
    if (e->code != ERR_UNSUPPORTED || strcmp(e->param, "thread"))
        return;
    jw_key(w, "details");
    jw_raw(w, STR("{\"error_code\":\"thread_unsupported_request\",\"unsupported\":[\"thread\"]}"));
}

void anthropic_error(struct buf *out, const struct err *e, const struct error_extra *x)
{
    bool is_overflow = e->code == ERR_CONTEXT && x && x->n_ctx;
    /* Anthropic's clients look for this message. */
    char overflow_message[96];
    struct jw w;

    if (is_overflow)
        snprintf(overflow_message, sizeof(overflow_message),
            "prompt is too long: %s%d tokens > %d maximum", x->is_lower_bound ? "at least " : "",
            x->n_prompt_tokens, x->n_ctx);
    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "type");
    jw_z(&w, "error");
    jw_key(&w, "error");
    jw_object(&w);
    jw_key(&w, "type");
    jw_z(&w, entry_of(e->code)->type_anthropic);
    jw_key(&w, "message");
    jw_z(&w, is_overflow ? overflow_message : message_of(e));
    put_thread_details(&w, e);
    jw_end_object(&w);
    jw_key(&w, "request_id");
    if (x && x->request_id.n)
        jw_str(&w, x->request_id);
    else
        jw_null(&w);
    put_constraint(&w, x);
    jw_end_object(&w);
}

void ollama_error(struct buf *out, const struct err *e, const struct error_extra *x)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "error");
    jw_z(&w, message_of(e));
    put_constraint(&w, x);
    jw_end_object(&w);
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
    jw_z(&w, entry_of(e->code)->type_llama);
    put_context_sizes(&w, e, x);
    jw_end_object(&w);
    put_constraint(&w, x);
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

    switch (x && x->retry_never ? RETRY_NEVER : status_of(code).retry) {
    case RETRY_DEFAULT:
        return 0;
    case RETRY_LATER:
        snprintf(scratch, 16, "%u", seconds);
        out[0] = (struct http_field){ STR("Retry-After"), str_of(scratch) };
        return 1;
    case RETRY_NEVER:
        out[0] = (struct http_field){ STR("x-should-retry"), STR("false") };
        return 1;
    }
    return 0;
}

static const struct {
    const char *type; /* Content-Type */
    void (*put)(struct buf *out, const struct err *e, const struct error_extra *x);
} error_formats[] = {
    [ERROR_OPENAI] = { "application/json", openai_error },
    [ERROR_PROBLEM] = { "application/problem+json", problem_error },
    [ERROR_ANTHROPIC] = { "application/json", anthropic_error },
    [ERROR_OLLAMA] = { "application/json", ollama_error },
    [ERROR_LLAMA] = { "application/json", llama_error },
};

int status_http(enum error_form form, enum errcode code)
{
    return form == ERROR_ANTHROPIC ? entry_of(code)->http_anthropic : status_of(code).http;
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
    error_formats[form].put(&body, e, &extra);
    /* The error response must work without memory. */
    struct str text = buf_ok(&body) ? buf_str(&body)
                                    : STR("{\"error\":{\"message\":\"out of memory\",\"type\":"
                                          "\"server_error\",\"param\":null,\"code\":null}}");
    sink_respond(s, status_http(form, e->code), error_formats[form].type, text, all, n);
    buf_clear(&body);
}
