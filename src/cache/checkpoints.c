/* checkpoints.c: checkpoints of the prefix cache: positions of cached prefixes where a sequence can
 * resume, since a state slot exists (recurrent layers) and the window pages before them (windowed
 * layers).
 *
 * A checkpoint with a state slot is listed at the parent of its page, so that a match finds it
 * although a sibling that shares only the first tokens of the page continues the match.
 *
 * Owner: the engine thread. */
#include "cache/tree_in.h"
#include "base/mem.h"

static struct index_list *list_of(struct tree *t, uint32_t node)
{
    return &t->nodes[t->nodes[node].parent].checkpoints;
}

/* ---- eviction */

/* Pages to compute again without this checkpoint: those after the checkpoint before it. */
static uint32_t pages_after_previous(struct tree *t, uint32_t i)
{
    const struct checkpoint *c = &t->checkpoints[i];
    uint32_t n_pages = 1;

    for (uint32_t at = c->node; tree_is_page(t, at); at = t->nodes[at].parent, n_pages++)
        for (uint32_t j = list_of(t, at)->first; j != NONE; j = t->checkpoints[j].link.next)
            if (t->checkpoints[j].node == at && t->checkpoints[j].n < c->n)
                return n_pages;
    return n_pages;
}

/* Callback of the pool of state slots: a checkpoint lost its last user or got one. */
static void on_idle_change(void *arg, page_id slot, bool is_idle)
{
    struct tree *t = arg;

    if (is_idle) {
        uint64_t weight = (uint64_t)EVICT_WEIGHT * pages_after_previous(t, slot.i);
        evict_touch(&t->evict_checkpoints, slot.i, (uint32_t)MIN(weight, UINT32_MAX));
        evict_add(&t->evict_checkpoints, slot.i);
    } else if (evict_has(&t->evict_checkpoints, slot.i))
        evict_remove(&t->evict_checkpoints, slot.i);
}

int checkpoints_init(struct tree *t, struct err *e)
{
    uint32_t n = page_n_total(t->o.states);

    t->checkpoints = try_calloc(n, sizeof(*t->checkpoints));
    if (!t->checkpoints)
        return err_set(e, ERR_MEMORY, "no memory for %u checkpoints", n);
    for (uint32_t i = 0; i < n; i++)
        t->checkpoints[i].node = NONE;
    if (evict_init(&t->evict_checkpoints, t->o.policy, n, e))
        return -1;
    page_pool_watch(t->o.states, on_idle_change, t);
    return 0;
}

void checkpoints_clear(struct tree *t)
{
    if (t->o.states)
        page_pool_watch(t->o.states, NULL, NULL);
    evict_clear(&t->evict_checkpoints);
    mem_free(t->checkpoints);
}

static void drop(struct tree *t, uint32_t i)
{
    struct checkpoint *c = &t->checkpoints[i];

    index_list_remove(list_of(t, c->node), INDEX_LINKS(t->checkpoints, link), i);
    c->node = NONE;
    page_unset_cached(t->o.states, (page_id){ i }); /* it is no candidate from here on */
    page_unref(t->o.states, (page_id){ i });
}

static void report_eviction(struct tree *t, uint32_t i)
{
    const struct checkpoint *c = &t->checkpoints[i];

    if (t->gone_checkpoint)
        t->gone_checkpoint(t->gone_checkpoint_arg, (page_id){ c->node }, c->n, (state_id){ i });
}

bool tree_evict_checkpoint(struct tree *t)
{
    uint32_t i = evict_take(&t->evict_checkpoints);

    if (i == EVICT_NONE)
        return false;
    t->stats.n_checkpoints_evicted++;
    report_eviction(t, i);
    drop(t, i);
    return true;
}

void tree_on_evict_checkpoint(
    struct tree *t, void (*gone)(void *arg, page_id page, int n, state_id state), void *arg)
{
    t->gone_checkpoint = gone;
    t->gone_checkpoint_arg = arg;
}

void checkpoints_evict(struct tree *t, uint32_t node)
{
    if (!t->o.states)
        return;
    for (uint32_t i = list_of(t, node)->first; i != NONE; i = t->checkpoints[i].link.next)
        if (t->checkpoints[i].node == node)
            report_eviction(t, i);
    checkpoints_drop(t, node);
}

void checkpoints_drop(struct tree *t, uint32_t node)
{
    uint32_t next;

    if (!t->o.states)
        return;
    for (uint32_t i = list_of(t, node)->first; i != NONE; i = next) {
        next = t->checkpoints[i].link.next;
        if (t->checkpoints[i].node == node)
            drop(t, i);
    }
}

void checkpoints_move(struct tree *t, uint32_t from, uint32_t to)
{
    CHECK(t->nodes[from].parent == t->nodes[to].parent);
    if (!t->o.states)
        return;
    for (uint32_t i = list_of(t, from)->first; i != NONE; i = t->checkpoints[i].link.next)
        if (t->checkpoints[i].node == from)
            t->checkpoints[i].node = to;
}

