/* script.h: a language model without weights, whose answers stand in the request.
 *
 * It has a vocabulary size, a context and pages to keep books on, and computes nothing: the
 * engine takes the tokens from gen_input.script, group by group, through the same queue,
 * scheduler, pages, sampling slots and events as any other model. Asking it for logits is a
 * mistake of the caller's (every request to it carries a script), and aborts. */
#pragma once

#include "model/lm.h"

struct script_options {
    int n_vocab;
    int n_ctx_train;
    int max_rows;     /* per forward; costs nothing */
    uint32_t n_pages; /* 4 bytes each */
};

int lm_open_script(struct lm **out, const struct script_options *o, struct err *e) MUST_CHECK;
