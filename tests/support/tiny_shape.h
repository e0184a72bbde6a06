/* tiny_shape.h: shape of a tiny model (tiny.h), and its defect, if any. */
#pragma once

#include "format/qtype.h"

struct tiny_model {
    const char *arch;
    /* `type` of the matrices; `type_v` of attn_v and ffn_down (K_M files mix types) */
    enum qtype type, type_v;
    int layers, d, heads, kv_heads, head_dim, ff, vocab, ctx;
    int experts, experts_used;
    bool is_untied, has_factors;
    uint64_t seed;
    /* Defects; NULL and 0: none. */
    const char *drop;   /* tensor that is left out */
    const char *widen;  /* tensor with one more block of columns */
    const char *retype; /* tensor with type `retype_to` */
    uint32_t retype_to;
    const char *extra_tensor; /* name of an additional tensor */
    const char *key;          /* key with the value `value` instead; -1: left out */
    int64_t value;
    const char *key_str, *str; /* key with a string value */
};

static const struct tiny_model tiny_default = { .arch = "llama",
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
