/* x86_amx_attn.c: attention over bf16 pages with AMX bf16 tiles; f16 and q8_0 pages are left to
 * AVX-512.
 *
 * ref_attn.c is the definition, except for the two matrix products, which have their own order of
 * sums. Queries, and weights (after exp), are split into two bf16 numbers hi and lo
 * (x86_amx_bf16x2.h), and
 *
 *   to a score      lo * k and then hi * k are added, 32 d at a time, from 0; then it is scaled
 *   to an output    lo * v and then hi * v are added, 32 positions at a time from a multiple of 32
 *
 * each as specified for TILE_DOT_BF16; elements after the last d or position are zero. At the end
 * -0 becomes 0. Therefore the bits of a row depend only on the row and its keys.
 *
 * The rows of an A tile are the query heads of a GQA group, of several batch rows if the group is
 * small, up to 16; keys and values have the layout of B tiles in the page. Token slots after the
 * last key may contain anything: scores of such keys are ignored, and values are copied without
 * them. If several batch rows share a tile, the earlier ones do not attend to the last keys of the
 * later ones: their weights are zero there, which adds nothing if the values are finite. If a
 * value is not finite, the rows are processed one by one.
 *
 * Estimates from published measurements of tile instructions: 64 keys of 64 dimensions are 8 kB
 * and, for up to 8 heads, 16 products of 9.2 cycles, in pairs of dependent products: 70 ns at 2.9
 * GHz, four times as fast as the memory bandwidth of one core. With many rows the exponentials are
 * the limit: 256 keys of one row and head take about 280 cycles for exp and 128 in tiles. */
#ifndef __AVX512BF16__
#error "compile with the AMX flags of the Makefile"
#endif

#include "kernel/x86/x86_amx.h"
#include "kernel/x86/x86_amx_bf16x2.h"
#include "kernel/x86/x86_amx_tile.h"
#include "kernel/x86/x86_attn.h"
#include "kernel/x86/x86_avx512_vec16.h"
#include "kernel/x86/x86_attn_state.h"

#include <math.h>

enum {
    MAX_TILE_HEADS = TILE_ROWS, /* query heads of one or more rows that share a tile */
    TILE_K = 32,                /* d, or positions, per tile */
    TILE_BYTES = 1024,
    SCORE_KEYS = 4 * KV_GROUP, /* keys whose scores are computed at once: four C tiles */
};

/* On the stack, since a step allocates nothing. */
struct attn_scratch {
    ALIGNED(64) float scores[MAX_TILE_HEADS][KV_BLOCK];
    ALIGNED(64) uint8_t weights[KV_BLOCK / TILE_K][2][MAX_TILE_HEADS][64]; /* hi, lo */
    ALIGNED(64) uint8_t tile_copies[4][TILE_BYTES];
    int n; /* heads that the tiles are configured for; 0: not configured */
};

/* ---- tiles: 0 .. 3 sums, 4 lo, 5 hi, 6 and 7 keys or values */

static void configure_tiles(struct attn_scratch *k, int n)
{
    struct tile_config c = { .palette = 1 };

    if (k->n == n)
        return;
    for (int t = 0; t < N_TILES; t++) {
        c.rows[t] = (uint8_t)(t < 6 ? n : TILE_ROWS);
        c.row_bytes[t] = 64;
    }
    tile_configure(&c);
    k->n = n;
}

/* Loads n C tiles whose rows are adjacent: 16 floats from one tile to the next. */
INLINE void load_sums(int n, const float *from, size_t stride)
{
    TILE_LOAD(0, from, stride);
    if (n > 1)
        TILE_LOAD(1, from + 16, stride);
    if (n > 2)
        TILE_LOAD(2, from + 32, stride);
    if (n > 3)
        TILE_LOAD(3, from + 48, stride);
}

INLINE void store_sums(int n, float *to, size_t stride)
{
    TILE_STORE(0, to, stride);
    if (n > 1)
        TILE_STORE(1, to + 16, stride);
    if (n > 2)
        TILE_STORE(2, to + 32, stride);
    if (n > 3)
        TILE_STORE(3, to + 48, stride);
}

