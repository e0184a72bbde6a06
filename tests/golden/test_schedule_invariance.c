/* Schedule invariance: the output does not depend on the schedule.
 *
 * 200 random requests (lengths, sampling, seeds, choices, stop tokens) run alone, and then
 * together: in random order, with cancellations, other batch sizes, chunks and threads, so few
 * pages that sequences are preempted repeatedly, layered prefill, and with and without a prefix
 * cache, which is used often because many requests are the next turn of another. Tokens and
 * logprobs must be bit-identical; the output of a cancelled request must be a prefix of the full
 * output.
 *
 * Half of the requests have a constraint with a pseudo-random mask (testing/fake_constraint.h). In
 * most runs the masks are computed in small parts, so that choices pause. Two subjects have
 * compiled constraints of all kinds instead, among them tool calls
 * (support/compiled_constraints.h); half of those complete the output at their limit of tokens.
 *
 * Alone there are no drafts and no cached pages. Together, some requests have an n-gram index of
 * their own text, some have a prediction (the real output with gaps and changes), and in some
 * runs a drafter proposes random tokens: correct, wrong, stop tokens, and invalid ids.
 *
 * Models: a fake one that is a hash of its pages, small random ones in several number formats,
 * one of them with float weights on AMX tiles (in software if the processor has none), and
 * stories260K if its file is available. */
#include "base/log.h"
#include "format/gguf.h"
#include "model/llama.h"
#include "../kernel/kit.h"
#include "support/compiled_constraints.h"
#include "support/drop_layers_kit.h"
#include "../sim/sim_output.h"
#include "support/tmpdir.h"
#include "support/tiny.h"
#include "engine/spec/draft_lm.h"
#include "testing/fake.h"
#include "testing/synth.h"

#include <unistd.h>

enum { N_REQUESTS = 200, N_MANY = 60, N_LONG = 4 };
enum { LONG_PROMPT_TOKENS = 640, N_CTX = LONG_PROMPT_TOKENS + SIM_OUT_MAX };

/* The thread sanitizer is fifty times slower; all weight formats have the same memory accesses,
 * so it tests one. Other sanitizers are five times slower, and fewer requests show the errors that
 * they find; the build without sanitizers compares the bytes of all. */
#if defined(__SANITIZE_THREAD__)
enum {
    IS_WATCHED = true,
    N_TINY = 6,
    N_COMPILED = 30,
    N_COMPILED_SMALL = 16,
    N_STORIES = 20,
    N_DEMO = 6,
    N_FAMILY = 4
};
#elif defined(__SANITIZE_ADDRESS__)
enum {
    IS_WATCHED = false,
    N_TINY = 40,
    N_COMPILED = 45,
    N_COMPILED_SMALL = 30,
    N_STORIES = 60,
    N_DEMO = 20,
    N_FAMILY = 8
};
#else
enum {
    IS_WATCHED = false,
    N_TINY = N_REQUESTS,
    N_COMPILED = 90,
    N_COMPILED_SMALL = 45,
    N_STORIES = N_REQUESTS,
    N_DEMO = 60,
    N_FAMILY = 40
};
#endif

struct subject { /* the tested model */
    const char *name;
    const struct gguf *g; /* NULL: the fake model */
    int n_vocab, n_requests;
    bool has_long;
    const struct gguf *draft_model; /* draft model; NULL: the model itself */
    enum kv_type kv_type;
    const struct kernels *kernels; /* NULL: the best available */
    int kv_heads;                  /* shape of a small model; 0: two */
    int threads;                   /* in runs with several threads; 0: two */
    uint32_t n_states;             /* state slots; 0: no recurrent layers */
    int window;                    /* window of the fake model */
    bool is_family;                /* few requests: by chance none may be read from disk */
    bool is_windowed_only;
    uint32_t n_window_pages;                     /* 0: as many as pages */
    const struct compiled_constraints *compiled; /* NULL: constraints are fake ones */
};

struct run_config { /* configuration of a run */
    int batch, rows, chunk, threads, pages;
    uint64_t seed;   /* determines the order of submission */
    int draft, min;  /* longest draft, and the shortest that is forced */
    int model_pages; /* pages of the draft model; 0: there is no draft model */
    int bad_drafter; /* percent of wrong drafts of the bad drafter; 0: there is none */
};

