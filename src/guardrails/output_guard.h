/* output_guard.h: applies guardrails to the output of a request: implements output_ops and passes
 * what they permit on to the next receiver.
 *
 *     parser --> output_guard_ops --> response_output_ops
 *
 * A text is what the content, or the reasoning, has between two events of another kind; in a tool
 * call, each string of the arguments (json_guard.h). What may still become a hit is held back until
 * more output follows, so the events that the next receiver gets depend on tokens, but their
 * concatenated text does not (scan.h). Where the output is blocked, the choice has ended for the
 * receiver: the owner takes its number and ends the choice with FINISH_FILTERED.
 *
 * With want_tokens, tokens whose entries show text (logprobs) are delayed until their own text is
 * decided. Those that a redaction covers, or that follow the end, are passed on as hidden.
 *
 * Owner: the io thread of the request. */
#pragma once

#include "engine/sample/sampler.h"
#include "guardrails/guard_record.h"
#include "output/output_ops.h"

struct output_guard;

struct output_guard_setup { /* borrowed for the life of the guard */
    const struct guardrails *g;
    uint64_t sets; /* of GUARD_OUTPUT */
    int n_choices;
    struct guard_record *record;
    const struct output_ops *next;
    void *next_ctx;
    bool want_tokens;
    void (*on_token)(void *next_ctx, int choice, const struct sampled *t, bool is_hidden);
};

/* ERR_MEMORY. */
int output_guard_new(
    struct output_guard **out, const struct output_guard_setup *s, struct err *e) MUST_CHECK;
void output_guard_free(struct output_guard *g); /* accepts NULL */

extern const struct output_ops output_guard_ops; /* ctx: the guard */

/* With want_tokens: a token, before the output events that it causes; text: its characters. */
void output_guard_token(
    struct output_guard *g, int choice, const struct sampled *t, struct str text);
/* The end of the output of a choice: decides what is held. Returns whether it was blocked. */
bool output_guard_end(struct output_guard *g, int choice);
/* A choice that was blocked since the last call; -1: none. */
int output_guard_take_blocked(struct output_guard *g);
bool output_guard_is_redacted(const struct output_guard *g, int choice);
bool output_guard_failed(const struct output_guard *g); /* no memory: the request must fail */
