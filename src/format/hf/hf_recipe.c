/* hf_recipe.c: checks the sources of a tensor against each other and chooses its type, shape and
 * conversion. Owner: one thread at a time. */
#include "format/hf/hf_recipe.h"

static int reject_shape(const struct st_tensor *t, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "tensor %.*s: %s", SHORT_ARG(t->name), what);
}

/* Shape of a source: matrices x rows x cols. A bias has rows of one element. */
struct shape {
    uint64_t n, rows, cols;
};

static int shape_of(
    const struct hf_recipe *r, const struct st_tensor *t, struct shape *s, struct err *e)
{
    /* gpt-oss divides the last dimension into blocks: [..., n, 16] */
    bool has_blocks = r->quant.mode == HF_MODE_MXFP4 && t->dtype == ST_U8 && t->n_dims == 4;
    uint64_t dims[4] = { 1, 1, 1, 1 };
    int n = t->n_dims - has_blocks, at = 4 - r->is_bias;

    if (n < 1 || n > 3 - r->is_bias)
        return reject_shape(t, "an unexpected number of dimensions", e);
    for (int i = n; i-- > 0;)
        dims[--at] = t->dims[i];
    if (has_blocks)
        dims[3] *= t->dims[n];
    *s = (struct shape){ dims[1], dims[2], dims[3] };
    if (!s->n || !s->rows || !s->cols || dims[0] != 1)
        return reject_shape(t, "an empty dimension", e);
    return 0;
}

static int expect_shape(
    const struct hf_recipe *r, const struct st_tensor *t, struct shape want, struct err *e)
{
    struct shape s;

    if (shape_of(r, t, &s, e))
        return -1;
    if (s.n != want.n || s.rows != want.rows || s.cols != want.cols)
        return err_set(e, ERR_CORRUPT,
            "tensor %.*s: expected [%llu, %llu, %llu], found [%llu, %llu, %llu]",
            SHORT_ARG(t->name), (unsigned long long)want.n, (unsigned long long)want.rows,
            (unsigned long long)want.cols, (unsigned long long)s.n, (unsigned long long)s.rows,
            (unsigned long long)s.cols);
    return 0;
}

static bool is_float(enum st_dtype d)
{
    return d == ST_F32 || d == ST_F16 || d == ST_BF16;
}

static int reject_type(const struct hf_recipe *r, const struct st_tensor *t, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "tensor %.*s: type %s%s is not supported",
        SHORT_ARG(t->name), st_dtype_name(t->dtype),
        r->quant.mode == HF_MODE_NONE ? "" : " with this quantization");
}

/* Types of codes that a quantisation has: U32 in MLX, bytes in files of other producers. */
static const struct hf_mode_row {
    enum hf_mode mode;
    enum st_dtype codes;
    enum hf_convert convert;
    enum qtype type;
} mode_rows[] = {
    { HF_MODE_AFFINE, ST_U32, HF_AFFINE, Q_AFFINE4_32 },
    { HF_MODE_MXFP4, ST_U32, HF_MXFP4, Q_MXFP4 },
    { HF_MODE_MXFP4, ST_U8, HF_MXFP4, Q_MXFP4 },
    { HF_MODE_MXFP8, ST_U32, HF_MXFP8, Q_MXFP8 },
    { HF_MODE_MXFP8, ST_F8_E4M3, HF_MXFP8, Q_MXFP8 },
    { HF_MODE_NVFP4, ST_U32, HF_NVFP4, Q_NVFP4 },
    { HF_MODE_NVFP4, ST_U8, HF_NVFP4, Q_NVFP4 },
    { HF_MODE_FP8, ST_F8_E4M3, HF_FP8, Q_FP8_128 },
};

static const struct hf_mode_row *find_conversion(enum hf_mode mode, enum st_dtype codes)
{
    for (size_t i = 0; i < ARRAY_LEN(mode_rows); i++)
        if (mode_rows[i].mode == mode && mode_rows[i].codes == codes)
            return &mode_rows[i];
    return NULL;
}

