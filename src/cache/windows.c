#include "cache/windows.h"
#include "cache/tree_in.h"
#include "base/mem.h"
#include "model/lm.h"

static bool has_window(const struct tree *t, uint32_t node)
{
    return t->nodes[node].window.i != PAGE_NONE.i;
}

static int begin_of(const struct tree *t, uint32_t node)
{
    return (int)t->nodes[node].depth * PAGE_TOKENS;
}

/* Callback of the pool of window pages. Pages that belong to no checkpoint are evicted first. */
static void on_idle_change(void *arg, page_id window, bool is_idle)
{
    struct tree *t = arg;
    uint32_t node = t->window_nodes[window.i];

    if (is_idle) {
        evict_touch(&t->evict_windows, window.i, t->nodes[node].keeps_window ? EVICT_WEIGHT : 0);
        evict_add(&t->evict_windows, window.i);
    } else if (evict_has(&t->evict_windows, window.i))
        evict_remove(&t->evict_windows, window.i);
}

int windows_init(struct tree *t, struct err *e)
{
    uint32_t n = page_n_total(t->o.windows);

    CHECK(t->o.window.size > 0 && t->o.window.align > 0);
    t->window_nodes = try_calloc(n, sizeof(*t->window_nodes));
    t->window_readers = try_calloc(n, sizeof(*t->window_readers));
    if (!t->window_nodes || !t->window_readers)
        return err_set(e, ERR_MEMORY, "no memory for %u window pages", n);
    for (uint32_t i = 0; i < n; i++)
        t->window_nodes[i] = NONE;
    if (evict_init(&t->evict_windows, t->o.policy, n, e))
        return -1;
    page_pool_watch(t->o.windows, on_idle_change, t);
    return 0;
}

void windows_clear(struct tree *t)
{
    if (t->o.windows)
        page_pool_watch(t->o.windows, NULL, NULL);
    evict_clear(&t->evict_windows);
    mem_free(t->window_nodes);
    mem_free(t->window_readers);
}

void windows_drop(struct tree *t, uint32_t node)
{
    page_id window = t->nodes[node].window;

    if (!has_window(t, node))
        return;
    page_unset_cached(t->o.windows, window); /* it is no candidate from here on */
    t->window_nodes[window.i] = NONE;
    t->nodes[node].window = PAGE_NONE;
    page_unref(t->o.windows, window);
}

/* ---- insertion and release */

void tree_insert_window(struct tree *t, page_id page, int n, page_id *window)
{
    struct node *at = &t->nodes[page.i];

    CHECK(page_is_cached(t->pool, page) && n <= at->n_tokens);
    if (at->window.i == window->i)
        return;
    if (has_window(t, page.i)) {
        page_ref(t->o.windows, at->window);
        tree_unref_window(t, *window);
        *window = at->window;
    } else if (n == at->n_tokens && !page_is_cached(t->o.windows, *window)) {
        at->window = *window;
        t->window_nodes[window->i] = page.i;
        page_ref(t->o.windows, *window);
        page_set_cached(t->o.windows, *window);
    }
}

bool tree_has_windows(const struct tree *t)
{
    return t->o.windows;
}

int tree_window_from(const struct tree *t, int pos)
{
    return kv_window_from(&t->o.window, pos);
}

int tree_window_base(int n)
{
    return MAX(MIN(n / PAGE_TOKENS * PAGE_TOKENS, n - (int)STATE_LOG_ROWS), 0);
}

void tree_keep_windows(struct tree *t, page_id page, int n)
{
    int from = kv_window_from(&t->o.window, tree_window_base(n));

    for (uint32_t i = page.i; tree_is_page(t, i); i = t->nodes[i].parent) {
        if (begin_of(t, i) + t->nodes[i].n_tokens <= from)
            return;
        if (begin_of(t, i) < n)
            t->nodes[i].keeps_window = true;
    }
}

void tree_unref_window(struct tree *t, page_id window)
{
    uint32_t node = t->window_nodes[window.i];

    page_unref(t->o.windows, window);
    if (node != NONE && !t->nodes[node].keeps_window && page_refs(t->o.windows, window) == 1)
        windows_drop(t, node);
}

bool tree_remove_window(struct tree *t, page_id window)
{
    if (!page_is_cached(t->o.windows, window) || page_refs(t->o.windows, window) > 2)
        return false;
    windows_drop(t, t->window_nodes[window.i]);
    return true;
}

bool tree_evict_window(struct tree *t)
{
    uint32_t i = evict_take(&t->evict_windows);

    if (i == EVICT_NONE)
        return false;
    uint32_t node = t->window_nodes[i];
    t->stats.n_windows_evicted++;
    if (t->gone_window && t->nodes[node].n_tokens == PAGE_TOKENS)
        t->gone_window(t->gone_window_arg, (page_id){ node });
    windows_drop(t, node);
    return true;
}

void tree_on_evict_window(struct tree *t, void (*gone)(void *arg, page_id page), void *arg)
{
    t->gone_window = gone;
    t->gone_window_arg = arg;
}

