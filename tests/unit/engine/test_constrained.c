/* Constrained choices in the engine without its thread: ends of the output, pauses, drafts. */
#include "engine/core.h"
#include "support/check.h"
#include "testing/fake.h"
#include "testing/fake_constraint.h"

enum { VOCAB = 40, PROMPT = 6, OUT_MAX = 40, CHOICES_MAX = 3, REQUESTS_MAX = 3 };

struct request {
    struct fake_constraint *state[CHOICES_MAX];
    struct sample_constraint constraints[CHOICES_MAX];
    int32_t out[CHOICES_MAX][OUT_MAX];
    int n_out[CHOICES_MAX];
    struct gen_event end[CHOICES_MAX];
    struct gen_result result;
    struct gen *gen;
    int ended_at; /* number of forward passes */
};

static struct core *core;
static struct submit_queue *queue;
static struct mailbox *box;
static int n_calls; /* calls of core_step */
static uint64_t now;

static uint64_t test_clock(void)
{
    return now;
}

static void open_core(uint64_t mask_steps, int draft_max, int n_threads)
{
    const struct fake_options f = { .n_vocab = VOCAB,
        .n_ctx_train = 200,
        .max_rows = 64,
        .n_pages = 400 / PAGE_TOKENS,
        .n_threads = n_threads,
        .seed = 4 };
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct lm *lm;
    struct err e;

    o.max_batch = REQUESTS_MAX;
    o.mask_steps = mask_steps;
    o.spec = (struct spec_options){ .max = draft_max, .min = draft_max, .by_history = true };
    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, &f, &e), 0);
    EXPECT_EQ(submit_queue_open(&queue, &e), 0);
    EXPECT_EQ(core_open(&core, lm, k, &o, queue, &e), 0);
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    core->clock = test_clock;
    n_calls = 0;
    now = 1;
}

static void close_core(void)
{
    struct engine_audit a;

    core_drain(core, now);
    core_audit(core, &a);
    EXPECT(a.ok && a.sequences == 0 && a.pages_owned == 0);
    EXPECT(!core->masks_pending.first);
    core_close(core);
    submit_queue_unref(queue);
    mailbox_close(box);
}

/* A fake constraint for each choice; NULL: the request has none. */
static void submit(struct request *q, int n_choices, int max_tokens, const int32_t *stop,
    const struct fake_constraint_options *o)
{
    static const int32_t prompt[PROMPT] = { 1, 2, 3, 4, 5, 6 };
    struct gen_input in = { .prompt = prompt,
        .n_prompt = PROMPT,
        .max_tokens = max_tokens,
        .n_choices = n_choices,
        .stop_ids = stop,
        .n_stop_ids = stop ? 1 : 0,
        .want_drafts = true,
        .sample = sample_params_default };
    struct err e;

    *q = (struct request){ 0 };
    for (int i = 0; o && i < n_choices; i++) {
        EXPECT_EQ(fake_constraint_new(&q->state[i], o, &e), 0);
        q->constraints[i] = fake_constraint_ops(q->state[i]);
    }
    in.constraints = o ? q->constraints : NULL;
    EXPECT_EQ(gen_new(&q->gen, &in, box, q, &e), 0);
    EXPECT_EQ(submit_queue_submit(queue, q->gen, now, &e), 0);
}

static void add_event(struct request *q, const struct gen_event *ev)
{
    if (ev->msg.kind == GEN_TOKEN)
        q->out[ev->choice][q->n_out[ev->choice]++] = ev->token.id;
    else if (ev->msg.kind == GEN_CHOICE_END)
        q->end[ev->choice] = *ev;
}

