/* ctl_replay.c: `inferctl replay TRACE.csv`: replays a trace of arrivals in the scheduler with a
 * model that only takes simulated time (an hour of traffic in a second or two), or against a
 * server. */
#include "cmd/ctl_replay.h"
#include "base/mem.h"
#include "os/mapfile.h"

#include <stdio.h>

enum { ROWS_MAX = 4000000, COLUMNS = 6 };

enum number_option {
    FIXED_US,
    ROW_US,
    KEY_NS,
    BATCH,
    CHUNK,
    CTX,
    KV_TOKENS,
    MIXED_STEP_PERCENT,
    MIXED_STEP_PERCENT_SHORT,
    TIMESLICE,
    DEADLINE,
    MAX_OPEN,
    SPEED,
    N_NUMBERS
};

struct replay_job {
    const char *path;
    struct replay_options setup;
    bool is_live, is_given[N_NUMBERS];
    struct live_setup live;
    double speed; /* factor by which arrivals are faster than in the trace */
    struct replay_request *rows;
    int n;
};

static const char help[] =
    "usage: inferctl replay [options] TRACE.csv\n\n"
    "Replays a trace of request arrivals in the scheduler and prints the latencies: time to first\n"
    "token, time between tokens, requests finished before their deadline, prefix-cache hit rate.\n"
    "The model is simulated: a step takes --fixed-us, plus --row-us per batch row, plus --key-ns\n"
    "per position that a row attends to.\n\n"
    "A line of the trace: seconds,prompt tokens,output tokens[,prefix[,tenant[,priority]]].\n"
    "Requests with the same prefix (any word) share their first tokens, up to the length of the\n"
    "shorter prompt. A first line with column names is skipped.\n\n"
    "  --fixed-us N --row-us N --key-ns N   duration of a step [20000, 500, 30]\n"
    "  --batch N           maximum sequences in a batch [16]\n"
    "  --chunk N           maximum prefill tokens of one request in a step [512]\n"
    "  --ctx N             maximum tokens of a prompt and its output [131072]\n"
    "  --kv-tokens N       size of the KV cache, in tokens [1048576]\n"
    "  --mixed-step-percent P   as inferfluxd --mixed-step-percent [140]\n"
    "  --mixed-step-percent-short P   as inferfluxd --mixed-step-percent-short [350]\n"
    "  --timeslice N       as inferfluxd --fairness-timeslice [0]\n"
    "  --deadline S        time limit of a request, in seconds; 0 = none [0]\n"
    "  --speed X           factor by which arrivals are faster [1]\n"
    "  --no-prefix-cache   disable the prefix cache\n"
    "  --live              send the requests to the server of --url at their arrival times, then\n"
    "                      simulate with the step times, batch and context that the server "
    "reports,\n"
    "                      except for values given here\n"
    "  --keys K1,K2        with --live: API keys that the tenants of the trace use in turn\n"
    "  --open N            with --live: maximum concurrent requests; others wait [1000]\n"
    "  --json              machine-readable output\n";

/* ---- the trace */

static uint64_t hash_of(struct str s)
{
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 1099511628211u;
    return s.n ? (h ? h : 1) : 0;
}

static int split_columns(struct str line, struct str out[COLUMNS])
{
    int n = 0;

    for (;;) {
        ptrdiff_t comma = str_find(line, STR(","));
        size_t len = comma < 0 ? line.n : (size_t)comma;
        if (n == COLUMNS)
            return -1;
        out[n++] = str_trim((struct str){ line.p, len });
        if (comma < 0)
            return n;
        line = str_skip(line, len + 1);
    }
}

static bool to_int(struct str s, int *out)
{
    int64_t v;

    if (!str_to_i64(s, &v) || v < INT32_MIN || v > INT32_MAX)
        return false;
    *out = (int)v;
    return true;
}

