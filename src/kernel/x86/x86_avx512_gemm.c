/* x86_avx512_gemm.c: GEMM and GEMV with packed weights and VNNI int8 dot products.
 *
 * A vector is the 16 rows of a panel. A microkernel multiplies some consecutive blocks of one panel
 * with up to GROUP_ROWS activation rows, whose sums stay in registers.
 *
 * GEMV (decode) is limited by memory. A call reads several panels alternately if that is faster on
 * the processor (cpu.h), in longer chunks if there are several rows, since their computation takes
 * longer. Each stream reads consecutive panels and prefetches ahead of itself.
 *
 * GEMM reads a panel, or a pair of panels, completely for each group of rows. The first group loads
 * it into the cache. */
#ifndef __AVX512VNNI__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512_gemm_pairs.h"
#include "kernel/x86/x86_avx512_gemm_block32.h"

/* Multiplies n blocks at w with n blocks at x[m] and adds the products to acc[m]. */
typedef void (*microkernel_fn)(const uint8_t *w, const uint8_t *const *x, int n, __m512 *acc);

struct gemm_format {
    microkernel_fn microkernel[GROUP_ROWS + 1]; /* indexed by the number of rows */
    panel_pair_fn pair;                         /* NULL: a pair of panels is not faster */
    gemm_fn unpacked;        /* GEMM for more than GROUP_ROWS rows; NULL: gemm() */
    int block;               /* elements of k per block */
    size_t w_bytes, x_bytes; /* bytes of a block, of the panel and of a row */
};

/* ---- drivers */

static void set_row_pointers(const struct gemm_args *g, int m, int n, const uint8_t *x[])
{
    for (int i = 0; i < n; i++)
        x[i] = acts_row(g->x, m + i);
}

static void store_outputs(const struct gemm_args *g, int panel, int m, int n, const __m512 *acc)
{
    int rows = MIN(PANEL, g->w->n_rows - panel * PANEL);
    float *y = g->y + (size_t)m * g->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < n; i++)
        _mm512_mask_storeu_ps(y + (size_t)i * g->y_stride, first_lanes(rows), acc[i]);
}

/* Multiplies all rows (at most GROUP_ROWS) with the panels; several streams of panels are
 * interleaved. */
static void gemv(const struct gemm_args *g, const struct gemm_format *f)
{
    int n_rows = g->x->n_rows, n_panels = g->panel_to - g->panel_from;
    const bool is_chained = f->w_bytes == sizeof(uint16_t) * PANEL && n_rows < GROUP_ROWS;
    const struct cpu_streams plan = is_chained ? cpu_gemv_plan()->chained : cpu_gemv_plan()->plain;
    const int n_streams = plan.n_streams;
    int n_blocks = g->w->n_cols / f->block;
    int bytes = plan.bytes * (is_chained ? 1 : MAX(1, n_rows / 2));
    int blocks_per_call = MAX(1, bytes / (int)f->w_bytes);
    microkernel_fn microkernel = f->microkernel[n_rows];
    const uint8_t *x0[GROUP_ROWS], *x[GROUP_ROWS];
    __m512 acc[CPU_MAX_STREAMS][GROUP_ROWS];
    int from[CPU_MAX_STREAMS + 1];

    if (f->block == 1)
        /* microkernel_bf16() needs an even number */
        blocks_per_call = MAX(2, blocks_per_call / 2 * 2);
    set_row_pointers(g, 0, n_rows, x0);
    for (int s = 0; s <= n_streams; s++)
        from[s] = g->panel_from + (int)((int64_t)n_panels * s / n_streams);
    for (int i = 0; i < (n_panels + n_streams - 1) / n_streams; i++) {
        memset(acc, 0, (size_t)n_streams * sizeof(acc[0]));
        for (int b = 0; b < n_blocks; b += blocks_per_call) {
            int n = MIN(blocks_per_call, n_blocks - b);
            for (int m = 0; m < n_rows; m++)
                x[m] = x0[m] + (size_t)b * f->x_bytes;
            for (int s = 0; s < n_streams; s++)
                if (from[s] + i < from[s + 1])
                    microkernel(g->w->data + (size_t)(from[s] + i) * g->w->panel_bytes +
                                    (size_t)b * f->w_bytes,
                        x, n, acc[s]);
        }
        for (int s = 0; s < n_streams; s++)
            if (from[s] + i < from[s + 1])
                store_outputs(g, from[s] + i, 0, n_rows, acc[s]);
    }
}

