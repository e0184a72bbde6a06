/* x86_avx2_gemm.c: GEMM and GEMV with packed weights, in vectors of eight rows.
 *
 * The 16 rows of a panel are two halves of eight lanes. Without VNNI, products of bytes are
 * computed with vpmaddubsw, whose 16-bit pair sums would saturate. The range of the weights
 * determines how many of them may be added before they are widened, with |x| <= 127:
 *
 *   Q4   15 * 127 * 2 =  3810, x 8 fits     Q6   63 * 127 * 2 = 16002, x 2 fits
 *   Q5   31 * 127 * 2 =  7874, x 4 fits     Q8   as 16-bit integers: x86_avx2_gemm_int16.c
 *
 * If a sub-block has a scale, the widening multiplies by it (vpmaddwd). With VNNI (BYTE_DOTS) there
 * are no pair sums and no such limits. The loops around the microkernels are those of
 * x86_avx512_gemm.c. GEMM with many rows, and the types that are not here, are in
 * x86_avx2_gemm_unpacked.c. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_gemm_k.h"

enum {
    /* quads that may be added before they are multiplied by their scale */
    Q5_QUADS = BYTE_DOTS ? 8 : 4,
    Q6_QUADS = BYTE_DOTS ? 4 : 2,
};

/* ---- drivers */

void GEMM_SET(set_row_pointers)(const struct gemm_args *g, int m, int n, const uint8_t *x[])
{
    for (int i = 0; i < n; i++)
        x[i] = acts_row(g->x, m + i);
}

void GEMM_SET(store_outputs)(
    const struct gemm_args *g, int panel, int m, int n, const struct panel_acc *acc)
{
    int rows = MIN(PANEL, g->w->n_rows - panel * PANEL);
    float *y = g->y + (size_t)m * g->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < n; i++, y += g->y_stride) {
        store_partial(y, 0, rows, acc[i].half[0]);
        store_partial(y, 8, rows, acc[i].half[1]);
    }
}

void GEMM_SET(gemv)(const struct gemm_args *g, const struct gemv_format *f)
{
    int n_rows = g->x->n_rows, n_panels = g->panel_to - g->panel_from;
    const bool is_chained = f->w_bytes == sizeof(uint16_t) * PANEL && n_rows < GROUP_ROWS;
    const struct cpu_streams plan = is_chained ? cpu_gemv_plan()->chained : cpu_gemv_plan()->plain;
    const int n_streams = plan.n_streams;
    int n_blocks = g->w->n_cols / f->block;
    int blocks_per_call = MAX(1, plan.bytes / (int)f->w_bytes);
    microkernel_fn microkernel = f->microkernel[n_rows];
    const uint8_t *x0[GROUP_ROWS], *x[GROUP_ROWS];
    struct panel_acc acc[CPU_MAX_STREAMS][GROUP_ROWS];
    int from[CPU_MAX_STREAMS + 1];

    if (f->max_blocks)
        blocks_per_call = MIN(blocks_per_call, f->max_blocks);
    if (f->block == 1)
        /* microkernel_bf16() needs an even number */
        blocks_per_call = MAX(2, blocks_per_call / 2 * 2);
    GEMM_SET(set_row_pointers)(g, 0, n_rows, x0);
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
                GEMM_SET(store_outputs)(g, from[s] + i, 0, n_rows, acc[s]);
    }
}

static void gemm(const struct gemm_args *g, const struct gemv_format *f)
{
    int n_blocks = g->w->n_cols / f->block;
    const uint8_t *x[GROUP_ROWS];
    struct panel_acc acc[GROUP_ROWS];

    for (int p = g->panel_from; p < g->panel_to; p++)
        for (int m = 0; m < g->x->n_rows; m += GROUP_ROWS) {
            int n = MIN(GROUP_ROWS, g->x->n_rows - m);
            GEMM_SET(set_row_pointers)(g, m, n, x);
            memset(acc, 0, sizeof(acc));
            f->microkernel[n](g->w->data + (size_t)p * g->w->panel_bytes, x, n_blocks, acc);
            GEMM_SET(store_outputs)(g, p, m, n, acc);
        }
}

