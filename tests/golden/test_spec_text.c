/* Guesses never show in the text: requests to the demo model at temperatures 0, 0.7 and 1.0, with
 * penalties, log-probabilities, several choices and stop strings that lie across the ends of
 * drafts, on a model that guesses whenever it can and on one that never does. Text, ends, counts
 * and what is told about predictions must be the same, byte for byte. */
#include "base/mem.h"
#include "base/rng.h"
#include "pool/session.h"
#include "../check.h"

enum { ROUNDS = 60, CHOICES = 3, TEXT = 2048, ANSWER = 48 };

struct said {
    char text[CHOICES][TEXT];
    size_t n[CHOICES];
    enum finish finish[CHOICES];
    char stop[CHOICES][64];
    int n_tokens[CHOICES], n_predicted, n_completion;
    int32_t tokens[CHOICES][ANSWER];
    uint32_t logprobs[CHOICES][ANSWER]; /* bits */
    int n_seen[CHOICES];
    bool is_over;
    enum errcode code;
};

static void on_token(void *ctx, int choice, const struct sampled *t)
{
    struct said *s = ctx;
    int n = s->n_seen[choice]++;

    EXPECT(n < ANSWER);
    s->tokens[choice][n] = t->id;
    memcpy(&s->logprobs[choice][n], &t->logprob, sizeof(uint32_t));
}

static void on_text(void *ctx, int choice, struct str text)
{
    struct said *s = ctx;

    EXPECT(s->n[choice] + text.n < TEXT);
    memcpy(s->text[choice] + s->n[choice], text.p, text.n);
    s->n[choice] += text.n;
}

static void on_choice_end(void *ctx, const struct choice_end *c)
{
    struct said *s = ctx;

    s->finish[c->choice] = c->finish;
    s->n_tokens[c->choice] = c->n_tokens;
    snprintf(s->stop[c->choice], sizeof(s->stop[0]), STR_FMT, STR_ARG(c->stop_string));
}

static void on_end(void *ctx, const struct session_end *e)
{
    struct said *s = ctx;

    s->n_completion = e->n_completion;
    s->n_predicted = e->n_predicted;
    s->code = e->err->code;
    s->is_over = true;
}

static const struct session_ops ops = {
    .token = on_token, .parts = { .text = on_text }, .choice_end = on_choice_end, .end = on_end
};

static void open_demo(struct model *m, struct model_spec *spec, int draft)
{
    struct err e = { 0 };

    *m = (struct model){ 0 };
    *spec = (struct model_spec){ .id = "demo",
        .path = "models/demo.gguf",
        .family = "",
        .template_path = "",
        .kernels = "auto",
        .kv_type = "f16",
        .threads = 1,
        .kv_bytes = 1 << 22,
        .engine = engine_options_default };
    spec->engine.spec.max = spec->engine.spec.min = draft;
    EXPECT_EQ(model_open(m, spec, &e), 0);
}

static void say(struct model *m, const struct session_params *p, struct said *out)
{
    struct session_place at = { .model = m, .ops = &ops, .ctx = out };
    struct session *s;
    struct err e = { 0 };

    memset(out, 0, sizeof(*out));
    at.arena = arena_new(1 << 20);
    EXPECT(at.arena);
    EXPECT_EQ(mailbox_open(&at.reply, &e), 0);
    EXPECT_EQ(session_open(&s, p, &at, &e), 0);
    while (!out->is_over) {
        struct msg *next;
        mailbox_wait(at.reply, UINT64_MAX);
        for (struct msg *msg = mailbox_drain(at.reply); msg; msg = next) {
            next = msg->next;
            session_event(container_of(msg, struct gen_event, msg));
        }
    }
    EXPECT_EQ((int)out->code, (int)ERR_NONE);
    arena_free(at.arena);
    mailbox_close(at.reply);
}

static void invent(struct session_params *p, struct rng *r, int round)
{
    static const float temperatures[] = { 0.0f, 0.7f, 1.0f };
    struct sample_params *s = &p->sample;

    *s = sample_params_default;
    s->temperature = temperatures[round % 3];
    s->seed = rng_next(r);
    s->want_logprobs = rng_below(r, 2);
    s->n_top = (int)rng_below(r, 4);
    if (rng_below(r, 2)) {
        s->repeat_penalty = 1.2f;
        s->repeat_last_n = 32;
    }
    if (rng_below(r, 3) == 0)
        s->presence_penalty = s->frequency_penalty = 0.4f;
    p->n_choices = 1 + (int)rng_below(r, CHOICES);
    p->max_tokens = 1 + (int)rng_below(r, ANSWER);
    p->ignore_end = rng_below(r, 2);
    p->include_stop = rng_below(r, 2);
}