static struct sim_request requests[N_REQUESTS];
static struct sim_output alone[N_REQUESTS], together[N_REQUESTS];
static int cancel_after[N_REQUESTS]; /* number of events; -1 = never */
static int n_events[N_REQUESTS];
static int32_t long_prompt[LONG_PROMPT_TOKENS];
static int32_t predicted[N_REQUESTS][SIM_OUT_MAX];

/* ---- a drafter that has the expected outputs and proposes wrong tokens */

struct bad_drafter {
    struct drafter d;
    struct rng r;
    int percent, n_vocab;
};

static int bad_offer(struct drafter *d, struct draft_job *job)
{
    job->source = DRAFT_MODEL;
    return job->n_max;
}

static int32_t bad_token(struct bad_drafter *w, const struct draft_job *job, int i)
{
    const struct sim_request *a = job->user;
    const struct sim_output *want = &alone[a - requests];
    int n = job->n - job->n_prompt + i;

    if (rng_chance(&w->r, w->percent))
        switch (rng_between(&w->r, 0, 4)) {
        case 0:
            return a->in.n_stop_ids ? a->stops[0] : 0;
        case 1:
            return w->n_vocab;
        case 2:
            return rng_chance(&w->r, 50) ? -1 : INT32_MIN;
        case 3:
            return INT32_MAX;
        case 4:
            return rng_between(&w->r, 0, w->n_vocab - 1);
        }
    return n < want->choice[job->choice].n ? want->choice[job->choice].token[n] : 0;
}

static void bad_propose(
    struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    struct bad_drafter *w = container_of(d, struct bad_drafter, d);

    for (int j = 0; j < n_jobs; j++) {
        jobs[j].n_out =
            rng_chance(&w->r, 80) ? jobs[j].n_max : rng_between(&w->r, 0, jobs[j].n_max);
        for (int i = 0; i < jobs[j].n_out; i++)
            jobs[j].out[i] = bad_token(w, &jobs[j], i);
    }
}

static void bad_forget(struct drafter *d, uint64_t key)
{
}

static void bad_close(struct drafter *d)
{
}

static const struct draft_ops bad_drafter_ops = { bad_offer, bad_propose, bad_forget, bad_close };
static struct bad_drafter bad_drafter;

static void make_prediction(struct rng *r, int i, int n_vocab)
{
    const struct sim_output *want = &alone[i];
    struct gen_input *in = &requests[i].in;

    in->want_drafts = rng_chance(r, 60);
    in->predicted = predicted[i];
    in->n_predicted = 0;
    for (int j = 0; rng_chance(r, 99) && j < want->choice[0].n; j++)
        if (!rng_chance(r, 5)) /* else the token is left out */
            predicted[i][in->n_predicted++] =
                rng_chance(r, 5) ? rng_between(r, -5, n_vocab + 5) : want->choice[0].token[j];
    if (rng_chance(r, 50))
        in->n_predicted = 0;
}

/* ---- setting up */

/* Replaces the constraint by a compiled one, whose end token is then a stop token. */
static void constrain_by(struct sim_request *a, struct constraint *compiled, int32_t end)
{
    a->is_constrained = true;
    a->compiled = compiled;
    a->in.stop_ids = a->stops;
    a->stops[0] = end;
    a->in.n_stop_ids = MAX(a->in.n_stop_ids, 1);
}

