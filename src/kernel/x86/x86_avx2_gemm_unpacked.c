/* x86_avx2_gemm_unpacked.c: GEMM with quantised weights that are unpacked first, and GEMV for the
 * same types, without VNNI or, compiled by x86_avxvnni_gemm_unpacked.c, with it.
 *
 * A K block of 256 k of a panel is unpacked to bytes and multiplied with groups of four rows, so
 * that the instructions for unpacking run once per CHUNK_ROWS rows. x86_avx2_gemm.c documents how
 * many products of bytes may be added before they are widened; here also
 *
 *   MXFP4   24 * 127 * 2 = 6096, x 5 fits
 *   AFFINE8 see multiply_32_bytes() */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "base/half.h"
#include "kernel/x86/x86_avx2_gemm_unpacked.h"

enum {
    CHUNK_ROWS = 256, /* activation rows that use an unpacked K block */
    PASS_PANELS = 2,  /* panels unpacked per pass */
};

/* ---- drivers */

/* On the stack, since a step allocates nothing. */
struct gemm_scratch {
    struct panel_acc acc[PASS_PANELS][CHUNK_ROWS];
    struct unpacked_kblock u[PASS_PANELS];
};

/* Multiplies rows m0 .. m0 + CHUNK_ROWS - 1 with n_panels panels from `panel` on. */
static void multiply_chunk(const struct gemm_args *g, const struct unpacked_format *f,
    struct gemm_scratch *k, int panel, int n_panels, int m0)
{
    int n_blocks = g->w->n_cols / f->gemv_format.block,
        blocks_per_kblock = KBLOCK / f->gemv_format.block;
    int n = MIN(CHUNK_ROWS, g->x->n_rows - m0);
    const uint8_t *x[GROUP_ROWS];

    for (int i = 0; i < n_panels; i++)
        memset(k->acc[i], 0, (size_t)n * sizeof(k->acc[i][0]));
    for (int b = 0; b < n_blocks; b += blocks_per_kblock) {
        int n_here = MIN(blocks_per_kblock, n_blocks - b);
        for (int i = 0; i < n_panels; i++)
            f->unpack(&k->u[i],
                g->w->data + (size_t)(panel + i) * g->w->panel_bytes +
                    (size_t)b * f->gemv_format.w_bytes,
                n_here);
        for (int m = 0; m < n; m += GROUP_ROWS) {
            int rows = MIN(GROUP_ROWS, n - m);
            for (int r = 0; r < rows; r++)
                x[r] = acts_row(g->x, m0 + m + r) + (size_t)b * f->gemv_format.x_bytes;
            for (int i = 0; i < n_panels; i++)
                f->multiply[rows](&k->u[i], x, n_here, k->acc[i] + m);
        }
    }
    for (int i = 0; i < n_panels; i++)
        GEMM_SET(store_outputs)(g, panel + i, m0, n, k->acc[i]);
}

void GEMM_SET(gemm_with_unpacking)(const struct gemm_args *g, const struct unpacked_format *f)
{
    struct gemm_scratch k;

    if (g->x->n_rows > GROUP_ROWS)
        for (int m = 0; m < g->x->n_rows; m += CHUNK_ROWS)
            for (int p = g->panel_from; p < g->panel_to; p += PASS_PANELS)
                multiply_chunk(g, f, &k, p, MIN(PASS_PANELS, g->panel_to - p), m);
    else if (g->x->n_rows > 0)
        GEMM_SET(gemv)(g, &f->gemv_format);
}

/* ---- unpacking */

INLINE __m256i low4(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

INLINE __m256i high4(__m256i v)
{
    return low4(_mm256_srli_epi16(v, 4));
}

/* 32 elements in the nibble order of p16_q4_0, to eight quads */
INLINE void put_nibbles(uint8_t (*to)[64], const uint8_t q[4][16][4])
{
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = load_256(q[i][8 * half]);
        put_half(to[i], half, low4(v));
        put_half(to[i + 4], half, high4(v));
    }
}

