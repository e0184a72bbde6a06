/* x86_amx_float.c: products of BF16 and F16 weights with bf16 tiles, for any number of rows.
 *
 * Other bits than ref.c's, about as close to the exact sum (rms 8e-8 of the sum of magnitudes of
 * BF16, 1.4e-7 of F16; ref.c: 3e-8): activations are two planes of bf16 (acts.h), 16 bits of
 * mantissa or more; F16 weights two planes that are exact together (11 bits: 8 and 3). For each
 * output, 32 k at a time from 0 on, the last 32 filled up with zeros, a tile gains
 *
 *     lo * w, hi * w                                      BF16
 *     lo * w.hi, hi * w.hi, hi * w.lo                     F16; lo * w.lo would be about 2^-18 of it
 *
 * each as TILE_DOT_BF16 says it. A row's bits depend on nothing else: where a sum waits in memory
 * between two stretches of k, it is the same number. So one row takes tiles as well.
 *
 *   subnormals           of x, of BF16 weights and of either plane count as zero. Those of F16
 *                        are normal numbers of bf16
 *   x beyond bf16        (3.39e38) is infinity
 *   not a number         what is not finite has no lower plane; its outputs are not finite, though
 *                        which of infinity and NaN may differ (infinity times a lower plane of 0)
 *
 * Rows of activations are taken in groups of up to 32, two tiles, all groups of a chunk alike: the
 * last one begins so early that it is whole, and computes some rows once more. Weights are taken of
 * two panels at a time: a BF16 panel is B tiles as it lies in memory, F16 is taken apart into such
 * first. PASS panels share a stretch of activations, which stays in the second cache: as it lies,
 * or, where rows are picked, a copy.
 *
 * What one row should cost, by what was measured of tile instructions elsewhere (9.2 cycles for a
 * product with few rows, 8.2 for a load of 1 kB, some 52 until a tile may be added to again;
 * estimates, no processor with tiles was at hand): 1,024 BF16 weights, two panels side by side, 2
 * products one behind the other in each: 104 cycles or 36 ns at 2.9 GHz, where memory takes
 * 75 ns at 27 GB/s, and 150 when two cores share it. F16: 156 cycles, beside some 300 of vector
 * instructions to take them apart, 105 ns: as fast as shared memory, not as a core's own. */
#ifndef __AVX512BF16__
#error "compile with the AMX flags of the Makefile"
#endif

#include "kernel/acts.h"
#include "kernel/x86/x86_amx.h"
#include "kernel/x86/x86_amx_planes.h"
#include "kernel/x86/x86_amx_tile.h"
#include "kernel/x86/x86_avx512_gemm.h"

enum {
    CHUNK = 256,                    /* rows of activations at once */
    GROUP = 2 * TILE_ROWS,          /* rows that two tiles hold */
    PASS = 16,                      /* panels that share the planes of a stretch */
    STEP = 32,                      /* k of a tile */
    STEP_BYTES = 16 * 64,           /* of weights: a B tile */
    K_BYTES = 4,                    /* of an activation's planes */
    PLANES = 256 * CHUNK * K_BYTES, /* a stretch of 256 k of a chunk, longer of fewer rows */
    UNPACKED = 256 / STEP,          /* steps of F16 that are taken apart at once */
};

/* On the stack: no allocation in a step. */
struct work {
    ALIGNED(64) uint8_t picked[PLANES + CHUNK * 64];   /* a stretch of rows that are picked */
    ALIGNED(64) float sums[PASS][CHUNK][PANEL];        /* of all groups */
    ALIGNED(64) uint8_t w[2][2][UNPACKED][STEP_BYTES]; /* [panel][hi, lo]; or the end of BF16 */
    const uint8_t *x; /* planes of the chunk's first row, from the first k of the stretch on */
    size_t x_stride;  /* from row to row */
    int n, padded;    /* rows of the chunk, and of all groups */
    int group, first; /* rows of a group, and of its first tile */
};

/* Steps of one or two panels; lo: NULL for BF16. */
struct weights {
    const uint8_t *hi[2], *lo[2];
    int n_panels, panel; /* of the pass */
    int from, n_steps;   /* in the stretch */
    bool is_first;       /* of all k */
};

struct format {
    size_t k_bytes; /* of a panel, per k */
    int stretch;    /* most k at a time */
    void (*multiply)(struct work *k, struct weights *w, int n_k);
};

/* ---- activations */

