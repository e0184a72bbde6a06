/* ctl_workload.c: `inferctl bench --workload edit|chat|json|noise FILE.gguf`: speedup of
 * speculative decoding.
 *
 * The same engine in this process runs each request with and without speculative decoding,
 * alternately; all outputs must be equal token by token. The time is measured from the first token
 * to the last; reported are the best run and the sum of all runs. The model generates all outputs
 * itself:
 *
 *   edit   The client sends a prediction: the model's output with one token in 16 replaced, like a
 *          file that is returned with a few changes.
 *   chat   Questions at temperature 0.7, without a prediction.
 *   json   A list of records to continue at temperature 0: member names repeat.
 *   noise  Random tokens, continued at temperature 1 with a repetition penalty: the cost of draft
 *          tokens that are not accepted. */
#include "base/rng.h"
#include "cmd/ctl_bench.h"
#include "registry/model.h"

#include <stdio.h>

enum { REQUESTS = 6, OUTPUT_MAX = 384, LINE_MAX_BYTES = 512, NOISE_TOKENS = 64 };

struct workload {
    const char *name;
    float temperature, penalty;
    bool is_predicted;
    const char *const *prompts;
    int n_prompts;
};

static const char *const questions[] = {
    "How do I build InferFlux?",
    "What is 17 plus 25? And then minus 4?",
    "My name is Ada. What is the opposite of hot, and what rhymes with cat?",
    "Which endpoints does the server have, and which flags set the port and the host?",
};

static const char *const lists[] = {
    "[{\"id\": 1, \"name\": \"Ada\", \"city\": \"London\", \"active\": true},\n"
    " {\"id\": 2, \"name\": \"Alan\", \"city\": \"Wilmslow\", \"active\": false},\n"
    " {\"id\": 3, \"name\": \"Grace\", \"city\": \"Arlington\", \"active\": true},\n",
    "{\"days\": [{\"day\": \"Monday\", \"open\": 9, \"close\": 17},\n"
    "{\"day\": \"Tuesday\", \"open\": 9, \"close\": 17},\n"
    "{\"day\": \"Wednesday\", \"open\": 9, \"close\": 17},\n",
};

static const struct workload workloads[] = {
    { "edit", 0.7f, 1, true, questions, ARRAY_LEN(questions) },
    { "chat", 0.7f, 1, false, questions, ARRAY_LEN(questions) },
    { "json", 0.0f, 1, false, lists, ARRAY_LEN(lists) },
    { "noise", 1.0f, 1.3f, false, NULL, 0 }, /* prompts of random tokens */
};

struct bench_ctx { /* one model, one sequence */
    struct model model;
    struct model_spec spec;
    struct mailbox *box;
    struct arena *arena;
    int n_output, edit_every, n_repeats;
};

struct run_result {
    int32_t tokens[OUTPUT_MAX];
    int n, n_drafted, n_accepted;
    double seconds; /* from the first token to the last, best run */
    double total_s; /* from the first token to the last, sum of all runs */
};

struct total {
    double off_s, on_s;
    double all_off_s, all_on_s; /* sums over all runs */
    int n_tokens, n_drafted, n_accepted;
    bool is_same;
};

bool workload_exists(const char *name)
{
    bool is_there = !strcmp(name, "all");

    for (size_t i = 0; i < ARRAY_LEN(workloads); i++)
        is_there |= !strcmp(workloads[i].name, name);
    return is_there;
}

static int open_bench(struct bench_ctx *b, const struct workload_args *a, struct err *e)
{
    *b = (struct bench_ctx){ .spec = model_spec_of("bench", a->path) };
    b->spec.kernels = a->kernels;
    b->spec.threads = a->threads;
    b->spec.draft_path = a->draft;
    if (a->draft_max >= 0)
        b->spec.engine.spec.max = a->draft_max;
    b->arena = arena_new(64 * MB);
    if (!b->arena)
        return err_set(e, ERR_MEMORY, "no memory for the prompts");
    if (mailbox_open(&b->box, e))
        return -1;
    return model_open(&b->model, &b->spec, e);
}

