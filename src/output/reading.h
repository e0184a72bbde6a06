/* output_mode.h: parser format for one output mode, and the control tokens that its parser must see
 * as text although the client does not.
 *
 * A model has one output_mode for each combination of the flags. In a mode without tool calls, text
 * that looks like a call stays text; likewise for reasoning. Read-only once open: any thread. */
#pragma once

#include "output/parser.h"
#include "tokenizer/vocab.h"

enum { READ_CALLS = 1, READ_THOUGHTS = 2, READ_KINDS = 4 }; /* flags; number of combinations */

struct reading {
    struct parser_format *format; /* NULL: the output is not parsed, all of it is text */
    int32_t *control; /* ids of tokens that are markers or parts of markers, ascending */
    int n_control;
};

/* Opens the part of format f that the flags select. ERR_MEMORY. */
int reading_open(struct reading *out, const struct parser_format *f, unsigned flags,
    const struct vocab *v, struct err *e);
void reading_close(struct reading *r); /* accepts a zeroed struct */

bool reading_shows(const struct reading *r, int32_t id);