/* Multiplies rows [m, m + n) with one panel. */
static void multiply_panel(
    const struct gemm_args *g, const struct gemm_format *f, int panel, int m, int n)
{
    const uint8_t *x[GROUP_ROWS];
    __m512 acc[GROUP_ROWS] = { 0 };

    set_row_pointers(g, m, n, x);
    f->microkernel[n](
        g->w->data + (size_t)panel * g->w->panel_bytes, x, g->w->n_cols / f->block, acc);
    store_outputs(g, panel, m, n, acc);
}

static void multiply_panel_pair(
    const struct gemm_args *g, const struct gemm_format *f, int panel, int m)
{
    const size_t bytes = g->w->panel_bytes;
    const uint8_t *w = g->w->data + (size_t)panel * bytes, *x[GROUP_ROWS];
    const uint8_t *next = panel + 2 < g->panel_to || !g->next ? w + 2 * bytes : g->next;
    __m512 acc[2][GROUP_ROWS];

    set_row_pointers(g, m, GROUP_ROWS, x);
    f->pair(&(struct panel_pair){ { w, w + bytes }, { next, next + bytes } }, x,
        g->w->n_cols / f->block, acc);
    store_outputs(g, panel, m, GROUP_ROWS, acc[0]);
    store_outputs(g, panel + 1, m, GROUP_ROWS, acc[1]);
}

static void gemm(const struct gemm_args *g, const struct gemm_format *f)
{
    const int step = f->pair ? 2 : 1;

    for (int p = g->panel_from; p < g->panel_to; p += step)
        for (int m = 0; m < g->x->n_rows; m += GROUP_ROWS) {
            int n = MIN(GROUP_ROWS, g->x->n_rows - m), to = MIN(p + step, g->panel_to);
            if (n == GROUP_ROWS && to == p + 2) {
                multiply_panel_pair(g, f, p, m);
                continue;
            }
            for (int i = p; i < to; i++)
                multiply_panel(g, f, i, m, n);
        }
}

static void gemm_or_gemv(const struct gemm_args *g, const struct gemm_format *f)
{
    if (g->x->n_rows > GROUP_ROWS && f->unpacked)
        f->unpacked(g);
    else if (g->x->n_rows > GROUP_ROWS)
        gemm(g, f);
    else if (g->x->n_rows > 0)
        gemv(g, f);
}

/* ---- blocks of 32 */

/* Dot products of `quads` x 4 bytes, added to start. In assembly, since gcc uses a separate
 * instruction to broadcast four bytes to the rows, which vpdpbusd does itself (10 % of the
 * time). */
INLINE __m512i dot_quads(__m512i start, const __m512i *w, const int8_t *q, int quads)
{
    typedef int32_t __attribute__((may_alias)) quad;

    UNROLL for (int i = 0; i < quads; i++) __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(start) :
        "v"(w[i]), "m"(*(const quad *)(const void *)(q + 4 * i)));
    return start;
}

#define MICROKERNEL_32(type, start, has_mins)                                                      \
    INLINE void microkernel_##type(                                                                \
        int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)                 \
    {                                                                                              \
        const struct p16_##type *p = (const void *)wp;                                             \
        __m512 acc[GROUP_ROWS];                                                                    \
        struct block_32 s;                                                                         \
                                                                                                   \
        UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];                                     \
        for (int b = 0; b < n; b++, p++) {                                                         \
            prefetch_ahead((const uint8_t *)p, sizeof(*p));                                        \
            load_##type(&s, p);                                                                    \
            UNROLL for (int m = 0; m < rows; m++)                                                  \
            {                                                                                      \
                const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + b;       \
                acc[m] = fma_dot(acc[m], s.d, x->d, dot_quads(start(x), s.w, x->q, 8));            \
                if (has_mins)                                                                      \
                    acc[m] = fma_min(acc[m], s.m, x);                                              \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];                                     \
    }

