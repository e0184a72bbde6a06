/* decode: tokens per second of a GGUF by context length and batch, beside the machine's roofs.
 *
 *     decode FILE [--threads N] [--kernels SET] [--ctx 0,1024] [--batch 1,4] [--rows 1,512]
 *                 [--steps N] [--kv-type f16] [--shared] [--csv] [--turns]
 *
 * rows 1 is decoding; more is a chunk of a prompt. --shared: the sequences of a batch have the
 * positions before in common. Roofs are measured before and after each case, the higher counts.
 * --turns: all cases again for every line of the standard input, which is the seed of the tokens,
 * so that two engines can be measured in turns. */
#include "base/mem.h"
#include "testing/bench.h"
#include "model/llama.h"
#include "os/clock.h"
#include "os/thread.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_LIST = 16 };

struct list {
    int n, v[MAX_LIST];
};

struct options {
    const char *path;
    struct llama_options llama;
    struct list ctx, batch, rows;
    int n_steps;
    bool is_csv, is_shared, in_turns;
};

static bool parse_list(const char *text, struct list *out)
{
    struct str s = str_of(text);

    for (out->n = 0; s.n && out->n < MAX_LIST;) {
        ptrdiff_t comma = str_find(s, STR(","));
        struct str one = { s.p, comma < 0 ? s.n : (size_t)comma };
        uint64_t v;
        if (!str_to_u64(one, &v) || v > 1 << 20)
            return false;
        out->v[out->n++] = (int)v;
        s = str_skip(s, comma < 0 ? s.n : (size_t)comma + 1);
    }
    return out->n > 0 && !s.n;
}