void amx_planes(const float *x, int n, void *out)
{
    struct act_planes *b = out;

    for (int i = 0; i < n; i += PLANES_BLOCK, b++) {
        __mmask16 first = first_lanes(MIN(n - i, 16)),
                  second = first_lanes(MIN(MAX(n - i - 16, 0), 16));
        split(_mm512_maskz_loadu_ps(first, x + i), _mm512_maskz_loadu_ps(second, x + i + 16),
            (uint8_t *)b->hi, (uint8_t *)b->lo);
    }
}

/* ---- tiles: 0 .. 3 sums [2 x rows][2 panels], 4 and 5 activations, 6 and 7 weights */

static void configure(const struct work *k)
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

struct shape {
    bool two_rows, two_panels;
    int first; /* rows of the first tile */
};

INLINE void load_sums(struct shape s, float (*first)[PANEL], float (*second)[PANEL])
{
    TILE_LOAD(0, first, 64);
    if (s.two_panels)
        TILE_LOAD(1, second, 64);
    if (s.two_rows)
        TILE_LOAD(2, first + s.first, 64);
    if (s.two_rows && s.two_panels)
        TILE_LOAD(3, second + s.first, 64);
}

INLINE void zero_sums(struct shape s)
{
    TILE_ZERO(0);
    if (s.two_panels)
        TILE_ZERO(1);
    if (s.two_rows)
        TILE_ZERO(2);
    if (s.two_rows && s.two_panels)
        TILE_ZERO(3);
}

INLINE void store_sums(struct shape s, float (*first)[PANEL], float (*second)[PANEL])
{
    TILE_STORE(0, first, 64);
    if (s.two_panels)
        TILE_STORE(1, second, 64);
    if (s.two_rows)
        TILE_STORE(2, first + s.first, 64);
    if (s.two_rows && s.two_panels)
        TILE_STORE(3, second + s.first, 64);
}

INLINE void load_activations(struct shape s, const uint8_t *from, size_t stride)
{
    TILE_LOAD(4, from, stride);
    if (s.two_rows)
        TILE_LOAD(5, from + (size_t)s.first * stride, stride);
}

INLINE void load_weights(struct shape s, const uint8_t *const from[2], int step)
{
    TILE_LOAD(6, from[0] + (size_t)step * STEP_BYTES, 64);
    if (s.two_panels)
        TILE_LOAD(7, from[1] + (size_t)step * STEP_BYTES, 64);
}

INLINE void multiply_loaded(struct shape s)
{
    TILE_DOT_BF16(0, 4, 6);
    if (s.two_panels)
        TILE_DOT_BF16(1, 4, 7);
    if (s.two_rows)
        TILE_DOT_BF16(2, 5, 6);
    if (s.two_rows && s.two_panels)
        TILE_DOT_BF16(3, 5, 7);
}

/* One group of rows; what is bool is a constant of each caller. */
INLINE void multiply_group(
    struct work *k, const struct weights *w, int m, struct shape s, bool has_lo)
{
    const size_t stride = k->x_stride;
    float(*first)[PANEL] = k->sums[w->panel] + m, (*second)[PANEL] = k->sums[w->panel + 1] + m;
    const uint8_t *x = k->x + (size_t)MIN(m, k->n - k->group) * stride;

    x += (size_t)w->from * sizeof(struct act_planes);
    if (w->is_first)
        zero_sums(s);
    else
        load_sums(s, first, second);
    for (int step = 0; step < w->n_steps; step++, x += sizeof(struct act_planes)) {
        load_activations(s, x + offsetof(struct act_planes, lo), stride);
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
                fetch_ahead(w->hi[i] + (size_t)step * STEP_BYTES, STEP_BYTES);
    }
    store_sums(s, first, second);
}

INLINE void multiply_groups(struct work *k, const struct weights *w, bool has_lo)
{
    bool two_rows = k->group > TILE_ROWS, two_panels = w->n_panels > 1;

    for (int m = 0; m < k->padded; m += k->group)
        if (two_rows && two_panels)
            multiply_group(k, w, m, (struct shape){ true, true, k->first }, has_lo);
        else if (two_rows)
            multiply_group(k, w, m, (struct shape){ true, false, k->first }, has_lo);
        else if (two_panels)
            multiply_group(k, w, m, (struct shape){ false, true, k->first }, has_lo);
        else
            multiply_group(k, w, m, (struct shape){ false, false, k->first }, has_lo);
}