/* ---- insertion */

bool tree_has_states(const struct tree *t)
{
    return t->o.states;
}

bool tree_has_tokens(const struct tree *t, page_id page, int n)
{
    const struct node *at = &t->nodes[page.i];
    int begin = (int)at->depth * PAGE_TOKENS;

    return page_is_cached(t->pool, page) && n > begin && n <= begin + at->n_tokens;
}

void tree_add_checkpoint(struct tree *t, page_id page, int n_min, int n, state_id state)
{
    CHECK(tree_has_tokens(t, page, n) && n_min >= 0 && n_min <= n);
    if (page_is_cached(t->o.states, state))
        return;
    for (uint32_t i = list_of(t, page.i)->first; i != NONE; i = t->checkpoints[i].link.next)
        if (t->checkpoints[i].node == page.i && t->checkpoints[i].n == n)
            return;
    t->checkpoints[state.i].node = page.i;
    t->checkpoints[state.i].n_min = n_min;
    t->checkpoints[state.i].n = n;
    index_list_add_first(list_of(t, page.i), INDEX_LINKS(t->checkpoints, link), state.i);
    page_ref(t->o.states, state);
    page_set_cached(t->o.states, state);
    t->stats.n_checkpoints_made++;
}

/* ---- matching */

struct resume_match {
    uint32_t checkpoint; /* NONE = none */
    uint32_t at;         /* last full page before the position, or the start */
    uint32_t tail;       /* page with further tokens before the position; NONE = none */
    int n, n_full;       /* the position, and the positions of the full pages before it */
};

struct path { /* path of a match, from the start to a full page */
    uint32_t at;
    int n; /* positions before the end of the path */
    struct window_run windows;
};

/* Improves the match by the checkpoints in the children of the path. */
static void match_children(
    struct tree *t, const struct path *p, const int32_t *tokens, int n, struct resume_match *best)
{
    for (uint32_t i = t->nodes[p->at].checkpoints.first; i != NONE;
         i = t->checkpoints[i].link.next) {
        const struct checkpoint *c = &t->checkpoints[i];
        const int32_t *own = t->tokens[c->node];
        int n_same = p->n, most = MIN(n, c->n);
        while (n_same < most && own[n_same - p->n] == tokens[n_same])
            n_same++;
        if (n_same >= c->n_min && n_same > best->n && windows_reach(t, p->windows, c->node, n_same))
            *best = (struct resume_match){ i, p->at, n_same > p->n ? c->node : NONE, n_same, p->n };
    }
}

/* Improves the match of a model without state slots by the end of the path, or by n_more tokens of
 * the page `tail` after it. */
static void match_windows(const struct tree *t, const struct path *p, uint32_t tail, int n_more,
    struct resume_match *best)
{
    int n = p->n + n_more;

    if (!t->o.states && n > best->n && windows_reach(t, p->windows, tail, n))
        *best = (struct resume_match){ NONE, p->at, tail, n, p->n };
}

/* Deepest position where a sequence can resume. *n_cached is the length that tree_match would
 * return. All positions and `tokens` begin at position 0. */
static struct resume_match find_resumable(
    struct tree *t, struct path p, const int32_t *tokens, int n, int *n_cached)
{
    struct resume_match best = { NONE, p.at, NONE, p.n, p.n };
    uint32_t next;
    int n_more;

    for (;;) {
        match_windows(t, &p, NONE, 0, &best);
        if (t->o.states)
            match_children(t, &p, tokens, n, &best);
        next = n - p.n >= PAGE_TOKENS ? tree_find_full(t, p.at, tokens + p.n) : NONE;
        if (next == NONE)
            break;
        windows_extend(t, &p.windows, next);
        p.at = next;
        p.n += PAGE_TOKENS;
    }
    next = tree_find_partial(t, p.at, tokens + p.n, MIN(n - p.n, (int)PAGE_TOKENS), &n_more);
    if (next != NONE)
        match_windows(t, &p, next, n_more, &best);
    *n_cached = p.n + n_more;
    return best;
}

/* The path to `at`, of whose positions the caller holds the window pages from windows_from on. */
static struct path path_to(const struct tree *t, uint32_t at, int windows_from)
{
    struct path p = { .at = at };

    tree_check_place(t, (tree_node){ at });
    CHECK(!tree_is_page(t, at) || !t->o.states);
    if (!tree_is_page(t, at))
        return p;
    p.n = ((int)t->nodes[at].depth + 1) * PAGE_TOKENS;
    p.windows = (struct window_run){ windows_from, p.n };
    return p;
}

int tree_peek_resumable(struct tree *t, tree_node root, const int32_t *tokens, int n)
{
    int n_cached;

    return find_resumable(t, path_to(t, root.i, 0), tokens, n, &n_cached).n;
}

