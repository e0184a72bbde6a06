/* prompt_guard.h: applies guardrails to every text of a request that the model or its template may
 * read: messages, reasoning and tool calls of the history, tool descriptions, template variables,
 * prompts, prefixes and suffixes, predictions, constraints.
 *
 * Each text is searched on its own. A redacted text is replaced in the request, in its arena. A hit
 * of `redact` in a name (of a tool, a member or a variable) or in a constraint blocks, since such a
 * text cannot be replaced.
 *
 * Owner: the thread that owns the request. */
#pragma once

#include "generate/request.h"
#include "guardrails/guard_record.h"

struct prompt_guard {
    const struct guardrails *g;
    uint64_t sets; /* of GUARD_PROMPT */
    struct guard_record *record;
    struct arena *arena;            /* for redacted texts */
    const _Atomic bool *is_stopped; /* ends early: the request has ended; may be NULL */
};

/* Sets *is_blocked: some text is blocked, and the request must not be executed. ERR_MEMORY. */
int prompt_guard_request(const struct prompt_guard *p, struct request *request, bool *is_blocked,
    struct err *e) MUST_CHECK;
/* The same for a text that cannot be replaced, such as that of token ids. */
int prompt_guard_text(
    const struct prompt_guard *p, struct str text, bool *is_blocked, struct err *e) MUST_CHECK;
