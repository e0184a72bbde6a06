/* forward_in.h: internal functions of the forward pass, shared by the files of its steps.
 * The feed-forward network is in ffn.h.
 *
 * Owner: the thread pool. All threads call each function at once, inside one job. */
#pragma once

#include "model/forward.h"

#include <stdatomic.h>

struct thread_ctx { /* one thread in the current step */
    struct llama *m;
    struct thread_scratch *thread_mem;
    int thread, n_threads;
    const struct layer_params *params; /* parameters of the current layer */
    bool has_kv;                       /* the layer has keys and values of its own */
    const int *gather;                 /* rows of the step that are still needed; NULL: all */
    int n_rows;                        /* number of rows in this layer */
};

struct inputs { /* the same rows in each form that the GEMMs read */
    struct acts kind[N_ACT_KINDS];
};

struct norm_in {
    const float *rows; /* [n_rows][stride] */
    size_t stride;
    const int *gather; /* input row i is row gather[i]; NULL: row i */
    const float *norm; /* RMSNorm weights, [n_cols]; or NULL: no norm */
    int n_cols;
    unsigned kinds; /* one bit per act_kind */
};

/* Rows that are computed tile by tile and are the input of one GEMM. */
struct act_out {
    float *floats; /* [n_rows][stride] */
    size_t stride;
    struct acts acts; /* the form that the GEMM reads: these floats, or their quantised form */
    /* the thread that computes a tile also quantises it; else forward_load_act() converts all
     * rows */
    bool is_quantised_by_tile;
    int n_heads; /* attention: KV heads per tile */
};

struct tile_split { /* tile size of the gate and up GEMMs */
    int panels, rows;
};

/* How an output is added to the residual stream. */
struct residual {
    const float *bias;    /* [d_model]: added to the output; or NULL */
    const float *norm;    /* [d_model]: RMSNorm of the output; or NULL */
    const float *scale;   /* [1]: factor of the sum, only with a norm; or NULL: 1 */
    const float *factors; /* row i is multiplied by factors[i * stride]; NULL: by 1 */
    size_t stride;
};

struct gemm_out {
    const struct packed *w;
    float *y; /* [n_rows][stride] */
    size_t stride;
};

static inline void barrier(const struct thread_ctx *s)
{
    thread_pool_barrier(s->m->thread_pool, s->thread);
}

/* Divides a loop of n iterations into equal, contiguous ranges, one per thread. */
static inline void forward_thread_range(const struct thread_ctx *s, int n, int *from, int *to)
{
    *from = (int)((int64_t)n * s->thread / s->n_threads);
    *to = (int)((int64_t)n * (s->thread + 1) / s->n_threads);
}

static inline int picked_row(const struct thread_ctx *s, int r)
{
    return s->gather ? s->gather[r] : r;
}

/* One bit per act_kind that these matrices read; a model may lack a matrix (n_rows == 0). */
static inline unsigned act_kind_bit(const struct llama *m, const struct packed *w)
{
    return w->n_rows ? 1u << kernels_act_kind(m->kernels, w->type) : 0;
}

static inline unsigned act_kinds(
    const struct llama *m, const struct packed *a, const struct packed *b, const struct packed *c)
{
    return act_kind_bit(m, a) | act_kind_bit(m, b) | act_kind_bit(m, c);
}

/* Thread 0 reads the stop flag; all threads act on it after the next barrier. */
static inline void poll_stop(const struct thread_ctx *s)
{
    if (s->thread == 0 && s->m->stop)
        s->m->is_stopped = atomic_load_explicit(s->m->stop, memory_order_relaxed);
}

/* After the last update of KV pages and states, only the rows that get logits are needed. */
static inline void keep_logit_rows(struct thread_ctx *s)
{
    s->gather = s->m->n_logit_rows < s->n_rows ? s->m->logit_rows : NULL;
    s->n_rows = s->m->n_logit_rows;
}

/* ---- inputs.c */

/* RMSNorm (if any) and quantisation of s->n_rows rows. Up to REDUNDANT_ROWS rows: each thread
 * converts all of them for itself. More: the threads share the rows, and the call ends with a
 * barrier. */
