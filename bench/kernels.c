/* kernels: benchmark of the compute kernels, relative to memory bandwidth and peak multiply-adds.
 *
 *     kernels [--threads N] [--set NAME] [--type NAME] [--rows M] [--csv] [--quick]
 *             [--record FILE | --check FILE]
 *
 * GEMM and GEMV: every kernel set x weight type x number of batch rows M, on a matrix that is much
 * larger than all caches and is split over the threads as in a model. GB/s counts the bytes of the
 * weights. The memory roof is the read bandwidth (maximum over several access patterns); it is
 * measured before and after each result, since on a shared machine it changes within seconds.
 * MAC/cycle is per thread, in cycles of the time stamp counter (close to the nominal clock). The
 * percentage refers to the roof that the result is closer to: memory bandwidth, or the peak
 * multiply-adds of the set's instruction (kernels_peak.h). The best of several runs counts. On a
 * CPU that has AVX-512 but not AVX-VNNI, the avxvnni set runs with the EVEX encoding.
 *
 * Vector operations in the L1 cache, on one thread: MAC/cycle counts elements; the roofs are the
 * bandwidth of a vector addition in L1, and one multiply-add per element.
 *
 * Attention over 4,096 keys: "attend" is one batch row (rows = query heads per KV head, GQA),
 * "prompt" a prefill chunk, "shared" sequences that share all keys except the last block (the
 * shared keys are read once).
 *
 * --record writes all percentages to FILE, in the section of this machine. --check repeats the
 * measurements of FILE and fails if a result is below 75 % of its recorded value or is missing
 * (kernels_gate.h). Runs on demand only; requires a machine without other load. */
#include "kernels_gate.h"
#include "kernels_peak.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "kernel/acts.h"
#include "kernel/kernels.h"
#include "testing/synth_blocks.h"
#include "os/thread_pool.h"
#include "../tests/kernel/x86_avxvnni_evex.h"
#include "testing/bench.h"
#include "os/clock.h"
#include "os/thread.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
static uint64_t cycles(void)
{
    return __builtin_ia32_rdtsc();
}
#else
static uint64_t cycles(void)
{
    return clock_ns();
}
#endif

enum { N_COLS = 2048, MAX_M = 512 };

static const struct {
    enum qtype type;
    const char *name;
} types[] = {
    { Q_Q4_0, "Q4_0" },
    { Q_Q8_0, "Q8_0" },
    { Q_Q2_K, "Q2_K" },
    { Q_Q3_K, "Q3_K" },
    { Q_Q4_K, "Q4_K" },
    { Q_Q5_K, "Q5_K" },
    { Q_Q6_K, "Q6_K" },
    { Q_Q4_1, "Q4_1" },
    { Q_Q5_0, "Q5_0" },
    { Q_Q5_1, "Q5_1" },
    { Q_IQ4_NL, "IQ4_NL" },
    { Q_IQ4_XS, "IQ4_XS" },
    { Q_MXFP4, "MXFP4" },
    { Q_IQ2_XXS, "IQ2_XXS" },
    { Q_IQ2_XS, "IQ2_XS" },
    { Q_IQ2_S, "IQ2_S" },
    { Q_IQ3_XXS, "IQ3_XXS" },
    { Q_IQ3_S, "IQ3_S" },
    { Q_IQ1_S, "IQ1_S" },
    { Q_IQ1_M, "IQ1_M" },
    { Q_TQ1_0, "TQ1_0" },
    { Q_TQ2_0, "TQ2_0" },
    { Q_Q1_0, "Q1_0" },
    { Q_Q2_0, "Q2_0" },
    { Q_NVFP4, "NVFP4" },
    { Q_AFFINE4_32, "AFFINE4_32" },
    { Q_AFFINE4_64, "AFFINE4_64" },
    { Q_AFFINE8_32, "AFFINE8_32" },
    { Q_AFFINE8_64, "AFFINE8_64" },
    { Q_FP8_32, "FP8_32" },
    { Q_FP8_128, "FP8_128" },
    { Q_MXFP8, "MXFP8" },
    { Q_AFFINE2_32, "AFFINE2_32" },
    { Q_AFFINE2_64, "AFFINE2_64" },
    { Q_AFFINE3_32, "AFFINE3_32" },
    { Q_AFFINE3_64, "AFFINE3_64" },
    { Q_AFFINE5_32, "AFFINE5_32" },
    { Q_AFFINE5_64, "AFFINE5_64" },
    { Q_AFFINE6_32, "AFFINE6_32" },
    { Q_AFFINE6_64, "AFFINE6_64" },
    { Q_F16, "F16" },
    { Q_BF16, "BF16" },
    { Q_F32, "F32" },
};
static const char *const set_names[] = { "ref", "avx2", "avxvnni", "avx512", "amx" };
static const int row_counts[] = { 1, 2, 4, 8, 16, 64, 512 };

