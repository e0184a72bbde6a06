/* hf_rows.c: computes the rows of a tensor from its sources (hf_recipe.h). Any thread. */
#include "base/half.h"
#include "format/hf/hf_recipe.h"

#include <math.h>

/* The value head of the source that is head h in GGUF terms. */
static uint64_t source_head(const struct hf_recipe *p, uint64_t h)
{
    return h % p->n_key_heads * (p->n_value_heads / p->n_key_heads) + h / p->n_key_heads;
}

/* Row of the source that is row r of a matrix in GGUF terms. */
static uint64_t source_row(const struct hf_recipe *p, uint64_t r)
{
    uint64_t half = p->head_rows / 2;

    switch (p->rows) {
    case HF_ROWS_EVEN:
        return 2 * r;
    case HF_ROWS_ODD:
        return 2 * r + 1;
    case HF_ROWS_SECOND_HALF:
        return p->rows_in / 2 + r;
    case HF_ROWS_Q:
    case HF_ROWS_K:
        return r / p->head_rows * p->head_rows + r % 2 * half + r % p->head_rows / 2;
    case HF_ROWS_VALUES:
    case HF_ROWS_QK_VALUES:
        if (r < p->first_row)
            return r;
        r -= p->first_row;
        return p->first_row + source_head(p, r / p->head_rows) * p->head_rows + r % p->head_rows;
    case HF_ROWS_FIRST_HALF:
    case HF_COLS_VALUES:
    case HF_ROWS_ALL:
        break;
    }
    return r;
}

