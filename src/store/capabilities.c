#include "store/capabilities.h"

#include "base/log.h"
#include "base/mem.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUSY_MS = 5000, DAMAGED_MAX = 100 };

struct capabilities {
    sqlite3 *db;
    char path[1024];
};

/* Migration i changes the schema from version i to i + 1. Existing entries are never changed. */
static const char *const migrations[] = {
    "CREATE TABLE model_capabilities ("
    " model_id TEXT PRIMARY KEY NOT NULL,"
    " model_type TEXT NOT NULL,"
    " model_family TEXT NOT NULL,"
    " tool_parser_id TEXT NOT NULL,"
    " thinking_parser_id TEXT NOT NULL,"
    " supports_native_tools INTEGER NOT NULL,"
    " supports_thinking INTEGER NOT NULL,"
    " tool_format TEXT,"
    " practical_max_tokens INTEGER,"
    " supports_multi_image INTEGER NOT NULL,"
    " supports_video INTEGER NOT NULL,"
    " embedding_dimensions INTEGER,"
    " max_sequence_length INTEGER,"
    " is_normalized INTEGER,"
    " supports_tts INTEGER NOT NULL,"
    " supports_stt INTEGER NOT NULL,"
    " probed_at INTEGER NOT NULL,"
    " probe_version INTEGER NOT NULL)",
    "ALTER TABLE model_capabilities ADD COLUMN fingerprint TEXT NOT NULL DEFAULT ''",
};

static int fail(const struct capabilities *c, struct err *e)
{
    return err_set(e, ERR_IO, "%s: %s", c->path, c->db ? sqlite3_errmsg(c->db) : "no memory");
}

/* ---- rows: one list of columns for reading and writing */

enum column_kind { COLUMN_TEXT, COLUMN_TEXT_OR_NULL, COLUMN_BOOL, COLUMN_COUNT, COLUMN_KNOWN };

struct column {
    const char *name;
    enum column_kind kind;
    size_t at, size;
};

#define FIELD(f) offsetof(struct model_capabilities, f), sizeof(((struct model_capabilities *)0)->f)
#define COLUMN(f, kind)                                                                            \
    {                                                                                              \
#f, kind, FIELD(f)                                                                         \
    }

static const struct column columns[] = {
    COLUMN(model_id, COLUMN_TEXT),
    COLUMN(model_type, COLUMN_TEXT),
    COLUMN(model_family, COLUMN_TEXT),
    COLUMN(tool_parser_id, COLUMN_TEXT),
    COLUMN(thinking_parser_id, COLUMN_TEXT),
    COLUMN(supports_native_tools, COLUMN_BOOL),
    COLUMN(supports_thinking, COLUMN_BOOL),
    COLUMN(tool_format, COLUMN_TEXT_OR_NULL),
    COLUMN(practical_max_tokens, COLUMN_COUNT),
    COLUMN(supports_multi_image, COLUMN_BOOL),
    COLUMN(supports_video, COLUMN_BOOL),
    COLUMN(embedding_dimensions, COLUMN_COUNT),
    COLUMN(max_sequence_length, COLUMN_COUNT),
    COLUMN(is_normalized, COLUMN_KNOWN),
    COLUMN(supports_tts, COLUMN_BOOL),
    COLUMN(supports_stt, COLUMN_BOOL),
    COLUMN(probed_at, COLUMN_COUNT),
    COLUMN(probe_version, COLUMN_KNOWN),
    COLUMN(fingerprint, COLUMN_TEXT),
};

static int64_t number_in(const struct column *c, const void *row)
{
    const char *p = (const char *)row + c->at;

    switch (c->kind) {
    case COLUMN_BOOL:
        return *(const bool *)p;
    case COLUMN_COUNT:
        return *(const int64_t *)(const void *)p;
    default:
        return *(const int *)(const void *)p;
    }
}

static int bind_column(sqlite3_stmt *s, int at, const struct column *c, const void *row)
{
    const char *p = (const char *)row + c->at;

    if (c->kind == COLUMN_TEXT || c->kind == COLUMN_TEXT_OR_NULL)
        return !*p && c->kind == COLUMN_TEXT_OR_NULL
                   ? sqlite3_bind_null(s, at)
                   : sqlite3_bind_text(s, at, p, -1, SQLITE_TRANSIENT);
    int64_t n = number_in(c, row);
    bool is_null = (c->kind == COLUMN_COUNT && n == 0 && strcmp(c->name, "probed_at")) ||
                   (c->kind == COLUMN_KNOWN && n < 0);
    return is_null ? sqlite3_bind_null(s, at) : sqlite3_bind_int64(s, at, n);
}

