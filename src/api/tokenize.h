/* tokenize.h: bodies of /tokenize, /detokenize and /apply-template, in llama-server's shapes.
 *
 * Requests are parsed into the arena; answers appended to a buffer. The words are counted and
 * the template rendered by the caller. Pure; any thread. */
#pragma once

#include "base/json.h"

struct tokenize_ask {
    struct str model; /* .p NULL when absent */
    struct str content;
    bool add_special;   /* default false: BOS and EOS as the vocabulary wants them */
    bool parse_special; /* default true: control tokens are recognised in the text */
    bool with_pieces;
};

/* {"content", "add_special", "parse_special", "with_pieces"}; vLLM's "prompt" and
 * "add_special_tokens" too. ERR_MISSING, ERR_INVALID. */
int tokenize_parse(struct tokenize_ask *out, struct str body, struct arena *a, struct err *e);

/* {"tokens":[1,2]}, or with bytes: {"tokens":[{"id":1,"piece":"a"}]}, where a piece that is not
 * UTF-8 is an array of its bytes. bytes NULL: the first form. */
void tokenize_answer(struct buf *out, const int32_t *ids, size_t n,
    struct str (*bytes)(const void *vocab, int32_t id), const void *vocab);

struct detokenize_ask {
    struct str model;
    int32_t *ids;
    size_t n;
};

int detokenize_parse(struct detokenize_ask *out, struct str body, struct arena *a, struct err *e);
void detokenize_answer(struct buf *out, struct str text); /* {"content":"..."} */

/* The request of /apply-template is a chat body: ask_parse with wire_apply_template. It may bring
 * a template and its tokens, which is for administrators: a template is a program. */
struct own_template { /* .p NULL: the model's */
    struct str source, bos_token, eos_token;
};
/* From the body. ERR_INVALID. */
int own_template_read(struct own_template *out, const struct json *body, struct err *e);
void apply_template_answer(struct buf *out, struct str prompt); /* {"prompt":"..."} */