static int parse(struct options *o, int argc, char **argv)
{
    static const struct option longs[] = { { "threads", required_argument, NULL, 't' },
        { "kernels", required_argument, NULL, 'k' }, { "ctx", required_argument, NULL, 'c' },
        { "batch", required_argument, NULL, 'b' }, { "rows", required_argument, NULL, 'r' },
        { "steps", required_argument, NULL, 's' }, { "csv", no_argument, NULL, 'v' },
        { "kv-type", required_argument, NULL, 'K' }, { "shared", no_argument, NULL, 'S' },
        { "turns", no_argument, NULL, 'T' }, { 0 } };
    struct list one;
    struct err e;
    bool ok = true;

    for (int c; ok && (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (c == 't' && (ok = parse_list(optarg, &one)))
            o->llama.n_threads = one.v[0];
        else if (c == 's' && (ok = parse_list(optarg, &one)))
            o->n_steps = MAX(one.v[0], 1);
        else if (c == 'c')
            ok = parse_list(optarg, &o->ctx);
        else if (c == 'b')
            ok = parse_list(optarg, &o->batch);
        else if (c == 'r')
            ok = parse_list(optarg, &o->rows);
        else if (c == 'v')
            o->is_csv = true;
        else if (c == 'S')
            o->is_shared = true;
        else if (c == 'T')
            o->in_turns = true;
        else if (c == 'K')
            ok = (o->llama.kv_type = kv_type_named(optarg)) < N_KV_TYPES;
        else if (c == 'k' && kernels_choose(&o->llama.kernels, optarg, &e))
            return fprintf(stderr, "decode: %s\n", e.msg), 1;
        else if (c == '?')
            ok = false;
    }
    if (!ok || optind != argc - 1)
        return fprintf(stderr,
                   "usage: decode FILE [--threads N] [--kernels SET] [--ctx LIST] "
                   "[--batch LIST] [--rows LIST] [--steps N] [--kv-type f16] [--shared] "
                   "[--csv] [--turns]\n"),
               2;
    o->path = argv[optind];
    return 0;
}

typedef int (*case_fn)(const struct bench_case *c, void *arg, struct err *e);

static int each_case(const struct options *o, case_fn fn, void *arg, struct err *e)
{
    for (int r = 0; r < o->rows.n; r++)
        for (int b = 0; b < o->batch.n; b++)
            for (int c = 0; c < o->ctx.n; c++) {
                struct bench_case one = { .n_ctx = o->ctx.v[c],
                    .n_seqs = o->batch.v[b],
                    .n_rows = o->rows.v[r],
                    .n_steps = o->n_steps,
                    .is_shared = o->is_shared };
                if (one.n_rows > 1) /* a chunk takes long enough */
                    one.n_steps = MIN(one.n_steps, 4);
                if (fn(&one, arg, e))
                    return -1;
            }
    return 0;
}

static int add_needs(const struct bench_case *c, void *arg, struct err *e)
{
    struct llama_options *o = arg;
    (void)e;
    o->n_pages = MAX(o->n_pages, bench_pages(c));
    o->max_rows = MAX(o->max_rows, MAX(c->n_rows * c->n_seqs, (int)PAGE_TOKENS));
    o->max_logits = MAX(o->max_logits, c->n_seqs);
    return 0;
}

struct session {
    struct lm *m;
    struct bench_meter *meter;
    uint64_t seed;
    bool is_csv;
};

static int show(const struct bench_case *c, void *arg, struct err *e)
{
    struct session *s = arg;
    struct bench_case seeded = *c;
    struct bench_figure f;

    seeded.seed = s->seed;
    struct bench_roof roof = bench_meter_read(s->meter);
    if (bench_run(&f, s->m, &seeded, &roof, e))
        return -1;
    roof = bench_higher(roof, bench_meter_read(s->meter));
    bench_against(&f, s->m, &roof);
    const char *format =
        s->is_csv ? "%d,%d,%d,%.2f,%.3f,%.2f,%.1f,%.1f,%.1f,%.1f,%.1f,%lld\n"
                  : "%6d %6d %6d %11.1f %9.2f %8.2f %8.1f %6.0f %% %9.1f %9.1f %6.0f %% %6lld\n";
    double compute = s->m->is_integer ? roof.dot_gmac_s : roof.fma_gmac_s;
    printf(format, c->n_rows, c->n_seqs, c->n_ctx, f.tokens_s, f.step_ms, f.gb_s, roof.read_gb_s,
        f.read_share * 100, f.gmac_s, compute, f.compute_share * 100, (long long)f.n_cached);
    fflush(stdout);
    return 0;
}

static bool read_seed(struct session *s, const char *line)
{
    return str_to_u64(str_trim(str_of(line)), &s->seed);
}

static int run(const struct options *o, struct err *e)
{
    struct session s = { .is_csv = o->is_csv, .seed = 1 };
    struct gguf *g = NULL;
    int rc = -1;

    if (gguf_open(&g, o->path, e))
        return -1;
    uint64_t from = clock_ns();
    if (lm_open_llama(&s.m, g, &o->llama, e))
        goto out;
    double load_s = (double)(clock_ns() - from) * 1e-9;
    int n_threads = o->llama.n_threads ? o->llama.n_threads : thread_count_online();
    if (bench_meter_open(&s.meter, n_threads, e))
        goto out;
    if (!o->is_csv)
        printf("%s, %d threads, %.2f GB of weights loaded in %.1f s\n"
               "  rows  batch    ctx    tokens/s   step ms     GB/s     roof    share    GMAC/s"
               "      roof    share cached\n",
            o->path, n_threads, (double)s.m->weight_bytes * 1e-9, load_s);
    else
        printf("rows,batch,ctx,tokens_s,step_ms,gb_s,read_roof_gb_s,read_percent,gmac_s,"
               "compute_roof_gmac_s,compute_percent,cached\n");
    char line[32];
    do
        rc = each_case(o, show, &s, e);
    while (!rc && o->in_turns && fgets(line, sizeof(line), stdin) && read_seed(&s, line));
out:
    bench_meter_close(s.meter);
    if (s.m)
        s.m->ops->close(s.m);
    gguf_close(g);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = {
        .ctx = { 1, { 0 } }, .batch = { 1, { 1 } }, .rows = { 1, { 1 } }, .n_steps = 20
    };
    struct err e;
    int rc = parse(&o, argc, argv);

    if (rc)
        return rc;
    each_case(&o, add_needs, &o.llama, &e);
    if (run(&o, &e)) {
        fprintf(stderr, "decode: %s\n", e.msg);
        return 1;
    }
    return 0;
}
