/* attn.h: layout of keys and values in KV pages, and attention over them.
 *
 * A page of the KV arena holds PAGE_TOKENS positions of one sequence for all layers:
 * [layer][kv head][K | V], 16-bit elements (f16 or bf16); layers may differ in the number and the
 * dimension of their heads. The layout of a K block is
 * [token/16][d/32][16 d-pairs][16 tokens][2], that of a V block [d/16][token-pairs][16 d][2]:
 * AMX tiles can be loaded from it, and the other sets read lanes of 16 keys or 16 value
 * dimensions. Groups of 16 tokens are laid out even if a page holds fewer (SMALL builds).
 *
 * q8_0 takes 17/32 of that size. The key and value of a token are quantised like activations
 * (acts.h: 32 elements per scale; the last block may have fewer). 16 keys are a weight panel: a K
 * block is [token/16][d/32] of struct p16_q8_0 (blocks.h). A V block is
 * [d/16][token-pairs][16 d][2] int8 and, at offset v_scales, [d/32][token] f16.
 *
 * In multi-head latent attention (MLA), the value of a token is the first elements of its key. The
 * key is stored once, and there is no V block. The layout of a 16-bit K block is then
 * [token][head_dim]: scores and values are both read in lanes of 16 dimensions. The layout of a
 * q8_0 K block is that of other K blocks.
 *
 * Attention processes key blocks of 256 absolute positions and splits of 512 (split-KV), which are
 * merged in index order: the bits of a row do not depend on pages, prefill chunks, threads or
 * other rows. With a window, key blocks before the one in which the window begins are not read; the
 * weights of the positions before the window are 0. Pure functions on memory of the caller; any
 * thread. */
#pragma once

#include "base/base.h"
#include "kernel/page.h"

enum kv_type { KV_F16, KV_BF16, KV_Q8_0, N_KV_TYPES };
enum {
    KV_BLOCK = 256,
    KV_SPLIT = 512,
    KV_GROUP = 16,
    KV_MAX_DIM = 576,      /* largest dimension of a key or value */
    KV_MAX_ROW_HEADS = 64, /* most query heads of all rows of attn_args.rows together */
    KV_Q8_MAX_WEIGHT =
        32767, /* q8_0: integer to which the largest weight of a key block is scaled */
};

struct kv_layout { /* layout of one layer */
    enum kv_type type;
    /* head_dim: of a key, a multiple of 2; padded to 32 in K, as value_dim is to 16 in V */
    int n_kv_heads, head_dim, value_dim;
    bool is_latent;          /* the value of a token is the first value_dim elements of its key */
    size_t k_bytes, v_bytes; /* bytes per KV head */
    size_t v_scales;         /* q8_0: offset of the scales in a V block */
    size_t offset;           /* offset of the layer in a page */
    size_t page_bytes;       /* size of all layers in the page */
};
/* Types by name: "f16", "bf16", "q8_0"; N_KV_TYPES for any other name. */
enum kv_type kv_type_by_name(const char *name);
/* A page of this layer alone. */
void kv_layout_init(struct kv_layout *l, enum kv_type type, int n_kv_heads, int head_dim);
/* The same for values of another dimension than the keys. With is_latent, both dimensions are
 * multiples of 16, and head_dim is not less than value_dim. */
void kv_layout_init_values(struct kv_layout *l, enum kv_type type, int n_kv_heads, int head_dim,
    int value_dim, bool is_latent);
/* Places n layers, which may have different sizes, one after the other in a page, and returns its
 * bytes. A layer without KV heads takes no bytes. */
size_t kv_layout_place(struct kv_layout *const *layers, int n);

/* Destination of one token's key and value of one (layer, kv head). */
struct kv_slot {
    const struct kv_layout *layout;
    uint8_t *k, *v; /* the page's K and V blocks of this layer and kv head; v: not if is_latent */
    int token;      /* index of the token in the page */
};
struct kv_slot kv_slot_at(const struct kv_layout *l, uint8_t *page, int kv_head, int token);

struct attn_row {
    const page_id *pages; /* page table of the row's sequence */
    int n_keys;
    /* row index: the queries are at q + at * q_stride, the output is at out + at * out_stride */
    int at;
};

