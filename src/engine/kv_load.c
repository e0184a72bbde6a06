#include "engine/kv_load.h"
#include "base/log.h"
#include "base/mem.h"
#include "cache/windows.h"
#include "engine/kv_find.h"
#include "engine/prefix.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

enum { SKIPS_PER_RETRY = 256 };

static const uint64_t FLUSH_NS_MAX = 5000000000u; /* bounds the time of a shutdown */

/* ---- read or compute */

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

static page_id window_of(const struct core *c, page_id page)
{
    return c->windows ? tree_window_of(c->tree, page) : PAGE_NONE;
}

/* Eviction callback of the tree for pages and window pages: copies the page, and its window page if
 * it has one, and queues them for writing. A page that was written without its window page is
 * written again with it. */
static void write_evicted(void *arg, page_id page)
{
    struct core *c = arg;
    uint64_t hash = tree_prefix_hash(c->tree, (tree_node){ page.i });
    page_id window = window_of(c, page);
    int pos = tree_depth(c->tree, page);
    struct record r = { .scope = *tree_scope(c->tree, page),
        .tokens = c->path,
        .n_tokens = pos + PAGE_TOKENS,
        .first_page = pos / PAGE_TOKENS,
        .n_windows = window.i != PAGE_NONE.i };
    size_t n_bytes = record_bytes(&c->kind, &r);

    if (tier_has(c->tier, r.n_windows ? TIER_WINDOW : TIER_PAGE, hash) ||
        !should_write(c, (struct load_size){ pos, PAGE_TOKENS, n_bytes }))
        return;
    struct tier_write *w = tier_write_begin(c->tier, TIER_PAGE);
    if (!w)
        return;
    tree_path(c->tree, page, c->path);
    record_begin(w->bytes, &c->kind, &r);
    c->lm->ops->read_page(c->lm, page, r.pages);
    if (r.n_windows)
        lm_read_window_page(c->lm, window, r.windows);
    w->has_window = r.n_windows;
    w->n_bytes = n_bytes;
    w->hash = hash;
    tier_put_write(c->tier, w);
}

/* Eviction callback for checkpoints. After a restart, reading it together with the pages before it
 * replaces the computation of the whole prefix. Without its window page it is of no use. */
static void write_evicted_checkpoint(void *arg, page_id page, int n, state_id state)
{
    struct core *c = arg;
    struct record r = { .scope = *tree_scope(c->tree, page),
        .tokens = c->path,
        .n_tokens = n,
        .first_page = (n - 1) / PAGE_TOKENS,
        .has_state = true,
        .n_windows = c->windows != NULL };
    size_t n_bytes = record_bytes(&c->kind, &r);
    page_id window = window_of(c, page);

    if (c->windows && window.i == PAGE_NONE.i)
        return;
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
    if (r.n_windows)
        lm_read_window_page(c->lm, window, r.windows);
    w->n_bytes = n_bytes;
    w->hash = hash;
    tier_put_write(c->tier, w);
}

/* ---- reads */

/* Pages that the job fills: those after the held ones, and that of the checkpoint. */
static int n_blank_from(const struct tier_read *f)
{
    return f->n_held - f->first_page;
}

static int n_blank_end(const struct tier_read *f)
{
    return f->n_pages + (f->checkpoint.n > 0);
}

/* The pages of the job are of use only together. */
static bool is_all_or_nothing(const struct core *c, const struct tier_read *f)
{
    return f->checkpoint.n > 0 || c->windows;
}

static void return_pages(struct core *c, struct tier_read *f, int n)
{
    while (n > n_blank_from(f))
        tree_insert_page(c->tree, TREE_NONE, NULL, 0, f->pages[--n]);
}

/* Takes the pages to be filled: as many as there are or, if they are of use only together, all. */
static bool take_blank_pages(struct core *c, struct tier_read *f)
{
    int n = n_blank_from(f);

    for (int i = 0; i < n; i++)
        f->pages[i] = PAGE_NONE;
    for (; n < n_blank_end(f); n++) {
        page_id page = tree_take_page(c->tree);
        if (page.i == PAGE_NONE.i)
            break;
        (void)!page_claim(c->pool, page, f->scope.tenant); /* the read overwrites the whole page */
        f->pages[n] = page;
    }
    if (!is_all_or_nothing(c, f)) {
        f->n_pages = n;
        return n > 0;
    }
    if (n == n_blank_end(f))
        return true;
    return_pages(c, f, n);
    return false;
}

/* ---- window pages of a job */

/* Window pages that the job holds or fills: from first_window on. */
static int n_windows_of(const struct tier_read *f)
{
    return f->first_page + n_blank_end(f) - f->first_window;
}

static void count_windows(struct core *c, const struct tier_read *f, int sign)
{
    c->n_windows_loading += (uint32_t)(sign * n_windows_of(f));
}

static void release_windows(struct core *c, const struct tier_read *f)
{
    if (!c->windows)
        return;
    tree_release_windows(c->tree, f->path_windows + f->first_window, n_windows_of(f));
    count_windows(c, f, -1);
}

/* Holds those in memory. The jobs leave as many as one sequence needs, so that the sequence of
 * highest rank can always compute. */
static bool hold_windows(struct core *c, const struct tier_read *f)
{
    if (!c->windows)
        return true;
    uint32_t n_taken = c->n_windows_loading + tree_n_pinned_windows(c->tree);
    if (n_taken + (uint32_t)n_windows_of(f) + c->n_least_windows > page_n_total(c->windows))
        return false;
    count_windows(c, f, 1);
    tree_acquire_windows(c->tree, f->path_windows + f->first_window, n_windows_of(f));
    return true;
}

