/* GEMM of float weights with bf16 tiles: a row has the same bits for every number of rows, and the
 * results are close to the exact sum. test_gemm.c compares with the definition. */
#include "kit.h"

static const struct kit_type types[] = { { Q_BF16, "BF16", 1, 2 }, { Q_F16, "F16", 1, 2 } };

struct problem {
    struct packed w;
    uint8_t *rows;
    float *x, *y, *want;
    int m, n_rows, n_cols;
};

static struct problem problem_new(
    struct rng *r, const struct kit_type *t, int m, int n_rows, int n_cols)
{
    struct problem p = { .m = m, .n_rows = n_rows, .n_cols = n_cols };

    p.rows = kit_random_rows(r, t, n_rows, n_cols);
    p.w = kit_pack(t->type, n_rows, n_cols, p.rows);
    p.x = xmalloc((size_t)m * (size_t)n_cols * sizeof(float));
    kit_fill(r, p.x, (size_t)m * (size_t)n_cols, 1);
    p.y = xmalloc((size_t)m * (size_t)n_rows * sizeof(float));
    p.want = xmalloc((size_t)m * (size_t)n_rows * sizeof(float));
    return p;
}

static void problem_free(struct problem *p)
{
    mem_free(p->rows);
    mem_free(p->w.data);
    mem_free(p->x);
    mem_free(p->y);
    mem_free(p->want);
}

/* Multiplies rows [from, from + n) with all panels. */
static void multiply(const struct kernels *k, const struct problem *p, int from, int n, float *y)
{
    struct acts a = kit_acts(k, p->w.type, n, p->n_cols, p->x + (size_t)from * (size_t)p->n_cols);
    struct gemm_args g = { &p->w, &a, 0, p->w.n_panels, y + (size_t)from * (size_t)p->n_rows,
        (size_t)p->n_rows };

    k->gemm[gemm_slot(p->w.type)](&g);
    mem_free(a.data);
}

static const struct kernels *amx_set(void)
{
    static const struct kernels *k;
    static bool is_chosen;
    struct err e;

    if (!is_chosen && kernels_choose(&k, "amx", &e))
        k = kit_amx_soft();
    if (!k)
        printf("skipped: tiles in software need AVX-512 BF16\n");
    is_chosen = true;
    return k;
}

/* Numbers of rows and columns around the sizes of groups, chunks and K blocks. */
static void each_of_many_rows_equals_a_single_row(void)
{
    static const int ms[] = { 2, 15, 16, 17, 31, 32, 33, 64, 65, 225, 256, 257, 300, 513 };
    static const int cols[] = { 1, 2, 31, 32, 33, 255, 256, 257, 290, 319, 513, 600 };
    struct rng r = { .key = 1 };

    for (size_t t = 0; t < ARRAY_LEN(types) && amx_set(); t++)
        for (size_t i = 0; i < ARRAY_LEN(ms); i++) {
            int n_cols = cols[(i * 5 + t) % ARRAY_LEN(cols)];
            struct problem p =
                problem_new(&r, &types[t], ms[i], 1 + (int)rng_below(&r, 60), n_cols);
            size_t n = (size_t)p.m * (size_t)p.n_rows;
            multiply(amx_set(), &p, 0, p.m, p.y);
            for (int m = 0; m < p.m; m++)
                multiply(amx_set(), &p, m, 1, p.want);
            EXPECT(!memcmp(p.y, p.want, n * sizeof(float)));
            multiply(kit_amx_definition(), &p, 0, MIN(p.m, 20), p.want);
            EXPECT(kit_same_floats(p.y, p.want, n));
            problem_free(&p);
        }
}

/* The activations of one long row are one K block; those of many rows are several. */
static void each_of_several_long_rows_equals_a_single_row(void)
{
    enum { M = 40, ROWS = 16 * 17 + 1 };
    struct rng r = { .key = 2 };

    for (size_t t = 0; t < ARRAY_LEN(types) && amx_set(); t++) {
        struct problem p = problem_new(&r, &types[t], M, ROWS, 1101);
        for (int n = 1; n <= p.m; n += n) { /* n rows at a time, and the remaining ones */
            float *y = n == 1 ? p.want : p.y;
            for (int m = 0; m < p.m; m += n)
                multiply(amx_set(), &p, m, MIN(n, p.m - m), y);
            EXPECT(n == 1 || !memcmp(p.y, p.want, M * ROWS * sizeof(float)));
        }
        problem_free(&p);
    }
}

