/* x86_avx2_gemm_int16.c: GEMM with 8-bit weights as 16-bit integers, without VNNI.
 *
 * The sum of two products of signed bytes fills 16 bits, so results of vpmaddubsw would have to be
 * widened after every quad, and signs would have to be moved first: three instructions on the two
 * ports that multiply. Here both operands are converted to int16, and vpmaddwd adds pairs of
 * products to 32 bits: two instructions on these ports for the same number of multiply-adds, and no
 * weight offset except the one that the sums of activations correct.
 *
 * A quad of weights is converted by a mask (k 0 and 2) and a shift (k 1 and 3); activations are
 * converted to the same order once for several panels. Sub-block scales of IQ4_XS are multiplied
 * into the weights: 127 * 32 fits, and the sum of 256 products of that with 127 is below 2^28. GEMV
 * with IQ4_NL and IQ4_XS is in x86_avx2_gemm_codebook.c. */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_gemm.h"

enum {
    KBLOCK = 256, /* k per K block */
    /* K block for one group of rows: shorter, so that unpacking does not wait for memory in one
     * long phase */
    GEMV_KBLOCK = 128,
    CHUNK_ROWS = 128, /* activation rows that use an unpacked K block */
    PASS_PANELS = 4,  /* panels per pass, which share converted activations */
    BLOCKS = KBLOCK / QK_SMALL,
};

/* Activations of a K block: per 32, eight pairs of k 0 and 2 of a quad, then of k 1 and 3. */
struct int16_acts {
    ALIGNED(32) int16_t x[GROUP_ROWS][BLOCKS][2][16];
    bool is_first; /* first group of rows that uses these weights, which then come from memory */
};

/* K block of a panel. For IQ4_XS: per quad, k 0 and 2 of 16 rows, then k 1 and 3, times their
 * scales. */
union unpacked_kblock {
    ALIGNED(64) struct p16_q8_0 bytes[BLOCKS];
    struct {
        int16_t w[KBLOCK / 4][2][32];
        uint16_t d[16];
    } int16;
};

/* Prepares n blocks at w for multiply_fn; returns a pointer to them: in place, or in u. */
typedef const void *(*unpack_fn)(union unpacked_kblock *u, const uint8_t *w, int n);
/* Multiplies n blocks with the blocks at x[m], whose int16 codes are in xw, and adds the products
 * to acc[m]. */
typedef void (*multiply_fn)(const void *w, const struct int16_acts *xw, const uint8_t *const *x,
    int n, struct panel_acc *acc);

struct int16_format {
    int block;               /* elements of k per block */
    size_t w_bytes, x_bytes; /* bytes of a block, of the panel and of a row */
    unpack_fn unpack;
    multiply_fn multiply[GROUP_ROWS + 1];  /* indexed by the number of rows */
    const struct gemv_format *gemv_format; /* faster GEMV for up to GROUP_ROWS rows, or NULL */
};

/* ---- activations */

INLINE void store_256(void *to, __m256i v)
{
    _mm256_storeu_si256(to, v);
}

