/* The promise: the schedule never shows.
 *
 * 200 random requests (lengths, sampling, seeds, choices, stops), each alone; then all together,
 * in random order, some cancelled on the way, with other batch sizes, chunks, threads, and pages
 * so few that sequences are preempted again and again, prompts computed layer by layer in steps of
 * their own, with and without a prefix cache, where much is found, since many are the next turn of
 * another. Tokens and log-probabilities must be the
 * same, bit for bit; of cancelled ones what came must be how the whole answer begins.
 *
 * Alone nothing is guessed ahead, nor found. Together some requests have an index of what they said
 * before, some a prediction (what really comes, with holes and changes), and in some runs a drafter
 * guesses at random: right, wrong, end tokens, and numbers that are no tokens.
 *
 * Over a model that is a hash of its pages, over small random models of several number formats,
 * one of them with its floats in tiles (in software, where the processor has none), and over
 * stories260K where its file is at hand. */
#include "base/log.h"
#include "format/gguf.h"
#include "model/llama.h"
#include "../kernel/kit.h"
#include "../thin_kit.h"
#include "../sim/answers.h"
#include "../support/tmpdir.h"
#include "../unit/tiny.h"
#include "engine/spec/draft_lm.h"
#include "testing/fake.h"

enum { ASKS = 200, MANY_ASKS = 60, LONG_ASKS = 4 };
enum { LONG_PROMPT = 640, N_CTX = LONG_PROMPT + ASK_OUT };

/* The thread sanitizer takes fifty times as long; it looks at accesses, of which one kind of
 * weights has as many as the other. The others take five times as long, and have as many to look at
 * in less than half of the requests. */
#if defined(__SANITIZE_THREAD__)
enum { IS_WATCHED = true, TINY_ASKS = 30 };
#elif defined(__SANITIZE_ADDRESS__)
enum { IS_WATCHED = false, TINY_ASKS = 80 };
#else
enum { IS_WATCHED = false, TINY_ASKS = ASKS };
#endif

struct subject { /* what is tested */
    const char *name;
    const struct gguf *g; /* NULL: the fake */
    int n_vocab, n_asks;
    bool has_long;
    const struct gguf *guess; /* of the small model that guesses; NULL: the very model does */
    enum kv_type kv_type;
    const struct kernels *kernels; /* NULL: the best */
    int kv_heads;                  /* of a small model; 0: two */
    int threads;                   /* where some share their work; 0: two */
};

struct world { /* how it is run */
    int batch, rows, chunk, threads, pages;
    uint64_t seed;   /* of the order of submission */
    int draft, min;  /* longest draft, and the shortest that is forced */
    int model_pages; /* of a model that guesses: the same one; 0: it is not there */
    int wicked; /* percent of the guesses that the wicked drafter gets wrong; 0: it is not there */
};

static struct ask asks[ASKS];
static struct answer alone[ASKS], together[ASKS];
static int cancel_after[ASKS]; /* events; -1 = never */
static int n_events[ASKS];
static int32_t long_prompt[LONG_PROMPT];
static int32_t predicted[ASKS][ASK_OUT];

/* ---- a drafter that knows the answers, and lies */

struct wicked {
    struct drafter d;
    struct rng r;
    int percent, n_vocab;
};

static int wicked_offer(struct drafter *d, struct draft_job *job)
{
    job->source = DRAFT_MODEL;
    return job->most;
}

static int32_t wicked_token(struct wicked *w, const struct draft_job *job, int i)
{
    const struct ask *a = job->user;
    const struct answer *want = &alone[a - asks];
    int n = job->n - job->n_prompt + i;

    if (ask_chance(&w->r, w->percent))
        switch (ask_between(&w->r, 0, 4)) {
        case 0:
            return a->in.n_stop_ids ? a->stops[0] : 0;
        case 1:
            return w->n_vocab;
        case 2:
            return ask_chance(&w->r, 50) ? -1 : INT32_MIN;
        case 3:
            return INT32_MAX;
        case 4:
            return ask_between(&w->r, 0, w->n_vocab - 1);
        }
    return n < want->choice[job->choice].n ? want->choice[job->choice].token[n] : 0;
}

