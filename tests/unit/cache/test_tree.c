/* Prefix cache: single cases, and random users compared with the token text of every page. */
#include "cache/tree.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"

enum { N_PAGES = 48, USERS = 6, LONGEST = 8 * PAGE_TOKENS, VOCAB = 3 };

static struct page_pool *pool_of(uint32_t n)
{
    struct page_pool *p;
    struct err e;

    EXPECT_EQ(page_pool_new(&p, n, &e), 0);
    return p;
}

static struct tree_options options(void)
{
    return (struct tree_options){ .n_users = USERS, .quota = N_PAGES, .n_pinned = N_PAGES / 2 };
}

static struct tree *tree_of(struct page_pool *p, const struct tree_options *o)
{
    struct tree *t;
    struct err e;

    EXPECT_EQ(tree_new(&t, p, o, &e), 0);
    return t;
}

static void expect_sound(const struct tree *t, const struct page_pool *p)
{
    const char *wrong = tree_check(t);

    page_pool_check(p);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    EXPECT(!wrong);
}

/* ---- single cases: a user computes n tokens of a text and leaves, then another arrives */

static int32_t text[LONGEST];

static void write_text(int32_t first)
{
    for (int i = 0; i < LONGEST; i++)
        text[i] = first + i;
}

/* Takes pages for tokens that are not cached, adds all pages and releases them. Returns the
 * number of cached tokens. */
static int compute_text(struct tree *t, struct page_pool *p, const struct cache_scope *scope,
    const int32_t *tokens, int n)
{
    page_id pages[LONGEST / PAGE_TOKENS + 1];
    tree_node root = tree_enter(t, scope), at = root;
    int found = tree_match(t, &at, tokens, n, pages);
    int n_pages = (found + PAGE_TOKENS - 1) / PAGE_TOKENS;

    if (found % PAGE_TOKENS)
        page_unref(p, pages[--n_pages]); /* releases the partial page, as after its copy */
    for (int i = n_pages; i * PAGE_TOKENS < n; i++) {
        while ((pages[i] = page_take(p)).i == PAGE_NONE.i)
            EXPECT(tree_evict(t));
        n_pages++;
        tree_node next = tree_insert(
            t, at, tokens + i * PAGE_TOKENS, MIN(n - i * PAGE_TOKENS, (int)PAGE_TOKENS), &pages[i]);
        EXPECT_EQ(next.i == TREE_NONE.i, n - i * PAGE_TOKENS < PAGE_TOKENS);
        at = next;
    }
    while (n_pages)
        page_unref(p, pages[--n_pages]);
    tree_leave(t, root);
    expect_sound(t, p);
    return found;
}

static const struct cache_scope default_scope;

static void cached_tokens_are_found_exactly(void)
{
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    struct tree *t = tree_of(p, &o);
    int n = 3 * PAGE_TOKENS + PAGE_TOKENS / 2;

    write_text(0);
    EXPECT_EQ(compute_text(t, p, &default_scope, text, n), 0);
    EXPECT_EQ(tree_n_pages(t), 4u);
    EXPECT_EQ(page_n_idle(p), 4u);
    for (int i = 1; i <= n; i++)
        EXPECT_EQ(compute_text(t, p, &default_scope, text, i), i);
    EXPECT_EQ(tree_n_pages(t), 4u); /* an equal beginning adds no page */
    text[PAGE_TOKENS + 1]++;        /* a different second token on the second page */
    EXPECT_EQ(compute_text(t, p, &default_scope, text, n), PAGE_TOKENS + 1);
    EXPECT_EQ(tree_n_pages(t), 7u);
    tree_free(t);
    EXPECT_EQ(page_n_free(p), (uint32_t)N_PAGES);
    page_pool_free(p);
}

static void fuller_page_replaces_a_shorter_one(void)
{
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    struct tree *t = tree_of(p, &o);

    write_text(0);
    for (int n = PAGE_TOKENS + 1; n <= 2 * PAGE_TOKENS; n++) {
        compute_text(t, p, &default_scope, text, n);
        EXPECT_EQ(tree_n_pages(t), 2u);
    }
    tree_free(t);
    page_pool_free(p);
}

