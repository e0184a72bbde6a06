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

bool seq_shares_tail(const struct seq *s, const struct page_pool *pool)
{
    int tail = s->n_kv / PAGE_TOKENS;

    return tail < s->n_pages && page_refs(pool, s->pages[tail]) > 1;
}

int seq_reserve(struct seq *s, struct page_pool *pool, int upto)
{
    if (seq_shares_tail(s, pool)) {
        page_id *tail = &s->pages[s->n_kv / PAGE_TOKENS];
        page_id own = page_take(pool);
        if (own.i == PAGE_NONE.i)
            return s->n_kv;
        /* The reference to the old page is kept until the copy is planned, so that no sequence
         * takes and overwrites the page before. */
        CHECK(s->copy_from.i == PAGE_NONE.i);
        s->copy_from = *tail;
        s->copy_to = own;
        *tail = own;
    }
    while (s->n_pages < pages_for(upto)) {
        page_id page = page_take(pool);
        if (page.i == PAGE_NONE.i)
            return MAX(s->n_pages * PAGE_TOKENS, s->n_kv);
        s->pages[s->n_pages++] = page;
    }
    return upto;
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
    s->slot_from = s->checkpoint_at = 0;
}

void seq_undo_copy(struct seq *s, struct page_pool *pool)
{
    if (s->copy_from.i == PAGE_NONE.i)
        return;
    page_unref(pool, s->copy_to);
    s->pages[s->n_kv / PAGE_TOKENS] = s->copy_from;
    s->copy_from = s->copy_to = PAGE_NONE;
}

void seq_release(struct seq *s, struct page_pool *pool, struct page_pool *states)
{
    seq_undo_copy(s, pool);
    for (int i = 0; i < s->n_pages; i++)
        page_unref(pool, s->pages[i]);
    s->n_pages = 0;
    s->n_kv = 0;
    s->n_tree_pages = 0;
    s->decode_only_until = 0;
    s->node = s->root;
    if (states)
        release_states(s, states);
}

void seq_share(struct seq *s, struct seq *from, struct page_pool *pool, struct page_pool *states)
{
    CHECK(s->n_pages == 0 && s->decode_only_until == 0);
    from->decode_only_until = 0; /* the last page is shared from here on */
    s->n_kv = from->n_kv;
    s->n_pages = pages_for(from->n_kv);
    s->n_tree_pages = from->n_tree_pages;
    s->node = from->node;
    for (int i = 0; i < s->n_pages; i++) {
        s->pages[i] = from->pages[i];
        page_ref(pool, s->pages[i]);
    }
    if (!states)
        return;
    CHECK(s->slot.i == STATE_NONE.i && from->slot_out.i == STATE_NONE.i);
    s->slot = from->slot;
    s->slot_from = from->slot_from;
    page_ref(states, s->slot);
}