/* Sets the conversion and the type from the first source. */
static int choose_conversion(struct hf_recipe *r, struct err *e)
{
    const struct st_tensor *t = r->sources[0].codes;
    bool is_vector = r->is_bias || t->n_dims == 1 || r->form != HF_FORM_SAME;
    bool is_decay = r->form == HF_FORM_DECAY || r->form == HF_FORM_DECAYS;

    if (is_float(t->dtype)) { /* also modules that the quantisation leaves out */
        r->quant.mode = HF_MODE_NONE;
        r->convert = is_decay ? HF_DECAY : is_vector ? HF_TO_F32 : HF_COPY;
        r->type = is_vector || t->dtype == ST_F32 ? Q_F32 : t->dtype == ST_F16 ? Q_F16 : Q_BF16;
        return 0;
    }
    const struct hf_mode_row *m = is_vector ? NULL : find_conversion(r->quant.mode, t->dtype);
    if (!m)
        return reject_type(r, t, e);
    r->convert = m->convert;
    r->type = m->type; /* choose_block replaces it for HF_AFFINE and HF_FP8 */
    return 0;
}

/* Elements of a row, from the shape of the codes. */
static int set_cols(struct hf_recipe *r, const struct st_tensor *t, struct shape s, struct err *e)
{
    r->cols = s.cols;
    if (r->quant.mode == HF_MODE_NONE)
        return 0;
    uint64_t bits = s.cols * 8 * st_dtype_bytes(t->dtype);
    if (s.cols > UINT32_MAX || bits % (uint64_t)r->quant.bits)
        return reject_shape(t, "rows that are no whole number of codes", e);
    r->cols = bits / (uint64_t)r->quant.bits;
    if (r->cols % (uint64_t)r->quant.group)
        return reject_shape(t, "rows that are no whole number of groups", e);
    return 0;
}

static enum qtype affine_type(int64_t bits, int64_t group)
{
    static const enum qtype types[9][2] = {
        [2] = { Q_AFFINE2_32, Q_AFFINE2_64 },
        [3] = { Q_AFFINE3_32, Q_AFFINE3_64 },
        [4] = { Q_AFFINE4_32, Q_AFFINE4_64 },
        [5] = { Q_AFFINE5_32, Q_AFFINE5_64 },
        [6] = { Q_AFFINE6_32, Q_AFFINE6_64 },
        [8] = { Q_AFFINE8_32, Q_AFFINE8_64 },
    };

    return types[bits][group > 32];
}

static uint64_t n_elements(const struct st_tensor *t)
{
    return t->bytes / st_dtype_bytes(t->dtype);
}

/* E4M3 numbers have a scale per block of config.json, or else per row or per matrix. */
static struct hf_scale_grid grid_of(
    const struct hf_recipe *r, const struct st_tensor *scales, struct shape s)
{
    const uint64_t rows = (uint64_t)r->quant.block_rows, cols = (uint64_t)r->quant.block_cols;

    if (rows)
        return (struct hf_scale_grid){ (s.rows + rows - 1) / rows, (s.cols + cols - 1) / cols, rows,
            cols };
    if (s.rows > 1 && n_elements(scales) / s.n == s.rows)
        return (struct hf_scale_grid){ s.rows, 1, 1, s.cols };
    return (struct hf_scale_grid){ 1, 1, s.rows, s.cols };
}

