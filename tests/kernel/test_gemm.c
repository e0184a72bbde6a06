/* GEMM of every set and type compared with ref.c, bit for bit. */
#include "kernel/cpu.h"
#include "kit.h"

struct problem {
    struct packed w;
    uint8_t *rows;
    float *x, *y, *want;
    int m, y_stride;
};

/* y is larger than needed on all sides and initialised: elements that are not outputs must not
 * change. */
static struct problem problem_new(
    struct rng *r, const struct kit_type *t, int m, int n_rows, int n_cols)
{
    struct problem p = { .m = m, .y_stride = n_rows + 3 };
    size_t n_y = (size_t)m * (size_t)p.y_stride + 16;

    p.rows = kit_random_rows(r, t, n_rows, n_cols);
    p.w = kit_pack(t->type, n_rows, n_cols, p.rows);
    p.x = xmalloc((size_t)m * (size_t)n_cols * sizeof(float) + 1);
    kit_fill(r, p.x, (size_t)m * (size_t)n_cols, 1);
    p.y = xmalloc(n_y * sizeof(float));
    p.want = xmalloc(n_y * sizeof(float));
    for (size_t i = 0; i < n_y; i++)
        p.y[i] = p.want[i] = (float)i;
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

static void gemm(const struct kernels *k, const struct problem *p, float *y, int from, int to)
{
    struct acts a = kit_acts(k, p->w.type, p->m, p->w.n_cols, p->x);
    struct gemm_args g = { &p->w, &a, from, to, y, (size_t)p->y_stride, .next = p->w.data };

    k->gemm[gemm_slot(p->w.type)](&g);
    mem_free(a.data);
}

static void compare(const struct kernels *k, const struct kernels *ref, const struct problem *p)
{
    size_t n_y = (size_t)p->m * (size_t)p->y_stride + 16;

    gemm(ref, p, p->want, 0, p->w.n_panels);
    gemm(k, p, p->y, 0, p->w.n_panels);
    if (!kit_same_floats(p->y, p->want, n_y)) {
        fprintf(stderr, "%s, type %d, %d rows times %d x %d\n", k->name, (int)p->w.type, p->m,
            p->w.n_rows, p->w.n_cols);
        fail();
    }
}

static void every_number_of_rows(const struct kernels *k, const struct kernels *ref)
{
    static const int ms[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33 };
    struct rng r = { .key = 1 };

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (size_t i = 0; i < ARRAY_LEN(ms); i++) {
            struct problem p = problem_new(&r, &kit_types[t], ms[i], 37, 512);
            compare(k, ref, &p);
            problem_free(&p);
        }
}

static void every_shape(const struct kernels *k, const struct kernels *ref)
{
    static const int n_rows[] = { 1, 15, 16, 17, 31, 63, 64, 65, 131 };
    static const int blocks[] = { 1, 2, 3, 5, 8, 13, 16, 31, 33, 47 };
    struct rng r = { .key = 2 };

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (size_t i = 0; i < ARRAY_LEN(n_rows); i++)
            for (size_t j = i % 2; j < ARRAY_LEN(blocks) - (kit_types[t].block < 256 ? 0 : 6);
                 j += 2) {
                struct problem p = problem_new(&r, &kit_types[t], 1 + (int)(i + j) % 3, n_rows[i],
                    blocks[j] * kit_types[t].block);
                compare(k, ref, &p);
                problem_free(&p);
            }
}

/* Full and partial tiles and chunks, with whole and partial K blocks. */
static void many_rows_of_every_shape(const struct kernels *k, const struct kernels *ref)
{
    static const int n_rows[] = { 16, 17, 33 };
    static const int blocks[] = { 1, 3, 4, 7, 8, 9, 12, 13, 17 };
    struct rng r = { .key = 8 };
    int round = 0;

    /* All remainders of 4, 8 and 16; with sanitizers two rows per type. */
    for (int t = 3; t < KIT_N_TYPES; t++)
        for (int m = 9 + t % 3; m <= 64; m += 3 * CHECK_STRIDE, round++) {
            int n_blocks = blocks[round % (kit_types[t].block < 256 ? 9 : 2)];
            struct problem p =
                problem_new(&r, &kit_types[t], m, n_rows[round % 3], n_blocks * kit_types[t].block);
            compare(k, ref, &p);
            problem_free(&p);
        }
    static const int many[] = { 65, 256, 257, 300 };
    for (int t = 3; t < KIT_N_TYPES; t++)
        for (size_t i = t % MIN(CHECK_STRIDE, 4); i < ARRAY_LEN(many); i += CHECK_STRIDE) {
            struct problem p = problem_new(&r, &kit_types[t], many[i], 17, 256);
            compare(k, ref, &p);
            problem_free(&p);
        }
}

/* Random numbers of rows, columns, panels, and random gathered rows. */
static void random_shapes(const struct kernels *k, const struct kernels *ref)
{
    enum { SEED = 9, ROUNDS = 12 / MIN(CHECK_STRIDE, 4) };
    struct rng r = { .key = SEED };

    printf("%s: seed %d\n", k->name, SEED);
    for (int t = 0; t < KIT_N_TYPES; t++)
        for (int round = 0; round < ROUNDS; round++) {
            const struct kit_type *type = &kit_types[t];
            int most = type->block < 32 ? 200 : type->block < 256 ? 40 : 4, gather[48];
            int stored = 1 + (int)rng_below(&r, 24), m = 1 + (int)rng_below(&r, ARRAY_LEN(gather));
            struct problem p = problem_new(&r, type, MAX(stored, m), 1 + (int)rng_below(&r, 60),
                type->block * (1 + (int)rng_below(&r, (uint32_t)most)));
            struct acts a = kit_acts(ref, type->type, stored, p.w.n_cols, p.x);
            struct gemm_args g = { .w = &p.w, .x = &a, .y = p.want };
            for (int i = 0; i < m; i++)
                gather[i] = (int)rng_below(&r, (uint32_t)stored);
            a.gather = gather;
            a.n_rows = m;
            g.panel_from = (int)rng_below(&r, (uint32_t)p.w.n_panels);
            g.panel_to = p.w.n_panels - (int)rng_below(&r, (uint32_t)(p.w.n_panels - g.panel_from));
            g.y_stride = (size_t)p.y_stride;
            ref->gemm[gemm_slot(type->type)](&g);
            g.y = p.y;
            k->gemm[gemm_slot(type->type)](&g);
            EXPECT(kit_same_floats(p.y, p.want, (size_t)p.m * (size_t)p.y_stride + 16));
            mem_free(a.data);
            problem_free(&p);
        }
}

/* Read chunks of all lengths, streams of different lengths, and more streams than panels. */
static void gemv_with_every_read_plan(const struct kernels *k, const struct kernels *ref)
{
    static const int chunk_bytes[] = { 1, 1000, 5000 };
    struct rng r = { .key = 10 };

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (int round = t % MIN(CHECK_STRIDE, 5); round < 24; round += MIN(CHECK_STRIDE, 5)) {
            struct cpu_streams plan = { 1 + round % CPU_MAX_STREAMS, chunk_bytes[round % 3] };
            struct cpu_gemv_plan gemv_plan = { plan, plan };
            struct problem p = problem_new(&r, &kit_types[t], 1 + round % 8,
                PANEL * (1 + (int)rng_below(&r, 9)), kit_types[t].block * (1 + round % 7));
            cpu_set_gemv_plan(&gemv_plan);
            compare(k, ref, &p);
            cpu_set_gemv_plan(NULL);
            problem_free(&p);
        }
}

static void only_the_requested_panels(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 3 };

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (int m = 1; m < 12; m += 9) {
            struct problem p = problem_new(&r, &kit_types[t], m, 16 * 11 + 5, 256);
            for (int from = 0; from < p.w.n_panels; from += 5) {
                gemm(ref, &p, p.want, from, MIN(from + 3, p.w.n_panels));
                gemm(k, &p, p.y, from, MIN(from + 3, p.w.n_panels));
            }
            gemm(k, &p, p.y, 4, 4); /* empty range */
            EXPECT(kit_same_floats(p.y, p.want, (size_t)m * (size_t)p.y_stride + 16));
            problem_free(&p);
        }
}

