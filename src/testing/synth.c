/* synth.c: tensors, metadata and vocabulary of a synthetic model, and the scale of its weights. */
#include "testing/synth.h"
#include "base/hash.h"
#include "base/mem.h"
#include "model/hparams.h"
#include "testing/gguf_write.h"
#include "testing/synth_blocks.h"

#include <math.h>
#include <stdio.h>

enum qtype synth_type_for(enum qtype wanted, uint32_t n_cols)
{
    uint64_t bytes;

    if (qtype_bytes(wanted, n_cols, &bytes))
        return wanted;
    return qtype_bytes(Q_Q8_0, n_cols, &bytes) ? Q_Q8_0 : Q_F16;
}

bool synth_use_more_bits(uint32_t layer, uint32_t n_layers)
{
    uint32_t eighth = n_layers / 8;

    return layer < eighth || layer >= (uint32_t)((uint64_t)7 * n_layers / 8) ||
           (layer - eighth) % 3 == 2;
}

/* ---- vocabulary: bytes, pairs and triples of printable characters, control tokens */

static const char *const control[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };

enum { N_CONTROL = 3, N_MADE_MIN = 256 + N_CONTROL, PIECE = 12 };

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* Ordered by frequency in English text. */
static const char printable[] = " etaoinshrdlucmfwypvbgkqjxzETAOINSHRDLUCMFWYPVBGKQJXZ0123456789"
                                ".,-'\"!?:;()/\n_*=<>[]{}+&%$#@|\\~^`";

/* Byte-level BPE encoding of a byte: printable ones unchanged, the others from U+0100 on. */
static size_t encode_byte(unsigned b, char *out)
{
    bool is_itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    unsigned cp = is_itself ? b : b <= 0x20 ? 0x100 + b : b == 0xAD ? 0x143 : 0x100 + b - 0x7F + 33;

    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xC0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3F));
    return 2;
}

struct vocab_maker {
    struct str *tokens, *merges;
    int32_t *types;
    char *text; /* PIECE bytes per token and per merge */
    size_t n, n_merges, n_max;
};

static void add_token(struct vocab_maker *m, struct str text, int32_t type)
{
    m->types[m->n] = type;
    m->tokens[m->n++] = text;
}

/* Adds the token `left` + byte b, and its merge. */
static void add_pair(struct vocab_maker *m, struct str left, unsigned b)
{
    char *token = m->text + m->n * PIECE, *merge = m->text + (m->n_max + m->n_merges) * PIECE;
    size_t n = left.n, n_right = encode_byte(b, token + n);

    memcpy(token, left.p, n);
    add_token(m, (struct str){ token, n + n_right }, 1);
    memcpy(merge, left.p, n);
    merge[n] = ' ';
    memcpy(merge + n + 1, token + n, n_right);
    m->merges[m->n_merges++] = (struct str){ merge, n + 1 + n_right };
}

static void make_tokens(struct vocab_maker *m)
{
    const size_t n_chars = sizeof(printable) - 1;

    for (unsigned b = 0; b < 256; b++) {
        char *p = m->text + m->n * PIECE;
        add_token(m, (struct str){ p, encode_byte(b, p) }, 1);
    }
    for (size_t i = 0; i < n_chars * n_chars && m->n + N_CONTROL < m->n_max; i++)
        add_pair(m, m->tokens[(unsigned char)printable[i / n_chars]],
            (unsigned char)printable[i % n_chars]);
    size_t n_pairs = m->n - 256;
    for (size_t i = 0; i < n_pairs * n_chars && m->n + N_CONTROL < m->n_max; i++)
        add_pair(m, m->tokens[256 + i / n_chars], (unsigned char)printable[i % n_chars]);
    while (m->n + N_CONTROL < m->n_max) { /* above 900,000: placeholder tokens */
        char *p = m->text + m->n * PIECE;
        int len = snprintf(p, PIECE, "[%zu]", m->n);
        add_token(m, (struct str){ p, (size_t)len }, 5);
    }
    for (size_t i = 0; i < N_CONTROL; i++)
        add_token(m, str_of(control[i]), 3);
}

