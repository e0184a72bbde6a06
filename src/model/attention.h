/* attention.h: division of the attention of a layer into units of work, and the attention step.
 *
 * A unit is some rows and some KV heads, or a range of KV splits of one row (attn_groups.c). One
 * thread executes all steps of a unit in a phase; a barrier separates the phases. layer_forward
 * (layer.c) calls the steps.
 *
 * Owner: the thread pool. Except attn_groups_build, all threads call each function at once, inside
 * one job. */
#pragma once

#include "model/forward_in.h"

struct head_range { /* KV heads [from, to); their query heads are adjacent in q and attn_out */
    int from, to;
};

/* Phases of attention, separated by barriers. ATTN_APPEND: prefill rows only. */
enum attn_phase { ATTN_APPEND, ATTN_ATTEND };

/* Attention work of one layer, which attn_next_unit() divides into units. */
struct attn_work {
    int layer;
    enum attn_phase first_phase;
    int n_fused;             /* the first rows append and attend in one phase: decode rows */
    bool is_by_head;         /* a unit is all rows of some KV heads, and starts with qkv_proj */
    struct act_out attn_out; /* input of Wo */
    /* this phase */
    enum attn_phase phase;
    int n_heads;                /* KV heads of a unit */
    int n_pieces;               /* split-KV pieces, of one KV head each */
    int n_group_units;          /* units of decode rows per head range */
    int row_end, rows_per_unit; /* the other rows: [n_fused, row_end) */
};

/* Rows and KV heads for which one thread executes the steps of a phase. */
struct attn_unit {
    struct head_range heads;
    /* shared-prefix groups of the decode rows; n_groups == 0: rows of prefill runs */
    const struct attn_group *groups;
    int n_groups;
    int row_from, n_rows; /* the index of a decode row is that in struct llama's attn_rows */
    int piece;            /* split-KV: piece of the row; -1: the whole row */
    int n_append;         /* pairs of row and KV head to append; 0: they are appended */
};

struct head_row { /* one row and KV head, for the steps from qkv_proj to the KV append */
    int row, head;
    float *q; /* [n_heads / n_kv_heads][head_dim] */
    /* [head_dim]; NULL: another thread appends them, or the layer has no keys and values */
    float *k, *v;
};

/* Work of the layer for the s->n_rows rows that pass it. */
struct attn_work attn_work_for(const struct thread_ctx *s, int layer);
void attn_phase_begin(const struct thread_ctx *s, struct attn_work *w, enum attn_phase phase);
/* Takes the next unit of the phase: all split-KV pieces, then all groups, then all rows of prefill
 * runs. The order is head by head, so that the pages of a head stay in a thread's cache. */
bool attn_next_unit(const struct thread_ctx *s, const struct attn_work *w, struct attn_unit *u);
/* Pair i < u->n_append of a row and a KV head. A thread that computes a split-KV piece gets its own
 * copy of the queries; only the thread with the last piece appends the key, since no other split
 * contains it. */
struct head_row attn_head_row(const struct thread_ctx *s, const struct attn_unit *u, int i);
/* attn_out of the unit's rows and heads: each query attends to the keys up to its own position. */
void attention(const struct thread_ctx *s, const struct attn_work *w, const struct attn_unit *u);

/* Arena of the layer's class of pages. */
static inline uint8_t *attn_arena(const struct thread_ctx *s)
{
    return s->params->has_window ? s->m->lm.window_arena : s->m->lm.arena;
}
/* Destination of the key and value of a row and KV head (layer.c). */
struct kv_slot attn_kv_slot(const struct thread_ctx *s, int layer, int row, int head);
/* Factor of the queries of a row, a function of its position; 1 in most models (layer.c). */
float attn_query_factor(const struct thread_ctx *s, int row);

/* Groups the decode rows by shared prefix and selects rows for split-KV (attn_groups.c). The engine
 * thread calls it before the job. */
void attn_groups_build(struct llama *m);
