/* Speculative decoding does not change the text: requests to the demo model at temperatures 0,
 * 0.7 and 1.0, with penalties, logprobs, several choices, and stop strings that cross the ends
 * of drafts, run alone and together, on a model with a drafter and on one without. Text, finish
 * reasons, counts and prediction counts must be equal, byte for byte. */
#include "base/mem.h"
#include "base/rng.h"
#include "generate/session.h"
#include "support/drop_layers_kit.h"

/* The thread sanitizer is fifty times slower; a few rounds execute every access. */
#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 8, IS_SHORT = true };
#else
enum { ROUNDS = 60, IS_SHORT = SMALL };
#endif
enum { TOGETHER = 3, CHOICES = 3, TEXT = 2048, ANSWER = 48 };

struct generated {
    char text[CHOICES][TEXT];
    size_t n[CHOICES];
    enum finish finish[CHOICES];
    char stop[CHOICES][64];
    int n_tokens[CHOICES], n_predicted, n_completion;
    int32_t tokens[CHOICES][ANSWER];
    uint32_t logprobs[CHOICES][ANSWER]; /* bits of the floats */
    int n_seen[CHOICES];
    bool is_over;
    enum errcode code;
};

static void on_token(void *ctx, int choice, const struct sampled *t)
{
    struct generated *s = ctx;
    int n = s->n_seen[choice]++;

    EXPECT(n < ANSWER);
    s->tokens[choice][n] = t->id;
    memcpy(&s->logprobs[choice][n], &t->logprob, sizeof(uint32_t));
}

static void on_content(void *ctx, int choice, struct str text)
{
    struct generated *s = ctx;

    EXPECT(s->n[choice] + text.n < TEXT);
    memcpy(s->text[choice] + s->n[choice], text.p, text.n);
    s->n[choice] += text.n;
}

static void on_choice_end(void *ctx, const struct choice_end *c)
{
    struct generated *s = ctx;

    s->finish[c->choice] = c->finish;
    s->n_tokens[c->choice] = c->n_tokens;
    snprintf(s->stop[c->choice], sizeof(s->stop[0]), STR_FMT, STR_ARG(c->stop_string));
}

static void on_end(void *ctx, const struct session_end *e)
{
    struct generated *s = ctx;

    s->n_completion = e->n_completion;
    s->n_predicted = e->n_predicted;
    s->code = e->err->code;
    s->is_over = true;
}

static const struct session_ops ops = {
    .token = on_token, .choice_end = on_choice_end, .end = on_end
};
static const struct output_ops output_ops = { .content = on_content };

static void open_demo(struct model *m, struct model_spec *spec, int draft, const char *drafter)
{
    struct err e = { 0 };

    *m = (struct model){ 0 };
    *spec = model_spec_of("demo", "models/demo.gguf");
    spec->threads = 1;
    spec->kv_bytes = 1 << 22;
    spec->draft_path = drafter;
    spec->engine.spec.max = spec->engine.spec.min = draft;
    spec->engine.spec.by_history = !drafter;
    EXPECT_EQ(model_open(m, spec, &e), 0);
}

/* Runs n requests at once. */
static void generate_all(
    struct model *m, const struct session_params *p, struct generated *out, int n)
{
    struct session_ctx at = { .model = m, .ops = &ops, .output_ops = &output_ops };
    struct session *s;
    struct err e = { 0 };
    int n_over = 0;

    at.arena = arena_new(1 << 20);
    EXPECT(at.arena);
    EXPECT_EQ(mailbox_open(&at.reply, &e), 0);
    for (int i = 0; i < n; i++) {
        memset(&out[i], 0, sizeof(out[i]));
        at.ctx = at.output_ctx = &out[i];
        EXPECT_EQ(session_open(&s, &p[i], &at, &e), 0);
    }
    while (n_over < n) {
        struct msg *next;
        mailbox_wait(at.reply, UINT64_MAX);
        for (struct msg *msg = mailbox_drain(at.reply); msg; msg = next) {
            next = msg->next;
            session_event(container_of(msg, struct gen_event, msg));
        }
        n_over = 0;
        for (int i = 0; i < n; i++)
            n_over += out[i].is_over;
    }
    for (int i = 0; i < n; i++)
        EXPECT_EQ((int)out[i].code, (int)ERR_NONE);
    arena_free(at.arena);
    mailbox_close(at.reply);
}

static void make_question(struct session_params *p, struct rng *r, int round)
{
    static const float temperatures[] = { 0.0f, 0.7f, 1.0f };
    struct sample_params *s = &p->gen.sample;

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
    p->gen.n_choices = 1 + (int)rng_below(r, CHOICES);
    p->gen.max_tokens = 1 + (int)rng_below(r, ANSWER);
    p->ignore_eos = rng_below(r, 2);
    p->include_stop = rng_below(r, 2);
}

/* Makes stop strings from the expected output, so that it ends there, mostly inside a draft. */
static int make_stops(const struct generated *s, struct str *stops, struct rng *r)
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

static int make_prediction(const struct generated *s, int32_t *out, struct rng *r)
{
    int n = 0;

    for (int i = 0; i < s->n_seen[0]; i++)
        if (rng_below(r, 12))
            out[n++] = rng_below(r, 12) ? s->tokens[0][i] : (int32_t)rng_below(r, 3000) - 100;
    return n;
}