static struct {
    int threads, rows;
    const char *set, *type, *record, *check;
    bool csv, quick;
} opt;

static struct gate gate;

static struct thread_pool *thread_pool;

/* ---- memory roof */

struct read_job {
    const uint8_t *data;
    size_t bytes;
    int way;
    uint64_t sums[1024];
};

static void read_share(void *arg, int thread, int n)
{
    struct read_job *r = arg;
    size_t part = r->bytes / (size_t)n;

    r->sums[thread] = bench_read(r->data + (size_t)thread * part, part, r->way);
}

static double read_roof(const uint8_t *data, size_t bytes)
{
    static struct read_job r;
    double best = 0;

    r.bytes = bytes / 6;
    for (size_t i = 0; i < 24; i++) { /* short runs, as in measure_gemm() */
        r.data = data + i % 6 * r.bytes;
        r.way = (int)i % BENCH_PATTERNS;
        uint64_t t = clock_ns();
        thread_pool_run(thread_pool, read_share, &r);
        double gbs = (double)r.bytes / (double)(clock_ns() - t);
        best = MAX(best, gbs);
    }
    return best;
}

/* ---- compute roof: multiply-adds per cycle and thread */

struct peak {
    const char *set;
    enum act_kind kind;
    double macs[1024];
};

static void peak_thread(void *arg, int thread, int n)
{
    struct peak *p = arg;
    p->macs[thread] = peak_work(p->set, p->kind);
}

static double mac_roof(const char *set, enum act_kind kind)
{
    static struct peak p;
    double best = 0;

    p.set = set;
    p.kind = kind;
    for (int i = 0; i < 40; i++) {
        uint64_t c = cycles();
        thread_pool_run(thread_pool, peak_thread, &p);
        c = cycles() - c;
        best = MAX(best, p.macs[0] / (double)c);
    }
    return best;
}

/* ---- GEMM */

/* Selects a kernel set; avxvnni in EVEX encoding if the CPU has AVX-512 but not AVX-VNNI. */
static bool choose_set(const struct kernels **out, const char *name)
{
    static struct kernels evex_set;
    struct err e;

    if (!kernels_choose(out, name, &e))
        return true;
    if (strcmp(name, "avxvnni") || !avxvnni_evex_choose(&evex_set))
        return false;
    peak_is_evex = true;
    evex_set.name = "avxvnni";
    *out = &evex_set;
    return true;
}

struct gemm_job {
    const struct kernels *k;
    struct packed w;
    struct acts x;
    float *y;
    int first, n_panels; /* panels of this run; slow sets get fewer */
};

static void run_gemm(void *arg, int thread, int n)
{
    struct gemm_job *p = arg;
    struct packed part = p->w;
    struct gemm_args g = { .w = &part,
        .x = &p->x,
        .panel_from = (int)((int64_t)p->n_panels * thread / n),
        .panel_to = (int)((int64_t)p->n_panels * (thread + 1) / n),
        .y = p->y,
        .y_stride = (size_t)p->n_panels * PANEL };

    part.data += (size_t)p->first * part.panel_bytes;
    part.n_panels = p->n_panels;
    part.n_rows = p->n_panels * PANEL;

    p->k->gemm[gemm_slot(p->w.type)](&g);
}

static void *aligned(size_t bytes)
{
    void *p = try_aligned(64, (bytes + 63) / 64 * 64);
    CHECK(p);
    return p;
}

/* One panel of random weights, repeated: the speed depends on the addresses, not on the values. */
static struct packed random_weights(enum qtype type, size_t want_bytes)
{
    struct packed w;
    struct err e;
    uint8_t *rows = aligned(PANEL * N_COLS * sizeof(float));
    size_t panel = pack_bytes(type, PANEL, N_COLS), row_bytes = 0;
    uint64_t bytes;

