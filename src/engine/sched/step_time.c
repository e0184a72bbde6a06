#include "engine/sched/step_time.h"

#include <math.h>

enum { N_TERMS = 3, CELL_WEIGHT_MAX = 16, REFIT_EVERY = 8, HALF_LIFE = 2000 };

static int log2_below(double x, int limit)
{
    int i = 0;

    while (i < limit - 1 && x >= 2.0) {
        x *= 0.5;
        i++;
    }
    return i;
}

static struct step_time_cell *cell_of(
    struct step_time_model *b, const struct step_size *s, int kind)
{
    int rows = log2_below(s->rows, STEP_ROW_CLASSES);
    int context = log2_below(s->keys / s->rows / 128, STEP_CONTEXT_CLASSES);
    int i = (kind * STEP_ROW_CLASSES + rows) * STEP_CONTEXT_CLASSES + context;

    if (b->cells[i].n == 0)
        b->used[b->n_used++] = (uint16_t)i;
    return &b->cells[i];
}

/* Solves a[n][n] x = y for the terms in `is_in`; the others are 0. Returns false if it is
 * singular. */
static bool solve(double a[N_TERMS][N_TERMS], const double *y, const bool *is_in, double *x)
{
    double m[N_TERMS][N_TERMS + 1];
    int term[N_TERMS], n = 0;

    for (int i = 0; i < N_TERMS; i++)
        if (is_in[i])
            term[n++] = i;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            m[i][j] = a[term[i]][term[j]];
        m[i][n] = y[term[i]];
    }
    for (int i = 0; i < n; i++) { /* symmetric positive definite: no pivoting */
        if (!(m[i][i] > 0))
            return false;
        for (int r = i + 1; r < n; r++) {
            double f = m[r][i] / m[i][i];
            for (int j = i; j <= n; j++)
                m[r][j] -= f * m[i][j];
        }
    }
    memset(x, 0, N_TERMS * sizeof(*x));
    for (int i = n - 1; i >= 0; i--) {
        double sum = m[i][n];
        for (int j = i + 1; j < n; j++)
            sum -= m[i][j] * x[term[j]];
        x[term[i]] = sum / m[i][i];
    }
    return true;
}

/* Times do not decrease with size: removes the most negative term and solves for the rest. */
static bool solve_positive(double a[N_TERMS][N_TERMS], const double *y, double *x)
{
    bool is_in[N_TERMS] = { true, true, true };

    for (int left = N_TERMS; left > 0; left--) {
        int worst = -1;
        if (!solve(a, y, is_in, x))
            return false;
        for (int i = 0; i < N_TERMS; i++)
            if (x[i] < 0 && (worst < 0 || x[i] < x[worst]))
                worst = i;
        if (worst < 0)
            return true;
        is_in[worst] = false;
    }
    return false;
}

static void refit(struct step_time_model *b)
{
    double a[N_TERMS][N_TERMS] = { 0 }, y[N_TERMS] = { 0 }, x[N_TERMS], size[N_TERMS] = { 0 };
    double keys_ns = 0; /* time of the cell with the most keys */

    /* Each term is scaled by its largest value, for the conditioning of the matrix. */
    for (int u = 0; u < b->n_used; u++) {
        const struct step_time_cell *c = &b->cells[b->used[u]];
        size[0] = 1;
        size[1] = MAX(size[1], c->rows);
        if (c->keys > size[2])
            keys_ns = c->ns;
        size[2] = MAX(size[2], c->keys);
    }
    for (int u = 0; u < b->n_used; u++) {
        const struct step_time_cell *c = &b->cells[b->used[u]];
        double age = (double)(b->n_steps - c->last) / HALF_LIFE;
        double w = MIN(c->n, (double)CELL_WEIGHT_MAX) / ((1 + age) * c->ns * c->ns);
        const double t[N_TERMS] = { 1 / size[0], c->rows / size[1], c->keys / size[2] };
        for (int i = 0; i < N_TERMS; i++) {
            y[i] += w * t[i] * c->ns;
            for (int j = 0; j < N_TERMS; j++)
                a[i][j] += w * t[i] * t[j];
        }
    }
    if (b->key_share > 0 && keys_ns > 0) { /* additional equation: per_key = key_share * per_row */
        const double scale = CELL_WEIGHT_MAX * size[2] * size[2] / (keys_ns * keys_ns);
        const double t[N_TERMS] = { 0, -b->key_share / size[1], 1 / size[2] };
        for (int i = 0; i < N_TERMS; i++)
            for (int j = 0; j < N_TERMS; j++)
                a[i][j] += scale * t[i] * t[j];
    }
    for (int i = 0; i < N_TERMS; i++)
        a[i][i] *= 1 + 1e-6; /* ridge term: collinear terms share the time */
    if (solve_positive(a, y, x))
        b->step_time = (struct step_time){ x[0] / size[0], x[1] / size[1], x[2] / size[2] };
}

void step_time_add(struct step_time_model *b, const struct step_size *s, int kind, uint64_t ns)
{
    double took = (double)ns;

    if (s->rows < 1 || ns == 0)
        return;
    struct step_time_cell *c = cell_of(b, s, kind);
    b->n_steps++;
    /* Limits outliers, most likely caused by preemption of the thread, to 3 times the average. */
    if (c->n >= 4)
        took = MIN(took, 3 * c->ns);
    c->n = MIN(c->n + 1, (double)CELL_WEIGHT_MAX);
    c->rows += (s->rows - c->rows) / c->n;
    c->keys += (s->keys - c->keys) / c->n;
    c->ns += (took - c->ns) / c->n;
    c->last = b->n_steps;
    if (b->n_steps < 64 || b->n_steps % REFIT_EVERY == 0)
        refit(b);
}

double step_time_of(const struct step_time *c, const struct step_size *s)
{
    return c->fixed + c->per_row * s->rows + c->per_key * s->keys;
}

double step_time_of_rows(const struct step_time *c, int pos, int n)
{
    struct step_size s = { 0 };

    step_size_add(&s, pos, n);
    return c->per_row * s.rows + c->per_key * s.keys;
}

/* Solves per_row n + per_key (n pos + n (n + 1) / 2) <= ns for n. */
int step_time_rows_within(const struct step_time *c, int pos, double ns, int max)
{
    double half = c->per_key * 0.5, linear = c->per_row + c->per_key * (pos + 0.5), n;

    if (ns <= 0)
        return 0;
    if (half * max * max + linear * max <= ns)
        return max;
    /* This form of the root has no cancellation if per_key is small or 0. */
    n = 2 * ns / (linear + sqrt(linear * linear + 4 * half * ns));
    return MIN((int)n, max);
}
