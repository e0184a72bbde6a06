#include "audit/index_store.h"

#include "base/mem.h"
#include "os/clock.h"
#include "os/files.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

enum { BUSY_MS = 1000, FIND_MS = 5000, CHECK_STEPS = 10000, SQL_BYTES = 512, SCHEMA_VERSION = 1 };

struct index_store {
    sqlite3 *db;
    sqlite3_stmt *add;
    char *path;
    uint64_t find_end_ns;
};

static const char schema[] =
    "CREATE TABLE files (first INTEGER PRIMARY KEY, done INTEGER NOT NULL, mac TEXT NOT NULL);"
    "CREATE TABLE lines ("
    " seq INTEGER PRIMARY KEY,"
    " time INTEGER NOT NULL,"
    " key TEXT NOT NULL,"
    " tenant TEXT NOT NULL,"
    " model TEXT NOT NULL,"
    " action TEXT NOT NULL,"
    " status INTEGER NOT NULL,"
    " file INTEGER NOT NULL,"
    " offset INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL);"
    "CREATE INDEX lines_key ON lines (key);"
    "CREATE INDEX lines_tenant ON lines (tenant);"
    "CREATE INDEX lines_time ON lines (time);"
    "PRAGMA user_version = 1";

static int fail(struct index_store *s, struct err *e)
{
    int code = s->db ? sqlite3_errcode(s->db) & 0xff : SQLITE_NOMEM;
    enum errcode cause = code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? ERR_CORRUPT
                         : code == SQLITE_NOMEM                          ? ERR_MEMORY
                         : code == SQLITE_INTERRUPT                      ? ERR_TIMEOUT
                                                                         : ERR_IO;

    return err_set(e, cause, "index of the audit log %s: %s", s->path,
        s->db ? sqlite3_errmsg(s->db) : "no memory");
}

static int run_sql(struct index_store *s, const char *sql, struct err *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(s, e);
}

static int prepare(struct index_store *s, const char *sql, sqlite3_stmt **out, struct err *e)
{
    return sqlite3_prepare_v2(s->db, sql, -1, out, NULL) == SQLITE_OK ? 0 : fail(s, e);
}

/* Runs a statement that returns no row, and finalizes it. */
static int finish(struct index_store *s, sqlite3_stmt *st, struct err *e)
{
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : fail(s, e);

    sqlite3_finalize(st);
    return rc;
}

/* ---- file */

static int has_expired(void *ctx)
{
    const struct index_store *s = ctx;

    return s->find_end_ns && clock_ns() > s->find_end_ns;
}

static int check_schema(struct index_store *s, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(s, "PRAGMA user_version", &st, e);
    int version = !rc && sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int(st, 0) : -1;

    sqlite3_finalize(st);
    if (rc)
        return rc;
    if (version < 0)
        return fail(s, e);
    if (version == SCHEMA_VERSION)
        return 0;
    if (version)
        return err_set(e, ERR_CORRUPT, "index of the audit log %s: schema %d", s->path, version);
    return run_sql(s, "BEGIN", e) || run_sql(s, schema, e) || run_sql(s, "COMMIT", e) ? -1 : 0;
}

/* SQLite would create the file with the umask of the process, and would wait for a FIFO. */
static int create_file(const char *path, struct err *e)
{
    int fd;

    if (file_open_regular(path, O_RDWR | O_CREAT, &fd, e))
        return err_wrap(e, "index of the audit log");
    close(fd);
    return 0;
}

int index_store_open(struct index_store **out, const char *path, struct err *e)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;

    if (create_file(path, e))
        return -1;
    struct index_store *s = xcalloc(1, sizeof(*s));
    s->path = xstrdup(path);
    if (sqlite3_open_v2(path, &s->db, flags, NULL) != SQLITE_OK) {
        fail(s, e);
        goto fail;
    }
    sqlite3_busy_timeout(s->db, BUSY_MS);
    sqlite3_progress_handler(s->db, CHECK_STEPS, has_expired, s);
    if (run_sql(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", e) ||
        check_schema(s, e) ||
        prepare(
            s, "INSERT OR REPLACE INTO lines VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)", &s->add, e))
        goto fail;
    *out = s;
    return 0;

fail:
    index_store_close(s);
    return -1;
}

void index_store_close(struct index_store *s)
{
    if (!s)
        return;
    sqlite3_finalize(s->add);
    sqlite3_close(s->db);
    mem_free(s->path);
    mem_free(s);
}

void index_store_remove(const char *path)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    size_t n = strlen(path) + sizeof("-wal");
    char *name = xmalloc(n);

    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        snprintf(name, n, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    mem_free(name);
}

int index_store_begin(struct index_store *s, struct err *e)
{
    return run_sql(s, "BEGIN IMMEDIATE", e);
}

int index_store_commit(struct index_store *s, struct err *e)
{
    return run_sql(s, "COMMIT", e);
}

void index_store_rollback(struct index_store *s)
{
    struct err ignored;

    if (!sqlite3_get_autocommit(s->db)) /* SQLite may have done so after an error */
        run_sql(s, "ROLLBACK", &ignored);
}

/* ---- writing */

static void bind_text(sqlite3_stmt *st, int at, struct str text)
{
    sqlite3_bind_text(st, at, text.n ? text.p : "", (int)text.n, SQLITE_STATIC);
}

