/* Engine with a fake model: requests, events, limits, deadlines and the submission queue. */
#include "engine/engine.h"
#include "base/mem.h"
#include "base/rng.h"
#include "testing/fake.h"
#include "testing/hooked.h"
#include "model/script.h"
#include "os/clock.h"
#include "os/thread.h"
#include "support/check.h"

enum { VOCAB = 50, PROMPT = 20 };

static const struct kernels *kernels(void)
{
    const struct kernels *k;
    struct err e;

    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    return k;
}

static struct engine *engine_with(uint32_t n_pages, const struct engine_options *o)
{
    struct fake_options f = {
        .n_vocab = VOCAB, .n_ctx_train = 4000, .max_rows = 64, .n_pages = n_pages, .seed = 1
    };
    struct engine *en;
    struct lm *lm;
    struct err e;

    EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
    EXPECT_EQ(engine_open(&en, lm, kernels(), o, &e), 0);
    return en;
}

static struct mailbox *box(void)
{
    struct mailbox *m;
    struct err e;

    EXPECT_EQ(mailbox_open(&m, &e), 0);
    return m;
}

static int32_t prompt[4000];

static struct gen_input input(int n_prompt, int max_tokens)
{
    for (int i = 0; i < n_prompt; i++)
        prompt[i] = i % VOCAB;
    return (struct gen_input){ .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = n_prompt,
        .max_tokens = max_tokens,
        .n_choices = 1,
        .sample = sample_params_default };
}

static struct gen *submit_request(
    struct engine *en, const struct gen_input *in, struct mailbox *reply)
{
    struct gen *g;
    struct err e;

    EXPECT_EQ(gen_new(&g, in, reply, NULL, &e), 0);
    EXPECT_EQ(engine_submit(en, g, &e), 0);
    return g;
}

/* Returns the next event; the caller returns it to the engine. */
struct reader {
    struct mailbox *box;
    struct msg *at;
};

static struct gen_event *next_event(struct reader *r)
{
    while (!r->at) {
        mailbox_wait(r->box, UINT64_MAX);
        r->at = mailbox_drain(r->box);
    }
    struct msg *m = r->at;
    r->at = m->next;
    return container_of(m, struct gen_event, msg);
}

struct event_counts {
    int n_tokens, n_choice_ends, n_ends;
    enum finish finish;
    int32_t last, stop_id;
};

/* Reads until the request has ended. */
static struct event_counts read_all(struct reader *r, struct gen *g)
{
    struct event_counts t = { 0 };

    while (!t.n_ends) {
        struct gen_event *ev = next_event(r);
        EXPECT(ev->gen == g);
        t.n_tokens += ev->msg.kind == GEN_TOKEN;
        if (ev->msg.kind == GEN_TOKEN)
            t.last = ev->token.id;
        if (ev->msg.kind == GEN_CHOICE_END) {
            t.n_choice_ends++;
            t.finish = ev->finish;
            t.stop_id = ev->stop_id;
        }
        t.n_ends += ev->msg.kind == GEN_END;
        gen_event_done(ev);
    }
    return t;
}

static void expect_clean(struct engine *en)
{
    struct engine_audit a;

    engine_audit(en, &a);
    EXPECT(a.ok);
    EXPECT_EQ(a.sequences, 0u);
    EXPECT_EQ(a.pages_owned, 0u);
    EXPECT_EQ(a.pages_free + a.pages_cached, a.pages_total);
}

static void close_engine_and_box(struct engine *en, struct reader *r)
{
    engine_close(en);
    EXPECT(!r->at && !mailbox_drain(r->box));
    mailbox_close(r->box);
}

/* ---- one client */

static void request_gets_its_tokens_and_one_end_event(void)
{
    struct engine *en = engine_with(64, &engine_options_default);
    struct reader r = { .box = box() };
    struct gen_input in = input(PROMPT, 17);
    struct gen *g = submit_request(en, &in, r.box);
    struct event_counts t = read_all(&r, g);
    const struct gen_result *res = gen_result(g);

    EXPECT_EQ(t.n_tokens, 17);
    EXPECT_EQ(t.n_choice_ends, 1);
    EXPECT(t.finish == FINISH_LENGTH);
    EXPECT(res->err.code == ERR_NONE);
    EXPECT(res->submitted_ns <= res->started_ns && res->started_ns <= res->first_token_ns);
    EXPECT(res->first_token_ns <= res->ended_ns && res->submitted_ns > 0);
    gen_free(g);
    expect_clean(en);
    EXPECT_EQ(engine_stats(en)->generated_tokens, 17u);
    EXPECT_EQ(engine_stats(en)->prompt_tokens, (uint64_t)PROMPT);
    EXPECT_EQ(engine_stats(en)->finished, 1u);
    EXPECT(engine_stats(en)->steps >= 17);
    EXPECT_EQ(engine_lm(en)->n_vocab, (int)VOCAB);
    close_engine_and_box(en, &r);
}

