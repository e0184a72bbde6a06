/* output_mode.h: parser format for one output mode, and the control tokens that its parser must see
 * as text although the client does not.
 *
 * A model has one output_mode for each combination of the flags. In a mode without tool calls, text
 * that looks like a call stays text; likewise for reasoning. Read-only once open: any thread. */
#pragma once

#include "output/parser.h"
#include "tokenizer/vocab.h"

enum {
    OUTPUT_CALLS = 1,
    OUTPUT_REASONING = 2,
    N_OUTPUT_MODES = 4
}; /* flags; number of combinations */

struct output_mode {
    struct parser_format *format; /* NULL: the output is not parsed, all of it is text */
    int32_t *control; /* ids of tokens that are markers or parts of markers, ascending */
    int n_control;
};

/* Opens the part of format f that the flags select. ERR_MEMORY. */
int output_mode_open(struct output_mode *out, const struct parser_format *f, unsigned flags,
    const struct vocab *v, struct err *e);
void output_mode_close(struct output_mode *r); /* accepts a zeroed struct */

bool output_mode_shows_token(const struct output_mode *r, int32_t id);
