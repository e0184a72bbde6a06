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

/* Tokens that would be computed again, and the bytes of the records that replace them. */
struct load_size {
    int pos, n_tokens;
    uint64_t n_bytes;
};

/* True if reading is predicted to be faster than computing. As long as one of the two is not
 * measured, records are read. */
static bool is_read_faster(const struct core *c, struct load_size l)
{
    struct step_size size = { 0 };

    step_size_add(&size, l.pos, l.n_tokens);
    double compute = step_time_of(&c->step_model.step_time, &size),
           read = tier_read_ns(c->tier, l.n_bytes);
    return c->o.kv_disk_always || compute == 0 || read < compute;
}

/* Each rejected read lowers the estimate a little, so that a slow disk is tried again. */
static bool should_read(struct core *c, struct load_size l)
{
    bool is_worth = is_read_faster(c, l);

    if (!is_worth)
        tier_lower_estimate(c->tier);
    return is_worth;
}

/* A record that would not be read is not written. Skipped records are many: one in SKIPS_PER_RETRY
 * counts. */
static bool should_write(struct core *c, struct load_size l)
{
    bool is_worth = is_read_faster(c, l);

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
    int pos = tree_depth(c->tree, page);
    struct record r = { .scope = *tree_scope(c->tree, page),
        .tokens = c->path,
        .n_tokens = pos + PAGE_TOKENS,
        .first_page = pos / PAGE_TOKENS };
    size_t n_bytes = record_bytes(&c->kind, &r);

    if (tier_has(c->tier, TIER_PAGE, hash) ||
        !should_write(c, (struct load_size){ pos, PAGE_TOKENS, n_bytes }))
        return;
    struct tier_write *w = tier_write_begin(c->tier, TIER_PAGE);
    if (!w)
        return;
    tree_path(c->tree, page, c->path);
    record_begin(w->bytes, &c->kind, &r);
    c->lm->ops->read_page(c->lm, page, r.pages);
    w->n_bytes = n_bytes;
    w->hash = hash;
    tier_put_write(c->tier, w);
}

/* Eviction callback for checkpoints. After a restart, reading it together with the pages before it
 * replaces the computation of the whole prefix. */
static void write_evicted_checkpoint(void *arg, page_id page, int n, state_id state)
{
    struct core *c = arg;
    struct record r = { .scope = *tree_scope(c->tree, page),
        .tokens = c->path,
        .n_tokens = n,
        .first_page = (n - 1) / PAGE_TOKENS,
        .has_state = true };
    size_t n_bytes = record_bytes(&c->kind, &r);

    tree_path(c->tree, page, c->path);
    uint64_t hash = tree_tokens_hash(&r.scope, c->path, n);
    uint64_t n_all = n_bytes + (uint64_t)r.first_page * c->kind.page_bytes;
    if (tier_has(c->tier, TIER_CHECKPOINT, hash) ||
        !should_write(c, (struct load_size){ 0, n, n_all }))
        return;
    struct tier_write *w = tier_write_begin(c->tier, TIER_CHECKPOINT);
    if (!w)
        return;
    record_begin(w->bytes, &c->kind, &r);
    c->lm->ops->read_page(c->lm, page, r.pages);
    c->lm->ops->read_state(c->lm, state, r.state);
    w->n_bytes = n_bytes;
    w->hash = hash;
    tier_put_write(c->tier, w);
}

/* ---- reads */

struct prefix_query { /* a prefix and how much of it may be read */
    const struct cache_scope *scope;
    tree_node root;
    const int32_t *tokens; /* [limit + 1] */
    int limit;
};

static uint64_t bytes_of_pages(const struct tier_read *f)
{
    uint64_t n_bytes = 0;

    for (int i = 0; i < f->n_pages; i++)
        n_bytes += f->at[i].n_bytes;
    return n_bytes;
}

/* Sets the pages of the job: those on disk after the pages in memory. */
static struct load_size find_pages(
    const struct core *c, const struct prefix_query *w, struct tier_read *f)
{
    tree_node at = w->root;
    int n_here = tree_peek(c->tree, &at, w->tokens, w->limit);

    f->first_page = n_here / PAGE_TOKENS;
    f->n_pages = tier_chain(c->tier, tree_prefix_hash(c->tree, at), w->tokens + n_here,
        (w->limit - n_here) / PAGE_TOKENS, f->at);
    return (struct load_size){ n_here, f->n_pages * PAGE_TOKENS, bytes_of_pages(f) };
}

