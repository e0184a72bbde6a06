/* Vector operations of every set compared with ref.c, bit for bit: every length up to 70, primes
 * and large lengths, any alignment, and special numbers. */
#include "kit.h"

enum { MOST = 5000, MARGIN = 40 };

static const int lengths[] = { 97, 127, 128, 129, 255, 256, 257, 509, 1023, 1024, 2048, 4099,
    MOST };

static int length_at(int i) /* 0, 1, ..., 70, then the list; -1 at the end */
{
    return i <= 70 ? i : i - 71 < (int)ARRAY_LEN(lengths) ? lengths[i - 71] : -1;
}

/* Profile 0: normally distributed; 1: large magnitudes; 2: also extreme and special numbers. */
static void fill(struct rng *r, float *x, int n, int profile)
{
    static const float special[] = { INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 0x1p-149f, -0x1p-127f,
        0x1.fffffep127f, 89, -104, 88.5f, -87.5f, -103.9f };

    kit_fill(r, x, (size_t)n, profile == 1 ? 40 : 1);
    if (profile == 2)
        for (int i = 0; i < n; i++)
            if (rng_below(r, 8) == 0)
                x[i] = special[rng_below(r, ARRAY_LEN(special))];
}

/* Two copies of the same memory, one for each set; memory after the result must not change. */
struct buffers {
    float a[MOST + 2 * MARGIN], b[MOST + 2 * MARGIN];
    float x[MOST + MARGIN], y[MOST + MARGIN];
};
static struct buffers p;

static float *start(struct rng *r, int n, int profile)
{
    int off = (int)rng_below(r, 17);

    fill(r, p.x, n, profile);
    fill(r, p.y, n, profile == 2 ? 1 : profile);
    kit_fill(r, p.a, ARRAY_LEN(p.a), 1);
    memcpy(p.a + off, p.x, (size_t)n * sizeof(float));
    memcpy(p.b, p.a, sizeof(p.a));
    return p.a + off;
}

#define FOR_EACH_LENGTH(n, profile)                                                                \
    for (int at = 0, n; (n = length_at(at)) >= 0; at++)                                            \
        for (int profile = 0; profile < 3; profile++)

#define SAME(n)                                                                                    \
    do {                                                                                           \
        if (!kit_same_floats(p.a, p.b, ARRAY_LEN(p.a))) {                                          \
            fprintf(stderr, "%s, n = %d, mood %d\n", k->name, n, profile);                         \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

static void rms_norm(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 1 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile), *b = p.b + (a - p.a);
        bool in_place = n % 2;
        k->rms_norm(a, in_place ? a : p.x, p.y, n, 1e-5f);
        ref->rms_norm(b, in_place ? b : p.x, p.y, n, 1e-5f);
        SAME(n);
    }
}

/* Defines the test of an activation that is multiplied by a second vector. */
#define ACTIVATION(op)                                                                             \
    static void op(const struct kernels *k, const struct kernels *ref)                             \
    {                                                                                              \
        struct rng r = { .key = 2 };                                                               \
                                                                                                   \
        FOR_EACH_LENGTH(n, profile)                                                                \
        {                                                                                          \
            float *a = start(&r, n, profile), *b = p.b + (a - p.a);                                \
            k->op(a, p.x, p.y, n);                                                                 \
            ref->op(b, p.x, p.y, n);                                                               \
            SAME(n);                                                                               \
        }                                                                                          \
    }

ACTIVATION(silu_mul)
ACTIVATION(gelu_mul)
ACTIVATION(swiglu_oai)
ACTIVATION(sigmoid_mul)
ACTIVATION(softplus)

static void relu_sqr(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 11 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile), *b = p.b + (a - p.a);
        k->relu_sqr(a, p.x, n);
        ref->relu_sqr(b, p.x, n);
        SAME(n);
    }
}

static void add(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 3 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile), *b = p.b + (a - p.a);
        k->add(a, p.y, n);
        ref->add(b, p.y, n);
        SAME(n);
    }
}

static void add_scaled(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 7 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile), *b = p.b + (a - p.a);
        float by = (float)rng_next_unit(&r) * 3 - 1;
        k->add_scaled(a, by, p.y, n);
        ref->add_scaled(b, by, p.y, n);
        SAME(n);
    }
}

static void l2_norm(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 10 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile), *b = p.b + (a - p.a);
        bool in_place = n % 2;
        k->l2_norm(a, in_place ? a : p.x, n, 1e-6f, 0.25f);
        ref->l2_norm(b, in_place ? b : p.x, n, 1e-6f, 0.25f);
        SAME(n);
    }
}

