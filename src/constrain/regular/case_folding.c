#include "constrain/regular/code_points.h"

enum { ORBIT_MAX = 4 /* characters that are equal without regard to case */ };

static const struct {
    uint32_t from, to, step;
    int32_t difference;
} runs[] = {
#define CASE_FOLD(from, to, step, difference) { from, to, step, difference },
#include "constrain/regular/case_folding.def"
#undef CASE_FOLD
};

/* Adds the next characters of those in from..to. */
static void add_next(struct code_points *more, size_t run, uint32_t from, uint32_t to)
{
    uint32_t step = runs[run].step, difference = (uint32_t)runs[run].difference;

    from += (from - runs[run].from) % step;
    if (step == 1)
        code_points_add(more, from + difference, to + difference);
    for (uint32_t cp = from; step > 1 && cp <= to; cp += step)
        code_points_add(more, cp + difference, cp + difference);
}

void code_points_fold(struct code_points *s)
{
    for (int round = 1; round < ORBIT_MAX; round++) {
        struct code_points more = { 0 };
        code_points_sort(s);
        for (size_t run = 0, k = 0; run < ARRAY_LEN(runs) && !s->is_failed; run++) {
            if (!code_points_count(s, runs[run].from, runs[run].to))
                continue;
            for (k = 0; k < s->n && s->r[k].from <= runs[run].to; k++)
                if (s->r[k].to >= runs[run].from)
                    add_next(&more, run, MAX(s->r[k].from, runs[run].from),
                        MIN(s->r[k].to, runs[run].to));
        }
        code_points_add_all(s, &more);
        code_points_clear(&more);
    }
    code_points_sort(s);
}