struct attn_args {
    const struct kv_layout *layout; /* layout of the layer */
    const uint8_t *arena;           /* page p is at arena + p * layout->page_bytes */
    const page_id *pages;           /* page table of the sequence */
    int kv_head;
    int n_rows; /* consecutive rows of the sequence, >= 1; each key is read once for several rows */

    /* Rows of several sequences (a shared-prefix group), used instead of pages and n_keys; at most
     * attn_max_rows(n_q). The first n_shared positions are in the same pages for all rows, and each
     * key there is read once for all of them. n_shared is a multiple of KV_BLOCK and less than
     * every n_keys. NULL: no list. */
    const struct attn_row *rows;
    int n_shared;

    int n_keys;     /* row i attends to positions 0 .. n_keys + i - 1 */
    int n_q;        /* query heads of this kv head's GQA group */
    const float *q; /* row i is at q + i * q_stride: [n_q][head_dim], after RoPE, not scaled */
    float scale;    /* 1/sqrt(head_dim), or the value that the model family specifies */
    /* a row at position p attends to positions p - window + 1 .. p; 0: to all up to p */
    int window;
    float soft_cap;     /* a score s becomes soft_cap * tanh(s / soft_cap); 0: no soft cap */
    const float *sinks; /* [n_q]: scores that take part in the softmax without a value; or NULL */
    float *out;         /* row i is at out + i * out_stride: [n_q][value_dim] */
    size_t q_stride, out_stride; /* in floats */
    float *scratch;              /* attn_scratch_floats() floats */

    /* If not NULL, attend computes only the splits [split_from, split_to) of one row, which pages
     * and n_keys describe. The state of split i is stored at states + i * attn_state_floats().
     * Splits may be computed by different threads. When all are stored, attend_merge with the same
     * arguments writes the output. */
    float *states;
    int split_from, split_to;
};

/* First position to which a row with n_keys keys attends, and the first of its key block. */
static inline int attn_first_key(const struct attn_args *a, int n_keys)
{
    return a->window > 0 ? MAX(n_keys - a->window, 0) : 0;
}
static inline int attn_first_block(const struct attn_args *a, int n_keys)
{
    return attn_first_key(a, n_keys) / KV_BLOCK * KV_BLOCK;
}

/* Row index of one of the n_rows rows. */
static inline size_t attn_row_index(const struct attn_args *a, int row)
{
    return a->rows ? (size_t)a->rows[row].at : (size_t)row;
}

/* Arguments for one row alone: pages, n_keys, q and out are those of the row. */
struct attn_args attn_args_of_row(const struct attn_args *a, int row);
int attn_max_rows(int n_q);
size_t attn_scratch_floats(const struct kv_layout *l, int n_q);

/* ---- split-KV: states of single splits */

/* Softmax state of a query head over some of its keys. */
struct attn_state {
    float *max, *sum; /* sum and out are relative to exp(max) */
    float *out;       /* [value_dim], with space for a multiple of 16 */
};

/* floats for the states of n_q heads in one split */
size_t attn_state_floats(const struct kv_layout *l, int n_q);
/* State of one head. Heads are adjacent: head h + 1 is the next float in max and sum, and is at the
 * next multiple of 16 floats in out. */
struct attn_state attn_state_at(const struct attn_args *a, int split, int head);

static inline int attn_n_splits(int n_keys)
{
    return (n_keys + KV_SPLIT - 1) / KV_SPLIT;
}

/* State of a sink, a score without a value, to be merged into another one. It is read only; max and
 * sum are the caller's. */
struct attn_state attn_sink_state(const struct attn_args *a, int head, float *max, float *sum);

/* Implementation of attend_merge with two functions of a kernel set: attn_merge_fn merges the later
 * split into the earlier one, attn_finish_fn writes the output of the final state. */
typedef void (*attn_merge_fn)(struct attn_state total, struct attn_state split, int value_dim);
typedef void (*attn_finish_fn)(struct attn_state total, float *out, int value_dim);
void attn_merge_splits(const struct attn_args *a, attn_merge_fn merge, attn_finish_fn finish);