static void make_requests(const struct subject *s, uint64_t seed)
{
    struct rng r = { .key = seed };
    struct sim_request_limits l = { .n_vocab = s->n_vocab,
        .max_prompt = SIM_PROMPT_MAX,
        .max_out = SIM_OUT_MAX,
        .max_choices = SIM_CHOICES_MAX,
        .with_constraints = true };

    for (int i = 0; i < LONG_PROMPT_TOKENS; i++)
        long_prompt[i] = rng_between(&r, 0, s->n_vocab - 1);
    for (int i = 0; i < s->n_requests; i++) {
        sim_request_random(&requests[i], &r, &l);
        cancel_after[i] = rng_chance(&r, 12) ? rng_between(&r, 0, SIM_OUT_MAX) : -1;
        if (s->compiled) /* each source occurs, since the number of requests is larger */
            constrain_by(&requests[i], s->compiled->all[i % s->compiled->n], CC_END);
        requests[i].closes_at_limit = s->compiled && i % 2;
        if (!s->has_long || i >= N_LONG)
            continue;
        /* longer than one key block and one KV split of attention */
        requests[i].in.prompt = long_prompt;
        requests[i].in.n_prompt = rng_between(&r, LONG_PROMPT_TOKENS / 2, LONG_PROMPT_TOKENS);
        requests[i].in.want_prompt_logprobs = false;
    }
}

static struct lm *open_lm(const struct subject *s, const struct run_config *w)
{
    const uint32_t n_pages = (uint32_t)w->pages * 32 / PAGE_TOKENS;
    const uint32_t n_window_pages = MIN(s->n_window_pages * 32 / PAGE_TOKENS, n_pages);
    struct fake_options f = { .n_vocab = s->n_vocab,
        .n_ctx_train = N_CTX,
        .max_rows = w->rows,
        .n_pages = n_pages,
        .n_layers = 3,
        .n_states = s->n_states,
        .window = s->window,
        .is_windowed_only = s->is_windowed_only,
        .n_window_pages = n_window_pages,
        .seed = 9 };
    struct llama_options o = { .n_threads = w->threads,
        .n_pages = n_pages,
        .n_window_pages = n_window_pages,
        .n_states = s->n_states,
        .kv_type = s->kv_type,
        .kernels = s->kernels,
        .max_rows = w->rows,
        .max_logits = MIN(w->rows, 64) };
    struct lm *lm = NULL;
    struct err e = { 0 };
    int failed = s->g ? lm_open_llama(&lm, s->g, &o, &e) : lm_open_fake(&lm, &f, &e);

    if (failed)
        fprintf(stderr, "%s: %s\n", s->name, e.msg);
    EXPECT(!failed);
    return lm;
}

static char disk_dir[TMPDIR_NAME];
static uint64_t n_from_disk; /* pages, in the last run */
static int n_families_from_disk;

static bool has_disk(const struct run_config *w)
{
    return w->seed % 3 == 2;
}

static bool is_cached(const struct run_config *w)
{
    return w->seed % 3 != 1;
}

/* The drafter has few pages. */
static struct drafter *open_drafter(
    const struct subject *s, const struct run_config *w, const struct kernels *k)
{
    struct run_config small = { .rows = 64, .threads = 1, .pages = w->model_pages };
    struct subject draft_subject = *s;
    struct drafter *d = NULL;
    struct err e;

    draft_subject.n_states = 0; /* a draft model has no recurrent layers */
    draft_subject.n_window_pages = 0;
    if (s->draft_model)
        draft_subject.g = s->draft_model;
    if (w->bad_drafter)
        return &bad_drafter.d;
    if (w->model_pages)
        EXPECT_EQ(draft_lm_open(&d, open_lm(&draft_subject, &small), k, 3, N_CTX, &e), 0);
    return d;
}

static struct engine *open_engine(const struct subject *s, const struct run_config *w)
{
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct engine *en;
    struct err e;

