/* draft_text.h: drafter that proposes the continuation of an earlier occurrence of the last tokens,
 * in the prompt, the output or the client's prediction (prompt lookup decoding). Also the drafting
 * state of a choice, including acceptance rates, for all drafters.
 *
 * All state belongs to one request, so no data passes between requests.
 *
 * Owner: the engine thread; draft_seq_init, draft_seq_predict and ngram_* also run in gen_new on
 * the thread of the caller. Allocates nothing. */
#pragma once

#include "engine/spec/draft.h"
#include "engine/spec/ngram.h"

extern struct drafter draft_text; /* stateless: all state is in draft_seq */

/* Cursor in a text that the output follows: while they agree, `at` is the next token of the text.
 * After a mismatch of a long match an edit is assumed (one token replaced or a few deleted): the
 * cursor moves past the edit and is_after_edit is set until two tokens agree. After another
 * mismatch the cursor is lost and is searched for by the last tokens, first near the position where
 * it was lost, then everywhere. */
struct text_cursor {
    int at;  /* next token; -1 = lost */
    int len; /* known length of the match */
    int lost_at;
    bool is_after_edit;
};

/* Acceptance rate of drafts from one source, exponentially decaying. */
struct draft_acceptance {
    float hits, tries;
};

/* Drafting state of one choice, in the memory of the gen. */
struct draft_seq {
    const int32_t *predicted;       /* the client's prediction; NULL = none */
    int n_predicted;                /* number of predicted tokens */
    const struct ngram *prediction; /* index of the prediction */
    /* Index of the prompt, shared by the choices; NULL = no drafts from history. */
    const struct ngram *prompt;
    struct ngram own;              /* index of positions after the prompt */
    struct text_cursor past, hint; /* cursors in prompt and output, and in the prediction */
    int n_followed;                /* tokens that `past` has processed */
    struct draft_acceptance acceptance_by_source[N_DRAFT_SOURCES];
    uint32_t model_slot; /* slot index in draft_lm */
};

/* The gen owns the slots; own_slots may be NULL. The index of the prompt is complete. */
void draft_seq_init(struct draft_seq *s, const struct ngram *prompt, int n_prompt,
    uint32_t *own_slots, size_t n_own_slots);
void draft_seq_predict(
    struct draft_seq *s, const int32_t *predicted, int n, const struct ngram *prediction);

/* Processes the new token tokens[n - 1]. Returns true if it equals the prediction: a function of
 * the tokens alone, whatever was drafted, since it is reported to the client. */
bool draft_seq_append(struct draft_seq *s, const int32_t *tokens, int n);
/* The first n_accepted of n draft tokens were accepted. */
void draft_seq_add_result(struct draft_seq *s, enum draft_source source, int n, int n_accepted);
/* Probability that the next draft token of this source is accepted; a prior without
 * measurements. */
float draft_seq_acceptance(const struct draft_seq *s, enum draft_source source);
/* For a step without drafts: old rejections count a little less. */
void draft_seq_decay(struct draft_seq *s);
