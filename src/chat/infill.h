/* infill.h: builds fill-in-the-middle (FIM) prompts.
 *
 *     [REP] project [SEP] name, text, ...   other files, if the model has tokens for them
 *     [SEP] name                            name of the file with the gap, then
 *     PRE prefix SUF suffix MID prompt      the model generates the rest of the middle
 *
 * The control tokens come from the vocabulary (vocab_fim); client text never becomes a control
 * token. Pure functions; any thread. */
#pragma once

#include "tokenizer/vocab.h"

struct infill_file {
    struct str name, text; /* an empty name is replaced by a number */
};

struct infill {
    struct str prefix, suffix;
    struct str prompt; /* the beginning of the middle */
    const struct infill_file *extra;
    int n_extra;
};

bool infill_is_possible(const struct vocab *v);
/* ERR_UNSUPPORTED if the vocabulary has no such tokens; otherwise as vocab_encode. */
int infill_encode(const struct vocab *v, const struct infill *q, struct tokens *out, struct err *e);
