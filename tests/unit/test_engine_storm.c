/* Many askers at once: cancels at any moment, askers that keep their events, an engine that is
 * closed under them. Run under the thread sanitizer as well. */
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"
#include "../sim/wants.h"

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

struct flight { /* one request of an asker */
    struct ask ask;
    struct answer got, want;
    struct gen *gen;
    bool is_cut;
    struct gen_event *kept[8];
    int n_kept;
};

struct asker {
    struct engine *en;
    pthread_t thread;
    struct rng r;
    struct mailbox *box;
    struct sampler *sampler;
    struct flight flights[AT_ONCE];
    int n_left;        /* requests still to make */
    bool till_the_end; /* goes on until the engine takes no more */
    int n_started, n_ended, n_refused;
    bool is_refused_for_good;
};

static _Atomic int n_answers; /* over all askers */

static void start(struct asker *a, struct flight *f)
{
    struct ask_limits l = { .n_vocab = VOCAB,
        .max_prompt = 60,
        .max_out = ASK_OUT,
        .max_choices = 3,
        .with_scripts = true };
    struct err e;

    memset(f, 0, sizeof(*f));
    ask_random(&f->ask, &a->r, &l);
    f->ask.script.delay_ms %= 3;
    EXPECT_EQ(gen_new(&f->gen, &f->ask.in, a->box, f, &e), 0);
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
    ask_answer(&f->ask, &fake, engine_n_ctx(a->en), a->sampler, &f->want);
    if (ask_chance(&a->r, 20)) {
        f->is_cut = true;
        engine_cancel(a->en, f->gen);
    }
}

static void give_back(struct flight *f)
{
    while (f->n_kept)
        gen_event_done(f->kept[--f->n_kept]);
}

static void take(struct asker *a, struct gen_event *ev)
{
    struct flight *f = gen_user(ev->gen);

    answer_take(&f->got, ev);
    if (ev->msg.kind == GEN_END) {
        give_back(f);
        enum errcode code = gen_result(f->gen)->err.code;
        EXPECT(code == ERR_NONE || f->is_cut || (code == ERR_DRAINING && a->till_the_end));
        for (int i = 0; i < f->ask.in.n_choices && !f->is_cut && !a->till_the_end; i++)
            EXPECT(f->got.choice[i].finish < FINISH_CANCELLED);
        expect_same_answer(&f->got, &f->want, f->ask.in.n_choices);
        gen_free(f->gen);
        f->gen = NULL;
        a->n_ended++;
        n_answers++;
        return;
    }
    if (ask_chance(&a->r, 2)) {
        f->is_cut = true;
        if (ask_chance(&a->r, 50))
            engine_stop_choice(a->en, f->gen, ev->choice);
        else
            engine_cancel(a->en, f->gen);
    }
    if (f->n_kept < 8 && ask_chance(&a->r, 30) && ev->msg.kind != GEN_CHOICE_END) {
        f->kept[f->n_kept++] = ev;
        return;
    }
    gen_event_done(ev);
}

static bool start_some(struct asker *a)
{
    bool is_busy = false, is_full = false;

    for (int i = 0; i < AT_ONCE; i++) {
        struct flight *f = &a->flights[i];
        int n_refused = a->n_refused;
        if (!f->gen && a->n_left > 0 && !a->is_refused_for_good && !is_full)
            start(a, f);
        is_full |= a->n_refused > n_refused; /* try again after the next events */
        is_busy |= f->gen != NULL;
    }
    return is_busy || (a->n_left > 0 && !a->is_refused_for_good);
}

/* Reads what came, at least something; then everything kept goes back now and then. */
static void read_some(struct asker *a)
{
    struct msg *m = mailbox_drain(a->box), *next;

    if (!m) { /* the engine may wait for our events: all home before we sleep */
        for (int i = 0; i < AT_ONCE; i++)
            if (a->flights[i].gen)
                give_back(&a->flights[i]);
        mailbox_wait(a->box, clock_ns() + 1000000);
        return;
    }
    for (; m; m = next) {
        next = m->next;
        take(a, container_of(m, struct gen_event, msg));
    }
}

