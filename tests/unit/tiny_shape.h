/* tiny_shape.h: what a tiny model (tiny.h) is like, and what is wrong with it. */
#pragma once

#include "format/qtype.h"

struct tiny {
    const char *arch;
    enum qtype type, type_v; /* of matrices; of attn_v and ffn_down (K_M files mix) */
    int layers, d, heads, kv_heads, head_dim, ff, vocab, ctx;
    int experts, experts_used;
    bool is_untied, has_factors;
    uint64_t seed;
    /* Damage; NULL and 0: none. */
    const char *drop;   /* a tensor that is left out */
    const char *bend;   /* a tensor with one column block more */
    const char *retype; /* a tensor with type `retype_to` */
    uint32_t retype_to;
    const char *stranger; /* one more tensor, of this name */
    const char *key;      /* a key that has this value instead; -1: left out */
    int64_t value;
    const char *key_str, *str; /* a key with a string */
};

static const struct tiny tiny_default = { .arch = "llama",
    .type = Q_F32,
    .type_v = Q_F32,
    .layers = 2,
    .d = 64,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .ff = 96,
    .vocab = 83,
    .ctx = 512,
    .seed = 1 };
