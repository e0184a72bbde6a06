#include "cache/tree_in.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

/* Children examined for a partial match: bounds the time, not the tree. */
enum { SIBLINGS_MAX = 64 };

/* ---- hashing */

static uint32_t *page_bucket(struct tree *t, uint32_t parent, const int32_t *tokens)
{
    uint64_t h = hash_bytes(hash_fold(t->seed, parent), tokens, PAGE_TOKENS * sizeof(*tokens));

    return &t->buckets[h & (t->n_buckets - 1)];
}

static uint32_t *root_bucket(struct tree *t, const struct cache_scope *s)
{
    uint64_t h = hash_bytes(hash_fold(t->seed, s->tenant), s->salt, sizeof(s->salt));

    return &t->buckets[t->n_buckets + (h & (t->n_buckets - 1))];
}

static uint32_t *tenant_bucket(struct tree *t, uint64_t id)
{
    return &t->buckets[2 * t->n_buckets + (hash_fold(t->seed, id) & (t->n_buckets - 1))];
}

/* ---- tenants */

static uint32_t tenant_ref(struct tree *t, uint64_t id)
{
    uint32_t *bucket = tenant_bucket(t, id);

    for (uint32_t i = *bucket; i != NONE; i = t->tenants[i].chain)
        if (t->tenants[i].id == id) {
            t->tenants[i].n_roots++;
            return i;
        }
    uint32_t i = t->free_tenant == NONE ? t->n_seen_tenants++ : t->free_tenant;
    CHECK(i < t->n_roots);
    if (i == t->free_tenant)
        t->free_tenant = t->tenants[i].chain;
    t->tenants[i] =
        (struct cache_tenant){ .id = id, .chain = *bucket, .n_roots = 1, .idle = INDEX_LIST_EMPTY };
    *bucket = i;
    t->n_tenants++;
    return i;
}

static void tenant_unref(struct tree *t, uint32_t i)
{
    struct cache_tenant *n = &t->tenants[i];
    uint32_t *link = tenant_bucket(t, n->id);

    if (--n->n_roots > 0)
        return;
    CHECK(n->n_pages == 0);
    while (*link != i)
        link = &t->tenants[*link].chain;
    *link = n->chain;
    n->chain = t->free_tenant;
    t->free_tenant = i;
    t->n_tenants--;
}

static void tenant_count(struct tree *t, uint32_t i, int by)
{
    struct cache_tenant *n = &t->tenants[i];
    bool was_over = n->n_pages > t->o.quota;

    n->n_pages += (uint32_t)by;
    bool is_over = n->n_pages > t->o.quota;
    if (is_over && !was_over)
        index_list_add_first(&t->over_quota, INDEX_LINKS(t->tenants, over_quota), i);
    else if (was_over && !is_over)
        index_list_remove(&t->over_quota, INDEX_LINKS(t->tenants, over_quota), i);
}

/* ---- idle leaves: candidates for eviction */

static uint32_t weight_of(const struct tree *t, const struct node *n)
{
    uint64_t w = EVICT_WEIGHT + (uint64_t)t->o.depth_weight * n->depth;

    return (uint32_t)MIN(w * (uint64_t)n->n_tokens / PAGE_TOKENS, UINT32_MAX);
}

static struct index_list *idle_list(struct tree *t, uint32_t i)
{
    return &t->tenants[t->roots[t->nodes[i].root].tenant].idle;
}

static void candidate_add(struct tree *t, uint32_t i, bool is_last_used)
{
    if (is_last_used) {
        index_list_add_last(idle_list(t, i), INDEX_LINKS(t->nodes, idle), i);
        evict_add(&t->evict, i);
    } else {
        index_list_add_first(idle_list(t, i), INDEX_LINKS(t->nodes, idle), i);
        evict_add_next(&t->evict, i);
    }
}

static void candidate_unlink(struct tree *t, uint32_t i)
{
    index_list_remove(idle_list(t, i), INDEX_LINKS(t->nodes, idle), i);
}

static void candidate_remove(struct tree *t, uint32_t i)
{
    candidate_unlink(t, i);
    evict_remove(&t->evict, i);
}

static void age_add(struct histogram *h, uint64_t from, uint64_t to)
{
    histogram_add(h, SECONDS, to > from ? to - from : 0);
}

