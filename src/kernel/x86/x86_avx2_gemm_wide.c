/* x86_avx2_gemm_wide.c: packed integers times quantised activations without VNNI, unpacked first.
 *
 * A stretch of 256 k of a panel is unpacked to bytes, then groups of four rows go through it, so
 * that weights that take many instructions to unpack do so once for CHUNK rows. x86_avx2_gemm.c
 * says how products of bytes are widened in time; here
 *
 *   MXFP4   24 * 127 * 2 = 6096, x 5 fits
 */
#ifndef __AVX2__
#error "compile with the AVX2 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx2_gemm.h"

enum {
    STRETCH = 256, /* k */
    CHUNK = 256,   /* rows of activations that an unpacked stretch serves */
    PASS = 2,      /* panels unpacked side by side */
};

/* A stretch of a panel: eight blocks of 32 (or fewer, at the end), or one of 256. */
struct unpacked {
    ALIGNED(64) uint8_t q[STRETCH / 4][64]; /* quad rows, unsigned */
    __m256 d[STRETCH / 32][2];              /* scales per block and half; of 256: d, dmin */
    __m256 m[STRETCH / 32][2];              /* minimums of blocks of 32 */
    __m256i scale[16][2];                   /* of sub-blocks: int16, twice per lane */
    __m256i pair[8][2];                     /* scales or minimums of two sub-blocks per lane */
};

/* What differs between types, as constants. */
struct kind {
    int halves; /* of a panel at a time: as many as registers hold sums of */
    int per;    /* quads that may be added before they are widened; with VNNI: all */
    int sub;    /* quads of a sub-block */
    int offset; /* of the weights, to be taken off: 0, 12, 16, 128; of 256: 0, 32, 128 */
    bool has_mins;
};

typedef void (*unpack_fn)(struct unpacked *u, const uint8_t *w, int n_blocks);
/* n_blocks of u times as many at x[m], added to acc[m]. */
typedef void (*multiply_fn)(
    const struct unpacked *u, const uint8_t *const *x, int n_blocks, struct lanes *acc);

struct wide {
    struct format few;
    unpack_fn unpack;
    multiply_fn multiply[GROUP + 1]; /* by number of rows */
};

/* ---- drivers */

/* On the stack: no allocation in a step. */
struct work {
    struct lanes acc[PASS][CHUNK];
    struct unpacked u[PASS];
};

/* Rows m0 .. m0 + n - 1 times n_panels panels from `panel` on. */
static void chunk(const struct gemm_args *g, const struct wide *f, struct work *k, int panel,
    int n_panels, int m0)
{
    int n_blocks = g->w->n_cols / f->few.block, per_stretch = STRETCH / f->few.block;
    int n = MIN(CHUNK, g->x->n_rows - m0);
    const uint8_t *x[GROUP];

    for (int i = 0; i < n_panels; i++)
        memset(k->acc[i], 0, (size_t)n * sizeof(k->acc[i][0]));
    for (int b = 0; b < n_blocks; b += per_stretch) {
        int n_here = MIN(per_stretch, n_blocks - b);
        for (int i = 0; i < n_panels; i++)
            f->unpack(&k->u[i],
                g->w->data + (size_t)(panel + i) * g->w->panel_bytes + (size_t)b * f->few.w_bytes,
                n_here);
        for (int m = 0; m < n; m += GROUP) {
            int rows = MIN(GROUP, n - m);
            for (int r = 0; r < rows; r++)
                x[r] = acts_row(g->x, m0 + m + r) + (size_t)b * f->few.x_bytes;
            for (int i = 0; i < n_panels; i++)
                f->multiply[rows](&k->u[i], x, n_here, k->acc[i] + m);
        }
    }
    for (int i = 0; i < n_panels; i++)
        GEMM_SET(store)(g, panel + i, m0, n, k->acc[i]);
}

static void run(const struct gemm_args *g, const struct wide *f)
{
    struct work k;

    if (g->x->n_rows > GROUP)
        for (int m = 0; m < g->x->n_rows; m += CHUNK)
            for (int p = g->panel_from; p < g->panel_to; p += PASS)
                chunk(g, f, &k, p, MIN(PASS, g->panel_to - p), m);
    else if (g->x->n_rows > 0)
        GEMM_SET(few_rows)(g, &f->few);
}

/* ---- unpacking */

INLINE void put(uint8_t to[64], int half, __m256i v)
{
    _mm256_store_si256((__m256i *)(void *)(to + 32 * half), v);
}