    CHECK(qtype_bytes(type, N_COLS, &bytes));
    row_bytes = (size_t)bytes;
    synth_blocks(type, 0.3f, 1, 0, rows, PANEL * row_bytes / qtype_info(type)->block_bytes);
    int n_panels = (int)(want_bytes / panel);
    CHECK(!pack_init(&w, type, n_panels * PANEL, N_COLS, aligned((size_t)n_panels * panel), &e));
    pack_panels(&w, rows, 0, 1);
    for (int p = 1; p < n_panels; p++)
        memcpy(w.data + (size_t)p * panel, w.data, panel);
    mem_free(rows);
    return w;
}

static void quantise_acts(struct gemm_job *p, int m, const float *x)
{
    p->x.kind = kernels_act_kind(p->k, p->w.type);
    p->x.n_rows = m;
    p->x.n_cols = N_COLS;
    p->x.stride = act_row_bytes(p->x.kind, N_COLS);
    for (int i = 0; i < m; i++) {
        uint8_t *to = (uint8_t *)p->x.data + (size_t)i * p->x.stride;
        const float *from = x + (size_t)i * N_COLS;
        kernels_quantise_acts(p->k, (struct act_cols){ p->x.kind, to, 0 }, from, N_COLS);
    }
}

static void print_result(
    const char *set, const char *what, int m, double gbs, double mac, double percent)
{
    printf(opt.csv ? "%s,%s,%d,%.2f,%.2f,%.1f\n" : "%-8s %-14s %5d %9.2f %10.2f %8.1f\n", set, what,
        m, gbs, mac, percent);
    fflush(stdout);
}

struct roofs {
    double gbs, mac; /* mac 0: unknown */
};

struct speed {
    double gbs, mac, percent;
};

static double percent_of(struct speed s, struct roofs roof)
{
    return 100 * MAX(s.gbs / roof.gbs, roof.mac > 0 ? s.mac / roof.mac : 0);
}

enum { MIN_PANELS = 16, REF_PANELS = 64 };

/* Panels per run, such that the run time is similar for every number of rows. */
static int panels_per_run(int all, int m)
{
    return MIN(all, MAX(all / (m <= 8 ? 6 : m), MIN_PANELS));
}

/* Maximum number of outputs of a run. */
static size_t max_outputs(int all)
{
    size_t most = 0;

    for (size_t i = 0; i < ARRAY_LEN(row_counts); i++)
        most = MAX(most, (size_t)MAX(panels_per_run(all, row_counts[i]), REF_PANELS) * PANEL *
                             (size_t)row_counts[i]);
    return most;
}

/* Many short runs, so that an interruption by other load affects only some of them. Each run uses
 * a different range of the weights, which is larger than the caches. */
static struct speed measure_gemm(struct gemm_job *p, int m)
{
    double best = 0, best_mac = 0;
    bool is_ref = !strcmp(p->k->name, "ref");
    int all = p->w.n_panels;

    p->n_panels = is_ref ? REF_PANELS : panels_per_run(all, m);
    for (int i = 0; i < (is_ref ? 2 : opt.quick ? 12 : 30); i++) {
        p->first = (int)((int64_t)i * p->n_panels % (all - p->n_panels + 1));
        uint64_t t = clock_ns(), c = cycles();
        thread_pool_run(thread_pool, run_gemm, p);
        c = cycles() - c;
        t = clock_ns() - t;
        double gbs = (double)p->n_panels * (double)p->w.panel_bytes / (double)t;
        double mac = (double)p->n_panels * PANEL * N_COLS * m / (double)c / opt.threads;
        best = MAX(best, gbs);
        best_mac = MAX(best_mac, mac);
    }
    return (struct speed){ best, best_mac, 0 };
}

static struct roofs gemm_roofs(const struct gemm_job *p)
{
    return (struct roofs){ read_roof(p->w.data, (size_t)p->w.n_panels * p->w.panel_bytes),
        mac_roof(p->k->name, kernels_act_kind(p->k, p->w.type)) };
}

/* ---- trials: each relative to the higher of the roofs directly before and after it */