/* the same with fifth bits: bit i of the plane belongs to quad i */
INLINE void put_five_bits(uint8_t (*to)[64], const uint8_t q[4][16][4], const uint8_t plane[16][4])
{
    const __m256i bit4 = _mm256_set1_epi8(16);

    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i fifth = load_256(plane[8 * half]);
        UNROLL for (int i = 0; i < 4; i++)
        {
            __m256i v = load_256(q[i][8 * half]);
            __m256i a = _mm256_slli_epi16(fifth, 4 - i);
            __m256i b = i ? _mm256_srli_epi16(fifth, i) : fifth;
            put_half(to[i], half, _mm256_or_si256(low4(v), _mm256_and_si256(a, bit4)));
            put_half(to[i + 4], half, _mm256_or_si256(high4(v), _mm256_and_si256(b, bit4)));
        }
    }
}

/* Loads a codebook and adds an offset that makes its entries unsigned. */
INLINE __m128i load_codebook(const int8_t codebook[16], int offset)
{
    return _mm_add_epi8(
        _mm_loadu_si128((const __m128i *)(const void *)codebook), _mm_set1_epi8((char)offset));
}

static const int8_t mxfp4_codebook[16] = { MXFP4_CODEBOOK };

/* Looks up the codebook entries of nibbles in the order of p16_q4_0, to eight quads. */
INLINE void put_codebook(uint8_t (*to)[64], __m128i codebook, const uint8_t q[4][16][4])
{
    __m256i both = _mm256_broadcastsi128_si256(codebook);

    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = load_256(q[i][8 * half]);
        put_half(to[i], half, _mm256_shuffle_epi8(both, low4(v)));
        put_half(to[i + 4], half, _mm256_shuffle_epi8(both, high4(v)));
    }
}

#if BYTE_DOTS
static void unpack_q8_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q8_0 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        memcpy(u->q[8 * b], p->q, sizeof(p->q));
        put_f16_scales(u->d[b], p->d);
    }
}
#endif

static void unpack_q4_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_0 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        put_nibbles(u->q + 8 * b, p->q);
        put_f16_scales(u->d[b], p->d);
    }
}

static void unpack_q4_1(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_1 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        put_nibbles(u->q + 8 * b, p->q);
        put_f16_scales(u->d[b], p->d);
        put_f16_scales(u->m[b], p->m);
    }
}

static void unpack_q5_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_0 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        put_five_bits(u->q + 8 * b, p->q, p->high);
        put_f16_scales(u->d[b], p->d);
    }
}

static void unpack_q5_1(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_1 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        put_five_bits(u->q + 8 * b, p->q, p->high);
        put_f16_scales(u->d[b], p->d);
        put_f16_scales(u->m[b], p->m);
    }
}

/* e8m0_half of eight bytes */
INLINE __m256 e8m0_half8(const uint8_t *e)
{
    const __m256i one = _mm256_set1_epi32(1);
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)e));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(v, one), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), v);

    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(v, one)));
}

static void unpack_mxfp4(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_mxfp4 *p = (const void *)w;
    __m128i codebook = load_codebook(mxfp4_codebook, MXFP4_OFFSET);

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        put_codebook(u->q + 8 * b, codebook, p->q);
        u->d[b][0] = e8m0_half8(p->e);
        u->d[b][1] = e8m0_half8(p->e + 8);
    }
}

/* Each block of 128 becomes four blocks of 32; codes are 0 or 2. */
static void unpack_q1_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q1_0 *p = (const void *)w;
    const __m256i bit1 = _mm256_set1_epi8(2);

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        for (int j = 4 * b; j < 4 * b + 4; j++) {
            UNROLL for (int half = 0; half < 2; half++)
            {
                __m256i v = load_256(p->q[j % 4][8 * half]);
                UNROLL for (int i = 0; i < 8; i++)
                {
                    __m256i at1 = i == 0 ? _mm256_slli_epi16(v, 1) : _mm256_srli_epi16(v, i - 1);
                    put_half(u->q[8 * j + i], half, _mm256_and_si256(at1, bit1));
                }
            }
            put_f16_scales(u->d[j], p->d);
        }
    }
}