/* Sets checkpoint and pages of the job: the deepest checkpoint on disk that is deeper than those in
 * memory, and of the pages before it those that are not in memory; all of them must be on disk. One
 * position after the limit is allowed, since the slot can resume before its position. */
static struct load_size find_checkpoint(
    const struct core *c, const struct prefix_query *w, struct tier_read *f)
{
    int n_resumable = tree_peek_resumable(c->tree, w->root, w->tokens, w->limit);
    struct load_size found = find_pages(c, w, f);
    int end = (f->first_page + f->n_pages + 1) * PAGE_TOKENS;

    f->checkpoint.n = tier_find_checkpoint(
        c->tier, w->scope, w->tokens, n_resumable, MIN(w->limit + 1, end), &f->checkpoint.at);
    int n = f->checkpoint.n, n_before = MAX(n - 1, 0) / PAGE_TOKENS;
    f->first_page = MIN(f->first_page, n_before);
    f->n_pages = n_before - f->first_page;
    found = (struct load_size){ n_resumable, MAX(MIN(n, w->limit) - n_resumable, 0), 0 };
    found.n_bytes = bytes_of_pages(f) + f->checkpoint.at.n_bytes;
    return found;
}

/* Takes the pages to be filled: as many as there are or, before a checkpoint, all. */
static bool take_blank_pages(struct core *c, struct tier_read *f)
{
    int n = 0, n_wanted = f->n_pages + (f->checkpoint.n > 0);

    for (; n < n_wanted; n++) {
        page_id page = tree_take_page(c->tree);
        if (page.i == PAGE_NONE.i)
            break;
        (void)!page_claim(c->pool, page, f->scope.tenant); /* the read overwrites the whole page */
        f->pages[n] = page;
    }
    if (f->checkpoint.n == 0) {
        f->n_pages = n;
        return n > 0;
    }
    if (n == n_wanted)
        return true;
    while (n > 0)
        tree_insert_page(c->tree, TREE_NONE, NULL, 0, f->pages[--n]);
    return false;
}

/* Takes the slot to be filled. Two slots remain that no job fills, so that the sequence of highest
 * rank can always compute; the last unused one is for running sequences. */
static bool take_blank_slot(struct core *c, struct tier_read *f)
{
    if (f->checkpoint.n == 0)
        return true;
    if (c->n_states_loading + 3 > page_n_total(c->states) ||
        page_n_free(c->states) + page_n_idle(c->states) < 2)
        return false;
    f->checkpoint.state = tree_take_state(c->tree);
    if (f->checkpoint.state.i == STATE_NONE.i)
        return false;
    c->n_states_loading++;
    return true;
}

/* Returns the slot, or makes it a checkpoint after `root`. */
static void give_slot(struct core *c, const struct tier_read *f, tree_node root)
{
    const struct tier_checkpoint *k = &f->checkpoint;

    if (k->state.i == STATE_NONE.i)
        return;
    c->n_states_loading--;
    if (root.i == TREE_NONE.i)
        tree_release_state(c->tree, k->state);
    else
        tree_insert_state(c->tree, root, f->tokens, k->n_min, k->n, k->state);
}

/* Takes what the job fills, and holds the prefix in memory while pages may be evicted for it. */
static bool take_blanks(struct core *c, const struct prefix_query *w, struct tier_read *f)
{
    tree_acquire(c->tree, w->root, w->tokens, f->first_page * PAGE_TOKENS, f->held);
    if (take_blank_slot(c, f) && take_blank_pages(c, f))
        return true;
    give_slot(c, f, TREE_NONE);
    tree_release(c->tree, f->held, f->first_page);
    return false;
}

/* Returns NULL if nothing is on disk, reading does not pay, or no buffer, page or slot is
 * available. */
static struct tier_read *start_load(struct core *c, const struct prefix_query *w)
{
    struct tier_read *f = w->limit > 0 ? tier_read_begin(c->tier) : NULL;

