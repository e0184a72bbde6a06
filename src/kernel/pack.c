/* pack.c: weight packing, from the row order of the file to panels. blocks.h documents both
 * formats. Packing only moves bits and rounds nothing; unpack.c is the inverse. Any thread; see
 * pack_panels(). */
#include "kernel/affine_codes.h"
#include "kernel/blocks.h"
#include "kernel/gemm.h"

#include <limits.h>

enum { MAX_DIM = 1 << 27 }; /* largest n_rows or n_cols; all products fit in 64 bits */

/* Elements and bytes of a block: file_bytes for one row, panel_bytes for the 16 rows of a panel. */
struct block_shape {
    int block;
    size_t file_bytes, panel_bytes;
};

/* Types without quantisation blocks: one number per row. */
struct file_f32 {
    uint8_t bytes[4];
};
struct file_f16 {
    uint8_t bytes[2];
};
struct file_bf16 {
    uint8_t bytes[2];
};
struct p16_f32 {
    struct file_f32 row[PANEL];
};
struct p16_f16 {
    struct file_f16 row[PANEL];
};
struct p16_bf16 {
    struct file_bf16 row[PANEL];
};

static struct block_shape shape_of_type(enum qtype type)
{
    switch ((int)type) {
#define WEIGHT(TYPE, name, act, block)                                                             \
    case Q_##TYPE:                                                                                 \
        return (struct block_shape){ block, sizeof(struct file_##name), sizeof(struct p16_##name) };
#include "kernel/types.def"
#undef WEIGHT
    default:
        return (struct block_shape){ 0, 0, 0 };
    }
}

static size_t panel_bytes(enum qtype type, int n_cols)
{
    struct block_shape s = shape_of_type(type);
    size_t bytes = (size_t)(n_cols / s.block) * s.panel_bytes;

    /* BF16 with odd n_cols fits: the division left half a line unused */
    return (bytes + 63) / 64 * 64;
}

size_t pack_bytes(enum qtype type, int n_rows, int n_cols)
{
    size_t n_panels = ((size_t)n_rows + PANEL - 1) / PANEL;

    CHECK(shape_of_type(type).block);
    return n_panels * panel_bytes(type, n_cols);
}

int pack_init(
    struct packed *w, enum qtype type, int n_rows, int n_cols, uint8_t *data, struct err *e)
{
    struct block_shape s = shape_of_type(type);

    if (!s.block)
        return err_set(e, ERR_UNSUPPORTED, "weight type %d is not supported", (int)type);
    if (n_rows < 1 || n_cols < 1 || n_rows > MAX_DIM || n_cols > MAX_DIM)
        return err_set(e, ERR_RANGE, "matrix dimensions %d x %d are out of range", n_rows, n_cols);
    if (n_cols % s.block)
        return err_set(e, ERR_CORRUPT, "row length %d is not a multiple of the block size %d",
            n_cols, s.block);
    *w = (struct packed){ .type = type,
        .n_rows = n_rows,
        .n_cols = n_cols,
        .n_panels = (n_rows + PANEL - 1) / PANEL,
        .panel_bytes = panel_bytes(type, n_cols),
        .data = data };
    return 0;
}

/* ---- copy one file block of row r to block b of a panel; b counts from k = 0 */

static void put_f32(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    memcpy(panel + b * 64 + (size_t)r * 4, file, 4);
}

static void put_f16(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    memcpy(panel + b * 32 + (size_t)r * 2, file, 2);
}

static void put_bf16(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    memcpy(panel + b / 2 * 64 + (size_t)r * 4 + b % 2 * 2, file, 2);
}

static uint32_t get4(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static void put4(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof(v));
}

/* 32 nibbles. Files and panels have the same order: first 16 low, second 16 high. */
static void put_nibbles_32(uint8_t q[4][16][4], int r, const uint8_t file[16])
{
    for (int i = 0; i < 4; i++)
        put4(q[i][r], get4(file + 4 * i));
}

/* Fifth bits: bit j of the file belongs to element j; the packed order is that of p16_q5_0. */
static void put_fifth_bits(uint8_t plane[16][4], int r, const uint8_t file[4])
{
    uint32_t bits = 0;

    for (int k = 0; k < 32; k++)
        bits |= (uint32_t)(file[k / 8] >> (k % 8) & 1) << (k % 4 * 8 + k / 4);
    put4(plane[r], bits);
}

static void put_q4_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q4_0 *p = (struct p16_q4_0 *)(void *)panel + b;
    struct file_q4_0 f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_32(p->q, r, f.q);
    p->d[r] = f.d;
}

static void put_q4_1(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q4_1 *p = (struct p16_q4_1 *)(void *)panel + b;
    struct file_q4_1 f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_32(p->q, r, f.q);
    p->d[r] = f.d;
    p->m[r] = f.m;
}

static void put_q5_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q5_0 *p = (struct p16_q5_0 *)(void *)panel + b;
    struct file_q5_0 f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_32(p->q, r, f.q);
    put_fifth_bits(p->high, r, f.high);
    p->d[r] = f.d;
}