/* Sets the type, whose blocks must be whole in a row and have one scale. */
static int choose_block(struct hf_recipe *r, struct shape s, struct err *e)
{
    const struct hf_source *first = &r->sources[0];

    if (r->convert == HF_AFFINE)
        r->type = affine_type(r->quant.bits, r->quant.group);
    if (r->convert == HF_FP8 && first->scales) {
        static const enum qtype types[] = { Q_FP8_128, Q_FP8_32 };
        r->grid = grid_of(r, first->scales, s);
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
            const uint64_t block = qtype_info((uint32_t)types[i])->block;
            r->type = types[i];
            if (r->head_cols % block == 0 && (r->grid.n_cols == 1 || r->grid.cols % block == 0))
                break;
        }
        if (r->grid.n_cols > 1 && r->grid.cols % qtype_info((uint32_t)r->type)->block)
            return err_set(e, ERR_UNSUPPORTED,
                "tensor %.*s: scales of %llu columns, supported are multiples of 32",
                SHORT_ARG(first->codes->name), (unsigned long long)r->grid.cols);
    }
    const uint32_t block = qtype_info((uint32_t)r->type)->block;
    if (r->cols % block)
        return err_set(e, ERR_UNSUPPORTED,
            "tensor %.*s: rows of %llu elements, supported are multiples of %u for %s",
            SHORT_ARG(first->codes->name), (unsigned long long)r->cols, block,
            qtype_info((uint32_t)r->type)->name);
    return 0;
}

/* Whether scales of this type belong to the conversion. */
static bool is_scale_type(enum hf_convert convert, enum st_dtype d)
{
    switch (convert) {
    case HF_AFFINE:
        return is_float(d);
    case HF_MXFP4:
    case HF_MXFP8:
        return d == ST_U8 || d == ST_F8_E8M0;
    case HF_NVFP4:
        return d == ST_U8 || d == ST_F8_E4M3;
    case HF_FP8:
        return is_float(d) || d == ST_F8_E8M0;
    case HF_COPY:
    case HF_TO_F32:
    case HF_DECAY:
        break;
    }
    return false;
}

static int check_scales(
    const struct hf_recipe *r, const struct st_tensor *scales, struct shape codes, struct err *e)
{
    struct shape want = codes;

    if (!is_scale_type(r->convert, scales->dtype))
        return reject_type(r, scales, e);
    if (r->convert != HF_FP8) {
        want.cols = r->cols / (uint64_t)r->quant.group;
        return expect_shape(r, scales, want, e);
    }
    want.rows = r->grid.n_rows;
    want.cols = r->grid.n_cols;
    if (!r->quant.block_rows && want.n * want.rows == n_elements(scales) && scales->n_dims < 2)
        return 0; /* one number, [1] or [rows] */
    return expect_shape(r, scales, want, e);
}

/* One factor for each matrix. */
static int check_factor(
    const struct hf_recipe *r, const struct hf_source *s, struct shape codes, struct err *e)
{
    if (!s->factor != !r->sources[0].factor)
        return err_set(
            e, ERR_CORRUPT, "tensor %.*s: only some experts have a factor", SHORT_ARG(r->from));
    if (!s->factor)
        return 0;
    if (r->convert != HF_NVFP4 || s->factor->dtype != ST_F32)
        return reject_type(r, s->factor, e);
    if (s->factor->n_dims > 1 || n_elements(s->factor) != codes.n)
        return err_set(e, ERR_CORRUPT, "tensor %.*s: expected %llu factors, found %llu",
            SHORT_ARG(s->factor->name), (unsigned long long)codes.n,
            (unsigned long long)n_elements(s->factor));
    return 0;
}

/* All sources have the type and shape of the first one, and the scales, offsets and factors that it
 * needs. */
static int check_source(
    const struct hf_recipe *r, const struct hf_source *s, struct shape codes, struct err *e)
{
    const struct hf_source *first = &r->sources[0];
    struct shape groups = codes;

    if (!s->codes)
        return err_set(e, ERR_CORRUPT, "tensor %.*s: expert %zu is missing", SHORT_ARG(r->from),
            (size_t)(s - first));
    if (s->codes->dtype != first->codes->dtype)
        return reject_type(r, s->codes, e);
    if (expect_shape(r, s->codes, codes, e))
        return -1;
    bool has_scales = r->quant.mode != HF_MODE_NONE, has_offsets = r->quant.mode == HF_MODE_AFFINE;
    if (!s->scales != !has_scales || !s->offsets != !has_offsets)
        return err_set(e, ERR_CORRUPT, "tensor %.*s: scales or offsets are missing or unexpected",
            SHORT_ARG(s->codes->name));
    if (check_factor(r, s, codes, e) || (has_scales && check_scales(r, s->scales, codes, e)))
        return -1;
    if (!has_offsets)
        return 0;
    if (s->offsets->dtype != s->scales->dtype)
        return reject_type(r, s->offsets, e);
    groups.cols = r->cols / (uint64_t)r->quant.group;
    return expect_shape(r, s->offsets, groups, e);
}

