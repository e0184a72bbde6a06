/* x86_amx_attn.c: attention over bf16 pages with bf16 tiles; f16 and q8_0 pages are AVX-512's.
 *
 * The definition is that of ref_attn.c but for the two products, which are sums of their own: of
 * queries and of weights (after exp) there are two planes of bf16 (x86_amx_planes.h), and
 *
 *   a score      gains, 32 d at a time, lo * k, then hi * k, from 0; then it is scaled
 *   an output    gains, 32 positions at a time from a multiple of 32 on, lo * v, then hi * v
 *
 * each as TILE_DOT_BF16 says it, what is beyond the last d or position being zero. -0 becomes 0 at
 * the end. So the bits of a row depend on it and its keys alone.
 *
 * A tile has the query heads of a group, of some rows where the group is small, 16 together; keys
 * and values lie in pages as tiles already. A page's slots behind the last key may hold anything:
 * scores of such keys are not looked at, values are copied without them. Of rows that go together,
 * some do not attend to the last keys of others: their weight is zero, which is nothing as long as
 * these values are finite. Where one is not, rows go one by one.
 *
 * Estimates, by what was measured of tile instructions elsewhere: 64 keys of 64 dimensions are 8
 * kB, and for up to 8 heads 16 products of 9.2 cycles, two and two behind each other: 70 ns at 2.9
 * GHz, four times as fast as one core's memory. Many rows are limited by the exponentials: 256 keys
 * of a row and head take some 280 cycles for them and 128 in tiles. */
#ifndef __AVX512BF16__
#error "compile with the AMX flags of the Makefile"
#endif

#include "kernel/x86/x86_amx.h"
#include "kernel/x86/x86_amx_planes.h"
#include "kernel/x86/x86_amx_tile.h"
#include "kernel/x86/x86_avx512_attn.h"

#include <math.h>

enum {
    HEADS_OF_TILE = TILE_ROWS,
    STEP = 32, /* d, or positions, of a tile */
    STEP_BYTES = 1024,
    KEYS = 4 * KV_GROUP, /* that are scored at once: four tiles of sums */
};

/* Query heads of some rows, in a tile: pointers into the caller's scratch. */
struct heads {
    const struct attn_args *a;
    int n;                     /* 1 .. HEADS_OF_TILE */
    int n_keys[HEADS_OF_TILE]; /* that each attends to; never falling */
    int dim, dim16;            /* of a head, and rounded up */
    uint8_t *q;                /* [d / 32][hi, lo][n][32 d] */
    float *max, *sum;
    float *out; /* [n][dim16] */
};

/* On the stack: no allocation in a step. */
struct work {
    ALIGNED(64) float scores[HEADS_OF_TILE][KV_BLOCK];
    ALIGNED(64) uint8_t weights[KV_BLOCK / STEP][2][HEADS_OF_TILE][64]; /* hi, lo */
    ALIGNED(64) uint8_t copies[4][STEP_BYTES];
    int n; /* heads that tiles are configured for; 0: not yet */
};

/* ---- tiles: 0 .. 3 sums, 4 and 5 lower and upper plane, 6 and 7 keys or values */

static void configure(struct work *k, int n)
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

/* n sums, 16 floats from one to the next. */
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

/* n sums gain the products of both planes with a tile each. */
INLINE void multiply(int n, const uint8_t *const from[4])
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

INLINE void fetch_tile(const uint8_t *at)
{
    for (int i = 0; i < STEP_BYTES; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T0);
}

/* Into the second cache, of what has its turn later: a block's values while its scores are
 * computed, then the keys of the next, so that memory always has something to do. */
INLINE void fetch_later(const uint8_t *at)
{
    for (int i = 0; i < STEP_BYTES; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T1);
}

/* ---- scores */

/* d and tokens that a page does not have are zero: a head's last d, or pages of fewer tokens. */
static const uint8_t *copy_keys(const struct attn_args *a, int pos, int to, int step, uint8_t *copy)
{
    int n_pairs = MIN(STEP / 2, a->layout->head_dim / 2 - step * STEP / 2);

    memset(copy, 0, STEP_BYTES);
    for (int t = pos; t < MIN(pos + KV_GROUP, to); t += UNIT) {
        const uint8_t *from =
            attn_keys_of(a, t) + (size_t)step * STEP_BYTES + t % PAGE_TOKENS % 16 * 4;
        for (int i = 0; i < n_pairs; i++)
            memcpy(copy + 64 * i + 4 * (t - pos), from + 64 * i, (size_t)UNIT * 4);
    }
    return copy;
}

