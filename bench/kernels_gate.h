/* kernels_gate.h: what kernels reached of their roof, recorded in a file and held against it.
 *
 *     # machine
 *     set,what,rows,percent
 *
 * A ratio to what the same minute's memory and processor allow travels better from hour to hour
 * than a speed. Still, a neighbour can halve any single figure: whoever falls short is measured
 * again, and the best of all tries counts. */
#pragma once

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

enum { GATE_ROWS = 512, GATE_TRIES = 4 };

struct gate_row {
    char set[16], what[16];
    int rows;
    double percent;
};

struct gate {
    FILE *record;
    char machine[96];                /* where the rows come from */
    struct gate_row rows[GATE_ROWS]; /* to hold against */
    int n_rows, n_compared, n_failed;
};

static inline void gate_this_machine(char out[96])
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");

    snprintf(out, 96, "unknown");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "model name : %90[^\n]", out) == 1)
            break;
    if (f)
        fclose(f);
}

static inline bool gate_record(struct gate *g, const char *path, int threads)
{
    g->record = fopen(path, "w");
    if (!g->record)
        return false;
    gate_this_machine(g->machine);
    fprintf(g->record, "# %s, %d threads\nset,what,rows,percent\n", g->machine, threads);
    return true;
}

/* False: no such file, or nothing in it. */
static inline bool gate_read(struct gate *g, const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");

    while (f && g->n_rows < GATE_ROWS && fgets(line, sizeof(line), f)) {
        struct gate_row *r = &g->rows[g->n_rows];
        if (sscanf(line, "# %95[^\n]", g->machine) == 1)
            continue;
        g->n_rows +=
            sscanf(line, "%15[^,],%15[^,],%d,%lf", r->set, r->what, &r->rows, &r->percent) == 4;
    }
    if (f)
        fclose(f);
    return g->n_rows > 0;
}

static inline const struct gate_row *gate_find(
    const struct gate *g, const char *set, const char *what, int rows)
{
    for (int i = 0; i < g->n_rows; i++)
        if (!strcmp(g->rows[i].set, set) && !strcmp(g->rows[i].what, what) &&
            g->rows[i].rows == rows)
            return &g->rows[i];
    return NULL;
}

/* A quarter below what is recorded is too little. */
static inline bool gate_holds(const struct gate_row *r, double percent)
{
    return percent >= 0.75 * r->percent;
}

static inline void gate_note(
    struct gate *g, const char *set, const char *what, int rows, double percent)
{
    const struct gate_row *r = gate_find(g, set, what, rows);

    if (g->record)
        fprintf(g->record, "%s,%s,%d,%.1f\n", set, what, rows, percent);
    if (!r)
        return;
    g->n_compared++;
    if (gate_holds(r, percent))
        return;
    g->n_failed++;
    printf("FELL: %s %s, %d rows: %.1f %% of the roof, recorded %.1f\n", set, what, rows, percent,
        r->percent);
}

/* The program's exit status. Nothing compared where something should have been is a failure. */
static inline int gate_end(struct gate *g)
{
    if (g->record)
        return fclose(g->record) ? 1 : 0;
    if (!g->n_rows)
        return 0;
    printf(
        "%d of %d held against %s: %d fell\n", g->n_compared, g->n_rows, g->machine, g->n_failed);
    return g->n_failed || !g->n_compared;
}
