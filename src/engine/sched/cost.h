/* cost.h: how long a step will take, learned from those that were measured.
 *
 *     ns = fixed + per_row * rows + per_key * keys
 *
 * rows: computed in the step; keys: over all rows, the positions each attends to. `fixed` is
 * mostly the weights going by once, however many rows there are.
 *
 * Steps of one kind (what they hold, how many rows, how long their contexts) are averaged in a
 * cell; since the law is linear, averages obey it too. The coefficients are the weighted least
 * squares over the cells, of relative errors, none of them negative. So a kind of step that is
 * rare keeps its say, however long another kind runs, and one outlier moves one average a little.
 *
 * Rows and keys mostly come together, and noise could give all of the time to either. What is
 * known of the model's arithmetic (key_share) decides as long as the measures do not: it counts as
 * one cell more that may be wrong by its whole time.
 *
 * Owner: the engine thread. No input or output, no clock, no allocation. */
#pragma once

#include "base/base.h"

struct step_size {
    double rows, keys;
};

struct cost { /* zeroed = nothing is known: everything is free */
    double fixed, per_row, per_key;
};

enum { COST_KINDS = 3, COST_ROWS = 12, COST_CONTEXTS = 8 };

struct cost_cell {
    double n; /* steps measured, as far as they count */
    double rows, keys, ns;
    uint64_t last; /* when the newest was, in steps */
};

struct cost_book { /* zeroed = empty */
    struct cost_cell cells[COST_KINDS * COST_ROWS * COST_CONTEXTS];
    uint16_t used[COST_KINDS * COST_ROWS * COST_CONTEXTS]; /* indices of those with n > 0 */
    int n_used;
    uint64_t n_steps;
    double key_share; /* a key beside a row, as expected of the model; 0 = nothing is */
    struct cost cost;
};

/* A run of n rows that begins at position pos adds this much. */
static inline void step_size_add(struct step_size *s, int pos, int n)
{
    s->rows += n;
    s->keys += n * (pos + (n + 1) * 0.5); /* a row attends to itself and to all before it */
}

/* kind: 0 decodes, 1 fills, 2 does both. */
void cost_learn(struct cost_book *b, const struct step_size *s, int kind, uint64_t ns);

double cost_of(const struct cost *c, const struct step_size *s); /* of a step; 0: unknown */
/* What n rows from pos on add to a step. */
double cost_of_rows(const struct cost *c, int pos, int n);
/* How many rows from pos on add at most `ns` to a step: 0 .. max. */
int cost_rows_within(const struct cost *c, int pos, double ns, int max);
