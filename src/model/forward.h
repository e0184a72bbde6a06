/* forward.h: inside the Llama shape: what llama.c sets up and forward.c runs through.
 *
 * A forward is one team job. Inside a layer the members meet where one's input is what others have
 * put out:
 *
 *     norm, put 2| q k v 3| bias, norm, turn, append 1| attend, put | o + x | norm, put 2|
 *                gate * up, put | down + x |
 *
 * 1: where there are rows of longer runs. 2: of more than ALONE_ROWS rows. 3: not where members
 * keep whole heads of single rows. So up to four sequences that decode meet four times, more of
 * them six times, and prompts eight times. Of experts, the feed-forward is
 *
 *     norm, put 2| scores | choose | gate * up, put | down | add up, + x |
 *
 * seven, nine and eleven. `put`: in the form that the next product reads, quantised or in planes
 * (inputs.c); what cannot be put by piece is put as rows, with one more barrier.
 *
 * Work is divided by outputs only (panels of 16 outputs, pairs of row and kv head); and the keys of
 * a single row, where they are many beside what else there is, by the splits of attention
 * (kernel/attn.h). Those are the same whoever takes them, and whoever is the last merges them in
 * their order. So who computes what, and with how many, never shows. Few rows are normed by every
 * member for itself, which is cheaper than waiting for one another; many are shared, with one more
 * barrier.
 *
 * Owner: the engine thread, through lm.h; the team inside forward_run. */
#pragma once

#include "kernel/kernels.h"
#include "os/team.h"
#include "model/bind.h"
#include "model/experts.h"
#include "model/lm.h"
#include "model/rope.h"
#include "os/thread.h"

#include <stdatomic.h>

enum {
    ALONE_ROWS = 4,  /* up to so many rows a member prepares for itself */
    TILE_PANELS = 4, /* a tile holds so many panels of max_rows rows, more of fewer rows */
    ROW_ALIGN = 16,  /* rows of scratch are multiples of so many floats */
    ENOUGH = 4,      /* pieces for each member, so that nobody waits long for another */
};

struct row {
    int32_t token;
    int pos;
    const page_id *pages; /* of its run */
};

/* Single rows that attend together: those of sequences that begin with the same pages. */
struct party {
    int from, n;  /* in struct llama's `list` */
    int n_shared; /* positions, a multiple of KV_BLOCK */

    /* Of one row whose keys members share: of each kv head. */
    int n_splits, n_pieces, per_piece; /* splits in all; pieces, of so many splits */
    size_t state;                      /* in struct llama's `states`: [n_kv_heads][n_splits] */
};

/* What one member of the team needs for itself; nobody else writes there. */
struct member {
    float *normed;           /* [max_width]: a row; or queries of a row that is shared */
    float *tile, *tile2;     /* [tile_floats]: products on their way into x or hidden */
    float *attn;             /* attn_scratch_floats() */
    void *acts[N_ACT_KINDS]; /* ALONE_ROWS rows of max_width each; NULL for a kind nobody wants */
};

struct llama {
    struct lm lm;
    struct hparams h;
    struct weights w;
    struct rope_table rope;
    const struct kernels *kernels;
    struct team *team;
    struct kv_layout kv;
    uint8_t *arena; /* [n_pages][kv.page_bytes] */
    struct owner owner;

    /* Scratch, sized by max_rows; one block that the pointers point into. */
    uint8_t *block;
    size_t block_bytes;
    float *x;         /* [rows][d_stride]: the residual stream */
    float *paused;    /* [max_paused][d_stride]: of the rows of a run between two forwards */
    float *q, *k, *v; /* [rows][q_stride], [rows][kv_stride] twice */
    float *attended;  /* [rows][q_stride] */
    float *hidden;    /* [rows or entries][ff_stride]; in the memory of q, k, v and attended */
    void *attended_acts, *hidden_acts; /* the same as products read them, beside them */
    float *cs;                         /* [rows][n_rot]: cos, sin per pair */
    float *logits;                     /* [max_logits][n_vocab] */
    float *peaks;                      /* [max_logits][logit_groups(n_vocab)] */
    struct row *rows;
    struct attn_row *list; /* [max_rows]: single rows, party by party */
    struct party *parties; /* [max_rows] */
    float *states;         /* [n_states] of splits of long rows (attn_state_floats()) */
    atomic_int *n_done; /* [n_states]: pieces that are there, of a party's head: at state + head */
    size_t n_states;
    int *wanted;             /* [max_logits]: rows of x that get logits */
    void *acts[N_ACT_KINDS]; /* the inputs of any product; NULL for a kind nobody wants */
    struct experts experts;
    struct member *members;
    size_t d_stride, q_stride, kv_stride, ff_stride, tile_floats;
    int max_width; /* the longest row any product reads */

    /* The run that is paused, while there is one. */
    struct lm_run pause; /* n == 0: none; from_layer: the next */

    /* The step. */
    int n_rows, n_wanted, n_parties;
    int n_own;      /* of the parties, the first: of one kv head, one member has all */
    int n_pieces;   /* ... of the others so many have some, over all kv heads */
    int n_single;   /* of the rows, the first: each is a run of its own, and passes all layers */
    int n_whole;    /* ... those that pass all layers; the others are behind them */
    int from_layer; /* ... and pass these */
    int end_layer;
    bool are_single_wanted;   /* all n_single of them get logits */
    const _Atomic bool *stop; /* may be NULL */
    bool is_stopped;          /* member 0 writes it before a barrier, all read it after */
};

/* Few layers of a few rows at a time are enough; memory that is not used is not touched. */
enum { PAUSED_ROWS = 512 };

/* Nor is that of states: so many are one row of 131,072 keys and eight kv heads. */
enum { MOST_STATES = 2048 };

bool forward_run(struct llama *m, struct lm_run *runs, int n_runs, const _Atomic bool *stop);