/* GEMM that unpacks first and is faster from `from` rows on; gemm == NULL: there is none. */
struct unpacked_gemm {
    gemm_fn gemm;
    int from;
};

static void gemm_or_gemv(
    const struct gemm_args *g, const struct gemv_format *f, struct unpacked_gemm unpacked)
{
    if (unpacked.gemm && g->x->n_rows >= unpacked.from)
        unpacked.gemm(g);
    else if (g->x->n_rows > GROUP_ROWS)
        gemm(g, f);
    else if (g->x->n_rows > 0)
        GEMM_SET(gemv)(g, f);
}

/* ---- parts of microkernels */

/* Multiplies a quad of weights, both halves of the panel, with four bytes at q[m] + at of every
 * row. The weights stay in registers for all rows. */
INLINE void add_quad(
    int rows, __m256i w0, __m256i w1, const int8_t *const *q, int at, __m256i sums[GROUP_ROWS][2])
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        __m256i x = broadcast4(q[m] + at);
        sums[m][0] = dot_bytes(sums[m][0], w0, x);
        sums[m][1] = dot_bytes(sums[m][1], w1, x);
    }
}

INLINE void clear_sums(int rows, __m256i sums[GROUP_ROWS][2])
{
    UNROLL for (int m = 0; m < rows; m++) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
}

/* 32 elements in the nibble order of p16_q4_0 */
INLINE void add_nibbles(
    int rows, const uint8_t w[4][16][4], const int8_t *const *q, __m256i sums[GROUP_ROWS][2])
{
    const __m256i low = _mm256_set1_epi8(15);

    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i v0 = load_256(w[i][0]), v1 = load_256(w[i][8]);
        add_quad(rows, _mm256_and_si256(v0, low), _mm256_and_si256(v1, low), q, 4 * i, sums);
        v0 = _mm256_and_si256(_mm256_srli_epi16(v0, 4), low);
        v1 = _mm256_and_si256(_mm256_srli_epi16(v1, 4), low);
        add_quad(rows, v0, v1, q, 4 * i + 16, sums);
    }
}

/* ---- blocks of 32 */

/* One block of every row: its codes, and the initial or final value of its dot products. */
struct row_blocks {
    const int8_t *q[GROUP_ROWS];
    int32_t start[GROUP_ROWS];
    float d[GROUP_ROWS];
    __m256i sums[GROUP_ROWS][2];
};

/* offset: 8 or 128, to be subtracted from the weights */
INLINE void begin_blocks(
    struct row_blocks *r, int rows, int offset, const uint8_t *const *xp, int block)
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + block;
        r->q[m] = x->q;
        r->d[m] = x->d;
        r->start[m] = x->minus8 * (offset / 8);
        r->sums[m][0] = r->sums[m][1] = dot_init(r->start[m]);
    }
}

INLINE void add_block_dots(
    const struct row_blocks *r, int rows, const uint16_t d[16], struct panel_acc *out)
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256 dw = f16_to_f32_x8(d + 8 * half);
        UNROLL for (int m = 0; m < rows; m++) out[m].half[half] =
            fma_dot(out[m].half[half], dw, r->d[m], dot_widen(r->sums[m][half], r->start[m]));
    }
}

INLINE void microkernel_q4_0(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_q4_0 *p = (const void *)wp;
    struct row_blocks r;

    for (int b = 0; b < n; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        begin_blocks(&r, rows, 8, xp, b);
        add_nibbles(rows, p->q, r.q, r.sums);
        add_block_dots(&r, rows, p->d, out);
    }
}

#if BYTE_DOTS
INLINE void microkernel_q8_0(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_q8_0 *p = (const void *)wp;
    struct row_blocks r;

    for (int b = 0; b < n; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        begin_blocks(&r, rows, 128, xp, b);
        UNROLL for (int i = 0; i < 8; i++)
            add_quad(rows, load_256(p->q[i][0]), load_256(p->q[i][8]), r.q, 4 * i, r.sums);
        add_block_dots(&r, rows, p->d, out);
    }
}
#endif

/* ---- blocks of 256 */

/* One block of both halves of the panel. */
struct block_totals {
    struct sub_scales scales[2];
    __m256i sum[GROUP_ROWS][2];
};