static void expect_same(const struct generated *got, const struct generated *want, int n_choices)
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

struct question {
    struct arena *arena;
    struct session_params p;
    struct str stops[2];
    int32_t predicted[ANSWER];
    /* the full output, and the expected one with stop strings: without drafts */
    struct generated whole, want;
};

static void generate(struct question *q, struct model *plain, struct rng *r, int round)
{
    static const char *const prompts[] = {
        ("<|im_start|>user\nHow do I build InferFlux?<|im_end|>\n<|im_start|>assistant\n"),
        "1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3,", "make make make make"
    };
    struct span span = { str_of(prompts[rng_below(r, ARRAY_LEN(prompts))]), true };
    struct err e;

    memset(q, 0, sizeof(*q));
    q->arena = arena_new(1 << 20);
    struct tokens ids = { .arena = q->arena };
    EXPECT_EQ(vocab_encode(plain->vocab, &span, 1, true, &ids, &e), 0);
    q->p.gen.prompt = ids.ids;
    q->p.gen.n_prompt = (int)ids.n;
    q->p.gen.cache_prompt = q->p.skip_special_tokens = true;
    make_question(&q->p, r, round);
    generate_all(plain, &q->p, &q->whole, 1);
    q->p.stops = q->stops;
    q->p.n_stops = make_stops(&q->whole, q->stops, r);
    q->p.gen.predicted = q->predicted;
    q->p.gen.n_predicted = rng_below(r, 3) ? make_prediction(&q->whole, q->predicted, r) : 0;
    generate_all(plain, &q->p, &q->want, 1);
}

static void print_counts(const char *who, const struct model *m)
{
    static const char *const kinds[] = { "prediction", "history", "model", "constraint" };
    const struct engine_stats *st = engine_stats(m->engine);

    for (int i = 0; i < N_DRAFT_KINDS; i++)
        printf("%s: %d of %d draft tokens by %s accepted\n", who,
            (int)st->drafts_by_source[i].accepted_tokens,
            (int)st->drafts_by_source[i].drafted_tokens, kinds[i]);
}

/* Alone and three together, with and without drafts. */
static void compare(struct model *plain, struct model *drafting, uint64_t seed, int n_rounds)
{
    static struct question q[TOGETHER];
    static struct generated got[TOGETHER];
    struct session_params p[TOGETHER];
    struct rng r = { .key = seed };
    int n_stopped = 0;

    for (int round = 0; round < n_rounds; round += TOGETHER) {
        for (int i = 0; i < TOGETHER; i++) {
            generate(&q[i], plain, &r, round / TOGETHER + i);
            p[i] = q[i].p;
            generate_all(drafting, &p[i], &got[i], 1);
            expect_same(&got[i], &q[i].want, p[i].gen.n_choices);
            n_stopped += q[i].want.stop[0][0] != 0;
        }
        generate_all(drafting, p, got, TOGETHER);
        for (int i = 0; i < TOGETHER; i++) {
            expect_same(&got[i], &q[i].want, p[i].gen.n_choices);
            arena_free(q[i].arena);
        }
    }
    printf("seed %d: %d of %d stopped by a string\n", (int)seed, n_stopped, n_rounds);
    EXPECT(n_stopped > n_rounds / 4);
    EXPECT_EQ(draft_sum(engine_stats(plain->engine)).drafted, 0u);
}

static void speculation_does_not_change_the_text(void)
{
    struct model plain, drafting;
    struct model_spec spec[2];

    open_demo(&plain, &spec[0], 0, NULL);
    open_demo(&drafting, &spec[1], 8, NULL);
    compare(&plain, &drafting, 20, ROUNDS);
    print_counts("by itself", &drafting);
    struct draft_sum n = draft_sum(engine_stats(drafting.engine));
    EXPECT(
        n.accepted > (IS_SHORT ? 20 : 200)); /* with two events at a time a draft has one token */
    EXPECT(n.accepted < n.drafted);
    model_close(&plain);
    model_close(&drafting);
}

/* A draft model of all layers but one, whose drafts are mostly accepted. */
static void draft_model_does_not_change_the_text(void)
{
    char path[] = "/tmp/inferflux-thin-XXXXXX";
    struct model plain, drafting;
    struct model_spec spec[2];
    struct gguf *g;
    struct err e;

    EXPECT_EQ(gguf_open(&g, "models/demo.gguf", &e), 0);
    drop_layers_make(g, path);
    gguf_close(g);
    open_demo(&plain, &spec[0], 0, NULL);
    open_demo(&drafting, &spec[1], 6, path);
    compare(&plain, &drafting, 21, ROUNDS / 2);
    print_counts("by all layers but one", &drafting);
    const struct draft_counts *n = &engine_stats(drafting.engine)->drafts_by_source[DRAFT_BY_MODEL];
    EXPECT_EQ((uint64_t)n->drafted_tokens, draft_sum(engine_stats(drafting.engine)).drafted);
    EXPECT(n->accepted_tokens > (IS_SHORT ? 10 : 100));
    model_close(&plain);
    model_close(&drafting);
    unlink(path);
}

TESTS(TEST(speculation_does_not_change_the_text), TEST(draft_model_does_not_change_the_text))
