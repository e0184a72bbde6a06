#include "audit/audit.h"
#include "base/json.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/thread.h"
#include "audit/audit_file.h"
#include "audit/audit_members.h"
#include "audit/retention.h"
#include "audit/syslog_anchor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum {
    RETRY_MS = 1000,
    SYNC_MS = 1000,
    MAINTAIN_MS = 60000, /* longest time between two checks of ages, and between two anchors */
    TORN_TEXT_MAX = 1024,
    GROUP_MAX = 256, /* lines of one write */
    /* room for one line: the identifiers in it are short; with texts in debug mode */
    RESERVED_BYTES = 1024,
    RESERVED_TEXT_BYTES = 2 * AUDIT_TEXT_JSON_BYTES + RESERVED_BYTES
};

struct line {
    struct list_link in_queue;
    size_t n;
    char text[]; /* members of the line: audit_line.h */
};

struct audit {
    pthread_mutex_t mu; /* guards the members up to `file`; not held during a call that waits */
    pthread_cond_t changed;
    struct list queue;
    size_t queued_bytes;   /* also of the lines that are being written */
    size_t n_reserved;     /* lines that have room in the queue and are not in it yet */
    uint64_t n_unreported; /* lost lines that no line of the file states */
    bool want_reopen, is_closing;
    bool is_awaited; /* audit_reserve has failed since the last call of `on_room` */
    void (*on_room)(void *ctx);
    void *on_room_ctx;
    const struct audit_key *text_key; /* key of the HMACs of prompts and responses */
    struct audit_stats stats;
    /* members of the writer thread */
    struct audit_file file;
    bool is_failing;      /* the last write failed */
    uint64_t sync_ns;     /* time of the next fdatasync; UINT64_MAX: all lines are on the disk */
    uint64_t maintain_ns; /* time of the next check of ages */
    uint64_t n_anchored;  /* position of the last checkpoint that was sent to syslog */
    pthread_t thread;
    struct audit_keys *keys;
    struct audit_options o; /* constant; without its strings */
    char *syslog_path;      /* NULL: none */
};

/* ---- lines */

/* Number of bytes that the writer needs for a line of the queue. */
static size_t line_bytes(size_t n)
{
    return sizeof(struct line) + n;
}

/* Makes the line of a finished JSON object, without its braces. NULL: no memory. */
static struct line *make_line(struct jw *w)
{
    jw_end_object(w);
    struct line *l = buf_ok(w->b) ? try_malloc(line_bytes(w->b->n - 2)) : NULL;
    if (l) {
        l->in_queue = (struct list_link){ 0 };
        l->n = w->b->n - 2;
        memcpy(l->text, w->b->p + 1, l->n);
    }
    buf_clear(w->b);
    return l;
}

static struct line *lost_line(uint64_t n)
{
    struct buf b;
    struct jw w;

    audit_members_begin(&w, &b);
    jw_key(&w, "event"), jw_z(&w, "lost");
    jw_key(&w, "lines"), jw_u64(&w, n);
    return make_line(&w);
}

static struct line *torn_line(struct str text, uint64_t n_torn)
{
    struct buf b;
    struct jw w;

    text.n = MIN(text.n, (size_t)TORN_TEXT_MAX);
    audit_members_begin(&w, &b);
    jw_key(&w, "event"), jw_z(&w, "torn");
    jw_key(&w, "bytes"), jw_u64(&w, n_torn);
    jw_key(&w, "text"), jw_str(&w, text);
    return make_line(&w);
}

/* ---- queue */

/* Room for one line that is not in the queue yet. */
static size_t reserved_bytes(const struct audit *a)
{
    return a->o.debug_mode ? RESERVED_TEXT_BYTES : RESERVED_BYTES;
}

/* Adds the line if the queue stays below `limit` bytes. The caller holds the mutex. */
static bool add_line(struct audit *a, struct line *take, size_t limit)
{
    bool is_counted = a->o.when_full != AUDIT_DROP && limit != SIZE_MAX;
    size_t n_taken = is_counted ? a->n_reserved * reserved_bytes(a) : 0;

    if (!take || a->queued_bytes + n_taken + line_bytes(take->n) > limit) {
        mem_free(take);
        return false;
    }
    list_add_last(&a->queue, &take->in_queue);
    a->queued_bytes += line_bytes(take->n);
    return true;
}