INLINE void put_int16(int16_t to[2][16], const int8_t *q)
{
    __m256i v = load_256(q);

    store_256(to[0], _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    store_256(to[1], _mm256_srai_epi16(v, 8));
}

/* Converts n blocks of 32 or of 256. */
INLINE void set_int16_acts(
    struct int16_acts *w, int rows, int block, const uint8_t *const *x, int n)
{
    for (int m = 0; m < rows; m++)
        for (int b = 0; b < n * block / QK_SMALL; b++)
            put_int16(
                w->x[m][b], block == QK_SMALL
                                ? ((const struct act_q8_0 *)(const void *)x[m] + b)->q
                                : ((const struct act_q8_k *)(const void *)x[m])->q + QK_SMALL * b);
}

/* ---- drivers */

/* On the stack, since a step allocates nothing. */
struct gemm_scratch {
    struct panel_acc acc[PASS_PANELS][CHUNK_ROWS];
    union unpacked_kblock u[PASS_PANELS];
    struct int16_acts xw;
};

/* Multiplies rows m0 .. m0 + CHUNK_ROWS - 1 with n panels. */
static void multiply_chunk(const struct gemm_args *g, const struct int16_format *f,
    struct gemm_scratch *k, const int *panels, int n, int m0)
{
    int kblock = g->x->n_rows > GROUP_ROWS ? KBLOCK : GEMV_KBLOCK;
    int n_blocks = g->w->n_cols / f->block, blocks_per_kblock = MAX(1, kblock / f->block);
    int n_rows = MIN(CHUNK_ROWS, g->x->n_rows - m0);
    const uint8_t *x[GROUP_ROWS];
    const void *w[PASS_PANELS];

    for (int i = 0; i < n; i++)
        memset(k->acc[i], 0, (size_t)n_rows * sizeof(k->acc[i][0]));
    for (int b = 0; b < n_blocks; b += blocks_per_kblock) {
        int n_here = MIN(blocks_per_kblock, n_blocks - b);
        for (int i = 0; i < n; i++)
            w[i] = f->unpack(&k->u[i],
                g->w->data + (size_t)panels[i] * g->w->panel_bytes + (size_t)b * f->w_bytes,
                n_here);
        for (int m = 0; m < n_rows; m += GROUP_ROWS) {
            int rows = MIN(GROUP_ROWS, n_rows - m);
            avx2_set_row_pointers(g, m0 + m, rows, x);
            for (int r = 0; r < rows; r++)
                x[r] += (size_t)b * f->x_bytes;
            set_int16_acts(&k->xw, rows, f->block, x, n_here);
            k->xw.is_first = m == 0;
            for (int i = 0; i < n; i++)
                f->multiply[rows](w[i], &k->xw, x, n_here, k->acc[i] + m);
        }
    }
    for (int i = 0; i < n; i++)
        avx2_store_outputs(g, panels[i], m0, n_rows, k->acc[i]);
}

/* The panels of a pass are far apart: each is a sequential stream of reads, which the next pass
 * continues. */
static void gemm_streams(const struct gemm_args *g, const struct int16_format *f)
{
    int n_panels = g->panel_to - g->panel_from,
        per_stream = (n_panels + PASS_PANELS - 1) / PASS_PANELS;
    struct gemm_scratch k;

    if (f->gemv_format && g->x->n_rows > 0 && g->x->n_rows <= GROUP_ROWS) {
        avx2_gemv(g, f->gemv_format);
        return;
    }
    for (int m = 0; m < g->x->n_rows; m += CHUNK_ROWS)
        for (int i = 0; i < per_stream; i++) {
            int panels[PASS_PANELS], n = 0;
            for (int p = g->panel_from + i; p < g->panel_to; p += per_stream)
                panels[n++] = p;
            multiply_chunk(g, f, &k, panels, n, m);
        }
}

/* ---- unpacking */

static const void *unpack_q8_0(union unpacked_kblock *u, const uint8_t *w, int n)
{
    return w;
}

INLINE __m256i low4(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

INLINE __m256i high4(__m256i v)
{
    return low4(_mm256_srli_epi16(v, 4));
}

INLINE __m256i iq4_codebook(void)
{
    static const int8_t codebook[16] = { IQ4_CODEBOOK };

    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)codebook));
}

/* Converts to blocks of Q8_0. */
static const void *unpack_iq4_nl(union unpacked_kblock *u, const uint8_t *w, int n)
{
    const struct p16_iq4_nl *p = (const void *)w;
    __m256i codebook = _mm256_add_epi8(iq4_codebook(), _mm256_set1_epi8((char)IQ4_OFFSET));

    for (int b = 0; b < n; b++, p++) {
        struct p16_q8_0 *to = &u->bytes[b];
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        UNROLL for (int i = 0; i < 4; i++) UNROLL for (int at = 0; at < 16; at += 8)
        {
            __m256i v = load_256(p->q[i][at]);
            store_256(to->q[i][at], _mm256_shuffle_epi8(codebook, low4(v)));
            store_256(to->q[i + 4][at], _mm256_shuffle_epi8(codebook, high4(v)));
        }
        memcpy(to->d, p->d, sizeof(to->d));
    }
    return u->bytes;
}

/* Eight rows of a quad times their scales, as int16. */
INLINE void put_scaled_int16(int16_t to[2][32], int at, __m256i bytes, __m256i scale)
{
    __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);

    store_256(to[0] + 2 * at, _mm256_mullo_epi16(even, scale));
    store_256(to[1] + 2 * at, _mm256_mullo_epi16(_mm256_srai_epi16(bytes, 8), scale));
}

static const void *unpack_iq4_xs(union unpacked_kblock *u, const uint8_t *w, int n)
{
    const struct p16_iq4_xs *p = (const void *)w;
    __m256i codebook = iq4_codebook();

    for (int j = 0; j < 8; j++) {
        prefetch_ahead(w + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
        UNROLL for (int at = 0; at < 16; at += 8)
        {
            __m256i scale = scale_of_pair(_mm256_cvtepi8_epi16(_mm_loadu_si128(
                                              (const __m128i *)(const void *)p->scale[j / 2][at])),
                j % 2);
            UNROLL for (int i = 0; i < 4; i++)
            {
                __m256i v = load_256(p->q[j][i][at]);
                put_scaled_int16(
                    u->int16.w[8 * j + i], at, _mm256_shuffle_epi8(codebook, low4(v)), scale);
                put_scaled_int16(
                    u->int16.w[8 * j + i + 4], at, _mm256_shuffle_epi8(codebook, high4(v)), scale);
            }
        }
    }
    memcpy(u->int16.d, p->d, sizeof(u->int16.d));
    return &u->int16;
}

/* ---- dot products */

/* Multiplies a pair of weights, both halves of the panel, with pair `at` of every row. */
INLINE void add_pair(
    int rows, __m256i w0, __m256i w1, const int16_t *const *x, int at, __m256i sums[GROUP_ROWS][2])
{
    UNROLL for (int m = 0; m < rows; m++)
    {
        __m256i v = keep_in_register(broadcast4(x[m] + 2 * at));
        sums[m][0] = keep_in_register(add_madd(sums[m][0], w0, v));
        sums[m][1] = keep_in_register(add_madd(sums[m][1], w1, v));
    }
}

/* Adds the sums of whole blocks to the outputs. */
INLINE void add_block(int rows, struct panel_acc *acc, const uint16_t *d, const float *dx,
    __m256i sums[GROUP_ROWS][2])
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256 dw = f16_to_f32_x8(d + 8 * half);
        UNROLL for (int m = 0; m < rows; m++) acc[m].half[half] =
            fma_dot(acc[m].half[half], dw, dx[m], sums[m][half]);
    }
}