/* Reads events; returns the number of ended requests. */
static int read_events(void)
{
    struct msg *next;
    int n_ended = 0;

    for (struct msg *m = mailbox_drain(box); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct gen *g = ev->gen;
        struct request *q = gen_user(g);
        bool is_over = m->kind == GEN_END;
        add_event(q, ev);
        gen_event_done(ev);
        if (!is_over)
            continue;
        q->result = *gen_result(g);
        q->ended_at = (int)queue->stats.steps;
        gen_free(g);
        q->gen = NULL;
        for (int i = 0; i < CHOICES_MAX; i++)
            fake_constraint_free(q->state[i]);
        n_ended++;
    }
    return n_ended;
}

static void run(int n_open)
{
    while (n_open > 0) {
        core_drain(core, now);
        EXPECT(core_step(core, now)); /* the engine never sleeps while a mask is pending */
        EXPECT(++n_calls < 10000);
        n_open -= read_events();
    }
}

static const struct fake_constraint_options plain = {
    .seed = 3, .n_vocab = VOCAB, .max_tokens = OUT_MAX, .list_percent = 40
};

/* ---- ends */

static void choice_ends_when_nothing_may_follow(void)
{
    struct fake_constraint_options o = plain;
    struct request q;

    o.complete_at = 5;
    for (int max_tokens = 4; max_tokens <= 6; max_tokens++) {
        open_core(0, 0, 1);
        submit(&q, 2, max_tokens, NULL, &o);
        run(1);
        for (int i = 0; i < 2; i++) {
            EXPECT_EQ(q.n_out[i], MIN(max_tokens, 5));
            EXPECT(q.end[i].finish == (max_tokens < 5 ? FINISH_LENGTH : FINISH_STOP));
            EXPECT_EQ(q.end[i].is_accepted, max_tokens >= 5);
            EXPECT_EQ(q.end[i].stop_id, -1);
        }
        EXPECT_EQ(queue->stats.constraints.completed, max_tokens < 5 ? 0u : 2u);
        EXPECT(q.result.err.code == ERR_NONE);
        close_core();
    }
}

static void constraint_of_the_empty_text_gives_no_tokens(void)
{
    struct fake_constraint_options o = plain;
    struct request q;

    o.complete_at = -1; /* from the start */
    open_core(0, 0, 1);
    submit(&q, 2, 9, NULL, &o);
    run(1);
    EXPECT(q.n_out[0] == 0 && q.end[0].finish == FINISH_STOP && q.end[0].is_accepted);
    EXPECT(q.n_out[1] == 0 && q.end[1].finish == FINISH_STOP);
    close_core();
}

static void empty_mask_ends_the_choice_with_an_error(void)
{
    struct fake_constraint_options o = plain;
    struct request q, other;

    o.empty_at = 3;
    open_core(0, 0, 1);
    submit(&q, 2, 9, NULL, &o);
    submit(&other, 1, 9, NULL, &plain);
    run(2);
    for (int i = 0; i < 2; i++)
        EXPECT(q.n_out[i] == 3 && q.end[i].finish == FINISH_UNMET && !q.end[i].is_accepted);
    EXPECT(q.result.err.code == ERR_CONSTRAINT && strstr(q.result.err.msg, "constraint_not_met"));
    EXPECT(other.n_out[0] == 9 && other.result.err.code == ERR_NONE);
    EXPECT_EQ(queue->stats.constraints.not_met, 2u);
    close_core();
}

/* The error comes when the token is due: after the prompt, and after the other tokens. */
static void mask_over_a_bound_ends_the_choice_with_its_error(void)
{
    struct fake_constraint_options o = plain;
    struct request q;

    for (int at = 1; at < 4; at++) {
        o.error_at = at;
        open_core(2, 0, 1);
        submit(&q, 1, 9, NULL, &o);
        run(1);
        EXPECT(q.n_out[0] == at && q.end[0].finish == FINISH_UNMET);
        EXPECT(q.result.err.code == ERR_CONSTRAINT);
        EXPECT(strstr(q.result.err.msg, "constraint_not_met"));
        EXPECT_EQ(queue->stats.constraints.over_bound, 1u);
        close_core();
    }
}

