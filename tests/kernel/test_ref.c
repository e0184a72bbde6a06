/* ref.c compared with arithmetic in double precision: the definition itself is correct. */
#include "kit.h"
#include "kernel/numerics.h"

/* Bound of y: each of the n roundings of a chain has an error of at most half a unit of a partial
 * sum, which the sum of magnitudes bounds. */
static void gemm_is_the_sum_of_products(void)
{
    enum { ROWS = 19, COLS = 512, M = 3 };
    struct rng r = { .key = 1 };
    float x[M * COLS], y[M * ROWS];

    for (int t = 0; t < KIT_N_TYPES; t++) {
        uint8_t *rows = kit_random_rows(&r, &kit_types[t], ROWS, COLS);
        struct packed w = kit_pack(kit_types[t].type, ROWS, COLS, rows);
        kit_fill(&r, x, M * COLS, 1);
        struct acts a = kit_acts(kit_ref(), w.type, M, COLS, x);
        struct gemm_args g = { &w, &a, 0, w.n_panels, y, ROWS };
        kit_ref()->gemm[gemm_slot(w.type)](&g);
        for (int m = 0; m < M; m++)
            for (int row = 0; row < ROWS; row++) {
                double sum = 0, size = 0;
                for (int k = 0; k < COLS; k++) {
                    double p = kit_weight(&kit_types[t], rows, COLS, row, k) * kit_act(&a, m, k);
                    sum += p;
                    size += fabs(p);
                }
                EXPECT(fabs(y[m * ROWS + row] - sum) <= size * COLS * 0x1p-24);
            }
        mem_free(a.data);
        mem_free(w.data);
        mem_free(rows);
    }
}

static void quantised_activations_are_near(void)
{
    enum { N = 1024 };
    struct rng r = { .key = 2 };
    float x[N];

    for (int t = 0; t < 2; t++)
        for (int round = 0; round < 50; round++) {
            kit_fill(&r, x, N, powf(10, (float)(round % 9 - 4)));
            struct acts a = kit_acts(kit_ref(), t ? Q_Q4_K : Q_Q4_0, 1, N, x);
            int block = t ? 256 : 32;
            for (int b = 0; b < N; b += block) {
                double top = 0;
                for (int k = b; k < b + block; k++)
                    top = fmax(top, fabs(x[k]));
                /* half a step, and the rounding of the scale to f16 */
                for (int k = b; k < b + block; k++)
                    EXPECT(fabs(kit_act(&a, 0, k) - x[k]) <=
                           top / 127 * 0.5001 + top * 0x1p-11 + 127 * 0x1p-25);
            }
            mem_free(a.data);
        }
}

static void sums_of_blocks_are_sums(void)
{
    enum { N = 512 };
    struct rng r = { .key = 3 };
    float x[N];

    kit_fill(&r, x, N, 3);
    struct acts a = kit_acts(kit_ref(), Q_Q8_0, 1, N, x), b = kit_acts(kit_ref(), Q_Q6_K, 1, N, x);
    const struct act_q8_0 *p = a.data;
    const struct act_q8_k *q = b.data;
    for (int i = 0; i < N; i++) {
        int sum = 0, n32 = i / 32 * 32, n16 = i / 16 * 16;
        for (int k = 0; k < 32; k++)
            sum += p[i / 32].q[k];
        EXPECT_EQ(p[i / 32].minus8, -8 * sum);
        sum = 0;
        for (int k = n32; k < n32 + 32; k++)
            sum += q[k / 256].q[k % 256];
        EXPECT_EQ((int)q[i / 256].sum32[n32 % 256 / 32], sum);
        sum = 0;
        for (int k = n16; k < n16 + 16; k++)
            sum += q[k / 256].q[k % 256];
        EXPECT_EQ((int)q[i / 256].sum16[n16 % 256 / 16], sum);
    }
    mem_free(a.data);
    mem_free(b.data);
}

static void exp_matches_libm(void)
{
    for (float x = EXP_LO; x <= 88.7f; x += 0.00037f) {
        float y = x;
        kit_ref()->softmax(&y, &y, 1, 0, 1);
        double want = exp((double)x);
        EXPECT(fabs(y - want) <= want * 0x1.2p-23 + 0x1p-149);
    }
    float y[] = { 0, -INFINITY, INFINITY, NAN, 89, -104, -1e30f };
    float want[] = { 1, 0, INFINITY, NAN, INFINITY, 0, 0 };
    kit_ref()->softmax(y, y, ARRAY_LEN(y), 0, 1);
    EXPECT(kit_same_floats(y, want, ARRAY_LEN(y)));
}

