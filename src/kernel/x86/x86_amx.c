/* x86_amx.c: the AMX set, and its products of weights with integer dots, with byte tiles (those of
 * float weights: x86_amx_float.c). Integer dots are exact, so
 * every row has the bits of ref.c however many rows there are beside it.
 *
 * Weights are unpacked, a stretch of 256 k of one panel at a time, into signed bytes that lie as
 * they did: quad rows [16 rows][4 k], of which a tile takes 16 as they are. All rows of
 * activations (CHUNK of them) go through an unpacked stretch before the next; what they have come
 * to so far waits in floats. Tiles are loaded from where rows lie; picked ones are copied to lie
 * below one another, once for all panels. A last group of too few rows has some of the one before
 * again: of these, the dots are left alone.
 *
 *   blocks of 32     each has its own scale: a tile holds one block's dots with 16 rows, and is
 *                    stored, scaled and added. Storing does not overlap with multiplying on the
 *                    first processors with tiles (33 cycles for a block where the product alone
 *                    takes 16), so the blocks before are scaled meanwhile: FLIGHT blocks, two sets.
 *   blocks of 256    what is scaled within a block is an integer: weight x scale of the sub-block
 *                    is below 2^15, and split into two bytes, of which the lower is unsigned. The
 *                    products of both are summed over the block in tiles of their own, 2 x 16 rows
 *                    x 2 planes at a time, and put together when the block is through.
 *
 * Few rows are left to AVX-512: they are as fast as memory, and need no unpacking. */
#ifndef __AVX512VNNI__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_amx.h"
#include "kernel/x86/x86_amx_tile.h"
#include "kernel/x86/x86_avx512_gemm.h"

/* From how many rows on tiles are used. To be measured on a processor that has them: nine is
 * where AVX-512 begins to go through a panel more than once. */
#ifndef AMX_FROM_ROWS
#define AMX_FROM_ROWS 9
#endif

enum {
    CHUNK = 256,         /* rows of activations that a stretch serves */
    PICKED = 768 * 1024, /* bytes of them that are copied */
    PASS = 2,            /* panels */
    STRETCH = 256,       /* k */
    FLIGHT = 4,          /* blocks of 32 in tiles at once */
    C_BYTES = 64,        /* of a tile's row of sums: 16 int32 */
};

struct unpacked {                                  /* a stretch of a panel */
    ALIGNED(64) uint8_t plane[2][STRETCH / 4][64]; /* the second: upper bytes, of blocks of 256 */
    __m512 d[STRETCH / 32];                        /* per block of 32; or d and dmin */
    __m512 m[STRETCH / 32];                        /* minimums per block of 32, where there are */
    __m512i min[4];                                /* as in struct sub_scales */
};

/* On the stack: no allocation in a step. */
struct work {
    __m512 acc[PASS][CHUNK];
    struct unpacked u[PASS];
    __m512i dots[2][FLIGHT][TILE_ROWS];
    ALIGNED(64) uint8_t picked[PICKED];
    const uint8_t *x; /* the chunk's rows */
    size_t x_stride;
    int n;
};

/* Rows of activations, as many as tiles take at once, over a stretch. */
struct group {
    int n, n_known; /* the first of them have been in the group before */
    int n_blocks;
    const uint8_t *x, *a;  /* the first row's first block, and its bytes */
    size_t stride, a_step; /* a row further, a tile further */
};

struct format {
    int block;                     /* elements of k */
    int group;                     /* rows of activations at a time: 16 or 32 */
    size_t w_bytes, x_bytes, q_at; /* of a block, of the panel and of a row; where its bytes are */
    void (*unpack)(struct unpacked *u, const uint8_t *w, int n_blocks);
    /* Adds the group's products with u to acc[row], but for rows that are known. */
    void (*multiply)(struct work *k, const struct group *g, const struct unpacked *u, __m512 *acc);
};

/* ---- blocks of 32 */

static void unpack_q8_0(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q8_0 *p = (const void *)w;
    const __m512i offset = _mm512_set1_epi8((char)128);

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        UNROLL for (int i = 0; i < 8; i++) _mm512_store_si512(
            u->plane[0][8 * b + i], _mm512_xor_si512(_mm512_loadu_si512(p->q[i]), offset));
        u->d[b] = half16(p->d);
    }
}

static void unpack_q4_0(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_0 *p = (const void *)w;
    const __m512i offset = _mm512_set1_epi8(8);
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        UNROLL for (int i = 0; i < 8; i++)
            _mm512_store_si512(u->plane[0][8 * b + i], _mm512_sub_epi8(q[i], offset));
        u->d[b] = half16(p->d);
    }
}