static struct roofs roofs_max(struct roofs a, struct roofs b)
{
    return (struct roofs){ MAX(a.gbs, b.gbs), MAX(a.mac, b.mac) };
}

typedef struct speed (*trial_fn)(void *arg);

static int compare_percent(const void *a, const void *b)
{
    const struct speed *x = a, *y = b;
    return x->percent < y->percent ? -1 : x->percent > y->percent;
}

/* --record: the result is the median of GATE_TRIES trials, so that a trial disturbed by other load
 * does not count. --check: repeats up to GATE_TRIES trials while the last one is too low; the best
 * one counts. Otherwise one trial. */
static void run_trials(const char *set, const char *what, int m, trial_fn fn, void *arg)
{
    const struct gate_row *was = gate_find(&gate, set, what, m);
    struct speed t[GATE_TRIES];
    int n = 0;

    do
        t[n] = fn(arg);
    while (
        ++n < GATE_TRIES && (opt.record || (was && !gate_is_within_limit(was, t[n - 1].percent))));
    qsort(t, (size_t)n, sizeof(*t), compare_percent);
    struct speed s = t[opt.record ? n / 2 : n - 1];
    print_result(set, what, m, s.gbs, s.mac, s.percent);
    gate_add_result(&gate, set, what, m, s.percent);
}

static struct speed try_gemm(void *arg)
{
    struct gemm_job *p = arg;
    struct roofs before = gemm_roofs(p);
    struct speed s = measure_gemm(p, p->x.n_rows);

    s.percent = percent_of(s, roofs_max(before, gemm_roofs(p)));
    return s;
}

static bool is_wanted(const char *set, const char *type, int rows)
{
    if (opt.record && !strcmp(set, "ref")) /* the reference set is not optimised */
        return false;
    return (!opt.set || !strcmp(opt.set, set)) && (!opt.rows || opt.rows == rows) &&
           (!opt.check || gate_find(&gate, set, type, rows));
}

static bool is_any_wanted(const char *set, const char *type)
{
    for (size_t m = 0; m < ARRAY_LEN(row_counts); m++)
        if (is_wanted(set, type, row_counts[m]))
            return true;
    return false;
}

static void bench_type(size_t t, const float *x)
{
    bool any = false;
    for (size_t s = 0; s < ARRAY_LEN(set_names); s++)
        any |= is_any_wanted(set_names[s], types[t].name);
    if (!any)
        return;

    struct gemm_job p = { .w = random_weights(types[t].type, (opt.quick ? 96 : 256) * MB) };

    p.y = aligned(max_outputs(p.w.n_panels) * sizeof(float));
    p.x.data = aligned((size_t)MAX_M * N_COLS * 5);
    for (size_t s = 0; s < ARRAY_LEN(set_names); s++) {
        if (!is_any_wanted(set_names[s], types[t].name) || !choose_set(&p.k, set_names[s]))
            continue;
        struct roofs roof = gemm_roofs(&p);
        print_result("roof", types[t].name, 0, roof.gbs, roof.mac, 100);
        for (size_t m = 0; m < ARRAY_LEN(row_counts); m++) {
            if (!is_wanted(set_names[s], types[t].name, row_counts[m]))
                continue;
            quantise_acts(&p, row_counts[m], x);
            run_trials(p.k->name, types[t].name, row_counts[m], try_gemm, &p);
        }
    }
    mem_free(p.w.data);
    mem_free(p.y);
    mem_free(p.x.data);
}

/* ---- operations on vectors of 2048 elements in the L1 cache: bytes read and written, elements */

enum { N_OP = 2048, OP_ROUNDS = 500, OP_DIM = 64 };

struct vectors {
    ALIGNED(64) float a[N_OP];
    ALIGNED(64) float b[N_OP];
    ALIGNED(64) float c[N_OP];
    ALIGNED(64) uint8_t out[8 * N_OP]; /* blocks of activations */
};

struct op_bench {
    const struct kernels *k;
    void (*run)(const struct kernels *k, struct vectors *v);
    double bytes; /* bytes read and written per element */
    struct kv_layout layout;
    uint8_t *page;
    struct vectors v;
};

static struct op_bench op; /* too large for the stack */