/* Blocks of 32 or 64 with one scale and one offset. */
#define MICROKERNEL_AFFINE(type, load)                                                             \
    INLINE void microkernel_##type(                                                                \
        int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)                 \
    {                                                                                              \
        const struct p16_##type *p = (const void *)wp;                                             \
        const int parts = (int)ARRAY_LEN(p->q);                                                    \
        __m512 acc[GROUP_ROWS];                                                                    \
        struct block_32 s;                                                                         \
                                                                                                   \
        UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];                                     \
        for (int b = 0; b < n; b++, p++) {                                                         \
            prefetch_ahead((const uint8_t *)p, sizeof(*p));                                        \
            UNROLL for (int i = 0; i < parts; i++)                                                 \
            {                                                                                      \
                load(&s, p->q[i], p->d, p->m);                                                     \
                UNROLL for (int m = 0; m < rows; m++)                                              \
                {                                                                                  \
                    const struct act_q8_0 *x =                                                     \
                        (const struct act_q8_0 *)(const void *)xp[m] + parts * b + i;              \
                    __m512i sum = dot_quads(_mm512_setzero_si512(), s.w, x->q, 8);                 \
                    acc[m] = fma_min(fma_dot(acc[m], s.d, x->d, sum), s.m, x);                     \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];                                     \
    }

/* ---- blocks of 256 */

INLINE void microkernel_q4_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q4_k *p = (const void *)wp;
    struct sub_scales s;
    __m512i w[8], sum[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        load_scales(&s, p->scale_lo, p->scale_hi);
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_setzero_si512();
        for (int j = 0; j < 8; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            load_nibbles(w, p->q[j]);
            __m512i scale = unsigned_of_pair(s.scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i d = dot_quads(_mm512_setzero_si512(), w, x->q + 32 * j, 8);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        const __m512 d[2] = { f16_to_f32_x16(p->d), f16_to_f32_x16(p->dmin) };
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            fma_dot_min(out[m], d, (const struct act_q8_k *)(const void *)xp[m] + b, sum[m], s.min);
    }
}

INLINE void microkernel_q5_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q5_k *p = (const void *)wp;
    struct sub_scales s;
    __m512i w[8], sum[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        load_scales(&s, p->scale_lo, p->scale_hi);
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_setzero_si512();
        for (int j = 0; j < 8; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            load_nibbles(w, p->q[j]);
            add_fifth_bits(w, p->high[j]);
            __m512i scale = unsigned_of_pair(s.scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i d = dot_quads(_mm512_setzero_si512(), w, x->q + 32 * j, 8);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        const __m512 d[2] = { f16_to_f32_x16(p->d), f16_to_f32_x16(p->dmin) };
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            fma_dot_min(out[m], d, (const struct act_q8_k *)(const void *)xp[m] + b, sum[m], s.min);
    }
}

INLINE void microkernel_q6_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q6_k *p = (const void *)wp;
    ALIGNED(64) int32_t start[GROUP_ROWS][16];
    __m512i w[4], sum[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++)
        {
            q6_dot_starts(start[m], ((const struct act_q8_k *)(const void *)xp[m] + b)->sum16);
            sum[m] = _mm512_setzero_si512();
        }
        for (int j = 0; j < 16; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 16, sizeof(*p) / 16);
            load_q6_quads(w, p->sub[j].low, p->sub[j].high);
            __m512i scale = signed_of_pair(p->scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i d = dot_quads(_mm512_set1_epi32(start[m][j]), w, x->q + 16 * j, 4);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        __m512 dw = f16_to_f32_x16(p->d);
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            fma_dot(out[m], dw, ((const struct act_q8_k *)(const void *)xp[m] + b)->d, sum[m]);
    }
}

INLINE void microkernel_iq4_xs(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_iq4_xs *p = (const void *)wp;
    __m512i w[8], sum[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_setzero_si512();
        for (int j = 0; j < 8; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            load_nibbles(w, p->q[j]);
            codebook_lookup(w, iq4_codebook(IQ4_OFFSET));
            __m512i scale = signed_of_pair(p->scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i start = _mm512_set1_epi32(-IQ4_OFFSET * x->sum32[j]);
                __m512i d = dot_quads(start, w, x->q + 32 * j, 8);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        __m512 dw = f16_to_f32_x16(p->d);
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            fma_dot(out[m], dw, ((const struct act_q8_k *)(const void *)xp[m] + b)->d, sum[m]);
    }
}

/* Quads of a sub-block of Q2_K. */
INLINE void load_q2_quads(__m512i w[4], const uint8_t q[16][4])
{
    __m512i v = _mm512_loadu_si512(q);

    UNROLL for (int i = 0; i < 4; i++) w[i] =
        _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)(2 * i)), _mm512_set1_epi8(3));
}

/* Minimums of sub-blocks 2i and 2i + 1, as pairs of int16. */
INLINE __m512i q2_min_pair(const struct p16_q2_k *p, int i)
{
    __m512i v =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p->scale[i]));

    return _mm512_srli_epi16(v, 4);
}