static float float_at(const struct st_tensor *t, uint64_t i)
{
    const uint8_t *p = t->data + i * st_dtype_bytes(t->dtype);
    uint16_t half;
    float f;

    if (t->dtype == ST_F8_E8M0)
        return e8m0_to_f32(*p);
    if (t->dtype == ST_F32) {
        memcpy(&f, p, sizeof(f));
        return f;
    }
    memcpy(&half, p, sizeof(half));
    return t->dtype == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

/* Columns of a row of the source: whole blocks. */
struct span {
    uint64_t row, first, end;
};

static void put_floats(
    const struct hf_recipe *p, const struct st_tensor *t, struct span s, uint8_t *to)
{
    for (uint64_t i = s.first; i < s.end; i++, to += sizeof(float)) {
        float f = float_at(t, s.row * p->cols + i) + p->add;
        if (p->convert == HF_DECAY)
            f = (float)-exp((double)f);
        memcpy(to, &f, sizeof(f));
    }
}

/* Unpacks n codes, from code `first` of a row on, of a little-endian bit stream. */
static void get_codes(const uint8_t *row, unsigned bits, uint64_t first, unsigned n, uint8_t *codes)
{
    uint64_t at = first * bits;

    for (unsigned i = 0; i < n; i++, at += bits) {
        unsigned v = row[at / 8] >> (at % 8);
        if (at % 8 + bits > 8)
            v |= (unsigned)row[at / 8 + 1] << (8 - at % 8);
        codes[i] = (uint8_t)(v & ((1u << bits) - 1));
    }
}

/* 32 codes of 4 bits: the first 16 in the low, the second 16 in the high nibbles. */
static void put_nibbles(uint8_t *to, const uint8_t codes[32])
{
    for (int i = 0; i < 16; i++)
        to[i] = (uint8_t)(codes[i] | codes[i + 16] << 4);
}

/* Codes of the affine types: 4 bits as in Q4_0 per 32 elements, the others as they are. */
static void put_affine(
    const struct hf_recipe *p, const struct hf_source *s, struct span c, uint8_t *to)
{
    const unsigned bits = (unsigned)p->quant.bits;
    const struct qtype_info *q = qtype_info((uint32_t)p->type);
    const uint64_t n_groups = p->cols / (uint64_t)p->quant.group;
    const uint8_t *codes = s->codes->data + c.row * (p->cols * bits / 8);
    uint8_t block[64];

    for (uint64_t at = c.first; at < c.end; at += q->block, to += q->block_bytes) {
        uint64_t group = c.row * n_groups + at / (uint64_t)p->quant.group;
        float scale_offset[2] = { float_at(s->scales, group), float_at(s->offsets, group) };
        memcpy(to, scale_offset, 8);
        if (bits != 4) {
            memcpy(to + 8, codes + at * bits / 8, q->block * bits / 8);
            continue;
        }
        get_codes(codes, bits, at, q->block, block);
        for (uint32_t i = 0; i < q->block; i += 32)
            put_nibbles(to + 8 + i / 2, block + i);
    }
}

static void put_mxfp4(
    const struct hf_recipe *p, const struct hf_source *s, struct span c, uint8_t *to)
{
    const uint8_t *codes = s->codes->data + c.row * (p->cols / 2);
    const uint8_t *scales = s->scales->data + c.row * (p->cols / 32);
    uint8_t block[32];

    for (uint64_t b = c.first / 32; b < c.end / 32; b++, to += 17) {
        to[0] = scales[b];
        get_codes(codes, 4, 32 * b, 32, block);
        put_nibbles(to + 1, block);
    }
}

static void put_mxfp8(
    const struct hf_recipe *p, const struct hf_source *s, struct span c, uint8_t *to)
{
    const uint8_t *codes = s->codes->data + c.row * p->cols;
    const uint8_t *scales = s->scales->data + c.row * (p->cols / 32);

    for (uint64_t b = c.first / 32; b < c.end / 32; b++, to += 33) {
        to[0] = scales[b];
        memcpy(to + 1, codes + 32 * b, 32);
    }
}

/* Per 64 elements four scales and, per 16 elements, eight bytes: the first eight in the low, the
 * second in the high nibbles. */
static void put_nvfp4(
    const struct hf_recipe *p, const struct hf_source *s, struct span c, uint8_t *to)
{
    const uint8_t *codes = s->codes->data + c.row * (p->cols / 2);
    const uint8_t *scales = s->scales->data + c.row * (p->cols / 16);
    uint8_t sub[16];

    for (uint64_t b = c.first / 16; b < c.end / 16; b++) {
        uint8_t *block = to + (b - c.first / 16) / 4 * 36, *at = block + 4 + b % 4 * 8;
        block[b % 4] = scales[b] & 0x7f;
        get_codes(codes, 4, 16 * b, 16, sub);
        for (int i = 0; i < 8; i++)
            at[i] = (uint8_t)((sub[i] | sub[i + 8] << 4) ^ (scales[b] & 0x80 ? 0x88 : 0));
    }
}

static void put_fp8(
    const struct hf_recipe *p, const struct hf_source *s, struct span c, uint8_t *to)
{
    const struct qtype_info *q = qtype_info((uint32_t)p->type);
    const struct hf_scale_grid *g = &p->grid;
    const uint8_t *codes = s->codes->data + c.row * p->cols;
    uint64_t grid_row = c.row / p->rows_in * g->n_rows + c.row % p->rows_in / g->rows;

    for (uint64_t at = c.first; at < c.end; at += q->block, to += q->block_bytes) {
        float d = float_at(s->scales, grid_row * g->n_cols + at / g->cols);
        memcpy(to, &d, sizeof(d));
        memcpy(to + sizeof(d), codes + at, q->block);
    }
}

static void put_span(
    const struct hf_recipe *p, const struct hf_source *s, struct span c, uint8_t *to)
{
    const uint64_t bytes = st_dtype_bytes(s->codes->dtype);

    switch (p->convert) {
    case HF_COPY:
        memcpy(to, s->codes->data + (c.row * p->cols + c.first) * bytes, (c.end - c.first) * bytes);
        return;
    case HF_TO_F32:
    case HF_DECAY:
        put_floats(p, s->codes, c, to);
        return;
    case HF_AFFINE:
        put_affine(p, s, c, to);
        return;
    case HF_MXFP4:
        put_mxfp4(p, s, c, to);
        return;
    case HF_MXFP8:
        put_mxfp8(p, s, c, to);
        return;
    case HF_NVFP4:
        put_nvfp4(p, s, c, to);
        return;
    case HF_FP8:
        put_fp8(p, s, c, to);
        return;
    }
}

static void put_row(const struct hf_recipe *p, uint64_t matrix, uint64_t r, uint8_t *to)
{
    const struct hf_source *s = &p->sources[p->is_per_expert ? matrix : 0];
    const struct qtype_info *q = qtype_info((uint32_t)p->type);
    struct span c = { source_row(p, r) + (p->is_per_expert ? 0 : matrix * p->rows_in), 0, p->cols };

    if (p->rows != HF_COLS_VALUES) {
        put_span(p, s, c, to);
        return;
    }
    for (uint64_t h = 0; h < p->n_value_heads; h++) {
        c.first = source_head(p, h) * p->head_cols;
        c.end = c.first + p->head_cols;
        put_span(p, s, c, to + h * (p->head_cols / q->block * q->block_bytes));
    }
}

/* Whether scale or offset i is a finite number. */
static bool is_finite_at(const struct st_tensor *t, enum hf_convert convert, uint64_t i)
{
    if (t->dtype == ST_F8_E4M3 || convert == HF_NVFP4)
        return (t->data[i] & 0x7f) != 0x7f;
    if (t->dtype == ST_F8_E8M0 || t->dtype == ST_U8)
        return t->data[i] != 0xff;
    return isfinite(float_at(t, i));
}

static int check_finite(const struct st_tensor *t, enum hf_convert convert, struct err *e)
{
    const uint64_t n = t ? t->bytes / st_dtype_bytes(t->dtype) : 0;

    for (uint64_t i = 0; i < n; i++)
        if (!is_finite_at(t, convert, i))
            return err_set(e, ERR_CORRUPT, "tensor %.*s: number %llu is not finite",
                (int)MIN(t->name.n, (size_t)100), t->name.p, (unsigned long long)i);
    return 0;
}

int hf_check_rows(const struct gguf_tensor *t, struct err *e)
{
    const struct hf_recipe *p = t->recipe;

    for (size_t i = 0; i < p->n_sources; i++)
        if (check_finite(p->sources[i].scales, p->convert, e) ||
            check_finite(p->sources[i].offsets, p->convert, e))
            return -1;
    return 0;
}

void hf_read_rows(const struct gguf_tensor *t, uint64_t first, uint64_t n, uint8_t *to)
{
    const struct hf_recipe *p = t->recipe;
    uint64_t row_bytes, per_row = p->is_bias ? p->rows_out : 1;

    /* a row of a bias has the elements of all rows of a matrix */
    CHECK(qtype_bytes(p->type, p->cols, &row_bytes));
    for (uint64_t i = first * per_row; i < (first + n) * per_row; i++, to += row_bytes)
        put_row(p, i / p->rows_out, i % p->rows_out, to);
}

void hf_release(const struct gguf *g, const struct gguf_tensor *t)
{
    const struct hf_recipe *p = t->recipe;

    for (size_t i = 0; i < p->n_sources; i++) {
        const struct hf_source *s = &p->sources[i];
        gguf_release(g, s->codes->data, s->codes->bytes);
        if (s->scales)
            gguf_release(g, s->scales->data, s->scales->bytes);
        if (s->offsets)
            gguf_release(g, s->offsets->data, s->offsets->bytes);
    }
}