static bool parse_line(struct str line, struct replay_request *row)
{
    struct str c[COLUMNS] = { 0 };
    int n = split_columns(line, c);

    *row = (struct replay_request){ 0 };
    if (n < 3 || !str_to_f64(c[0], &row->at_s) || !to_int(c[1], &row->n_prompt) ||
        !to_int(c[2], &row->n_out) || (n > 5 && c[5].n && !to_int(c[5], &row->priority)))
        return false;
    row->prefix = hash_of(c[3]);
    row->tenant = hash_of(c[4]);
    return true;
}

static int parse_trace(struct replay_job *j, struct str text, struct err *e)
{
    size_t cap = 0;

    for (int line_no = 1; text.n; line_no++) {
        ptrdiff_t nl = str_find(text, STR("\n"));
        struct str line = str_trim((struct str){ text.p, nl < 0 ? text.n : (size_t)nl });
        text = str_skip(text, nl < 0 ? text.n : (size_t)nl + 1);
        struct replay_request row;
        if (!line.n)
            continue;
        if (!parse_line(line, &row)) {
            if (line_no == 1)
                continue; /* column names */
            return err_set(e, ERR_SYNTAX,
                "%s:%d: expected seconds,prompt,output[,prefix[,tenant[,priority]]]", j->path,
                line_no);
        }
        if (j->n == ROWS_MAX)
            return err_set(e, ERR_TOO_LARGE, "%s: more than %d requests", j->path, ROWS_MAX);
        if ((size_t)j->n == cap) {
            cap = cap ? 2 * cap : 1024;
            j->rows = xrealloc(j->rows, cap * sizeof(*j->rows));
        }
        row.at_s /= j->speed;
        j->rows[j->n++] = row;
    }
    return 0;
}

static int read_trace(struct replay_job *j, struct err *e)
{
    struct mapfile f;

    if (mapfile_open(&f, j->path, e))
        return -1;
    int rc = parse_trace(j, (struct str){ (const char *)f.p, f.n }, e);
    mapfile_close(&f);
    return rc;
}

/* ---- results */

static void print_times(const char *what, const struct replay_quantiles *t)
{
    ctl_printf("%-16s p50 %9.4f s   p90 %9.4f s   p99 %9.4f s   max %9.4f s\n", what, t->p50,
        t->p90, t->p99, t->max);
}

static void print_result(const struct replay_result *r)
{
    ctl_printf("%d requests in %.1f s: %d done, %d refused, %d dropped, %d late, %d failed\n", r->n,
        r->span_s, r->n_done, r->n_refused, r->n_dropped, r->n_late, r->n_failed);
    ctl_printf("goodput          %.2f requests/s, %.1f tokens/s\n", r->requests_s, r->tokens_s);
    print_times("to first token", &r->ttft);
    print_times("between tokens", &r->itl);
    ctl_printf("prefix cache     %.1f %% of the prompt tokens\n", 100 * r->hit_rate);
    if (r->steps)
        ctl_printf("steps            %llu, %llu preemptions\n", (unsigned long long)r->steps,
            (unsigned long long)r->preemptions);
}

static void put_times(struct jw *w, const char *key, const struct replay_quantiles *t)
{
    jw_key(w, key), jw_object(w);
    jw_key(w, "p50"), jw_f64(w, t->p50);
    jw_key(w, "p90"), jw_f64(w, t->p90);
    jw_key(w, "p99"), jw_f64(w, t->p99);
    jw_key(w, "max"), jw_f64(w, t->max);
    jw_end_object(w);
}

/* Writes the members of an object; the caller opens and closes it. */
static void put_result(struct jw *w, const struct replay_result *r)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = { { "requests", r->n }, { "done", r->n_done }, { "refused", r->n_refused },
        { "dropped", r->n_dropped }, { "late", r->n_late }, { "failed", r->n_failed },
        { "seconds", r->span_s }, { "goodput_requests_s", r->requests_s },
        { "goodput_tokens_s", r->tokens_s }, { "hit_rate", r->hit_rate },
        { "steps", (double)r->steps }, { "preemptions", (double)r->preemptions } };

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        jw_key(w, numbers[i].key), jw_f64(w, numbers[i].value);
    put_times(w, "ttft_s", &r->ttft);
    put_times(w, "inter_token_s", &r->itl);
}

