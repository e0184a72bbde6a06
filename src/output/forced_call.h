/* forced_call.h: the prefix of a forced tool call (`tool_choice`).
 *
 * The beginning of a call in the model's own format is appended to the prompt, so that the model
 * can only generate the rest of the call. The parser receives the same text before the generated
 * text. Text of the format is trusted, so its markers become control tokens; the function name
 * comes from the client and is untrusted. Pure functions; any thread. */
#pragma once

#include "output/parser.h"
#include "tokenizer/vocab.h"

enum { FORCED_CALL_SPANS = 3 };

struct forced_call {
    struct span spans[FORCED_CALL_SPANS];
    int n_spans;
    struct str text; /* the concatenation of the spans */
};

struct forced_call_options {
    struct str name;         /* function name; .p NULL: the model chooses the function */
    enum parser_start start; /* parser state after the prompt: open reasoning is closed first */
    int n_earlier_calls;     /* calls in the conversation, for formats that number them */
};

/* Allocates in the arena. ERR_UNSUPPORTED (param "tool_choice"): the format has no calls.
 * ERR_MEMORY. */
int forced_call_build(struct forced_call *out, const struct parser_format *f,
    const struct forced_call_options *what, struct arena *a, struct err *e);
