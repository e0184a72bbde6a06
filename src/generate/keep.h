/* keep.h: the part of a request that remains while it runs.
 *
 * The body, its tree and what was built from it to make the prompts take many times the memory of
 * the prompts. request_keep copies what generation and the response need; the rest is freed before
 * the engine starts. A member that keep.c does not copy has its empty value afterwards.
 *
 * Owner: the thread that owns the request. */
#pragma once

#include "generate/prompt.h"

/* Names the parts of the request, besides plain values, that the formatter of a response reads. */
struct request_needs {
    const char *const *fields; /* members of `raw`; ends with NULL; NULL = none */
    bool prompt_text;          /* prompts[].text */
};

/* Replaces the request and its n_prompts prompts (*prompts NULL = none) by copies in `to`.
 * Afterwards the body, the arena that the request was parsed in and that of the prompts can be
 * freed. Without `store` the items are not kept. ERR_MEMORY: both are unchanged. */
int request_keep(struct request *request, struct prompt **prompts,
    const struct request_needs *needs, struct arena *to, struct err *e);