/* Callback of the page pool: a cached page lost its last user or got one. */
static void on_idle_change(void *arg, page_id page, bool is_idle)
{
    struct tree *t = arg;
    struct node *n = &t->nodes[page.i];

    if (is_idle) {
        n->used_ns = t->now;
        evict_touch(&t->evict, page.i, weight_of(t, n));
        if (n->children.first == NONE)
            candidate_add(t, page.i, true);
        return;
    }
    if (evict_has(&t->evict, page.i))
        candidate_remove(t, page.i);
}

/* ---- init and free */

static int alloc_memory(struct tree *t, struct err *e)
{
    uint32_t n_all = t->n_pages + t->n_roots;

    t->nodes = try_calloc(n_all, sizeof(*t->nodes));
    t->tokens = try_calloc(t->n_pages, sizeof(*t->tokens));
    t->buckets = try_calloc(3 * (size_t)t->n_buckets, sizeof(*t->buckets));
    t->roots = try_calloc(t->n_roots, sizeof(*t->roots));
    t->tenants = try_calloc(t->n_roots, sizeof(*t->tenants));
    if (!t->nodes || !t->tokens || !t->buckets || !t->roots || !t->tenants)
        return err_set(e, ERR_MEMORY, "no memory for a prefix cache of %u pages", t->n_pages);
    for (uint32_t i = 0; i < 3 * t->n_buckets; i++)
        t->buckets[i] = NONE;
    if (evict_init(&t->evict, t->o.policy, t->n_pages, e))
        return -1;
    if (t->o.windows && windows_init(t, e))
        return -1;
    return t->o.states ? checkpoints_init(t, e) : 0;
}

int tree_new(struct tree **out, struct page_pool *pool, const struct tree_options *o, struct err *e)
{
    struct tree *t = xcalloc(1, sizeof(*t));

    t->pool = pool;
    t->o = *o;
    t->seed = rng_entropy();
    t->n_pages = page_n_total(pool);
    CHECK(o->n_users < UINT32_MAX / 8 && t->n_pages < UINT32_MAX / 8);
    /* Always suffices, since each root has a page or a user. */
    t->n_roots = t->n_pages + o->n_users;
    t->over_quota = INDEX_LIST_EMPTY;
    t->free_root = t->free_tenant = NONE;
    for (t->n_buckets = 16; t->n_buckets < t->n_roots;)
        t->n_buckets *= 2;
    if (alloc_memory(t, e)) {
        tree_free(t);
        return -1;
    }
    page_pool_watch(pool, on_idle_change, t);
    *out = t;
    return 0;
}

static void remove_node(struct tree *t, uint32_t i);

void tree_free(struct tree *t)
{
    if (!t)
        return;
    pins_clear(t);
    if (t->n_cached > 0)
        tree_flush(t);
    CHECK(t->n_cached == 0 && t->n_tenants == 0);
    page_pool_watch(t->pool, NULL, NULL);
    evict_clear(&t->evict);
    checkpoints_clear(t);
    windows_clear(t);
    mem_free(t->nodes);
    mem_free(t->tokens);
    mem_free(t->buckets);
    mem_free(t->roots);
    mem_free(t->tenants);
    mem_free(t);
}

void tree_set_time(struct tree *t, uint64_t now_ns)
{
    t->now = now_ns;
}

/* ---- roots */

tree_node tree_enter(struct tree *t, const struct cache_scope *scope)
{
    uint32_t *bucket = root_bucket(t, scope), r;

    for (r = *bucket; r != NONE; r = t->roots[r].chain)
        if (t->roots[r].scope.tenant == scope->tenant &&
            !memcmp(t->roots[r].scope.salt, scope->salt, sizeof(scope->salt)))
            break;
    if (r == NONE) {
        r = t->free_root == NONE ? t->n_seen_roots++ : t->free_root;
        CHECK(r < t->n_roots);
        if (r == t->free_root)
            t->free_root = t->roots[r].chain;
        t->roots[r] = (struct root){
            .scope = *scope, .chain = *bucket, .tenant = tenant_ref(t, scope->tenant)
        };
        *bucket = r;
        t->nodes[t->n_pages + r] = (struct node){ .parent = NONE,
            .children = INDEX_LIST_EMPTY,
            .checkpoints = INDEX_LIST_EMPTY,
            .root = r,
            .hash = tree_scope_hash(scope) };
    }
    t->roots[r].n_users++;
    return (tree_node){ t->n_pages + r };
}