static void begin_event_is_sent_on_request(void)
{
    struct engine *en = engine_with(64, &engine_options_default);
    struct reader r = { .box = box() };
    struct gen_input in = input(PROMPT, 5);
    in.n_choices = 3;
    in.want_begin = true;
    in.want_prompt_logprobs = true;
    struct gen *g = submit_request(en, &in, r.box);
    struct gen_event *first = next_event(&r);

    EXPECT(first->msg.kind == GEN_BEGUN && first->gen == g);
    gen_event_done(first);
    for (bool is_over = false; !is_over;) { /* one event for all choices of the request */
        struct gen_event *ev = next_event(&r);
        EXPECT(ev->msg.kind != GEN_BEGUN);
        is_over = ev->msg.kind == GEN_END;
        gen_event_done(ev);
    }
    gen_free(g);
    expect_clean(en);
    close_engine_and_box(en, &r);
}

static void choices_share_one_prefill(void)
{
    struct engine *en = engine_with(64, &engine_options_default);
    struct reader r = { .box = box() };
    struct gen_input in = input(PROMPT, 9);
    in.n_choices = 7;
    struct gen *g = submit_request(en, &in, r.box);
    struct event_counts t = read_all(&r, g);

    EXPECT_EQ(t.n_tokens, 63);
    EXPECT_EQ(t.n_choice_ends, 7);
    EXPECT_EQ(engine_stats(en)->prompt_tokens, (uint64_t)PROMPT);
    gen_free(g);
    expect_clean(en);
    close_engine_and_box(en, &r);
}

static void full_context_ends_the_choice(void)
{
    struct engine_options o = engine_options_default;
    o.n_ctx = 30;
    struct engine *en = engine_with(64, &o);
    struct reader r = { .box = box() };
    struct gen_input in = input(PROMPT, 1000);
    struct gen *g = submit_request(en, &in, r.box);
    struct event_counts t = read_all(&r, g);

    EXPECT_EQ(engine_n_ctx(en), 30);
    EXPECT_EQ(t.n_tokens, 30 - PROMPT);
    EXPECT(t.finish == FINISH_LENGTH);
    gen_free(g);
    close_engine_and_box(en, &r);
}

static void request_that_cannot_fit_is_rejected_at_submission(void)
{
    struct engine *en = engine_with(2, &engine_options_default);
    struct mailbox *reply = box();
    struct gen_input in = input(2 * PAGE_TOKENS, 1);
    struct gen *g;
    struct err e;

    EXPECT_EQ(engine_n_ctx(en), 2 * PAGE_TOKENS);
    EXPECT_EQ(gen_new(&g, &in, reply, NULL, &e), 0);
    EXPECT_EQ(engine_submit(en, g, &e), -1);
    EXPECT(e.code == ERR_CONTEXT);
    gen_free(g);
    in.n_prompt--;
    prompt[1] = VOCAB;
    EXPECT_EQ(gen_new(&g, &in, reply, NULL, &e), 0);
    EXPECT_EQ(engine_submit(en, g, &e), -1);
    EXPECT(e.code == ERR_INVALID);
    gen_free(g);
    prompt[1] = 0;
    EXPECT_EQ(gen_new(&g, &in, reply, NULL, &e), 0);
    EXPECT_EQ(engine_submit(en, g, &e), 0);
    struct reader r = { .box = reply };
    EXPECT_EQ(read_all(&r, g).n_tokens, 1);
    gen_free(g);
    close_engine_and_box(en, &r);
}

