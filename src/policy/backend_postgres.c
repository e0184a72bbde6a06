/* backend_postgres.c: backend `postgres`: the policy in a PostgreSQL database, which servers on
 * several machines share. A change is one transaction, which increments the version only if the
 * version is the expected one, and which notifies the other servers (LISTEN, NOTIFY).
 *
 * The functions use libpq's asynchronous calls, so that a database that does not respond delays the
 * policy thread by at most CALL_MS per call. After such a failure the connection is closed, calls
 * fail for RETRY_MS, and the next call connects again. If the connection ends during a COMMIT, the
 * change may be stored; the next call of `version` finds it.
 *
 * A message of libpq can contain the password only if the URL does not parse; such a message is not
 * used. In all other messages passwords are replaced. */
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "policy/pq_call.h"
#include "policy/sql_schema.h"

#include <libpq-fe.h>
#include <stdio.h>

enum { LOCK_ID = 0x696e6678, N_KEY_PARAMS = N_POLICY_ATTRIBUTES + 2, ATTRIBUTES_AT = 1 };

struct backend_postgres {
    struct policy_backend base;
    struct pq_call pq;
};

static struct pq_call *pq_of(struct policy_backend *b)
{
    return &container_of(b, struct backend_postgres, base)->pq;
}

static int bad_value(const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "policy: postgres: %s", what);
}

/* ---- transactions */

static void roll_back(struct pq_call *c)
{
    struct err e;

    if (pq_is_connected(c) && pq_run(c, "ROLLBACK", &e))
        pq_disconnect(c);
}

static int end_transaction(struct pq_call *c, int failed, struct err *e)
{
    if (!failed)
        failed = pq_run(c, "COMMIT", e);
    if (failed)
        roll_back(c);
    return failed ? -1 : 0;
}

static int read_number(struct pq_call *c, const char *sql, uint64_t *out, struct err *e)
{
    PGresult *r = NULL;
    int failed = pq_ask(c, &r, sql, 0, NULL, e);

    if (!failed && (PQntuples(r) != 1 || PQgetisnull(r, 0, 0) ||
                       !str_to_u64(str_of(PQgetvalue(r, 0, 0)), out) || *out > INT64_MAX))
        failed = bad_value("a version is missing, negative, or not a number", e);
    PQclear(r);
    return failed;
}

/* ---- schema */

static int migrate_locked(struct pq_call *c, struct err *e)
{
    uint64_t version = 0, is_present = 0;
    char sql[96];

    snprintf(sql, sizeof(sql), "SELECT pg_advisory_xact_lock(%d)", LOCK_ID);
    if (pq_run(c, sql, e) ||
        read_number(c, "SELECT (to_regclass('policy_schema') IS NOT NULL)::int", &is_present, e))
        return -1;
    /* A role without the right to create tables can use a database that another has migrated. */
    if (!is_present && pq_run(c,
                           "CREATE TABLE policy_schema (version BIGINT NOT NULL);"
                           "INSERT INTO policy_schema VALUES (0)",
                           e))
        return -1;
    if (read_number(c, "SELECT version FROM policy_schema", &version, e))
        return -1;
    if (version > N_SQL_MIGRATIONS)
        return err_set(e, ERR_UNSUPPORTED,
            "policy: postgres: the schema has version %llu, and this program supports versions up "
            "to %d",
            (unsigned long long)version, N_SQL_MIGRATIONS);
    for (size_t i = (size_t)version; i < N_SQL_MIGRATIONS; i++) {
        snprintf(sql, sizeof(sql), "UPDATE policy_schema SET version = %zu", i + 1);
        if (pq_run(c, sql_migrations[SQL_POSTGRES][i], e) || pq_run(c, sql, e))
            return -1;
    }
    return 0;
}

static void postgres_close(struct policy_backend *base)
{
    if (!base)
        return;
    pq_clear(pq_of(base));
    mem_free(container_of(base, struct backend_postgres, base));
}

static int postgres_open(
    struct policy_backend **out, const struct policy_backend_options *o, struct err *e)
{
    struct backend_postgres *b = try_calloc(1, sizeof(*b));

