/* pins.c: pins of prefixes in the prefix cache.
 *
 * A pin holds the pages of a prefix and what a sequence needs to resume at its end: with windowed
 * layers the window pages before the end, with recurrent layers a state slot. A pin ends at the end
 * of a full page or, with state slots, at a checkpoint. The node or the checkpoint counts the pins
 * that end there, so that tree_unpin finds the same end although the prefix has grown since.
 *
 * Owner: the engine thread. */
#include "cache/tree_in.h"
#include "cache/windows.h"

struct pin_end {
    uint32_t node;       /* page of the last pinned token; NONE = there is no end */
    uint32_t checkpoint; /* NONE = the model has no state slots */
    int n;               /* pinned tokens */
    int resume_at;       /* first position where a sequence with these tokens resumes */
};

struct pin_search {
    struct tree *t;
    const int32_t *tokens;
    int n;
    bool is_pinned; /* only ends of pins; else ends where a sequence can resume */
    struct pin_end best;
};

/* ---- ends */

static bool is_checkpoint_suitable(
    const struct pin_search *s, const struct checkpoint *c, struct window_run windows)
{
    if (s->is_pinned)
        return c->n_pins > 0;
    return windows_reach(s->t, windows, c->node, c->n_min) &&
           windows_reach(s->t, windows, c->node, c->n);
}

/* Improves the result by the checkpoints in the children of `at`, which ends at n_before. */
static void search_checkpoints(
    struct pin_search *s, uint32_t at, int n_before, struct window_run windows)
{
    const struct tree *t = s->t;

    for (uint32_t i = t->nodes[at].checkpoints.first; i != NONE; i = t->checkpoints[i].link.next) {
        const struct checkpoint *c = &t->checkpoints[i];
        size_t n_own = (size_t)(c->n - n_before);
        if (c->n <= s->n && c->n > s->best.n &&
            !memcmp(t->tokens[c->node], s->tokens + n_before, n_own * sizeof(*s->tokens)) &&
            is_checkpoint_suitable(s, c, windows))
            s->best = (struct pin_end){ c->node, i, c->n, c->n_min };
    }
}

static bool is_page_suitable(const struct pin_search *s, uint32_t at, struct window_run windows)
{
    if (s->is_pinned)
        return s->t->nodes[at].n_end_pins > 0;
    /* A prompt of these tokens computes the last one. */
    return windows_reach(s->t, windows, NONE, windows.end - 1);
}

static struct pin_end find_end(struct pin_search s, tree_node root)
{
    struct window_run windows = { 0, 0 };
    uint32_t at = root.i;
    int done = 0;

    tree_check_place(s.t, root);
    s.best.node = NONE;
    for (;;) {
        if (s.t->o.states)
            search_checkpoints(&s, at, done, windows);
        at = s.n - done >= PAGE_TOKENS ? tree_find_full(s.t, at, s.tokens + done) : NONE;
        if (at == NONE)
            return s.best;
        done += PAGE_TOKENS;
        windows_extend(s.t, &windows, at);
        if (!s.t->o.states && is_page_suitable(&s, at, windows))
            s.best = (struct pin_end){ at, NONE, done, done - 1 };
    }
}

/* ---- pages, window pages and slots of a pin */

/* The pin includes the window page of this node. */
static bool has_pinned_window(const struct tree *t, const struct pin_end *end, uint32_t node)
{
    int n_upto = ((int)t->nodes[node].depth + 1) * PAGE_TOKENS;

    return t->o.windows && n_upto > tree_window_from(t, end->resume_at);
}

static bool fits_limits(const struct tree *t, const struct pin_end *end)
{
    uint32_t n_pages = t->n_pinned, n_windows = t->n_pinned_windows, n_states = t->n_pinned_states;

    for (uint32_t i = end->node; tree_is_page(t, i); i = t->nodes[i].parent) {
        n_pages += t->nodes[i].n_pins == 0;
        n_windows += has_pinned_window(t, end, i) && t->nodes[i].n_window_pins == 0;
    }
    if (end->checkpoint != NONE)
        n_states += t->checkpoints[end->checkpoint].n_pins == 0;
    return n_pages <= t->o.n_pinned && n_windows <= t->o.n_pinned_windows &&
           n_states <= t->o.n_pinned_states;
}

