/* numerics.h: constants that every kernel set must use to produce the same bits.
 *
 * exp(x): x is clamped to EXP_LO .. EXP_HI (a NaN stays NaN), n = rint(x * LOG2_E), r = fma(-n,
 * LN2_HI, x), r = fma(-n, LN2_LO, r), p = Horner's rule with fma over EXP_C6 .. EXP_C2, 1, 1, and
 * the result is p * 2^n, rounded once: 0 and infinity at the clamps, subnormals between. The
 * polynomial is within 1.1e-8 of exp on +-ln(2)/2; with rounding, within 1 ulp.
 *
 * softplus(x) = max(x, 0) + ln(1 + t), t = exp(-|x|): s = t / (t + 2), z = s * s, p = Horner's rule
 * with fma over SOFTPLUS_C7 .. SOFTPLUS_C1, 1, and the result is fma(s + s, p, max(x, 0)). The
 * series of ln((1 + s) / (1 - s)) is cut at s^17, where s <= 1/3. Constants only. */
#pragma once

#define EXP_LO -104.0f
#define EXP_HI 89.0f
#define LOG2_E 0x1.715476p+0f
#define LN2_HI 0x1.62e4p-1f /* 15 bits: n * LN2_HI is exact */
#define LN2_LO 0x1.7f7d1cp-20f
#define EXP_C2 0x1p-1f
#define EXP_C3 0x1.5554dcp-3f
#define EXP_C4 0x1.55551ap-5f
#define EXP_C5 0x1.120ba2p-7f
#define EXP_C6 0x1.6d113cp-10f

#define SOFTPLUS_C1 0x1.555556p-2f /* 1/3, 1/5, .. 1/15 */
#define SOFTPLUS_C2 0x1.99999ap-3f
#define SOFTPLUS_C3 0x1.24924ap-3f
#define SOFTPLUS_C4 0x1.c71c72p-4f
#define SOFTPLUS_C5 0x1.745d18p-4f
#define SOFTPLUS_C6 0x1.3b13b2p-4f
#define SOFTPLUS_C7 0x1.111112p-4f

#define GELU_SCALE 0.7978845608f /* sqrt(2 / pi) */
#define GELU_CUBE  0.044715f
#define OAI_LIMIT  7.0f
#define OAI_ALPHA  1.702f

/* partial sums: element i is added to lane i % 16, and lanes are reduced 8, 4, 2, 1 */
enum { LANES = 16 };