static int reject_heads(
    const struct hf_recipe *r, uint64_t n, const char *what, uint64_t n_heads, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "tensor %.*s: %llu %s are not %llu heads of a whole size",
        SHORT_ARG(r->from), (unsigned long long)n, what, (unsigned long long)n_heads);
}

/* Rows or columns of value heads, which have another order. */
static int set_value_heads(struct hf_recipe *r, const struct hf_config *c, struct err *e)
{
    const uint64_t n = (uint64_t)c->n_value_heads, block = qtype_info((uint32_t)r->type)->block;

    r->n_key_heads = (uint64_t)c->n_key_heads;
    r->n_value_heads = n;
    if (r->rows == HF_COLS_VALUES) {
        if (r->cols % n)
            return reject_heads(r, r->cols, "columns", n, e);
        if (r->head_cols % block)
            return err_set(e, ERR_UNSUPPORTED,
                "tensor %.*s: heads of %llu columns, supported are multiples of %llu for %s",
                SHORT_ARG(r->from), (unsigned long long)r->head_cols, (unsigned long long)block,
                qtype_info((uint32_t)r->type)->name);
        return 0;
    }
    if (r->rows == HF_ROWS_QK_VALUES)
        r->first_row = 2 * (uint64_t)c->n_key_heads * (uint64_t)c->state_dim;
    if (r->rows_in <= r->first_row || (r->rows_in - r->first_row) % n)
        return reject_heads(r, r->rows_in, "rows", n, e);
    r->head_rows = (r->rows_in - r->first_row) / n;
    return 0;
}

static int set_rows(struct hf_recipe *r, const struct hf_config *c, struct err *e)
{
    const struct st_tensor *t = r->sources[0].codes;
    uint64_t n_heads = (uint64_t)(r->rows == HF_ROWS_Q ? c->n_heads : c->n_kv_heads);

    r->rows_out = r->rows_in;
    switch (r->rows) {
    case HF_ROWS_ALL:
        return 0;
    case HF_ROWS_EVEN:
    case HF_ROWS_ODD:
    case HF_ROWS_FIRST_HALF:
    case HF_ROWS_SECOND_HALF:
        r->rows_out = r->rows_in / 2;
        return r->rows_in % 2 ? reject_shape(t, "an odd number of rows", e) : 0;
    case HF_ROWS_VALUES:
    case HF_ROWS_QK_VALUES:
    case HF_COLS_VALUES:
        return set_value_heads(r, c, e);
    case HF_ROWS_Q:
    case HF_ROWS_K:
        break;
    }
    r->head_rows = r->rows_in / n_heads;
    if (r->rows_in % (2 * n_heads))
        return err_set(e, ERR_CORRUPT, "tensor %.*s: %llu rows are not %llu heads of an even size",
            SHORT_ARG(t->name), (unsigned long long)r->rows_in, (unsigned long long)n_heads);
    return 0;
}

/* Replaces the shape of a vector or convolution by that in GGUF terms; the elements have the same
 * order. */
static int apply_form(
    struct hf_recipe *r, const struct hf_config *c, struct shape *s, struct err *e)
{
    const struct st_tensor *t = r->sources[0].codes;
    const uint64_t n_groups = (uint64_t)c->n_groups;

