/* hf_write_quant.c: matrices with codes and scales for hf_write.c. Types of GGUF are repacked
 * without loss; with the option `quant`, F32 matrices are rounded to FP8 or MXFP8. */
#include "base/half.h"
#include "base/mem.h"
#include "testing/hf_write_in.h"

#include <math.h>
#include <stdio.h>

enum { PARTS_MAX = 3, FP8_BLOCK = 128 };

/* Part of a matrix: `per` elements of a row become one number of this type. */
struct part {
    const char *tail, *dtype;
    uint64_t per, bytes;
};

struct layout {
    enum qtype type; /* in the GGUF file */
    bool is_mlx;
    const char *quantization; /* value of the member of config.json */
    struct part parts[PARTS_MAX];
    /* appends part `part` of a row */
    void (*put_row)(struct buf *to, const uint8_t *row, uint64_t cols, int part);
};

static int nibble_of_32(const uint8_t *q, uint64_t i)
{
    return q[i % 16] >> (i / 16 * 4) & 15;
}

static void put_pair(struct buf *to, int low, int high)
{
    buf_putc(to, (char)(low | high << 4));
}

/* Q4_1 as affine codes of 4 bits: f16 scale and offset, nibbles. */
static void put_q4_1(struct buf *to, const uint8_t *row, uint64_t cols, int part)
{
    for (uint64_t b = 0; b < cols / 32; b++, row += 20) {
        for (uint64_t i = 0; part == 0 && i < 32; i += 2)
            put_pair(to, nibble_of_32(row + 4, i), nibble_of_32(row + 4, i + 1));
        if (part)
            buf_put(to, row + 2 * (part - 1), 2);
    }
}

static void put_mxfp4(struct buf *to, const uint8_t *row, uint64_t cols, int part)
{
    for (uint64_t b = 0; b < cols / 32; b++, row += 17) {
        for (uint64_t i = 0; part == 0 && i < 32; i += 2)
            put_pair(to, nibble_of_32(row + 1, i), nibble_of_32(row + 1, i + 1));
        if (part)
            buf_put(to, row, 1);
    }
}

static int nibble_of_nvfp4(const uint8_t *q, int i)
{
    return q[i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15;
}

static void put_nvfp4(struct buf *to, const uint8_t *row, uint64_t cols, int part)
{
    for (uint64_t b = 0; b < cols / 64; b++, row += 36) {
        for (int i = 0; part == 0 && i < 64; i += 2)
            put_pair(to, nibble_of_nvfp4(row + 4, i), nibble_of_nvfp4(row + 4, i + 1));
        if (part)
            buf_put(to, row, 4);
    }
}

static const struct layout layouts[] = {
    { Q_Q4_1, true, "{\"group_size\":32,\"bits\":4}",
        { { ".weight", "U32", 8, 4 }, { ".scales", "F16", 32, 2 }, { ".biases", "F16", 32, 2 } },
        put_q4_1 },
    { Q_MXFP4, true, "{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"}",
        { { ".weight", "U32", 8, 4 }, { ".scales", "U8", 32, 1 } }, put_mxfp4 },
    { Q_MXFP4, false, "{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"lm_head\"]}",
        { { "_blocks", "U8", 2, 1 }, { "_scales", "U8", 32, 1 } }, put_mxfp4 },
    { Q_NVFP4, true, "{\"group_size\":16,\"bits\":4,\"mode\":\"nvfp4\"}",
        { { ".weight", "U32", 8, 4 }, { ".scales", "U8", 16, 1 } }, put_nvfp4 },
    { Q_NVFP4, false, "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}",
        { { ".weight", "U8", 2, 1 }, { ".weight_scale", "F8_E4M3", 16, 1 } }, put_nvfp4 },
};

static const struct layout *find_layout(const struct writer *w, enum qtype type)
{
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++)
        if (layouts[i].type == type && layouts[i].is_mlx == w->o->is_mlx)
            return &layouts[i];
    return NULL;
}

static struct buf *begin_part(struct writer *w, const struct hf_write_matrices *m,
    const struct part *p, uint64_t n_rows, uint64_t n_cols)
{
    uint64_t dims[3] = { m->n, n_rows, n_cols };
    char name[NAME_MAX_BYTES];
    int skip = m->n == 1;

    const bool is_stacked = !w->o->is_mlx && !strcmp(w->arch, "mistral4") && m->n > 1;
    const char *stacked_tail = strcmp(p->tail, ".weight") != 0 ? "_scale_inv" : "";
    snprintf(name, sizeof(name), "%s%s", m->stem, is_stacked ? stacked_tail : p->tail);
    return hf_write_begin(
        w, name, p->dtype, 3 - skip, dims + skip, m->n * n_rows * n_cols * p->bytes);
}

