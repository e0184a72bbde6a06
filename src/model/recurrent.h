/* recurrent.h: recurrent layers: gated DeltaNet. Their state is in state slots (lm.h).
 *
 * Owner: the thread pool. All threads call the function at once, inside one job. */
#pragma once

#include "model/forward_in.h"

/* A recurrent layer up to the output of its heads: in -> attn_out [n_rows][values], and the state
 * slots. In the last layer, only the rows that get logits remain (s->n_rows); returns false if
 * these are none. Ends with a barrier. */
bool recurrent_forward(
    struct thread_ctx *s, int index, const struct inputs *in, struct act_out *out);