static void scopes_never_mix(void)
{
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    struct tree *t = tree_of(p, &o);
    struct cache_scope scope[3] = { { .tenant = 1 }, { .tenant = 2 }, { .tenant = 1 } };

    scope[2].salt[31] = 1;
    write_text(0);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(compute_text(t, p, &scope[i], text, 2 * PAGE_TOKENS), 0);
        EXPECT_EQ(compute_text(t, p, &scope[i], text, 2 * PAGE_TOKENS), 2 * PAGE_TOKENS);
    }
    tree_free(t);
    page_pool_free(p);
}

static void equal_pages_are_deduplicated(void)
{
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    struct tree *t = tree_of(p, &o);
    tree_node root = tree_enter(t, &default_scope), n_equal = tree_enter(t, &default_scope);
    page_id a = page_take(p), b = page_take(p);

    write_text(0);
    EXPECT_EQ(root.i, n_equal.i);
    tree_node x = tree_insert(t, root, text, PAGE_TOKENS, &a);
    tree_node y = tree_insert(t, root, text, PAGE_TOKENS, &b);
    EXPECT_EQ(x.i, y.i);
    EXPECT_EQ(a.i, b.i);
    EXPECT_EQ(page_refs(p, a), 3u);
    EXPECT_EQ(page_n_free(p), N_PAGES - 1u);
    EXPECT_EQ(tree_parent(t, x).i, root.i);
    page_unref(p, a);
    page_unref(p, b);
    tree_leave(t, root);
    tree_leave(t, n_equal);
    expect_sound(t, p);
    tree_free(t);
    page_pool_free(p);
}

static void oldest_unused_page_is_evicted(void)
{
    for (int policy = EVICT_LRU; policy <= EVICT_CLOCK; policy++) {
        struct page_pool *p = pool_of(N_PAGES);
        struct tree_options o = options();
        o.policy = (enum evict_policy)policy;
        struct tree *t = tree_of(p, &o);
        page_id held[2];

        for (int i = 0; i < 3; i++) {
            write_text(1000 * i);
            compute_text(t, p, &default_scope, text, 2 * PAGE_TOKENS);
        }
        write_text(0); /* the oldest is used again */
        tree_node root = tree_enter(t, &default_scope), at = root;
        EXPECT_EQ(tree_match(t, &at, text, 2 * PAGE_TOKENS, held), 2 * PAGE_TOKENS);
        EXPECT_EQ(page_n_idle(p), 4u);
        EXPECT(tree_evict(t));
        if (policy == EVICT_LRU) { /* the end of the second text, not of the third */
            write_text(1000);
            EXPECT_EQ(compute_text(t, p, &default_scope, text, 2 * PAGE_TOKENS), PAGE_TOKENS);
        }
        while (tree_evict(t))
            expect_sound(t, p);
        EXPECT_EQ(tree_n_pages(t), 2u);
        page_unref(p, held[0]);
        page_unref(p, held[1]);
        tree_leave(t, root);
        tree_free(t);
        page_pool_free(p);
    }
}

/* Two pages of equal age: the one with the higher cost of recomputation stays. */
static void expensive_pages_stay_longer(void)
{
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    o.depth_weight = EVICT_WEIGHT;
    struct tree *t = tree_of(p, &o);

    write_text(0);
    compute_text(t, p, &default_scope, text, 6 * PAGE_TOKENS);
    write_text(1000);
    compute_text(t, p, &default_scope, text, PAGE_TOKENS); /* younger, and cheap */
    EXPECT(tree_evict(t));
    EXPECT_EQ(compute_text(t, p, &default_scope, text, PAGE_TOKENS), 0);
    tree_free(t);
    page_pool_free(p);
}

