/* sim_output.h: collects the outputs of requests from their events.
 *
 * An output is stored as digests: one number per token that covers its id, the bits of its
 * logprob and all alternatives. Equal digests mean equal bits. */
#pragma once

#include "sim_request.h"
#include "support/check.h"

struct sim_output {
    struct {
        int n;
        uint64_t digest[SIM_OUT_MAX];
        int32_t token[SIM_OUT_MAX];
        enum finish finish;
        int32_t stop_id;
        int n_ends;
    } choice[SIM_CHOICES_MAX];
    int n_scores; /* scores of prompt tokens */
    uint64_t score[SIM_PROMPT_MAX];
    int n_gen_ends;
};

static inline uint64_t token_digest(const struct sampled *t)
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

/* Stores an event; checks that it is the next one of its kind. */
static inline void sim_output_add(struct sim_output *a, const struct gen_event *ev)
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
        a->score[a->n_scores++] = token_digest(&ev->token);
    } else if (ev->msg.kind == GEN_TOKEN) {
        int n = a->choice[ev->choice].n++;
        EXPECT_EQ(ev->index, n);
        a->choice[ev->choice].token[n] = ev->token.id;
        a->choice[ev->choice].digest[n] = token_digest(&ev->token);
    } else {
        EXPECT_EQ(ev->msg.kind, (int)GEN_CHOICE_END);
        EXPECT_EQ(ev->index, a->choice[ev->choice].n);
        a->choice[ev->choice].n_ends++;
        a->choice[ev->choice].finish = ev->finish;
        a->choice[ev->choice].stop_id = ev->stop_id;
    }
}

/* Expects the complete output of a finished choice, or a prefix of it if the choice was
 * cancelled. */
static inline void expect_same_choice(
    const struct sim_output *got, const struct sim_output *want, int i, bool is_cut)
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

static inline void expect_same_output(
    const struct sim_output *got, const struct sim_output *want, int n_choices)
{
    for (int i = 0; i < n_choices; i++) {
        enum finish finish = got->choice[i].finish;
        bool is_error = finish == FINISH_UNMET && want->choice[i].finish == finish &&
                        got->choice[i].n == want->choice[i].n; /* tokens of the constraint */
        expect_same_choice(got, want, i, finish >= FINISH_CANCELLED && !is_error);
    }
    EXPECT(got->n_scores <= want->n_scores);
    EXPECT(!memcmp(got->score, want->score, (size_t)got->n_scores * sizeof(uint64_t)));
    if (got->choice[0].finish < FINISH_CANCELLED)
        EXPECT_EQ(got->n_scores, want->n_scores);
}
