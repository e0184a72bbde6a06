#include "policy/login_store.h"

#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>

enum { BUSY_MS = 5000 };

enum column {
    COLUMN_DIGEST,
    COLUMN_KEY_DIGEST,
    COLUMN_ISSUER,
    COLUMN_CREATED,
    COLUMN_USED,
    COLUMN_EXPIRES,
    COLUMN_CLAIMS
};

struct login_store {
    sqlite3 *db;
    const char *issuer; /* of the rules; "" = none */
    char path[1024];
};

static const char schema[] = "CREATE TABLE IF NOT EXISTS logins ("
                             " digest BLOB PRIMARY KEY NOT NULL CHECK (length(digest) = 32),"
                             " key_digest BLOB NOT NULL CHECK (length(key_digest) = 32),"
                             " issuer TEXT NOT NULL,"
                             " created INTEGER NOT NULL,"
                             " used INTEGER NOT NULL,"
                             " expires INTEGER NOT NULL,"
                             " claims TEXT NOT NULL)";

static const char put[] = "INSERT OR REPLACE INTO logins VALUES (?, ?, ?, ?, ?, ?, ?)";
static const char select_all[] = "SELECT * FROM logins ORDER BY created";

static int fail(const struct login_store *s, struct err *e)
{
    int code = s->db ? sqlite3_errcode(s->db) & 0xff : SQLITE_NOMEM;
    enum errcode cause = code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? ERR_CORRUPT
                         : code == SQLITE_NOMEM                          ? ERR_MEMORY
                                                                         : ERR_IO;

    return err_set(
        e, cause, "logins: %s: %s", s->path, s->db ? sqlite3_errmsg(s->db) : "no memory");
}

static int run_sql(struct login_store *s, const char *sql, struct err *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(s, e);
}

static bool bind_digest(sqlite3_stmt *q, int at, const uint8_t *digest)
{
    return sqlite3_bind_blob(q, at, digest, POLICY_DIGEST_BYTES, SQLITE_TRANSIENT) == SQLITE_OK;
}

static bool bind_text(sqlite3_stmt *q, int at, struct str text)
{
    return sqlite3_bind_text(q, at, text.p ? text.p : "", (int)text.n, SQLITE_TRANSIENT) ==
           SQLITE_OK;
}

int login_store_put(struct login_store *s, const struct login_row *r, struct err *e)
{
    const int64_t times[] = { r->created_s, r->used_s, r->stored_expires_s };
    sqlite3_stmt *q = NULL;

    bool is_bound = sqlite3_prepare_v2(s->db, put, -1, &q, NULL) == SQLITE_OK &&
                    bind_digest(q, COLUMN_DIGEST + 1, r->digest) &&
                    bind_digest(q, COLUMN_KEY_DIGEST + 1, r->key_digest) &&
                    bind_text(q, COLUMN_ISSUER + 1, str_of(r->key ? s->issuer : "")) &&
                    bind_text(q, COLUMN_CLAIMS + 1, str_of(r->key ? r->key->claims : ""));
    for (int i = 0; i < (int)ARRAY_LEN(times) && is_bound; i++)
        is_bound = sqlite3_bind_int64(q, COLUMN_CREATED + i + 1, times[i]) == SQLITE_OK;
    int failed = is_bound && sqlite3_step(q) == SQLITE_DONE ? 0 : fail(s, e);
    sqlite3_finalize(q);
    return failed;
}

int login_store_delete(
    struct login_store *s, const uint8_t digest[POLICY_DIGEST_BYTES], struct err *e)
{
    sqlite3_stmt *q = NULL;
    bool is_bound = sqlite3_prepare_v2(
                        s->db, "DELETE FROM logins WHERE digest = ?", -1, &q, NULL) == SQLITE_OK &&
                    bind_digest(q, 1, digest);

    int failed = is_bound && sqlite3_step(q) == SQLITE_DONE ? 0 : fail(s, e);
    sqlite3_finalize(q);
    return failed;
}

/* ---- load */

static struct str text_of(sqlite3_stmt *q, int column)
{
    const unsigned char *p = sqlite3_column_text(q, column);

    return (struct str){ (const char *)p, p ? (size_t)sqlite3_column_bytes(q, column) : 0 };
}

/* The key of a user, which expires with its login. */
static int read_key(sqlite3_stmt *q, struct login_row *r, struct err *e)
{
    struct policy_key *k = policy_key_new(r->key_digest);
    struct str claims = text_of(q, COLUMN_CLAIMS);

    if (!k || !(k->claims = try_malloc(claims.n + 1))) {
        policy_key_unref(k);
        return err_set(e, ERR_MEMORY, "no memory for the logins");
    }
    snprintf(k->claims, claims.n + 1, STR_FMT, STR_ARG(claims));
    k->scopes = SCOPE_NONE;
    k->expires_at = r->expires_s;
    k->is_token = true;
    r->key = k;
    return 0;
}

