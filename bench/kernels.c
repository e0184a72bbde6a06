/* kernels: how fast the arithmetic is, beside what the memory and the clock allow.
 *
 *     kernels [--threads N] [--set NAME] [--type NAME] [--rows M] [--csv] [--quick]
 *             [--record FILE | --check FILE]
 *
 * Products: every set x type x number of rows M over a matrix far larger than any cache, split
 * over the threads as a model splits it. GB/s counts bytes of weights; the roof is reading alone,
 * from several places at once, measured in the same run and again for every type (machines with
 * neighbours change from minute to minute). MAC/cycle is per thread, in cycles of the time stamp
 * counter, which is near the nominal clock. A product's percent are of the nearer roof: memory's,
 * or the most multiply-adds that the set's instruction can do (kernels_peak.h). Then the operations
 * on vectors, and attention. The best of several runs counts. Where avxvnni does not run, but
 * AVX-512 does, its twin with that one's encoding stands for it.
 *
 * --record writes the products' percents to a file; --check measures those of a file again and
 * fails when one has fallen by a quarter (kernels_gate.h). On demand: it wants a quiet machine. */
#include "kernels_gate.h"
#include "kernels_peak.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "kernel/acts.h"
#include "kernel/kernels.h"
#include "kernel/quant.h"
#include "kernel/team.h"
#include "kernel/x86_avxvnni_evex.h"
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
    { Q_Q4_K, "Q4_K" },
    { Q_Q5_K, "Q5_K" },
    { Q_Q6_K, "Q6_K" },
    { Q_Q4_1, "Q4_1" },
    { Q_Q5_0, "Q5_0" },
    { Q_Q5_1, "Q5_1" },
    { Q_IQ4_NL, "IQ4_NL" },
    { Q_IQ4_XS, "IQ4_XS" },
    { Q_MXFP4, "MXFP4" },
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

static struct team *team;

/* ---- the roof: one word of every line, from several places in turn */

struct reading {
    const uint8_t *data;
    size_t bytes;
    uint64_t sums[1024];
};

static void read_all(void *arg, int member, int n)
{
    enum { PLACES = 8, TURN = 512 };
    struct reading *r = arg;
    size_t part = r->bytes / (size_t)n / PLACES / TURN * TURN;
    const uint8_t *p = r->data + (size_t)member * part * PLACES;
    uint64_t sum = 0;

    for (size_t at = 0; at < part; at += TURN)
        for (size_t s = 0; s < PLACES; s++)
            for (size_t i = 0; i < TURN; i += 64) {
                uint64_t word;
                memcpy(&word, p + s * part + at + i, sizeof(word));
                sum += word;
            }
    r->sums[member] = sum;
}

static double read_roof(const uint8_t *data, size_t bytes)
{
    static struct reading r;
    double best = 0;

    r.bytes = bytes / 6;
    for (size_t i = 0; i < 24; i++) { /* short runs, as in measure() */
        r.data = data + i % 6 * r.bytes;
        uint64_t t = clock_ns();
        team_run(team, read_all, &r);
        double gbs = (double)r.bytes / (double)(clock_ns() - t);
        best = MAX(best, gbs);
    }
    return best;
}

/* ---- the other roof: multiply-adds per cycle and thread */

struct peak {
    const char *set;
    enum act_kind kind;
    double macs[1024];
};

static void peak_member(void *arg, int member, int n)
{
    struct peak *p = arg;
    p->macs[member] = peak_work(p->set, p->kind);
}

static double mac_roof(const char *set, enum act_kind kind)
{
    static struct peak p;
    double best = 0;

    p.set = set;
    p.kind = kind;
    for (int i = 0; i < 40; i++) {
        uint64_t c = cycles();
        team_run(team, peak_member, &p);
        c = cycles() - c;
        best = MAX(best, p.macs[0] / (double)c);
    }
    return best;
}

/* ---- products */