static int put_made_vocab(struct gguf_writer *w, const struct synth *s, struct err *e)
{
    size_t n = s->n_vocab;
    struct vocab_maker m = { .n_max = n };
    int rc = -1;

    if (n < N_MADE_MIN || n > 1 << 20)
        return err_set(
            e, ERR_INVALID, "a generated vocabulary has %d to %d tokens", N_MADE_MIN, 1 << 20);
    m.tokens = try_malloc(n * sizeof(*m.tokens));
    m.merges = try_malloc(n * sizeof(*m.merges));
    m.types = try_malloc(n * sizeof(*m.types));
    m.text = try_malloc(2 * n * PIECE);
    if (!m.tokens || !m.merges || !m.types || !m.text) {
        err_set(e, ERR_MEMORY, "no memory for a vocabulary of %zu tokens", n);
        goto out;
    }
    make_tokens(&m);
    gguf_put_str(w, "tokenizer.ggml.model", STR("gpt2"));
    gguf_put_str(
        w, "tokenizer.ggml.pre", strcmp(s->arch, "llama") ? STR("qwen2") : STR("llama-bpe"));
    gguf_put_strs(w, "tokenizer.ggml.tokens", m.tokens, m.n);
    gguf_put_arr(w, "tokenizer.ggml.token_type", GGUF_I32, m.types, m.n);
    gguf_put_strs(w, "tokenizer.ggml.merges", m.merges, m.n_merges);
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)n - 3);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)n - 1);
    gguf_put_u32(w, "tokenizer.ggml.padding_token_id", (uint32_t)n - 3);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_str(w, "tokenizer.chat_template", str_of(chatml));
    rc = 0;
out:
    mem_free(m.tokens);
    mem_free(m.merges);
    mem_free(m.types);
    mem_free(m.text);
    return rc;
}

static int put_vocab(struct gguf_writer *w, const struct synth *s, struct err *e)
{
    const struct gguf_value *tokens;

    if (!s->vocab_from)
        return put_made_vocab(w, s, e);
    tokens = gguf_find(s->vocab_from, "tokenizer.ggml.tokens");
    if (!tokens || tokens->kind != GGUF_ARR || tokens->arr.n != s->n_vocab)
        return err_set(e, ERR_INVALID, "the given vocabulary does not have %u tokens", s->n_vocab);
    for (size_t i = 0; i < gguf_n_kv(s->vocab_from); i++) {
        const struct gguf_kv *kv = gguf_kv_at(s->vocab_from, i);
        if (str_starts(kv->key, STR("tokenizer.")))
            gguf_put_value(w, kv->key, &kv->value);
    }
    return 0;
}

/* ---- metadata and tensors */

/* Value of a setting; p == NULL: there is none with this key. */
static struct str setting(const struct synth *s, const char *tail)
{
    const size_t n = strlen(tail);

    for (size_t i = 0; i < s->n_settings; i++)
        if (!strncmp(s->settings[i], tail, n) && s->settings[i][n] == '=')
            return str_of(s->settings[i] + n + 1);
    return STR_NONE;
}

static const char *key_of(const struct synth *s, const char *tail, char key[128])
{
    snprintf(key, 128, "%s.%s", s->arch, tail);
    return key;
}

static void put_key(struct gguf_writer *w, const struct synth *s, const char *tail, uint32_t v)
{
    char key[128];

    if (!setting(s, tail).p)
        gguf_put_u32(w, key_of(s, tail, key), v);
}

static void put_number(struct gguf_writer *w, const struct synth *s, const char *tail, float v)
{
    char key[128];

    if (!setting(s, tail).p)
        gguf_put_f32(w, key_of(s, tail, key), v);
}

/* "[1,2,3]" or "[true,false]": an array of whole numbers or booleans */
static void put_array(struct gguf_writer *w, const char *key, struct str list)
{
    int32_t x[MAX_LAYERS];
    uint8_t flags[MAX_LAYERS];
    size_t n = 0, n_flags = 0;

    for (size_t at = 1, end = 1; end < list.n && n < ARRAY_LEN(x); end++)
        if (list.p[end] == ',' || list.p[end] == ']') {
            struct str item = { list.p + at, end - at };
            uint64_t v = 0;
            str_to_u64(item, &v);
            flags[n] = str_is(item, "true");
            n_flags += flags[n] || str_is(item, "false");
            x[n++] = (int32_t)v;
            at = end + 1;
        }
    if (n_flags == n)
        gguf_put_arr(w, key, GGUF_BOOL, flags, n);
    else
        gguf_put_arr(w, key, GGUF_I32, x, n);
}