/* The other choices of the request go on, and the request has no error. */
static void unmet_choice_does_not_end_the_others(void)
{
    struct fake_constraint_options empty = plain, over = plain;
    struct request q;
    struct err e;

    empty.empty_at = 3;
    over.error_at = 2;
    for (int i = 0; i < 2; i++) {
        open_core(0, 0, 1);
        submit(&q, 3, 9, NULL, &plain);
        fake_constraint_free(q.state[i]);
        EXPECT_EQ(fake_constraint_new(&q.state[i], i ? &over : &empty, &e), 0);
        q.constraints[i] = fake_constraint_ops(q.state[i]);
        run(1);
        EXPECT(q.end[i].finish == FINISH_UNMET && q.n_out[i] == (i ? 2 : 3));
        EXPECT(q.n_out[!i] == 9 && q.n_out[2] == 9 && q.end[2].finish == FINISH_LENGTH);
        EXPECT(q.result.err.code == ERR_NONE);
        close_core();
    }
}

/* An end token of the constraint ends the choice whether it is a stop token of the request. */
static void end_token_ends_the_choice(void)
{
    static const int32_t end = 7;
    struct fake_constraint_options o = plain;
    struct request q;
    int n_short = 0;

    o.ends[0] = end;
    o.n_ends = 1;
    o.accept_percent = 90;
    o.list_percent = 100;
    for (o.seed = 1; o.seed < 20; o.seed++)
        for (int has_stop = 0; has_stop < 2; has_stop++) {
            open_core(0, 0, 1);
            submit(&q, 1, OUT_MAX, has_stop ? &end : NULL, &o);
            run(1);
            EXPECT(q.result.err.code == ERR_NONE);
            if (q.end[0].finish == FINISH_STOP) {
                EXPECT(q.end[0].stop_id == end && q.end[0].is_accepted);
                n_short++;
            }
            for (int i = 0; i < q.n_out[0]; i++)
                EXPECT(q.out[0][i] != end);
            close_core();
        }
    EXPECT(n_short > 10);
}

static void scripts_cannot_be_constrained(void)
{
    const struct gen_script script = { 0 };
    const struct sample_constraint none = { 0 };
    struct gen_input in = { .prompt = (const int32_t[]){ 1 },
        .n_prompt = 1,
        .n_choices = 1,
        .script = &script,
        .constraints = &none };
    struct gen *g;
    struct err e;

    EXPECT_EQ(gen_new(&g, &in, NULL, NULL, &e), -1);
    EXPECT(e.code == ERR_UNSUPPORTED);
}

/* A constraint without operations is none. */
static void choice_without_operations_is_unconstrained(void)
{
    struct request a, b;

    open_core(0, 0, 1);
    submit(&a, 1, 9, NULL, NULL);
    run(1);
    submit(&b, 1, 9, NULL, &plain);
    fake_constraint_free(b.state[0]);
    b.state[0] = NULL;
    b.constraints[0] = (struct sample_constraint){ 0 };
    run(1);
    EXPECT(!memcmp(a.out, b.out, sizeof(a.out)) && b.end[0].is_accepted);
    EXPECT_EQ(queue->stats.constraints.masks, 0u);
    close_core();
}

/* ---- pauses */

static void paused_choices_do_not_delay_others(void)
{
    struct fake_constraint_options o = plain;
    struct request alone, free, slow, fast;

    o.max_cost = 60;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        open_core(2, 0, n_threads);
        submit(&alone, 1, 30, NULL, NULL);
        run(1);
        close_core();

        open_core(0, 0, n_threads);
        submit(&fast, 1, 20, NULL, &o);
        run(1);
        EXPECT_EQ(SMALL || queue->stats.constraints.pauses == 0, 1);
        close_core();

        open_core(2, 0, n_threads);
        submit(&free, 1, 30, NULL, NULL);
        submit(&slow, 1, 20, NULL, &o);
        run(2);
        EXPECT_EQ(free.ended_at, alone.ended_at);
        EXPECT(!memcmp(free.out, alone.out, sizeof(free.out)));
        EXPECT(!memcmp(slow.out, fast.out, sizeof(slow.out)) && slow.n_out[0] == 20);
        EXPECT(slow.ended_at > free.ended_at);
        EXPECT(queue->stats.constraints.pauses > 10 && queue->stats.constraints.masks == 20);
        /* steps that only continue masks run no forward pass */
        EXPECT(n_calls > (int)queue->stats.steps + 100);
        close_core();
    }
}

