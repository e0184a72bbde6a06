/* forward.h: state of the transformer: llama.c initialises it, forward.c runs the forward pass.
 *
 * A forward pass is one thread-pool job. layer_forward (layer.c) shows the steps of a layer and the
 * barriers between them. Three barriers depend on the rows:
 *
 *     after rms_norm:  only with more than REDUNDANT_ROWS rows; fewer rows are normalised by every
 *                      thread redundantly, which takes less time than a barrier
 *     after qkv_proj:  not if each thread computes whole heads of decode rows
 *     after kv_append: only if there are prefill rows (runs of more than one row)
 *
 * A layer thus has four barriers for up to four decode rows, six for more decode rows, and eight
 * with prefill rows. A layer with experts has seven, nine and eleven; experts with projections of
 * their input and output add one, or three with more than REDUNDANT_ROWS rows.
 *
 * A GEMM reads its input as int8 blocks or bf16 pairs (inputs.c). If a tile cannot be quantised by
 * the thread that computes it, o_proj, ffn_down and moe_down convert whole rows first, which adds a
 * barrier.
 *
 * Work is divided by outputs only (panels of 16 outputs; pairs of row and KV head). The exception
 * is split-KV attention: if one decode row has many more keys than the others, its KV splits
 * (kernel/attn.h) are divided over threads and merged in index order by the thread that finishes
 * last. The result depends neither on the number of threads nor on the thread that computes a part.
 *
 * Owner: the engine thread, through lm.h; during forward_run the thread pool. */
#pragma once

#include "kernel/kernels.h"
#include "os/thread_pool.h"
#include "model/bind.h"
#include "model/moe.h"
#include "model/lm.h"
#include "model/rope.h"
#include "model/sparse_head.h"
#include "model/state_slot.h"

#include <stdatomic.h>

enum {
    REDUNDANT_ROWS =
        4,           /* up to this number of rows, every thread prepares the inputs redundantly */
    TILE_PANELS = 4, /* panels of a tile with max_rows rows; more panels if there are fewer rows */
    ROW_ALIGN = 16,  /* scratch rows are padded to a multiple of this number of floats */
    TILES_PER_THREAD = 4, /* tiles per thread, so that threads finish at nearly the same time */
};

struct batch_row {
    int32_t token;
    int pos;
    const page_id *pages, *window_pages; /* page tables of the row's run */
    int run; /* index in struct llama's `state_runs`, if there are recurrent layers */
};

/* One run of the step in recurrent layers. */
struct state_run {
    int row, n, pos; /* first row of the step, rows, position of the first row */
    state_id state, state_out;
};

/* Scratch memory of recurrent layers, which shares memory with that of attention. The row lengths
 * are those of struct state_layout, padded. */
struct recurrent_mem {
    size_t conv_stride, value_stride, head_stride;
    float *conv_in; /* [n_rows][conv_stride]: inputs of the convolution */
    float *conv;    /* [n_rows][conv_stride]: q, k and v of all heads */
    /* [n_rows][head_stride]: decay; factor of the correction (DeltaNet), or time step (Mamba2) */
    float *g, *beta;
    float *u, *out;     /* [n_rows][value_stride]: updates and outputs of the value heads */
    const float *zeros; /* [channels]: input of the convolution before position 0 */
};

/* Shared-prefix group: decode rows whose sequences have a common KV prefix (cascade attention). */
struct attn_group {
    int from, n;  /* decode rows [from, from + n) of struct llama's `attn_rows` */
    int n_shared; /* common positions, a multiple of KV_BLOCK */

    /* Split-KV: only for a group of one row, values per KV head. */
    /* KV splits in total; pieces of work, each of splits_per_piece splits */
    int n_splits, n_pieces, splits_per_piece;
    size_t state; /* index in struct llama's `states`: [max_kv_heads][n_splits] */
};

/* Scratch memory of one thread; no other thread writes to it. */
struct thread_scratch {
    float *row_buf; /* [max_width]: one row; or the queries of a row with split KV */
    /* [tile_floats]: GEMM output before it is added to x or stored in hidden */
    float *tile, *tile2;
    float *attn; /* attn_scratch_floats() */
    /* one row of the table of per-layer inputs: its bytes if they are computed, packed, as floats;
     * or NULL */
    uint8_t *table_row_bytes, *table_row_packed;
    float *table_row;
    /* REDUNDANT_ROWS rows of max_width; NULL for a kind that no GEMM reads */
    void *acts[N_ACT_KINDS];
    float *state; /* [key_dim][STATE_COLS]: a slice of a recurrent state; or NULL */
};