/* Scale of sub-block j, as int32. */
INLINE __m512i q2_scale(const struct p16_q2_k *p, int j)
{
    __m512i v =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p->scale[j / 2]));

    return _mm512_and_si512(_mm512_srli_epi32(v, j % 2 * 16), _mm512_set1_epi32(15));
}

INLINE void microkernel_q2_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q2_k *p = (const void *)wp;
    __m512i w[4], sum[GROUP_ROWS], mins[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++) sum[m] = mins[m] = _mm512_setzero_si512();
        for (int j = 0; j < 16; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 16, sizeof(*p) / 16);
            load_q2_quads(w, p->q[j]);
            __m512i scale = q2_scale(p, j);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i d = dot_quads(_mm512_setzero_si512(), w, x->q + 16 * j, 4);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        for (int i = 0; i < 8; i++) {
            __m512i pair = q2_min_pair(p, i);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                mins[m] = _mm512_dpwssd_epi32(mins[m], pair, broadcast_pair(x->sum16 + 2 * i));
            }
        }
        __m512 dw = f16_to_f32_x16(p->d), dmin = f16_to_f32_x16(p->dmin);
        UNROLL for (int m = 0; m < rows; m++)
        {
            float dx = ((const struct act_q8_k *)(const void *)xp[m] + b)->d;
            out[m] = fma_dot(out[m], dw, dx, sum[m]);
            out[m] = _mm512_fnmadd_ps(
                _mm512_mul_ps(dmin, _mm512_set1_ps(dx)), _mm512_cvtepi32_ps(mins[m]), out[m]);
        }
    }
}

/* Quads of 32 elements of Q3_K. */
INLINE void load_q3_quads(__m512i w[8], const uint8_t q[3][16][4])
{
    const __m512i low2 = _mm512_set1_epi8(3), low3 = _mm512_set1_epi8(7),
                  bit2 = _mm512_set1_epi8(4);
    __m512i v[3] = { _mm512_loadu_si512(q[0]), _mm512_loadu_si512(q[1]), _mm512_loadu_si512(q[2]) };

    UNROLL for (int i = 0; i < 3; i++)
    {
        w[2 * i] = _mm512_and_si512(v[i], low3);
        w[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(v[i], 3), low3);
    }
    w[6] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v[0], 6), low2),
        _mm512_and_si512(_mm512_srli_epi16(v[2], 4), bit2));
    w[7] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(v[1], 6), low2),
        _mm512_and_si512(_mm512_srli_epi16(v[2], 5), bit2));
}

INLINE void microkernel_q3_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q3_k *p = (const void *)wp;
    __m512i w[8], sum[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_setzero_si512();
        for (int j = 0; j < 8; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            load_q3_quads(w, p->q[j]);
            UNROLL for (int s = 0; s < 2; s++)
            {
                __m512i scale = signed_of_pair(p->scale[j], s);
                UNROLL for (int m = 0; m < rows; m++)
                {
                    const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                    __m512i start = _mm512_set1_epi32(-4 * x->sum16[2 * j + s]);
                    __m512i d = dot_quads(start, w + 4 * s, x->q + 32 * j + 16 * s, 4);
                    sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
                }
            }
        }
        __m512 dw = f16_to_f32_x16(p->d);
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            fma_dot(out[m], dw, ((const struct act_q8_k *)(const void *)xp[m] + b)->d, sum[m]);
    }
}

/* ---- float weights */

/* n counts single k here */
INLINE void microkernel_f32(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    __m512 acc[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++) {
        prefetch_ahead(wp + (size_t)k * 64, 64);
        __m512 w = _mm512_loadu_ps(wp + (size_t)k * 64);
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k]), acc[m]);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

INLINE void microkernel_f16(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    __m512 acc[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++) {
        if (k % 2 == 0)
            prefetch_ahead(wp + (size_t)k * 32, 64);
        __m512 w = f16_to_f32_x16((const uint16_t *)(const void *)wp + (size_t)k * 16);
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k]), acc[m]);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* Each call begins at an even k, since all previous calls had an even n. */
INLINE void microkernel_bf16(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512 acc[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k += 2) {
        prefetch_ahead(wp + (size_t)k * 32, 64);
        __m512i pair = _mm512_loadu_si512(wp + (size_t)k * 32);
        __m512 w = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k]), acc[m]);
        if (k + 1 == n)
            break;
        w = _mm512_castsi512_ps(_mm512_and_si512(pair, upper));
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k + 1]), acc[m]);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* 16 E4M3 numbers: an f16 with the same exponent bits is 2^-8 times the number, also a subnormal
 * one. */