/* The masks of all choices are needed for the last row of the prompt. */
static void choices_wait_for_their_first_masks(void)
{
    struct fake_constraint_options o = plain;
    struct request slow, fast;

    o.max_cost = 50;
    open_core(0, 0, 1);
    submit(&fast, 3, 10, NULL, &o);
    run(1);
    close_core();
    open_core(1, 0, 2);
    submit(&slow, 3, 10, NULL, &o);
    run(1);
    EXPECT(!memcmp(slow.out, fast.out, sizeof(slow.out)));
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(slow.n_out[i], 10);
    close_core();
}

static void paused_request_can_be_cancelled(void)
{
    struct fake_constraint_options o = plain;
    struct request q;

    o.max_cost = 1000000;
    for (int n_steps = 0; n_steps < 12; n_steps++) {
        open_core(1, 0, 1);
        submit(&q, 1 + n_steps % 3, 9, NULL, &o);
        for (int i = 0; i < n_steps; i++) {
            core_drain(core, now);
            EXPECT(core_step(core, now));
        }
        if (n_steps % 2)
            engine_stop_choice(NULL, q.gen, 0);
        engine_cancel(NULL, q.gen);
        core_drain(core, now);
        EXPECT_EQ(read_events(), 1);
        EXPECT(q.result.err.code == (n_steps % 6 == 3 ? ERR_NONE : ERR_CANCELLED));
        close_core();
    }
}

/* ---- draft tokens */

static void forced_tokens_are_drafted_and_change_nothing(void)
{
    struct fake_constraint_options o = plain;
    struct request q, want;

    o.forced_percent = 80;
    for (o.seed = 1; o.seed < 30; o.seed++) {
        open_core(0, 0, 1);
        submit(&want, 2, 30, NULL, &o);
        run(1);
        int n_steps = (int)queue->stats.steps;
        close_core();
        for (int mask_steps = 0; mask_steps < 4; mask_steps++) {
            o.max_cost = mask_steps ? 3 : 1;
            open_core((uint64_t)mask_steps, 6, 2);
            submit(&q, 2, 30, NULL, &o);
            run(1);
            EXPECT(!memcmp(q.out, want.out, sizeof(q.out)));
            EXPECT(q.end[0].finish == want.end[0].finish && q.n_out[1] == want.n_out[1]);
            const struct draft_counts *n = &queue->stats.drafts_by_source[DRAFT_BY_CONSTRAINT];
            EXPECT(n->accepted_tokens <= n->drafted_tokens);
            if (!mask_steps && !SMALL)
                EXPECT(n->accepted_tokens > 10 && (int)queue->stats.steps < n_steps);
            close_core();
        }
    }
}

TESTS(TEST(choice_ends_when_nothing_may_follow), TEST(constraint_of_the_empty_text_gives_no_tokens),
    TEST(empty_mask_ends_the_choice_with_an_error),
    TEST(mask_over_a_bound_ends_the_choice_with_its_error),
    TEST(unmet_choice_does_not_end_the_others), TEST(end_token_ends_the_choice),
    TEST(scripts_cannot_be_constrained), TEST(choice_without_operations_is_unconstrained),
    TEST(paused_choices_do_not_delay_others), TEST(choices_wait_for_their_first_masks),
    TEST(paused_request_can_be_cancelled), TEST(forced_tokens_are_drafted_and_change_nothing))
