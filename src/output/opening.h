/* opening.h: how an answer begins that has to be a tool call.
 *
 * The beginning of a call in the model's own format is put behind its prompt, so that the answer
 * can only be the rest of it; the parser is given the same text before the answer. Text of the
 * format is trusted, so that its markers become control tokens; the name, which a client wrote,
 * is not. */
#pragma once

#include "output/parser.h"
#include "tokenizer/vocab.h"

enum { OPENING_SPANS = 3 };

struct opening {
    struct span spans[OPENING_SPANS];
    int n_spans;
    struct str text; /* all of it */
};

struct opening_of {
    struct str name;         /* .p NULL: the model chooses the function */
    enum parser_start start; /* of the prompt: thinking that is open is closed first */
    int n_earlier_calls;     /* of the conversation, for formats that number them */
};

/* In the arena. ERR_UNSUPPORTED, "tool_choice": the format has no calls. ERR_MEMORY. */
int opening_build(struct opening *out, const struct parser_format *f, const struct opening_of *what,
    struct arena *a, struct err *e);
