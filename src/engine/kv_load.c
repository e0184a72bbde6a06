#include "engine/kv_load.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/prefix.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

enum { SKIPS_PER_RETRY = 256 };

static const uint64_t FLUSH_NS_MAX = 5000000000u; /* bounds the time of a shutdown */

/* ---- read or compute */

/* True if reading is predicted to be faster than computing. As long as one of the two is not
 * measured, pages are read. */
static bool is_read_faster(const struct core *c, int pos, int n_pages)
{
    struct step_size size = { 0 };

    step_size_add(&size, pos, n_pages * PAGE_TOKENS);
    double compute = step_time_of(&c->step_model.step_time, &size),
           read = tier_page_ns(c->tier) * n_pages;
    return c->o.kv_disk_always || compute == 0 || read < compute;
}

/* Each rejected read lowers the estimate a little, so that a slow disk is tried again. */
static bool should_read(struct core *c, int pos, int n_pages)
{
    bool is_worth = is_read_faster(c, pos, n_pages);

    if (!is_worth)
        tier_lower_estimate(c->tier);
    return is_worth;
}

/* A page that would not be read is not written. Skipped pages are many: one in SKIPS_PER_RETRY
 * counts. */
static bool should_write(struct core *c, page_id page)
{
    bool is_worth = is_read_faster(c, tree_depth(c->tree, page), 1);

    if (!is_worth && ++c->n_unwritten % SKIPS_PER_RETRY == 0)
        tier_lower_estimate(c->tier);
    return is_worth;
}

/* ---- writes */

/* Eviction callback of the tree: copies the page and queues it for writing. */
static void write_evicted(void *arg, page_id page)
{
    struct core *c = arg;
    uint64_t hash = tree_prefix_hash(c->tree, (tree_node){ page.i });

    if (tier_has(c->tier, hash) || !should_write(c, page))
        return;
    struct tier_write *w = tier_write_begin(c->tier);
    if (!w)
        return;
    int n = tree_path(c->tree, page, c->path);
    struct record r = { .scope = *tree_scope(c->tree, page),
        .tokens = c->path,
        .n_tokens = n,
        .first_page = n / PAGE_TOKENS - 1 };
    record_begin(w->bytes, &c->kind, &r);
    c->lm->ops->read_page(c->lm, page, r.pages);
    w->n_bytes = record_bytes(&c->kind, n, r.first_page);
    w->hash = hash;
    tier_put_write(c->tier, w);
}

/* ---- reads */

/* Takes up to n pages to be filled; returns false if there is none. */
static bool take_blank_pages(struct core *c, struct tier_read *f, int n)
{
    for (f->n_pages = 0; f->n_pages < n; f->n_pages++) {
        page_id page = tree_take_page(c->tree);
        if (page.i == PAGE_NONE.i)
            break;
        (void)!page_claim(c->pool, page, f->scope.tenant); /* the read overwrites the whole page */
        f->pages[f->n_pages] = page;
    }
    return f->n_pages > 0;
}

struct prefix_query { /* a prefix and how much of it may be read */
    const struct cache_scope *scope;
    tree_node root;
    const int32_t *tokens;
    int limit;
};

/* Returns NULL if no page is on disk, reading does not pay, or no buffer or page is available. */
static struct tier_read *start_load(struct core *c, const struct prefix_query *w)
{
    tree_node at = w->root;
    int n_here = tree_peek(c->tree, &at, w->tokens, w->limit);
    int n_more = (w->limit - n_here) / PAGE_TOKENS;
    struct tier_read *f = n_more > 0 ? tier_read_begin(c->tier) : NULL;