INLINE void multiply_q8_0(int rows, const void *w, const struct int16_acts *xw,
    const uint8_t *const *xp, int n, struct panel_acc *acc)
{
    const struct p16_q8_0 *p = w;
    const __m256i low = _mm256_set1_epi16(255);
    const int16_t *x[GROUP_ROWS];
    __m256i sums[GROUP_ROWS][2];
    float dx[GROUP_ROWS];

    for (int b = 0; b < n; b++, p++) {
        if (xw->is_first)
            prefetch_ahead((const uint8_t *)p, sizeof(*p));
        UNROLL for (int m = 0; m < rows; m++)
        {
            const struct act_q8_0 *block = (const struct act_q8_0 *)(const void *)xp[m] + b;
            dx[m] = block->d;
            x[m] = xw->x[m][b][0];
            sums[m][0] = sums[m][1] = _mm256_slli_epi32(_mm256_set1_epi32(block->minus8), 4);
        }
        UNROLL for (int i = 0; i < 8; i++)
        {
            __m256i a = keep_in_register(load_256(p->q[i][0])),
                    c = keep_in_register(load_256(p->q[i][8]));
            add_pair(rows, _mm256_and_si256(a, low), _mm256_and_si256(c, low), x, i, sums);
            add_pair(rows, _mm256_srli_epi16(a, 8), _mm256_srli_epi16(c, 8), x, i + 8, sums);
        }
        add_block(rows, acc, p->d, dx, sums);
    }
}

/* Multiplies one block of 256. */
INLINE void multiply_iq4_xs(int rows, const void *w, const struct int16_acts *xw,
    const uint8_t *const *xp, int n, struct panel_acc *acc)
{
    const union unpacked_kblock *u = w;
    const int16_t *x[GROUP_ROWS];
    __m256i sums[GROUP_ROWS][2];
    float dx[GROUP_ROWS];

    UNROLL for (int m = 0; m < rows; m++)
    {
        dx[m] = ((const struct act_q8_k *)(const void *)xp[m])->d;
        sums[m][0] = sums[m][1] = _mm256_setzero_si256();
    }
    for (int b = 0; b < BLOCKS; b++) {
        UNROLL for (int m = 0; m < rows; m++) x[m] = xw->x[m][b][0];
        UNROLL for (int i = 0; i < 8; i++) UNROLL for (int odd = 0; odd < 2; odd++)
        {
            const int16_t *at = u->int16.w[8 * b + i][odd];
            add_pair(rows, keep_in_register(load_256(at)), keep_in_register(load_256(at + 16)), x,
                i + 8 * odd, sums);
        }
    }
    add_block(rows, acc, u->int16.d, dx, sums);
}

/* ---- one function per type and number of rows, one entry per type */

#define ROWS(type, multiply_type, rows)                                                            \
    static void type##_##rows(const void *w, const struct int16_acts *xw, const uint8_t *const *x, \
        int n, struct panel_acc *acc)                                                              \
    {                                                                                              \
        multiply_type(rows, w, xw, x, n, acc);                                                     \
    }

#define INT16_GEMM(type, multiply_type, block, act, gemv_format)                                   \
    ROWS(type, multiply_type, 1)                                                                   \
    ROWS(type, multiply_type, 2)                                                                   \
    ROWS(type, multiply_type, 3)                                                                   \
    ROWS(type, multiply_type, 4)                                                                   \
    void avx2_gemm_##type(const struct gemm_args *g)                                               \
    {                                                                                              \
        static const struct int16_format f = { block, sizeof(struct p16_##type), sizeof(act),      \
            unpack_##type, { NULL, type##_1, type##_2, type##_3, type##_4 }, gemv_format };        \
        gemm_streams(g, &f);                                                                       \
    }

INT16_GEMM(q8_0, multiply_q8_0, 32, struct act_q8_0, NULL)
INT16_GEMM(iq4_nl, multiply_q8_0, 32, struct act_q8_0, &avx2_gemv_format_iq4_nl)
INT16_GEMM(iq4_xs, multiply_iq4_xs, 256, struct act_q8_k, &avx2_gemv_format_iq4_xs)
