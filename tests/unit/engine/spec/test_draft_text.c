/* N-gram drafter: drafts from prompt, output and the client's prediction. */
#include "engine/spec/draft_text.h"
#include "base/rng.h"
#include "support/check.h"

enum { MOST = 3000, SLOTS = 1 << 13 };

static uint32_t prompt_slots[SLOTS], own_slots[SLOTS], hint_slots[SLOTS];
static int32_t tokens[MOST + DRAFT_MAX];

struct draft_fixture { /* state of one choice */
    struct draft_seq s;
    struct ngram prompt, hint;
    int n, n_prompt, n_draft_tokens, n_accepted, n_predicted;
};

static void open_fixture(struct draft_fixture *d, const int32_t *prompt, int n)
{
    *d = (struct draft_fixture){ .n = n, .n_prompt = n };
    memcpy(tokens, prompt, (size_t)n * sizeof(*tokens));
    ngram_init(&d->prompt, prompt_slots, SLOTS);
    ngram_add(&d->prompt, tokens, 0, n);
    draft_seq_init(&d->s, &d->prompt, n, own_slots, SLOTS);
}

static void set_prediction(struct draft_fixture *d, const int32_t *predicted, int n)
{
    ngram_init(&d->hint, hint_slots, SLOTS);
    ngram_add(&d->hint, predicted, 0, n);
    draft_seq_predict(&d->s, predicted, n, &d->hint);
}

static int request_draft(struct draft_fixture *d, int n_max)
{
    struct draft_job job = { .seq = &d->s,
        .tokens = tokens,
        .n = d->n,
        .n_prompt = d->n_prompt,
        .n_max = n_max,
        .out = tokens + d->n };
    int n = draft_text.ops->offer(&draft_text, &job);

    EXPECT(n >= 0 && n <= n_max);
    job.n_max = n;
    if (n > 0)
        draft_text.ops->propose(&draft_text, &job, 1, NULL);
    EXPECT(job.n_out == n);
    return n;
}

/* Runs until the next `n` tokens are generated; each step requests a draft and accepts the
 * matching prefix. Returns the number of steps. */
static int generate_with_drafts(struct draft_fixture *d, const int32_t *next, int n, int n_max)
{
    int n_steps = 0;

    for (int i = 0; i < n; n_steps++) {
        int n_drafts = request_draft(d, MIN(n_max, n - i - 1)), n_accepted = 0;
        while (n_accepted < n_drafts && tokens[d->n + n_accepted] == next[i + n_accepted])
            n_accepted++;
        if (n_drafts)
            draft_seq_add_result(&d->s, DRAFT_HISTORY_LONG, n_drafts, n_accepted);
        d->n_draft_tokens += n_drafts;
        d->n_accepted += n_accepted;
        for (int j = 0; j <= n_accepted; j++, i++) {
            tokens[d->n++] = next[i];
            d->n_predicted += draft_seq_append(&d->s, tokens, d->n);
        }
    }
    return n_steps;
}

static void random_tokens(int32_t *out, int n, int n_vocab, uint64_t seed)
{
    struct rng r = { .key = seed };

    for (int i = 0; i < n; i++)
        out[i] = (int32_t)rng_below(&r, (uint64_t)n_vocab);
}

static void a_copy_of_the_prompt_takes_few_steps(void)
{
    static int32_t text[600];
    struct draft_fixture d;

    random_tokens(text, 600, 1000, 1);
    open_fixture(&d, text, 600);
    int n_steps = generate_with_drafts(&d, text + 50, 500, 9);
    EXPECT(n_steps <= 2 + 1 + 500 / 10);
    EXPECT_EQ(d.n_accepted, 500 - n_steps);
}

static void an_edit_is_bridged(void)
{
    static int32_t text[600], edited[600];
    struct draft_fixture d;
    int n = 0;

    random_tokens(text, 600, 1000, 2);
    for (int i = 0; i < 600; i++) {
        if (i % 60 == 30) /* each edit replaces a token; some also insert or remove one */
            edited[n++] = 5000 + i;
        if (i % 60 != 30 || i % 120 == 30)
            edited[n++] = text[i];
        if (n > 590)
            break;
    }
    open_fixture(&d, text, 600);
    EXPECT(generate_with_drafts(&d, edited, n, 8) <= n / 9 + 10 * 3);
}

static void loop_repeats_inside_one_draft(void)
{
    int32_t prompt[] = { 1, 2, 3, 1, 2, 3, 1, 2 }, want[] = { 3, 1, 2, 3, 1, 2, 3, 1, 2, 3 };
    struct draft_fixture d;

    open_fixture(&d, prompt, 8);
    EXPECT_EQ(request_draft(&d, 10), 10);
    EXPECT(!memcmp(tokens + 8, want, sizeof(want)));
}