static void op_rms_norm(const struct kernels *k, struct vectors *v)
{
    k->rms_norm(v->a, v->b, v->c, N_OP, 1e-5f);
}

static void op_q8_0(const struct kernels *k, struct vectors *v)
{
    k->q8_0(v->b, N_OP, v->out);
}

static void op_q8_k(const struct kernels *k, struct vectors *v)
{
    k->q8_k(v->b, N_OP, v->out);
}

static void op_planes(const struct kernels *k, struct vectors *v)
{
    k->bf16x2(v->b, N_OP, v->out);
}

static void op_gelu_mul(const struct kernels *k, struct vectors *v)
{
    k->gelu_mul(v->a, v->b, v->c, N_OP);
}

static void op_silu_mul(const struct kernels *k, struct vectors *v)
{
    k->silu_mul(v->a, v->b, v->c, N_OP);
}

static void op_softplus(const struct kernels *k, struct vectors *v)
{
    k->softplus(v->a, v->b, v->c, N_OP);
}

static void op_conv(const struct kernels *k, struct vectors *v)
{
    struct conv_row c = { { v->b, v->b, v->b, v->b }, v->c, 0, NULL, 4, true };

    k->conv(v->a, &c, N_OP);
}

/* A slice of a state, with 32 keys: the state is read and written. */
static void op_delta_rule(const struct kernels *k, struct vectors *v)
{
    enum { KEYS = N_OP / STATE_COLS };
    float *out = (float *)(void *)v->out;
    struct state_update last = { v->b, v->b + KEYS, 0.5f };
    struct state_row row = { v->a, v->a, KEYS, STATE_COLS, &last, 1, v->b, v->c, v->b, 0.5f, 0.5f,
        out, out + STATE_COLS };

    k->delta_rule(&row);
}

static void op_rope(const struct kernels *k, struct vectors *v)
{
    k->rope(v->b, N_OP / OP_DIM, OP_DIM, v->c, OP_DIM, false);
}

static void op_add(const struct kernels *k, struct vectors *v)
{
    k->add(v->a, v->b, N_OP);
}

static void op_add_scaled(const struct kernels *k, struct vectors *v)
{
    k->add_scaled(v->a, 1e-3f, v->b, N_OP);
}

static void op_softmax(const struct kernels *k, struct vectors *v)
{
    k->softmax(v->a, v->b, N_OP, 1, 1);
}

static void op_max(const struct kernels *k, struct vectors *v)
{
    v->a[0] = k->max(v->b, N_OP);
}

/* One half of the elements are keys, the other half values. */
static void op_kv_append(const struct kernels *k, struct vectors *v)
{
    for (int i = 0; i < N_OP / 2 / OP_DIM; i++) {
        struct kv_slot slot = kv_slot_at(&op.layout, op.page, 0, i % PAGE_TOKENS);
        k->kv_append(&slot, v->b + i * OP_DIM, v->c + i * OP_DIM);
    }
}

/* GB/s and elements per cycle of the operation, or of this set's roof. */
static struct speed op_speed(int n_rounds, bool is_roof)
{
    double bytes = 0;
    uint64_t t = clock_ns(), c = cycles();

    for (int i = 0; i < n_rounds; i++)
        if (is_roof) {
            bytes += peak_l1(op.k->name, op.v.a, op.v.b, N_OP);
        } else {
            op.run(op.k, &op.v);
            bytes += op.bytes * N_OP;
        }
    c = cycles() - c;
    t = clock_ns() - t;
    return (struct speed){ bytes / (double)t, (double)n_rounds * N_OP / (double)c, 0 };
}

static struct speed try_op(void *arg)
{
    const int n = strcmp(op.k->name, "ref") ? OP_ROUNDS : OP_ROUNDS / 20;
    struct speed best = { 0 };
    struct roofs roof = { 0, mac_roof(op.k->name, ACT_F32) };

    (void)arg;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < N_OP; i++) {
            op.v.a[i] = (float)(i % 37) / 37;
            op.v.b[i] = (float)(i % 29) / 29 - 0.5f;
            op.v.c[i] = (float)(i % 31) / 31;
        }
        roof.gbs = MAX(roof.gbs, op_speed(n, true).gbs);
        struct speed s = op_speed(n, false);
        best.gbs = MAX(best.gbs, s.gbs);
        best.mac = MAX(best.mac, s.mac);
    }
    best.percent = percent_of(best, roof);
    return best;
}