    if (!b)
        return err_set(e, ERR_MEMORY, "no memory for the policy backend");
    b->base.ops = &policy_backend_postgres;
    int failed = pq_init(&b->pq, o->url, e) || pq_run(&b->pq, "BEGIN", e);
    if (failed || end_transaction(&b->pq, migrate_locked(&b->pq, e), e)) {
        postgres_close(&b->base);
        return -1;
    }
    *out = &b->base;
    return 0;
}

static int postgres_version(struct policy_backend *base, uint64_t *out, struct err *e)
{
    return read_number(pq_of(base), "SELECT version FROM policy", out, e);
}

static int postgres_fd(struct policy_backend *base)
{
    return pq_fd(pq_of(base));
}

/* ---- rows */

/* ERR_CORRUPT: NULL, or longer than max bytes. */
static int read_text(const PGresult *r, int column, size_t max, struct str *out, struct err *e)
{
    if (PQgetisnull(r, 0, column))
        return err_set(e, ERR_CORRUPT, "%s is NULL", PQfname(r, column));
    *out = (struct str){ PQgetvalue(r, 0, column), (size_t)PQgetlength(r, 0, column) };
    return out->n <= max
               ? 0
               : err_set(e, ERR_CORRUPT, "%s is longer than %zu bytes", PQfname(r, column), max);
}

static int read_attributes(struct policy_key *k, const PGresult *r, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(policy_attributes); i++) {
        const struct policy_attribute *a = &policy_attributes[i];
        struct str text;
        int column = (int)i + ATTRIBUTES_AT;
        if (PQgetisnull(r, 0, column))
            return err_set(e, ERR_CORRUPT, "%s is NULL", a->name);
        text = (struct str){ PQgetvalue(r, 0, column), (size_t)PQgetlength(r, 0, column) };
        if (text.n > POLICY_ATTRIBUTE_BYTES)
            return err_set(
                e, ERR_CORRUPT, "%s is longer than %d bytes", a->name, POLICY_ATTRIBUTE_BYTES);
        if (policy_key_set(k, a, text, e))
            return -1;
    }
    return 0;
}

static int read_key(void *ctx, const PGresult *r, struct err *e)
{
    uint8_t digest[POLICY_DIGEST_BYTES];
    struct str hex;

    if (read_text(r, 0, 2 * POLICY_DIGEST_BYTES, &hex, e) || !policy_digest_read(digest, hex))
        return bad_value("a digest is not 32 bytes long", e);
    struct policy_key *k = policy_key_new(digest);
    if (!k)
        return err_set(e, ERR_MEMORY, "no memory for an API key");
    if (!read_attributes(k, r, e))
        return policy_list_add(ctx, k, e);
    err_wrap(e, "policy: postgres: API key %s", k->id);
    policy_key_unref(k);
    return -1;
}

static int read_limits(void *ctx, const PGresult *r, struct err *e)
{
    struct str subject, version, values;
    struct limit_entry l;

    if (read_text(r, 0, LIMIT_SUBJECT_BYTES, &subject, e) || read_text(r, 1, 20, &version, e) ||
        read_text(r, 2, LIMIT_VALUES_BYTES, &values, e) || limit_entry_init(&l, subject, ' ', e) ||
        limit_entry_read(&l, values, e) ||
        (!str_to_u64(version, &l.version) && err_set(e, ERR_CORRUPT, "the version is no number")) ||
        policy_list_put_limits(ctx, &l, e))
        return err_wrap(e, "policy: postgres: limits");
    return 0;
}

static int read_object(void *ctx, const PGresult *r, struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];
    struct str subject, version, body;
    enum policy_object_kind kind;
    struct policy_object *o;

    if (read_text(r, 0, OBJECT_SUBJECT_BYTES, &subject, e) || read_text(r, 1, 20, &version, e) ||
        read_text(r, 2, OBJECT_BODY_MAX, &body, e) ||
        policy_object_subject(subject, &kind, name, e) ||
        policy_object_new(&o, kind, name, body, e))
        return err_wrap(e, "policy: postgres: objects");
    if (!str_to_u64(version, &o->version)) {
        policy_object_unref(o);
        return bad_value("the version of an object is no number", e);
    }
    return policy_list_put_object(ctx, o, e);
}