static void put_setting(struct gguf_writer *w, const struct synth *s, const char *pair)
{
    const char *equals = strchr(pair, '=');
    char tail[64], key[128];
    uint64_t whole;
    double number;

    if (!equals)
        return;
    snprintf(tail, sizeof(tail), "%.*s", (int)(equals - pair), pair);
    struct str value = str_of(equals + 1);
    key_of(s, tail, key);
    if (value.n > 1 && value.p[0] == '[')
        put_array(w, key, value);
    else if (str_is(value, "true") || str_is(value, "false"))
        gguf_put_bool(w, key, str_is(value, "true"));
    else if (str_to_u64(value, &whole))
        gguf_put_u32(w, key, (uint32_t)whole);
    else if (str_to_f64(value, &number))
        gguf_put_f32(w, key, (float)number);
    else
        gguf_put_str(w, key, value);
}

static void put_keys(struct gguf_writer *w, const struct synth *s)
{
    gguf_put_str(w, "general.architecture", str_of(s->arch));
    gguf_put_str(w, "general.name", str_of(s->name));
    put_key(w, s, "block_count", s->n_layers);
    put_key(w, s, "context_length", s->n_ctx);
    put_key(w, s, "embedding_length", s->d_model);
    put_key(w, s, "feed_forward_length", s->d_ff);
    put_key(w, s, "attention.head_count", s->n_heads);
    put_key(w, s, "attention.head_count_kv", s->n_kv_heads);
    put_key(w, s, "attention.key_length", s->head_dim);
    put_key(w, s, "attention.value_length", s->head_dim);
    put_key(w, s, "rope.dimension_count", s->head_dim);
    put_key(w, s, "vocab_size", s->n_vocab);
    if (s->n_experts) {
        put_key(w, s, "expert_count", s->n_experts);
        put_key(w, s, "expert_used_count", s->n_experts_used);
        put_key(w, s, "expert_feed_forward_length", s->d_ff);
    }
    put_number(w, s, "rope.freq_base", s->rope_base);
    put_number(w, s, "attention.layer_norm_rms_epsilon", s->rms_eps);
    for (size_t i = 0; i < s->n_settings; i++)
        put_setting(w, s, s->settings[i]);
}

/* Hyper-parameters, from which the shapes of the tensors follow. */
static int read_hparams(const struct synth *s, struct hparams *h, struct err *e)
{
    struct gguf_writer *w = gguf_writer_new(0);
    struct gguf *g = NULL;
    struct buf header;
    int rc = w ? 0 : err_set(e, ERR_MEMORY, "no memory for metadata");

    buf_init(&header, MB);
    if (!rc) {
        put_keys(w, s);
        rc = gguf_writer_header(w, &header, e);
    }
    rc = rc || gguf_open_bytes(&g, (const uint8_t *)header.p, header.n, e) ||
                 hparams_read_keys(h, g, (int)s->n_vocab, e)
             ? -1
             : 0;
    gguf_close(g);
    buf_clear(&header);
    gguf_writer_free(w);
    if (rc && e->code != ERR_MEMORY)
        e->code = ERR_INVALID;
    return rc;
}

enum fill_kind {
    FILL_MATRIX,
    FILL_NORM,
    FILL_BIAS,
    FILL_ROPE,
    FILL_FACTORS,
    FILL_CONV,
    FILL_DECAY,
    FILL_TIME_STEP,
};

struct synth_tensor {
    enum fill_kind fill_kind;
    enum qtype type;
    uint64_t cols, rows; /* 0: a vector */
    uint64_t n_matrices; /* number of experts or heads; 0: one matrix, without this dimension */
    float sigma;
    float scale; /* scale of the elements of a norm */
    uint64_t bytes;
};

struct synth_plan {
    const struct synth *s;
    struct hparams h;
    struct gguf_writer *w;
    struct synth_tensor *t;
    size_t n;
};

static void plan_tensor(struct synth_plan *p, const char *name, struct synth_tensor t)
{
    uint64_t dims[3] = { t.cols, t.rows, t.n_matrices };
    int n_dims = t.n_matrices ? 3 : t.rows ? 2 : 1;

    t.bytes = gguf_put_tensor(p->w, str_of(name), t.type, n_dims, dims);
    p->t[p->n++] = t;
}