/* acc + d * dx * sum - dmin * dx * (mins . sum32) */
INLINE __m256 fma_dot_min(
    __m256 acc, const uint16_t *d, const struct act_q8_k *x, __m256i sum, const __m256i min[4])
{
    __m256i mins = _mm256_setzero_si256();
    __m256 dx = _mm256_set1_ps(x->d);

    UNROLL for (int p = 0; p < 4; p++) mins = add_madd(mins, min[p], broadcast4(x->sum32 + 2 * p));
    acc = _mm256_fmadd_ps(_mm256_mul_ps(f16_to_f32_x8(d), dx), _mm256_cvtepi32_ps(sum), acc);
    return _mm256_fnmadd_ps(
        _mm256_mul_ps(f16_to_f32_x8(d + 16), dx), _mm256_cvtepi32_ps(mins), acc);
}

/* Sets q to the codes of every row, `at` bytes into a block. */
INLINE void set_code_pointers(
    int rows, const int8_t *q[GROUP_ROWS], const uint8_t *const *xp, int block, int at)
{
    UNROLL for (int m = 0; m < rows; m++) q[m] =
        ((const struct act_q8_k *)(const void *)xp[m] + block)->q + at;
}

INLINE void add_scaled_sums(int rows, __m256i totals[GROUP_ROWS][2], __m256i sums[GROUP_ROWS][2],
    __m256i scale0, __m256i scale1)
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        totals[m][0] = accumulate_scaled(totals[m][0], sums[m][0], scale0);
        totals[m][1] = accumulate_scaled(totals[m][1], sums[m][1], scale1);
    }
}

/* Ends a block of Q4_K or Q5_K: adds totals and minimums to the outputs. */
INLINE void add_block_dot_min(int rows, struct panel_acc *out, const uint16_t *d,
    const uint8_t *const *xp, int block, const struct block_totals *t)
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        UNROLL for (int m = 0; m < rows; m++) out[m].half[half] = fma_dot_min(out[m].half[half],
            d + 8 * half, (const struct act_q8_k *)(const void *)xp[m] + block, t->sum[m][half],
            t->scales[half].min);
    }
}

INLINE void microkernel_q4_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_q4_k *p = (const void *)wp;
    __m256i sums[GROUP_ROWS][2];
    const int8_t *q[GROUP_ROWS];
    struct block_totals t;

    for (int b = 0; b < n; b++, p++) {
        load_scales(&t.scales[0], p->scale_lo, p->scale_hi, 0);
        load_scales(&t.scales[1], p->scale_lo, p->scale_hi, 1);
        clear_sums(rows, t.sum);
        for (int j = 0; j < 8; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            set_code_pointers(rows, q, xp, b, 32 * j);
            clear_sums(rows, sums);
            add_nibbles(rows, p->q[j], q, sums);
            add_scaled_sums(rows, t.sum, sums, scale_of_pair(t.scales[0].scale[j / 2], j % 2),
                scale_of_pair(t.scales[1].scale[j / 2], j % 2));
        }
        add_block_dot_min(rows, out, p->d, xp, b, &t);
    }
}

/* Quad i of a sub-block of Q5_K; bit i of the plane is the fifth bit. */
INLINE __m256i q5_quad(const uint8_t w[4][16][4], const uint8_t plane[16][4], int i, int half)
{
    __m256i v = load_256(w[i % 4][8 * half]), fifth = load_256(plane[8 * half]);

    if (i >= 4)
        v = _mm256_srli_epi16(v, 4);
    fifth = i < 4 ? _mm256_slli_epi16(fifth, 4 - i) : _mm256_srli_epi16(fifth, i - 4);
    return _mm256_or_si256(
        _mm256_and_si256(v, _mm256_set1_epi8(15)), _mm256_and_si256(fifth, _mm256_set1_epi8(16)));
}

