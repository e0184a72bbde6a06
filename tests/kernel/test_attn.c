/* Attention: ref.c is compared with double precision, every set with ref.c, and the result must not
 * depend on pages. */
#include "kit.h"

enum { LAYERS = 2, HEADS = 3 };

/* One sequence of n keys in scattered pages of an arena that is initialised with NaN. */
struct seq {
    struct kv_layout layout;
    uint8_t *arena;
    page_id *pages;
    /* [n][dim] of the tested layer and head, as appended; of a value, the first part */
    float *k, *v;
    int n, head;
};

/* Layout of all sequences until the next call: values as long as keys, shorter values, or latent
 * attention. Returns a possible dimension of keys, at least `dim` and at most the next multiple of
 * 16. */
static enum { SAME_DIMS, SHORT_VALUES, LATENT, N_SHAPES } shape;

static int choose_shape(int round, int dim)
{
    shape = round % N_SHAPES;
    return shape == LATENT ? (dim + 15) / 16 * 16 : dim;
}

static int value_dim_of(int dim)
{
    return shape == SAME_DIMS ? dim : shape == LATENT ? (dim + 16) / 32 * 16 : (dim + 1) / 2;
}

/* Layout of one layer in pages of LAYERS layers. */
static struct kv_layout layer_layout(enum kv_type type, int layer, int dim, int value_dim)
{
    struct kv_layout all[LAYERS], *list[LAYERS];

    for (int i = 0; i < LAYERS; i++) {
        kv_layout_init_values(&all[i], type, HEADS, dim, value_dim, shape == LATENT);
        list[i] = &all[i];
    }
    kv_layout_place(list, LAYERS);
    return all[layer];
}

static struct seq seq_new(struct rng *r, const struct kernels *k, enum kv_type type, int dim, int n)
{
    const int layer = (int)rng_below(r, LAYERS);
    struct seq s = { .n = n, .head = (int)rng_below(r, HEADS) };
    int n_pages = (n + PAGE_TOKENS - 1) / PAGE_TOKENS + 1;

    s.layout = layer_layout(type, layer, dim, value_dim_of(dim));
    size_t bytes = (size_t)n_pages * s.layout.page_bytes;
    s.arena = try_aligned(64, bytes);
    s.pages = xmalloc((size_t)n_pages * sizeof(*s.pages));
    s.k = xmalloc((size_t)(n * dim + 1) * sizeof(float));
    s.v = xmalloc((size_t)(n * dim + 1) * sizeof(float));
    EXPECT(s.arena);
    memset(s.arena, 0xff, bytes); /* NaN: unwritten slots must not be used */
    for (int i = 0; i < n_pages; i++)
        s.pages[i].i = (uint32_t)(n_pages - 1 - i);
    kit_fill(r, s.k, (size_t)(n * dim), 1);
    kit_fill(r, s.v, (size_t)(n * dim), 1);
    if (shape == LATENT)
        memcpy(s.v, s.k, (size_t)(n * dim) * sizeof(float));
    for (int pos = 0; pos < n; pos++) {
        uint8_t *page = s.arena + s.pages[pos / PAGE_TOKENS].i * s.layout.page_bytes;
        struct kv_slot slot = kv_slot_at(&s.layout, page, s.head, pos % PAGE_TOKENS);
        k->kv_append(&slot, s.k + pos * dim, s.v + pos * dim);
    }
    return s;
}

static void seq_free(struct seq *s)
{
    mem_free(s->arena);
    mem_free(s->pages);
    mem_free(s->k);
    mem_free(s->v);
}

/* Window, soft cap and sinks of all attention until the next call; none for odd rounds. */
static struct {
    int window;
    float soft_cap;
    const float *sinks;
} variant;

static void choose_variant(int round)
{
    static const int windows[] = { 0, 1, 7, 100, 256, 257, 300, 700 };
    static float sinks[64];
    struct rng r = { .key = 77 };

    memset(&variant, 0, sizeof(variant));
    if (round % 2)
        return;
    kit_fill(&r, sinks, ARRAY_LEN(sinks), 2);
    variant.window = windows[round / 2 % (int)ARRAY_LEN(windows)];
    variant.soft_cap = round / 2 % 3 ? 0 : 1.5f;
    variant.sinks = round / 2 % 5 < 3 ? NULL : sinks;
}