    o.max_batch = w->batch;
    o.max_batch_tokens = w->rows;
    o.prefill_chunk = w->chunk;
    o.fairness = (struct fairness){ w->seed % 2, 1, w->seed % 3 ? (int)w->seed : 0 };
    o.mixed_step_percent = (const int[]){ 0, 140, 100, 110, 300 }[w->seed % 5];
    o.mixed_step_percent_short = (const int[]){ 100, 300, 0 }[w->seed % 3];
    /* a partial chunk ends after each layer */
    o.max_step_layers = w->seed % 4 == 1 || w->seed % 4 == 2;
    o.max_queue = N_REQUESTS;
    /* Compiled masks take some hundred steps. */
    o.mask_steps = (const uint64_t[]){ 0, 3, 1, 20 }[w->seed % 4] * (s->compiled ? 50 : 1);
    o.prefix_cache = is_cached(w);
    o.kv_evict = w->seed % 2 ? EVICT_LRU : EVICT_CLOCK;
    o.kv_tenant_share = 20;
    if (has_disk(w)) { /* evicted pages go to the disk tier and are loaded whatever it costs */
        o.model_digest = (const uint8_t *)"a digest of thirty-two characters";
        o.kv_disk = disk_dir;
        o.kv_disk_bytes = 1 << 22;
        o.kv_disk_always = true;
    }
    o.n_ctx = s->has_long ? N_CTX : SIM_PROMPT_MAX + SIM_OUT_MAX;
    bad_drafter = (struct bad_drafter){ { &bad_drafter_ops }, { .key = w->seed }, w->bad_drafter,
        s->n_vocab };
    o.spec = (struct spec_options){ .max = w->draft,
        .min = w->min,
        .by_history = w->bad_drafter == 0 && (w->seed % 2 || !w->model_pages) };
    log_set_level(LOG_WARN); /* admissions are logged */
    EXPECT_EQ(kernels_choose(&k, NULL, &e), 0);
    o.spec.drafter = open_drafter(s, w, k);
    EXPECT_EQ(engine_open(&en, open_lm(s, w), k, &o, &e), 0);
    EXPECT_EQ(engine_n_ctx(en), o.n_ctx);
    return en;
}

/* ---- running */

static void submit(struct engine *en, int i, struct sim_output *into, struct mailbox *box)
{
    struct gen *g;
    struct err e;

    memset(&into[i], 0, sizeof(into[i]));
    n_events[i] = 0;
    sim_request_open(&requests[i]);
    EXPECT_EQ(gen_new(&g, &requests[i].in, box, &requests[i], &e), 0);
    EXPECT_EQ(engine_submit(en, g, &e), 0);
}

/* Reads until `n_open` requests have ended. */
static void read_outputs(
    struct engine *en, struct mailbox *box, struct sim_output *into, int n_open)
{
    struct msg *next;

    while (n_open > 0) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box); m; m = next) {
            next = m->next;
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            struct gen *g = ev->gen;
            int i = (int)((struct sim_request *)gen_user(g) - requests);
            sim_output_add(&into[i], ev);
            if (into == together && n_events[i]++ == cancel_after[i])
                engine_cancel(en, g);
            bool is_over = m->kind == GEN_END;
            gen_event_done(ev);
            if (is_over) {
                gen_free(g);
                sim_request_close(&requests[i]);
            }
            n_open -= is_over;
        }
    }
}

static void run_alone(const struct subject *s, uint64_t seed)
{
    struct run_config w = { .batch = 4, .rows = 1024, .chunk = 1024, .threads = 1, .pages = 40 };
    /* Enough window pages and state slots: a choice that waits until the client has read its tokens
     * would otherwise be preempted for another choice of the same request. */
    struct subject roomy = *s;
    roomy.n_window_pages = 0;
    roomy.n_states = s->n_states ? MAX(s->n_states, 80) : 0;
    struct engine *en = open_engine(&roomy, &w);
    struct rng r = { .key = seed };
    struct mailbox *box;
    struct err e;

    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < s->n_requests; i++) {
        int j = rng_between(&r, 0, i) - 1; /* often the next turn of an earlier request */
        if (j >= 0 && rng_chance(&r, 60) && requests[i].in.prompt == requests[i].prompt &&
            requests[j].in.prompt == requests[j].prompt)
            sim_request_follow(
                &requests[i], &r, &requests[j], alone[j].choice[0].token, alone[j].choice[0].n);
        submit(en, i, alone, box);
        read_outputs(en, box, alone, 1);
    }
    EXPECT_EQ(engine_stats(en)->preemptions, 0u);
    engine_close(en);
    mailbox_close(box);
}

/* Expects that pages were cached and drafts made, some accepted and some not, wherever possible.
 * With few requests, by chance no page is cached or every draft is accepted; without unused state
 * slots and pages, there are no checkpoints. */
