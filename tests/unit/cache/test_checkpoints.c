/* Checkpoints of the prefix cache: single cases, and random prefixes compared with a list of all
 * state slots, the tokens and the positions at which they can resume. */
#include "cache/tree.h"
#include "base/rng.h"
#include "support/check.h"

enum { N_PAGES = 40, N_SLOTS = 12, LONGEST = 6 * PAGE_TOKENS, VOCAB = 2, SCOPES = 2 };

struct slot_model { /* expected content of a state slot */
    struct cache_scope scope;
    int32_t tokens[LONGEST];
    int n_min, n;
};

struct cache {
    struct page_pool *pages, *states;
    struct tree *tree;
    struct slot_model slots[N_SLOTS];
};

static struct cache open_cache(enum evict_policy policy)
{
    struct cache c = { 0 };
    struct err e;

    EXPECT_EQ(page_pool_new(&c.pages, N_PAGES, &e), 0);
    EXPECT_EQ(page_pool_new(&c.states, N_SLOTS, &e), 0);
    struct tree_options o = {
        .policy = policy, .n_users = 4, .quota = N_PAGES, .n_pinned = 8, .states = c.states
    };
    EXPECT_EQ(tree_new(&c.tree, c.pages, &o, &e), 0);
    return c;
}

static void close_cache(struct cache *c)
{
    tree_free(c->tree);
    page_pool_free(c->pages);
    page_pool_free(c->states); /* every slot must be free */
}

static void expect_sound(const struct cache *c)
{
    const char *wrong = tree_check(c->tree);

    page_pool_check(c->pages);
    page_pool_check(c->states);
    if (wrong)
        fprintf(stderr, "%s\n", wrong);
    EXPECT(!wrong);
}

static struct cache_scope scope_of(int i)
{
    return (struct cache_scope){ .tenant = (uint64_t)i };
}

static state_id take_slot(struct cache *c)
{
    state_id slot;

    while ((slot = page_take(c->states)).i == STATE_NONE.i)
        EXPECT(tree_evict_checkpoint(c->tree));
    return slot;
}

/* Computes a prefix as a sequence would: pages for all tokens and a checkpoint at the end, whose
 * slot can also resume up to `back` positions earlier. */
static void compute(struct cache *c, int scope, const int32_t *tokens, int n, int back)
{
    struct cache_scope s = scope_of(scope);
    page_id pages[LONGEST / PAGE_TOKENS + 1];
    tree_node root = tree_enter(c->tree, &s), at = root;
    state_id slot = take_slot(c);
    int n_pages = 0;

    for (int i = 0; i < n; i += PAGE_TOKENS, n_pages++) {
        while ((pages[n_pages] = page_take(c->pages)).i == PAGE_NONE.i)
            EXPECT(tree_evict(c->tree));
        at = tree_insert(c->tree, at, tokens + i, MIN(n - i, (int)PAGE_TOKENS), &pages[n_pages]);
    }
    struct slot_model m = { .scope = s, .n_min = MAX(n - back, 0), .n = n };
    memcpy(m.tokens, tokens, (size_t)n * sizeof(*tokens));
    EXPECT(tree_has_tokens(c->tree, pages[n_pages - 1], n));
    tree_add_checkpoint(c->tree, pages[n_pages - 1], m.n_min, n, slot);
    if (page_is_cached(c->states, slot))
        c->slots[slot.i] = m;
    page_unref(c->states, slot);
    while (n_pages)
        page_unref(c->pages, pages[--n_pages]);
    tree_leave(c->tree, root);
    expect_sound(c);
}

/* Resumes, releases everything, and returns the match. */
static struct resume_point resume(struct cache *c, int scope, const int32_t *tokens, int n)
{
    struct cache_scope s = scope_of(scope);
    page_id pages[LONGEST / PAGE_TOKENS + 1];
    tree_node root = tree_enter(c->tree, &s), at = root;
    struct resume_point from =
        tree_resume(c->tree, &at, tokens, n, &(struct resume_pages){ .pages = pages });

    EXPECT(from.n <= from.n_cached && from.n_cached <= n);
    for (int i = 0; i * PAGE_TOKENS < from.n; i++) {
        EXPECT(tree_has_tokens(c->tree, pages[i], MIN((i + 1) * PAGE_TOKENS, from.n)));
        page_unref(c->pages, pages[i]);
    }
    if (from.state.i != STATE_NONE.i)
        page_unref(c->states, from.state);
    tree_leave(c->tree, root);
    expect_sound(c);
    return from;
}

static int32_t text[LONGEST], other[LONGEST];

static void write_texts(int n_common)
{
    for (int i = 0; i < LONGEST; i++) {
        text[i] = i;
        other[i] = i < n_common ? i : 1000 + i;
    }
}

static void a_match_ends_at_the_deepest_checkpoint(void)
{
    struct cache c = open_cache(EVICT_LRU);
    const int n = 2 * PAGE_TOKENS + 5;

    write_texts(0);
    compute(&c, 0, text, n, 0);
    compute(&c, 0, text, LONGEST, 0);
    EXPECT_EQ(resume(&c, 0, text, LONGEST - 1).n, n);
    EXPECT_EQ(resume(&c, 0, text, LONGEST - 1).n_cached, LONGEST - 1);
    EXPECT_EQ(resume(&c, 0, text, LONGEST).n, LONGEST);
    EXPECT_EQ(resume(&c, 0, text, n - 1).n, 0);
    close_cache(&c);
}