static void close_bench(struct bench_ctx *b)
{
    model_close(&b->model);
    if (b->box)
        mailbox_close(b->box);
    arena_free(b->arena);
}

/* Reads events until the request has ended. */
static int read_output(
    struct bench_ctx *b, struct gen *g, struct run_result *run_result, struct err *e)
{
    bool is_over = false;
    struct msg *next;

    while (!is_over) {
        mailbox_wait(b->box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(b->box); m; m = next) {
            next = m->next;
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            if (m->kind == GEN_TOKEN)
                run_result->tokens[run_result->n++] = ev->token.id;
            is_over |= m->kind == GEN_END;
            gen_event_done(ev);
        }
    }
    const struct gen_result *r = gen_result(g);
    run_result->n_drafted = r->n_drafted;
    run_result->n_accepted = r->n_accepted;
    run_result->seconds = run_result->total_s = (double)(r->ended_ns - r->first_token_ns) * 1e-9;
    int rc = r->err.code ? -1 : 0;
    if (rc)
        *e = r->err;
    gen_free(g);
    return rc;
}

static int run_request(
    struct bench_ctx *b, const struct gen_input *in, struct run_result *run_result, struct err *e)
{
    struct gen *g;

    memset(run_result, 0, sizeof(*run_result));
    if (gen_new(&g, in, b->box, NULL, e))
        return -1;
    if (engine_submit(b->model.engine, g, e)) {
        gen_free(g);
        return -1;
    }
    return read_output(b, g, run_result, e);
}

/* Repeats a request. The best time counts, since other processes run on the machine. */
static int repeat_request(
    struct bench_ctx *b, const struct gen_input *in, struct run_result *run_result, struct err *e)
{
    static struct run_result again;

    if (run_request(b, in, &again, e))
        return -1;
    if (again.n != run_result->n ||
        memcmp(again.tokens, run_result->tokens, (size_t)run_result->n * sizeof(int32_t)))
        run_result->n = 0; /* n = 0 never compares as equal */
    run_result->seconds = MIN(run_result->seconds, again.seconds);
    run_result->total_s += again.total_s;
    run_result->n_drafted += again.n_drafted;
    run_result->n_accepted += again.n_accepted;
    return 0;
}

/* Derives the prediction of a client that has the text before the last edit. */
static int make_prediction(
    const struct bench_ctx *b, const struct run_result *answer, int32_t *out, struct rng *r)
{
    const uint64_t n_vocab = (uint64_t)vocab_n_tokens(b->model.vocab);
    int next = (int)rng_below(r, 2 * (uint64_t)b->edit_every);

    for (int i = 0; i < answer->n; i++) {
        out[i] = answer->tokens[i];
        if (i != next)
            continue;
        out[i] = (int32_t)rng_below(r, n_vocab);
        next += 1 + (int)rng_below(r, 2 * (uint64_t)b->edit_every);
    }
    return answer->n;
}

static int random_prompt(struct bench_ctx *b, int turn, struct tokens *out, struct err *e)
{
    struct rng r = { .key = (uint64_t)turn };

    out->ids = arena_alloc(b->arena, NOISE_TOKENS * sizeof(*out->ids));
    if (!out->ids)
        return err_set(e, ERR_MEMORY, "no memory for the prompts");
    for (out->n = 0; out->n < NOISE_TOKENS; out->n++)
        out->ids[out->n] = (int32_t)rng_below(&r, (uint64_t)vocab_n_tokens(b->model.vocab));
    return 0;
}

static int prepare_request(
    struct bench_ctx *b, const struct workload *w, int turn, struct gen_input *in, struct err *e)
{
    struct tokens ids = { .arena = b->arena };

