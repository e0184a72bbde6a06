#include "engine/prefix.h"
#include "cache/windows.h"
#include "model/lm.h"

static bool is_scored(const struct seq *s)
{
    return s->score_from < s->n_prompt - 1;
}

int prefix_limit(const struct seq *s)
{
    return is_scored(s) ? MIN(s->score_from, s->n_tokens - 1) : s->n_tokens - 1;
}

/* The pages up to position n were matched: releases the window pages that no row from there on
 * reads. */
static void take_over_windows(struct seq *s, struct tree *t, int n)
{
    int first = tree_window_from(t, n) / PAGE_TOKENS;

    for (int i = s->window_from; i < MIN(first, s->n_windows); i++)
        tree_unref_window(t, s->windows[i]);
    s->window_from = MAX(s->window_from, first);
    s->n_windows = pages_for(n);
}

/* Resumes at a checkpoint. Where the cached pages continue after it, another sequence had this
 * prefix too: a third one may follow, so a checkpoint is made at the end of the common part. */
static int resume(struct seq *s, struct tree *t, int room)
{
    struct resume_pages out = { s->pages, s->windows, s->window_from * PAGE_TOKENS };
    int n_before = s->n_kv;

    CHECK(s->slot.i == STATE_NONE.i && (n_before == 0 || !tree_has_states(t)));
    struct resume_point from = tree_resume(t, &s->node, s->tokens, n_before + room, &out);
    if (tree_has_states(t)) {
        s->slot = from.state;
        s->slot_from = from.n_min;
    }
    if (tree_has_windows(t) && from.n > n_before)
        take_over_windows(s, t, from.n);
    /* The checkpoint at the end of the prompt covers the positions of the log. */
    if (from.n_cached - from.n >= CHECKPOINT_TOKENS_MIN &&
        from.n_cached < s->n_prompt - STATE_LOG_ROWS)
        s->checkpoint_at = from.n_cached;
    return from.n - n_before;
}

/* Matches the prefix cache after the pages of the sequence, which are all full and in the tree.
 * Returns the number of tokens that count as cached: those found before the first preemption. */
static int match_on(struct seq *s, struct tree *t)
{
    int room = prefix_limit(s) - s->n_kv;

    if (room <= 0)
        return 0;
    int n = tree_has_states(t) || tree_has_windows(t)
                ? resume(s, t, room)
                : tree_match(t, &s->node, s->tokens + s->n_kv, room, s->pages + s->n_pages);
    s->n_kv += n;
    s->n_pages = pages_for(s->n_kv);
    s->n_tree_pages = s->n_kv / PAGE_TOKENS;
    if (s->n_preempted > 0)
        return 0;
    s->n_cached += MIN(n, s->n_prompt - s->n_cached);
    return n;
}

void prefix_match(struct seq *s, struct tree *t)
{
    if (s->root.i == TREE_NONE.i || prefix_limit(s) <= 0)
        return;
    CHECK(s->n_pages == 0 && s->n_tree_pages == 0);
    s->node = s->root;
    match_on(s, t);
}

void prefix_count(const struct seq *s, struct tree *t)
{
    if (s->root.i != TREE_NONE.i && s->is_fresh)
        tree_count(t, s->n_cached, prefix_limit(s));
}

void prefix_drop_tail(struct seq *s, struct page_pool *pool)
{
    int n_lost = s->n_kv % PAGE_TOKENS;

    CHECK(n_lost > 0 && s->n_pages == pages_for(s->n_kv));
    page_unref(pool, s->pages[--s->n_pages]);
    s->n_kv -= n_lost;
    s->decode_only_until = 0;
    s->n_cached = MIN(s->n_cached, s->n_kv);
}

void prefix_catch_up(struct seq *s, struct tree *t)
{
    if (s->root.i != TREE_NONE.i && s->n_kv == s->n_tree_pages * PAGE_TOKENS &&
        s->n_pages == s->n_tree_pages)
        tree_count_more(t, match_on(s, t));
}

void prefix_insert(struct seq *s, struct tree *t)
{
    if (s->root.i == TREE_NONE.i)
        return;
    /* The last row is computed again after a delay: its page is not full. */
    for (; s->n_tree_pages > s->n_kv / PAGE_TOKENS; s->n_tree_pages--)
        s->node = tree_parent(t, s->node);
    while (s->n_tree_pages < s->n_kv / PAGE_TOKENS) {
        page_id *page = &s->pages[s->n_tree_pages];
        const int32_t *tokens = s->tokens + s->n_tree_pages * PAGE_TOKENS;
        tree_node node = tree_insert(t, s->node, tokens, PAGE_TOKENS, page);
        if (node.i == TREE_NONE.i)
            return; /* the tree has the page elsewhere: it stays private */
        if (tree_has_windows(t) && s->n_tree_pages >= s->window_from)
            tree_insert_window(t, *page, PAGE_TOKENS, &s->windows[s->n_tree_pages]);
        s->node = node;
        s->n_tree_pages++;
    }
}

