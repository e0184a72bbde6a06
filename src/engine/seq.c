#include "engine/seq.h"

int64_t seq_rank(const struct seq *s, uint64_t now, uint64_t age_ns)
{
    uint64_t waited = s->waited_ns;

    if (s->state == SEQ_WAITING && now > s->since_ns)
        waited += now - s->since_ns;
    if (waited < age_ns) /* the usual case, without a division: a queue may have hundreds */
        return s->priority;
    return s->priority + (int64_t)(waited / age_ns);
}

bool seq_came_before(const struct seq *a, const struct seq *b)
{
    return a->order != b->order ? a->order < b->order : a->choice < b->choice;
}

bool seq_is_before(const struct seq *a, const struct seq *b, uint64_t now, uint64_t age_ns)
{
    int64_t ra = seq_rank(a, now, age_ns), rb = seq_rank(b, now, age_ns);

    return ra != rb ? ra > rb : seq_came_before(a, b);
}

/* The page of position n_kv exists in the table of `end` pages and has other holders. */
static bool is_tail_shared(
    const struct seq *s, const page_id *table, int end, const struct page_pool *pool)
{
    int tail = s->n_kv / PAGE_TOKENS;

    return tail < end && page_refs(pool, table[tail]) > 1;
}

bool seq_shares_tail(const struct seq *s, const struct page_pool *pool)
{
    return is_tail_shared(s, s->pages, s->n_pages, pool);
}

bool seq_shares_window_tail(const struct seq *s, const struct page_pool *windows)
{
    return windows && is_tail_shared(s, s->windows, s->n_windows, windows);
}

/* Replaces a shared tail page by a page to be copied. The reference to the old page is kept until
 * the copy is planned, so that no sequence takes and overwrites the page before. */
static bool reserve_copy(struct page_copy *copy, page_id *tail, struct page_pool *pool)
{
    page_id own = page_take(pool);

    if (own.i == PAGE_NONE.i)
        return false;
    CHECK(copy->from.i == PAGE_NONE.i);
    *copy = (struct page_copy){ .from = *tail, .to = own };
    *tail = own;
    return true;
}

/* Takes pages up to index `end`; stops when the pool is empty. */
static void take_pages(page_id *table, int *n, int end, struct page_pool *pool)
{
    while (*n < end) {
        page_id page = page_take(pool);
        if (page.i == PAGE_NONE.i)
            return;
        table[(*n)++] = page;
    }
}

int seq_reserve(struct seq *s, const struct seq_pools *p, int upto)
{
    int tail = s->n_kv / PAGE_TOKENS, end = pages_for(upto);

    if (seq_shares_tail(s, p->pages) && !reserve_copy(&s->copy, &s->pages[tail], p->pages))
        return s->n_kv;
    if (seq_shares_window_tail(s, p->windows) &&
        !reserve_copy(&s->window_copy, &s->windows[tail], p->windows))
        return s->n_kv;
    take_pages(s->pages, &s->n_pages, end, p->pages);
    int n_usable = s->n_pages;
    if (p->windows) {
        take_pages(s->windows, &s->n_windows, s->n_pages, p->windows);
        n_usable = MIN(n_usable, s->n_windows);
    }
    return n_usable >= end ? upto : MAX(n_usable * PAGE_TOKENS, s->n_kv);
}

void seq_trim(struct seq *s, const struct seq_pools *p)
{
    while (s->n_pages > pages_for(s->n_tokens))
        page_unref(p->pages, s->pages[--s->n_pages]);
    while (s->n_windows > s->n_pages)
        page_unref(p->windows, s->windows[--s->n_windows]);
}

bool seq_needs_slot(const struct seq *s, const struct page_pool *states)
{
    return s->slot.i == STATE_NONE.i || page_refs(states, s->slot) > 1;
}

static void release_states(struct seq *s, struct page_pool *states)
{
    if (s->slot.i != STATE_NONE.i)
        page_unref(states, s->slot);
    if (s->slot_out.i != STATE_NONE.i)
        page_unref(states, s->slot_out);
    s->slot = s->slot_out = STATE_NONE;
    s->slot_from = 0;
}

static void undo_copy(struct page_copy *copy, page_id *tail, struct page_pool *pool)
{
    if (copy->from.i == PAGE_NONE.i)
        return;
    page_unref(pool, copy->to);
    *tail = copy->from;
    *copy = PAGE_COPY_NONE;
}

void seq_undo_copy(struct seq *s, const struct seq_pools *p)
{
    int tail = s->n_kv / PAGE_TOKENS;

    undo_copy(&s->copy, &s->pages[tail], p->pages);
    if (p->windows)
        undo_copy(&s->window_copy, &s->windows[tail], p->windows);
}

void seq_release(struct seq *s, const struct seq_pools *p)
{
    seq_undo_copy(s, p);
    for (int i = 0; i < s->n_pages; i++)
        page_unref(p->pages, s->pages[i]);
    for (int i = s->window_from; i < s->n_windows; i++)
        page_unref(p->windows, s->windows[i]);
    s->n_pages = s->window_from = s->n_windows = 0;
    s->n_kv = 0;
    s->n_tree_pages = 0;
    s->decode_only_until = 0;
    s->checkpoint_at = 0;
    s->node = s->root;
    if (p->states)
        release_states(s, p->states);
}

static void share_windows(struct seq *s, const struct seq *from, struct page_pool *windows)
{
    s->window_from = from->window_from;
    s->n_windows = s->n_pages;
    for (int i = s->window_from; i < s->n_windows; i++) {
        s->windows[i] = from->windows[i];
        page_ref(windows, s->windows[i]);
    }
}

void seq_share(struct seq *s, struct seq *from, const struct seq_pools *p)
{
    CHECK(s->n_pages == 0 && s->decode_only_until == 0);
    from->decode_only_until = 0; /* the last page is shared from here on */
    s->n_kv = from->n_kv;
    s->n_pages = pages_for(from->n_kv);
    s->n_tree_pages = from->n_tree_pages;
    s->node = from->node;
    for (int i = 0; i < s->n_pages; i++) {
        s->pages[i] = from->pages[i];
        page_ref(p->pages, s->pages[i]);
    }
    if (p->windows)
        share_windows(s, from, p->windows);
    if (!p->states)
        return;
    CHECK(s->slot.i == STATE_NONE.i && from->slot_out.i == STATE_NONE.i);
    s->slot = from->slot;
    s->slot_from = from->slot_from;
    page_ref(p->states, s->slot);
}