static void a_slot_resumes_a_few_positions_earlier(void)
{
    struct cache c = open_cache(EVICT_LRU);
    const int n = 2 * PAGE_TOKENS + 1;

    write_texts(0);
    compute(&c, 0, text, n, 4);
    EXPECT_EQ(resume(&c, 0, text, n).n, n);
    EXPECT_EQ(resume(&c, 0, text, n - 1).n, n - 1); /* at the start of the page */
    close_cache(&c);
}

static void siblings_share_the_checkpoint_of_their_common_tokens(void)
{
    struct cache c = open_cache(EVICT_LRU);
    const int n = PAGE_TOKENS + PAGE_TOKENS / 4;

    write_texts(n + PAGE_TOKENS / 4);
    compute(&c, 0, text, n, 0);
    compute(&c, 0, text, LONGEST, 0); /* the second page replaces that of the checkpoint */
    compute(&c, 0, other, LONGEST, 0);
    EXPECT_EQ(resume(&c, 0, other, 2 * PAGE_TOKENS).n, n);
    EXPECT_EQ(resume(&c, 0, text, 2 * PAGE_TOKENS).n, n);
    close_cache(&c);
}

static void scopes_do_not_share_checkpoints(void)
{
    struct cache c = open_cache(EVICT_LRU);

    write_texts(0);
    compute(&c, 0, text, LONGEST, 0);
    EXPECT_EQ(resume(&c, 1, text, LONGEST).state.i, STATE_NONE.i);
    EXPECT_EQ(resume(&c, 1, text, LONGEST).n_cached, 0);
    close_cache(&c);
}

static void the_checkpoint_that_saves_least_is_evicted_first(void)
{
    struct cache c = open_cache(EVICT_LRU);

    write_texts(0);
    compute(&c, 0, text, 4 * PAGE_TOKENS, 0);
    compute(&c, 0, text, 5 * PAGE_TOKENS, 0);
    EXPECT(tree_evict_checkpoint(c.tree));
    EXPECT_EQ(resume(&c, 0, text, LONGEST).n, 4 * PAGE_TOKENS);
    EXPECT(tree_evict_checkpoint(c.tree));
    EXPECT(!tree_evict_checkpoint(c.tree));
    EXPECT_EQ(page_n_free(c.states), (uint32_t)N_SLOTS);
    close_cache(&c);
}

/* Longest match according to the list of slots. A position before the page of its checkpoint is not
 * searched for. */
static int expected_match(const struct cache *c, int scope, const int32_t *tokens, int n)
{
    struct cache_scope s = scope_of(scope);
    int best = 0;

    for (uint32_t i = 0; i < N_SLOTS; i++) {
        const struct slot_model *m = &c->slots[i];
        int n_same = 0;
        if (!page_is_cached(c->states, (state_id){ i }) || m->scope.tenant != s.tenant)
            continue;
        while (n_same < MIN(m->n, n) && m->tokens[n_same] == tokens[n_same])
            n_same++;
        if (n_same >= m->n_min && n_same >= (m->n - 1) / PAGE_TOKENS * PAGE_TOKENS)
            best = MAX(best, n_same);
    }
    return best;
}

static void random_prefixes(enum evict_policy policy)
{
    struct cache c = open_cache(policy);
    struct rng r = { .key = 7 };
    uint64_t n_found = 0;

    for (int round = 0; round < 20000; round++) {
        int32_t tokens[LONGEST];
        int scope = (int)rng_below(&r, SCOPES), n = 1 + (int)rng_below(&r, LONGEST);
        for (int i = 0; i < n; i++) /* most prefixes have long common parts */
            tokens[i] = i % 11 == 10 ? (int32_t)rng_below(&r, VOCAB) : i;
        if (rng_below(&r, 3) == 0) {
            compute(&c, scope, tokens, n, (int)rng_below(&r, 9));
            continue;
        }
        if (rng_below(&r, 20) == 0)
            tree_evict(c.tree);
        if (rng_below(&r, 20) == 0)
            tree_evict_checkpoint(c.tree);
        int want = expected_match(&c, scope, tokens, n);
        EXPECT_EQ(resume(&c, scope, tokens, n).n, want);
        n_found += want > 0;
    }
    EXPECT(n_found > 500);
    close_cache(&c);
}

static void random_prefixes_match_the_list_of_slots(void)
{
    random_prefixes(EVICT_LRU);
    random_prefixes(EVICT_CLOCK);
}

TESTS(TEST(a_match_ends_at_the_deepest_checkpoint), TEST(a_slot_resumes_a_few_positions_earlier),
    TEST(siblings_share_the_checkpoint_of_their_common_tokens),
    TEST(scopes_do_not_share_checkpoints), TEST(the_checkpoint_that_saves_least_is_evicted_first),
    TEST(random_prefixes_match_the_list_of_slots))
