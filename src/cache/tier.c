#include "cache/tier.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"

#include <sys/mman.h>

enum {
    WAYS = 8,
    LARGE_PAGE = 2 << 20,
    STOP = 1,
    WRITE,
    FETCH
}; /* kinds of messages to the thread */

struct entry {
    uint64_t name; /* 0: none */
    struct disk_at at;
};

struct tier {
    struct tier_options o;
    struct disk *disk; /* the thread's, while it runs */
    struct mailbox *inbox;
    pthread_t thread;
    bool has_thread, is_stopped;
    bool is_failing; /* the thread's: the last page was not written, or not read */
    struct msg stop;
    struct aio *aio;                        /* the thread's, as the next */
    uint8_t *reading, *records[TIER_AHEAD]; /* being read; parts of one block */
    size_t record_bytes;
    _Atomic uint32_t first_segment; /* before it nothing is left; a late look costs a failed read */
    _Atomic uint64_t n_bytes;
    struct entry *index; /* [n_sets][WAYS] */
    size_t n_sets;       /* a power of two */
    struct tier_write writes[TIER_WRITES], *free_writes;
    struct tier_fetch fetches[TIER_FETCHES], *free_fetches;
    struct msg *outgoing, **outgoing_end;
    double page_ns;
    struct tier_stats stats;
};

/* ---- the index: sets of a few; a full one forgets what lies in the oldest segment */

static struct entry *set_of(const struct tier *t, uint64_t name)
{
    return &t->index[(name ^ name >> 32) % t->n_sets * WAYS];
}

static const struct entry *find(const struct tier *t, uint64_t name)
{
    const struct entry *set = set_of(t, name);

    for (int i = 0; i < WAYS; i++)
        if (set[i].name == name && set[i].at.segment >= t->first_segment)
            return &set[i];
    return NULL;
}

static void remember(struct tier *t, uint64_t name, struct disk_at at)
{
    struct entry *set = set_of(t, name), *to = &set[0];

    for (int i = 0; i < WAYS; i++) {
        if (set[i].name == name) {
            to = &set[i];
            break;
        }
        if (set[i].name == 0 || set[i].at.segment < to->at.segment)
            to = &set[i];
    }
    *to = (struct entry){ name, at };
}

bool tier_has(const struct tier *t, uint64_t name)
{
    return find(t, name) != NULL;
}

void tier_forget(struct tier *t, uint64_t name)
{
    struct entry *set = set_of(t, name);

    for (int i = 0; i < WAYS; i++)
        if (set[i].name == name)
            set[i] = (struct entry){ 0 };
}

int tier_chain(
    const struct tier *t, uint64_t name, const int32_t *tokens, int n_pages, struct disk_at *at)
{
    int n = 0;

    for (; n < n_pages; n++) {
        name = tree_name_after(name, tokens + n * PAGE_TOKENS, PAGE_TOKENS);
        const struct entry *found = find(t, name);
        if (!found)
            break;
        at[n] = found->at;
    }
    return n;
}

/* ---- the thread's part */

/* Once, not for every page while a disk is full or broken. */
static void complain(struct tier *t, const char *what, const char *why)
{
    if (!t->is_failing)
        log_warn("cache", "disk", "what=%s why=%s", what, why);
    t->is_failing = true;
}

static void do_write(struct tier *t, struct tier_write *w)
{
    uint64_t began = clock_ns();
    struct err e;

    record_seal(w->bytes);
    w->is_done = !disk_append(t->disk, w->bytes, w->n_bytes, &w->at, &e);
    if (w->is_done)
        t->is_failing = false;
    else
        complain(t, "write", e.msg);
    t->first_segment = disk_first_segment(t->disk);
    t->n_bytes = disk_bytes(t->disk);
    w->took_ns = clock_ns() - began;
}

static bool begin_page(struct tier *t, const struct tier_fetch *f, int i, struct disk_reading *r)
{
    r->space = t->records[i % TIER_AHEAD];
    return f->at[i].n_bytes <= t->record_bytes && disk_read_begin(t->disk, f->at[i], r);
}

static bool is_what_was_asked(const struct tier_fetch *f, int i, const struct record *r)
{
    int page = f->first_page + i, n_tokens = (page + 1) * PAGE_TOKENS;

    return r->n_tokens == n_tokens && r->first_page == page && r->scope.tenant == f->scope.tenant &&
           !memcmp(r->scope.salt, f->scope.salt, sizeof(r->scope.salt)) &&
           !memcmp(r->tokens, f->tokens, (size_t)n_tokens * sizeof(*r->tokens));
}

