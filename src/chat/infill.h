/* infill.h: the prompt of a model that writes what stands between two texts.
 *
 *     [REP] project [SEP] name, text, ...   other files, where the model has tokens for them
 *     [SEP] name                            of the file with the gap, then
 *     PRE prefix SUF suffix MID prompt      and the answer is the rest of the middle
 *
 * The tokens are the vocabulary's (vocab_fim); none is ever read out of a client's text. Pure. */
#pragma once

#include "tokenizer/vocab.h"

struct infill_file {
    struct str name, text; /* name "": called after its place */
};

struct infill {
    struct str prefix, suffix;
    struct str prompt; /* how the middle begins */
    const struct infill_file *extra;
    int n_extra;
};

bool infill_is_possible(const struct vocab *v);
/* ERR_UNSUPPORTED when the vocabulary has no such tokens; else as vocab_encode. */
int infill_encode(const struct vocab *v, const struct infill *q, struct tokens *out, struct err *e);
