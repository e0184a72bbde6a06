/* layer_input.h: per-layer inputs: each token has a vector for each layer, which is the sum of a
 * row of a table and of a projection of the token's embedding. At the end of a layer it multiplies
 * a projection of the residual stream, and the result is added to the stream.
 *
 * The table is larger than the other weights of a small model, and a token reads one row of it. So
 * it is neither packed nor copied to memory: its rows are read from the mapped model file.
 *
 * Owner: the thread pool. All threads call each function at once. */
#pragma once

#include "model/forward_in.h"

/* layer_inputs [n_rows][n_layers * d_input] of all rows of the step, from the embeddings in y
 * [n_rows][d_model]. Call after a barrier; ends with a barrier. */
void layer_inputs_prepare(const struct thread_ctx *s);
/* x [n_rows][d_model] = (x + norm(proj(gelu(gate * x) * layer input))) * output scale. Call after a
 * barrier. */
void layer_input_add(const struct thread_ctx *s, const struct layer *l, int layer);