/* Whether the file contains a tensor that the family does not require. */
static bool wants_optional(const struct synth *s, const struct hparams *h, enum tensor t, int layer)
{
    if (t == TENSOR_HEAD)
        return !s->is_tied;
    if (t == TENSOR_ROPE_FREQS)
        return s->rope_scale > 1;
    if (t == TENSOR_ROPE_LONG || t == TENSOR_ROPE_SHORT)
        return h->rope.scaling == ROPE_LONG;
    if (t == TENSOR_QKV || t == TENSOR_MIX_GATE) /* otherwise they are parts of TENSOR_SSM_IN */
        return !s->has_optional;
    if (t == TENSOR_GATE_UP_EXPERTS)
        return s->fuses_experts;
    if (t == TENSOR_V) /* other layers use the keys as values */
        return s->has_optional || h->layers[layer].has_window;
    if (t == TENSOR_OUT_SCALE || t == TENSOR_DOWN_EXPERTS_SCALE || t == TENSOR_SSM_CONV_BIAS)
        return true;
    return s->has_optional;
}

static enum fill_kind vector_kind(enum tensor t)
{
    switch ((int)t) {
    case TENSOR_Q_BIAS:
    case TENSOR_K_BIAS:
    case TENSOR_V_BIAS:
    case TENSOR_ROUTER_BIAS:
    case TENSOR_SINKS:
    case TENSOR_O_BIAS:
    case TENSOR_SSM_CONV_BIAS:
    case TENSOR_ROUTER_SCORE_BIAS:
    case TENSOR_GATE_EXPERTS_BIAS:
    case TENSOR_UP_EXPERTS_BIAS:
    case TENSOR_DOWN_EXPERTS_BIAS:
        return FILL_BIAS;
    case TENSOR_SSM_CONV:
    case TENSOR_SHORT_CONV:
        return FILL_CONV;
    case TENSOR_SSM_A:
        return FILL_DECAY;
    case TENSOR_SSM_DT_BIAS:
        return FILL_TIME_STEP;
    case TENSOR_ROPE_FREQS:
        return FILL_ROPE;
    case TENSOR_ROPE_LONG:
    case TENSOR_ROPE_SHORT:
        return FILL_FACTORS;
    default:
        return FILL_NORM;
    }
}

static enum qtype matrix_type(const struct synth *s, enum tensor t, int layer, uint32_t cols)
{
    const bool is_fine = t == TENSOR_V || t == TENSOR_DOWN || t == TENSOR_DOWN_EXPERTS;

    if (t == TENSOR_ROUTER || t == TENSOR_SHARED_ROUTER)
        return Q_F32;
    if (t == TENSOR_EMBD || t == TENSOR_HEAD || t == TENSOR_INPUT_TABLE)
        return synth_type_for(s->head_type, cols);
    if (is_fine && s->is_mixed && synth_use_more_bits((uint32_t)layer, s->n_layers))
        return synth_type_for(Q_Q6_K, cols);
    return synth_type_for(s->type, cols);
}

/* Deviation of the result for inputs of deviation 1. The logits of a normalised state have 2.5:
 * neither flat nor concentrated on one token. Matrices that are added to the residual stream are
 * scaled down with the number of layers. */
static float matrix_gain(const struct synth *s, enum tensor t)
{
    switch ((int)t) {
    case TENSOR_EMBD:
    case TENSOR_HEAD:
        return 2.5f;
    case TENSOR_O:
    case TENSOR_SSM_OUT:
    case TENSOR_SHORT_CONV_OUT:
    case TENSOR_DOWN:
    case TENSOR_DOWN_EXPERTS:
    case TENSOR_SHARED_DOWN:
    case TENSOR_INPUT_PROJ:
        return 1 / sqrtf(2 * (float)s->n_layers);
    default:
        return 1;
    }
}

/* Scores of normalised queries and keys have the usual deviation: without a factor in the
 * attention, it is in the weights of the norms, as in trained models. */
static float norm_scale(const struct hparams *h, enum tensor t, int layer)
{
    const bool is_qk = t == TENSOR_Q_NORM || t == TENSOR_K_NORM;

    return is_qk && h->family->attn_scale > 0 ? powf((float)h->layers[layer].head_dim, -0.25f) : 1;
}

static bool is_needed(const struct synth_plan *p, enum tensor t, int layer)
{
    const enum need need = hparams_need(&p->h, t, layer);

    if (need == NEED_NO || need == NEED_UNUSED ||
        (need == NEED_MAYBE && !wants_optional(p->s, &p->h, t, layer)))
        return false;
    return !p->s->fuses_experts || (t != TENSOR_GATE_EXPERTS && t != TENSOR_UP_EXPERTS);
}