static void set_variant(struct attn_args *a)
{
    a->window = variant.window;
    a->soft_cap = variant.soft_cap;
    a->sinks = variant.sinks;
}

struct rows { /* consecutive rows of a sequence, with strides in floats */
    int n, n_keys, n_q;
    size_t q_stride, out_stride;
};

static void attend_rows(
    const struct kernels *k, const struct seq *s, const struct rows *r, const float *q, float *out)
{
    float *scratch = xmalloc(attn_scratch_floats(&s->layout, r->n_q) * sizeof(float));
    struct attn_args a = { .layout = &s->layout,
        .arena = s->arena,
        .pages = s->pages,
        .kv_head = s->head,
        .n_rows = r->n,
        .n_keys = r->n_keys,
        .n_q = r->n_q,
        .q = q,
        .scale = 0.3f,
        .out = out,
        .q_stride = r->q_stride,
        .out_stride = r->out_stride,
        .scratch = scratch };
    set_variant(&a);
    k->attend(&a);
    mem_free(scratch);
}

static void attend(
    const struct kernels *k, const struct seq *s, int n_keys, int n_q, const float *q, float *out)
{
    attend_rows(k, s, &(struct rows){ 1, n_keys, n_q, 0, 0 }, q, out);
}

static double stored(enum kv_type type, float f)
{
    return type == KV_F16 ? f16_to_f32(f32_to_f16(f)) : bf16_to_f32(f32_to_bf16(f));
}

/* A head after q8_0 quantisation, as in the KV cache and for queries. */
static void quantised_head(const float *x, int dim, double *out)
{
    struct act_q8_0 b;
    float block[Q8_0_BLOCK];

    for (int d = 0; d < dim; d++) {
        int i = d % Q8_0_BLOCK;
        if (i == 0) {
            for (int j = 0; j < Q8_0_BLOCK; j++)
                block[j] = d + j < dim ? x[d + j] : 0;
            kit_ref()->q8_0(block, Q8_0_BLOCK, &b);
        }
        out[d] = (double)b.d * b.q[i];
    }
}

static void stored_head(enum kv_type type, const float *x, int dim, double *out)
{
    if (type == KV_Q8_0) {
        quantised_head(x, dim, out);
        return;
    }
    for (int d = 0; d < dim; d++)
        out[d] = stored(type, x[d]);
}

static void naive_attention(const struct seq *s, int n_keys, int head, const float *q, double *out)
{
    int dim = s->layout.head_dim, value_dim = s->layout.value_dim;
    int first = variant.window ? MAX(n_keys - variant.window, 0) : 0;
    double cap = (double)variant.soft_cap;
    double max = -INFINITY, sum = 0, score[2100], query[KV_MAX_DIM], one[KV_MAX_DIM];

    for (int d = 0; d < dim; d++)
        query[d] = q[d];
    if (s->layout.type == KV_Q8_0)
        quantised_head(q, dim, query);
    for (int t = first; t < n_keys; t++) {
        stored_head(s->layout.type, s->k + t * dim, dim, one);
        score[t] = 0;
        for (int d = 0; d < dim; d++)
            score[t] += query[d] * one[d] * (double)0.3f;
        if (cap > 0)
            score[t] = cap * tanh(score[t] / cap);
        max = fmax(max, score[t]);
    }
    if (variant.sinks)
        sum = exp((double)variant.sinks[head] - max);
    for (int t = first; t < n_keys; t++)
        sum += score[t] = exp(score[t] - max);
    memset(out, 0, (size_t)value_dim * sizeof(*out));
    for (int t = first; t < n_keys; t++) {
        stored_head(s->layout.type, s->v + t * dim, s->layout.is_latent ? dim : value_dim, one);
        for (int d = 0; d < value_dim; d++)
            out[d] += score[t] / sum * one[d];
    }
}