static void wicked_propose(
    struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop)
{
    struct wicked *w = container_of(d, struct wicked, d);

    for (int j = 0; j < n_jobs; j++) {
        jobs[j].n_out = ask_chance(&w->r, 80) ? jobs[j].most : ask_between(&w->r, 0, jobs[j].most);
        for (int i = 0; i < jobs[j].n_out; i++)
            jobs[j].out[i] = wicked_token(w, &jobs[j], i);
    }
}

static void wicked_forget(struct drafter *d, uint64_t key)
{
}

static void wicked_close(struct drafter *d)
{
}

static const struct draft_ops wicked_ops = { wicked_offer, wicked_propose, wicked_forget,
    wicked_close };
static struct wicked wicked;

static void predict(struct rng *r, int i, int n_vocab)
{
    const struct answer *want = &alone[i];
    struct gen_input *in = &asks[i].in;

    in->want_drafts = ask_chance(r, 60);
    in->predicted = predicted[i];
    in->n_predicted = 0;
    for (int j = 0; ask_chance(r, 99) && j < want->choice[0].n; j++)
        if (!ask_chance(r, 5)) /* else it is left out */
            predicted[i][in->n_predicted++] =
                ask_chance(r, 5) ? ask_between(r, -5, n_vocab + 5) : want->choice[0].token[j];
    if (ask_chance(r, 50))
        in->n_predicted = 0;
}

/* ---- setting up */

static void invent(const struct subject *s, uint64_t seed)
{
    struct rng r = { .key = seed };
    struct ask_limits l = { .n_vocab = s->n_vocab,
        .max_prompt = ASK_PROMPT,
        .max_out = ASK_OUT,
        .max_choices = ASK_CHOICES };

    for (int i = 0; i < LONG_PROMPT; i++)
        long_prompt[i] = ask_between(&r, 0, s->n_vocab - 1);
    for (int i = 0; i < s->n_asks; i++) {
        ask_random(&asks[i], &r, &l);
        cancel_after[i] = ask_chance(&r, 12) ? ask_between(&r, 0, ASK_OUT) : -1;
        if (!s->has_long || i >= LONG_ASKS)
            continue;
        asks[i].in.prompt = long_prompt; /* more than one block and one split of attention */
        asks[i].in.n_prompt = ask_between(&r, LONG_PROMPT / 2, LONG_PROMPT);
        asks[i].in.want_prompt_logprobs = false;
    }
}

static struct lm *open_lm(const struct subject *s, const struct world *w)
{
    const uint32_t n_pages = (uint32_t)w->pages * 32 / PAGE_TOKENS;
    struct fake_options f = { .n_vocab = s->n_vocab,
        .n_ctx_train = N_CTX,
        .max_rows = w->rows,
        .n_pages = n_pages,
        .n_layers = 3,
        .seed = 9 };
    struct llama_options o = { .n_threads = w->threads,
        .n_pages = n_pages,
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

static bool has_disk(const struct world *w)
{
    return w->seed % 3 == 2;
}

static bool is_cached(const struct world *w)
{
    return w->seed % 3 != 1;
}

/* In few pages. */
static struct drafter *open_drafter(
    const struct subject *s, const struct world *w, const struct kernels *k)
{
    struct world small = { .rows = 64, .threads = 1, .pages = w->model_pages };
    struct subject guesser = *s;
    struct drafter *d = NULL;
    struct err e;

    if (s->guess)
        guesser.g = s->guess;
    if (w->wicked)
        return &wicked.d;
    if (w->model_pages)
        EXPECT_EQ(draft_lm_open(&d, open_lm(&guesser, &small), k, 3, N_CTX, &e), 0);
    return d;
}

static struct engine *open_engine(const struct subject *s, const struct world *w)
{
    struct engine_options o = engine_options_default;
    const struct kernels *k;
    struct engine *en;
    struct err e;