INLINE __m512 e4m3_to_f32_x16(const uint8_t q[16])
{
    __m256i v = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)q));
    __m256i rest = _mm256_and_si256(v, _mm256_set1_epi16(0x7f));
    __m256i nan = _mm256_cmpeq_epi16(rest, _mm256_set1_epi16(0x7f));
    __m256i sign = _mm256_slli_epi16(_mm256_xor_si256(v, rest), 8);
    __m256i half = _mm256_or_si256(_mm256_or_si256(sign, _mm256_slli_epi16(rest, 7)), nan);

    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256));
}

/* e8m0_to_f32 of 16 bytes */
INLINE __m512 e8m0_to_f32_x16(const uint8_t e[16])
{
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)e));

    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(
        _mm512_slli_epi32(v, 23), _mm512_testn_epi32_mask(v, v), _mm512_set1_epi32(0x00400000)));
}

/* Blocks of E4M3 numbers with one scale. */
#define MICROKERNEL_FP8(type, scale)                                                               \
    INLINE void microkernel_##type(                                                                \
        int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)                 \
    {                                                                                              \
        const struct p16_##type *p = (const void *)wp;                                             \
        const int block = (int)ARRAY_LEN(p->q);                                                    \
        __m512 acc[GROUP_ROWS];                                                                    \
                                                                                                   \
        UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];                                     \
        for (int b = 0; b < n; b++, p++) {                                                         \
            prefetch_ahead((const uint8_t *)p, sizeof(*p));                                        \
            __m512 d = (scale);                                                                    \
            for (int i = 0; i < block; i++) {                                                      \
                __m512 w = _mm512_mul_ps(e4m3_to_f32_x16(p->q[i]), d);                             \
                UNROLL for (int m = 0; m < rows; m++)                                              \
                {                                                                                  \
                    const float *x = (const float *)(const void *)xp[m] + block * b;               \
                    acc[m] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[i]), acc[m]);                     \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];                                     \
    }
MICROKERNEL_FP8(fp8_32, _mm512_loadu_ps(p->d))
MICROKERNEL_FP8(fp8_128, _mm512_loadu_ps(p->d))
MICROKERNEL_FP8(mxfp8, e8m0_to_f32_x16(p->e))

/* ---- one function per type and number of rows, one table per type, one entry per type */

#define MICROKERNEL(type, rows)                                                                    \
    static void type##_##rows(const uint8_t *w, const uint8_t *const *x, int n, __m512 *acc)       \
    {                                                                                              \
        microkernel_##type(rows, w, x, n, acc);                                                    \
    }

