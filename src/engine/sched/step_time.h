/* step_time.h: step-time model: predicts the duration of a step, fitted to measured steps.
 *
 *     ns = fixed + per_row * rows + per_key * keys
 *
 * rows: batch rows of the step; keys: sum over the rows of the positions that each attends to.
 * `fixed` is mostly the time to read the weights, which does not depend on the number of rows.
 *
 * Measurements are averaged in cells by kind of step, log2(rows) and log2(mean context). Since the
 * model is linear, cell averages obey it too. The coefficients are a least-squares fit over the
 * cells, weighted for relative error, with non-negative coefficients. Thus a rare kind of step
 * keeps its weight however often another kind runs, and an outlier changes one average a little.
 *
 * Rows and keys are mostly correlated, and noise could assign all of the time to either. The ratio
 * from the model's arithmetic (key_share) decides as long as the measurements do not: it is added
 * as one more cell with an error of 100 % of its time.
 *
 * Owner: the engine thread. No I/O, no clock, no allocation. */
#pragma once

#include "base/base.h"

struct step_size {
    double rows, keys;
};

struct step_time { /* zeroed = nothing is measured: every prediction is 0 */
    double fixed, per_row, per_key;
};

enum { STEP_KINDS = 3, STEP_ROW_CLASSES = 12, STEP_CONTEXT_CLASSES = 8 };

struct step_time_cell {
    double n; /* number of averaged steps, limited */
    double rows, keys, ns;
    uint64_t last; /* number of the newest step */
};

struct step_time_model { /* zeroed = empty */
    struct step_time_cell cells[STEP_KINDS * STEP_ROW_CLASSES * STEP_CONTEXT_CLASSES];
    uint16_t used[STEP_KINDS * STEP_ROW_CLASSES *
                  STEP_CONTEXT_CLASSES]; /* indices of cells with n > 0 */
    int n_used;
    uint64_t n_steps;
    double key_share; /* per_key / per_row by the model's arithmetic; 0 = unknown */
    struct step_time step_time;
};

/* Adds a run of n rows that begins at position pos. */
static inline void step_size_add(struct step_size *s, int pos, int n)
{
    s->rows += n;
    s->keys += n * (pos + (n + 1) * 0.5); /* a row attends to itself and all earlier positions */
}

/* Adds a measured step. kind: 0 = decode, 1 = prefill, 2 = mixed. */
void step_time_add(struct step_time_model *b, const struct step_size *s, int kind, uint64_t ns);

double step_time_of(
    const struct step_time *c, const struct step_size *s); /* predicted ns; 0 = unknown */
/* Predicted ns that n rows from position pos add to a step. */
double step_time_of_rows(const struct step_time *c, int pos, int n);
/* Number of rows from position pos, 0 .. max, that add at most `ns` to a step. */
int step_time_rows_within(const struct step_time *c, int pos, double ns, int max);