/* Eight quads less an offset into place. */
INLINE void put_quads(struct unpacked *u, int block, const __m512i q[8], int offset)
{
    UNROLL for (int i = 0; i < 8; i++) _mm512_store_si512(
        u->plane[0][8 * block + i], _mm512_sub_epi8(q[i], _mm512_set1_epi8((char)offset)));
}

static void unpack_q4_1(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_1 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        put_quads(u, b, q, 0);
        u->d[b] = half16(p->d);
        u->m[b] = half16(p->m);
    }
}

static void unpack_q5_0(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_0 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        add_fifth(q, p->high);
        put_quads(u, b, q, 16);
        u->d[b] = half16(p->d);
    }
}

static void unpack_q5_1(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_1 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        add_fifth(q, p->high);
        put_quads(u, b, q, 0);
        u->d[b] = half16(p->d);
        u->m[b] = half16(p->m);
    }
}

static void unpack_iq4_nl(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_nl *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        look_up(q, iq4_list(0));
        put_quads(u, b, q, 0);
        u->d[b] = half16(p->d);
    }
}

static void unpack_mxfp4(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_mxfp4 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        fetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        look_up(q, mxfp4_list(0));
        put_quads(u, b, q, 0);
        u->d[b] = e8m0_half16(p->e);
    }
}

/* The dots of up to FLIGHT blocks from b on. */
INLINE void dot_blocks(const struct group *g, const struct unpacked *u, int b, __m512i (*to)[16])
{
    int n = MIN(FLIGHT, g->n_blocks - b);
    const uint8_t *a = g->a + (size_t)b * g->a_step;

#define BLOCK(i, ta, tb)                                                                           \
    do {                                                                                           \
        TILE_ZERO(i);                                                                              \
        TILE_LOAD(ta, a + i * g->a_step, g->stride);                                               \
        TILE_LOAD(tb, u->plane[0][8 * (b + i)], 64);                                               \
        TILE_DOT_SS(i, ta, tb);                                                                    \
    } while (0)
    BLOCK(0, 4, 6);
    if (n > 1)
        BLOCK(1, 5, 7);
    if (n > 2)
        BLOCK(2, 4, 6);
    if (n > 3)
        BLOCK(3, 5, 7);
#undef BLOCK
    TILE_STORE(0, to[0], C_BYTES);
    if (n > 1)
        TILE_STORE(1, to[1], C_BYTES);
    if (n > 2)
        TILE_STORE(2, to[2], C_BYTES);
    if (n > 3)
        TILE_STORE(3, to[3], C_BYTES);
}

/* has_mins is a constant of each caller. */
INLINE void scale_blocks(const struct group *g, const struct unpacked *u, int b,
    __m512i (*from)[16], __m512 *acc, bool has_mins)
{
    int n = MIN(FLIGHT, g->n_blocks - b);

    for (int m = g->n_known; m < g->n; m++) {
        const struct act_q8_0 *x = (const void *)(g->x + (size_t)m * g->stride);
        __m512 sum = acc[m];
        for (int i = 0; i < n; i++) {
            sum = scaled(sum, u->d[b + i], x[b + i].d, from[i][m]);
            if (has_mins)
                sum = plus_min(sum, u->m[b + i], &x[b + i]);
        }
        acc[m] = sum;
    }
}

INLINE void multiply_blocks(
    struct work *k, const struct group *g, const struct unpacked *u, __m512 *acc, bool has_mins)
{
    dot_blocks(g, u, 0, k->dots[0]);
    for (int b = FLIGHT; b < g->n_blocks; b += FLIGHT) {
        dot_blocks(g, u, b, k->dots[b / FLIGHT % 2]);
        scale_blocks(g, u, b - FLIGHT, k->dots[(b / FLIGHT + 1) % 2], acc, has_mins);
    }
    int last = (g->n_blocks - 1) / FLIGHT;
    scale_blocks(g, u, last * FLIGHT, k->dots[last % 2], acc, has_mins);
}

static void multiply_small(
    struct work *k, const struct group *g, const struct unpacked *u, __m512 *acc)
{
    multiply_blocks(k, g, u, acc, false);
}

static void multiply_small_with_mins(
    struct work *k, const struct group *g, const struct unpacked *u, __m512 *acc)
{
    multiply_blocks(k, g, u, acc, true);
}

/* ---- blocks of 256 */

/* Number i (0 or 1) of each pair of int16, twice. */
INLINE __m512i both(__m512i pair, int i)
{
    return i ? _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(pair, 0xf5), 0xf5)
             : _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(pair, 0xa0), 0xa0);
}

