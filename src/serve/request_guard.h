/* request_guard.h: guardrails of one generation request (guardrails/): which sets apply, the result
 * for its prompt, the filter of its output, and what is recorded of the hits.
 *
 *     request_guard_init     the guardrails of the policy at the arrival of the request
 *     request_guard_prompt   PREPARING: searches and redacts the texts; may block
 *     request_guard_open     RUNNING: output events pass through the filter
 *     request_guard_close    metrics and log; frees
 *
 * A blocked prompt is refused after the rate limits have counted the request, so that entries
 * cannot be tried without limit.
 *
 * Owner: the io thread; while async.is_at_worker the worker thread. */
#pragma once

#include "guardrails/output_guard.h"
#include "guardrails/prompt_guard.h"

struct inflight;
struct inflight_prompt;
struct choice_end;
struct sampled;
struct response;

struct request_guard {          /* zeroed: no guardrails */
    const struct guardrails *g; /* a reference */
    struct guard_record record;
    struct output_guard *output; /* NULL: no set applies to the output */
    struct detok *tokens;        /* [choices], for the texts of tokens; NULL: not needed */
    bool is_refused;             /* the prompt is blocked */
};

void request_guard_init(struct inflight *r);
/* Whether the search may take long, so that it belongs to the worker thread. */
bool request_guard_is_slow(const struct inflight *r);
/* The model is loaded. ERR_MEMORY. */
int request_guard_prompt(struct inflight *r, struct err *e) MUST_CHECK;
/* ERR_CONTENT of a blocked prompt. */
int request_guard_refusal(const struct inflight *r, struct err *e);
/* Creates the filter before the sessions are opened, if a set applies. ERR_MEMORY. */
int request_guard_open(struct inflight *r, struct err *e) MUST_CHECK;
/* Receiver of the output events of the sessions. */
const struct output_ops *request_guard_ops(const struct inflight *r);
void *request_guard_ctx(const struct inflight *r);
/* A token of a choice, for the response. */
void request_guard_token(struct inflight *r, int choice, const struct sampled *t);
/* Ends the choices of the prompt whose output was blocked. */
void request_guard_end_blocked(struct inflight_prompt *p);
/* The output of a choice ends: changes *end if it is blocked. `choice` is numbered over all
 * prompts. */
void request_guard_choice_end(struct inflight *r, int choice, struct choice_end *end);
/* No memory for the filter: the request must fail. */
bool request_guard_failed(const struct inflight *r);
/* The hits for the audit log, in the arena of the request; empty: none, or no memory. */
struct str request_guard_hits(const struct inflight *r);
void request_guard_close(struct inflight *r);