int tree_pin(struct tree *t, tree_node root, const int32_t *tokens, int n)
{
    struct pin_end end = find_end((struct pin_search){ .t = t, .tokens = tokens, .n = n }, root);

    if (end.node == NONE || !fits_limits(t, &end))
        return 0;
    for (uint32_t i = end.node; tree_is_page(t, i); i = t->nodes[i].parent) {
        struct node *at = &t->nodes[i];
        tree_pin_page(t, i);
        page_ref(t->pool, (page_id){ i });
        if (has_pinned_window(t, &end, i)) {
            tree_acquire_windows(t, &at->window, 1);
            t->n_pinned_windows += at->n_window_pins++ == 0;
        }
    }
    if (end.checkpoint == NONE) {
        t->nodes[end.node].n_end_pins++;
        return end.n;
    }
    struct checkpoint *c = &t->checkpoints[end.checkpoint];
    page_ref(t->o.states, (page_id){ end.checkpoint });
    c->n_readers++;
    t->n_pinned_states += c->n_pins++ == 0;
    return end.n;
}

static void unpin_window(struct tree *t, uint32_t node)
{
    t->n_pinned_windows -= --t->nodes[node].n_window_pins == 0;
    tree_release_windows(t, &t->nodes[node].window, 1);
}

static void unpin_state(struct tree *t, uint32_t i)
{
    t->n_pinned_states -= --t->checkpoints[i].n_pins == 0;
    tree_release_state(t, (state_id){ i });
}

int tree_unpin(struct tree *t, tree_node root, const int32_t *tokens, int n)
{
    const struct pin_search s = { .t = t, .tokens = tokens, .n = n, .is_pinned = true };
    struct pin_end end = find_end(s, root);

    if (end.node == NONE)
        return 0;
    if (end.checkpoint != NONE)
        unpin_state(t, end.checkpoint);
    else
        t->nodes[end.node].n_end_pins--;
    for (uint32_t i = end.node; tree_is_page(t, i); i = t->nodes[i].parent) {
        if (has_pinned_window(t, &end, i))
            unpin_window(t, i);
        tree_unpin_page(t, i);
        page_unref(t->pool, (page_id){ i });
    }
    return end.n;
}

uint32_t tree_n_pinned_windows(const struct tree *t)
{
    return t->n_pinned_windows;
}

uint32_t tree_n_pinned_states(const struct tree *t)
{
    return t->n_pinned_states;
}

void pins_clear(struct tree *t)
{
    for (uint32_t i = 0; t->o.states && t->checkpoints && i < page_n_total(t->o.states); i++)
        while (t->checkpoints[i].n_pins > 0)
            unpin_state(t, i);
    for (uint32_t i = 0; i < t->n_pages && t->n_cached > 0; i++) {
        while (t->nodes[i].n_window_pins > 0)
            unpin_window(t, i);
        for (; t->nodes[i].n_pins > 0; t->nodes[i].n_pins--)
            page_unref(t->pool, (page_id){ i });
    }
}

const char *pins_check(const struct tree *t)
{
    uint32_t n_windows = 0, n_states = 0;

    for (uint32_t i = 0; i < t->n_pages; i++) {
        const struct node *at = &t->nodes[i];
        if (at->n_tokens == 0)
            continue;
        n_windows += at->n_window_pins > 0;
        if (at->n_end_pins > at->n_pins || at->n_window_pins > at->n_pins)
            return "a page has more pins of a part than pins";
        if (at->n_window_pins > 0 && at->window.i == PAGE_NONE.i)
            return "a pinned window page is missing";
    }
    for (uint32_t i = 0; t->o.states && i < page_n_total(t->o.states); i++) {
        const struct checkpoint *c = &t->checkpoints[i];
        n_states += c->n_pins > 0;
        if (c->n_pins > 0 && (c->node == NONE || t->nodes[c->node].n_pins < c->n_pins))
            return "the page of a pinned checkpoint is not pinned";
        if (c->n_pins > c->n_readers)
            return "a checkpoint has more pins than readers";
    }
    if (n_windows != t->n_pinned_windows || n_states != t->n_pinned_states)
        return "pinned window pages or state slots are miscounted";
    return NULL;
}