static void read_column(sqlite3_stmt *s, int at, const struct column *c, void *row)
{
    char *p = (char *)row + c->at;
    bool is_null = sqlite3_column_type(s, at) == SQLITE_NULL;
    int64_t n = sqlite3_column_int64(s, at);

    switch (c->kind) {
    case COLUMN_TEXT:
    case COLUMN_TEXT_OR_NULL: {
        const unsigned char *text = sqlite3_column_text(s, at);
        snprintf(p, c->size, "%s", text ? (const char *)text : "");
        return;
    }
    case COLUMN_BOOL:
        *(bool *)p = n != 0;
        return;
    case COLUMN_COUNT:
        *(int64_t *)(void *)p = MAX(n, (int64_t)0);
        return;
    case COLUMN_KNOWN:
        *(int *)(void *)p = is_null || n < 0 || n > INT32_MAX ? -1 : (int)n;
        return;
    }
}

/* "SELECT a, b FROM model_capabilities WHERE model_id = ?", or the INSERT of all columns. */
static void write_sql(char *out, size_t size, bool is_insert)
{
    size_t n = (size_t)snprintf(
        out, size, "%s", is_insert ? "INSERT OR REPLACE INTO model_capabilities (" : "SELECT ");

    for (size_t i = 0; i < ARRAY_LEN(columns); i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", columns[i].name);
    if (!is_insert) {
        snprintf(out + n, size - n, " FROM model_capabilities WHERE model_id = ?");
        return;
    }
    n += (size_t)snprintf(out + n, size - n, ") VALUES (");
    for (size_t i = 0; i < ARRAY_LEN(columns); i++)
        n += (size_t)snprintf(out + n, size - n, "%s?", i ? ", " : "");
    snprintf(out + n, size - n, ")");
}

/* ---- schema */

static int run_sql(struct capabilities *c, const char *sql, struct err *e)
{
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(c, e);
}

static int read_number(struct capabilities *c, const char *sql, int64_t *out, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc =
        sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW
            ? 0
            : fail(c, e);

    if (!rc)
        *out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return rc;
}

static int migrate_locked(struct capabilities *c, struct err *e)
{
    int64_t version = 0;

    /* read again: no other process can write now */
    if (read_number(c, "PRAGMA user_version", &version, e))
        return -1;
    if (version < 0 || version > (int64_t)ARRAY_LEN(migrations))
        return err_set(e, ERR_UNSUPPORTED,
            "%s has schema version %lld, and this program supports versions up to %zu", c->path,
            (long long)version, ARRAY_LEN(migrations));
    for (size_t i = (size_t)version; i < ARRAY_LEN(migrations); i++) {
        char sql[48];
        snprintf(sql, sizeof(sql), "PRAGMA user_version = %zu", i + 1);
        if (run_sql(c, migrations[i], e) || run_sql(c, sql, e))
            return -1;
    }
    return 0;
}

static int migrate(struct capabilities *c, struct err *e)
{
    struct err ignored;
    int64_t version = 0;

    if (read_number(c, "PRAGMA user_version", &version, e))
        return -1;
    if (version == (int64_t)ARRAY_LEN(migrations))
        return 0;
    if (run_sql(c, "BEGIN IMMEDIATE", e))
        return -1;
    if (!migrate_locked(c, e) && !run_sql(c, "COMMIT", e))
        return 0;
    if (run_sql(c, "ROLLBACK", &ignored))
        log_debug("store", "rollback_failed", "error=\"%s\"", ignored.msg);
    return -1;
}

/* ---- file */

static void close_db(struct capabilities *c)
{
    sqlite3_close(c->db); /* required even if sqlite3_open_v2 failed */
    c->db = NULL;
}

static bool is_damage(int code)
{
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}

static bool is_intact(sqlite3 *db, int *code)
{
    sqlite3_stmt *s = NULL;
    bool good = false;

    *code = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &s, NULL);
    if (*code == SQLITE_OK)
        *code = sqlite3_step(s);
    if (*code == SQLITE_ROW) {
        const unsigned char *text = sqlite3_column_text(s, 0);
        good = text && !strcmp((const char *)text, "ok");
        *code = good ? SQLITE_OK : SQLITE_CORRUPT;
    }
    sqlite3_finalize(s);
    return good;
}

