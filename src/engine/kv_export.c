#include "engine/kv_export.h"
#include "base/mem.h"
#include "engine/call.h"
#include "cache/record.h"
#include "cache/windows.h"

struct kv_job {
    struct mailbox *reply;
    const struct cache_scope *scope;
    const int32_t *tokens;
    page_id *pages;   /* [pages_for(n)] */
    page_id *windows; /* [pages_for(n)] window pages; those from first_window on are held */
    int first_window;
    int n;          /* requested tokens */
    int n_found;    /* tokens found */
    int n_pages;    /* held pages */
    state_id state; /* held slot of recurrent state */
    int state_from; /* import: first position at which the slot can resume; -1: it is damaged */
};

static struct record_kind kind_of(const struct lm *lm)
{
    return (struct record_kind){ .page_bytes = lm->page_bytes,
        .state_bytes = lm->state_bytes,
        .window_bytes = lm->window_page_bytes };
}

/* First page of a prefix of n tokens whose window page the next row reads; all pages if there are
 * no windowed layers. */
static int first_window_page(const struct lm *lm, int n)
{
    return lm->window.size ? kv_window_from(&lm->window, n) / PAGE_TOKENS : pages_for(n);
}

static bool get_record_kind(
    struct engine *en, const uint8_t *digest, struct record_kind *k, struct err *e)
{
    const struct lm *lm = engine_lm(en);

    if (!engine_settings(en)->prefix_cache || lm->page_bytes + lm->window_page_bytes == 0) {
        err_set(e, ERR_UNSUPPORTED, "the KV cache of this model cannot be exported");
        return false;
    }
    *k = kind_of(lm);
    k->kv_kind = lm->kv_kind;
    memcpy(k->model, digest, sizeof(k->model));
    return true;
}

/* ---- export */

static void hold_pages(struct core *c, void *arg)
{
    struct kv_job *h = arg;
    tree_node root = tree_enter(c->tree, h->scope);

    const struct resume_pages out = { .pages = h->pages, .windows = h->windows };
    if (c->states || c->windows) {
        struct resume_point from = tree_acquire_resumable(c->tree, root, h->tokens, h->n, &out);
        h->n_found = from.n;
        h->state = from.state;
    } else
        h->n_found = tree_acquire(c->tree, root, h->tokens, h->n, h->pages);
    h->n_pages = pages_for(h->n_found);
    h->first_window = MIN(first_window_page(c->lm, h->n_found), h->n_pages);
    tree_leave(c->tree, root);
}

static void release_pages(struct core *c, void *arg)
{
    struct kv_job *h = arg;

    tree_release(c->tree, h->pages, h->n_pages);
    if (c->windows)
        tree_release_windows(c->tree, h->windows + h->first_window, h->n_pages - h->first_window);
    if (h->state.i != STATE_NONE.i)
        tree_release_state(c->tree, h->state);
}

static int export_pages(
    struct engine *en, const struct record_kind *k, const struct kv_job *h, struct kv_record *out)
{
    struct lm *lm = (struct lm *)(uintptr_t)engine_lm(en); /* read_page does not change the model */
    struct record r = { .scope = *h->scope,
        .tokens = h->tokens,
        .n_tokens = h->n_found,
        .has_state = k->state_bytes > 0,
        .n_windows = h->n_pages - h->first_window };

    out->n_tokens = h->n_found;
    out->n_bytes = record_bytes(k, &r);
    out->bytes = try_aligned(RECORD_ALIGN, out->n_bytes);
    if (!out->bytes)
        return -1;
    record_begin(out->bytes, k, &r);
    for (int i = 0; i < r.n_pages; i++)
        lm->ops->read_page(lm, h->pages[i], r.pages + (size_t)i * k->page_bytes);
    for (int i = 0; i < r.n_windows; i++)
        lm_read_window_page(
            lm, h->windows[h->first_window + i], r.windows + (size_t)i * k->window_bytes);
    if (r.has_state)
        lm->ops->read_state(lm, h->state, r.state);
    return 0;
}

static int job_begin(struct kv_job *h, struct err *e)
{
    h->pages = try_calloc(2 * (size_t)pages_for(h->n), sizeof(*h->pages));
    h->windows = h->pages ? h->pages + pages_for(h->n) : NULL;
    if (!h->pages)
        return err_set(e, ERR_MEMORY, "no memory for the pages of %d tokens", h->n);
    return mailbox_open(&h->reply, e);
}