/* Takes references to the pages from that of position n backwards to that after `start`. */
static void ref_path(
    struct tree *t, uint32_t start, const struct resume_match *m, const struct resume_pages *out)
{
    for (uint32_t i = m->tail != NONE ? m->tail : m->at; i != start; i = t->nodes[i].parent) {
        tree_ref_page(t, i);
        out->pages[t->nodes[i].depth] = (page_id){ i };
        if (t->o.windows)
            windows_ref(t, i, m->n, &out->windows[t->nodes[i].depth]);
    }
}

struct resume_point tree_resume(
    struct tree *t, tree_node *at, const int32_t *tokens, int n, const struct resume_pages *out)
{
    struct resume_point from = { .state = STATE_NONE };
    struct path p = path_to(t, at->i, out->windows_from);
    struct resume_match best = find_resumable(t, p, tokens, n, &from.n_cached);

    from.n = from.n_min = best.n;
    if (best.n == p.n)
        return from;
    if (best.checkpoint != NONE) {
        from.state.i = best.checkpoint;
        from.n_min = t->checkpoints[best.checkpoint].n_min;
        page_ref(t->o.states, from.state);
    }
    ref_path(t, at->i, &best, out);
    at->i = best.n == best.n_full + PAGE_TOKENS ? best.tail : best.at;
    return from;
}

/* ---- slots that other threads read or fill */

struct resume_point tree_acquire_resumable(
    struct tree *t, tree_node root, const int32_t *tokens, int n, const struct resume_pages *out)
{
    struct resume_point from = tree_resume(t, &root, tokens, n, out);

    for (int i = 0; i * PAGE_TOKENS < from.n; i++) {
        tree_pin_page(t, out->pages[i].i); /* uses the reference of tree_resume */
        if (t->o.windows && out->windows[i].i != PAGE_NONE.i)
            windows_add_reader(t, out->windows[i]);
    }
    if (from.state.i != STATE_NONE.i)
        t->checkpoints[from.state.i].n_readers++;
    return from;
}

state_id tree_take_state(struct tree *t)
{
    state_id state = page_take(t->o.states);

    if (state.i == STATE_NONE.i && tree_evict_checkpoint(t))
        state = page_take(t->o.states);
    if (state.i != STATE_NONE.i)
        t->checkpoints[state.i].n_readers++;
    return state;
}

void tree_release_state(struct tree *t, state_id state)
{
    CHECK(t->checkpoints[state.i].n_readers > 0);
    t->checkpoints[state.i].n_readers--;
    page_unref(t->o.states, state);
}

void tree_insert_state(
    struct tree *t, tree_node root, const int32_t *tokens, int n_min, int n, state_id state)
{
    tree_node at = root;
    int n_full = tree_peek(t, &at, tokens, n), n_more;
    uint32_t i = at.i;

    if (n_full < n)
        i = tree_find_partial(t, at.i, tokens + n_full, n - n_full, &n_more);
    if (n_full == n || (i != NONE && n_more == n - n_full))
        tree_add_checkpoint(t, (page_id){ i }, n_min, n, state);
    tree_release_state(t, state);
}

uint32_t tree_state_refs(const struct tree *t, state_id state)
{
    return page_is_cached(t->o.states, state) + t->checkpoints[state.i].n_readers;
}

/* ---- inspection */

const char *checkpoints_check(const struct tree *t)
{
    uint32_t n_listed = 0, n_made = 0;

    for (uint32_t i = 0; i < t->n_pages + t->n_seen_roots; i++) {
        if (tree_is_page(t, i) && t->nodes[i].n_tokens == 0)
            continue;
        for (uint32_t j = t->nodes[i].checkpoints.first; j != NONE;
             j = t->checkpoints[j].link.next) {
            if (t->nodes[t->checkpoints[j].node].parent != i)
                return "a checkpoint is listed at a wrong page";
            n_listed++;
        }
    }
    for (uint32_t i = 0; i < page_n_total(t->o.states); i++) {
        const struct checkpoint *c = &t->checkpoints[i];
        if (page_is_cached(t->o.states, (page_id){ i }) != (c->node != NONE))
            return "the cached flag of a state slot does not match the checkpoints";
        bool is_idle = c->node != NONE && page_refs(t->o.states, (page_id){ i }) == 1;
        if (evict_has(&t->evict_checkpoints, i) != is_idle)
            return "the eviction candidates differ from the unused checkpoints";
        if (c->node == NONE)
            continue;
        n_made++;
        int begin = (int)t->nodes[c->node].depth * PAGE_TOKENS;
        if (c->n <= begin || c->n > begin + t->nodes[c->node].n_tokens)
            return "a checkpoint is not in its page";
    }
    if (n_made != n_listed)
        return "the checkpoints are miscounted";
    return evict_check(&t->evict_checkpoints);
}
