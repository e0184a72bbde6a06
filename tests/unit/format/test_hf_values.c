/* format/hf: the values of quantised tensors of MLX are those of mx.dequantize, bit for bit:
 * tests/families/mlx.safetensors, which tests/families/mlx_directories.py wrote, has the codes,
 * scales and offsets of matrices and their values, computed with scales of F32. */
#include "support/check.h"

#include "base/mem.h"
#include "format/hf/hf_tensors.h"
#include "kernel/gemm.h"
#include "os/mapfile.h"

#include <stdio.h>

enum { ROWS = 3, COLS = 128 };

static const struct st_tensor *find(const struct safetensors *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (str_is(s->tensors[i].name, name))
            return &s->tensors[i];
    return NULL;
}

/* Adds the parts of a case under the names of a matrix of Llama. */
static void add_parts(struct hf_tensors *t, const struct safetensors *s, const char *name)
{
    static const char *const parts[] = { "weight", "scales", "biases" };
    static struct st_tensor renamed[ARRAY_LEN(parts)];
    static char names[ARRAY_LEN(parts)][64];
    char key[64];
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        snprintf(key, sizeof(key), "%s.%s", name, parts[i]);
        const struct st_tensor *from = find(s, key);
        if (!from) { /* mxfp4 has no offsets */
            EXPECT(i == 2);
            continue;
        }
        snprintf(names[i], sizeof(names[i]), "model.layers.0.mlp.up_proj.%s", parts[i]);
        renamed[i] = *from;
        renamed[i].name = str_of(names[i]);
        EXPECT_EQ(hf_tensors_add(t, &renamed[i], &e), 0);
    }
}

static void check_case(
    const struct safetensors *s, const char *mode, int bits, int group, enum qtype type)
{
    char text[400], name[64];
    struct gguf_translation out = { 0 };
    struct hf_tensors t;
    struct hf_config c;
    struct json *config;
    struct packed w;
    struct arena *a = arena_new(MB);
    struct err e = { 0 };
    float row[COLS], want[COLS];

    snprintf(name, sizeof(name), "%s-%d-%d", mode, bits, group);
    snprintf(text, sizeof(text),
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 128,"
        " \"num_attention_heads\": 2, \"quantization\": {\"mode\": \"%s\", \"bits\": %d,"
        " \"group_size\": %d}}",
        mode, bits, group);
    EXPECT_EQ(json_parse(&config, str_of(text), a, &json_limits_default, &e), 0);
    EXPECT_EQ(hf_config_read(&c, config, &e), 0);
    EXPECT_EQ(hf_tensors_init(&t, &c, a, &e), 0);
    add_parts(&t, s, name);
    if (hf_tensors_end(&t, &out, &e))
        fprintf(stderr, "%s: %s\n", name, e.msg);
    EXPECT_EQ(out.n_tensors, 1ul);
    const struct gguf_tensor *x = &out.tensors[0];
    EXPECT(x->type == type && x->dims[0] == COLS && x->dims[1] == ROWS && !x->data);
    uint8_t *rows = xmalloc((size_t)x->bytes), *block;
    out.read_rows(x, 0, ROWS, rows);
    block = try_aligned(64, pack_bytes(type, ROWS, COLS));
    EXPECT(block && !pack_init(&w, type, ROWS, COLS, block, &e));
    pack_panels(&w, rows, 0, w.n_panels);
    snprintf(text, sizeof(text), "%s.values", name);
    const struct st_tensor *values = find(s, text);
    EXPECT(values && values->bytes == ROWS * sizeof(want));
    for (int r = 0; r < ROWS; r++) {
        pack_get_row(&w, r, row);
        memcpy(want, values->data + (size_t)r * sizeof(want), sizeof(want));
        for (int k = 0; k < COLS; k++) {
            if (row[k] != want[k])
                fprintf(stderr, "%s: row %d, column %d\n", name, r, k);
            EXPECT_EQ(row[k], want[k]);
        }
    }
    mem_free(block);
    mem_free(rows);
    gguf_translation_clear(&out); /* also the arena */
}

static void values_are_those_of_mlx(void)
{
    static const int bits[] = { 2, 3, 4, 5, 6, 8 }, groups[] = { 32, 64, 128 };
    struct safetensors s;
    struct mapfile f;
    struct err e = { 0 };

    EXPECT(!mapfile_open(&f, "tests/families/mlx.safetensors", &e));
    EXPECT(!safetensors_read(&s, (struct str){ (const char *)f.p, f.n }, &e));
    for (size_t b = 0; b < ARRAY_LEN(bits); b++)
        for (size_t g = 0; g < ARRAY_LEN(groups); g++)
            check_case(&s, "affine", bits[b], groups[g],
                bits[b] <= 4      ? groups[g] == 32 ? Q_AFFINE4_32 : Q_AFFINE4_64
                : groups[g] == 32 ? Q_AFFINE8_32
                                  : Q_AFFINE8_64);
    check_case(&s, "mxfp4", 4, 32, Q_MXFP4);
    safetensors_clear(&s);
    mapfile_close(&f);
}

TESTS(TEST(values_are_those_of_mlx))