INLINE __m256i low4(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

INLINE __m256i high4(__m256i v)
{
    return low4(_mm256_srli_epi16(v, 4));
}

/* 32 elements whose nibbles lie as in p16_q4_0, to eight quads. */
INLINE void put_nibbles(uint8_t (*to)[64], const uint8_t q[4][16][4])
{
    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = load(q[i][8 * half]);
        put(to[i], half, low4(v));
        put(to[i + 4], half, high4(v));
    }
}

/* The same with fifth bits: bit i of the plane belongs to quad i. */
INLINE void put_fives(uint8_t (*to)[64], const uint8_t q[4][16][4], const uint8_t plane[16][4])
{
    const __m256i bit4 = _mm256_set1_epi8(16);

    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i fifth = load(plane[8 * half]);
        UNROLL for (int i = 0; i < 4; i++)
        {
            __m256i v = load(q[i][8 * half]);
            __m256i a = _mm256_slli_epi16(fifth, 4 - i);
            __m256i b = i ? _mm256_srli_epi16(fifth, i) : fifth;
            put(to[i], half, _mm256_or_si256(low4(v), _mm256_and_si256(a, bit4)));
            put(to[i + 4], half, _mm256_or_si256(high4(v), _mm256_and_si256(b, bit4)));
        }
    }
}

/* The list with an offset that makes its numbers unsigned. */
INLINE __m128i offset_list(const int8_t list[16], int offset)
{
    return _mm_add_epi8(
        _mm_loadu_si128((const __m128i *)(const void *)list), _mm_set1_epi8((char)offset));
}

static const int8_t mxfp4_list[16] = { MXFP4_LIST };

/* Numbers of a list for nibbles as in p16_q4_0, to eight quads. */
INLINE void put_listed(uint8_t (*to)[64], __m128i list, const uint8_t q[4][16][4])
{
    __m256i both = _mm256_broadcastsi128_si256(list);

    UNROLL for (int i = 0; i < 4; i++) UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i v = load(q[i][8 * half]);
        put(to[i], half, _mm256_shuffle_epi8(both, low4(v)));
        put(to[i + 4], half, _mm256_shuffle_epi8(both, high4(v)));
    }
}

INLINE void put_halves(__m256 to[2], const uint16_t h[16])
{
    to[0] = half8(h);
    to[1] = half8(h + 8);
}

#if BYTE_DOTS
static void unpack_q8_0(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q8_0 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        memcpy(u->q[8 * b], p->q, sizeof(p->q));
        put_halves(u->d[b], p->d);
    }
}
#endif

static void unpack_q4_0(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_0 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        put_nibbles(u->q + 8 * b, p->q);
        put_halves(u->d[b], p->d);
    }
}

static void unpack_q4_1(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_1 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        put_nibbles(u->q + 8 * b, p->q);
        put_halves(u->d[b], p->d);
        put_halves(u->m[b], p->m);
    }
}

static void unpack_q5_0(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_0 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        put_fives(u->q + 8 * b, p->q, p->high);
        put_halves(u->d[b], p->d);
    }
}

static void unpack_q5_1(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_1 *p = (const void *)w;

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        put_fives(u->q + 8 * b, p->q, p->high);
        put_halves(u->d[b], p->d);
        put_halves(u->m[b], p->m);
    }
}

/* e8m0_half of eight bytes. */
INLINE __m256 e8m0_half8(const uint8_t *e)
{
    const __m256i one = _mm256_set1_epi32(1);
    __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)e));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(v, one), 23);
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), v);

    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(v, one)));
}

static void unpack_mxfp4(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_mxfp4 *p = (const void *)w;
    __m128i list = offset_list(mxfp4_list, MXFP4_OFFSET);

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        put_listed(u->q + 8 * b, list, p->q);
        u->d[b][0] = e8m0_half8(p->e);
        u->d[b][1] = e8m0_half8(p->e + 8);
    }
}

/* Scales and minimums of a Q4_K or Q5_K block. */
INLINE void put_scales(
    struct unpacked *u, const uint8_t lo[4][16][2], const uint8_t hi[2][16][2], const uint16_t *d)
{
    struct sub_scales s;

    UNROLL for (int half = 0; half < 2; half++)
    {
        load_scales(&s, lo, hi, half);
        UNROLL for (int j = 0; j < 8; j++) u->scale[j][half] = of_pair(s.scale[j / 2], j % 2);
        UNROLL for (int p = 0; p < 4; p++) u->pair[p][half] = s.min[p];
    }
    put_halves(u->d[0], d);
    put_halves(u->d[1], d + 16);
}

