/* The forward pass computes the right network: comparison with a plain forward pass in double
 * precision that shares only the tensor names and the reading of one packed row with the
 * implementation.
 *
 * KV is rounded to f16 here too, and activations that are multiplied with quantised weights to
 * their blocks. What remains is the error of single precision, and values that round in the
 * other direction. */
#include "support/check.h"
#include "base/mem.h"
#include "model/llama.h"
#include "support/tiny.h"

enum { N_TOKENS = 20 };

struct reference_model {
    const struct gguf *g;
    struct tiny_model t;
    const double *speed; /* [head_dim / 2] */
    double magnitude, scale;
    double *k, *v; /* [layers][N_TOKENS][kv * head_dim] */
};

/* ---- matrix rows in double precision */

static const struct gguf_tensor *tensor(
    const struct reference_model *o, const char *pattern, int layer)
{
    char name[64];
    snprintf(name, sizeof(name), pattern, layer);
    return gguf_tensor(o->g, name);
}

/* A matrix in separate memory; its rows are read as doubles. */
struct matrix {
    struct packed w;
    float *row;
};

static void matrix_open(struct matrix *m, const struct gguf_tensor *t)
{
    int n = (int)t->dims[0], rows = (int)t->dims[1];
    uint8_t *data = try_aligned(64, pack_bytes(t->type, rows, n));
    struct err e;

    EXPECT(data && !pack_init(&m->w, t->type, rows, n, data, &e));
    pack_panels(&m->w, t->data, 0, m->w.n_panels);
    m->row = xcalloc((size_t)n, sizeof(float));
}

static void matrix_close(struct matrix *m)
{
    mem_free(m->w.data);
    mem_free(m->row);
}

static void matrix_row(struct matrix *m, int row, double *out)
{
    pack_get_row(&m->w, row, m->row);
    for (int i = 0; i < m->w.n_cols; i++)
        out[i] = (double)m->row[i];
}

static double element(const struct gguf_tensor *t, int i)
{
    float f;
    memcpy(&f, t->data + (size_t)i * 4, 4);
    return (double)f;
}

/* Rounds to the nearest f16: 11 bits, and no finer than 2^-24. */
static double to_f16(double x)
{
    int exp;
    frexp(x, &exp);
    exp = MAX(exp, -13) - 11;
    return ldexp(rint(ldexp(x, -exp)), exp);
}

/* Quantises activations in blocks: the largest becomes 127 steps. */
static void round_blocks(double *x, int n, int block, bool is_f16_scale)
{
    for (int b = 0; b < n; b += block) {
        double most = 0;
        for (int i = 0; i < block; i++)
            most = fmax(most, fabs(x[b + i]));
        double step = most / 127, shown = is_f16_scale ? to_f16(step) : step;
        for (int i = 0; i < block; i++)
            x[b + i] = step > 0 ? rint(x[b + i] / step) * shown : 0;
    }
}

/* y[rows] = W x; for expert tensors, of the expert with this number */
static void multiply_by(const struct gguf_tensor *whole, int expert, const double *x, double *y)
{
    struct gguf_tensor one = *whole, *t = &one;
    struct matrix m;
    int n = (int)t->dims[0];

    t->data += t->bytes / t->dims[2] * (uint64_t)expert;
    double *w = xcalloc((size_t)n, sizeof(*w)), *a = xcalloc((size_t)n, sizeof(*a));

    matrix_open(&m, t);
    memcpy(a, x, (size_t)n * sizeof(*a));
    if (qtype_info(t->type)->block > 1)
        round_blocks(a, n, (int)qtype_info(t->type)->block, qtype_info(t->type)->block == 32);
    for (int r = 0; r < m.w.n_rows; r++) {
        matrix_row(&m, r, w);
        y[r] = 0;
        for (int i = 0; i < n; i++)
            y[r] += w[i] * a[i];
    }
    matrix_close(&m);
    mem_free(w);
    mem_free(a);
}

static void multiply(const struct gguf_tensor *t, const double *x, double *y)
{
    multiply_by(t, 0, x, y);
}

