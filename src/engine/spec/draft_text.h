/* draft_text.h: what stood in this very request before comes again: its prompt, its own output,
 * and the prediction that the client sent along. Also here: what is kept of each choice that may
 * be guessed for, by whomever, and how often guesses at it were right.
 *
 * Nothing is remembered beyond a request, so nothing crosses from one to another.
 *
 * Owner: the engine thread, but draft_seq_init and ngram_* at gen_new: the asker's. Allocates
 * nothing. */
#pragma once

#include "engine/spec/draft.h"
#include "engine/spec/ngram.h"

extern struct drafter draft_text; /* stateless: all it knows is in draft_seq */

/* One text being followed: while what comes agrees with it, `at` is what it has next. When a text
 * that was long followed stops agreeing, one token was replaced, or a few left out: it is followed
 * behind them at once, and `bent` until two tokens agree again. When that was wrong it is lost, and
 * found again by the last tokens: first near the place it was lost at, then anywhere. */
struct trail {
    int at;  /* -1 = lost */
    int len; /* so many tokens agreed, as far as we looked */
    int lost_at;
    bool is_bent;
};

/* How often drafts from one kind of evidence were right lately; fades. */
struct draft_grade {
    float hits, tries;
};

/* What is kept of one choice, in the gen's memory. */
struct draft_seq {
    const int32_t *predicted;       /* NULL = none */
    int n_predicted;                /* tokens of it */
    const struct ngram *prediction; /* over it */
    const struct ngram *prompt;     /* shared by the choices; NULL: history is not looked at */
    struct ngram own;               /* places behind the prompt */
    struct trail past, hint;        /* through the tokens themselves; through the prediction */
    int n_fed;                      /* tokens that `past` has seen */
    struct draft_grade grade[N_DRAFT_SOURCES];
    uint32_t model_slot; /* draft_lm's note */
};

/* The slots are the gen's: own_slots may be NULL. The prompt's index is complete. */
void draft_seq_init(struct draft_seq *s, const struct ngram *prompt, int n_prompt,
    uint32_t *own_slots, size_t n_own_slots);
void draft_seq_predict(
    struct draft_seq *s, const int32_t *predicted, int n, const struct ngram *prediction);

/* tokens[n - 1] is what really came. True: as the prediction said. A function of the tokens alone,
 * whatever was drafted, because clients are told. */
bool draft_seq_came(struct draft_seq *s, const int32_t *tokens, int n);
/* Of a draft of n tokens, the first n_right were. */
void draft_seq_judge(struct draft_seq *s, enum draft_source source, int n, int n_right);
/* How likely the next token of such a draft is right; a guess before there is experience. */
float draft_seq_chance(const struct draft_seq *s, enum draft_source source);
/* Not asked this time: old failures count a little less. */
void draft_seq_fade(struct draft_seq *s);
