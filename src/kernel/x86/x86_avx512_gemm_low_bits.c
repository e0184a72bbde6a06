/* x86_avx512_gemm_low_bits.c: GEMM and GEMV with the types of blocks_low_bits.h and VNNI.
 *
 * A block of 256 of a panel is unpacked to bytes and scales by the functions of the AVX2 set
 * (x86_avx2_unpack*.c) and multiplied with groups of GROUP_ROWS rows, so that the instructions for
 * unpacking run once per CHUNK_ROWS rows. The dot products are the same for all types. */
#ifndef __AVX512VNNI__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_unpack.h"
#include "kernel/x86/x86_avx512_gemm.h"

enum {
    GROUP_ROWS = 8,
    CHUNK_ROWS = 256, /* activation rows that use an unpacked block */
    PASS_PANELS = 2,  /* panels unpacked per pass */
    SUB_BLOCKS = 16,
    SUB_QUADS = 4,
};

/* Multiplies u with the blocks at x[m] and adds the products to acc[m]. */
typedef void (*multiply_fn)(const struct unpacked_kblock *u, const uint8_t *const *x, __m512 *acc);

struct low_bits_format {
    size_t w_bytes; /* size of a block of a panel */
    unpack_fn unpack;
    multiply_fn multiply[GROUP_ROWS + 1]; /* indexed by the number of rows */
};

/* ---- driver */

/* On the stack, since a step allocates nothing. */
struct gemm_scratch {
    __m512 acc[PASS_PANELS][CHUNK_ROWS];
    struct unpacked_kblock u[PASS_PANELS];
};

static void store_outputs(const struct gemm_args *g, int panel, int m, int n, const __m512 *acc)
{
    int rows = MIN(PANEL, g->w->n_rows - panel * PANEL);
    float *y = g->y + (size_t)m * g->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < n; i++)
        _mm512_mask_storeu_ps(y + (size_t)i * g->y_stride, first_lanes(rows), acc[i]);
}

/* Multiplies rows m0 .. m0 + CHUNK_ROWS - 1 with n_panels panels from `panel` on. The panels are
 * streams of reads that alternate. */
static void multiply_chunk(const struct gemm_args *g, const struct low_bits_format *f,
    struct gemm_scratch *k, int panel, int n_panels, int m0)
{
    int n = MIN(CHUNK_ROWS, g->x->n_rows - m0);
    const uint8_t *x[GROUP_ROWS];

    for (int i = 0; i < n_panels; i++)
        memset(k->acc[i], 0, (size_t)n * sizeof(k->acc[i][0]));
    for (int b = 0; b < g->w->n_cols / KBLOCK; b++) {
        for (int i = 0; i < n_panels; i++)
            f->unpack(&k->u[i],
                g->w->data + (size_t)(panel + i) * g->w->panel_bytes + (size_t)b * f->w_bytes, 1);
        for (int m = 0; m < n; m += GROUP_ROWS) {
            int rows = MIN(GROUP_ROWS, n - m);
            for (int r = 0; r < rows; r++)
                x[r] = acts_row(g->x, m0 + m + r) + (size_t)b * sizeof(struct act_q8_k);
            for (int i = 0; i < n_panels; i++)
                f->multiply[rows](&k->u[i], x, k->acc[i] + m);
        }
    }
    for (int i = 0; i < n_panels; i++)
        store_outputs(g, panel + i, m0, n, k->acc[i]);
}

static void gemm(const struct gemm_args *g, const struct low_bits_format *f)
{
    struct gemm_scratch k;

    for (int m = 0; m < g->x->n_rows; m += CHUNK_ROWS)
        for (int p = g->panel_from; p < g->panel_to; p += PASS_PANELS)
            multiply_chunk(g, f, &k, p, MIN(PASS_PANELS, g->panel_to - p), m);
}

/* ---- dot products */

/* Dot product of the pairs with the sums of activations. */
INLINE __m512i pairs_dot(const struct unpacked_kblock *u, const struct act_q8_k *x)
{
    __m512i sum = _mm512_setzero_si512();

    UNROLL for (int i = 0; i < SUB_BLOCKS / 2; i++) sum =
        _mm512_dpwssd_epi32(sum, _mm512_loadu_si512(u->pair[i]), broadcast_pair(x->sum16 + 2 * i));
    return sum;
}

