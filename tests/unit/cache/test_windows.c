/* Window pages of the prefix cache: single cases, and random prefixes: every window page of a match
 * must contain the tokens of the matched prefix. */
#include "cache/windows.h"
#include "base/rng.h"
#include "support/check.h"

enum { N_PAGES = 40, N_WINDOWS = 14, LONGEST = 8 * PAGE_TOKENS, VOCAB = 2, SCOPES = 2 };

struct window_model { /* expected content of window pages: the last tokens of a prefix */
    int scope, n;     /* n: tokens from position 0 */
    int32_t tokens[LONGEST];
};

struct cache {
    struct page_pool *pages, *windows;
    struct tree *tree;
    struct kv_window w;
    struct window_model contents[N_WINDOWS];
};

struct run { /* a sequence that computes a prefix */
    tree_node root, at;
    page_id pages[LONGEST / PAGE_TOKENS + 1], windows[LONGEST / PAGE_TOKENS + 1];
    int n, window_from;
};

static struct cache open_cache(struct kv_window w, enum evict_policy policy)
{
    struct cache c = { .w = w };
    struct err e;

    EXPECT_EQ(page_pool_new(&c.pages, N_PAGES, &e), 0);
    EXPECT_EQ(page_pool_new(&c.windows, N_WINDOWS, &e), 0);
    struct tree_options o = { .policy = policy,
        .n_users = 4,
        .quota = N_PAGES,
        .n_pinned = 8,
        .n_pinned_windows = 6,
        .windows = c.windows,
        .window = w };
    EXPECT_EQ(tree_new(&c.tree, c.pages, &o, &e), 0);
    return c;
}

static void close_cache(struct cache *c)
{
    tree_free(c->tree);
    page_pool_free(c->pages);
    page_pool_free(c->windows); /* every window page must be free */
}

static void expect_sound(const struct cache *c)
{
    const char *wrong = tree_check(c->tree);

    page_pool_check(c->pages);
    page_pool_check(c->windows);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    EXPECT(!wrong);
}

static page_id take_page(struct cache *c)
{
    page_id page;

    while ((page = page_take(c->pages)).i == PAGE_NONE.i)
        EXPECT(tree_evict(c->tree));
    return page;
}

static page_id take_window(struct cache *c)
{
    page_id page;

    while ((page = page_take(c->windows)).i == PAGE_NONE.i)
        EXPECT(tree_evict_window(c->tree));
    return page;
}

/* Matches, and checks the content of the window pages of the match. */
static struct run resume(struct cache *c, int scope, const int32_t *tokens, int n, int *n_cached)
{
    struct cache_scope s = { .tenant = (uint64_t)scope };
    struct run r = { .root = tree_enter(c->tree, &s) };
    struct resume_pages out = { .pages = r.pages, .windows = r.windows };

    r.at = r.root;
    struct resume_point from = tree_resume(c->tree, &r.at, tokens, n, &out);
    EXPECT(from.n <= from.n_cached && from.n_cached <= n && from.state.i == STATE_NONE.i);
    EXPECT_EQ(tree_peek_resumable(c->tree, r.root, tokens, n), from.n);
    r.n = from.n;
    *n_cached = from.n_cached;
    r.window_from = MIN(kv_window_from(&c->w, r.n), r.n) / PAGE_TOKENS;
    for (int i = 0; i * PAGE_TOKENS < r.n; i++) {
        EXPECT_EQ(r.windows[i].i == PAGE_NONE.i, i < r.window_from);
        if (i < r.window_from)
            continue;
        const struct window_model *m = &c->contents[r.windows[i].i];
        int upto = MIN((i + 1) * PAGE_TOKENS, r.n);
        EXPECT(m->scope == scope && m->n >= upto && m->n > i * PAGE_TOKENS &&
               m->n <= (i + 1) * PAGE_TOKENS);
        EXPECT(!memcmp(m->tokens, tokens, (size_t)upto * sizeof(*tokens)));
    }
    return r;
}

