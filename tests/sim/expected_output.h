/* expected_output.h: expected output of a fake model, computed without engine, scheduler and KV
 * pages. */
#pragma once

#include "sim_output.h"
#include "testing/fake.h"

static inline void expected_script(
    const struct sim_request *a, int max_out, int i, struct sim_output *w)
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
        w->choice[i].digest[n] = token_digest(&t);
        w->choice[i].n++;
    }
    w->choice[i].finish = FINISH_STOP;
}

static inline bool is_stop_of(const struct sim_request *a, int32_t id)
{
    for (int j = 0; j < a->in.n_stop_ids; j++)
        if (a->stops[j] == id)
            return true;
    return false;
}

static inline void expect_end(struct sim_output *w, int i, enum finish finish, int32_t stop_id)
{
    w->choice[i].finish = finish;
    w->choice[i].stop_id = stop_id;
}

static inline void expected_sampled(const struct sim_request *a, const struct fake_options *o,
    struct sampler *s, int max_out, int i, struct sim_output *w)
{
    struct fake_constraint *state = NULL;
    struct sample_constraint k = { 0 };
    struct token_mask mask;
    struct err e;

    int32_t history[SIM_PROMPT_MAX + SIM_OUT_MAX];
    uint64_t scratch[SIM_PROMPT_MAX + SIM_OUT_MAX];
    float logits[256];
    int n_prompt = a->in.n_prompt;

    if (a->is_constrained) {
        EXPECT_EQ(fake_constraint_new(&state, &a->constraint, &e), 0);
        k = fake_constraint_ops(state);
    }
    memcpy(history, a->prompt, sizeof(a->prompt));
    for (int n = 0;; n++) {
        struct sample_past past = { history, n_prompt, n_prompt + n, k.ops ? &mask : NULL };
        struct sampled t;
        if (n > 0 && k.ops && k.ops->is_complete(k.self)) {
            expect_end(w, i, FINISH_STOP, -1);
            break;
        }
        if (n == max_out) {
            expect_end(w, i, FINISH_LENGTH, -1);
            break;
        }
        fake_reference_logits(o, history, past.n, scratch, logits);
        if (k.ops && k.ops->mask(k.self, UINT64_MAX, &mask, &e) == MASK_ERROR) {
            expect_end(w, i, FINISH_UNMET, -1);
            break;
        }
        sampler_sample(s, &a->in.sample, &(struct logits){ .x = logits }, &past, i, &t);
        if (t.is_unmet) {
            expect_end(w, i, FINISH_UNMET, -1);
            break;
        }
        if (is_stop_of(a, t.id)) {
            expect_end(w, i, FINISH_STOP, t.id);
            break;
        }
        if (k.ops && !k.ops->push(k.self, t.id)) { /* an end token that is no stop token */
            expect_end(w, i, FINISH_STOP, t.id);
            break;
        }
        history[past.n] = w->choice[i].token[n] = t.id;
        w->choice[i].digest[n] = token_digest(&t);
        w->choice[i].n++;
    }
    fake_constraint_free(state);
}

static inline void expected_scores(const struct sim_request *a, const struct fake_options *o,
    struct sampler *s, struct sim_output *w)
{
    uint64_t scratch[SIM_PROMPT_MAX];
    float logits[256];
    struct sampled t;

    for (int n = 1; n < a->in.n_prompt; n++) {
        fake_reference_logits(o, a->prompt, n, scratch, logits);
        sampler_score(s, &(struct logits){ .x = logits }, a->prompt[n], a->in.sample.n_top, &t);
        w->score[w->n_scores++] = token_digest(&t);
    }
}

/* Computes the output of a request. n_ctx as in the engine; n_vocab <= 256. */
static inline void expected_output(const struct sim_request *a, const struct fake_options *o,
    int n_ctx, struct sampler *s, struct sim_output *w)
{
    int max_out = MIN(a->in.max_tokens, n_ctx - a->in.n_prompt);

    CHECK(o->n_vocab <= 256);
    memset(w, 0, sizeof(*w));
    for (int i = 0; i < a->in.n_choices; i++) {
        w->choice[i].stop_id = -1;
        if (a->in.script)
            expected_script(a, max_out, i, w);
        else
            expected_sampled(a, o, s, max_out, i, w);
    }
    if (a->in.want_prompt_logprobs && !a->in.script)
        expected_scores(a, o, s, w);
}