/* Lost lines are stated by a line at their place. The caller holds the mutex. */
static bool report_lost(struct audit *a, size_t limit)
{
    if (a->n_unreported && !add_line(a, lost_line(a->n_unreported), limit))
        return false;
    a->n_unreported = 0;
    return true;
}

static void queue_line(struct audit *a, struct line *take, size_t limit)
{
    pthread_mutex_lock(&a->mu);
    bool is_first_loss = !a->n_unreported;
    bool is_reported = report_lost(a, limit), is_queued = is_reported && add_line(a, take, limit);
    if (!is_reported)
        mem_free(take);
    if (!is_queued) {
        a->n_unreported++;
        a->stats.n_lost++;
    }
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->mu);
    if (!is_queued && is_first_loss)
        log_error("audit", "audit_line_lost", "error=\"the queue of the audit log is full\"");
}

/* Whether one more line can be reserved. The caller holds the mutex. */
static bool has_room(const struct audit *a)
{
    return a->o.when_full == AUDIT_DROP ||
           a->queued_bytes + (a->n_reserved + 1) * reserved_bytes(a) <= AUDIT_QUEUE_BYTES;
}

/* Lines or reservations were removed. The caller holds the mutex. */
static void report_room(struct audit *a)
{
    if (!a->is_awaited || !a->on_room || !has_room(a))
        return;
    a->is_awaited = false;
    a->on_room(a->on_room_ctx);
}

bool audit_reserve(struct audit *a)
{
    pthread_mutex_lock(&a->mu);
    bool is_reserved = has_room(a);
    a->n_reserved += is_reserved;
    a->is_awaited |= !is_reserved;
    pthread_mutex_unlock(&a->mu);
    return is_reserved;
}

void audit_unreserve(struct audit *a)
{
    pthread_mutex_lock(&a->mu);
    CHECK(a->n_reserved > 0);
    a->n_reserved--;
    report_room(a);
    pthread_mutex_unlock(&a->mu);
}

enum audit_when_full audit_when_full(const struct audit *a)
{
    return a->o.when_full;
}

void audit_watch(struct audit *a, void (*fn)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&a->mu);
    a->on_room = fn;
    a->on_room_ctx = ctx;
    pthread_mutex_unlock(&a->mu);
}

static const struct audit_key *text_key(struct audit *a)
{
    pthread_mutex_lock(&a->mu);
    const struct audit_key *key = a->text_key;
    pthread_mutex_unlock(&a->mu);
    return key;
}

/* Queues a line whose room may be reserved. */
static void queue_reserved(struct audit *a, struct jw *w, bool is_reserved)
{
    bool must_fit = is_reserved && a->o.when_full != AUDIT_DROP;

    queue_line(a, make_line(w), must_fit ? SIZE_MAX : AUDIT_QUEUE_BYTES);
    if (is_reserved)
        audit_unreserve(a);
}

void audit_write(struct audit *a, const struct audit_entry *en)
{
    struct buf b;
    struct jw w;

    audit_members_begin(&w, &b);
    audit_members_entry(&w, en, text_key(a), a->o.debug_mode);
    queue_reserved(a, &w, en->is_reserved);
}

void audit_refuse(struct audit *a, const struct audit_refusal *r)
{
    struct buf b;
    struct jw w;

    audit_members_begin(&w, &b);
    audit_members_refusal(&w, r);
    queue_line(a, make_line(&w), AUDIT_QUEUE_BYTES / 2);
}

void audit_record_change(struct audit *a, const struct audit_change *c)
{
    struct buf b;
    struct jw w;

    audit_members_begin(&w, &b);
    audit_members_change(&w, c);
    queue_reserved(a, &w, c->is_reserved);
}

bool audit_wants_text(const struct audit *a)
{
    return a->o.debug_mode;
}

void audit_reopen(struct audit *a)
{
    pthread_mutex_lock(&a->mu);
    a->want_reopen = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->mu);
}

void audit_stats(struct audit *a, struct audit_stats *out)
{
    pthread_mutex_lock(&a->mu);
    *out = a->stats;
    pthread_mutex_unlock(&a->mu);
}

/* ---- writer thread */

static void count_failure(struct audit *a, const char *event, const struct err *e)
{
    pthread_mutex_lock(&a->mu);
    a->stats.n_failures++;
    pthread_mutex_unlock(&a->mu);
    log_error("audit", event, "path=\"%s\" error=\"%s\"", a->file.path, e->msg);
}