static void root_free_unused(struct tree *t, uint32_t r)
{
    struct root *root = &t->roots[r];
    uint32_t *link = root_bucket(t, &root->scope);

    if (root->n_users > 0 || root->n_pages > 0)
        return;
    while (*link != r)
        link = &t->roots[*link].chain;
    *link = root->chain;
    tenant_unref(t, root->tenant);
    root->chain = t->free_root;
    t->free_root = r;
}

void tree_leave(struct tree *t, tree_node root)
{
    CHECK(root.i >= t->n_pages && root.i < t->n_pages + t->n_roots);
    struct root *r = &t->roots[root.i - t->n_pages];
    CHECK(r->n_users > 0);
    r->n_users--;
    root_free_unused(t, root.i - t->n_pages);
}

uint64_t tree_tenant(const struct tree *t, tree_node root)
{
    CHECK(root.i >= t->n_pages && root.i < t->n_pages + t->n_roots);
    return t->roots[root.i - t->n_pages].scope.tenant;
}

/* ---- matching */

uint32_t tree_find_full(struct tree *t, uint32_t at, const int32_t *tokens)
{
    uint32_t i = *page_bucket(t, at, tokens);

    while (i != NONE &&
           (t->nodes[i].parent != at || memcmp(t->tokens[i], tokens, sizeof(t->tokens[i])) != 0))
        i = t->nodes[i].chain;
    return i;
}

uint32_t tree_find_partial(struct tree *t, uint32_t at, const int32_t *tokens, int n, int *n_best)
{
    uint32_t best = NONE;
    int n_seen = 0;

    *n_best = 0;
    for (uint32_t i = t->nodes[at].children.first; i != NONE && n_seen++ < SIBLINGS_MAX;
         i = t->nodes[i].sibling.next) {
        int n_same = 0, most = MIN(n, t->nodes[i].n_tokens);
        while (n_same < most && t->tokens[i][n_same] == tokens[n_same])
            n_same++;
        if (n_same > *n_best) {
            *n_best = n_same;
            best = i;
        }
    }
    return best;
}

void tree_check_place(const struct tree *t, tree_node at)
{
    CHECK(at.i < t->n_pages + t->n_roots);
    CHECK(!tree_is_page(t, at.i) || t->nodes[at.i].n_tokens == PAGE_TOKENS);
}

void tree_ref_page(struct tree *t, uint32_t i)
{
    if (t->o.ages && page_refs(t->pool, (page_id){ i }) == 1)
        age_add(&t->o.ages->reused, t->nodes[i].used_ns, t->now);
    page_ref(t->pool, (page_id){ i });
}

static int ref_match(struct tree *t, tree_node *at, const int32_t *tokens, int n, page_id *pages)
{
    int done = 0, n_more;
    uint32_t i;

    tree_check_place(t, *at);
    while (n - done >= PAGE_TOKENS && (i = tree_find_full(t, at->i, tokens + done)) != NONE) {
        at->i = i;
        tree_ref_page(t, i);
        *pages++ = (page_id){ i };
        done += PAGE_TOKENS;
    }
    i = tree_find_partial(t, at->i, tokens + done, MIN(n - done, (int)PAGE_TOKENS), &n_more);
    if (i == NONE)
        return done;
    tree_ref_page(t, i);
    *pages = (page_id){ i };
    return done + n_more;
}

int tree_match(struct tree *t, tree_node *at, const int32_t *tokens, int n, page_id *pages)
{
    CHECK(!t->o.windows);
    return ref_match(t, at, tokens, n, pages);
}

void tree_count(struct tree *t, int n_found, int n_asked)
{
    t->stats.n_matches++;
    t->stats.n_hits += n_found > 0;
    t->stats.n_partial += n_found > 0 && n_found < n_asked;
    t->stats.n_matched_tokens += (uint64_t)n_found;
    t->stats.n_asked_tokens += (uint64_t)n_asked;
}

void tree_count_more(struct tree *t, int n_found)
{
    t->stats.n_matched_tokens += (uint64_t)n_found;
}

/* ---- insertion and removal */

