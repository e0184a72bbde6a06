/* x86_amx.c: the AMX kernel set, and GEMM with int8 dot products on AMX tiles (float weights:
 * x86_amx_float.c). Integer dot products are exact, so every row has the bits of ref.c for any
 * number of rows.
 *
 * Weights are unpacked, a K block of 256 k of one panel at a time, to signed bytes in the order of
 * quad rows [16 rows][4 k]; 16 of them are a B tile. All activation rows of a chunk are multiplied
 * with an unpacked K block before the next one is unpacked; their partial sums are kept in floats.
 * A tiles are loaded directly from the activation rows; gathered rows are first copied to adjacent
 * memory, once for all panels. If the last row group is too short for a tile, it also contains
 * rows of the previous group, whose dot products are ignored.
 *
 *   blocks of 32     Each block has its own scale: a tile accumulates the dot products of one
 *                    block with 16 rows and is stored; vector code scales and adds the result. On
 *                    the first processors with AMX, storing does not overlap with multiplying (33
 *                    cycles for a block whose product takes 16), so the previous blocks are scaled
 *                    at the same time: two sets of FLIGHT_BLOCKS blocks.
 *   blocks of 256    Scaling inside the block uses integers: weight x sub-block scale is below
 *                    2^15 and is split into two bytes, of which the lower is unsigned. Separate
 *                    tiles accumulate the products of both bytes over the block, 2 x 16 rows x 2
 *                    bytes at a time; they are combined at the end of the block.
 *
 * Few rows are left to AVX-512: GEMV runs at memory bandwidth there and needs no unpacking. */
#ifndef __AVX512VNNI__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_amx.h"
#include "kernel/x86/x86_amx_tile.h"
#include "kernel/x86/x86_avx512_gemm.h"

/* Minimum number of rows for which tiles are faster than AVX-512, as measured on a Xeon
 * (docs/decisions.md). FEW: the scales of sub-blocks are in the weights, or AVX-512 spends much on
 * unpacking. MANY: both sets spend most of the time on the scales of blocks of 32. */
#ifndef AMX_FROM_FEW_ROWS
#define AMX_FROM_FEW_ROWS  12
#define AMX_FROM_MANY_ROWS 32
#endif

enum {
    CHUNK_ROWS = 256,          /* activation rows that use an unpacked K block */
    GATHER_BYTES = 768 * 1024, /* bytes of gathered rows that can be copied */
    PASS_PANELS = 2,           /* panels per pass */
    KBLOCK = 256,              /* k per K block */
    FLIGHT_BLOCKS = 4,         /* blocks of 32 that are in tiles at once */
    C_BYTES = 64,              /* bytes per row of a C tile: 16 int32 */
};

/* K block of a panel */
struct unpacked_kblock {
    ALIGNED(64) uint8_t plane[2][KBLOCK / 4][64]; /* [1]: upper bytes, for blocks of 256 */
    /* per block of 32; for blocks of 256: d and dmin */
    __m512 d[KBLOCK / 32];
    /* minimums per block of 32, for types that have them */
    __m512 m[KBLOCK / 32];
    __m512i min[4]; /* the field of struct sub_scales */
};

/* On the stack, since a step allocates nothing. */
struct gemm_scratch {
    __m512 acc[PASS_PANELS][CHUNK_ROWS];
    struct unpacked_kblock u[PASS_PANELS];
    __m512i dots[2][FLIGHT_BLOCKS][TILE_ROWS];
    ALIGNED(64) uint8_t gathered[GATHER_BYTES];
    const uint8_t *x; /* first row of the chunk */
    size_t x_stride;
    int n;
};

/* Row group: the activation rows that are multiplied with one K block at a time. */
struct row_group {
    int n, n_repeated; /* the first n_repeated rows were already in the previous group */
    int n_blocks;
    const uint8_t *x, *a;     /* first block of the first row, and its codes */
    size_t stride, tile_step; /* bytes to the next row and to the next tile */
};

struct tile_format {
    int block;     /* elements of k */
    int row_group; /* activation rows at a time: 16 or 32 */
    /* bytes of a block of the panel and of a row; offset of the codes in the latter */
    size_t w_bytes, x_bytes, q_at;
    void (*unpack)(struct unpacked_kblock *u, const uint8_t *w, int n_blocks);
    /* Adds the products of the group with u to acc[row], except for repeated rows. */
    void (*multiply)(struct gemm_scratch *k, const struct row_group *g,
        const struct unpacked_kblock *u, __m512 *acc);
};