static void release_windows(struct cache *c, struct run *r, int upto)
{
    for (; r->window_from < upto; r->window_from++)
        tree_unref_window(c->tree, r->windows[r->window_from]);
}

static void release(struct cache *c, struct run *r)
{
    release_windows(c, r, (r->n + PAGE_TOKENS - 1) / PAGE_TOKENS);
    for (int i = 0; i * PAGE_TOKENS < r->n; i++)
        page_unref(c->pages, r->pages[i]);
    tree_leave(c->tree, r->root);
    expect_sound(c);
}

/* Computes page i of the prefix of n tokens, as a sequence does after a copy of the tail. */
static void compute_page(struct cache *c, struct run *r, int scope, const int32_t *tokens, int n)
{
    int i = r->n / PAGE_TOKENS, begin = i * PAGE_TOKENS, end = MIN(begin + PAGE_TOKENS, n);
    page_id page = take_page(c), window = take_window(c);

    if (r->n > begin) {
        page_unref(c->pages, r->pages[i]);
        if (r->window_from == i + 1)
            r->window_from = i;
        else
            tree_unref_window(c->tree, r->windows[i]);
    }
    struct window_model *m = &c->contents[window.i];
    *m = (struct window_model){ .scope = scope, .n = end };
    memcpy(m->tokens, tokens, (size_t)end * sizeof(*tokens));
    tree_node node = tree_insert(c->tree, r->at, tokens + begin, end - begin, &page);
    if (tree_has_tokens(c->tree, page, end))
        tree_insert_window(c->tree, page, end - begin, &window);
    r->pages[i] = page;
    r->windows[i] = window;
    r->at = node.i == TREE_NONE.i ? r->at : node;
    r->n = end;
}

/* Computes the rest of a prefix; position n, if `keeps`, becomes a checkpoint. */
static void compute(struct cache *c, int scope, const int32_t *tokens, int n, bool keeps)
{
    int n_cached;
    struct run r = resume(c, scope, tokens, n, &n_cached);

    while (r.n < n) {
        compute_page(c, &r, scope, tokens, n);
        release_windows(c, &r, kv_window_from(&c->w, tree_window_base(r.n)) / PAGE_TOKENS);
        expect_sound(c);
    }
    page_id last = r.pages[(n - 1) / PAGE_TOKENS];
    if (keeps && tree_has_tokens(c->tree, last, n))
        tree_keep_windows(c->tree, last, n);
    release(c, &r);
}

static int matched(struct cache *c, int scope, const int32_t *tokens, int n)
{
    int n_cached;
    struct run r = resume(c, scope, tokens, n, &n_cached);
    int found = r.n;

    release(c, &r);
    return found;
}

static int32_t text[LONGEST];

static void write_text(void)
{
    for (int i = 0; i < LONGEST; i++)
        text[i] = i;
}

static void a_match_ends_where_the_window_pages_exist(void)
{
    const struct kv_window w = { .size = PAGE_TOKENS, .align = 1 };
    struct cache c = open_cache(w, EVICT_LRU);
    enum { N = 5 * PAGE_TOKENS };

    const int n_freed = kv_window_from(&w, tree_window_base(N)) / PAGE_TOKENS;

    write_text();
    compute(&c, 0, text, N, true);
    EXPECT_EQ(matched(&c, 0, text, LONGEST), N);
    EXPECT_EQ(matched(&c, 1, text, LONGEST), 0);               /* another scope */
    EXPECT_EQ(matched(&c, 0, text, n_freed * PAGE_TOKENS), 0); /* window pages were freed */
    EXPECT_EQ(page_n_total(c.windows) - page_n_free(c.windows), (uint32_t)(5 - n_freed));
    for (int i = n_freed; i < 4; i++) {
        EXPECT_EQ(matched(&c, 0, text, LONGEST), N); /* reads the last page only */
        EXPECT(tree_evict_window(c.tree));
    }
    EXPECT(tree_evict_window(c.tree));
    EXPECT_EQ(matched(&c, 0, text, LONGEST), 0);
    EXPECT(!tree_evict_window(c.tree));
    EXPECT_EQ(page_n_free(c.windows), (uint32_t)N_WINDOWS);
    close_cache(&c);
}