/* (w - offset) * scale of a quad row: lower and upper bytes. */
INLINE void put_planes(struct unpacked *u, int quad, __m512i w, __m512i scale, int offset)
{
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaa;
    const __m512i off = _mm512_set1_epi16((int16_t)offset);
    __m512i even = _mm512_and_si512(w, _mm512_set1_epi16(0xff)), up = _mm512_srli_epi16(w, 8);

    even = _mm512_mullo_epi16(_mm512_sub_epi16(even, off), scale);
    up = _mm512_mullo_epi16(_mm512_sub_epi16(up, off), scale);
    _mm512_store_si512(
        u->plane[0][quad], _mm512_mask_blend_epi8(odd, even, _mm512_slli_epi16(up, 8)));
    _mm512_store_si512(
        u->plane[1][quad], _mm512_mask_blend_epi8(odd, _mm512_srli_epi16(even, 8), up));
}

static void unpack_q4_k(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_k *p = (const void *)w;
    struct sub_scales s;
    __m512i q[8];

    load_scales(&s, p->scale_lo, p->scale_hi);
    for (int j = 0; j < 8; j++) {
        fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
        load_nibbles(q, p->q[j]);
        __m512i scale = both(s.scale[j / 2], j % 2);
        UNROLL for (int i = 0; i < 8; i++) put_planes(u, 8 * j + i, q[i], scale, 0);
    }
    memcpy(u->min, s.min, sizeof(s.min));
    u->d[0] = half16(p->d);
    u->d[1] = half16(p->dmin);
}

static void unpack_q5_k(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_k *p = (const void *)w;
    struct sub_scales s;
    __m512i q[8];

    load_scales(&s, p->scale_lo, p->scale_hi);
    for (int j = 0; j < 8; j++) {
        fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
        load_nibbles(q, p->q[j]);
        add_fifth(q, p->high[j]);
        __m512i scale = both(s.scale[j / 2], j % 2);
        UNROLL for (int i = 0; i < 8; i++) put_planes(u, 8 * j + i, q[i], scale, 0);
    }
    memcpy(u->min, s.min, sizeof(s.min));
    u->d[0] = half16(p->d);
    u->d[1] = half16(p->dmin);
}

static void unpack_q6_k(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q6_k *p = (const void *)w;
    __m512i q[4];

    for (int j = 0; j < 16; j++) {
        fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 16, sizeof(*p) / 16);
        load_q6(q, p->sub[j].low, p->sub[j].high);
        __m512i pair = _mm512_cvtepi8_epi16(
            _mm256_loadu_si256((const __m256i *)(const void *)p->scale[j / 2]));
        __m512i scale = both(pair, j % 2);
        UNROLL for (int i = 0; i < 4; i++) put_planes(u, 4 * j + i, q[i], scale, 32);
    }
    u->d[0] = half16(p->d);
}

static void unpack_iq4_xs(struct unpacked *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_xs *p = (const void *)w;
    __m512i q[8];

    for (int j = 0; j < 8; j++) {
        fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
        load_nibbles(q, p->q[j]);
        look_up(q, iq4_list(IQ4_OFFSET));
        __m512i pair = _mm512_cvtepi8_epi16(
            _mm256_loadu_si256((const __m256i *)(const void *)p->scale[j / 2]));
        __m512i scale = both(pair, j % 2);
        UNROLL for (int i = 0; i < 8; i++) put_planes(u, 8 * j + i, q[i], scale, IQ4_OFFSET);
    }
    u->d[0] = half16(p->d);
}