/* A set, or what runs here with the same instructions in another encoding. */
static bool choose(const struct kernels **out, const char *name)
{
    static struct kernels twin;
    struct err e;

    if (!kernels_choose(out, name, &e))
        return true;
    if (strcmp(name, "avxvnni") || !avxvnni_evex_choose(&twin))
        return false;
    peak_is_evex = true;
    twin.name = "avxvnni";
    *out = &twin;
    return true;
}

struct product {
    const struct kernels *k;
    struct packed w;
    struct acts x;
    float *y;
    int first, n_panels; /* worked on: slow sets get fewer */
};

static void multiply(void *arg, int member, int n)
{
    struct product *p = arg;
    struct packed part = p->w;
    struct gemm_args g = { .w = &part,
        .x = &p->x,
        .panel_from = (int)((int64_t)p->n_panels * member / n),
        .panel_to = (int)((int64_t)p->n_panels * (member + 1) / n),
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

/* A panel of random weights over and over: its values do not matter, its place does. */
static struct packed weights(enum qtype type, size_t want_bytes)
{
    struct rng r = { .key = 1 };
    struct packed w;
    struct err e;
    float *row = aligned(N_COLS * sizeof(float));
    uint8_t *rows = aligned(PANEL * N_COLS * sizeof(float));
    size_t panel = pack_bytes(type, PANEL, N_COLS), row_bytes = 0;
    uint64_t bytes;

    CHECK(qtype_bytes(type, N_COLS, &bytes));
    row_bytes = (size_t)bytes;
    for (int i = 0; i < PANEL; i++) {
        for (int k = 0; k < N_COLS; k++)
            row[k] = (float)(rng_next_unit(&r) - 0.5);
        quant_row(type, row, N_COLS, rows + (size_t)i * row_bytes);
    }
    int n_panels = (int)(want_bytes / panel);
    CHECK(!pack_init(&w, type, n_panels * PANEL, N_COLS, aligned((size_t)n_panels * panel), &e));
    pack_panels(&w, rows, 0, 1);
    for (int p = 1; p < n_panels; p++)
        memcpy(w.data + (size_t)p * panel, w.data, panel);
    mem_free(rows);
    mem_free(row);
    return w;
}

static void prepare(struct product *p, int m, const float *x)
{
    p->x.kind = kernels_acts(p->k, p->w.type);
    p->x.n_rows = m;
    p->x.n_cols = N_COLS;
    p->x.stride = act_row_bytes(p->x.kind, N_COLS);
    for (int i = 0; i < m; i++) {
        uint8_t *to = (uint8_t *)p->x.data + (size_t)i * p->x.stride;
        const float *from = x + (size_t)i * N_COLS;
        kernels_put_acts(p->k, (struct act_cols){ p->x.kind, to, 0 }, from, N_COLS);
    }
}

static void line(const char *set, const char *what, int m, double gbs, double mac, double percent)
{
    printf(opt.csv ? "%s,%s,%d,%.2f,%.2f,%.1f\n" : "%-8s %-10s %5d %9.2f %10.2f %8.1f\n", set, what,
        m, gbs, mac, percent);
    fflush(stdout);
}

struct roofs {
    double gbs, mac; /* mac 0: not known */
};

struct speed {
    double gbs, mac, percent;
};

static double percent_of(struct speed s, struct roofs roof)
{
    return 100 * MAX(s.gbs / roof.gbs, roof.mac > 0 ? s.mac / roof.mac : 0);
}

enum { LEAST_PANELS = 16, REF_PANELS = 64 };

/* How many panels a run takes: for every number of rows about the same work. */
static int run_panels(int all, int m)
{
    return MIN(all, MAX(all / (m <= 8 ? 6 : m), LEAST_PANELS));
}

/* The most outputs a run has. */
static size_t most_outputs(int all)
{
    size_t most = 0;

    for (size_t i = 0; i < ARRAY_LEN(row_counts); i++)
        most = MAX(most, (size_t)MAX(run_panels(all, row_counts[i]), REF_PANELS) * PANEL *
                             (size_t)row_counts[i]);
    return most;
}

/* Many short runs, each over another part of the weights, so that a neighbour's turn on the
 * processor spoils some and not all. Parts are larger than what the caches keep of the last one. */
static struct speed measure(struct product *p, int m, struct roofs roof)
{
    double best = 0, best_mac = 0;
    bool is_ref = !strcmp(p->k->name, "ref");
    int all = p->w.n_panels;

    p->n_panels = is_ref ? REF_PANELS : run_panels(all, m);
    for (int i = 0; i < (is_ref ? 2 : opt.quick ? 12 : 30); i++) {
        p->first = (int)((int64_t)i * p->n_panels % (all - p->n_panels + 1));
        uint64_t t = clock_ns(), c = cycles();
        team_run(team, multiply, p);
        c = cycles() - c;
        t = clock_ns() - t;
        double gbs = (double)p->n_panels * (double)p->w.panel_bytes / (double)t;
        double mac = (double)p->n_panels * PANEL * N_COLS * m / (double)c / opt.threads;
        best = MAX(best, gbs);
        best_mac = MAX(best_mac, mac);
    }
    struct speed s = { best, best_mac, 0 };
    s.percent = percent_of(s, roof);
    return s;
}

static struct roofs roofs_of(const struct product *p)
{
    return (struct roofs){ read_roof(p->w.data, (size_t)p->w.n_panels * p->w.panel_bytes),
        mac_roof(p->k->name, kernels_acts(p->k, p->w.type)) };
}

static struct roofs higher(struct roofs a, struct roofs b)
{
    return (struct roofs){ MAX(a.gbs, b.gbs), MAX(a.mac, b.mac) };
}

/* What is recorded is the best speed of all tries beside the highest roof of them: a neighbour's
 * turn during a roof must not make a kernel look better than it is. What is held against it is the
 * best ratio of a try, each beside its own minute's roof. */
static void bench_product(struct product *p, const char *type, int m, struct roofs roof)
{
    const struct gate_row *was = gate_find(&gate, p->k->name, type, m);
    struct speed s = measure(p, m, roof);

    for (int i = 1; i < GATE_TRIES; i++) {
        if (!opt.record && (!was || gate_holds(was, s.percent)))
            break;
        struct roofs now = roofs_of(p);
        struct speed again = measure(p, m, now);
        if (opt.record) {
            roof = higher(roof, now);
            s.gbs = MAX(s.gbs, again.gbs);
            s.mac = MAX(s.mac, again.mac);
            s.percent = percent_of(s, roof);
        } else if (again.percent > s.percent) {
            s = again;
        }
    }
    line(p->k->name, type, m, s.gbs, s.mac, s.percent);
    gate_note(&gate, p->k->name, type, m, s.percent);
}

static bool is_wanted(const char *set, const char *type, int rows)
{
    if (opt.record && !strcmp(set, "ref")) /* its speed is nobody's concern */
        return false;
    return (!opt.set || !strcmp(opt.set, set)) && (!opt.rows || opt.rows == rows) &&
           (!opt.check || gate_find(&gate, set, type, rows));
}

static bool any_wanted(const char *set, const char *type)
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
        any |= any_wanted(set_names[s], types[t].name);
    if (!any)
        return;

    struct product p = { .w = weights(types[t].type, (opt.quick ? 96 : 256) * MB) };

    p.y = aligned(most_outputs(p.w.n_panels) * sizeof(float));
    p.x.data = aligned((size_t)MAX_M * N_COLS * 5);
    for (size_t s = 0; s < ARRAY_LEN(set_names); s++) {
        if (!any_wanted(set_names[s], types[t].name) || !choose(&p.k, set_names[s]))
            continue;
        struct roofs roof = roofs_of(&p);
        line("roof", types[t].name, 0, roof.gbs, roof.mac, 100);
        for (size_t m = 0; m < ARRAY_LEN(row_counts); m++) {
            if (!is_wanted(set_names[s], types[t].name, row_counts[m]))
                continue;
            prepare(&p, row_counts[m], x);
            bench_product(&p, types[t].name, row_counts[m], roof);
        }
    }
    mem_free(p.w.data);
    mem_free(p.y);
    mem_free(p.x.data);
}

/* ---- vectors of 2048, in the first cache: GB/s of what is read and written */

enum { N_OP = 2048, OP_ROUNDS = 2000 };

struct vectors {
    float a[N_OP], b[N_OP], c[N_OP];
};

static double op_bytes(const struct kernels *k, int which, struct vectors *v)
{
    switch (which) {
    case 0:
        k->rms_norm(v->a, v->b, v->c, N_OP, 1e-5f);
        return 12;
    case 1:
        k->q8_0(v->b, N_OP, v->a);
        return 5.25;
    case 2:
        k->q8_k(v->b, N_OP, v->a);
        return 5.2;
    case 3:
        k->silu_mul(v->a, v->b, v->c, N_OP);
        return 12;
    case 4:
        k->rope(v->b, N_OP / 64, 64, v->c, 64, false);
        return 8;
    case 5:
        k->add(v->a, v->b, N_OP);
        return 12;
    default:
        k->softmax(v->a, v->a, N_OP, 1, 1);
        return 8;
    }
}

static void bench_ops(const struct kernels *k)
{
    static const char *const names[] = { "rms_norm", "q8_0", "q8_k", "silu_mul", "rope", "add",
        "softmax" };
    static ALIGNED(64) struct vectors v;

    for (size_t op = 0; op < ARRAY_LEN(names); op++) {
        double best = 0;
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < N_OP; i++) {
                v.a[i] = (float)(i % 37) / 37;
                v.b[i] = (float)(i % 29) / 29 - 0.5f;
                v.c[i] = (float)(i % 31) / 31;
            }
            uint64_t t = clock_ns();
            double bytes = 0;
            int n = strcmp(k->name, "ref") ? OP_ROUNDS : OP_ROUNDS / 50;
            for (int i = 0; i < n; i++)
                bytes += op_bytes(k, (int)op, &v) * N_OP;
            double gbs = bytes / (double)(clock_ns() - t);
            best = MAX(best, gbs);
        }
        line(k->name, names[op], 0, best, 0, 0);
    }
}

