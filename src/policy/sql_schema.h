/* sql_schema.h: schema of the policy in an SQL database, and the statements that name its columns.
 * SQLite and PostgreSQL have the same tables; only the names of the types differ.
 *
 *   policy    one row: the version of the policy
 *   api_keys  one row per key: digest, id, and the attributes of policy_key.h as columns
 *   limits    one row per entry of limit_set.h
 *   objects   one row per object of object_set.h
 *
 * Any thread. */
#pragma once

#include "policy/policy_key.h"

enum sql_dialect { SQL_SQLITE, SQL_POSTGRES, N_SQL_DIALECTS };
enum { N_SQL_MIGRATIONS = 3, SQL_BYTES = 2048 };

/* Migration i changes the schema from version i to i + 1. Existing entries are never changed. */
extern const char *const sql_migrations[N_SQL_DIALECTS][N_SQL_MIGRATIONS];

/* SELECT of the digest (PostgreSQL: in hex) and of all attributes. PostgreSQL sends at most
 * POLICY_ATTRIBUTE_BYTES + 1 characters of a value. */
void sql_select_keys(char out[SQL_BYTES], enum sql_dialect d);
/* INSERT or UPDATE of a row; the parameters are the digest, the attributes and the id. */
void sql_put_key(char out[SQL_BYTES], enum sql_dialect d);