static void softmax_returns_the_sum(void)
{
    float x[1000];
    double sum = 0;
    struct rng r = { .key = 4 };

    kit_fill(&r, x, 1000, 5);
    float top = kit_ref()->max(x, 1000);
    double got = kit_ref()->softmax(x, x, 1000, top, 1);
    for (int i = 0; i < 1000; i++)
        sum += x[i];
    EXPECT(fabs(got - sum) < 1e-12 * sum);
    EXPECT_EQ(kit_ref()->softmax(x, x, 0, 0, 1), 0.0);
}

static void max_skips_nan(void)
{
    float x[] = { NAN, -3, NAN, 7, 2 }, nans[] = { NAN, NAN }, zeros[] = { -0.0f, 0.0f, -0.0f };

    EXPECT_EQ(kit_ref()->max(x, 5), 7.0f);
    EXPECT_EQ(kit_ref()->max(nans, 2), -INFINITY);
    EXPECT_EQ(f32_to_bits(kit_ref()->max(zeros, 3)), 0u);
    EXPECT_EQ(f32_to_bits(kit_ref()->max(zeros, 1)), 0u);
}

static void rms_norm_and_silu_match_their_formulas(void)
{
    enum { N = 777 };
    struct rng r = { .key = 5 };
    float x[N], w[N], out[N];
    double sum = 0;

    kit_fill(&r, x, N, 2);
    kit_fill(&r, w, N, 1);
    for (int i = 0; i < N; i++)
        sum += (double)x[i] * x[i];
    kit_ref()->rms_norm(out, x, w, N, 1e-5f);
    for (int i = 0; i < N; i++) {
        double want = x[i] / sqrt(sum / N + 1e-5) * w[i];
        EXPECT(fabs(out[i] - want) <= fabs(want) * 1e-5);
    }
    kit_ref()->silu_mul(out, x, w, N);
    for (int i = 0; i < N; i++) {
        double want = x[i] / (1 + exp(-(double)x[i])) * w[i];
        EXPECT(fabs(out[i] - want) <= fabs(want) * 1e-6);
    }
    kit_ref()->gelu_mul(out, x, w, N);
    for (int i = 0; i < N; i++) {
        double v = x[i], want = v / 2 * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
        EXPECT(fabs(out[i] - want * w[i]) <= fabs(want * w[i]) * 1e-5 + 1e-9);
    }
    kit_ref()->swiglu_oai(out, x, w, N);
    for (int i = 0; i < N; i++) {
        double g = fmin(x[i], 7), u = fmax(fmin(w[i], 7), -7), want = g / (1 + exp(-1.702 * g));
        EXPECT(fabs(out[i] - want * (u + 1)) <= fabs(want * (u + 1)) * 1e-5);
    }
    kit_ref()->relu_sqr(out, x, N);
    for (int i = 0; i < N; i++)
        EXPECT_EQ(out[i], x[i] > 0 ? x[i] * x[i] : 0);
    memcpy(out, x, sizeof(out));
    kit_ref()->add(out, w, N);
    for (int i = 0; i < N; i++)
        EXPECT_EQ(out[i], x[i] + w[i]);
}

static void rope_rotates_pairs(void)
{
    enum { HEADS = 3, DIM = 20, ROT = 12 };
    struct rng r = { .key = 6 };
    float x[HEADS * DIM], y[HEADS * DIM], cs[ROT];

    for (int neox = 0; neox < 2; neox++) {
        kit_fill(&r, x, HEADS * DIM, 1);
        memcpy(y, x, sizeof(y));
        for (int i = 0; i < ROT / 2; i++) {
            cs[2 * i] = cosf((float)i + 0.5f);
            cs[2 * i + 1] = sinf((float)i + 0.5f);
        }
        kit_ref()->rope(y, HEADS, DIM, cs, ROT, neox);
        for (int h = 0; h < HEADS; h++)
            for (int d = 0; d < DIM; d++) {
                int i = neox ? d % (ROT / 2) : d / 2; /* index of the pair */
                int a = h * DIM + (neox ? i : 2 * i), b = neox ? a + ROT / 2 : a + 1;
                double c = cos(i + 0.5), s = sin(i + 0.5), want = x[h * DIM + d];
                if (d < ROT)
                    want = h * DIM + d == a ? x[a] * c - x[b] * s : x[a] * s + x[b] * c;
                EXPECT(fabs(y[h * DIM + d] - want) < 1e-6);
            }
    }
}