    o.max_batch = w->batch;
    o.max_batch_tokens = w->rows;
    o.prefill_chunk = w->chunk;
    o.fairness = (struct fairness){ w->seed % 2, 1, w->seed % 3 ? (int)w->seed : 0 };
    o.stretch_percent = (const int[]){ 0, 140, 100, 110, 300 }[w->seed % 5];
    o.short_stretch_percent = (const int[]){ 100, 300, 0 }[w->seed % 3];
    o.most_layers = w->seed % 4 == 1 || w->seed % 4 == 2; /* a pause behind each layer */
    o.max_queue = ASKS;
    o.prefix_cache = is_cached(w);
    o.kv_evict = w->seed % 2 ? EVICT_LRU : EVICT_CLOCK;
    o.kv_tenant_share = 20;
    if (has_disk(w)) { /* what is evicted goes to disk, and comes back whatever it takes */
        o.model_digest = (const uint8_t *)"a digest of thirty-two characters";
        o.kv_disk = disk_dir;
        o.kv_disk_bytes = 1 << 22;
        o.kv_disk_always = true;
    }
    o.n_ctx = s->has_long ? N_CTX : ASK_PROMPT + ASK_OUT;
    wicked = (struct wicked){ { &wicked_ops }, { .key = w->seed }, w->wicked, s->n_vocab };
    o.spec = (struct spec_options){ .max = w->draft,
        .min = w->min,
        .by_history = w->wicked == 0 && (w->seed % 2 || !w->model_pages) };
    log_set_level(LOG_WARN); /* turns are told */
    EXPECT_EQ(kernels_choose(&k, NULL, &e), 0);
    o.spec.drafter = open_drafter(s, w, k);
    EXPECT_EQ(engine_open(&en, open_lm(s, w), k, &o, &e), 0);
    EXPECT_EQ(engine_n_ctx(en), o.n_ctx);
    return en;
}

/* ---- running */

static void submit(struct engine *en, int i, struct answer *into, struct mailbox *box)
{
    struct gen *g;
    struct err e;

    memset(&into[i], 0, sizeof(into[i]));
    n_events[i] = 0;
    EXPECT_EQ(gen_new(&g, &asks[i].in, box, &asks[i], &e), 0);
    EXPECT_EQ(engine_submit(en, g, &e), 0);
}

/* Reads until `n_open` requests have ended. */
static void read_answers(struct engine *en, struct mailbox *box, struct answer *into, int n_open)
{
    struct msg *next;

    while (n_open > 0) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box); m; m = next) {
            next = m->next;
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            struct gen *g = ev->gen;
            int i = (int)((struct ask *)gen_user(g) - asks);
            answer_take(&into[i], ev);
            if (into == together && n_events[i]++ == cancel_after[i])
                engine_cancel(en, g);
            bool is_over = m->kind == GEN_END;
            gen_event_done(ev);
            if (is_over)
                gen_free(g);
            n_open -= is_over;
        }
    }
}

static void run_alone(const struct subject *s, uint64_t seed)
{
    struct world w = { .batch = 4, .rows = 1024, .chunk = 1024, .threads = 1, .pages = 40 };
    struct engine *en = open_engine(s, &w);
    struct rng r = { .key = seed };
    struct mailbox *box;
    struct err e;

    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < s->n_asks; i++) {
        int j = ask_between(&r, 0, i) - 1; /* often the next turn of an earlier one */
        if (j >= 0 && ask_chance(&r, 60) && asks[i].in.prompt == asks[i].prompt &&
            asks[j].in.prompt == asks[j].prompt)
            ask_follow(&asks[i], &r, &asks[j], alone[j].choice[0].token, alone[j].choice[0].n);
        submit(en, i, alone, box);
        read_answers(en, box, alone, 1);
    }
    EXPECT_EQ(engine_stats(en)->preemptions, 0u);
    engine_close(en);
    mailbox_close(box);
}

/* That pages were found and guesses made, some right and some wrong, wherever they could be.
 * Few requests may by chance find nothing, and have every guess right. */
static void expect_traffic(const struct world *w, const struct engine_stats *st)
{
    struct draft_sum guesses = draft_sum(st);

    EXPECT_EQ(st->prefix.matched_tokens > 0, is_cached(w));
    if (w->min == 0 || w->rows == 1)
        return;
    EXPECT(guesses.accepted > 0);
    EXPECT(w->model_pages || guesses.accepted < guesses.drafted);
}

