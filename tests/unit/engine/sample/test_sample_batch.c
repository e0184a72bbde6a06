/* Batched sampling: prompt logprobs and first tokens are equal on one thread and on several.
 * Models: a fake one with threads that process samples in an unusual order, and a small real
 * one. */
#include "engine/engine.h"
#include "format/gguf.h"
#include "testing/fake.h"
#include "model/llama.h"
#include "support/check.h"
#include "support/tiny.h"

enum { PROMPT = 100, CHOICES = 2, OUT = 3, VOCAB = 60, ROWS = 64 };

static int32_t prompt[PROMPT];

struct received {
    int n_scores, n[CHOICES];
    struct sampled score[PROMPT], token[CHOICES][OUT];
};

static struct gguf *three_groups(void)
{
    struct tiny_model t = tiny_default;

    t.vocab = 2 * LOGIT_GROUP + 77;
    return tiny_open(&t);
}

/* Opens an engine on the model file, or on the fake model if there is none. */
static struct engine *open_engine(const struct gguf *g, int n_threads, int max_logits)
{
    const uint32_t n_pages = 1024 / PAGE_TOKENS;
    struct engine_options o = engine_options_default;
    struct fake_options f = { .n_vocab = VOCAB,
        .n_ctx_train = 1024,
        .max_rows = max_logits,
        .n_pages = n_pages,
        .n_threads = n_threads,
        .seed = 3 };
    struct llama_options l = {
        .n_threads = n_threads, .n_pages = n_pages, .max_rows = ROWS, .max_logits = max_logits
    };
    const struct kernels *k;
    struct engine *en;
    struct lm *lm;
    struct err e;

    o.n_ctx = PROMPT + OUT;
    EXPECT_EQ(kernels_choose(&k, NULL, &e), 0);
    EXPECT_EQ(g ? lm_open_llama(&lm, g, &l, &e) : lm_open_fake(&lm, &f, &e), 0);
    EXPECT_EQ(engine_open(&en, lm, k, &o, &e), 0);
    EXPECT_EQ(engine_lm(en)->n_threads, n_threads);
    return en;
}

static struct gen_input scored_prompt(int n)
{
    struct gen_input in = { .cache_prompt = true,
        .prompt = prompt,
        .n_prompt = n,
        .max_tokens = OUT,
        .n_choices = CHOICES,
        .sample = sample_params_default,
        .want_prompt_logprobs = true };

    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i * 7 % VOCAB;
    in.sample.want_logprobs = true;
    in.sample.n_top = 7;
    in.sample.seed = 5;
    return in;
}

static void copy_sampled(struct sampled *to, const struct sampled *from)
{
    *to = (struct sampled){ .id = from->id, .logprob = from->logprob, .n_top = from->n_top };
    memcpy(to->top, from->top, (size_t)from->n_top * sizeof(to->top[0]));
}

static void record_event(struct received *h, const struct gen_event *ev)
{
    if (ev->msg.kind == GEN_PROMPT_TOKEN) {
        EXPECT_EQ(ev->index, h->n_scores + 1);
        copy_sampled(&h->score[h->n_scores++], &ev->token);
    } else if (ev->msg.kind == GEN_TOKEN) {
        EXPECT_EQ(ev->index, h->n[ev->choice]);
        copy_sampled(&h->token[ev->choice][h->n[ev->choice]++], &ev->token);
    }
}

/* Cancels the request, or stops its first choice only, after this number of prompt scores; -1:
 * never. */
struct cancel_points {
    int request_after, leader_after;
};

static void read_to_end(struct engine *en, struct mailbox *box, struct received *h,
    const struct cancel_points *ends, int n_open)
{
    struct msg *next;

    while (n_open > 0) {
        mailbox_wait(box, UINT64_MAX);
        for (struct msg *m = mailbox_drain(box); m; m = next) {
            next = m->next;
            struct gen_event *ev = container_of(m, struct gen_event, msg);
            struct gen *g = ev->gen;
            bool is_over = m->kind == GEN_END;
            int i = (int)((struct received *)gen_user(g) - h);
            record_event(&h[i], ev);
            if (m->kind == GEN_PROMPT_TOKEN && h[i].n_scores == ends[i].request_after)
                engine_cancel(en, g);
            if (m->kind == GEN_PROMPT_TOKEN && h[i].n_scores == ends[i].leader_after)
                engine_stop_choice(en, g, 0);
            gen_event_done(ev);
            if (is_over)
                gen_free(g);
            n_open -= is_over;
        }
    }
}