/* Each block of 64 becomes two blocks of 32. */
static void unpack_q2_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q2_0 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        UNROLL for (int i = 0; i < 16; i++) UNROLL for (int half = 0; half < 2; half++)
            put_half(u->q[16 * b + i], half, q2_quad(p->q[i / 4], i % 4, half));
        put_f16_scales(u->d[2 * b], p->d);
        put_f16_scales(u->d[2 * b + 1], p->d);
    }
}

static void put_ue4m3_scales(__m256 to[2], const uint8_t e[16])
{
    float d[16];

    for (int r = 0; r < 16; r++)
        d[r] = ue4m3_half(e[r]);
    to[0] = _mm256_loadu_ps(d);
    to[1] = _mm256_loadu_ps(d + 8);
}

/* Each block of 64 becomes two blocks of 32, whose second 16 elements have their scale in m. */
static void unpack_nvfp4(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_nvfp4 *p = (const void *)w;
    __m128i codebook = load_codebook(mxfp4_codebook, MXFP4_OFFSET);

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        for (int j = 0; j < 2; j++) {
            put_codebook(u->q + 16 * b + 8 * j, codebook, p->q[j]);
            put_ue4m3_scales(u->d[2 * b + j], p->e[2 * j]);
            put_ue4m3_scales(u->m[2 * b + j], p->e[2 * j + 1]);
        }
    }
}

INLINE void put_f32_scales(__m256 to[2], const float d[16])
{
    to[0] = _mm256_loadu_ps(d);
    to[1] = _mm256_loadu_ps(d + 8);
}

INLINE void put_bytes(uint8_t (*to)[64], const uint8_t q[8][16][4])
{
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int half = 0; half < 2; half++)
        put_half(to[i], half, load_256(q[i][8 * half]));
}

/* Scales and minimums of a Q4_K or Q5_K block. */
INLINE void put_scales_k4(struct unpacked_kblock *u, const uint8_t lo[4][16][2],
    const uint8_t hi[2][16][2], const uint16_t *d)
{
    struct sub_scales s;

    UNROLL for (int half = 0; half < 2; half++)
    {
        load_scales(&s, lo, hi, half);
        UNROLL for (int j = 0; j < 8; j++) u->scale[j][half] = scale_of_pair(s.scale[j / 2], j % 2);
        UNROLL for (int p = 0; p < 4; p++) u->pair[p][half] = s.min[p];
    }
    put_f16_scales(u->d[0], d);
    put_f16_scales(u->d[1], d + 16);
}

static void unpack_q4_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_k *p = (const void *)w;

    prefetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 8; j++)
        put_nibbles(u->q + 8 * j, p->q[j]);
    put_scales_k4(u, p->scale_lo, p->scale_hi, p->d);
}

static void unpack_q5_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_k *p = (const void *)w;

    prefetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 8; j++)
        put_five_bits(u->q + 8 * j, p->q[j], p->high[j]);
    put_scales_k4(u, p->scale_lo, p->scale_hi, p->d);
}

/* Signed scales of sub-blocks 2i and 2i + 1. */
INLINE void put_signed_scales(struct unpacked_kblock *u, int i, const int8_t scale[16][2])
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        u->pair[i][half] =
            _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)scale[8 * half]));
        put_scale_pair(u, i, half, u->pair[i][half]);
    }
}