int index_store_add(struct index_store *s, const struct index_row *r, struct err *e)
{
    sqlite3_bind_int64(s->add, 1, (sqlite3_int64)r->seq);
    sqlite3_bind_int64(s->add, 2, r->time_s);
    bind_text(s->add, 3, r->key);
    bind_text(s->add, 4, r->tenant);
    bind_text(s->add, 5, r->model);
    bind_text(s->add, 6, r->action);
    sqlite3_bind_int64(s->add, 7, r->status);
    sqlite3_bind_int64(s->add, 8, (sqlite3_int64)r->file);
    sqlite3_bind_int64(s->add, 9, (sqlite3_int64)r->offset);
    sqlite3_bind_int64(s->add, 10, (sqlite3_int64)r->bytes);
    int rc = sqlite3_step(s->add) == SQLITE_DONE ? 0 : fail(s, e);
    sqlite3_reset(s->add);
    return rc;
}

int index_store_files(struct index_store *s, struct index_file **out, int *n, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int code;

    *out = NULL;
    *n = 0;
    if (prepare(s, "SELECT first, done, mac FROM files ORDER BY first", &st, e))
        return -1;
    while ((code = sqlite3_step(st)) == SQLITE_ROW) {
        *out = xrealloc(*out, (size_t)(*n + 1) * sizeof(**out));
        struct index_file *f = &(*out)[(*n)++];
        f->first = (uint64_t)sqlite3_column_int64(st, 0);
        f->done = (uint64_t)sqlite3_column_int64(st, 1);
        const unsigned char *mac = sqlite3_column_text(st, 2);
        snprintf(f->mac, sizeof(f->mac), "%s", mac ? (const char *)mac : "");
    }
    int rc = code == SQLITE_DONE ? 0 : fail(s, e);
    sqlite3_finalize(st);
    if (rc) {
        mem_free(*out);
        *out = NULL;
        *n = 0;
    }
    return rc;
}

int index_store_put_file(struct index_store *s, const struct index_file *f, struct err *e)
{
    sqlite3_stmt *st = NULL;

    if (prepare(s, "INSERT OR REPLACE INTO files VALUES (?1, ?2, ?3)", &st, e))
        return -1;
    sqlite3_bind_int64(st, 1, (sqlite3_int64)f->first);
    sqlite3_bind_int64(st, 2, (sqlite3_int64)f->done);
    bind_text(st, 3, str_of(f->mac));
    return finish(s, st, e);
}

int index_store_drop_file(struct index_store *s, uint64_t first, struct err *e)
{
    static const char *const sql[] = {
        "DELETE FROM lines WHERE file = ?1 AND seq >= ?1 AND seq < "
        "ifnull((SELECT min(first) FROM files WHERE first > ?1), 1 << 62)",
        "DELETE FROM files WHERE first = ?1"
    };

    for (size_t i = 0; i < ARRAY_LEN(sql); i++) {
        sqlite3_stmt *st = NULL;
        if (prepare(s, sql[i], &st, e))
            return -1;
        sqlite3_bind_int64(st, 1, (sqlite3_int64)first);
        if (finish(s, st, e))
            return -1;
    }
    return 0;
}

/* ---- search */

struct condition {
    const char *sql;
    bool is_set;
    struct str text; /* .p NULL: `number` is bound */
    int64_t number;
};

static struct condition text_condition(const char *sql, const struct audit_filter_text *t)
{
    return (struct condition){ sql, t->is_set, { t->text, strlen(t->text) }, 0 };
}

int index_store_find(struct index_store *s, const struct audit_filter *f, struct index_row rows[],
    int *n, struct err *e)
{
    const struct condition all[] = {
        { "seq < ?", f->has_before, STR_NONE, (int64_t)MIN(f->before, (uint64_t)INT64_MAX) },
        { "time >= ?", f->has_from, STR_NONE, f->from_s },
        { "time <= ?", f->has_to, STR_NONE, f->to_s },
        { "status = ?", f->has_status, STR_NONE, f->status },
        text_condition("key = ?", &f->key),
        text_condition("tenant = ?", &f->tenant),
        text_condition("model = ?", &f->model),
        text_condition("action = ?", &f->action),
    };
    char sql[SQL_BYTES] = "SELECT seq, file, offset, bytes FROM lines";
    sqlite3_stmt *st = NULL;
    const char *word = " WHERE ";
    int at = 1, code;

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].is_set) {
            size_t used = strlen(sql);
            snprintf(sql + used, sizeof(sql) - used, "%s%s", word, all[i].sql);
            word = " AND ";
        }
    size_t used = strlen(sql);
    snprintf(sql + used, sizeof(sql) - used, " ORDER BY seq DESC LIMIT ?");
    *n = 0;
    if (prepare(s, sql, &st, e))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].is_set && all[i].text.p)
            bind_text(st, at++, all[i].text);
        else if (all[i].is_set)
            sqlite3_bind_int64(st, at++, all[i].number);
    sqlite3_bind_int(st, at, f->limit + 1);
    s->find_end_ns = clock_ns() + FIND_MS * NS_PER_MS;
    while ((code = sqlite3_step(st)) == SQLITE_ROW)
        rows[(*n)++] = (struct index_row){ .seq = (uint64_t)sqlite3_column_int64(st, 0),
            .file = (uint64_t)sqlite3_column_int64(st, 1),
            .offset = (uint64_t)sqlite3_column_int64(st, 2),
            .bytes = (uint32_t)sqlite3_column_int64(st, 3) };
    s->find_end_ns = 0;
    int rc = code == SQLITE_DONE ? 0 : fail(s, e);
    sqlite3_finalize(st);
    return rc;
}