static void add_bias(const struct gguf_tensor *t, double *x)
{
    for (int i = 0; t && i < (int)t->dims[0]; i++)
        x[i] += element(t, i);
}

static void norm(const struct gguf_tensor *t, const double *x, double *out)
{
    int n = (int)t->dims[0];
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        out[i] = x[i] / sqrt(sum / n + 1e-5) * element(t, i);
}

/* ---- a layer */

static void rope(const struct reference_model *o, double *head, int pos)
{
    int half = o->t.head_dim / 2;
    bool is_llama = !strcmp(o->t.arch, "llama");
    for (int i = 0; i < half; i++) {
        double *a = is_llama ? &head[2 * i] : &head[i];
        double *b = is_llama ? &head[2 * i + 1] : &head[i + half];
        double c = cos(pos * o->speed[i]) * o->magnitude;
        double s = sin(pos * o->speed[i]) * o->magnitude;
        double x = *a * c - *b * s, y = *a * s + *b * c;
        *a = x, *b = y;
    }
}

static void make_heads(
    const struct reference_model *o, double *x, int n, int pos, const struct gguf_tensor *qk_norm)
{
    for (int h = 0; h < n; h++) {
        if (qk_norm)
            norm(qk_norm, x + h * o->t.head_dim, x + h * o->t.head_dim);
        rope(o, x + h * o->t.head_dim, pos);
    }
}

/* Attention of query head h of one row over the keys and values up to its position. */
static void attend_head(
    const struct reference_model *o, int layer, int pos, int h, const double *q, double *out)
{
    int d = o->t.head_dim, width = o->t.kv_heads * d, kv_head = h * o->t.kv_heads / o->t.heads;
    const double *k = o->k + layer * N_TOKENS * width + kv_head * d;
    const double *v = o->v + layer * N_TOKENS * width + kv_head * d;
    double p[N_TOKENS], sum = 0;

    for (int j = 0; j <= pos; j++) {
        p[j] = 0;
        for (int i = 0; i < d; i++)
            p[j] += q[i] * k[j * width + i];
        p[j] = exp(p[j] * o->scale);
        sum += p[j];
    }
    for (int i = 0; i < d; i++) {
        out[i] = 0;
        for (int j = 0; j <= pos; j++)
            out[i] += p[j] / sum * v[j * width + i];
    }
}

enum { WIDE = 512 };

static void attention(const struct reference_model *o, int l, int pos, double *x)
{
    int d = o->t.head_dim, width = o->t.kv_heads * d;
    double a[WIDE], q[WIDE], out[WIDE];
    double *k = o->k + (l * N_TOKENS + pos) * width, *v = o->v + (l * N_TOKENS + pos) * width;

    norm(tensor(o, "blk.%d.attn_norm.weight", l), x, a);
    multiply(tensor(o, "blk.%d.attn_q.weight", l), a, q);
    multiply(tensor(o, "blk.%d.attn_k.weight", l), a, k);
    multiply(tensor(o, "blk.%d.attn_v.weight", l), a, v);
    add_bias(tensor(o, "blk.%d.attn_q.bias", l), q);
    add_bias(tensor(o, "blk.%d.attn_k.bias", l), k);
    add_bias(tensor(o, "blk.%d.attn_v.bias", l), v);
    make_heads(o, q, o->t.heads, pos, tensor(o, "blk.%d.attn_q_norm.weight", l));
    make_heads(o, k, o->t.kv_heads, pos, tensor(o, "blk.%d.attn_k_norm.weight", l));
    for (int i = 0; i < width; i++) {
        k[i] = to_f16(k[i]);
        v[i] = to_f16(v[i]);
    }
    for (int h = 0; h < o->t.heads; h++)
        attend_head(o, l, pos, h, q + h * d, out + h * d);
    multiply(tensor(o, "blk.%d.attn_output.weight", l), out, a);
    for (int i = 0; i < o->t.d; i++)
        x[i] += a[i];
}

