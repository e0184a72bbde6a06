/* format/hf: the values of quantised tensors of directories are those of mlx, bit for bit:
 * tests/families/mlx.safetensors and hf_quantised.safetensors, which tests/families/
 * mlx_directories.py and hf_quantised.py wrote, have the codes, scales and offsets of matrices and
 * their values. Scales and factors with other shapes, types and values are refused. */
#include "support/check.h"

#include "base/mem.h"
#include "format/hf/hf_tensors.h"
#include "kernel/gemm.h"
#include "os/mapfile.h"

#include <math.h>
#include <stdio.h>

enum { PARTS_MAX = 4, SAME_TYPE = -1 };

/* A tensor of the file, the end of the name that it gets, and its type in the directory. */
struct part {
    const char *from, *end;
    int dtype;
};

struct quantised {
    const char *name;         /* in the file */
    const char *quantization; /* JSON */
    enum qtype type;
    struct part parts[PARTS_MAX];
    float factor; /* factor in NAME.scale; 0: none */
};

struct opened {
    struct mapfile map;
    struct safetensors tensors;
};

static struct opened open_values(const char *path)
{
    struct opened f;
    struct err e = { 0 };

    EXPECT(!mapfile_open(&f.map, path, &e));
    EXPECT(!safetensors_read(&f.tensors, (struct str){ (const char *)f.map.p, f.map.n }, &e));
    return f;
}

static void close_values(struct opened *f)
{
    safetensors_clear(&f->tensors);
    mapfile_close(&f->map);
}

static const struct st_tensor *find(const struct opened *f, const char *name, const char *part)
{
    char key[64];

    snprintf(key, sizeof(key), "%s.%s", name, part);
    for (size_t i = 0; i < f->tensors.n; i++)
        if (str_is(f->tensors.tensors[i].name, key))
            return &f->tensors.tensors[i];
    return NULL;
}

/* The tensors of a matrix of Llama, and their translation. */
struct matrix {
    struct hf_tensors t;
    struct hf_config config;
    struct gguf_translation out;
    struct arena *arena;
    struct st_tensor parts[PARTS_MAX];
    char names[PARTS_MAX][64];
    int n_parts;
};

static int begin_matrix(struct matrix *m, const char *quantization, struct err *e)
{
    char text[600];
    struct json *config;

    *m = (struct matrix){ .arena = arena_new(MB) };
    snprintf(text, sizeof(text),
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 128,"
        " \"num_attention_heads\": 2, %s}",
        quantization);
    EXPECT_EQ(json_parse(&config, str_of(text), m->arena, &json_limits_default, e), 0);
    EXPECT_EQ(hf_config_read(&m->config, config, e), 0);
    return hf_tensors_init(&m->t, &m->config, m->arena, e);
}

/* Adds a tensor with another name and type, and returns it for changes. */
static struct st_tensor *add_part(
    struct matrix *m, const struct st_tensor *from, const char *end, int dtype)
{
    struct st_tensor *to = &m->parts[m->n_parts];
    char *name = m->names[m->n_parts++];
    struct err e;

    snprintf(name, sizeof(m->names[0]), "model.layers.0.mlp.up_proj%s", end);
    *to = *from;
    to->name = str_of(name);
    if (dtype != SAME_TYPE)
        to->dtype = (enum st_dtype)dtype;
    EXPECT_EQ(hf_tensors_add(&m->t, to, &e), 0);
    return to;
}

static void end_matrix(struct matrix *m)
{
    bool has_recipes = m->out.recipes != NULL; /* they own the arena */

    hf_tensors_clear(&m->t);
    gguf_translation_clear(&m->out);
    if (!has_recipes)
        arena_free(m->arena);
}

static void add_all_parts(struct matrix *m, const struct opened *f, const struct quantised *q)
{
    static const float two_and_a_half = 2.5f;
    static const struct st_tensor factor = { .dtype = ST_F32,
        .n_dims = 1,
        .dims = { 1, 1, 1, 1, 1, 1, 1, 1 },
        .data = (const uint8_t *)&two_and_a_half,
        .bytes = sizeof(float) };

    for (int i = 0; i < PARTS_MAX && q->parts[i].end; i++) {
        const struct part *p = &q->parts[i];
        const struct st_tensor *from = p->from ? find(f, q->name, p->from) : &factor;
        EXPECT(from);
        add_part(m, from, p->end, p->dtype);
    }
}

