/* asks.h: random requests, their answers as they arrive, and what they must be.
 *
 * An answer is kept as digests: one number per token that covers its id, its log-probability's
 * bits and all alternatives, so that "the same" means every bit. */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "model/fake.h"
#include "../check.h"

enum { ASK_PROMPT = 90, ASK_OUT = 40, ASK_CHOICES = 4, ASK_STOPS = 2 };

struct ask {
    struct gen_input in;
    int32_t prompt[ASK_PROMPT];
    int32_t stops[ASK_STOPS];
    struct token_bias bias[2];
    int32_t allowed[8];
    struct gen_script script;
    int32_t script_tokens[ASK_OUT];
    int32_t script_groups[4];
};

struct ask_limits {
    int n_vocab, max_prompt, max_out, max_choices;
    bool with_scripts;
};

struct answer {
    struct {
        int n;
        uint64_t digest[ASK_OUT];
        int32_t token[ASK_OUT];
        enum finish finish;
        int32_t stop_id;
        int n_ends;
    } choice[ASK_CHOICES];
    int n_scores; /* of prompt tokens */
    uint64_t score[ASK_PROMPT];
    int n_gen_ends;
};

static inline uint64_t digest_of(const struct sampled *t)
{
    uint64_t h = 1469598103934665603u;
    const void *parts[] = { &t->id, &t->logprob, &t->n_top, t->top };
    size_t sizes[] = { sizeof(t->id), sizeof(t->logprob), sizeof(t->n_top),
        (size_t)t->n_top * sizeof(t->top[0]) };

    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < sizes[i]; j++)
            h = (h ^ ((const uint8_t *)parts[i])[j]) * 1099511628211u;
    return h;
}

static inline int ask_between(struct rng *r, int from, int to)
{
    return from + (int)rng_below(r, (uint64_t)(to - from + 1));
}

static inline bool ask_chance(struct rng *r, int percent)
{
    return rng_below(r, 100) < (uint64_t)percent;
}

static inline void ask_sampling(struct ask *a, struct rng *r, int n_vocab)
{
    struct sample_params *p = &a->in.sample;

    *p = sample_params_default;
    p->seed = rng_next(r);
    p->temperature = ask_chance(r, 30) ? 0 : 0.2f + (float)rng_next_unit(r) * 1.5f;
    if (ask_chance(r, 30))
        p->top_k = ask_between(r, 1, n_vocab + 3);
    if (ask_chance(r, 30))
        p->top_p = (float)rng_next_unit(r);
    if (ask_chance(r, 20))
        p->min_p = (float)rng_next_unit(r) * 0.5f;
    if (ask_chance(r, 20))
        p->typical_p = 0.1f + (float)rng_next_unit(r) * 0.9f;
    if (ask_chance(r, 30)) {
        p->repeat_penalty = 0.8f + (float)rng_next_unit(r);
        p->repeat_last_n = ask_between(r, -1, 20);
    }
    if (ask_chance(r, 30)) {
        p->presence_penalty = (float)rng_next_unit(r);
        p->frequency_penalty = (float)rng_next_unit(r);
    }
    if (ask_chance(r, 20)) {
        for (int i = 0; i < 2; i++)
            a->bias[i] = (struct token_bias){ ask_between(r, 0, n_vocab - 1),
                (float)ask_between(r, -110, 10) };
        p->bias = a->bias;
        p->n_bias = 2;
    }
    if (ask_chance(r, 10)) {
        for (int i = 0; i < 8; i++)
            a->allowed[i] = i * n_vocab / 8;
        p->allowed = a->allowed;
        p->n_allowed = 8;
    }
    p->want_logprobs = ask_chance(r, 50);
    p->n_top = ask_between(r, 0, 5);
}

static inline void ask_script(struct ask *a, struct rng *r, int n_vocab, int max_out)
{
    int n = ask_between(r, 0, max_out), at = 0, n_groups = ask_between(r, 0, 4);

    for (int i = 0; i < n; i++)
        a->script_tokens[i] = ask_between(r, 0, n_vocab - 1);
    for (int i = 0; i < n_groups; i++)
        a->script_groups[i] = at = ask_between(r, at, n);
    a->script = (struct gen_script){ a->script_tokens, n, a->script_groups, n_groups,
        ask_chance(r, 50) ? (uint32_t)ask_between(r, 1, 2000) : 0 };
    a->in.script = &a->script;
}

