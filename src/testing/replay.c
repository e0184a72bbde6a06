#include "testing/replay.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/core.h"

#include <math.h>
#include <stdlib.h>

struct flight {
    const struct replay_request *row;
    struct gen *gen;
    int32_t *prompt;
    struct gen_script script;
    uint64_t last_ns; /* time of the last token */
};

struct replay_state {
    const struct replay_options *setup;
    const struct replay_request *rows;
    struct flight *flights;
    int n, n_arrived, n_live;
    struct core *core;
    struct submit_queue *queue;
    struct mailbox *reply;
    int32_t *script_tokens; /* tokens of all scripts, and their group ends */
    int32_t *group_ends;
    int longest_out;
    struct replay_samples ttft, itl;
    double prompt_tokens, cached_tokens, out_tokens;
    uint64_t last_end_ns;
    struct replay_result *out;
};

static uint64_t clock_now_ns;

static uint64_t trace_clock(void)
{
    return clock_now_ns;
}

enum { N_VOCAB = 32000 };

void replay_samples_add(struct replay_samples *s, double seconds)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 1024;
        s->v = xrealloc(s->v, s->cap * sizeof(*s->v));
    }
    s->v[s->n++] = (float)seconds;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

struct replay_quantiles replay_quantiles_of(struct replay_samples *s)
{
    if (!s->n)
        return (struct replay_quantiles){ 0 };
    qsort(s->v, s->n, sizeof(*s->v), compare_floats);
    return (struct replay_quantiles){ s->v[s->n / 2], s->v[(size_t)((double)s->n * 0.9)],
        s->v[(size_t)((double)s->n * 0.99)], s->v[s->n - 1] };
}

void replay_samples_clear(struct replay_samples *s)
{
    mem_free(s->v);
    *s = (struct replay_samples){ 0 };
}

/* ---- requests */

static void write_prompt(struct flight *f, int index)
{
    uint64_t key = f->row->prefix ? f->row->prefix : 0x8000000000000000u | (uint64_t)index;

    for (int i = 0; i < f->row->n_prompt; i++) {
        uint64_t x = hash_step(key, (uint64_t)i << 40);
        f->prompt[i] = (int32_t)((x ^ x >> 29) % N_VOCAB);
    }
}

static void flight_clear(struct flight *f)
{
    mem_free(f->prompt);
    f->prompt = NULL;
    f->gen = NULL;
}

static int submit_next(struct replay_state *r, struct err *e)
{
    int index = r->n_arrived++;
    struct flight *f = &r->flights[index];
    const struct replay_request *row = &r->rows[index];

    f->row = row;
    f->prompt = try_calloc((size_t)row->n_prompt, sizeof(*f->prompt));
    if (!f->prompt)
        return err_set(e, ERR_MEMORY, "no memory for a prompt of %d tokens", row->n_prompt);
    write_prompt(f, index);
    f->script = (struct gen_script){ r->script_tokens, row->n_out, r->group_ends, row->n_out, 0 };
    struct gen_input in = { .cache_prompt = true,
        .prompt = f->prompt,
        .n_prompt = row->n_prompt,
        .max_tokens = row->n_out,
        .n_choices = 1,
        .sample = sample_params_default,
        .priority = row->priority,
        .tenant = row->tenant,
        .scope = { .tenant = row->tenant },
        .script = &f->script };
    if (r->setup->deadline_s > 0)
        in.deadline_ns = clock_now_ns + (uint64_t)(r->setup->deadline_s * 1e9);
    if (gen_new(&f->gen, &in, r->reply, f, e)) {
        flight_clear(f);
        return -1;
    }
    if (!submit_queue_submit(r->queue, f->gen, clock_now_ns, e)) {
        r->n_live++;
        return 0;
    }
    *(e->code == ERR_OVERLOADED ? &r->out->n_refused : &r->out->n_failed) += 1;
    gen_free(f->gen);
    flight_clear(f);
    return 0;
}

static void finish_flight(struct replay_state *r, struct flight *f)
{
    const struct gen_result *g = gen_result(f->gen);

    r->n_live--;
    r->last_end_ns = clock_now_ns;
    if (g->err.code == ERR_NONE) {
        r->out->n_done++;
        r->prompt_tokens += f->row->n_prompt;
        r->cached_tokens += g->n_cached;
        r->out_tokens += f->row->n_out;
        replay_samples_add(&r->ttft, (double)(g->first_token_ns - g->submitted_ns) * 1e-9);
    } else {
        *(g->err.code == ERR_TIMEOUT        ? &r->out->n_late
            : g->err.code == ERR_OVERLOADED ? &r->out->n_dropped
                                            : &r->out->n_failed) += 1;
    }
    gen_free(f->gen);
    flight_clear(f);
}

static void read_events(struct replay_state *r)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(r->reply); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct flight *f = gen_user(ev->gen);
        if (m->kind == GEN_END) {
            finish_flight(r, f);
            continue;
        }
        if (m->kind == GEN_TOKEN) {
            if (f->last_ns)
                replay_samples_add(&r->itl, (double)(clock_now_ns - f->last_ns) * 1e-9);
            f->last_ns = clock_now_ns;
        }
        gen_event_done(ev);
    }
}

/* ---- simulation */