/* Returns how often a sequence lost its pages. */
static uint64_t run_together(const struct subject *s, const struct world *w)
{
    uint64_t n_preempted;
    struct engine *en = open_engine(s, w);
    struct rng r = { .key = w->seed };
    struct mailbox *box;
    struct err e;
    int order[ASKS];

    for (int i = 0; i < s->n_asks; i++) {
        int at = ask_between(&r, 0, i);
        order[i] = order[at];
        order[at] = i;
        predict(&r, i, s->n_vocab);
    }
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < s->n_asks; i++)
        submit(en, order[i], together, box);
    read_answers(en, box, together, s->n_asks);

    struct engine_audit audit;
    engine_audit(en, &audit);
    EXPECT(audit.ok && audit.pages_owned == 0);
    const struct engine_stats *st = engine_stats(en);
    printf("%s: batch %d rows %d chunk %d threads %d pages %d: %d steps, %d preempted, "
           "%d of %d guesses right, %d prompt tokens found, %d pages read from disk\n",
        s->name, w->batch, w->rows, w->chunk, w->threads, w->pages, (int)st->steps,
        (int)st->preemptions, (int)draft_sum(st).accepted, (int)draft_sum(st).drafted,
        (int)st->prefix.matched_tokens, (int)st->prefix.disk_fetched);
    EXPECT(is_cached(w) || st->prefix.matched_tokens == 0);
    if (s->n_asks >= MANY_ASKS)
        expect_traffic(w, st);
    n_preempted = engine_stats(en)->preemptions;
    n_from_disk = st->prefix.disk_fetched;
    engine_close(en);
    mailbox_close(box);
    return n_preempted;
}

static void compare(const struct subject *s)
{
    int n_whole = 0;

    for (int i = 0; i < s->n_asks; i++) {
        bool is_cut = false;
        expect_same_answer(&together[i], &alone[i], asks[i].in.n_choices);
        for (int c = 0; c < asks[i].in.n_choices; c++)
            is_cut |= together[i].choice[c].finish >= FINISH_CANCELLED;
        EXPECT(!is_cut || cancel_after[i] >= 0);
        n_whole += !is_cut;
    }
    EXPECT(n_whole > s->n_asks * 3 / 4);
}

static void keep_the_promise(
    const struct subject *s, const struct world *w, size_t n, uint64_t seed)
{
    uint64_t n_preempted = 0;

    printf("%s: %d requests, seed %lu\n", s->name, s->n_asks, (unsigned long)seed);
    invent(s, seed);
    run_alone(s, seed);
    for (size_t i = 0; i < n; i++) {
        if (has_disk(&w[i]))
            tmpdir_make(disk_dir);
        n_preempted += run_together(s, &w[i]);
        compare(s);
        if (!has_disk(&w[i]))
            continue;
        run_together(s, &w[i]); /* a restart */
        compare(s);
        EXPECT(n_from_disk > 0);
        tmpdir_remove(disk_dir);
    }
    EXPECT(n_preempted > 0 || s->n_asks < ASKS); /* few requests may just miss each other */
}

/* ---- subjects */

static void a_model_that_is_a_hash_of_its_pages(void)
{
    const struct subject s = { "fake", NULL, 60, ASKS, true };
    const struct world w[] = {
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
            .wicked = 30 },
        { .batch = 32, .rows = 64, .chunk = 1, .threads = 1, .pages = 24, .seed = 3, .draft = 16 },
        { .batch = 7,
            .rows = 33,
            .chunk = 5,
            .threads = 1,
            .pages = 22,
            .seed = 4,
            .draft = 3,
            .min = 3,
            .wicked = 10 },
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

    keep_the_promise(&s, w, ARRAY_LEN(w), 41);
}

/* `s` says what keys and values are, and with which kernels. */
static void small_model_with(struct subject s, const char *arch, enum qtype type, enum qtype type_v)
{
    const int n_threads = s.threads ? s.threads : 2;
    struct tiny t = tiny_default;
    const struct world w[] = {
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
            .wicked = 20 },
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
    t.vocab = 200;
    t.ctx = N_CTX;
    struct gguf *g = tiny_open(&t);
    EXPECT(g);
    s.g = g;
    s.n_vocab = t.vocab;
    if (!s.n_asks)
        s.n_asks = TINY_ASKS;
    s.has_long = !s.kernels;
    keep_the_promise(&s, w, ARRAY_LEN(w), 42);
    gguf_close(g);
}

static void small_model(const char *name, const char *arch, enum qtype type, enum qtype type_v)
{
    small_model_with((struct subject){ .name = name }, arch, type, type_v);
}