/* The rows of gpt-oss alternate between gate and up; the tensor of up is written with gate. */
static const struct gguf_tensor *partner_of(const struct writer *w, const struct gguf_tensor *t)
{
    char name[NAME_MAX_BYTES];
    int layer;

    if (w->o->is_mlx || strcmp(w->arch, "gpt-oss") != 0)
        return NULL;
    snprintf(name, sizeof(name), STR_FMT, STR_ARG(t->name));
    if (sscanf(name, "blk.%d.ffn_", &layer) != 1 || !strstr(name, "ffn_gate_exps.weight"))
        return NULL;
    snprintf(name, sizeof(name), "blk.%d.ffn_up_exps.weight", layer);
    return gguf_tensor(w->g, name);
}

bool hf_write_is_interleaved(const struct writer *w, const struct gguf_tensor *t)
{
    return !w->o->is_mlx && !strcmp(w->arch, "gpt-oss") && find_layout(w, t->type) &&
           str_ends(t->name, STR("ffn_up_exps.weight"));
}

static void put_interleaved(struct writer *w, const struct layout *l,
    const struct hf_write_matrices *gate, const struct hf_write_matrices *up)
{
    struct hf_write_matrices both = *gate;
    char stem[NAME_MAX_BYTES];
    struct str end = STR(".gate_proj");

    snprintf(
        stem, sizeof(stem), "%.*s.gate_up_proj", (int)(strlen(gate->stem) - end.n), gate->stem);
    both.stem = stem;
    for (int i = 0; i < 2; i++) {
        const struct part *p = &l->parts[i];
        const uint64_t cols = gate->t->dims[0], rows = gate->t->dims[1];
        struct buf *to = begin_part(w, &both, p, 2 * rows, cols / p->per);
        for (uint64_t r = 0; r < both.n * rows; r++) {
            l->put_row(to, hf_write_row(w, gate, r), cols, i);
            l->put_row(to, hf_write_row(w, up, r), cols, i);
        }
    }
}

static void put_layout(struct writer *w, const struct layout *l, const struct hf_write_matrices *m)
{
    const struct gguf_tensor *partner = partner_of(w, m->t);
    struct hf_write_matrices up = *m;

    up.t = partner;
    if (partner) {
        put_interleaved(w, l, m, &up);
        return;
    }
    for (int i = 0; i < PARTS_MAX && l->parts[i].tail; i++) {
        const struct part *p = &l->parts[i];
        struct buf *to = begin_part(w, m, p, m->t->dims[1], m->t->dims[0] / p->per);
        for (uint64_t r = 0; r < m->n * m->t->dims[1]; r++)
            l->put_row(to, hf_write_row(w, m, r), m->t->dims[0], i);
    }
}

/* ---- F32 matrices, rounded to E4M3 numbers */

static uint8_t e4m3_of(float v)
{
    const float x = fabsf(v);
    int low = 0, high = 126; /* the largest code whose number is at most x, if there is one */

    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (e4m3_to_f32((uint8_t)middle) <= x)
            low = middle;
        else
            high = middle - 1;
    }
    if (low < 126 && e4m3_to_f32((uint8_t)(low + 1)) - x < x - e4m3_to_f32((uint8_t)low))
        low++;
    return (uint8_t)(low | (v < 0 ? 0x80 : 0));
}

static float float_of_row(const uint8_t *row, uint64_t k)
{
    float f;

    memcpy(&f, row + k * sizeof(f), sizeof(f));
    return f;
}

static float largest_of(struct writer *w, const struct hf_write_matrices *m)
{
    float top = 0;

    for (uint64_t r = 0; r < m->n * m->t->dims[1]; r++) {
        const uint8_t *row = hf_write_row(w, m, r);
        for (uint64_t k = 0; k < m->t->dims[0]; k++)
            top = fmaxf(top, fabsf(float_of_row(row, k)));
    }
    return top;
}

/* Elements with one scale, and the tensors. */
static const struct rounding {
    uint64_t rows, cols; /* 0: all */
    struct part codes, scales;
    const char *quantization;
} roundings[] = {
    [HF_WRITE_FP8] = { FP8_BLOCK, FP8_BLOCK, { ".weight", "F8_E4M3", 1, 1 },
        { ".weight_scale_inv", "F32", 1, 4 },
        "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"activation_scheme\":\"dynamic\","
        "\"weight_block_size\":[128,128],\"modules_to_not_convert\":[\"lm_head\"]}" },
    [HF_WRITE_FP8_ROWS] = { 1, 0, { ".weight", "F8_E4M3", 1, 1 }, { ".weight_scale", "BF16", 1, 2 },
        "{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\","
        "\"ignore\":[\"lm_head\"]}" },
    [HF_WRITE_FP8_MATRIX] = { 0, 0, { ".weight", "F8_E4M3", 1, 1 },
        { ".weight_scale", "F32", 1, 4 },
        "{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}" },
    [HF_WRITE_MXFP8] = { 1, 32, { ".weight", "U32", 4, 4 }, { ".scales", "U8", 1, 1 },
        "{\"group_size\":32,\"bits\":8,\"mode\":\"mxfp8\"}" },
};