static void activations_of_recurrent_layers_match_their_formulas(void)
{
    enum { N = 2000 };
    float x[N], y[N], out[N];

    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - N / 2) / 10;
        y[i] = (float)(i % 7) / 7 - 0.4f;
    }
    kit_ref()->softplus(out, x, y, N);
    for (int i = 0; i < N; i++) {
        double v = (double)(x[i] + y[i]), want = fmax(v, 0) + log1p(exp(-fabs(v)));
        EXPECT(fabs(out[i] - want) <= want * 0x1p-22 + 0x1p-147);
    }
    kit_ref()->sigmoid_mul(out, x, y, N);
    for (int i = 0; i < N; i++) {
        double want = y[i] / (1 + exp(-(double)x[i]));
        EXPECT(fabs(out[i] - want) <= fabs(want) * 1e-6 + 0x1p-126);
    }
    kit_ref()->l2_norm(out, y, N, 1e-6f, 3);
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)y[i] * y[i];
    for (int i = 0; i < N; i++)
        EXPECT(fabs(out[i] - 3 * y[i] / sqrt(sum + 1e-6)) <= fabs(out[i]) * 1e-6);
    float special[] = { INFINITY, -INFINITY, NAN }, zeros[3] = { 0 };
    const float want[] = { INFINITY, 0, NAN };
    kit_ref()->softplus(special, special, zeros, 3);
    EXPECT(kit_same_floats(special, want, 3));
}

static void conv_is_a_sum_over_taps(void)
{
    enum { N = 90, TAPS = 4 };
    struct rng r = { .key = 7 };
    float x[TAPS][N], w[TAPS][N], bias[N], out[N];
    struct conv_row c = { { x[0], x[1], x[2], x[3] }, w[0], N, bias, TAPS, true };

    kit_fill(&r, x[0], N * TAPS, 1);
    kit_fill(&r, w[0], N * TAPS, 1);
    kit_fill(&r, bias, N, 1);
    kit_ref()->conv(out, &c, N);
    for (int i = 0; i < N; i++) {
        double sum = bias[i];
        for (int t = 0; t < TAPS; t++)
            sum += (double)w[t][i] * x[t][i];
        EXPECT(fabs(out[i] - sum / (1 + exp(-sum))) < 1e-5);
    }
}

/* Rows of a state in double precision, as in the papers: the state decays, the delta rule corrects
 * what it returns for k, and the output is that of the state after the row. */
static void state_rows_match_the_recurrence(void)
{
    enum { KEYS = 24, COLS = 20, STRIDE = 32, ROWS = 50 };
    struct rng r = { .key = 8 };

    for (int is_delta = 0; is_delta < 2; is_delta++) {
        float s[KEYS * STRIDE] = { 0 }, k[2][KEYS], q[KEYS], v[COLS], u[2][COLS], out[COLS];
        double want[KEYS][COLS] = { { 0 } };
        struct state_update last = { 0 };
        for (int row = 0; row < ROWS; row++) {
            float *now_k = k[row % 2], *now_u = u[row % 2];
            kit_fill(&r, now_k, KEYS, 0.2f);
            kit_fill(&r, q, KEYS, 0.2f);
            kit_fill(&r, v, COLS, 1);
            kit_fill(&r, now_u, COLS, 1);
            struct state_row x = { s, s, KEYS, COLS, &last, row > 0, now_k, q, v, 0.95f, 0.7f,
                now_u, out };
            (is_delta ? kit_ref()->delta_rule : kit_ref()->state_row)(&x);
            last = (struct state_update){ now_k, now_u, x.g };
            for (int c = 0; c < COLS; c++) {
                double found = 0, sum = 0;
                for (int j = 0; j < KEYS; j++)
                    found += (want[j][c] *= (double)x.g) * now_k[j];
                double update = is_delta ? (double)x.beta * (v[c] - found) : now_u[c];
                for (int j = 0; j < KEYS; j++)
                    sum += (want[j][c] += now_k[j] * update) * q[j];
                EXPECT(fabs(out[c] - sum) < 1e-5);
            }
        }
    }
}

TESTS(TEST(gemm_is_the_sum_of_products), TEST(quantised_activations_are_near),
    TEST(sums_of_blocks_are_sums), TEST(exp_matches_libm), TEST(softmax_returns_the_sum),
    TEST(max_skips_nan), TEST(rms_norm_and_silu_match_their_formulas), TEST(rope_rotates_pairs),
    TEST(activations_of_recurrent_layers_match_their_formulas), TEST(conv_is_a_sum_over_taps),
    TEST(state_rows_match_the_recurrence))
