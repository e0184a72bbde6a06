/* remember.h: which requests may be answered from memory (pool/exact.h), and by what key.
 *
 * A request is eligible when its answer is a function of what it asks: temperature 0 or a seed,
 * one prompt, one choice. Its key is the loaded model, the caller, the wire, the prompt's tokens
 * and every field of the body but those listed in remember.c, as it was written: so a field that
 * nobody here has thought of makes a difference, too. */
#pragma once

#include "gate/keys.h"
#include "serve/prompt.h"

/* In the arena; .n 0: not eligible, or no memory for it. */
struct str remember_key(const struct ask *ask, const struct prompt *prompt,
    const struct caller *caller, const struct workplace *at);