/* Adds to each of n C tiles the products of lo and hi with one B tile. */
INLINE void multiply_lo_hi(int n, const uint8_t *const from[4])
{
    TILE_LOAD(6, from[0], 64);
    TILE_DOT_BF16(0, 4, 6);
    if (n > 1) {
        TILE_LOAD(7, from[1], 64);
        TILE_DOT_BF16(1, 4, 7);
    }
    TILE_DOT_BF16(0, 5, 6);
    if (n > 1)
        TILE_DOT_BF16(1, 5, 7);
    if (n > 2) {
        TILE_LOAD(6, from[2], 64);
        TILE_DOT_BF16(2, 4, 6);
    }
    if (n > 3) {
        TILE_LOAD(7, from[3], 64);
        TILE_DOT_BF16(3, 4, 7);
    }
    if (n > 2)
        TILE_DOT_BF16(2, 5, 6);
    if (n > 3)
        TILE_DOT_BF16(3, 5, 7);
}

INLINE void prefetch_tile_l1(const uint8_t *at)
{
    for (int i = 0; i < TILE_BYTES; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

/* Prefetches into L2 what is read later: the values of a block while its scores are computed, then
 * the keys of the next block, so that memory is always busy. */
INLINE void prefetch_tile_l2(const uint8_t *at)
{
    for (int i = 0; i < TILE_BYTES; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T1);
}

/* ---- scores */

/* Copies keys to a B tile. Missing d and tokens become zero: the last d of a head, or the rest of a
 * page with fewer tokens. */
static const uint8_t *copy_keys(const struct attn_args *a, int pos, int to, int step, uint8_t *copy)
{
    int n_pairs = MIN(TILE_K / 2, a->layout->head_dim / 2 - step * TILE_K / 2);

    memset(copy, 0, TILE_BYTES);
    for (int t = pos; t < MIN(pos + KV_GROUP, to); t += UNIT_KEYS) {
        const uint8_t *from =
            attn_keys_of(a, t) + (size_t)step * TILE_BYTES + t % PAGE_TOKENS % 16 * 4;
        for (int i = 0; i < n_pairs; i++)
            memcpy(copy + 64 * i + 4 * (t - pos), from + 64 * i, (size_t)UNIT_KEYS * 4);
    }
    return copy;
}

static void compute_scores(struct attn_scratch *k, const struct head_group *g, int from, int to)
{
    const struct attn_args *a = g->a;
    const size_t plane = (size_t)g->n_q * 64;
    const uint8_t *tile[4];

    for (int pos = from; pos < to; pos += SCORE_KEYS) {
        int n = MIN(4, (to - pos + KV_GROUP - 1) / KV_GROUP);
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        for (int s = 0; s * TILE_K < g->dim; s++) {
            const uint8_t *q = (const uint8_t *)g->q + (size_t)s * 2 * plane;
            bool is_whole = (int)UNIT_KEYS == (int)KV_GROUP && (s + 1) * TILE_K <= g->dim;
            for (int i = 0; i < n; i++) {
                int key = pos + i * KV_GROUP;
                tile[i] = is_whole ? attn_keys_of(a, key) + (size_t)s * TILE_BYTES
                                   : copy_keys(a, key, to, s, k->tile_copies[i]);
                if (is_whole && key + SCORE_KEYS < to)
                    prefetch_tile_l1(attn_keys_of(a, key + SCORE_KEYS) + (size_t)s * TILE_BYTES);
                prefetch_tile_l2(attn_values_share(a, key) + (size_t)s * TILE_BYTES);
            }
            TILE_LOAD(4, q + plane, 64);
            TILE_LOAD(5, q, 64);
            multiply_lo_hi(n, tile);
        }
        store_sums(n, k->scores[0] + (pos - from), sizeof(k->scores[0]));
    }
}

/* ---- softmax weights */

/* Converts the scores of head h to weights (hi, lo), which are zero after its last key, and scales
 * the previous sums to the new maximum. */
static void softmax_block(
    struct attn_scratch *k, const struct head_group *g, int h, int n, int n_all)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY), scale = _mm512_set1_ps(g->a->scale);
    float *w = k->scores[h];
    __m512 top = _mm512_set1_ps(g->max[h]), lanes = _mm512_setzero_ps();

    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_load_ps(w + i), scale);
        _mm512_store_ps(w + i, v);
        v = _mm512_mask_mov_ps(lowest, first_lanes(MIN(16, n - i)), v);
        top = _mm512_max_ps(v, top); /* skips NaN */
    }
    float max = _mm512_reduce_max_ps(top);
    for (int i = 0; i < n_all; i += TILE_K) {
        __m512 v[2];
        for (int j = 0; j < 2; j++) {
            int at = i + 16 * j;
            __mmask16 here = first_lanes(MIN(16, MAX(n - at, 0)));
            v[j] = _mm512_sub_ps(_mm512_maskz_load_ps(here, w + at), _mm512_set1_ps(max));
            v[j] = _mm512_maskz_mov_ps(here, exp16(v[j]));
            lanes = _mm512_add_ps(lanes, v[j]);
        }
        split_bf16x2(v[0], v[1], k->weights[i / TILE_K][0][h], k->weights[i / TILE_K][1][h]);
    }
    __m512 shrink = exp16(_mm512_set1_ps(g->max[h] - max));
    float *out = g->out + (size_t)h * (size_t)g->value_dim16;
    g->sum[h] = fmaf(g->sum[h], _mm512_cvtss_f32(shrink), fold16(lanes));
    for (int d = 0; d < g->value_dim16; d += 16)
        _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(out + d), shrink));
    g->max[h] = max;
}