/* A scale that differs from block to block, in the precision of its type. */
static float scale_of(const struct part *scales, float top, uint64_t row, uint64_t col)
{
    float scale = top / 448 * (1 + (float)((row * 7 + col * 3) % 5) / 8);
    int e;

    if (!strcmp(scales->dtype, "BF16"))
        return bf16_to_f32(f32_to_bf16(scale));
    if (!strcmp(scales->dtype, "F32"))
        return scale;
    (void)frexpf(scale, &e);
    return ldexpf(1, e);
}

static void put_scale(struct buf *to, const struct part *scales, float scale)
{
    uint32_t bits = f32_to_bits(scale);

    if (!strcmp(scales->dtype, "BF16"))
        buf_put(to, (uint8_t *)&bits + 2, 2);
    else if (!strcmp(scales->dtype, "F32"))
        buf_put(to, &bits, 4);
    else
        buf_putc(to, (char)(bits >> 23));
}

static void put_rounded(
    struct writer *w, const struct rounding *q, const struct hf_write_matrices *m)
{
    static const struct part values = { ".weight", "F32", 1, 4 };
    const bool has_codes = !w->o->writes_values;
    const struct part *codes = has_codes ? &q->codes : &values;
    const uint64_t rows = m->t->dims[1], cols = m->t->dims[0];
    const uint64_t block_rows = q->rows ? q->rows : rows, block_cols = q->cols ? q->cols : cols;
    const uint64_t n_rows = (rows + block_rows - 1) / block_rows,
                   n_cols = (cols + block_cols - 1) / block_cols;
    const float top = largest_of(w, m);
    struct buf *to = begin_part(w, m, codes, rows, cols / codes->per);

    for (uint64_t r = 0; r < m->n * rows; r++) {
        const uint8_t *row = hf_write_row(w, m, r);
        for (uint64_t k = 0; k < cols; k++) {
            float d = scale_of(&q->scales, top, r % rows / block_rows, k / block_cols);
            uint8_t code = e4m3_of(float_of_row(row, k) / d);
            float value = e4m3_to_f32(code) * d;
            if (has_codes)
                buf_putc(to, (char)code);
            else
                buf_put(to, &value, sizeof(value));
        }
    }
    if (!has_codes)
        return;
    to = begin_part(w, m, &q->scales, n_rows, n_cols);
    for (uint64_t r = 0; r < m->n * n_rows; r++)
        for (uint64_t k = 0; k < n_cols; k++)
            put_scale(to, &q->scales, scale_of(&q->scales, top, r % n_rows, k));
}

bool hf_write_quantised(struct writer *w, const struct hf_write_matrices *m)
{
    const struct layout *l = find_layout(w, m->t->type);
    bool is_layer =
        str_starts(m->t->name, STR("blk.")) && str_find(m->t->name, STR("ffn_gate_inp")) < 0;

    if (l) {
        put_layout(w, l, m);
        return true;
    }
    if (!w->o->quant || m->t->type != Q_F32 || !is_layer || m->t->dims[0] % 32)
        return false;
    put_rounded(w, &roundings[w->o->quant], m);
    return true;
}

void hf_write_factor(struct writer *w, const struct hf_write_matrices *m, const char *end)
{
    const uint64_t one = 1;
    char name[NAME_MAX_BYTES];

    snprintf(name, sizeof(name), "%s%s", m->stem, end);
    buf_put(hf_write_begin(w, name, "F32", 1, &one, sizeof(float)),
        m->t->data + m->first * sizeof(float), sizeof(float));
}

void hf_write_quantization(const struct writer *w, struct jw *j)
{
    const struct layout *l = NULL;

    for (size_t i = 0; i < gguf_n_tensors(w->g) && !l; i++)
        l = find_layout(w, gguf_tensor_at(w->g, i)->type);
    if (!l && (!w->o->quant || w->o->writes_values))
        return;
    jw_key(j, w->o->is_mlx ? "quantization" : "quantization_config");
    jw_raw(j, str_of(l ? l->quantization : roundings[w->o->quant].quantization));
}
