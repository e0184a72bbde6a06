#include "limits/usage.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "limits/calendar.h"
#include "os/clock.h"
#include "os/thread.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>

enum { MSG_STOP = -1, FLUSH_MS = 1000, BUSY_MS = 5000, SLOTS = 1024, ROWS_MAX = 1 << 20 };

struct pending { /* sums that are not stored */
    struct pending *next;
    struct usage_row row;
};

struct usage {
    sqlite3 *db; /* usage thread, once it runs */
    char path[1024];
    struct mailbox *mailbox;
    pthread_t thread;
    bool has_thread, is_stopping, has_failed;
    int64_t pruned_hour;
    struct msg stop;

    pthread_mutex_t mu;
    struct pending *slots[SLOTS];
    int n_rows;
    uint64_t n_lost;
};

static const char schema[] = "CREATE TABLE IF NOT EXISTS usage ("
                             " id INTEGER PRIMARY KEY AUTOINCREMENT,"
                             " hour INTEGER NOT NULL,"
                             " key TEXT NOT NULL,"
                             " tenant TEXT NOT NULL,"
                             " model TEXT NOT NULL,"
                             " requests INTEGER NOT NULL,"
                             " prompt_tokens INTEGER NOT NULL,"
                             " output_tokens INTEGER NOT NULL,"
                             " cost INTEGER NOT NULL,"
                             " UNIQUE (hour, key, tenant, model))";

static const char upsert[] =
    "INSERT INTO usage (hour, key, tenant, model, requests, prompt_tokens, output_tokens,"
    " cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (hour, key, tenant, model) DO UPDATE SET"
    " requests = requests + excluded.requests,"
    " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
    " output_tokens = output_tokens + excluded.output_tokens,"
    " cost = cost + excluded.cost";

static const char select_rows[] =
    "SELECT id, hour, key, tenant, model, requests, prompt_tokens, output_tokens,"
    " cost FROM usage WHERE hour >= ?1 AND hour < ?2 AND id > ?3 AND (?4 = '' OR key = ?4)"
    " AND (?5 = '' OR tenant = ?5) AND (?6 = '' OR model = ?6) ORDER BY id LIMIT ?7";

static const char select_sums[] =
    "SELECT key, tenant, model, hour >= ?2, MIN(TOTAL(prompt_tokens + output_tokens), 1e15),"
    " MIN(TOTAL(cost), 9e18) FROM usage WHERE hour >= ?1 GROUP BY key, tenant, model, hour >= ?2";

static int fail(const struct usage *u, struct err *e)
{
    int code = u->db ? sqlite3_errcode(u->db) & 0xff : SQLITE_NOMEM;
    enum errcode cause = code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? ERR_CORRUPT
                         : code == SQLITE_NOMEM                          ? ERR_MEMORY
                                                                         : ERR_IO;

    return err_set(e, cause, "usage: %s: %s", u->path, u->db ? sqlite3_errmsg(u->db) : "no memory");
}

