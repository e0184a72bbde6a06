/* mask_batch.h: computes the constraint masks of a step in parallel on the threads of the model's
 * pool.
 *
 * The work of a step is limited, so that an expensive mask does not delay other sequences. The
 * limits count byte steps (sample_constraint.h). One mask gets at most `steps` per step. All masks
 * that are begun in this step get `steps` and `steps / MASK_SHARE` each; all masks that an earlier
 * step has begun get `steps` per thread. Steps are taken from these sums in growing parts, so a
 * cheap mask leaves nearly everything to the others. A mask that gets no more steps continues in
 * the next engine step. Limits and threads affect time only, never a mask.
 *
 * A task is one choice. It computes the mask of its next token, or the masks of the logits rows of
 * a step with draft tokens: those after each draft token too. Draft tokens are cut at the first one
 * that is forbidden, completes the output, or has a mask after it that exceeds the limits; the
 * state is restored.
 *
 * Owner: the engine thread. Allocates only in mask_batch_open. */
#pragma once

#include "engine/gen.h"
#include "engine/sample/token_mask.h"
#include "model/lm.h"

enum { MASK_SHARE = 16 };

struct mask_task {
    struct gen_choice *ch;
    enum mask_progress progress;
    struct err err; /* error of MASK_ERROR */
    /* With draft tokens: the masks of the logits rows [n_drafts + 1] and their memory. NULL: the
     * task computes ch->mask. */
    struct token_mask *masks;
    uint32_t *memory;
    const int32_t *drafts;
    int n_drafts;      /* in: proposed draft tokens; out: those that remain */
    bool is_disturbed; /* out: draft tokens were pushed and popped, so ch->mask is not valid */
};

struct mask_batch {
    struct lm *lm;
    uint64_t steps;          /* byte steps of one mask in one engine step */
    struct mask_task *tasks; /* [max_tasks]; n of this step */
    int n, max_tasks;
    struct token_mask *masks; /* [max_masks] masks of logits rows with draft tokens */
    uint32_t *memory;         /* [max_masks][token_mask_words(n_vocab)] */
    int n_masks, max_masks;
    uint32_t *panels; /* [max_runs][token_mask_words(logit_panels(n_vocab))] of the runs */
    _Atomic int next;
    _Atomic int64_t left[2]; /* byte steps left for masks begun in this step; begun earlier */
};

/* max_runs: runs of a step. steps: 0 = MASK_STEPS. ERR_MEMORY. */
int mask_batch_open(
    struct mask_batch *b, struct lm *lm, int max_runs, uint64_t steps, struct err *e) MUST_CHECK;
void mask_batch_close(struct mask_batch *b); /* also after a failed open */

void mask_batch_begin(struct mask_batch *b); /* removes all tasks */
/* Adds a choice whose mask is pending; false: there is no room. */
bool mask_batch_add(struct mask_batch *b, struct gen_choice *ch);
/* Adds a choice whose mask is known, with draft tokens; at most as many of them as there is memory
 * for their masks. The task, or NULL: there is no room. */
struct mask_task *mask_batch_add_drafts(
    struct mask_batch *b, struct gen_choice *ch, const int32_t *drafts, int n_drafts);
void mask_batch_run(struct mask_batch *b); /* executes all tasks */

/* Panels of logits of run `run` that hold a token which one of the n masks permits, for
 * lm_run.panels; valid until the next call for the run. NULL: more than half of the panels. */
const uint32_t *mask_batch_panels(
    struct mask_batch *b, int run, const struct token_mask *masks, int n);