static void feed_forward(const struct reference_model *o, int l, double *x)
{
    double a[WIDE], gate[WIDE], up[WIDE];

    norm(tensor(o, "blk.%d.ffn_norm.weight", l), x, a);
    multiply(tensor(o, "blk.%d.ffn_gate.weight", l), a, gate);
    multiply(tensor(o, "blk.%d.ffn_up.weight", l), a, up);
    for (int i = 0; i < o->t.ff; i++)
        up[i] *= gate[i] / (1 + exp(-gate[i]));
    multiply(tensor(o, "blk.%d.ffn_down.weight", l), up, a);
    for (int i = 0; i < o->t.d; i++)
        x[i] += a[i];
}

/* Selects the experts with the highest scores; softmax over all scores, then normalisation over
 * the selected. */
static void mixture_of_experts(const struct reference_model *o, int l, double *x)
{
    double a[WIDE], scores[WIDE], gate[WIDE], up[WIDE], said[WIDE], weights[WIDE], sum = 0;
    bool is_used[WIDE] = { false };

    norm(tensor(o, "blk.%d.ffn_norm.weight", l), x, a);
    multiply(tensor(o, "blk.%d.ffn_gate_inp.weight", l), a, scores);
    for (int u = 0; u < o->t.experts_used; u++) {
        int best = -1;
        for (int i = 0; i < o->t.experts; i++)
            if (!is_used[i] && (best < 0 || scores[i] > scores[best]))
                best = i;
        is_used[best] = true;
        sum += weights[best] = exp(scores[best]);
    }
    for (int i = 0; i < o->t.experts; i++) {
        if (!is_used[i])
            continue;
        multiply_by(tensor(o, "blk.%d.ffn_gate_exps.weight", l), i, a, gate);
        multiply_by(tensor(o, "blk.%d.ffn_up_exps.weight", l), i, a, up);
        for (int j = 0; j < o->t.ff; j++)
            up[j] *= gate[j] / (1 + exp(-gate[j]));
        multiply_by(tensor(o, "blk.%d.ffn_down_exps.weight", l), i, up, said);
        for (int j = 0; j < o->t.d; j++)
            x[j] += weights[i] / sum * said[j];
    }
}

/* Computes the logits of the token at pos; its keys and values are stored. */
static void next_logits(const struct reference_model *o, int32_t token, int pos, double *logits)
{
    const struct gguf_tensor *head = tensor(o, "output.weight", 0);
    double x[WIDE], a[WIDE];

    struct matrix embd;
    matrix_open(&embd, tensor(o, "token_embd.weight", 0));
    matrix_row(&embd, token, x);
    matrix_close(&embd);
    for (int l = 0; l < o->t.layers; l++) {
        attention(o, l, pos, x);
        if (o->t.experts)
            mixture_of_experts(o, l, x);
        else
            feed_forward(o, l, x);
    }
    norm(tensor(o, "output_norm.weight", 0), x, a);
    multiply(head ? head : tensor(o, "token_embd.weight", 0), a, logits);
}

/* ---- the comparison */

static void run_model(const struct gguf *g, const int32_t *tokens, float *logits)
{
    struct llama_options o = {
        .n_threads = 1, .n_pages = N_TOKENS, .max_rows = N_TOKENS, .max_logits = N_TOKENS
    };
    struct lm *m;
    struct err e;
    page_id pages[N_TOKENS];

    if (lm_open_llama(&m, g, &o, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        fail();
    }
    for (uint32_t i = 0; i < N_TOKENS; i++)
        pages[i].i = i;
    struct lm_run run = { .tokens = tokens, .n = N_TOKENS, .pages = pages, .n_logits = N_TOKENS };
    EXPECT(m->ops->forward(m, &run, 1, NULL));
    memcpy(logits, run.logits, sizeof(float) * N_TOKENS * (size_t)m->n_vocab);
    m->ops->close(m);
}

/* Error of all logits relative to their size, both as root mean squares. */
static double logit_error(const struct tiny_model *t, const double *speed, double magnitude)
{
    struct gguf *g = tiny_open(t);
    size_t kv = (size_t)(t->layers * N_TOKENS * t->kv_heads * t->head_dim);
    struct reference_model o = { g, *t, speed, magnitude, 1 / sqrt(t->head_dim),
        xcalloc(kv, sizeof(double)), xcalloc(kv, sizeof(double)) };
    float *got = xcalloc((size_t)(N_TOKENS * t->vocab), sizeof(*got));
    double *want = xcalloc((size_t)t->vocab, sizeof(*want)), err = 0, size = 0;
    int32_t tokens[N_TOKENS];
    struct rng r = { 99, 0 };

    EXPECT(t->d <= WIDE && t->ff <= WIDE && t->heads * t->head_dim <= WIDE);
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)rng_below(&r, (uint64_t)t->vocab);
    run_model(g, tokens, got);
    for (int pos = 0; pos < N_TOKENS; pos++) {
        next_logits(&o, tokens[pos], pos, want);
        for (int i = 0; i < t->vocab; i++) {
            double d = (double)got[pos * t->vocab + i] - want[i];
            err += d * d;
            size += want[i] * want[i];
        }
    }
    mem_free(o.k), mem_free(o.v), mem_free(got), mem_free(want);
    gguf_close(g);
    EXPECT(size > 0);
    return sqrt(err / size);
}