/* ---- BF16: tiles as they lie, but for a last one of fewer k */

static void multiply_bf16(struct work *k, struct weights *w, int n_k)
{
    int whole = n_k / STEP, end = (n_k % STEP + 1) / 2; /* pairs */

    w->n_steps = whole;
    if (whole)
        multiply_groups(k, w, false);
    if (!end)
        return;
    for (int i = 0; i < w->n_panels; i++) {
        uint8_t *to = k->w[i][0][0];
        memset(to, 0, STEP_BYTES);
        memcpy(to, w->hi[i] + (size_t)whole * STEP_BYTES, (size_t)end * 64);
        w->hi[i] = to;
    }
    w->n_steps = 1;
    w->from = whole;
    w->is_first &= whole == 0;
    multiply_groups(k, w, false);
}

/* ---- F16 */

/* 32 halves that are zero, subnormal or not finite: by way of floats. */
static __attribute__((noinline)) void take_apart_odd(__m512i h, uint8_t *hi, uint8_t *lo)
{
    split(_mm512_cvtph_ps(_mm512_castsi512_si256(h)),
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)), hi, lo);
}

/* Of four bits of mantissa, the last three are the lower plane, or what is missing to the next
 * number when the upper one was rounded up (to even): as bf16, less 2^e, of a half's exponent e. */
#define LOW(e, m) ((102 + (e)) << 7 | (m))
#define LOWS(tie)                                                                                  \
    0, LOW(0, 0), LOW(1, 0), LOW(1, 64), tie, LOW(1, 64) | 0x8000, LOW(1, 0) | 0x8000,             \
        LOW(0, 0) | 0x8000
#define UPS(tie) 0, 0, 0, 0, tie, 1, 1, 1

static const uint16_t lows[32] = { LOWS(LOW(2, 0)), LOWS(LOW(2, 0) | 0x8000), LOWS(LOW(2, 0)),
    LOWS(LOW(2, 0) | 0x8000) };
static const uint16_t ups[32] = { UPS(0), UPS(1), UPS(0), UPS(1) };

/* The same of normal numbers, in integers: the exponent moves by 112, and 2^-7 of it is kept. */
INLINE void take_apart(__m512i h, uint8_t *hi, uint8_t *lo)
{
    const __m512i top = _mm512_set1_epi16((int16_t)0x8000), moved = _mm512_set1_epi16(112 << 7);
    __m512i size = _mm512_andnot_si512(top, h), sign = _mm512_and_si512(top, h);
    __m512i from_least = _mm512_sub_epi16(size, _mm512_set1_epi16(0x400));

    if (_mm512_cmpge_epu16_mask(from_least, _mm512_set1_epi16(0x7800))) {
        take_apart_odd(h, hi, lo);
        return;
    }
    __m512i cut = _mm512_srli_epi16(size, 3);
    __m512i up = _mm512_permutexvar_epi16(size, _mm512_loadu_si512(ups));
    __m512i low = _mm512_permutexvar_epi16(size, _mm512_loadu_si512(lows));
    low = _mm512_add_epi16(low, _mm512_and_si512(cut, _mm512_set1_epi16(0xf80)));
    low = _mm512_xor_si512(low, sign);
    __mmask32 has_low = _mm512_test_epi16_mask(size, _mm512_set1_epi16(7));
    _mm512_store_si512(lo, _mm512_maskz_mov_epi16(has_low, low));
    _mm512_store_si512(
        hi, _mm512_or_si512(_mm512_add_epi16(_mm512_add_epi16(cut, moved), up), sign));
}

/* [k][16 rows] of two k becomes pairs [16 rows][2 k]. */
INLINE __m512i pairs_of(const uint8_t *line, bool is_last)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9,
        24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    return _mm512_permutexvar_epi16(order, _mm512_maskz_loadu_epi64(is_last ? 0x0f : 0xff, line));
}

static void unpack_f16(struct work *k, int panel, const uint8_t *from, int n_k)
{
    uint8_t *hi = k->w[panel][0][0], *lo = k->w[panel][1][0];
    int n_lines = (n_k + STEP - 1) / STEP * STEP / 2;

    for (int i = 0; i < n_lines; i++, hi += 64, lo += 64) {
        if (2 * i >= n_k) {
            _mm512_store_si512(hi, _mm512_setzero_si512());
            _mm512_store_si512(lo, _mm512_setzero_si512());
            continue;
        }
        fetch_ahead(from + (size_t)i * 64, 64);
        take_apart(pairs_of(from + (size_t)i * 64, 2 * i + 1 == n_k), hi, lo);
    }
}

