#include "cache/tier.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"

#include <sys/mman.h>

enum {
    WAYS = 8,
    LARGE_PAGE = 2 << 20,
    JOB_STOP = 1,
    JOB_WRITE,
    JOB_READ
}; /* JOB_: messages to the tier thread */

struct index_entry {
    uint64_t hash; /* 0 = empty */
    struct disk_pos at;
};

struct index {
    struct index_entry *entries; /* [n_sets][WAYS] */
    size_t n_sets;               /* a power of two */
};

struct tier {
    struct tier_options o;
    struct disk *disk; /* owned by the tier thread while it runs */
    struct mailbox *inbox;
    pthread_t thread;
    bool has_thread, is_stopped;
    bool is_failing; /* tier thread: the last record could not be written or read */
    struct msg stop;
    struct aio *aio; /* tier thread, like the next fields */
    /* read buffers: records[] are parts of `reading`; of a checkpoint, NULL without state slots */
    uint8_t *reading, *records[TIER_AHEAD], *checkpoint;
    size_t record_bytes[TIER_KINDS]; /* size of the largest record; 0 = there are none */
    /* Earlier segments are deleted; a stale value costs a failed read. */
    _Atomic uint32_t first_segment;
    _Atomic uint64_t n_bytes;
    struct index index[TIER_KINDS];
    struct tier_write writes[TIER_WRITES + TIER_CHECKPOINT_WRITES], *free_writes[TIER_KINDS];
    struct tier_read fetches[TIER_READS], *free_fetches;
    struct msg_queue outgoing; /* jobs for the next tier_send */
    double byte_ns;            /* read time per byte */
    struct tier_stats stats;
};

/* ---- index: set-associative; a full set replaces the entry of the oldest segment */

static struct index_entry *index_set(const struct tier *t, enum tier_kind kind, uint64_t hash)
{
    const struct index *x = &t->index[kind];

    return &x->entries[(hash ^ hash >> 32) % x->n_sets * WAYS];
}

static const struct index_entry *index_find(
    const struct tier *t, enum tier_kind kind, uint64_t hash)
{
    const struct index_entry *set = index_set(t, kind, hash);

    for (int i = 0; i < WAYS; i++)
        if (set[i].hash == hash && set[i].at.segment >= t->first_segment)
            return &set[i];
    return NULL;
}

static void index_put(struct tier *t, enum tier_kind kind, uint64_t hash, struct disk_pos at)
{
    struct index_entry *set = index_set(t, kind, hash), *to = &set[0];

    for (int i = 0; i < WAYS; i++) {
        if (set[i].hash == hash) {
            to = &set[i];
            break;
        }
        if (set[i].hash == 0 || set[i].at.segment < to->at.segment)
            to = &set[i];
    }
    *to = (struct index_entry){ hash, at };
}

static void index_page(struct tier *t, uint64_t hash, struct disk_pos at, bool has_window)
{
    index_put(t, TIER_PAGE, hash, at);
    if (has_window)
        index_put(t, TIER_WINDOW, hash, at);
}

bool tier_has(const struct tier *t, enum tier_kind kind, uint64_t hash)
{
    return index_find(t, kind, hash) != NULL;
}

void tier_remove(struct tier *t, enum tier_kind kind, uint64_t hash)
{
    struct index_entry *set = index_set(t, kind, hash);

    for (int i = 0; i < WAYS; i++)
        if (set[i].hash == hash)
            set[i] = (struct index_entry){ 0 };
}

void tier_find(const struct tier *t, enum tier_kind kind, uint64_t hash, struct disk_pos *at)
{
    const struct index_entry *entry = index_find(t, kind, hash);

    *at = entry ? entry->at : (struct disk_pos){ 0 };
}

struct removal {
    struct tier *t;
    int from;
};

static void remove_prefix(void *arg, int n, uint64_t hash)
{
    const struct removal *r = arg;

    if (n <= r->from)
        return;
    if (n % PAGE_TOKENS == 0)
        for (enum tier_kind kind = TIER_PAGE; kind < TIER_KINDS; kind++)
            tier_remove(r->t, kind, hash);
    tier_remove(r->t, TIER_CHECKPOINT, hash);
}

