/* reading.h: what has to be known to read a model's answers: the parser's format, and which
 * control tokens it has to see though the client does not.
 *
 * A model has two: with tool calls, for requests that allow them, and without, where what looks
 * like a call stays the text that it is. Read-only once open: any thread. */
#pragma once

#include "chat/parser.h"
#include "text/vocab.h"

struct reading {
    const struct parser_format *format; /* NULL: zeroed, answers are text */
    struct parser_format *own;          /* the same, when it was made here */
    int32_t *control;                   /* tokens that are markers, or parts of one; ascending */
    int n_control;
};

/* with_calls: f itself, which outlives the reading; else f's thinking without its tools.
 * ERR_MEMORY. */
int reading_open(struct reading *out, const struct parser_format *f, bool with_calls,
    const struct vocab *v, struct err *e);
void reading_close(struct reading *r); /* zeroed is fine */

bool reading_shows(const struct reading *r, int32_t id);