static int run_sql(struct usage *u, const char *sql, struct err *e)
{
    return sqlite3_exec(u->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(u, e);
}

static int prepare(struct usage *u, sqlite3_stmt **s, const char *sql, struct err *e)
{
    return sqlite3_prepare_v2(u->db, sql, -1, s, NULL) == SQLITE_OK ? 0 : fail(u, e);
}

/* Texts are borrowed until the statement is reset. */
static bool bind_texts(
    sqlite3_stmt *s, int at, const char *key, const char *tenant, const char *model)
{
    const char *const texts[] = { key, tenant, model };

    for (int i = 0; i < 3; i++)
        if (sqlite3_bind_text(s, at + i, texts[i], -1, SQLITE_STATIC) != SQLITE_OK)
            return false;
    return true;
}

static bool bind_numbers(sqlite3_stmt *s, int at, const int64_t *numbers, int n)
{
    for (int i = 0; i < n; i++)
        if (sqlite3_bind_int64(s, at + i, numbers[i]) != SQLITE_OK)
            return false;
    return true;
}

/* ---- sums in memory */

static bool is_same(const struct usage_row *a, const struct usage_row *b)
{
    return a->hour == b->hour && !strcmp(a->key, b->key) && !strcmp(a->tenant, b->tenant) &&
           !strcmp(a->model, b->model);
}

static void add_numbers(struct usage_row *to, const struct usage_row *n)
{
    to->requests += n->requests;
    to->prompt += n->prompt;
    to->output += n->output;
    to->cost += n->cost;
}

static struct pending **slot_of(struct usage *u, const struct usage_row *row)
{
    uint64_t h = hash_bytes((uint64_t)row->hour, row->key, strlen(row->key));

    return &u->slots[hash_bytes(h, row->model, strlen(row->model)) % SLOTS];
}

void usage_add(struct usage *u, const struct usage_row *row)
{
    pthread_mutex_lock(&u->mu);
    struct pending **slot = slot_of(u, row), *p = *slot;
    while (p && !is_same(&p->row, row))
        p = p->next;
    if (p) {
        add_numbers(&p->row, row);
    } else if (u->n_rows < ROWS_MAX && (p = try_malloc(sizeof(*p)))) {
        *p = (struct pending){ *slot, *row };
        *slot = p;
        u->n_rows++;
    }
    u->n_lost += !p;
    pthread_mutex_unlock(&u->mu);
}

/* Moves the sums out, as one list. */
static struct pending *take_pending(struct usage *u)
{
    struct pending *all = NULL;

    pthread_mutex_lock(&u->mu);
    for (int i = 0; u->n_rows && i < SLOTS; i++)
        for (struct pending *p; (p = u->slots[i]);) {
            u->slots[i] = p->next;
            p->next = all;
            all = p;
        }
    u->n_rows = 0;
    uint64_t n_lost = u->n_lost;
    u->n_lost = 0;
    pthread_mutex_unlock(&u->mu);
    if (n_lost)
        log_error("usage", "lost", "n=%llu", (unsigned long long)n_lost);
    return all;
}

static void free_pending(struct pending *p)
{
    for (struct pending *next; p; p = next) {
        next = p->next;
        mem_free(p);
    }
}

/* ---- database; usage thread */

static int store_row(struct usage *u, sqlite3_stmt *s, const struct usage_row *r, struct err *e)
{
    const int64_t numbers[] = { r->requests, r->prompt, r->output, r->cost };

    if (!bind_numbers(s, 1, &r->hour, 1) || !bind_texts(s, 2, r->key, r->tenant, r->model) ||
        !bind_numbers(s, 5, numbers, ARRAY_LEN(numbers)) || sqlite3_step(s) != SQLITE_DONE)
        return fail(u, e);
    sqlite3_reset(s);
    return 0;
}

static int store_rows(struct usage *u, const struct pending *all, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int failed = prepare(u, &s, upsert, e);

    for (const struct pending *p = all; p && !failed; p = p->next)
        failed = store_row(u, s, &p->row, e);
    sqlite3_finalize(s);
    return failed;
}

static int store(struct usage *u, const struct pending *all, struct err *e)
{
    struct err ignored;

    if (run_sql(u, "BEGIN IMMEDIATE", e))
        return -1;
    if (!store_rows(u, all, e) && !run_sql(u, "COMMIT", e))
        return 0;
    if (run_sql(u, "ROLLBACK", &ignored))
        log_debug("usage", "rollback_failed", "error=\"%s\"", ignored.msg);
    return -1;
}

/* Once an hour. */
static void prune(struct usage *u)
{
    int64_t hour = calendar_hour(clock_wall_s());
    char sql[80];
    struct err e;

    if (hour == u->pruned_hour)
        return;
    u->pruned_hour = hour;
    snprintf(sql, sizeof(sql), "DELETE FROM usage WHERE hour < %lld",
        (long long)(hour - USAGE_DAYS * 24));
    if (run_sql(u, sql, &e))
        log_warn("usage", "prune_failed", "error=\"%s\"", e.msg);
}

static int flush(struct usage *u, struct err *e)
{
    struct pending *all = take_pending(u);
    int failed = all ? store(u, all, e) : 0;

    if (failed && !u->has_failed)
        log_error("usage", "store_failed", "error=\"%s\"", e->msg);
    if (all)
        u->has_failed = failed;
    for (const struct pending *p = all; failed && p; p = p->next)
        usage_add(u, &p->row);
    free_pending(all);
    if (!failed)
        prune(u);
    return failed;
}

static void copy_text(char *out, size_t n, sqlite3_stmt *s, int column)
{
    const char *text = (const char *)sqlite3_column_text(s, column);

    snprintf(out, n, "%s", text ? text : "");
}

static void read_row(struct usage_row *r, sqlite3_stmt *s)
{
    r->id = sqlite3_column_int64(s, 0);
    r->hour = sqlite3_column_int64(s, 1);
    copy_text(r->key, sizeof(r->key), s, 2);
    copy_text(r->tenant, sizeof(r->tenant), s, 3);
    copy_text(r->model, sizeof(r->model), s, 4);
    r->requests = sqlite3_column_int64(s, 5);
    r->prompt = sqlite3_column_int64(s, 6);
    r->output = sqlite3_column_int64(s, 7);
    r->cost = sqlite3_column_int64(s, 8);
}

static int select_page(struct usage *u, struct usage_query *q, sqlite3_stmt *s, struct err *e)
{
    const int64_t numbers[] = { q->from_hour, q->to_hour, q->after_id }, limit = q->n_max + 1;
    int rc = SQLITE_DONE;

    if (!bind_numbers(s, 1, numbers, ARRAY_LEN(numbers)) ||
        !bind_texts(s, 4, q->key, q->tenant, q->model) || !bind_numbers(s, 7, &limit, 1))
        return fail(u, e);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW && q->n < q->n_max)
        read_row(&q->rows[q->n++], s);
    q->has_more = rc == SQLITE_ROW;
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : fail(u, e);
}

static void answer(struct usage *u, struct usage_query *q)
{
    sqlite3_stmt *s = NULL;

    q->n = 0;
    q->err.code = ERR_NONE;
    if (!flush(u, &q->err) && !prepare(u, &s, select_rows, &q->err) &&
        !select_page(u, q, s, &q->err))
        q->err.code = ERR_NONE;
    sqlite3_finalize(s);
    mailbox_post(q->reply_to, &q->msg);
}