void tier_remove_after(
    struct tier *t, const struct cache_scope *scope, const int32_t *tokens, int from, int n)
{
    struct removal r = { t, from };

    tree_each_hash(scope, tokens, n, remove_prefix, &r);
}

int tier_chain(
    const struct tier *t, uint64_t hash, const int32_t *tokens, int n_pages, struct disk_pos *at)
{
    int n = 0;

    for (; n < n_pages; n++) {
        hash = tree_extend_hash(hash, tokens + n * PAGE_TOKENS, PAGE_TOKENS);
        const struct index_entry *entry = index_find(t, TIER_PAGE, hash);
        if (!entry)
            break;
        at[n] = entry->at;
    }
    return n;
}

struct checkpoint_search {
    const struct tier *t;
    int from, n; /* n: result */
    struct disk_pos *at;
};

static void find_deeper(void *arg, int n, uint64_t hash)
{
    struct checkpoint_search *s = arg;
    const struct index_entry *entry = n > s->from ? index_find(s->t, TIER_CHECKPOINT, hash) : NULL;

    if (entry) {
        s->n = n;
        *s->at = entry->at;
    }
}

int tier_find_checkpoint(const struct tier *t, const struct cache_scope *scope,
    const int32_t *tokens, int from, int n, struct disk_pos *at)
{
    struct checkpoint_search s = { .t = t, .from = from, .at = at };

    if (from < n)
        tree_each_hash(scope, tokens, n, find_deeper, &s);
    return s.n;
}

/* ---- tier thread */

/* Logs only the first of consecutive failures. */
static void log_failure(struct tier *t, const char *what, const char *why)
{
    if (!t->is_failing)
        log_warn("cache", "tier_failed", "call=%s error=\"%s\"", what, why);
    t->is_failing = true;
}

static void run_write(struct tier *t, struct tier_write *w)
{
    uint64_t began = clock_ns();
    struct err e;

    record_seal(w->bytes);
    w->is_done = !disk_append(t->disk, w->bytes, w->n_bytes, &w->at, &e);
    if (w->is_done)
        t->is_failing = false;
    else
        log_failure(t, "write", e.msg);
    t->first_segment = disk_first_segment(t->disk);
    t->n_bytes = disk_bytes(t->disk);
    w->took_ns = clock_ns() - began;
}

/* The record of the first n_tokens, with one page: the last of these tokens. */
static bool matches_request(const struct tier_read *f, int n_tokens, const struct record *r)
{
    return r->n_tokens == n_tokens && r->n_pages == 1 && r->scope.tenant == f->scope.tenant &&
           !memcmp(r->scope.salt, f->scope.salt, sizeof(r->scope.salt)) &&
           !memcmp(r->tokens, f->tokens, (size_t)n_tokens * sizeof(*r->tokens));
}

/* Ends the read and verifies the record of the first n_tokens; false if it is another one. */
static bool verify_record(struct tier *t, const struct tier_read *f, struct disk_pos at,
    int n_tokens, struct disk_read *in, struct record *r)
{
    int why = disk_read_end(t->disk, at, in);
    struct err e;

    if (why) {
        log_failure(t, "read", strerror(why));
        return false;
    }
    if (record_read(r, &t->o.kind, in->bytes, at.n_bytes, &e)) {
        log_failure(t, "read", e.msg);
        return false;
    }
    return matches_request(f, n_tokens, r); /* hash collision: very rare and not a failure */
}

static bool start_page_read(struct tier *t, const struct tier_read *f, int i, struct disk_read *r)
{
    r->space = t->records[i % TIER_AHEAD];
    if (f->at[i].n_bytes == 0) {
        r->is_read = true;
        return true;
    }
    return f->at[i].n_bytes <= t->record_bytes[TIER_PAGE] && disk_read_begin(t->disk, f->at[i], r);
}

