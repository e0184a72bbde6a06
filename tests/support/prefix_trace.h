/* prefix_trace.h: synthetic request traces with shared prefixes.
 *
 * The requests are random: conversations of several turns, each with the previous turns as its
 * prefix, after one of several system prompts of very different popularity. The lengths follow
 * published statistics of recorded traces (Mooncake, FAST 2025; Azure, 2023); for the first two
 * kinds the reachable hit rate does as well. Tokens are hashes, so that no text is stored. */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "base/base.h"

#include <math.h>
#include <stdlib.h>

struct trace_kind {
    const char *name;
    int n_groups;         /* system prompts */
    double zipf;          /* the popularity is proportional to rank to the power of -zipf */
    double system_tokens; /* means */
    double first_tokens, turn_tokens, answer_tokens;
    double turns;
    double gap; /* requests of other conversations between two turns */
};

static const struct trace_kind trace_kinds[] = {
    { "conversations, long (as Mooncake's)", 40, 1.0, 900, 9800, 1200, 343, 1.7, 150 },
    { "tools and agents (as Mooncake's)", 60, 1.1, 3600, 4200, 700, 182, 1.35, 100 },
    { "conversations, short (as Azure's)", 30, 1.0, 250, 400, 180, 211, 3.5, 200 },
    { "code (as Azure's)", 400, 0.9, 1300, 700, 300, 28, 1.3, 60 },
};

struct trace_request {
    int group, session;
    int n_system, n; /* tokens: of the system prompt, and in total */
    int n_answer;
};

struct trace_session {
    struct trace_request r;
    uint64_t due;
};

struct trace {
    const struct trace_kind *kind;
    struct rng rng;
    struct trace_session *open; /* heap ordered by due time */
    int n_open, cap_open, n_sessions;
    uint64_t now;
};

static inline double trace_uniform(struct trace *t)
{
    return ((double)rng_below(&t->rng, 1u << 30) + 1) / ((1u << 30) + 1.0);
}

/* Lognormal with this mean: most values are smaller, a few are much larger. */
static inline int trace_length(struct trace *t, double mean)
{
    const double sigma = 0.8;
    double normal = sqrt(-2 * log(trace_uniform(t))) * cos(6.283185307179586 * trace_uniform(t));

    return (int)fmin(mean * exp(sigma * normal - sigma * sigma / 2), 60000) + 1;
}

static inline int trace_group(struct trace *t)
{
    double sum = 0, at;

    for (int g = 0; g < t->kind->n_groups; g++)
        sum += pow(g + 1, -t->kind->zipf);
    at = trace_uniform(t) * sum;
    for (int g = 0; g < t->kind->n_groups; g++)
        if ((at -= pow(g + 1, -t->kind->zipf)) <= 0)
            return g;
    return 0;
}

static inline int trace_by_due(const void *a, const void *b)
{
    uint64_t x = ((const struct trace_session *)a)->due, y = ((const struct trace_session *)b)->due;

    return (x > y) - (x < y);
}

static inline void trace_init(struct trace *t, const struct trace_kind *kind, uint64_t seed)
{
    *t = (struct trace){ .kind = kind, .rng = { .key = seed }, .cap_open = 1 << 16 };
    t->open = xcalloc((size_t)t->cap_open, sizeof(*t->open));
}

static inline void trace_clear(struct trace *t)
{
    mem_free(t->open);
}

/* Removes and returns the conversation that is due first; otherwise starts a new one. */
static inline struct trace_session trace_session_next(struct trace *t)
{
    struct trace_session s = { 0 };
    int first = -1;

    for (int i = 0; i < t->n_open; i++)
        if (t->open[i].due <= t->now && (first < 0 || t->open[i].due < t->open[first].due))
            first = i;
    if (first >= 0) {
        s = t->open[first];
        t->open[first] = t->open[--t->n_open];
        s.r.n += s.r.n_answer + trace_length(t, t->kind->turn_tokens);
        return s;
    }
    struct rng of_group;
    s.r.group = trace_group(t);
    s.r.session = t->n_sessions++;
    of_group = (struct rng){ .key = 77 + (uint64_t)s.r.group };
    s.r.n_system = (int)(t->kind->system_tokens / 2) +
                   (int)rng_below(&of_group, (uint64_t)t->kind->system_tokens);
    s.r.n = s.r.n_system + trace_length(t, t->kind->first_tokens);
    return s;
}

static inline struct trace_request trace_next(struct trace *t)
{
    struct trace_session s = trace_session_next(t);

    s.r.n_answer = trace_length(t, t->kind->answer_tokens);
    t->now++;
    if (trace_uniform(t) > 1 / t->kind->turns && t->n_open < t->cap_open) {
        struct trace_session next = s;
        next.due = t->now + (uint64_t)(-log(trace_uniform(t)) * t->kind->gap);
        t->open[t->n_open++] = next;
    }
    return s.r;
}

/* Writes the tokens of prompt and output. */
static inline void trace_tokens(const struct trace_request *r, int32_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t h = (i < r->n_system ? (uint64_t)r->group : (uint64_t)r->session + (1u << 20)) *
                         0x9e3779b97f4a7c15u +
                     (uint64_t)i * 0xd6e8feb86659fd93u;
        out[i] = (int32_t)((h ^ h >> 29) & 0x1ffff);
    }
}
