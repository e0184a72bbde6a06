/* Throughput estimates: the expected wait of a new request, and load shedding at submission. */
#include "engine/sched/throughput.h"
#include "base/mem.h"
#include "support/check.h"
#include "engine/gen.h"

#define SECOND ((uint64_t)1000000000)

static void no_measurement_gives_no_estimate(void)
{
    struct throughput p = { 0 };
    struct wait_estimate f = { 0 };

    throughput_publish(&p, &f);
    struct wait_times x = wait_estimate_of(&f, 1000, 1000, 1000);
    EXPECT(x.first_ns == 0 && x.end_ns == 0);
    EXPECT_EQ(throughput_response_ns(&p, 100), (uint64_t)0);
    throughput_add_step(
        &p, SECOND, 500, false); /* without waiting requests: no measurement of the queue */
    throughput_publish(&p, &f);
    EXPECT_EQ(f.prompt_tokens_s, (uint64_t)0);
}

static void queue_wait_follows_the_measured_throughput(void)
{
    struct throughput p = { 0 };
    struct wait_estimate f = { 0 };

    for (int i = 0; i < 100; i++)
        throughput_add_step(&p, SECOND / 10, i % 2 ? 100 : 0, true);
    for (int i = 0; i < 50; i++)
        throughput_add_response(&p, 40, SECOND);
    throughput_add_response(&p, 0, SECOND); /* no output */
    throughput_publish(&p, &f);
    EXPECT_EQ(f.prompt_tokens_s, 500u);
    struct wait_times x = wait_estimate_of(&f, 900, 100, 20);
    EXPECT(x.first_ns / (SECOND / 100) == 200);
    EXPECT(x.end_ns - x.first_ns > SECOND * 49 / 100 && x.end_ns - x.first_ns < SECOND * 51 / 100);
    for (int i = 0; i < 1000; i++) /* ten times faster from here on: the estimate follows */
        throughput_add_step(&p, SECOND / 10, 500, true);
    throughput_publish(&p, &f);
    EXPECT(f.prompt_tokens_s > 4900);
}

/* ---- load shedding */

static struct gen *new_gen(struct mailbox *box, int n_prompt, uint64_t deadline_ns)
{
    static const int32_t prompt[1000];
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = n_prompt,
        .max_tokens = 10,
        .n_choices = 1,
        .sample = sample_params_default,
        .deadline_ns = deadline_ns };
    struct gen *g;
    struct err e;

    EXPECT_EQ(gen_new(&g, &in, box, NULL, &e), 0);
    return g;
}

static int try_submit(
    struct submit_queue *p, struct mailbox *box, int n_prompt, uint64_t deadline_ns)
{
    struct gen *g = new_gen(box, n_prompt, deadline_ns);
    struct err e;
    int failed = submit_queue_submit(p, g, SECOND, &e);

    if (failed) {
        EXPECT(e.code == ERR_OVERLOADED);
        gen_free(g);
        return -1;
    }
    /* Releases the request as the engine would, so that nothing leaks. */
    return 0;
}

static void close_queue(struct submit_queue *p, struct mailbox *box)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(p->inbox); m; m = next) {
        next = m->next;
        struct gen *g = container_of(m, struct gen, submit_msg);
        submit_queue_uncount(p, g);
        g->is_over = true;
        gen_free(g);
    }
    EXPECT(p->n_requests == 0 && p->n_seqs == 0 && p->n_prompt_tokens == 0);
    submit_queue_unref(p);
    mailbox_close(box);
}

static void open_queue(struct submit_queue **p, struct mailbox **box)
{
    struct err e;

    EXPECT_EQ(submit_queue_open(p, &e), 0);
    EXPECT_EQ(mailbox_open(box, &e), 0);
    (*p)->n_vocab = 2;
    (*p)->n_ctx = 2000;
    (*p)->max_requests = 6;
    (*p)->max_batch = 2;
    (*p)->max_seqs = 256;
    (*p)->max_tokens = 1000;
}

static void waiting_prompt_tokens_are_limited(void)
{
    struct mailbox *box;
    struct submit_queue *p;

    open_queue(&p, &box);
    p->max_tokens = 300;
    /* without others in the queue any request is accepted */
    EXPECT_EQ(try_submit(p, box, 900, 0), 0);
    EXPECT_EQ(try_submit(p, box, 1, 0), -1);
    p->n_prompt_tokens -= 800; /* most of the prompts was computed */
    EXPECT_EQ(try_submit(p, box, 200, 0), 0);
    EXPECT_EQ(try_submit(p, box, 1, 0), -1);
    EXPECT_EQ(p->stats.rejected, 2u);
    p->n_prompt_tokens += 800;
    close_queue(p, box);
}

static void unreachable_deadline_is_rejected_at_submission(void)
{
    struct mailbox *box;
    struct submit_queue *p;

    open_queue(&p, &box);
    p->wait_estimate.prompt_tokens_s = 100;
    p->wait_estimate.out_tokens = 50;
    p->wait_estimate.token_ns = SECOND / 10;
    EXPECT_EQ(submit_queue_wait_ns(p), (uint64_t)0);
    for (int i = 0; i < 3; i++) /* with free places, requests are accepted whatever was measured */
        EXPECT_EQ(try_submit(p, box, 100, SECOND + 1), 0);
    /* 300 tokens before it, 100 of its own, 10 of output: 4 s and 1 s. */
    EXPECT_EQ(try_submit(p, box, 100, SECOND + 5 * SECOND), -1);
    EXPECT_EQ(try_submit(p, box, 100, SECOND + 6 * SECOND), 0);
    EXPECT_EQ(try_submit(p, box, 100, 0), 0);
    EXPECT(submit_queue_wait_ns(p) / SECOND == 5);
    close_queue(p, box);
}

TESTS(TEST(no_measurement_gives_no_estimate), TEST(queue_wait_follows_the_measured_throughput),
    TEST(waiting_prompt_tokens_are_limited), TEST(unreachable_deadline_is_rejected_at_submission))