static void scores(struct work *k, const struct heads *g, int from, int to)
{
    const struct attn_args *a = g->a;
    const size_t plane = (size_t)g->n * 64;
    const uint8_t *tile[4];

    for (int pos = from; pos < to; pos += KEYS) {
        int n = MIN(4, (to - pos + KV_GROUP - 1) / KV_GROUP);
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
        for (int s = 0; s * STEP < g->dim; s++) {
            const uint8_t *q = g->q + (size_t)s * 2 * plane;
            bool is_whole = (int)UNIT == (int)KV_GROUP && (s + 1) * STEP <= g->dim;
            for (int i = 0; i < n; i++) {
                int key = pos + i * KV_GROUP;
                tile[i] = is_whole ? attn_keys_of(a, key) + (size_t)s * STEP_BYTES
                                   : copy_keys(a, key, to, s, k->copies[i]);
                if (is_whole && key + KEYS < to)
                    fetch_tile(attn_keys_of(a, key + KEYS) + (size_t)s * STEP_BYTES);
                fetch_later(attn_values_beside(a, key) + (size_t)s * STEP_BYTES);
            }
            TILE_LOAD(4, q + plane, 64);
            TILE_LOAD(5, q, 64);
            multiply(n, tile);
        }
        store_sums(n, k->scores[0] + (pos - from), sizeof(k->scores[0]));
    }
}

/* ---- weights */

/* Scores of head h become planes of weights, zero behind its last key; what was summed before is
 * scaled to the new maximum. */
static void weigh(struct work *k, const struct heads *g, int h, int n, int n_all)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY), scale = _mm512_set1_ps(g->a->scale);
    float *w = k->scores[h];
    __m512 top = _mm512_set1_ps(g->max[h]), lanes = _mm512_setzero_ps();

    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_load_ps(w + i), scale);
        _mm512_store_ps(w + i, v);
        v = _mm512_mask_mov_ps(lowest, first_lanes(MIN(16, n - i)), v);
        top = _mm512_max_ps(v, top); /* a NaN is passed over */
    }
    float max = _mm512_reduce_max_ps(top);
    for (int i = 0; i < n_all; i += STEP) {
        __m512 v[2];
        for (int j = 0; j < 2; j++) {
            int at = i + 16 * j;
            __mmask16 here = first_lanes(MIN(16, MAX(n - at, 0)));
            v[j] = _mm512_sub_ps(_mm512_maskz_load_ps(here, w + at), _mm512_set1_ps(max));
            v[j] = _mm512_maskz_mov_ps(here, exp16(v[j]));
            lanes = _mm512_add_ps(lanes, v[j]);
        }
        split(v[0], v[1], k->weights[i / STEP][0][h], k->weights[i / STEP][1][h]);
    }
    __m512 shrink = exp16(_mm512_set1_ps(g->max[h] - max));
    float *out = g->out + (size_t)h * (size_t)g->dim16;
    g->sum[h] = fmaf(g->sum[h], _mm512_cvtss_f32(shrink), fold16(lanes));
    for (int d = 0; d < g->dim16; d += 16)
        _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(out + d), shrink));
    g->max[h] = max;
}

/* ---- values */

/* The line of a position and its neighbour, 16 d. */
static const uint8_t *v_line(const struct attn_args *a, int pos, int d)
{
    return attn_values_of(a, pos) + (size_t)(d / 16) * V_PAIRS * 64 +
           (size_t)(pos % PAGE_TOKENS / 2) * 64;
}

/* Positions [pos, to), at most 32; zeros behind them. */
static const uint8_t *copy_values(const struct attn_args *a, int pos, int to, int d, uint8_t *copy)
{
    for (int i = 0; i < STEP / 2; i++, copy += 64) {
        int here = pos + 2 * i;
        __mmask32 which = here >= to ? 0 : here + 1 == to ? 0x55555555 : 0xffffffff;
        const uint8_t *from = which ? v_line(a, here, d) : copy;
        _mm512_store_si512(copy, _mm512_maskz_loadu_epi16(which, from));
    }
    return copy - STEP_BYTES;
}