static inline void ask_random(struct ask *a, struct rng *r, const struct ask_limits *l)
{
    memset(a, 0, sizeof(*a));
    a->in.n_prompt = ask_between(r, 1, l->max_prompt);
    for (int i = 0; i < a->in.n_prompt; i++)
        a->prompt[i] = ask_between(r, 0, l->n_vocab - 1);
    a->in.prompt = a->prompt;
    a->in.max_tokens = ask_between(r, ask_chance(r, 5) ? 0 : 1, l->max_out);
    a->in.n_choices = ask_chance(r, 70) ? 1 : ask_between(r, 1, l->max_choices);
    ask_sampling(a, r, l->n_vocab);
    if (ask_chance(r, 60)) {
        for (int i = 0; i < ASK_STOPS; i++)
            a->stops[i] = ask_between(r, 0, l->n_vocab - 1);
        a->in.stop_ids = a->stops;
        a->in.n_stop_ids = ask_between(r, 1, ASK_STOPS);
        a->in.sample.banned_until_min = a->stops;
        a->in.sample.n_banned_until_min = a->in.n_stop_ids;
        a->in.sample.min_tokens = ask_chance(r, 50) ? ask_between(r, 0, l->max_out) : 0;
    }
    a->in.want_prompt_logprobs = ask_chance(r, 15);
    a->in.priority = ask_chance(r, 70) ? 0 : ask_between(r, -2, 3);
    if (l->with_scripts && ask_chance(r, 15))
        ask_script(a, r, l->n_vocab, l->max_out);
}

/* Files an event away; checks that it is the next of its kind. */
static inline void answer_take(struct answer *a, const struct gen_event *ev)
{
    const struct gen_input *in = gen_input(ev->gen);

    EXPECT_EQ(a->n_gen_ends, 0);
    if (ev->msg.kind == GEN_END) {
        a->n_gen_ends++;
        for (int i = 0; i < in->n_choices; i++)
            EXPECT_EQ(a->choice[i].n_ends, 1);
        return;
    }
    EXPECT(ev->choice >= 0 && ev->choice < in->n_choices);
    EXPECT_EQ(a->choice[ev->choice].n_ends, 0);
    if (ev->msg.kind == GEN_PROMPT_TOKEN) {
        EXPECT_EQ(ev->index, a->n_scores + 1);
        EXPECT_EQ(ev->token.id, in->prompt[ev->index]);
        a->score[a->n_scores++] = digest_of(&ev->token);
    } else if (ev->msg.kind == GEN_TOKEN) {
        int n = a->choice[ev->choice].n++;
        EXPECT_EQ(ev->index, n);
        a->choice[ev->choice].token[n] = ev->token.id;
        a->choice[ev->choice].digest[n] = digest_of(&ev->token);
    } else {
        EXPECT_EQ(ev->msg.kind, (int)GEN_CHOICE_END);
        EXPECT_EQ(ev->index, a->choice[ev->choice].n);
        a->choice[ev->choice].n_ends++;
        a->choice[ev->choice].finish = ev->finish;
        a->choice[ev->choice].stop_id = ev->stop_id;
    }
}

/* The whole answer of a completed choice, or the beginning of one that was cut short. */
static inline void expect_same_choice(const struct answer *got, const struct answer *want, int i,
    bool is_cut)
{
    int n = got->choice[i].n;

    EXPECT(n <= want->choice[i].n);
    EXPECT(!memcmp(got->choice[i].token, want->choice[i].token, (size_t)n * sizeof(int32_t)));
    EXPECT(!memcmp(got->choice[i].digest, want->choice[i].digest, (size_t)n * sizeof(uint64_t)));
    if (is_cut)
        return;
    EXPECT_EQ(n, want->choice[i].n);
    EXPECT(got->choice[i].finish == want->choice[i].finish);
    EXPECT_EQ(got->choice[i].stop_id, want->choice[i].stop_id);
}