/* Takes those to be filled. False: some are missing; release_windows returns the others. */
static bool take_blank_windows(struct core *c, struct tier_read *f)
{
    int end = f->first_page + n_blank_end(f);

    if (!c->windows)
        return true;
    for (int i = f->first_page; i < end; i++)
        f->windows[i - f->first_page] = PAGE_NONE;
    for (int i = f->first_window; i < end; i++) {
        if (f->path_windows[i].i != PAGE_NONE.i)
            continue;
        page_id page = tree_take_window(c->tree);
        if (page.i == PAGE_NONE.i)
            return false;
        (void)!page_claim(c->windows, page, f->scope.tenant);
        f->path_windows[i] = f->windows[i - f->first_page] = page;
    }
    return true;
}

/* ---- state slot of a job */

/* Takes the slot to be filled. Two slots remain that no job fills, so that the sequence of highest
 * rank can always compute; the last unused one is for running sequences. */
static bool take_blank_slot(struct core *c, struct tier_read *f)
{
    if (f->checkpoint.n == 0)
        return true;
    if (c->n_states_loading + tree_n_pinned_states(c->tree) + 3 > page_n_total(c->states) ||
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
    tree_acquire(c->tree, w->root, w->tokens, f->n_held * PAGE_TOKENS, f->held);
    if (hold_windows(c, f)) {
        if (take_blank_slot(c, f) && take_blank_windows(c, f) && take_blank_pages(c, f))
            return true;
        release_windows(c, f);
        give_slot(c, f, TREE_NONE);
    }
    tree_release(c->tree, f->held, f->n_held);
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
    struct load_size l = kv_find(c, w, f);
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

    uint64_t hash = tree_tokens_hash(&f->scope, f->tokens, n);
    tier_remove(c->tier, is_checkpoint ? TIER_CHECKPOINT : TIER_PAGE, hash);
    if (!is_checkpoint)
        tier_remove(c->tier, TIER_WINDOW, hash); /* mostly the same record */
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

/* The same for the pages of the job; returns the node of the last one. */
static tree_node insert_pages(struct core *c, const struct tier_read *f, tree_node at)
{
    for (int i = n_blank_from(f); i < f->n_pages; i++) {
        const int32_t *tokens = f->tokens + (f->first_page + i) * PAGE_TOKENS;
        at = tree_insert_page(
            c->tree, i < f->n_ok ? at : TREE_NONE, tokens, PAGE_TOKENS, f->pages[i]);
    }
    return at;
}

/* Gives the window pages to the pages of the job, which are in the tree, or returns both. */
static void insert_windows(struct core *c, const struct tier_read *f, tree_node root, bool is_whole)
{
    int n = f->checkpoint.n ? f->checkpoint.n : (f->first_page + f->n_pages) * PAGE_TOKENS;

    if (!is_whole) {
        release_windows(c, f);
        return;
    }
    tree_insert_windows(c->tree, root, f->tokens, n, f->first_window, f->path_windows);
    count_windows(c, f, -1);
}

static void finish_load(struct core *c, struct tier_read *f, uint64_t now)
{
    tree_node root = tree_enter(c->tree, &f->scope), at = root;
    int n_here = f->n_held * PAGE_TOKENS;
    bool has_checkpoint = f->checkpoint.n > 0, is_whole = f->n_ok == f->n_pages;

    is_whole &= !has_checkpoint || f->checkpoint.is_ok;
    CHECK(tree_peek(c->tree, &at, f->tokens, n_here) == n_here); /* the prefix is held */
    if (!is_whole && is_all_or_nothing(c, f))
        at = TREE_NONE;
    at = insert_pages(c, f, at);
    if (has_checkpoint)
        insert_checkpoint(c, f, root, at);
    if (c->windows)
        insert_windows(c, f, root, is_whole);
    if (!is_whole)
        forget_unreadable(c, f);
    tree_release(c->tree, f->held, f->n_held);
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
        n += snprintf(dir + n, size - (size_t)n, "-%llx", (unsigned long long)c->kind.state_bytes);
    if (c->kind.window_bytes)
        snprintf(dir + n, size - (size_t)n, "-w%llx", (unsigned long long)c->kind.window_bytes);
    return 0;
}

int kv_load_open(struct core *c, struct sched_limits *l, struct err *e)
{
    char dir[4096];

    if (!c->o.kv_disk || !*c->o.kv_disk || !c->tree || !c->o.model_digest ||
        c->lm->page_bytes + c->lm->window_page_bytes == 0)
        return 0;
    if (strlen(c->o.kv_disk) > sizeof(dir) - 100)
        return err_set(e, ERR_RANGE,
            "the name of the KV offload directory has %zu bytes, which is too long",
            strlen(c->o.kv_disk));
    c->kind.kv_kind = c->lm->kv_kind;
    c->kind.page_bytes = c->lm->page_bytes;
    c->kind.state_bytes = c->states ? c->lm->state_bytes : 0;
    c->kind.window_bytes = c->windows ? c->lm->window_page_bytes : 0;
    c->n_least_windows = sched_least_windows(&c->lm->window, c->queue->n_ctx);
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
    tree_on_evict_window(c->tree, write_evicted, c);
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
        tree_on_evict_window(c->tree, NULL, NULL);
        tier_close(c->tier);
    }
    mem_free(c->path);
}
