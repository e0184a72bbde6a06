/* ref.c: definition of every operation. All other kernel sets are compared with it bit for bit, so
 * it is never optimised. Each multiplication and addition is rounded separately unless the code
 * uses fmaf. ref_gemm.c, ref_attn.c and ref_recurrent.c define GEMM, attention and recurrent
 * layers. */
#include "kernel/ref/ref.h"
#include "kernel/acts.h"
#include "base/half.h"
#include "kernel/numerics.h"

#include <float.h>
#include <math.h>

float ref_exp(float x)
{
    if (x != x)
        return x;
    x = x < EXP_LO ? EXP_LO : x > EXP_HI ? EXP_HI : x;
    float n = rintf(x * LOG2_E);
    float r = fmaf(-n, LN2_HI, x);
    r = fmaf(-n, LN2_LO, r);
    float p = fmaf(EXP_C6, r, EXP_C5);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return ldexpf(p, (int)n);
}

/* Returns the largest magnitude; a NaN is larger than every number. */
float ref_max_magnitude(const float *x, int n)
{
    uint32_t top = 0;

    for (int i = 0; i < n; i++)
        top = MAX(top, f32_to_bits(x[i]) & 0x7fffffff);
    return f32_from_bits(top);
}

static int8_t to_int8(float v)
{
    v = v > -127.0f ? v : -127.0f; /* a NaN becomes -127 */
    v = v < 127.0f ? v : 127.0f;
    return (int8_t)rintf(v);
}

static void q8_0(const float *x, int n, void *out)
{
    struct act_q8_0 *b = out;

    for (int i = 0; i < n / Q8_0_BLOCK; i++, b++, x += Q8_0_BLOCK) {
        float d = ref_max_magnitude(x, Q8_0_BLOCK) / 127.0f;
        float inverse = d != 0.0f ? 1.0f / d : 0.0f;
        b->d = f16_to_f32(f32_to_f16(d));
        b->minus8 = 0;
        for (int j = 0; j < Q8_0_BLOCK; j++) {
            b->q[j] = to_int8(x[j] * inverse);
            b->minus8 -= 8 * b->q[j];
        }
    }
}

static void q8_k(const float *x, int n, void *out)
{
    struct act_q8_k *b = out;

    for (int i = 0; i < n / Q8_K_BLOCK; i++, b++, x += Q8_K_BLOCK) {
        float top = ref_max_magnitude(x, Q8_K_BLOCK);
        float scale = top != 0.0f ? 127.0f / top : 0.0f;
        *b = (struct act_q8_k){ .d = top != 0.0f ? 1.0f / scale : 0.0f };
        for (int j = 0; j < Q8_K_BLOCK; j++) {
            b->q[j] = to_int8(x[j] * scale);
            b->sum16[j / 16] = (int16_t)(b->sum16[j / 16] + b->q[j]);
            b->sum32[j / 32] = (int16_t)(b->sum32[j / 32] + b->q[j]);
        }
    }
}

static float flushed(float v)
{
    return fabsf(v) < FLT_MIN ? copysignf(0, v) : v;
}

static void bf16x2(const float *x, int n, void *out)
{
    struct act_bf16x2 *b = out;

    for (int i = 0; i < (n + BF16X2_BLOCK - 1) / BF16X2_BLOCK * BF16X2_BLOCK; i++) {
        float v = i < n ? x[i] : 0;
        uint16_t hi = f32_to_bf16(flushed(v));
        float rest = v - bf16_to_f32(hi);
        b[i / BF16X2_BLOCK].hi[i % BF16X2_BLOCK] = hi;
        b[i / BF16X2_BLOCK].lo[i % BF16X2_BLOCK] =
            isfinite(bf16_to_f32(hi)) ? f32_to_bf16(flushed(rest)) : 0;
    }
}

static void rms_norm(float *out, const float *x, const float *w, int n, float eps)
{
    float lane[LANES] = { 0 };

    for (int i = 0; i < n; i++)
        lane[i % LANES] = fmaf(x[i], x[i], lane[i % LANES]);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    float scale = 1.0f / sqrtf(lane[0] / (float)n + eps);
    for (int i = 0; i < n; i++)
        out[i] = x[i] * scale * w[i];
}

static void rope(float *x, int n_heads, int head_dim, const float *cs, int n_rot, bool is_neox)
{
    for (int h = 0; h < n_heads; h++, x += head_dim)
        for (int i = 0; i < n_rot / 2; i++) {
            float *a = is_neox ? x + i : x + 2 * i;
            float *b = is_neox ? x + i + n_rot / 2 : x + 2 * i + 1;
            float cos = cs[2 * i], sin = cs[2 * i + 1], va = *a, vb = *b;
            *a = fmaf(va, cos, -(vb * sin));
            *b = fmaf(va, sin, vb * cos);
        }
}

static void silu_mul(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + ref_exp(-gate[i])) * up[i];
}

static void gelu_mul(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++) {
        float x = gate[i], inner = x * fmaf(x * x, GELU_CUBE, 1.0f);
        out[i] = x / (1.0f + ref_exp(inner * (-2.0f * GELU_SCALE))) * up[i];
    }
}

static void swiglu_oai(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++) {
        float g = OAI_LIMIT < gate[i] ? OAI_LIMIT : gate[i], u = up[i];
        u = OAI_LIMIT < u ? OAI_LIMIT : u;
        u = -OAI_LIMIT > u ? -OAI_LIMIT : u;
        out[i] = g / (1.0f + ref_exp(g * -OAI_ALPHA)) * (u + 1.0f);
    }
}

static void relu_sqr(float *out, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        float v = x[i] > 0.0f ? x[i] : 0.0f;
        out[i] = v * v;
    }
}

static void add(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static void add_scaled(float *x, float a, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = fmaf(a, y[i], x[i]);
}

static double softmax(float *out, const float *x, int n, float max, float t)
{
    double lane[LANES] = { 0 };

    for (int i = 0; i < n; i++) {
        out[i] = ref_exp((x[i] - max) / t);
        lane[i % LANES] += (double)out[i];
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static float max(const float *x, int n)
{
    float top = -INFINITY;

    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top + 0.0f; /* the sum of -0 and 0 is 0: the result does not depend on their order */
}

const struct kernels kernels_ref = {
    .name = "ref",
    .q8_0 = q8_0,
    .q8_k = q8_k,
    .bf16x2 = bf16x2,
    .rms_norm = rms_norm,
    .rope = rope,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .swiglu_oai = swiglu_oai,
    .relu_sqr = relu_sqr,
    .sigmoid_mul = ref_sigmoid_mul,
    .softplus = ref_softplus,
    .l2_norm = ref_l2_norm,
    .conv = ref_conv,
    .delta_rule = ref_delta_rule,
    .state_row = ref_state_row,
    .add = add,
    .add_scaled = add_scaled,
    .kv_append = ref_kv_append,
    .attend = ref_attend,
    .attend_merge = ref_attend_merge,
    .softmax = softmax,
    .max = max,
    .gemm = {
#define WEIGHT(TYPE, name, act, block) [GEMM_##TYPE] = ref_gemm_##name,
#include "kernel/types.def"
#undef WEIGHT
    },
};
