/* pack.c: rows of a tensor as they lie in the file, into panels, and single rows back.
 *
 * blocks.h shows both sides. Packing only moves bytes: nothing is rounded, and pack_get_row gives
 * the floats that the file's block stands for, in the order of operations GGUF users know. */
#include "kernel/blocks.h"
#include "kernel/gemm.h"
#include "kernel/half.h"

#include <limits.h>

enum { MAX_DIM = 1 << 27 }; /* of a matrix: keeps every product below in 64 bits */

/* Elements and bytes of a block: in the file (of one row), packed (of a panel). */
struct shape {
    int block;
    size_t file_bytes, panel_bytes;
};

static struct shape shape_of(enum qtype type)
{
    switch ((int)type) {
    case Q_F32:
        return (struct shape){ 1, 4, 4 * PANEL };
    case Q_F16:
        return (struct shape){ 1, 2, 2 * PANEL };
    case Q_BF16:
        return (struct shape){ 1, 2, 2 * PANEL };
    case Q_Q8_0:
        return (struct shape){ QK_SMALL, sizeof(struct file_q8_0), sizeof(struct p16_q8_0) };
    case Q_Q4_0:
        return (struct shape){ QK_SMALL, sizeof(struct file_q4_0), sizeof(struct p16_q4_0) };
    case Q_Q4_K:
        return (struct shape){ QK_SUPER, sizeof(struct file_q4_k), sizeof(struct p16_q4_k) };
    case Q_Q5_K:
        return (struct shape){ QK_SUPER, sizeof(struct file_q5_k), sizeof(struct p16_q5_k) };
    case Q_Q6_K:
        return (struct shape){ QK_SUPER, sizeof(struct file_q6_k), sizeof(struct p16_q6_k) };
    default:
        return (struct shape){ 0, 0, 0 };
    }
}

static size_t panel_bytes(enum qtype type, int n_cols)
{
    struct shape s = shape_of(type);
    size_t bytes = (size_t)(n_cols / s.block) * s.panel_bytes;

    return (bytes + 63) / 64 * 64; /* BF16 with odd n_cols fits: half a line was over */
}

size_t pack_bytes(enum qtype type, int n_rows, int n_cols)
{
    size_t n_panels = ((size_t)n_rows + PANEL - 1) / PANEL;

    CHECK(shape_of(type).block);
    return n_panels * panel_bytes(type, n_cols);
}

int pack_init(
    struct packed *w, enum qtype type, int n_rows, int n_cols, uint8_t *data, struct err *e)
{
    struct shape s = shape_of(type);

    if (!s.block)
        return err_set(e, ERR_UNSUPPORTED, "no kernels for weights of type %d", (int)type);
    if (n_rows < 1 || n_cols < 1 || n_rows > MAX_DIM || n_cols > MAX_DIM)
        return err_set(e, ERR_RANGE, "a matrix of %d x %d", n_rows, n_cols);
    if (n_cols % s.block)
        return err_set(e, ERR_CORRUPT, "rows of %d are not whole blocks of %d", n_cols, s.block);
    *w = (struct packed){ .type = type,
        .n_rows = n_rows,
        .n_cols = n_cols,
        .n_panels = (n_rows + PANEL - 1) / PANEL,
        .panel_bytes = panel_bytes(type, n_cols),
        .data = data };
    return 0;
}

/* ---- one file block of one row into its place in a panel's block; b counts blocks from k = 0 */

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

static void put_q4_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q4_0 *p = (struct p16_q4_0 *)(void *)panel + b;
    struct file_q4_0 f;

    memcpy(&f, file, sizeof(f));
    for (int i = 0; i < 4; i++)
        memcpy(p->q[i][r], f.q + 4 * i, 4);
    p->d[r] = f.d;
}

/* Four bytes at once. */
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

static void put_q8_0(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q8_0 *p = (struct p16_q8_0 *)(void *)panel + b;
    struct file_q8_0 f;

    memcpy(&f, file, sizeof(f));
    for (int i = 0; i < 8; i++)
        put4(p->q[i][r], get4(f.q + 4 * i) ^ 0x80808080);
    p->d[r] = f.d;
}