/* Returns 0; -1 with e; 1 with e if the file is damaged. */
static int open_db(struct capabilities *c, struct err *e)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
    int code = sqlite3_open_v2(c->path, &c->db, flags, NULL);

    if (code == SQLITE_OK) {
        sqlite3_busy_timeout(c->db, BUSY_MS);
        if (is_intact(c->db, &code) && !migrate(c, e) &&
            !run_sql(c, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL", e))
            return 0;
        if (code == SQLITE_OK) { /* the file is intact, but another step failed */
            bool has_wrong_shape = e->code == ERR_IO && is_damage(sqlite3_errcode(c->db));
            close_db(c);
            return has_wrong_shape ? 1 : -1;
        }
    }
    fail(c, e);
    close_db(c);
    return is_damage(code) ? 1 : -1;
}

/* Renames the damaged file to a free name and removes the -wal and -shm files of SQLite. */
static int put_aside(const struct capabilities *c, struct err *e)
{
    static const char *const suffixes[] = { "-wal", "-shm" };
    char to[sizeof(c->path) + 32], from[sizeof(c->path) + 8];
    int i = 1;

    for (; i < DAMAGED_MAX; i++) {
        snprintf(to, sizeof(to), "%s.damaged-%d", c->path, i);
        if (access(to, F_OK))
            break;
    }
    if (rename(c->path, to))
        return err_set(
            e, ERR_IO, "%s is damaged and cannot be renamed: %s", c->path, strerror(errno));
    for (size_t k = 0; k < ARRAY_LEN(suffixes); k++) {
        snprintf(from, sizeof(from), "%s%s", c->path, suffixes[k]);
        if (unlink(from) && errno != ENOENT)
            return err_set(e, ERR_IO, "%s: %s", from, strerror(errno));
    }
    log_error("store", "damaged", "path=\"%s\" moved_to=\"%s\"", c->path, to);
    return 0;
}

static int make_parents(const char *path, struct err *e)
{
    char dir[1024];

    snprintf(dir, sizeof(dir), "%s", path);
    for (char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(dir, 0700) && errno != EEXIST)
            return err_set(e, ERR_IO, "%s: %s", dir, strerror(errno));
        *slash = '/';
    }
    return 0;
}

/* Only a file that begins as a database may be renamed as a damaged one. SQLite would wait for the
 * writer of a FIFO. */
static int check_file(const char *path, struct err *e)
{
    static const char magic[16] = "SQLite format 3";
    char head[sizeof(magic)];
    struct stat st;
    int fd;

    if (file_open_regular(path, O_RDONLY, &fd, e))
        return -1;
    bool is_database = !fstat(fd, &st) && (!st.st_size || (!file_read(fd, head, sizeof(head), 0) &&
                                                              !memcmp(head, magic, sizeof(magic))));
    close(fd);
    return is_database ? 0 : err_set(e, ERR_INVALID, "%s: not an SQLite database", path);
}

/* ERR_NOT_FOUND if the file is absent but can be created; ERR_IO if its directory is absent. */
static int absent_error(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char dir[1024];

    snprintf(dir, sizeof(dir), "%.*s", slash > path ? (int)(slash - path) : 1,
        slash > path ? path
        : slash      ? "/"
                     : ".");
    return err_set(e, access(dir, F_OK) ? ERR_IO : ERR_NOT_FOUND, "%s: %s", path, strerror(ENOENT));
}

int capabilities_open(struct capabilities **out, const char *path, bool writes, struct err *e)
{
    struct capabilities *c;
    struct err why;

    if (strlen(path) >= sizeof(c->path))
        return err_set(e, ERR_INVALID, "the path of the capability store is too long");
    if (writes && make_parents(path, e))
        return -1;
    if (check_file(path, &why) && (why.code != ERR_NOT_FOUND || !writes)) {
        *e = why;
        return why.code == ERR_NOT_FOUND ? absent_error(path, e) : -1;
    }
    c = xcalloc(1, sizeof(*c));
    snprintf(c->path, sizeof(c->path), "%s", path);
    int rc = open_db(c, e);
    if (rc == 1)
        rc = put_aside(c, e) || open_db(c, e) ? -1 : 0;
    if (rc) {
        mem_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void capabilities_close(struct capabilities *c)
{
    if (!c)
        return;
    close_db(c);
    mem_free(c);
}

/* ---- get, put, delete */

int capabilities_get(
    struct capabilities *c, const char *model_id, struct model_capabilities *out, struct err *e)
{
    char sql[1024];
    sqlite3_stmt *s = NULL;
    int found = 0;

    write_sql(sql, sizeof(sql), false);
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(s, 1, model_id, -1, SQLITE_TRANSIENT);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) {
        for (size_t i = 0; i < ARRAY_LEN(columns); i++)
            read_column(s, (int)i, &columns[i], out);
        found = 1;
    } else if (rc != SQLITE_DONE) {
        found = fail(c, e);
    }
    sqlite3_finalize(s);
    return found;
}

int capabilities_put(struct capabilities *c, const struct model_capabilities *row, struct err *e)
{
    char sql[1024];
    sqlite3_stmt *s = NULL;

    write_sql(sql, sizeof(sql), true);
    int rc = sqlite3_prepare_v2(c->db, sql, -1, &s, NULL);
    for (size_t i = 0; rc == SQLITE_OK && i < ARRAY_LEN(columns); i++)
        rc = bind_column(s, (int)i + 1, &columns[i], row);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    rc = rc == SQLITE_DONE ? 0 : fail(c, e);
    sqlite3_finalize(s);
    return rc;
}

int capabilities_delete(struct capabilities *c, const char *model_id, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(
        c->db, "DELETE FROM model_capabilities WHERE model_id = ?", -1, &s, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(s, 1, model_id, -1, SQLITE_TRANSIENT);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    rc = rc == SQLITE_DONE ? 0 : fail(c, e);
    sqlite3_finalize(s);
    return rc;
}