/* Rows are read one by one, as the threads of a load do, and unpacked from panels. */
static void expect_values(const struct matrix *m, const struct st_tensor *values)
{
    const struct gguf_tensor *x = &m->out.tensors[0];
    const int n_rows = (int)x->dims[1], n_cols = (int)x->dims[0];
    const size_t row_bytes = (size_t)x->bytes / (size_t)n_rows;
    uint8_t *rows = xmalloc((size_t)x->bytes),
            *block = try_aligned(64, pack_bytes(x->type, n_rows, n_cols));
    float *row = xmalloc((size_t)n_cols * sizeof(float));
    struct packed w;
    struct err e;

    EXPECT_EQ(values->bytes, (size_t)(n_rows * n_cols) * sizeof(float));
    EXPECT_EQ(m->out.check(x, &e), 0);
    for (int r = 0; r < n_rows; r++)
        m->out.read_rows(x, (uint64_t)r, 1, rows + (size_t)r * row_bytes);
    EXPECT(block && !pack_init(&w, x->type, n_rows, n_cols, block, &e));
    pack_panels(&w, rows, 0, w.n_panels);
    for (int r = 0; r < n_rows; r++) {
        pack_get_row(&w, r, row);
        for (int k = 0; k < n_cols; k++) {
            float want;
            memcpy(&want, values->data + ((size_t)r * (size_t)n_cols + (size_t)k) * 4, 4);
            if (row[k] != want)
                fprintf(
                    stderr, "row %d, column %d: %g, not %g\n", r, k, (double)row[k], (double)want);
            EXPECT_EQ(row[k], want);
        }
    }
    mem_free(block);
    mem_free(rows);
    mem_free(row);
}

static void check_case(const struct opened *f, const struct quantised *q)
{
    struct matrix m;
    struct err e = { 0 };

    EXPECT_EQ(begin_matrix(&m, q->quantization, &e), 0);
    add_all_parts(&m, f, q);
    if (hf_tensors_end(&m.t, &m.out, &e))
        fprintf(stderr, "%s: %s\n", q->name, e.msg);
    EXPECT_EQ(m.out.n_tensors, q->factor > 0 ? 2ul : 1ul);
    EXPECT(m.out.tensors[0].type == q->type && !m.out.tensors[0].data);
    if (q->factor > 0) {
        float got;
        EXPECT(str_is(m.out.tensors[1].name, "blk.0.ffn_up.scale"));
        EXPECT(m.out.tensors[1].type == Q_F32 && m.out.tensors[1].bytes == sizeof(got));
        memcpy(&got, m.out.tensors[1].data, sizeof(got));
        EXPECT_EQ(got, q->factor);
    }
    expect_values(&m, find(f, q->name, "values"));
    end_matrix(&m);
}

#define AFFINE_PARTS                                                                               \
    {                                                                                              \
        { "weight", ".weight", SAME_TYPE }, { "scales", ".scales", SAME_TYPE },                    \
        {                                                                                          \
            "biases", ".biases", SAME_TYPE                                                         \
        }                                                                                          \
    }
#define MLX_PARTS                                                                                  \
    {                                                                                              \
        { "weight", ".weight", SAME_TYPE },                                                        \
        {                                                                                          \
            "scales", ".scales", SAME_TYPE                                                         \
        }                                                                                          \
    }

static void affine_values_are_those_of_mlx(void)
{
    static const enum qtype types[9][2] = { [2] = { Q_AFFINE2_32, Q_AFFINE2_64 },
        [3] = { Q_AFFINE3_32, Q_AFFINE3_64 },
        [4] = { Q_AFFINE4_32, Q_AFFINE4_64 },
        [5] = { Q_AFFINE5_32, Q_AFFINE5_64 },
        [6] = { Q_AFFINE6_32, Q_AFFINE6_64 },
        [8] = { Q_AFFINE8_32, Q_AFFINE8_64 } };
    struct opened f = open_values("tests/families/mlx.safetensors");

    for (int bits = 2; bits <= 8; bits++)
        for (int group = 32; group <= 128 && bits != 7; group *= 2) {
            char name[32], quantization[100];
            snprintf(name, sizeof(name), "affine-%d-%d", bits, group);
            snprintf(quantization, sizeof(quantization),
                "\"quantization\": {\"bits\": %d, \"group_size\": %d}", bits, group);
            struct quantised q = { name, quantization, types[bits][group > 32], AFFINE_PARTS, 0 };
            check_case(&f, &q);
        }
    close_values(&f);
}

#define CONFIG(members) "\"quantization_config\": {" members "}"
#define MLX_MODE(mode)  "\"quantization\": {\"mode\": \"" mode "\"}"
#define COMPRESSED(format)                                                                         \
    CONFIG("\"quant_method\": \"compressed-tensors\", \"format\": \"" format "\"")