static void unpack_q6_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q6_k *p = (const void *)w;
    const __m256i bits45 = _mm256_set1_epi8(0x30);

    prefetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 16; j++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            uint8_t(*to)[64] = u->q + 4 * j;
            __m256i a = load_256(p->sub[j].low[0][8 * half]),
                    b = load_256(p->sub[j].low[1][8 * half]);
            __m256i h = load_256(p->sub[j].high[8 * half]);
            __m256i h0 = _mm256_and_si256(_mm256_slli_epi16(h, 4), bits45);
            __m256i h1 = _mm256_and_si256(_mm256_slli_epi16(h, 2), bits45);
            __m256i h2 = _mm256_and_si256(h, bits45);
            __m256i h3 = _mm256_and_si256(_mm256_srli_epi16(h, 2), bits45);
            put_half(to[0], half, _mm256_or_si256(low4(a), h0));
            put_half(to[1], half, _mm256_or_si256(low4(b), h1));
            put_half(to[2], half, _mm256_or_si256(high4(a), h2));
            put_half(to[3], half, _mm256_or_si256(high4(b), h3));
        }
    for (int i = 0; i < 8; i++)
        put_signed_scales(u, i, p->scale[i]);
    put_f16_scales(u->d[0], p->d);
}

/* A block of 64 becomes two blocks of 32. */
#define UNPACK_AFFINE(name, put_codes)                                                             \
    static void unpack_##name(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)           \
    {                                                                                              \
        const struct p16_##name *p = (const void *)w;                                              \
        const int parts = (int)ARRAY_LEN(p->q);                                                    \
                                                                                                   \
        for (int b = 0; b < n_blocks; b++, p++) {                                                  \
            prefetch_ahead((const uint8_t *)p, sizeof(*p));                                        \
            for (int i = 0; i < parts; i++) {                                                      \
                put_codes(u->q + 8 * (parts * b + i), p->q[i]);                                    \
                put_f32_scales(u->d[parts * b + i], p->d);                                         \
                put_f32_scales(u->m[parts * b + i], p->m);                                         \
            }                                                                                      \
        }                                                                                          \
    }
UNPACK_AFFINE(affine4_32, put_nibbles)
UNPACK_AFFINE(affine4_64, put_nibbles)
UNPACK_AFFINE(affine8_32, put_bytes)
UNPACK_AFFINE(affine8_64, put_bytes)

INLINE void put_codes2(uint8_t (*to)[64], const uint8_t q[2][16][4])
{
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int half = 0; half < 2; half++)
        put_half(to[i], half, q2_quad(q[i / 4], i % 4, half));
}

INLINE void put_codes3(uint8_t (*to)[64], const uint8_t q[3][16][4])
{
    const __m256i bit2 = _mm256_set1_epi8(4);

    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i high = load_256(q[2][8 * half]);
        UNROLL for (int i = 0; i < 8; i++)
        {
            __m256i at2 = i < 2 ? _mm256_slli_epi16(high, 2 - i) : _mm256_srli_epi16(high, i - 2);
            put_half(to[i], half,
                _mm256_or_si256(q2_quad(q[i / 4], i % 4, half), _mm256_and_si256(at2, bit2)));
        }
    }
}

INLINE void put_codes5(uint8_t (*to)[64], const uint8_t q[5][16][4])
{
    put_five_bits(to, q, q[4]);
}

INLINE void put_codes6(uint8_t (*to)[64], const uint8_t q[6][16][4])
{
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = load_256(q[i % 4][8 * half]);
        __m256i high = _mm256_slli_epi16(q2_quad(q[4 + i / 4], i % 4, half), 4);
        put_half(to[i], half, _mm256_or_si256(i < 4 ? low4(v) : high4(v), high));
    }
}

UNPACK_AFFINE(affine2_32, put_codes2)
UNPACK_AFFINE(affine2_64, put_codes2)
UNPACK_AFFINE(affine3_32, put_codes3)
UNPACK_AFFINE(affine3_64, put_codes3)
UNPACK_AFFINE(affine5_32, put_codes5)
UNPACK_AFFINE(affine5_64, put_codes5)
UNPACK_AFFINE(affine6_32, put_codes6)
UNPACK_AFFINE(affine6_64, put_codes6)