static void window_pages_of_no_checkpoint_are_freed(void)
{
    const struct kv_window w = { .size = PAGE_TOKENS, .align = 1 };
    struct cache c = open_cache(w, EVICT_LRU);

    write_text();
    compute(&c, 0, text, LONGEST, false);
    EXPECT_EQ(page_n_free(c.windows), (uint32_t)N_WINDOWS);
    EXPECT_EQ(matched(&c, 0, text, LONGEST), 0);
    close_cache(&c);
}

/* The page at the end of a conversation turn is replaced by a longer one: the checkpoint stays. */
static void a_longer_page_keeps_the_checkpoint(void)
{
    const struct kv_window w = { .size = PAGE_TOKENS, .align = 1 };
    struct cache c = open_cache(w, EVICT_LRU);
    enum { N = 3 * PAGE_TOKENS + PAGE_TOKENS / 2 };

    write_text();
    compute(&c, 0, text, N, true);
    compute(&c, 0, text, LONGEST, true);
    EXPECT_EQ(matched(&c, 0, text, N), N);
    EXPECT_EQ(matched(&c, 0, text, LONGEST), LONGEST);
    close_cache(&c);
}

struct evicted {
    struct cache *c;
    int n;
    page_id last;
};

static void count_evicted(void *arg, page_id page)
{
    struct evicted *e = arg;

    EXPECT(tree_window_of(e->c->tree, page).i != PAGE_NONE.i); /* still there */
    e->last = page;
    e->n++;
}

/* The KV offload tier copies the window page of a full page before its eviction. */
static void eviction_of_window_pages_is_reported(void)
{
    const struct kv_window w = { .size = PAGE_TOKENS, .align = 1 };
    struct cache c = open_cache(w, EVICT_LRU);
    struct evicted e = { .c = &c };
    enum { N = 3 * PAGE_TOKENS + 5 };

    write_text();
    compute(&c, 0, text, N, true);
    int n_kept = (int)(page_n_total(c.windows) - page_n_free(c.windows)), n = 0;
    tree_on_evict_window(c.tree, count_evicted, &e);
    for (; tree_evict_window(c.tree); n++)
        EXPECT(e.n == 0 || tree_window_of(c.tree, e.last).i == PAGE_NONE.i);
    EXPECT_EQ(n, n_kept);
    EXPECT_EQ(e.n, n_kept - 1); /* the last page is not full */
    close_cache(&c);
}

/* Window pages that are held while others of the same prefix are read. */
static void held_window_pages_are_not_evicted(void)
{
    const struct kv_window w = { .size = 3 * PAGE_TOKENS, .align = 1 };
    struct cache c = open_cache(w, EVICT_LRU);
    enum { PAGES = 5, N = PAGES * PAGE_TOKENS };
    page_id pages[PAGES], windows[PAGES];
    struct cache_scope scope = { 0 };

    write_text();
    compute(&c, 0, text, N, true);
    tree_node root = tree_enter(c.tree, &scope), at = root;
    /* The pages 1 .. 4 have window pages; in small builds, where the state log is longer than a
     * page, also page 0. */
    const int n_first = page_n_total(c.windows) - page_n_free(c.windows) == PAGES ? 0 : 1;
    EXPECT_EQ(page_n_total(c.windows) - page_n_free(c.windows), (uint32_t)(PAGES - n_first));
    for (int i = n_first; i < 3; i++)
        EXPECT(tree_evict_window(c.tree));
    EXPECT_EQ(tree_peek_windows(c.tree, &at, text, N + 3, windows), N);
    EXPECT_EQ(tree_acquire(c.tree, root, text, N, pages), N);
    tree_acquire_windows(c.tree, windows, PAGES);
    expect_sound(&c);
    EXPECT(!tree_evict_window(c.tree) && !tree_evict(c.tree));
    EXPECT(matched(&c, 0, text, N) < N);
    int n_missing = 0;
    for (int i = 1; i < PAGES; i++)
        if (windows[i].i == PAGE_NONE.i) {
            windows[i] = tree_take_window(c.tree);
            c.contents[windows[i].i] = (struct window_model){ .n = (i + 1) * PAGE_TOKENS };
            memcpy(c.contents[windows[i].i].tokens, text, sizeof(text));
            n_missing++;
        }
    EXPECT_EQ(n_missing, 2);
    EXPECT_EQ(windows[0].i, PAGE_NONE.i); /* before the window */
    tree_insert_windows(c.tree, root, text, N, 1, windows);
    EXPECT_EQ(matched(&c, 0, text, N), N);
    tree_release(c.tree, pages, PAGES);
    tree_leave(c.tree, root);
    expect_sound(&c);
    close_cache(&c);
}

