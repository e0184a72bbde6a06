#include "format/hf/hf_quant.h"
#include "format/hf/hf_config.h"

#include <math.h>

enum { MODULES_MAX = 1 << 18, BLOCK_MAX = 1 << 20 };

/* ---- names */

const struct hf_suffix *hf_suffix_find(struct str end)
{
    static const struct hf_suffix rows[] = {
        { "", HF_CODES, 0, 0 },
        { ".weight", HF_CODES, 0, 0 },
        { ".weight_packed", HF_CODES, 0, 0 },
        { "_blocks", HF_CODES, 0, 0 },
        { ".scales", HF_SCALES, 0, 0 },
        { "_scales", HF_SCALES, 0, 0 },
        { ".weight_scale", HF_SCALES, 0, 0 },
        { ".weight_scale_inv", HF_SCALES, 0, 0 },
        { "_scale_inv", HF_SCALES, 0, 0 }, /* stacked experts */
        { ".biases", HF_OFFSETS, 0, 0 },
        { ".bias", HF_BIAS, 0, 0 },
        { "_bias", HF_BIAS, 0, 0 },
        { ".weight_scale_2", HF_FACTOR, 1, 0 },              /* ModelOpt */
        { ".weight_global_scale", HF_FACTOR, 0, 1 },         /* compressed-tensors */
        { ".global_scale", HF_FACTOR, 1.0f / (448 * 6), 0 }, /* MLX: the largest magnitude */
        { ".input_scale", HF_UNUSED, 0, 0 },
        { ".input_global_scale", HF_UNUSED, 0, 0 },
        { ".activation_scale", HF_UNUSED, 0, 0 },
        { "_activation_scale", HF_UNUSED, 0, 0 },
        { ".k_scale", HF_UNUSED, 0, 0 },
        { ".v_scale", HF_UNUSED, 0, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_is(end, rows[i].end))
            return &rows[i];
    return NULL;
}

/* ---- values of config.json */

static const struct {
    const char *name; /* `mode` of MLX */
    struct hf_quant quant;
} modes[] = {
    { "affine", { HF_MODE_AFFINE, 0, 0, 0, 0 } }, { "mxfp4", { HF_MODE_MXFP4, 4, 32, 0, 0 } },
    { "mxfp8", { HF_MODE_MXFP8, 8, 32, 0, 0 } }, { "nvfp4", { HF_MODE_NVFP4, 4, 16, 0, 0 } },
    { "fp8", { HF_MODE_FP8, 8, 1, 0, 0 } }, /* not of MLX */
};

static const struct hf_quant *find_mode(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        if (!strcmp(name, modes[i].name))
            return &modes[i].quant;
    return NULL;
}

/* Producers other than MLX: a value of `key`, if not NULL, decides. */
static const struct {
    const char *method, *key, *value, *mode;
} methods[] = {
    { "mxfp4", NULL, NULL, "mxfp4" },
    { "mxfp8", NULL, NULL, "mxfp8" },
    { "fp8", NULL, NULL, "fp8" },
    { "fbgemm_fp8", NULL, NULL, "fp8" },
    { "modelopt", "quant_algo", "NVFP4", "nvfp4" },
    { "modelopt", "quant_algo", "FP8", "fp8" },
    { "compressed-tensors", "format", "float-quantized", "fp8" },
    { "compressed-tensors", "format", "nvfp4-pack-quantized", "nvfp4" },
    { "compressed-tensors", "format", "mxfp4-pack-quantized", "mxfp4" },
};

static int find_method(
    const struct json *q, struct str method, const struct hf_quant **out, struct err *e)
{
    const char *key = NULL;

    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        struct str value = STR_NONE;
        if (!str_is(method, methods[i].method))
            continue;
        key = methods[i].key;
        if (!key || (hf_get_str(q, key, &value) && str_is(value, methods[i].value))) {
            *out = find_mode(methods[i].mode);
            return 0;
        }
    }
    if (!key)
        return hf_reject(json_get(q, "quant_method"), e);
    if (json_is_null(json_get(q, key)))
        return err_set(e, ERR_CORRUPT, "config.json: quant_method = %.*s without %s",
            (int)MIN(method.n, (size_t)40), method.p, key);
    return hf_reject(json_get(q, key), e);
}

/* [rows, columns] of the blocks of FP8. null: a scale per row or per matrix. */
static int read_block(const struct json *size, struct hf_quant *out, struct err *e)
{
    const struct json *cols = json_is_null(size) ? NULL : size->child;
    int64_t block[2] = { 0, 0 };

    if (json_is_null(size))
        return 0;
    for (size_t i = 0; i < 2 && cols && size->kind == JSON_ARRAY; i++, cols = cols->next)
        if (!json_i64(cols, &block[i]))
            block[i] = 0;
    if (size->kind != JSON_ARRAY || size->n != 2 || block[0] < 1 || block[1] < 1 ||
        block[0] > BLOCK_MAX || block[1] > BLOCK_MAX)
        return hf_reject(size, e);
    out->block_rows = block[0];
    out->block_cols = block[1];
    return 0;
}

