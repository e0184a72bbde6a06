#include "engine/handover.h"
#include "base/mem.h"
#include "engine/call.h"
#include "cache/record.h"

struct handover {
    struct mailbox *reply;
    const struct cache_scope *scope;
    const int32_t *tokens;
    page_id *pages; /* [pages_for(n)] */
    int n;          /* tokens wanted */
    int n_found;    /* tokens */
    int n_pages;    /* of the ones held */
};

static bool get_kind(struct engine *en, struct record_kind *k, struct err *e)
{
    const struct lm *lm = engine_lm(en);
    const struct engine_options *o = engine_settings(en);

    if (!o->model_digest || !o->prefix_cache || lm->page_bytes == 0) {
        err_set(e, ERR_UNSUPPORTED, "this model's keys and values can not be saved");
        return false;
    }
    *k = (struct record_kind){ .kv_kind = lm->kv_kind, .page_bytes = lm->page_bytes };
    memcpy(k->model, o->model_digest, sizeof(k->model));
    return true;
}

/* ---- saving */

static void hold(struct core *c, void *arg)
{
    struct handover *h = arg;
    tree_node root = tree_enter(c->tree, h->scope);

    h->n_found = tree_hold(c->tree, root, h->tokens, h->n, h->pages);
    h->n_pages = pages_for(h->n_found);
    tree_leave(c->tree, root);
}

static void let_go(struct core *c, void *arg)
{
    struct handover *h = arg;

    tree_let_go(c->tree, h->pages, h->n_pages);
}

static int copy_out(
    struct engine *en, const struct record_kind *k, struct handover *h, uint8_t **bytes, size_t *n)
{
    struct lm *lm = (struct lm *)(uintptr_t)engine_lm(en); /* reading a page changes nothing */
    struct record r = { .scope = *h->scope, .tokens = h->tokens, .n_tokens = h->n_found };

    *n = record_bytes(k, h->n_found, 0);
    *bytes = try_aligned(RECORD_ALIGN, *n);
    if (!*bytes)
        return -1;
    record_begin(*bytes, k, &r);
    for (int i = 0; i < r.n_pages; i++)
        lm->ops->read_page(lm, h->pages[i], r.pages + (size_t)i * k->page_bytes);
    return 0;
}

static int begin(struct handover *h, struct err *e)
{
    h->pages = try_calloc((size_t)pages_for(h->n), sizeof(*h->pages));
    if (!h->pages)
        return err_set(e, ERR_MEMORY, "no memory for the pages of %d tokens", h->n);
    return mailbox_open(&h->reply, e);
}

static void end(struct handover *h)
{
    mailbox_close(h->reply);
    mem_free(h->pages);
}

int engine_save(struct engine *en, const struct cache_scope *scope, struct token_list list,
    uint8_t **bytes, size_t *n_bytes, struct err *e)
{
    struct handover h = { .scope = scope, .tokens = list.tokens, .n = list.n };
    struct record_kind k;
    int failed = 0;

    if (!get_kind(en, &k, e))
        return -1;
    if (list.n < 1 || list.n > RECORD_TOKENS_MAX)
        return err_set(e, ERR_RANGE, "%d tokens to save", list.n);
    if (begin(&h, e)) {
        end(&h);
        return -1;
    }
    engine_call(en, h.reply, hold, &h);
    if (h.n_found == 0)
        failed = err_set(e, ERR_NOT_FOUND, "nothing of these tokens is in the prefix cache");
    else if (copy_out(en, &k, &h, bytes, n_bytes))
        failed = err_set(e, ERR_MEMORY, "no memory to save %d tokens", h.n_found);
    engine_call(en, h.reply, let_go, &h);
    end(&h);
    if (!failed)
        record_seal(*bytes);
    return failed;
}

/* ---- restoring */

static void take_blanks(struct core *c, void *arg)
{
    struct handover *h = arg;

    for (h->n_pages = 0; h->n_pages < pages_for(h->n); h->n_pages++) {
        page_id page = tree_take_blank(c->tree);
        if (page.i == PAGE_NONE.i)
            break;
        (void)!page_claim(c->pool, page, h->scope->tenant); /* all of it is written */
        h->pages[h->n_pages] = page;
    }
}

static void put_blanks(struct core *c, void *arg)
{
    struct handover *h = arg;
    tree_node root = tree_enter(c->tree, h->scope), at = root;

    for (int i = 0; i < h->n_pages; i++) {
        int n = MIN(h->n - i * PAGE_TOKENS, (int)PAGE_TOKENS);
        bool can_go_on = at.i != TREE_NONE.i;
        at = tree_put_blank(c->tree, at, h->tokens + i * PAGE_TOKENS, n, h->pages[i]);
        h->n_found += can_go_on ? n : 0;
    }
    tree_leave(c->tree, root);
}

static int check_tokens(const struct record *r, int n_vocab, struct err *e)
{
    for (int i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= n_vocab)
            return err_set(e, ERR_CORRUPT, "a record with a token that the model does not have");
    return 0;
}

int engine_restore(
    struct engine *en, uint8_t *bytes, size_t n_bytes, int *n_restored, struct err *e)
{
    struct lm *lm = (struct lm *)(uintptr_t)engine_lm(en); /* its pages are ours meanwhile */
    struct record_kind k;
    struct record r;

    if (!get_kind(en, &k, e) || record_read(&r, &k, bytes, n_bytes, e) ||
        check_tokens(&r, lm->n_vocab, e))
        return -1;
    if (r.first_page > 0)
        return err_set(e, ERR_UNSUPPORTED, "a record of the end of a sequence alone");
    struct handover h = { .scope = &r.scope, .tokens = r.tokens, .n = r.n_tokens };
    if (begin(&h, e)) {
        end(&h);
        return -1;
    }
    engine_call(en, h.reply, take_blanks, &h);
    for (int i = 0; i < h.n_pages; i++)
        lm->ops->write_page(lm, h.pages[i], r.pages + (size_t)i * k.page_bytes);
    engine_call(en, h.reply, put_blanks, &h);
    end(&h);
    *n_restored = h.n_found;
    return 0;
}

/* ---- pins */

static void pin(struct core *c, void *arg)
{
    struct handover *h = arg;
    tree_node root = tree_enter(c->tree, h->scope);

    h->n_found = tree_pin(c->tree, root, h->tokens, h->n);
    tree_leave(c->tree, root);
}

static void unpin(struct core *c, void *arg)
{
    struct handover *h = arg;
    tree_node root = tree_enter(c->tree, h->scope);

    h->n_found = tree_unpin(c->tree, root, h->tokens, h->n);
    tree_leave(c->tree, root);
}

static int call_for_pins(struct engine *en, void (*fn)(struct core *c, void *arg),
    struct handover *h, int *n, struct err *e)
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

int engine_pin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_pinned, struct err *e)
{
    struct handover h = { .scope = scope, .tokens = list.tokens, .n = list.n };

    return call_for_pins(en, pin, &h, n_pinned, e);
}

int engine_unpin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_unpinned, struct err *e)
{
    struct handover h = { .scope = scope, .tokens = list.tokens, .n = list.n };

    return call_for_pins(en, unpin, &h, n_unpinned, e);
}