static int read_row(struct login_store *s, sqlite3_stmt *q, struct login_row *r, struct err *e)
{
    const void *digest = sqlite3_column_blob(q, COLUMN_DIGEST);
    const void *key_digest = sqlite3_column_blob(q, COLUMN_KEY_DIGEST);

    *r = (struct login_row){ .created_s = sqlite3_column_int64(q, COLUMN_CREATED),
        .used_s = sqlite3_column_int64(q, COLUMN_USED),
        .expires_s = sqlite3_column_int64(q, COLUMN_EXPIRES) };
    if (!digest || !key_digest || sqlite3_column_bytes(q, COLUMN_DIGEST) != POLICY_DIGEST_BYTES ||
        sqlite3_column_bytes(q, COLUMN_KEY_DIGEST) != POLICY_DIGEST_BYTES)
        return err_set(e, ERR_CORRUPT, "logins: %s: a digest is not 32 bytes long", s->path);
    memcpy(r->digest, digest, sizeof(r->digest));
    memcpy(r->key_digest, key_digest, sizeof(r->key_digest));
    for (int i = 0; i < KEY_ID_BYTES; i++)
        snprintf(r->id + (ptrdiff_t)2 * i, 3, "%02x", r->key_digest[i]);
    r->stored_expires_s = r->expires_s;
    return text_of(q, COLUMN_ISSUER).n ? read_key(q, r, e) : 0;
}

static int remove_old(struct login_store *s, int64_t now_s, struct err *e)
{
    sqlite3_stmt *q = NULL;
    bool is_bound = sqlite3_prepare_v2(s->db,
                        "DELETE FROM logins WHERE expires <= ?1 OR (issuer != '' AND issuer != ?2)",
                        -1, &q, NULL) == SQLITE_OK &&
                    sqlite3_bind_int64(q, 1, now_s) == SQLITE_OK &&
                    bind_text(q, 2, str_of(s->issuer));

    int failed = is_bound && sqlite3_step(q) == SQLITE_DONE ? 0 : fail(s, e);
    sqlite3_finalize(q);
    return failed;
}

int login_store_load(struct login_store *s, const struct token_rules *rules, int64_t now_s,
    int (*add)(void *ctx, const struct login_row *row, struct err *e), void *ctx, struct err *e)
{
    sqlite3_stmt *q = NULL;
    struct login_row r;
    int rc = SQLITE_DONE;

    s->issuer = rules ? rules->jwt.issuer.p : "";
    if (remove_old(s, now_s, e))
        return -1;
    int failed = sqlite3_prepare_v2(s->db, select_all, -1, &q, NULL) == SQLITE_OK ? 0 : fail(s, e);
    while (!failed && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        failed = read_row(s, q, &r, e) || add(ctx, &r, e);
        policy_key_unref(r.key);
    }
    if (!failed && rc != SQLITE_DONE)
        failed = fail(s, e);
    sqlite3_finalize(q);
    return failed ? -1 : 0;
}

/* ---- file */

int login_store_open(struct login_store **out, const char *path, struct err *e)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    struct stat st;

    if (*path && !stat(path, &st) && !S_ISREG(st.st_mode)) /* SQLite would wait for a FIFO */
        return err_set(e, ERR_INVALID, "logins: %s: not a regular file", path);
    struct login_store *s = xcalloc(1, sizeof(*s));
    s->issuer = "";
    if (snprintf(s->path, sizeof(s->path), "%s", *path ? path : ":memory:") >=
        (int)sizeof(s->path)) {
        mem_free(s);
        return err_set(
            e, ERR_INVALID, "auth.login.path is longer than %zu bytes", sizeof(s->path) - 1);
    }
    mode_t mask = umask(0077); /* main thread, before other threads create files */
    int failed = sqlite3_open_v2(s->path, &s->db, flags, NULL) == SQLITE_OK &&
                         sqlite3_busy_timeout(s->db, BUSY_MS) == SQLITE_OK
                     ? 0
                     : fail(s, e);
    umask(mask);
    if (failed || run_sql(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", e) ||
        run_sql(s, schema, e)) {
        login_store_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

void login_store_close(struct login_store *s)
{
    if (!s)
        return;
    sqlite3_close(s->db); /* required even if sqlite3_open_v2 failed */
    mem_free(s);
}
