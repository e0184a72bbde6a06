/* draft.h: guesses at what comes next. A right guess saves a step, a wrong one costs a row; the
 * answer is the same (step.c checks each against what the sampler takes).
 *
 * A drafter is asked about the sequences of a step in two calls, so that one that computes can do
 * so for all of them together:
 *
 *   offer     how many tokens could you propose here, and how sure are you of each? Cheap.
 *   propose   the first job->most of them, for the jobs that were granted any
 *
 * Drafters: what stood in this very request before (below: prompt, own output, and the client's
 * prediction; nothing is remembered beyond a request, so nothing crosses from one to another),
 * and a small model (draft_lm.h). Tests have wicked ones. Whatever a drafter says, tokens that
 * the vocabulary does not have are never computed.
 *
 * Owner: the engine thread, but draft_seq_init and ngram_* at gen_new: the asker's. offer and
 * propose allocate nothing. */
#pragma once

#include "engine/ngram.h"
#include "engine/sampler.h"

enum { DRAFT_MOST = 64 }; /* tokens of one draft */

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

enum draft_source {
    DRAFT_PREDICTION,
    DRAFT_BENT,
    DRAFT_LONG,
    DRAFT_MIDDLE,
    DRAFT_SHORT,
    DRAFT_MODEL
};
enum { N_DRAFT_SOURCES = DRAFT_MODEL + 1 };

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
void draft_seq_fade(
    struct draft_seq *s); /* not asked this time: old failures count a little less */

struct draft_job { /* about one sequence that decodes */
    struct draft_seq *seq;
    uint64_t key; /* the same in all steps of a sequence, of no other one while it lives */
    const int32_t *tokens;
    int n, n_prompt; /* known: prompt and output so far */
    const struct sample_params *sample;
    int choice;
    void *user;               /* the gen's */
    enum draft_source source; /* out: of offer */
    bool is_hint;             /* of the history: from the prediction */
    int most;                 /* offer: at most so many may be wanted; propose: are wanted */
    int n_out;                /* out: so many are in `out` */
    bool is_prompt;           /* out: time went into computing its prompt */
    int32_t *out;             /* room for `most`, right behind the known tokens */
};

struct drafter;

struct draft_ops {
    /* 0 .. job->most; sets job->source. */
    int (*offer)(struct drafter *d, struct draft_job *job);
    /* Fills out and n_out (0 .. most) of each; may be interrupted by `stop`. */
    void (*propose)(
        struct drafter *d, struct draft_job *jobs, int n_jobs, const _Atomic bool *stop);
    void (*forget)(struct drafter *d, uint64_t key); /* it has ended; never asked about: fine */
    void (*close)(struct drafter *d);
};

struct drafter {
    const struct draft_ops *ops;
};

extern struct drafter draft_history; /* stateless: all it knows is in draft_seq */
