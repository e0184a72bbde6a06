#include "engine/sample/mask_batch.h"
#include "base/mem.h"

#include <stdatomic.h>

enum {
    ROW_MASKS_MAX = 128, /* masks of logits rows; SPEC_ROWS_MAX rows have draft tokens */
    FIRST_PART = 64,     /* the first part of a mask is steps / FIRST_PART, each further twice */
};

_Static_assert((int)DRAFT_MAX <= (int)CONSTRAINT_POP_MAX, "draft tokens of a step are popped");

int mask_batch_open(
    struct mask_batch *b, struct lm *lm, int max_runs, uint64_t steps, struct err *e)
{
    const size_t n_words = token_mask_words(lm->n_vocab);
    const int max_tasks = 2 * max_runs + GEN_CHOICES_MAX; /* some of sequences that do not run */

    *b = (struct mask_batch){ .lm = lm,
        .steps = steps ? steps : MASK_STEPS,
        .max_tasks = max_tasks,
        .max_masks = MIN(lm->max_logits, (int)ROW_MASKS_MAX) };
    b->tasks = try_calloc((size_t)max_tasks, sizeof(*b->tasks));
    b->masks = try_calloc((size_t)b->max_masks, sizeof(*b->masks));
    b->memory = try_calloc((size_t)b->max_masks * n_words, sizeof(*b->memory));
    b->panels = try_calloc(
        (size_t)max_runs * token_mask_words(logit_panels(lm->n_vocab)), sizeof(*b->panels));
    if (!b->tasks || !b->masks || !b->memory || !b->panels)
        return err_set(e, ERR_MEMORY, "no memory for the masks of %d rows", b->max_masks);
    return 0;
}

void mask_batch_close(struct mask_batch *b)
{
    mem_free(b->tasks);
    mem_free(b->masks);
    mem_free(b->memory);
    mem_free(b->panels);
    *b = (struct mask_batch){ 0 };
}

void mask_batch_begin(struct mask_batch *b)
{
    b->n = b->n_masks = 0;
}

bool mask_batch_add(struct mask_batch *b, struct gen_choice *ch)
{
    if (b->n == b->max_tasks)
        return false;
    b->tasks[b->n++] = (struct mask_task){ .ch = ch };
    return true;
}

struct mask_task *mask_batch_add_drafts(
    struct mask_batch *b, struct gen_choice *ch, const int32_t *drafts, int n_drafts)
{
    if (b->n == b->max_tasks || b->n_masks == b->max_masks)
        return NULL;
    struct mask_task *t = &b->tasks[b->n++];

    *t = (struct mask_task){ .ch = ch,
        .masks = b->masks + b->n_masks,
        .memory = b->memory + (size_t)b->n_masks * token_mask_words(b->lm->n_vocab),
        .drafts = drafts,
        .n_drafts = MIN(n_drafts, b->max_masks - b->n_masks - 1) };
    b->n_masks += t->n_drafts + 1;
    return t;
}

/* Takes up to `want` byte steps; 0: none is left. */
static uint64_t take_steps(struct mask_batch *b, bool is_continued, uint64_t want)
{
    int64_t before = atomic_fetch_sub(&b->left[is_continued], (int64_t)want);

    return before <= 0 ? 0 : MIN((uint64_t)before, want);
}

static enum mask_progress compute_mask(
    struct mask_batch *b, struct mask_task *t, struct token_mask *out)
{
    const struct sample_constraint *k = choice_constraint(t->ch);
    uint64_t used = 0, part = MAX(b->steps / FIRST_PART, 1), got;

    while (used < b->steps &&
           (got = take_steps(b, t->ch->is_mask_continued, MIN(part, b->steps - used)))) {
        enum mask_progress progress = k->ops->mask(k->self, got, out, &t->err);
        if (progress != MASK_MORE)
            return progress;
        used += got;
        part *= 2;
    }
    return MASK_MORE;
}

static void keep_mask(
    const struct mask_batch *b, const struct mask_task *t, int i, const struct token_mask *m)
{
    const int n_vocab = b->lm->n_vocab;

    token_mask_copy(&t->masks[i], m, n_vocab, t->memory + (size_t)i * token_mask_words(n_vocab));
}

/* Pushes the draft tokens that remain, and keeps the mask after each. */
static void compute_draft_masks(struct mask_batch *b, struct mask_task *t)
{
    const struct sample_constraint *k = choice_constraint(t->ch);
    struct token_mask after;
    int n_pushed = 0, n_kept = 0;

    keep_mask(b, t, 0, &t->ch->mask);
    for (; n_kept < t->n_drafts; n_kept++) {
        if (!token_mask_has(&t->masks[n_kept], t->drafts[n_kept]) ||
            !k->ops->push(k->self, t->drafts[n_kept]))
            break;
        n_pushed++;
        if (k->ops->is_complete(k->self) || compute_mask(b, t, &after) != MASK_DONE)
            break;
        keep_mask(b, t, n_kept + 1, &after);
    }
    if (n_pushed > 0)
        k->ops->pop(k->self, n_pushed);
    t->n_drafts = n_kept;
    t->is_disturbed = n_pushed > 0;
    t->progress = MASK_DONE;
}

static void run_tasks(void *arg, int thread, int n_threads)
{
    struct mask_batch *b = arg;

    for (int i; (i = atomic_fetch_add(&b->next, 1)) < b->n;) {
        struct mask_task *t = &b->tasks[i];
        if (t->masks)
            compute_draft_masks(b, t);
        else
            t->progress = compute_mask(b, t, &t->ch->mask);
    }
}

void mask_batch_run(struct mask_batch *b)
{
    const int64_t steps = (int64_t)b->steps;
    int64_t n_begun = 0;

    for (int i = 0; i < b->n; i++)
        n_begun += b->tasks[i].masks ? b->tasks[i].n_drafts : !b->tasks[i].ch->is_mask_continued;
    atomic_store(&b->left[0], steps + n_begun * (steps / MASK_SHARE));
    atomic_store(&b->left[1], steps * MAX(b->lm->n_threads, 1));
    atomic_store(&b->next, 0);
    if (b->n > 1 && b->lm->n_threads > 1)
        b->lm->ops->run_on_threads(b->lm, run_tasks, b);
    else
        run_tasks(b, 0, 1);
}

const uint32_t *mask_batch_panels(
    struct mask_batch *b, int run, const struct token_mask *masks, int n)
{
    const int n_panels = logit_panels(b->lm->n_vocab);
    const size_t n_words = token_mask_words(n_panels);
    uint32_t *panels = b->panels + (size_t)run * n_words;
    int n_set = 0;

    memset(panels, 0, n_words * sizeof(*panels));
    for (int i = 0; i < n; i++) {
        if (masks[i].form == MASK_FORM_ALL)
            return NULL;
        token_mask_panels(&masks[i], b->lm->n_vocab, panels);
    }
    for (size_t w = 0; w < n_words; w++)
        n_set += __builtin_popcount(panels[w]);
    return 2 * n_set > n_panels ? NULL : panels;
}