static void unpack_q4_k(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_k *p = (const void *)w;

    fetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 8; j++)
        put_nibbles(u->q + 8 * j, p->q[j]);
    put_scales(u, p->scale_lo, p->scale_hi, p->d);
}

static void unpack_q5_k(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_k *p = (const void *)w;

    fetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 8; j++)
        put_fives(u->q + 8 * j, p->q[j], p->high[j]);
    put_scales(u, p->scale_lo, p->scale_hi, p->d);
}

/* Signed scales of sub-blocks 2i, 2i + 1. */
INLINE void put_signed(struct unpacked *u, int i, const int8_t scale[16][2])
{
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256i pair =
            _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)scale[8 * half]));
        u->pair[i][half] = pair;
        u->scale[2 * i][half] = of_pair(pair, 0);
        u->scale[2 * i + 1][half] = of_pair(pair, 1);
    }
}

static void unpack_q6_k(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q6_k *p = (const void *)w;
    const __m256i bits45 = _mm256_set1_epi8(0x30);

    fetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 16; j++)
        UNROLL for (int half = 0; half < 2; half++)
        {
            uint8_t(*to)[64] = u->q + 4 * j;
            __m256i a = load(p->sub[j].low[0][8 * half]), b = load(p->sub[j].low[1][8 * half]);
            __m256i h = load(p->sub[j].high[8 * half]);
            __m256i h0 = _mm256_and_si256(_mm256_slli_epi16(h, 4), bits45);
            __m256i h1 = _mm256_and_si256(_mm256_slli_epi16(h, 2), bits45);
            __m256i h2 = _mm256_and_si256(h, bits45);
            __m256i h3 = _mm256_and_si256(_mm256_srli_epi16(h, 2), bits45);
            put(to[0], half, _mm256_or_si256(low4(a), h0));
            put(to[1], half, _mm256_or_si256(low4(b), h1));
            put(to[2], half, _mm256_or_si256(high4(a), h2));
            put(to[3], half, _mm256_or_si256(high4(b), h3));
        }
    for (int i = 0; i < 8; i++)
        put_signed(u, i, p->scale[i]);
    put_halves(u->d[0], p->d);
}

#if BYTE_DOTS
static const int8_t iq4_list[16] = { IQ4_LIST };

static void unpack_iq4_nl(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_nl *p = (const void *)w;
    __m128i list = offset_list(iq4_list, IQ4_OFFSET);

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        put_listed(u->q + 8 * b, list, p->q);
        put_halves(u->d[b], p->d);
    }
}

static void unpack_iq4_xs(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_xs *p = (const void *)w;
    __m128i list = offset_list(iq4_list, IQ4_OFFSET);

    fetch_ahead(w, sizeof(*p));
    for (int j = 0; j < 8; j++)
        put_listed(u->q + 8 * j, list, p->q[j]);
    for (int i = 0; i < 4; i++)
        put_signed(u, i, p->scale[i]);
    put_halves(u->d[0], p->d);
}
#endif

/* ---- products */

/* Of four rows, both halves of the panel, of which kind.halves are in use at a time. */
typedef __m256i sums[GROUP][2];

/* A sub-block: its weights from quad and half on, the activations of every row, what the products'
 * sums begin with (with VNNI), and what multiplies those of each half. */
struct sub_block {
    const uint8_t *w;
    const int8_t *q[GROUP];
    int32_t start[GROUP];
    __m256i scale[2];
};

/* Quads from .. to - 1 of it, of halves which are `halves`. */
INLINE void add_quads(int halves, int rows, const struct sub_block *s, int from, int to, sums out)
{
    UNROLL for (int i = from; i < to; i++) UNROLL for (int m = 0; m < rows; m++)
    {
        __m256i x = spread4(s->q[m] + 4 * i);
        UNROLL for (int n = 0; n < halves; n++) out[m][n] =
            sum_bytes(out[m][n], load(s->w + 64 * i + 32 * n), x);
    }
}

INLINE void add_dots(const struct kind k, int rows, const struct sub_block *s, sums total)
{
    sums part;

    UNROLL for (int i = 0; i < k.sub; i += k.per)
    {
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int n = 0; n < k.halves; n++) part[m][n] =
            first_sums(s->start[m]);
        add_quads(k.halves, rows, s, i, i + k.per, part);
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int n = 0; n < k.halves; n++)
            total[m][n] = add_times(total[m][n], part[m][n], s->scale[n]);
    }
}