static uint64_t arrival_ns(const struct replay_state *r, int i)
{
    return 1 + (uint64_t)((r->rows[i].at_s - r->rows[0].at_s) * 1e9);
}

/* Replaces the estimates of the last step. */
static void replace_estimates(struct replay_state *r)
{
    if (r->setup->constant_step_time)
        sched_set_step_time(r->core->sched, r->setup->constant_step_time);
    if (r->setup->without_wait_estimate) {
        r->core->throughput = (struct throughput){ 0 };
        throughput_publish(&r->core->throughput, &r->queue->wait_estimate);
    }
}

static int run_trace(struct replay_state *r, struct err *e)
{
    while (r->n_arrived < r->n || r->n_live > 0) {
        while (r->n_arrived < r->n && arrival_ns(r, r->n_arrived) <= clock_now_ns)
            if (submit_next(r, e))
                return -1;
        core_drain(r->core, clock_now_ns);
        replace_estimates(r);
        bool has_run = core_step(r->core, clock_now_ns);
        read_events(r);
        if (has_run)
            continue;
        uint64_t next = core_next_wake(r->core);
        if (r->n_arrived < r->n)
            next = MIN(next, arrival_ns(r, r->n_arrived));
        if (next != UINT64_MAX)
            clock_now_ns = MAX(clock_now_ns, next);
    }
    return 0;
}

static int check_trace(struct replay_state *r, const struct replay_options *s, struct err *e)
{
    if (r->n < 1)
        return err_set(e, ERR_RANGE, "the trace has no requests");
    for (int i = 0; i < r->n; i++) {
        const struct replay_request *row = &r->rows[i];
        if (row->n_prompt < 1 || row->n_out < 1 || row->n_prompt >= s->n_ctx ||
            row->n_out > s->n_ctx - row->n_prompt)
            return err_set(e, ERR_RANGE,
                "request %d: %d prompt and %d output tokens exceed the context of %d", i + 1,
                row->n_prompt, row->n_out, s->n_ctx);
        if (!(row->at_s >= 0) || row->at_s > 1e9 || (i && row->at_s < r->rows[i - 1].at_s))
            return err_set(e, ERR_RANGE,
                "request %d: the arrival time is before that of the previous request", i + 1);
        r->longest_out = MAX(r->longest_out, row->n_out);
    }
    return 0;
}

static int open_all(struct replay_state *r, const struct replay_options *s, struct err *e)
{
    struct timed_options o = { .n_vocab = N_VOCAB,
        .n_ctx_train = s->n_ctx,
        .max_rows = s->max_rows,
        .n_pages = s->n_pages,
        .n_layers = s->n_layers,
        .cost = s->cost,
        .clock = &clock_now_ns };
    const struct kernels *k;
    struct lm *lm;

    r->flights = try_calloc((size_t)r->n, sizeof(*r->flights));
    r->script_tokens = try_calloc((size_t)r->longest_out, sizeof(*r->script_tokens));
    r->group_ends = try_calloc((size_t)r->longest_out, sizeof(*r->group_ends));
    if (!r->flights || !r->script_tokens || !r->group_ends)
        return err_set(e, ERR_MEMORY, "no memory for %d requests", r->n);
    for (int i = 0; i < r->longest_out; i++)
        r->group_ends[i] = i + 1;
    if (kernels_choose(&k, "ref", e) || mailbox_open(&r->reply, e) ||
        submit_queue_open(&r->queue, e) || lm_open_timed(&lm, &o, e) ||
        core_open(&r->core, lm, k, &s->engine, r->queue, e))
        return -1;
    r->core->clock = trace_clock;
    return 0;
}

static void close_all(struct replay_state *r)
{
    if (r->core) {
        core_cancel_all(r->core, ERR_CANCELLED, clock_now_ns);
        read_events(r);
        core_drain(r->core, clock_now_ns);
        core_close(r->core);
    }
    if (r->queue)
        submit_queue_unref(r->queue);
    if (r->reply)
        mailbox_close(r->reply);
    mem_free(r->flights);
    mem_free(r->script_tokens);
    mem_free(r->group_ends);
    replay_samples_clear(&r->ttft);
    replay_samples_clear(&r->itl);
}

static void summarise(struct replay_state *r)
{
    struct replay_result *out = r->out;

    out->n = r->n;
    out->span_s = (double)r->last_end_ns * 1e-9;
    if (out->span_s > 0) {
        out->requests_s = out->n_done / out->span_s;
        out->tokens_s = r->out_tokens / out->span_s;
    }
    out->hit_rate = r->prompt_tokens > 0 ? r->cached_tokens / r->prompt_tokens : 0;
    out->ttft = replay_quantiles_of(&r->ttft);
    out->itl = replay_quantiles_of(&r->itl);
    out->steps = r->queue->stats.steps;
    out->preemptions = r->queue->stats.preemptions;
}

int replay_run(struct replay_result *out, const struct replay_request *rows, int n,
    const struct replay_options *s, struct err *e)
{
    struct replay_state r = { .setup = s, .rows = rows, .n = n, .out = out };

    *out = (struct replay_result){ 0 };
    clock_now_ns = 1;
    int failed = check_trace(&r, s, e) || open_all(&r, s, e) || run_trace(&r, e);
    if (!failed)
        summarise(&r);
    close_all(&r);
    return failed ? -1 : 0;
}