static void plan_if_needed(struct synth_plan *p, enum tensor t, int layer)
{
    const struct tensor_row *row = &tensor_rows[t];
    const uint32_t cols = (uint32_t)hparams_dim(&p->h, row->cols, layer);
    const float vector_sigma = p->s->vector_sigma > 0 ? p->s->vector_sigma : 0.02f;
    struct synth_tensor x = { .type = Q_F32, .cols = cols, .sigma = vector_sigma };
    char name[64];

    if (!is_needed(p, t, layer))
        return;
    snprintf(name, sizeof(name), row->name, layer);
    if (row->rows == DIM_ONE || row->is_table) {
        x.fill_kind = vector_kind(t);
        x.scale = norm_scale(&p->h, t, layer);
        x.rows = row->is_table ? (uint64_t)hparams_dim(&p->h, row->rows, layer) : 0;
    } else {
        x.fill_kind = FILL_MATRIX;
        x.type = matrix_type(p->s, t, layer, cols);
        x.rows = (uint64_t)hparams_dim(&p->h, row->rows, layer);
        if (row->is_per_expert || row->is_per_head)
            x.n_matrices = (uint64_t)(row->is_per_expert ? p->h.n_experts
                                                         : hparams_dim(&p->h, DIM_HEADS, layer));
        x.sigma = matrix_gain(p->s, t) / sqrtf((float)cols);
    }
    if (row->rows == DIM_SINGLE || (row->is_table && x.rows == 1))
        x.rows = 0; /* a vector in the file */
    plan_tensor(p, name, x);
}

/* The factors of a matrix. Only a head of type NVFP4 has one in other implementations. */
static void plan_scale(struct synth_plan *p, enum tensor t, int layer)
{
    const struct tensor_row *row = &tensor_rows[t];
    char weight[64], name[64];

    snprintf(weight, sizeof(weight), row->name, layer);
    if (!row->has_scale || !is_needed(p, t, layer) ||
        (t == TENSOR_HEAD && p->s->head_type != Q_NVFP4))
        return;
    snprintf(name, sizeof(name), "%.*s.scale", (int)(strlen(weight) - strlen(".weight")), weight);
    plan_tensor(p, name,
        (struct synth_tensor){ .type = Q_F32,
            .fill_kind = FILL_FACTORS,
            .cols = row->is_per_expert ? (uint64_t)p->h.n_experts : 1,
            .scale = 1,
            .sigma = 0.1f });
}

static void plan_scales(struct synth_plan *p)
{
    for (int t = 0; t < TENSOR_FIRST_OF_LAYER; t++)
        plan_scale(p, (enum tensor)t, 0);
    for (int l = 0; l < p->h.n_layers; l++)
        for (int t = TENSOR_FIRST_OF_LAYER; t < N_TENSORS; t++)
            plan_scale(p, (enum tensor)t, l);
}

static void plan_all(struct synth_plan *p)
{
    for (int t = 0; t < TENSOR_FIRST_OF_LAYER; t++)
        plan_if_needed(p, (enum tensor)t, 0);
    for (int l = 0; l < p->h.n_layers; l++)
        for (int t = TENSOR_FIRST_OF_LAYER; t < N_TENSORS; t++)
            plan_if_needed(p, (enum tensor)t, l);
    if (p->s->has_scales) /* at the end: the other tensors do not depend on them */
        plan_scales(p);
}

/* ---- weights */

enum { CHUNK = 1 << 20 };

/* Frequency factors of Llama 3: 1 for short wavelengths, `scale` for long ones, interpolated in
 * between. */
