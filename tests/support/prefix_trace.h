/* prefix_trace.h: requests that begin alike, and what a cache of pages finds of them.
 *
 * Traces are drawn, not recorded: conversations of some turns, each of which has what was said
 * before in front, behind one of some system prompts of very different popularity. Their lengths
 * and how much of them can be found at all follow what was published of two recorded ones (Mooncake,
 * FAST 2025; Azure, 2023). Tokens are hashes, so that nothing has to be kept. */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "cache/tree.h"

#include <math.h>
#include <stdlib.h>

struct trace_kind {
    const char *name;
    int n_groups;         /* system prompts */
    double zipf;          /* their popularity falls with rank to this power */
    double system_tokens; /* means */
    double first_tokens, turn_tokens, answer_tokens;
    double turns;
    double gap; /* requests of others between two turns */
};

static const struct trace_kind trace_kinds[] = {
    { "conversations, long (as Mooncake's)", 40, 1.0, 900, 9800, 1200, 343, 1.7, 150 },
    { "tools and agents (as Mooncake's)", 60, 1.1, 3600, 4200, 700, 182, 1.35, 100 },
    { "conversations, short (as Azure's)", 30, 1.0, 250, 400, 180, 211, 3.5, 200 },
    { "code (as Azure's)", 400, 0.9, 1300, 700, 300, 28, 1.3, 60 },
};

struct trace_request {
    int group, session;
    int n_system, n; /* tokens: of the system prompt, and all */
    int n_answer;
};

struct trace_session {
    struct trace_request r;
    uint64_t due;
};

struct trace {
    const struct trace_kind *kind;
    struct rng rng;
    struct trace_session *open; /* heap by due */
    int n_open, cap_open, n_sessions;
    uint64_t now;
};

static inline double trace_uniform(struct trace *t)
{
    return ((double)rng_below(&t->rng, 1u << 30) + 1) / ((1u << 30) + 1.0);
}

/* Lognormal with this mean: most are shorter, few are much longer. */
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

/* The earliest that is due, taken out; else a new one. */
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

/* Prompt and answer. */
static inline void trace_tokens(const struct trace_request *r, int32_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t h = (i < r->n_system ? (uint64_t)r->group : (uint64_t)r->session + (1u << 20)) *
                         0x9e3779b97f4a7c15u +
                     (uint64_t)i * 0xd6e8feb86659fd93u;
        out[i] = (int32_t)((h ^ h >> 29) & 0x1ffff);
    }
}

/* ---- the measure: least recently used, of single pages, with nothing in its way */

struct ideal_entry {
    uint64_t name;
    uint32_t next, prev, chain;
};

struct ideal { /* entry 0 is the list's head */
    struct ideal_entry *e;
    uint32_t *buckets, n_buckets, cap, n;
};

static inline void ideal_init(struct ideal *m, uint32_t cap)
{
    *m = (struct ideal){ .cap = cap, .n_buckets = 16 };
    while (m->n_buckets < cap)
        m->n_buckets *= 2;
    m->e = xcalloc((size_t)cap + 1, sizeof(*m->e));
    m->buckets = xcalloc(m->n_buckets, sizeof(*m->buckets));
}

static inline void ideal_clear(struct ideal *m)
{
    mem_free(m->e);
    mem_free(m->buckets);
}

static inline void ideal_unlink(struct ideal *m, uint32_t i)
{
    m->e[m->e[i].prev].next = m->e[i].next;
    m->e[m->e[i].next].prev = m->e[i].prev;
}

static inline void ideal_push(struct ideal *m, uint32_t i)
{
    m->e[i].next = m->e[0].next;
    m->e[i].prev = 0;
    m->e[m->e[0].next].prev = i;
    m->e[0].next = i;
}

static inline uint32_t ideal_find(const struct ideal *m, uint64_t name)
{
    uint32_t i = m->buckets[name >> 20 & (m->n_buckets - 1)];

    while (i && m->e[i].name != name)
        i = m->e[i].chain;
    return i;
}

static inline uint32_t ideal_take(struct ideal *m)
{
    if (m->n < m->cap)
        return ++m->n;
    uint32_t i = m->e[0].prev, *link = &m->buckets[m->e[i].name >> 20 & (m->n_buckets - 1)];
    ideal_unlink(m, i);
    while (*link != i)
        link = &m->e[*link].chain;
    *link = m->e[i].chain;
    return i;
}

