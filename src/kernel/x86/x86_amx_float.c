/* x86_amx_float.c: GEMM with BF16 and F16 weights on AMX bf16 tiles, for any number of rows.
 *
 * The bits differ from those of ref.c; the error is similar (rms 8e-8 of the sum of magnitudes for
 * BF16 and 1.4e-7 for F16; ref.c: 3e-8). Activations are BF16X2 (acts.h), with at least 16 bits of
 * mantissa; F16 weights are split into hi and lo, which represent them exactly (11 bits: 8 and 3).
 * For each output, 32 k at a time from 0 on, with the last 32 padded with zeros, a tile accumulates
 *
 *     lo * w, hi * w                                      BF16
 *     lo * w.hi, hi * w.hi, hi * w.lo                     F16; lo * w.lo would be about 2^-18 of it
 *
 * each as specified for TILE_DOT_BF16. The bits of a row depend on nothing else: a partial sum that
 * is stored between two K blocks does not change. Therefore a single row also uses tiles.
 *
 *   subnormals           of x, of BF16 weights, and in hi or lo count as zero. Subnormal F16
 *                        weights are normal numbers in bf16
 *   x beyond bf16        (3.39e38) becomes infinity
 *   not finite           a number that is not finite has lo = 0; its outputs are not finite, but
 *                        infinity and NaN may differ (infinity times lo = 0)
 *
 * Activation rows are processed in groups of up to 32, two tiles. All groups of a chunk have the
 * same size: the last one begins early enough to be whole, and computes some rows again. Weights
 * of two panels are processed at a time: a BF16 panel consists of B tiles in memory, F16 is first
 * split into such tiles. PASS_PANELS panels share a K block of activations, which stays in L2: in
 * place, or as a copy of gathered rows.
 *
 * Estimated cost of one row, from published measurements of tile instructions (9.2 cycles for a
 * product with few rows, 8.2 for loading 1 kB, about 52 before the same tile can be accumulated to
 * again; no processor with AMX was available): 1,024 BF16 weights, two panels in parallel with 2
 * dependent products each, take 104 cycles or 36 ns at 2.9 GHz. Memory takes 75 ns at 27 GB/s, and
 * 150 ns if two cores share it. F16 takes 156 cycles, and about 300 cycles (105 ns) of vector
 * instructions to split the weights: as fast as shared memory, slower than the memory of one
 * core. */
#ifndef __AVX512BF16__
#error "compile with the AMX flags of the Makefile"
#endif

#include "kernel/acts.h"
#include "kernel/x86/x86_amx.h"
#include "kernel/x86/x86_amx_bf16x2.h"
#include "kernel/x86/x86_amx_tile.h"
#include "kernel/x86/x86_avx512_gemm.h"

enum {
    CHUNK_ROWS = 256,           /* activation rows at once */
    GROUP_ROWS = 2 * TILE_ROWS, /* rows of two tiles */
    PASS_PANELS = 16,           /* panels that share a K block of activations */
    TILE_K = 32,                /* k per tile */
    TILE_BYTES = 16 * 64,       /* bytes of a B tile */
    K_BYTES = 4,                /* bytes of one activation (hi and lo) */
    /* K block of a chunk: 256 k, or more k if there are fewer rows */
    KBLOCK_BYTES = 256 * CHUNK_ROWS * K_BYTES,
    SPLIT_TILES = 256 / TILE_K, /* tiles of F16 weights that are split at once */
};

/* On the stack, since a step allocates nothing. */
struct gemm_scratch {
    ALIGNED(64) uint8_t gathered[KBLOCK_BYTES + CHUNK_ROWS * 64]; /* K block of the gathered rows */
    ALIGNED(64) float sums[PASS_PANELS][CHUNK_ROWS][PANEL];       /* for the rows of all groups */
    /* [panel][hi, lo]; also the partial last tile of BF16 */
    ALIGNED(64) uint8_t w[2][2][SPLIT_TILES][TILE_BYTES];
    const uint8_t *x; /* BF16X2 of the chunk's first row, from the first k of the K block on */
    size_t x_stride;  /* bytes from row to row */
    int n, padded;    /* rows of the chunk, and of all its groups */
    int group, first; /* rows of a group, and of its first tile */
};

