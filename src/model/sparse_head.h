/* sparse_head.h: the panels of the output head that a step computes.
 *
 * If every row with logits needs few panels (lm_run.panels), only the union of their sets is
 * computed. A logit has the same bits in every division of the head into tiles.
 *
 * Owner: the engine thread; the thread pool reads it during a forward pass. */
#pragma once

#include "model/lm.h"

struct panel_range {
    int from, to;
};

struct sparse_head {
    uint32_t *panels;           /* [(logit_panels(n_vocab) + 31) / 32] union of the sets */
    struct panel_range *ranges; /* [logit_panels(n_vocab)] tiles of the step, ascending */
    int n_ranges;               /* -1: all panels are computed */
};

/* Combines the sets of the runs. Without a set in a run with logits, or with more than half of the
 * panels, all are computed. */
void sparse_head_set(
    struct sparse_head *h, const struct lm_run *runs, int n_runs, int n_vocab, int n_threads);