static void *ask_away(void *arg)
{
    struct asker *a = arg;

    while (start_some(a))
        read_some(a);
    return NULL;
}

static void open_askers(struct asker *a, struct engine *en, int n_each)
{
    const struct kernels *k;
    struct err e;

    EXPECT_EQ(kernels_choose(&k, "ref", &e), 0);
    for (int i = 0; i < ASKERS; i++) {
        a[i] = (struct asker){ .en = en, .r = { .key = (uint64_t)i + 1 }, .n_left = n_each };
        EXPECT_EQ(mailbox_open(&a[i].box, &e), 0);
        EXPECT_EQ(sampler_open(&a[i].sampler, k, VOCAB, &e), 0);
    }
}

static void start_askers(struct asker *a)
{
    struct err e;

    for (int i = 0; i < ASKERS; i++)
        EXPECT_EQ(thread_start(&a[i].thread, "asker", ask_away, &a[i], &e), 0);
}

static void join_askers(struct asker *a)
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

static struct asker askers[ASKERS];

static void a_storm_leaves_every_answer_right_and_every_page_home(void)
{
    struct engine *en = open_engine();
    struct engine_audit audit;
    int n_ended = 0, n_refused = 0;

    open_askers(askers, en, 60);
    start_askers(askers);
    for (int i = 0; i < 20; i++) {
        engine_audit(en, &audit); /* while they run */
        EXPECT(audit.ok);
    }
    join_askers(askers);
    for (int i = 0; i < ASKERS; i++) {
        n_ended += askers[i].n_ended;
        n_refused += askers[i].n_refused;
    }
    engine_audit(en, &audit);
    EXPECT(audit.ok && audit.sequences == 0 && audit.pages_owned == 0);
    EXPECT_EQ(n_ended, 60 * ASKERS);
    EXPECT_EQ(engine_stats(en)->finished + engine_stats(en)->cancelled, (uint64_t)n_ended);
    EXPECT_EQ(engine_stats(en)->rejected, (uint64_t)n_refused);
    EXPECT(engine_stats(en)->preemptions > 0);
    engine_close(en);
}

/* The engine is told to take no more and is closed while its askers are in full flight: each of
 * them gets an end for everything that was admitted. */
static void closing_under_the_askers_ends_every_request(void)
{
    for (int round = 0; round < 5; round++) {
        struct engine *en = open_engine();
        int n_ended = 0;
        n_answers = 0;
        open_askers(askers, en, 1 << 20);
        for (int i = 0; i < ASKERS; i++)
            askers[i].till_the_end = true;
        start_askers(askers);
        while (n_answers < 10 * (round + 1))
            sched_yield();
        engine_drain(en);
        join_askers(askers);
        for (int i = 0; i < ASKERS; i++)
            n_ended += askers[i].n_ended;
        EXPECT_EQ(n_ended, n_answers);
        engine_close(en);
    }
}

/* Askers that submitted and then only listen; the engine closes meanwhile, and they learn it
 * from their events and free what they had when the engine is long gone. */
static void events_outlive_the_engine(void)
{
    for (int round = 0; round < 20; round++) {
        struct engine *en = open_engine();
        struct asker *a = askers;
        open_askers(a, en, AT_ONCE);
        for (int i = 0; i < ASKERS; i++) {
            a[i].till_the_end = true;
            start_some(&a[i]);
            a[i].n_left = 0; /* what was refused stays so */
        }
        start_askers(a);
        engine_close(en);
        join_askers(a);
        for (int i = 0; i < ASKERS; i++)
            EXPECT_EQ(a[i].n_ended, a[i].n_started);
    }
}

TESTS(TEST(a_storm_leaves_every_answer_right_and_every_page_home),
    TEST(closing_under_the_askers_ends_every_request), TEST(events_outlive_the_engine))