/* Weight tiles of one or two panels; lo is NULL for BF16. */
struct weight_tiles {
    const uint8_t *hi[2], *lo[2];
    int n_panels, panel; /* panels, and index of the first one in the pass */
    int from, n_steps;   /* first tile and number of tiles in the K block */
    bool is_first;       /* the K block begins at k = 0 */
};

struct float_format {
    size_t k_bytes; /* bytes of a panel per k */
    int kblock;     /* most k at a time */
    void (*multiply)(struct gemm_scratch *k, struct weight_tiles *w, int n_k);
};

/* ---- activations */

void amx_bf16x2(const float *x, int n, void *out)
{
    struct act_bf16x2 *b = out;

    for (int i = 0; i < n; i += BF16X2_BLOCK, b++) {
        __mmask16 first = first_lanes(MIN(n - i, 16)),
                  second = first_lanes(MIN(MAX(n - i - 16, 0), 16));
        split_bf16x2(_mm512_maskz_loadu_ps(first, x + i), _mm512_maskz_loadu_ps(second, x + i + 16),
            (uint8_t *)b->hi, (uint8_t *)b->lo);
    }
}

/* ---- tiles: 0 .. 3 sums [2 x rows][2 panels], 4 and 5 activations, 6 and 7 weights */

static void configure_tiles(const struct gemm_scratch *k)
{
    struct tile_config c = { .palette = 1 };

    for (int t = 0; t < 6; t++) {
        int rows = t < 2 || t == 4 ? k->first : k->group - k->first;
        c.rows[t] = (uint8_t)rows;
        c.row_bytes[t] = rows ? 64 : 0;
    }
    for (int t = 6; t < N_TILES; t++) {
        c.rows[t] = 16;
        c.row_bytes[t] = 64;
    }
    tile_configure(&c);
}

struct tile_shape {
    bool two_rows, two_panels;
    int first; /* rows of the first tile */
};

INLINE void load_sums(struct tile_shape s, float (*first)[PANEL], float (*second)[PANEL])
{
    TILE_LOAD(0, first, 64);
    if (s.two_panels)
        TILE_LOAD(1, second, 64);
    if (s.two_rows)
        TILE_LOAD(2, first + s.first, 64);
    if (s.two_rows && s.two_panels)
        TILE_LOAD(3, second + s.first, 64);
}

INLINE void zero_sums(struct tile_shape s)
{
    TILE_ZERO(0);
    if (s.two_panels)
        TILE_ZERO(1);
    if (s.two_rows)
        TILE_ZERO(2);
    if (s.two_rows && s.two_panels)
        TILE_ZERO(3);
}

INLINE void store_sums(struct tile_shape s, float (*first)[PANEL], float (*second)[PANEL])
{
    TILE_STORE(0, first, 64);
    if (s.two_panels)
        TILE_STORE(1, second, 64);
    if (s.two_rows)
        TILE_STORE(2, first + s.first, 64);
    if (s.two_rows && s.two_panels)
        TILE_STORE(3, second + s.first, 64);
}

INLINE void load_activations(struct tile_shape s, const uint8_t *from, size_t stride)
{
    TILE_LOAD(4, from, stride);
    if (s.two_rows)
        TILE_LOAD(5, from + (size_t)s.first * stride, stride);
}

INLINE void load_weights(struct tile_shape s, const uint8_t *const from[2], int step)
{
    TILE_LOAD(6, from[0] + (size_t)step * TILE_BYTES, 64);
    if (s.two_panels)
        TILE_LOAD(7, from[1] + (size_t)step * TILE_BYTES, 64);
}

INLINE void multiply_loaded(struct tile_shape s)
{
    TILE_DOT_BF16(0, 4, 6);
    if (s.two_panels)
        TILE_DOT_BF16(1, 4, 7);
    if (s.two_rows)
        TILE_DOT_BF16(2, 5, 6);
    if (s.two_rows && s.two_panels)
        TILE_DOT_BF16(3, 5, 7);
}