static void tenant_above_its_share_is_evicted_first(void)
{
    struct page_pool *p = pool_of(12);
    struct tree_options o = options();
    o.quota = 6;
    struct tree *t = tree_of(p, &o);
    struct cache_scope modest = { .tenant = 1 }, flood = { .tenant = 2 };

    write_text(0);
    compute_text(t, p, &modest, text, 4 * PAGE_TOKENS);
    for (int i = 1; i < 40; i++) {
        write_text(1000 * i);
        compute_text(t, p, &flood, text, 4 * PAGE_TOKENS);
    }
    write_text(0);
    EXPECT_EQ(compute_text(t, p, &modest, text, 4 * PAGE_TOKENS), 4 * PAGE_TOKENS);
    EXPECT(tree_stats(t)->n_evicted_for_quota > 100);
    tree_free(t);
    page_pool_free(p);
}

static void pinned_prefix_is_not_evicted(void)
{
    struct page_pool *p = pool_of(8);
    struct tree_options o = options();
    o.n_pinned = 2;
    struct tree *t = tree_of(p, &o);

    write_text(0);
    compute_text(t, p, &default_scope, text, 3 * PAGE_TOKENS);
    tree_node root = tree_enter(t, &default_scope);
    EXPECT_EQ(tree_pin(t, root, text, 3 * PAGE_TOKENS), 0); /* more than may be pinned */
    EXPECT_EQ(tree_pin(t, root, text, 2 * PAGE_TOKENS + 1), 2 * PAGE_TOKENS);
    EXPECT_EQ(tree_pin(t, root, text, PAGE_TOKENS), PAGE_TOKENS);
    tree_flush(t);
    EXPECT_EQ(tree_n_pages(t), 2u);
    EXPECT_EQ(tree_unpin(t, root, text, 2 * PAGE_TOKENS), 2 * PAGE_TOKENS);
    tree_flush(t);
    expect_sound(t, p);
    EXPECT_EQ(tree_n_pages(t), 1u); /* pinned twice */
    EXPECT_EQ(tree_unpin(t, root, text, PAGE_TOKENS), PAGE_TOKENS);
    EXPECT_EQ(tree_unpin(t, root, text, PAGE_TOKENS), 0);
    tree_pin(t, root, text, PAGE_TOKENS); /* freed by tree_free */
    tree_leave(t, root);
    tree_free(t);
    EXPECT_EQ(page_n_free(p), 8u);
    page_pool_free(p);
}

static void leaf_page_can_be_removed(void)
{
    struct page_pool *p = pool_of(8);
    struct tree_options o = options();
    struct tree *t = tree_of(p, &o);
    page_id pages[3];

    write_text(0);
    compute_text(t, p, &default_scope, text, 2 * PAGE_TOKENS + 1);
    tree_node root = tree_enter(t, &default_scope), at = root;
    tree_match(t, &at, text, 2 * PAGE_TOKENS + 1, pages);
    EXPECT(!tree_remove_page(t, pages[1]));
    EXPECT(tree_remove_page(t, pages[2]));
    EXPECT(!tree_remove_page(t, pages[2]));
    EXPECT_EQ(page_refs(p, pages[2]), 1u);
    for (int i = 0; i < 3; i++)
        page_unref(p, pages[i]);
    tree_leave(t, root);
    expect_sound(t, p);
    tree_free(t);
    page_pool_free(p);
}

/* ---- random users against the text of every page */

struct user {
    struct cache_scope scope;
    tree_node root, node;
    int32_t tokens[LONGEST];
    page_id pages[LONGEST / PAGE_TOKENS];
    int n, n_pages, n_kept;
    bool is_here;
};

/* The tokens that a page was computed for: its own and all before them. */
struct page_tokens {
    struct cache_scope scope;
    int32_t prefix[LONGEST];
    int n;
};

static struct {
    struct page_pool *pool;
    struct tree *tree;
    struct rng r;
    struct user users[USERS];
    struct page_tokens page[N_PAGES];
    int32_t past[20][LONGEST]; /* texts of earlier users, as prefixes for others */
    int n_past;
    uint64_t n_found, n_evicted, n_exchanged;
} w;