static void link_node(struct tree *t, uint32_t at, const int32_t *tokens, int n, page_id page)
{
    const struct node *parent = &t->nodes[at];
    uint32_t i = page.i;

    t->nodes[i] = (struct node){ .parent = at,
        .children = INDEX_LIST_EMPTY,
        .checkpoints = INDEX_LIST_EMPTY,
        .chain = NONE,
        .root = parent->root,
        .depth = tree_is_page(t, at) ? parent->depth + 1 : 0,
        .n_tokens = n,
        .hash = tree_extend_hash(parent->hash, tokens, n),
        .born_ns = t->now,
        .used_ns = t->now,
        .window = PAGE_NONE };
    if (tree_is_page(t, at) && evict_has(&t->evict, at))
        candidate_remove(t, at);
    index_list_add_first(&t->nodes[at].children, INDEX_LINKS(t->nodes, sibling), i);
    memcpy(t->tokens[i], tokens, (size_t)n * sizeof(*tokens));
    if (n == PAGE_TOKENS) {
        uint32_t *bucket = page_bucket(t, at, tokens);
        t->nodes[i].chain = *bucket;
        *bucket = i;
    }
    t->n_cached++;
    t->stats.n_inserted++;
    t->roots[parent->root].n_pages++;
    tenant_count(t, t->roots[parent->root].tenant, 1);
    page_ref(t->pool, page);
    page_set_cached(t->pool, page);
}

static void remove_node(struct tree *t, uint32_t i)
{
    struct node *n = &t->nodes[i];
    uint32_t parent = n->parent, r = n->root;

    CHECK(n->n_tokens > 0 && n->children.first == NONE && n->n_pins == 0);
    checkpoints_drop(t, i);
    windows_drop(t, i);
    page_unset_cached(t->pool, (page_id){ i }); /* it is no candidate from here on */
    index_list_remove(&t->nodes[parent].children, INDEX_LINKS(t->nodes, sibling), i);
    if (n->n_tokens == PAGE_TOKENS) {
        uint32_t *link = page_bucket(t, parent, t->tokens[i]);
        while (*link != i)
            link = &t->nodes[*link].chain;
        *link = n->chain;
    }
    n->n_tokens = 0;
    t->n_cached--;
    t->roots[r].n_pages--;
    tenant_count(t, t->roots[r].tenant, -1);
    page_unref(t->pool, (page_id){ i });
    /* A page that lost its last child becomes a candidate if it is idle. It is the next one to
     * evict, since it was used no later than the child. */
    if (tree_is_page(t, parent) && t->nodes[parent].children.first == NONE &&
        page_refs(t->pool, (page_id){ parent }) == 1)
        candidate_add(t, parent, false);
    root_free_unused(t, r);
}

tree_node tree_insert(struct tree *t, tree_node at, const int32_t *tokens, int n, page_id *page)
{
    bool is_full = n == PAGE_TOKENS;
    uint32_t shorter = NONE;
    int n_same;

    tree_check_place(t, at);
    CHECK(n >= 1 && n <= PAGE_TOKENS);
    uint32_t i = is_full ? tree_find_full(t, at.i, tokens) : NONE;
    if (i == NONE) {
        i = tree_find_partial(t, at.i, tokens, n, &n_same);
        if (i != NONE && n_same < n) {
            /* A cached page whose tokens are a prefix of the new ones is replaced. It cannot be the
             * page of the caller, which contains all of these tokens. */
            if (n_same == t->nodes[i].n_tokens && i != page->i && t->nodes[i].n_pins == 0)
                shorter = i;
            i = NONE;
        }
    }
    if (i == NONE && !page_is_cached(t->pool, *page)) {
        link_node(t, at.i, tokens, n, *page);
        i = page->i;
        if (shorter != NONE) {
            checkpoints_move(t, shorter, i);
            t->nodes[i].keeps_window = t->nodes[shorter].keeps_window;
        }
    }
    if (shorter != NONE)
        remove_node(t, shorter);
    if (i == NONE)
        return TREE_NONE;
    if (i != page->i) {
        page_ref(t->pool, (page_id){ i });
        page_unref(t->pool, *page);
        *page = (page_id){ i };
    }
    return is_full ? (tree_node){ i } : TREE_NONE;
}