/* Multiplies one row group; bool parameters are compile-time constants in each caller. */
INLINE void multiply_group(
    struct gemm_scratch *k, const struct weight_tiles *w, int m, struct tile_shape s, bool has_lo)
{
    const size_t stride = k->x_stride;
    float(*first)[PANEL] = k->sums[w->panel] + m, (*second)[PANEL] = k->sums[w->panel + 1] + m;
    const uint8_t *x = k->x + (size_t)MIN(m, k->n - k->group) * stride;

    x += (size_t)w->from * sizeof(struct act_bf16x2);
    if (w->is_first)
        zero_sums(s);
    else
        load_sums(s, first, second);
    for (int step = 0; step < w->n_steps; step++, x += sizeof(struct act_bf16x2)) {
        load_activations(s, x + offsetof(struct act_bf16x2, lo), stride);
        load_weights(s, w->hi, step);
        multiply_loaded(s);
        load_activations(s, x, stride);
        multiply_loaded(s);
        if (has_lo) {
            load_weights(s, w->lo, step);
            multiply_loaded(s);
        }
        if (!has_lo && m == 0)
            for (int i = 0; i < w->n_panels; i++)
                prefetch_ahead(w->hi[i] + (size_t)step * TILE_BYTES, TILE_BYTES);
    }
    store_sums(s, first, second);
}

INLINE void multiply_groups(struct gemm_scratch *k, const struct weight_tiles *w, bool has_lo)
{
    bool two_rows = k->group > TILE_ROWS, two_panels = w->n_panels > 1;

    for (int m = 0; m < k->padded; m += k->group)
        if (two_rows && two_panels)
            multiply_group(k, w, m, (struct tile_shape){ true, true, k->first }, has_lo);
        else if (two_rows)
            multiply_group(k, w, m, (struct tile_shape){ true, false, k->first }, has_lo);
        else if (two_panels)
            multiply_group(k, w, m, (struct tile_shape){ false, true, k->first }, has_lo);
        else
            multiply_group(k, w, m, (struct tile_shape){ false, false, k->first }, has_lo);
}

/* ---- BF16: tiles in place, except for a partial last one */

static void multiply_bf16(struct gemm_scratch *k, struct weight_tiles *w, int n_k)
{
    int whole = n_k / TILE_K, n_end_pairs = (n_k % TILE_K + 1) / 2; /* tiles, and pairs of k */

    w->n_steps = whole;
    if (whole)
        multiply_groups(k, w, false);
    if (!n_end_pairs)
        return;
    for (int i = 0; i < w->n_panels; i++) {
        uint8_t *to = k->w[i][0][0];
        memset(to, 0, TILE_BYTES);
        memcpy(to, w->hi[i] + (size_t)whole * TILE_BYTES, (size_t)n_end_pairs * 64);
        w->hi[i] = to;
    }
    w->n_steps = 1;
    w->from = whole;
    w->is_first &= whole == 0;
    multiply_groups(k, w, false);
}

/* ---- F16 */

/* Splits 32 halves with a zero, a subnormal or a number that is not finite among them, by
 * conversion to float. */
static __attribute__((noinline)) void split_f16_special(__m512i h, uint8_t *hi, uint8_t *lo)
{
    split_bf16x2(_mm512_cvtph_ps(_mm512_castsi512_si256(h)),
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)), hi, lo);
}

/* bf16 keeps seven of the ten mantissa bits of a half. The table index is the last of these bits
 * and the three that are cut off. The cut bits are lo, or, if hi is rounded up (to even), lo is
 * the negative distance to the next number. The tables contain lo as bf16 without the exponent of
 * the half, which split_f16 adds. */
#define LO_CODE(e, m) ((102 + (e)) << 7 | (m))
#define LO_CODES(tie)                                                                              \
    0, LO_CODE(0, 0), LO_CODE(1, 0), LO_CODE(1, 64), tie, LO_CODE(1, 64) | 0x8000,                 \
        LO_CODE(1, 0) | 0x8000, LO_CODE(0, 0) | 0x8000