/* ---- values */

/* The 64-byte line with a position, its neighbour, and 16 d. */
static const uint8_t *v_line(const struct attn_args *a, int pos, int d)
{
    return attn_values_of(a, pos) + (size_t)(d / 16) * V_PAIRS * 64 +
           (size_t)(pos % PAGE_TOKENS / 2) * 64;
}

/* Copies positions [pos, to), at most 32, to a B tile; the rest of the tile is zero. */
static const uint8_t *copy_values(const struct attn_args *a, int pos, int to, int d, uint8_t *copy)
{
    for (int i = 0; i < TILE_K / 2; i++, copy += 64) {
        int here = pos + 2 * i;
        __mmask32 which = here >= to ? 0 : here + 1 == to ? 0x55555555 : 0xffffffff;
        const uint8_t *from = which ? v_line(a, here, d) : copy;
        _mm512_store_si512(copy, _mm512_maskz_loadu_epi16(which, from));
    }
    return copy - TILE_BYTES;
}

static void add_values(struct attn_scratch *k, const struct head_group *g, int from, int to)
{
    const struct attn_args *a = g->a;
    const size_t stride = (size_t)g->value_dim16 * sizeof(float);
    const int last = g->n_keys[g->n - 1] - 1;
    const uint8_t *tile[4];

    for (int d = 0; d < g->value_dim16; d += 64) {
        int n = MIN(4, (g->value_dim16 - d) / 16);
        load_sums(n, g->out + d, stride);
        for (int pos = from; pos < to; pos += TILE_K) {
            bool is_whole = (int)PAGE_TOKENS == TILE_K && pos + TILE_K <= to;
            for (int i = 0; i < n; i++) {
                tile[i] = is_whole ? v_line(a, pos, d + 16 * i)
                                   : copy_values(a, pos, to, d + 16 * i, k->tile_copies[i]);
                if (is_whole && pos + TILE_K < to)
                    prefetch_tile_l1(v_line(a, pos + TILE_K, d + 16 * i));
                prefetch_tile_l2(attn_keys_of(a, MIN(pos + KV_BLOCK, last)) +
                                 (size_t)(d / 16 + i) * V_PAIRS * 64);
            }
            TILE_LOAD(4, k->weights[(pos - from) / TILE_K][1], 64);
            TILE_LOAD(5, k->weights[(pos - from) / TILE_K][0], 64);
            multiply_lo_hi(n, tile);
        }
        store_sums(n, g->out + d, stride);
    }
}

