/* hparams.h: hyper-parameters of a model, read from the file's metadata and checked against ranges.
 *
 * Every value that is later used in a multiplication, a division or an allocation is within a
 * range. An error names the key, the value found and the supported range. A feature that would
 * change the results and is not implemented (soft caps, other scaling) is rejected with its name,
 * never ignored.
 *
 * Keys: GGUF metadata, github.com/ggml-org/ggml docs/gguf.md, with the prefix `<arch>.`.
 *
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
    double factor; /* positions are divided by it; 1 without scaling */
    double n_ctx_orig, beta_fast, beta_slow, attn_factor; /* YaRN */
};

struct hparams {
    const struct family *family;
    int n_layers;
    int d_model;
    int n_heads, n_kv_heads; /* n_heads is a multiple of n_kv_heads */
    int head_dim;            /* even, at most MAX_HEAD_DIM */
    int n_rot;               /* even, at most head_dim */
    int d_ff;                /* per expert, if there are experts */
    int n_experts;           /* 0: none */
    int n_experts_used;      /* per row: top-k */
    int n_vocab;
    int n_ctx; /* context length of the training */
    float eps;
    float attn_scale;
    struct rope_params rope;
};

int hparams_read(struct hparams *h, const struct gguf *g, struct err *e);

/* Whether a file with these hyper-parameters has the tensor. */
enum need hparams_need(const struct hparams *h, enum tensor t);

int hparams_dim(const struct hparams *h, enum dim d);