static const struct quantised cases[] = {
    { "mxfp4", MLX_MODE("mxfp4"), Q_MXFP4, MLX_PARTS, 0 },
    { "mxfp4", CONFIG("\"quant_method\": \"mxfp4\""), Q_MXFP4,
        { { "bytes", "_blocks", SAME_TYPE }, { "scales", "_scales", SAME_TYPE } }, 0 },
    { "mxfp4", COMPRESSED("mxfp4-pack-quantized"), Q_MXFP4,
        { { "bytes", ".weight_packed", SAME_TYPE }, { "scales", ".weight_scale", SAME_TYPE } }, 0 },
    { "mxfp8", MLX_MODE("mxfp8"), Q_MXFP8, MLX_PARTS, 0 },
    { "mxfp8", CONFIG("\"quant_method\": \"mxfp8\""), Q_MXFP8,
        { { "bytes", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale_inv", ST_F8_E8M0 } }, 0 },
    { "nvfp4", MLX_MODE("nvfp4"), Q_NVFP4, MLX_PARTS, 0 },
    { "nvfp4", MLX_MODE("nvfp4"), Q_NVFP4,
        { { "weight", ".weight", SAME_TYPE }, { "scales", ".scales", SAME_TYPE },
            { NULL, ".global_scale", SAME_TYPE } },
        2.5f / 2688 },
    { "nvfp4", CONFIG("\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\""), Q_NVFP4,
        { { "bytes", ".weight", SAME_TYPE }, { "scales", ".weight_scale", ST_F8_E4M3 },
            { NULL, ".weight_scale_2", SAME_TYPE }, { NULL, ".input_scale", SAME_TYPE } },
        2.5f },
    { "nvfp4", COMPRESSED("nvfp4-pack-quantized"), Q_NVFP4,
        { { "bytes", ".weight_packed", SAME_TYPE }, { "scales", ".weight_scale", ST_F8_E4M3 },
            { NULL, ".weight_global_scale", SAME_TYPE } },
        0.4f },
    { "fp8-block", CONFIG("\"quant_method\": \"fp8\", \"weight_block_size\": [4, 64]"), Q_FP8_32,
        { { "weight", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale_inv", SAME_TYPE } }, 0 },
    { "fp8-block128", CONFIG("\"quant_method\": \"fp8\", \"weight_block_size\": [4, 128]"),
        Q_FP8_128,
        { { "weight", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale_inv", SAME_TYPE } }, 0 },
    { "fp8-block128",
        CONFIG("\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\","
               "\"config_groups\": {\"g\": {\"weights\": {\"block_structure\": [4, 128]}}}"),
        Q_FP8_128,
        { { "weight", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale", SAME_TYPE } }, 0 },
    { "fp8-row", COMPRESSED("float-quantized"), Q_FP8_32,
        { { "weight", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale", SAME_TYPE } }, 0 },
    { "fp8-row", CONFIG("\"quant_method\": \"fbgemm_fp8\""), Q_FP8_32,
        { { "weight", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale", SAME_TYPE } }, 0 },
    { "fp8-tensor", CONFIG("\"quant_method\": \"fp8\", \"weight_block_size\": null"), Q_FP8_128,
        { { "weight", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale_inv", SAME_TYPE },
            { NULL, ".activation_scale", SAME_TYPE } },
        0 },
    { "fp8-tensor", CONFIG("\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\""), Q_FP8_128,
        { { "weight", ".weight", ST_F8_E4M3 }, { "scales", ".weight_scale", SAME_TYPE },
            { NULL, ".input_scale", SAME_TYPE } },
        0 },
};

static void values_of_all_quantisations_are_those_of_mlx(void)
{
    struct opened f = open_values("tests/families/hf_quantised.safetensors");

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_case(&f, &cases[i]);
    close_values(&f);
}

/* ---- refusal */

static void expect_refused(int rc, const struct err *e, enum errcode code, const char *message)
{
    if (rc != -1 || e->code != code || !strstr(e->msg, message))
        fprintf(stderr, "expected '%s' (%s), got '%s' (%s)\n", message, errcode_name(code),
            rc ? e->msg : "no error", rc ? errcode_name(e->code) : "ok");
    EXPECT(rc == -1 && e->code == code && strstr(e->msg, message) && !strchr(e->msg, '\n'));
}

static void quantisations_are_refused_by_name_and_value(void)
{
    static const struct {
        const char *quantization;
        enum errcode code;
        const char *message;
    } rows[] = {
        { CONFIG("\"quant_method\": \"gptq\""), ERR_UNSUPPORTED, "quant_method = \"gptq\"" },
        { CONFIG("\"quant_method\": \"fp8\", \"fmt\": \"e5m2\""), ERR_UNSUPPORTED,
            "fmt = \"e5m2\"" },
        { CONFIG("\"quant_method\": \"fp8\", \"weight_block_size\": [128]"), ERR_UNSUPPORTED,
            "weight_block_size = [128]" },
        { CONFIG("\"quant_method\": \"fp8\", \"weight_block_size\": [0, 128]"), ERR_UNSUPPORTED,
            "weight_block_size = [0, 128]" },
        { CONFIG("\"quant_method\": \"fp8\", \"weight_block_size\": [128, 1e18]"), ERR_UNSUPPORTED,
            "weight_block_size = [128, 1e18]" },
        { CONFIG("\"quant_method\": \"fp8\", \"weight_block_size\": 128"), ERR_UNSUPPORTED,
            "weight_block_size = 128" },
        { CONFIG("\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A8_AWQ\""), ERR_UNSUPPORTED,
            "quant_algo = \"W4A8_AWQ\"" },
        { CONFIG("\"quant_method\": \"modelopt\""), ERR_CORRUPT,
            "quant_method = modelopt without quant_algo" },
        { COMPRESSED("pack-quantized"), ERR_UNSUPPORTED, "format = \"pack-quantized\"" },
        { MLX_MODE("fp8"), ERR_UNSUPPORTED, "mode = \"fp8\"" },
        { "\"quantization\": {\"mode\": \"mxfp8\", \"bits\": 4}", ERR_UNSUPPORTED,
            "4 bits in groups of 32" },
        { "\"quantization\": {\"mode\": \"nvfp4\", \"group_size\": 32}", ERR_UNSUPPORTED,
            "4 bits in groups of 32" },
        { "\"quantization\": {\"bits\": 4, \"group_size\": 48}", ERR_UNSUPPORTED,
            "4 bits in groups of 48" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct matrix m;
        struct err e = { 0 };
        expect_refused(
            begin_matrix(&m, rows[i].quantization, &e), &e, rows[i].code, rows[i].message);
        end_matrix(&m);
    }
}

/* A change of one part of a case. */
struct change {
    const char *name; /* name of the quantisation */
    int part, dtype;
    uint64_t dims[2];
    enum errcode code;
    const char *message;
};

static void shapes_and_types_of_parts_are_checked(void)
{
    static const struct change rows[] = {
        { "fp8-block", 1, SAME_TYPE, { 3, 2 }, ERR_CORRUPT, "expected [1, 2, 3], found [1, 3, 2]" },
        { "fp8-block", 1, ST_U32, { 2, 3 }, ERR_UNSUPPORTED, "type U32" },
        { "fp8-block", 0, ST_F8_E5M2, { 6, 192 }, ERR_UNSUPPORTED, "type F8_E5M2" },
        { "fp8-block", 0, ST_BF16, { 6, 96 }, ERR_CORRUPT, "missing or unexpected" },
        { "fp8-block", 0, ST_F8_E4M3, { 36, 32 }, ERR_CORRUPT, "expected [1, 9, 1]" },
        { "fp8-block", 0, ST_F8_E4M3, { 72, 16 }, ERR_UNSUPPORTED, "rows of 16 elements" },
        { "fp8-row", 1, ST_F16, { 3, 2 }, ERR_CORRUPT, "expected [1, 6, 1], found [1, 3, 2]" },
        { "fp8-tensor", 0, ST_F8_E4M3, { 1, 1536 }, ERR_NONE, "" },
        { "nvfp4", 0, SAME_TYPE, { 72, 2 }, ERR_UNSUPPORTED, "rows of 16 elements" },
        { "nvfp4", 0, SAME_TYPE, { 144, 1 }, ERR_CORRUPT, "no whole number of groups" },
        { "nvfp4", 1, SAME_TYPE, { 12, 6 }, ERR_CORRUPT, "expected [1, 6, 12], found [1, 12, 6]" },
        { "nvfp4", 1, ST_F8_E8M0, { 6, 12 }, ERR_UNSUPPORTED, "type F8_E8M0" },
        { "mxfp8", 1, ST_I8, { 6, 6 }, ERR_UNSUPPORTED, "type I8" },
        { "mxfp8", 1, SAME_TYPE, { 36, 1 }, ERR_CORRUPT, "expected [1, 6, 6], found [1, 36, 1]" },
    };
    struct opened f = open_values("tests/families/hf_quantised.safetensors");

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct quantised *q = cases;
        struct matrix m;
        struct err e = { 0 };
        while (strcmp(q->name, rows[i].name) != 0)
            q++;
        EXPECT_EQ(begin_matrix(&m, q->quantization, &e), 0);
        add_all_parts(&m, &f, q);
        struct st_tensor *t = &m.parts[rows[i].part];
        if (rows[i].dtype != SAME_TYPE)
            t->dtype = (enum st_dtype)rows[i].dtype;
        t->n_dims = 2;
        t->dims[0] = rows[i].dims[0];
        t->dims[1] = rows[i].dims[1];
        t->bytes = t->dims[0] * t->dims[1] * st_dtype_bytes(t->dtype);
        int rc = hf_tensors_end(&m.t, &m.out, &e);
        if (rows[i].code == ERR_NONE)
            EXPECT_EQ(rc, 0);
        else
            expect_refused(rc, &e, rows[i].code, rows[i].message);
        end_matrix(&m);
    }
    close_values(&f);
}

/* Numbers that are not finite are refused before the rows are read. */
static void scales_that_are_not_finite_are_refused(void)
{
    static const struct {
        const char *name;
        uint8_t bytes[4]; /* the first scale */
    } rows[] = { { "fp8-block", { 0, 0, 0xc0, 0x7f } }, { "fp8-block", { 0, 0, 0x80, 0xff } },
        { "fp8-row", { 0x80, 0x7f, 0, 0 } }, { "mxfp4", { 0xff } }, { "mxfp8", { 0xff } },
        { "nvfp4", { 0x7f } }, { "nvfp4", { 0xff } } };
    struct opened f = open_values("tests/families/hf_quantised.safetensors");

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct quantised *q = cases;
        struct matrix m;
        struct err e = { 0 };
        while (strcmp(q->name, rows[i].name) != 0)
            q++;
        EXPECT_EQ(begin_matrix(&m, q->quantization, &e), 0);
        add_all_parts(&m, &f, q);
        struct st_tensor *scales = &m.parts[1];
        uint8_t *copy = xmalloc(scales->bytes);
        memcpy(copy, scales->data, scales->bytes);
        memcpy(copy, rows[i].bytes, st_dtype_bytes(scales->dtype));
        scales->data = copy;
        EXPECT_EQ(hf_tensors_end(&m.t, &m.out, &e), 0);
        expect_refused(
            m.out.check(&m.out.tensors[0], &e), &e, ERR_CORRUPT, "number 0 is not finite");
        end_matrix(&m);
        mem_free(copy);
    }
    close_values(&f);
}

static void factors_are_checked(void)
{
    static const float zero = 0, nan_factor = NAN, two[2] = { 1, 2 };
    static const struct {
        const char *end;
        const float *factor;
        uint64_t n;
        enum st_dtype dtype;
        enum errcode code;
        const char *message;
    } rows[] = {
        { ".weight_scale_2", &nan_factor, 1, ST_F32, ERR_CORRUPT, "the factor nan" },
        { ".weight_global_scale", &zero, 1, ST_F32, ERR_CORRUPT, "the factor 0" },
        { ".weight_scale_2", two, 2, ST_F32, ERR_CORRUPT, "expected 1 factors, found 2" },
        { ".weight_scale_2", two, 2, ST_BF16, ERR_UNSUPPORTED, "type BF16" },
    };
    struct opened f = open_values("tests/families/hf_quantised.safetensors");

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct matrix m;
        struct err e = { 0 };
        struct st_tensor factor = { .dtype = rows[i].dtype,
            .n_dims = 1,
            .dims = { rows[i].n, 1, 1, 1, 1, 1, 1, 1 },
            .data = (const uint8_t *)rows[i].factor,
            .bytes = rows[i].n * st_dtype_bytes(rows[i].dtype) };
        EXPECT_EQ(begin_matrix(&m, MLX_MODE("nvfp4"), &e), 0);
        add_part(&m, find(&f, "nvfp4", "weight"), ".weight", SAME_TYPE);
        add_part(&m, find(&f, "nvfp4", "scales"), ".scales", SAME_TYPE);
        add_part(&m, &factor, rows[i].end, SAME_TYPE);
        expect_refused(hf_tensors_end(&m.t, &m.out, &e), &e, rows[i].code, rows[i].message);
        end_matrix(&m);
    }
    close_values(&f);
}

TESTS(TEST(affine_values_are_those_of_mlx), TEST(values_of_all_quantisations_are_those_of_mlx),
    TEST(quantisations_are_refused_by_name_and_value), TEST(shapes_and_types_of_parts_are_checked),
    TEST(scales_that_are_not_finite_are_refused), TEST(factors_are_checked))
