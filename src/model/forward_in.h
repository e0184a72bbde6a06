/* forward_in.h: inside a forward: what forward.c, attention.c, inputs.c and experts.c share.
 *
 * Everything here is called by all members of the team at once, inside one job. */
#pragma once

#include "model/forward.h"

#include <stdatomic.h>

struct self { /* one member in the step */
    struct llama *m;
    struct member *mem;
    int index, n;
    const int *pick; /* rows of the step that are still wanted; NULL: all */
    int n_rows;      /* how many, in this layer */
};

struct inputs { /* the same rows in each kind that the products want */
    struct acts kind[N_ACT_KINDS];
};

struct source {
    const float *rows; /* [n_rows][stride] */
    size_t stride;
    const int *pick;   /* input row i is source row pick[i]; NULL: row i */
    const float *norm; /* weights of the RMS norm before it, or NULL */
    int n_cols;
    unsigned kinds; /* bit per act_kind */
};

/* Rows that are made in pieces, side by side, for one product to read. */
struct made {
    float *floats; /* [n_rows][stride] */
    size_t stride;
    struct acts acts; /* as the product reads them: these floats, or what is made of them */
    bool by_piece;    /* who makes a piece puts it into acts; else forward_read() does all */
    int n_heads;      /* what attends: kv heads that a piece is */
};

struct cut { /* how large the pieces of gate and up are */
    int panels, rows;
};

struct ff_piece {
    int panel_from, panel_to; /* of both matrices */
    int row, n_rows;          /* of what is made */
    int col, n_cols;
};

struct target {
    const struct packed *w;
    float *y; /* [n_rows][stride] */
    size_t stride;
};

static inline void barrier(const struct self *s)
{
    team_barrier(s->m->team, s->index);
}

/* A shared loop in equal parts, in order. */
static inline void forward_part(const struct self *s, int n, int *from, int *to)
{
    *from = (int)((int64_t)n * s->index / s->n);
    *to = (int)((int64_t)n * (s->index + 1) / s->n);
}

static inline int picked(const struct self *s, int r)
{
    return s->pick ? s->pick[r] : r;
}

static inline unsigned kind_bit(const struct llama *m, const struct packed *w)
{
    return 1u << kernels_acts(m->kernels, w->type);
}

/* Member 0 looks whether the step is to end here; all know it behind the next barrier. */
static inline void look_at_stop(const struct self *s)
{
    if (s->index == 0 && s->m->stop)
        s->m->is_stopped = atomic_load_explicit(s->m->stop, memory_order_relaxed);
}

/* ---- inputs.c */

/* Norms s->n_rows rows and puts them as products read them: few by this member alone;
 * many together, with a barrier. */
void forward_prepare(const struct self *s, const struct source *src, struct inputs *to);

/* Rows [first, first + n) of the inputs, or n of them by a list. */
struct inputs forward_some(const struct inputs *in, int n, int first, const int *pick);

/* What attention says, for the product with o; what gate and up do, for that with down. */
struct made forward_attended(const struct self *s, const struct layer *l);
struct made forward_hidden(const struct self *s, const struct layer *l, int n_rows);
/* Columns [col, col + n) of a row, whose n are in its floats: into acts, if that is by piece. */
void forward_put(const struct self *s, const struct made *to, int row, int col, int n);
/* The same of silu(gate) * up, which are `at` so many floats in the member's two tiles. */
void forward_put_silu(
    const struct self *s, const struct made *to, int row, int col, size_t at, int n);
/* Behind a barrier, `from` as an input. What was not put by piece is made, as forward_prepare()
 * does. */
void forward_read(const struct self *s, const struct made *from, struct inputs *to);

/* Whole blocks of what gate and up make, about `panels` of their `n_panels` at a time: of some rows
 * at a time, where a tile does not hold a block of all. When members would be left without work
 * it is not made by piece. */
struct cut forward_cut(const struct self *s, struct made *to, int n_panels, int panels);

/* ---- forward.c */

/* Panels of n_panels that are handed out at a time. */
int forward_piece(const struct self *s, int n_panels);

/* Panels [g.panel_from, g.panel_to) of w times x; g.y is where the first output of row 0 goes. */
void forward_product(
    const struct self *s, const struct packed *w, const struct inputs *x, struct gemm_args g);

/* Several products of the same input, as one list of pieces. */
void forward_products(
    const struct self *s, const struct inputs *x, const struct target *t, int n_t);

/* silu(gate * in) * (up * in), of the piece's rows, into `to`. */
void forward_gate_up(const struct self *s, const struct layer *l, const struct inputs *in,
    const struct made *to, const struct ff_piece *p);

/* Appends keys and values of all rows, then attended[i] of each row i that is still wanted: behind
 * the last keys only those that get logits are. attention.c. Ends with a barrier. */
void forward_attention(struct self *s, int layer);

/* x += what the layer's experts say; experts.c. Ends with a barrier. */
void forward_experts(const struct self *s, const struct layer *l);

/* The first n_single rows: who attends with whom, or in pieces; parties.c. By the engine thread,
 * before the job. */
void forward_parties(struct llama *m);
