/* x86_avx2_gemm.c: packed weights times activations without VNNI.
 *
 * A panel's 16 rows are two halves of eight lanes, taken one after the other. Products of bytes
 * come from vpmaddubsw, whose pairs are 16-bit sums that would saturate; how many of them may be
 * added before they are widened follows from the weights' range, with |x| <= 127:
 *
 *   Q4   15 * 127 * 2 =  3810, x 8 fits     Q6   63 * 127 * 2 = 16002, x 2 fits
 *   Q5   31 * 127 * 2 =  7874, x 4 fits     Q8  |w| <= 128, 32512, x 1 (signs moved to x)
 *
 * Where a sub-block has a scale, the widening multiplies by it (vpmaddwd). Work is cut into turns
 * as in x86_avx512_gemm.c. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/acts.h"
#include "kernel/blocks.h"
#include "kernel/x86_avx2.h"

enum {
    GROUP = 4,
    STREAMS = 2,
    AHEAD = 6144, /* bytes that a stream prefetches ahead of itself, into L2 */
    TURN_BYTES = 2048,
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define INLINE static inline __attribute__((always_inline))

struct lanes { /* of 16 rows */
    __m256 half[2];
};

/* n blocks at w times n blocks at x[m], added to acc[m]. */
typedef void (*turn_fn)(const uint8_t *w, const uint8_t *const *x, int n, struct lanes *acc);

struct format {
    turn_fn turn[GROUP + 1]; /* by number of rows */
    int block;               /* elements of k */
    size_t w_bytes, x_bytes; /* of a block, of the panel and of a row */
};

/* ---- drivers */

static void set_rows(const struct gemm_args *g, int m, int n, const uint8_t *x[])
{
    for (int i = 0; i < n; i++)
        x[i] = acts_row(g->x, m + i);
}

static void store(const struct gemm_args *g, int panel, int m, int n, const struct lanes *acc)
{
    int rows = MIN(PANEL, g->w->n_rows - panel * PANEL);
    float *y = g->y + (size_t)m * g->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < n; i++, y += g->y_stride) {
        store_upto(y, 0, rows, acc[i].half[0]);
        store_upto(y, 8, rows, acc[i].half[1]);
    }
}

/* All rows (at most GROUP) times panels, interleaved. */
static void few_rows(const struct gemm_args *g, const struct format *f)
{
    int n_rows = g->x->n_rows, n_panels = g->panel_to - g->panel_from;
    int n_blocks = g->w->n_cols / f->block, per_turn = MAX(1, TURN_BYTES / (int)f->w_bytes);
    turn_fn turn = f->turn[n_rows];
    const uint8_t *x0[GROUP], *x[GROUP];
    struct lanes acc[STREAMS][GROUP];
    int from[STREAMS + 1];

    set_rows(g, 0, n_rows, x0);
    for (int s = 0; s <= STREAMS; s++)
        from[s] = g->panel_from + (int)((int64_t)n_panels * s / STREAMS);
    for (int i = 0; i < (n_panels + STREAMS - 1) / STREAMS; i++) {
        memset(acc, 0, sizeof(acc));
        for (int b = 0; b < n_blocks; b += per_turn) {
            int n = MIN(per_turn, n_blocks - b);
            for (int m = 0; m < n_rows; m++)
                x[m] = x0[m] + (size_t)b * f->x_bytes;
            for (int s = 0; s < STREAMS; s++)
                if (from[s] + i < from[s + 1])
                    turn(g->w->data + (size_t)(from[s] + i) * g->w->panel_bytes +
                             (size_t)b * f->w_bytes,
                        x, n, acc[s]);
        }
        for (int s = 0; s < STREAMS; s++)
            if (from[s] + i < from[s + 1])
                store(g, from[s] + i, 0, n_rows, acc[s]);
    }
}

static void many_rows(const struct gemm_args *g, const struct format *f)
{
    int n_blocks = g->w->n_cols / f->block;
    const uint8_t *x[GROUP];
    struct lanes acc[GROUP];

    for (int p = g->panel_from; p < g->panel_to; p++)
        for (int m = 0; m < g->x->n_rows; m += GROUP) {
            int n = MIN(GROUP, g->x->n_rows - m);
            set_rows(g, m, n, x);
            memset(acc, 0, sizeof(acc));
            f->turn[n](g->w->data + (size_t)p * g->w->panel_bytes, x, n_blocks, acc);
            store(g, p, m, n, acc);
        }
}

static void run(const struct gemm_args *g, const struct format *f)
{
    if (g->x->n_rows > GROUP)
        many_rows(g, f);
    else if (g->x->n_rows > 0)
        few_rows(g, f);
}