static void bench_op(const struct kernels *k, const char *name, double bytes,
    void (*run)(const struct kernels *k, struct vectors *v))
{
    if (!is_wanted(k->name, name, 0))
        return;
    op.k = k;
    op.run = run;
    op.bytes = bytes;
    run_trials(k->name, name, 0, try_op, NULL);
}

static void bench_ops(const struct kernels *k)
{
    static const char *const names[] = { "kv_append f16", "kv_append bf16", "kv_append q8_0" };

    bench_op(k, "rms_norm", 12, op_rms_norm);
    bench_op(k, "q8_0", 5.25, op_q8_0);
    bench_op(k, "q8_k", 5.2, op_q8_k);
    bench_op(k, "bf16x2", 8, op_planes);
    bench_op(k, "silu_mul", 12, op_silu_mul);
    bench_op(k, "gelu_mul", 12, op_gelu_mul);
    bench_op(k, "softplus", 12, op_softplus);
    bench_op(k, "conv", 36, op_conv);
    bench_op(k, "delta_rule", 8, op_delta_rule);
    bench_op(k, "rope", 8, op_rope);
    bench_op(k, "add", 12, op_add);
    bench_op(k, "add_scaled", 12, op_add_scaled);
    bench_op(k, "softmax", 8, op_softmax);
    bench_op(k, "max", 4, op_max);
    for (int type = 0; type < N_KV_TYPES; type++) {
        kv_layout_init(&op.layout, (enum kv_type)type, 1, OP_DIM);
        op.page = aligned(op.layout.page_bytes);
        memset(op.page, 0, op.layout.page_bytes);
        bench_op(k, names[type], type == KV_Q8_0 ? 5.0625 : 6, op_kv_append);
        mem_free(op.page);
    }
}

/* ---- attention over a long context, KV heads distributed over the threads */

enum { AT_DIM = 64, AT_KEYS = 4096, AT_LAYERS = 8, AT_HEADS = 8, AT_ROWS = 64 };
enum way { ONE_ROW, PROMPT, SHARED };

struct attention {
    const struct kernels *k;
    enum way way;
    struct kv_layout l[AT_LAYERS];
    uint8_t *arena, *cold; /* cold: buffer for the memory roof */
    page_id *pages;
    struct attn_row list[AT_ROWS];
    float *q, *out, *scratch;
    int n_rows, n_q;
};

enum { COLD_BYTES = 128 * 1024 * 1024 };

/* With many rows one layer takes long enough for a measurement. */
static int n_layers_of(const struct attention *d)
{
    return d->way == ONE_ROW ? AT_LAYERS : 1;
}

static void run_attention(void *arg, int thread, int n)
{
    struct attention *d = arg;
    size_t row = (size_t)d->n_q * AT_DIM, scratch = attn_scratch_floats(d->l, d->n_q);

    for (int layer = 0; layer < n_layers_of(d); layer++)
        for (int h = thread; h < d->l[0].n_kv_heads; h += n) {
            struct attn_args a = { .layout = &d->l[layer],
                .arena = d->arena,
                .pages = d->pages,
                .kv_head = h,
                .n_rows = d->n_rows,
                .n_keys = d->way == PROMPT ? AT_KEYS - d->n_rows + 1 : AT_KEYS,
                .n_q = d->n_q,
                .q = d->q,
                .scale = 0.125f,
                .out = d->out + (size_t)thread * row * AT_ROWS,
                .q_stride = row,
                .out_stride = row,
                .scratch = d->scratch + (size_t)thread * scratch };
            if (d->way == SHARED) {
                a.rows = d->list;
                a.n_shared = AT_KEYS - KV_BLOCK;
            }
            d->k->attend(&a);
        }
}

/* Activation kind that determines the compute roof: that of most of the multiply-adds. */
static enum act_kind attention_kind(const struct attention *d)
{
    if (d->l[0].type == KV_Q8_0)
        return ACT_Q8_0;
    return d->l[0].type == KV_BF16 ? ACT_BF16X2 : ACT_F32;
}

static struct roofs attention_roofs(const struct attention *d)
{
    return (
        struct roofs){ read_roof(d->cold, COLD_BYTES), mac_roof(d->k->name, attention_kind(d)) };
}