static int n_pins; /* in all random tests */

struct pinned { /* one pinned prefix; n 0 = none */
    int scope, n;
    int32_t tokens[LONGEST];
};

static int change_pin(struct cache *c, struct pinned *p, bool is_pin)
{
    struct cache_scope s = { .tenant = (uint64_t)p->scope };
    tree_node root = tree_enter(c->tree, &s);
    int n = (is_pin ? tree_pin : tree_unpin)(c->tree, root, p->tokens, LONGEST);

    tree_leave(c->tree, root);
    return n;
}

/* Pins a prefix, or unpins the pinned one, of which the same tokens must be pinned still. */
static void pin_or_unpin(struct cache *c, struct pinned *p, int scope, const int32_t *tokens)
{
    if (p->n > 0) {
        EXPECT_EQ(change_pin(c, p, false), p->n);
        p->n = 0;
        EXPECT_EQ(change_pin(c, p, false), 0);
        return;
    }
    p->scope = scope;
    memcpy(p->tokens, tokens, sizeof(p->tokens));
    p->n = change_pin(c, p, true);
    EXPECT_EQ(p->n % PAGE_TOKENS, 0);
}

static void random_prefixes(uint64_t seed)
{
    struct pinned pinned = { 0 };
    struct rng r = { .key = seed };
    struct kv_window w = { .size = 1 + (int)rng_below(&r, 4 * PAGE_TOKENS),
        .align = 1 + (int)rng_below(&r, PAGE_TOKENS) };
    struct cache c = open_cache(w, rng_below(&r, 2) ? EVICT_LRU : EVICT_CLOCK);

    for (int step = 0; step < 60; step++) {
        int32_t tokens[LONGEST];
        int n = 1 + (int)rng_below(&r, LONGEST), n_random = (int)rng_below(&r, 4);
        memset(tokens, 0, sizeof(tokens));
        for (int i = 0; i < n_random; i++)
            tokens[rng_below(&r, LONGEST)] = (int32_t)rng_below(&r, VOCAB);
        switch (rng_below(&r, 6)) {
        case 0:
            tree_evict(c.tree);
            break;
        case 1:
            tree_evict_window(c.tree);
            break;
        case 2:
            matched(&c, (int)rng_below(&r, SCOPES), tokens, n);
            break;
        case 3:
            pin_or_unpin(&c, &pinned, (int)rng_below(&r, SCOPES), tokens);
            n_pins += pinned.n > 0;
            break;
        default:
            compute(&c, (int)rng_below(&r, SCOPES), tokens, n, rng_below(&r, 4) > 0);
        }
        expect_sound(&c);
        EXPECT(pinned.n == 0 || matched(&c, pinned.scope, pinned.tokens, pinned.n) == pinned.n);
    }
    close_cache(&c);
}

static void matches_have_the_window_pages_of_their_prefix(void)
{
    for (uint64_t seed = 0; seed < 300; seed++)
        random_prefixes(seed);
    EXPECT(n_pins > 100);
}

TESTS(TEST(a_match_ends_where_the_window_pages_exist),
    TEST(window_pages_of_no_checkpoint_are_freed), TEST(a_longer_page_keeps_the_checkpoint),
    TEST(eviction_of_window_pages_is_reported), TEST(held_window_pages_are_not_evicted),
    TEST(matches_have_the_window_pages_of_their_prefix))