static void expect_softmax(const struct kernels *k, enum kv_type first, int n_types, double bound)
{
    static const int dims[] = { 2, 16, 30, 64, 80, 128 };
    static const int ns[] = { 1, 2, 17, 255, 257, 512, 513, 1300 };
    struct rng r = { .key = 1 };
    float q[4 * 128], out[4 * 128];
    double want[128];

    for (size_t i = 0; i < ARRAY_LEN(dims); i++)
        for (size_t j = 0; j < ARRAY_LEN(ns); j++) {
            int n = ns[j], n_q = 1 + (int)(i + j) % 4;
            int dim = choose_shape((int)(i + j / 2), dims[i]);
            enum kv_type type = (enum kv_type)((int)first + (int)(i + j) % n_types);
            struct seq s = seq_new(&r, k, type, dim, n);
            kit_fill(&r, q, (size_t)(n_q * dim), 1);
            choose_variant((int)(i * ARRAY_LEN(ns) + j));
            attend(k, &s, n, n_q, q, out);
            for (int h = 0; h < n_q; h++) {
                naive_attention(&s, n, h, q + h * dim, want);
                for (int d = 0; d < s.layout.value_dim; d++)
                    EXPECT(fabs(out[h * s.layout.value_dim + d] - want[d]) <
                           (type == KV_Q8_0 ? 5e-4 : bound));
            }
            seq_free(&s);
        }
    choose_variant(1);
    choose_shape(0, 0);
}

/* Values are about 1, so the bounds are absolute. q8_0: weights as integers up to 32,767 have an
 * error of up to 0.5 per key of a block, where one key has most of the weight. bf16: queries and
 * weights split into hi and lo have 16 bits. */
static void attention_equals_softmax_of_scores_times_values(void)
{
    expect_softmax(kit_ref(), KV_F16, N_KV_TYPES, 2e-5);
    if (kit_amx_soft())
        expect_softmax(kit_amx_soft(), KV_BF16, 1, 4e-5);
}

static void no_keys_give_zeros(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 2 };
    struct seq s = seq_new(&r, k, KV_F16, 32, 0);
    float q[64], out[64], zeros[64] = { 0 };

    kit_fill(&r, q, 64, 1);
    attend(k, &s, 0, 2, q, out);
    EXPECT(!memcmp(out, zeros, sizeof(out)));
    attend(ref, &s, 0, 2, q, out);
    EXPECT(!memcmp(out, zeros, sizeof(out)));
    seq_free(&s);
}

/* Lengths around all boundaries: pages, key groups, blocks, splits. */
static void all_context_lengths(const struct kernels *k, const struct kernels *ref)
{
    enum { DIM = 64, N_Q = 3, MOST = 1100 };
    struct rng r = { .key = 3 };
    float q[N_Q * DIM], got[N_Q * DIM], want[N_Q * DIM];

    for (int type = KV_F16; type < N_KV_TYPES; type++) {
        struct seq s = seq_new(&r, k, (enum kv_type)type, DIM, MOST);
        for (int n = 1; n <= MOST; n += n < 36 || (n + 4) % 256 < 8 ? 1 : 31) {
            kit_fill(&r, q, N_Q * DIM, n % 3 ? 1 : 8);
            attend(k, &s, n, N_Q, q, got);
            attend(ref, &s, n, N_Q, q, want);
            if (!kit_same_floats(got, want, N_Q * DIM)) {
                fprintf(stderr, "%s, type %d, %d keys\n", k->name, type, n);
                fail();
            }
        }
        seq_free(&s);
    }
}

static void dims_and_groups(const struct kernels *k, const struct kernels *ref)
{
    enum { N = 600 };
    struct rng r = { .key = 4 };
    static float q[20 * KV_MAX_DIM], got[20 * KV_MAX_DIM], want[20 * KV_MAX_DIM];

    for (int at = 2; at <= 512; at += at < 34 ? 2 : at < 66 ? 6 : at < 256 ? 38 : 128)
        for (int n_q = 1; n_q <= 17; n_q += n_q < 9 ? 1 + at % 3 : 8) {
            const int dim = choose_shape(n_q + at / 6, at);
            struct seq s = seq_new(
                &r, k, (enum kv_type)((at / 2 + n_q) % N_KV_TYPES), dim, at == 128 ? N : 40);
            kit_fill(&r, q, (size_t)(n_q * dim), 1);
            kit_fill(&r, got, ARRAY_LEN(got), 1);
            memcpy(want, got, sizeof(got));
            attend(k, &s, s.n, n_q, q, got);
            attend(ref, &s, s.n, n_q, q, want);
            if (!kit_same_floats(got, want, ARRAY_LEN(got))) {
                fprintf(stderr, "%s, head_dim %d, %d queries\n", k->name, dim, n_q);
                fail();
            }
            seq_free(&s);
        }
    choose_shape(0, 0);
}