static struct speed try_attention(void *arg)
{
    struct attention *d = arg;
    double bytes =
        (double)AT_KEYS / PAGE_TOKENS * (double)d->l[0].page_bytes * n_layers_of(d) / AT_LAYERS;
    double keys = AT_KEYS - (d->way == PROMPT ? (d->n_rows - 1) / 2.0 : 0);
    double macs = keys * AT_DIM * 2 * n_layers_of(d) * AT_HEADS * d->n_q * d->n_rows;
    struct roofs before = attention_roofs(d);
    struct speed best = { 0 };

    if (d->way == SHARED) /* the last block is read once per sequence, although it is the same */
        bytes *= 1 + (double)(d->n_rows - 1) * KV_BLOCK / AT_KEYS;
    for (int i = 0; i < (strcmp(d->k->name, "ref") ? 4 : 1); i++) {
        uint64_t t = clock_ns(), c = cycles();
        thread_pool_run(thread_pool, run_attention, d);
        c = cycles() - c;
        t = clock_ns() - t;
        best.gbs = MAX(best.gbs, bytes / (double)t);
        best.mac = MAX(best.mac, macs / (double)c / opt.threads);
    }
    best.percent = percent_of(best, roofs_max(before, attention_roofs(d)));
    return best;
}

static void open_attention(struct attention *d, enum kv_type type)
{
    struct rng r = { .key = 1 };
    int n_pages = AT_KEYS / PAGE_TOKENS;
    size_t threads = (size_t)opt.threads, n = (size_t)8 * AT_DIM * AT_ROWS;

    struct kv_layout *layers[AT_LAYERS];

    for (int i = 0; i < AT_LAYERS; i++) {
        kv_layout_init(&d->l[i], type, AT_HEADS, AT_DIM);
        layers[i] = &d->l[i];
    }
    size_t bytes = (size_t)n_pages * kv_layout_place(layers, AT_LAYERS);
    d->arena = aligned(bytes);
    for (size_t i = 0; i < bytes / 2; i++) /* values 0.5 .. 1 in the 16-bit types */
        ((uint16_t *)(void *)d->arena)[i] =
            (uint16_t)((type == KV_BF16 ? 0x3f00 : 0x3800) | (rng_next(&r) & 63));
    d->pages = aligned((size_t)n_pages * sizeof(*d->pages));
    for (int i = 0; i < n_pages; i++)
        d->pages[i].i = (uint32_t)i;
    for (int i = 0; i < AT_ROWS; i++)
        d->list[i] = (struct attn_row){ d->pages, AT_KEYS, i };
    d->q = aligned(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        d->q[i] = (float)(i % 13) / 13 - 0.5f;
    d->out = aligned(n * threads * sizeof(float));
    d->scratch = aligned(attn_scratch_floats(d->l, 8) * threads * sizeof(float));
}

static void close_attention(struct attention *d)
{
    mem_free(d->arena);
    mem_free(d->pages);
    mem_free(d->q);
    mem_free(d->out);
    mem_free(d->scratch);
}

static void bench_way(struct attention *d, enum way way, int n_rows, int n_q)
{
    static const char *const ways[] = { "attend", "prompt", "shared" };
    static const char *const types_of[] = { "f16", "bf16", "q8_0" };
    char what[16];
    int rows = way == ONE_ROW ? n_q : n_rows;

    snprintf(what, sizeof(what), "%s %s", ways[way], types_of[d->l[0].type]);
    if (!is_wanted(d->k->name, what, rows))
        return;
    d->way = way;
    d->n_rows = n_rows;
    d->n_q = n_q;
    run_trials(d->k->name, what, rows, try_attention, d);
}

static void bench_attention(const struct kernels *k, uint8_t *cold)
{
    for (int type = 0; type < N_KV_TYPES; type++) {
        struct attention d = { .k = k, .cold = cold };
        open_attention(&d, (enum kv_type)type);
        for (int n_q = 1; n_q <= 8; n_q *= 2)
            bench_way(&d, ONE_ROW, 1, n_q);
        if (strcmp(k->name, "ref")) {
            bench_way(&d, PROMPT, AT_ROWS, 4);
            bench_way(&d, SHARED, attn_max_rows(4), 4);
        }
        close_attention(&d);
    }
}

static void bench_ops_and_attention(void)
{
    uint8_t *cold = aligned(COLD_BYTES);

    memset(cold, 1, COLD_BYTES);
    for (size_t s = 0; s < ARRAY_LEN(set_names); s++) {
        const struct kernels *k;
        if ((opt.set && strcmp(opt.set, set_names[s])) || !choose_set(&k, set_names[s]))
            continue;
        if (!strcmp(k->name, "avxvnni")) /* defines only GEMM kernels */
            continue;
        bench_ops(k);
        bench_attention(k, cold);
    }
    mem_free(cold);
}

static int usage(void)
{
    fprintf(stderr, "usage: kernels [--threads N] [--set ref|avx2|avx512|amx]\n"
                    "               [--type Q4_0|...|ops] [--rows M] [--csv] [--quick]\n"
                    "               [--record FILE | --check FILE]\n");
    return 2;
}

static int parse_count(const char *s)
{
    int64_t v;
    return str_to_i64(str_of(s), &v) && v > 0 && v <= 1024 ? (int)v : 0;
}

static bool read_options(int argc, char **argv)
{
    static const struct option options[] = { { "threads", 1, NULL, 't' }, { "set", 1, NULL, 's' },
        { "type", 1, NULL, 'y' }, { "rows", 1, NULL, 'm' }, { "csv", 0, NULL, 'c' },
        { "record", 1, NULL, 'R' }, { "check", 1, NULL, 'C' }, { "quick", 0, NULL, 'q' }, { 0 } };

    opt.threads = thread_count_online();
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) >= 0;)
        switch (c) {
        case 't':
            opt.threads = parse_count(optarg);
            break;
        case 's':
            opt.set = optarg;
            break;
        case 'y':
            opt.type = optarg;
            break;
        case 'm':
            opt.rows = parse_count(optarg);
            break;
        case 'c':
            opt.csv = true;
            break;
        case 'q':
            opt.quick = true;
            break;
        case 'R':
            opt.record = optarg;
            break;
        case 'C':
            opt.check = optarg;
            break;
        default:
            return false;
        }
    return optind == argc && !(opt.record && opt.check);
}

