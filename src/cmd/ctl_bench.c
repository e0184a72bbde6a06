/* ctl_bench.c: `inferctl bench FILE.gguf`: prefill and decode speed by context and batch size, as a
 * share of the measured memory and compute limits of this machine. Runs the model in this process,
 * without a server. */
#include "cmd/ctl_bench.h"
#include "format/gguf.h"
#include "format/model_file.h"
#include "testing/bench.h"
#include "model/llama.h"
#include "os/thread.h"

#include <stdio.h>
#include <unistd.h>

enum { CASES_MAX = 64, LIST_MAX = 8, CHUNK = 256 };

enum output_format { TABLE, CSV, JSON };

struct bench_plan { /* cases to measure */
    const char *path, *kernels;
    int64_t threads;
    int contexts[LIST_MAX], n_contexts;
    int batches[LIST_MAX], n_batches;
    int n_steps;
    enum output_format output_format;
    struct workload_args work; /* name NULL: not requested */
};

struct row {
    const char *phase;
    struct bench_case what;
    struct bench_result got;
};

static bool read_list(const char *text, int *out, int *n)
{
    struct str rest = str_of(text);

    for (*n = 0; rest.n && *n < LIST_MAX;) {
        ptrdiff_t comma = str_find(rest, STR(","));
        struct str one = { rest.p, comma < 0 ? rest.n : (size_t)comma };
        uint64_t v;
        if (!str_to_u64(one, &v) || v > 1 << 20)
            return false;
        out[(*n)++] = (int)v;
        rest = str_skip(rest, one.n + 1);
    }
    return *n > 0 && !rest.n;
}

static bool read_int(const char *text, int most, int *out)
{
    int64_t v;

    if (!str_to_i64(str_of(text), &v) || v < 0 || v > most)
        return false;
    *out = (int)v;
    return true;
}

static void print_help(void)
{
    ctl_printf(
        "usage: inferctl bench [options] FILE.gguf\n\n"
        "Measures prefill speed by context and decode speed by context and batch size, in tokens\n"
        "per second, and the share of this machine's memory bandwidth and compute limit, which\n"
        "are measured first.\n\n"
        "  --contexts A,B    tokens already in the KV cache [0,1024]\n"
        "  --batches A,B     sequences in a batch [1,4,16]\n"
        "  --threads N       compute threads [one per processor]\n"
        "  --kernels SET     auto, ref, avx2, avxvnni, avx512 or amx [auto]\n"
        "  --steps N         timed steps per result [16]\n"
        "  --quick           few steps, small sizes\n"
        "  --csv, --json     machine-readable output\n\n"
        "  --workload NAME   instead: one sequence with and without speculative decoding; edit "
        "(the\n"
        "                    client's prediction is wrong in one token of 16), chat, json, noise\n"
        "                    (unpredictable output) or all; both outputs must be equal\n"
        "  --draft-max N     maximum draft tokens per step [16]\n"
        "  --model-draft F   draft model [none]\n"
        "  --answer N        output tokens, at most 384 [256]\n"
        "  --edit-every N    one token in N of the prediction is wrong [16]\n"
        "  --repeat N        repetitions of each request, with and without drafts [3]\n");
}

enum { N_PLAN_OPTIONS = 9 }; /* options of --workload follow these */

static bool read_workload_option(struct workload_args *w, int option, const char *value)
{
    switch (option) {
    case 0:
        w->name = value;
        return workload_exists(value);
    case 1:
        return read_int(value, 64, &w->draft_max);
    case 2:
        return read_int(value, 384, &w->n_output);
    case 3:
        w->draft = value;
        return true;
    case 4:
        return read_int(value, 1000, &w->edit_every) && w->edit_every > 0;
    default:
        return read_int(value, 10000, &w->n_repeats);
    }
}