/* Copies the record of page i of the job to the pages to be filled. False if it has no window page
 * and one is to be read. */
static bool fill_pages(struct tier *t, const struct tier_read *f, int i, const struct record *r)
{
    bool has_window = t->o.kind.window_bytes && f->windows[i].i != PAGE_NONE.i;

    if (has_window && r->n_windows != 1)
        return false;
    if (has_window)
        lm_write_window_page(t->o.lm, f->windows[i], r->windows);
    if (f->pages[i].i != PAGE_NONE.i)
        t->o.lm->ops->write_page(t->o.lm, f->pages[i], r->pages);
    return true;
}

/* Verifies page i of the job and copies it to its KV page; false if it is not the requested one. */
static bool finish_page_read(struct tier *t, const struct tier_read *f, int i, struct disk_read *in)
{
    struct record r;

    if (f->at[i].n_bytes == 0)
        return true;
    if (!verify_record(t, f, f->at[i], (f->first_page + i + 1) * PAGE_TOKENS, in, &r) ||
        r.has_state || !fill_pages(t, f, i, &r))
        return false;
    t->is_failing = false;
    return true;
}

static void wait_for_read(struct tier *t, const struct disk_read *r)
{
    while (!r->is_read)
        container_of(aio_wait(t->aio), struct disk_read, op)->is_read = true;
}

/* Reads the checkpoint of the job to its slot and page. */
static bool read_checkpoint(struct tier *t, struct tier_read *f)
{
    struct tier_checkpoint *c = &f->checkpoint;
    struct disk_read in = { .space = t->checkpoint };
    struct lm *lm = t->o.lm;
    struct record r;

    if (c->at.n_bytes > t->record_bytes[TIER_CHECKPOINT] || !disk_read_begin(t->disk, c->at, &in))
        return false;
    wait_for_read(t, &in);
    if (!verify_record(t, f, c->at, c->n, &in, &r) || !r.has_state)
        return false;
    c->n_min = lm->ops->write_state(lm, c->state, r.state, c->n);
    if (c->n_min < 0) {
        log_failure(t, "read", "the state of the KV record is damaged");
        return false;
    }
    if (!fill_pages(t, f, f->n_pages, &r))
        return false;
    t->is_failing = false;
    return true;
}

static void read_pages(struct tier *t, struct tier_read *f)
{
    struct disk_read in[TIER_AHEAD];
    int n_begun = 0, n_end = f->n_pages;

    while (f->n_ok < n_end) {
        while (n_begun < n_end && n_begun - f->n_ok < TIER_AHEAD)
            if (start_page_read(t, f, n_begun, &in[n_begun % TIER_AHEAD]))
                n_begun++;
            else
                n_end = n_begun;
        if (f->n_ok == n_end)
            break;
        struct disk_read *next = &in[f->n_ok % TIER_AHEAD];
        wait_for_read(t, next);
        if (!finish_page_read(t, f, f->n_ok, next))
            break;
        f->n_ok++;
    }
    while (aio_wait(t->aio)) /* pages after a failed one */
        continue;
}

static void run_read(struct tier *t, struct tier_read *f)
{
    uint64_t began = clock_ns();

    f->n_ok = 0;
    f->checkpoint.is_ok = f->checkpoint.n > 0 && read_checkpoint(t, f);
    if (f->checkpoint.n == 0 || f->checkpoint.is_ok)
        read_pages(t, f);
    f->took_ns = clock_ns() - began;
}

/* Returns false after the stop message. */
static bool run_jobs(struct tier *t)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(t->inbox); m; m = next) {
        next = m->next;
        if (m->kind == JOB_STOP)
            return false; /* always the last message */
        if (m->kind == JOB_WRITE)
            run_write(t, container_of(m, struct tier_write, msg));
        else
            run_read(t, container_of(m, struct tier_read, msg));
        m->kind = m->kind == JOB_WRITE ? t->o.written_kind : t->o.read_kind;
        mailbox_post(t->o.reply, m);
    }
    return true;
}