/* Each row of a sequence equals a single row, for any content of the keys and values after its
 * own. */
static void consecutive_rows_equal_single_rows(const struct kernels *k, const struct kernels *ref)
{
    enum { N = 1100, ROWS = 19, N_Q = 9, DIM = 80, WIDTH = N_Q * DIM + 5 };
    static float q[ROWS * WIDTH], got[ROWS * WIDTH], want[ROWS * WIDTH];
    static const int ends[] = { 1, 20, 36, 250, 256, 258, 500, 512, 515, 768, 1027, N };
    struct rng r = { .key = 6 };
    int round = 0;

    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        for (int n_q = 1; n_q <= N_Q; n_q++, round++) {
            int end = ends[i], dim = choose_shape(round / 2, 2 + 2 * (int)rng_below(&r, DIM / 2));
            int n = 1 + (int)rng_below(&r, (uint64_t)MIN(ROWS, end));
            struct seq s = seq_new(&r, k, (enum kv_type)(round / 3 % N_KV_TYPES), dim, end);
            struct rows rows = { n, end - n + (round % 3 == 0), n_q, WIDTH, WIDTH - 3 };
            rows.n_keys -= rows.n_keys + n - 1 > end;
            if (round % 4 == 0) { /* the last value is not finite */
                struct kv_slot slot = kv_slot_at(&s.layout,
                    s.arena + s.pages[(end - 1) / PAGE_TOKENS].i * s.layout.page_bytes, s.head,
                    (end - 1) % PAGE_TOKENS);
                s.v[(end - 1) * dim] = INFINITY;
                if (shape == LATENT)
                    s.k[(end - 1) * dim] = INFINITY;
                k->kv_append(&slot, s.k + (end - 1) * dim, s.v + (end - 1) * dim);
            }
            kit_fill(&r, q, ARRAY_LEN(q), 1);
            kit_fill(&r, got, ARRAY_LEN(got), 1);
            memcpy(want, got, sizeof(got));
            choose_variant(round);
            attend_rows(k, &s, &rows, q, got);
            for (int j = 0; j < n; j++)
                attend(ref, &s, rows.n_keys + j, n_q, q + j * WIDTH, want + j * (WIDTH - 3));
            if (!kit_same_floats(got, want, ARRAY_LEN(got))) {
                fprintf(stderr, "%s, head_dim %d, %d queries, %d rows from %d keys on\n", k->name,
                    dim, n_q, n, rows.n_keys);
                fail();
            }
            seq_free(&s);
        }
    choose_variant(1);
    choose_shape(0, 0);
}

/* Outputs that are negative and almost zero: two keys have all the weight, and their values are
 * zero. Sums that flush end as zeros of either sign, which must not depend on the keys of the other
 * rows. */
static void tiny_outputs_of_consecutive_rows(const struct kernels *k, const struct kernels *ref)
{
    enum { DIM = 32, ROWS = 16, FROM = 280, N = FROM + ROWS - 1 };
    struct rng r = { .key = 9 };
    float q[ROWS * DIM] = { 0 }, got[ROWS * DIM], want[ROWS * DIM];

    for (int type = KV_F16; type < N_KV_TYPES; type++) {
        struct seq s = seq_new(&r, k, (enum kv_type)type, DIM, N);
        for (int pos = 0; pos < N; pos++) {
            bool is_top = pos == 256 || pos == 257;
            for (int d = 0; d < DIM; d++) {
                s.k[pos * DIM + d] = is_top ? 60 : 0;
                s.v[pos * DIM + d] = is_top ? 0 : -0x1p-126f;
            }
            struct kv_slot slot =
                kv_slot_at(&s.layout, s.arena + s.pages[pos / PAGE_TOKENS].i * s.layout.page_bytes,
                    s.head, pos % PAGE_TOKENS);
            k->kv_append(&slot, s.k + pos * DIM, s.v + pos * DIM);
        }
        for (int i = 0; i < ROWS; i++)
            q[i * DIM] = 1 - (float)i / 64;
        attend_rows(k, &s, &(struct rows){ ROWS, FROM, 1, DIM, DIM }, q, got);
        for (int i = 0; i < ROWS; i++)
            attend(ref, &s, FROM + i, 1, q + i * DIM, want + i * DIM);
        if (!kit_same_floats(got, want, ROWS * DIM)) {
            fprintf(stderr, "%s, type %d\n", k->name, type);
            fail();
        }
        for (int i = 0; i < ROWS; i++)
            attend(k, &s, FROM + i, 1, q + i * DIM, want + i * DIM);
        EXPECT(!memcmp(got, want, sizeof(got)));
        seq_free(&s);
    }
}