static void tokens_that_never_occurred_are_not_drafted(void)
{
    int32_t prompt[] = { 1, 2, 3, 4, 5, 6, 7 };
    struct draft_fixture d;

    open_fixture(&d, prompt, 7);
    EXPECT_EQ(request_draft(&d, 8), 0);
    open_fixture(&d, prompt, 1);
    EXPECT_EQ(request_draft(&d, 8), 0);
}

static void a_prediction_is_followed_from_its_first_token(void)
{
    static int32_t hint[200];
    int32_t prompt[] = { 2001, 2002 };
    struct draft_fixture d;

    random_tokens(hint, 200, 1000, 3);
    open_fixture(&d, prompt, 2);
    set_prediction(&d, hint, 200);
    EXPECT_EQ(generate_with_drafts(&d, hint, 200, 9), 20);
    EXPECT_EQ(d.n_predicted, 200);
    EXPECT_EQ(request_draft(&d, 8), 0); /* the prediction is at its end */
}

/* The count of accepted prediction tokens in the response depends only on prediction and output:
 * it is the same for any draft length and without drafts. */
static void accepted_prediction_count_is_independent_of_drafts(void)
{
    static int32_t hint[400], answer[400];
    int32_t prompt[] = { 7, 8 };
    struct rng r = { .key = 4 };
    struct draft_fixture d;

    for (uint64_t seed = 0; seed < 40; seed++) {
        int want = -1;
        random_tokens(hint, 400, 4 + (int)seed, seed);
        for (int i = 0, at = 0; i < 400; i++) {
            if (rng_below(&r, 20) == 0)
                at = (int)rng_below(&r, 400);
            answer[i] = hint[at++ % 400];
        }
        for (int n_max = 0; n_max < 20; n_max += 3) {
            open_fixture(&d, prompt, 2);
            set_prediction(&d, hint, 400);
            if (n_max == 0)
                d.s.prompt = NULL;
            generate_with_drafts(&d, answer, 400, n_max);
            want = want < 0 ? d.n_predicted : want;
            EXPECT_EQ(d.n_predicted, want);
        }
        EXPECT(want > 50 && want <= 400);
    }
}

static void acceptance_rates_follow_outcomes_and_decay(void)
{
    struct draft_seq s = { 0 };
    float before = draft_seq_acceptance(&s, DRAFT_HISTORY_SHORT), low;

    for (int i = 0; i < 20; i++)
        draft_seq_add_result(&s, DRAFT_HISTORY_SHORT, 4, 0);
    low = draft_seq_acceptance(&s, DRAFT_HISTORY_SHORT);
    EXPECT(low < before / 3);
    EXPECT(draft_seq_acceptance(&s, DRAFT_HISTORY_LONG) >
           0.7f); /* other kinds of drafts are not affected */
    for (int i = 0; i < 1000; i++)
        draft_seq_decay(&s);
    EXPECT(draft_seq_acceptance(&s, DRAFT_HISTORY_SHORT) > before * 0.99f);
    for (int i = 0; i < 20; i++)
        draft_seq_add_result(&s, DRAFT_HISTORY_SHORT, 4, 4);
    EXPECT(draft_seq_acceptance(&s, DRAFT_HISTORY_SHORT) > 0.9f);
}

/* Any token sequence in any pieces: no read outside of the input (the sanitizers check), no
 * draft longer than requested, and every draft token occurs in the input. */
static void any_token_sequence_is_safe(void)
{
    static int32_t text[MOST];
    struct rng r = { .key = 6 };
    struct draft_fixture d;

    for (int round = 0; round < 60; round++) {
        int n_vocab = 1 + (int)rng_below(&r, 12), n = 1 + (int)rng_below(&r, 300);
        random_tokens(text, MOST, n_vocab, rng_next(&r));
        open_fixture(&d, text, n);
        if (round % 2)
            set_prediction(&d, text + 50, (int)rng_below(&r, 200));
        generate_with_drafts(
            &d, text + 400, 1 + (int)rng_below(&r, 1500), 1 + (int)rng_below(&r, DRAFT_MAX));
        for (int i = n; i < d.n; i++)
            EXPECT(tokens[i] >= 0 && tokens[i] < n_vocab);
    }
}

TESTS(TEST(a_copy_of_the_prompt_takes_few_steps), TEST(an_edit_is_bridged),
    TEST(loop_repeats_inside_one_draft), TEST(tokens_that_never_occurred_are_not_drafted),
    TEST(a_prediction_is_followed_from_its_first_token),
    TEST(accepted_prediction_count_is_independent_of_drafts),
    TEST(acceptance_rates_follow_outcomes_and_decay), TEST(any_token_sequence_is_safe))