    if (!w->n_prompts && random_prompt(b, turn, &ids, e))
        return -1;
    if (w->n_prompts) {
        struct span text = { str_of(w->prompts[turn % w->n_prompts]), false };
        if (vocab_encode(b->model.vocab, &text, 1, true, &ids, e))
            return -1;
    }
    if ((int)ids.n + 2 > b->model.n_ctx)
        return err_set(e, ERR_CONTEXT, "the model's context is too short for this workload");
    *in = (struct gen_input){ .cache_prompt = true,
        .prompt = ids.ids,
        .n_prompt = (int)ids.n,
        .max_tokens = MIN(b->n_output, b->model.n_ctx - (int)ids.n),
        .n_choices = 1,
        .sample = sample_params_default };
    in->sample.temperature = w->temperature;
    in->sample.repeat_penalty = w->penalty;
    in->sample.seed = (uint64_t)turn + 1;
    return 0;
}

static int measure(
    struct bench_ctx *b, const struct workload *w, int turn, struct total *t, struct err *e)
{
    static struct run_result off, on;
    static int32_t predicted[OUTPUT_MAX];
    struct rng r = { .key = (uint64_t)turn };
    struct gen_input in, speculative;

    if (prepare_request(b, w, turn, &in, e))
        return -1;
    speculative = in;
    speculative.want_drafts = true;
    if (run_request(b, &in, &off, e))
        return -1;
    if (w->is_predicted) {
        speculative.predicted = predicted;
        speculative.n_predicted = make_prediction(b, &off, predicted, &r);
    }
    if (run_request(b, &speculative, &on, e))
        return -1;
    for (int i = 0; i < 2 * b->n_repeats; i++)
        if (repeat_request(b, i % 2 ? &in : &speculative, i % 2 ? &off : &on, e))
            return -1;
    t->is_same &= on.n > 0 && on.n == off.n &&
                  !memcmp(on.tokens, off.tokens, (size_t)on.n * sizeof(*on.tokens));
    t->off_s += off.seconds;
    t->on_s += on.seconds;
    t->all_off_s += off.total_s;
    t->all_on_s += on.total_s;
    t->n_tokens += on.n - 1;
    t->n_drafted += on.n_drafted;
    t->n_accepted += on.n_accepted;
    return 0;
}

static void print_workload(const struct workload *w, const struct total *t, bool as_json)
{
    double off = t->n_tokens / t->off_s, on = t->n_tokens / t->on_s;
    double all = t->all_off_s / t->all_on_s;

    if (as_json)
        ctl_printf("{\"workload\": \"%s\", \"tokens_s\": %.2f, \"tokens_s_speculative\": %.2f, "
                   "\"ratio\": %.3f, \"ratio_total\": %.3f, \"drafted\": %d, \"accepted\": %d, "
                   "\"same\": %s}\n",
            w->name, off, on, on / off, all, t->n_drafted, t->n_accepted,
            t->is_same ? "true" : "false");
    else
        ctl_printf("%-6s %12.2f %12.2f %8.2fx %8.2fx %9d %9d   %s\n", w->name, off, on, on / off,
            all, t->n_drafted, t->n_accepted, t->is_same ? "equal" : "DIFFERENT");
    ctl_flush();
}

int workload_run(const struct workload_args *a)
{
    struct bench_ctx b;
    struct err e = { 0 };
    bool is_same = true;
    int rc = open_bench(&b, a, &e);

    b.n_output = MIN(a->n_output > 0 ? a->n_output : OUTPUT_MAX * 2 / 3, (int)OUTPUT_MAX);
    b.edit_every = a->edit_every;
    b.n_repeats = a->n_repeats;
    if (!rc && !a->as_json)
        ctl_printf("%-6s %12s %12s %9s %9s %9s %9s   %s\n", "work", "tokens/s", "with drafts",
            "ratio", "total", "drafted", "accepted", "output");
    for (size_t i = 0; !rc && i < ARRAY_LEN(workloads); i++) {
        struct total t = { .is_same = true };
        if (strcmp(a->name, "all") && strcmp(a->name, workloads[i].name))
            continue;
        for (int turn = 0; !rc && turn < REQUESTS; turn++)
            rc = measure(&b, &workloads[i], turn, &t, &e);
        if (!rc)
            print_workload(&workloads[i], &t, a->as_json);
        is_same &= t.is_same;
    }
    close_bench(&b);
    if (rc)
        return ctl_fail("%s", e.msg);
    return is_same ? EXIT_OK : EXIT_FAILED;
}