static void values(struct work *k, const struct heads *g, int from, int to)
{
    const struct attn_args *a = g->a;
    const size_t stride = (size_t)g->dim16 * sizeof(float);
    const int last = g->n_keys[g->n - 1] - 1;
    const uint8_t *tile[4];

    for (int d = 0; d < g->dim16; d += 64) {
        int n = MIN(4, (g->dim16 - d) / 16);
        load_sums(n, g->out + d, stride);
        for (int pos = from; pos < to; pos += STEP) {
            bool is_whole = (int)PAGE_TOKENS == STEP && pos + STEP <= to;
            for (int i = 0; i < n; i++) {
                tile[i] = is_whole ? v_line(a, pos, d + 16 * i)
                                   : copy_values(a, pos, to, d + 16 * i, k->copies[i]);
                if (is_whole && pos + STEP < to)
                    fetch_tile(v_line(a, pos + STEP, d + 16 * i));
                fetch_later(attn_keys_of(a, MIN(pos + KV_BLOCK, last)) +
                            (size_t)(d / 16 + i) * V_PAIRS * 64);
            }
            TILE_LOAD(4, k->weights[(pos - from) / STEP][1], 64);
            TILE_LOAD(5, k->weights[(pos - from) / STEP][0], 64);
            multiply(n, tile);
        }
        store_sums(n, g->out + d, stride);
    }
}

/* Keys [from, to) of one block. */
static void block(struct work *k, const struct heads *g, int from, int to)
{
    configure(k, g->n);
    scores(k, g, from, to);
    for (int h = 0; h < g->n; h++)
        weigh(k, g, h, MIN(to, g->n_keys[h]) - from, to - from);
    values(k, g, from, to);
}

/* ---- splits */

/* Heads with their two states: of the splits so far, and of the one under way. */
struct pair {
    struct heads total, split;
};

/* Of which rows and heads of the group. */
struct part {
    int row, n_rows, head, n_heads;
};

static void begin_split(const struct heads *g)
{
    for (int h = 0; h < g->n; h++) {
        g->max[h] = -INFINITY;
        g->sum[h] = 0;
    }
    memset(g->out, 0, (size_t)g->n * (size_t)g->dim16 * sizeof(float));
}

static struct attn_state state_of(const struct heads *g, int h)
{
    return (struct attn_state){ g->max + h, g->sum + h, g->out + (size_t)h * (size_t)g->dim16 };
}

static void merge(const struct heads *total, const struct heads *split)
{
    for (int h = 0; h < total->n; h++)
        attn_merge(state_of(total, h), state_of(split, h), total->dim);
}

/* Keys [from, to), of which `from` begins a block; is_end: there are no more. */
static void walk(struct work *k, const struct pair *g, int from, int to, bool is_end)
{
    for (int b = from; b < to; b += KV_BLOCK) {
        const struct heads *state = b < KV_SPLIT ? &g->total : &g->split;
        if (b % KV_SPLIT == 0)
            begin_split(state);
        block(k, state, b, MIN(b + KV_BLOCK, to));
        bool ends = (b + KV_BLOCK) % KV_SPLIT == 0 || (is_end && b + KV_BLOCK >= to);
        if (b >= KV_SPLIT && ends)
            merge(&g->total, &g->split);
    }
}

/* ---- groups of heads */

static size_t at_row(const struct attn_args *a, int row)
{
    return a->rows ? (size_t)a->rows[row].at : (size_t)row;
}

static void make_queries(const struct heads *g, const struct attn_args *a, const struct part *p)
{
    const size_t plane = (size_t)g->n * 64;

    for (int i = 0; i < g->n; i++) {
        const float *q = a->q + at_row(a, p->row + i / p->n_heads) * a->q_stride +
                         (size_t)(p->head + i % p->n_heads) * (size_t)g->dim;
        for (int d = 0; d < g->dim; d += STEP) {
            uint8_t *to = g->q + (size_t)(d / STEP) * 2 * plane + (size_t)i * 64;
            __mmask16 first = first_lanes(MIN(16, g->dim - d));
            __mmask16 second = first_lanes(MIN(16, MAX(g->dim - d - 16, 0)));
            split(_mm512_maskz_loadu_ps(first, q + d), _mm512_maskz_loadu_ps(second, q + d + 16),
                to, to + plane);
        }
    }
}

static void *aligned(void *at)
{
    return (void *)(((uintptr_t)at + 63) & ~(uintptr_t)63);
}

