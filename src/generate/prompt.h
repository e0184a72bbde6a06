/* prompt.h: what a request asks -> tokens the engine takes. Pure work in the request's arena, on
 * the thread that holds it: the io thread's or its clerk's. */
#pragma once

#include "generate/ask.h"
#include "generate/session.h"

struct workplace {
    const struct model *model;
    struct arena *arena;
    const _Atomic bool *stop; /* true: nobody waits for it; ends with ERR_CANCELLED. Or NULL */
};

struct prompt {
    const int32_t *ids;
    int n;
    bool is_least;             /* it does not fit, was not made, and has at least n tokens */
    struct str text;           /* a completion's own, for echo; .p NULL when it came as tokens */
    struct parts_params parts; /* a chat's: how its answers are taken apart */
};

/* One entry per ask->n_prompts; on error *out holds those that were built. ERR_UNSUPPORTED when
 * the model cannot chat, ERR_CONTEXT when a prompt leaves no room for a token, and the template's
 * own errors. */
int prompts_build(
    struct prompt **out, const struct ask *ask, const struct workplace *at, struct err *e);

/* The same; of a chat that does not fit, turns go from its front when ask.may_shorten. */
int prompts_build_shorter(
    struct prompt **out, const struct ask *ask, const struct workplace *at, struct err *e);

/* The tokens of ask->text_bias join those of ask->sample, at most ASK_BIAS_MAX: ERR_RANGE. */
int bias_build(struct ask *ask, const struct workplace *at, struct err *e);

/* The client's prediction as tokens, at most a context of them; none when it makes none. */
int prediction_build(
    const int32_t **out, int *n, const struct ask *ask, const struct workplace *at, struct err *e);

/* Tokens that prompt i may be answered with, given the request and the context. */
int prompt_max_tokens(
    const struct ask *ask, const struct model *m, const struct prompt *p, int default_max);

/* Who shares prefixes with this request: its tenant's, and of those the ones with its salt. */
void prompt_scope(struct cache_scope *out, const struct ask *ask, uint64_t tenant);

/* The whole rendered chat, as text. For /apply-template. */
int prompt_render(
    struct rendered *out, const struct convo *c, const struct workplace *at, struct err *e);

/* What a script model answers: the request's script, else the last user message or the prompt. */
int script_build(const struct gen_script **out, const struct ask *ask, int prompt,
    const struct workplace *at, struct err *e);