INLINE void fetch_ahead(const uint8_t *w, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)w + AHEAD + i, _MM_HINT_T1);
}

/* ---- pieces */

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256 half8(const uint16_t *h)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)h));
}

/* Four bytes to all rows. */
INLINE __m256i spread4(const void *q)
{
    int32_t v;
    memcpy(&v, q, sizeof(v));
    return _mm256_set1_epi32(v);
}

/* 16-bit pair sums of n quads, added up. */
INLINE __m256i pair_sums(const __m256i *w, const int8_t *q, int n)
{
    __m256i sum = _mm256_maddubs_epi16(w[0], spread4(q));

    UNROLL for (int i = 1; i < n; i++) sum =
        _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[i], spread4(q + 4 * i)));
    return sum;
}

INLINE __m256i add_madd(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

INLINE __m256 scaled(__m256 acc, __m256 dw, float dx, __m256i sum)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(dw, _mm256_set1_ps(dx)), _mm256_cvtepi32_ps(sum), acc);
}

/* 8 quads of eight rows out of nibbles as in p16_q4_0. */
INLINE void load_nibbles(__m256i w[8], const uint8_t q[4][16][4], int half)
{
    const __m256i low = _mm256_set1_epi8(15);

    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i v = load(q[i][8 * half]);
        w[i] = _mm256_and_si256(v, low);
        w[i + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
}

/* ---- blocks of 32 */

INLINE void turn_q4_0(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const struct p16_q4_0 *p = (const void *)wp;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i w[8];

    for (int b = 0; b < n; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        for (int half = 0; half < 2; half++) {
            load_nibbles(w, p->q, half);
            __m256 dw = half8(p->d + 8 * half);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + b;
                __m256i sum = add_madd(_mm256_set1_epi32(x->minus8), pair_sums(w, x->q, 8), ones);
                out[m].half[half] = scaled(out[m].half[half], dw, x->d, sum);
            }
        }
    }
}

INLINE void turn_q8_0(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const struct p16_q8_0 *p = (const void *)wp;
    const __m256i ones = _mm256_set1_epi16(1), top = _mm256_set1_epi8((char)0x80);
    __m256i w[8];

    for (int b = 0; b < n; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        for (int half = 0; half < 2; half++) {
            UNROLL for (int i = 0; i < 8; i++) w[i] =
                _mm256_xor_si256(load(p->q[i][8 * half]), top);
            __m256 dw = half8(p->d + 8 * half);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + b;
                __m256i sum = _mm256_setzero_si256();
                UNROLL for (int i = 0; i < 8; i++)
                {
                    __m256i q = _mm256_sign_epi8(spread4(x->q + 4 * i), w[i]);
                    sum = add_madd(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(w[i]), q), ones);
                }
                out[m].half[half] = scaled(out[m].half[half], dw, x->d, sum);
            }
        }
    }
}

/* ---- blocks of 256 */

/* Of eight rows of a Q4_K or Q5_K block: 6-bit numbers as pairs of int16, sub-blocks 2p, 2p + 1. */
struct sub_scales {
    __m256i scale[4], min[4];
};

INLINE void load_scales(
    struct sub_scales *s, const uint8_t lo[4][16][2], const uint8_t hi[2][16][2], int half)
{
    const __m128i low4 = _mm_set1_epi8(15), bits45 = _mm_set1_epi8(0x30);

    UNROLL for (int p = 0; p < 4; p++)
    {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)lo[p][8 * half]);
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)hi[p % 2][8 * half]);
        if (p >= 2)
            h = _mm_srli_epi16(h, 4);
        s->scale[p] = _mm256_cvtepu8_epi16(
            _mm_or_si128(_mm_and_si128(v, low4), _mm_and_si128(_mm_slli_epi16(h, 4), bits45)));
        s->min[p] = _mm256_cvtepu8_epi16(_mm_or_si128(_mm_and_si128(_mm_srli_epi16(v, 4), low4),
            _mm_and_si128(_mm_slli_epi16(h, 2), bits45)));
    }
}

/* Number i (0 or 1) of each pair, twice. */
INLINE __m256i both(__m256i pair, int i)
{
    return i ? _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pair, 0xf5), 0xf5)
             : _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pair, 0xa0), 0xa0);
}