/* live NULL: only the simulator's result. */
static void print_json(const struct replay_result *r, const struct live_result *live)
{
    struct buf b;
    struct jw w;

    buf_init(&b, 64 * KB);
    jw_init(&w, &b);
    jw_object(&w);
    if (live) {
        jw_key(&w, "server"), jw_object(&w);
        put_result(&w, &live->all);
        put_times(&w, "refused_s", &live->refused);
        jw_end_object(&w);
        jw_key(&w, "simulator"), jw_object(&w);
    }
    put_result(&w, r);
    if (live)
        jw_end_object(&w);
    jw_end_object(&w);
    ctl_printf(STR_FMT "\n", STR_ARG(buf_str(&b)));
    buf_clear(&b);
}

/* ---- the command */

static int read_number(struct replay_job *j, enum number_option which, double v)
{
    static const struct {
        double least, most;
    } limits[N_NUMBERS] = { [FIXED_US] = { 0, 1e9 },
        [ROW_US] = { 0, 1e9 },
        [KEY_NS] = { 0, 1e9 },
        [BATCH] = { 1, 1024 },
        [CHUNK] = { 1, 65536 },
        [CTX] = { 2, 1 << 24 },
        [KV_TOKENS] = { 0, 1e9 },
        [MIXED_STEP_PERCENT] = { 0, 100000 },
        [MIXED_STEP_PERCENT_SHORT] = { 0, 100000 },
        [TIMESLICE] = { 0, FAIRNESS_SLICE_MAX },
        [DEADLINE] = { 0, 1e9 },
        [MAX_OPEN] = { 1, 100000 },
        [SPEED] = { 1e-9, 1e9 } };
    struct engine_options *o = &j->setup.engine;

    if (!(v >= limits[which].least && v <= limits[which].most))
        return -1;
    j->is_given[which] = true;
    switch (which) {
    case FIXED_US:
        j->setup.cost.fixed = v * 1e3;
        return 0;
    case ROW_US:
        j->setup.cost.per_row = v * 1e3;
        return 0;
    case KEY_NS:
        j->setup.cost.per_key = v;
        return 0;
    case BATCH:
        o->max_batch = o->max_sequences = (int)v;
        return 0;
    case CHUNK:
        o->prefill_chunk = (int)v;
        return 0;
    case CTX:
        j->setup.n_ctx = (int)v;
        return 0;
    case KV_TOKENS:
        j->setup.n_pages = (uint32_t)(v / PAGE_TOKENS) + 1;
        return 0;
    case MIXED_STEP_PERCENT:
        o->mixed_step_percent = (int)v;
        return v == 0 || v >= 100 ? 0 : -1;
    case MIXED_STEP_PERCENT_SHORT:
        o->mixed_step_percent_short = (int)v;
        return v == 0 || v >= 100 ? 0 : -1;
    case TIMESLICE:
        o->fairness.max_timeslice_tokens = (int)v;
        return 0;
    case DEADLINE:
        j->setup.deadline_s = j->live.deadline_s = v;
        return 0;
    case MAX_OPEN:
        j->live.max_open = (int)v;
        return 0;
    case SPEED:
        j->speed = v;
        return 0;
    case N_NUMBERS:
        break;
    }
    return -1;
}