/* sums + dot products with the 16 bytes at q. In assembly, for the reason in x86_avx512_gemm.c. */
INLINE __m512i dot_sub_block(const __m512i *w, const int8_t *q)
{
    typedef int32_t __attribute__((may_alias)) quad;
    __m512i sums = _mm512_setzero_si512();

    UNROLL for (int i = 0; i < SUB_QUADS; i++) __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) :
        "v"(w[i]), "m"(*(const quad *)(const void *)(q + 4 * i)));
    return sums;
}

INLINE void multiply(int rows, int offset, bool has_mins, const struct unpacked_kblock *u,
    const uint8_t *const *xp, __m512 *acc)
{
    const struct act_q8_k *x[GROUP_ROWS];
    __m512i w[SUB_QUADS], sum[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++)
    {
        x[m] = (const struct act_q8_k *)(const void *)xp[m];
        sum[m] = offset ? _mm512_mullo_epi32(pairs_dot(u, x[m]), _mm512_set1_epi32(-offset))
                        : _mm512_setzero_si512();
    }
    for (int j = 0; j < SUB_BLOCKS; j++) {
        __m512i scale = _mm512_srai_epi32(_mm512_loadu_si512(u->scale[j]), 16);
        UNROLL for (int i = 0; i < SUB_QUADS; i++) w[i] =
            _mm512_loadu_si512(u->q[SUB_QUADS * j + i]);
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_add_epi32(
            sum[m], _mm512_mullo_epi32(dot_sub_block(w, x[m]->q + 4 * SUB_QUADS * j), scale));
    }
    __m512 d = _mm512_loadu_ps((const float *)u->d[0]);
    __m512 dmin = _mm512_loadu_ps((const float *)u->d[1]);
    UNROLL for (int m = 0; m < rows; m++)
    {
        acc[m] = fma_dot(acc[m], d, x[m]->d, sum[m]);
        if (has_mins)
            acc[m] = _mm512_fnmadd_ps(_mm512_mul_ps(dmin, _mm512_set1_ps(x[m]->d)),
                _mm512_cvtepi32_ps(pairs_dot(u, x[m])), acc[m]);
    }
}

/* ---- one function per type and number of rows, one entry per type */

#define ROWS(type, rows, offset, has_mins)                                                         \
    static void type##_##rows(                                                                     \
        const struct unpacked_kblock *u, const uint8_t *const *x, __m512 *acc)                     \
    {                                                                                              \
        multiply(rows, offset, has_mins, u, x, acc);                                               \
    }

#define LOW_BITS(entry, type, offset, quads, has_mins)                                             \
    ROWS(type, 1, offset, has_mins)                                                                \
    ROWS(type, 2, offset, has_mins)                                                                \
    ROWS(type, 3, offset, has_mins)                                                                \
    ROWS(type, 4, offset, has_mins)                                                                \
    ROWS(type, 5, offset, has_mins)                                                                \
    ROWS(type, 6, offset, has_mins)                                                                \
    ROWS(type, 7, offset, has_mins)                                                                \
    ROWS(type, 8, offset, has_mins)                                                                \
    void avx512_##entry##_##type(const struct gemm_args *g)                                        \
    {                                                                                              \
        static const struct low_bits_format f = { sizeof(struct p16_##type), avx2_unpack_##type,   \
            { NULL, type##_1, type##_2, type##_3, type##_4, type##_5, type##_6, type##_7,          \
                type##_8 } };                                                                      \
        gemm(g, &f);                                                                               \
    }
#include "kernel/x86/x86_low_bits.def"
#undef LOW_BITS

/* ---- types that have no implementation of their own */

void avx512_gemm_q1_0(const struct gemm_args *g)
{
    avx2_gemm_q1_0(g);
}

void avx512_gemm_q2_0(const struct gemm_args *g)
{
    avx2_gemm_q2_0(g);
}

void avx512_gemm_nvfp4(const struct gemm_args *g)
{
    avx2_gemm_nvfp4(g);
}