/* acc + d * dx * sum - dmin * dx * (mins . sum32) */
INLINE __m256 affine(
    __m256 acc, const uint16_t *d, const struct act_q8_k *x, __m256i sum, const __m256i min[4])
{
    __m256i mins = _mm256_setzero_si256();
    __m256 dx = _mm256_set1_ps(x->d);

    UNROLL for (int p = 0; p < 4; p++) mins = add_madd(mins, min[p], spread4(x->sum32 + 2 * p));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(half8(d), dx), _mm256_cvtepi32_ps(sum), acc);
    return _mm256_fnmadd_ps(_mm256_mul_ps(half8(d + 16), dx), _mm256_cvtepi32_ps(mins), acc);
}

INLINE void turn_q4_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const struct p16_q4_k *p = (const void *)wp;
    struct sub_scales s;
    __m256i w[8], sum[GROUP];

    for (int b = 0; b < n; b++, p++)
        for (int half = 0; half < 2; half++) {
            load_scales(&s, p->scale_lo, p->scale_hi, half);
            UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm256_setzero_si256();
            for (int j = 0; j < 8; j++) {
                if (!half)
                    fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
                load_nibbles(w, p->q[j], half);
                __m256i scale = both(s.scale[j / 2], j % 2);
                UNROLL for (int m = 0; m < rows; m++)
                {
                    const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                    sum[m] = add_madd(sum[m], pair_sums(w, x->q + 32 * j, 8), scale);
                }
            }
            UNROLL for (int m = 0; m < rows; m++) out[m].half[half] = affine(out[m].half[half],
                p->d + 8 * half, (const struct act_q8_k *)(const void *)xp[m] + b, sum[m], s.min);
        }
}

/* Fifth bits of a sub-block: bit i of the plane belongs to quad i. */
INLINE void add_fifth(__m256i w[8], const uint8_t plane[16][4], int half)
{
    const __m256i bit4 = _mm256_set1_epi8(16);
    __m256i v = load(plane[8 * half]);

    UNROLL for (int i = 0; i < 8; i++)
    {
        __m256i at4 = i < 4 ? _mm256_slli_epi16(v, 4 - i) : _mm256_srli_epi16(v, i - 4);
        w[i] = _mm256_or_si256(w[i], _mm256_and_si256(at4, bit4));
    }
}

INLINE void turn_q5_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const struct p16_q5_k *p = (const void *)wp;
    struct sub_scales s;
    __m256i w[8], sum[GROUP];

    for (int b = 0; b < n; b++, p++)
        for (int half = 0; half < 2; half++) {
            load_scales(&s, p->scale_lo, p->scale_hi, half);
            UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm256_setzero_si256();
            for (int j = 0; j < 8; j++) {
                if (!half)
                    fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
                load_nibbles(w, p->q[j], half);
                add_fifth(w, p->high[j], half);
                __m256i scale = both(s.scale[j / 2], j % 2);
                UNROLL for (int m = 0; m < rows; m++)
                {
                    const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                    sum[m] = add_madd(sum[m], pair_sums(w, x->q + 32 * j, 4), scale);
                    sum[m] = add_madd(sum[m], pair_sums(w + 4, x->q + 32 * j + 16, 4), scale);
                }
            }
            UNROLL for (int m = 0; m < rows; m++) out[m].half[half] = affine(out[m].half[half],
                p->d + 8 * half, (const struct act_q8_k *)(const void *)xp[m] + b, sum[m], s.min);
        }
}

INLINE void load_q6(__m256i w[4], const uint8_t low[2][16][4], const uint8_t high[16][4], int half)
{
    const __m256i low4 = _mm256_set1_epi8(15), bits45 = _mm256_set1_epi8(0x30);
    __m256i a = load(low[0][8 * half]), b = load(low[1][8 * half]), h = load(high[8 * half]);

    w[0] = _mm256_or_si256(
        _mm256_and_si256(a, low4), _mm256_and_si256(_mm256_slli_epi16(h, 4), bits45));
    w[1] = _mm256_or_si256(
        _mm256_and_si256(b, low4), _mm256_and_si256(_mm256_slli_epi16(h, 2), bits45));
    w[2] = _mm256_or_si256(
        _mm256_and_si256(_mm256_srli_epi16(a, 4), low4), _mm256_and_si256(h, bits45));
    w[3] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 4), low4),
        _mm256_and_si256(_mm256_srli_epi16(h, 2), bits45));
}

/* -32 * (scales . sum16): what the offset of the weights added too much. */
INLINE __m256i q6_offset(const struct p16_q6_k *p, const struct act_q8_k *x, int half)
{
    __m256i sum = _mm256_setzero_si256();

    UNROLL for (int i = 0; i < 8; i++)
    {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]);
        sum = add_madd(sum, _mm256_cvtepi8_epi16(bytes), spread4(x->sum16 + 2 * i));
    }
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, 5));
}