static void fill_rope(const struct synth *s, float *x, size_t n)
{
    const double original = 8192, low = 1, high = 4;

    for (size_t i = 0; i < n; i++) {
        double wave = 2 * 3.14159265358979323846 *
                      pow((double)s->rope_base, 2 * (double)i / (double)s->head_dim);
        double smooth = (original / wave - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        x[i] = (float)(1 / ((1 - smooth) / (double)s->rope_scale + smooth));
    }
}

/* x has the deviation of biases and norms, z has the deviation 1. Like initialised models, a
 * recurrent layer decays by factors between about 0.2 and 1. A decay is -exp of a float, which is
 * the parameter in other formats. */
static float vector_value(enum fill_kind kind, float x, float z)
{
    switch (kind) {
    case FILL_NORM:
        return 1 + x;
    case FILL_FACTORS:
        return 1 + fabsf(x);
    case FILL_CONV:
        return z / 2;
    case FILL_DECAY:
        return (float)-exp((double)(float)log((double)(1 + 4 * fabsf(z))));
    case FILL_TIME_STEP:
        return z - 4;
    default:
        return x;
    }
}

static void fill_vector(const struct synth *s, const struct synth_tensor *t, uint64_t key, float *x)
{
    if (t->fill_kind == FILL_ROPE) {
        fill_rope(s, x, (size_t)t->cols);
        return;
    }
    const size_t n = (size_t)t->cols * (size_t)MAX(t->rows, 1);
    synth_blocks(Q_F32, t->sigma, key, 0, (uint8_t *)x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = t->scale * vector_value(t->fill_kind, x[i], x[i] / t->sigma);
}

static int write_tensor(struct synth_plan *p, size_t i, uint8_t *chunk, struct err *e)
{
    const struct synth_tensor *t = &p->t[i];
    const struct qtype_info *q = qtype_info((uint32_t)t->type);
    uint64_t key = hash_step(0, p->s->seed) + i;

    if (t->fill_kind != FILL_MATRIX) {
        float *x = try_malloc((size_t)t->bytes);
        if (!x)
            return err_set(e, ERR_MEMORY, "no memory for a vector");
        fill_vector(p->s, t, key, x);
        int rc = gguf_writer_data(p->w, x, (size_t)t->bytes, e);
        mem_free(x);
        return rc;
    }
    uint64_t n_blocks = t->bytes / q->block_bytes, per_chunk = CHUNK / q->block_bytes;
    for (uint64_t b = 0; b < n_blocks; b += per_chunk) {
        size_t n = (size_t)MIN(per_chunk, n_blocks - b);
        synth_blocks(t->type, t->sigma, key, b, chunk, n);
        if (gguf_writer_data(p->w, chunk, n * q->block_bytes, e))
            return -1;
    }
    return 0;
}

static int write_tensors(struct synth_plan *p, struct err *e)
{
    uint8_t *chunk = try_malloc(CHUNK);
    uint64_t done = 0, all = gguf_writer_data_bytes(p->w);
    int rc = chunk ? 0 : err_set(e, ERR_MEMORY, "no memory for a chunk of weights");

    for (size_t i = 0; i < p->n && !rc; i++) {
        rc = write_tensor(p, i, chunk, e);
        done += p->t[i].bytes;
        if (p->s->progress && !rc)
            p->s->progress(p->s->progress_arg, i + 1 < p->n ? done : all, all);
    }
    mem_free(chunk);
    return rc;
}

/* ---- the whole file */

static int check_shape(const struct synth *s, struct err *e)
{
    const uint32_t sizes[] = { s->n_layers, s->d_model, s->n_heads, s->n_kv_heads, s->head_dim,
        s->d_ff, s->n_vocab, s->n_ctx };

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        if (sizes[i] < 1 || sizes[i] > 1 << 20)
            return err_set(e, ERR_INVALID, "every size must be between 1 and %d", 1 << 20);
    if (s->n_experts > 1024 || s->n_experts_used > MIN(s->n_experts, 32) ||
        !s->n_experts != !s->n_experts_used)
        return err_set(e, ERR_INVALID, "%u used experts of %u experts are out of range",
            s->n_experts_used, s->n_experts);
    if (s->n_heads % s->n_kv_heads)
        return err_set(
            e, ERR_INVALID, "%u heads are not divisible by %u KV heads", s->n_heads, s->n_kv_heads);
    if (s->head_dim % 2)
        return err_set(e, ERR_INVALID, "the head dimension %u is odd", s->head_dim);
    if (s->n_layers > 1024 || s->n_heads > 1024 || s->head_dim > 1024)
        return err_set(e, ERR_INVALID, "at most 1024 layers, heads and dimensions of a head");
    if (!synth_has_type(s->type) || !synth_has_type(s->head_type))
        return err_set(e, ERR_INVALID, "weights of this type cannot be generated");
    return 0;
}

int synth_write(const struct synth *s, const char *path, struct err *e)
{
    struct synth_plan p = { .s = s };
    int rc = -1;

    if (check_shape(s, e) || read_hparams(s, &p.h, e))
        return -1;
    p.w = gguf_writer_new(0);
    p.t = try_malloc((2 * (size_t)N_TENSORS * ((size_t)s->n_layers + 1)) * sizeof(*p.t));
    if (!p.w || !p.t) {
        err_set(e, ERR_MEMORY, "no memory to write a model");
        goto out;
    }
    put_keys(p.w, s);
    if (put_vocab(p.w, s, e))
        goto out;
    plan_all(&p);
    if (gguf_writer_open(p.w, path, e) || write_tensors(&p, e) || gguf_writer_finish(p.w, e))
        goto out;
    rc = 0;
out:
    gguf_writer_free(p.w);
    mem_free(p.t);
    return rc;
}