static void expect_cache_hits_and_drafts(
    const struct subject *s, const struct run_config *w, const struct engine_stats *st)
{
    struct draft_sum drafts = draft_sum(st);
    bool has_checkpoints = s->n_states > 2 * (uint32_t)w->batch && w->pages >= 100;

    if (s->n_states == 0 || has_checkpoints)
        EXPECT_EQ(st->prefix.matched_tokens > 0, is_cached(w));
    if (w->min == 0 || w->rows == 1)
        return;
    EXPECT(drafts.accepted > 0);
    EXPECT(w->model_pages || drafts.accepted < drafts.drafted);
}

/* Returns the number of preemptions. */
static uint64_t run_together(const struct subject *s, const struct run_config *w)
{
    uint64_t n_preempted;
    struct engine *en = open_engine(s, w);
    struct rng r = { .key = w->seed };
    struct mailbox *box;
    struct err e;
    int order[N_REQUESTS];

    for (int i = 0; i < s->n_requests; i++) {
        int at = rng_between(&r, 0, i);
        order[i] = order[at];
        order[at] = i;
        make_prediction(&r, i, s->n_vocab);
    }
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < s->n_requests; i++)
        submit(en, order[i], together, box);
    read_outputs(en, box, together, s->n_requests);

    struct engine_audit audit;
    engine_audit(en, &audit);
    EXPECT(audit.ok && audit.pages_owned == 0);
    const struct engine_stats *st = engine_stats(en);
    printf("%s: batch %d rows %d chunk %d threads %d pages %d: %d steps, %d preempted, "
           "%d of %d draft tokens accepted, %d prompt tokens cached, %d pages loaded from disk, "
           "%d of %d masks paused, %d of %d forced tokens accepted\n",
        s->name, w->batch, w->rows, w->chunk, w->threads, w->pages, (int)st->steps,
        (int)st->preemptions, (int)draft_sum(st).accepted, (int)draft_sum(st).drafted,
        (int)st->prefix.matched_tokens, (int)st->prefix.disk_pages_read,
        (int)st->constraints.pauses, (int)st->constraints.masks,
        (int)st->drafts_by_source[DRAFT_BY_CONSTRAINT].accepted_tokens,
        (int)st->drafts_by_source[DRAFT_BY_CONSTRAINT].drafted_tokens);
    EXPECT(is_cached(w) || st->prefix.matched_tokens == 0);
    if (s->n_requests >= N_MANY)
        expect_cache_hits_and_drafts(s, w, st);
    n_preempted = engine_stats(en)->preemptions;
    n_from_disk = st->prefix.disk_pages_read;
    engine_close(en);
    mailbox_close(box);
    return n_preempted;
}

static void compare_outputs(const struct subject *s)
{
    int n_whole = 0;

    for (int i = 0; i < s->n_requests; i++) {
        bool is_cut = false;
        expect_same_output(&together[i], &alone[i], requests[i].in.n_choices);
        for (int c = 0; c < requests[i].in.n_choices; c++)
            is_cut |= together[i].choice[c].finish >= FINISH_CANCELLED &&
                      together[i].choice[c].finish != alone[i].choice[c].finish;
        EXPECT(!is_cut || cancel_after[i] >= 0);
        n_whole += !is_cut;
    }
    EXPECT(n_whole >= s->n_requests * 2 / 3);
}

static void expect_schedule_invariance(
    const struct subject *s, const struct run_config *w, size_t n, uint64_t seed)
{
    uint64_t n_preempted = 0;

    printf("%s: %d requests, seed %lu\n", s->name, s->n_requests, (unsigned long)seed);
    make_requests(s, seed);
    run_alone(s, seed);
    for (size_t i = 0; i < n; i++) {
        if (has_disk(&w[i]))
            tmpdir_make(disk_dir);
        n_preempted += run_together(s, &w[i]);
        compare_outputs(s);
        if (!has_disk(&w[i]))
            continue;
        run_together(s, &w[i]); /* a restart */
        compare_outputs(s);
        EXPECT(n_from_disk > 0 || s->is_family);
        n_families_from_disk += s->is_family && n_from_disk > 0;
        tmpdir_remove(disk_dir);
    }
    EXPECT(
        n_preempted > 0 || s->n_requests < N_REQUESTS); /* few requests may by chance not overlap */
}

/* ---- models */

