/* moe_forward.h: steps of a mixture of experts in the forward pass; an entry is one (row, expert)
 * pair. layer_forward (layer.c) shows their order and the barriers between them.
 *
 * Owner: the thread pool. All threads call each function at once, except where noted. */
#pragma once

#include "model/forward_in.h"

void moe_router(const struct thread_ctx *s, const struct layer *l, const struct inputs *in);
/* Top-k experts of each row, and the list of entries, sorted by expert; thread 0 only. */
void moe_select(const struct thread_ctx *s, const struct layer *l);
/* How the output of the shared expert is added. */
struct residual residual_of_shared(const struct thread_ctx *s, const struct layer *l);
/* Projected inputs of latent experts, as the experts read them; after the last read of the earlier
 * content of *in. */
void moe_latent_in(const struct thread_ctx *s, const struct layer *l, struct inputs *in);
void moe_gate_up(const struct thread_ctx *s, const struct layer *l, const struct inputs *in,
    struct act_out *hidden);
void moe_down(const struct thread_ctx *s, const struct layer *l, const struct act_out *hidden);
void moe_combine(const struct thread_ctx *s, const struct layer *l);
/* The same for latent experts: the sum is projected before it is added. */
void moe_combine_latent(const struct thread_ctx *s, const struct layer *l);
/* The same if a dense network, whose output is in y, is added before the norm. */
void moe_combine_with_dense(
    const struct thread_ctx *s, const struct layer *l, const struct residual *to);