static void invalid_requests_are_rejected(void)
{
    struct gen_input ok = input(4, 4), in;
    struct gen_script script = { .tokens = prompt, .n_tokens = 3 };
    struct gen *g = NULL;
    struct err e;

    in = ok, in.n_prompt = 0;
    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    in = ok, in.max_tokens = -1;
    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    in = ok, in.n_choices = GEN_CHOICES_MAX + 1;
    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    EXPECT(e.code == ERR_RANGE);
    in = ok, in.max_tokens = INT32_MAX;
    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    EXPECT(e.code == ERR_TOO_LARGE);
    in = ok, in.max_tokens = 1 << 23, in.n_choices = 100;
    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    EXPECT(e.code == ERR_TOO_LARGE);
    script.group_end = (int32_t[]){ 2, 1 }, script.n_groups = 2;
    in = ok, in.script = &script;
    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    script.group_end = (int32_t[]){ 4 }, script.n_groups = 1;
    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    EXPECT(!g);
#ifdef TESTING
    mem_fail_after(1);
    EXPECT_EQ(gen_new(&g, &ok, NULL, NULL, &e), -1);
    EXPECT(e.code == ERR_MEMORY);
#endif
}

static void invalid_options_close_the_model_and_are_named(void)
{
    struct fake_options f = { .n_vocab = VOCAB, .n_ctx_train = 40, .max_rows = 4, .n_pages = 3 };
    struct engine_options bad[6];
    struct engine *en = NULL;
    struct lm *lm;
    struct err e;

    for (int i = 0; i < 6; i++)
        bad[i] = engine_options_default;
    bad[0].max_batch = 0;
    bad[1].max_batch_tokens = 0;
    bad[2].prefill_chunk = -1;
    bad[3].max_queue = -1;
    bad[4].n_ctx = -5;
    bad[5].age_ns = 0;
    for (int i = 0; i < 6; i++) {
        EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
        EXPECT_EQ(engine_open(&en, lm, kernels(), &bad[i], &e), -1);
        EXPECT(e.code == ERR_RANGE && e.param[0]);
    }
    EXPECT(!en);
}

#ifdef TESTING
static void failed_open_leaks_nothing(void)
{
    struct fake_options f = { .n_vocab = VOCAB, .n_ctx_train = 40, .max_rows = 4, .n_pages = 3 };
    struct engine *en = NULL;
    struct lm *lm;
    struct err e;
    int n_failed = 0;

    for (uint64_t nth = 1; !en; nth++) {
        EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
        mem_fail_after(nth);
        if (engine_open(&en, lm, kernels(), &engine_options_default, &e))
            n_failed++;
    }
    mem_fail_after(0);
    EXPECT(n_failed >= 10);
    engine_close(en);
}
#else
static void failed_open_leaks_nothing(void)
{
}
#endif

static void prompt_tokens_are_scored_on_demand(void)
{
    struct engine *en = engine_with(64, &engine_options_default);
    struct reader r = { .box = box() };
    struct gen_input in = input(PROMPT, 0);
    in.want_prompt_logprobs = true;
    in.sample.n_top = 2;
    struct gen *g = submit_request(en, &in, r.box);

    for (int i = 1; i < PROMPT; i++) {
        struct gen_event *ev = next_event(&r);
        EXPECT_EQ(ev->msg.kind, (int)GEN_PROMPT_TOKEN);
        EXPECT_EQ(ev->index, i);
        EXPECT_EQ(ev->token.id, prompt[i]);
        EXPECT(ev->token.logprob < 0 && ev->token.n_top == 2);
        gen_event_done(ev);
    }
    struct event_counts t = read_all(&r, g);
    EXPECT(t.n_tokens == 0 && t.finish == FINISH_LENGTH);
    gen_free(g);
    close_engine_and_box(en, &r);
}

static void one_choice_can_be_stopped(void)
{
    struct engine *en = engine_with(200, &engine_options_default);
    struct reader r = { .box = box() };
    struct gen_input in = input(PROMPT, 600);
    in.n_choices = 3;
    struct gen *g = submit_request(en, &in, r.box);
    enum finish finish[3] = { 0 };

    for (bool is_over = false; !is_over;) {
        struct gen_event *ev = next_event(&r);
        if (ev->msg.kind == GEN_TOKEN && ev->choice == 1 && ev->index == 5)
            engine_stop_choice(en, g, 1);
        if (ev->msg.kind == GEN_CHOICE_END)
            finish[ev->choice] = ev->finish;
        is_over = ev->msg.kind == GEN_END;
        gen_event_done(ev);
    }
    EXPECT(finish[0] == FINISH_LENGTH && finish[2] == FINISH_LENGTH);
    EXPECT(finish[1] == FINISH_CANCELLED);
    EXPECT(gen_result(g)->err.code == ERR_NONE);
    gen_free(g);
    expect_clean(en);
    close_engine_and_box(en, &r);
}