static void fake_model_with(struct subject s)
{
    s.name = s.compiled ? "fake with compiled constraints" : "fake";
    s.n_vocab = s.compiled ? CC_VOCAB : 60;
    s.n_requests = s.compiled ? N_COMPILED : N_REQUESTS;
    s.has_long = true;
    const struct run_config w[] = {
        { .batch = 1,
            .rows = 1,
            .chunk = 512,
            .threads = 1,
            .pages = 22,
            .seed = 1,
            .draft = 8,
            .min = 2 },
        { .batch = 32,
            .rows = 512,
            .chunk = 512,
            .threads = 1,
            .pages = 200,
            .seed = 2,
            .draft = 8,
            .min = 8,
            .bad_drafter = 30 },
        { .batch = 32, .rows = 64, .chunk = 1, .threads = 1, .pages = 24, .seed = 3, .draft = 16 },
        { .batch = 7,
            .rows = 33,
            .chunk = 5,
            .threads = 1,
            .pages = 22,
            .seed = 4,
            .draft = 3,
            .min = 3,
            .bad_drafter = 10 },
        { .batch = 32,
            .rows = 300,
            .chunk = 100,
            .threads = 1,
            .pages = 40,
            .seed = 5,
            .draft = 16,
            .min = 16,
            .model_pages = 24 },
        { .batch = 8,
            .rows = 200,
            .chunk = 64,
            .threads = 1,
            .pages = 40,
            .seed = 6,
            .draft = 6,
            .min = 6,
            .model_pages = 22 },
    };

    expect_schedule_invariance(&s, w, ARRAY_LEN(w), 41);
}

static void fake_model(void)
{
    fake_model_with((struct subject){ 0 });
}

/* Fewer state slots than running sequences, enough for all, and some for checkpoints. */
static void fake_model_with_state_slots(void)
{
    fake_model_with((struct subject){ .n_states = 5 });
    if (!IS_WATCHED)
        fake_model_with((struct subject){ .n_states = 80 });
}

/* Few window pages, so that sequences are preempted for them, and enough; windows shorter and
 * longer than a page. */
static void fake_model_with_windows(void)
{
    fake_model_with((struct subject){ .window = 50, .n_window_pages = 60, .n_states = 80 });
    if (IS_WATCHED)
        return;
    fake_model_with((struct subject){ .window = 70, .n_window_pages = 8 });
    fake_model_with((struct subject){ .window = 20, .n_window_pages = 100 });
    fake_model_with((struct subject){ .window = 45, .is_windowed_only = true });
}

static void fake_model_with_compiled_constraints(void)
{
    struct compiled_constraints c;

    compiled_constraints_open(&c);
    fake_model_with((struct subject){ .compiled = &c });
    compiled_constraints_close(&c);
}

/* `s` has the KV format and the kernels. */
static void small_model_with(struct subject s, const char *arch, enum qtype type, enum qtype type_v)
{
    const int n_threads = s.threads ? s.threads : 2;
    struct tiny_model t = tiny_default;
    const struct run_config w[] = {
        { .batch = 32,
            .rows = 128,
            .chunk = 64,
            .threads = n_threads,
            .pages = 23,
            .seed = 6,
            .draft = 8,
            .min = 4 },
        { .batch = 3,
            .rows = 20,
            .chunk = 7,
            .threads = 1,
            .pages = 100,
            .seed = 7,
            .draft = 5,
            .min = 5,
            .bad_drafter = 20 },
        { .batch = 16,
            .rows = 512,
            .chunk = 512,
            .threads = n_threads,
            .pages = 60,
            .seed = 8,
            .draft = 6,
            .min = 4,
            .model_pages = 30 },
    };

    t.arch = arch;
    t.experts = strcmp(arch, "qwen3moe") ? 0 : 6;
    t.experts_used = MIN(t.experts, 2);
    t.type = type;
    t.type_v = type_v;
    t.d = t.ff = 256;
    t.head_dim = 64;
    t.kv_heads = s.kv_heads ? s.kv_heads : t.kv_heads;
    t.vocab = s.compiled ? CC_VOCAB : 200;
    t.ctx = N_CTX;
    struct gguf *g = tiny_open(&t);
    EXPECT(g);
    s.g = g;
    s.n_vocab = t.vocab;
    if (!s.n_requests)
        s.n_requests = N_TINY;
    s.has_long = !s.kernels;
    expect_schedule_invariance(&s, w, ARRAY_LEN(w), 42);
    gguf_close(g);
}