INLINE void microkernel_q5_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_q5_k *p = (const void *)wp;
    __m256i sums[GROUP_ROWS][2];
    const int8_t *q[GROUP_ROWS];
    struct block_totals t;

    for (int b = 0; b < n; b++, p++) {
        load_scales(&t.scales[0], p->scale_lo, p->scale_hi, 0);
        load_scales(&t.scales[1], p->scale_lo, p->scale_hi, 1);
        clear_sums(rows, t.sum);
        for (int j = 0; j < 8; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            set_code_pointers(rows, q, xp, b, 32 * j);
            __m256i scale0 = scale_of_pair(t.scales[0].scale[j / 2], j % 2);
            __m256i scale1 = scale_of_pair(t.scales[1].scale[j / 2], j % 2);
            UNROLL for (int part = 0; part < 8; part += Q5_QUADS)
            {
                clear_sums(rows, sums);
                UNROLL for (int i = part; i < part + Q5_QUADS; i++)
                    add_quad(rows, q5_quad(p->q[j], p->high[j], i, 0),
                        q5_quad(p->q[j], p->high[j], i, 1), q, 4 * i, sums);
                add_scaled_sums(rows, t.sum, sums, scale0, scale1);
            }
        }
        add_block_dot_min(rows, out, p->d, xp, b, &t);
    }
}

/* Quad i of a sub-block of Q6_K. */
INLINE __m256i q6_quad(const uint8_t low[2][16][4], const uint8_t high[16][4], int i, int half)
{
    __m256i v = load_256(low[i % 2][8 * half]), h = load_256(high[8 * half]);

    if (i >= 2)
        v = _mm256_srli_epi16(v, 4);
    if (i != 2)
        h = i < 2 ? _mm256_slli_epi16(h, 4 - 2 * i) : _mm256_srli_epi16(h, 2);
    return _mm256_or_si256(
        _mm256_and_si256(v, _mm256_set1_epi8(15)), _mm256_and_si256(h, _mm256_set1_epi8(0x30)));
}

/* -32 * (scales . sum16): corrects for the offset of the weights */
INLINE __m256i q6_offset(const struct p16_q6_k *p, const struct act_q8_k *x, int half)
{
    __m256i sum = _mm256_setzero_si256();

    UNROLL for (int i = 0; i < 8; i++)
    {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]);
        sum = add_madd(sum, _mm256_cvtepi8_epi16(bytes), broadcast4(x->sum16 + 2 * i));
    }
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, 5));
}

/* Scale j of eight rows, as scale_of_pair() returns it. */
INLINE __m256i q6_scale(const struct p16_q6_k *p, int j, int half)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p->scale[j / 2][8 * half]);

    return scale_of_pair(_mm256_cvtepi8_epi16(bytes), j % 2);
}

INLINE void microkernel_q6_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_q6_k *p = (const void *)wp;
    __m256i sums[GROUP_ROWS][2], totals[GROUP_ROWS][2];
    const int8_t *q[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++)
        {
            const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
            totals[m][0] = q6_offset(p, x, 0);
            totals[m][1] = q6_offset(p, x, 1);
        }
        for (int j = 0; j < 16; j++) {
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 16, sizeof(*p) / 16);
            set_code_pointers(rows, q, xp, b, 16 * j);
            __m256i scale0 = q6_scale(p, j, 0), scale1 = q6_scale(p, j, 1);
            UNROLL for (int part = 0; part < 4; part += Q6_QUADS)
            {
                clear_sums(rows, sums);
                UNROLL for (int i = part; i < part + Q6_QUADS; i++)
                    add_quad(rows, q6_quad(p->sub[j].low, p->sub[j].high, i, 0),
                        q6_quad(p->sub[j].low, p->sub[j].high, i, 1), q, 4 * i, sums);
                add_scaled_sums(rows, totals, sums, scale0, scale1);
            }
        }
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256 dw = f16_to_f32_x8(p->d + 8 * half);
            UNROLL for (int m = 0; m < rows; m++)
            {
                float dx = ((const struct act_q8_k *)(const void *)xp[m] + b)->d;
                out[m].half[half] = fma_dot(out[m].half[half], dw, dx, totals[m][half]);
            }
        }
    }
}

/* add_quad() that initialises the sums. */
INLINE void first_quad(
    int rows, __m256i w0, __m256i w1, const int8_t *const *q, __m256i sums[GROUP_ROWS][2])
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        __m256i x = broadcast4(q[m]);
        sums[m][0] = dot_first(w0, x);
        sums[m][1] = dot_first(w1, x);
    }
}