/* Rows of sequences with a shared prefix: each equals a single row. */
static void rows_that_share_a_prefix(const struct kernels *k, const struct kernels *ref)
{
    enum { N = 1400, ROWS = 16, MOST_Q = 17, DIM = 80, MOST_PAGES = N / PAGE_TOKENS + 2 };
    static float q[ROWS * MOST_Q * DIM], got[ROWS * MOST_Q * DIM], want[ROWS * MOST_Q * DIM];
    static page_id tables[ROWS][MOST_PAGES];
    struct rng r = { .key = 8 };

    for (int round = 0; round < 36; round++) {
        int dim = choose_shape(round / 2, 2 + 2 * (int)rng_below(&r, DIM / 2));
        int n_q = 1 + (int)rng_below(&r, round % 4 ? 5 : MOST_Q), width = n_q * dim;
        int n_rows = 1 + (int)rng_below(&r, (uint64_t)MIN(ROWS, attn_max_rows(n_q)));
        struct seq s = seq_new(&r, k, (enum kv_type)(round % N_KV_TYPES), dim, N);
        float *scratch = xmalloc(attn_scratch_floats(&s.layout, n_q) * sizeof(float));
        struct attn_row rows[ROWS];
        int n_shared = KV_BLOCK * (int)rng_below(&r, 5);

        kit_fill(&r, q, ARRAY_LEN(q), 1);
        kit_fill(&r, got, ARRAY_LEN(got), 1);
        memcpy(want, got, sizeof(got));
        for (int i = 0; i < n_rows; i++) { /* after the prefix: other pages, in random order */
            int n_keys = n_shared + 1 + (int)rng_below(&r, (uint64_t)(N - n_shared));
            for (int p = 0; p < (n_keys + PAGE_TOKENS - 1) / PAGE_TOKENS; p++)
                tables[i][p] = p < n_shared / PAGE_TOKENS ? s.pages[p]
                                                          : s.pages[rng_below(&r, N / PAGE_TOKENS)];
            rows[i] = (struct attn_row){ tables[i], n_keys, (i + round) % n_rows };
        }
        struct attn_args a = { .layout = &s.layout,
            .arena = s.arena,
            .kv_head = s.head,
            .n_rows = n_rows,
            .rows = rows,
            .n_shared = n_shared,
            .n_q = n_q,
            .q = q,
            .scale = 0.3f,
            .out = got,
            .q_stride = (size_t)width,
            .out_stride = (size_t)width,
            .scratch = scratch };
        choose_variant(round / N_KV_TYPES);
        set_variant(&a);
        k->attend(&a);
        for (int i = 0; i < n_rows; i++) {
            struct seq own = s;
            own.pages = tables[i];
            attend(
                ref, &own, rows[i].n_keys, n_q, q + rows[i].at * width, want + rows[i].at * width);
        }
        if (!kit_same_floats(got, want, ARRAY_LEN(got))) {
            fprintf(stderr, "%s, type %d, head_dim %d, %d queries, %d rows, %d shared\n", k->name,
                (int)s.layout.type, dim, n_q, n_rows, n_shared);
            fail();
        }
        mem_free(scratch);
        seq_free(&s);
    }
    choose_variant(1);
    choose_shape(0, 0);
}

