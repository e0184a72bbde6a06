/* ctl_workload.c: `inferctl bench --workload edit|chat|json|noise FILE.gguf`: what guessing ahead
 * brings.
 *
 * Each request is answered by the same engine in this process with and without guesses, in turns;
 * all answers must be equal, token by token. What is timed is from the first token to the last: the
 * best of some turns, and all of them together. The answers are the model's own:
 *
 *   edit   The client sends a prediction: the model's own answer with a token here and there
 *          replaced, one in 16, as when a file comes back with a few changes.
 *   chat   Questions, at temperature 0.7, nothing predicted.
 *   json   A list of records to be gone on with, at temperature 0: names of fields come again.
 *   noise  Random tokens, gone on with at temperature 1 and under a penalty for what came before:
 *          what guesses cost where there is nothing to guess. */
#include "base/rng.h"
#include "cmd/ctl_bench.h"
#include "registry/pool.h"

#include <stdio.h>

enum { TURNS = 6, ANSWER_MOST = 384, LINE_MOST = 512, NOISE_TOKENS = 64 };

struct work {
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

static const struct work works[] = {
    { "edit", 0.7f, 1, true, questions, ARRAY_LEN(questions) },
    { "chat", 0.7f, 1, false, questions, ARRAY_LEN(questions) },
    { "json", 0.0f, 1, false, lists, ARRAY_LEN(lists) },
    { "noise", 1.0f, 1.3f, false, NULL, 0 }, /* prompts of random tokens */
};

struct bench { /* one model, one stream */
    struct model model;
    struct model_spec spec;
    struct mailbox *box;
    struct arena *arena;
    int n_answer, edit_every, n_repeats;
};

struct got {
    int32_t tokens[ANSWER_MOST];
    int n, n_drafted, n_accepted;
    double seconds; /* from the first token to the last; the best of all times */
    double all_s;   /* the same, of all times together */
};

struct total {
    double off_s, on_s;
    double all_off_s, all_on_s; /* the same, not the best times but all */
    int n_tokens, n_drafted, n_accepted;
    bool is_same;
};

bool workload_exists(const char *name)
{
    bool is_there = !strcmp(name, "all");

    for (size_t i = 0; i < ARRAY_LEN(works); i++)
        is_there |= !strcmp(works[i].name, name);
    return is_there;
}

static int open_bench(struct bench *b, const struct workload_args *a, struct err *e)
{
    *b = (struct bench){ .spec = model_spec_of("bench", a->path) };
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

static void close_bench(struct bench *b)
{
    model_close(&b->model);
    if (b->box)
        mailbox_close(b->box);
    arena_free(b->arena);
}

/* Reads until the request has ended. */
static int read_answer(struct bench *b, struct gen *g, struct got *got, struct err *e)
{
    bool is_over = false;
    struct msg *next;

    while (!is_over) {
        mailbox_wait(b->box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(b->box); m; m = next) {
            next = m->next;
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            if (m->kind == GEN_TOKEN)
                got->tokens[got->n++] = ev->token.id;
            is_over |= m->kind == GEN_END;
            gen_event_done(ev);
        }
    }
    const struct gen_result *r = gen_result(g);
    got->n_drafted = r->n_drafted;
    got->n_accepted = r->n_accepted;
    got->seconds = got->all_s = (double)(r->ended_ns - r->first_token_ns) * 1e-9;
    int rc = r->err.code ? -1 : 0;
    if (rc)
        *e = r->err;
    gen_free(g);
    return rc;
}

static int ask(struct bench *b, const struct gen_input *in, struct got *got, struct err *e)
{
    struct gen *g;

    memset(got, 0, sizeof(*got));
    if (gen_new(&g, in, b->box, NULL, e))
        return -1;
    if (engine_submit(b->model.engine, g, e)) {
        gen_free(g);
        return -1;
    }
    return read_answer(b, g, got, e);
}

/* The same answer once more; the better time counts, since the machine does other things too. */
static int ask_again(struct bench *b, const struct gen_input *in, struct got *got, struct err *e)
{
    static struct got again;

    if (ask(b, in, &again, e))
        return -1;
    if (again.n != got->n || memcmp(again.tokens, got->tokens, (size_t)got->n * sizeof(int32_t)))
        got->n = 0; /* nothing equals it */
    got->seconds = MIN(got->seconds, again.seconds);
    got->all_s += again.all_s;
    got->n_drafted += again.n_drafted;
    got->n_accepted += again.n_accepted;
    return 0;
}

/* What a client would predict who has the answer from before the last edit. */
static int edit(const struct bench *b, const struct got *answer, int32_t *out, struct rng *r)
{
    const uint64_t n_vocab = (uint64_t)vocab_n(b->model.vocab);
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

static int invent(struct bench *b, int turn, struct tokens *out, struct err *e)
{
    struct rng r = { .key = (uint64_t)turn };

    out->ids = arena_alloc(b->arena, NOISE_TOKENS * sizeof(*out->ids));
    if (!out->ids)
        return err_set(e, ERR_MEMORY, "no memory for the prompts");
    for (out->n = 0; out->n < NOISE_TOKENS; out->n++)
        out->ids[out->n] = (int32_t)rng_below(&r, (uint64_t)vocab_n(b->model.vocab));
    return 0;
}

static int prepare(
    struct bench *b, const struct work *w, int turn, struct gen_input *in, struct err *e)
{
    struct tokens ids = { .arena = b->arena };

    if (!w->n_prompts && invent(b, turn, &ids, e))
        return -1;
    if (w->n_prompts) {
        struct span text = { str_of(w->prompts[turn % w->n_prompts]), false };
        if (vocab_encode(b->model.vocab, &text, 1, true, &ids, e))
            return -1;
    }
    if ((int)ids.n + 2 > b->model.n_ctx)
        return err_set(e, ERR_CONTEXT, "the model's context is too short for this workload");
    *in = (struct gen_input){ .prompt = ids.ids,
        .n_prompt = (int)ids.n,
        .max_tokens = MIN(b->n_answer, b->model.n_ctx - (int)ids.n),
        .n_choices = 1,
        .sample = sample_params_default };
    in->sample.temperature = w->temperature;
    in->sample.repeat_penalty = w->penalty;
    in->sample.seed = (uint64_t)turn + 1;
    return 0;
}

static int measure(struct bench *b, const struct work *w, int turn, struct total *t, struct err *e)
{
    static struct got off, on;
    static int32_t predicted[ANSWER_MOST];
    struct rng r = { .key = (uint64_t)turn };
    struct gen_input in, guessing;

    if (prepare(b, w, turn, &in, e))
        return -1;
    guessing = in;
    guessing.want_drafts = true;
    if (ask(b, &in, &off, e))
        return -1;
    if (w->is_predicted) {
        guessing.predicted = predicted;
        guessing.n_predicted = edit(b, &off, predicted, &r);
    }
    if (ask(b, &guessing, &on, e))
        return -1;
    for (int i = 0; i < 2 * b->n_repeats; i++)
        if (ask_again(b, i % 2 ? &in : &guessing, i % 2 ? &off : &on, e))
            return -1;
    t->is_same &= on.n > 0 && on.n == off.n &&
                  !memcmp(on.tokens, off.tokens, (size_t)on.n * sizeof(*on.tokens));
    t->off_s += off.seconds;
    t->on_s += on.seconds;
    t->all_off_s += off.all_s;
    t->all_on_s += on.all_s;
    t->n_tokens += on.n - 1;
    t->n_drafted += on.n_drafted;
    t->n_accepted += on.n_accepted;
    return 0;
}

static void report(const struct work *w, const struct total *t, bool as_json)
{
    double off = t->n_tokens / t->off_s, on = t->n_tokens / t->on_s;
    double all = t->all_off_s / t->all_on_s;

    if (as_json)
        printf("{\"workload\": \"%s\", \"tokens_s\": %.2f, \"tokens_s_guessing\": %.2f, "
               "\"ratio\": %.3f, \"ratio_of_all\": %.3f, \"drafted\": %d, \"accepted\": %d, "
               "\"same\": %s}\n",
            w->name, off, on, on / off, all, t->n_drafted, t->n_accepted,
            t->is_same ? "true" : "false");
    else
        printf("%-6s %12.2f %12.2f %8.2fx %8.2fx %9d %9d   %s\n", w->name, off, on, on / off, all,
            t->n_drafted, t->n_accepted, t->is_same ? "the same" : "DIFFERENT");
    fflush(stdout);
}

int workload_run(const struct workload_args *a)
{
    struct bench b;
    struct err e = { 0 };
    bool is_same = true;
    int rc = open_bench(&b, a, &e);

    b.n_answer = MIN(a->n_answer > 0 ? a->n_answer : ANSWER_MOST * 2 / 3, (int)ANSWER_MOST);
    b.edit_every = a->edit_every;
    b.n_repeats = a->n_repeats;
    if (!rc && !a->as_json)
        printf("%-6s %12s %12s %9s %9s %9s %9s   %s\n", "work", "tokens/s", "guessing", "ratio",
            "of all", "guesses", "right", "answers");
    for (size_t i = 0; !rc && i < ARRAY_LEN(works); i++) {
        struct total t = { .is_same = true };
        if (strcmp(a->name, "all") && strcmp(a->name, works[i].name))
            continue;
        for (int turn = 0; !rc && turn < TURNS; turn++)
            rc = measure(&b, &works[i], turn, &t, &e);
        if (!rc)
            report(&works[i], &t, a->as_json);
        is_same &= t.is_same;
    }
    close_bench(&b);
    if (rc)
        return ctl_fail("%s", e.msg);
    return is_same ? EXIT_OK : EXIT_FAILED;
}