static void plain_speeds(const struct tiny_model *t, double base, double *speed)
{
    for (int i = 0; i < t->head_dim / 2; i++)
        speed[i] = pow(base, -2.0 * i / t->head_dim);
}

static void expect_close(const struct tiny_model *t, const char *what, double bound)
{
    double speed[MAX_HEAD_DIM / 2];
    plain_speeds(t, 10000, speed);
    double d = logit_error(t, speed, 1);
    printf("%-6s %-5s %.2e\n", t->arch, what, d);
    EXPECT(d < bound);
}

static struct tiny_model of_type(const char *arch, enum qtype type, enum qtype type_v)
{
    struct tiny_model t = tiny_default;
    t.arch = arch;
    t.type = type;
    t.type_v = type_v;
    if (qtype_info(type)->block > 32) {
        t.d = t.ff = 256;
        t.head_dim = 64;
    }
    return t;
}

static void every_family_agrees_in_every_type(void)
{
    static const char *const archs[] = { "llama", "qwen2", "qwen3" };
    static const enum qtype types[] = { Q_F32, Q_F16, Q_BF16, Q_Q8_0, Q_Q4_0, Q_Q4_K, Q_Q5_K,
        Q_Q6_K, Q_Q4_1, Q_Q5_0, Q_Q5_1, Q_IQ4_NL, Q_MXFP4, Q_IQ4_XS, Q_Q2_K, Q_Q3_K, Q_IQ2_XXS,
        Q_IQ2_XS, Q_IQ2_S, Q_IQ3_XXS, Q_IQ3_S, Q_IQ1_S, Q_IQ1_M, Q_TQ1_0, Q_TQ2_0, Q_Q1_0, Q_Q2_0,
        Q_NVFP4 };

    for (size_t a = 0; a < ARRAY_LEN(archs); a++)
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
            struct tiny_model t = of_type(archs[a], types[i], types[i]);
            t.is_untied = i % 2;
            /* Rounding in the other direction changes a key or value by 2^-11, but the largest
             * activation of a block by 1/127. */
            expect_close(
                &t, qtype_info(types[i])->name, qtype_info(types[i])->block > 1 ? 1e-2 : 1e-4);
        }
}

static void mixture_of_experts_agrees(void)
{
    static const enum qtype types[] = { Q_F32, Q_BF16, Q_Q4_0, Q_Q6_K, Q_MXFP4, Q_IQ4_NL };

    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (int used = 1; used <= 4; used += 3) {
            struct tiny_model t = of_type(i % 2 ? "llama" : "qwen3moe", types[i], types[i]);
            t.experts = 7;
            t.experts_used = used;
            expect_close(&t, qtype_info(types[i])->name, i < 2 ? 1e-4 : 1e-2);
        }
}

static void types_may_differ_from_tensor_to_tensor(void)
{
    struct tiny_model t = of_type("llama", Q_Q4_K, Q_Q6_K);
    expect_close(&t, "K_M", 1e-2);
    t = of_type("llama", Q_Q4_0, Q_F16);
    expect_close(&t, "mixed", 1e-2);
}