struct split_run { /* state of the splits of one row before they are merged */
    struct attn_args a;
    float *states, *guard; /* [splits] states, and floats after them that must not change */
    float q[17 * 256];
};

/* Computes the splits in random order, some at a time. Each call has its own queries and
 * differently initialised scratch, as on several threads. */
static void compute_splits(const struct kernels *k, struct split_run *s, struct rng *r)
{
    const size_t n_scratch = attn_scratch_floats(s->a.layout, s->a.n_q);
    const size_t n_q = (size_t)(s->a.n_q * s->a.layout->head_dim);
    const int n = attn_n_splits(s->a.n_keys), per = 1 + (int)rng_below(r, (uint64_t)n);
    const int n_pieces = (n + per - 1) / per, first = (int)rng_below(r, (uint64_t)n_pieces);
    float *scratch = xmalloc(n_scratch * sizeof(float)), *q = xmalloc(n_q * sizeof(float));

    for (int i = 0; i < n_pieces; i++) {
        struct attn_args a = s->a;
        a.split_from = (first + i) % n_pieces * per;
        a.split_to = MIN(a.split_from + per, n);
        memset(scratch, 0xff, n_scratch * sizeof(float));
        memcpy(q, s->q, n_q * sizeof(float));
        a.q = q;
        a.scratch = scratch;
        k->attend(&a);
        memset(q, 0xff, n_q * sizeof(float));
    }
    mem_free(scratch);
    mem_free(q);
}

static struct split_run split_run_new(struct rng *r, const struct seq *s, int n_keys, int n_q)
{
    size_t n = (size_t)attn_n_splits(n_keys) * attn_state_floats(&s->layout, n_q);
    struct split_run p = { .states = xmalloc((n + 16) * sizeof(float)) };

    memset(p.states, 0xff, (n + 16) * sizeof(float));
    p.guard = p.states + n;
    kit_fill(r, p.guard, 16, 1);
    kit_fill(r, p.q, (size_t)(n_q * s->layout.head_dim), n_keys % 3 ? 1 : 8);
    p.a = (struct attn_args){ .layout = &s->layout,
        .arena = s->arena,
        .pages = s->pages,
        .kv_head = s->head,
        .n_rows = 1,
        .n_keys = n_keys,
        .n_q = n_q,
        .scale = 0.3f,
        .states = p.states };
    set_variant(&p.a);
    return p;
}

/* Merged states of single splits equal attention over all keys at once. */
static void merged_splits_equal_attention(const struct kernels *k, const struct kernels *ref)
{
    static const int ends[] = { 1, 31, 511, 512, 513, 770, 1024, 1025, 1300, 1536, 2049, 2100 };
    static float got[17 * 256 + 1], want[17 * 256 + 1];
    struct rng r = { .key = 10 };

    for (int round = 0; round < 60; round++) {
        int dim = choose_shape(round / 5, 2 + 2 * (int)rng_below(&r, round % 7 ? 40 : 128));
        int n_keys = ends[round % 12];
        int n_q = 1 + (int)rng_below(&r, round % 5 ? 9 : 17);
        struct seq s =
            seq_new(&r, k, (enum kv_type)((round + round / 12) % N_KV_TYPES), dim, n_keys);
        choose_variant(round + round / 12);
        struct split_run p = split_run_new(&r, &s, n_keys, n_q);
        float guard[16];

        memcpy(guard, p.guard, sizeof(guard));
        kit_fill(&r, got, ARRAY_LEN(got), 1);
        memcpy(want, got, sizeof(got));
        compute_splits(k, &p, &r);
        p.a.out = got;
        k->attend_merge(&p.a);
        attend(k, &s, n_keys, n_q, p.q, want);
        if (memcmp(got, want, sizeof(got)) || memcmp(guard, p.guard, sizeof(guard))) {
            fprintf(stderr, "%s, type %d, head_dim %d, %d queries, %d keys\n", k->name,
                (int)s.layout.type, dim, n_q, n_keys);
            fail();
        }
        mem_free(p.states);
        seq_free(&s);
    }
    choose_variant(1);
    choose_shape(0, 0);
}

static void merged_splits_equal_attention_in_every_set(void)
{
    merged_splits_equal_attention(kit_ref(), kit_ref());
    kit_each_set(merged_splits_equal_attention);
}