/* ---- blocks of 32 */

static void unpack_q8_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q8_0 *p = (const void *)w;
    const __m512i offset = _mm512_set1_epi8((char)128);

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        UNROLL for (int i = 0; i < 8; i++) _mm512_store_si512(
            u->plane[0][8 * b + i], _mm512_xor_si512(_mm512_loadu_si512(p->q[i]), offset));
        u->d[b] = f16_to_f32_x16(p->d);
    }
}

static void unpack_q4_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_0 *p = (const void *)w;
    const __m512i offset = _mm512_set1_epi8(8);
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        UNROLL for (int i = 0; i < 8; i++)
            _mm512_store_si512(u->plane[0][8 * b + i], _mm512_sub_epi8(q[i], offset));
        u->d[b] = f16_to_f32_x16(p->d);
    }
}

/* Subtracts the offset from eight quads and stores them. */
INLINE void put_quads(struct unpacked_kblock *u, int block, const __m512i q[8], int offset)
{
    UNROLL for (int i = 0; i < 8; i++) _mm512_store_si512(
        u->plane[0][8 * block + i], _mm512_sub_epi8(q[i], _mm512_set1_epi8((char)offset)));
}

static void unpack_q4_1(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_1 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        put_quads(u, b, q, 0);
        u->d[b] = f16_to_f32_x16(p->d);
        u->m[b] = f16_to_f32_x16(p->m);
    }
}

static void unpack_q5_0(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_0 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        add_fifth_bits(q, p->high);
        put_quads(u, b, q, 16);
        u->d[b] = f16_to_f32_x16(p->d);
    }
}

static void unpack_q5_1(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_1 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        add_fifth_bits(q, p->high);
        put_quads(u, b, q, 0);
        u->d[b] = f16_to_f32_x16(p->d);
        u->m[b] = f16_to_f32_x16(p->m);
    }
}

static void unpack_iq4_nl(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_nl *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        codebook_lookup(q, iq4_codebook(0));
        put_quads(u, b, q, 0);
        u->d[b] = f16_to_f32_x16(p->d);
    }
}

static void unpack_mxfp4(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_mxfp4 *p = (const void *)w;
    __m512i q[8];

    for (int b = 0; b < n_blocks; b++, p++) {
        prefetch_ahead((const uint8_t *)p, sizeof(*p));
        load_nibbles(q, p->q);
        codebook_lookup(q, mxfp4_codebook(0));
        put_quads(u, b, q, 0);
        u->d[b] = e8m0_half16(p->e);
    }
}

/* Computes the dot products of up to FLIGHT_BLOCKS blocks, from block b on. */
INLINE void dot_blocks_32(
    const struct row_group *g, const struct unpacked_kblock *u, int b, __m512i (*to)[16])
{
    int n = MIN(FLIGHT_BLOCKS, g->n_blocks - b);
    const uint8_t *a = g->a + (size_t)b * g->tile_step;

#define BLOCK(i, ta, tb)                                                                           \
    do {                                                                                           \
        TILE_ZERO(i);                                                                              \
        TILE_LOAD(ta, a + i * g->tile_step, g->stride);                                            \
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

/* has_mins is a compile-time constant in each caller. */
INLINE void add_scaled_blocks(const struct row_group *g, const struct unpacked_kblock *u, int b,
    __m512i (*from)[16], __m512 *acc, bool has_mins)
{
    int n = MIN(FLIGHT_BLOCKS, g->n_blocks - b);

    for (int m = g->n_repeated; m < g->n; m++) {
        const struct act_q8_0 *x = (const void *)(g->x + (size_t)m * g->stride);
        __m512 sum = acc[m];
        for (int i = 0; i < n; i++) {
            sum = fma_dot(sum, u->d[b + i], x[b + i].d, from[i][m]);
            if (has_mins)
                sum = fma_min(sum, u->m[b + i], &x[b + i]);
        }
        acc[m] = sum;
    }
}

INLINE void multiply_blocks_32(struct gemm_scratch *k, const struct row_group *g,
    const struct unpacked_kblock *u, __m512 *acc, bool has_mins)
{
    dot_blocks_32(g, u, 0, k->dots[0]);
    for (int b = FLIGHT_BLOCKS; b < g->n_blocks; b += FLIGHT_BLOCKS) {
        dot_blocks_32(g, u, b, k->dots[b / FLIGHT_BLOCKS % 2]);
        add_scaled_blocks(
            g, u, b - FLIGHT_BLOCKS, k->dots[(b / FLIGHT_BLOCKS + 1) % 2], acc, has_mins);
    }
    int last = (g->n_blocks - 1) / FLIGHT_BLOCKS;
    add_scaled_blocks(g, u, last * FLIGHT_BLOCKS, k->dots[last % 2], acc, has_mins);
}

static void multiply_32(
    struct gemm_scratch *k, const struct row_group *g, const struct unpacked_kblock *u, __m512 *acc)
{
    multiply_blocks_32(k, g, u, acc, false);
}

static void multiply_32_mins(
    struct gemm_scratch *k, const struct row_group *g, const struct unpacked_kblock *u, __m512 *acc)
{
    multiply_blocks_32(k, g, u, acc, true);
}

/* ---- blocks of 256 */

/* Duplicates element i (0 or 1) of each pair of int16. */
INLINE __m512i duplicate_of_pair(__m512i pair, int i)
{
    return i ? _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(pair, 0xf5), 0xf5)
             : _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(pair, 0xa0), 0xa0);
}