static void put_q5_1(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q5_1 *p = (struct p16_q5_1 *)(void *)panel + b;
    struct file_q5_1 f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_32(p->q, r, f.q);
    put_fifth_bits(p->high, r, f.high);
    p->d[r] = f.d;
    p->m[r] = f.m;
}

static void put_iq4_nl(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq4_nl *p = (struct p16_iq4_nl *)(void *)panel + b;
    struct file_iq4_nl f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_32(p->q, r, f.q);
    p->d[r] = f.d;
}

static void put_mxfp4(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_mxfp4 *p = (struct p16_mxfp4 *)(void *)panel + b;
    struct file_mxfp4 f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_32(p->q, r, f.q);
    p->e[r] = f.e;
}

static void put_iq4_xs(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq4_xs *p = (struct p16_iq4_xs *)(void *)panel + b;
    struct file_iq4_xs f;

    memcpy(&f, file, sizeof(f));
    for (int s = 0; s < 8; s++) {
        int scale = (f.scale_lo[s / 2] >> (s % 2 * 4) & 15) | (f.scale_hi >> (2 * s) & 3) << 4;
        put_nibbles_32(p->q[s], r, f.q[s]);
        p->scale[s / 2][r][s % 2] = (int8_t)(scale - 32);
    }
    p->d[r] = f.d;
}

static void put_q8_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q8_0 *p = (struct p16_q8_0 *)(void *)panel + b;
    struct file_q8_0 f;

    memcpy(&f, file, sizeof(f));
    for (int i = 0; i < 8; i++)
        put4(p->q[i][r], get4(f.q + 4 * i) ^ 0x80808080);
    p->d[r] = f.d;
}