/* Queries that overflow, and keys that are not finite: all sets give the same result. */
static void special_numbers(const struct kernels *k, const struct kernels *ref)
{
    static const float special[] = { INFINITY, -INFINITY, NAN, 1e38f, -1e38f, 70000, 1e-7f,
        0x1p-149f };
    enum { DIM = 32, N = 530, N_Q = 2 };
    struct rng r = { .key = 5 };
    float q[N_Q * DIM], got[N_Q * DIM], want[N_Q * DIM], key[DIM], value[DIM];

    for (int round = 0; round < 40; round++) {
        choose_shape(round / 10, DIM);
        struct seq s = seq_new(&r, k, (enum kv_type)(round / 3 % N_KV_TYPES), DIM, N);
        for (int i = 0; i < round % 4; i++) {
            int pos = (int)rng_below(&r, N);
            kit_fill(&r, key, DIM, 1);
            kit_fill(&r, value, DIM, 1);
            (round % 3 ? key : value)[rng_below(&r, DIM)] =
                special[rng_below(&r, ARRAY_LEN(special))];
            uint8_t *page = s.arena + s.pages[pos / PAGE_TOKENS].i * s.layout.page_bytes;
            struct kv_slot slot = kv_slot_at(&s.layout, page, s.head, pos % PAGE_TOKENS);
            k->kv_append(&slot, key, value);
        }
        kit_fill(&r, q, N_Q * DIM, 1);
        if (round % 5 == 0)
            q[rng_below(&r, N_Q * DIM)] = special[rng_below(&r, ARRAY_LEN(special))];
        for (int n = 1; n <= N; n += 107) {
            attend(k, &s, n, N_Q, q, got);
            attend(ref, &s, n, N_Q, q, want);
            EXPECT(kit_same_floats(got, want, N_Q * DIM));
        }
        seq_free(&s);
    }
    choose_shape(0, 0);
}

/* The longest keys and values, and values that are longer than keys. */
static void largest_dims(const struct kernels *k, const struct kernels *ref)
{
    static const struct {
        int dim, value_dim;
        bool is_latent;
    } rows[] = { { KV_MAX_DIM, 512, true }, { KV_MAX_DIM, KV_MAX_DIM, true }, { 320, 256, true },
        { KV_MAX_DIM, 512, false }, { 30, 70, false } };
    enum { N = 300, N_Q = 8 };
    static float q[N_Q * KV_MAX_DIM], got[N_Q * KV_MAX_DIM], want[N_Q * KV_MAX_DIM];
    struct rng r = { .key = 12 };

    for (size_t i = 0; i < ARRAY_LEN(rows) * N_KV_TYPES; i++) {
        const int at = (int)(i / N_KV_TYPES);
        const size_t n_pages = N / PAGE_TOKENS + 1;
        struct seq s = { .n = N, .head = 1, .pages = xmalloc(n_pages * sizeof(*s.pages)) };

        shape = rows[at].is_latent ? LATENT : SHORT_VALUES;
        s.layout =
            layer_layout((enum kv_type)(i % N_KV_TYPES), 1, rows[at].dim, rows[at].value_dim);
        s.arena = try_aligned(64, n_pages * s.layout.page_bytes);
        EXPECT(s.arena);
        for (int pos = 0; pos < N; pos++) {
            const int page = pos / PAGE_TOKENS;
            struct kv_slot slot = kv_slot_at(
                &s.layout, s.arena + (size_t)page * s.layout.page_bytes, s.head, pos % PAGE_TOKENS);
            s.pages[page].i = (uint32_t)page;
            kit_fill(&r, q, 2 * KV_MAX_DIM, 1);
            k->kv_append(&slot, q, q + KV_MAX_DIM);
        }
        kit_fill(&r, q, ARRAY_LEN(q), 0.3f);
        attend(k, &s, N, N_Q, q, got);
        attend(ref, &s, N, N_Q, q, want);
        if (!kit_same_floats(got, want, (size_t)(N_Q * rows[at].value_dim))) {
            fprintf(stderr, "%s, row %d, type %d\n", k->name, at, (int)s.layout.type);
            fail();
        }
        seq_free(&s);
    }
    choose_shape(0, 0);
}