void forward_norm_quantise(
    const struct thread_ctx *s, const struct norm_in *src, struct inputs *to);

/* Norm of the residual stream: x [n_rows][d_model] -> in [n_rows][d_model]. */
static inline void rms_norm(
    const struct thread_ctx *s, const float *weight, unsigned kinds, struct inputs *in)
{
    struct norm_in x = { s->m->x, s->m->d_stride, s->gather, weight, s->m->h.d_model, kinds };

    forward_norm_quantise(s, &x, in);
}

/* Rows [first, first + n) of the inputs, or the n rows of the list `gather`. */
struct inputs forward_inputs_slice(const struct inputs *in, int n, int first, const int *gather);

/* Output buffers of attention (input of Wo) and of gate/up (input of W_down). */
struct act_out forward_attn_out(const struct thread_ctx *s, const struct layer *l);
/* The same if a row is the output of a recurrent layer and computed in n_parts parts, each of which
 * is a multiple of `unit` columns. */
struct act_out forward_recurrent_out(
    const struct thread_ctx *s, const struct layer *l, int n_parts, int unit);
struct act_out forward_hidden_out(
    const struct thread_ctx *s, const struct packed *down, int n_rows);
struct act_out forward_shared_hidden_out(const struct thread_ctx *s, const struct packed *down);
/* Quantises columns [col, col + n) of a row, which are in to->floats, if the output is quantised by
 * tile. */
void forward_quantise_tile(
    const struct thread_ctx *s, const struct act_out *to, int row, int col, int n);
/* The same for the activation of gate and up, which are in the thread's two tiles at offset `at`,
 * in floats. Without a gate, up is in the first tile. */
void forward_activate_tile(
    const struct thread_ctx *s, const struct act_out *to, int row, int col, size_t at, int n);
/* Makes `from` a GEMM input; call after a barrier. Rows that were not quantised by tile are
 * converted like in forward_norm_quantise(). */
void forward_load_act(const struct thread_ctx *s, const struct act_out *from, struct inputs *to);

/* Tile size of gate and up: about `panels` of `n_panels` panels, rounded to whole quantisation
 * blocks; fewer rows if a tile cannot hold a block of all rows. If this leaves threads without
 * work, the output is not quantised by tile. */
struct tile_split forward_tile_split(
    const struct thread_ctx *s, struct act_out *to, int n_panels, int panels);

/* ---- gemm_tiles.c */

/* Number of panels per tile for a GEMM of n_panels panels. */
int forward_tile_panels(const struct thread_ctx *s, int n_panels);

/* Weights that this thread will most likely read next, after the tile that begins at panel `from`:
 * each thread takes one tile in turn. NULL: none. */
const uint8_t *forward_next_weights(
    const struct thread_ctx *s, const struct packed *w, int from, int step);

/* GEMM of panels [g.panel_from, g.panel_to) of w with x; g.y is the address of row 0's first
 * output. */
void forward_gemm(
    const struct thread_ctx *s, const struct packed *w, const struct inputs *x, struct gemm_args g);

/* Several GEMMs with the same input; the threads share one list of tiles. */
void forward_gemms(
    const struct thread_ctx *s, const struct inputs *x, const struct gemm_out *t, int n_t);

/* GEMM with residual: x[row][d_model] += W * input, for the rows of s->gather. With a norm, the
 * call contains a barrier. */
void forward_gemm_residual(const struct thread_ctx *s, const struct packed *w,
    const struct inputs *in, const struct residual *to);

/* The second half of it for one row of n_rows, whose output is y[d_model]; y is overwritten. */
void forward_add_row(const struct thread_ctx *s, const struct residual *to, int row, float *y);

/* ---- layer.c */

/* One layer: x[n_rows][d_model] is input and output. In the last layer, only the rows that get
 * logits continue after the KV append: changes s->gather and s->n_rows. Ends with a barrier, unless
 * n_rows becomes 0. */
void layer_forward(struct thread_ctx *s, int index);