static void read_scales_k4(const uint8_t s[12], uint8_t sc[8], uint8_t m[8])
{
    for (int i = 0; i < 4; i++) {
        sc[i] = s[i] & 63;
        m[i] = s[i + 4] & 63;
        sc[i + 4] = (uint8_t)((s[i + 8] & 15) | s[i] >> 6 << 4);
        m[i + 4] = (uint8_t)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}

/* Writes the scale fields of p16_q4_k and p16_q5_k. pack_panels has cleared hi. */
static void put_scales_k4(uint8_t lo[4][16][2], uint8_t hi[2][16][2], int r, const uint8_t s[12])
{
    uint8_t sc[8], m[8];

    read_scales_k4(s, sc, m);
    for (int j = 0; j < 8; j++) {
        int p = j / 2, i = j % 2;
        lo[p][r][i] = (uint8_t)((sc[j] & 15) | (m[j] & 15) << 4);
        hi[p & 1][r][i] |= (uint8_t)((sc[j] >> 4 | m[j] >> 4 << 2) << (p / 2 * 4));
    }
}

/* 256 nibbles, from the file order (per 64 elements: first 32 low, second 32 high) to that of
 * p16_q4_0 per 32 elements. */
static void put_nibbles_256(uint8_t q[8][4][16][4], int r, const uint8_t file[128])
{
    for (int j = 0; j < 8; j++) {
        const uint8_t *from = file + j / 2 * 32;
        int shift = j % 2 * 4;
        for (int quad = 0; quad < 4; quad++) {
            uint32_t first = get4(from + 4 * quad) >> shift & 0x0f0f0f0f;
            uint32_t second = get4(from + 4 * quad + 16) >> shift & 0x0f0f0f0f;
            put4(q[j][quad][r], first | second << 4);
        }
    }
}

static void put_q4_k(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q4_k *p = (struct p16_q4_k *)(void *)panel + b;
    struct file_q4_k f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_256(p->q, r, f.q);
    put_scales_k4(p->scale_lo, p->scale_hi, r, f.scales);
    p->d[r] = f.d;
    p->dmin[r] = f.dmin;
}

static void put_q5_k(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q5_k *p = (struct p16_q5_k *)(void *)panel + b;
    struct file_q5_k f;

    memcpy(&f, file, sizeof(f));
    put_nibbles_256(p->q, r, f.q);
    for (int j = 0; j < 8; j++) {
        uint32_t bits = 0;
        for (int quad = 0; quad < 8; quad++)
            bits |= (get4(f.high + 4 * quad) >> j & 0x01010101) << quad;
        put4(p->high[j][r], bits);
    }
    put_scales_k4(p->scale_lo, p->scale_hi, r, f.scales);
    p->d[r] = f.d;
    p->dmin[r] = f.dmin;
}

/* Quad i of 16 consecutive elements: low nibbles and high bits in separate words. */
struct q6_quad {
    uint32_t low, high;
};

static struct q6_quad q6_quad(const struct file_q6_k *f, int sub, int i)
{
    int half = sub / 8, g = sub % 8 / 2, l = sub % 2 * 16 + 4 * i;

    return (
        struct q6_quad){ get4(f->low + 64 * half + 32 * (g & 1) + l) >> (g / 2 * 4) & 0x0f0f0f0f,
        get4(f->high + 32 * half + l) >> (2 * g) & 0x03030303 };
}

static void put_q6_k(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q6_k *p = (struct p16_q6_k *)(void *)panel + b;
    struct file_q6_k f;

    memcpy(&f, file, sizeof(f));
    for (int s = 0; s < 16; s++) {
        struct q6_quad q[4];
        for (int i = 0; i < 4; i++)
            q[i] = q6_quad(&f, s, i);
        put4(p->sub[s].low[0][r], q[0].low | q[2].low << 4);
        put4(p->sub[s].low[1][r], q[1].low | q[3].low << 4);
        put4(p->sub[s].high[r], q[0].high | q[1].high << 2 | q[2].high << 4 | q[3].high << 6);
        p->scale[s / 2][r][s % 2] = f.scale[s];
    }
    p->d[r] = f.d;
}

/* Element e of 256 in the order of Q2_K: two bits, 32 bytes per 128 elements. */
static int two_bits(const uint8_t q[64], int e)
{
    return q[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
}

/* 256 codes of two bits. pack_panels has cleared q. */
static void put_two_bits(uint8_t q[16][16][4], int r, const uint8_t file[64])
{
    for (int e = 0; e < QK_SUPER; e++)
        q[e / 16][r][e % 4] |= (uint8_t)(two_bits(file, e) << (e % 16 / 4 * 2));
}

static void put_q2_k(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q2_k *p = (struct p16_q2_k *)(void *)panel + b;
    struct file_q2_k f;

    memcpy(&f, file, sizeof(f));
    put_two_bits(p->q, r, f.q);
    for (int s = 0; s < 16; s++)
        p->scale[s / 2][r][s % 2] = f.scale[s];
    p->d[r] = f.d;
    p->dmin[r] = f.dmin;
}

static void put_q3_k(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q3_k *p = (struct p16_q3_k *)(void *)panel + b;
    struct file_q3_k f;

    memcpy(&f, file, sizeof(f));
    for (int e = 0; e < QK_SUPER; e++) {
        int code = two_bits(f.q, e) | (f.high[e % 32] >> (e / 32) & 1) << 2;
        int quad = e % 32 / 4, i = e % 4;
        if (quad < 6)
            p->q[e / 32][quad / 2][r][i] |= (uint8_t)(code << (quad % 2 * 3));
        else {
            p->q[e / 32][quad - 6][r][i] |= (uint8_t)((code & 3) << 6);
            p->q[e / 32][2][r][i] |= (uint8_t)(code >> 2 << quad);
        }
    }
    for (int s = 0; s < 16; s++) {
        int low = f.scale[s % 8] >> (s / 8 * 4) & 15, high = f.scale[8 + s % 4] >> (s / 4 * 2) & 3;
        p->scale[s / 2][r][s % 2] = (int8_t)((low | high << 4) - 32);
    }
    p->d[r] = f.d;
}

/* Seven sign bits and the eighth, which makes their number even. */
static uint8_t eight_signs(uint32_t seven)
{
    return (uint8_t)(seven | (uint32_t)(__builtin_popcount(seven) & 1) << 7);
}

/* 32 sign bits and s of sub-block j from four times seven signs and four bits. */
static void put_signs_and_scale(
    uint8_t sign[32][16], uint8_t scale[4][16], int r, int j, const uint8_t file[4])
{
    uint32_t bits = get4(file);

    for (int g = 0; g < 4; g++)
        sign[4 * j + g][r] = eight_signs(bits >> (7 * g) & 127);
    scale[j / 2][r] |= (uint8_t)(bits >> 28 << (j % 2 * 4));
}

/* n bytes of row r */
static void put_bytes(uint8_t (*to)[16], int r, const uint8_t *from, int n)
{
    for (int i = 0; i < n; i++)
        to[i][r] = from[i];
}

static void put_iq2_xxs(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq2_xxs *p = (struct p16_iq2_xxs *)(void *)panel + b;
    struct file_iq2_xxs f;

    memcpy(&f, file, sizeof(f));
    for (int j = 0; j < 8; j++) {
        put_bytes(p->index + 4 * j, r, f.sub[j].index, 4);
        put_signs_and_scale(p->sign, p->scale, r, j, f.sub[j].signs);
    }
    p->d[r] = f.d;
}

static void put_iq2_xs(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq2_xs *p = (struct p16_iq2_xs *)(void *)panel + b;
    struct file_iq2_xs f;

    memcpy(&f, file, sizeof(f));
    for (int g = 0; g < 32; g++) {
        p->index[g][r] = (uint8_t)f.q[g];
        p->high[g / 8][r] |= (uint8_t)((f.q[g] >> 8 & 1) << (g % 8));
        p->sign[g][r] = eight_signs(f.q[g] >> 9);
    }
    put_bytes(p->scale, r, f.scale, 8);
    p->d[r] = f.d;
}

static void put_iq2_s(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq2_s *p = (struct p16_iq2_s *)(void *)panel + b;
    struct file_iq2_s f;

    memcpy(&f, file, sizeof(f));
    put_bytes(p->index, r, f.index, 32);
    put_bytes(p->sign, r, f.sign, 32);
    put_bytes(p->high, r, f.high, 8);
    put_bytes(p->scale, r, f.scale, 8);
    p->d[r] = f.d;
}

static void put_iq3_xxs(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq3_xxs *p = (struct p16_iq3_xxs *)(void *)panel + b;
    struct file_iq3_xxs f;

    memcpy(&f, file, sizeof(f));
    put_bytes(p->index, r, f.index, 64);
    for (int j = 0; j < 8; j++)
        put_signs_and_scale(p->sign, p->scale, r, j, f.signs[j]);
    p->d[r] = f.d;
}

static void put_iq3_s(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq3_s *p = (struct p16_iq3_s *)(void *)panel + b;
    struct file_iq3_s f;

    memcpy(&f, file, sizeof(f));
    put_bytes(p->index, r, f.index, 64);
    put_bytes(p->sign, r, f.sign, 32);
    put_bytes(p->high, r, f.high, 8);
    put_bytes(p->scale, r, f.scale, 4);
    p->d[r] = f.d;
}

static void put_iq1_s(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq1_s *p = (struct p16_iq1_s *)(void *)panel + b;
    struct file_iq1_s f;

    memcpy(&f, file, sizeof(f));
    put_bytes(p->index, r, f.index, 32);
    for (int j = 0; j < 8; j++)
        p->high[j][r] = f.high[j];
    p->d[r] = f.d;
}

static void put_iq1_m(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_iq1_m *p = (struct p16_iq1_m *)(void *)panel + b;
    struct file_iq1_m f;

    memcpy(&f, file, sizeof(f));
    put_bytes(p->index, r, f.index, 32);
    put_bytes(p->high, r, f.high, 16);
    for (int i = 0; i < 4; i++) {
        p->scale[i][r] = f.scale[i] & 0xfff;
        p->d[r] |= (uint16_t)(f.scale[i] >> 12 << (4 * i));
    }
}

static void put_tq1_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    static const uint8_t power[5] = { 1, 3, 9, 27, 81 };
    struct p16_tq1_0 *p = (struct p16_tq1_0 *)(void *)panel + b;
    struct file_tq1_0 f;

    memcpy(&f, file, sizeof(f));
    for (int e = 0; e < QK_SUPER; e++) {
        int digit = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
        uint8_t byte = e < 160 ? f.q[e % 32] : e < 240 ? f.q[32 + e % 16] : f.last[e % 4];
        int code = (uint8_t)(byte * power[digit]) * 3 >> 8;
        p->q[e / 16][r][e % 4] |= (uint8_t)(code << (e % 16 / 4 * 2));
    }
    p->d[r] = f.d;
}

static void put_tq2_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_tq2_0 *p = (struct p16_tq2_0 *)(void *)panel + b;
    struct file_tq2_0 f;

    memcpy(&f, file, sizeof(f));
    put_two_bits(p->q, r, f.q);
    p->d[r] = f.d;
}