    switch (r->form) {
    case HF_FORM_SAME:
        return 0;
    case HF_FORM_COLUMN:
    case HF_FORM_DECAY:
        if (s->n != 1 || s->rows != 1)
            return reject_shape(t, "expected a vector", e);
        *s = (struct shape){ 1, s->cols, 1 };
        break;
    case HF_FORM_VECTOR:
    case HF_FORM_DECAYS:
        return s->n != 1 || s->rows != 1 ? reject_shape(t, "expected a vector", e) : 0;
    case HF_FORM_GROUPS:
        if (s->n != 1 || s->rows != 1 || s->cols % n_groups)
            return reject_shape(t, "expected a vector of whole groups", e);
        *s = (struct shape){ 1, n_groups, s->cols / n_groups };
        break;
    case HF_FORM_CONV:
        if (t->n_dims != 3 || (s->rows != 1 && s->cols != 1))
            return reject_shape(t, "expected [channels, 1, taps] or [channels, taps, 1]", e);
        *s = (struct shape){ 1, s->n, s->rows * s->cols };
        break;
    }
    r->cols = s->cols;
    return 0;
}

int hf_recipe_complete(struct hf_recipe *r, const struct hf_config *c, struct err *e)
{
    struct shape s;

    if (!r->n_sources || !r->sources[0].codes)
        return err_set(e, ERR_CORRUPT, "tensor %.*s: the weights are missing", SHORT_ARG(r->from));
    if (r->is_per_expert && r->n_sources != (uint64_t)c->n_experts)
        return err_set(e, ERR_CORRUPT, "tensor %.*s: %zu experts, expected %lld",
            SHORT_ARG(r->from), r->n_sources, (long long)c->n_experts);
    if (choose_conversion(r, e) || shape_of(r, r->sources[0].codes, &s, e) ||
        set_cols(r, r->sources[0].codes, s, e))
        return -1;
    r->head_cols = r->rows == HF_COLS_VALUES ? r->cols / (uint64_t)c->n_value_heads : r->cols;
    if (choose_block(r, s, e))
        return -1;
    for (size_t i = 0; i < r->n_sources; i++)
        if (check_source(r, &r->sources[i], s, e))
            return -1;
    if (apply_form(r, c, &s, e))
        return -1;
    if (r->is_per_expert && s.n != 1)
        return reject_shape(r->sources[0].codes, "an expert with several matrices", e);
    r->n_matrices = r->is_per_expert ? r->n_sources : s.n;
    r->rows_in = s.rows;
    return set_rows(r, c, e);
}

int hf_recipe_describe(const struct hf_recipe *r, struct gguf_tensor *t, struct err *e)
{
    const struct st_tensor *first = r->sources[0].codes;
    uint64_t n_rows, row_bytes;

    *t = (struct gguf_tensor){ .name = r->name, .type = r->type, .recipe = r };
    bool is_row = r->form == HF_FORM_SAME || r->form == HF_FORM_DECAYS || r->form == HF_FORM_VECTOR;
    bool is_vector = r->is_bias || (first->n_dims == 1 && is_row);
    uint64_t dims[4] = { r->cols, r->rows_out, r->n_matrices, 1 };
    if (r->is_bias) {
        dims[0] = r->rows_out;
        dims[1] = r->n_matrices;
        dims[2] = 1;
    }
    memcpy(t->dims, dims, sizeof(dims));
    t->n_dims = dims[2] > 1 ? 3 : dims[1] > 1 || !is_vector ? 2 : 1;
    if (__builtin_mul_overflow(dims[1], dims[2], &n_rows) ||
        !qtype_bytes(r->type, dims[0], &row_bytes) ||
        __builtin_mul_overflow(n_rows, row_bytes, &t->bytes))
        return reject_shape(first, "an invalid shape", e);
    bool is_same = r->convert == HF_COPY ||
                   (r->convert == HF_TO_F32 && first->dtype == ST_F32 && !(r->add > 0));
    if (is_same && r->rows == HF_ROWS_ALL && r->n_sources == 1) {
        CHECK(t->bytes == first->bytes);
        t->data = first->data;
        t->recipe = NULL;
    }
    return 0;
}