static void job_end(struct kv_job *h)
{
    mailbox_close(h->reply);
    mem_free(h->pages);
}

int engine_kv_export(
    struct engine *en, const struct kv_prefix *p, struct kv_record *out, struct err *e)
{
    struct kv_job h = {
        .scope = &p->scope, .tokens = p->list.tokens, .n = p->list.n, .state = STATE_NONE
    };
    struct record_kind k;
    int failed = 0;

    if (!get_record_kind(en, p->digest, &k, e))
        return -1;
    if (h.n < 1 || h.n > RECORD_TOKENS_MAX)
        return err_set(e, ERR_RANGE, "a prefix of %d tokens cannot be exported", h.n);
    if (job_begin(&h, e)) {
        job_end(&h);
        return -1;
    }
    engine_call(en, h.reply, hold_pages, &h);
    if (h.n_found == 0)
        failed = err_set(e, ERR_NOT_FOUND, "no prefix of these tokens is in the prefix cache");
    else if (export_pages(en, &k, &h, out))
        failed = err_set(e, ERR_MEMORY, "no memory to export %d tokens", h.n_found);
    engine_call(en, h.reply, release_pages, &h);
    job_end(&h);
    if (!failed)
        record_seal(out->bytes);
    return failed;
}

size_t engine_kv_record_bytes(const struct engine *en, int n_tokens)
{
    const struct lm *lm = engine_lm(en);
    struct record_kind k = kind_of(lm);
    struct record r = { .n_tokens = n_tokens,
        .has_state = lm->state_bytes > 0,
        .n_windows = MAX(pages_for(n_tokens) - first_window_page(lm, n_tokens), 0) };

    return record_bytes(&k, &r);
}

/* ---- import */

/* Takes the window pages from the last one backwards. */
static void take_blank_windows(struct core *c, struct kv_job *h)
{
    int first = MIN(first_window_page(c->lm, h->n), pages_for(h->n));

    for (h->first_window = pages_for(h->n); h->first_window > first; h->first_window--) {
        page_id page = tree_take_window(c->tree);
        if (page.i == PAGE_NONE.i)
            return;
        (void)!page_claim(c->windows, page, h->scope->tenant);
        h->windows[h->first_window - 1] = page;
    }
}

static void take_blank_pages(struct core *c, void *arg)
{
    struct kv_job *h = arg;

    for (h->n_pages = 0; h->n_pages < pages_for(h->n); h->n_pages++) {
        page_id page = tree_take_page(c->tree);
        if (page.i == PAGE_NONE.i)
            break;
        /* write_page overwrites the whole page. */
        (void)!page_claim(c->pool, page, h->scope->tenant);
        h->pages[h->n_pages] = page;
    }
    if (c->states && h->n_pages == pages_for(h->n))
        h->state = tree_take_state(c->tree);
    if (c->windows)
        take_blank_windows(c, h);
}

static void insert_pages(struct core *c, void *arg)
{
    struct kv_job *h = arg;
    tree_node root = tree_enter(c->tree, h->scope), at = root;
    bool has_state = h->state.i != STATE_NONE.i && h->state_from >= 0;

    if (c->states && !has_state)
        at = TREE_NONE; /* pages without a state cannot be used: they are returned */
    for (int i = 0; i < h->n_pages; i++) {
        int n = MIN(h->n - i * PAGE_TOKENS, (int)PAGE_TOKENS);
        bool can_go_on = at.i != TREE_NONE.i;
        at = tree_insert_page(c->tree, at, h->tokens + i * PAGE_TOKENS, n, h->pages[i]);
        h->n_found += can_go_on ? n : 0;
    }
    if (has_state)
        tree_insert_state(c->tree, root, h->tokens, h->state_from, h->n, h->state);
    else if (h->state.i != STATE_NONE.i)
        tree_release_state(c->tree, h->state);
    if (c->windows)
        tree_insert_windows(c->tree, root, h->tokens, h->n, h->first_window, h->windows);
    tree_leave(c->tree, root);
}