/* Adds pair i of factors of each half times the sums of activations of sub-blocks 2i, 2i + 1. */
INLINE void add_pair_sums(int rows, const __m256i pair[2], int i, const struct act_q8_k *const *x,
    __m256i sums[GROUP_ROWS][2])
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        __m256i both = broadcast4(x[m]->sum16 + 2 * i);
        sums[m][0] = add_madd(sums[m][0], pair[0], both);
        sums[m][1] = add_madd(sums[m][1], pair[1], both);
    }
}

INLINE void set_block_pointers(
    int rows, const struct act_q8_k *x[GROUP_ROWS], const uint8_t *const *xp, int block)
{
    UNROLL for (int m = 0; m < rows; m++) x[m] =
        (const struct act_q8_k *)(const void *)xp[m] + block;
}

/* Scales, and minimums in the upper four bits, of sub-blocks 2i and 2i + 1, as pairs of int16. */
INLINE __m256i q2_pair(const struct p16_q2_k *p, int i, int half)
{
    return _mm256_cvtepu8_epi16(
        _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]));
}

INLINE void microkernel_q2_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_q2_k *p = (const void *)wp;
    __m256i sums[GROUP_ROWS][2], totals[GROUP_ROWS][2], mins[GROUP_ROWS][2];
    const struct act_q8_k *x[GROUP_ROWS];
    const int8_t *q[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        set_block_pointers(rows, x, xp, b);
        clear_sums(rows, totals);
        clear_sums(rows, mins);
        for (int j = 0; j < 8; j++) {
            __m256i pair[2] = { q2_pair(p, j, 0), q2_pair(p, j, 1) };
            const __m256i min[2] = { _mm256_srli_epi16(pair[0], 4), _mm256_srli_epi16(pair[1], 4) };
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            add_pair_sums(rows, min, j, x, mins);
            UNROLL for (int h = 0; h < 2; h++) pair[h] =
                _mm256_and_si256(pair[h], _mm256_set1_epi16(15));
            UNROLL for (int s = 0; s < 2; s++)
            {
                set_code_pointers(rows, q, xp, b, 32 * j + 16 * s);
                const uint8_t(*w)[4] = p->q[2 * j + s];
                first_quad(rows, q2_quad(w, 0, 0), q2_quad(w, 0, 1), q, sums);
                UNROLL for (int i = 1; i < 4; i++)
                    add_quad(rows, q2_quad(w, i, 0), q2_quad(w, i, 1), q, 4 * i, sums);
                add_scaled_sums(
                    rows, totals, sums, scale_of_pair(pair[0], s), scale_of_pair(pair[1], s));
            }
        }
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256 dw = f16_to_f32_x8(p->d + 8 * half), dmin = f16_to_f32_x8(p->dmin + 8 * half);
            UNROLL for (int m = 0; m < rows; m++)
            {
                __m256 sum = fma_dot(out[m].half[half], dw, x[m]->d, totals[m][half]);
                out[m].half[half] = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, _mm256_set1_ps(x[m]->d)),
                    _mm256_cvtepi32_ps(mins[m][half]), sum);
            }
        }
    }
}

INLINE __m256i q3_pair(const struct p16_q3_k *p, int i, int half)
{
    return _mm256_cvtepi8_epi16(
        _mm_loadu_si128((const __m128i *)(const void *)p->scale[i][8 * half]));
}

