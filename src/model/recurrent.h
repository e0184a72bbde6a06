/* recurrent.h: layers with a recurrent state instead of keys and values: gated DeltaNet, Mamba2,
 * and short convolutions. Their state is in state slots (lm.h).
 *
 * The functions compute the layer up to the output of its heads, x [n_rows][d_model] -> attn_out
 * [n_rows][DIM_MIX], and the state slots. In the last layer, only the rows that get logits remain
 * (s->n_rows); they return false if these are none. They end with a barrier.
 *
 * Owner: the thread pool. All threads call the functions at once, inside one job. */
#pragma once

#include "model/forward_in.h"

bool delta_net_forward(struct thread_ctx *s, int index, struct act_out *out);
bool mamba2_forward(struct thread_ctx *s, int index, struct act_out *out);
bool short_conv_forward(struct thread_ctx *s, int index, struct act_out *out);