    if (!f)
        return NULL;
    n_more = tier_chain(c->tier, tree_prefix_hash(c->tree, at), w->tokens + n_here, n_more, f->at);
    f->scope = *w->scope;
    f->n_pages = f->n_ok = 0;
    f->first_page = n_here / PAGE_TOKENS;
    bool can_start = n_more > 0 && should_read(c, n_here, n_more);
    if (can_start) {
        /* Holds the prefix in memory while pages may be evicted for the read. */
        tree_acquire(c->tree, w->root, w->tokens, n_here, f->held);
        can_start = take_blank_pages(c, f, n_more);
        if (!can_start)
            tree_release(c->tree, f->held, f->first_page);
    }
    if (!can_start) {
        tier_read_end(c->tier, f);
        return NULL;
    }
    memcpy(f->tokens, w->tokens, (size_t)(n_here + f->n_pages * PAGE_TOKENS) * sizeof(*w->tokens));
    f->user = f->choice = NULL;
    tier_put_read(c->tier, f);
    return f;
}

bool kv_load_start(struct core *c, struct gen *g)
{
    bool is_scored = g->in.want_prompt_logprobs && !g->in.script;

    if (!c->tier || !g->in.cache_prompt || is_scored)
        return false;
    tree_node root = tree_enter(c->tree, &g->in.scope);
    struct prefix_query w = { &g->in.scope, root, g->choice[0].tokens, g->in.n_prompt - 1 };
    g->tier_read = start_load(c, &w);
    tree_leave(c->tree, root);
    if (g->tier_read)
        g->tier_read->user = g;
    return g->tier_read;
}

/* Admission callback of the scheduler. Reads once per loss of pages: if the read pages are evicted
 * before the admission, they are computed. */
static bool start_seq_load(void *arg, const struct seq *s)
{
    struct core *c = arg;
    struct gen_choice *ch = s->user;
    const struct prefix_query w = { &ch->gen->in.scope, s->root, s->tokens, prefix_limit(s) };

    if (s->root.i == TREE_NONE.i || ch->tier_read || ch->n_tier_lookups > s->n_preempted)
        return false;
    ch->n_tier_lookups = s->n_preempted + 1;
    ch->tier_read = start_load(c, &w);
    if (ch->tier_read)
        ch->tier_read->choice = ch;
    return ch->tier_read;
}

void kv_load_cancel(struct core *c, struct gen *g)
{
    g->tier_read->user = NULL;
    g->tier_read = NULL;
}

void kv_load_detach(struct gen_choice *ch)
{
    if (ch->tier_read)
        ch->tier_read->choice = NULL;
    ch->tier_read = NULL;
}

/* A page that could not be read is removed from the index. */
static void forget_unreadable(struct core *c, const struct tier_read *f)
{
    uint64_t hash = tree_scope_hash(&f->scope);

    for (int i = 0; i <= f->first_page + f->n_ok; i++)
        hash = tree_extend_hash(hash, f->tokens + i * PAGE_TOKENS, PAGE_TOKENS);
    tier_remove(c->tier, hash);
}

/* Resumes the request or sequence that waited for the pages. */
static void resume_waiting(struct core *c, const struct tier_read *f, uint64_t now)
{
    struct gen *g = f->user;
    struct gen_choice *ch = f->choice;

    if (g) {
        g->tier_read = NULL;
        core_schedule(c, g, now);
    }
    if (!ch)
        return;
    ch->tier_read = NULL;
    if (sched_seq(c->sched, ch->seq)->state == SEQ_PARKED)
        sched_unpark(c->sched, ch->seq, now);
}

static void finish_load(struct core *c, struct tier_read *f, uint64_t now)
{
    tree_node root = tree_enter(c->tree, &f->scope), at = root;
    int n_here = f->first_page * PAGE_TOKENS;

    CHECK(tree_peek(c->tree, &at, f->tokens, n_here) == n_here); /* the prefix is held */
    for (int i = 0; i < f->n_pages; i++) {
        const int32_t *tokens = f->tokens + n_here + i * PAGE_TOKENS;
        at = tree_insert_page(
            c->tree, i < f->n_ok ? at : TREE_NONE, tokens, PAGE_TOKENS, f->pages[i]);
    }
    if (f->n_ok < f->n_pages)
        forget_unreadable(c, f);
    tree_release(c->tree, f->held, f->first_page);
    tree_leave(c->tree, root);
    resume_waiting(c, f, now);
    tier_read_end(c->tier, f);
}