tree_node tree_parent(const struct tree *t, tree_node at)
{
    CHECK(tree_is_page(t, at.i) && t->nodes[at.i].n_tokens > 0);
    return (tree_node){ t->nodes[at.i].parent };
}

page_id tree_page(tree_node at)
{
    return (page_id){ at.i };
}

bool tree_remove_page(struct tree *t, page_id page)
{
    if (!page_is_cached(t->pool, page) || t->nodes[page.i].children.first != NONE ||
        t->nodes[page.i].n_pins > 0 || page_refs(t->pool, page) > 2)
        return false;
    remove_node(t, page.i);
    return true;
}

/* ---- eviction */

/* Least recently used idle leaf of the tenant that exceeds its quota most. A single tenant may use
 * all pages. */
static uint32_t pick_over_quota(struct tree *t)
{
    uint32_t largest = NONE;

    if (t->n_tenants < 2)
        return NONE;
    for (uint32_t i = t->over_quota.first; i != NONE; i = t->tenants[i].over_quota.next)
        if (t->tenants[i].idle.first != NONE &&
            (largest == NONE || t->tenants[i].n_pages > t->tenants[largest].n_pages))
            largest = i;
    if (largest == NONE)
        return NONE;
    uint32_t victim = t->tenants[largest].idle.first;
    candidate_remove(t, victim);
    t->stats.n_evicted_for_quota++;
    return victim;
}

bool tree_evict(struct tree *t)
{
    uint32_t i = pick_over_quota(t);

    if (i == NONE) {
        i = evict_take(&t->evict);
        if (i == EVICT_NONE)
            return false;
        candidate_unlink(t, i);
    }
    if (t->o.ages) {
        age_add(&t->o.ages->lived, t->nodes[i].born_ns, t->now);
        age_add(&t->o.ages->idled, t->nodes[i].used_ns, t->now);
    }
    t->stats.n_evicted++;
    if (t->gone && t->nodes[i].n_tokens == PAGE_TOKENS)
        t->gone(t->gone_arg, (page_id){ i });
    checkpoints_evict(t, i);
    remove_node(t, i);
    return true;
}

void tree_flush(struct tree *t)
{
    while (tree_evict(t))
        continue;
}

int tree_erase(struct tree *t, tree_node root, const int32_t *tokens, int n, int *n_dropped)
{
    tree_node at = root;
    int n_there = tree_peek(t, &at, tokens, n), n_more;
    uint32_t i =
        tree_find_partial(t, at.i, tokens + n_there, MIN(n - n_there, PAGE_TOKENS), &n_more);

    if (i != NONE && n_more == t->nodes[i].n_tokens) /* the last page, which is not full */
        n_there += n_more;
    else
        i = at.i;
    *n_dropped = 0;
    while (tree_is_page(t, i) && t->nodes[i].children.first == NONE &&
           page_refs(t->pool, (page_id){ i }) == 1) {
        uint32_t parent = t->nodes[i].parent;
        int n_page = t->nodes[i].n_tokens;
        remove_node(t, i);
        n_there -= n_page;
        *n_dropped += n_page;
        i = parent;
    }
    return n_there;
}

/* ---- pins */

void tree_pin_page(struct tree *t, uint32_t i)
{
    t->n_pinned += t->nodes[i].n_pins++ == 0;
}

void tree_unpin_page(struct tree *t, uint32_t i)
{
    CHECK(t->nodes[i].n_pins > 0);
    t->n_pinned -= --t->nodes[i].n_pins == 0;
}

/* ---- pages that other threads read or fill */

int tree_acquire(struct tree *t, tree_node root, const int32_t *tokens, int n, page_id *pages)
{
    int found = ref_match(t, &root, tokens, n, pages);

    for (int i = 0; i * PAGE_TOKENS < found; i++)
        tree_pin_page(t, pages[i].i); /* uses the reference of the match */
    return found;
}

void tree_release(struct tree *t, const page_id *pages, int n)
{
    for (int i = 0; i < n; i++) {
        tree_unpin_page(t, pages[i].i);
        page_unref(t->pool, pages[i]);
    }
}

page_id tree_take_page(struct tree *t)
{
    page_id page = page_take(t->pool);

    if (page.i == PAGE_NONE.i && tree_evict(t))
        page = page_take(t->pool);
    if (page.i != PAGE_NONE.i)
        tree_pin_page(t, page.i);
    return page;
}