/* ---- blocks of 32 */

/* -offset * sum of q: where a dot begins. */
INLINE __m256i start_at(int offset, const struct act_q8_0 *x)
{
    if (offset == 0)
        return _mm256_setzero_si256();
    __m256i v = _mm256_set1_epi32(x->minus8);
    if (offset == MXFP4_OFFSET)
        return _mm256_add_epi32(v, _mm256_srai_epi32(v, 1));
    return offset == 8 ? v : _mm256_slli_epi32(v, offset == 16 ? 1 : 4);
}

/* acc + m * dx * (sum of q) */
INLINE __m256 plus_min(__m256 acc, __m256 m, const struct act_q8_0 *x)
{
    __m256 sum = _mm256_set1_ps((float)(x->minus8 / -8));

    return _mm256_fmadd_ps(_mm256_mul_ps(m, _mm256_set1_ps(x->d)), sum, acc);
}

INLINE void multiply_small(const struct kind k, int rows, const struct unpacked *u,
    const uint8_t *const *xp, int n, struct lanes *acc)
{
    const __m256i one = _mm256_set1_epi16(1);
    struct sub_block s = { .scale = { one, one } }; /* of no use to VNNI */
    const struct act_q8_0 *x[GROUP];
    sums total;

    for (int h = 0; h < 2; h += k.halves)
        for (int b = 0; b < n; b++) {
            UNROLL for (int m = 0; m < rows; m++)
            {
                x[m] = (const struct act_q8_0 *)(const void *)xp[m] + b;
                s.q[m] = x[m]->q;
                UNROLL for (int i = 0; i < k.halves; i++) total[m][i] = start_at(k.offset, x[m]);
            }
            s.w = u->q[8 * b] + 32 * h;
            if (BYTE_DOTS)
                add_quads(k.halves, rows, &s, 0, k.sub, total);
            else
                add_dots(k, rows, &s, total);
            UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = h; i < h + k.halves; i++)
            {
                __m256 sum = scaled(acc[m].half[i], u->d[b][i], x[m]->d, total[m][i - h]);
                acc[m].half[i] = k.has_mins ? plus_min(sum, u->m[b][i], x[m]) : sum;
            }
        }
}

/* ---- blocks of 256 */

/* What the pairs come to with sums of activations of as many elements as a sub-block has. */
INLINE __m256i pairs_dot(const struct unpacked *u, int half, const int16_t *of, int n_pairs)
{
    __m256i sum = _mm256_setzero_si256();

    UNROLL for (int p = 0; p < n_pairs; p++) sum =
        add_madd(sum, u->pair[p][half], spread4(of + 2 * p));
    return sum;
}

/* -offset * (scales . sums of q) */
INLINE __m256i start_of_256(
    const struct kind k, const struct unpacked *u, int half, const struct act_q8_k *x)
{
    if (k.offset == 0 || BYTE_DOTS)
        return _mm256_setzero_si256();
    __m256i sum = k.sub == 4 ? pairs_dot(u, half, x->sum16, 8) : pairs_dot(u, half, x->sum32, 4);
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sum, k.offset == 32 ? 5 : 7));
}

/* The same with VNNI: -offset * sum of q for each sub-block. */
INLINE void sub_starts(const struct kind k, const struct act_q8_k *x, int32_t out[16])
{
    const int16_t *of = k.sub == 4 ? x->sum16 : x->sum32;

    if (k.offset == 0 || !BYTE_DOTS)
        return;
    for (int i = 0; i < STRETCH / 4 / k.sub; i += 8) {
        __m256i v = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(of + i)));
        v = _mm256_slli_epi32(v, k.offset == 32 ? 5 : 7);
        _mm256_storeu_si256(
            (__m256i *)(void *)(out + i), _mm256_sub_epi32(_mm256_setzero_si256(), v));
    }
}