/* Submits n requests at once, the i-th with a prompt that is i tokens shorter, and reads all
 * events. */
static void run_requests(
    struct engine *en, struct received *h, const struct cancel_points *ends, int n)
{
    struct mailbox *box;
    struct gen *g;
    struct err e;

    memset(h, 0, (size_t)n * sizeof(*h));
    EXPECT_EQ(mailbox_open(&box, &e), 0);
    for (int i = 0; i < n; i++) {
        struct gen_input in = scored_prompt(PROMPT - i);
        EXPECT_EQ(gen_new(&g, &in, box, &h[i], &e), 0);
        EXPECT_EQ(engine_submit(en, g, &e), 0);
    }
    read_to_end(en, box, h, ends, n);
    mailbox_close(box);
}

static void expect_clean(struct engine *en)
{
    struct engine_audit a;

    engine_audit(en, &a);
    EXPECT(a.ok && a.sequences == 0 && a.pages_owned == 0);
}

/* Checks that every requested event arrived. */
static void expect_complete(const struct received *h, int n_prompt)
{
    EXPECT_EQ(h->n_scores, n_prompt - 1);
    for (int i = 0; i < h->n_scores; i++) {
        EXPECT_EQ(h->score[i].id, prompt[i + 1]);
        EXPECT_EQ(h->score[i].n_top, 7);
    }
    for (int c = 0; c < CHOICES; c++)
        EXPECT_EQ(h->n[c], OUT);
}

static const struct cancel_points never = { -1, -1 };

static void check_equal_on_threads(const struct gguf *g)
{
    static struct received want, got;

    for (int threads = 1; threads <= 3; threads++) {
        struct engine *en = open_engine(g, threads, threads == 1 ? 5 : ROWS);
        /* the second round finds the prompt in the prefix cache */
        for (int round = 0; round < 2; round++) {
            struct received *h = threads == 1 && round == 0 ? &want : &got;
            run_requests(en, h, &never, 1);
            expect_complete(h, PROMPT);
            EXPECT(!memcmp(h, &want, sizeof(want)));
        }
        expect_clean(en);
        engine_close(en);
    }
}

static void samples_are_equal_on_any_number_of_threads(void)
{
    struct gguf *g = three_groups();

    check_equal_on_threads(NULL);
    check_equal_on_threads(g);
    gguf_close(g);
}

/* Some requests end while others continue undisturbed. The number of events of an ended request
 * depends on timing, but their values do not. */
static void check_early_ends(const struct gguf *g)
{
    enum { N = 4, AFTER = 10 };
    static const struct cancel_points ends[N] = { { AFTER, -1 }, { -1, AFTER }, { -1, -1 },
        { -1, 1 } };
    static const struct cancel_points nevers[N] = { { -1, -1 }, { -1, -1 }, { -1, -1 },
        { -1, -1 } };
    static struct received want[N], got[N];

    for (int threads = 1; threads <= 3; threads++) {
        struct engine *en = open_engine(g, threads, 16);
        struct received *h = threads == 1 ? want : got;
        run_requests(en, h, threads == 1 ? nevers : ends, N);
        for (int i = 0; i < N; i++) {
            EXPECT(h[i].n_scores <= want[i].n_scores);
            EXPECT(
                !memcmp(h[i].score, want[i].score, (size_t)h[i].n_scores * sizeof(h[i].score[0])));
            for (int c = 0; c < CHOICES; c++)
                EXPECT(!memcmp(
                    h[i].token[c], want[i].token[c], (size_t)h[i].n[c] * sizeof(h[i].token[c][0])));
            EXPECT(h[i].n_scores >= (threads == 1 ? PROMPT - i - 1 : 1));
        }
        expect_complete(&h[2], PROMPT - 2);
        EXPECT_EQ(h[1].n[1], OUT); /* the other choice still needs the prompt */
        EXPECT_EQ(h[3].n[1], OUT);
        expect_clean(en);
        engine_close(en);
    }
}

static void requests_may_end_during_prefill(void)
{
    struct gguf *g = three_groups();

    check_early_ends(NULL);
    check_early_ends(g);
    gguf_close(g);
}

TESTS(TEST(samples_are_equal_on_any_number_of_threads), TEST(requests_may_end_during_prefill))