static int below(int n)
{
    return (int)rng_below(&w.r, (uint64_t)n);
}

static void choose_text(struct user *u)
{
    int n_same = w.n_past ? below(LONGEST + 1) : 0;

    if (n_same)
        memcpy(u->tokens, w.past[below(w.n_past)], (size_t)n_same * sizeof(*u->tokens));
    for (int i = n_same; i < LONGEST; i++)
        u->tokens[i] = below(VOCAB);
    memcpy(w.past[below(20)], u->tokens, sizeof(u->tokens));
    w.n_past = 20;
}

static int n_equal(const int32_t *a, const int32_t *b, int n)
{
    int i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Reference: the longest match with any page of the tree. */
static int longest_match(const struct user *u, int n)
{
    int best = 0;

    for (uint32_t i = 0; i < N_PAGES; i++)
        if (page_is_cached(w.pool, (page_id){ i }) &&
            !memcmp(&w.page[i].scope, &u->scope, sizeof(u->scope)))
            best = MAX(best, n_equal(w.page[i].prefix, u->tokens, MIN(n, w.page[i].n)));
    return best;
}

static void arrive(struct user *u)
{
    int want = below(LONGEST + 1);

    memset(u, 0, sizeof(*u));
    u->scope.tenant = (uint64_t)below(2);
    u->scope.salt[0] = below(4) == 0;
    u->is_here = true;
    choose_text(u);
    u->root = u->node = tree_enter(w.tree, &u->scope);
    int expected = longest_match(u, want);
    u->n = tree_match(w.tree, &u->node, u->tokens, want, u->pages);
    EXPECT_EQ(u->n, expected);
    u->n_pages = (u->n + PAGE_TOKENS - 1) / PAGE_TOKENS;
    u->n_kept = u->n / PAGE_TOKENS;
    for (int i = 0; i < u->n_pages; i++) {
        int n = MIN(u->n, (i + 1) * PAGE_TOKENS);
        const struct page_tokens *p = &w.page[u->pages[i].i];
        EXPECT(p->n >= n && n_equal(p->prefix, u->tokens, n) == n);
        EXPECT(!memcmp(&p->scope, &u->scope, sizeof(u->scope)));
    }
    w.n_found += u->n > 0;
}

static page_id take_page(void)
{
    page_id id;

    while ((id = page_take(w.pool)).i == PAGE_NONE.i && tree_evict(w.tree))
        w.n_evicted++;
    return id;
}

/* Makes the last page writable: a copy if it is shared. */
static bool make_tail_writable(struct user *u)
{
    page_id *tail = &u->pages[u->n / PAGE_TOKENS];

    if (u->n % PAGE_TOKENS == 0 || page_refs(w.pool, *tail) == 1)
        return true;
    page_id copy = take_page();
    if (copy.i == PAGE_NONE.i)
        return tree_remove_page(w.tree, *tail) && page_refs(w.pool, *tail) == 1;
    w.page[copy.i] = w.page[tail->i];
    page_unref(w.pool, *tail);
    *tail = copy;
    return true;
}

static void add_page(struct user *u, int n)
{
    page_id before = u->pages[u->n_kept];
    tree_node at = tree_insert(w.tree, u->node, u->tokens + u->n_kept * PAGE_TOKENS, n, &before);

    w.n_exchanged += before.i != u->pages[u->n_kept].i;
    u->pages[u->n_kept] = before;
    if (at.i == TREE_NONE.i)
        return;
    EXPECT_EQ(at.i, before.i);
    u->node = at;
    u->n_kept++;
}

static void compute(struct user *u)
{
    int upto = u->n + below(LONGEST - u->n + 1);

    if (!make_tail_writable(u))
        return;
    for (; u->n < upto; u->n++) {
        if (u->n % PAGE_TOKENS == 0) {
            page_id id = take_page();
            if (id.i == PAGE_NONE.i)
                return;
            u->pages[u->n_pages++] = id;
        }
        struct page_tokens *p = &w.page[u->pages[u->n_pages - 1].i];
        EXPECT_EQ(page_refs(w.pool, u->pages[u->n_pages - 1]), 1u);
        p->scope = u->scope;
        p->n = u->n + 1;
        memcpy(p->prefix, u->tokens, (size_t)p->n * sizeof(*u->tokens));
        if (p->n % PAGE_TOKENS == 0 && u->n_kept == u->n_pages - 1 && below(3))
            add_page(u, PAGE_TOKENS);
    }
}

static void depart(struct user *u)
{
    while (u->n_kept < u->n / PAGE_TOKENS) {
        int before = u->n_kept;
        add_page(u, PAGE_TOKENS);
        EXPECT_EQ(u->n_kept, before + 1);
    }
    if (u->n % PAGE_TOKENS)
        add_page(u, u->n % PAGE_TOKENS);
    while (u->n_pages)
        page_unref(w.pool, u->pages[--u->n_pages]);
    tree_leave(w.tree, u->root);
    u->is_here = false;
}

static void random_action(void)
{
    struct user *u = &w.users[below(USERS)];

    if (below(40) == 0)
        tree_evict(w.tree);
    if (!u->is_here)
        arrive(u);
    else if (below(3) == 0)
        depart(u);
    else
        compute(u);
    expect_sound(w.tree, w.pool);
}

static void random_users_find_exactly_the_cached_tokens(void)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct tree_options o = options();
        memset(&w, 0, sizeof(w));
        w.r.key = seed;
        o.policy = below(2) ? EVICT_LRU : EVICT_CLOCK;
        o.quota = (uint32_t)below(N_PAGES);
        o.depth_weight = (uint32_t)below(300);
        w.pool = pool_of(N_PAGES);
        w.tree = tree_of(w.pool, &o);
        for (int i = 0; i < 400; i++)
            random_action();
        for (int i = 0; i < USERS; i++)
            if (w.users[i].is_here)
                depart(&w.users[i]);
        EXPECT_EQ(page_n_idle(w.pool) + page_n_free(w.pool), (uint32_t)N_PAGES);
        tree_free(w.tree);
        page_pool_free(w.pool);
        EXPECT(w.n_found > 10 && w.n_evicted > 10);
    }
    EXPECT(w.n_exchanged > 0);
}