void kv_load_receive(struct core *c, struct msg *m, uint64_t now)
{
    if (m->kind == ENGINE_MSG_TIER_WRITTEN)
        tier_write_end(c->tier, m);
    else
        finish_load(c, container_of(m, struct tier_read, msg), now);
}

/* ---- opening and closing */

static int make_tier_dir(struct core *c, char *dir, size_t size, struct err *e)
{
    int n = snprintf(dir, size, "%s", c->o.kv_disk);

    if (mkdir(c->o.kv_disk, 0700) && errno != EEXIST)
        return err_set(e, ERR_IO, "%s: %s", c->o.kv_disk, strerror(errno));
    n += snprintf(dir + n, size - (size_t)n, "/");
    for (int i = 0; i < 12; i++)
        n += snprintf(dir + n, size - (size_t)n, "%02x", c->kind.model[i]);
    snprintf(dir + n, size - (size_t)n, "-%x-%llx", c->kind.kv_kind,
        (unsigned long long)c->kind.page_bytes);
    return 0;
}

int kv_load_open(struct core *c, struct sched_limits *l, struct err *e)
{
    char dir[4096];

    if (!c->o.kv_disk || !*c->o.kv_disk || !c->tree || !c->o.model_digest || !c->lm->page_bytes)
        return 0;
    if (c->states) {
        log_warn("engine", "no_kv_tier", "reason=\"the model has recurrent layers\"");
        return 0;
    }
    if (strlen(c->o.kv_disk) > sizeof(dir) - 100)
        return err_set(e, ERR_RANGE,
            "the name of the KV offload directory has %zu bytes, which is too long",
            strlen(c->o.kv_disk));
    c->kind.kv_kind = c->lm->kv_kind;
    c->kind.page_bytes = c->lm->page_bytes;
    memcpy(c->kind.model, c->o.model_digest, sizeof(c->kind.model));
    c->path = try_calloc((size_t)c->queue->n_ctx + PAGE_TOKENS, sizeof(*c->path));
    if (!c->path)
        return err_set(
            e, ERR_MEMORY, "no memory for the page numbers of %d tokens", c->queue->n_ctx);
    struct tier_options o = { .dir = dir,
        .max_bytes = c->o.kv_disk_bytes,
        .kind = c->kind,
        .max_tokens = c->queue->n_ctx + PAGE_TOKENS,
        .lm = c->lm,
        .reply = c->queue->inbox,
        .written_kind = ENGINE_MSG_TIER_WRITTEN,
        .read_kind = ENGINE_MSG_TIER_READ };
    if (make_tier_dir(c, dir, sizeof(dir), e) || tier_open(&c->tier, &o, e))
        return -1;
    tree_on_evict(c->tree, write_evicted, c);
    l->start_kv_load = start_seq_load;
    l->start_kv_load_arg = c;
    log_info("engine", "kv_tier", "dir=\"%s\" bytes=%llu max_bytes=%llu io=\"%s\"", dir,
        (unsigned long long)tier_stats_get(c->tier)->n_bytes,
        (unsigned long long)c->o.kv_disk_bytes, tier_aio(c->tier));
    return 0;
}

void kv_load_close(struct core *c)
{
    if (c->tier) {
        tier_stop(c->tier);
        if (c->runs)          /* completely opened */
            core_drain(c, 0); /* receives the last completed jobs */
        uint64_t until = c->clock() + FLUSH_NS_MAX;
        while (c->clock() < until && tree_evict(c->tree))
            continue;
        tree_on_evict(c->tree, NULL, NULL);
        tier_close(c->tier);
    }
    mem_free(c->path);
}
