/* Hashes of the results of ref.c for fixed inputs. They are the same in every build, with both
 * compilers, and with pages of 2 or 32 tokens. A change of a hash changes the output of every
 * server: CHANGES.md must mention it, and the new hash is entered here. The same applies to the
 * sums that only AMX has; then numerics_id (kernels.h) also gets a new number. */
#include "kit.h"

static uint64_t hash(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3;
    return h;
}

enum { START = 0x12345 };

/* Exact on every machine, since it does not use libm. */
static void fill(struct rng *r, float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(rng_next_unit(r) * 4 - 2);
}

/* Random bits with scales of moderate size. */
static uint8_t *random_rows(struct rng *r, const struct kit_type *t, int n_rows, int n_cols)
{
    size_t n = (size_t)(n_rows * (n_cols / t->block));
    uint8_t *rows = xmalloc(n * t->bytes);
    float f;

    for (size_t b = 0; b < n; b++) {
        uint8_t *block = rows + b * t->bytes;
        for (size_t i = 0; i < t->bytes; i++)
            block[i] = (uint8_t)rng_next(r);
        fill(r, &f, 1);
        if (t->type == Q_F32)
            memcpy(block, &f, 4);
        else if (t->type == Q_BF16)
            block[1] = (uint8_t)(0x3f ^ (block[1] & 0x80));
        else if (t->type == Q_MXFP4)
            block[0] = (uint8_t)(120 + block[0] % 8);
        else if (kit_is_affine(t->type))
            kit_put_affine(block, f * 0.125f, f * -0.5f);
        else if (kit_is_fp8(t->type))
            memcpy(block, &f, 4);
        else if (t->type == Q_MXFP8)
            block[0] = (uint8_t)(116 + block[0] % 8);
        else if (t->type != Q_NVFP4)
            kit_put_scale(t, block, f32_to_f16(f));
        if (t->min_at)
            kit_put_half(block + t->min_at, f * 0.5f);
    }
    return rows;
}

static void gemm_results_are_frozen(void)
{
    static const uint64_t want[KIT_N_TYPES] = { 0xc486be892a0b1599, 0x5ec25adb4bbfab94,
        0xbc096afd820cb3ea, 0xf0741f70994678f7, 0xdfe0c9c60f01a1ed, 0x302dff622e3c3796,
        0x802b1bfe112f7b89, 0x62d4a320a0ed239c, 0xc4f51e7120beb39d, 0xd4238987caec6896,
        0xbc939d52068b0e2e, 0xa5b7ea60eba41499, 0xcaf717340e136d77, 0x0eb81dab20ad671f,
        0x0fe0f62f5537fe7a, 0x96f80d57a9eaae29, 0x9c689e3e5b4cea2c, 0xd3b3a02ae9f19fe2,
        0x4ed2ad9c0ea267a8, 0xe78ccf35bec7f766, 0xc14a5388724de4ba, 0x19a4db0a3ba86db8,
        0xc9bb9a0da5448a31, 0xcf506e24a1a16e62, 0x67842058297c6ca3, 0x786085b43136330e,
        0x75388402084760bc, 0xbb06273453be47b9, 0xd69a818031fb5546, 0xc2657a9332f8377c,
        0xcb5ce7450d048944, 0xb791a9300937afbf, 0xd8ed8fbcb9e09fb0, 0x10f55b2c55de4235,
        0xade0bb26fb713004, 0xf88580c4c883aa85, 0xf62340cb7f9560d5, 0x219b4fd861e14392,
        0x4f73b220d6cbf38d, 0x6a58fb9b7b657218, 0xaaea6c98d176f57a, 0x358c1bd42460804d,
        0x3159fd5ce4159514 };
    static const uint64_t tiles[] = { 0xbc14128d4007e364, 0x1e83f91a5076ffd4 }; /* F16, BF16 */
    enum { M = 2, ROWS = 19, COLS = 512 };
    struct rng r = { .key = 1 };
    float x[M * COLS], y[M * ROWS];

    for (int t = 0; t < KIT_N_TYPES; t++) {
        uint8_t *rows = random_rows(&r, &kit_types[t], ROWS, COLS);
        struct packed w = kit_pack(kit_types[t].type, ROWS, COLS, rows);
        fill(&r, x, M * COLS);
        struct acts a = kit_acts(kit_ref(), w.type, M, COLS, x);
        struct gemm_args g = { &w, &a, 0, w.n_panels, y, ROWS };
        kit_ref()->gemm[gemm_slot(w.type)](&g);
        EXPECT_EQ(hash(START, y, sizeof(y)), want[t]);
        if (w.type == Q_F16 || w.type == Q_BF16) {
            struct acts planes = kit_acts(kit_amx_definition(), w.type, M, COLS, x);
            g.x = &planes;
            kit_amx_definition()->gemm[gemm_slot(w.type)](&g);
            mem_free(planes.data);
            EXPECT_EQ(hash(START, y, sizeof(y)), tiles[w.type == Q_BF16]);
        }
        mem_free(a.data);
        mem_free(w.data);
        mem_free(rows);
    }
}