/* The maximum number of pages and users, each user with its own root. */
static void roots_never_run_out(void)
{
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    struct tree *t = tree_of(p, &o);
    struct cache_scope scope = { 0 };
    tree_node root[USERS];

    write_text(0);
    for (uint64_t i = 0; i < 10 * N_PAGES; i++) {
        scope.tenant = i;
        compute_text(t, p, &scope, text, 1);
    }
    for (uint64_t i = 0; i < USERS; i++) {
        scope.tenant = 1000000 + i;
        root[i] = tree_enter(t, &scope);
    }
    expect_sound(t, p);
    for (int i = 0; i < USERS; i++)
        tree_leave(t, root[i]);
    tree_free(t);
    page_pool_free(p);
}

static void missing_memory_is_an_error(void)
{
#ifdef TESTING
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    struct tree *t;
    struct err e;

    for (uint64_t nth = 1; nth <= 7; nth++) {
        mem_fail_after(nth);
        EXPECT_EQ(tree_new(&t, p, &o, &e), -1);
        EXPECT(e.code == ERR_MEMORY);
    }
    mem_fail_after(8);
    EXPECT_EQ(tree_new(&t, p, &o, &e), 0);
    mem_fail_after(0);
    tree_free(t);
    page_pool_free(p);
#endif
}

static uint64_t n_in(const struct histogram *h, uint64_t *sum_ns)
{
    uint64_t n = 0;

    for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
        n += h->bucket[i];
    *sum_ns = h->sum;
    return n;
}

