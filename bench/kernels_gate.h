/* kernels_gate.h: regression check of kernel speed against recorded percentages of the roof.
 *
 *     # machine
 *     set,what,rows,percent
 *
 * The file has one section of this form per machine, since the limiting resource differs between
 * machines. Percentages of a roof measured at the same time vary less on a shared machine than
 * absolute speeds. Other load can still halve a single result: a result that is too low is measured
 * again and the best trial counts; a recorded value is the median of several trials. A recorded
 * result that was not measured is a failure, unless the CPU lacks the kernel set.
 *
 * Owner: the main thread of the benchmark. */
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
    bool is_measured, is_unavailable; /* is_unavailable: this CPU lacks the kernel set */
};

struct gate {
    FILE *record;
    char machine[96];                /* machine of the section, and its number of threads */
    struct gate_row rows[GATE_ROWS]; /* recorded results */
    int n_rows, n_compared, n_failed;
};

static inline void gate_machine_name(char out[96], int threads)
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

/* Sections of all other machines. The caller frees the text; NULL: no memory. */
static inline char *gate_other_sections(const char *path, const char *machine)
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
    gate_machine_name(g->machine, threads);
    char *others = gate_other_sections(path, g->machine);

    g->record = others ? fopen(path, "w") : NULL;
    if (g->record)
        fprintf(g->record, "%s# %s\nset,what,rows,percent\n", others, g->machine);
    free(others);
    return g->record;
}

/* Prints both names and returns false if the recorded machine or number of threads differs. */
static inline bool gate_check_machine(const struct gate *g, int threads)
{
    char here[96];

    gate_machine_name(here, threads);
    if (!strcmp(here, g->machine))
        return true;
    printf("recorded on: %s\nthis is:     %s\n", g->machine, here);
    return false;
}

/* Reads the section of this machine, or the last section if there is none. False: the file is
 * missing or has no results. */
static inline bool gate_read(struct gate *g, const char *path, int threads)
{
    char line[256], name[96], here[96];
    FILE *f = fopen(path, "r");

    gate_machine_name(here, threads);
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

/* A result may be at most a quarter below the recorded value. */
static inline bool gate_is_within_limit(const struct gate_row *r, double percent)
{
    return percent >= 0.75 * r->percent;
}

static inline void gate_add_result(
    struct gate *g, const char *set, const char *what, int rows, double percent)
{
    struct gate_row *r = gate_find(g, set, what, rows);

    if (g->record)
        fprintf(g->record, "%s,%s,%d,%.1f\n", set, what, rows, fmin(percent, 100));
    if (!r)
        return;
    r->is_measured = true;
    g->n_compared++;
    if (gate_is_within_limit(r, percent))
        return;
    g->n_failed++;
    printf("REGRESSED: %s %s, %d rows: %.1f %% of the roof, recorded %.1f\n", set, what, rows,
        percent, r->percent);
}

/* Removes the recorded results for which is_wanted() returns false. */
static inline void gate_select(struct gate *g, bool (*is_wanted)(const struct gate_row *r))
{
    int n = 0;

    for (int i = 0; i < g->n_rows; i++)
        if (is_wanted(&g->rows[i]))
            g->rows[n++] = g->rows[i];
    g->n_rows = n;
}

/* Exempts the results of a kernel set that this CPU lacks. */
static inline void gate_set_unavailable(struct gate *g, const char *set)
{
    int n = 0;

    for (int i = 0; i < g->n_rows; i++)
        if (!strcmp(g->rows[i].set, set)) {
            g->rows[i].is_unavailable = true;
            n++;
        }
    if (n)
        printf("%s: not available on this CPU, %d results skipped\n", set, n);
}

/* Returns the exit status of the program. It is a failure if results are recorded but none was
 * compared. */
static inline int gate_end(struct gate *g)
{
    int n_missing = 0;

    if (g->record)
        return fclose(g->record) ? 1 : 0;
    if (!g->n_rows)
        return 0;
    for (int i = 0; i < g->n_rows; i++) {
        const struct gate_row *r = &g->rows[i];
        if (r->is_measured || r->is_unavailable)
            continue;
        printf("MISSING: %s %s, %d rows: recorded, not measured\n", r->set, r->what, r->rows);
        n_missing++;
    }
    printf("%d of %d compared with %s: %d regressed, %d missing\n", g->n_compared, g->n_rows,
        g->machine, g->n_failed, n_missing);
    return g->n_failed || n_missing || !g->n_compared;
}
