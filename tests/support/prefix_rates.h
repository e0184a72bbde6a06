/* prefix_rates.h: prefix cache hit rates on a trace: of an unlimited cache, of exact LRU over
 * single pages, and of the prefix cache with both eviction policies. */
#pragma once

#include "cache/tree.h"
#include "support/prefix_trace.h"

/* ---- the ideal caches */

struct ideal_entry {
    uint64_t name;
    uint32_t next, prev, chain;
};

struct ideal { /* entry 0 is the head of the list */
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

/* Returns the number of prompt tokens found; then all pages of prompt and output are in the
 * cache. */
static inline int ideal_visit(struct ideal *m, const int32_t *tokens, int n_prompt, int n)
{
    static uint64_t names[1 << 16];
    uint64_t name = tree_scope_hash(&(struct cache_scope){ 0 });
    int n_pages = MIN(n / PAGE_TOKENS, (int)m->cap), n_found = 0;

    for (int i = 0; i < n_pages; i++)
        names[i] = name = tree_extend_hash(name, tokens + i * PAGE_TOKENS, PAGE_TOKENS);
    while (n_found < n_prompt / PAGE_TOKENS && n_found < n_pages && ideal_find(m, names[n_found]))
        n_found++;
    for (int i = n_pages; i-- > 0;) /* makes the first page the most recently used */
        ideal_touch(m, names[i]);
    return n_found * PAGE_TOKENS;
}

/* ---- the prefix cache, in the way a sequence uses it */

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
        at = tree_insert(t, at, tokens + i * PAGE_TOKENS, PAGE_TOKENS, &pages[i]);
        n_pages++;
    }
    for (int i = 0; i < n_pages; i++)
        page_unref(p, pages[i]);
    tree_leave(t, root);
    return found / PAGE_TOKENS * PAGE_TOKENS;
}

struct hit_rates { /* in tokens */
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