static void *tier_main(void *arg)
{
    struct tier *t = arg;

    while (run_jobs(t))
        mailbox_wait(t->inbox, UINT64_MAX);
    return NULL;
}

void tier_work(struct tier *t)
{
    run_jobs(t);
}

/* ---- open and close */

static void index_record(void *arg, const struct record *r, struct disk_pos at)
{
    struct tier *t = arg;
    uint64_t hash = tree_tokens_hash(&r->scope, r->tokens, r->n_tokens);

    if (r->n_pages == 1 && r->has_state)
        index_put(t, TIER_CHECKPOINT, hash, at);
    else if (r->n_pages == 1 && r->n_tokens % PAGE_TOKENS == 0)
        index_page(t, hash, at, r->n_windows > 0);
}

/* ---- memory */

/* Bytes of a record of n tokens with one page, and with a window page if the model has them. */
static size_t bytes_of_record(const struct tier *t, enum tier_kind kind, int n)
{
    struct record r = { .n_tokens = n,
        .first_page = (n + PAGE_TOKENS - 1) / PAGE_TOKENS - 1,
        .has_state = kind == TIER_CHECKPOINT,
        .n_windows = t->o.kind.window_bytes > 0 };

    return record_bytes(&t->o.kind, &r);
}

/* Twice as many entries as records fit on disk, so that a set rarely overflows. */
static bool alloc_index(struct tier *t, enum tier_kind kind)
{
    struct index *x = &t->index[kind];
    uint64_t n_most = MIN(t->o.max_bytes / bytes_of_record(t, kind, 1), (uint64_t)1 << 27);

    if (!t->record_bytes[kind])
        n_most = 0;
    for (x->n_sets = 16; x->n_sets * WAYS < 2 * n_most;)
        x->n_sets *= 2;
    x->entries = try_calloc(x->n_sets * WAYS, sizeof(*x->entries));
    return x->entries;
}

/* Uses huge pages: a direct read of a record is then one or two transfers instead of one per 4
 * kB. */
static uint8_t *alloc_read_buffer(size_t n)
{
    size_t align = n < LARGE_PAGE ? FILE_ALIGN : LARGE_PAGE;
    uint8_t *p = try_aligned(align, (n + align - 1) / align * align);

    if (p && align == LARGE_PAGE)
        madvise(p, n, MADV_HUGEPAGE); /* a failure has no consequences */
    return p;
}

static bool alloc_read_buffers(struct tier *t)
{
    size_t each = disk_space(t->record_bytes[TIER_PAGE]);

    t->reading = alloc_read_buffer(each * TIER_AHEAD);
    for (int i = 0; t->reading && i < TIER_AHEAD; i++)
        t->records[i] = t->reading + (size_t)i * each;
    if (!t->record_bytes[TIER_CHECKPOINT])
        return t->reading;
    t->checkpoint = alloc_read_buffer(disk_space(t->record_bytes[TIER_CHECKPOINT]));
    return t->reading && t->checkpoint;
}

/* The first TIER_WRITES jobs are for pages. Without state slots there are no others. */
static bool alloc_writes(struct tier *t)
{
    bool is_complete = true;

    for (int i = 0; i < TIER_WRITES + TIER_CHECKPOINT_WRITES; i++) {
        struct tier_write *w = &t->writes[i];
        w->kind = i < TIER_WRITES ? TIER_PAGE : TIER_CHECKPOINT;
        if (!t->record_bytes[w->kind])
            continue;
        w->bytes = try_aligned(RECORD_ALIGN, t->record_bytes[w->kind]);
        is_complete &= w->bytes != NULL;
        w->next_free = t->free_writes[w->kind];
        t->free_writes[w->kind] = w;
    }
    return is_complete;
}

static bool alloc_windows(struct tier_read *f, size_t n_pages)
{
    f->windows = try_calloc(n_pages, sizeof(*f->windows));
    f->path_windows = try_calloc(n_pages, sizeof(*f->path_windows));
    f->window_at = try_calloc(n_pages, sizeof(*f->window_at));
    return f->windows && f->path_windows && f->window_at;
}

