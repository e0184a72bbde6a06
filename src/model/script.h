/* script.h: model without weights; the generated tokens are part of the request.
 *
 * It has a vocabulary size, a context length and KV pages without content, and computes nothing.
 * The engine takes the tokens from gen_input.script, group by group, through the same queue,
 * scheduler, pages, sampling slots and events as for any other model. A request for logits is an
 * error of the caller (every request to this model has a script) and aborts.
 *
 * Owner: the engine thread. */
#pragma once

#include "model/lm.h"

struct script_options {
    int n_vocab;
    int n_ctx_train;
    int max_rows;     /* per forward pass; needs no memory */
    uint32_t n_pages; /* 4 bytes each */
};

int lm_open_script(struct lm **out, const struct script_options *o, struct err *e) MUST_CHECK;
