/* hparams.h: the numbers that shape a network, read from a file's metadata and bounded.
 *
 * Everything that is later multiplied, divided by or allocated has passed a range here; the one
 * error names the key, what was found and what is served. A feature that would change the
 * numbers and is not served (soft caps, other scalings) is refused by name, never ignored.
 *
 * Keys: GGUF metadata, github.com/ggml-org/ggml docs/gguf.md, `<arch>.` in front.
 * Plain data; any thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"
#include "model/family.h"

enum { MAX_LAYERS = 1024, MAX_HEAD_DIM = 256, MAX_EXPERTS = 1024, MAX_EXPERTS_USED = 32 };

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN };

struct rope_params {
    enum rope_scaling scaling;
    double base;
    double factor; /* positions are stretched by it; 1 when plain */
    double n_ctx_orig, beta_fast, beta_slow, attn_factor; /* yarn */
};

struct hparams {
    const struct family *family;
    int n_layers;
    int d_model;
    int n_heads, n_kv_heads; /* n_heads is a multiple of n_kv_heads */
    int head_dim;            /* even, at most MAX_HEAD_DIM */
    int n_rot;               /* even, at most head_dim */
    int d_ff;                /* of one expert, where there are some */
    int n_experts;           /* 0: none */
    int n_experts_used;      /* by a token: those with the highest scores */
    int n_vocab;
    int n_ctx; /* positions it was made for */
    float eps;
    float attn_scale;
    struct rope_params rope;
};

int hparams_read(struct hparams *h, const struct gguf *g, struct err *e);

/* Whether a file of this shape has the tensor. */
enum need hparams_need(const struct hparams *h, enum tensor t);

int hparams_dim(const struct hparams *h, enum dim d);
