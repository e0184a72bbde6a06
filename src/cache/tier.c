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

struct tier {
    struct tier_options o;
    struct disk *disk; /* owned by the tier thread while it runs */
    struct mailbox *inbox;
    pthread_t thread;
    bool has_thread, is_stopped;
    bool is_failing; /* tier thread: the last page could not be written or read */
    struct msg stop;
    struct aio *aio;                        /* tier thread, like the next fields */
    uint8_t *reading, *records[TIER_AHEAD]; /* read buffers; records[] are parts of `reading` */
    size_t record_bytes;
    /* Earlier segments are deleted; a stale value costs a failed read. */
    _Atomic uint32_t first_segment;
    _Atomic uint64_t n_bytes;
    struct index_entry *index; /* [n_sets][WAYS] */
    size_t n_sets;             /* a power of two */
    struct tier_write writes[TIER_WRITES], *free_writes;
    struct tier_read fetches[TIER_READS], *free_fetches;
    struct msg_queue outgoing; /* jobs for the next tier_send */
    double page_ns;
    struct tier_stats stats;
};

/* ---- index: set-associative; a full set replaces the entry of the oldest segment */

static struct index_entry *index_set(const struct tier *t, uint64_t hash)
{
    return &t->index[(hash ^ hash >> 32) % t->n_sets * WAYS];
}

static const struct index_entry *index_find(const struct tier *t, uint64_t hash)
{
    const struct index_entry *set = index_set(t, hash);

    for (int i = 0; i < WAYS; i++)
        if (set[i].hash == hash && set[i].at.segment >= t->first_segment)
            return &set[i];
    return NULL;
}