#if BYTE_DOTS
static const int8_t iq4_codebook[16] = { IQ4_CODEBOOK };

static void unpack_iq4_nl(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_nl *p = (const void *)w;
    __m128i codebook = load_codebook(iq4_codebook, IQ4_OFFSET);

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        put_codebook(u->q + 8 * b, codebook, p->q);
        put_f16_scales(u->d[b], p->d);
    }
}

static void unpack_iq4_xs(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_xs *p = (const void *)w;
    __m128i codebook = load_codebook(iq4_codebook, IQ4_OFFSET);

    prefetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 8; j++)
        put_codebook(u->q + 8 * j, codebook, p->q[j]);
    for (int i = 0; i < 4; i++)
        put_signed_scales(u, i, p->scale[i]);
    put_f16_scales(u->d[0], p->d);
}
#endif

/* ---- dot products with blocks of 32 */

/* -offset * sum of q: initial value of a dot product */
INLINE __m256i dot_start_32(int offset, const struct act_q8_0 *x)
{
    if (offset == 0)
        return _mm256_setzero_si256();
    __m256i v = _mm256_set1_epi32(x->minus8);
    if (offset == 1)
        return _mm256_srai_epi32(v, 3);
    if (offset == MXFP4_OFFSET)
        return _mm256_add_epi32(v, _mm256_srai_epi32(v, 1));
    return offset == 8 ? v : _mm256_slli_epi32(v, offset == 16 ? 1 : 4);
}

/* acc + m * dx * (sum of q) */
INLINE __m256 fma_min(__m256 acc, __m256 m, const struct act_q8_0 *x)
{
    __m256 sum = _mm256_set1_ps((float)(x->minus8 / -8));

    return _mm256_fmadd_ps(_mm256_mul_ps(m, _mm256_set1_ps(x->d)), sum, acc);
}

INLINE void multiply_32(const struct type_traits k, int rows, const struct unpacked_kblock *u,
    const uint8_t *const *xp, int n, struct panel_acc *acc)
{
    const __m256i one = _mm256_set1_epi16(1);
    struct sub_block s = { .scale = { one, one } }; /* unused with VNNI */
    const struct act_q8_0 *x[GROUP_ROWS];
    row_sums total;

    for (int h = 0; h < 2; h += k.halves)
        for (int b = 0; b < n; b++) {
            UNROLL for (int m = 0; m < rows; m++)
            {
                x[m] = (const struct act_q8_0 *)(const void *)xp[m] + b;
                s.q[m] = x[m]->q;
                UNROLL for (int i = 0; i < k.halves; i++) total[m][i] =
                    dot_start_32(k.offset, x[m]);
            }
            s.w = u->q[8 * b] + 32 * h;
            if (BYTE_DOTS)
                add_quads(k.halves, rows, &s, 0, k.sub_quads, total);
            else
                add_sub_block(k, rows, &s, total);
            UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = h; i < h + k.halves; i++)
            {
                __m256 sum = fma_dot(acc[m].half[i], u->d[b][i], x[m]->d, total[m][i - h]);
                acc[m].half[i] = k.has_mins ? fma_min(sum, u->m[b][i], x[m]) : sum;
            }
        }
}

#if !BYTE_DOTS
/* Weights of 0 to 255, whose products do not fit: w = 2 * (w / 2) + w % 2. The products of w / 2
 * are widened after every quad (127 * 127 * 2 = 32258), those of w % 2 after eight. */
