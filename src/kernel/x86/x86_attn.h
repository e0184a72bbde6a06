/* x86_attn.h: attention of the x86 kernel sets. x86_attn.c divides rows and query heads into groups
 * and their keys into key blocks; a set computes one group and key block (struct attn_set). The
 * functions here return addresses in a page. Included only by the attention files of the sets. */
#pragma once

#include "kernel/attn.h"

enum {
    MAX_GROUP_HEADS = 16, /* the largest of all sets */
    UNIT_KEYS = (int)PAGE_TOKENS < (int)KV_GROUP ? (int)PAGE_TOKENS : (int)KV_GROUP,
    /* pairs of tokens in the layout of a page */
    V_PAIRS = ((int)PAGE_TOKENS + KV_GROUP - 1) / KV_GROUP * KV_GROUP / 2,
};

/* Range of rows and of query heads of a GQA group. */
struct query_range {
    int row, n_rows, head, n_heads;
};

/* Query heads, row by row, that share loaded keys and values: pointers into the caller's
 * scratch. */
struct head_group {
    const struct attn_args *a;
    int n;                       /* heads, 1 .. attn_set.max_heads */
    int n_keys[MAX_GROUP_HEADS]; /* number of keys of each head; ascending */
    int first_block;             /* first key block, the same for all heads; 0 without a window */
    int dim;                     /* dimension of a key */
    int value_dim, value_dim16;  /* dimensions of a value, and rounded up to 16 */
    const void *q;               /* queries, in the form that the set reads */
    size_t q_head_bytes;         /* distance of the queries of two heads */
    int n_q;                     /* heads for which q was written: n or more */
    float *max, *sum;
    float *out; /* [n][value_dim16] */
    void *work; /* memory of the set for one key block */
};

/* Arithmetic of a kernel set. */
struct attn_set {
    int max_heads; /* query heads per group */
    /* Sets q and q_head_bytes of a group to the queries of a range. `at` is scratch for them;
     * returns the first free float. */
    float *(*set_queries)(struct head_group *g, const struct attn_args *a,
        const struct query_range *range, float *at);
    /* Attends to keys [from, to) of one key block: adds them to the state of the group, which is
     * undefined before the first block of a split (attn_begins_split). */
    void (*attend_block)(const struct head_group *g, int from, int to);
    /* True if rows [row, row + n_rows) of a sequence can be one group. NULL: all can. */
    bool (*can_group)(const struct attn_args *a, int row, int n_rows);
    attn_merge_fn merge;
    attn_finish_fn finish;
};

/* The key block from `from` on is the first one of its split to which the group attends. */
static inline bool attn_begins_split(const struct head_group *g, int from)
{
    return from % KV_SPLIT == 0 || from == g->first_block;
}

/* Attends to the keys of all rows. work: passed on in head_group.work; scratch: the part of
 * a->scratch that the set does not use. */
void attn_attend(const struct attn_set *set, const struct attn_args *a, void *work, float *scratch);

static inline void *attn_align(void *at)
{
    return (void *)(((uintptr_t)at + 63) & ~(uintptr_t)63);
}

/* Query of a head of a row; the other heads of the row follow. */
static inline const float *attn_query(const struct attn_args *a, int row, int head)
{
    return a->q + attn_row_index(a, row) * a->q_stride + (size_t)head * (size_t)a->layout->head_dim;
}

/* ---- addresses in the page that contains position `pos` */

static inline const uint8_t *attn_block_of(const struct attn_args *a, int pos)
{
    const struct kv_layout *l = a->layout;

    return a->arena + a->pages[pos / PAGE_TOKENS].i * l->page_bytes + l->offset +
           (size_t)a->kv_head * (l->k_bytes + l->v_bytes);
}

/* 16-bit keys of the group of 16 tokens that contains `pos` */
static inline const uint8_t *attn_keys_of(const struct attn_args *a, int pos)
{
    size_t group = (size_t)(a->layout->head_dim + 31) / 32 * 1024;

    return attn_block_of(a, pos) + (size_t)(pos % PAGE_TOKENS / KV_GROUP) * group;
}

/* 16-bit key of one position in latent attention */
static inline const uint8_t *attn_latent_key(const struct attn_args *a, int pos)
{
    return attn_block_of(a, pos) +
           (size_t)(pos % PAGE_TOKENS) * (size_t)a->layout->head_dim * sizeof(uint16_t);
}

static inline const uint8_t *attn_values_of(const struct attn_args *a, int pos)
{
    return attn_block_of(a, pos) + a->layout->k_bytes;
}

/* The share of a key group in the 16-bit values of its page, as many lines as the group has lines
 * of keys: it is prefetched while the scores are computed. */
static inline const uint8_t *attn_values_share(const struct attn_args *a, int pos)
{
    size_t lines = ((size_t)a->layout->value_dim + 15) / 16 * 16 / 2;

    return attn_values_of(a, pos) + (size_t)(pos % PAGE_TOKENS / KV_GROUP) * lines * 64;
}