tree_node tree_insert_page(struct tree *t, tree_node at, const int32_t *tokens, int n, page_id page)
{
    tree_node node = TREE_NONE;

    CHECK(t->nodes[page.i].n_tokens == 0);
    tree_unpin_page(t, page.i);
    if (at.i != TREE_NONE.i)
        node = tree_insert(t, at, tokens, n, &page);
    page_unref(t->pool, page);
    return node;
}

/* ---- prefix hashes */

uint64_t tree_scope_hash(const struct cache_scope *scope)
{
    uint64_t w[4], hash = hash_fold(1, scope->tenant);

    memcpy(w, scope->salt, sizeof(w));
    for (size_t i = 0; i < ARRAY_LEN(w); i++)
        hash = hash_fold(hash, w[i]);
    return hash | 1; /* never 0 */
}

static uint64_t fold_token(uint64_t hash, int i, int32_t token)
{
    return hash_fold(hash + (uint64_t)i, (uint32_t)token);
}

uint64_t tree_extend_hash(uint64_t hash, const int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++)
        hash = fold_token(hash, i, tokens[i]);
    return hash | 1;
}

void tree_each_hash(const struct cache_scope *scope, const int32_t *tokens, int n,
    void (*fn)(void *arg, int n_tokens, uint64_t hash), void *arg)
{
    uint64_t hash = tree_scope_hash(scope);

    for (int i = 0; i < n; i++) {
        int in_page = i % PAGE_TOKENS;
        hash = fold_token(hash, in_page, tokens[i]);
        fn(arg, i + 1, hash | 1);
        if (in_page == PAGE_TOKENS - 1)
            hash |= 1; /* the next page extends the hash of this prefix */
    }
}

uint64_t tree_tokens_hash(const struct cache_scope *scope, const int32_t *tokens, int n)
{
    uint64_t hash = tree_scope_hash(scope);

    for (int i = 0; i < n; i += PAGE_TOKENS)
        hash = tree_extend_hash(hash, tokens + i, MIN(n - i, PAGE_TOKENS));
    return hash;
}

uint64_t tree_prefix_hash(const struct tree *t, tree_node at)
{
    CHECK(at.i < t->n_pages + t->n_roots);
    return t->nodes[at.i].hash;
}

int tree_depth(const struct tree *t, page_id page)
{
    CHECK(tree_is_page(t, page.i) && t->nodes[page.i].n_tokens > 0);
    return (int)t->nodes[page.i].depth * PAGE_TOKENS;
}

int tree_path(const struct tree *t, page_id page, int32_t *tokens)
{
    const struct node *n = &t->nodes[page.i];
    int n_all = (int)n->depth * PAGE_TOKENS + n->n_tokens;

    CHECK(tree_is_page(t, page.i) && n->n_tokens > 0);
    for (uint32_t i = page.i; tree_is_page(t, i); i = t->nodes[i].parent)
        memcpy(tokens + t->nodes[i].depth * PAGE_TOKENS, t->tokens[i],
            (size_t)t->nodes[i].n_tokens * sizeof(*tokens));
    return n_all;
}

int tree_peek(struct tree *t, tree_node *at, const int32_t *tokens, int n)
{
    int done = 0;
    uint32_t i;

    tree_check_place(t, *at);
    for (; n - done >= PAGE_TOKENS && (i = tree_find_full(t, at->i, tokens + done)) != NONE;
         done += PAGE_TOKENS)
        at->i = i;
    return done;
}

void tree_on_evict(struct tree *t, void (*gone)(void *arg, page_id page), void *arg)
{
    t->gone = gone;
    t->gone_arg = arg;
}

const struct cache_scope *tree_scope(const struct tree *t, page_id page)
{
    CHECK(tree_is_page(t, page.i) && t->nodes[page.i].n_tokens > 0);
    return &t->roots[t->nodes[page.i].root].scope;
}

/* ---- inspection */

uint32_t tree_n_pages(const struct tree *t)
{
    return t->n_cached;
}

uint32_t tree_refs(const struct tree *t, page_id page)
{
    CHECK(tree_is_page(t, page.i));
    const struct node *n = &t->nodes[page.i];
    return (n->n_tokens > 0) + n->n_pins;
}

