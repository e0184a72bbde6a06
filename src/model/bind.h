/* bind.h: a file's tensors as checked, packed weights.
 *
 * Every tensor the family has must be there, in the shape the hyper-parameters say, in a type
 * that is served; one that is in no family is refused, since ignoring it would give wrong
 * answers quietly. The one error names the tensor, what was expected and what was found.
 *
 * All weights live in one block of memory. Packing is shared by the team; a tensor's pages in
 * the file are given back as soon as it is packed, so that the peak is the weights plus one
 * tensor. Or the block is mapped from a file in which an earlier start has put it (packfile.h).
 * Nothing of the model's file is used afterwards: it may be closed.
 *
 * Read-only after weights_bind: any thread. */
#pragma once

#include "kernel/gemm.h"
#include "os/team.h"
#include "model/hparams.h"
#include "model/packfile.h"

struct layer {                    /* shapes as [rows][cols], cols contiguous in the file */
    const float *attn_norm;       /* [d_model] */
    struct packed q;              /* [n_heads * head_dim][d_model] */
    struct packed k, v;           /* [n_kv_heads * head_dim][d_model] */
    const float *q_bias;          /* [n_heads * head_dim], or NULL */
    const float *k_bias, *v_bias; /* [n_kv_heads * head_dim], or NULL */
    const float *q_norm, *k_norm; /* [head_dim], or NULL */
    struct packed o;              /* [d_model][n_heads * head_dim] */
    const float *ffn_norm;        /* [d_model] */
    struct packed router;         /* [n_experts][d_model]; of experts only */
    struct packed gate, up;       /* [d_ff][d_model], for each expert */
    struct packed down;           /* [d_model][d_ff], for each expert */
};

struct weights {
    struct packed embd; /* [n_vocab][d_model]; rows are gathered from it */
    struct packed head; /* [n_vocab][d_model]; the same bytes as embd when tied */
    bool is_tied;
    const float *out_norm;     /* [d_model] */
    const float *rope_factors; /* [n_rot / 2], or NULL */
    struct layer *layers;      /* [n_layers] */
    uint8_t *block;            /* what all of them point into; read-only when it is mapped */
    size_t bytes;              /* of the block */
    struct packfile file;      /* whose block it is; empty: memory of our own */
    struct packfile_key key;   /* of bind_options.packfile */
    bool wants_file;           /* which was not there, or did not fit; its key is known */
    uint64_t n_params;
};

struct bind_options {
    void (*progress)(void *arg, double share); /* 0 .. 1, on the caller's thread; NULL: none */
    void *progress_arg;
    const char *packfile; /* used when it is there and fits; NULL: none */
    bool packfile_to_memory;
};

/* On error *w holds nothing. ERR_CORRUPT, ERR_UNSUPPORTED, ERR_MEMORY. */
int weights_bind(struct weights *w, const struct hparams *h, const struct gguf *g,
    struct team *team, const struct bind_options *o, struct err *e);
void weights_clear(struct weights *w); /* an empty one is fine */
