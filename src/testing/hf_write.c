#include "testing/hf_write_in.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "testing/hf_write_hybrid.h"

#include <math.h>
#include <stdio.h>

/* ---- files */

static int write_file(const char *dir, const char *name, struct str bytes, struct err *e)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    size_t n = f ? fwrite(bytes.p, 1, bytes.n, f) : 0;
    if (f && fclose(f))
        n = 0;
    return f && n == bytes.n ? 0 : err_set(e, ERR_IO, "%s cannot be written", path);
}

static void shard_name(const struct writer *w, int i, char out[64])
{
    if (w->n_shards == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05d-of-%05d.safetensors", i + 1, w->n_shards);
}

struct buf *hf_write_begin(struct writer *w, const char *name, const char *dtype, int n_dims,
    const uint64_t *dims, uint64_t bytes)
{
    int i = (int)(w->n_written++ % (size_t)w->n_shards);
    struct shard *s = &w->shards[i];
    char file[64];

    jw_key(&s->w, name);
    jw_object(&s->w);
    jw_member_str(&s->w, "dtype", str_of(dtype));
    jw_key(&s->w, "shape");
    jw_array(&s->w);
    for (int d = 0; d < n_dims; d++)
        jw_u64(&s->w, dims[d]);
    jw_end_array(&s->w);
    jw_key(&s->w, "data_offsets");
    jw_array(&s->w);
    jw_u64(&s->w, s->data.n);
    jw_u64(&s->w, s->data.n + bytes);
    jw_end_array(&s->w);
    jw_end_object(&s->w);
    shard_name(w, i, file);
    jw_member_str(&w->index_json, name, str_of(file));
    return &s->data;
}

/* ---- tensors */

static const char *dtype_of(enum qtype type)
{
    return type == Q_F32 ? "F32" : type == Q_F16 ? "F16" : type == Q_BF16 ? "BF16" : NULL;
}

/* Rows of a head if the halves of the heads are swapped, otherwise 0. */
static uint64_t head_rows_of(const struct writer *w, const struct hf_tensor_row *row, uint64_t n)
{
    if (!w->family->swaps_halves || (row->rows != HF_ROWS_Q && row->rows != HF_ROWS_K))
        return 0;
    return n / (row->rows == HF_ROWS_Q ? w->n_heads : w->n_kv_heads);
}

/* The row, of n, in GGUF terms that is row r of the directory. */
static uint64_t gguf_row(
    const struct writer *w, const struct hf_tensor_row *row, uint64_t r, uint64_t n)
{
    const uint64_t head_rows = head_rows_of(w, row, n), half = head_rows / 2;

    if (row->rows == HF_ROWS_VALUES || row->rows == HF_ROWS_QK_VALUES)
        return hf_write_value_index(w, row, r, n);
    return head_rows ? r / head_rows * head_rows + r % half * 2 + r % head_rows / half : r;
}

const uint8_t *hf_write_row(struct writer *w, const struct hf_write_matrices *m, uint64_t r)
{
    const uint64_t n = m->t->dims[1], row_bytes = m->t->bytes / (n * m->t->dims[2]);
    const uint64_t row = (m->first + r / n) * n + gguf_row(w, m->row, r % n, n);
    const uint8_t *from = m->t->data + row * row_bytes;

    if (m->row->rows != HF_COLS_VALUES)
        return from;
    w->row.n = 0;
    for (uint64_t i = 0; i < row_bytes; i++)
        buf_putc(&w->row, (char)from[hf_write_value_index(w, m->row, i, row_bytes)]);
    return (const uint8_t *)w->row.p;
}

static float subtract_one(const struct writer *w, const struct hf_tensor_row *row, float f)
{
    const bool is_summed = w->family->has_delta_net && w->o->is_mlx;

    return w->family->adds_one && row->is_norm && !is_summed ? f - 1 : f;
}

static void put_vector(struct writer *w, const char *name, const struct hf_tensor_row *row,
    const struct gguf_tensor *t)
{
    const bool is_bias = t->n_dims == 1 && str_ends(t->name, STR(".bias"));
    uint64_t n = t->dims[0], dims[2] = { t->dims[1], n };
    struct buf *to =
        hf_write_begin(w, name, "F32", t->n_dims, t->n_dims == 1 ? dims + 1 : dims, t->bytes);

    for (uint64_t i = 0; i < n * t->dims[1]; i++) {
        float f;
        uint64_t from = is_bias ? gguf_row(w, row, i, n) : i;
        memcpy(&f, t->data + from * sizeof(f), sizeof(f));
        f = subtract_one(w, row, f);
        buf_put(to, &f, sizeof(f));
    }
}

/* Matrices as they are. */
static void put_floats(struct writer *w, const char *name, const struct hf_write_matrices *m)
{
    const struct gguf_tensor *t = m->t;
    uint64_t dims[3] = { m->n, t->dims[1], t->dims[0] };
    uint64_t row_bytes = t->bytes / (t->dims[1] * t->dims[2]);
    struct buf *to = hf_write_begin(w, name, dtype_of(t->type), m->n > 1 ? 3 : 2,
        m->n > 1 ? dims : dims + 1, row_bytes * t->dims[1] * m->n);

    for (uint64_t i = 0; i < m->n * t->dims[1]; i++)
        buf_put(to, hf_write_row(w, m, i), row_bytes);
}

/* The GGUF name of a row, with the layer. */
static bool is_row_of(const struct hf_tensor_row *row, struct str stem, int layer)
{
    char name[NAME_MAX_BYTES];
    const char *number = strstr(row->to, "%d");

    if (number)
        snprintf(
            name, sizeof(name), "%.*s%d%s", (int)(number - row->to), row->to, layer, number + 2);
    else
        snprintf(name, sizeof(name), "%s", row->to);
    return str_is(stem, name);
}

/* Whether the row is of the layout that is written. MLX stacks the experts, in switch_mlp except of
 * gpt-oss, and has the only network of a hybrid model as mlp. */
static bool is_in_layout(const struct writer *w, const struct hf_tensor_row *row)
{
    if (row->rows == HF_ROWS_EVEN || row->rows == HF_ROWS_ODD)
        return false;
    const bool is_stacked = strstr(row->from, ".experts.") && !strstr(row->from, "%e");
    if (!w->o->is_mlx)
        return !strstr(row->from, "switch_") &&
               (!is_stacked || strcmp(w->arch, "qwen3next") != 0 || w->o->stacks_experts);
    if (strstr(row->from, "%e") || strstr(row->from, "moe.input_linear") ||
        strstr(row->from, "moe.output_linear"))
        return false;
    if (w->family->has_delta_net || w->family->has_window_heads || !strcmp(w->arch, "mistral4"))
        return !strstr(row->from, ".experts.") || strstr(row->from, "switch_glu");
    return !w->family->hybrid ||
           (!strstr(row->from, ".experts.") && (w->n_experts || !strstr(row->from, "shared_mlp")));
}

/* A row of the family with this GGUF name, in the layout that is written. */
static const struct hf_tensor_row *find_row(const struct writer *w, struct str stem, int layer)
{
    const struct hf_tensor_row *lists[] = { hf_family_rows(w->family, (int64_t)w->n_experts),
        hf_common_rows };

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        for (const struct hf_tensor_row *row = lists[i]; row && row->from; row++)
            if (is_in_layout(w, row) && is_row_of(row, stem, layer))
                return row;
    return NULL;
}

/* The tensor of the second half of a tensor whose first half is that of `row`. */
static const struct gguf_tensor *second_half(
    const struct writer *w, const struct hf_tensor_row *row, int layer)
{
    const struct hf_tensor_row *other = hf_family_rows(w->family, (int64_t)w->n_experts);
    char name[NAME_MAX_BYTES];

    while (strcmp(other->from, row->from) != 0 || other->rows != HF_ROWS_SECOND_HALF)
        other++;
    snprintf(name, sizeof(name), "blk.%d%s.weight", layer, strchr(other->to, 'd') + 1);
    return gguf_tensor(w->g, name);
}

/* For each matrix the rows of one tensor, then those of the other one. */
static void put_halves(struct writer *w, const char *name, const struct gguf_tensor *first,
    const struct gguf_tensor *second)
{
    const uint64_t n = first->dims[2], bytes = first->bytes / n;
    uint64_t dims[3] = { n, 2 * first->dims[1], first->dims[0] };
    struct buf *to = hf_write_begin(
        w, name, dtype_of(first->type), n > 1 ? 3 : 2, n > 1 ? dims : dims + 1, 2 * first->bytes);

    for (uint64_t i = 0; i < n; i++) {
        buf_put(to, first->data + i * bytes, bytes);
        buf_put(to, second->data + i * bytes, bytes);
    }
}

/* The number of which -exp is `x`: one of the three next to the logarithm. */
static float log_of_decay(float x)
{
    const float log_x = (float)log((double)-x);
    const float near[] = { log_x, nextafterf(log_x, -INFINITY), nextafterf(log_x, INFINITY) };

    for (size_t i = 0; i < ARRAY_LEN(near); i++)
        if ((float)-exp((double)near[i]) == x)
            return near[i];
    return log_x;
}

/* A vector or convolution that has another shape in GGUF terms. */
static void put_form(struct writer *w, const char *name, const struct hf_tensor_row *row,
    const struct gguf_tensor *t)
{
    const uint64_t n = t->dims[0] * t->dims[1], taps = t->dims[0], channels = t->dims[1];
    const uint64_t hf_conv[3] = { channels, 1, taps }, mlx_conv[3] = { channels, taps, 1 };
    const bool is_conv = row->form == HF_FORM_CONV;
    const uint64_t width = is_conv ? taps : 1;
    struct buf *to = hf_write_begin(w, name, "F32", is_conv ? 3 : 1,
        !is_conv       ? &n
        : w->o->is_mlx ? mlx_conv
                       : hf_conv,
        t->bytes);

    for (uint64_t i = 0; i < n; i++) {
        float f;
        uint64_t from = hf_write_value_index(w, row, i / width, n / width) * width + i % width;
        memcpy(&f, t->data + from * sizeof(f), sizeof(f));
        f = row->form == HF_FORM_DECAY || row->form == HF_FORM_DECAYS ? log_of_decay(f) : f;
        buf_put(to, &f, sizeof(f));
    }
}

static void stem_of(const struct hf_tensor_row *row, int layer, int expert, char out[96])
{
    size_t n = 0;

    for (const char *p = row->from; *p && n + 12 < 96; p++) {
        if (*p != '%') {
            out[n++] = *p;
            continue;
        }
        n += (size_t)snprintf(out + n, 12, "%d", *++p == 'd' ? layer : expert);
    }
    out[n] = '\0';
}

/* A parameter of a module is a module for some tensors. */
static const char *tail_of(const struct writer *w, const struct hf_tensor_row *row, bool is_bias)
{
    const bool is_stacked =
        (w->family->has_delta_net || w->family->has_window_heads || !strcmp(w->arch, "mistral4")) &&
        !strstr(row->from, "%e") && strstr(row->from, ".experts.") && !w->o->is_mlx;

    if (strstr(row->from, "sinks") || row->form == HF_FORM_COLUMN || row->form == HF_FORM_DECAY ||
        row->form == HF_FORM_DECAYS || row->form == HF_FORM_VECTOR || is_stacked ||
        strstr(row->from, "layer_scalar"))
        return "";
    if (is_bias)
        return str_ends(str_of(row->from), STR(".dt")) || strstr(row->to, "exp_probs_b") ? "_bias"
                                                                                         : ".bias";
    return ".weight";
}

/* All matrices of a tensor: stacked, or one for each expert. */
static int put_matrix(struct writer *w, struct hf_write_matrices *m, char name[NAME_MAX_BYTES],
    int layer, struct err *e)
{
    const bool is_per_expert = strstr(m->row->from, "%e");
    char stem[96];

    for (uint64_t x = 0; x < (is_per_expert ? m->t->dims[2] : 1); x++) {
        if (is_per_expert) {
            stem_of(m->row, layer, (int)x, stem);
            snprintf(name, NAME_MAX_BYTES, "%s.weight", stem);
            m->stem = stem;
            m->first = x;
            m->n = 1;
        }
        if (hf_write_quantised(w, m))
            continue;
        if (!dtype_of(m->t->type))
            return err_set(e, ERR_UNSUPPORTED, "tensor %s: its type has no equivalent", name);
        put_floats(w, name, m);
    }
    return 0;
}

/* NAME.scale and NAME.input_scale: one number for each expert. */
static int put_factors_of(
    struct writer *w, const struct gguf_tensor *t, struct str base, int layer, struct err *e)
{
    const bool is_input = str_ends(t->name, STR(".input_scale"));
    const struct hf_tensor_row *row = find_row(w, base, layer);
    char stem[96];

    if (!row)
        return err_set(
            e, ERR_UNSUPPORTED, "tensor " STR_FMT " has no name in this layout", STR_ARG(t->name));
    for (uint64_t x = 0; x < t->dims[0]; x++) {
        stem_of(row, layer, (int)x, stem);
        hf_write_factor(w, &(struct hf_write_matrices){ stem, row, t, x, 1 },
            is_input ? ".input_scale" : ".weight_scale_2");
    }
    return 0;
}

/* attn_k_b [heads][rank][keys] and attn_v_b [heads][values][rank] as kv_b_proj, for each head the
 * rows of keys, then those of values. */
static int put_kv_b(struct writer *w, const struct gguf_tensor *k_b, int layer, struct err *e)
{
    char name[NAME_MAX_BYTES];

    snprintf(name, sizeof(name), "blk.%d.attn_v_b.weight", layer);
    const struct gguf_tensor *v_b = gguf_tensor(w->g, name);
    if (!v_b || !dtype_of(k_b->type) || v_b->type != k_b->type)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s and attn_k_b: other types", name);
    const uint64_t n_keys = k_b->dims[0], rank = k_b->dims[1], n_heads = k_b->dims[2];
    const uint64_t n_values = v_b->dims[1], bytes = k_b->bytes / (n_keys * rank * n_heads);
    const uint64_t dims[2] = { n_heads * (n_keys + n_values), rank };
    snprintf(name, sizeof(name), "model.layers.%d.self_attn.kv_b_proj.weight", layer);
    struct buf *to =
        hf_write_begin(w, name, dtype_of(k_b->type), 2, dims, dims[0] * dims[1] * bytes);
    for (uint64_t h = 0; h < n_heads; h++) {
        for (uint64_t i = 0; i < n_keys * rank; i++)
            buf_put(to, k_b->data + ((h * rank + i % rank) * n_keys + i / rank) * bytes, bytes);
        buf_put(to, v_b->data + h * n_values * rank * bytes, n_values * rank * bytes);
    }
    return 0;
}

static int put_tensor(struct writer *w, const struct gguf_tensor *t, struct err *e)
{
    static const struct str factors[] = { { ".input_scale", 12 }, { ".scale", 6 } };

    bool is_bias = str_ends(t->name, STR(".bias"));
    const size_t n_tail = is_bias                             ? strlen(".bias")
                          : str_ends(t->name, STR(".weight")) ? strlen(".weight")
                                                              : 0;
    struct str base = { t->name.p, t->name.n - n_tail };
    char text[NAME_MAX_BYTES], stem[96], name[NAME_MAX_BYTES];
    int layer = -1;

    if (str_starts(t->name, STR("rope_")))
        return 0; /* in config.json */
    snprintf(text, sizeof(text), STR_FMT, STR_ARG(t->name));
    if (sscanf(text, "blk.%d.", &layer) != 1)
        layer = -1;
    /* mlx-lm splits the matrices of all models but those of DeepSeek V2 */
    const bool has_kv_b = !w->o->is_mlx || !strcmp(w->family->model_type, "deepseek_v2");
    if (has_kv_b && str_ends(t->name, STR("attn_v_b.weight")))
        return 0; /* written with attn_k_b */
    if (has_kv_b && str_ends(t->name, STR("attn_k_b.weight")))
        return put_kv_b(w, t, layer, e);
    const struct hf_tensor_row *row = find_row(w, t->name, layer);
    for (size_t i = 0; i < ARRAY_LEN(factors); i++)
        if (!row && str_ends(t->name, factors[i]))
            return put_factors_of(
                w, t, (struct str){ t->name.p, t->name.n - factors[i].n }, layer, e);
    if (hf_write_is_interleaved(w, t))
        return 0; /* written with the tensor of gate */
    if (!row)
        row = find_row(w, base, layer);
    if (!row)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s has no name in this layout", text);
    stem_of(row, layer, 0, stem);
    snprintf(name, sizeof(name), "%s%s", stem, tail_of(w, row, is_bias));
    if (row->rows == HF_ROWS_SECOND_HALF)
        return 0; /* written with the first half */
    if (row->rows == HF_ROWS_FIRST_HALF) {
        put_halves(w, name, t, second_half(w, row, layer));
        return 0;
    }
    if (row->form != HF_FORM_SAME && !is_bias) {
        put_form(w, name, row, t);
        return 0;
    }
    if (is_bias || (t->n_dims == 1 && !strstr(row->from, "_gate"))) {
        put_vector(w, name, row, t);
        return 0;
    }
    return put_matrix(
        w, &(struct hf_write_matrices){ stem, row, t, 0, t->dims[2] }, name, layer, e);
}

static int put_tensors(struct writer *w, struct err *e)
{
    char name[64];

    for (size_t i = 0; i < gguf_n_tensors(w->g); i++)
        if (put_tensor(w, gguf_tensor_at(w->g, i), e))
            return -1;
    for (int i = 0; i < w->n_shards; i++) {
        struct shard *s = &w->shards[i];
        struct buf all;
        jw_end_object(&s->w);
        while (s->header.n % 8)
            buf_putc(&s->header, ' ');
        uint64_t n = s->header.n;
        buf_init(&all, FILE_MAX);
        buf_put(&all, &n, sizeof(n));
        buf_puts(&all, buf_str(&s->header));
        buf_puts(&all, buf_str(&s->data));
        shard_name(w, i, name);
        int rc = buf_ok(&all) && buf_ok(&s->header) && buf_ok(&s->data)
                     ? write_file(w->dir, name, buf_str(&all), e)
                     : err_set(e, ERR_MEMORY, "no memory for %s", name);
        buf_clear(&all);
        if (rc)
            return -1;
    }
    jw_end_object(&w->index_json);
    jw_end_object(&w->index_json);
    return w->n_shards == 1
               ? 0
               : write_file(w->dir, "model.safetensors.index.json", buf_str(&w->index), e);
}

/* ---- config.json */

static bool get_number(const struct writer *w, const char *tail, double *out)
{
    char key[128];

    snprintf(key, sizeof(key), "%s.%s", w->arch, tail);
    return gguf_get_f64(w->g, key, out);
}

static void copy_number(const struct writer *w, struct jw *j, const char *tail, const char *key)
{
    double v;

    if (!get_number(w, tail, &v))
        return;
    jw_key(j, key);
    if (v == floor(v) && fabs(v) < 1e9)
        jw_i64(j, (int64_t)v);
    else
        jw_f32(j, (float)v);
}

static void put_factors(const struct writer *w, struct jw *j, const char *tensor, const char *key)
{
    const struct gguf_tensor *t = gguf_tensor(w->g, tensor);
    float f;

    jw_key(j, key);
    jw_array(j);
    for (uint64_t i = 0; t && i < t->dims[0]; i++) {
        memcpy(&f, t->data + i * sizeof(f), sizeof(f));
        jw_f32(j, f);
    }
    jw_end_array(j);
}

static void put_scaling(const struct writer *w, struct jw *j)
{
    char key[128];
    struct str type = STR("none");
    double original = 0, factor = 1, attn = 1;

    snprintf(key, sizeof(key), "%s.rope.scaling.type", w->arch);
    (void)gguf_get_str(w->g, key, &type);
    (void)get_number(w, "rope.scaling.original_context_length", &original);
    (void)get_number(w, "rope.scaling.factor", &factor);
    (void)get_number(w, "rope.scaling.attn_factor", &attn);
    jw_key(j, strncmp(w->arch, "mistral", 7) != 0 ? "rope_scaling" : "rope_parameters");
    if (gguf_tensor(w->g, "rope_freqs.weight")) { /* synth.c computes the same factors, with 8 */
        jw_raw(j, STR("{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                      "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}"));
        return;
    }
    if (str_is(type, "none")) {
        jw_null(j);
        return;
    }
    jw_object(j);
    jw_member_str(j, "rope_type", type);
    jw_member_str(j, "type", type); /* the older name */
    if (str_is(type, "longrope")) {
        put_factors(w, j, "rope_factors_long.weight", "long_factor");
        put_factors(w, j, "rope_factors_short.weight", "short_factor");
        jw_member_f32(j, "attention_factor", (float)attn);
    } else {
        jw_member_f32(j, "factor", (float)factor);
    }
    if (original > 0)
        jw_member_i64(j, "original_max_position_embeddings", (int64_t)original);
    if (get_number(w, "rope.scaling.yarn_log_multiplier", &attn)) {
        attn *= w->family->has_latent_attn ? 10 : 1;
        jw_member_f32(j, "mscale", (float)attn);
        jw_member_f32(j, "mscale_all_dim", (float)attn);
    }
    copy_number(w, j, "attention.temperature_scale", "llama_4_scaling_beta");
    copy_number(w, j, "rope.freq_base", "rope_theta");
    jw_end_object(j);
    if (str_is(type, "longrope"))
        jw_member_i64(j, "original_max_position_embeddings", (int64_t)original);
}

/* Layers with and without a window, as the families of the table have them without a key. */
static void put_layer_types(const struct writer *w, struct jw *j)
{
    double n_layers = 0, window = 0;
    int period = !strcmp(w->arch, "gemma3")    ? 6
                 : !strcmp(w->arch, "olmo2")   ? 4
                 : !strcmp(w->arch, "gemma2")  ? 2
                 : !strcmp(w->arch, "gpt-oss") ? 2
                                               : 0;

    (void)get_number(w, "block_count", &n_layers);
    if (!period || !get_number(w, "attention.sliding_window", &window))
        return;
    jw_key(j, "layer_types");
    jw_array(j);
    for (int i = 0; i < (int)n_layers; i++)
        jw_z(j, (i + 1) % period ? "sliding_attention" : "full_attention");
    jw_end_array(j);
}

static void put_family_values(const struct writer *w, struct jw *j)
{
    double v;

    if (get_number(w, "attention.scale", &v) && !strncmp(w->arch, "granite", 7))
        jw_member_f32(j, "attention_multiplier", (float)v);
    copy_number(w, j, "embedding_scale", "embedding_multiplier");
    copy_number(w, j, "residual_scale", "residual_multiplier");
    copy_number(w, j, "logit_scale", "logits_scaling");
    copy_number(w, j, "attn_logit_softcapping", "attn_logit_softcapping");
    copy_number(w, j, "final_logit_softcapping", "final_logit_softcapping");
    if (!strncmp(w->arch, "gemma", 5)) {
        if (!w->family->has_window_heads)
            copy_number(w, j, "attention.key_length", "query_pre_attn_scalar");
        jw_member_str(j, "hidden_activation", STR("gelu_pytorch_tanh"));
    }
    if (!strcmp(w->arch, "gemma3"))
        jw_member_i64(j, "rope_local_base_freq", 10000);
    if (!strcmp(w->arch, "qwen2moe"))
        copy_number(w, j, "expert_shared_feed_forward_length", "shared_expert_intermediate_size");
    if (!strcmp(w->arch, "granitemoe"))
        copy_number(w, j, "expert_shared_feed_forward_length", "shared_intermediate_size");
    if (!strcmp(w->arch, "qwen3moe")) {
        jw_member_bool(j, "norm_topk_prob", true);
        jw_member_i64(j, "decoder_sparse_step", 1);
        jw_key(j, "mlp_only_layers");
        jw_raw(j, STR("[]"));
    }
    jw_member_bool(j, "attention_bias", hf_write_has_tensor(w->g, "attn_q.bias"));
    jw_member_bool(j, "mlp_bias", false);
}

/* Values of families with a shared expert and a choice of the router. */
static void put_router_values(const struct writer *w, struct jw *j)
{
    double function = 1, v;
    char key[128];
    bool norms = false;

    if (!w->family->router)
        return;
    (void)get_number(w, "expert_gating_func", &function);
    snprintf(key, sizeof(key), "%s.expert_weights_norm", w->arch);
    gguf_get_bool(w->g, key, &norms);
    copy_number(w, j, "expert_count", "n_routed_experts");
    copy_number(w, j, "expert_shared_count", "n_shared_experts");
    if (get_number(w, "leading_dense_block_count", &v))
        copy_number(w, j, "leading_dense_block_count", "first_k_dense_replace");
    else
        jw_member_i64(j, "first_k_dense_replace", 0);
    copy_number(w, j, "expert_group_count", "n_group");
    copy_number(w, j, "expert_group_used_count", "topk_group");
    if (!get_number(w, "expert_weights_scale", &v))
        jw_member_i64(j, "routed_scaling_factor", 1);
    copy_number(w, j, "expert_weights_scale", "routed_scaling_factor");
    if (!get_number(w, "expert_group_count", &v)) {
        jw_member_i64(j, "n_group", 1);
        jw_member_i64(j, "topk_group", 1);
    }
    jw_member_bool(j, "norm_topk_prob", norms);
    jw_member_str(j, "scoring_func", function > 1 ? STR("sigmoid") : STR("softmax"));
    jw_member_str(j, "topk_method",
        function > 1                              ? STR("noaux_tc")
        : get_number(w, "expert_group_count", &v) ? STR("group_limited_greedy")
                                                  : STR("greedy"));
    jw_member_i64(j, "num_nextn_predict_layers", 1);
    jw_member_bool(j, "use_qk_norm", gguf_tensor(w->g, "blk.0.attn_q_norm.weight"));
}

/* LFM2: kinds of layers, and a width that is not adjusted. */
static void put_short_conv_values(const struct writer *w, struct jw *j)
{
    const struct gguf_value *heads;
    char key[128];
    int64_t n;

    if (!w->family->has_short_conv)
        return;
    snprintf(key, sizeof(key), "%s.attention.head_count_kv", w->arch);
    heads = gguf_find(w->g, key);
    copy_number(w, j, "shortconv.l_cache", "conv_L_cache");
    copy_number(w, j, "attention.layer_norm_rms_epsilon", "norm_eps");
    copy_number(w, j, "leading_dense_block_count", "num_dense_layers");
    copy_number(w, j, "embedding_length", "block_dim");
    jw_member_bool(j, "conv_bias", false);
    jw_member_bool(j, "block_auto_adjust_ff_dim", false);
    jw_member_i64(j, "block_multiple_of", 256);
    jw_member_i64(j, "block_ffn_dim_multiplier", 1);
    jw_member_bool(j, "use_expert_bias", true);
    copy_number(w, j, "expert_count", "num_experts");
    jw_key(j, "layer_types");
    jw_array(j);
    for (uint64_t i = 0; gguf_arr_i64(heads, i, &n); i++) {
        jw_z(j, n ? "full_attention" : "conv");
    }
    jw_end_array(j);
}

static void put_latent_values(const struct writer *w, struct jw *j)
{
    double key = 0, n_rot = 0, q_rank = 0;

    if (!w->family->has_latent_attn)
        return;
    const bool is_split = get_number(w, "attention.key_length_mla", &key);
    if (!is_split)
        (void)get_number(w, "attention.key_length", &key);
    (void)get_number(w, "rope.dimension_count", &n_rot);
    jw_member_i64(j, "qk_nope_head_dim", (int64_t)(key - n_rot));
    jw_member_i64(j, "qk_rope_head_dim", (int64_t)n_rot);
    copy_number(
        w, j, is_split ? "attention.value_length_mla" : "attention.value_length", "v_head_dim");
    copy_number(w, j, "attention.kv_lora_rank", "kv_lora_rank");
    jw_key(j, "q_lora_rank");
    if (get_number(w, "attention.q_lora_rank", &q_rank) && q_rank > 0)
        jw_i64(j, (int64_t)q_rank);
    else
        jw_null(j);
}

static int put_config(const struct writer *w, struct err *e)
{
    struct buf b;
    struct jw j;
    double v, head_dim;
    bool is_gpt_oss = !strcmp(w->arch, "gpt-oss");

    buf_init(&b, MB);
    jw_init(&j, &b);
    jw_object(&j);
    jw_member_str(&j, "model_type",
        w->family->has_window_heads ? STR("gemma4_text") : str_of(w->family->model_type));
    jw_member_str(&j, "hidden_act", str_of(w->family->activation));
    copy_number(w, &j, "block_count", "num_hidden_layers");
    copy_number(w, &j, "embedding_length", "hidden_size");
    copy_number(w, &j, is_gpt_oss ? "expert_feed_forward_length" : "feed_forward_length",
        "intermediate_size");
    copy_number(w, &j, "attention.head_count", "num_attention_heads");
    if (hf_write_largest(w->g, "attention.head_count_kv"))
        jw_member_u64(
            &j, "num_key_value_heads", w->family->has_latent_attn ? w->n_heads : w->n_kv_heads);
    if (!w->family->has_latent_attn && !w->family->has_window_heads)
        copy_number(w, &j, "attention.key_length", "head_dim");
    copy_number(w, &j, "context_length", "max_position_embeddings");
    copy_number(w, &j, "vocab_size", "vocab_size");
    if (!w->family->has_short_conv)
        copy_number(w, &j, "attention.layer_norm_rms_epsilon", "rms_norm_eps");
    copy_number(w, &j, "rope.freq_base", "rope_theta");
    copy_number(w, &j, "attention.sliding_window", "sliding_window");
    if (w->family->has_delta_net)
        hf_write_delta(w, &j);
    if (w->family->hybrid)
        hf_write_hybrid(&j, w->g, w->family);
    else if (!w->family->router)
        copy_number(w, &j, "expert_count", is_gpt_oss ? "num_local_experts" : "num_experts");
    copy_number(w, &j, "expert_used_count", "num_experts_per_tok");
    copy_number(w, &j, "expert_feed_forward_length", "moe_intermediate_size");
    if (get_number(w, "rope.dimension_count", &v) && !w->family->has_latent_attn &&
        get_number(w, "attention.key_length", &head_dim) && v < head_dim)
        jw_member_f32(&j, "partial_rotary_factor", (float)(v / head_dim));
    if (w->family->has_window_heads)
        hf_write_gemma4(w, &j);
    else if (!w->family->has_delta_net)
        put_scaling(w, &j);
    put_layer_types(w, &j);
    put_family_values(w, &j);
    put_router_values(w, &j);
    put_latent_values(w, &j);
    put_short_conv_values(w, &j);
    jw_member_bool(&j, "tie_word_embeddings", !gguf_tensor(w->g, "output.weight"));
    hf_write_quantization(w, &j);
    jw_end_object(&j);
    int rc = buf_ok(&b) ? write_file(w->dir, "config.json", buf_str(&b), e)
                        : err_set(e, ERR_MEMORY, "no memory for config.json");
    buf_clear(&b);
    return rc;
}

/* ---- tokenizer */

#define REGEX(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static void put_pretokenizer(const struct writer *w, struct jw *j)
{
    struct str pre = STR("");

    (void)gguf_get_str(w->g, "tokenizer.ggml.pre", &pre);
    jw_key(j, "pre_tokenizer");
    jw_object(j);
    jw_member_str(j, "type", STR("Sequence"));
    jw_key(j, "pretokenizers");
    jw_array(j);
    jw_object(j);
    jw_member_str(j, "type", STR("Split"));
    jw_key(j, "pattern");
    jw_object(j);
    jw_member_str(
        j, "Regex", str_is(pre, "qwen2") ? STR(REGEX("\\p{N}")) : STR(REGEX("\\p{N}{1,3}")));
    jw_end_object(j);
    jw_member_str(j, "behavior", STR("Isolated"));
    jw_member_bool(j, "invert", false);
    jw_end_object(j);
    jw_raw(j, STR("{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"));
    jw_end_array(j);
    jw_end_object(j);
}

static void put_added(const struct writer *w, struct jw *j, const struct gguf_value *types)
{
    const struct gguf_value *tokens = gguf_find(w->g, "tokenizer.ggml.tokens");
    struct str s;
    uint64_t at = 0;
    int64_t type;

    jw_key(j, "added_tokens");
    jw_array(j);
    for (uint64_t i = 0; gguf_arr_next_str(tokens, &at, &s); i++) {
        if (!gguf_arr_i64(types, i, &type) || type != 3)
            continue;
        jw_object(j);
        jw_member_u64(j, "id", i);
        jw_member_str(j, "content", s);
        jw_member_bool(j, "special", true);
        jw_end_object(j);
    }
    jw_end_array(j);
}

static int put_tokenizer(const struct writer *w, struct err *e)
{
    const struct gguf_value *tokens = gguf_find(w->g, "tokenizer.ggml.tokens");
    const struct gguf_value *types = gguf_find(w->g, "tokenizer.ggml.token_type");
    const struct gguf_value *merges = gguf_find(w->g, "tokenizer.ggml.merges");
    struct str s;
    uint64_t at = 0;
    int64_t type;
    struct buf b;
    struct jw j;

    buf_init(&b, FILE_MAX);
    jw_init(&j, &b);
    jw_object(&j);
    put_added(w, &j, types);
    jw_key(&j, "normalizer");
    jw_null(&j);
    put_pretokenizer(w, &j);
    jw_key(&j, "decoder");
    jw_raw(&j, STR("{\"type\":\"ByteLevel\"}"));
    jw_key(&j, "model");
    jw_object(&j);
    jw_member_str(&j, "type", STR("BPE"));
    jw_member_bool(&j, "ignore_merges", !strcmp(w->arch, "llama"));
    jw_key(&j, "vocab");
    jw_object(&j);
    for (uint64_t i = 0; gguf_arr_next_str(tokens, &at, &s); i++)
        if (gguf_arr_i64(types, i, &type) && type == 1) {
            jw_key_str(&j, s);
            jw_u64(&j, i);
        }
    jw_end_object(&j);
    jw_key(&j, "merges");
    jw_array(&j);
    for (at = 0; gguf_arr_next_str(merges, &at, &s);)
        jw_str(&j, s);
    jw_end_array(&j);
    jw_end_object(&j);
    jw_end_object(&j);
    int rc = buf_ok(&b) ? write_file(w->dir, "tokenizer.json", buf_str(&b), e)
                        : err_set(e, ERR_MEMORY, "no memory for tokenizer.json");
    buf_clear(&b);
    return rc;
}

static void put_role(const struct writer *w, struct jw *j, const char *id_key, const char *key)
{
    const struct gguf_value *tokens = gguf_find(w->g, "tokenizer.ggml.tokens");
    struct str s;
    uint64_t id = 0, at = 0;

    if (!gguf_get_u64(w->g, id_key, &id))
        return;
    for (uint64_t i = 0; gguf_arr_next_str(tokens, &at, &s); i++)
        if (i == id)
            jw_member_str(j, key, s);
}

static int put_tokenizer_config(const struct writer *w, struct err *e)
{
    struct str template = STR("");
    struct buf b;
    struct jw j;

    (void)gguf_get_str(w->g, "tokenizer.chat_template", &template);
    buf_init(&b, MB);
    jw_init(&j, &b);
    jw_object(&j);
    put_role(w, &j, "tokenizer.ggml.bos_token_id", "bos_token");
    put_role(w, &j, "tokenizer.ggml.eos_token_id", "eos_token");
    jw_member_str(&j, "chat_template", template);
    jw_end_object(&j);
    int rc = buf_ok(&b) ? write_file(w->dir, "tokenizer_config.json", buf_str(&b), e)
                        : err_set(e, ERR_MEMORY, "no memory for tokenizer_config.json");
    buf_clear(&b);
    return rc;
}

/* The family with this architecture; two model types of HF may have the same one. */
static const struct hf_family *family_of(const struct gguf *g, struct str arch)
{
    bool has_window = gguf_find(g, "olmo2.attention.sliding_window");
    bool has_bias = gguf_tensor(g, "blk.1.exp_probs_b.bias");
    const struct hf_family *f;

    for (size_t i = 0; (f = hf_family_at(i)); i++)
        if ((str_is(arch, f->arch) || (f->moe_arch && str_is(arch, f->moe_arch))) &&
            (strcmp(f->model_type, "olmo2") != 0 || !has_window) &&
            (strcmp(f->model_type, "deepseek_v2") != 0 || !has_bias))
            return f;
    return NULL;
}

int hf_write(const struct gguf *g, const char *dir, const struct hf_write_options *o, struct err *e)
{
    struct writer w = { .g = g, .dir = dir, .o = o, .n_shards = MAX(o->n_shards, 1) };
    struct str arch = STR("");
    double n_heads = 1;

    CHECK(w.n_shards <= SHARDS_MAX);
    (void)gguf_get_str(g, "general.architecture", &arch);
    snprintf(w.arch, sizeof(w.arch), STR_FMT, STR_ARG(arch));
    w.family = family_of(g, arch);
    if (!w.family)
        return err_set(e, ERR_UNSUPPORTED, "family %s", w.arch);
    (void)get_number(&w, "attention.head_count", &n_heads);
    w.n_heads = (uint64_t)n_heads;
    w.n_kv_heads = hf_write_largest(g, "attention.head_count_kv");
    if (!w.n_kv_heads)
        w.n_kv_heads = w.n_heads;
    w.n_experts = hf_write_largest(g, "expert_count");
    for (int i = 0; i < w.n_shards; i++) {
        buf_init(&w.shards[i].header, FILE_MAX);
        buf_init(&w.shards[i].data, FILE_MAX);
        jw_init(&w.shards[i].w, &w.shards[i].header);
        jw_object(&w.shards[i].w);
    }
    buf_init(&w.index, FILE_MAX);
    buf_init(&w.row, MB);
    jw_init(&w.index_json, &w.index);
    jw_object(&w.index_json);
    jw_key(&w.index_json, "weight_map");
    jw_object(&w.index_json);
    int rc = put_tensors(&w, e) || put_config(&w, e) || put_tokenizer(&w, e) ||
             put_tokenizer_config(&w, e);
    for (int i = 0; i < w.n_shards; i++) {
        buf_clear(&w.shards[i].header);
        buf_clear(&w.shards[i].data);
    }
    buf_clear(&w.index);
    buf_clear(&w.row);
    return rc ? -1 : 0;
}
