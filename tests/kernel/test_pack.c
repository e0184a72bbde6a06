/* Weight packing, the test quantiser (testing/quant.h) and conversion of 16-bit floats. */
#include "kit.h"
#include "testing/quant.h"

static void unpacked_rows_equal_the_file(void)
{
    static const int shapes[][2] = { { 1, 256 }, { 15, 512 }, { 16, 256 }, { 17, 768 },
        { 33, 256 } };
    struct rng r = { .key = 1 };

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            int n_rows = shapes[s][0], n_cols = shapes[s][1];
            if (kit_types[t].block == 1)
                n_cols -= (int)s; /* odd numbers of columns, too */
            if (kit_types[t].block == 32)
                n_cols -= 32 * (int)s;
            uint8_t *rows = kit_random_rows(&r, &kit_types[t], n_rows, n_cols);
            struct packed w = kit_pack(kit_types[t].type, n_rows, n_cols, rows);
            float *out = xmalloc((size_t)n_cols * sizeof(float));
            for (int row = 0; row < n_rows; row++) {
                pack_get_row(&w, row, out);
                for (int k = 0; k < n_cols; k++)
                    EXPECT_EQ(out[k], (float)kit_weight(&kit_types[t], rows, n_cols, row, k));
            }
            mem_free(out);
            mem_free(rows);
            mem_free(w.data);
        }
}

static void panels_packed_one_by_one_are_the_same(void)
{
    struct rng r = { .key = 2 };

    for (int t = 0; t < KIT_N_TYPES; t++) {
        uint8_t *rows = kit_random_rows(&r, &kit_types[t], 50, 256);
        struct packed w = kit_pack(kit_types[t].type, 50, 256, rows), v = w;
        size_t bytes = pack_bytes(w.type, 50, 256);
        v.data = try_aligned(64, bytes);
        EXPECT(v.data && (size_t)w.n_panels * w.panel_bytes == bytes && w.panel_bytes % 64 == 0);
        memset(v.data, 0xa5, bytes);
        for (int p = w.n_panels - 1; p >= 0; p--)
            pack_panels(&v, rows, p, p + 1);
        EXPECT(!memcmp(v.data, w.data, bytes));
        mem_free(v.data);
        mem_free(w.data);
        mem_free(rows);
    }
}

static void bad_shapes_are_rejected(void)
{
    struct packed w;
    struct err e;

    EXPECT_EQ(pack_init(&w, Q_I32, 16, 256, NULL, &e), -1);
    EXPECT_EQ((int)e.code, ERR_UNSUPPORTED);
    EXPECT_EQ(pack_init(&w, Q_Q4_0, 16, 33, NULL, &e), -1);
    EXPECT_EQ((int)e.code, ERR_CORRUPT);
    EXPECT_EQ(pack_init(&w, Q_Q6_K, 16, 128, NULL, &e), -1);
    EXPECT_EQ(pack_init(&w, Q_F32, 0, 128, NULL, &e), -1);
    EXPECT_EQ((int)e.code, ERR_RANGE);
    EXPECT_EQ(pack_init(&w, Q_F32, 16, 0, NULL, &e), -1);
    EXPECT_EQ(pack_init(&w, Q_F32, 1 << 30, 1, NULL, &e), -1);
}

static void quantised_rows_are_near_the_original(void)
{
    /* The step is range / levels; the bound is half a step plus the error of the rounded scales. */
    static const float bounds[KIT_N_TYPES] = { 0, 5e-4f, 4e-3f, 0.5f / 127 + 1e-3f, 0.13f,
        0.5f / 15 * 2 + 0.02f, 0.5f / 31 * 2 + 0.02f, 0.5f / 31 + 0.01f, 0.5f / 15 * 2 + 0.01f,
        1.0f / 16 + 0.002f, 0.5f / 31 * 2 + 0.01f, 14.0f / 127 + 0.002f, 0.251f,
        14.0f / 127 + 0.02f, 0.5f / 3 * 2 + 0.1f, 0.25f + 0.04f };
    struct rng r = { .key = 3 };
    enum { N = 512 };
    float x[N], out[N];
    uint8_t row[N * 4];

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (int round = 0; round < 20 && quant_has_type(kit_types[t].type); round++) {
            float top = 0;
            kit_fill(&r, x, N, round == 0 ? 0 : 0.01f * (float)round);
            for (int i = 0; i < N; i++)
                top = fmaxf(top, fabsf(x[i]));
            quant_row(kit_types[t].type, x, N, row);
            struct packed w = kit_pack(kit_types[t].type, 1, N, row);
            pack_get_row(&w, 0, out);
            for (int i = 0; i < N; i++)
                EXPECT(fabsf(out[i] - x[i]) <= bounds[t] * top);
            mem_free(w.data);
        }
}

static void f16_conversion_round_trips(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h), b = bf16_to_f32((uint16_t)h);
        bool is_nan = (h & 0x7fff) > 0x7c00, is_bf16_nan = (h & 0x7fff) > 0x7f80;
        EXPECT_EQ((int)(f != f), (int)is_nan);
        EXPECT_EQ((unsigned)f32_to_f16(f), is_nan ? h | 0x200 : h);
        EXPECT_EQ((unsigned)f32_to_bf16(b), is_bf16_nan ? h | 0x40 : h);
        if ((h & 0x7c00) != 0x7c00) { /* value by the definition of binary16 */
            int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
            double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
            EXPECT_EQ((double)f, h & 0x8000 ? -v : v);
        }
    }
}

static void f16_conversion_rounds_to_nearest_even(void)
{
    for (uint32_t h = 0; h < 0x7c00; h++) { /* between each half and the next larger one */
        double low = f16_to_f32((uint16_t)h),
               high = h == 0x7bff ? 65536 : f16_to_f32((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        EXPECT_EQ((unsigned)f32_to_f16(middle), h & 1 ? h + 1 : h);
        EXPECT_EQ((unsigned)f32_to_f16(nextafterf(middle, 0)), h);
        EXPECT_EQ((unsigned)f32_to_f16(nextafterf(middle, 1e9f)), h + 1);
        EXPECT_EQ((unsigned)f32_to_f16(-middle), 0x8000 | (h & 1 ? h + 1 : h));
    }
    EXPECT_EQ((unsigned)f32_to_bf16(0x1.01p0f), 0x3f80u); /* ties */
    EXPECT_EQ((unsigned)f32_to_bf16(0x1.03p0f), 0x3f82u);
    EXPECT_EQ((unsigned)f32_to_bf16(0x1.010002p0f), 0x3f81u);
    EXPECT_EQ((unsigned)f32_to_bf16(INFINITY), 0x7f80u);
    /* a tie between the largest bf16 and infinity */
    EXPECT_EQ((unsigned)f32_to_bf16(0x1.ffp127f), 0x7f80u);
}

TESTS(TEST(unpacked_rows_equal_the_file), TEST(panels_packed_one_by_one_are_the_same),
    TEST(bad_shapes_are_rejected), TEST(quantised_rows_are_near_the_original),
    TEST(f16_conversion_round_trips), TEST(f16_conversion_rounds_to_nearest_even))