static int alloc_buffers(struct tier *t, struct err *e)
{
    size_t n_tokens = (size_t)t->o.max_tokens, n_pages = n_tokens / PAGE_TOKENS + 1;
    bool is_complete;

    t->record_bytes[TIER_PAGE] = bytes_of_record(t, TIER_PAGE, t->o.max_tokens);
    if (t->o.kind.state_bytes)
        t->record_bytes[TIER_CHECKPOINT] = bytes_of_record(t, TIER_CHECKPOINT, t->o.max_tokens);
    if (t->o.kind.window_bytes)
        t->record_bytes[TIER_WINDOW] = t->record_bytes[TIER_PAGE];
    is_complete = true;
    for (enum tier_kind kind = TIER_PAGE; kind < TIER_KINDS; kind++)
        is_complete &= alloc_index(t, kind);
    is_complete &= alloc_read_buffers(t);
    is_complete &= alloc_writes(t);
    for (int i = 0; i < TIER_READS; i++) {
        struct tier_read *f = &t->fetches[i];
        f->tokens = try_calloc(n_tokens, sizeof(*f->tokens));
        f->pages = try_calloc(n_pages, sizeof(*f->pages));
        f->held = try_calloc(n_pages, sizeof(*f->held));
        f->at = try_calloc(n_pages, sizeof(*f->at));
        is_complete &= f->tokens && f->pages && f->held && f->at;
        is_complete &= !t->o.kind.window_bytes || alloc_windows(f, n_pages);
        f->next_free = t->free_fetches;
        t->free_fetches = f;
    }
    return is_complete ? 0 : err_set(e, ERR_MEMORY, "no memory for the KV offload tier");
}

int tier_open(struct tier **out, const struct tier_options *o, struct err *e)
{
    struct tier *t = xcalloc(1, sizeof(*t));
    struct disk_options d = { .dir = o->dir,
        .max_bytes = o->max_bytes,
        .kind = o->kind,
        .max_tokens = o->max_tokens,
        .found = index_record,
        .arg = t };

    t->o = *o;
    t->is_stopped = true;
    if (alloc_buffers(t, e) || mailbox_open(&t->inbox, e) || aio_open(&t->aio, o->aio, e)) {
        tier_close(t);
        return -1;
    }
    d.aio = t->aio;
    if (disk_open(&t->disk, &d, e)) {
        tier_close(t);
        return -1;
    }
    t->first_segment = disk_first_segment(t->disk);
    t->n_bytes = disk_bytes(t->disk);
    if (!o->is_manual && thread_start(&t->thread, "kv-tier", tier_main, t, e)) {
        tier_close(t);
        return -1;
    }
    t->has_thread = !o->is_manual;
    t->is_stopped = false;
    *out = t;
    return 0;
}

void tier_stop(struct tier *t)
{
    if (t->is_stopped)
        return;
    tier_send(t);
    t->is_stopped = true;
    if (!t->has_thread) {
        run_jobs(t);
        return;
    }
    t->stop.kind = JOB_STOP;
    mailbox_post(t->inbox, &t->stop);
    pthread_join(t->thread, NULL);
}

void tier_close(struct tier *t)
{
    if (!t)
        return;
    CHECK(t->is_stopped);
    disk_close(t->disk);
    aio_close(t->aio);
    mailbox_close(t->inbox);
    mem_free(t->reading);
    mem_free(t->checkpoint);
    for (size_t i = 0; i < ARRAY_LEN(t->writes); i++)
        mem_free(t->writes[i].bytes);
    for (int i = 0; i < TIER_READS; i++) {
        mem_free(t->fetches[i].tokens);
        mem_free(t->fetches[i].pages);
        mem_free(t->fetches[i].held);
        mem_free(t->fetches[i].at);
        mem_free(t->fetches[i].windows);
        mem_free(t->fetches[i].path_windows);
        mem_free(t->fetches[i].window_at);
    }
    for (int i = 0; i < TIER_KINDS; i++)
        mem_free(t->index[i].entries);
    mem_free(t);
}