page_id tree_window_of(const struct tree *t, page_id page)
{
    CHECK(tree_is_page(t, page.i) && t->nodes[page.i].n_tokens > 0);
    return t->nodes[page.i].window;
}

/* ---- window pages that other threads read or fill */

void windows_add_reader(struct tree *t, page_id window)
{
    t->window_readers[window.i]++;
}

page_id tree_take_window(struct tree *t)
{
    page_id window = page_take(t->o.windows);

    if (window.i == PAGE_NONE.i && tree_evict_window(t))
        window = page_take(t->o.windows);
    if (window.i != PAGE_NONE.i)
        windows_add_reader(t, window);
    return window;
}

int tree_peek_windows(struct tree *t, tree_node *at, const int32_t *tokens, int n, page_id *windows)
{
    int n_here = tree_peek(t, at, tokens, n);

    for (uint32_t i = at->i; tree_is_page(t, i); i = t->nodes[i].parent)
        windows[t->nodes[i].depth] = t->nodes[i].window;
    return n_here;
}

void tree_acquire_windows(struct tree *t, const page_id *windows, int n)
{
    for (int i = 0; i < n; i++)
        if (windows[i].i != PAGE_NONE.i) {
            page_ref(t->o.windows, windows[i]);
            windows_add_reader(t, windows[i]);
        }
}

void tree_release_windows(struct tree *t, const page_id *windows, int n)
{
    for (int i = 0; i < n; i++) {
        if (windows[i].i == PAGE_NONE.i)
            continue;
        CHECK(t->window_readers[windows[i].i] > 0);
        t->window_readers[windows[i].i]--;
        tree_unref_window(t, windows[i]);
    }
}

/* Node of the n tokens after `at`; NONE = not cached. */
static uint32_t find_node(struct tree *t, uint32_t at, const int32_t *tokens, int n)
{
    int n_same;

    if (n == PAGE_TOKENS)
        return tree_find_full(t, at, tokens);
    uint32_t i = tree_find_partial(t, at, tokens, n, &n_same);
    return n_same == n ? i : NONE;
}

void tree_insert_windows(
    struct tree *t, tree_node root, const int32_t *tokens, int n, int first, const page_id *windows)
{
    const int n_pages = (n + PAGE_TOKENS - 1) / PAGE_TOKENS;
    uint32_t at = root.i;

    for (int i = 0; i < n_pages && at != NONE; i++) {
        int n_own = MIN(n - i * PAGE_TOKENS, (int)PAGE_TOKENS);
        at = find_node(t, at, tokens + i * PAGE_TOKENS, n_own);
        page_id window = windows[i];
        if (at == NONE || i < first)
            continue;
        page_ref(t->o.windows, window); /* released here, and once more below */
        tree_insert_window(t, (page_id){ at }, n_own, &window);
        page_unref(t->o.windows, window);
    }
    if (at != NONE)
        tree_keep_windows(t, (page_id){ at }, n);
    tree_release_windows(t, windows + first, n_pages - first);
}

uint32_t tree_window_refs(const struct tree *t, page_id window)
{
    return page_is_cached(t->o.windows, window) + t->window_readers[window.i];
}

/* ---- matching */

bool windows_reach(const struct tree *t, struct window_run run, uint32_t tail, int n)
{
    if (!t->o.windows)
        return true;
    return run.from <= kv_window_from(&t->o.window, n) &&
           (tail == NONE || run.end >= n || has_window(t, tail));
}

void windows_extend(const struct tree *t, struct window_run *run, uint32_t node)
{
    run->end = begin_of(t, node) + t->nodes[node].n_tokens;
    if (t->o.windows && !has_window(t, node))
        run->from = run->end;
}

void windows_ref(struct tree *t, uint32_t node, int n, page_id *window)
{
    bool is_read = begin_of(t, node) + PAGE_TOKENS > kv_window_from(&t->o.window, n);

    *window = is_read ? t->nodes[node].window : PAGE_NONE;
    if (is_read)
        page_ref(t->o.windows, *window);
}

/* ---- inspection */

const char *windows_check(const struct tree *t)
{
    uint32_t n_held = 0, n_listed = 0;

    for (uint32_t i = 0; i < t->n_pages; i++) {
        if (t->nodes[i].n_tokens == 0 || !has_window(t, i))
            continue;
        n_held++;
        if (t->window_nodes[t->nodes[i].window.i] != i)
            return "a window page is listed at a wrong page";
    }
    for (uint32_t i = 0; i < page_n_total(t->o.windows); i++) {
        bool is_listed = t->window_nodes[i] != NONE;
        n_listed += is_listed;
        if (page_is_cached(t->o.windows, (page_id){ i }) != is_listed)
            return "the cached flag of a window page does not match the tree";
        if (evict_has(&t->evict_windows, i) !=
            (is_listed && page_refs(t->o.windows, (page_id){ i }) == 1))
            return "the eviction candidates differ from the unused window pages";
    }
    if (n_held != n_listed)
        return "the window pages are miscounted";
    return evict_check(&t->evict_windows);
}
