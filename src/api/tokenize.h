/* tokenize.h: bodies of /tokenize, /detokenize and /apply-template, in llama-server's format.
 *
 * Requests are parsed into the arena; responses are appended to a buffer. The caller tokenises and
 * renders the template. Pure; any thread. */
#pragma once

#include "base/json.h"

struct tokenize_request {
    struct str model; /* .p NULL when absent */
    struct str content;
    bool add_special;   /* default false: add BOS and EOS as the vocabulary specifies */
    bool parse_special; /* default true: control tokens in the text are recognised */
    bool with_pieces;
};

/* {"content", "add_special", "parse_special", "with_pieces"}, or vLLM's names "prompt" and
 * "add_special_tokens". ERR_MISSING, ERR_INVALID. */
int tokenize_parse(struct tokenize_request *out, struct str body, struct arena *a, struct err *e);

/* {"tokens":[1,2]} if `bytes` is NULL, else {"tokens":[{"id":1,"piece":"a"}]}; a piece that is not
 * UTF-8 is an array of its bytes. */
void tokenize_put_response(struct buf *out, const int32_t *ids, size_t n,
    struct str (*bytes)(const void *vocab, int32_t id), const void *vocab);

struct detokenize_request {
    struct str model;
    int32_t *ids;
    size_t n;
};

int detokenize_parse(
    struct detokenize_request *out, struct str body, struct arena *a, struct err *e);
void detokenize_put_response(struct buf *out, struct str text); /* {"content":"..."} */

/* The body of /apply-template is a chat request, parsed by request_parse with
 * dialect_apply_template. It may contain a template with its tokens. This requires the admin scope,
 * since a template is a program. */
struct request_template { /* .p NULL: use the model's */
    struct str source, bos_token, eos_token;
};
/* Reads the members of `body`. ERR_INVALID. */
int request_template_read(struct request_template *out, const struct json *body, struct err *e);
void apply_template_put_response(struct buf *out, struct str prompt); /* {"prompt":"..."} */