static inline void ideal_touch(struct ideal *m, uint64_t name)
{
    uint32_t i = ideal_find(m, name), *bucket = &m->buckets[name >> 20 & (m->n_buckets - 1)];

    if (i) {
        ideal_unlink(m, i);
    } else {
        i = ideal_take(m);
        m->e[i].name = name;
        m->e[i].chain = *bucket;
        *bucket = i;
    }
    ideal_push(m, i);
}

/* How many tokens of the prompt it finds; then it has all of prompt and answer. */
static inline int ideal_visit(struct ideal *m, const int32_t *tokens, int n_prompt, int n)
{
    static uint64_t names[1 << 16];
    uint64_t name = tree_scope_name(&(struct cache_scope){ 0 });
    int n_pages = MIN(n / PAGE_TOKENS, (int)m->cap), n_found = 0;

    for (int i = 0; i < n_pages; i++)
        names[i] = name = tree_name_after(name, tokens + i * PAGE_TOKENS, PAGE_TOKENS);
    while (n_found < n_prompt / PAGE_TOKENS && n_found < n_pages && ideal_find(m, names[n_found]))
        n_found++;
    for (int i = n_pages; i-- > 0;) /* so that the first is used last */
        ideal_touch(m, names[i]);
    return n_found * PAGE_TOKENS;
}

/* ---- the tree, as a sequence uses it */

static inline int tree_visit(
    struct tree *t, struct page_pool *p, const int32_t *tokens, int n_prompt, int n)
{
    static page_id pages[1 << 16];
    tree_node root = tree_enter(t, &(struct cache_scope){ 0 }), at = root;
    int found = tree_match(t, &at, tokens, n_prompt, pages);
    int n_pages = found / PAGE_TOKENS;

    if (found % PAGE_TOKENS)
        page_unref(p, pages[n_pages]); /* a partly equal page is copied: not counted here */
    n = MIN(n, (int)page_n_total(p) * PAGE_TOKENS);
    for (int i = n_pages; i < n / PAGE_TOKENS; i++) {
        while ((pages[i] = page_take(p)).i == PAGE_NONE.i)
            CHECK(tree_evict(t));
        at = tree_add(t, at, tokens + i * PAGE_TOKENS, PAGE_TOKENS, &pages[i]);
        n_pages++;
    }
    for (int i = 0; i < n_pages; i++)
        page_unref(p, pages[i]);
    tree_leave(t, root);
    return found / PAGE_TOKENS * PAGE_TOKENS;
}

struct hit_rates { /* of tokens */
    double endless, ideal, lru, clock;
    double mean_prompt;
};

static inline struct tree *trace_tree(
    struct page_pool **p, uint32_t n_pages, enum evict_policy policy, uint32_t depth_weight)
{
    struct tree_options o = {
        .policy = policy, .n_users = 4, .quota = n_pages, .depth_weight = depth_weight
    };
    struct tree *t;
    struct err e;

    CHECK(!page_pool_new(p, n_pages, &e) && !tree_new(&t, *p, &o, &e));
    return t;
}

static inline struct hit_rates trace_run(
    const struct trace_kind *kind, int n_requests, uint32_t n_pages, uint64_t seed)
{
    const int most = 1 << 18;
    int32_t *tokens = xcalloc((size_t)most, sizeof(*tokens));
    double asked = 0, endless = 0, ideal = 0, lru = 0, clock = 0;
    struct page_pool *pools[2];
    struct tree *trees[2] = { trace_tree(&pools[0], n_pages, EVICT_LRU, 0),
        trace_tree(&pools[1], n_pages, EVICT_CLOCK, 0) };
    struct ideal all, small;
    struct trace t;

    trace_init(&t, kind, seed);
    ideal_init(&all, 1 << 22);
    ideal_init(&small, n_pages);
    for (int i = 0; i < n_requests; i++) {
        struct trace_request r = trace_next(&t);
        int n_prompt = MIN(r.n, most / 2), n = MIN(r.n + r.n_answer, most);
        trace_tokens(&r, tokens, n);
        asked += n_prompt;
        endless += ideal_visit(&all, tokens, n_prompt, n);
        ideal += ideal_visit(&small, tokens, n_prompt, n);
        lru += tree_visit(trees[0], pools[0], tokens, n_prompt, n);
        clock += tree_visit(trees[1], pools[1], tokens, n_prompt, n);
    }
    for (int i = 0; i < 2; i++) {
        tree_free(trees[i]);
        page_pool_free(pools[i]);
    }
    ideal_clear(&all);
    ideal_clear(&small);
    trace_clear(&t);
    mem_free(tokens);
    return (struct hit_rates){ endless / asked, ideal / asked, lru / asked, clock / asked,
        asked / n_requests };
}
