/* decode: benchmark of prefill and decode of a GGUF model by depth and batch size, relative to the
 * roofline (testing/bench.h).
 *
 *     decode FILE [--threads N] [--kernels SET] [--ctx 0,1024] [--batch 1,4] [--rows 1,512]
 *                 [--steps N] [--kv-type f16] [--shared] [--csv] [--turns]
 *
 * --rows is the number of batch rows per sequence and step: 1 is decode, more is a prefill chunk.
 * --shared: the sequences of a batch share the KV of the --ctx positions. The roofs are measured
 * before and after each case; the higher one counts. --turns: repeats all cases for every line of
 * stdin, which is the seed of the tokens, so that bench/compare.py can alternate between two
 * engines. */
#include "base/mem.h"
#include "testing/bench.h"
#include "format/model_file.h"
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
    bool is_csv, is_shared, reads_seeds;
};

static bool parse_list(const char *text, struct list *out)
{
    struct str s = str_of(text);

    for (out->n = 0; s.n && out->n < MAX_LIST;) {
        ptrdiff_t comma = str_find(s, STR(","));
        struct str item = { s.p, comma < 0 ? s.n : (size_t)comma };
        uint64_t v;
        if (!str_to_u64(item, &v) || v > 1 << 20)
            return false;
        out->v[out->n++] = (int)v;
        s = str_skip(s, comma < 0 ? s.n : (size_t)comma + 1);
    }
    return out->n > 0 && !s.n;
}

static int parse_options(struct options *o, int argc, char **argv)
{
    static const struct option long_options[] = { { "threads", required_argument, NULL, 't' },
        { "kernels", required_argument, NULL, 'k' }, { "ctx", required_argument, NULL, 'c' },
        { "batch", required_argument, NULL, 'b' }, { "rows", required_argument, NULL, 'r' },
        { "steps", required_argument, NULL, 's' }, { "csv", no_argument, NULL, 'v' },
        { "kv-type", required_argument, NULL, 'K' }, { "shared", no_argument, NULL, 'S' },
        { "turns", no_argument, NULL, 'T' }, { 0 } };
    struct list item;
    struct err e;
    bool is_ok = true;

    for (int c; is_ok && (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == 't' && (is_ok = parse_list(optarg, &item)))
            o->llama.n_threads = item.v[0];
        else if (c == 's' && (is_ok = parse_list(optarg, &item)))
            o->n_steps = MAX(item.v[0], 1);
        else if (c == 'c')
            is_ok = parse_list(optarg, &o->ctx);
        else if (c == 'b')
            is_ok = parse_list(optarg, &o->batch);
        else if (c == 'r')
            is_ok = parse_list(optarg, &o->rows);
        else if (c == 'v')
            o->is_csv = true;
        else if (c == 'S')
            o->is_shared = true;
        else if (c == 'T')
            o->reads_seeds = true;
        else if (c == 'K')
            is_ok = (o->llama.kv_type = kv_type_by_name(optarg)) < N_KV_TYPES;
        else if (c == 'k' && kernels_choose(&o->llama.kernels, optarg, &e))
            return fprintf(stderr, "decode: %s\n", e.msg), 1;
        else if (c == '?')
            is_ok = false;
    }
    if (!is_ok || optind != argc - 1)
        return fprintf(stderr,
                   "usage: decode FILE [--threads N] [--kernels SET] [--ctx LIST] "
                   "[--batch LIST] [--rows LIST] [--steps N] [--kv-type f16] [--shared] "
                   "[--csv] [--turns]\n"),
               2;
    o->path = argv[optind];
    return 0;
}

typedef int (*case_fn)(const struct bench_case *c, void *arg, struct err *e);

static int for_each_case(const struct options *o, case_fn fn, void *arg, struct err *e)
{
    for (int r = 0; r < o->rows.n; r++)
        for (int b = 0; b < o->batch.n; b++)
            for (int c = 0; c < o->ctx.n; c++) {
                struct bench_case item = { .n_ctx = o->ctx.v[c],
                    .n_seqs = o->batch.v[b],
                    .n_rows = o->rows.v[r],
                    .n_steps = o->n_steps,
                    .is_shared = o->is_shared };
                if (item.n_rows > 1) /* a prefill chunk takes long enough for a measurement */
                    item.n_steps = MIN(item.n_steps, 4);
                if (fn(&item, arg, e))
                    return -1;
            }
    return 0;
}

static int grow_limits(const struct bench_case *c, void *arg, struct err *e)
{
    struct llama_options *o = arg;
    (void)e;
    o->n_pages = MAX(o->n_pages, bench_n_pages(c));
    o->n_states = MAX(o->n_states, bench_n_states(c));
    o->max_rows = MAX(o->max_rows, MAX(c->n_rows * c->n_seqs, (int)PAGE_TOKENS));
    o->max_logits = MAX(o->max_logits, c->n_seqs);
    return 0;
}

struct bench_state {
    struct lm *m;
    struct bench_meter *meter;
    uint64_t seed;
    bool is_csv;
};

static int run_case(const struct bench_case *c, void *arg, struct err *e)
{
    struct bench_state *s = arg;
    struct bench_case seeded = *c;
    struct bench_result f;

    seeded.seed = s->seed;
    struct bench_roof roof = bench_meter_read(s->meter);
    if (bench_run(&f, s->m, &seeded, &roof, e))
        return -1;
    roof = bench_roof_max(roof, bench_meter_read(s->meter));
    bench_set_shares(&f, s->m, &roof);
    const char *format =
        s->is_csv ? "%d,%d,%d,%.2f,%.3f,%.2f,%.1f,%.1f,%.1f,%.1f,%.1f,%lld\n"
                  : "%6d %6d %6d %11.1f %9.2f %8.2f %8.1f %6.0f %% %9.1f %9.1f %6.0f %% %6lld\n";
    double compute = s->m->is_integer ? roof.dot_gmac_s : roof.fma_gmac_s;
    printf(format, c->n_rows, c->n_seqs, c->n_ctx, f.tokens_s, f.step_ms, f.gb_s, roof.read_gb_s,
        f.read_share * 100, f.gmac_s, compute, f.compute_share * 100, (long long)f.n_cached);
    fflush(stdout);
    return 0;
}

static bool read_seed(struct bench_state *s, const char *line)
{
    return str_to_u64(str_trim(str_of(line)), &s->seed);
}

static int run_all(const struct options *o, struct err *e)
{
    struct bench_state s = { .is_csv = o->is_csv, .seed = 1 };
    struct gguf *g = NULL;
    int rc = -1;

    if (model_file_open(&g, o->path, e))
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
        rc = for_each_case(o, run_case, &s, e);
    while (!rc && o->reads_seeds && fgets(line, sizeof(line), stdin) && read_seed(&s, line));
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
    int rc = parse_options(&o, argc, argv);

    if (rc)
        return rc;
    for_each_case(&o, grow_limits, &o.llama, &e);
    if (run_all(&o, &e)) {
        fprintf(stderr, "decode: %s\n", e.msg);
        return 1;
    }
    return 0;
}
