/* status.h: maps struct err to HTTP: status, type, code, and whether the client should retry. No
 * other module does this; status.def has an entry for every code. Pure; any thread. */
#pragma once

#include "base/err.h"
#include "http/sink.h"

enum retry {
    RETRY_DEFAULT, /* no header */
    RETRY_LATER,   /* sends Retry-After */
    RETRY_NEVER    /* x-should-retry: false; otherwise client libraries retry every 5xx */
};

struct status {
    int http;
    const char *type;  /* OpenAI's error.type */
    const char *code;  /* OpenAI's error.code */
    const char *title; /* `title` of a problem document */
    enum retry retry;
};

struct status status_of(enum errcode code);

struct error_extra {            /* zero = none */
    const char *code;           /* replaces the code of status.def; NULL = none */
    int n_prompt_tokens, n_ctx; /* for ERR_CONTEXT */
    bool is_lower_bound;        /* n_prompt_tokens is a lower bound: the prompt was not built */
    uint32_t retry_after_s;     /* 0 = 1 */
    bool retry_never;           /* a retry would fail again, whatever the code is */
    const char *constraint;     /* kind, if the request was accepted with one; NULL = none */
    const char *instance;       /* problem documents: the path; NULL */
    /* In Anthropic's body; empty = the field `request-id` of the response. */
    struct str request_id;
};

/* With a constraint, the bodies of the dialects also have "constraint":{"kind","complete":false}:
 * the text that the client received is not complete.
 *
 * {"error":{"message","type","param","code"}}: all paths below /v1 except Anthropic's and admin. */
void openai_error(struct buf *out, const struct err *e, const struct error_extra *x);
/* {"type","title","status","detail"}, RFC 7807: admin routes and paths of no dialect. */
void problem_error(struct buf *out, const struct err *e, const struct error_extra *x);

/* {"type":"error","error":{"type","message"},"request_id"}: Anthropic's routes. */
void anthropic_error(struct buf *out, const struct err *e, const struct error_extra *x);
/* {"error":"..."}: Ollama's routes. */
void ollama_error(struct buf *out, const struct err *e, const struct error_extra *x);
/* {"error":{"code","message","type"}}: llama-server's own routes. */
void llama_error(struct buf *out, const struct err *e, const struct error_extra *x);

enum error_form { ERROR_OPENAI, ERROR_PROBLEM, ERROR_ANTHROPIC, ERROR_OLLAMA, ERROR_LLAMA };

/* The HTTP status of an error in this format. Anthropic's format has an additional one: 529. */
int status_http(enum error_form form, enum errcode code);

enum { RETRY_FIELDS_MAX = 1 };

/* Writes the retry fields of an error (0 or 1) to `out`; values are in `scratch`. */
int status_fields(
    enum errcode code, const struct error_extra *x, struct http_field *out, char scratch[16]);

/* Returns the value of the field `request-id`, which only Anthropic's routes have; else
 * STR_NONE. */
struct str status_request_id(const struct http_field *fields, int n);

/* Sends the whole error response: status, fields (the caller's, then the retry fields), body. x may
 * be NULL. */
void status_reply(struct sink *s, enum error_form form, const struct err *e,
    const struct error_extra *x, const struct http_field *fields, int n_fields);