/* The taps and inputs are parts of the same vectors. */
static void conv(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 11 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile), *b = p.b + (a - p.a);
        struct conv_row c = { .w = p.y,
            .w_stride = (size_t)rng_below(&r, (uint32_t)(MARGIN / CONV_MAX_TAPS)),
            .bias = n % 2 ? p.x + MARGIN - 1 : NULL,
            .n_taps = 1 + (int)rng_below(&r, CONV_MAX_TAPS),
            .has_silu = rng_below(&r, 2) };
        for (int t = 0; t < c.n_taps; t++)
            c.x[t] = p.x + rng_below(&r, MARGIN);
        k->conv(a, &c, n);
        ref->conv(b, &c, n);
        SAME(n);
    }
}

enum { STATE_KEYS = 130, STATE_FLOATS = STATE_KEYS * STATE_COLS };

struct state_buffers {
    float s[STATE_FLOATS], from[STATE_FLOATS];
    float keys[STATE_MAX_UPDATES + 2][STATE_KEYS], cols[STATE_MAX_UPDATES + 1][STATE_COLS];
    float u[STATE_COLS + MARGIN], out[STATE_COLS + MARGIN];
};
static struct state_buffers sa, sb;

/* One row on the buffers of one set. */
static void run_state_row(
    struct state_buffers *b, struct state_row row, bool is_delta, const struct kernels *k)
{
    struct state_update updates[STATE_MAX_UPDATES];

    for (int i = 0; i < row.n_updates; i++)
        updates[i] = (struct state_update){ b->keys[2 + i], b->cols[1 + i], 0.5f + (float)i / 16 };
    row.updates = updates;
    row.from = row.from ? b->s : b->from;
    row.to = row.to ? b->s : NULL;
    row.k = b->keys[0];
    row.q = b->keys[1];
    row.v = b->cols[0];
    row.u = b->u;
    row.out = b->out;
    (is_delta ? k->delta_rule : k->state_row)(&row);
}

/* Rows with every number of columns and some numbers of keys and updates; in place, to other
 * memory, or not stored. Memory after the columns of u and out does not change. */
static void state_rows(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 12 };
    const float in_place = 0;

    for (int round = 0; round < 4 * STATE_COLS; round++) {
        int n_updates = round % 3 ? round % 2 : (int)rng_below(&r, STATE_MAX_UPDATES + 1);
        struct state_row row = { .n_keys = 1 + (int)rng_below(&r, STATE_KEYS),
            .n_cols = round % STATE_COLS + 1,
            .n_updates = n_updates,
            .g = 0.9f,
            .beta = 0.4f };
        float *all = (float *)&sa;
        fill(&r, all, (int)(sizeof(sa) / sizeof(*all)), round / STATE_COLS == 3 ? 2 : 0);
        for (int i = 0; i < STATE_FLOATS; i++) /* the padding of a stored row is 0 */
            if (i % state_stride(row.n_cols) >= row.n_cols)
                sa.s[i] = sa.from[i] = 0;
        row.from = round % 5 ? NULL : &in_place;
        float stored;
        row.to = n_updates > 1 || rng_below(&r, 2) ? &stored : NULL;
        sb = sa;
        run_state_row(&sa, row, round % 7 != 0, k);
        run_state_row(&sb, row, round % 7 != 0, ref);
        if (!kit_same_floats((float *)&sa, (float *)&sb, sizeof(sa) / sizeof(float))) {
            fprintf(stderr, "%s, round %d\n", k->name, round);
            fail();
        }
    }
}

static void softmax(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 4 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile), *b = p.b + (a - p.a);
        float max = profile == 2 ? 1 : ref->max(b, n);
        float t = profile == 1 ? 1 : 0.1f + 3 * (float)rng_next_unit(&r);
        double got = k->softmax(a, a, n, max, t), want = ref->softmax(b, b, n, max, t);
        SAME(n);
        EXPECT(!memcmp(&got, &want, sizeof(got)) || (got != got && want != want));
    }
}

static void max(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 5 };

    FOR_EACH_LENGTH(n, profile)
    {
        float *a = start(&r, n, profile);
        EXPECT_EQ(f32_to_bits(k->max(a, n)), f32_to_bits(ref->max(a, n)));
    }
    float zeros[40], nans[40];
    for (int i = 0; i < 40; i++) {
        zeros[i] = i % 3 ? -0.0f : 0.0f;
        nans[i] = NAN;
    }
    for (int n = 1; n < 40; n++) {
        EXPECT_EQ(f32_to_bits(k->max(zeros + 1, n)), 0u);
        EXPECT_EQ(k->max(nans, n), -INFINITY);
    }
}