INLINE void microkernel_q3_k(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const struct p16_q3_k *p = (const void *)wp;
    /* offsets: scales . sums of activations, to be multiplied by the offset of the weights */
    __m256i sums[GROUP_ROWS][2], totals[GROUP_ROWS][2], offsets[GROUP_ROWS][2];
    const struct act_q8_k *x[GROUP_ROWS];
    const int8_t *q[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        set_block_pointers(rows, x, xp, b);
        clear_sums(rows, totals);
        clear_sums(rows, offsets);
        for (int j = 0; j < 8; j++) {
            const __m256i pair[2] = { q3_pair(p, j, 0), q3_pair(p, j, 1) };
            prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            add_pair_sums(rows, pair, j, x, offsets);
            UNROLL for (int s = 0; s < 2; s++)
            {
                set_code_pointers(rows, q, xp, b, 32 * j + 16 * s);
                first_quad(rows, q3_quad(p->q[j], 4 * s, 0), q3_quad(p->q[j], 4 * s, 1), q, sums);
                UNROLL for (int i = 1; i < 4; i++)
                {
                    __m256i w0 = q3_quad(p->q[j], 4 * s + i, 0);
                    add_quad(rows, w0, q3_quad(p->q[j], 4 * s + i, 1), q, 4 * i, sums);
                }
                add_scaled_sums(
                    rows, totals, sums, scale_of_pair(pair[0], s), scale_of_pair(pair[1], s));
            }
        }
        UNROLL for (int half = 0; half < 2; half++)
        {
            __m256 dw = f16_to_f32_x8(p->d + 8 * half);
            UNROLL for (int m = 0; m < rows; m++)
            {
                __m256i sum =
                    _mm256_sub_epi32(totals[m][half], _mm256_slli_epi32(offsets[m][half], 2));
                out[m].half[half] = fma_dot(out[m].half[half], dw, x[m]->d, sum);
            }
        }
    }
}

/* ---- float weights; n counts single k */

INLINE void fma_rows(
    int rows, struct panel_acc *acc, __m256 low, __m256 high, const uint8_t *const *xp, int k)
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        __m256 x = _mm256_set1_ps(((const float *)(const void *)xp[m])[k]);
        acc[m].half[0] = _mm256_fmadd_ps(low, x, acc[m].half[0]);
        acc[m].half[1] = _mm256_fmadd_ps(high, x, acc[m].half[1]);
    }
}

INLINE void microkernel_f32(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const float *w = (const float *)(const void *)wp;
    struct panel_acc acc[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++, w += 16) {
        prefetch_ahead((const uint8_t *)w, 64);
        fma_rows(rows, acc, _mm256_loadu_ps(w), _mm256_loadu_ps(w + 8), xp, k);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

INLINE void microkernel_f16(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const uint16_t *w = (const uint16_t *)(const void *)wp;
    struct panel_acc acc[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++, w += 16) {
        if (k % 2 == 0)
            prefetch_ahead((const uint8_t *)w, 64);
        fma_rows(rows, acc, f16_to_f32_x8(w), f16_to_f32_x8(w + 8), xp, k);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* Each call begins at an even k, since all previous calls had an even n. */
INLINE void microkernel_bf16(
    int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    struct panel_acc acc[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k += 2) {
        const uint8_t *w = wp + (size_t)k * 32;
        prefetch_ahead(w, 64);
        __m256i low = load_256(w), high = load_256(w + 32);
        fma_rows(rows, acc, _mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(high, 16)), xp, k);
        if (k + 1 == n)
            break;
        fma_rows(rows, acc, _mm256_castsi256_ps(_mm256_and_si256(low, upper)),
            _mm256_castsi256_ps(_mm256_and_si256(high, upper)), xp, k + 1);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* Eight E4M3 numbers: an f16 with the same exponent bits is 2^-8 times the number, also a subnormal
 * one. */
INLINE __m256 e4m3_to_f32_x8(const uint8_t q[8])
{
    __m128i v = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)q));
    __m128i rest = _mm_and_si128(v, _mm_set1_epi16(0x7f));
    __m128i nan = _mm_cmpeq_epi16(rest, _mm_set1_epi16(0x7f));
    __m128i sign = _mm_slli_epi16(_mm_xor_si128(v, rest), 8);
    __m128i half = _mm_or_si128(_mm_or_si128(sign, _mm_slli_epi16(rest, 7)), nan);

    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256));
}

/* e8m0_to_f32 of eight bytes */
INLINE __m256 e8m0_to_f32_x8(const uint8_t e[8])
{
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)e));
    __m256i zero = _mm256_cmpeq_epi32(v, _mm256_setzero_si256());

    return _mm256_castsi256_ps(_mm256_or_si256(
        _mm256_slli_epi32(v, 23), _mm256_and_si256(zero, _mm256_set1_epi32(0x00400000))));
}