#define GEMM(type, pair, ...)                                                                      \
    MICROKERNEL(type, 1)                                                                           \
    MICROKERNEL(type, 2)                                                                           \
    MICROKERNEL(type, 3)                                                                           \
    MICROKERNEL(type, 4)                                                                           \
    MICROKERNEL(type, 5)                                                                           \
    MICROKERNEL(type, 6)                                                                           \
    MICROKERNEL(type, 7)                                                                           \
    MICROKERNEL(type, 8)                                                                           \
    void avx512_gemm_##type(const struct gemm_args *g)                                             \
    {                                                                                              \
        static const struct gemm_format f = { { NULL, type##_1, type##_2, type##_3, type##_4,      \
                                                  type##_5, type##_6, type##_7, type##_8 },        \
            pair, __VA_ARGS__ };                                                                   \
        gemm_or_gemv(g, &f);                                                                       \
    }

MICROKERNEL_32(q4_0, start_8, false)
MICROKERNEL_32(q8_0, start_128, false)
MICROKERNEL_32(q4_1, start_0, true)
MICROKERNEL_32(q5_0, start_16, false)
MICROKERNEL_32(q5_1, start_0, true)
MICROKERNEL_32(iq4_nl, start_128, false)
MICROKERNEL_32(mxfp4, start_12, false)

MICROKERNEL_AFFINE(affine4_32, load_affine4)
MICROKERNEL_AFFINE(affine4_64, load_affine4)
MICROKERNEL_AFFINE(affine8_32, load_affine8)
MICROKERNEL_AFFINE(affine8_64, load_affine8)
MICROKERNEL_AFFINE(affine2_32, load_affine2)
MICROKERNEL_AFFINE(affine2_64, load_affine2)
MICROKERNEL_AFFINE(affine3_32, load_affine3)
MICROKERNEL_AFFINE(affine3_64, load_affine3)
MICROKERNEL_AFFINE(affine5_32, load_affine5)
MICROKERNEL_AFFINE(affine5_64, load_affine5)
MICROKERNEL_AFFINE(affine6_32, load_affine6)
MICROKERNEL_AFFINE(affine6_64, load_affine6)

GEMM(affine4_32, NULL, NULL, 32, sizeof(struct p16_affine4_32), sizeof(struct act_q8_0))
GEMM(affine4_64, NULL, NULL, 64, sizeof(struct p16_affine4_64), 2 * sizeof(struct act_q8_0))
GEMM(affine8_32, NULL, NULL, 32, sizeof(struct p16_affine8_32), sizeof(struct act_q8_0))
GEMM(affine8_64, NULL, NULL, 64, sizeof(struct p16_affine8_64), 2 * sizeof(struct act_q8_0))
GEMM(affine2_32, NULL, NULL, 32, sizeof(struct p16_affine2_32), sizeof(struct act_q8_0))
GEMM(affine2_64, NULL, NULL, 64, sizeof(struct p16_affine2_64), 2 * sizeof(struct act_q8_0))
GEMM(affine3_32, NULL, NULL, 32, sizeof(struct p16_affine3_32), sizeof(struct act_q8_0))
GEMM(affine3_64, NULL, NULL, 64, sizeof(struct p16_affine3_64), 2 * sizeof(struct act_q8_0))
GEMM(affine5_32, NULL, NULL, 32, sizeof(struct p16_affine5_32), sizeof(struct act_q8_0))
GEMM(affine5_64, NULL, NULL, 64, sizeof(struct p16_affine5_64), 2 * sizeof(struct act_q8_0))
GEMM(affine6_32, NULL, NULL, 32, sizeof(struct p16_affine6_32), sizeof(struct act_q8_0))
GEMM(affine6_64, NULL, NULL, 64, sizeof(struct p16_affine6_64), 2 * sizeof(struct act_q8_0))
GEMM(fp8_32, NULL, NULL, 32, sizeof(struct p16_fp8_32), 32 * sizeof(float))
GEMM(fp8_128, NULL, NULL, 128, sizeof(struct p16_fp8_128), 128 * sizeof(float))
GEMM(mxfp8, NULL, NULL, 32, sizeof(struct p16_mxfp8), 32 * sizeof(float))
GEMM(f32, NULL, NULL, 1, 64, 4)
GEMM(f16, NULL, NULL, 1, 32, 4)
GEMM(bf16, NULL, NULL, 1, 32, 4)
GEMM(q8_0, avx512_pair_q8_0, NULL, 32, sizeof(struct p16_q8_0), sizeof(struct act_q8_0))
GEMM(q4_0, avx512_pair_q4_0, NULL, 32, sizeof(struct p16_q4_0), sizeof(struct act_q8_0))
GEMM(q4_k, NULL, NULL, 256, sizeof(struct p16_q4_k), sizeof(struct act_q8_k))
GEMM(q5_k, NULL, NULL, 256, sizeof(struct p16_q5_k), sizeof(struct act_q8_k))
GEMM(q6_k, avx512_pair_q6_k, NULL, 256, sizeof(struct p16_q6_k), sizeof(struct act_q8_k))
GEMM(q4_1, NULL, NULL, 32, sizeof(struct p16_q4_1), sizeof(struct act_q8_0))
GEMM(q5_0, avx512_pair_q5_0, NULL, 32, sizeof(struct p16_q5_0), sizeof(struct act_q8_0))
GEMM(q5_1, NULL, NULL, 32, sizeof(struct p16_q5_1), sizeof(struct act_q8_0))
GEMM(iq4_nl, NULL, NULL, 32, sizeof(struct p16_iq4_nl), sizeof(struct act_q8_0))
GEMM(mxfp4, NULL, NULL, 32, sizeof(struct p16_mxfp4), sizeof(struct act_q8_0))
GEMM(iq4_xs, NULL, NULL, 256, sizeof(struct p16_iq4_xs), sizeof(struct act_q8_k))
GEMM(q2_k, NULL, avx512_gemm_unpacked_q2_k, 256, sizeof(struct p16_q2_k), sizeof(struct act_q8_k))
GEMM(q3_k, NULL, avx512_gemm_unpacked_q3_k, 256, sizeof(struct p16_q3_k), sizeof(struct act_q8_k))