static void a_small_model_in_q4_k(void)
{
    small_model("q4_k", "llama", Q_Q4_K, Q_Q6_K);
}

static void a_small_model_in_q4_0(void)
{
    small_model("q4_0", "llama", Q_Q4_0, Q_Q8_0);
}

static void a_small_model_in_f16(void)
{
    small_model("f16", "llama", Q_F16, Q_F16);
}

static void keys_and_values_of_q8_0(void)
{
    const struct subject s = { .name = "q4_0 with q8_0 keys", .kv_type = KV_Q8_0 };

    small_model_with(s, "llama", Q_Q4_0, Q_Q8_0);
}

/* One kv head for three: members share the splits of long sequences. */
static void one_kv_head(void)
{
    const struct subject s = { .name = "one kv head", .kv_heads = 1, .threads = 3 };

    small_model_with(s, "qwen2", Q_Q8_0, Q_Q4_0);
}

/* Products of float weights and attention are the tiles' own sums. */
static void floats_in_tiles(void)
{
    struct subject s = { .name = "bf16 in tiles", .kv_type = KV_BF16 };
    struct err e;

    if (kernels_choose(&s.kernels, "amx", &e)) {
        s.kernels = IS_WATCHED ? NULL : kit_amx_soft(); /* per thread */
        s.n_asks = 16;                                  /* few: it is slow */
    }
    if (s.kernels)
        small_model_with(s, "llama", Q_BF16, Q_F16);
    else
        printf("skipped: no tiles, and those in software take AVX-512 BF16 and much time\n");
}

static void a_small_model_of_experts(void)
{
    small_model("experts", "qwen3moe", Q_Q4_0, Q_Q8_0);
}

static void a_small_model_of_experts_in_mxfp4(void)
{
    small_model("mxfp4", "qwen3moe", Q_MXFP4, Q_IQ4_NL);
}

static void a_small_model_in_iq4_xs(void)
{
    small_model("iq4_xs", "llama", Q_IQ4_XS, Q_Q5_1);
}

static void stories260k_where_it_is_at_hand(void)
{
    const char *dir = getenv("SHARED_DATA");
    const struct world w[] = {
        { .batch = 32,
            .rows = 100,
            .chunk = 30,
            .threads = 2,
            .pages = 9,
            .seed = 9,
            .draft = 8,
            .min = 8,
            .wicked = 20 },
    };
    struct subject s = { "stories260K", NULL, 512, IS_WATCHED ? 60 : ASKS, false };
    struct gguf *g;
    struct err e;
    char path[1024];

    snprintf(path, sizeof(path), "%s/models/stories260K-f32.gguf", dir ? dir : "../shared/data");
    if (gguf_open(&g, path, &e)) {
        printf("skipped: %s\n", e.msg);
        return;
    }
    s.g = g;
    keep_the_promise(&s, w, ARRAY_LEN(w), 43);
    gguf_close(g);
}

/* Weights that were trained, and all of their layers but one, which are right often. */
static void the_demo_model_and_all_but_one_of_its_layers(void)
{
    const struct world w[] = {
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
    struct subject s = { "demo", NULL, 0, SMALL || IS_WATCHED ? 20 : 60, false };
    struct gguf *g, *thin;
    struct err e;

    EXPECT_EQ(gguf_open(&g, "models/demo.gguf", &e), 0);
    thin_make(g, path);
    EXPECT_EQ(gguf_open(&thin, path, &e), 0);
    s.g = g;
    s.n_vocab = (int)gguf_n_tokens(g);
    s.guess = thin;
    keep_the_promise(&s, w, ARRAY_LEN(w), 44);
    gguf_close(thin);
    gguf_close(g);
    unlink(path);
}

TESTS(TEST(a_model_that_is_a_hash_of_its_pages), TEST(a_small_model_in_q4_k),
    TEST(a_small_model_in_q4_0), TEST(a_small_model_in_f16), TEST(a_small_model_of_experts),
    TEST(a_small_model_of_experts_in_mxfp4), TEST(a_small_model_in_iq4_xs),
    TEST(keys_and_values_of_q8_0), TEST(one_kv_head), TEST(floats_in_tiles),
    TEST(the_demo_model_and_all_but_one_of_its_layers), TEST(stories260k_where_it_is_at_hand))