/* Gathered rows in another order, some of them twice, some not at all. */
static void gathered_rows(const struct kernels *k, const struct kernels *ref)
{
    enum { M = 37, ROWS = 40, COLS = 512 };
    static const int gather[] = { 12, 3, 3, 0, 7, 11, 1, 5, 12, 2, 9, 4, 8, 6, 10, 0, 1, 2, 12, 3,
        5, 7, 9, 11, 4, 8, 6, 10, 0, 1, 2, 12, 3, 5, 7, 9, 11 };
    struct rng r = { .key = 6 };
    (void)ref;

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (int n = 1; n <= (int)ARRAY_LEN(gather); n += 5) {
            struct problem p = problem_new(&r, &kit_types[t], M, ROWS, COLS);
            struct acts a = kit_acts(k, p.w.type, M, COLS, p.x);
            struct gemm_args g = { &p.w, &a, 0, p.w.n_panels, p.want, (size_t)p.y_stride };
            k->gemm[gemm_slot(p.w.type)](&g);
            a.gather = gather;
            a.n_rows = n;
            g.y = p.y;
            k->gemm[gemm_slot(p.w.type)](&g);
            for (int m = 0; m < n; m++)
                EXPECT(kit_same_floats(
                    p.y + m * p.y_stride, p.want + gather[m] * p.y_stride, (size_t)ROWS));
            mem_free(a.data);
            problem_free(&p);
        }
}