struct llama {
    struct lm lm;
    struct hparams h;
    struct weights w;
    struct rope_table rope, window_rope; /* layers without and with a window */
    const struct kernels *kernels;
    /* activation of the feed-forward network: hidden = function of gate and up, or of up alone */
    void (*activate)(float *out, const float *gate, const float *up, int n);
    void (*activate_up)(float *out, const float *up, int n); /* NULL: the network has a gate */
    struct thread_pool *thread_pool;
    enum kv_type kv_type;
    struct kv_layout *kv; /* [n_layers] */
    /* attention of all layers: KV heads, query heads per KV head */
    int min_kv_heads, max_kv_heads, max_q_per_kv_head;

    struct state_layout state;
    uint8_t *state_arena; /* [n_states][state.bytes] */

    /* Scratch memory, sized by max_rows; the pointers point into one block. */
    uint8_t *block;
    size_t block_bytes;
    float *x;    /* [n_rows][d_stride]: residual stream */
    float *y;    /* [n_rows][d_stride]: output before its norm; NULL if no layer has such a norm */
    float *ones; /* [MAX_HEAD_DIM]: weights of the norm of values; NULL: no such norm */
    float *layer_inputs; /* [n_rows][n_layers * d_input]: per-layer inputs; NULL: none */
    /* [max_partial_rows][d_stride]: residual stream of a partial run between two passes */
    float *partial_x;
    float *q, *k, *v; /* q: [n_rows][q_stride]; k, v: [n_rows][kv_stride] */
    float *mix_gate;  /* [n_rows][q_stride]: gate of the mixer's output */
    float *attn_out;  /* [n_rows][o_stride]: output of the mixer, before Wo */
    struct {          /* latent attention */
        float *q_a;   /* [n_rows][q_a_stride]: compressed queries */
        float *heads; /* [n_rows][heads_stride]: query heads before k_b */
        float *out;   /* [n_rows][out_stride]: output of attention before v_b */
        size_t q_a_stride, heads_stride, out_stride;
    } latent;
    struct recurrent_mem recurrent;
    /* [n_rows or n_entries][ff_stride]: silu(gate) * up; shares memory with q, k, v and attn_out */
    float *hidden;
    void *attn_out_acts, *hidden_acts; /* the same, quantised */
    float *shared_hidden;              /* [n_rows][shared_stride]: hidden of the shared expert */
    void *shared_hidden_acts;
    float *cs;        /* [n_rows][rope.n_rot]: RoPE cos, sin per pair */
    float *window_cs; /* [n_rows][window_rope.n_rot]: in layers with a window; NULL: as cs */
    float *logits;    /* [max_logits][n_vocab] */
    float *peaks;     /* [max_logits][logit_groups(n_vocab)] */
    struct sparse_head sparse; /* panels of the output head in this step */
    struct batch_row *rows;
    struct state_run *state_runs;   /* [max_rows] */
    struct attn_row *attn_rows;     /* [max_rows]: decode rows, in the order of their groups */
    struct attn_group *attn_groups; /* [max_rows] */
    float *states;                  /* [n_states]: split-KV partial results (attn_state_floats()) */
    /* [n_states]: finished split-KV pieces of a group's head, at index state + head */
    atomic_int *n_done;
    size_t n_states;
    int *logit_rows;         /* [max_logits]: rows of x that get logits */
    void *acts[N_ACT_KINDS]; /* quantised inputs of GEMMs; NULL for a kind that no GEMM reads */
    struct moe moe;
    struct thread_scratch *per_thread;
    size_t d_stride, q_stride, kv_stride, o_stride, ff_stride, shared_stride, tile_floats;
    int max_width; /* longest input row of any GEMM */

    /* The partial run (layered prefill), if there is one. */
    struct lm_run partial; /* n == 0: none; from_layer: the layer at which it resumes */

    /* Variables of the current step. */
    int n_rows, n_logit_rows, n_attn_groups, n_state_runs;
    int n_whole_groups; /* the first groups: one thread computes a whole KV head */
    int n_pieces;       /* number of split-KV pieces of the other groups, per KV head */
    /* decode rows: the first rows; each is a run of its own and passes all layers */
    int n_decode_rows;
    int n_full_rows; /* rows that pass all layers; the rows after them are the partial run */
    int from_layer;  /* layers [from_layer, end_layer) of the partial run */
    int end_layer;
    bool decode_rows_have_logits; /* all decode rows get logits */
    const _Atomic bool *stop;     /* may be NULL */
    /* thread 0 writes it before a barrier, all threads read it after the barrier */
    bool is_stopped;
};

/* Layered prefill runs few layers of a few rows per step; unused memory is not touched. */
enum { MAX_PARTIAL_ROWS = 512 };

/* One row of 131,072 keys and eight KV heads needs this number of states; unused memory is not
 * touched. */
enum { MAX_SPLIT_STATES = 2048 };

bool forward_run(struct llama *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop);