static void index_put(struct tier *t, uint64_t hash, struct disk_pos at)
{
    struct index_entry *set = index_set(t, hash), *to = &set[0];

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

bool tier_has(const struct tier *t, uint64_t hash)
{
    return index_find(t, hash) != NULL;
}

void tier_remove(struct tier *t, uint64_t hash)
{
    struct index_entry *set = index_set(t, hash);

    for (int i = 0; i < WAYS; i++)
        if (set[i].hash == hash)
            set[i] = (struct index_entry){ 0 };
}

int tier_chain(
    const struct tier *t, uint64_t hash, const int32_t *tokens, int n_pages, struct disk_pos *at)
{
    int n = 0;

    for (; n < n_pages; n++) {
        hash = tree_extend_hash(hash, tokens + n * PAGE_TOKENS, PAGE_TOKENS);
        const struct index_entry *index_record = index_find(t, hash);
        if (!index_record)
            break;
        at[n] = index_record->at;
    }
    return n;
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

static bool start_page_read(struct tier *t, const struct tier_read *f, int i, struct disk_read *r)
{
    r->space = t->records[i % TIER_AHEAD];
    return f->at[i].n_bytes <= t->record_bytes && disk_read_begin(t->disk, f->at[i], r);
}

static bool matches_request(const struct tier_read *f, int i, const struct record *r)
{
    int page = f->first_page + i, n_tokens = (page + 1) * PAGE_TOKENS;

    return r->n_tokens == n_tokens && r->first_page == page && r->scope.tenant == f->scope.tenant &&
           !memcmp(r->scope.salt, f->scope.salt, sizeof(r->scope.salt)) &&
           !memcmp(r->tokens, f->tokens, (size_t)n_tokens * sizeof(*r->tokens));
}

/* Verifies page i of the job and copies it to its KV page; false if it is not the requested one. */
static bool finish_page_read(struct tier *t, const struct tier_read *f, int i, struct disk_read *in)
{
    int why = disk_read_end(t->disk, f->at[i], in);
    struct record r;
    struct err e;

    if (why) {
        log_failure(t, "read", strerror(why));
        return false;
    }
    if (record_read(&r, &t->o.kind, in->bytes, f->at[i].n_bytes, &e)) {
        log_failure(t, "read", e.msg);
        return false;
    }
    if (!matches_request(f, i, &r)) /* hash collision: very rare and not a failure */
        return false;
    t->o.lm->ops->write_page(t->o.lm, f->pages[i], r.pages);
    t->is_failing = false;
    return true;
}

static void run_read(struct tier *t, struct tier_read *f)
{
    struct disk_read in[TIER_AHEAD];
    uint64_t began = clock_ns();
    int n_begun = 0, n_end = f->n_pages;

    f->n_ok = 0;
    while (f->n_ok < n_end) {
        while (n_begun < n_end && n_begun - f->n_ok < TIER_AHEAD)
            if (start_page_read(t, f, n_begun, &in[n_begun % TIER_AHEAD]))
                n_begun++;
            else
                n_end = n_begun;
        if (f->n_ok == n_end)
            break;
        struct disk_read *next = &in[f->n_ok % TIER_AHEAD];
        while (!next->is_read)
            container_of(aio_wait(t->aio), struct disk_read, op)->is_read = true;
        if (!finish_page_read(t, f, f->n_ok, next))
            break;
        f->n_ok++;
    }
    while (aio_wait(t->aio)) /* pages after a failed one */
        continue;
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

    if (r->n_pages == 1 && r->n_tokens % PAGE_TOKENS == 0) {
        uint64_t hash = tree_scope_hash(&r->scope);
        for (int i = 0; i < r->n_tokens; i += PAGE_TOKENS)
            hash = tree_extend_hash(hash, r->tokens + i, PAGE_TOKENS);
        index_put(t, hash, at);
    }
}

/* Uses huge pages: a direct read of a record is then one or two transfers instead of one per 4
 * kB. */
static bool alloc_read_buffers(struct tier *t)
{
    size_t each = disk_space(t->record_bytes), all = each * TIER_AHEAD;
    size_t align = all < LARGE_PAGE ? FILE_ALIGN : LARGE_PAGE;

    t->reading = try_aligned(align, (all + align - 1) / align * align);
    if (!t->reading)
        return false;
    if (align == LARGE_PAGE)
        madvise(t->reading, all, MADV_HUGEPAGE); /* a failure has no consequences */
    for (int i = 0; i < TIER_AHEAD; i++)
        t->records[i] = t->reading + (size_t)i * each;
    return true;
}

static int alloc_buffers(struct tier *t, struct err *e)
{
    size_t n_tokens = (size_t)t->o.max_tokens, n_pages = n_tokens / PAGE_TOKENS + 1;
    bool is_complete;

    t->record_bytes = record_bytes(
        &t->o.kind, t->o.max_tokens, (t->o.max_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS - 1);
    t->index = try_calloc(t->n_sets * WAYS, sizeof(*t->index));
    is_complete = t->index != NULL;
    is_complete &= alloc_read_buffers(t);
    for (int i = 0; i < TIER_WRITES; i++) {
        struct tier_write *w = &t->writes[i];
        w->bytes = try_aligned(RECORD_ALIGN, t->record_bytes);
        is_complete &= w->bytes != NULL;
        w->next_free = t->free_writes;
        t->free_writes = w;
    }
    for (int i = 0; i < TIER_READS; i++) {
        struct tier_read *f = &t->fetches[i];
        f->tokens = try_calloc(n_tokens, sizeof(*f->tokens));
        f->pages = try_calloc(n_pages, sizeof(*f->pages));
        f->held = try_calloc(n_pages, sizeof(*f->held));
        f->at = try_calloc(n_pages, sizeof(*f->at));
        is_complete &= f->tokens && f->pages && f->held && f->at;
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
    /* Twice as many entries as pages fit on disk, so that a set rarely overflows. */
    uint64_t n_most = MIN(o->max_bytes / o->kind.page_bytes, (uint64_t)1 << 27);
    for (t->n_sets = 16; t->n_sets * WAYS < 2 * n_most;)
        t->n_sets *= 2;
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
    for (int i = 0; i < TIER_WRITES; i++)
        mem_free(t->writes[i].bytes);
    for (int i = 0; i < TIER_READS; i++) {
        mem_free(t->fetches[i].tokens);
        mem_free(t->fetches[i].pages);
        mem_free(t->fetches[i].held);
        mem_free(t->fetches[i].at);
    }
    mem_free(t->index);
    mem_free(t);
}

/* ---- engine side */

struct tier_write *tier_write_begin(struct tier *t)
{
    struct tier_write *w = t->free_writes;

    if (w)
        t->free_writes = w->next_free;
    else
        t->stats.n_lost++;
    return w;
}

struct tier_read *tier_read_begin(struct tier *t)
{
    struct tier_read *f = t->free_fetches;

    if (f)
        t->free_fetches = f->next_free;
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

    if (w->is_done)
        index_put(t, w->hash, w->at);
    *(w->is_done ? &t->stats.n_written : &t->stats.n_lost) += 1;
    w->next_free = t->free_writes;
    t->free_writes = w;
}

void tier_read_end(struct tier *t, struct tier_read *f)
{
    const double weight = 0.2; /* weight of the newest measurement */

    if (f->n_ok > 0) {
        double ns = (double)f->took_ns / f->n_ok;
        t->page_ns = t->page_ns > 0 ? t->page_ns + weight * (ns - t->page_ns) : ns;
    }
    t->stats.n_read += (uint64_t)f->n_ok;
    t->stats.n_failed += (uint64_t)(f->n_pages - f->n_ok);
    f->next_free = t->free_fetches;
    t->free_fetches = f;
}

void tier_lower_estimate(struct tier *t)
{
    t->page_ns *= 0.98;
}

double tier_page_ns(const struct tier *t)
{
    return t->page_ns;
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
