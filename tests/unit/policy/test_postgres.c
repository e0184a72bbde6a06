/* Backend postgres with a real server (tests/support/postgres): migrations, conflicts, hostile
 * values, a server that is killed, stopped or full, and failed allocations. */
#include "support/check.h"
#include "base/mem.h"
#include "os/clock.h"
#include "policy/policy.h"
#include "policy/pq_call.h"
#include "policy/sql_schema.h"
#include "support/tmpdir.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <sys/wait.h>

enum { URL_BYTES = 256 };

static char dir[TMPDIR_NAME], url[URL_BYTES];
static pid_t server;

/* ---- server */

static void url_of(char out[URL_BYTES], const char *user, const char *password, const char *db)
{
    snprintf(out, URL_BYTES, "postgresql://%s:%s@/%s?host=%s", user, password, db, dir);
}

static void start_server(void)
{
    static const char program[] = "tests/support/postgres";

    server = fork();
    if (!server) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(fd, 1);
        dup2(fd, 2);
        execl(program, program, dir, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 600; i++) {
        struct pq_call c = { 0 };
        struct err e;
        int failed = pq_init(&c, url, &e);
        pq_clear(&c);
        if (!failed)
            return;
        poll(NULL, 0, 50);
    }
    EXPECT(!"PostgreSQL started");
}

static void end_server(int signal_number)
{
    kill(server, signal_number);
    EXPECT_EQ(waitpid(server, NULL, 0), server);
}

static void stop_at_exit(void)
{
    kill(server, SIGINT);
    waitpid(server, NULL, 0);
    tmpdir_remove(dir);
}

static void need_server(void)
{
    if (server)
        return;
    tmpdir_make(dir);
    EXPECT_EQ(chmod(dir, 0755), 0);
    url_of(url, "flux", "s3cret-word", "postgres");
    start_server();
    atexit(stop_at_exit);
}