/* Blocks of compressed-tensors: of all groups, which must be equal. */
static int read_group_blocks(const struct json *q, struct hf_quant *out, struct err *e)
{
    const struct json *groups = json_get(q, "config_groups");
    bool is_first = true;

    for (const struct json *g = groups ? groups->child : NULL; g; g = g->next) {
        const struct json *size = json_get(json_get(g, "weights"), "block_structure");
        struct hf_quant here = { 0 };
        if (read_block(size, &here, e))
            return -1;
        if (!is_first && here.block_cols != out->block_cols)
            return hf_reject(groups, e);
        out->block_rows = here.block_rows;
        out->block_cols = here.block_cols;
        is_first = false;
    }
    return 0;
}

static int read_fp8(const struct json *q, struct hf_quant *out, struct err *e)
{
    struct str format = STR("e4m3");

    hf_get_str(q, "fmt", &format);
    if (!str_is(format, "e4m3"))
        return hf_reject(json_get(q, "fmt"), e);
    return read_block(json_get(q, "weight_block_size"), out, e) || read_group_blocks(q, out, e) ? -1
                                                                                                : 0;
}

static int read_mlx(const struct json *q, struct hf_quant *out, struct err *e)
{
    struct str mode = STR("affine");
    const struct hf_quant *fixed = NULL;

    hf_get_str(q, "mode", &mode);
    for (size_t i = 0; i < ARRAY_LEN(modes) && modes[i].quant.mode != HF_MODE_FP8; i++)
        if (str_is(mode, modes[i].name))
            fixed = &modes[i].quant;
    if (!fixed)
        return hf_reject(json_get(q, "mode"), e);
    *out = *fixed;
    if (hf_get_int(q, "bits", &out->bits, e) || hf_get_int(q, "group_size", &out->group, e))
        return -1;
    bool is_affine = out->mode == HF_MODE_AFFINE;
    bool is_group = out->group == 32 || out->group == 64 || out->group == 128;
    bool is_bits = out->bits == 8 || (out->bits >= 2 && out->bits <= 6);
    if (is_affine ? !is_group || !is_bits : out->bits != fixed->bits || out->group != fixed->group)
        return err_set(e, ERR_UNSUPPORTED,
            "config.json: quantization of %lld bits in groups of %lld is not supported",
            (long long)out->bits, (long long)out->group);
    return 0;
}

static int read_quant(const struct json *q, struct hf_quant *out, struct err *e)
{
    const struct hf_quant *found = NULL;
    struct str method;

    if (!hf_get_str(q, "quant_method", &method))
        return read_mlx(q, out, e);
    if (find_method(q, method, &found, e))
        return -1;
    *out = *found;
    return out->mode == HF_MODE_FP8 ? read_fp8(q, out, e) : 0;
}

int hf_quants_read(struct hf_quants *t, const struct json *all, const struct json *text,
    struct arena *a, struct err *e)
{
    const struct json *q = json_get(all, "quantization");
    uint32_t n = 0;

    *t = (struct hf_quants){ 0 };
    if (json_is_null(q))
        q = json_get(all, "quantization_config");
    if (json_is_null(q))
        q = json_get(text, "quantization_config");
    if (json_is_null(q))
        return 0;
    if (q->kind != JSON_OBJECT || q->n > MODULES_MAX)
        return err_set(e, ERR_CORRUPT,
            "config.json: the quantization is not an object of up to %d "
            "members",
            MODULES_MAX);
    t->modules = str_map_new(q->n);
    t->entries = arena_zalloc(a, MAX(q->n, 1u), sizeof(*t->entries));
    if (!t->modules || !t->entries)
        return err_set(e, ERR_MEMORY, "no memory for the quantization of %u modules", q->n);
    for (const struct json *j = q->child; j; j = j->next) {
        if (j->kind != JSON_OBJECT)
            continue;
        if (str_map_put(t->modules, j->key, n) < 0)
            return err_set(e, ERR_MEMORY, "no memory for the quantization of %u modules", q->n);
        t->entries[n++] = j;
    }
    return read_quant(q, &t->model, e);
}

void hf_quants_clear(struct hf_quants *q)
{
    str_map_free(q->modules);
    *q = (struct hf_quants){ 0 };
}

int hf_quants_of(const struct hf_quants *q, struct str module, struct hf_quant *out, struct err *e)
{
    uint32_t i;

    *out = q->model;
    return q->modules && str_map_get(q->modules, module, &i) ? read_quant(q->entries[i], out, e)
                                                             : 0;
}