/* Adds a line about the file itself, before all lines that wait. */
static void add_first(struct audit *a, struct line *take)
{
    if (!take)
        return;
    pthread_mutex_lock(&a->mu);
    list_add_first(&a->queue, &take->in_queue);
    a->queued_bytes += line_bytes(take->n);
    pthread_mutex_unlock(&a->mu);
}

static void add_torn(struct audit *a, const struct buf *torn, uint64_t n_torn)
{
    if (!n_torn)
        return;
    log_warn("audit", "audit_tail_torn", "path=\"%s\" bytes=%llu", a->file.path,
        (unsigned long long)n_torn);
    add_first(a, torn_line(buf_str(torn), n_torn));
}

static void sync_if_due(struct audit *a)
{
    struct err e;

    if (clock_ns() < a->sync_ns)
        return;
    a->sync_ns = UINT64_MAX;
    if (audit_file_sync(&a->file, &e)) {
        count_failure(a, "audit_sync_failed", &e);
        a->sync_ns = clock_ns() + SYNC_MS * NS_PER_MS;
    }
}

struct group { /* lines of one write, taken from the queue */
    struct line *lines[GROUP_MAX];
    size_t n;
};

static bool write_members(struct audit *a, const struct group *g)
{
    struct str members[GROUP_MAX];
    struct err e;

    for (size_t i = 0; i < g->n; i++)
        members[i] = (struct str){ g->lines[i]->text, g->lines[i]->n };
    if (!audit_file_append(&a->file, members, g->n, &e))
        return true;
    if (!a->is_failing)
        count_failure(a, "audit_write_failed", &e);
    return false;
}

/* Writes as many of the lines as the disk has room for: a group is halved until it fits. Lines that
 * were not written are the first of the queue again. Returns false if there are such lines. */
static bool write_group(struct audit *a, struct group *g)
{
    struct group part = *g;
    size_t n_written = 0;

    while (n_written < g->n && part.n) {
        memcpy(part.lines, g->lines + n_written, part.n * sizeof(*part.lines));
        bool is_written = write_members(a, &part);
        a->is_failing = !is_written;
        n_written += is_written ? part.n : 0;
        part.n = is_written ? MIN(part.n, g->n - n_written) : part.n / 2;
    }
    if (n_written)
        a->sync_ns = MIN(a->sync_ns, clock_ns() + SYNC_MS * NS_PER_MS);
    pthread_mutex_lock(&a->mu);
    for (size_t i = g->n; i-- > n_written;)
        list_add_first(&a->queue, &g->lines[i]->in_queue);
    for (size_t i = 0; i < n_written; i++)
        a->queued_bytes -= line_bytes(g->lines[i]->n);
    a->stats.n_lines += n_written;
    a->stats.end = a->file.chain.n_lines;
    report_room(a);
    pthread_mutex_unlock(&a->mu);
    for (size_t i = 0; i < n_written; i++)
        mem_free(g->lines[i]);
    return n_written == g->n;
}

static void reopen_file(struct audit *a)
{
    struct err e;
    bool was_moved;

    if (audit_file_reopen(&a->file, &was_moved, &e))
        count_failure(a, "audit_reopen_failed", &e);
    else
        log_info("audit", "audit_reopen", "path=\"%s\" file=%s", a->file.path,
            was_moved ? "new" : "same");
}

/* ---- rotation and ages */

static void add_event(struct audit *a, const char *event, const char *name, struct str value)
{
    struct buf b;
    struct jw w;

    audit_members_begin(&w, &b);
    jw_key(&w, "event"), jw_z(&w, event);
    jw_member_str(&w, name, value);
    add_first(a, make_line(&w));
}

static void on_removed(void *ctx, struct str name)
{
    struct audit *a = ctx;

    log_info("audit", "audit_file_removed", "name=\"" STR_FMT "\"", STR_ARG(name));
    add_event(a, "removed", "file", name);
}

static void remove_old_files(struct audit *a)
{
    struct err e;

    if (a->o.retain_s && audit_remove_old(a->file.path, a->o.retain_s, on_removed, a, &e))
        count_failure(a, "audit_remove_failed", &e);
}

static void rotate_key_if_due(struct audit *a)
{
    struct err e;

    if (!a->o.key_s || clock_wall_s() - audit_keys_current(a->keys)->created_s < a->o.key_s)
        return;
    if (audit_keys_rotate(a->keys, &e)) {
        count_failure(a, "audit_key_failed", &e);
        return;
    }
    const struct audit_key *key = audit_keys_current(a->keys);
    pthread_mutex_lock(&a->mu);
    a->text_key = key;
    pthread_mutex_unlock(&a->mu);
    add_event(a, "key", "id", str_of(key->id));
}