static void get_scales(const uint8_t s[12], uint8_t sc[8], uint8_t m[8])
{
    for (int i = 0; i < 4; i++) {
        sc[i] = s[i] & 63;
        m[i] = s[i + 4] & 63;
        sc[i + 4] = (uint8_t)((s[i + 8] & 15) | s[i] >> 6 << 4);
        m[i + 4] = (uint8_t)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}

/* The scale fields of p16_q4_k and p16_q5_k. hi is cleared by pack_panels. */
static void put_scales(uint8_t lo[4][16][2], uint8_t hi[2][16][2], int r, const uint8_t s[12])
{
    uint8_t sc[8], m[8];

    get_scales(s, sc, m);
    for (int j = 0; j < 8; j++) {
        int p = j / 2, i = j % 2;
        lo[p][r][i] = (uint8_t)((sc[j] & 15) | (m[j] & 15) << 4);
        hi[p & 1][r][i] |= (uint8_t)((sc[j] >> 4 | m[j] >> 4 << 2) << (p / 2 * 4));
    }
}

/* 256 nibbles, from "per 64: first 32 low, second 32 high" to a p16_q4_0 order per 32. */
static void put_nibbles(uint8_t q[8][4][16][4], int r, const uint8_t file[128])
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
    put_nibbles(p->q, r, f.q);
    put_scales(p->scale_lo, p->scale_hi, r, f.scales);
    p->d[r] = f.d;
    p->dmin[r] = f.dmin;
}

static void put_q5_k(uint8_t *panel, size_t b, int r, const uint8_t *file)
{
    struct p16_q5_k *p = (struct p16_q5_k *)(void *)panel + b;
    struct file_q5_k f;

    memcpy(&f, file, sizeof(f));
    put_nibbles(p->q, r, f.q);
    for (int j = 0; j < 8; j++) {
        uint32_t bits = 0;
        for (int quad = 0; quad < 8; quad++)
            bits |= (get4(f.high + 4 * quad) >> j & 0x01010101) << quad;
        put4(p->high[j][r], bits);
    }
    put_scales(p->scale_lo, p->scale_hi, r, f.scales);
    p->d[r] = f.d;
    p->dmin[r] = f.dmin;
}

/* Quad i of 16 consecutive elements: their low nibbles and their high bits, apart. */
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

typedef void (*put_fn)(uint8_t *panel, size_t b, int r, const uint8_t *file);

static const put_fn puts_by_slot[N_GEMM_SLOTS] = { put_f32, put_f16, put_bf16, put_q8_0, put_q4_0,
    put_q4_k, put_q5_k, put_q6_k };

void pack_panels(struct packed *w, const uint8_t *rows, int panel_from, int panel_to)
{
    struct shape s = shape_of(w->type);
    put_fn put = puts_by_slot[gemm_slot(w->type)];
    size_t n_blocks = (size_t)(w->n_cols / s.block), row_bytes = n_blocks * s.file_bytes;

    for (int p = panel_from; p < panel_to; p++) {
        uint8_t *panel = w->data + (size_t)p * w->panel_bytes;
        int n = MIN(PANEL, w->n_rows - p * PANEL);
        const uint8_t *from = rows + (size_t)p * PANEL * row_bytes;

        memset(panel, 0, w->panel_bytes);
        for (size_t b = 0; b < n_blocks; b++)
            for (int r = 0; r < n; r++)
                put(panel, b, r, from + (size_t)r * row_bytes + b * s.file_bytes);
    }
}

/* ---- and back */

static void get_q4_0(float *out, const struct p16_q4_0 *p, int r)
{
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < 16; k++) {
        uint8_t q = p->q[k / 4][r][k % 4];
        out[k] = (float)((q & 15) - 8) * d;
        out[k + 16] = (float)((q >> 4) - 8) * d;
    }
}

static void get_q8_0(float *out, const struct p16_q8_0 *p, int r)
{
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < 32; k++)
        out[k] = (float)(p->q[k / 4][r][k % 4] - 128) * d;
}