/* Reports whether the options select a recorded result. */
static bool matches_options(const struct gate_row *r)
{
    bool is_product = false;

    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        is_product |= !strcmp(types[t].name, r->what);
    return (!opt.set || !strcmp(opt.set, r->set)) && (!opt.rows || opt.rows == r->rows) &&
           (!opt.type || !strcmp(opt.type, is_product ? r->what : "ops"));
}

static bool open_gate(void)
{
    if (opt.record)
        return gate_record(&gate, opt.record, opt.threads);
    if (!opt.check)
        return true;
    if (!gate_read(&gate, opt.check, opt.threads))
        return false;
    gate_check_machine(&gate, opt.threads);
    gate_select(&gate, matches_options);
    for (size_t s = 0; s < ARRAY_LEN(set_names); s++) {
        const struct kernels *k;
        if (!choose_set(&k, set_names[s]))
            gate_set_unavailable(&gate, set_names[s]);
    }
    return true;
}

int main(int argc, char **argv)
{
    struct err e;

    if (!read_options(argc, argv) || thread_pool_open(&thread_pool, opt.threads, &e))
        return usage();
    if (!open_gate()) {
        fprintf(stderr, "kernels: cannot use %s\n", opt.record ? opt.record : opt.check);
        return 2;
    }

    float *x = aligned((size_t)MAX_M * N_COLS * sizeof(float));
    struct rng r = { .key = 2 };
    for (size_t i = 0; i < (size_t)MAX_M * N_COLS; i++)
        x[i] = (float)(rng_next_unit(&r) - 0.5);
    puts(opt.csv ? "set,what,rows,gb_per_s,mac_per_cycle,percent_of_roof"
                 : "set      what            rows      GB/s  MAC/cycle   % roof");
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        if (!opt.type || !strcmp(opt.type, types[t].name))
            bench_type(t, x);
    if (!opt.type || !strcmp(opt.type, "ops"))
        bench_ops_and_attention();
    mem_free(x);
    thread_pool_close(thread_pool);
    return gate_end(&gate);
}