/* ---- attention: one token's query heads over a long context, all kv heads shared out */

struct decode {
    const struct kernels *k;
    struct kv_layout l;
    uint8_t *arena;
    page_id *pages;
    float *q, *out, *scratch;
    int n_keys, n_q;
};

static void decode_heads(void *arg, int member, int n)
{
    struct decode *d = arg;
    size_t dim = (size_t)d->l.head_dim, scratch = attn_scratch_floats(&d->l, d->n_q);

    for (int layer = 0; layer < d->l.n_layers; layer++)
        for (int h = member; h < d->l.n_kv_heads; h += n) {
            struct attn_args a = { .layout = &d->l,
                .arena = d->arena,
                .pages = d->pages,
                .layer = layer,
                .kv_head = h,
                .n_rows = 1,
                .n_keys = d->n_keys,
                .n_q = d->n_q,
                .q = d->q,
                .scale = 0.125f,
                .out = d->out + (size_t)member * (size_t)d->n_q * dim,
                .scratch = d->scratch + (size_t)member * scratch };
            d->k->attend(&a);
        }
}

static void bench_attend(const struct kernels *k, enum kv_type type, int n_q, double roof)
{
    enum { DIM = 64, N_KEYS = 4096, LAYERS = 8, HEADS = 8 };
    struct decode d = { .k = k, .n_keys = N_KEYS, .n_q = n_q };
    int n_pages = N_KEYS / PAGE_TOKENS;
    struct rng r = { .key = 1 };
    double best = 0, best_mac = 0;

    kv_layout_init(&d.l, type, LAYERS, HEADS, DIM);
    size_t bytes = (size_t)n_pages * d.l.page_bytes;
    d.arena = aligned(bytes);
    for (size_t i = 0; i < bytes / 2; i++) /* 0.5 .. 1 in the types of two bytes */
        ((uint16_t *)(void *)d.arena)[i] =
            (uint16_t)((type == KV_BF16 ? 0x3f00 : 0x3800) | (rng_next(&r) & 63));
    d.pages = aligned((size_t)n_pages * sizeof(*d.pages));
    for (int i = 0; i < n_pages; i++)
        d.pages[i].i = (uint32_t)i;
    size_t threads = (size_t)opt.threads, n = (size_t)n_q * DIM;
    d.q = aligned(n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        d.q[i] = (float)(i % 13) / 13 - 0.5f;
    d.out = aligned(n * threads * sizeof(float));
    d.scratch = aligned(attn_scratch_floats(&d.l, n_q) * threads * sizeof(float));
    for (int i = 0; i < (strcmp(k->name, "ref") ? 5 : 1); i++) {
        uint64_t t = clock_ns(), c = cycles();
        team_run(team, decode_heads, &d);
        c = cycles() - c;
        double gbs = (double)bytes / (double)(clock_ns() - t);
        double mac = (double)N_KEYS * DIM * 2 * LAYERS * HEADS * n_q / (double)c / opt.threads;
        best = MAX(best, gbs);
        best_mac = MAX(best_mac, mac);
    }
    static const char *const names[] = { "attend f16", "attend bf16", "attend q8_0" };
    line(k->name, names[type], n_q, best, best_mac, 100 * best / roof);
    mem_free(d.arena);
    mem_free(d.pages);
    mem_free(d.q);
    mem_free(d.out);
    mem_free(d.scratch);
}

static void bench_rest(void)
{
    size_t bytes = 256 * MB;
    uint8_t *data = aligned(bytes);

    memset(data, 1, bytes);
    double roof = read_roof(data, bytes);
    mem_free(data);
    for (size_t s = 0; s < ARRAY_LEN(set_names); s++) {
        const struct kernels *k;
        struct err e;
        if ((opt.set && strcmp(opt.set, set_names[s])) || kernels_choose(&k, set_names[s], &e))
            continue;
        bench_ops(k);
        for (int n_q = 1; n_q <= 8; n_q *= 2) {
            bench_attend(k, KV_F16, n_q, roof);
            bench_attend(k, KV_BF16, n_q, roof);
            bench_attend(k, KV_Q8_0, n_q, roof);
        }
    }
}

static int usage(void)
{
    fprintf(stderr,
        "usage: kernels [--threads N] [--set ref|avx2|avx512|amx]\n"
        "               [--type Q4_0|...|ops] [--rows 1|2|4|8|16|64|512] [--csv] [--quick]\n"
        "               [--record FILE | --check FILE]\n");
    return 2;
}

static int number(const char *s)
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
            opt.threads = number(optarg);
            break;
        case 's':
            opt.set = optarg;
            break;
        case 'y':
            opt.type = optarg;
            break;
        case 'm':
            opt.rows = number(optarg);
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

static bool open_gate(void)
{
    if (opt.record)
        return gate_record(&gate, opt.record, opt.threads);
    return !opt.check || gate_read(&gate, opt.check);
}

int main(int argc, char **argv)
{
    struct err e;

    if (!read_options(argc, argv) || team_open(&team, opt.threads, &e))
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
                 : "set      what        rows      GB/s  MAC/cycle   % roof");
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        if (!opt.type || !strcmp(opt.type, types[t].name))
            bench_type(t, x);
    if (!opt.record && !opt.check && (!opt.type || !strcmp(opt.type, "ops")))
        bench_rest();
    mem_free(x);
    team_close(team);
    return gate_end(&gate);
}