static inline void expect_same_answer(const struct answer *got, const struct answer *want,
    int n_choices)
{
    for (int i = 0; i < n_choices; i++)
        expect_same_choice(got, want, i, got->choice[i].finish >= FINISH_CANCELLED);
    EXPECT(got->n_scores <= want->n_scores);
    EXPECT(!memcmp(got->score, want->score, (size_t)got->n_scores * sizeof(uint64_t)));
    if (got->choice[0].finish < FINISH_CANCELLED)
        EXPECT_EQ(got->n_scores, want->n_scores);
}

/* ---- what a fake model's answer must be, without engine, scheduler or pages */

static inline void want_script(const struct ask *a, int max_out, int i, struct answer *w)
{
    for (int n = 0; n < a->script.n_tokens; n++) {
        int32_t id = a->script_tokens[n];
        struct sampled t = { .id = id };
        if (n == max_out) {
            w->choice[i].finish = FINISH_LENGTH;
            return;
        }
        for (int s = 0; s < a->in.n_stop_ids; s++)
            if (a->stops[s] == id) {
                w->choice[i].stop_id = id;
                w->choice[i].finish = FINISH_STOP;
                return;
            }
        if (a->in.sample.want_logprobs && a->in.sample.n_top > 0) {
            t.n_top = 1;
            t.top[0].id = id;
        }
        w->choice[i].token[n] = id;
        w->choice[i].digest[n] = digest_of(&t);
        w->choice[i].n++;
    }
    w->choice[i].finish = FINISH_STOP;
}

static inline void want_sampled(const struct ask *a, const struct fake_options *o,
    struct sampler *s, int max_out, int i, struct answer *w)
{
    int32_t history[ASK_PROMPT + ASK_OUT];
    uint64_t scratch[ASK_PROMPT + ASK_OUT];
    float logits[256];
    int n_prompt = a->in.n_prompt;

    memcpy(history, a->prompt, sizeof(a->prompt));
    for (int n = 0;; n++) {
        struct sample_past past = { history, n_prompt, n_prompt + n };
        struct sampled t;
        if (n == max_out) {
            w->choice[i].finish = FINISH_LENGTH;
            return;
        }
        fake_logits(o, history, past.n, scratch, logits);
        sampler_sample(s, &a->in.sample, logits, &past, i, &t);
        for (int j = 0; j < a->in.n_stop_ids; j++)
            if (a->stops[j] == t.id) {
                w->choice[i].stop_id = t.id;
                w->choice[i].finish = FINISH_STOP;
                return;
            }
        history[past.n] = w->choice[i].token[n] = t.id;
        w->choice[i].digest[n] = digest_of(&t);
        w->choice[i].n++;
    }
}

static inline void want_scores(const struct ask *a, const struct fake_options *o,
    struct sampler *s, struct answer *w)
{
    uint64_t scratch[ASK_PROMPT];
    float logits[256];
    struct sampled t;

    for (int n = 1; n < a->in.n_prompt; n++) {
        fake_logits(o, a->prompt, n, scratch, logits);
        sampler_score(s, logits, a->prompt[n], a->in.sample.n_top, &t);
        w->score[w->n_scores++] = digest_of(&t);
    }
}

/* n_ctx as the engine has it; n_vocab <= 256. */
static inline void ask_answer(const struct ask *a, const struct fake_options *o, int n_ctx,
    struct sampler *s, struct answer *w)
{
    int max_out = MIN(a->in.max_tokens, n_ctx - a->in.n_prompt);

    CHECK(o->n_vocab <= 256);
    memset(w, 0, sizeof(*w));
    for (int i = 0; i < a->in.n_choices; i++) {
        w->choice[i].stop_id = -1;
        if (a->in.script)
            want_script(a, max_out, i, w);
        else
            want_sampled(a, o, s, max_out, i, w);
    }
    if (a->in.want_prompt_logprobs && !a->in.script)
        want_scores(a, o, s, w);
}