/* Inserts the pages of the first n tokens, the last one also if it is not full. */
static void insert_up_to(struct seq *s, struct tree *t, int n)
{
    int n_rest = n % PAGE_TOKENS;

    prefix_insert(s, t);
    if (n_rest == 0 || n / PAGE_TOKENS != s->n_tree_pages)
        return;
    page_id *page = &s->pages[s->n_tree_pages];
    tree_insert(t, s->node, s->tokens + n - n_rest, n_rest, page);
    if (tree_has_windows(t) && tree_has_tokens(t, *page, n))
        tree_insert_window(t, *page, n_rest, &s->windows[s->n_tree_pages]);
}

static void add_state_checkpoint(struct seq *s, struct tree *t)
{
    page_id page = s->pages[(s->n_kv - 1) / PAGE_TOKENS];

    if (tree_has_tokens(t, page, s->n_kv))
        tree_add_checkpoint(t, page, s->slot_from, s->n_kv, s->slot);
}

/* Keeps the window pages before position n, of the pages that are in the tree. */
static void keep_windows(struct seq *s, struct tree *t, int n)
{
    page_id last = s->pages[(n - 1) / PAGE_TOKENS];

    if (tree_has_tokens(t, last, n))
        tree_keep_windows(t, last, n);
    else if (s->n_tree_pages > 0)
        tree_keep_windows(t, tree_page(s->node), n);
}

/* The same for the checkpoints after `pos` that are computed. */
static void keep_prompt_windows(struct seq *s, struct tree *t, int pos)
{
    while (pos < s->n_prompt) {
        pos = MIN(prefix_next_checkpoint(s, pos), s->n_prompt);
        if (pos > s->n_kv)
            return;
        keep_windows(s, t, pos);
    }
}

static bool is_checkpoint(const struct seq *s, int n)
{
    return n == s->n_prompt || (n < s->n_prompt && n == prefix_next_checkpoint(s, n - 1));
}

void prefix_checkpoint(struct seq *s, struct tree *t, int pos)
{
    if (s->root.i == TREE_NONE.i || pos >= s->n_prompt)
        return;
    bool has_state = tree_has_states(t) && is_checkpoint(s, s->n_kv);
    if (has_state)
        insert_up_to(s, t, s->n_kv);
    else if (tree_has_windows(t))
        prefix_insert(s, t);
    if (tree_has_windows(t))
        keep_prompt_windows(s, t, pos);
    if (!has_state)
        return;
    add_state_checkpoint(s, t);
    s->decode_only_until = 0; /* the last page and the slot may be shared from here on */
}

int prefix_next_checkpoint(const struct seq *s, int pos)
{
    int n = (pos / CHECKPOINT_TOKENS + 1) * CHECKPOINT_TOKENS;

    return s->checkpoint_at > pos ? MIN(s->checkpoint_at, n) : n;
}

int prefix_common(const struct seq *f, const struct seq *s)
{
    int n = 0, most = MIN(prefix_limit(s), f->n_prompt);

    if (s->root.i == TREE_NONE.i || f->root.i != s->root.i || s->n_kv > 0 || is_scored(f) ||
        most < CHECKPOINT_TOKENS_MIN)
        return 0;
    while (n < most && f->tokens[n] == s->tokens[n])
        n++;
    return n >= CHECKPOINT_TOKENS_MIN && n > f->n_kv ? n : 0;
}

void prefix_insert_all(struct seq *s, struct tree *t)
{
    if (s->root.i == TREE_NONE.i)
        return;
    s->n_kv = MIN(s->n_kv, s->n_tokens);
    insert_up_to(s, t, s->n_kv);
    if (s->n_kv > 0 && tree_has_windows(t))
        keep_windows(s, t, s->n_kv);
    if (s->slot.i != STATE_NONE.i && s->n_kv > 0)
        add_state_checkpoint(s, t);
}

bool prefix_computes_next(const struct seq *f, const struct seq *s)
{
    int at = s->n_kv;

    if (s->root.i == TREE_NONE.i || f->root.i != s->root.i || f->plan_rows == 0 || is_scored(f))
        return false;
    if (at != s->n_tree_pages * PAGE_TOKENS || s->n_pages != s->n_tree_pages ||
        prefix_limit(s) < at + PAGE_TOKENS)
        return false;
    if (f->n_kv < at || f->n_kv >= at + PAGE_TOKENS || f->n_tokens < at + PAGE_TOKENS)
        return false;
    /* Equal pages are deduplicated, so comparing the last one suffices. */
    if (at > 0 && f->pages[s->n_tree_pages - 1].i != s->pages[s->n_tree_pages - 1].i)
        return false;
    return !memcmp(f->tokens + at, s->tokens + at, PAGE_TOKENS * sizeof(*s->tokens));
}