static void small_model(const char *name, const char *arch, enum qtype type, enum qtype type_v)
{
    small_model_with((struct subject){ .name = name }, arch, type, type_v);
}

static void small_model_in_q4_k(void)
{
    small_model("q4_k", "llama", Q_Q4_K, Q_Q6_K);
}

static void small_model_in_q4_0(void)
{
    small_model("q4_0", "llama", Q_Q4_0, Q_Q8_0);
}

static void small_model_in_f16(void)
{
    small_model("f16", "llama", Q_F16, Q_F16);
}

/* Several threads compute masks of one constraint. */
static void small_model_with_compiled_constraints(void)
{
    struct compiled_constraints c;

    compiled_constraints_open(&c);
    const struct subject s = {
        .name = "q4_0 with compiled constraints", .n_requests = N_COMPILED_SMALL, .compiled = &c
    };
    small_model_with(s, "llama", Q_Q4_0, Q_Q8_0);
    compiled_constraints_close(&c);
}

static void q8_0_kv(void)
{
    const struct subject s = { .name = "q4_0 with q8_0 keys", .kv_type = KV_Q8_0 };

    small_model_with(s, "llama", Q_Q4_0, Q_Q8_0);
}

/* One KV head for three threads: the threads share the splits of long sequences. */
static void one_kv_head(void)
{
    const struct subject s = { .name = "one kv head", .kv_heads = 1, .threads = 3 };

    small_model_with(s, "qwen2", Q_Q8_0, Q_Q4_0);
}

/* GEMMs of float weights and attention use the own summation of AMX tiles. */
static void float_weights_on_amx_tiles(void)
{
    struct subject s = { .name = "bf16 in tiles", .kv_type = KV_BF16 };
    struct err e;

    if (kernels_choose(&s.kernels, "amx", &e)) {
        s.kernels = IS_WATCHED ? NULL : kit_amx_soft(); /* per thread */
        s.n_requests = 16;                              /* few requests, since it is slow */
    }
    if (s.kernels)
        small_model_with(s, "llama", Q_BF16, Q_F16);
    else
        printf("skipped: no tiles, and those in software take AVX-512 BF16 and much time\n");
}

static void mixture_of_experts(void)
{
    small_model("experts", "qwen3moe", Q_Q4_0, Q_Q8_0);
}

static void mixture_of_experts_in_mxfp4(void)
{
    small_model("mxfp4", "qwen3moe", Q_MXFP4, Q_IQ4_NL);
}

static void small_model_in_iq4_xs(void)
{
    small_model("iq4_xs", "llama", Q_IQ4_XS, Q_Q5_1);
}

static void stories260k_if_available(void)
{
    const char *dir = getenv("SHARED_DATA");
    const struct run_config w[] = {
        { .batch = 32,
            .rows = 100,
            .chunk = 30,
            .threads = 2,
            .pages = 9,
            .seed = 9,
            .draft = 8,
            .min = 8,
            .bad_drafter = 20 },
    };
    struct subject s = { "stories260K", NULL, 512, N_STORIES, false };
    struct gguf *g;
    struct err e;
    char path[1024];

    snprintf(path, sizeof(path), "%s/models/stories260K-f32.gguf", dir ? dir : "../shared/data");
    if (gguf_open(&g, path, &e)) {
        printf("skipped: %s\n", e.msg);
        return;
    }
    s.g = g;
    expect_schedule_invariance(&s, w, ARRAY_LEN(w), 43);
    gguf_close(g);
}

