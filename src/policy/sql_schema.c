#include "policy/sql_schema.h"

#include <stdarg.h>
#include <stdio.h>

#define MIGRATION_1(INTEGER, REAL, BLOB, END)                                                      \
    "CREATE TABLE policy ("                                                                        \
    " \"row\" " INTEGER " PRIMARY KEY CHECK (\"row\" = 1),"                                        \
    " version " INTEGER " NOT NULL);"                                                              \
    "INSERT INTO policy VALUES (1, 0);"                                                            \
    "CREATE TABLE api_keys ("                                                                      \
    " digest " BLOB " PRIMARY KEY NOT NULL CHECK (length(digest) = 32),"                           \
    " id TEXT NOT NULL UNIQUE,"                                                                    \
    " version " INTEGER " NOT NULL,"                                                               \
    " created_at " INTEGER " NOT NULL,"                                                            \
    " name TEXT NOT NULL,"                                                                         \
    " scopes TEXT NOT NULL,"                                                                       \
    " expires_at " INTEGER " NOT NULL,"                                                            \
    " tenant TEXT NOT NULL,"                                                                       \
    " cache_group TEXT NOT NULL,"                                                                  \
    " weight " REAL " NOT NULL,"                                                                   \
    " priority " INTEGER " NOT NULL,"                                                              \
    " models TEXT NOT NULL,"                                                                       \
    " networks TEXT NOT NULL,"                                                                     \
    " limits TEXT NOT NULL)" END

#define MIGRATION_2(INTEGER, REAL, BLOB, END)                                                      \
    "CREATE TABLE limits ("                                                                        \
    " subject TEXT PRIMARY KEY NOT NULL,"                                                          \
    " version " INTEGER " NOT NULL,"                                                               \
    " limit_values TEXT NOT NULL)" END

#define MIGRATION_3(INTEGER, REAL, BLOB, END)                                                      \
    "CREATE TABLE objects ("                                                                       \
    " kind TEXT NOT NULL,"                                                                         \
    " name TEXT NOT NULL,"                                                                         \
    " version " INTEGER " NOT NULL,"                                                               \
    " body TEXT NOT NULL,"                                                                         \
    " PRIMARY KEY (kind, name))" END ";"                                                           \
    "ALTER TABLE api_keys ADD COLUMN roles TEXT NOT NULL DEFAULT ''"

#define SQLITE(migration)   migration("INTEGER", "REAL", "BLOB", " WITHOUT ROWID")
#define POSTGRES(migration) migration("BIGINT", "DOUBLE PRECISION", "BYTEA", "")

const char *const sql_migrations[N_SQL_DIALECTS][N_SQL_MIGRATIONS] = {
    [SQL_SQLITE] = { SQLITE(MIGRATION_1), SQLITE(MIGRATION_2), SQLITE(MIGRATION_3) },
    [SQL_POSTGRES] = { POSTGRES(MIGRATION_1), POSTGRES(MIGRATION_2), POSTGRES(MIGRATION_3) },
};

static const struct {
    const char *digest, *attribute; /* columns of SELECT; %s: the name of the attribute */
    char parameter;                 /* the character before the number of a parameter */
} dialects[N_SQL_DIALECTS] = {
    [SQL_SQLITE] = { "digest", ", %s", '?' },
    [SQL_POSTGRES] = { "encode(digest, 'hex')", ", left(%s::text, %d)", '$' },
};

static void PRINTF(3, 4) append(char out[SQL_BYTES], size_t *n, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    *n += (size_t)vsnprintf(out + *n, SQL_BYTES - *n, fmt, args);
    va_end(args);
    CHECK(*n < SQL_BYTES);
}

void sql_select_keys(char out[SQL_BYTES], enum sql_dialect d)
{
    size_t n = 0;

    append(out, &n, "SELECT %s", dialects[d].digest);
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++)
        append(
            out, &n, dialects[d].attribute, policy_attributes[i].name, POLICY_ATTRIBUTE_BYTES + 1);
    append(out, &n, " FROM api_keys");
}

void sql_put_key(char out[SQL_BYTES], enum sql_dialect d)
{
    size_t n = 0, n_attributes = ARRAY_LEN(policy_attributes);

    append(out, &n, "INSERT INTO api_keys (digest");
    for (size_t i = 0; i < n_attributes; i++)
        append(out, &n, ", %s", policy_attributes[i].name);
    append(out, &n, ", id) VALUES (");
    for (size_t i = 1; i <= n_attributes + 2; i++)
        append(out, &n, "%s%c%zu", i > 1 ? ", " : "", dialects[d].parameter, i);
    append(out, &n, ") ON CONFLICT (digest) DO UPDATE SET id = excluded.id");
    for (size_t i = 0; i < n_attributes; i++)
        append(out, &n, ", %s = excluded.%s", policy_attributes[i].name, policy_attributes[i].name);
}