/* kv_append writes the elements of one token and nothing else, with the same bytes in every set. */
static void append_writes_one_token(const struct kernels *k, const struct kernels *ref)
{
    struct rng r = { .key = 6 };
    float key[128], value[128];

    for (int dim = 2; dim <= 128; dim += 14)
        for (int token = 0; token < PAGE_TOKENS; token++)
            for (int type = KV_F16; type < N_KV_TYPES; type++) {
                const int key_dim = choose_shape(token + dim / 14, dim);
                struct kv_layout l =
                    layer_layout((enum kv_type)type, 1, key_dim, value_dim_of(key_dim));
                uint8_t *a = try_aligned(64, l.page_bytes), *b = try_aligned(64, l.page_bytes);
                EXPECT(a && b);
                for (size_t i = 0; i < l.page_bytes; i++)
                    a[i] = b[i] = (uint8_t)rng_next(&r);
                kit_fill(&r, key, 128, powf(10, (float)(token % 9) - 4));
                kit_fill(&r, value, 128, powf(10, (float)(token % 7) - 3));
                struct kv_slot sa = kv_slot_at(&l, a, 2, token), sb = kv_slot_at(&l, b, 2, token);
                k->kv_append(&sa, key, value);
                ref->kv_append(&sb, key, value);
                EXPECT(!memcmp(a, b, l.page_bytes));
                mem_free(a);
                mem_free(b);
            }
    choose_shape(0, 0);
}

/* The expected result is computed here without pages, as attn.h specifies it for at most one
 * block. */
static void result_is_independent_of_pages(void)
{
    enum { DIM = 16, N = 2 * PAGE_TOKENS + 1 };
    struct rng r = { .key = 7 };
    struct seq s = seq_new(&r, kit_ref(), KV_F16, DIM, N);
    float q[DIM], out[DIM], lane[16] = { 0 }, w[N], max = -INFINITY;

    kit_fill(&r, q, DIM, 1);
    attend(kit_ref(), &s, N, 1, q, out);
    for (int t = 0; t < N; t++) {
        w[t] = 0;
        for (int d = 0; d < DIM; d++)
            w[t] = fmaf(q[d], (float)stored(KV_F16, s.k[t * DIM + d]), w[t]);
        w[t] *= 0.3f;
        max = fmaxf(max, w[t]);
    }
    kit_ref()->softmax(w, w, N, max, 1);
    for (int t = 0; t < N; t++)
        lane[t % 16] += w[t];
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    for (int d = 0; d < DIM; d++) {
        float sum = 0;
        for (int t = 0; t < N; t++)
            sum = fmaf(w[t], (float)stored(KV_F16, s.v[t * DIM + d]), sum);
        EXPECT_EQ(out[d], sum * (1 / lane[0]));
    }
    seq_free(&s);
}

#define FOR_EVERY_SET(what)                                                                        \
    static void what##_in_every_set(void)                                                          \
    {                                                                                              \
        kit_each_set(what);                                                                        \
    }
FOR_EVERY_SET(no_keys_give_zeros)
FOR_EVERY_SET(all_context_lengths)
FOR_EVERY_SET(consecutive_rows_equal_single_rows)
FOR_EVERY_SET(tiny_outputs_of_consecutive_rows)
FOR_EVERY_SET(rows_that_share_a_prefix)
FOR_EVERY_SET(dims_and_groups)
FOR_EVERY_SET(largest_dims)
FOR_EVERY_SET(special_numbers)
FOR_EVERY_SET(append_writes_one_token)

TESTS(TEST(attention_equals_softmax_of_scores_times_values), TEST(no_keys_give_zeros_in_every_set),
    TEST(all_context_lengths_in_every_set), TEST(consecutive_rows_equal_single_rows_in_every_set),
    TEST(tiny_outputs_of_consecutive_rows_in_every_set),
    TEST(rows_that_share_a_prefix_in_every_set), TEST(merged_splits_equal_attention_in_every_set),
    TEST(dims_and_groups_in_every_set), TEST(largest_dims_in_every_set),
    TEST(special_numbers_in_every_set), TEST(append_writes_one_token_in_every_set),
    TEST(result_is_independent_of_pages))