const struct tree_stats *tree_stats(const struct tree *t)
{
    return &t->stats;
}

static const char *check_node(const struct tree *t, uint32_t i)
{
    const struct node *n = &t->nodes[i], *parent = &t->nodes[n->parent];
    uint32_t refs = page_refs(t->pool, (page_id){ i });
    bool is_top = !tree_is_page(t, n->parent);

    if (n->n_tokens > PAGE_TOKENS || (n->n_tokens < PAGE_TOKENS && n->children.first != NONE))
        return "a page that is not full has children";
    if (!is_top && parent->n_tokens != PAGE_TOKENS)
        return "the parent of a page is not full";
    if (n->root != parent->root || n->depth != (is_top ? 0 : parent->depth + 1))
        return "a page has a wrong root or depth";
    if (refs < 1 + n->n_pins)
        return "a page has fewer references than the tree holds";
    if (!is_top && refs > 1 && page_refs(t->pool, (page_id){ n->parent }) < 2)
        return "a page is in use and its parent is not";
    if (evict_has(&t->evict, i) != (refs == 1 && n->children.first == NONE))
        return "the eviction candidates differ from the unused leaves";
    for (uint32_t c = n->children.first; c != NONE; c = t->nodes[c].sibling.next)
        if (t->nodes[c].parent != i)
            return "a list of children is wrong";
    return NULL;
}

static uint32_t n_chained(const struct tree *t)
{
    uint32_t n = 0;

    for (uint32_t b = 0; b < t->n_buckets; b++)
        for (uint32_t i = t->buckets[b]; i != NONE; i = t->nodes[i].chain)
            n++;
    return n;
}

static const char *check_tenants(const struct tree *t)
{
    uint32_t n_idle = 0, n_over = 0;

    for (uint32_t b = 2 * t->n_buckets; b < 3 * t->n_buckets; b++)
        for (uint32_t i = t->buckets[b]; i != NONE; i = t->tenants[i].chain) {
            const struct cache_tenant *n = &t->tenants[i];
            uint32_t n_pages = 0;
            for (uint32_t r = 0; r < t->n_roots; r++)
                if (t->roots[r].tenant == i)
                    n_pages += t->roots[r].n_pages;
            if (n_pages != n->n_pages)
                return "a tenant's pages are miscounted";
            n_over += n_pages > t->o.quota;
            for (uint32_t j = n->idle.first; j != NONE; j = t->nodes[j].idle.next) {
                uint32_t next = t->nodes[j].idle.next;
                n_idle++;
                if (next == NONE ? j != n->idle.last : t->nodes[next].idle.prev != j)
                    return "a tenant's idle pages are mislinked";
            }
        }
    for (uint32_t i = t->over_quota.first; i != NONE; i = t->tenants[i].over_quota.next)
        n_over--;
    if (n_over != 0)
        return "the tenants above their quota are not listed";
    return n_idle == t->evict.n_candidates ? NULL
                                           : "the tenants' idle pages are not the candidates";
}

const char *tree_check(const struct tree *t)
{
    uint32_t n_cached = 0, n_full = 0, n_pinned = 0, n_in_roots = 0;
    const char *wrong = evict_check(&t->evict);

    for (uint32_t i = 0; i < t->n_pages && !wrong; i++) {
        bool is_in = t->nodes[i].n_tokens > 0;
        if (is_in != page_is_cached(t->pool, (page_id){ i }))
            return "the cached flag of a page does not match the tree";
        n_cached += is_in;
        n_full += t->nodes[i].n_tokens == PAGE_TOKENS;
        n_pinned += t->nodes[i].n_pins > 0;
        if (is_in)
            wrong = check_node(t, i);
    }
    if (wrong)
        return wrong;
    for (uint32_t r = 0; r < t->n_roots; r++)
        n_in_roots += t->roots[r].n_pages;
    if (n_cached != t->n_cached || n_cached != n_in_roots)
        return "the pages of the tree are miscounted";
    if (n_full != n_chained(t) || n_pinned != t->n_pinned)
        return "full or pinned pages are miscounted";
    if (pins_check(t))
        return pins_check(t);
    if (t->o.states && checkpoints_check(t))
        return checkpoints_check(t);
    if (t->o.windows && windows_check(t))
        return windows_check(t);
    return check_tenants(t);
}