INLINE void multiply_32_bytes(const struct type_traits k, int rows, const struct unpacked_kblock *u,
    const uint8_t *const *xp, int n, struct panel_acc *acc)
{
    const __m256i one = _mm256_set1_epi16(1), two = _mm256_set1_epi16(2);
    const __m256i seven_bits = _mm256_set1_epi8(127), one_bit = _mm256_set1_epi8(1);

    for (int h = 0; h < 2; h++)
        for (int b = 0; b < n; b++) {
            const struct act_q8_0 *x[GROUP_ROWS];
            __m256i total[GROUP_ROWS], odd[GROUP_ROWS];
            UNROLL for (int m = 0; m < rows; m++)
            {
                x[m] = (const struct act_q8_0 *)(const void *)xp[m] + b;
                total[m] = odd[m] = _mm256_setzero_si256();
            }
            UNROLL for (int i = 0; i < 8; i++)
            {
                __m256i w = load_256(u->q[8 * b + i] + 32 * h);
                __m256i upper = _mm256_and_si256(_mm256_srli_epi16(w, 1), seven_bits);
                __m256i lower = _mm256_and_si256(w, one_bit);
                UNROLL for (int m = 0; m < rows; m++)
                {
                    __m256i q = broadcast4(x[m]->q + 4 * i);
                    total[m] = add_madd(total[m], _mm256_maddubs_epi16(upper, q), two);
                    odd[m] = _mm256_add_epi16(odd[m], _mm256_maddubs_epi16(lower, q));
                }
            }
            UNROLL for (int m = 0; m < rows; m++)
            {
                __m256i sum = add_madd(total[m], odd[m], one);
                acc[m].half[h] =
                    fma_min(fma_dot(acc[m].half[h], u->d[b][h], x[m]->d, sum), u->m[b][h], x[m]);
            }
        }
}
#endif

/* NVFP4: a scale per 16 elements. There are no sums of 16 activations in a block, so the products
 * with the offset are computed here. */
INLINE void multiply_16(const struct type_traits k, int rows, const struct unpacked_kblock *u,
    const uint8_t *const *xp, int n, struct panel_acc *acc)
{
    const __m256i offset = _mm256_set1_epi8((char)k.offset);

    for (int s = 0; s < 2 * n; s++) {
        const __m256 *d = s % 2 ? u->m[s / 2] : u->d[s / 2];
        UNROLL for (int m = 0; m < rows; m++)
        {
            const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + s / 2;
            __m256i sums[2] = { dot_init(0), dot_init(0) }, offsets = dot_init(0);
            UNROLL for (int i = 0; i < 4; i++)
            {
                __m256i q = broadcast4(x->q + s % 2 * 16 + 4 * i);
                offsets = dot_bytes(offsets, offset, q);
                UNROLL for (int h = 0; h < 2; h++) sums[h] =
                    dot_bytes(sums[h], load_256(u->q[4 * s + i] + 32 * h), q);
            }
            offsets = dot_widen(offsets, 0);
            UNROLL for (int h = 0; h < 2; h++)
            {
                __m256i sum = _mm256_sub_epi32(dot_widen(sums[h], 0), offsets);
                acc[m].half[h] = fma_dot(acc[m].half[h], d[h], x->d, sum);
            }
        }
    }
}

/* ---- dot products with blocks of 256 */

/* -offset * (scales . sums of q) */
INLINE __m256i dot_start_256(
    const struct type_traits k, const struct unpacked_kblock *u, int half, const struct act_q8_k *x)
{
    if (k.offset == 0 || BYTE_DOTS)
        return _mm256_setzero_si256();
    __m256i sum =
        k.sub_quads == 4 ? pairs_dot(u, half, x->sum16, 8) : pairs_dot(u, half, x->sum32, 4);
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, k.offset == 32 ? 5 : 7));
}

