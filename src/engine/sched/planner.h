/* planner.h: scratch of the construction of one step plan: lists of sequences, what is left of the
 * limits of the step, and the prefill budgets.
 *
 * Lifetime: sched_plan sets all fields before it reads them. They are meaningless after it returns,
 * except rows_left and logits_left, which are valid until the next sched_plan, because sched_extend
 * adds draft rows to the finished plan. The lists are allocated once, by planner_init, since a step
 * allocates nothing.
 *
 * Bounds: decode has an entry per running sequence, at most max_batch. prefill has at most 2
 * max_batch entries: the running sequences, some of which may be preempted, and those admitted in
 * their place. An admitted sequence that does not fit is planned without an entry.
 *
 * Owner: the engine thread. */
#pragma once

#include "engine/sched/step_time.h"

/* Budget classes of prefill rows: long prompts; all prompts, which is the class of a short one. */
enum prefill_class { PREFILL_LONG, PREFILL_ALL, PREFILL_CLASSES };

struct planner {
    struct step_plan *plan; /* plan under construction; NULL outside sched_plan */

    /* Indices of running sequences. decode [max_batch]: decoding sequences that are not
     * decode-only; before list_running, scratch of end_slices. prefill [2 max_batch]: prefilling
     * sequences. */
    uint32_t *decode, *prefill;
    int n_decode, n_prefill;

    int rows_left, logits_left; /* left of the limits per step */
    /* If has_promised: sum of sched_missing_pages over the running sequences. */
    int64_t promised;
    bool has_promised;

    struct step_size decode_size; /* size of the planned decode rows */
    double prefill_ns;            /* predicted time of the planned prefill rows */
    bool has_partial;             /* a run with partial rows is planned */

    /* The step is mixed: it has decode rows and a prefill budget (is_prefill_limited). */
    bool is_prefill_limited;
    bool has_prefill_rows;                     /* prefill rows are planned: the minimum is used */
    double prefill_budget_ns[PREFILL_CLASSES]; /* remaining prefill budget */
    int n_prefills[PREFILL_CLASSES];           /* prompts that are not planned yet */
    double short_prefill_share_ns;             /* equal share of the budget of short prompts */
    /* Predicted time of the unplanned short prompts that fit into such a share. */
    double short_prefill_reserved_ns;
};

bool planner_init(struct planner *pl, int max_batch) MUST_CHECK; /* false: no memory */
void planner_clear(struct planner *pl);