static void send_anchor(struct audit *a)
{
    struct err e;

    if (!a->syslog_path || !a->file.is_synced || a->n_anchored == a->file.chain.n_lines)
        return;
    if (audit_send_anchor(a->syslog_path, &a->file.chain, a->file.path, &e))
        count_failure(a, "audit_syslog_failed", &e);
    else
        a->n_anchored = a->file.chain.n_lines;
}

static bool is_rotation_due(const struct audit *a, bool is_age_checked)
{
    const struct audit_file *f = &a->file;

    if (f->chain.n_lines - f->first < 2) /* only the event `begin` */
        return false;
    return (a->o.rotate_bytes && f->size >= a->o.rotate_bytes) ||
           (is_age_checked && a->o.rotate_s && clock_wall_s() - f->began_s >= a->o.rotate_s);
}

static void rotate_file(struct audit *a)
{
    struct err e;

    if (audit_file_rotate(&a->file, &e))
        count_failure(a, "audit_rotate_failed", &e);
}

/* Does what is due by size, and at most once in MAINTAIN_MS what is due by age. */
static void maintain(struct audit *a)
{
    bool is_age_checked = clock_ns() >= a->maintain_ns;

    if (is_age_checked) {
        a->maintain_ns = clock_ns() + MAINTAIN_MS * NS_PER_MS;
        rotate_key_if_due(a);
        remove_old_files(a);
        send_anchor(a);
    }
    if (!a->is_failing && is_rotation_due(a, is_age_checked))
        rotate_file(a);
}

/* Waits until `changed` or until the time. The caller holds the mutex. */
static void wait_changed(struct audit *a, uint64_t until_ns)
{
    struct timespec until = { (time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S) };

    if (until_ns == UINT64_MAX)
        pthread_cond_wait(&a->changed, &a->mu);
    else
        pthread_cond_timedwait(&a->changed, &a->mu, &until);
}

/* Moves lines of the queue to the group. The caller holds the mutex. */
static void take_group(struct audit *a, struct group *g)
{
    for (g->n = 0; g->n < GROUP_MAX && a->queue.first; g->n++) {
        struct line *l = LIST_ELEMENT(a->queue.first, struct line, in_queue);
        list_remove(&l->in_queue);
        g->lines[g->n] = l;
    }
}

/* Waits for work and takes the first lines. None: the file is to be reopened or synchronised, or
 * the log is closing and the queue is empty. After a failed write it waits until `retry_ns`. */
static void next_group(struct audit *a, uint64_t retry_ns, struct group *g, bool *want_reopen)
{
    bool may_write;

    pthread_mutex_lock(&a->mu);
    a->stats.end = a->file.chain.n_lines;
    for (;;) {
        may_write = clock_ns() >= retry_ns || a->is_closing;
        if ((may_write && a->queue.first) || a->want_reopen || a->is_closing ||
            clock_ns() >= MIN(a->sync_ns, a->maintain_ns))
            break;
        wait_changed(
            a, MIN(MIN(a->sync_ns, a->maintain_ns), a->queue.first ? retry_ns : UINT64_MAX));
    }
    *want_reopen = a->want_reopen;
    a->want_reopen = false;
    g->n = 0;
    if (may_write && !*want_reopen)
        take_group(a, g);
    pthread_mutex_unlock(&a->mu);
}

static void *write_lines(void *arg)
{
    struct audit *a = arg;
    struct group group;
    uint64_t retry_ns = 0;

    for (;;) {
        bool want_reopen, was_failing = a->is_failing;
        next_group(a, retry_ns, &group, &want_reopen);
        if (want_reopen) {
            reopen_file(a);
            retry_ns = 0;
        } else if (group.n) {
            retry_ns = write_group(a, &group) ? 0 : clock_ns() + RETRY_MS * NS_PER_MS;
            if (was_failing && !a->is_failing)
                log_warn("audit", "audit_write_recovered", "path=\"%s\"", a->file.path);
        }
        sync_if_due(a);
        maintain(a);
        pthread_mutex_lock(&a->mu);
        bool is_over = a->is_closing && (a->is_failing || !a->queue.first) && !a->want_reopen;
        pthread_mutex_unlock(&a->mu);
        if (is_over)
            break;
    }
    a->sync_ns = 0;
    sync_if_due(a);
    send_anchor(a);
    audit_file_close(&a->file);
    return NULL;
}

