/* prompt.h: builds the prompt tokens of a request. No I/O; memory comes from the request's arena.
 *
 * Owner: the thread that owns the request's arena, which is the io thread or its worker thread. */
#pragma once

#include "generate/request.h"
#include "generate/session.h"

/* Tool calls that are enforced without a forced tool choice (--tool-strictness). */
enum tool_strictness {
    TOOL_STRICTNESS_ASKED, /* if the request has strict tools or restricts the tools */
    TOOL_STRICTNESS_NAMES, /* also: function names */
    TOOL_STRICTNESS_ALL    /* also: the arguments of every tool */
};

struct prompt_ctx {
    const struct model *model;
    struct arena *arena;
    /* true: ends with ERR_CANCELLED, because the result is not needed any more. Or NULL */
    const _Atomic bool *stop;
    bool has_constraints; /* the caller compiles the constraint of tool calls (tool_choice.h) */
    enum tool_strictness tool_strictness; /* with has_constraints */
};

struct prompt {
    const int32_t *ids;
    int n;
    bool is_lower_bound; /* the prompt does not fit and was not built; it has at least n tokens */
    struct str text; /* text of a completion prompt, for echo; .p NULL if it was given as tokens */
    struct output_params output; /* how the output of a chat request is parsed */
};

/* Builds all prompts of the request; on error *out contains those that were built. ERR_CONTEXT: a
 * prompt leaves no room for a token; and the errors of adapter_render. */
int prompts_build(struct prompt **out, const struct request *request, const struct prompt_ctx *ctx,
    struct err *e);

/* Same, but a chat that does not fit is truncated at its start if the request has may_truncate. */
int prompts_build_truncated(struct prompt **out, const struct request *request,
    const struct prompt_ctx *ctx, struct err *e);

/* Tokenises text_bias of the request and appends the tokens to the biases of its sampler
 * parameters. ERR_RANGE above REQUEST_BIAS_MAX. */
int bias_build(struct request *request, const struct prompt_ctx *ctx, struct err *e);

/* Tokens of the client's predicted output, at most a context of them; n = 0 without a
 * prediction. */
int prediction_build(const int32_t **out, int *n, const struct request *request,
    const struct prompt_ctx *ctx, struct err *e);

/* Token limit of the response to a prompt, from the request and the context. */
int prompt_max_tokens(
    const struct request *request, const struct model *m, const struct prompt *p, int default_max);

/* Scope of the prefix cache: the tenant, and the salt of the request. */
void prompt_scope(struct cache_scope *out, const struct request *request, uint64_t tenant);

/* Renders the conversation to text. For /apply-template. */
int prompt_render(
    struct rendered *out, const struct convo *c, const struct prompt_ctx *ctx, struct err *e);

/* Tokens of a rendered conversation; *out is empty before. with_bos: if the vocabulary requires
 * BOS, the prompt begins with it once, whether or not the template wrote it. */
int prompt_encode_chat(struct tokens *out, const struct rendered *r, bool with_bos,
    const struct model *m, struct err *e);

/* Output of a script model: the request's script, else the last user message or the prompt. */
int script_build(const struct gen_script **out, const struct request *request, int prompt,
    const struct prompt_ctx *ctx, struct err *e);
