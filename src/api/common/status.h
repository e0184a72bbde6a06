/* status.h: what an error is called towards clients: HTTP status, type, code, and whether trying
 * again makes sense. The one place where struct err meets HTTP; status.def has a row for every
 * code. Pure; any thread. */
#pragma once

#include "base/err.h"
#include "http/sink.h"

enum retry {
    RETRY_NO_WORD,  /* the status speaks for itself */
    RETRY_LATER,    /* Retry-After */
    RETRY_POINTLESS /* x-should-retry: false; client libraries repeat any 5xx otherwise */
};

struct status {
    int http;
    const char *type;  /* OpenAI's error.type */
    const char *code;  /* OpenAI's error.code */
    const char *title; /* of a problem document */
    enum retry retry;
};

struct status status_of(enum errcode code);

struct error_extra {            /* zeroed = nothing extra */
    const char *code;           /* instead of the usual one; NULL */
    int n_prompt_tokens, n_ctx; /* with ERR_CONTEXT */
    bool is_least;              /* n_prompt_tokens: the prompt was not made, it has no fewer */
    uint32_t retry_after_s;     /* 0 = 1 */
    const char *instance;       /* problem documents: the path; NULL */
    struct str request_id; /* in Anthropic's body; empty = the field `request-id` of the answer */
};

/* {"error":{"message","type","param","code"}}: every /v1 route but Anthropic's. */
void openai_error(struct buf *out, const struct err *e, const struct error_extra *x);
/* {"type","title","status","detail"}, RFC 7807: admin routes and paths that nobody serves. */
void problem_error(struct buf *out, const struct err *e, const struct error_extra *x);

/* {"type":"error","error":{"type","message"},"request_id"}: Anthropic's routes. */
void anthropic_error(struct buf *out, const struct err *e, const struct error_extra *x);
/* {"error":"..."}: Ollama's routes. */
void ollama_error(struct buf *out, const struct err *e, const struct error_extra *x);
/* {"error":{"code","message","type"}}: llama-server's own routes. */
void llama_error(struct buf *out, const struct err *e, const struct error_extra *x);

enum error_form { ERROR_OPENAI, ERROR_PROBLEM, ERROR_ANTHROPIC, ERROR_OLLAMA, ERROR_LLAMA };

/* The HTTP status of an error in this form. Anthropic has one that others have not: 529. */
int status_http(enum error_form form, enum errcode code);

enum { RETRY_FIELDS_MAX = 1 };

/* The fields that tell a client whether to come again; 0 or 1. Values live in `scratch`. */
int status_fields(
    enum errcode code, const struct error_extra *x, struct http_field *out, char scratch[16]);

/* The field `request-id`, which only Anthropic's routes have; else STR_NONE. */
struct str status_request_id(const struct http_field *fields, int n);

/* The whole answer: status, fields (the caller's and ours), body. x may be NULL. */
void status_reply(struct sink *s, enum error_form form, const struct err *e,
    const struct error_extra *x, const struct http_field *fields, int n_fields);
