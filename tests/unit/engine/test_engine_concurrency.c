/* Concurrent clients: cancellations at any moment, clients that hold their events, and an engine
 * that closes while requests run. The thread sanitizer runs this test as well. */
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"
#include "../../sim/expected_output.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ASKERS = 6, VOCAB = 19, AT_ONCE = 5 };

static const struct fake_options fake = {
    .n_vocab = VOCAB, .n_ctx_train = 200, .max_rows = 40, .n_pages = 7 * 32 / PAGE_TOKENS, .seed = 4
};

static const struct engine_options options = {
    .max_batch = 5,
    .max_batch_tokens = 40,
    .prefill_chunk = 9,
    .max_queue = 14,
    .max_queue_tokens = 1 << 20,
    .age_ns = 1000000u,
    .prefix_cache = true,
    .kv_evict = EVICT_CLOCK,
    .kv_tenant_share = 50,
};

struct client_request { /* one request of a client */
    struct sim_request request;
    struct sim_output got, want;
    struct gen *gen;
    bool is_cut;
    struct gen_event *kept[8];
    int n_kept;
};

struct client {
    struct engine *en;
    pthread_t thread;
    struct rng r;
    struct mailbox *box;
    struct sampler *sampler;
    struct client_request flights[AT_ONCE];
    int n_left;        /* requests still to submit */
    bool till_the_end; /* continues until the engine accepts no more */
    int n_started, n_ended, n_refused;
    bool is_refused_for_good;
};

static _Atomic int n_responses; /* over all clients */

static void submit_request(struct client *a, struct client_request *f)
{
    struct sim_request_limits l = { .n_vocab = VOCAB,
        .max_prompt = 60,
        .max_out = SIM_OUT_MAX,
        .max_choices = 3,
        .with_scripts = true };
    struct err e;

    memset(f, 0, sizeof(*f));
    sim_request_random(&f->request, &a->r, &l);
    f->request.script.delay_ms %= 3;
    EXPECT_EQ(gen_new(&f->gen, &f->request.in, a->box, f, &e), 0);
    if (engine_submit(a->en, f->gen, &e)) {
        EXPECT(e.code == ERR_OVERLOADED || e.code == ERR_DRAINING);
        a->is_refused_for_good = e.code == ERR_DRAINING;
        a->n_refused++;
        gen_free(f->gen);
        f->gen = NULL;
        return;
    }
    a->n_left--;
    a->n_started++;
    expected_output(&f->request, &fake, engine_n_ctx(a->en), a->sampler, &f->want);
    if (rng_chance(&a->r, 20)) {
        f->is_cut = true;
        engine_cancel(a->en, f->gen);
    }
}

static void return_events(struct client_request *f)
{
    while (f->n_kept)
        gen_event_done(f->kept[--f->n_kept]);
}

static void handle_event(struct client *a, struct gen_event *ev)
{
    struct client_request *f = gen_user(ev->gen);

    sim_output_add(&f->got, ev);
    if (ev->msg.kind == GEN_END) {
        return_events(f);
        enum errcode code = gen_result(f->gen)->err.code;
        EXPECT(code == ERR_NONE || f->is_cut || (code == ERR_DRAINING && a->till_the_end));
        for (int i = 0; i < f->request.in.n_choices && !f->is_cut && !a->till_the_end; i++)
            EXPECT(f->got.choice[i].finish < FINISH_CANCELLED);
        expect_same_output(&f->got, &f->want, f->request.in.n_choices);
        gen_free(f->gen);
        f->gen = NULL;
        a->n_ended++;
        n_responses++;
        return;
    }
    if (rng_chance(&a->r, 2)) {
        f->is_cut = true;
        if (rng_chance(&a->r, 50))
            engine_stop_choice(a->en, f->gen, ev->choice);
        else
            engine_cancel(a->en, f->gen);
    }
    if (f->n_kept < 8 && rng_chance(&a->r, 30) && ev->msg.kind != GEN_CHOICE_END) {
        f->kept[f->n_kept++] = ev;
        return;
    }
    gen_event_done(ev);
}

static bool submit_requests(struct client *a)
{
    bool is_busy = false, is_full = false;

    for (int i = 0; i < AT_ONCE; i++) {
        struct client_request *f = &a->flights[i];
        int n_refused = a->n_refused;
        if (!f->gen && a->n_left > 0 && !a->is_refused_for_good && !is_full)
            submit_request(a, f);
        is_full |= a->n_refused > n_refused; /* try again after the next events */
        is_busy |= f->gen != NULL;
    }
    return is_busy || (a->n_left > 0 && !a->is_refused_for_good);
}