/* Stores (w - offset) * scale of a quad row as lower and upper bytes. */
INLINE void put_scaled_bytes(
    struct unpacked_kblock *u, int quad, __m512i w, __m512i scale, int offset)
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

static void unpack_q4_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q4_k *p = (const void *)w;
    struct sub_scales s;
    __m512i q[8];

    load_scales(&s, p->scale_lo, p->scale_hi);
    for (int j = 0; j < 8; j++) {
        prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
        load_nibbles(q, p->q[j]);
        __m512i scale = duplicate_of_pair(s.scale[j / 2], j % 2);
        UNROLL for (int i = 0; i < 8; i++) put_scaled_bytes(u, 8 * j + i, q[i], scale, 0);
    }
    memcpy(u->min, s.min, sizeof(s.min));
    u->d[0] = f16_to_f32_x16(p->d);
    u->d[1] = f16_to_f32_x16(p->dmin);
}

static void unpack_q5_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q5_k *p = (const void *)w;
    struct sub_scales s;
    __m512i q[8];

    load_scales(&s, p->scale_lo, p->scale_hi);
    for (int j = 0; j < 8; j++) {
        prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
        load_nibbles(q, p->q[j]);
        add_fifth_bits(q, p->high[j]);
        __m512i scale = duplicate_of_pair(s.scale[j / 2], j % 2);
        UNROLL for (int i = 0; i < 8; i++) put_scaled_bytes(u, 8 * j + i, q[i], scale, 0);
    }
    memcpy(u->min, s.min, sizeof(s.min));
    u->d[0] = f16_to_f32_x16(p->d);
    u->d[1] = f16_to_f32_x16(p->dmin);
}

static void unpack_q6_k(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_q6_k *p = (const void *)w;
    __m512i q[4];

    for (int j = 0; j < 16; j++) {
        prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 16, sizeof(*p) / 16);
        load_q6_quads(q, p->sub[j].low, p->sub[j].high);
        __m512i pair = _mm512_cvtepi8_epi16(
            _mm256_loadu_si256((const __m256i *)(const void *)p->scale[j / 2]));
        __m512i scale = duplicate_of_pair(pair, j % 2);
        UNROLL for (int i = 0; i < 4; i++) put_scaled_bytes(u, 4 * j + i, q[i], scale, 32);
    }
    u->d[0] = f16_to_f32_x16(p->d);
}

static void unpack_iq4_xs(struct unpacked_kblock *u, const uint8_t *w, int n_blocks)
{
    const struct p16_iq4_xs *p = (const void *)w;
    __m512i q[8];

    for (int j = 0; j < 8; j++) {
        prefetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
        load_nibbles(q, p->q[j]);
        codebook_lookup(q, iq4_codebook(IQ4_OFFSET));
        __m512i pair = _mm512_cvtepi8_epi16(
            _mm256_loadu_si256((const __m256i *)(const void *)p->scale[j / 2]));
        __m512i scale = duplicate_of_pair(pair, j % 2);
        UNROLL for (int i = 0; i < 8; i++) put_scaled_bytes(u, 8 * j + i, q[i], scale, IQ4_OFFSET);
    }
    u->d[0] = f16_to_f32_x16(p->d);
}