static void reset_state(const struct head_group *g)
{
    for (int h = 0; h < g->n; h++) {
        g->max[h] = -INFINITY;
        g->sum[h] = 0;
    }
    memset(g->out, 0, (size_t)g->n * (size_t)g->value_dim16 * sizeof(float));
}

static void attend_block(const struct head_group *g, int from, int to)
{
    struct attn_scratch *k = g->work;

    if (from % KV_SPLIT == 0)
        reset_state(g);
    configure_tiles(k, g->n);
    compute_scores(k, g, from, to);
    for (int h = 0; h < g->n; h++)
        softmax_block(k, g, h, MIN(to, g->n_keys[h]) - from, to - from);
    add_values(k, g, from, to);
}

/* ---- queries, outputs */

/* Splits queries into bf16 numbers hi and lo: [d / 32][hi, lo][n][32 d]. */
static float *set_queries(
    struct head_group *g, const struct attn_args *a, const struct query_range *range, float *at)
{
    const size_t plane = (size_t)g->n * 64;
    uint8_t *planes = attn_align(at);

    g->q = planes;
    g->q_head_bytes = 64;
    for (int i = 0; i < g->n; i++) {
        const float *q =
            attn_query(a, range->row + i / range->n_heads, range->head + i % range->n_heads);
        for (int d = 0; d < g->dim; d += TILE_K) {
            uint8_t *to = planes + (size_t)(d / TILE_K) * 2 * plane + (size_t)i * 64;
            split_bf16x2(load_first16(q + d, g->dim - d),
                load_first16(q + d + 16, MAX(g->dim - d - 16, 0)), to, to + plane);
        }
    }
    return (float *)(void *)(planes + (size_t)(g->dim + TILE_K - 1) / TILE_K * 2 * plane);
}

static void write_output(struct attn_state total, float *out, int dim)
{
    for (int d = 0; d < dim; d += 16) {
        __m512 v = _mm512_loadu_ps(total.out + d);
        v = _mm512_mul_ps(v, _mm512_set1_ps(1.0f / *total.sum));
        v = _mm512_add_ps(v, _mm512_setzero_ps()); /* -0 becomes 0 */
        _mm512_mask_storeu_ps(out + d, first_lanes(MIN(16, dim - d)), v);
    }
}

/* True if the values that some of the rows read and others do not are finite. */
static bool tail_values_are_finite(const struct attn_args *a, int row, int n_rows)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);

    for (int pos = a->n_keys + row; pos < a->n_keys + row + n_rows - 1; pos++)
        for (int d = 0; d < a->layout->head_dim; d += 16) {
            __mmask32 pos_lanes = pos % 2 ? 0xaaaaaaaa : 0x55555555;
            __m512i v = _mm512_and_si512(_mm512_loadu_si512(v_line(a, pos, d)), exponent);
            if (_mm512_mask_cmpeq_epi16_mask(pos_lanes, v, exponent))
                return false;
        }
    return true;
}

static const struct attn_set attn_set = { .max_heads = MAX_TILE_HEADS,
    .set_queries = set_queries,
    .attend_block = attend_block,
    .can_group = tail_values_are_finite,
    .merge = merge_states,
    .finish = write_output };

/* Windows, soft caps, sinks, latent attention, and values of another dimension than keys are left
 * to AVX-512, too. */
static bool uses_tiles(const struct attn_args *a)
{
    const struct kv_layout *l = a->layout;

    return l->type == KV_BF16 && l->value_dim == l->head_dim && !l->is_latent && !a->window &&
           !(a->soft_cap > 0) && !a->sinks;
}

void amx_attend(const struct attn_args *a)
{
    struct attn_scratch k;

    if (!uses_tiles(a)) {
        avx512_attend(a);
        return;
    }
    k.n = 0;
    attn_attend(&attn_set, a, &k, a->scratch);
    tile_release();
}

void amx_attend_merge(const struct attn_args *a)
{
    if (uses_tiles(a))
        attn_merge_splits(a, merge_states, write_output);
    else
        avx512_attend_merge(a);
}