static void a_deadline_ends_a_request(void)
{
    struct engine *en = engine_with(200, &engine_options_default);
    struct reader r = { .box = box() };
    struct gen_input in = input(PROMPT, 3000);
    in.deadline_ns = clock_ns() + 5000000;
    struct gen *g = submit_request(en, &in, r.box);
    int n = 0;

    for (struct gen_event *ev; (ev = next_event(&r))->msg.kind == GEN_TOKEN; n++)
        if (n < SEQ_EVENTS / 2)
            /* then none: the sequence is parked, and its deadline still applies */
            gen_event_done(ev);
    struct gen_event *end = next_event(&r);
    EXPECT_EQ(end->msg.kind, (int)GEN_END);
    EXPECT(gen_result(g)->err.code == ERR_TIMEOUT);
    gen_free(g);
    expect_clean(en);
    close_engine_and_box(en, &r);
}

/* ---- queue */

static struct engine *script_engine(const struct engine_options *o)
{
    struct script_options s = {
        .n_vocab = VOCAB, .n_ctx_train = 4000, .max_rows = 64, .n_pages = 1000
    };
    struct engine *en;
    struct lm *lm;
    struct err e;

    EXPECT_EQ(lm_open_script(&lm, &s, &e), 0);
    EXPECT_EQ(engine_open(&en, lm, kernels(), o, &e), 0);
    return en;
}

static void script_is_generated_in_groups_after_delays(void)
{
    struct engine *en = script_engine(&engine_options_default);
    struct reader r = { .box = box() };
    const int32_t tokens[] = { 5, 6, 7, 8, 9 }, groups[] = { 1, 1, 4 };
    struct gen_script script = { tokens, 5, groups, 3, 2 };
    struct gen_input in = input(PROMPT, 100);
    const bool want_end[] = { true, false, false, true, true };
    uint64_t start = clock_ns();

    in.script = &script;
    struct gen *g = submit_request(en, &in, r.box);
    for (int i = 0; i < 5; i++) {
        struct gen_event *ev = next_event(&r);
        EXPECT_EQ(ev->msg.kind, (int)GEN_TOKEN);
        EXPECT_EQ(ev->token.id, tokens[i]);
        EXPECT_EQ(ev->is_group_end, want_end[i]);
        gen_event_done(ev);
    }
    struct event_counts t = read_all(&r, g);
    EXPECT(t.finish == FINISH_STOP);
    EXPECT_EQ(t.stop_id, -1);
    EXPECT(clock_ns() - start >= 3 * 2000000u);
    gen_free(g);
    expect_clean(en);
    close_engine_and_box(en, &r);
}

static void full_queue_rejects_at_once(void)
{
    struct engine_options o = engine_options_default;
    o.max_batch = 1;
    o.max_queue = 2;
    struct engine *en = script_engine(&o);
    struct reader r = { .box = box() };
    struct gen_script script = { prompt, 1, NULL, 0, 100000 }; /* generates after 100 s */
    struct gen_input in = input(PROMPT, 5);
    struct gen *g[3], *late;
    struct err e;

    in.script = &script;
    for (int i = 0; i < 3; i++)
        g[i] = submit_request(en, &in, r.box);
    EXPECT_EQ(gen_new(&late, &in, r.box, NULL, &e), 0);
    EXPECT_EQ(engine_submit(en, late, &e), -1);
    EXPECT(e.code == ERR_OVERLOADED);
    EXPECT_EQ(engine_stats(en)->rejected, 1u);
    engine_cancel(en, g[1]);
    EXPECT(read_all(&r, g[1]).finish == FINISH_CANCELLED);
    EXPECT_EQ(engine_submit(en, late, &e), 0);
    engine_drain(en);
    struct gen *refused;
    EXPECT_EQ(gen_new(&refused, &in, r.box, NULL, &e), 0);
    EXPECT_EQ(engine_submit(en, refused, &e), -1);
    EXPECT(e.code == ERR_DRAINING);
    gen_free(refused);
    engine_close(en);
    for (int n = 0; n < 3;) {
        struct gen_event *ev = next_event(&r);
        if (ev->msg.kind != GEN_END)
            continue;
        EXPECT(gen_result(ev->gen)->err.code == ERR_DRAINING);
        gen_free(ev->gen);
        n++;
    }
    gen_free(g[1]);
    EXPECT(!r.at);
    mailbox_close(r.box);
}