INLINE void turn_q6_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const struct p16_q6_k *p = (const void *)wp;
    __m256i w[4], sum[GROUP];

    for (int b = 0; b < n; b++, p++)
        for (int half = 0; half < 2; half++) {
            UNROLL for (int m = 0; m < rows; m++) sum[m] =
                q6_offset(p, (const struct act_q8_k *)(const void *)xp[m] + b, half);
            for (int j = 0; j < 16; j++) {
                if (!half)
                    fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 16, sizeof(*p) / 16);
                load_q6(w, p->sub[j].low, p->sub[j].high, half);
                __m128i bytes =
                    _mm_loadu_si128((const __m128i *)(const void *)p->scale[j / 2][8 * half]);
                __m256i scale = both(_mm256_cvtepi8_epi16(bytes), j % 2);
                UNROLL for (int m = 0; m < rows; m++)
                {
                    const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                    sum[m] = add_madd(sum[m], pair_sums(w, x->q + 16 * j, 2), scale);
                    sum[m] = add_madd(sum[m], pair_sums(w + 2, x->q + 16 * j + 8, 2), scale);
                }
            }
            __m256 dw = half8(p->d + 8 * half);
            UNROLL for (int m = 0; m < rows; m++) out[m].half[half] = scaled(out[m].half[half], dw,
                ((const struct act_q8_k *)(const void *)xp[m] + b)->d, sum[m]);
        }
}

/* ---- float weights; n counts single k */

INLINE void add_product(
    int rows, struct lanes *acc, __m256 low, __m256 high, const uint8_t *const *xp, int k)
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        __m256 x = _mm256_set1_ps(((const float *)(const void *)xp[m])[k]);
        acc[m].half[0] = _mm256_fmadd_ps(low, x, acc[m].half[0]);
        acc[m].half[1] = _mm256_fmadd_ps(high, x, acc[m].half[1]);
    }
}

INLINE void turn_f32(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const float *w = (const float *)(const void *)wp;
    struct lanes acc[GROUP];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++, w += 16) {
        fetch_ahead((const uint8_t *)w, 64);
        add_product(rows, acc, _mm256_loadu_ps(w), _mm256_loadu_ps(w + 8), xp, k);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

INLINE void turn_f16(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const uint16_t *w = (const uint16_t *)(const void *)wp;
    struct lanes acc[GROUP];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++, w += 16) {
        if (k % 2 == 0)
            fetch_ahead((const uint8_t *)w, 64);
        add_product(rows, acc, half8(w), half8(w + 8), xp, k);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* Starts at an even k: turns are of an even number. */
INLINE void turn_bf16(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct lanes *out)
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    struct lanes acc[GROUP];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k += 2) {
        const uint8_t *w = wp + (size_t)k * 32;
        fetch_ahead(w, 64);
        __m256i low = load(w), high = load(w + 32);
        add_product(rows, acc, _mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(high, 16)), xp, k);
        if (k + 1 == n)
            break;
        add_product(rows, acc, _mm256_castsi256_ps(_mm256_and_si256(low, upper)),
            _mm256_castsi256_ps(_mm256_and_si256(high, upper)), xp, k + 1);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* ---- one function per type and number of rows, one table per type, one entry per type */

#define TURN(type, rows)                                                                           \
    static void type##_##rows(const uint8_t *w, const uint8_t *const *x, int n, struct lanes *acc) \
    {                                                                                              \
        turn_##type(rows, w, x, n, acc);                                                           \
    }

#define GEMM(type, block, w_bytes, x_bytes)                                                        \
    TURN(type, 1)                                                                                  \
    TURN(type, 2)                                                                                  \
    TURN(type, 3)                                                                                  \
    TURN(type, 4)                                                                                  \
    void avx2_gemm_##type(const struct gemm_args *g)                                               \
    {                                                                                              \
        static const struct format f = { { NULL, type##_1, type##_2, type##_3, type##_4 }, block,  \
            w_bytes, x_bytes };                                                                    \
        run(g, &f);                                                                                \
    }

GEMM(f32, 1, 64, 4)
GEMM(f16, 1, 32, 4)
GEMM(bf16, 1, 32, 4)
GEMM(q8_0, 32, sizeof(struct p16_q8_0), sizeof(struct act_q8_0))
GEMM(q4_0, 32, sizeof(struct p16_q4_0), sizeof(struct act_q8_0))
GEMM(q4_k, 256, sizeof(struct p16_q4_k), sizeof(struct act_q8_k))
GEMM(q5_k, 256, sizeof(struct p16_q5_k), sizeof(struct act_q8_k))
GEMM(q6_k, 256, sizeof(struct p16_q6_k), sizeof(struct act_q8_k))
