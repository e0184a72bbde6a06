/* ffn.h: the feed-forward network of a layer, or of one expert.
 *
 * Owner: the thread pool. All threads call each function at once, inside one job. */
#pragma once

#include "model/forward_in.h"

struct ff_piece {
    const float *gate_bias, *up_bias; /* biases of the columns of the piece; or NULL */
    int panel_from, panel_to;         /* panels of gate and of up */
    int row, n_rows;                  /* rows of the output */
    int col, n_cols;
};

/* hidden[n_rows][d_ff] = activation(gate * in, up * in), quantised as `hidden` specifies. */
void ffn_gate_up(const struct thread_ctx *s, const struct ffn *w, const struct inputs *in,
    struct act_out *hidden);
/* The same for the rows and columns of one piece. */
void ffn_gate_up_tile(const struct thread_ctx *s, const struct ffn *w, const struct inputs *in,
    const struct act_out *to, const struct ff_piece *p);

void ffn_down(const struct thread_ctx *s, const struct packed *down, const struct act_out *hidden,
    const struct residual *to);