/* The bits of a row do not depend on the other rows. */
static void rows_are_independent(const struct kernels *k, const struct kernels *ref)
{
    enum { M = 21, ROWS = 40, COLS = 512 };
    struct rng r = { .key = 4 };

    for (int t = 0; t < KIT_N_TYPES; t++) {
        struct problem p = problem_new(&r, &kit_types[t], M, ROWS, COLS), one = p;
        float y[ROWS + 3];
        gemm(k, &p, p.y, 0, p.w.n_panels);
        one.m = 1;
        for (int m = 0; m < M; m++) {
            one.x = p.x + m * COLS;
            gemm(k, &one, y, 0, p.w.n_panels);
            EXPECT(!memcmp(y, p.y + m * p.y_stride, ROWS * sizeof(float)));
        }
        problem_free(&p);
    }
}

/* The largest integers that a block can hold, with both signs, and scales that are not normal
 * numbers. */
static void extremes(const struct kernels *k, const struct kernels *ref)
{
    static const uint16_t scales[] = { 0x7bff, 0xfbff, 0x0001, 0x83ff, 0x7c00, 0xfc00, 0x7e01,
        0x8000 };
    static const uint8_t fills[] = { 0x00, 0xff, 0x80, 0x7f, 0x08 };
    enum { COLS = 512 };
    struct rng r = { .key = 5 };

    for (int t = 3; t < KIT_N_TYPES; t++)
        for (size_t s = 0; s < ARRAY_LEN(scales); s++)
            for (size_t f = s % MIN(CHECK_STRIDE, 4); f < ARRAY_LEN(fills); f += CHECK_STRIDE) {
                const struct kit_type *type = &kit_types[t];
                struct problem p = problem_new(&r, type, s == 0 ? 36 : 3, 16, COLS);
                for (size_t b = 0; b < (size_t)(16 * COLS / type->block); b++) {
                    uint8_t *block = p.rows + b * type->bytes;
                    memset(block, fills[f], type->bytes);
                    kit_put_scale(type, block, scales[s]);
                    if (type->min_at)
                        memcpy(block + type->min_at, &scales[(s + b) % ARRAY_LEN(scales)], 2);
                }
                pack_panels(&p.w, p.rows, 0, 1);
                for (int i = 0; i < COLS * p.m; i++)
                    if (i / COLS % 3 < 2)
                        p.x[i] = i / COLS % 3 ? -3 : 3;
                compare(k, ref, &p);
                problem_free(&p);
            }
}

static void special_activations(const struct kernels *k, const struct kernels *ref)
{
    static const float special[] = { INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-130f,
        0x1.fffffep127f, -0.0f, 1e-30f, 7e6f, 9e6f, 1e38f };
    enum { COLS = 512 };
    struct rng r = { .key = 6 };

    for (int t = 0; t < KIT_N_TYPES; t++)
        for (int round = 0; round < 40; round++) {
            struct problem p = problem_new(&r, &kit_types[t], 2, 17, COLS);
            for (int i = 0; i < round % 5; i++)
                p.x[rng_below(&r, 2 * COLS)] = special[rng_below(&r, ARRAY_LEN(special))];
            if (round % 7 == 0) /* tiny numbers: the scales underflow */
                for (int i = 0; i < 2 * COLS; i++)
                    p.x[i] *= round % 2 ? 0x1p-148f : 0x1p-135f;
            compare(k, ref, &p);
            problem_free(&p);
        }
}

/* Float weights that are not finite or not normal. */
static void special_weights(const struct kernels *k, const struct kernels *ref)
{
    enum { COLS = 67 };
    struct rng r = { .key = 7 };

    for (int t = 0; t < 3; t++)
        for (int round = 0; round < 30; round++) {
            struct problem p = problem_new(&r, &kit_types[t], 3, 16, COLS);
            for (size_t i = 0; i < 16 * COLS * kit_types[t].bytes; i++)
                if (round || i % 2)
                    p.rows[i] = (uint8_t)rng_next(&r);
            pack_panels(&p.w, p.rows, 0, 1);
            compare(k, ref, &p);
            problem_free(&p);
        }
}

#define FOR_EVERY_SET(what)                                                                        \
    static void what##_in_every_set(void)                                                          \
    {                                                                                              \
        kit_each_set(what);                                                                        \
    }
FOR_EVERY_SET(every_number_of_rows)
FOR_EVERY_SET(every_shape)
FOR_EVERY_SET(many_rows_of_every_shape)
FOR_EVERY_SET(random_shapes)
FOR_EVERY_SET(gemv_with_every_read_plan)
FOR_EVERY_SET(only_the_requested_panels)
FOR_EVERY_SET(gathered_rows)
FOR_EVERY_SET(rows_are_independent)
FOR_EVERY_SET(extremes)
FOR_EVERY_SET(special_activations)
FOR_EVERY_SET(special_weights)

TESTS(TEST(random_shapes_in_every_set), TEST(every_number_of_rows_in_every_set),
    TEST(every_shape_in_every_set), TEST(many_rows_of_every_shape_in_every_set),
    TEST(gemv_with_every_read_plan_in_every_set), TEST(only_the_requested_panels_in_every_set),
    TEST(gathered_rows_in_every_set), TEST(rows_are_independent_in_every_set),
    TEST(extremes_in_every_set), TEST(special_activations_in_every_set),
    TEST(special_weights_in_every_set))