static void rope(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 6 };

    for (int dim = 2; dim <= 160; dim += dim < 80 ? 2 : 16)
        for (int profile = 0; profile < 2; profile++)
            for (int neox = 0; neox < 2; neox++)
                for (int n_rot = dim; n_rot > 0; n_rot = n_rot > 2 ? n_rot / 4 * 2 : 0) {
                    int n_heads = 1 + dim % 5, n = n_heads * dim;
                    float *a = start(&r, n, profile), *b = p.b + (a - p.a);
                    k->rope(a, n_heads, dim, p.y, n_rot, neox);
                    ref->rope(b, n_heads, dim, p.y, n_rot, neox);
                    SAME(dim);
                }
}

static void activation_quantisation(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 7 };
    static ALIGNED(64) uint8_t a[MOST * 2];
    static ALIGNED(64) uint8_t b[MOST * 2];

    for (int n = 0; n <= 2048; n += 256)
        for (int round = 0; round < 30; round++) {
            int profile = round % 3;
            start(&r, n, profile);
            float scale = powf(10, (float)(round - 20) * 2);
            for (int i = 0; i < n; i++)
                p.x[i] =
                    round % 5 == 4 ? (float)((int)rng_below(&r, 511) - 255) / 2 : p.x[i] * scale;
            for (int is_q8_k = 0; is_q8_k < 2; is_q8_k++) {
                memset(a, 0xa5, sizeof(a));
                memset(b, 0xa5, sizeof(b));
                (is_q8_k ? k->q8_k : k->q8_0)(p.x, n, a);
                (is_q8_k ? ref->q8_k : ref->q8_0)(p.x, n, b);
                size_t step = is_q8_k ? sizeof(struct act_q8_k) : sizeof(struct act_q8_0);
                size_t d = is_q8_k ? offsetof(struct act_q8_k, d) : offsetof(struct act_q8_0, d);
                size_t pad = is_q8_k ? step - d - 4 : 0; /* padding after d, may contain anything */
                for (size_t i = d; i + 4 + pad <= sizeof(a); i += step) {
                    memcpy(a + i + 4, b + i + 4, pad);
                    float da, db;
                    memcpy(&da, a + i, 4);
                    memcpy(&db, b + i, 4);
                    if (da != da && db != db)
                        memcpy(a + i, b + i, 4);
                }
                EXPECT(!memcmp(a, b, sizeof(a)));
            }
        }
}

/* Arbitrary float bits: results equal the definition, the last block is padded with zeros, and
 * memory after it does not change. */
static void bf16x2(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 8 };
    static ALIGNED(64) struct act_bf16x2 a[MOST / BF16X2_BLOCK + 2], b[MOST / BF16X2_BLOCK + 2];

    FOR_EACH_LENGTH(n, profile)
    {
        start(&r, n, profile);
        if (profile == 1)
            for (int i = 0; i < n; i++)
                p.x[i] = f32_from_bits((uint32_t)rng_next(&r));
        memset(a, 0xa5, sizeof(a));
        memset(b, 0xa5, sizeof(b));
        k->bf16x2(p.x, n, a);
        ref->bf16x2(p.x, n, b);
        for (int i = 0; i < n; i++) /* the payload of a NaN is unspecified */
            if (p.x[i] != p.x[i]) {
                uint16_t *hi = &a[i / BF16X2_BLOCK].hi[i % BF16X2_BLOCK];
                EXPECT(isnan(bf16_to_f32(*hi)));
                *hi = b[i / BF16X2_BLOCK].hi[i % BF16X2_BLOCK];
            }
        EXPECT(!memcmp(a, b, sizeof(a)));
        for (int i = n; i % BF16X2_BLOCK; i++)
            EXPECT(!a[i / BF16X2_BLOCK].hi[i % BF16X2_BLOCK] &&
                   !a[i / BF16X2_BLOCK].lo[i % BF16X2_BLOCK]);
    }
}

