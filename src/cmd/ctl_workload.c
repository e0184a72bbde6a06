/* ctl_workload.c: `inferctl bench --workload edit|chat|json FILE.gguf`: what guessing ahead brings.
 *
 * Each request is answered by the same engine in this process with and without guesses, in turns;
 * all answers must be equal, token by token. What is timed is from the first token to the last, the
 * best of some turns. The answers are the model's own:
 *
 *   edit  The client sends a prediction: the model's own answer with one token in 16 replaced, as
 *         when a file comes back with a few changes.
 *   chat  Questions, at temperature 0.7, nothing predicted: what guesses cost where there is
 *         little to guess.
 *   json  A list of records to be gone on with, at temperature 0: names of fields come again. */
#include "base/rng.h"
#include "cmd/ctl_bench.h"
#include "pool/pool.h"

#include <stdio.h>

enum { TURNS = 6, REPEATS = 3, ANSWER_MOST = 384, EDIT_EVERY = 16, LINE_MOST = 512 };

struct work {
    const char *name;
    float temperature;
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
    { "edit", 0.7f, true, questions, ARRAY_LEN(questions) },
    { "chat", 0.7f, false, questions, ARRAY_LEN(questions) },
    { "json", 0.0f, false, lists, ARRAY_LEN(lists) },
};

struct bench { /* one model, one stream */
    struct model model;
    struct model_spec spec;
    struct mailbox *box;
    struct arena *arena;
    int n_answer;
};

struct got {
    int32_t tokens[ANSWER_MOST];
    int n, n_drafted, n_accepted;
    double seconds; /* from the first token to the last */
};

struct total {
    double off_s, on_s;
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
    *b = (struct bench){ .spec = { .id = "bench",
                             .path = a->path,
                             .family = "",
                             .template_path = "",
                             .kernels = a->kernels,
                             .kv_type = "f16",
                             .threads = a->threads,
                             .draft_path = a->draft,
                             .engine = engine_options_default } };
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
    got->seconds = (double)(r->ended_ns - r->first_token_ns) * 1e-9;
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
    got->n_drafted += again.n_drafted;
    got->n_accepted += again.n_accepted;
    return 0;
}

/* What a client would predict who has the answer from before the last edit. */
static int edit(const struct got *answer, int32_t *out, int n_vocab, struct rng *r)
{
    for (int i = 0; i < answer->n; i++)
        out[i] = i % EDIT_EVERY == EDIT_EVERY / 2 ? (int32_t)rng_below(r, (uint64_t)n_vocab)
                                                  : answer->tokens[i];
    return answer->n;
}

static int prepare(
    struct bench *b, const struct work *w, int turn, struct gen_input *in, struct err *e)
{
    struct tokens ids = { .arena = b->arena };
    struct span text = { str_of(w->prompts[turn % w->n_prompts]), false };

    if (vocab_encode(b->model.vocab, &text, 1, true, &ids, e))
        return -1;
    if ((int)ids.n + 2 > b->model.n_ctx)
        return err_set(e, ERR_CONTEXT, "the model's context is too short for this workload");
    *in = (struct gen_input){ .prompt = ids.ids,
        .n_prompt = (int)ids.n,
        .max_tokens = MIN(b->n_answer, b->model.n_ctx - (int)ids.n),
        .n_choices = 1,
        .sample = sample_params_default };
    in->sample.temperature = w->temperature;
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
        guessing.n_predicted = edit(&off, predicted, vocab_n(b->model.vocab), &r);
    }
    if (ask(b, &guessing, &on, e))
        return -1;
    for (int i = 0; i < 2 * REPEATS; i++)
        if (ask_again(b, i % 2 ? &in : &guessing, i % 2 ? &off : &on, e))
            return -1;
    t->is_same &= on.n > 0 && on.n == off.n &&
                  !memcmp(on.tokens, off.tokens, (size_t)on.n * sizeof(*on.tokens));
    t->off_s += off.seconds;
    t->on_s += on.seconds;
    t->n_tokens += on.n - 1;
    t->n_drafted += on.n_drafted;
    t->n_accepted += on.n_accepted;
    return 0;
}

static void report(const struct work *w, const struct total *t, bool as_json)
{
    double off = t->n_tokens / t->off_s, on = t->n_tokens / t->on_s;

    if (as_json)
        printf("{\"workload\": \"%s\", \"tokens_s\": %.2f, \"tokens_s_guessing\": %.2f, "
               "\"ratio\": %.3f, \"drafted\": %d, \"accepted\": %d, \"same\": %s}\n",
            w->name, off, on, on / off, t->n_drafted, t->n_accepted, t->is_same ? "true" : "false");
    else
        printf("%-6s %12.2f %12.2f %8.2fx %9d %9d   %s\n", w->name, off, on, on / off, t->n_drafted,
            t->n_accepted, t->is_same ? "the same" : "DIFFERENT");
    fflush(stdout);
}

int workload_run(const struct workload_args *a)
{
    struct bench b;
    struct err e = { 0 };
    bool is_same = true;
    int rc = open_bench(&b, a, &e);

    b.n_answer = MIN(a->n_answer > 0 ? a->n_answer : ANSWER_MOST * 2 / 3, (int)ANSWER_MOST);
    if (!rc && !a->as_json)
        printf("%-6s %12s %12s %9s %9s %9s   %s\n", "work", "tokens/s", "guessing", "ratio",
            "guesses", "right", "answers");
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