/* The same with VNNI: -offset * sum of q for each sub-block. */
INLINE void sub_block_starts(const struct type_traits k, const struct act_q8_k *x, int32_t out[16])
{
    const int16_t *of = k.sub_quads == 4 ? x->sum16 : x->sum32;

    if (k.offset == 0 || !BYTE_DOTS)
        return;
    for (int i = 0; i < KBLOCK / 4 / k.sub_quads; i += 8) {
        __m256i v = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(of + i)));
        v = _mm256_slli_epi32(v, k.offset == 32 ? 5 : 7);
        _mm256_storeu_si256(
            (__m256i *)(void *)(out + i), _mm256_sub_epi32(_mm256_setzero_si256(), v));
    }
}

INLINE void multiply_256(const struct type_traits k, int rows, const struct unpacked_kblock *u,
    const uint8_t *const *xp, int n, struct panel_acc *acc)
{
    const struct act_q8_k *x[GROUP_ROWS];
    int32_t start[GROUP_ROWS][16];
    struct sub_block s;
    row_sums total;

    UNROLL for (int m = 0; m < rows; m++)
    {
        x[m] = (const struct act_q8_k *)(const void *)xp[m];
        sub_block_starts(k, x[m], start[m]);
    }
    for (int h = 0; h < 2; h += k.halves) {
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = 0; i < k.halves; i++)
            total[m][i] = dot_start_256(k, u, h + i, x[m]);
        for (int j = 0; j < KBLOCK / 4 / k.sub_quads; j++) {
            UNROLL for (int i = 0; i < k.halves; i++) s.scale[i] = u->scale[j][h + i];
            UNROLL for (int m = 0; m < rows; m++)
            {
                s.q[m] = x[m]->q + 4 * k.sub_quads * j;
                s.start[m] = k.offset && BYTE_DOTS ? start[m][j] : 0;
            }
            s.w = u->q[k.sub_quads * j] + 32 * h;
            add_sub_block(k, rows, &s, total);
        }
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = h; i < h + k.halves; i++)
        {
            __m256 sum = fma_dot(acc[m].half[i], u->d[0][i], x[m]->d, total[m][i - h]);
            if (k.has_mins)
                sum = _mm256_fnmadd_ps(_mm256_mul_ps(u->d[1][i], _mm256_set1_ps(x[m]->d)),
                    _mm256_cvtepi32_ps(pairs_dot(u, i, x[m]->sum32, 4)), sum);
            acc[m].half[i] = sum;
        }
    }
}

/* ---- two functions per type and number of rows, one entry per type */

/* Activation blocks per block of weights. */
#define ACT_BLOCKS(block) ((block) == KBLOCK ? 1 : (block) / QK_SMALL)

#define ROWS(type, multiply_type, block, rows, ...)                                                \
    static void type##_##rows(                                                                     \
        const struct unpacked_kblock *u, const uint8_t *const *x, int n, struct panel_acc *acc)    \
    {                                                                                              \
        const struct type_traits k = { __VA_ARGS__ };                                              \
        multiply_type(k, rows, u, x, n *ACT_BLOCKS(block), acc);                                   \
    }                                                                                              \
    static void type##_gemv_##rows(                                                                \
        const uint8_t *w, const uint8_t *const *x, int n, struct panel_acc *acc)                   \
    {                                                                                              \
        struct unpacked_kblock u;                                                                  \
                                                                                                   \
        unpack_##type(&u, w, n);                                                                   \
        type##_##rows(&u, x, n, acc);                                                              \
    }