static void get_q4_k(float *out, const struct p16_q4_k *p, int r)
{
    float d = f16_to_f32(p->d[r]), dmin = f16_to_f32(p->dmin[r]);

    for (int j = 0; j < 8; j++) {
        uint8_t lo = p->scale_lo[j / 2][r][j % 2];
        uint8_t hi = (uint8_t)(p->scale_hi[j / 2 & 1][r][j % 2] >> (j / 4 * 4));
        float scale = d * (float)((lo & 15) | (hi & 3) << 4);
        float min = dmin * (float)(lo >> 4 | (hi >> 2 & 3) << 4);
        for (int k = 0; k < 32; k++) {
            uint8_t q = p->q[j][k % 16 / 4][r][k % 4] >> (k / 16 * 4) & 15;
            out[32 * j + k] = scale * (float)q - min;
        }
    }
}

static void get_q5_k(float *out, const struct p16_q5_k *p, int r)
{
    float d = f16_to_f32(p->d[r]), dmin = f16_to_f32(p->dmin[r]);

    for (int j = 0; j < 8; j++) {
        uint8_t lo = p->scale_lo[j / 2][r][j % 2];
        uint8_t hi = (uint8_t)(p->scale_hi[j / 2 & 1][r][j % 2] >> (j / 4 * 4));
        float scale = d * (float)((lo & 15) | (hi & 3) << 4);
        float min = dmin * (float)(lo >> 4 | (hi >> 2 & 3) << 4);
        for (int k = 0; k < 32; k++) {
            int q = p->q[j][k % 16 / 4][r][k % 4] >> (k / 16 * 4) & 15;
            q |= (p->high[j][r][k % 4] >> (k / 4) & 1) << 4;
            out[32 * j + k] = scale * (float)q - min;
        }
    }
}

static void get_q6_k(float *out, const struct p16_q6_k *p, int r)
{
    float d = f16_to_f32(p->d[r]);

    for (int k = 0; k < QK_SUPER; k++) {
        int s = k / 16, quad = k % 16 / 4, i = k % 4;
        int low = p->sub[s].low[quad & 1][r][i] >> (quad / 2 * 4) & 15;
        int high = p->sub[s].high[r][i] >> (2 * quad) & 3;
        float scale = d * (float)p->scale[s / 2][r][s % 2];
        out[k] = scale * (float)((low | high << 4) - 32);
    }
}

static void get_block(float *out, enum qtype type, const uint8_t *panel, size_t b, int r)
{
    const void *blocks = panel;
    uint16_t h;

    switch ((int)type) {
    case Q_F32:
        memcpy(out, panel + b * 64 + (size_t)r * 4, 4);
        break;
    case Q_F16:
        memcpy(&h, panel + b * 32 + (size_t)r * 2, 2);
        *out = f16_to_f32(h);
        break;
    case Q_BF16:
        memcpy(&h, panel + b / 2 * 64 + (size_t)r * 4 + b % 2 * 2, 2);
        *out = bf16_to_f32(h);
        break;
    case Q_Q8_0:
        get_q8_0(out, (const struct p16_q8_0 *)blocks + b, r);
        break;
    case Q_Q4_0:
        get_q4_0(out, (const struct p16_q4_0 *)blocks + b, r);
        break;
    case Q_Q4_K:
        get_q4_k(out, (const struct p16_q4_k *)blocks + b, r);
        break;
    case Q_Q5_K:
        get_q5_k(out, (const struct p16_q5_k *)blocks + b, r);
        break;
    case Q_Q6_K:
        get_q6_k(out, (const struct p16_q6_k *)blocks + b, r);
        break;
    }
}

void pack_get_row(const struct packed *w, int row, float *out)
{
    struct shape s = shape_of(w->type);
    const uint8_t *panel = w->data + (size_t)(row / PANEL) * w->panel_bytes;

    DCHECK(row >= 0 && row < w->n_rows);
    for (size_t b = 0; b < (size_t)(w->n_cols / s.block); b++)
        get_block(out + b * (size_t)s.block, w->type, panel, b, row % PANEL);
}