static void slow_client_parks_only_its_own_sequence(void)
{
    struct engine *en = engine_with(600, &engine_options_default);
    struct reader slow = { .box = box() }, quick = { .box = box() };
    struct gen_input in = input(PROMPT, 3 * SEQ_EVENTS);
    struct gen *a = submit_request(en, &in, slow.box), *b;
    struct gen_event *kept[SEQ_EVENTS];

    for (int i = 0; i < SEQ_EVENTS; i++)
        kept[i] = next_event(&slow);
    for (int i = 0; i < 3; i++) { /* the other sequences continue */
        b = submit_request(en, &in, quick.box);
        EXPECT_EQ(read_all(&quick, b).n_tokens, 3 * SEQ_EVENTS);
        gen_free(b);
    }
    struct engine_audit audit;
    engine_audit(en, &audit);
    EXPECT(audit.ok && audit.sequences == 1);
    EXPECT(!mailbox_drain(slow.box)); /* no further event arrived */
    for (int i = 0; i < SEQ_EVENTS; i++)
        gen_event_done(kept[i]);
    EXPECT_EQ(read_all(&slow, a).n_tokens, 2 * SEQ_EVENTS);
    gen_free(a);
    expect_clean(en);
    mailbox_close(quick.box);
    close_engine_and_box(en, &slow);
}

/* ---- models without valid logits */

enum { INVALID_ROW = 25 }; /* position whose logits and those after it are NaN */

static void damage_logits(void *ctx, const struct lm *m, struct lm_run *runs, int n_runs)
{
    static float nan[64 * VOCAB];

    for (int i = 0; i < n_runs; i++)
        if (runs[i].pos + runs[i].n > INVALID_ROW) {
            runs[i].logits = nan;
            runs[i].peaks = NULL;
        }
    for (size_t i = 0; i < ARRAY_LEN(nan); i++)
        nan[i] = __builtin_nanf("");
}

static void model_without_valid_logits_ends_with_an_error(void)
{
    struct fake_options f = {
        .n_vocab = VOCAB, .n_ctx_train = 4000, .max_rows = 64, .n_pages = 32, .seed = 1
    };
    struct engine_options o = engine_options_default;
    struct mailbox *m = box();
    struct engine *en;
    struct lm *lm;
    struct err e;

    o.spec.max = 0;
    EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
    lm = lm_hooked(lm, damage_logits, NULL, NULL);
    EXPECT_EQ(engine_open(&en, lm, kernels(), &o, &e), 0);
    for (int want_logprobs = 0; want_logprobs < 2; want_logprobs++) {
        struct gen_input in = input(PROMPT, 30);
        struct reader r = { m, NULL };
        int n_tokens = 0;
        in.sample.want_logprobs = want_logprobs;
        struct gen *g = submit_request(en, &in, m);
        for (struct gen_event *ev = next_event(&r); ev->msg.kind != GEN_END; ev = next_event(&r)) {
            if (ev->msg.kind == GEN_CHOICE_END)
                EXPECT_EQ((int)ev->finish, (int)FINISH_ERROR);
            if (ev->msg.kind != GEN_TOKEN)
                continue;
            EXPECT(ev->token.id >= 0 && ev->token.id < VOCAB);
            n_tokens++;
            gen_event_done(ev);
        }
        EXPECT_EQ(n_tokens, INVALID_ROW - PROMPT + 1);
        EXPECT_EQ((int)gen_result(g)->err.code, (int)ERR_CORRUPT);
        gen_free(g);
    }
    engine_close(en);
    mailbox_close(m);
}

TESTS(TEST(model_without_valid_logits_ends_with_an_error),
    TEST(request_gets_its_tokens_and_one_end_event), TEST(begin_event_is_sent_on_request),
    TEST(choices_share_one_prefill), TEST(full_context_ends_the_choice),
    TEST(request_that_cannot_fit_is_rejected_at_submission), TEST(invalid_requests_are_rejected),
    TEST(invalid_options_close_the_model_and_are_named), TEST(failed_open_leaks_nothing),
    TEST(prompt_tokens_are_scored_on_demand), TEST(one_choice_can_be_stopped),
    TEST(a_deadline_ends_a_request), TEST(script_is_generated_in_groups_after_delays),
    TEST(full_queue_rejects_at_once), TEST(slow_client_parks_only_its_own_sequence))