/* ---- engine side */

struct tier_write *tier_write_begin(struct tier *t, enum tier_kind kind)
{
    struct tier_write *w = t->free_writes[kind];

    if (!w) {
        t->stats.n_lost++;
        return NULL;
    }
    t->free_writes[kind] = w->next_free;
    w->has_window = false;
    return w;
}

struct tier_read *tier_read_begin(struct tier *t)
{
    struct tier_read *f = t->free_fetches;

    if (f) {
        t->free_fetches = f->next_free;
        f->checkpoint = (struct tier_checkpoint){ .state = STATE_NONE };
    }
    return f;
}

static void enqueue(struct tier *t, struct msg *m, int kind)
{
    m->kind = kind;
    msg_queue_put(&t->outgoing, m);
}

void tier_put_write(struct tier *t, struct tier_write *w)
{
    if (!t->is_stopped) {
        enqueue(t, &w->msg, JOB_WRITE);
        return;
    }
    run_write(t, w);
    tier_write_end(t, &w->msg);
}

void tier_put_read(struct tier *t, struct tier_read *f)
{
    CHECK(!t->is_stopped);
    enqueue(t, &f->msg, JOB_READ);
}

void tier_send(struct tier *t)
{
    for (struct msg *m; (m = msg_queue_take(&t->outgoing));)
        mailbox_post(t->inbox, m);
}

void tier_write_end(struct tier *t, struct msg *m)
{
    struct tier_write *w = container_of(m, struct tier_write, msg);

    if (w->is_done) {
        if (w->kind == TIER_PAGE)
            index_page(t, w->hash, w->at, w->has_window);
        else
            index_put(t, w->kind, w->hash, w->at);
        t->stats.n_checkpoints_written += w->kind == TIER_CHECKPOINT;
    }
    *(w->is_done ? &t->stats.n_written : &t->stats.n_lost) += 1;
    w->next_free = t->free_writes[w->kind];
    t->free_writes[w->kind] = w;
}

/* Records that the pages from .. n - 1 of a job are read from. */
static uint64_t count_records(const struct tier_read *f, int from, int n)
{
    uint64_t n_records = 0;

    for (int i = from; i < n; i++)
        n_records += f->at[i].n_bytes > 0;
    return n_records;
}

void tier_read_end(struct tier *t, struct tier_read *f)
{
    const double weight = 0.2; /* weight of the newest measurement */
    bool has_checkpoint = f->checkpoint.n > 0, is_ok = f->checkpoint.is_ok;
    uint64_t n_bytes = is_ok ? f->checkpoint.at.n_bytes : 0;

    for (int i = 0; i < f->n_ok; i++)
        n_bytes += f->at[i].n_bytes;
    if (n_bytes > 0) {
        double ns = (double)f->took_ns / (double)n_bytes;
        t->byte_ns = t->byte_ns > 0 ? t->byte_ns + weight * (ns - t->byte_ns) : ns;
    }
    t->stats.n_read += count_records(f, 0, f->n_ok) + is_ok;
    t->stats.n_checkpoints_read += is_ok;
    /* Pages after a checkpoint that could not be read were not tried. */
    t->stats.n_failed += has_checkpoint && !is_ok ? 1 : count_records(f, f->n_ok, f->n_pages);
    f->next_free = t->free_fetches;
    t->free_fetches = f;
}

void tier_lower_estimate(struct tier *t)
{
    t->byte_ns *= 0.98;
}

double tier_read_ns(const struct tier *t, uint64_t n_bytes)
{
    return t->byte_ns * (double)n_bytes;
}

const char *tier_aio(const struct tier *t)
{
    return aio_name(t->aio);
}

const struct tier_stats *tier_stats_get(struct tier *t)
{
    t->stats.n_bytes = t->n_bytes;
    return &t->stats;
}