/* Sets heads up, their queries and states at `at`; returns where the next may have theirs. */
static float *open_pair(struct pair *g, const struct attn_args *a, const struct part *p, float *at)
{
    int dim = a->layout->head_dim, n = p->n_rows * p->n_heads;
    int dim16 = (dim + 15) / 16 * 16, dim32 = (dim + 31) / 32 * 32;
    float *stats;

    g->total = (struct heads){ .a = a, .n = n, .dim = dim, .dim16 = dim16 };
    g->total.q = aligned(at);
    g->total.out =
        (float *)(void *)g->total.q + (size_t)n * (size_t)dim32; /* 2 planes of 2 bytes */
    g->split = g->total;
    g->split.out += (size_t)n * (size_t)dim16;
    stats = g->split.out + (size_t)n * (size_t)dim16;
    g->total.max = stats;
    g->total.sum = stats + n;
    g->split.max = stats + 2 * n;
    g->split.sum = stats + 3 * n;
    make_queries(&g->total, a, p);
    return stats + 4 * n;
}

static void set_keys(struct pair *g, int i, int n_keys)
{
    g->total.n_keys[i] = g->split.n_keys[i] = n_keys;
}

static void finish_head(struct attn_state total, float *out, int dim)
{
    for (int d = 0; d < dim; d += 16) {
        __m512 v = _mm512_loadu_ps(total.out + d);
        v = _mm512_mul_ps(v, _mm512_set1_ps(1.0f / *total.sum));
        v = _mm512_add_ps(v, _mm512_setzero_ps()); /* -0 */
        _mm512_mask_storeu_ps(out + d, first_lanes(MIN(16, dim - d)), v);
    }
}

static void finish(const struct heads *g, const struct attn_args *a, const struct part *p)
{
    for (int i = 0; i < g->n; i++) {
        float *out = a->out + at_row(a, p->row + i / p->n_heads) * a->out_stride +
                     (size_t)(p->head + i % p->n_heads) * (size_t)g->dim;
        finish_head(state_of(g, i), out, g->dim);
    }
}

/* ---- rows of one sequence */

/* Whether the values that some of the rows see and others do not are finite. */
static bool ends_are_finite(const struct attn_args *a, int row, int n_rows)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);

    for (int pos = a->n_keys + row; pos < a->n_keys + row + n_rows - 1; pos++)
        for (int d = 0; d < a->layout->head_dim; d += 16) {
            __mmask32 its = pos % 2 ? 0xaaaaaaaa : 0x55555555;
            __m512i v = _mm512_and_si512(_mm512_loadu_si512(v_line(a, pos, d)), exponent);
            if (_mm512_mask_cmpeq_epi16_mask(its, v, exponent))
                return false;
        }
    return true;
}

static void attend_part(struct work *k, const struct attn_args *a, const struct part *p)
{
    struct pair g;

    open_pair(&g, a, p, a->scratch);
    for (int i = 0; i < g.total.n; i++)
        set_keys(&g, i, a->n_keys + p->row + i / p->n_heads);
    walk(k, &g, 0, a->n_keys + p->row + p->n_rows - 1, true);
    finish(&g.total, a, p);
}

/* Of one row: each split has its state where attend_merge looks for it. */
static void attend_splits(struct work *k, const struct attn_args *a, const struct part *p)
{
    struct pair g;

    open_pair(&g, a, p, a->scratch);
    for (int i = 0; i < g.total.n; i++)
        set_keys(&g, i, a->n_keys);
    for (int i = a->split_from; i < a->split_to; i++) {
        const int to = MIN((i + 1) * KV_SPLIT, a->n_keys);
        struct attn_state at = attn_state_at(a, i, p->head);
        g.split.max = at.max;
        g.split.sum = at.sum;
        g.split.out = at.out;
        begin_split(&g.split);
        for (int b = i * KV_SPLIT; b < to; b += KV_BLOCK)
            block(k, &g.split, b, MIN(b + KV_BLOCK, to));
    }
}

/* How many rows from this one on go together: they end in the same block of keys, and the last
 * parts are alike. */
