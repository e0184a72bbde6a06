/* response_cache_key.h: response cache: which requests are cacheable, and their key.
 *
 * A request is cacheable if its response is deterministic: temperature 0 or a seed, one prompt, one
 * choice. The key consists of the loaded model, the caller, the dialect, the prompt tokens and
 * every field of the body, as raw JSON, except those listed in response_cache_key.c. Therefore an
 * unknown field changes the key.
 *
 * Owner: the thread that owns the request. */
#pragma once

#include "generate/prompt.h"

/* Allocates the key in the arena. The result has .n 0 if the request is not cacheable, or if memory
 * is exhausted. `caller` is the id of the caller's key, `dialect` the name of the dialect. */
struct str response_cache_key_build(const struct request *request, const struct prompt *prompt,
    const char *caller, const char *dialect, const struct prompt_ctx *ctx);