static void every_head_may_have_its_own_keys(void)
{
    struct tiny_model t = tiny_default;
    t.kv_heads = t.heads;
    expect_close(&t, "mha", 1e-4);
    t.kv_heads = 1;
    expect_close(&t, "mqa", 1e-4);
    t.head_dim = 6; /* smaller than d_model / heads, and not a power of two */
    expect_close(&t, "hd6", 1e-4);
}

/* ---- RoPE */

static void rope_frequencies_follow_the_base(void)
{
    struct tiny_model t = tiny_default;
    double speed[MAX_HEAD_DIM / 2];

    t.key = "rope.freq_base";
    t.value = 500000;
    plain_speeds(&t, 500000, speed);
    EXPECT(logit_error(&t, speed, 1) < 1e-4);
    plain_speeds(&t, 10000, speed); /* the test detects a wrong base */
    EXPECT(logit_error(&t, speed, 1) > 1e-2);
}

static void linear_scaling_stretches_positions(void)
{
    struct tiny_model t = tiny_default;
    double speed[MAX_HEAD_DIM / 2];

    t.key_str = "llama.rope.scaling.type";
    t.str = "linear";
    t.key = "rope.scaling.factor";
    t.value = 4;
    plain_speeds(&t, 10000, speed);
    for (int i = 0; i < t.head_dim / 2; i++)
        speed[i] /= 4;
    EXPECT(logit_error(&t, speed, 1) < 1e-4);
}

static void rope_factors_in_the_file_divide_frequencies(void)
{
    struct tiny_model t = tiny_default;
    double speed[MAX_HEAD_DIM / 2];

    t.has_factors = true;
    plain_speeds(&t, 10000, speed);
    struct gguf *g = tiny_open(&t);
    const struct gguf_tensor *f = gguf_tensor(g, "rope_freqs.weight");
    EXPECT(f);
    for (int i = 0; i < t.head_dim / 2; i++)
        speed[i] /= element(f, i);
    gguf_close(g);
    EXPECT(logit_error(&t, speed, 1) < 1e-4);
}

/* YaRN as in its paper: wavelengths below n_ctx/32 are unchanged, above n_ctx/1 they are
 * extended by the factor, with a linear ramp over the pairs between; magnitudes are scaled by
 * 0.1 ln(factor) + 1. */
static void yarn_keeps_high_frequencies_and_stretches_low_ones(void)
{
    struct tiny_model t = tiny_default;
    double speed[MAX_HEAD_DIM / 2], plain[MAX_HEAD_DIM / 2];
    const double factor = 4;

    t.key_str = "llama.rope.scaling.type";
    t.str = "yarn";
    t.key = "rope.scaling.factor";
    t.value = (int64_t)factor;
    plain_speeds(&t, 10000, plain);
    double lo = floor(log(t.ctx / (32 * 2 * M_PI)) / log(10000) * t.head_dim / 2);
    double hi = ceil(log(t.ctx / (2 * M_PI)) / log(10000) * t.head_dim / 2);
    EXPECT(hi > lo + 1 && hi < t.head_dim / 2);
    for (int i = 0; i < t.head_dim / 2; i++) {
        double stretched = i <= lo ? 0 : i >= hi ? 1 : (i - lo) / (hi - lo);
        speed[i] = stretched * plain[i] / factor + (1 - stretched) * plain[i];
    }
    EXPECT(logit_error(&t, speed, 0.1 * log(factor) + 1) < 1e-4);
    EXPECT(logit_error(&t, plain, 1) > 1e-2);
}

TESTS(TEST(every_family_agrees_in_every_type), TEST(mixture_of_experts_agrees),
    TEST(types_may_differ_from_tensor_to_tensor), TEST(every_head_may_have_its_own_keys),
    TEST(rope_frequencies_follow_the_base), TEST(linear_scaling_stretches_positions),
    TEST(rope_factors_in_the_file_divide_frequencies),
    TEST(yarn_keeps_high_frequencies_and_stretches_low_ones))
