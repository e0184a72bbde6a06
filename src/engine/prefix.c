#include "engine/prefix.h"
#include "model/lm.h"

static bool is_scored(const struct seq *s)
{
    return s->score_from < s->n_prompt - 1;
}

int prefix_limit(const struct seq *s)
{
    return is_scored(s) ? MIN(s->score_from, s->n_tokens - 1) : s->n_tokens - 1;
}

/* Resumes at a checkpoint. Where the cached pages continue after it, another sequence had this
 * prefix too: a third one may follow, so a checkpoint is made at the end of the common part. */
static int resume(struct seq *s, struct tree *t, int room)
{
    CHECK(s->n_kv == 0 && s->slot.i == STATE_NONE.i);
    struct resume_point from = tree_resume(t, &s->node, s->tokens, room, s->pages);
    s->slot = from.state;
    s->slot_from = from.n_min;
    /* The checkpoint at the end of the prompt covers the positions of the log. */
    if (from.n_cached - from.n >= CHECKPOINT_TOKENS_MIN &&
        from.n_cached < s->n_prompt - STATE_LOG_ROWS)
        s->checkpoint_at = from.n_cached;
    return from.n;
}

/* Matches the prefix cache after the pages of the sequence, which are all full and in the tree.
 * Returns the number of tokens that count as cached: those found before the first preemption. */
static int match_on(struct seq *s, struct tree *t)
{
    int room = prefix_limit(s) - s->n_kv;

    if (room <= 0)
        return 0;
    int n = tree_has_states(t)
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
        s->node = node;
        s->n_tree_pages++;
    }
}

/* Inserts the pages of the first n tokens, the last one also if it is not full. */
static void insert_up_to(struct seq *s, struct tree *t, int n)
{
    int n_rest = n % PAGE_TOKENS;

    prefix_insert(s, t);
    if (n_rest > 0 && n / PAGE_TOKENS == s->n_tree_pages)
        tree_insert(t, s->node, s->tokens + n - n_rest, n_rest, &s->pages[s->n_tree_pages]);
}

static void add_checkpoint(struct seq *s, struct tree *t)
{
    page_id page = s->pages[(s->n_kv - 1) / PAGE_TOKENS];

    if (tree_has_tokens(t, page, s->n_kv))
        tree_add_checkpoint(t, page, s->slot_from, s->n_kv, s->slot);
}

void prefix_checkpoint(struct seq *s, struct tree *t)
{
    if (s->root.i == TREE_NONE.i || s->n_kv > s->n_prompt ||
        (s->n_kv < s->n_prompt && s->n_kv != prefix_next_checkpoint(s, s->n_kv - 1)))
        return;
    insert_up_to(s, t, s->n_kv);
    add_checkpoint(s, t);
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
    if (s->slot.i != STATE_NONE.i && s->n_kv > 0)
        add_checkpoint(s, t);
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