/* ---- open and close */

static void audit_free(struct audit *a)
{
    LIST_EACH (struct line, l, &a->queue, in_queue)
        mem_free(l);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->mu);
    audit_keys_close(a->keys);
    mem_free(a->syslog_path);
    mem_free(a);
}

/* Whether the file begins like a line of an audit log, or like a checkpoint. */
static bool begins_with(const char *path, const char *head)
{
    char text[16];
    struct err e;
    size_t n = strlen(head);
    int fd;

    CHECK(n <= sizeof(text));
    if (file_open_regular(path, O_RDONLY, &fd, &e))
        return false;
    bool is_equal = !file_read(fd, text, n, 0) && !memcmp(text, head, n);
    close(fd);
    return is_equal;
}

/* The path of the log with `suffix`. The caller frees it. */
static char *path_with(const char *path, const char *suffix)
{
    size_t n = strlen(path) + strlen(suffix) + 1;
    char *out = xmalloc(n);

    snprintf(out, n, "%s%s", path, suffix);
    return out;
}

/* The key file is on the disk before the checkpoint and the first line. If one of them exists, a
 * new key file would hide that the old one was lost. */
static int open_keys(struct audit *a, const struct audit_options *o, struct err *e)
{
    char *beside = path_with(o->path, ".keys"), *checkpoint = path_with(o->path, ".checkpoint");
    const char *path = o->keys_path && *o->keys_path ? o->keys_path : beside;
    bool has_log =
        begins_with(checkpoint, "audit-checkpoint") || begins_with(o->path, "{\"prev\":\"");
    int rc = audit_keys_open(&a->keys, path, !has_log, e);

    if (rc && has_log && e->code == ERR_NOT_FOUND)
        rc = err_set(e, ERR_NOT_FOUND,
            "audit keys %s: absent, but the audit log %s exists; restore the key file, or move the "
            "log and its checkpoint away",
            path, o->path);
    mem_free(beside);
    mem_free(checkpoint);
    if (!rc)
        a->text_key = audit_keys_current(a->keys);
    return rc;
}

static struct audit *new_audit(void)
{
    struct audit *a = xcalloc(1, sizeof(*a));
    pthread_condattr_t attr;

    pthread_mutex_init(&a->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->changed, &attr);
    pthread_condattr_destroy(&attr);
    a->sync_ns = UINT64_MAX;
    a->file.fd = -1;
    return a;
}

int audit_open(struct audit **out, const struct audit_options *o, struct err *e)
{
    struct audit *a = new_audit();
    struct buf torn;
    uint64_t n_torn;

    a->o = *o;
    a->o.path = a->o.keys_path = a->o.syslog_path = NULL;
    if (o->syslog_path && *o->syslog_path)
        a->syslog_path = xstrdup(o->syslog_path);
    buf_init(&torn, TORN_TEXT_MAX);
    if (open_keys(a, o, e) || audit_file_open(&a->file, o->path, a->keys, &torn, &n_torn, e))
        goto fail;
    add_torn(a, &torn, n_torn);
    a->stats.end = a->file.chain.n_lines;
    if (thread_start(&a->thread, "audit", write_lines, a, e)) {
        audit_file_close(&a->file);
        goto fail;
    }
    buf_clear(&torn);
    *out = a;
    return 0;

fail:
    buf_clear(&torn);
    audit_free(a);
    return -1;
}

void audit_close(struct audit *a, uint32_t timeout_ms)
{
    struct timespec until;

    if (!a)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000 + 1; /* whole seconds, rounded up */
    pthread_mutex_lock(&a->mu);
    report_lost(a, SIZE_MAX);
    a->is_closing = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->mu);
    if (pthread_timedjoin_np(a->thread, NULL, &until)) {
        /* The thread waits for the disk and still uses the struct. */
        log_error("audit", "audit_close_timeout", "error=\"the disk does not answer\"");
        pthread_detach(a->thread);
        return;
    }
    size_t n = 0;
    LIST_EACH (struct line, l, &a->queue, in_queue)
        n++;
    if (n)
        log_error("audit", "audit_line_lost", "lines=%zu error=\"the file cannot be written\"", n);
    audit_free(a);
}