static void *run(void *arg)
{
    struct usage *u = arg;
    uint64_t flush_ns = clock_ns() + FLUSH_MS * NS_PER_MS;
    struct err e;

    while (!u->is_stopping) {
        struct msg *next;
        mailbox_wait(u->mailbox, flush_ns);
        for (struct msg *m = mailbox_drain(u->mailbox); m; m = next) {
            next = m->next;
            if (m == &u->stop)
                u->is_stopping = true;
            else
                answer(u, container_of(m, struct usage_query, msg));
        }
        if (clock_ns() >= flush_ns || u->is_stopping) {
            flush(u, &e); /* logs a failure */
            flush_ns = clock_ns() + FLUSH_MS * NS_PER_MS;
        }
    }
    return NULL;
}

void usage_post(struct usage *u, struct usage_query *take)
{
    CHECK(take->n_max >= 1 && take->n_max <= USAGE_PAGE_MAX);
    mailbox_post(u->mailbox, &take->msg);
}

/* ---- life */

static int open_database(struct usage *u, const char *path, struct err *e)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    struct stat st;

    if (*path && !stat(path, &st) && !S_ISREG(st.st_mode)) /* SQLite would wait for a FIFO */
        return err_set(e, ERR_INVALID, "usage: %s: not a regular file", path);
    if (snprintf(u->path, sizeof(u->path), "%s", *path ? path : ":memory:") >= (int)sizeof(u->path))
        return err_set(e, ERR_INVALID, "usage: the path is too long");
    mode_t mask = umask(0077); /* main thread, before other threads create files */
    int rc = sqlite3_open_v2(u->path, &u->db, flags, NULL);
    umask(mask);
    if (rc != SQLITE_OK || sqlite3_busy_timeout(u->db, BUSY_MS) != SQLITE_OK)
        return fail(u, e);
    return run_sql(u, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", e) ||
                   run_sql(u, schema, e)
               ? -1
               : 0;
}

int usage_open(struct usage **out, const char *path, struct err *e)
{
    struct usage *u = xcalloc(1, sizeof(*u));

    pthread_mutex_init(&u->mu, NULL);
    if (mailbox_open(&u->mailbox, e) || open_database(u, path, e)) {
        usage_close(u);
        return -1;
    }
    *out = u;
    return 0;
}

static int restore_row(
    struct limiter *l, sqlite3_stmt *s, const struct limit_time *t, struct err *e)
{
    for (int k = 0; k < N_LIMIT_KINDS; k++) {
        static const int columns[] = {
            [LIMIT_OF_KEY] = 0, [LIMIT_OF_TENANT] = 1, [LIMIT_OF_MODEL] = 2
        };
        const char *name = (const char *)sqlite3_column_text(s, columns[k]);
        struct limit_restored r = { (enum limit_kind)k, name, (int64_t)sqlite3_column_double(s, 4),
            (int64_t)sqlite3_column_double(s, 5), false };
        if (!name)
            return err_set(e, ERR_MEMORY, "no memory for the rate limits");
        if (k == LIMIT_OF_KEY && !*name)
            r.name = "anonymous";
        if (!*r.name)
            continue;
        if (limiter_restore(l, &r, t, e))
            return -1;
        r.is_today = true;
        if (sqlite3_column_int(s, 3) && limiter_restore(l, &r, t, e))
            return -1;
    }
    return 0;
}

int usage_restore(struct usage *u, struct limiter *l, const struct limit_time *t, struct err *e)
{
    int64_t now_s = limiter_date(l, t), month_s = now_s;
    sqlite3_stmt *s = NULL;
    int rc = SQLITE_DONE, failed = prepare(u, &s, select_sums, e);

    while (calendar_month(month_s - 86400) == calendar_month(now_s))
        month_s -= 86400;
    const int64_t hours[] = { calendar_day(month_s) * 24, calendar_day(now_s) * 24 };
    if (!failed && !bind_numbers(s, 1, hours, ARRAY_LEN(hours)))
        failed = fail(u, e);
    while (!failed && (rc = sqlite3_step(s)) == SQLITE_ROW)
        failed = restore_row(l, s, t, e);
    if (!failed && rc != SQLITE_DONE)
        failed = fail(u, e);
    sqlite3_finalize(s);
    return failed;
}

int usage_start(struct usage *u, struct err *e)
{
    if (thread_start(&u->thread, "usage", run, u, e))
        return -1;
    u->has_thread = true;
    return 0;
}

void usage_close(struct usage *u)
{
    if (!u)
        return;
    if (u->has_thread) {
        u->stop.kind = MSG_STOP;
        mailbox_post(u->mailbox, &u->stop);
        pthread_join(u->thread, NULL);
    }
    free_pending(take_pending(u));
    sqlite3_close(u->db); /* required even if sqlite3_open_v2 failed */
    if (u->mailbox)
        mailbox_close(u->mailbox);
    pthread_mutex_destroy(&u->mu);
    mem_free(u);
}
