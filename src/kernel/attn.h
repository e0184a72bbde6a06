/* attn.h: keys and values in pages, and attention over them.
 *
 * A page of the KV arena holds PAGE_TOKENS positions of one sequence for all layers:
 * [layer][kv head][K | V], 16-bit elements (f16, or bf16). Inside a K block the layout is
 * [token/16][d/32][16 d-pairs][16 tokens][2], inside a V block [d/16][token-pairs][16 d][2]:
 * tiles as matrix units want them, lanes of 16 keys or 16 values for everybody else. Groups of
 * 16 tokens are laid out even where a page holds fewer (SMALL builds).
 *
 * q8_0 takes 17/32 of that. A token's key and value are quantised as activations are (acts.h: 32
 * elements to a scale; the last block may have fewer). 16 keys are a panel of weights: a K block
 * is [token/16][d/32] of struct p16_q8_0 (blocks.h). A V block is [d/16][token-pairs][16 d][2]
 * int8 and, v_scales bytes on, [d/32][token] f16.
 *
 * Attention runs over key blocks of 256 absolute positions and splits of 512, merged in index
 * order: the bits of a row do not depend on pages, chunks, threads or other rows. */
#pragma once

#include "base/base.h"
#include "kernel/page.h"

enum kv_type { KV_F16, KV_BF16, KV_Q8_0, N_KV_TYPES };
enum {
    KV_BLOCK = 256,
    KV_SPLIT = 512,
    KV_GROUP = 16,
    KV_Q8_DIM = 256,   /* the longest head of q8_0 */
    KV_ROW_HEADS = 64, /* query heads of rows that are given as a list */
    KV_TOP = 32767,    /* q8_0: the largest weight of a block of keys becomes this */
};

struct kv_layout {
    enum kv_type type;
    int n_layers, n_kv_heads, head_dim; /* head_dim: a multiple of 2; padded to 32 in K, 16 in V */
    size_t k_bytes, v_bytes;            /* of one (layer, kv head) */
    size_t v_scales;                    /* q8_0: where the scales begin in V */
    size_t page_bytes;
};
/* "f16", "bf16", "q8_0"; N_KV_TYPES for what is none of them. */
enum kv_type kv_type_named(const char *name);
void kv_layout_init(
    struct kv_layout *l, enum kv_type type, int n_layers, int n_kv_heads, int head_dim);

/* Where one token's key and value of one (layer, kv head) go. */
struct kv_slot {
    const struct kv_layout *layout;
    uint8_t *k, *v; /* the page's K and V block of this layer and head */
    int token;      /* index in the page */
};
struct kv_slot kv_slot_at(
    const struct kv_layout *l, uint8_t *page, int layer, int kv_head, int token);

struct attn_row {
    const page_id *pages; /* of its sequence */
    int n_keys;
    int at; /* its queries are at q + at * q_stride, its output so many out_strides behind out */
};

struct attn_args {
    const struct kv_layout *layout;
    const uint8_t *arena; /* page p at arena + p * layout->page_bytes */
    const page_id *pages; /* of the sequence */
    int layer, kv_head;
    int n_rows; /* consecutive rows of the sequence, >= 1, which share what is read */

    /* Rows of several sequences, instead of pages and n_keys; at most attn_rows_most(). The first
     * n_shared positions, a multiple of KV_BLOCK and less than any n_keys, are in the same pages
     * for all of them: each key there is read once for all. NULL: none. */
    const struct attn_row *rows;
    int n_shared;

    int n_keys;     /* row i attends to positions 0 .. n_keys+i-1 */
    int n_q;        /* query heads in this kv head's group */
    const float *q; /* row i at q + i * q_stride: [n_q][head_dim], rotated, not scaled */
    float scale;    /* 1/sqrt(head_dim) or what the family says */
    float *out;     /* row i at out + i * out_stride: [n_q][head_dim] */
    size_t q_stride, out_stride; /* floats */
    float *scratch;              /* attn_scratch_floats() */

    /* Not NULL: of one row, given by pages and n_keys, the splits [split_from, split_to) alone.
     * What the heads come to in split i stays at states + i * attn_state_floats() until all are
     * there, whoever took them; then attend_merge, with the same arguments, puts the output. */
    float *states;
    int split_from, split_to;
};
int attn_rows_most(int n_q);
size_t attn_scratch_floats(const struct kv_layout *l, int n_q);

/* ---- splits apart */

/* What a query head has come to over some of its keys. */
struct attn_state {
    float *max, *sum; /* the sum, and out, relative to exp(max) */
    float *out;       /* [head_dim], with room for a multiple of 16 */
};

size_t attn_state_floats(const struct kv_layout *l, int n_q); /* of n_q heads, in one split */
/* Heads are side by side: those behind it in max and sum, and so many rooms behind in out. */
struct attn_state attn_state_at(const struct attn_args *a, int split, int head);

static inline int attn_splits(int n_keys)
{
    return (n_keys + KV_SPLIT - 1) / KV_SPLIT;
}

/* attend_merge by what a set has for it: of two states, the earlier first, into it; and the output
 * of the last. */
typedef void (*attn_merge_fn)(struct attn_state total, struct attn_state split, int head_dim);
typedef void (*attn_finish_fn)(struct attn_state total, float *out, int head_dim);
void attn_merge_splits(const struct attn_args *a, attn_merge_fn merge, attn_finish_fn finish);