/* Returns -1 to continue, else the exit status. */
static int read_args(struct ctl *c, struct bench_plan *p, int argc, char **argv)
{
    static const char *const names[] = { "contexts=", "batches=", "threads=", "kernels=", "steps=",
        "quick", "csv", "json", "help",
        "workload=", "draft-max=", "answer=", "model-draft=", "edit-every=", "repeat=" };
    struct ctl_args a = { .argc = argc, .argv = argv };
    int64_t steps = 16;
    bool ok = true;

    for (int i; ok && (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        switch (i) {
        case 0:
            ok = read_list(a.value, p->contexts, &p->n_contexts);
            break;
        case 1:
            ok = read_list(a.value, p->batches, &p->n_batches) && p->batches[0] > 0;
            break;
        case 2:
            ok = str_to_i64(str_of(a.value), &p->threads) && p->threads > 0 && p->threads <= 1024;
            break;
        case 3:
            p->kernels = a.value;
            break;
        case 4:
            ok = str_to_i64(str_of(a.value), &steps) && steps > 0 && steps <= 10000;
            break;
        case 5:
            p->n_contexts = p->n_batches = 1;
            p->contexts[0] = 0;
            p->batches[0] = 1;
            steps = 3;
            break;
        case 6:
            p->output_format = CSV;
            break;
        case 7:
            c->as_json = true;
            break;
        case 8:
            print_help();
            return EXIT_OK;
        case -2:
            ok = !p->path;
            p->path = a.value;
            break;
        default:
            if (i < N_PLAN_OPTIONS)
                return EXIT_USAGE;
            ok = read_workload_option(&p->work, i - N_PLAN_OPTIONS, a.value);
        }
    }
    if (!ok)
        return ctl_usage("bench: '%s' is not a valid value of this option", a.value);
    if (!p->path)
        return ctl_usage("bench: which file?");
    p->n_steps = (int)steps;
    p->output_format = c->as_json ? JSON : p->output_format;
    return -1;
}

static int list_cases(const struct bench_plan *p, struct row *rows)
{
    int n = 0;

    for (int i = 0; i < p->n_contexts && n < CASES_MAX; i++)
        rows[n++] =
            (struct row){ "prefill", { p->contexts[i], 1, CHUNK, MAX(p->n_steps / 4, 1) }, { 0 } };
    for (int i = 0; i < p->n_contexts; i++)
        for (int j = 0; j < p->n_batches && n < CASES_MAX; j++)
            rows[n++] =
                (struct row){ "decode", { p->contexts[i], p->batches[j], 1, p->n_steps }, { 0 } };
    return n;
}

static void print_row(const struct row *r, enum output_format output_format)
{
    const char *fmt = output_format == CSV
                          ? "%s,%d,%d,%d,%.2f,%.3f,%.2f,%.1f,%.1f,%.1f\n"
                          : "%-8s %7d %6d %6d %10.2f %9.3f %8.2f %8.1f %7.1f%% %7.1f%%\n";

    ctl_printf(fmt, r->phase, r->what.n_ctx, r->what.n_seqs, r->what.n_rows, r->got.tokens_s,
        r->got.step_ms, r->got.gb_s, r->got.gmac_s, 100 * r->got.read_share,
        100 * r->got.compute_share);
    ctl_flush();
}

static void print_head(const struct bench_roof *roof, enum output_format output_format)
{
    if (output_format == CSV)
        ctl_put(STR("phase,context,batch,rows,tokens_s,step_ms,gb_s,gmac_s,memory_percent,"
                    "compute_percent\n"));
    if (output_format != TABLE)
        return;
    ctl_printf("limits: memory %.1f GB/s, int8 %.0f GMAC/s, float %.0f GMAC/s\n\n", roof->read_gb_s,
        roof->dot_gmac_s, roof->fma_gmac_s);
    ctl_printf("%-8s %7s %6s %6s %10s %9s %8s %8s %8s %8s\n", "phase", "context", "batch", "rows",
        "tokens/s", "ms/step", "GB/s", "GMAC/s", "memory", "compute");
}

static void print_json(
    const struct bench_plan *p, const struct bench_roof *roof, const struct row *rows, int n)
{
    struct buf b;
    struct jw w;

    buf_init(&b, MB);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "file"), jw_z(&w, p->path);
    jw_key(&w, "memory_gb_s"), jw_f64(&w, roof->read_gb_s);
    jw_key(&w, "int8_gmac_s"), jw_f64(&w, roof->dot_gmac_s);
    jw_key(&w, "float_gmac_s"), jw_f64(&w, roof->fma_gmac_s);
    jw_key(&w, "figures"), jw_array(&w);
    for (int i = 0; i < n; i++) {
        jw_object(&w);
        jw_key(&w, "phase"), jw_z(&w, rows[i].phase);
        jw_key(&w, "context"), jw_i64(&w, rows[i].what.n_ctx);
        jw_key(&w, "batch"), jw_i64(&w, rows[i].what.n_seqs);
        jw_key(&w, "rows"), jw_i64(&w, rows[i].what.n_rows);
        jw_key(&w, "tokens_s"), jw_f64(&w, rows[i].got.tokens_s);
        jw_key(&w, "step_ms"), jw_f64(&w, rows[i].got.step_ms);
        jw_key(&w, "memory_share"), jw_f64(&w, rows[i].got.read_share);
        jw_key(&w, "compute_share"), jw_f64(&w, rows[i].got.compute_share);
        jw_end_object(&w);
    }
    jw_end_array(&w);
    jw_end_object(&w);
    ctl_printf(STR_FMT "\n", STR_ARG(buf_str(&b)));
    buf_clear(&b);
}