#define HI_INCREMENTS(tie) 0, 0, 0, 0, tie, 1, 1, 1

static const uint16_t lo_codes[32] = { LO_CODES(LO_CODE(2, 0)), LO_CODES(LO_CODE(2, 0) | 0x8000),
    LO_CODES(LO_CODE(2, 0)), LO_CODES(LO_CODE(2, 0) | 0x8000) };
static const uint16_t hi_increments[32] = { HI_INCREMENTS(0), HI_INCREMENTS(1), HI_INCREMENTS(0),
    HI_INCREMENTS(1) };

/* Splits 32 normal halves with integer operations: hi has the exponent of the half plus 112 and
 * seven bits of its mantissa. */
INLINE void split_f16(__m512i h, uint8_t *hi, uint8_t *lo)
{
    const __m512i top = _mm512_set1_epi16((int16_t)0x8000), moved = _mm512_set1_epi16(112 << 7);
    __m512i size = _mm512_andnot_si512(top, h), sign = _mm512_and_si512(top, h);
    __m512i from_least = _mm512_sub_epi16(size, _mm512_set1_epi16(0x400));

    if (_mm512_cmpge_epu16_mask(from_least, _mm512_set1_epi16(0x7800))) {
        split_f16_special(h, hi, lo);
        return;
    }
    __m512i cut = _mm512_srli_epi16(size, 3);
    __m512i up = _mm512_permutexvar_epi16(size, _mm512_loadu_si512(hi_increments));
    __m512i low = _mm512_permutexvar_epi16(size, _mm512_loadu_si512(lo_codes));
    low = _mm512_add_epi16(low, _mm512_and_si512(cut, _mm512_set1_epi16(0xf80)));
    low = _mm512_xor_si512(low, sign);
    __mmask32 has_low = _mm512_test_epi16_mask(size, _mm512_set1_epi16(7));
    _mm512_store_si512(lo, _mm512_maskz_mov_epi16(has_low, low));
    _mm512_store_si512(
        hi, _mm512_or_si512(_mm512_add_epi16(_mm512_add_epi16(cut, moved), up), sign));
}

/* Reorders [k][16 rows] of two k to pairs [16 rows][2 k]. */
INLINE __m512i pairs_of(const uint8_t *line, bool is_last)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9,
        24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    return _mm512_permutexvar_epi16(order, _mm512_maskz_loadu_epi64(is_last ? 0x0f : 0xff, line));
}

static void split_f16_tiles(struct gemm_scratch *k, int panel, const uint8_t *from, int n_k)
{
    uint8_t *hi = k->w[panel][0][0], *lo = k->w[panel][1][0];
    int n_lines = (n_k + TILE_K - 1) / TILE_K * TILE_K / 2;

    for (int i = 0; i < n_lines; i++, hi += 64, lo += 64) {
        if (2 * i >= n_k) {
            _mm512_store_si512(hi, _mm512_setzero_si512());
            _mm512_store_si512(lo, _mm512_setzero_si512());
            continue;
        }
        prefetch_ahead(from + (size_t)i * 64, 64);
        split_f16(pairs_of(from + (size_t)i * 64, 2 * i + 1 == n_k), hi, lo);
    }
}

static void multiply_f16(struct gemm_scratch *k, struct weight_tiles *w, int n_k)
{
    for (int i = 0; i < w->n_panels; i++) {
        split_f16_tiles(k, i, w->hi[i], n_k);
        w->hi[i] = k->w[i][0][0];
        w->lo[i] = k->w[i][1][0];
    }
    w->n_steps = (n_k + TILE_K - 1) / TILE_K;
    multiply_groups(k, w, true);
}

/* ---- drivers */