static void put_q1_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q1_0 *p = (struct p16_q1_0 *)(void *)panel + b;
    struct file_q1_0 f;

    memcpy(&f, file, sizeof(f));
    for (int j = 0; j < QK_Q1_0 / 32; j++)
        put_fifth_bits(p->q[j], r, f.q + 4 * j);
    p->d[r] = f.d;
}

static void put_q2_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q2_0 *p = (struct p16_q2_0 *)(void *)panel + b;
    struct file_q2_0 f;

    memcpy(&f, file, sizeof(f));
    for (int e = 0; e < QK_Q2_0; e++) {
        int code = f.q[e / 4] >> (e % 4 * 2) & 3;
        p->q[e / 16][r][e % 4] |= (uint8_t)(code << (e % 16 / 4 * 2));
    }
    p->d[r] = f.d;
}

static void put_nvfp4(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_nvfp4 *p = (struct p16_nvfp4 *)(void *)panel + b;
    struct file_nvfp4 f;

    memcpy(&f, file, sizeof(f));
    for (int e = 0; e < QK_NVFP4; e++) {
        int code = f.q[e / 16][e % 8] >> (e % 16 / 8 * 4) & 15, k = e % 32;
        p->q[e / 32][k % 16 / 4][r][k % 4] |= (uint8_t)(code << (k / 16 * 4));
    }
    put_bytes(p->e, r, f.e, 4);
}