static void draw_loading(void *arg, double share)
{
    const char *path = arg;

    ctl_progress(path, share);
}

static int open_model(
    struct lm **lm, const struct bench_plan *p, const struct row *rows, int n, struct err *e)
{
    struct gguf *g;
    struct llama_options o = { .n_threads = (int)p->threads,
        .n_pages = 1,
        .max_rows = CHUNK,
        .max_logits = 1,
        .progress = isatty(STDERR_FILENO) ? draw_loading : NULL,
        .progress_arg = (void *)(uintptr_t)p->path };

    if (kernels_choose(&o.kernels, p->kernels, e) || model_file_open(&g, p->path, e))
        return -1;
    for (int i = 0; i < n; i++) {
        o.n_pages = MAX(o.n_pages, bench_n_pages(&rows[i].what));
        o.n_states = MAX(o.n_states, bench_n_states(&rows[i].what));
        o.max_rows = MAX(o.max_rows, rows[i].what.n_seqs * rows[i].what.n_rows);
        o.max_logits = MAX(o.max_logits, rows[i].what.n_seqs);
    }
    int rc = lm_open_llama(lm, g, &o, e);
    gguf_close(g);
    return rc ? err_wrap(e, "%s", p->path) : 0;
}

static int measure(const struct bench_plan *p)
{
    struct row rows[CASES_MAX];
    struct bench_roof roof;
    struct lm *lm;
    struct err e;

    int n = list_cases(p, rows);
    if (open_model(&lm, p, rows, n, &e))
        return ctl_fail("%s", e.msg);
    int rc = bench_measure_roof(&roof, (int)p->threads, &e);
    if (!rc && p->output_format != JSON)
        print_head(&roof, p->output_format);
    for (int i = 0; !rc && i < n; i++) {
        rc = bench_run(&rows[i].got, lm, &rows[i].what, &roof, &e);
        if (!rc && p->output_format != JSON)
            print_row(&rows[i], p->output_format);
    }
    lm->ops->close(lm);
    if (rc)
        return ctl_fail("%s", e.msg);
    if (p->output_format == JSON)
        print_json(p, &roof, rows, n);
    return EXIT_OK;
}

struct bench_run {
    const struct bench_plan *bench_plan;
    int rc;
};

static void *run_plan(void *arg)
{
    struct bench_run *r = arg;

    r->rc = r->bench_plan->work.name ? workload_run(&r->bench_plan->work) : measure(r->bench_plan);
    return NULL;
}

int ctl_bench(struct ctl *c, int argc, char **argv)
{
    struct bench_plan p = { .kernels = "auto",
        .work = { .draft_max = -1, .edit_every = 16, .n_repeats = 3 },
        .threads = thread_count_online(),
        .contexts = { 0, 1024 },
        .n_contexts = 2,
        .batches = { 1, 4, 16 },
        .n_batches = 3 };
    struct bench_run run = { .bench_plan = &p };
    pthread_t thread;
    struct err e;

    int rc = read_args(c, &p, argc, argv);
    if (rc >= 0)
        return rc;
    if (p.work.name) {
        p.work.path = p.path;
        p.work.kernels = p.kernels;
        p.work.threads = (int)p.threads;
        p.work.as_json = c->as_json;
    }
    /* a new thread has enough stack for the kernels */
    if (thread_start(&thread, "bench", run_plan, &run, &e))
        return ctl_fail("%s", e.msg);
    pthread_join(thread, NULL);
    return run.rc;
}