static void page_ages_are_reported(void)
{
    const uint64_t s = 1000000000;
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_ages ages = { 0 };
    struct tree_options o = options();
    uint64_t sum;

    o.ages = &ages;
    struct tree *t = tree_of(p, &o);
    write_text(1);
    tree_set_time(t, 10 * s);
    compute_text(t, p, &default_scope, text, 2 * PAGE_TOKENS);
    EXPECT_EQ(n_in(&ages.reused, &sum), 0u);
    tree_set_time(t, 12 * s);
    compute_text(t, p, &default_scope, text, 2 * PAGE_TOKENS);
    EXPECT(n_in(&ages.reused, &sum) == 2 && sum == 4 * s);
    EXPECT_EQ(n_in(&ages.lived, &sum), 0u);
    tree_set_time(t, 17 * s);
    tree_flush(t);
    EXPECT(n_in(&ages.lived, &sum) == 2 && sum == 14 * s);
    EXPECT(n_in(&ages.idled, &sum) == 2 && sum == 10 * s);
    EXPECT(ages.idled.bucket[histogram_bucket_index(SECONDS, 5 * s)] == 2);
    tree_free(t);
    page_pool_free(p);
}

static void a_prefix_can_be_dropped_from_its_end(void)
{
    struct page_pool *p = pool_of(N_PAGES);
    struct tree_options o = options();
    struct tree *t = tree_of(p, &o);
    page_id pages[LONGEST / PAGE_TOKENS + 1];
    int n_dropped;

    write_text(1);
    compute_text(t, p, &default_scope, text, 4 * PAGE_TOKENS + 1);
    tree_node root = tree_enter(t, &default_scope), at = root;
    EXPECT_EQ(tree_erase(t, root, text, 4 * PAGE_TOKENS, &n_dropped), 4 * PAGE_TOKENS);
    EXPECT_EQ(n_dropped, 0); /* another page extends it */
    EXPECT_EQ(tree_match(t, &at, text, 2 * PAGE_TOKENS, pages), 2 * PAGE_TOKENS);
    EXPECT_EQ(tree_erase(t, root, text, 4 * PAGE_TOKENS + 1, &n_dropped), 2 * PAGE_TOKENS);
    EXPECT_EQ(n_dropped, 2 * PAGE_TOKENS + 1); /* the others are in use */
    page_unref(p, pages[1]);
    page_unref(p, pages[0]);
    EXPECT_EQ(tree_pin(t, root, text, PAGE_TOKENS), PAGE_TOKENS);
    EXPECT_EQ(tree_erase(t, root, text, 4 * PAGE_TOKENS, &n_dropped), PAGE_TOKENS);
    EXPECT_EQ(n_dropped, PAGE_TOKENS);
    EXPECT_EQ(tree_unpin(t, root, text, PAGE_TOKENS), PAGE_TOKENS);
    EXPECT_EQ(tree_erase(t, root, text, 0, &n_dropped), 0);
    EXPECT_EQ(n_dropped, 0);
    EXPECT_EQ(tree_erase(t, root, text, LONGEST, &n_dropped), 0);
    EXPECT_EQ(tree_n_pages(t), 0u);
    expect_sound(t, p);
    tree_leave(t, root);
    tree_free(t);
    page_pool_free(p);
}

TESTS(TEST(cached_tokens_are_found_exactly), TEST(page_ages_are_reported),
    TEST(a_prefix_can_be_dropped_from_its_end), TEST(fuller_page_replaces_a_shorter_one),
    TEST(scopes_never_mix), TEST(equal_pages_are_deduplicated), TEST(oldest_unused_page_is_evicted),
    TEST(expensive_pages_stay_longer), TEST(tenant_above_its_share_is_evicted_first),
    TEST(pinned_prefix_is_not_evicted), TEST(leaf_page_can_be_removed),
    TEST(random_users_find_exactly_the_cached_tokens), TEST(roots_never_run_out),
    TEST(missing_memory_is_an_error))