/* ---- affine types: blocks of 32 or 64, with the same scale */

#define PUT_AFFINE(name, put_codes)                                                                \
    static void put_##name(uint8_t *panel, size_t b, int r, const uint8_t *file)                   \
    {                                                                                              \
        struct p16_##name *p = (struct p16_##name *)(void *)panel + b;                             \
        struct file_##name f;                                                                      \
                                                                                                   \
        memcpy(&f, file, sizeof(f));                                                               \
        for (size_t i = 0; i < ARRAY_LEN(f.q); i++)                                                \
            put_codes(p->q[i], r, f.q[i]);                                                         \
        p->d[r] = f.d;                                                                             \
        p->m[r] = f.m;                                                                             \
    }

static void put_bytes_32(uint8_t q[8][16][4], int r, const uint8_t file[32])
{
    for (int i = 0; i < 8; i++)
        put4(q[i][r], get4(file + 4 * i));
}

PUT_AFFINE(affine4_32, put_nibbles_32)
PUT_AFFINE(affine4_64, put_nibbles_32)
PUT_AFFINE(affine8_32, put_bytes_32)
PUT_AFFINE(affine8_64, put_bytes_32)

/* Code i of a little-endian bit stream. */
static int stream_code(const uint8_t *stream, int bits, int i)
{
    int at = i * bits, v = stream[at / 8];

    if (at % 8 + bits > 8)
        v |= stream[at / 8 + 1] << 8;
    return v >> (at % 8) & ((1 << bits) - 1);
}