static int check_record(const struct record *r, uint64_t tenant, const struct lm *lm, struct err *e)
{
    if (r->first_page > 0)
        return err_set(e, ERR_UNSUPPORTED, "the KV record does not begin at position 0");
    if (r->n_windows < pages_for(r->n_tokens) - first_window_page(lm, r->n_tokens))
        return err_set(e, ERR_UNSUPPORTED, "the KV record lacks pages of the windowed layers");
    if (lm->state_bytes > 0 && !r->has_state)
        return err_set(e, ERR_UNSUPPORTED, "the KV record has no state of recurrent layers");
    if (r->scope.tenant != tenant)
        return err_set(e, ERR_FORBIDDEN, "the KV record belongs to another tenant");
    for (int i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= lm->n_vocab)
            return err_set(e, ERR_CORRUPT, "the KV record contains a token outside the vocabulary");
    return 0;
}

int engine_kv_import(struct engine *en, struct kv_prefix *p, struct kv_record *r, struct err *e)
{
    /* The taken pages belong to this thread until insert_pages. */
    struct lm *lm = (struct lm *)(uintptr_t)engine_lm(en);
    struct record_kind k;
    struct record in;

    if (!get_record_kind(en, p->digest, &k, e) || record_read(&in, &k, r->bytes, r->n_bytes, e) ||
        check_record(&in, p->scope.tenant, lm, e))
        return -1;
    p->scope = in.scope;
    p->list = (struct token_list){ in.tokens, in.n_tokens };
    struct kv_job h = {
        .scope = &p->scope, .tokens = in.tokens, .n = in.n_tokens, .state = STATE_NONE
    };
    if (job_begin(&h, e)) {
        job_end(&h);
        return -1;
    }
    engine_call(en, h.reply, take_blank_pages, &h);
    for (int i = 0; i < h.n_pages; i++)
        lm->ops->write_page(lm, h.pages[i], in.pages + (size_t)i * k.page_bytes);
    for (int i = h.first_window; lm->window.size && i < pages_for(h.n); i++)
        lm_write_window_page(lm, h.windows[i],
            in.windows + (size_t)(i - (pages_for(h.n) - in.n_windows)) * k.window_bytes);
    if (h.state.i != STATE_NONE.i)
        h.state_from = lm->ops->write_state(lm, h.state, in.state, h.n);
    bool is_damaged = h.state_from < 0;
    engine_call(en, h.reply, insert_pages, &h);
    job_end(&h);
    r->n_tokens = h.n_found;
    return is_damaged ? err_set(e, ERR_CORRUPT, "the state of the KV record is damaged") : 0;
}

/* ---- erase */

static int run_tree_job(struct engine *en, void (*fn)(struct core *c, void *arg), struct kv_job *h,
    int *n, struct err *e)
{
    if (!engine_settings(en)->prefix_cache)
        return err_set(e, ERR_UNSUPPORTED, "this model has no prefix cache");
    if (mailbox_open(&h->reply, e))
        return -1;
    engine_call(en, h->reply, fn, h);
    mailbox_close(h->reply);
    *n = h->n_found;
    return 0;
}

static void erase_pages(struct core *c, void *arg)
{
    struct kv_job *h = arg;
    tree_node root = tree_enter(c->tree, h->scope);
    int n_left = tree_erase(c->tree, root, h->tokens, h->n, &h->n_found);

    tree_leave(c->tree, root);
    if (c->tier)
        tier_remove_after(c->tier, h->scope, h->tokens, n_left, h->n);
}

int engine_kv_erase(struct engine *en, const struct kv_prefix *p, int *n_erased, struct err *e)
{
    struct kv_job h = { .scope = &p->scope, .tokens = p->list.tokens, .n = p->list.n };

    return run_tree_job(en, erase_pages, &h, n_erased, e);
}

/* ---- pins */

static void pin_pages(struct core *c, void *arg)
{
    struct kv_job *h = arg;
    tree_node root = tree_enter(c->tree, h->scope);

    h->n_found = tree_pin(c->tree, root, h->tokens, h->n);
    tree_leave(c->tree, root);
}

static void unpin_pages(struct core *c, void *arg)
{
    struct kv_job *h = arg;
    tree_node root = tree_enter(c->tree, h->scope);

    h->n_found = tree_unpin(c->tree, root, h->tokens, h->n);
    tree_leave(c->tree, root);
}

int engine_kv_pin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_pinned, struct err *e)
{
    struct kv_job h = { .scope = scope, .tokens = list.tokens, .n = list.n };

    return run_tree_job(en, pin_pages, &h, n_pinned, e);
}

int engine_kv_unpin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_unpinned, struct err *e)
{
    struct kv_job h = { .scope = scope, .tokens = list.tokens, .n = list.n };

    return run_tree_job(en, unpin_pages, &h, n_unpinned, e);
}