/* Both planes' dots of all rows with a block, 64 k at a time. */
INLINE void dot_planes(const struct group *g, const struct unpacked *u, __m512i (*to)[16])
{
    bool two = g->n > TILE_ROWS;

    TILE_ZERO(0);
    TILE_ZERO(1);
    if (two) {
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (int t = 0; t < STRETCH / 64; t++) {
        const uint8_t *a = g->a + (size_t)t * g->a_step;
        TILE_LOAD(4, a, g->stride);
        TILE_LOAD(6, u->plane[0][16 * t], 64);
        TILE_DOT_SU(0, 4, 6);
        TILE_LOAD(7, u->plane[1][16 * t], 64);
        TILE_DOT_SS(1, 4, 7);
        if (two) {
            TILE_LOAD(5, a + TILE_ROWS * g->stride, g->stride);
            TILE_DOT_SU(2, 5, 6);
            TILE_DOT_SS(3, 5, 7);
        }
    }
    TILE_STORE(0, to[0], C_BYTES);
    TILE_STORE(1, to[1], C_BYTES);
    if (two) {
        TILE_STORE(2, to[2], C_BYTES);
        TILE_STORE(3, to[3], C_BYTES);
    }
}

INLINE void multiply_super(
    struct work *k, const struct group *g, const struct unpacked *u, __m512 *acc, bool has_mins)
{
    __m512i(*dots)[16] = k->dots[0];

    dot_planes(g, u, dots);
    for (int m = g->n_known; m < g->n; m++) {
        const struct act_q8_k *x = (const void *)(g->x + (size_t)m * g->stride);
        int two = m / TILE_ROWS * 2, r = m % TILE_ROWS;
        __m512i sum = _mm512_add_epi32(dots[two][r], _mm512_slli_epi32(dots[two + 1][r], 8));
        acc[m] =
            has_mins ? affine(acc[m], u->d, x, sum, u->min) : scaled(acc[m], u->d[0], x->d, sum);
    }
}

static void multiply_with_mins(
    struct work *k, const struct group *g, const struct unpacked *u, __m512 *acc)
{
    multiply_super(k, g, u, acc, true);
}

static void multiply_without_mins(
    struct work *k, const struct group *g, const struct unpacked *u, __m512 *acc)
{
    multiply_super(k, g, u, acc, false);
}

/* ---- drivers */

/* Sizes of tiles for n rows of activations in groups of f->group: exact for a single group. */
static struct tile_config configuration(const struct format *f, int n)
{
    int first = MIN(n, TILE_ROWS);
    int second = f->group > TILE_ROWS ? MIN(n - first, TILE_ROWS) : first;
    int k = MIN(f->block, TILE_ROW_BYTES); /* bytes of a row */
    struct tile_config c = { .palette = 1 };

    for (int t = 0; t < 6; t++) { /* 0 .. 3: sums, 4 and 5: activations */
        int rows = t < 2 || t == 4 ? first : second;
        c.rows[t] = (uint8_t)rows;
        c.row_bytes[t] = (uint16_t)(rows == 0 ? 0 : t < 4 ? C_BYTES : k);
    }
    for (int t = 6; t < N_TILES; t++) { /* weights */
        c.rows[t] = (uint8_t)(k / 4);
        c.row_bytes[t] = 64;
    }
    return c;
}

/* The group at row m, or so much before it that tiles are full. */
static struct group group_at(
    const struct work *k, const struct format *f, const struct tile_config *c, int m, size_t x_at)
{
    int n = MIN(f->group, k->n - m);
    int room = n > TILE_ROWS ? c->rows[4] + c->rows[5] : c->rows[4];
    struct group g = { .n = room, .n_known = room - n, .stride = k->x_stride };

    g.x = k->x + (size_t)(m - g.n_known) * g.stride + x_at;
    g.a = g.x + f->q_at;
    g.a_step = f->block > TILE_ROW_BYTES ? TILE_ROW_BYTES : f->x_bytes;
    return g;
}

/* The chunk's rows times n_panels panels from `panel` on, into k->acc. */
static void multiply_panels(
    const struct gemm_args *a, const struct format *f, struct work *k, int panel, int n_panels)
{
    int n_blocks = a->w->n_cols / f->block, per_stretch = STRETCH / f->block, n = k->n;
    struct tile_config c = configuration(f, n);

    for (int i = 0; i < n_panels; i++)
        memset(k->acc[i], 0, (size_t)n * sizeof(k->acc[i][0]));
    for (int b = 0; b < n_blocks; b += per_stretch) {
        int n_here = MIN(per_stretch, n_blocks - b);
        for (int i = 0; i < n_panels; i++)
            f->unpack(&k->u[i],
                a->w->data + (size_t)(panel + i) * a->w->panel_bytes + (size_t)b * f->w_bytes,
                n_here);
        for (int m = 0; m < n; m += f->group) {
            struct group g = group_at(k, f, &c, m, (size_t)b * f->x_bytes);
            g.n_blocks = n_here;
            for (int i = 0; i < n_panels; i++)
                f->multiply(k, &g, &k->u[i], k->acc[i] + m - g.n_known);
        }
    }
}

static void store(const struct gemm_args *a, int panel, int m, int n, const __m512 *acc)
{
    __mmask16 rows = first_lanes(MIN(PANEL, a->w->n_rows - panel * PANEL));
    float *y = a->y + (size_t)m * a->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < n; i++)
        _mm512_mask_storeu_ps(y + (size_t)i * a->y_stride, rows, acc[i]);
}