static int rows_together(const struct attn_args *a, int row)
{
    int n_keys = a->n_keys + row;
    int to_block_end = (n_keys + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK - n_keys + 1;
    int left = MIN(a->n_rows - row, to_block_end), most = MAX(HEADS_OF_TILE / a->n_q, 1);
    int n_parts = (left + most - 1) / most, n = (left + n_parts - 1) / n_parts;

    return n_keys <= 0 || !ends_are_finite(a, row, n) ? 1 : n;
}

static void attend_run(struct work *k, const struct attn_args *a)
{
    int n_parts = (a->n_q + HEADS_OF_TILE - 1) / HEADS_OF_TILE;
    int n_heads = (a->n_q + n_parts - 1) / n_parts, n;

    for (int row = 0; row < a->n_rows; row += n) {
        n = rows_together(a, row);
        if (a->n_keys + row <= 0) {
            memset(a->out + (size_t)row * a->out_stride, 0,
                (size_t)a->n_q * (size_t)a->layout->head_dim * sizeof(float));
            continue;
        }
        for (int h = 0; h < a->n_q; h += n_heads)
            (a->states ? attend_splits : attend_part)(
                k, a, &(struct part){ row, n, h, MIN(n_heads, a->n_q - h) });
    }
}

/* ---- rows of several sequences */

/* The heads of one row, with the same states and the keys of its own sequence. Their queries lay
 * among others', of which nobody needs the planes any more: each row makes its own again. */
static void finish_row(
    struct work *k, const struct attn_args *a, const struct pair *of, const struct part *p, int i)
{
    const struct attn_row *row = &a->rows[p->row + i];
    const struct part mine = { p->row + i, 1, p->head, p->n_heads };
    struct attn_args own = *a;
    struct pair g = *of;
    struct heads *both[] = { &g.total, &g.split };

    own.pages = row->pages;
    for (int j = 0; j < 2; j++) {
        struct heads *one = both[j];
        int first = i * p->n_heads;
        one->a = &own;
        one->n = p->n_heads;
        one->out += first * one->dim16;
        one->max += first;
        one->sum += first;
    }
    for (int h = 0; h < p->n_heads; h++)
        set_keys(&g, h, row->n_keys);
    make_queries(&g.total, a, &mine);
    walk(k, &g, a->n_shared, row->n_keys, true);
    finish(&g.total, a, &mine);
}

/* What they share, split by split, so that a split stays in the cache until all have seen it; then
 * each row's own. */
static void attend_rows(struct work *k, const struct attn_args *a)
{
    enum { MOST = KV_ROW_HEADS / 4 };
    const int together = MAX(HEADS_OF_TILE / a->n_q, 1);
    struct attn_args shared = *a;
    struct part parts[MOST];
    struct pair groups[MOST];
    float *at = a->scratch;
    int n = 0;

    shared.pages = a->rows[0].pages;
    for (int row = 0; row < a->n_rows; row += together)
        for (int h = 0; h < a->n_q; h += HEADS_OF_TILE, n++) {
            CHECK(n < MOST);
            parts[n] = (struct part){ row, MIN(together, a->n_rows - row), h,
                MIN(HEADS_OF_TILE, a->n_q - h) };
            at = open_pair(&groups[n], &shared, &parts[n], at);
            for (int i = 0; i < groups[n].total.n; i++)
                set_keys(&groups[n], i, a->n_shared);
        }
    for (int from = 0; from < a->n_shared; from += KV_SPLIT)
        for (int i = 0; i < n; i++)
            walk(k, &groups[i], from, MIN(from + KV_SPLIT, a->n_shared), false);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < parts[i].n_rows; r++)
            finish_row(k, a, &groups[i], &parts[i], r);
}

void amx_attend(const struct attn_args *a)
{
    struct work k;

    if (a->layout->type != KV_BF16) {
        avx512_attend(a);
        return;
    }
    k.n = 0;
    if (!a->rows) {
        attend_run(&k, a);
    } else if (a->n_rows > 1) {
        attend_rows(&k, a);
    } else {
        struct attn_args one = *a;
        one.pages = a->rows->pages;
        one.n_keys = a->rows->n_keys;
        one.q = a->q + (size_t)a->rows->at * a->q_stride;
        one.out = a->out + (size_t)a->rows->at * a->out_stride;
        one.rows = NULL;
        attend_run(&k, &one);
    }
    tile_release();
}

void amx_attend_merge(const struct attn_args *a)
{
    if (a->layout->type == KV_BF16)
        attn_merge_splits(a, attn_merge, finish_head);
    else
        avx512_attend_merge(a);
}