INLINE void multiply_super(const struct kind k, int rows, const struct unpacked *u,
    const uint8_t *const *xp, int n, struct lanes *acc)
{
    const struct act_q8_k *x[GROUP];
    int32_t start[GROUP][16];
    struct sub_block s;
    sums total;

    UNROLL for (int m = 0; m < rows; m++)
    {
        x[m] = (const struct act_q8_k *)(const void *)xp[m];
        sub_starts(k, x[m], start[m]);
    }
    for (int h = 0; h < 2; h += k.halves) {
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = 0; i < k.halves; i++)
            total[m][i] = start_of_256(k, u, h + i, x[m]);
        for (int j = 0; j < STRETCH / 4 / k.sub; j++) {
            UNROLL for (int i = 0; i < k.halves; i++) s.scale[i] = u->scale[j][h + i];
            UNROLL for (int m = 0; m < rows; m++)
            {
                s.q[m] = x[m]->q + 4 * k.sub * j;
                s.start[m] = k.offset && BYTE_DOTS ? start[m][j] : 0;
            }
            s.w = u->q[k.sub * j] + 32 * h;
            add_dots(k, rows, &s, total);
        }
        UNROLL for (int m = 0; m < rows; m++) UNROLL for (int i = h; i < h + k.halves; i++)
        {
            __m256 sum = scaled(acc[m].half[i], u->d[0][i], x[m]->d, total[m][i - h]);
            if (k.has_mins)
                sum = _mm256_fnmadd_ps(_mm256_mul_ps(u->d[1][i], _mm256_set1_ps(x[m]->d)),
                    _mm256_cvtepi32_ps(pairs_dot(u, i, x[m]->sum32, 4)), sum);
            acc[m].half[i] = sum;
        }
    }
}

/* ---- one pair of functions per type and number of rows, one entry per type */

#define ROWS(type, how, rows, ...)                                                                 \
    static void type##_##rows(                                                                     \
        const struct unpacked *u, const uint8_t *const *x, int n, struct lanes *acc)               \
    {                                                                                              \
        const struct kind k = { __VA_ARGS__ };                                                     \
        how(k, rows, u, x, n, acc);                                                                \
    }                                                                                              \
    static void type##_turn_##rows(                                                                \
        const uint8_t *w, const uint8_t *const *x, int n, struct lanes *acc)                       \
    {                                                                                              \
        struct unpacked u;                                                                         \
                                                                                                   \
        unpack_##type(&u, w, n);                                                                   \
        type##_##rows(&u, x, n, acc);                                                              \
    }

#define WIDE(entry, type, how, block, act, ...)                                                    \
    ROWS(type, how, 1, __VA_ARGS__)                                                                \
    ROWS(type, how, 2, __VA_ARGS__)                                                                \
    ROWS(type, how, 3, __VA_ARGS__)                                                                \
    ROWS(type, how, 4, __VA_ARGS__)                                                                \
    void GEMM_SET(entry##_##type)(const struct gemm_args *g)                                       \
    {                                                                                              \
        static const struct wide f = {                                                             \
            { { NULL, type##_turn_1, type##_turn_2, type##_turn_3, type##_turn_4 }, block,         \
                sizeof(struct p16_##type), sizeof(act), STRETCH / block },                         \
            unpack_##type,                                                                         \
            { NULL, type##_1, type##_2, type##_3, type##_4 },                                      \
        };                                                                                         \
        run(g, &f);                                                                                \
    }

/*                                                halves, per, sub, offset, mins */
WIDE(gemm, q4_1, multiply_small, 32, struct act_q8_0, 2, 8, 8, 0, true)
WIDE(gemm, q5_1, multiply_small, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, 0, true)
WIDE(gemm, q5_0, multiply_small, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, 16, false)
WIDE(gemm, mxfp4, multiply_small, 32, struct act_q8_0, 2, BYTE_DOTS ? 8 : 4, 8, MXFP4_OFFSET, false)
WIDE(wide, q4_0, multiply_small, 32, struct act_q8_0, 2, 8, 8, 8, false)
WIDE(wide, q4_k, multiply_super, 256, struct act_q8_k, 2, 8, 8, 0, true)
WIDE(wide, q5_k, multiply_super, 256, struct act_q8_k, 2, BYTE_DOTS ? 8 : 4, 8, 0, true)
#if BYTE_DOTS
WIDE(wide, q8_0, multiply_small, 32, struct act_q8_0, 2, 8, 8, 128, false)
WIDE(wide, q6_k, multiply_super, 256, struct act_q8_k, 2, 4, 4, 32, false)
WIDE(gemm, iq4_nl, multiply_small, 32, struct act_q8_0, 2, 8, 8, IQ4_OFFSET, false)
WIDE(gemm, iq4_xs, multiply_super, 256, struct act_q8_k, 2, 8, 8, IQ4_OFFSET, false)
#else
WIDE(wide, q6_k, multiply_super, 256, struct act_q8_k, 1, 2, 4, 32, false)
#endif