static void open_chunk(struct work *k, const struct acts *x, int m, int n)
{
    k->n = n;
    k->x = x->pick ? k->picked : acts_row(x, m);
    k->x_stride = x->stride;
    for (int i = 0; x->pick && i < n; i++)
        memcpy(k->picked + (size_t)i * x->stride, acts_row(x, m + i), x->stride);
}

/* The most rows at once, whole pairs of tiles; 0: their copies would be too long. */
static int most_rows(const struct acts *x)
{
    const size_t pair = 2 * TILE_ROWS;

    return x->pick ? (int)MIN(PICKED / x->stride / pair * pair, (size_t)CHUNK) : CHUNK;
}

static void run(const struct gemm_args *a, const struct format *f)
{
    const int most = most_rows(a->x);
    int n_chunks = (a->x->n_rows + most - 1) / most;
    int even = (a->x->n_rows + n_chunks - 1) / n_chunks; /* no chunk of a few rows at the end */
    struct work k;

    even = (even + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * (2 * TILE_ROWS);
    for (int m = 0; m < a->x->n_rows; m += even) {
        open_chunk(&k, a->x, m, MIN(even, a->x->n_rows - m));
        struct tile_config c = configuration(f, k.n);
        tile_configure(&c);
        for (int p = a->panel_from; p < a->panel_to; p += PASS) {
            int n_panels = MIN(PASS, a->panel_to - p);
            multiply_panels(a, f, &k, p, n_panels);
            for (int i = 0; i < n_panels; i++)
                store(a, p + i, m, k.n, k.acc[i]);
        }
        tile_release();
    }
}

/* ---- one format and one entry per type */

#define GEMM(type, block, group, act, unpack, multiply)                                            \
    static void gemm_##type(const struct gemm_args *a)                                             \
    {                                                                                              \
        static const struct format f = { block, group, sizeof(struct p16_##type), sizeof(act),     \
            offsetof(act, q), unpack, multiply };                                                  \
        if (a->x->n_rows < AMX_FROM_ROWS || most_rows(a->x) == 0)                                  \
            avx512_gemm_##type(a);                                                                 \
        else                                                                                       \
            run(a, &f);                                                                            \
    }

GEMM(q8_0, 32, 16, struct act_q8_0, unpack_q8_0, multiply_small)
GEMM(q4_0, 32, 16, struct act_q8_0, unpack_q4_0, multiply_small)
GEMM(q4_k, 256, 32, struct act_q8_k, unpack_q4_k, multiply_with_mins)
GEMM(q5_k, 256, 32, struct act_q8_k, unpack_q5_k, multiply_with_mins)
GEMM(q6_k, 256, 32, struct act_q8_k, unpack_q6_k, multiply_without_mins)
GEMM(q4_1, 32, 16, struct act_q8_0, unpack_q4_1, multiply_small_with_mins)
GEMM(q5_0, 32, 16, struct act_q8_0, unpack_q5_0, multiply_small)
GEMM(q5_1, 32, 16, struct act_q8_0, unpack_q5_1, multiply_small_with_mins)
GEMM(iq4_nl, 32, 16, struct act_q8_0, unpack_iq4_nl, multiply_small)
GEMM(mxfp4, 32, 16, struct act_q8_0, unpack_mxfp4, multiply_small)
GEMM(iq4_xs, 256, 32, struct act_q8_k, unpack_iq4_xs, multiply_without_mins)

#ifndef AMX_SET
#define AMX_SET  kernels_amx
#define AMX_NAME "amx"
#endif

const struct kernels AMX_SET = {
    .name = AMX_NAME,
    .own_sums = 1,
    .half_acts = ACT_PLANES,
    .planes = amx_planes,
    .attend = amx_attend,
    .attend_merge = amx_attend_merge,
    .gemm = {
        [GEMM_F16] = amx_gemm_f16,
        [GEMM_BF16] = amx_gemm_bf16,
        [GEMM_Q8_0] = gemm_q8_0,
        [GEMM_Q4_0] = gemm_q4_0,
        [GEMM_Q4_K] = gemm_q4_k,
        [GEMM_Q5_K] = gemm_q5_k,
        [GEMM_Q6_K] = gemm_q6_k,
        [GEMM_Q4_1] = gemm_q4_1,
        [GEMM_Q5_0] = gemm_q5_0,
        [GEMM_Q5_1] = gemm_q5_1,
        [GEMM_IQ4_NL] = gemm_iq4_nl,
        [GEMM_MXFP4] = gemm_mxfp4,
        [GEMM_IQ4_XS] = gemm_iq4_xs,
    },
};