/* A row that is written in pieces equals a row that is written at once. */
static void rows_in_pieces_equal_whole_rows(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 9 };
    static ALIGNED(64) uint8_t whole[MOST * 5], parts[MOST * 5];
    (void)ref;

    for (int kind = 0; kind < N_ACT_KINDS; kind++)
        for (int round = 0; round < 30; round++) {
            const int block = act_block((enum act_kind)kind);
            const bool has_end = kind == ACT_BF16X2;
            int n = block * (1 + (int)rng_below(&r, 8)) - (has_end ? round % 30 : 0);
            struct act_cols to = { (enum act_kind)kind, whole, 0 };
            memset(whole, 0, sizeof(whole));
            memset(parts, 0, sizeof(parts));
            start(&r, n, 0);
            kernels_quantise_acts(k, to, p.x, n);
            to.row = parts;
            for (int n_piece; to.col < n; to.col += n_piece) {
                n_piece = block * (1 + (int)rng_below(&r, 3));
                n_piece = MIN(n_piece, n - to.col);
                kernels_quantise_acts(k, to, p.x + to.col, n_piece);
            }
            if (kind == ACT_Q8_K) /* the padding after d may contain anything */
                for (int i = 0; i < n / Q8_K_BLOCK; i++) {
                    const size_t end = offsetof(struct act_q8_k, d) + sizeof(float);
                    const size_t at = (size_t)i * sizeof(struct act_q8_k) + end;
                    memcpy(parts + at, whole + at, sizeof(struct act_q8_k) - end);
                }
            EXPECT(!memcmp(whole, parts, sizeof(whole)));
            size_t bytes = act_row_bytes((enum act_kind)kind, n);
            EXPECT(bytes % 128 == 64);
            EXPECT(act_offset((enum act_kind)kind, n / block * block) <= bytes);
            for (size_t i = bytes; i < sizeof(whole); i++)
                EXPECT(!whole[i]);
        }
}

#define FOR_EVERY_SET(what)                                                                        \
    static void what##_in_every_set(void)                                                          \
    {                                                                                              \
        kit_each_set(what);                                                                        \
    }
FOR_EVERY_SET(rms_norm)
FOR_EVERY_SET(silu_mul)
FOR_EVERY_SET(gelu_mul)
FOR_EVERY_SET(swiglu_oai)
FOR_EVERY_SET(relu_sqr)
FOR_EVERY_SET(sigmoid_mul)
FOR_EVERY_SET(softplus)
FOR_EVERY_SET(l2_norm)
FOR_EVERY_SET(conv)
FOR_EVERY_SET(state_rows)
FOR_EVERY_SET(add)
FOR_EVERY_SET(add_scaled)
FOR_EVERY_SET(softmax)
FOR_EVERY_SET(max)
FOR_EVERY_SET(rope)
FOR_EVERY_SET(activation_quantisation)
FOR_EVERY_SET(bf16x2)
FOR_EVERY_SET(rows_in_pieces_equal_whole_rows)

static void sets_are_chosen_by_name(void)
{
    const struct kernels *k = NULL, *best = NULL;
    struct err e;

    EXPECT_EQ(kernels_choose(&best, NULL, &e), 0);
    EXPECT_EQ(kernels_choose(&k, "auto", &e), 0);
    EXPECT(k == best);
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_STR(k->name, "ref");
    EXPECT_EQ(kernels_choose(&k, best->name, &e), 0);
    EXPECT(k == best);
    EXPECT_EQ(kernels_choose(&k, "abacus", &e), -1);
    EXPECT_EQ((int)e.code, ERR_UNSUPPORTED);
    EXPECT(strstr(e.msg, "abacus"));
    EXPECT(k == best); /* unchanged */
}

static void no_set_has_gaps(const struct kernels *k, const struct kernels *ref)
{
#define KERNEL(op, ret, params) EXPECT(k->op && ref->op);
#include "kernel/kernels.def"
#undef KERNEL
    for (int i = 0; i < N_GEMM_SLOTS; i++)
        EXPECT(k->gemm[i] && ref->gemm[i]);
}
FOR_EVERY_SET(no_set_has_gaps)

TESTS(TEST(rms_norm_in_every_set), TEST(silu_mul_in_every_set), TEST(gelu_mul_in_every_set),
    TEST(swiglu_oai_in_every_set), TEST(relu_sqr_in_every_set), TEST(sigmoid_mul_in_every_set),
    TEST(softplus_in_every_set), TEST(l2_norm_in_every_set), TEST(conv_in_every_set),
    TEST(state_rows_in_every_set), TEST(add_in_every_set), TEST(add_scaled_in_every_set),
    TEST(softmax_in_every_set), TEST(max_in_every_set), TEST(rope_in_every_set),
    TEST(activation_quantisation_in_every_set), TEST(bf16x2_in_every_set),
    TEST(rows_in_pieces_equal_whole_rows_in_every_set), TEST(sets_are_chosen_by_name),
    TEST(no_set_has_gaps_in_every_set))