/* Blocks of E4M3 numbers with one scale; n counts blocks. */
#define MICROKERNEL_FP8(type, load_scales, at)                                                     \
    INLINE void microkernel_##type(                                                                \
        int rows, const uint8_t *wp, const uint8_t *const *xp, int n, struct panel_acc *out)       \
    {                                                                                              \
        const struct p16_##type *p = (const void *)wp;                                             \
        const int block = (int)ARRAY_LEN(p->q);                                                    \
        struct panel_acc acc[GROUP_ROWS];                                                          \
                                                                                                   \
        UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];                                     \
        for (int b = 0; b < n; b++, p++) {                                                         \
            prefetch_ahead((const uint8_t *)p, sizeof(*p));                                        \
            __m256 low = load_scales(p->at), high = load_scales(p->at + 8);                        \
            for (int i = 0; i < block; i++)                                                        \
                fma_rows(rows, acc, _mm256_mul_ps(e4m3_to_f32_x8(p->q[i]), low),                   \
                    _mm256_mul_ps(e4m3_to_f32_x8(p->q[i] + 8), high), xp, block *b + i);           \
        }                                                                                          \
        UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];                                     \
    }
MICROKERNEL_FP8(fp8_32, _mm256_loadu_ps, d)
MICROKERNEL_FP8(fp8_128, _mm256_loadu_ps, d)
MICROKERNEL_FP8(mxfp8, e8m0_to_f32_x8, e)

/* ---- one function per type and number of rows, one table per type, one entry per type */

#define MICROKERNEL(type, rows)                                                                    \
    static void type##_##rows(                                                                     \
        const uint8_t *w, const uint8_t *const *x, int n, struct panel_acc *acc)                   \
    {                                                                                              \
        microkernel_##type(rows, w, x, n, acc);                                                    \
    }

#define GEMM(type, block, w_bytes, x_bytes, ...)                                                   \
    MICROKERNEL(type, 1)                                                                           \
    MICROKERNEL(type, 2)                                                                           \
    MICROKERNEL(type, 3)                                                                           \
    MICROKERNEL(type, 4)                                                                           \
    void GEMM_SET(gemm_##type)(const struct gemm_args *g)                                          \
    {                                                                                              \
        static const struct gemv_format f = { { NULL, type##_1, type##_2, type##_3, type##_4 },    \
            block, w_bytes, x_bytes, 0 };                                                          \
        gemm_or_gemv(g, &f, (struct unpacked_gemm){ __VA_ARGS__ });                                \
    }

GEMM(f32, 1, 64, 4, NULL, 0)
GEMM(f16, 1, 32, 4, NULL, 0)
GEMM(bf16, 1, 32, 4, NULL, 0)
GEMM(fp8_32, 32, sizeof(struct p16_fp8_32), 32 * sizeof(float), NULL, 0)
GEMM(fp8_128, 128, sizeof(struct p16_fp8_128), 128 * sizeof(float), NULL, 0)
GEMM(mxfp8, 32, sizeof(struct p16_mxfp8), 32 * sizeof(float), NULL, 0)
#if BYTE_DOTS
GEMM(q8_0, 32, sizeof(struct p16_q8_0), sizeof(struct act_q8_0), GEMM_SET(gemm_unpacked_q8_0), 32)
#endif
GEMM(q4_0, 32, sizeof(struct p16_q4_0), sizeof(struct act_q8_0), GEMM_SET(gemm_unpacked_q4_0), 32)
GEMM(q4_k, 256, sizeof(struct p16_q4_k), sizeof(struct act_q8_k), GEMM_SET(gemm_unpacked_q4_k), 24)
GEMM(q5_k, 256, sizeof(struct p16_q5_k), sizeof(struct act_q8_k), GEMM_SET(gemm_unpacked_q5_k), 16)
GEMM(q6_k, 256, sizeof(struct p16_q6_k), sizeof(struct act_q8_k), GEMM_SET(gemm_unpacked_q6_k), 16)
GEMM(q2_k, 256, sizeof(struct p16_q2_k), sizeof(struct act_q8_k), GEMM_SET(gemm_unpacked_q2_k), 5)
GEMM(q3_k, 256, sizeof(struct p16_q3_k), sizeof(struct act_q8_k), GEMM_SET(gemm_unpacked_q3_k), 5)
