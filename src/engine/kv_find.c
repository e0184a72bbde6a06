#include "engine/kv_find.h"
#include "cache/windows.h"

/* Checkpoints on disk that are tried: window pages may be missing before the deepest ones. */
enum { CHECKPOINTS_TRIED = 8 };

static uint64_t bytes_of_pages(const struct tier_read *f)
{
    uint64_t n_bytes = 0;

    for (int i = 0; i < f->n_pages; i++)
        n_bytes += f->at[i].n_bytes;
    return n_bytes;
}

/* ---- pages */

/* Sets the pages of the job: those on disk after the pages in memory. */
static struct load_size find_pages(
    const struct core *c, const struct prefix_query *q, struct tier_read *f)
{
    tree_node at = q->root;
    int n_here = tree_peek(c->tree, &at, q->tokens, q->limit);

    f->first_page = f->n_held = n_here / PAGE_TOKENS;
    f->n_pages = tier_chain(c->tier, tree_prefix_hash(c->tree, at), q->tokens + n_here,
        (q->limit - n_here) / PAGE_TOKENS, f->at);
    return (struct load_size){ n_here, f->n_pages * PAGE_TOKENS, bytes_of_pages(f) };
}

/* ---- window pages */

/* Full pages of the prefix, in memory and after these on disk; returns their number. at[i] is set
 * for the pages on disk, path_windows[i] and window_at[i] for all: both are none if the window page
 * of page i is neither in memory nor on disk. */
static int find_path(const struct core *c, const struct prefix_query *q, struct tier_read *f)
{
    tree_node at = q->root;
    int n_here = tree_peek_windows(c->tree, &at, q->tokens, q->limit, f->path_windows);
    uint64_t hash = tree_scope_hash(q->scope);

    f->n_held = n_here / PAGE_TOKENS;
    int n_all = f->n_held + tier_chain(c->tier, tree_prefix_hash(c->tree, at), q->tokens + n_here,
                                (q->limit - n_here) / PAGE_TOKENS, f->at + f->n_held);
    for (int i = 0; i < n_all; i++) {
        hash = tree_extend_hash(hash, q->tokens + i * PAGE_TOKENS, PAGE_TOKENS);
        tier_find(c->tier, TIER_WINDOW, hash, &f->window_at[i]);
        if (i >= f->n_held)
            f->path_windows[i] = PAGE_NONE;
    }
    return n_all;
}

static bool has_window(const struct tier_read *f, int page)
{
    return f->path_windows[page].i != PAGE_NONE.i || f->window_at[page].n_bytes > 0;
}

/* A sequence can resume at position n: the window pages before page n_pages exist. */
static bool can_resume(const struct core *c, const struct tier_read *f, int n_pages, int n)
{
    for (int i = kv_window_from(&c->lm->window, n) / PAGE_TOKENS; i < n_pages; i++)
        if (!has_window(f, i))
            return false;
    return true;
}

/* Number of pages before the deepest page end where a sequence can resume; 0 = none. */
static int deepest_page_end(const struct core *c, const struct tier_read *f, int n_all)
{
    int run_from = 0, best = 0; /* the window pages run_from .. i exist */

    for (int i = 0; i < n_all; i++) {
        if (!has_window(f, i))
            run_from = i + 1;
        if (run_from * PAGE_TOKENS <= kv_window_from(&c->lm->window, (i + 1) * PAGE_TOKENS))
            best = i + 1;
    }
    return best;
}

/* Sets the pages of the job, which resumes at position n after `end` full pages: from the first one
 * on of which the page or the window page is not in memory. at[] is indexed by these afterwards. */
static void set_pages(const struct core *c, struct tier_read *f, int end, int n)
{
    f->first_window = kv_window_from(&c->lm->window, n) / PAGE_TOKENS;
    f->n_held = MIN(f->n_held, end);
    for (f->first_page = f->first_window; f->first_page < f->n_held; f->first_page++)
        if (f->path_windows[f->first_page].i == PAGE_NONE.i)
            break;
    f->first_page = MIN(f->first_page, f->n_held);
    f->n_pages = end - f->first_page;
    for (int i = f->first_page; i < end; i++) {
        bool is_window_read = i >= f->first_window && f->path_windows[i].i == PAGE_NONE.i;
        struct disk_pos page_at = i < f->n_held ? (struct disk_pos){ 0 } : f->at[i];
        f->at[i - f->first_page] = is_window_read ? f->window_at[i] : page_at;
    }
}

static struct load_size find_windowed_pages(
    const struct core *c, const struct prefix_query *q, struct tier_read *f)
{
    int n_resumable = tree_peek_resumable(c->tree, q->root, q->tokens, q->limit);
    int end = deepest_page_end(c, f, find_path(c, q, f)), n = end * PAGE_TOKENS;

    set_pages(c, f, end, n);
    return (struct load_size){ n_resumable, MAX(n - n_resumable, 0), bytes_of_pages(f) };
}

/* ---- checkpoints */

/* Sets the deepest checkpoint on disk at a position from + 1 .. most, before which the pages and
 * window pages exist; n is 0 if there is none. */
static void find_deepest(
    const struct core *c, const struct prefix_query *q, struct tier_read *f, int from, int most)
{
    struct tier_checkpoint *k = &f->checkpoint;

    for (int i = 0; i < CHECKPOINTS_TRIED; i++) {
        k->n = tier_find_checkpoint(c->tier, q->scope, q->tokens, from, most, &k->at);
        if (k->n == 0 || !c->windows ||
            can_resume(c, f, (k->n - 1) / PAGE_TOKENS, MIN(k->n, q->limit)))
            return;
        most = k->n - 1;
    }
    k->n = 0;
}

/* Sets checkpoint and pages of the job: the deepest checkpoint on disk that is deeper than those in
 * memory, and of the pages before it those that are not in memory; all of them must be on disk. One
 * position after the limit is allowed, since the slot can resume before its position. */
static struct load_size find_checkpoint(
    const struct core *c, const struct prefix_query *q, struct tier_read *f)
{
    int n_resumable = tree_peek_resumable(c->tree, q->root, q->tokens, q->limit), n_all;

    if (c->windows)
        n_all = find_path(c, q, f);
    else {
        find_pages(c, q, f);
        n_all = f->first_page + f->n_pages;
    }
    find_deepest(c, q, f, n_resumable, MIN(q->limit + 1, (n_all + 1) * PAGE_TOKENS));
    int n = f->checkpoint.n, n_before = MAX(n - 1, 0) / PAGE_TOKENS;
    if (c->windows) {
        set_pages(c, f, n_before, MIN(n, q->limit));
        f->path_windows[n_before] = PAGE_NONE; /* read with the checkpoint */
    } else {
        f->first_page = f->n_held = MIN(f->first_page, n_before);
        f->n_pages = n_before - f->first_page;
    }
    struct load_size found = { n_resumable, MAX(MIN(n, q->limit) - n_resumable, 0), 0 };
    found.n_bytes = bytes_of_pages(f) + f->checkpoint.at.n_bytes;
    return found;
}

struct load_size kv_find(const struct core *c, const struct prefix_query *q, struct tier_read *f)
{
    if (c->states)
        return find_checkpoint(c, q, f);
    return c->windows ? find_windowed_pages(c, q, f) : find_pages(c, q, f);
}