static void run_sql(const char *sql)
{
    struct pq_call c = { 0 };
    struct err e = { 0 };

    if (pq_init(&c, url, &e) || pq_run(&c, sql, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT_EQ((int)e.code, (int)ERR_NONE);
    pq_clear(&c);
}

static void drop_tables(void)
{
    need_server();
    run_sql("DROP TABLE IF EXISTS policy, api_keys, limits, objects, policy_schema");
}

/* ---- backend */

static struct policy_backend_options options(void)
{
    return (struct policy_backend_options){ "", url, STR("") };
}

static struct policy_backend *open_backend(void)
{
    struct policy_backend_options o = options();
    struct policy_backend *b = NULL;
    struct err e;

    if (policy_backend_open(&b, "postgres", &o, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(b);
    return b;
}

static struct policy_snapshot *load_from(struct policy_backend *b)
{
    struct policy_list l = { 0 };
    struct policy_snapshot *s;
    struct err e;

    EXPECT_EQ(b->ops->load(b, &l, &e), 0);
    EXPECT_EQ(
        policy_snapshot_new(&s, (const struct policy_key *const *)l.keys, l.n, l.version, &e), 0);
    l.n = 0;
    policy_list_clear(&l);
    return s;
}

static struct policy_key *key_of(uint32_t number)
{
    uint8_t digest[POLICY_DIGEST_BYTES];
    struct err e;

    policy_digest(digest, (struct str){ (const char *)&number, sizeof(number) });
    struct policy_key *k = policy_key_new(digest);
    CHECK(k);
    EXPECT(!policy_key_set(k, policy_attribute_find(STR("name")), STR("n\u00e4me '$1; --"), &e));
    EXPECT(!policy_key_set(k, policy_attribute_find(STR("weight")), STR("2.5"), &e));
    EXPECT(!policy_key_set(k, policy_attribute_find(STR("models")), STR("a\tb"), &e));
    return k;
}

static int change(struct policy_backend *b, struct policy_snapshot **s, struct policy_key *take,
    bool is_delete, struct err *e)
{
    uint64_t version = policy_snapshot_version(*s) + 1;
    const struct policy_key *k = is_delete ? policy_snapshot_find(*s, take->digest) : take;
    struct policy_snapshot *next;

    take->version = version;
    int failed = is_delete ? policy_snapshot_delete(&next, *s, k, version, e)
                           : policy_snapshot_put(&next, *s, k, version, e);
    if (!failed) {
        failed = (is_delete ? b->ops->delete : b->ops->put)(b, k, next, e);
        policy_snapshot_unref(failed ? next : *s);
        *s = failed ? *s : next;
    }
    policy_key_unref(take);
    return failed;
}

/* Replaces the stale snapshot by what is stored. */
static void reload(struct policy_backend *b, struct policy_snapshot **s)
{
    policy_snapshot_unref(*s);
    *s = load_from(b);
}

static void changes_are_stored_and_conflicts_are_detected(void)
{
    struct err e;

    drop_tables();
    struct policy_backend *a = open_backend(), *b = open_backend();
    struct policy_snapshot *sa = load_from(a), *sb = load_from(b);
    EXPECT_EQ(change(a, &sa, key_of(1), false, &e), 0);
    struct pollfd p = { b->ops->fd(b), POLLIN, 0 };
    EXPECT_EQ(poll(&p, 1, 1000), 1); /* NOTIFY */
    EXPECT_EQ(change(b, &sb, key_of(2), false, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_PRECONDITION);
    reload(b, &sb);
    p.fd = b->ops->fd(b);
    EXPECT_EQ(poll(&p, 1, 0), 0);
    EXPECT_EQ(change(b, &sb, key_of(2), false, &e), 0);
    EXPECT_EQ(change(b, &sb, key_of(2), false, &e), 0); /* the same key again: an update */
    EXPECT_EQ(change(b, &sb, key_of(1), true, &e), 0);
    reload(a, &sa);
    EXPECT_EQ(policy_snapshot_count(sa), 1);
    EXPECT_EQ(policy_snapshot_version(sa), (uint64_t)4);
    const struct policy_key *k = policy_snapshot_at(sa, 0);
    EXPECT_STR(k->name, "n\u00e4me '$1; --");
    EXPECT_STR(k->models, "a\tb");
    EXPECT(k->weight == 2.5f && k->version == 3 && !k->expires_at);
    policy_snapshot_unref(sa);
    policy_snapshot_unref(sb);
    a->ops->close(a);
    b->ops->close(b);
}

/* A database of every earlier schema version, with a row, is migrated; a later one is refused. */
static void every_schema_version_is_migrated(void)
{
    static const char row[] =
        "INSERT INTO api_keys VALUES (sha256('x'), 'id', 1, 0, 'old', 'read', 0, '', '', 1, 0, "
        "'', '', ''); UPDATE policy SET version = 1";
    struct policy_backend_options o = options();
    struct policy_backend *b;
    char sql[96];
    struct err e;

    for (int v = 0; v <= N_SQL_MIGRATIONS; v++) {
        drop_tables();
        run_sql("CREATE TABLE policy_schema (version BIGINT NOT NULL)");
        snprintf(sql, sizeof(sql), "INSERT INTO policy_schema VALUES (%d)", v);
        run_sql(sql);
        for (int i = 0; i < v; i++)
            run_sql(sql_migrations[SQL_POSTGRES][i]);
        if (v)
            run_sql(row);
        b = open_backend();
        struct policy_snapshot *s = load_from(b);
        EXPECT_EQ(policy_snapshot_count(s), v > 0);
        EXPECT_EQ(change(b, &s, key_of(1), false, &e), 0);
        policy_snapshot_unref(s);
        b->ops->close(b);
    }
    run_sql("UPDATE policy_schema SET version = 99");
    EXPECT_EQ(policy_backend_open(&b, "postgres", &o, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_UNSUPPORTED);
    EXPECT(strstr(e.msg, "version 99"));
}

static void objects_are_stored_replaced_and_deleted(void)
{
    struct policy_list l = { 0 };
    struct policy_backend *b;
    struct policy_object *o;
    struct err e;

    drop_tables();
    b = open_backend();
    struct policy_snapshot *s = load_from(b), *next;
    for (int i = 0; i < 2; i++) {
        struct object_set *set;
        EXPECT_EQ(policy_object_new(&o, OBJECT_ROLE, "staff",
                      i ? STR("{\"scopes\":[\"read\"]}") : STR("{\"a'\\\\\":1}"), &e),
            0);
        o->version = policy_snapshot_version(s) + 1;
        EXPECT_EQ(object_set_put(&set, policy_snapshot_objects(s), o, &e), 0);
        /* without the objects: the first one is no valid role */
        EXPECT_EQ(policy_snapshot_set_limits(&next, s, NULL, o->version, &e), 0);
        EXPECT_EQ(b->ops->put_object(b, o, next, &e), 0);
        object_set_unref(set);
        policy_snapshot_unref(s);
        s = next;
        if (!i)
            policy_object_unref(o);
    }
    EXPECT_EQ(b->ops->load(b, &l, &e), 0);
    const struct policy_object *got = object_set_find(l.objects, OBJECT_ROLE, "staff");
    EXPECT(got && got->version == 2 && str_eq(got->body, o->body));
    policy_list_clear(&l);
    EXPECT_EQ(policy_snapshot_set_objects(&next, s, NULL, 3, &e), 0);
    EXPECT_EQ(b->ops->delete_object(b, o, next, &e), 0);
    EXPECT_EQ(b->ops->delete_object(b, o, next, &e), -1); /* an old version */
    EXPECT_EQ((int)e.code, (int)ERR_PRECONDITION);
    policy_object_unref(o);
    policy_snapshot_unref(next);
    policy_snapshot_unref(s);
    EXPECT_EQ(b->ops->load(b, &l, &e), 0);
    EXPECT_EQ(object_set_count(l.objects), 0);
    policy_list_clear(&l);
    b->ops->close(b);
}

static void hostile_values_are_one_clear_error(void)
{
    static const struct {
        const char *sql, *error;
    } cases[] = {
        { "UPDATE api_keys SET name = repeat('x', 3000000)", "name is longer" },
        { "UPDATE api_keys SET models = repeat(E'm\\t', 100)", "models" },
        { "UPDATE api_keys SET scopes = 'root'", "'root'" },
        { "UPDATE api_keys SET scopes = ''", "scopes" },
        { "UPDATE api_keys SET weight = 'NaN'", "weight" },
        { "UPDATE api_keys SET priority = -1", "priority" },
        { "UPDATE api_keys SET version = -5", "version" },
        { "UPDATE api_keys SET networks = '1.2.3.4/99'", "networks" },
        { "UPDATE api_keys SET limits = 'x=1'", "limits" },
        { "UPDATE api_keys SET tenant = E'a\\nb'", "tenant" },
        { "ALTER TABLE api_keys ALTER tenant DROP NOT NULL; UPDATE api_keys SET tenant = NULL",
            "tenant is NULL" },
        { "ALTER TABLE api_keys ALTER expires_at TYPE TEXT; UPDATE api_keys SET expires_at = 'x'",
            "expires_at" },
        { "ALTER TABLE api_keys DROP CONSTRAINT api_keys_digest_check;"
          "UPDATE api_keys SET digest = 'short'",
            "digest" },
        { "ALTER TABLE api_keys DROP COLUMN weight", "weight" },
        { "DROP TABLE api_keys", "api_keys" },
        { "INSERT INTO limits VALUES ('root', 1, '')", "'root'" },
        { "INSERT INTO limits VALUES ('default', -1, '')", "version" },
        { "INSERT INTO limits VALUES ('default', 1, repeat('x', 9999))", "longer" },
        { "INSERT INTO objects VALUES ('root', 'x', 1, '{}')", "root" },
        { "INSERT INTO objects VALUES ('role', 'a b', 1, '{}')", "role" },
        { "INSERT INTO objects VALUES ('role', 'x', -1, '{}')", "version" },
        { "INSERT INTO objects VALUES ('role', 'x', 1, '')", "role x" },
        { "INSERT INTO objects VALUES ('role', 'x', 1, E'{\n}')", "role x" },
        { "INSERT INTO objects VALUES ('role', 'x', 1, repeat('x', 5000000))", "longer" },
        { "UPDATE policy SET version = -1", "version" },
        { "DELETE FROM policy", "version" },
    };
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy_list l = { 0 };
        drop_tables();
        struct policy_backend *b = open_backend();
        struct policy_snapshot *s = load_from(b);
        EXPECT_EQ(change(b, &s, key_of(1), false, &e), 0);
        run_sql(cases[i].sql);
        EXPECT_EQ(b->ops->load(b, &l, &e), -1);
        if (!strstr(e.msg, cases[i].error))
            fprintf(stderr, "%s\n  %s\n", cases[i].sql, e.msg);
        EXPECT(strstr(e.msg, cases[i].error));
        EXPECT(!l.n && !l.keys && !strstr(e.msg, "s3cret"));
        policy_snapshot_unref(s);
        b->ops->close(b);
    }
}

static void errors_do_not_contain_the_password(void)
{
    static const char *const bad[] = { "postgresql://u:s3cret-word%zz@/db",
        "postgresql://u:s3cret-word@/db?none=s3cret-word", "s3cret-word",
        "dbname=x password='s3cret-word", "postgresql://u:s3cret-word@[::1/db",
        "postgresql://u:s3cret-word@/db?host=/nonexistent",
        "postgresql://u:s3cret-word@127.0.0.1:1/" };
    struct policy_backend *b = NULL;
    char wrong[URL_BYTES];
    struct err e;

    need_server();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct policy_backend_options o = { "", bad[i], STR("") };
        EXPECT_EQ(policy_backend_open(&b, "postgres", &o, &e), -1);
        EXPECT(*e.msg && !strstr(e.msg, "s3cret"));
    }
    /* The password is also the name of the role, so that the server repeats it. */
    url_of(wrong, "s3cret-word", "s3cret-word", "postgres");
    struct policy_backend_options o = { "", wrong, STR("") };
    EXPECT_EQ(policy_backend_open(&b, "postgres", &o, &e), -1);
    EXPECT(strstr(e.msg, "authentication failed") && !strstr(e.msg, "s3cret"));
    EXPECT_EQ((int)e.code, (int)ERR_UNAVAILABLE);
}

/* Every process stores its keys although the others change the version; nothing is lost. */
static void concurrent_writers_lose_no_change(void)
{
    enum { WRITERS = 3, CHANGES = 15 };
    pid_t pids[WRITERS];
    int status;

    drop_tables();
    for (uint32_t w = 0; w < WRITERS; w++)
        if (!(pids[w] = fork())) { /* the first openings also race to create the tables */
            struct policy_backend *b = open_backend();
            struct policy_snapshot *s = load_from(b);
            for (uint32_t i = 0; i < CHANGES; i++) {
                struct err e;
                while (change(b, &s, key_of(w * CHANGES + i), false, &e)) {
                    if (e.code != ERR_PRECONDITION)
                        _exit(1);
                    reload(b, &s);
                }
            }
            _exit(0);
        }
    for (int w = 0; w < WRITERS; w++)
        EXPECT(waitpid(pids[w], &status, 0) == pids[w] && !status);
    struct policy_backend *b = open_backend();
    struct policy_snapshot *s = load_from(b);
    EXPECT_EQ(policy_snapshot_count(s), WRITERS * CHANGES);
    EXPECT_EQ(policy_snapshot_version(s), (uint64_t)WRITERS * CHANGES);
    policy_snapshot_unref(s);
    b->ops->close(b);
}

static uint64_t ms_since(uint64_t ns)
{
    return (clock_ns() - ns) / NS_PER_MS;
}

/* Calls fail with ERR_UNAVAILABLE in a limited time, and succeed again without a new open. */
static void killed_and_stopped_servers_delay_a_call_for_a_limited_time(void)
{
    uint64_t version = 0;
    struct err e;

    drop_tables();
    struct policy_backend *b = open_backend();
    struct policy_snapshot *s = load_from(b);
    EXPECT_EQ(change(b, &s, key_of(1), false, &e), 0);
    end_server(SIGKILL);
    uint64_t begin = clock_ns();
    EXPECT_EQ(change(b, &s, key_of(2), false, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_UNAVAILABLE);
    EXPECT(ms_since(begin) < 3000);
    EXPECT_EQ(b->ops->fd(b), -1);
    start_server();
    while (b->ops->version(b, &version, &e))
        poll(NULL, 0, 20);
    EXPECT_EQ(version, (uint64_t)1);
    EXPECT_EQ(change(b, &s, key_of(2), false, &e), 0);

    /* The process of the connection is stopped: the first one that pg_stat_activity shows. */
    run_sql("CREATE TABLE IF NOT EXISTS stopped (pid INT); DELETE FROM stopped;"
            "INSERT INTO stopped SELECT pid FROM pg_stat_activity WHERE application_name = "
            "'inferfluxd' AND pid <> pg_backend_pid()");
    struct pq_call c = { 0 };
    PGresult *r = NULL;
    EXPECT(!pq_init(&c, url, &e) && !pq_ask(&c, &r, "SELECT pid FROM stopped", 0, NULL, &e));
    EXPECT_EQ(PQntuples(r), 1);
    int64_t pid = 0;
    EXPECT(str_to_i64(str_of(PQgetvalue(r, 0, 0)), &pid) && pid > 1);
    PQclear(r);
    pq_clear(&c);
    EXPECT_EQ(kill((pid_t)pid, SIGSTOP), 0);
    begin = clock_ns();
    EXPECT_EQ(b->ops->version(b, &version, &e), -1);
    EXPECT_EQ((int)e.code, (int)ERR_UNAVAILABLE);
    EXPECT(ms_since(begin) >= 1900 && ms_since(begin) < 4000);
    kill((pid_t)pid, SIGCONT);
    while (b->ops->version(b, &version, &e))
        poll(NULL, 0, 20);
    EXPECT_EQ(version, (uint64_t)2);
    policy_snapshot_unref(s);
    b->ops->close(b);
}

/* The nth allocation of open, load and a change fails, for every n. */
static void every_failed_allocation_is_an_error(void)
{
    struct policy_backend_options o = options();
    int n_errors = 0;

    drop_tables();
    for (uint64_t nth = 1; nth < 400; nth++) {
        struct policy_backend *b = NULL;
        struct policy_list l = { 0 };
        struct policy_snapshot *s = NULL;
        struct policy_key *k = key_of((uint32_t)nth);
        uint64_t before = mem_failures();
        struct err e;
        mem_fail_after(nth);
        int failed = policy_backend_open(&b, "postgres", &o, &e) || b->ops->load(b, &l, &e);
        if (!failed) {
            failed = policy_snapshot_new(
                &s, (const struct policy_key *const *)l.keys, l.n, l.version, &e);
            l.n = 0;
        }
        failed =
            failed || change(b, &s, (struct policy_key *)(uintptr_t)policy_key_ref(k), false, &e);
        mem_fail_after(0);
        n_errors += failed != 0;
        EXPECT(!failed || e.code == ERR_MEMORY || e.code == ERR_TOO_LARGE);
        policy_list_clear(&l);
        policy_snapshot_unref(s);
        policy_key_unref(k);
        if (b)
            b->ops->close(b);
        if (mem_failures() == before)
            break;
        EXPECT(failed);
    }
    EXPECT(n_errors >= FAULTS_AT_LEAST(5));
}

TESTS(TEST(changes_are_stored_and_conflicts_are_detected), TEST(every_schema_version_is_migrated),
    TEST(objects_are_stored_replaced_and_deleted), TEST(hostile_values_are_one_clear_error),
    TEST(errors_do_not_contain_the_password), TEST(concurrent_writers_lose_no_change),
    TEST(killed_and_stopped_servers_delay_a_call_for_a_limited_time),
    TEST(every_failed_allocation_is_an_error))