/* One snapshot of the database, so that all parts belong to the version. */
static int postgres_load(struct policy_backend *base, struct policy_list *out, struct err *e)
{
    struct pq_call *c = pq_of(base);
    char keys[SQL_BYTES], limits[160], objects[160];

    sql_select_keys(keys, SQL_POSTGRES);
    snprintf(limits, sizeof(limits),
        "SELECT left(subject::text, %d) AS subject, version::text,"
        " left(limit_values::text, %d) AS values FROM limits",
        LIMIT_SUBJECT_BYTES + 1, LIMIT_VALUES_BYTES + 1);
    snprintf(objects, sizeof(objects),
        "SELECT left(kind || ' ' || name, %d) AS subject, version::text,"
        " left(body::text, %d) AS body FROM objects",
        OBJECT_SUBJECT_BYTES + 1, OBJECT_BODY_MAX + 1);
    if (pq_run(c, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", e))
        return -1;
    int failed = postgres_version(base, &out->version, e) || pq_rows(c, keys, read_key, out, e) ||
                 pq_rows(c, limits, read_limits, out, e) ||
                 pq_rows(c, objects, read_object, out, e);
    if (!end_transaction(c, failed, e))
        return 0;
    policy_list_clear(out);
    return -1;
}

/* ---- changes */

static int advance_version(struct pq_call *c, const struct policy_snapshot *next, struct err *e)
{
    unsigned long long version = policy_snapshot_version(next);
    PGresult *r = NULL;
    char sql[96];

    snprintf(sql, sizeof(sql), "UPDATE policy SET version = %llu WHERE version = %llu", version,
        version - 1);
    int failed = pq_ask(c, &r, sql, 0, NULL, e);
    if (!failed && strcmp(PQcmdTuples(r), "1") != 0)
        failed =
            err_set(e, ERR_PRECONDITION, "policy: postgres: another server has changed the policy");
    PQclear(r);
    return failed ? -1 : pq_run(c, "NOTIFY " PQ_CHANNEL, e);
}

static int store_key(struct pq_call *c, const struct policy_key *k, struct err *e)
{
    struct buf texts[N_POLICY_ATTRIBUTES];
    char sql[SQL_BYTES], digest[2 * POLICY_DIGEST_BYTES + 3] = "\\x";
    const char *params[N_KEY_PARAMS] = { digest };
    bool is_complete = true;

    for (int i = 0; i < POLICY_DIGEST_BYTES; i++)
        snprintf(digest + 2 + (ptrdiff_t)2 * i, 3, "%02x", k->digest[i]);
    for (size_t i = 0; i < N_POLICY_ATTRIBUTES; i++) {
        const struct policy_attribute *a = &policy_attributes[i];
        buf_init(&texts[i], 2 * POLICY_ATTRIBUTE_BYTES);
        a->write(k, &texts[i]);
        if (!texts[i].n && (a->kind == ATTRIBUTE_NUMBER || a->kind == ATTRIBUTE_TIME))
            buf_putc(&texts[i], '0'); /* an empty text is no number in PostgreSQL */
        buf_putc(&texts[i], '\0');
        is_complete = is_complete && buf_ok(&texts[i]);
        params[i + ATTRIBUTES_AT] = texts[i].p;
    }
    params[N_KEY_PARAMS - 1] = k->id;
    sql_put_key(sql, SQL_POSTGRES);
    int failed = is_complete ? pq_ask(c, NULL, sql, N_KEY_PARAMS, params, e)
                             : err_set(e, ERR_MEMORY, "no memory for an API key");
    for (size_t i = 0; i < N_POLICY_ATTRIBUTES; i++)
        buf_clear(&texts[i]);
    return failed;
}

static int delete_key(struct pq_call *c, const struct policy_key *k, struct err *e)
{
    char digest[2 * POLICY_DIGEST_BYTES + 3] = "\\x";
    const char *params[] = { digest };

    for (int i = 0; i < POLICY_DIGEST_BYTES; i++)
        snprintf(digest + 2 + (ptrdiff_t)2 * i, 3, "%02x", k->digest[i]);
    return pq_ask(c, NULL, "DELETE FROM api_keys WHERE digest = $1", 1, params, e);
}

static int store_limits(struct pq_call *c, const struct limit_entry *l, struct err *e)
{
    struct buf subject, values;
    char version[24];

    buf_init(&subject, LIMIT_SUBJECT_BYTES + 1);
    buf_init(&values, LIMIT_VALUES_BYTES + 1);
    limit_entry_write_subject(l, ' ', &subject);
    limit_entry_write(l, &values);
    buf_putc(&subject, '\0');
    buf_putc(&values, '\0');
    snprintf(version, sizeof(version), "%llu", (unsigned long long)l->version);
    const char *params[] = { subject.p, version, values.p };
    int failed = buf_ok(&subject) && buf_ok(&values)
                     ? pq_ask(c, NULL, "INSERT INTO limits VALUES ($1, $2, $3)", 3, params, e)
                     : err_set(e, ERR_MEMORY, "no memory for the limits");
    buf_clear(&subject);
    buf_clear(&values);
    return failed;
}

static int change(struct policy_backend *base, const struct policy_key *key,
    const struct policy_snapshot *next,
    int (*store)(struct pq_call *c, const struct policy_key *k, struct err *e), struct err *e)
{
    struct pq_call *c = pq_of(base);

    if (pq_run(c, "BEGIN", e))
        return -1;
    return end_transaction(c, advance_version(c, next, e) || store(c, key, e), e);
}

static int postgres_put(struct policy_backend *base, const struct policy_key *key,
    const struct policy_snapshot *next, struct err *e)
{
    return change(base, key, next, store_key, e);
}

static int postgres_delete(struct policy_backend *base, const struct policy_key *key,
    const struct policy_snapshot *next, struct err *e)
{
    return change(base, key, next, delete_key, e);
}

static int postgres_put_limits(
    struct policy_backend *base, const struct policy_snapshot *next, struct err *e)
{
    const struct limit_set *set = policy_snapshot_limits(next);
    struct pq_call *c = pq_of(base);

    if (pq_run(c, "BEGIN", e))
        return -1;
    int failed = advance_version(c, next, e) || pq_run(c, "DELETE FROM limits", e);
    for (int i = 0; !failed && i < limit_set_count(set); i++)
        failed = store_limits(c, limit_set_at(set, i), e);
    return end_transaction(c, failed, e);
}

/* Removes the row of the object, and inserts it with its body if is_put. */
static int store_object(
    struct pq_call *c, const struct policy_object *o, bool is_put, struct err *e)
{
    struct buf body;
    char version[24];

    buf_init(&body, OBJECT_BODY_MAX + 1);
    buf_puts(&body, o->body);
    buf_putc(&body, '\0');
    snprintf(version, sizeof(version), "%llu", (unsigned long long)o->version);
    const char *params[] = { policy_object_kinds[o->kind], o->name, version, body.p };
    int failed =
        !buf_ok(&body)
            ? err_set(e, ERR_MEMORY, "no memory for an object of the policy")
            : pq_ask(c, NULL, "DELETE FROM objects WHERE kind = $1 AND name = $2", 2, params, e);
    if (!failed && is_put)
        failed = pq_ask(c, NULL, "INSERT INTO objects VALUES ($1, $2, $3, $4)", 4, params, e);
    buf_clear(&body);
    return failed;
}

static int change_object(struct policy_backend *base, const struct policy_object *o, bool is_put,
    const struct policy_snapshot *next, struct err *e)
{
    struct pq_call *c = pq_of(base);

    if (pq_run(c, "BEGIN", e))
        return -1;
    return end_transaction(c, advance_version(c, next, e) || store_object(c, o, is_put, e), e);
}

static int postgres_put_object(struct policy_backend *base, const struct policy_object *o,
    const struct policy_snapshot *next, struct err *e)
{
    return change_object(base, o, true, next, e);
}

static int postgres_delete_object(struct policy_backend *base, const struct policy_object *o,
    const struct policy_snapshot *next, struct err *e)
{
    return change_object(base, o, false, next, e);
}

const struct policy_backend_ops policy_backend_postgres = { .name = "postgres",
    .open = postgres_open,
    .load = postgres_load,
    .put = postgres_put,
    .delete = postgres_delete,
    .put_limits = postgres_put_limits,
    .put_object = postgres_put_object,
    .delete_object = postgres_delete_object,
    .version = postgres_version,
    .fd = postgres_fd,
    .close = postgres_close };