static void put_bits(uint8_t (*q)[16][4], int r, struct affine_bits b, int v)
{
    q[b.array][r][b.column] |= (uint8_t)(v << b.shift);
}

static void put_codes2(uint8_t q[2][16][4], int r, const uint8_t *file)
{
    for (int k = 0; k < 32; k++)
        put_bits(q, r, affine_two_bits(k), stream_code(file, 2, k));
}

static void put_codes3(uint8_t q[3][16][4], int r, const uint8_t *file)
{
    for (int k = 0; k < 32; k++) {
        int code = stream_code(file, 3, k);
        put_bits(q, r, affine_two_bits(k), code & 3);
        put_bits(q + 2, r, affine_one_bit(k), code >> 2);
    }
}

static void put_codes5(uint8_t q[5][16][4], int r, const uint8_t *file)
{
    for (int k = 0; k < 32; k++) {
        int code = stream_code(file, 5, k);
        put_bits(q, r, affine_nibble(k), code & 15);
        put_bits(q + 4, r, affine_one_bit(k), code >> 4);
    }
}

static void put_codes6(uint8_t q[6][16][4], int r, const uint8_t *file)
{
    for (int k = 0; k < 32; k++) {
        int code = stream_code(file, 6, k);
        put_bits(q, r, affine_nibble(k), code & 15);
        put_bits(q + 4, r, affine_two_bits(k), code >> 4);
    }
}

#define PUT_AFFINE_CODES(bits)                                                                     \
    PUT_AFFINE(affine##bits##_32, put_codes##bits)                                                 \
    PUT_AFFINE(affine##bits##_64, put_codes##bits)
PUT_AFFINE_CODES(2)
PUT_AFFINE_CODES(3)
PUT_AFFINE_CODES(5)
PUT_AFFINE_CODES(6)

/* ---- E4M3 numbers */

#define PUT_FP8(name, scale)                                                                       \
    static void put_##name(uint8_t *panel, size_t b, int r, const uint8_t *file)                   \
    {                                                                                              \
        struct p16_##name *p = (struct p16_##name *)(void *)panel + b;                             \
        struct file_##name f;                                                                      \
                                                                                                   \
        memcpy(&f, file, sizeof(f));                                                               \
        for (size_t k = 0; k < ARRAY_LEN(f.q); k++)                                                \
            p->q[k][r] = f.q[k];                                                                   \
        p->scale[r] = f.scale;                                                                     \
    }
PUT_FP8(fp8_32, d)
PUT_FP8(fp8_128, d)
PUT_FP8(mxfp8, e)

typedef void (*put_block_fn)(uint8_t *panel, size_t b, int r, const uint8_t *file);

static const put_block_fn put_block_by_slot[N_GEMM_SLOTS] = {
#define WEIGHT(TYPE, name, act, block) [GEMM_##TYPE] = put_##name,
#include "kernel/types.def"
#undef WEIGHT
};

void pack_panels(struct packed *w, const uint8_t *rows, int panel_from, int panel_to)
{
    struct block_shape s = shape_of_type(w->type);
    put_block_fn put_block = put_block_by_slot[gemm_slot(w->type)];
    size_t n_blocks = (size_t)(w->n_cols / s.block), row_bytes = n_blocks * s.file_bytes;

    for (int p = panel_from; p < panel_to; p++) {
        uint8_t *panel = w->data + (size_t)p * w->panel_bytes;
        int n = MIN(PANEL, w->n_rows - p * PANEL);
        const uint8_t *from = rows + (size_t)p * PANEL * row_bytes;

        memset(panel, 0, w->panel_bytes);
        for (size_t b = 0; b < n_blocks; b++)
            for (int r = 0; r < n; r++)
                put_block(panel, b, r, from + (size_t)r * row_bytes + b * s.file_bytes);
    }
}