static void vector_results_are_frozen(void)
{
    static const uint64_t want[] = { 0x8a27e48f952ec2d9, 0xe9d0c7e7af5e5d3f, 0xd7d7e6c5f3adb381,
        0x3cd2ecd8ae3c292b, 0x3ae59060a630b0ab };
    enum { N = 1000 };
    const struct kernels *k = kit_ref();
    struct rng r = { .key = 2 };
    float x[N], y[N], out[N];

    fill(&r, x, N);
    fill(&r, y, N);
    k->rms_norm(out, x, y, N, 1e-5f);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[0]);
    k->silu_mul(out, x, y, N);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[1]);
    memcpy(out, x, sizeof(out));
    k->rope(out, N / 50, 50, y, 40, false);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[2]);
    memcpy(out, x, sizeof(out));
    k->rope(out, N / 50, 50, y, 40, true);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[3]);
    memcpy(out, x, sizeof(out));
    for (int i = 0; i < N; i++)
        out[i] *= 20;
    double sum = k->softmax(out, out, N, k->max(out, N), 1);
    EXPECT_EQ(hash(hash(START, out, sizeof(out)), &sum, sizeof(sum)), want[4]);
}

static void recurrent_results_are_frozen(void)
{
    static const uint64_t want[] = { 0xbeafc3912ea68347, 0x38488743a84e7731, 0xd5c65bb859722c3c,
        0x81c3052a1ebea902, 0xbcb9ce303115dace, 0xec2189fd1c9ef270 };
    enum { KEYS = 40, COLS = 50, STRIDE = 64, N = 500 };
    const struct kernels *k = kit_ref();
    struct rng r = { .key = 4 };
    float x[N], y[N], out[N] = { 0 }, s[KEYS * STRIDE];

    fill(&r, x, N);
    fill(&r, y, N);
    fill(&r, s, KEYS * STRIDE);
    k->sigmoid_mul(out, x, y, N);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[0]);
    k->softplus(out, x, y, N);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[1]);
    k->l2_norm(out, x, N, 1e-6f, 1);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[2]);
    struct conv_row c = { { x, x + 10, x + 20 }, y, 100, x + 30, 3, true };
    k->conv(out, &c, 100);
    EXPECT_EQ(hash(START, out, sizeof(out)), want[3]);
    struct state_update up = { x, x + 50, 0.9f };
    struct state_row row = { s, s, KEYS, COLS, &up, 1, x + 100, y, y + 100, 0.8f, 0.3f, out,
        out + 100 };
    k->delta_rule(&row);
    EXPECT_EQ(hash(hash(START, out, sizeof(out)), s, sizeof(s)), want[4]);
    k->state_row(&row);
    EXPECT_EQ(hash(hash(START, out, sizeof(out)), s, sizeof(s)), want[5]);
}

static void attention_results_are_frozen(void)
{
    static const uint64_t want[N_KV_TYPES] = { 0xa610d37cf0cb5d39, 0x08b7c201069b5db2,
        0x9fd3fb35dff00fc9 };
    const uint64_t tiles = 0xc48b69812d2aae5b;
    enum { DIM = 20, N = 1060, N_Q = 3, N_PAGES = N / PAGE_TOKENS + 1 };
    const struct kernels *k = kit_ref();
    static page_id pages[N_PAGES];
    float q[N_Q * DIM], out[N_Q * DIM], key[DIM], value[DIM];

    for (int type = KV_F16; type < N_KV_TYPES; type++) {
        struct rng r = { .key = 3 };
        struct kv_layout l;
        kv_layout_init(&l, (enum kv_type)type, 1, DIM);
        uint8_t *arena = try_aligned(64, N_PAGES * l.page_bytes);
        float *scratch = xmalloc(attn_scratch_floats(&l, N_Q) * sizeof(float));
        EXPECT(arena);
        for (int i = 0; i < N_PAGES; i++)
            pages[i].i = (uint32_t)(i ^ 1) < N_PAGES ? (uint32_t)i ^ 1 : (uint32_t)i;
        for (int t = 0; t < N; t++) {
            fill(&r, key, DIM);
            fill(&r, value, DIM);
            struct kv_slot s =
                kv_slot_at(&l, arena + pages[t / PAGE_TOKENS].i * l.page_bytes, 0, t % PAGE_TOKENS);
            k->kv_append(&s, key, value);
        }
        fill(&r, q, N_Q * DIM);
        struct attn_args a = { .layout = &l,
            .arena = arena,
            .pages = pages,
            .n_rows = 1,
            .n_keys = N,
            .n_q = N_Q,
            .q = q,
            .scale = 0.25f,
            .out = out,
            .scratch = scratch };
        k->attend(&a);
        EXPECT_EQ(hash(START, out, sizeof(out)), want[type]);
        kit_amx_definition()->attend(&a);
        EXPECT_EQ(hash(START, out, sizeof(out)), type == KV_BF16 ? tiles : want[type]);
        mem_free(arena);
        mem_free(scratch);
    }
}

TESTS(TEST(gemm_results_are_frozen), TEST(vector_results_are_frozen),
    TEST(recurrent_results_are_frozen), TEST(attention_results_are_frozen))