/* Pieces of what would be said: they end it there, mostly inside a draft. */
static int cut_stops(const struct said *s, struct str *stops, struct rng *r)
{
    int n = 0;

    for (int i = 0; i < 2; i++) {
        if (s->n[0] < 12 || rng_below(r, 3) == 0)
            continue;
        size_t len = 2 + rng_below(r, 8), at = rng_below(r, s->n[0] - len);
        stops[n++] = (struct str){ s->text[0] + at, len };
    }
    return n;
}

static int predict(const struct said *s, int32_t *out, struct rng *r)
{
    int n = 0;

    for (int i = 0; i < s->n_seen[0]; i++)
        if (rng_below(r, 12))
            out[n++] = rng_below(r, 12) ? s->tokens[0][i] : (int32_t)rng_below(r, 3000) - 100;
    return n;
}

static void expect_same(const struct said *got, const struct said *want, int n_choices)
{
    for (int i = 0; i < n_choices; i++) {
        EXPECT_STR(got->text[i], want->text[i]);
        EXPECT_EQ((int)got->finish[i], (int)want->finish[i]);
        EXPECT_STR(got->stop[i], want->stop[i]);
        EXPECT_EQ(got->n_tokens[i], want->n_tokens[i]);
        EXPECT_EQ(got->n_seen[i], want->n_seen[i]);
        EXPECT(!memcmp(got->tokens[i], want->tokens[i], sizeof(got->tokens[i])));
        EXPECT(!memcmp(got->logprobs[i], want->logprobs[i], sizeof(got->logprobs[i])));
    }
    EXPECT_EQ(got->n_completion, want->n_completion);
    EXPECT_EQ(got->n_predicted, want->n_predicted);
}

static void guesses_never_show_in_the_text(void)
{
    static struct said whole, want, got;
    static const char *const prompts[] = {
        ("<|im_start|>user\nHow do I build InferFlux?<|im_end|>\n<|im_start|>assistant\n"),
        "1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3,", "make make make make"
    };
    struct rng r = { .key = 20 };
    struct model plain, guessing;
    struct model_spec spec[2];
    int n_stopped = 0;

    open_demo(&plain, &spec[0], 0);
    open_demo(&guessing, &spec[1], 8);
    for (int round = 0; round < ROUNDS; round++) {
        struct arena *a = arena_new(1 << 20);
        struct tokens ids = { .arena = a };
        struct span span = { str_of(prompts[rng_below(&r, ARRAY_LEN(prompts))]), true };
        struct session_params p = { 0 };
        struct str stops[2];
        int32_t predicted[ANSWER];
        struct err e;

        EXPECT_EQ(vocab_encode(plain.vocab, &span, 1, true, &ids, &e), 0);
        p.prompt = ids.ids;
        p.n_prompt = (int)ids.n;
        invent(&p, &r, round);
        say(&plain, &p, &whole);
        p.stops = stops;
        p.n_stops = cut_stops(&whole, stops, &r);
        p.predicted = predicted;
        p.n_predicted = rng_below(&r, 3) ? predict(&whole, predicted, &r) : 0;
        say(&plain, &p, &want);
        say(&guessing, &p, &got);
        expect_same(&got, &want, p.n_choices);
        n_stopped += want.stop[0][0] != 0;
        arena_free(a);
    }
    const struct engine_stats *st = engine_stats(guessing.engine);
    printf("seed 20: %d of %d stopped by a string; %d of %d guesses right\n", n_stopped,
        (int)ROUNDS, (int)draft_sum(st).accepted, (int)draft_sum(st).drafted);
    EXPECT(n_stopped > ROUNDS / 4);
    EXPECT(draft_sum(st).accepted > (SMALL ? 20 : 200)); /* two events at a time: one guess */
    EXPECT(draft_sum(st).accepted < draft_sum(st).drafted);
    EXPECT_EQ(draft_sum(engine_stats(plain.engine)).drafted, 0u);
    model_close(&plain);
    model_close(&guessing);
}

TESTS(TEST(guesses_never_show_in_the_text))
