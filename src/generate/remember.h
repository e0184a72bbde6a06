/* remember.h: which requests may be answered from memory (pool/exact.h), and by what key.
 *
 * A request is eligible when its answer is a function of what it asks: temperature 0 or a seed,
 * one prompt, one choice. Its key is the loaded model, the caller, the wire, the prompt's tokens
 * and every field of the body but those listed in remember.c, as it was written: so a field that
 * nobody here has thought of makes a difference, too. */
#pragma once

#include "generate/prompt.h"

/* Allocates the key in the arena. The result has .n 0 if the request is not eligible, or if memory
 * is exhausted. `caller` is the id of the caller's key, `dialect` the name of the dialect. */
struct str remember_key(const struct ask *ask, const struct prompt *prompt, const char *caller,
    const char *dialect, const struct workplace *at);