#define UNPACKED_GEMM(entry, type, multiply_type, block, act, ...)                                 \
    ROWS(type, multiply_type, block, 1, __VA_ARGS__)                                               \
    ROWS(type, multiply_type, block, 2, __VA_ARGS__)                                               \
    ROWS(type, multiply_type, block, 3, __VA_ARGS__)                                               \
    ROWS(type, multiply_type, block, 4, __VA_ARGS__)                                               \
    void GEMM_SET(entry##_##type)(const struct gemm_args *g)                                       \
    {                                                                                              \
        static const struct unpacked_format f = {                                                  \
            { { NULL, type##_gemv_1, type##_gemv_2, type##_gemv_3, type##_gemv_4 }, block,         \
                sizeof(struct p16_##type), ACT_BLOCKS(block) * sizeof(act), KBLOCK / block },      \
            unpack_##type,                                                                         \
            { NULL, type##_1, type##_2, type##_3, type##_4 },                                      \
        };                                                                                         \
        GEMM_SET(gemm_with_unpacking)(g, &f);                                                      \
    }

/* halves, quads_per_widen, sub_quads, offset, has_mins */
UNPACKED_GEMM(gemm, q4_1, multiply_32, 32, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, q5_1, multiply_32, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, 0, true)
UNPACKED_GEMM(gemm, q5_0, multiply_32, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, 16, false)
UNPACKED_GEMM(
    gemm, mxfp4, multiply_32, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, MXFP4_OFFSET, false)
UNPACKED_GEMM(gemm, q1_0, multiply_32, 128, struct act_q8_0, 2, 8, 8, 1, false)
UNPACKED_GEMM(gemm, q2_0, multiply_32, 64, struct act_q8_0, 2, 8, 8, 1, false)
UNPACKED_GEMM(gemm, affine4_32, multiply_32, 32, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, affine4_64, multiply_32, 64, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, affine2_32, multiply_32, 32, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, affine2_64, multiply_32, 64, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, affine3_32, multiply_32, 32, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, affine3_64, multiply_32, 64, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, affine5_32, multiply_32, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, 0, true)
UNPACKED_GEMM(gemm, affine5_64, multiply_32, 64, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, 0, true)
UNPACKED_GEMM(gemm, affine6_32, multiply_32, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 2, 8, 0, true)
UNPACKED_GEMM(gemm, affine6_64, multiply_32, 64, struct act_q8_0, 2, BYTE_DOTS ? 8 : 2, 8, 0, true)
#if BYTE_DOTS
UNPACKED_GEMM(gemm, affine8_32, multiply_32, 32, struct act_q8_0, 2, 8, 8, 0, true)
UNPACKED_GEMM(gemm, affine8_64, multiply_32, 64, struct act_q8_0, 2, 8, 8, 0, true)
#else
UNPACKED_GEMM(gemm, affine8_32, multiply_32_bytes, 32, struct act_q8_0, 1, 1, 8, 0, true)
UNPACKED_GEMM(gemm, affine8_64, multiply_32_bytes, 64, struct act_q8_0, 1, 1, 8, 0, true)
#endif
UNPACKED_GEMM(gemm, nvfp4, multiply_16, 64, struct act_q8_0, 2, 4, 4, MXFP4_OFFSET, false)
UNPACKED_GEMM(gemm_unpacked, q4_0, multiply_32, 32, struct act_q8_0, 2, 8, 8, 8, false)
UNPACKED_GEMM(gemm_unpacked, q4_k, multiply_256, 256, struct act_q8_k, 2, 8, 8, 0, true)
UNPACKED_GEMM(
    gemm_unpacked, q5_k, multiply_256, 256, struct act_q8_k, 2, BYTE_DOTS ? 8 : 4, 8, 0, true)
#if BYTE_DOTS
UNPACKED_GEMM(gemm_unpacked, q8_0, multiply_32, 32, struct act_q8_0, 2, 8, 8, 128, false)
UNPACKED_GEMM(gemm_unpacked, q6_k, multiply_256, 256, struct act_q8_k, 2, 4, 4, 32, false)
UNPACKED_GEMM(gemm, iq4_nl, multiply_32, 32, struct act_q8_0, 2, 8, 8, IQ4_OFFSET, false)
UNPACKED_GEMM(gemm, iq4_xs, multiply_256, 256, struct act_q8_k, 2, 8, 8, IQ4_OFFSET, false)
#else
UNPACKED_GEMM(gemm_unpacked, q6_k, multiply_256, 256, struct act_q8_k, 1, 2, 4, 32, false)
#endif
