/* kernels_gate.h: what kernels reached of their roof, recorded in a file and held against it.
 *
 *     # machine
 *     set,what,rows,percent
 *
 * and so on: each machine has a part of its own, since what limits a kernel differs between them.
 *
 * A ratio to what the same minute's memory and processor allow travels better from hour to hour
 * than a speed. Still, a neighbour can halve any single figure: whoever falls short is measured
 * again, and the best of all tries counts; what is recorded is the median of some tries. What is
 * recorded and was not measured has failed, but for sets that this processor lacks. */
#pragma once

#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GATE_ROWS = 1024, GATE_TRIES = 5 };

struct gate_row {
    char set[16], what[16];
    int rows;
    double percent;
    bool is_done, is_lacking; /* measured; of a set that does not run here */
};

struct gate {
    FILE *record;
    char machine[96];                /* where the rows come from, and with how many threads */
    struct gate_row rows[GATE_ROWS]; /* to hold against */
    int n_rows, n_compared, n_failed;
};

static inline void gate_this_machine(char out[96], int threads)
{
    char line[256], name[64] = "unknown";
    int family = 0, model = 0, n = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");

    while (f && n < 3 && fgets(line, sizeof(line), f))
        n += sscanf(line, "model name : %60[^\n]", name) == 1 ||
             sscanf(line, "cpu family : %d", &family) == 1 ||
             sscanf(line, "model : %d", &model) == 1;
    if (f)
        fclose(f);
    snprintf(out, 96, "%s (family %d, model %d), threads: %d", name, family, model, threads);
}

/* The parts of all other machines, to be freed; NULL: no memory. */
static inline char *gate_others(const char *path, const char *machine)
{
    char line[256], name[96] = "", *text = NULL;
    size_t n;
    FILE *f = fopen(path, "r"), *to = open_memstream(&text, &n);

    while (f && to && fgets(line, sizeof(line), f)) {
        sscanf(line, "# %95[^\n]", name);
        if (name[0] && strcmp(name, machine))
            fputs(line, to);
    }
    if (f)
        fclose(f);
    return to && !fclose(to) ? text : NULL;
}

static inline bool gate_record(struct gate *g, const char *path, int threads)
{
    gate_this_machine(g->machine, threads);
    char *others = gate_others(path, g->machine);

    g->record = others ? fopen(path, "w") : NULL;
    if (g->record)
        fprintf(g->record, "%s# %s\nset,what,rows,percent\n", others, g->machine);
    free(others);
    return g->record;
}

/* Says so when the rows come from another machine, or another number of threads. */
static inline bool gate_same_machine(const struct gate *g, int threads)
{
    char here[96];

    gate_this_machine(here, threads);
    if (!strcmp(here, g->machine))
        return true;
    printf("recorded on: %s\nthis is:     %s\n", g->machine, here);
    return false;
}

/* This machine's part, or the last if it has none. False: no such file, or nothing in it. */
static inline bool gate_read(struct gate *g, const char *path, int threads)
{
    char line[256], name[96], here[96];
    FILE *f = fopen(path, "r");

    gate_this_machine(here, threads);
    g->machine[0] = '\0';
    g->n_rows = 0;
    while (f && g->n_rows < GATE_ROWS && fgets(line, sizeof(line), f)) {
        struct gate_row *r = &g->rows[g->n_rows];
        if (sscanf(line, "# %95[^\n]", name) == 1) {
            if (!strcmp(g->machine, here))
                break;
            snprintf(g->machine, sizeof(g->machine), "%s", name);
            g->n_rows = 0;
            continue;
        }
        g->n_rows +=
            sscanf(line, "%15[^,],%15[^,],%d,%lf", r->set, r->what, &r->rows, &r->percent) == 4;
    }
    if (f)
        fclose(f);
    return g->n_rows > 0;
}

static inline struct gate_row *gate_find(
    struct gate *g, const char *set, const char *what, int rows)
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
    struct gate_row *r = gate_find(g, set, what, rows);

    if (g->record)
        fprintf(g->record, "%s,%s,%d,%.1f\n", set, what, rows, fmin(percent, 100));
    if (!r)
        return;
    r->is_done = true;
    g->n_compared++;
    if (gate_holds(r, percent))
        return;
    g->n_failed++;
    printf("FELL: %s %s, %d rows: %.1f %% of the roof, recorded %.1f\n", set, what, rows, percent,
        r->percent);
}

/* Others of its rows are forgotten. */
static inline void gate_select(struct gate *g, bool (*is_wanted)(const struct gate_row *r))
{
    int n = 0;

    for (int i = 0; i < g->n_rows; i++)
        if (is_wanted(&g->rows[i]))
            g->rows[n++] = g->rows[i];
    g->n_rows = n;
}

/* Rows of a set are not asked for on this processor. */
static inline void gate_lacks(struct gate *g, const char *set)
{
    int n = 0;

    for (int i = 0; i < g->n_rows; i++)
        if (!strcmp(g->rows[i].set, set)) {
            g->rows[i].is_lacking = true;
            n++;
        }
    if (n)
        printf("%s does not run here: %d rows left out\n", set, n);
}

/* The program's exit status. Nothing compared where something should have been is a failure. */
static inline int gate_end(struct gate *g)
{
    int n_missing = 0;

    if (g->record)
        return fclose(g->record) ? 1 : 0;
    if (!g->n_rows)
        return 0;
    for (int i = 0; i < g->n_rows; i++) {
        const struct gate_row *r = &g->rows[i];
        if (r->is_done || r->is_lacking)
            continue;
        printf("MISSING: %s %s, %d rows: recorded, not measured\n", r->set, r->what, r->rows);
        n_missing++;
    }
    printf("%d of %d held against %s: %d fell, %d missing\n", g->n_compared, g->n_rows, g->machine,
        g->n_failed, n_missing);
    return g->n_failed || n_missing || !g->n_compared;
}
