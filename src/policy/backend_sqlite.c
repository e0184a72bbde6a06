/* backend_sqlite.c: backend `sqlite`: the policy in an SQLite database in WAL mode. A commit is on
 * the disk before a change is reported (synchronous = FULL). Several processes may change the
 * policy: a change is stored only if the version is the expected one. */
#include "base/log.h"
#include "base/mem.h"
#include "policy/backend.h"
#include "policy/sql_schema.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>

enum { BUSY_MS = 5000, ATTRIBUTES_AT = 1 };

struct backend_sqlite {
    struct policy_backend base;
    sqlite3 *db;
    char path[1024];
};

static struct backend_sqlite *sqlite_of(struct policy_backend *b)
{
    return container_of(b, struct backend_sqlite, base);
}

static int fail(const struct backend_sqlite *b, struct err *e)
{
    int code = b->db ? sqlite3_errcode(b->db) & 0xff : SQLITE_NOMEM;
    enum errcode cause = code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? ERR_CORRUPT
                         : code == SQLITE_NOMEM                          ? ERR_MEMORY
                                                                         : ERR_IO;

    return err_set(
        e, cause, "policy: %s: %s", b->path, b->db ? sqlite3_errmsg(b->db) : "no memory");
}

static int run_sql(struct backend_sqlite *b, const char *sql, struct err *e)
{
    return sqlite3_exec(b->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(b, e);
}

static int read_number(struct backend_sqlite *b, const char *sql, int64_t *out, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc =
        sqlite3_prepare_v2(b->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW
            ? 0
            : fail(b, e);

    if (!rc)
        *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc;
}

static void roll_back(struct backend_sqlite *b)
{
    struct err e;

    if (run_sql(b, "ROLLBACK", &e))
        log_debug("policy", "rollback_failed", "error=\"%s\"", e.msg);
}

/* ---- schema */

static int migrate_locked(struct backend_sqlite *b, struct err *e)
{
    int64_t version = 0;

    if (read_number(b, "PRAGMA user_version", &version, e))
        return -1;
    if (version < 0 || version > N_SQL_MIGRATIONS)
        return err_set(e, ERR_UNSUPPORTED,
            "policy: %s has schema version %lld, and this program supports versions up to %d",
            b->path, (long long)version, N_SQL_MIGRATIONS);
    for (size_t i = (size_t)version; i < N_SQL_MIGRATIONS; i++) {
        char sql[48];
        snprintf(sql, sizeof(sql), "PRAGMA user_version = %zu", i + 1);
        if (run_sql(b, sql_migrations[SQL_SQLITE][i], e) || run_sql(b, sql, e))
            return -1;
    }
    return 0;
}

static int migrate(struct backend_sqlite *b, struct err *e)
{
    if (run_sql(b, "BEGIN IMMEDIATE", e))
        return -1;
    if (!migrate_locked(b, e) && !run_sql(b, "COMMIT", e))
        return 0;
    roll_back(b);
    return -1;
}

/* ---- file */

static void sqlite_close(struct policy_backend *base)
{
    if (!base)
        return;
    struct backend_sqlite *b = sqlite_of(base);
    sqlite3_close(b->db); /* required even if sqlite3_open_v2 failed */
    mem_free(b);
}

static int sqlite_open(
    struct policy_backend **out, const struct policy_backend_options *o, struct err *e)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    struct stat st;

    if (!stat(o->path, &st) && !S_ISREG(st.st_mode)) /* SQLite would wait for a FIFO */
        return err_set(e, ERR_INVALID, "policy: %s: not a regular file", o->path);
    struct backend_sqlite *b = xcalloc(1, sizeof(*b));
    b->base.ops = &policy_backend_sqlite;
    if (snprintf(b->path, sizeof(b->path), "%s", o->path) >= (int)sizeof(b->path)) {
        mem_free(b);
        return err_set(e, ERR_INVALID, "policy.path is longer than %zu bytes", sizeof(b->path) - 1);
    }
    mode_t mask = umask(0077); /* main thread, before other threads create files */
    int code = sqlite3_open_v2(b->path, &b->db, flags, NULL);
    int failed = -1;
    if (code != SQLITE_OK)
        fail(b, e);
    else if (sqlite3_busy_timeout(b->db, BUSY_MS) == SQLITE_OK)
        failed =
            run_sql(b, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", e) || migrate(b, e);
    umask(mask);
    if (failed) {
        sqlite_close(&b->base);
        return -1;
    }
    *out = &b->base;
    return 0;
}

static int sqlite_version(struct policy_backend *base, uint64_t *out, struct err *e)
{
    int64_t v = 0;

    if (read_number(sqlite_of(base), "SELECT version FROM policy", &v, e))
        return -1;
    *out = (uint64_t)v;
    return 0;
}

/* ---- rows */

static int read_row(
    struct backend_sqlite *b, sqlite3_stmt *s, struct policy_list *out, struct err *e)
{
    const void *digest = sqlite3_column_blob(s, 0);

    if (sqlite3_column_bytes(s, 0) != POLICY_DIGEST_BYTES || !digest)
        return err_set(e, ERR_CORRUPT, "policy: %s: a digest is not 32 bytes long", b->path);
    struct policy_key *k = policy_key_new(digest);
    if (!k)
        return err_set(e, ERR_MEMORY, "no memory for an API key");
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++) {
        int column = (int)i + ATTRIBUTES_AT;
        const unsigned char *p = sqlite3_column_text(s, column);
        struct str text = { (const char *)p, p ? (size_t)sqlite3_column_bytes(s, column) : 0 };
        if (policy_key_set(k, &policy_attributes[i], text, e)) {
            err_wrap(e, "policy: %s: API key %s", b->path, k->id);
            policy_key_unref(k);
            return -1;
        }
    }
    return policy_list_add(out, k, e);
}

static int read_rows(struct backend_sqlite *b, struct policy_list *out, struct err *e)
{
    char sql[SQL_BYTES];
    sqlite3_stmt *s = NULL;

    sql_select_keys(sql, SQL_SQLITE);
    int rc = sqlite3_prepare_v2(b->db, sql, -1, &s, NULL), failed = 0;
    if (rc == SQLITE_OK)
        while (!failed && (rc = sqlite3_step(s)) == SQLITE_ROW)
            failed = read_row(b, s, out, e);
    if (!failed && rc != SQLITE_DONE)
        failed = fail(b, e);
    sqlite3_finalize(s);
    return failed;
}

static struct str text_of(sqlite3_stmt *s, int column)
{
    const unsigned char *p = sqlite3_column_text(s, column);

    return (struct str){ (const char *)p, p ? (size_t)sqlite3_column_bytes(s, column) : 0 };
}

static int read_limits(struct backend_sqlite *b, struct policy_list *out, struct err *e)
{
    sqlite3_stmt *s = NULL;
    struct limit_entry l;
    int rc = sqlite3_prepare_v2(
            b->db, "SELECT subject, version, limit_values FROM limits", -1, &s, NULL),
        failed = 0;

    if (rc == SQLITE_OK)
        while (!failed && (rc = sqlite3_step(s)) == SQLITE_ROW) {
            failed = limit_entry_init(&l, text_of(s, 0), ' ', e) ||
                     limit_entry_read(&l, text_of(s, 2), e);
            l.version = (uint64_t)sqlite3_column_int64(s, 1);
            failed = failed || policy_list_put_limits(out, &l, e);
            if (failed)
                err_wrap(e, "policy: %s: limits", b->path);
        }
    if (!failed && rc != SQLITE_DONE)
        failed = fail(b, e);
    sqlite3_finalize(s);
    return failed;
}

static int read_object(sqlite3_stmt *s, struct policy_list *out, struct err *e)
{
    char subject[OBJECT_SUBJECT_BYTES + 1], name[OBJECT_NAME_MAX + 1];
    struct str kind = text_of(s, 0), own = text_of(s, 1);
    enum policy_object_kind k;
    struct policy_object *o;

    snprintf(subject, sizeof(subject), "%.*s %.*s", (int)MIN(kind.n, (size_t)14), kind.p,
        (int)MIN(own.n, (size_t)OBJECT_NAME_MAX + 1), own.p);
    if (policy_object_subject(str_of(subject), &k, name, e) ||
        policy_object_new(&o, k, name, text_of(s, 3), e))
        return -1;
    o->version = (uint64_t)sqlite3_column_int64(s, 2);
    return policy_list_put_object(out, o, e);
}

static int read_objects(struct backend_sqlite *b, struct policy_list *out, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(
            b->db, "SELECT kind, name, version, body FROM objects", -1, &s, NULL),
        failed = 0;

    if (rc == SQLITE_OK)
        while (!failed && (rc = sqlite3_step(s)) == SQLITE_ROW)
            if ((failed = read_object(s, out, e)))
                err_wrap(e, "policy: %s: objects", b->path);
    if (!failed && rc != SQLITE_DONE)
        failed = fail(b, e);
    sqlite3_finalize(s);
    return failed;
}

/* One transaction, so that all parts belong to the version. */
static int sqlite_load(struct policy_backend *base, struct policy_list *out, struct err *e)
{
    struct backend_sqlite *b = sqlite_of(base);

    if (run_sql(b, "BEGIN", e))
        return -1;
    if (!sqlite_version(base, &out->version, e) && !read_rows(b, out, e) &&
        !read_limits(b, out, e) && !read_objects(b, out, e) && !run_sql(b, "COMMIT", e))
        return 0;
    roll_back(b);
    policy_list_clear(out);
    return -1;
}

/* ---- changes */

static int bind_text(sqlite3_stmt *s, int at, struct str text)
{
    return sqlite3_bind_text(s, at, text.p ? text.p : "", (int)text.n, SQLITE_TRANSIENT);
}

static int insert_row(struct backend_sqlite *b, const struct policy_key *k, struct err *e)
{
    char sql[SQL_BYTES];
    sqlite3_stmt *s = NULL;
    struct buf text;

    buf_init(&text, 2 * POLICY_ATTRIBUTE_BYTES);
    sql_put_key(sql, SQL_SQLITE);
    int rc = sqlite3_prepare_v2(b->db, sql, -1, &s, NULL), at = 1;
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_blob(s, at++, k->digest, POLICY_DIGEST_BYTES, SQLITE_TRANSIENT);
    for (size_t i = 0; rc == SQLITE_OK && i < ARRAY_LEN(policy_attributes); i++) {
        buf_reset(&text);
        policy_attributes[i].write(k, &text);
        rc = buf_ok(&text) ? bind_text(s, at++, buf_str(&text)) : SQLITE_NOMEM;
    }
    if (rc == SQLITE_OK)
        rc = bind_text(s, at, str_of(k->id));
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    int failed = rc == SQLITE_DONE ? 0
                 : buf_ok(&text)   ? fail(b, e)
                                   : err_set(e, ERR_MEMORY, "no memory for an API key");
    sqlite3_finalize(s);
    buf_clear(&text);
    return failed;
}

static int delete_row(struct backend_sqlite *b, const struct policy_key *k, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(b->db, "DELETE FROM api_keys WHERE digest = ?", -1, &s, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_bind_blob(s, 1, k->digest, POLICY_DIGEST_BYTES, SQLITE_TRANSIENT);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    rc = rc == SQLITE_DONE ? 0 : fail(b, e);
    sqlite3_finalize(s);
    return rc;
}

/* Increments the version, if it is the one before `next`. */
static int advance_version(
    struct backend_sqlite *b, const struct policy_snapshot *next, struct err *e)
{
    unsigned long long version = policy_snapshot_version(next);
    char sql[96];

    snprintf(sql, sizeof(sql), "UPDATE policy SET version = %llu WHERE version = %llu", version,
        version - 1);
    if (run_sql(b, sql, e))
        return -1;
    return sqlite3_changes(b->db) == 1
               ? 0
               : err_set(e, ERR_PRECONDITION, "policy: %s: another process has changed the policy",
                     b->path);
}

static int change(struct policy_backend *base, const struct policy_key *key,
    const struct policy_snapshot *next,
    int (*store)(struct backend_sqlite *b, const struct policy_key *k, struct err *e),
    struct err *e)
{
    struct backend_sqlite *b = sqlite_of(base);

    if (run_sql(b, "BEGIN IMMEDIATE", e))
        return -1;
    if (!advance_version(b, next, e) && !store(b, key, e) && !run_sql(b, "COMMIT", e))
        return 0;
    roll_back(b);
    return -1;
}

static int sqlite_put(struct policy_backend *base, const struct policy_key *key,
    const struct policy_snapshot *next, struct err *e)
{
    return change(base, key, next, insert_row, e);
}

static int sqlite_delete(struct policy_backend *base, const struct policy_key *key,
    const struct policy_snapshot *next, struct err *e)
{
    return change(base, key, next, delete_row, e);
}

static int insert_limits(struct backend_sqlite *b, const struct limit_entry *l, struct err *e)
{
    sqlite3_stmt *s = NULL;
    struct buf subject, values;
    int rc = sqlite3_prepare_v2(b->db, "INSERT INTO limits VALUES (?, ?, ?)", -1, &s, NULL);

    buf_init(&subject, LIMIT_ENTRY_NAME_MAX + 16 + LIMIT_VALUES_BYTES);
    buf_init(&values, LIMIT_ENTRY_NAME_MAX + 16 + LIMIT_VALUES_BYTES);
    limit_entry_write_subject(l, ' ', &subject);
    limit_entry_write(l, &values);
    if (rc == SQLITE_OK)
        rc = bind_text(s, 1, buf_str(&subject));
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(s, 2, (int64_t)l->version);
    if (rc == SQLITE_OK)
        rc = bind_text(s, 3, buf_str(&values));
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    bool is_complete = buf_ok(&subject) && buf_ok(&values);
    int failed = !is_complete        ? err_set(e, ERR_MEMORY, "no memory for the limits")
                 : rc == SQLITE_DONE ? 0
                                     : fail(b, e);
    sqlite3_finalize(s);
    buf_clear(&subject);
    buf_clear(&values);
    return failed;
}

static int replace_limits(
    struct backend_sqlite *b, const struct policy_snapshot *next, struct err *e)
{
    const struct limit_set *limits = policy_snapshot_limits(next);

    if (advance_version(b, next, e) || run_sql(b, "DELETE FROM limits", e))
        return -1;
    for (int i = 0; i < limit_set_count(limits); i++)
        if (insert_limits(b, limit_set_at(limits, i), e))
            return -1;
    return 0;
}

static int sqlite_put_limits(
    struct policy_backend *base, const struct policy_snapshot *next, struct err *e)
{
    struct backend_sqlite *b = sqlite_of(base);

    if (run_sql(b, "BEGIN IMMEDIATE", e))
        return -1;
    if (!replace_limits(b, next, e) && !run_sql(b, "COMMIT", e))
        return 0;
    roll_back(b);
    return -1;
}

/* Removes the row of the object, and inserts it with its body if is_put. */
static int store_object(
    struct backend_sqlite *b, const struct policy_object *o, bool is_put, struct err *e)
{
    static const char *const sql[] = { "DELETE FROM objects WHERE kind = ? AND name = ?",
        "INSERT INTO objects VALUES (?, ?, ?, ?)" };

    for (int i = 0; i < 1 + is_put; i++) {
        sqlite3_stmt *s = NULL;
        int rc = sqlite3_prepare_v2(b->db, sql[i], -1, &s, NULL);
        if (rc == SQLITE_OK)
            rc = bind_text(s, 1, str_of(policy_object_kinds[o->kind]));
        if (rc == SQLITE_OK)
            rc = bind_text(s, 2, str_of(o->name));
        if (rc == SQLITE_OK && i)
            rc = sqlite3_bind_int64(s, 3, (int64_t)o->version);
        if (rc == SQLITE_OK && i)
            rc = bind_text(s, 4, o->body);
        if (rc == SQLITE_OK)
            rc = sqlite3_step(s);
        int failed = rc == SQLITE_DONE ? 0 : fail(b, e);
        sqlite3_finalize(s);
        if (failed)
            return -1;
    }
    return 0;
}

static int change_object(struct policy_backend *base, const struct policy_object *o, bool is_put,
    const struct policy_snapshot *next, struct err *e)
{
    struct backend_sqlite *b = sqlite_of(base);

    if (run_sql(b, "BEGIN IMMEDIATE", e))
        return -1;
    if (!advance_version(b, next, e) && !store_object(b, o, is_put, e) && !run_sql(b, "COMMIT", e))
        return 0;
    roll_back(b);
    return -1;
}

static int sqlite_put_object(struct policy_backend *base, const struct policy_object *o,
    const struct policy_snapshot *next, struct err *e)
{
    return change_object(base, o, true, next, e);
}

static int sqlite_delete_object(struct policy_backend *base, const struct policy_object *o,
    const struct policy_snapshot *next, struct err *e)
{
    return change_object(base, o, false, next, e);
}

const struct policy_backend_ops policy_backend_sqlite = { .name = "sqlite",
    .open = sqlite_open,
    .load = sqlite_load,
    .put = sqlite_put,
    .delete = sqlite_delete,
    .put_limits = sqlite_put_limits,
    .put_object = sqlite_put_object,
    .delete_object = sqlite_delete_object,
    .version = sqlite_version,
    .close = sqlite_close };