static void multiply_f16(struct work *k, struct weights *w, int n_k)
{
    for (int i = 0; i < w->n_panels; i++) {
        unpack_f16(k, i, w->hi[i], n_k);
        w->hi[i] = k->w[i][0][0];
        w->lo[i] = k->w[i][1][0];
    }
    w->n_steps = (n_k + STEP - 1) / STEP;
    multiply_groups(k, w, true);
}

/* ---- drivers */

/* n rows in groups that are alike, so that tiles are configured once. */
static void open_chunk(struct work *k, int n)
{
    int n_groups = (n + GROUP - 1) / GROUP;

    k->n = n;
    k->group = (n + n_groups - 1) / n_groups;
    k->first = k->group > TILE_ROWS ? (k->group + 1) / 2 : k->group;
    k->padded = n_groups * k->group;
}

/* n_k activations from k `from` on. */
static void open_stretch(struct work *k, const struct acts *x, int row, int from, int n_k)
{
    const size_t at = (size_t)from * K_BYTES;
    const size_t bytes = (size_t)((n_k + STEP - 1) / STEP) * sizeof(struct act_planes);

    if (!x->pick) {
        k->x = acts_row(x, row) + at;
        k->x_stride = x->stride;
        return;
    }
    k->x = k->picked;
    k->x_stride = bytes + 64; /* as of act_row_bytes() */
    for (int m = 0; m < k->n; m++)
        memcpy(k->picked + (size_t)m * k->x_stride, acts_row(x, row + m) + at, bytes);
}

struct pass {
    int panel, n_panels, row; /* the chunk's first */
};

static void multiply_pass(
    const struct gemm_args *a, const struct format *f, struct work *k, const struct pass *pass)
{
    const int n_cols = a->w->n_cols;
    const int stretch = MIN(f->stretch, PLANES / (k->n * K_BYTES) / STEP * STEP);

    for (int from = 0, n_k; from < n_cols; from += n_k) {
        n_k = MIN(stretch, n_cols - from);
        open_stretch(k, a->x, pass->row, from, n_k);
        for (int p = 0; p < pass->n_panels; p += 2) {
            struct weights w = { .n_panels = MIN(2, pass->n_panels - p), .panel = p };
            w.is_first = from == 0;
            for (int i = 0; i < w.n_panels; i++)
                w.hi[i] = a->w->data + (size_t)(pass->panel + p + i) * a->w->panel_bytes +
                          (size_t)from * f->k_bytes;
            f->multiply(k, &w, n_k);
        }
    }
}

static void store(const struct gemm_args *a, const struct work *k, const struct pass *pass, int p)
{
    int panel = pass->panel + p, whole = k->padded - k->group; /* groups before the last */
    __mmask16 rows = first_lanes(MIN(PANEL, a->w->n_rows - panel * PANEL));
    float *y = a->y + (size_t)pass->row * a->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < k->n; i++) {
        int at = i < whole ? i : i + k->padded - k->n;
        _mm512_mask_storeu_ps(y + (size_t)i * a->y_stride, rows, _mm512_load_ps(k->sums[p][at]));
    }
}

static void run(const struct gemm_args *a, const struct format *f)
{
    int n_chunks = (a->x->n_rows + CHUNK - 1) / CHUNK;
    int even = n_chunks ? (a->x->n_rows + n_chunks - 1) / n_chunks : 0;
    struct work k;

    for (int m = 0; m < a->x->n_rows; m += even) {
        open_chunk(&k, MIN(even, a->x->n_rows - m));
        configure(&k);
        for (int p = a->panel_from; p < a->panel_to; p += PASS) {
            struct pass pass = { p, MIN(PASS, a->panel_to - p), m };
            multiply_pass(a, f, &k, &pass);
            for (int i = 0; i < pass.n_panels; i++)
                store(a, &k, &pass, i);
        }
        tile_release();
    }
}

void amx_gemm_bf16(const struct gemm_args *a)
{
    static const struct format f = { 32, PLANES, multiply_bf16 };

    run(a, &f);
}

void amx_gemm_f16(const struct gemm_args *a)
{
    static const struct format f = { 32, UNPACKED * STEP, multiply_f16 };

    run(a, &f);
}
