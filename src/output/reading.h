/* reading.h: what has to be known to read a model's answers: the parser's format, and which
 * control tokens it has to see though the client does not.
 *
 * A model has one for each way in which requests want its answers read: without calls, what looks
 * like one stays the text that it is, and likewise thoughts. Read-only once open: any thread. */
#pragma once

#include "output/parser.h"
#include "tokenizer/vocab.h"

enum { READ_CALLS = 1, READ_THOUGHTS = 2, READ_KINDS = 4 }; /* flags; how many ways there are */

struct reading {
    struct parser_format *format; /* NULL: nothing is read, answers are text */
    int32_t *control;             /* tokens that are markers, or parts of one; ascending */
    int n_control;
};

/* What of f the flags say. ERR_MEMORY. */
int reading_open(struct reading *out, const struct parser_format *f, unsigned flags,
    const struct vocab *v, struct err *e);
void reading_close(struct reading *r); /* zeroed is fine */

bool reading_shows(const struct reading *r, int32_t id);