/* Distance to the exact sum: the bound per product is 2^-17 for the rounding of an activation, and
 * for F16 the same for the omitted product of both lo parts; the rest is rounding of sums. The
 * distance of ref.c is printed for comparison. */
static void results_are_close_to_the_exact_sum(void)
{
    enum { M = 3, ROWS = 48, COLS = 2048 };
    struct rng r = { .key = 3 };

    for (size_t t = 0; t < ARRAY_LEN(types) && amx_set(); t++) {
        struct problem p = problem_new(&r, &types[t], M, ROWS, COLS);
        double amx_error = 0, ref_error = 0;
        multiply(amx_set(), &p, 0, M, p.y);
        multiply(kit_ref(), &p, 0, M, p.want);
        for (int m = 0; m < M; m++)
            for (int row = 0; row < ROWS; row++) {
                double sum = 0, size = 0;
                for (int k = 0; k < COLS; k++) {
                    double v = kit_weight(&types[t], p.rows, COLS, row, k) * p.x[m * COLS + k];
                    sum += v;
                    size += fabs(v);
                }
                double d = fabs(p.y[m * ROWS + row] - sum);
                EXPECT(d <= size * (t ? 0x1p-15 : 0x1p-16));
                amx_error += d * d / size / size;
                d = fabs(p.want[m * ROWS + row] - sum);
                ref_error += d * d / size / size;
            }
        printf("%s: rms of the sum of sizes %.1e, ref %.1e\n", types[t].name,
            sqrt(amx_error / M / ROWS), sqrt(ref_error / M / ROWS));
        EXPECT(sqrt(amx_error / M / ROWS) < 0x1p-22);
        problem_free(&p);
    }
}

/* Single products with 1: hi + lo equals every f16 weight exactly. */
static void every_f16_weight_is_exact(void)
{
    enum { ROWS = 1 << 16, COLS = 1 };
    struct problem p = { .m = 1, .n_rows = ROWS, .n_cols = COLS };
    uint16_t *halves = xmalloc(ROWS * sizeof(*halves));
    float one = 1, *y = xmalloc(ROWS * sizeof(*y));

    for (int i = 0; i < ROWS; i++) /* lines of special numbers only, and mixed lines */
        halves[i] = (uint16_t)(i % 2 ? i : i * 40503);
    p.w = kit_pack(Q_F16, ROWS, COLS, (const uint8_t *)(const void *)halves);
    p.x = &one;
    if (amx_set()) {
        multiply(amx_set(), &p, 0, 1, y);
        for (int i = 0; i < ROWS; i++) {
            float h = f16_to_f32(halves[i]);
            EXPECT(isfinite(h) ? y[i] == h : !isfinite(y[i]));
        }
    }
    mem_free(p.w.data);
    mem_free(halves);
    mem_free(y);
}

/* Activations keep at least 16 bits of mantissa, and all normal numbers are kept. */
static void activations_keep_sixteen_bits(void)
{
    enum { ROUNDS = 2000 };
    struct rng r = { .key = 4 };
    struct problem p = { .m = ROUNDS, .n_rows = 1, .n_cols = 1 };
    uint16_t one = f32_to_bf16(1);
    float x[ROUNDS], y[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        x[i] = f32_from_bits((uint32_t)rng_next(&r));
        if (i % 8 == 0)
            x[i] = f32_from_bits(f32_to_bits(x[i]) & 0x807fffff); /* subnormal */
    }
    p.w = kit_pack(Q_BF16, 1, 1, (const uint8_t *)&one);
    p.x = x;
    if (amx_set()) {
        multiply(amx_set(), &p, 0, ROUNDS, y);
        for (int i = 0; i < ROUNDS; i++)
            if (!isfinite(x[i]) || fabsf(x[i]) >= 0x1.ffp127f)
                EXPECT(!isfinite(y[i]));
            else if (fabsf(x[i]) < 0x1p-126f)
                EXPECT_EQ(y[i], 0.0f);
            else
                EXPECT(fabsf(y[i] - x[i]) <= fmaxf(fabsf(x[i]) * 0x1p-17f, 0x1p-126f));
    }
    mem_free(p.w.data);
}

TESTS(TEST(each_of_many_rows_equals_a_single_row),
    TEST(each_of_several_long_rows_equals_a_single_row), TEST(results_are_close_to_the_exact_sum),
    TEST(every_f16_weight_is_exact), TEST(activations_keep_sixteen_bits))