/* Reads at least one event; sometimes returns all held events. */
static void read_events(struct client *a)
{
    struct msg *m = mailbox_drain(a->box), *next;

    if (!m) { /* the engine may wait for these events: return all before sleeping */
        for (int i = 0; i < AT_ONCE; i++)
            if (a->flights[i].gen)
                return_events(&a->flights[i]);
        mailbox_wait(a->box, clock_ns() + 1000000);
        return;
    }
    for (; m; m = next) {
        next = m->next;
        handle_event(a, container_of(m, struct gen_event, msg));
    }
}

static void *run_client(void *arg)
{
    struct client *a = arg;

    while (submit_requests(a))
        read_events(a);
    return NULL;
}

static void open_clients(struct client *a, struct engine *en, int n_each)
{
    const struct kernels *k;
    struct err e;

    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    for (int i = 0; i < ASKERS; i++) {
        a[i] = (struct client){ .en = en, .r = { .key = (uint64_t)i + 1 }, .n_left = n_each };
        EXPECT_EQ(mailbox_open(&a[i].box, &e), 0);
        EXPECT_EQ(sampler_open(&a[i].sampler, k, VOCAB, &e), 0);
    }
}

static void start_clients(struct client *a)
{
    struct err e;

    for (int i = 0; i < ASKERS; i++)
        EXPECT_EQ(thread_start(&a[i].thread, "asker", run_client, &a[i], &e), 0);
}

static void join_clients(struct client *a)
{
    for (int i = 0; i < ASKERS; i++) {
        pthread_join(a[i].thread, NULL);
        sampler_close(a[i].sampler);
        mailbox_close(a[i].box);
    }
}

static struct engine *open_engine(void)
{
    const struct kernels *k;
    struct engine *en;
    struct lm *lm;
    struct err e;

    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    EXPECT_EQ(lm_open_fake(&lm, &fake, &e), 0);
    EXPECT_EQ(engine_open(&en, lm, k, &options, &e), 0);
    return en;
}

static struct client clients[ASKERS];

static void concurrent_clients_get_correct_outputs_and_all_pages_are_freed(void)
{
    struct engine *en = open_engine();
    struct engine_audit audit;
    int n_ended = 0, n_refused = 0;

    open_clients(clients, en, 60);
    start_clients(clients);
    for (int i = 0; i < 20; i++) {
        engine_audit(en, &audit); /* while the clients run */
        EXPECT(audit.ok);
    }
    join_clients(clients);
    for (int i = 0; i < ASKERS; i++) {
        n_ended += clients[i].n_ended;
        n_refused += clients[i].n_refused;
    }
    engine_audit(en, &audit);
    EXPECT(audit.ok && audit.sequences == 0 && audit.pages_owned == 0);
    EXPECT_EQ(n_ended, 60 * ASKERS);
    EXPECT_EQ(engine_stats(en)->finished + engine_stats(en)->cancelled, (uint64_t)n_ended);
    EXPECT_EQ(engine_stats(en)->rejected, (uint64_t)n_refused);
    EXPECT(engine_stats(en)->preemptions > 0);
    engine_close(en);
}

/* The engine stops accepting requests and closes while its clients have requests in flight: each
 * admitted request receives an end event. */
static void closing_the_engine_ends_every_request(void)
{
    for (int round = 0; round < 5; round++) {
        struct engine *en = open_engine();
        int n_ended = 0;
        n_responses = 0;
        open_clients(clients, en, 1 << 20);
        for (int i = 0; i < ASKERS; i++)
            clients[i].till_the_end = true;
        start_clients(clients);
        while (n_responses < 10 * (round + 1))
            sched_yield();
        engine_drain(en);
        join_clients(clients);
        for (int i = 0; i < ASKERS; i++)
            n_ended += clients[i].n_ended;
        EXPECT_EQ(n_ended, n_responses);
        engine_close(en);
    }
}

/* The clients submit and then only read. Meanwhile the engine closes; the clients receive their
 * end events and free their memory after the engine is gone. */
static void events_outlive_the_engine(void)
{
    for (int round = 0; round < 20; round++) {
        struct engine *en = open_engine();
        struct client *a = clients;
        open_clients(a, en, AT_ONCE);
        for (int i = 0; i < ASKERS; i++) {
            a[i].till_the_end = true;
            submit_requests(&a[i]);
            a[i].n_left = 0; /* a rejected request is not submitted again */
        }
        start_clients(a);
        engine_close(en);
        join_clients(a);
        for (int i = 0; i < ASKERS; i++)
            EXPECT_EQ(a[i].n_ended, a[i].n_started);
    }
}

TESTS(TEST(concurrent_clients_get_correct_outputs_and_all_pages_are_freed),
    TEST(closing_the_engine_ends_every_request), TEST(events_outlive_the_engine))