    if (!f)
        return NULL;
    f->scope = *w->scope;
    f->n_ok = 0;
    struct load_size l = c->states ? find_checkpoint(c, w, f) : find_pages(c, w, f);
    if (l.n_tokens == 0 || !should_read(c, l) || !take_blanks(c, w, f)) {
        f->n_pages = f->checkpoint.n = 0;
        tier_read_end(c->tier, f);
        return NULL;
    }
    int n = f->checkpoint.n ? f->checkpoint.n : (f->first_page + f->n_pages) * PAGE_TOKENS;
    memcpy(f->tokens, w->tokens, (size_t)n * sizeof(*w->tokens));
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

/* A record that could not be read is removed from the index. */
static void forget_unreadable(struct core *c, const struct tier_read *f)
{
    bool is_checkpoint = f->checkpoint.n > 0 && !f->checkpoint.is_ok;
    int n = is_checkpoint ? f->checkpoint.n : (f->first_page + f->n_ok + 1) * PAGE_TOKENS;

    tier_remove(c->tier, is_checkpoint ? TIER_CHECKPOINT : TIER_PAGE,
        tree_tokens_hash(&f->scope, f->tokens, n));
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

/* Inserts the slot and its page after `at`; TREE_NONE: returns both. */
static void insert_checkpoint(
    struct core *c, const struct tier_read *f, tree_node root, tree_node at)
{
    int n_before = (f->first_page + f->n_pages) * PAGE_TOKENS;

    tree_insert_page(
        c->tree, at, f->tokens + n_before, f->checkpoint.n - n_before, f->pages[f->n_pages]);
    give_slot(c, f, at.i == TREE_NONE.i ? TREE_NONE : root);
}

static void finish_load(struct core *c, struct tier_read *f, uint64_t now)
{
    tree_node root = tree_enter(c->tree, &f->scope), at = root;
    int n_here = f->first_page * PAGE_TOKENS;
    bool has_checkpoint = f->checkpoint.n > 0, is_whole = f->n_ok == f->n_pages;

    is_whole &= !has_checkpoint || f->checkpoint.is_ok;
    CHECK(tree_peek(c->tree, &at, f->tokens, n_here) == n_here); /* the prefix is held */
    if (has_checkpoint && !is_whole)
        at = TREE_NONE; /* pages without their checkpoint are of no use: they are returned */
    for (int i = 0; i < f->n_pages; i++) {
        const int32_t *tokens = f->tokens + n_here + i * PAGE_TOKENS;
        at = tree_insert_page(
            c->tree, i < f->n_ok ? at : TREE_NONE, tokens, PAGE_TOKENS, f->pages[i]);
    }
    if (has_checkpoint)
        insert_checkpoint(c, f, root, at);
    if (!is_whole)
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
    n += snprintf(dir + n, size - (size_t)n, "-%x-%llx", c->kind.kv_kind,
        (unsigned long long)c->kind.page_bytes);
    if (c->kind.state_bytes)
        snprintf(dir + n, size - (size_t)n, "-%llx", (unsigned long long)c->kind.state_bytes);
    return 0;
}

int kv_load_open(struct core *c, struct sched_limits *l, struct err *e)
{
    char dir[4096];

    if (!c->o.kv_disk || !*c->o.kv_disk || !c->tree || !c->o.model_digest || !c->lm->page_bytes)
        return 0;
    if (c->lm->window.size) {
        log_info("engine", "no_kv_tier",
            "reason=\"the KV of layers with an attention window is not written to disk\"");
        return 0;
    }
    if (strlen(c->o.kv_disk) > sizeof(dir) - 100)
        return err_set(e, ERR_RANGE,
            "the name of the KV offload directory has %zu bytes, which is too long",
            strlen(c->o.kv_disk));
    c->kind.kv_kind = c->lm->kv_kind;
    c->kind.page_bytes = c->lm->page_bytes;
    c->kind.state_bytes = c->states ? c->lm->state_bytes : 0;
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
        .read_kind = ENGINE_MSG_TIER_READ,
        .is_manual = c->o.kv_disk_manual };
    if (make_tier_dir(c, dir, sizeof(dir), e) || tier_open(&c->tier, &o, e))
        return -1;
    tree_on_evict(c->tree, write_evicted, c);
    tree_on_evict_checkpoint(c->tree, write_evicted_checkpoint, c);
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
        tree_on_evict_checkpoint(c->tree, NULL, NULL);
        tier_close(c->tier);
    }
    mem_free(c->path);
}
