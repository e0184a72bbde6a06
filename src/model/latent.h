/* latent.h: steps of multi-head latent attention (MLA) in the forward pass. layer_forward (layer.c)
 * shows their order and the barriers between them.
 *
 * All query heads attend to one key per token, [c, k_pe], whose value is c. k_b is absorbed into
 * the query, and v_b is applied to the output. Every row uses this form, also in a prompt, so the
 * bits of a row do not depend on the number of rows. The keys of all rows are in the KV pages
 * before any row attends.
 *
 * Owner: the thread pool. All threads call each function at once. */
#pragma once

#include "model/forward_in.h"

/* in [n_rows][d_model] -> query heads [n_rows][n_heads][nope_dim + n_rot] and keys
 * k [n_rows][kv_rank + n_rot]. Contains barriers, the last one at the end. */
void latent_project(const struct thread_ctx *s, const struct layer *l, struct inputs *in);
/* Query heads -> q [n_rows][n_heads][kv_rank + n_rot]; k -> KV page of the row. */
void latent_absorb(const struct thread_ctx *s, const struct layer *l, int layer);
/* Output of attention [n_rows][n_heads][kv_rank] -> attn_out [n_rows][n_heads][value_dim]. */
void latent_values(const struct thread_ctx *s, const struct layer *l);