static int read_arguments(struct replay_job *j, struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = { "fixed-us=", "row-us=", "key-ns=", "batch=", "chunk=",
        "ctx=", "kv-tokens=", "mixed-step-percent=", "mixed-step-percent-short=", "timeslice=",
        "deadline=", "open=", "speed=", "no-prefix-cache", "json", "live", "keys=", "help" };
    struct ctl_args a = { .argc = argc, .argv = argv };

    for (int i; (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        double v;
        if (i == -3)
            return EXIT_USAGE;
        if (i == -2 && j->path)
            return ctl_usage("replay: one trace at a time");
        if (i == -2)
            j->path = a.value;
        else if (i == N_NUMBERS)
            j->setup.engine.prefix_cache = false;
        else if (i == N_NUMBERS + 1)
            c->as_json = true;
        else if (i == N_NUMBERS + 2)
            j->is_live = true;
        else if (i == N_NUMBERS + 3)
            j->live.keys = a.value;
        else if (i == N_NUMBERS + 4)
            return ctl_put(str_of(help)), -1;
        else if (!str_to_f64(str_of(a.value), &v) || read_number(j, (enum number_option)i, v))
            return ctl_usage("replay: --%s%s is out of range", names[i], a.value);
    }
    return j->path ? EXIT_OK : ctl_usage("replay: which trace?");
}

/* Uses the server's parameters where the command line sets none. */
static void use_server_parameters(struct replay_job *j, const struct live_server *s)
{
    struct engine_options *o = &j->setup.engine;

    if (!j->is_given[FIXED_US] && !j->is_given[ROW_US] && !j->is_given[KEY_NS])
        j->setup.cost = s->cost;
    if (!j->is_given[CTX])
        j->setup.n_ctx = s->n_ctx;
    if (!j->is_given[BATCH])
        o->max_batch = o->max_sequences = s->n_slots;
    o->max_queue = engine_options_default.max_queue;
    o->max_queue_tokens = engine_options_default.max_queue_tokens;
}

static int run_live(struct replay_job *j, struct ctl *c, struct live_result *live, struct err *e)
{
    struct live_server s = { j->setup.n_ctx, j->setup.engine.max_batch, j->setup.cost };

    uint64_t n_keys = live_n_keys(j->live.keys);
    for (int i = 0; i < j->n; i++) /* requests with the same key are one tenant for the server */
        j->rows[i].tenant = n_keys ? 1 + j->rows[i].tenant % n_keys : 0;
    if (live_run(live, c, j->rows, j->n, &j->live, e))
        return -1;
    live_server_read(&s, c);
    use_server_parameters(j, &s);
    return 0;
}

static int run_replay(struct replay_job *j, struct ctl *c, struct err *e)
{
    struct live_result live;
    struct replay_result r;

    if (read_trace(j, e) || (j->is_live && run_live(j, c, &live, e)))
        return -1;
    j->setup.max_rows = MAX(j->setup.engine.max_batch * j->setup.engine.prefill_chunk, 1);
    j->setup.engine.max_batch_tokens = j->setup.max_rows;
    if (!c->as_json && j->is_live) {
        ctl_printf("-- the server\n");
        print_result(&live.all);
        if (live.all.n_refused)
            print_times("refused after", &live.refused);
        ctl_printf("-- the simulator\n");
    }
    if (replay_run(&r, j->rows, j->n, &j->setup, e))
        return -1;
    if (c->as_json)
        print_json(&r, j->is_live ? &live : NULL);
    else
        print_result(&r);
    return 0;
}

int ctl_replay(struct ctl *c, int argc, char **argv)
{
    struct replay_job j = { .speed = 1,
        .live = { .keys = "", .max_open = 1000 },
        .setup = { .engine = engine_options_default,
            .cost = { .fixed = 20e6, .per_row = 500e3, .per_key = 30 },
            .n_ctx = 131072,
            .n_pages = (1 << 20) / PAGE_TOKENS } };
    struct err e;

    j.setup.engine.max_batch = j.setup.engine.max_sequences = 16;
    j.setup.engine.max_queue = 1 << 20;
    j.setup.engine.max_queue_tokens = INT64_MAX / 2;
    int status = read_arguments(&j, c, argc, argv);
    if (status)
        return status < 0 ? EXIT_OK : status;
    if (run_replay(&j, c, &e))
        status = ctl_fail("%s", e.msg);
    mem_free(j.rows);
    return status;
}