/* Divides n rows into groups of equal size, so that tiles are configured once. */
static void begin_chunk(struct gemm_scratch *k, int n)
{
    int n_groups = (n + GROUP_ROWS - 1) / GROUP_ROWS;

    k->n = n;
    k->group = (n + n_groups - 1) / n_groups;
    k->first = k->group > TILE_ROWS ? (k->group + 1) / 2 : k->group;
    k->padded = n_groups * k->group;
}

/* Sets k->x to n_k activations from k `from` on; gathered rows are copied. */
static void load_kblock(struct gemm_scratch *k, const struct acts *x, int row, int from, int n_k)
{
    const size_t at = (size_t)from * K_BYTES;
    const size_t bytes = (size_t)((n_k + TILE_K - 1) / TILE_K) * sizeof(struct act_bf16x2);

    if (!x->gather) {
        k->x = acts_row(x, row) + at;
        k->x_stride = x->stride;
        return;
    }
    k->x = k->gathered;
    k->x_stride = bytes + 64; /* an odd number of lines, like act_row_bytes() */
    for (int m = 0; m < k->n; m++)
        memcpy(k->gathered + (size_t)m * k->x_stride, acts_row(x, row + m) + at, bytes);
}

struct panel_pass {
    int panel, n_panels, row; /* first panel and first row of the pass */
};

static void multiply_pass(const struct gemm_args *a, const struct float_format *f,
    struct gemm_scratch *k, const struct panel_pass *pass)
{
    const int n_cols = a->w->n_cols;
    const int kblock = MIN(f->kblock, KBLOCK_BYTES / (k->n * K_BYTES) / TILE_K * TILE_K);

    for (int from = 0, n_k; from < n_cols; from += n_k) {
        n_k = MIN(kblock, n_cols - from);
        load_kblock(k, a->x, pass->row, from, n_k);
        for (int p = 0; p < pass->n_panels; p += 2) {
            struct weight_tiles w = { .n_panels = MIN(2, pass->n_panels - p), .panel = p };
            w.is_first = from == 0;
            for (int i = 0; i < w.n_panels; i++)
                w.hi[i] = a->w->data + (size_t)(pass->panel + p + i) * a->w->panel_bytes +
                          (size_t)from * f->k_bytes;
            f->multiply(k, &w, n_k);
        }
    }
}

static void store_outputs(
    const struct gemm_args *a, const struct gemm_scratch *k, const struct panel_pass *pass, int p)
{
    /* rows of the groups before the last */
    int panel = pass->panel + p, whole = k->padded - k->group;
    __mmask16 rows = first_lanes(MIN(PANEL, a->w->n_rows - panel * PANEL));
    float *y = a->y + (size_t)pass->row * a->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < k->n; i++) {
        int at = i < whole ? i : i + k->padded - k->n;
        _mm512_mask_storeu_ps(y + (size_t)i * a->y_stride, rows, _mm512_load_ps(k->sums[p][at]));
    }
}

static void gemm_with_tiles(const struct gemm_args *a, const struct float_format *f)
{
    int n_chunks = (a->x->n_rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    int rows_per_chunk = n_chunks ? (a->x->n_rows + n_chunks - 1) / n_chunks : 0;
    struct gemm_scratch k;

    for (int m = 0; m < a->x->n_rows; m += rows_per_chunk) {
        begin_chunk(&k, MIN(rows_per_chunk, a->x->n_rows - m));
        configure_tiles(&k);
        for (int p = a->panel_from; p < a->panel_to; p += PASS_PANELS) {
            struct panel_pass pass = { p, MIN(PASS_PANELS, a->panel_to - p), m };
            multiply_pass(a, f, &k, &pass);
            for (int i = 0; i < pass.n_panels; i++)
                store_outputs(a, &k, &pass, i);
        }
        tile_release();
    }
}

void amx_gemm_bf16(const struct gemm_args *a)
{
    static const struct float_format f = { 32, KBLOCK_BYTES, multiply_bf16 };

    gemm_with_tiles(a, &f);
}

void amx_gemm_f16(const struct gemm_args *a)
{
    static const struct float_format f = { 32, SPLIT_TILES * TILE_K, multiply_f16 };

    gemm_with_tiles(a, &f);
}