/* Dot products of all rows with both bytes of the weights of a block, 64 k at a time. */
INLINE void dot_block_256(
    const struct row_group *g, const struct unpacked_kblock *u, __m512i (*to)[16])
{
    bool two = g->n > TILE_ROWS;

    TILE_ZERO(0);
    TILE_ZERO(1);
    if (two) {
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (int t = 0; t < KBLOCK / 64; t++) {
        const uint8_t *a = g->a + (size_t)t * g->tile_step;
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

INLINE void multiply_block_256(struct gemm_scratch *k, const struct row_group *g,
    const struct unpacked_kblock *u, __m512 *acc, bool has_mins)
{
    __m512i(*dots)[16] = k->dots[0];

    dot_block_256(g, u, dots);
    for (int m = g->n_repeated; m < g->n; m++) {
        const struct act_q8_k *x = (const void *)(g->x + (size_t)m * g->stride);
        int two = m / TILE_ROWS * 2, r = m % TILE_ROWS;
        __m512i sum = _mm512_add_epi32(dots[two][r], _mm512_slli_epi32(dots[two + 1][r], 8));
        acc[m] = has_mins ? fma_dot_min(acc[m], u->d, x, sum, u->min)
                          : fma_dot(acc[m], u->d[0], x->d, sum);
    }
}

static void multiply_256_mins(
    struct gemm_scratch *k, const struct row_group *g, const struct unpacked_kblock *u, __m512 *acc)
{
    multiply_block_256(k, g, u, acc, true);
}

static void multiply_256(
    struct gemm_scratch *k, const struct row_group *g, const struct unpacked_kblock *u, __m512 *acc)
{
    multiply_block_256(k, g, u, acc, false);
}

/* ---- drivers */

/* Tile sizes for n activation rows in groups of f->row_group; exact if there is one group. */
static struct tile_config make_tile_config(const struct tile_format *f, int n)
{
    int first = MIN(n, TILE_ROWS);
    int second = f->row_group > TILE_ROWS ? MIN(n - first, TILE_ROWS) : first;
    int k = MIN(f->block, TILE_ROW_BYTES); /* bytes per row of an A tile */
    struct tile_config c = { .palette = 1 };

    for (int t = 0; t < 6; t++) { /* 0 .. 3: sums (C), 4 and 5: activations (A) */
        int rows = t < 2 || t == 4 ? first : second;
        c.rows[t] = (uint8_t)rows;
        c.row_bytes[t] = (uint16_t)(rows == 0 ? 0 : t < 4 ? C_BYTES : k);
    }
    for (int t = 6; t < N_TILES; t++) { /* weights (B) */
        c.rows[t] = (uint8_t)(k / 4);
        c.row_bytes[t] = 64;
    }
    return c;
}

/* The group at row m. If fewer rows than a tile holds are left, it begins earlier so that tiles are
 * full. */
static struct row_group row_group_at(const struct gemm_scratch *k, const struct tile_format *f,
    const struct tile_config *c, int m, size_t x_at)
{
    int n = MIN(f->row_group, k->n - m);
    int room = n > TILE_ROWS ? c->rows[4] + c->rows[5] : c->rows[4];
    struct row_group g = { .n = room, .n_repeated = room - n, .stride = k->x_stride };

    g.x = k->x + (size_t)(m - g.n_repeated) * g.stride + x_at;
    g.a = g.x + f->q_at;
    g.tile_step = f->block > TILE_ROW_BYTES ? TILE_ROW_BYTES : f->x_bytes;
    return g;
}

/* Multiplies the rows of the chunk with n_panels panels from `panel` on; the result is in
 * k->acc. */
static void multiply_panels(const struct gemm_args *a, const struct tile_format *f,
    struct gemm_scratch *k, int panel, int n_panels)
{
    int n_blocks = a->w->n_cols / f->block, blocks_per_kblock = KBLOCK / f->block, n = k->n;
    struct tile_config c = make_tile_config(f, n);

    for (int i = 0; i < n_panels; i++)
        memset(k->acc[i], 0, (size_t)n * sizeof(k->acc[i][0]));
    for (int b = 0; b < n_blocks; b += blocks_per_kblock) {
        int n_here = MIN(blocks_per_kblock, n_blocks - b);
        for (int i = 0; i < n_panels; i++)
            f->unpack(&k->u[i],
                a->w->data + (size_t)(panel + i) * a->w->panel_bytes + (size_t)b * f->w_bytes,
                n_here);
        for (int m = 0; m < n; m += f->row_group) {
            struct row_group g = row_group_at(k, f, &c, m, (size_t)b * f->x_bytes);
            g.n_blocks = n_here;
            for (int i = 0; i < n_panels; i++)
                f->multiply(k, &g, &k->u[i], k->acc[i] + m - g.n_repeated);
        }
    }
}

static void store_outputs(const struct gemm_args *a, int panel, int m, int n, const __m512 *acc)
{
    __mmask16 rows = first_lanes(MIN(PANEL, a->w->n_rows - panel * PANEL));
    float *y = a->y + (size_t)m * a->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < n; i++)
        _mm512_mask_storeu_ps(y + (size_t)i * a->y_stride, rows, acc[i]);
}

static void begin_chunk(struct gemm_scratch *k, const struct acts *x, int m, int n)
{
    k->n = n;
    k->x = x->gather ? k->gathered : acts_row(x, m);
    k->x_stride = x->stride;
    for (int i = 0; x->gather && i < n; i++)
        memcpy(k->gathered + (size_t)i * x->stride, acts_row(x, m + i), x->stride);
}

/* Most rows per chunk, a multiple of two tiles; 0 if gathered rows are too long to copy. */
static int max_chunk_rows(const struct acts *x)
{
    const size_t pair = 2 * TILE_ROWS;

    return x->gather ? (int)MIN(GATHER_BYTES / x->stride / pair * pair, (size_t)CHUNK_ROWS)
                     : CHUNK_ROWS;
}

static void gemm_with_tiles(const struct gemm_args *a, const struct tile_format *f)
{
    const int max_rows = max_chunk_rows(a->x);
    int n_chunks = (a->x->n_rows + max_rows - 1) / max_rows;
    /* equal chunks: the last one is not much smaller */
    int rows_per_chunk = (a->x->n_rows + n_chunks - 1) / n_chunks;
    struct gemm_scratch k;

    rows_per_chunk = (rows_per_chunk + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS) * (2 * TILE_ROWS);
    for (int m = 0; m < a->x->n_rows; m += rows_per_chunk) {
        begin_chunk(&k, a->x, m, MIN(rows_per_chunk, a->x->n_rows - m));
        struct tile_config c = make_tile_config(f, k.n);
        tile_configure(&c);
        for (int p = a->panel_from; p < a->panel_to; p += PASS_PANELS) {
            int n_panels = MIN(PASS_PANELS, a->panel_to - p);
            multiply_panels(a, f, &k, p, n_panels);
            for (int i = 0; i < n_panels; i++)
                store_outputs(a, p + i, m, k.n, k.acc[i]);
        }
        tile_release();
    }
}

/* ---- one format and one table entry per type */

#define GEMM(type, from_rows, block, row_group, act, unpack, multiply)                             \
    static void gemm_##type(const struct gemm_args *a)                                             \
    {                                                                                              \
        static const struct tile_format f = { block, row_group, sizeof(struct p16_##type),         \
            sizeof(act), offsetof(act, q), unpack, multiply };                                     \
        if (a->x->n_rows < AMX_FROM_##from_rows##_ROWS || max_chunk_rows(a->x) == 0)               \
            avx512_gemm_##type(a);                                                                 \
        else                                                                                       \
            gemm_with_tiles(a, &f);                                                                \
    }

GEMM(q8_0, MANY, 32, 16, struct act_q8_0, unpack_q8_0, multiply_32)
GEMM(q4_0, MANY, 32, 16, struct act_q8_0, unpack_q4_0, multiply_32)
GEMM(q4_k, FEW, 256, 32, struct act_q8_k, unpack_q4_k, multiply_256_mins)
GEMM(q5_k, FEW, 256, 32, struct act_q8_k, unpack_q5_k, multiply_256_mins)
GEMM(q6_k, FEW, 256, 32, struct act_q8_k, unpack_q6_k, multiply_256)
GEMM(q4_1, MANY, 32, 16, struct act_q8_0, unpack_q4_1, multiply_32_mins)
GEMM(q5_0, FEW, 32, 16, struct act_q8_0, unpack_q5_0, multiply_32)
GEMM(q5_1, MANY, 32, 16, struct act_q8_0, unpack_q5_1, multiply_32_mins)
GEMM(iq4_nl, FEW, 32, 16, struct act_q8_0, unpack_iq4_nl, multiply_32)
GEMM(mxfp4, FEW, 32, 16, struct act_q8_0, unpack_mxfp4, multiply_32)
GEMM(iq4_xs, FEW, 256, 32, struct act_q8_k, unpack_iq4_xs, multiply_256)

#ifndef AMX_SET
#define AMX_SET  kernels_amx
#define AMX_NAME "amx"
#endif

const struct kernels AMX_SET = {
    .name = AMX_NAME,
    .numerics_id = 1,
    .f16_acts = ACT_BF16X2,
    .bf16x2 = amx_bf16x2,
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
