/* draft_sim.h: simulation of speculative decoding: the engine with a model of simulated step
 * durations (support/draft_model.h) and a drafter of fixed acceptance. */
#pragma once

#include "support/draft_model.h"

/* ---- drafter that has the expected outputs and proposes a given percentage of correct tokens */

struct exact_drafter {
    struct drafter d;
    struct rng r;
    int percent;
    int switch_at, percent_then; /* percentage from this token of the output on */
};

static int32_t expected_tokens[STREAMS][OUT];
static struct exact_drafter exact_drafter;

static inline int exact_offer(struct drafter *d, struct draft_job *job)
{
    job->source = DRAFT_HISTORY_LONG;
    return job->n_max;
}

static inline void exact_propose(
    struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    struct exact_drafter *o = container_of(d, struct exact_drafter, d);

    for (int j = 0; j < n_jobs; j++) {
        const int32_t *want = expected_tokens[*(int *)jobs[j].user];
        jobs[j].n_out = jobs[j].n_max;
        for (int i = 0; i < jobs[j].n_max; i++) {
            int at = jobs[j].n - jobs[j].n_prompt + i;
            int percent = o->switch_at && at >= o->switch_at ? o->percent_then : o->percent;
            bool is_right = rng_below(&o->r, 100) < (uint64_t)percent;
            jobs[j].out[i] = is_right ? want[at] : (want[at] + 1) % VOCAB;
        }
    }
}

static inline void exact_forget(struct drafter *d, uint64_t key)
{
}

static inline void response_cache_close(struct drafter *d)
{
}

static const struct draft_ops exact_drafter_ops = { exact_offer, exact_propose, exact_forget,
    response_cache_close };

/* ---- runs */

struct timed_run {
    double ns; /* over all streams */
    uint64_t drafted, accepted;
};

static inline void read_events(struct mailbox *box, int *n_open, bool is_first)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(box); m; m = next) {
        next = m->next;
        struct gen_event *ev = container_of(m, struct gen_event, msg);
        struct gen *g = ev->gen;
        int i = *(int *)gen_user(g);
        bool is_over = m->kind == GEN_END;
        if (m->kind == GEN_TOKEN && is_first)
            expected_tokens[i][ev->index] = ev->token.id;
        else if (m->kind == GEN_TOKEN)
            CHECK(expected_tokens[i][ev->index] == ev->token.id);
        gen_event_done(ev);
        *n_open -= is_over;
        if (is_over)
            gen_free(g);
    }
}

/* Runs n_streams equal requests. The first run of a comparison has draft_max 0: it records the
 * output, which the drafter proposes and later runs must equal. */
static inline struct timed_run timed_run(
    const struct step_law *step_law, int n_streams, int draft_min, int draft_max)
{
    static int index[STREAMS];
    static const int32_t prompt[PROMPT] = { 1, 2, 3 };
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct mailbox *box;
    struct submit_queue *queue;
    struct core *c;
    struct err e;
    int n_open = n_streams;

    now_ns = 1;
    undisturbed_ns = n_steps = 0;
    noise_rng = (struct rng){ .key = seed };
    o.spec =
        (struct spec_options){ .min = draft_min, .max = draft_max, .drafter = &exact_drafter.d };
    o.max_batch = o.max_sequences = STREAMS;
    CHECK(!kernels_choose(&k, "ref", &e));
    CHECK(!submit_queue_open(&queue, &e));
    CHECK(!core_open(&c, open_timed(step_law), k, &o, queue, &e));
    c->clock = law_clock;
    CHECK(!mailbox_open(&box, &e));
    for (int i = 0; i < n_streams; i++) {
        struct gen_input in = { .cache_prompt = true,
            .prompt = prompt,
            .n_prompt = PROMPT,
            .max_tokens = OUT,
            .n_choices = 1,
            .sample = sample_params_default };
        struct gen *g;
        index[i] = i;
        in.sample.seed = (uint64_t)i;
        CHECK(!gen_new(&g, &in, box, &index[i], &e));
        CHECK(!submit_queue_submit(queue, g, now_ns, &e));
    }
    while (n_open > 0) {
        core_drain(c, now_ns);
        CHECK(core_step(c, now_ns));
        read_events(box, &n_open, draft_max == 0);
    }
    core_drain(c, now_ns);
    struct timed_run r = { undisturbed_ns, draft_sum(&queue->stats).drafted,
        draft_sum(&queue->stats).accepted };
    core_close(c);
    submit_queue_unref(queue);
    mailbox_close(box);
    return r;
}