/* Page i of the fetch has come: false when it is not what it should be. */
static bool end_page(struct tier *t, const struct tier_fetch *f, int i, struct disk_reading *in)
{
    int why = disk_read_end(t->disk, f->at[i], in);
    struct record r;
    struct err e;

    if (why) {
        complain(t, "read", strerror(why));
        return false;
    }
    if (record_read(&r, &t->o.kind, in->bytes, f->at[i].n_bytes, &e)) {
        complain(t, "read", e.msg);
        return false;
    }
    if (!is_what_was_asked(f, i, &r)) /* another prefix of this name: very rare, and no fault */
        return false;
    t->o.lm->ops->write_page(t->o.lm, f->pages[i], r.pages);
    t->is_failing = false;
    return true;
}

static void do_fetch(struct tier *t, struct tier_fetch *f)
{
    struct disk_reading in[TIER_AHEAD];
    uint64_t began = clock_ns();
    int n_begun = 0, n_end = f->n_pages;

    f->n_ok = 0;
    while (f->n_ok < n_end) {
        while (n_begun < n_end && n_begun - f->n_ok < TIER_AHEAD)
            if (begin_page(t, f, n_begun, &in[n_begun % TIER_AHEAD]))
                n_begun++;
            else
                n_end = n_begun;
        if (f->n_ok == n_end)
            break;
        struct disk_reading *next = &in[f->n_ok % TIER_AHEAD];
        while (!next->is_there)
            container_of(aio_wait(t->aio), struct disk_reading, op)->is_there = true;
        if (!end_page(t, f, f->n_ok, next))
            break;
        f->n_ok++;
    }
    while (aio_wait(t->aio)) /* what comes behind a page that was not there */
        continue;
    f->took_ns = clock_ns() - began;
}

/* False: it was told to end. */
static bool work_off(struct tier *t)
{
    struct msg *next;

    for (struct msg *m = mailbox_drain(t->inbox); m; m = next) {
        next = m->next;
        if (m->kind == STOP)
            return false; /* the last message there is */
        if (m->kind == WRITE)
            do_write(t, container_of(m, struct tier_write, msg));
        else
            do_fetch(t, container_of(m, struct tier_fetch, msg));
        m->kind = m->kind == WRITE ? t->o.written_kind : t->o.fetched_kind;
        mailbox_post(t->o.home, m);
    }
    return true;
}

static void *tier_main(void *arg)
{
    struct tier *t = arg;

    while (work_off(t))
        mailbox_wait(t->inbox, UINT64_MAX);
    return NULL;
}

void tier_work(struct tier *t)
{
    work_off(t);
}

/* ---- opening and closing */

static void found(void *arg, const struct record *r, struct disk_at at)
{
    struct tier *t = arg;

    if (r->n_pages == 1 && r->n_tokens % PAGE_TOKENS == 0) {
        uint64_t name = tree_scope_name(&r->scope);
        for (int i = 0; i < r->n_tokens; i += PAGE_TOKENS)
            name = tree_name_after(name, r->tokens + i, PAGE_TOKENS);
        remember(t, name, at);
    }
}

/* In large pages of the system: read past its memory, a record is a transfer or two then, and not
 * one for each 4 kB. */
static bool take_records(struct tier *t)
{
    size_t each = disk_space(t->record_bytes), all = each * TIER_AHEAD;
    size_t align = all < LARGE_PAGE ? FILE_ALIGN : LARGE_PAGE;

    t->reading = try_aligned(align, (all + align - 1) / align * align);
    if (!t->reading)
        return false;
    if (align == LARGE_PAGE)
        madvise(t->reading, all, MADV_HUGEPAGE); /* it works without, too */
    for (int i = 0; i < TIER_AHEAD; i++)
        t->records[i] = t->reading + (size_t)i * each;
    return true;
}