/* Trained weights; a draft model with all of their layers but one is often right. */
static void demo_model_with_a_draft_model(void)
{
    const struct run_config w[] = {
        { .batch = 16,
            .rows = 256,
            .chunk = 64,
            .threads = 2,
            .pages = 40,
            .seed = 10,
            .draft = 6,
            .min = 3,
            .model_pages = 30 },
        { .batch = 6,
            .rows = 100,
            .chunk = 20,
            .threads = 1,
            .pages = 25,
            .seed = 13,
            .draft = 8,
            .min = 8,
            .model_pages = 22 },
    };
    char path[] = "/tmp/inferflux-promise-XXXXXX";
    struct subject s = { "demo", NULL, 0, N_DEMO, false };
    struct gguf *g, *thin;
    struct err e;

    EXPECT_EQ(gguf_open(&g, "models/demo.gguf", &e), 0);
    drop_layers_make(g, path);
    EXPECT_EQ(gguf_open(&thin, path, &e), 0);
    s.g = g;
    s.n_vocab = (int)gguf_n_tokens(g);
    s.draft_model = thin;
    expect_schedule_invariance(&s, w, ARRAY_LEN(w), 44);
    gguf_close(thin);
    gguf_close(g);
    unlink(path);
}

/* A family with random weights. Models with recurrent layers have as many state slots as running
 * sequences, so that some runs have no second slot and some sequences are preempted. */
static void family(const char *preset, enum qtype type, uint64_t seed)
{
    char path[] = "/tmp/inferflux-family-XXXXXX";
    struct subject s = { .name = preset, .n_requests = N_FAMILY, .is_family = true };
    struct llama_needs needs;
    struct synth model;
    struct gguf *g;
    struct err e;

    EXPECT(synth_preset(&model, preset));
    model.type = model.head_type = type;
    close(mkstemp(path));
    EXPECT_EQ(synth_write(&model, path, &e), 0);
    EXPECT_EQ(gguf_open(&g, path, &e), 0);
    unlink(path);
    EXPECT_EQ(llama_needs(&needs, g, KV_F16, &e), 0);
    s.g = g;
    s.n_vocab = needs.n_vocab;
    s.n_states = needs.state_bytes ? 16 : 0;
    s.has_long = needs.window.size > 0; /* window pages are freed after a key block */
    s.n_window_pages = s.has_long ? 20 : 0;
    const struct run_config w[] = {
        { .batch = 8,
            .rows = 100,
            .chunk = 30,
            .threads = 2,
            .pages = s.has_long ? 24 : 16,
            .seed = 6,
            .draft = 8,
            .min = 4,
            .bad_drafter = 20 },
        { .batch = 16, .rows = 64, .chunk = 64, .threads = 1, .pages = 60, .seed = 8, .draft = 6 },
    };

    expect_schedule_invariance(&s, w, ARRAY_LEN(w), seed);
    gguf_close(g);
}

/* INVARIANCE_ROUNDS: each round has other requests, and each family another type of weights. */
static void every_family(void)
{
    /* types whose blocks fit into the rows of the small models */
    static const enum qtype types[] = { Q_F32, Q_Q4_0, Q_Q8_0, Q_BF16, Q_Q5_1, Q_IQ4_NL };
    const char *name, *rounds = getenv("INVARIANCE_ROUNDS");
    const size_t n_rounds = rounds ? strtoul(rounds, NULL, 10) : 1;

    /* the families share most code: the thread sanitizer runs a quarter of them */
    for (size_t round = 0; round < n_rounds; round++)
        for (size_t i = 0; (name = synth_preset_name(i)); i += IS_WATCHED ? 4 : 1)
            if (!strncmp(name, "tiny-", 5))
                family(name, types[(i + round) % ARRAY_LEN(types)], 45 + round);
    EXPECT(n_families_from_disk > 0);
}

TESTS(TEST(every_family), TEST(fake_model), TEST(fake_model_with_state_slots),
    TEST(fake_model_with_windows), TEST(fake_model_with_compiled_constraints),
    TEST(small_model_with_compiled_constraints), TEST(small_model_in_q4_k),
    TEST(small_model_in_q4_0), TEST(small_model_in_f16), TEST(mixture_of_experts),
    TEST(mixture_of_experts_in_mxfp4), TEST(small_model_in_iq4_xs), TEST(q8_0_kv),
    TEST(one_kv_head), TEST(float_weights_on_amx_tiles), TEST(demo_model_with_a_draft_model),
    TEST(stories260k_if_available))
