/* tiny.h: makes a GGUF file of a few kilobytes with random weights, valid or with one defect. */
#pragma once

#include "base/mem.h"
#include "format/gguf.h"
#include "model/hparams.h"

#include "support/tiny_bytes.h"
#include "support/tiny_shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct tiny_file {
    struct buf kv, infos, data;
    uint64_t n_kv, n_tensors;
    struct rng rng;
};

static inline void tiny_int(
    struct tiny_file *f, const struct tiny_model *t, const char *tail, int v)
{
    char key[96];
    int64_t value = v;
    snprintf(key, sizeof(key), "%s.%s", t->arch, tail);
    if (t->key && !strcmp(t->key, tail))
        value = t->value;
    if (value == -1)
        return;
    f->n_kv++;
    tiny_str(&f->kv, key);
    tiny_u32(&f->kv, GGUF_U64);
    tiny_u64(&f->kv, (uint64_t)value);
}

static inline void tiny_tensor(struct tiny_file *f, const struct tiny_model *t, const char *name,
    enum tensor id, uint64_t cols, uint64_t rows)
{
    bool is_vector = tensor_rows[id].rows == DIM_ONE;
    bool is_v = id == TENSOR_V || id == TENSOR_DOWN || id == TENSOR_DOWN_EXPERTS;
    uint32_t type = is_vector || id == TENSOR_ROUTER ? Q_F32 : is_v ? t->type_v : t->type;

    if (t->drop && !strcmp(t->drop, name))
        return;
    if (t->retype && !strcmp(t->retype, name))
        type = t->retype_to;
    if (t->widen && !strcmp(t->widen, name))
        cols += qtype_info(type)->block;
    while (f->data.n % 32)
        buf_putc(&f->data, 0);
    f->n_tensors++;
    tiny_str(&f->infos, name);
    bool is_per_expert = tensor_rows[id].is_per_expert;
    tiny_u32(&f->infos, is_vector ? 1 : is_per_expert ? 3 : 2);
    tiny_u64(&f->infos, cols);
    if (!is_vector)
        tiny_u64(&f->infos, rows);
    if (is_per_expert) {
        tiny_u64(&f->infos, (uint64_t)t->experts);
        rows *= (uint64_t)t->experts;
    }
    tiny_u32(&f->infos, type);
    tiny_u64(&f->infos, f->data.n);

    bool is_bias = id >= TENSOR_Q_BIAS && id <= TENSOR_V_BIAS, is_embd = id == TENSOR_EMBD;
    float amp = is_embd ? 1 : 1.7f / sqrtf((float)cols);
    for (uint64_t i = 0; i < cols * rows / qtype_info(type)->block; i++)
        if (is_vector && !is_bias) { /* norms and RoPE factors: about 1 */
            float one = 0.75f + 0.5f * (float)rng_next_unit(&f->rng);
            buf_put(&f->data, &one, 4);
        } else {
            tiny_block(&f->data, (enum qtype)type, amp, &f->rng);
        }
}

static inline void tiny_tensors(struct tiny_file *f, const struct tiny_model *t)
{
    const struct family *family = family_find(str_of(t->arch)); /* NULL: unknown */
    struct hparams h = { .family = family ? family : family_find(STR("llama")),
        .n_experts = t->experts,
        .d_model = t->d,
        .rope.n_rot = t->head_dim,
        .d_ff_expert = t->ff,
        .n_vocab = t->vocab };
    char name[64];

    for (int l = 0; l < t->layers; l++)
        h.layers[l] = (struct layer_params){ .n_heads = t->heads,
            .n_kv_heads = t->kv_heads,
            .head_dim = t->head_dim,
            .d_ff = t->ff,
            .has_ffn = true,
            .kv_layer = l };
    for (int l = 0; l < t->layers; l++)
        for (int id = 0; id < N_TENSORS; id++) {
            bool is_first = id < TENSOR_FIRST_OF_LAYER;
            enum need need = hparams_need(&h, (enum tensor)id, l);
            if ((is_first && l > 0) || need == NEED_NO || id == TENSOR_GATE_UP_EXPERTS ||
                (id == TENSOR_HEAD && !t->is_untied) ||
                (id == TENSOR_ROPE_FREQS && !t->has_factors) ||
                (id >= TENSOR_Q_BIAS && id <= TENSOR_V_BIAS && need != NEED_YES))
                continue;
            snprintf(name, sizeof(name), tensor_rows[id].name, l);
            tiny_tensor(f, t, name, (enum tensor)id,
                (uint64_t)hparams_dim(&h, tensor_rows[id].cols, l),
                (uint64_t)hparams_dim(&h, tensor_rows[id].rows, l));
        }
    if (t->extra_tensor)
        tiny_tensor(f, t, t->extra_tensor, TENSOR_Q, 32, 16);
}

static inline void tiny_string(struct tiny_file *f, const char *key, const char *z)
{
    f->n_kv++;
    tiny_str(&f->kv, key);
    tiny_u32(&f->kv, GGUF_STR);
    tiny_str(&f->kv, z);
}

static inline void tiny_keys(struct tiny_file *f, const struct tiny_model *t)
{
    const char *known[] = { "block_count", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "attention.key_length",
        "context_length" };
    const int values[] = { t->layers, t->d, t->ff, t->heads, t->kv_heads, t->head_dim, t->ctx };
    bool is_known = false;

    tiny_string(f, "general.architecture", t->arch);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        tiny_int(f, t, known[i], values[i]);
        is_known = is_known || (t->key && !strcmp(t->key, known[i]));
    }
    if (t->experts) {
        tiny_int(f, t, "expert_count", t->experts);
        tiny_int(f, t, "expert_used_count", t->experts_used);
        is_known =
            is_known ||
            (t->key && (!strcmp(t->key, "expert_count") || !strcmp(t->key, "expert_used_count")));
    }
    if (t->key && !is_known)
        tiny_int(f, t, t->key, 0);
    if (t->key_str)
        tiny_string(f, t->key_str, t->str);
}

/* Returns the bytes of the file. */
static inline struct buf tiny_bytes(const struct tiny_model *t)
{
    struct tiny_file f = { .rng = { t->seed, 0 } };
    struct buf head;

    buf_init(&f.kv, 1 << 20), buf_init(&f.infos, 1 << 20), buf_init(&f.data, 64 << 20);
    buf_init(&head, 80 << 20);
    tiny_keys(&f, t);
    tiny_tensors(&f, t);
    buf_putz(&head, "GGUF");
    tiny_u32(&head, 3);
    tiny_u64(&head, f.n_tensors);
    tiny_u64(&head, f.n_kv);
    buf_puts(&head, buf_str(&f.kv));
    buf_puts(&head, buf_str(&f.infos));
    while (head.n % 32)
        buf_putc(&head, 0);
    buf_puts(&head, buf_str(&f.data));
    CHECK(buf_ok(&head));
    buf_clear(&f.kv), buf_clear(&f.infos), buf_clear(&f.data);
    return head;
}

/* Writes the file, opens it and unlinks it. */
static inline struct gguf *tiny_open(const struct tiny_model *t)
{
    char path[] = "/tmp/inferflux-tiny-XXXXXX";
    struct buf bytes = tiny_bytes(t);
    struct gguf *g = NULL;
    struct err e;
    FILE *out = fdopen(mkstemp(path), "wb");

    CHECK(out && fwrite(bytes.p, 1, bytes.n, out) == bytes.n && !fclose(out));
    if (gguf_open(&g, path, &e))
        fprintf(stderr, "tiny_open: %s\n", e.msg);
    unlink(path);
    buf_clear(&bytes);
    return g;
}