static int take_memory(struct tier *t, struct err *e)
{
    size_t n_tokens = (size_t)t->o.max_tokens, n_pages = n_tokens / PAGE_TOKENS + 1;
    bool is_whole;

    t->record_bytes = record_bytes(
        &t->o.kind, t->o.max_tokens, (t->o.max_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS - 1);
    t->index = try_calloc(t->n_sets * WAYS, sizeof(*t->index));
    is_whole = t->index != NULL;
    is_whole &= take_records(t);
    for (int i = 0; i < TIER_WRITES; i++) {
        struct tier_write *w = &t->writes[i];
        w->bytes = try_aligned(RECORD_ALIGN, t->record_bytes);
        is_whole &= w->bytes != NULL;
        w->next_free = t->free_writes;
        t->free_writes = w;
    }
    for (int i = 0; i < TIER_FETCHES; i++) {
        struct tier_fetch *f = &t->fetches[i];
        f->tokens = try_calloc(n_tokens, sizeof(*f->tokens));
        f->pages = try_calloc(n_pages, sizeof(*f->pages));
        f->held = try_calloc(n_pages, sizeof(*f->held));
        f->at = try_calloc(n_pages, sizeof(*f->at));
        is_whole &= f->tokens && f->pages && f->held && f->at;
        f->next_free = t->free_fetches;
        t->free_fetches = f;
    }
    return is_whole ? 0 : err_set(e, ERR_MEMORY, "no memory for a cache on disk");
}

int tier_open(struct tier **out, const struct tier_options *o, struct err *e)
{
    struct tier *t = xcalloc(1, sizeof(*t));
    struct disk_options d = { .dir = o->dir,
        .max_bytes = o->max_bytes,
        .kind = o->kind,
        .max_tokens = o->max_tokens,
        .found = found,
        .arg = t };

    t->o = *o;
    t->outgoing_end = &t->outgoing;
    t->is_stopped = true;
    /* Twice as many places as there can be pages, so that a set seldom runs over. */
    uint64_t n_most = MIN(o->max_bytes / o->kind.page_bytes, (uint64_t)1 << 27);
    for (t->n_sets = 16; t->n_sets * WAYS < 2 * n_most;)
        t->n_sets *= 2;
    if (take_memory(t, e) || mailbox_open(&t->inbox, e) || aio_open(&t->aio, o->aio, e)) {
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
    if (!o->is_manual && thread_start(&t->thread, "disk", tier_main, t, e)) {
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
        work_off(t);
        return;
    }
    t->stop.kind = STOP;
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
    for (int i = 0; i < TIER_FETCHES; i++) {
        mem_free(t->fetches[i].tokens);
        mem_free(t->fetches[i].pages);
        mem_free(t->fetches[i].held);
        mem_free(t->fetches[i].at);
    }
    mem_free(t->index);
    mem_free(t);
}

/* ---- the engine's part */

struct tier_write *tier_write_begin(struct tier *t)
{
    struct tier_write *w = t->free_writes;

    if (w)
        t->free_writes = w->next_free;
    else
        t->stats.n_lost++;
    return w;
}

struct tier_fetch *tier_fetch_begin(struct tier *t)
{
    struct tier_fetch *f = t->free_fetches;

    if (f)
        t->free_fetches = f->next_free;
    return f;
}

static void put(struct tier *t, struct msg *m, int kind)
{
    m->kind = kind;
    m->next = NULL;
    *t->outgoing_end = m;
    t->outgoing_end = &m->next;
}

void tier_put_write(struct tier *t, struct tier_write *w)
{
    if (!t->is_stopped) {
        put(t, &w->msg, WRITE);
        return;
    }
    do_write(t, w);
    tier_written(t, &w->msg);
}

void tier_put_fetch(struct tier *t, struct tier_fetch *f)
{
    CHECK(!t->is_stopped);
    put(t, &f->msg, FETCH);
}

void tier_send(struct tier *t)
{
    struct msg *next;

    for (struct msg *m = t->outgoing; m; m = next) {
        next = m->next;
        mailbox_post(t->inbox, m);
    }
    t->outgoing = NULL;
    t->outgoing_end = &t->outgoing;
}

void tier_written(struct tier *t, struct msg *m)
{
    struct tier_write *w = container_of(m, struct tier_write, msg);

    if (w->is_done)
        remember(t, w->name, w->at);
    *(w->is_done ? &t->stats.n_written : &t->stats.n_lost) += 1;
    w->next_free = t->free_writes;
    t->free_writes = w;
}

void tier_fetch_end(struct tier *t, struct tier_fetch *f)
{
    const double weight = 0.2; /* of the newest measurement */

    if (f->n_ok > 0) {
        double ns = (double)f->took_ns / f->n_ok;
        t->page_ns = t->page_ns > 0 ? t->page_ns + weight * (ns - t->page_ns) : ns;
    }
    t->stats.n_fetched += (uint64_t)f->n_ok;
    t->stats.n_failed += (uint64_t)(f->n_pages - f->n_ok);
    f->next_free = t->free_fetches;
    t->free_fetches = f;
}

void tier_doubt(struct tier *t)
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

const struct tier_stats *tier_numbers(struct tier *t)
{
    t->stats.n_bytes = t->n_bytes;
    return &t->stats;
}
