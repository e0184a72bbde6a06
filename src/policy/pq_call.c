#include "policy/pq_call.h"

#include "base/mem.h"
#include "os/clock.h"

#include <errno.h>
#include <libpq-fe.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdio.h>

enum { CALL_MS = 2000, RETRY_MS = 500 };

/* Statements that every connection executes. A lock that another server holds must not delay the
 * policy thread, and a commit must be on the disk when it is reported. */
static const char *const settings = "SET lock_timeout = 1500; SET statement_timeout = 30000;"
                                    "SET idle_in_transaction_session_timeout = 10000;"
                                    "SELECT set_config('synchronous_commit', 'on', false)"
                                    " WHERE current_setting('synchronous_commit') = 'off';"
                                    "LISTEN " PQ_CHANNEL;

/* ---- errors */

static void replace_all(char *text, const char *secret)
{
    size_t n = secret ? strlen(secret) : 0;

    for (char *p = n ? strstr(text, secret) : NULL; p; p = strstr(p + n, secret))
        memset(p, '*', n);
}

/* Copies a message of libpq as one line, without the passwords of the connection. */
static void copy_message(const struct pq_call *c, char out[512], const char *message)
{
    PQconninfoOption *all = c->db ? PQconninfo(c->db) : NULL;

    snprintf(out, 512, "%s", message && *message ? message : "no memory");
    if (c->db)
        replace_all(out, PQpass(c->db));
    for (PQconninfoOption *o = all; o && o->keyword; o++)
        if (strchr(o->dispchar, '*'))
            replace_all(out, o->val);
    PQconninfoFree(all);
    for (char *p = out; *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    for (size_t n = strlen(out); n && out[n - 1] == ' '; n--)
        out[n - 1] = '\0';
}

void pq_disconnect(struct pq_call *c)
{
    if (c->db)
        PQfinish(c->db);
    c->db = NULL;
}

/* Ends the connection. `message` NULL: that of the connection. */
static int lose_connection(struct pq_call *c, const char *message, struct err *e)
{
    char text[512];

    copy_message(c, text, message ? message : PQerrorMessage(c->db));
    pq_disconnect(c);
    err_set(&c->last, ERR_UNAVAILABLE, "policy: postgres: %s", text);
    c->retry_ns = clock_ns() + RETRY_MS * NS_PER_MS;
    *e = c->last;
    return -1;
}

/* Error codes by the class of the SQLSTATE, which are its first two characters. */
static const struct {
    const char *state;
    enum errcode code;
} causes[] = {
    { "08", ERR_UNAVAILABLE },    /* connection exception */
    { "25006", ERR_UNAVAILABLE }, /* a standby */
    { "40", ERR_PRECONDITION },   /* serialisation failure, deadlock */
    { "53", ERR_UNAVAILABLE },    /* insufficient resources: disk, memory */
    { "55P03", ERR_UNAVAILABLE }, /* lock timeout */
    { "57", ERR_UNAVAILABLE },    /* cancelled, shutting down */
    { "58", ERR_UNAVAILABLE },    /* input or output */
};

static int statement_failed(struct pq_call *c, const PGresult *r, struct err *e)
{
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    enum errcode code = ERR_IO;
    char text[512];

    for (size_t i = 0; state && i < ARRAY_LEN(causes); i++)
        if (!strncmp(state, causes[i].state, strlen(causes[i].state)))
            code = causes[i].code;
    copy_message(c, text, PQresultErrorMessage(r));
    return err_set(e, code, "policy: postgres: %s", text);
}

/* ---- connection */

/* False: no event within CALL_MS. */
static bool wait_for(struct pq_call *c, short events)
{
    struct pollfd p = { PQsocket(c->db), events, 0 };
    uint64_t end_ns = clock_ns() + CALL_MS * NS_PER_MS;
    int rc;

    do {
        uint64_t now = clock_ns();
        rc = now < end_ns ? poll(&p, 1, (int)((end_ns - now) / NS_PER_MS) + 1) : 0;
    } while (rc < 0 && errno == EINTR);
    return rc > 0;
}

static void ignore_notice(void *ctx, const PGresult *r)
{
}

static int connect_now(struct pq_call *c, struct err *e)
{
    const char *const names[] = { "dbname", "client_encoding", "fallback_application_name", NULL };
    const char *const values[] = { c->url, "UTF8", "inferfluxd", NULL };
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;

    c->db = PQconnectStartParams(names, values, 1);
    if (!c->db)
        return err_set(e, ERR_MEMORY, "no memory for a connection to PostgreSQL");
    PQsetNoticeReceiver(c->db, ignore_notice, NULL);
    while (PQstatus(c->db) != CONNECTION_BAD && state != PGRES_POLLING_OK &&
           state != PGRES_POLLING_FAILED) {
        if (!wait_for(c, state == PGRES_POLLING_READING ? POLLIN : POLLOUT))
            return lose_connection(c, "no response to the connection in time", e);
        state = PQconnectPoll(c->db);
    }
    if (state != PGRES_POLLING_OK || PQsetnonblocking(c->db, 1))
        return lose_connection(c, NULL, e);
    return 0;
}

static int connect_again(struct pq_call *c, struct err *e)
{
    if (clock_ns() < c->retry_ns) {
        *e = c->last;
        return -1;
    }
    if (connect_now(c, e))
        return -1;
    if (!pq_run(c, settings, e))
        return 0;
    pq_disconnect(c);
    return -1;
}

int pq_init(struct pq_call *c, const char *url, struct err *e)
{
    char *why = NULL;
    PQconninfoOption *parsed = PQconninfoParse(url, &why);
    size_t n = strlen(url) + 1;

    PQfreemem(why); /* contains parts of the URL */
    if (!parsed)
        return err_set(e, ERR_INVALID,
            "policy.url is not a URL of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE");
    PQconninfoFree(parsed);
    c->url = try_malloc(n);
    if (!c->url)
        return err_set(e, ERR_MEMORY, "no memory for the policy backend");
    memcpy(c->url, url, n);
    return connect_again(c, e);
}

void pq_clear(struct pq_call *c)
{
    pq_disconnect(c);
    if (c->url)
        OPENSSL_cleanse(c->url, strlen(c->url));
    mem_free(c->url);
    c->url = NULL;
}

bool pq_is_connected(const struct pq_call *c)
{
    return c->db != NULL;
}

int pq_fd(const struct pq_call *c)
{
    return c->db ? PQsocket(c->db) : -1;
}

/* ---- statements */

static void drop_notifications(struct pq_call *c)
{
    for (PGnotify *n = PQnotifies(c->db); n; n = PQnotifies(c->db))
        PQfreemem(n);
}

/* Waits until PQgetResult does not block. */
static int wait_for_result(struct pq_call *c, struct err *e)
{
    for (;;) {
        int unsent = PQflush(c->db);
        if (unsent < 0)
            return lose_connection(c, NULL, e);
        if (!unsent && !PQisBusy(c->db))
            return 0;
        if (!wait_for(c, (short)(POLLIN | (unsent ? POLLOUT : 0))))
            return lose_connection(c, "no response in time", e);
        if (!PQconsumeInput(c->db))
            return lose_connection(c, NULL, e);
    }
}

static bool is_success(const PGresult *r)
{
    ExecStatusType s = PQresultStatus(r);

    return s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK || s == PGRES_SINGLE_TUPLE;
}

struct row_reader {
    int (*row)(void *ctx, const PGresult *r, struct err *e);
    void *ctx;
};

/* Reads all results of what was sent. The first error is reported, and *last is the last result. */
static int read_results(
    struct pq_call *c, const struct row_reader *reader, PGresult **last, struct err *e)
{
    int failed = 0;

    for (;;) {
        struct err why;
        if (wait_for_result(c, failed ? &why : e))
            return -1;
        PGresult *r = PQgetResult(c->db);
        if (!r)
            break;
        if (!failed && !is_success(r))
            failed = statement_failed(c, r, e);
        if (!failed && reader && PQresultStatus(r) == PGRES_SINGLE_TUPLE)
            failed = reader->row(reader->ctx, r, e);
        PQclear(*last);
        *last = r;
    }
    drop_notifications(c);
    if (PQstatus(c->db) != CONNECTION_BAD)
        return failed;
    if (!failed)
        return lose_connection(c, NULL, e);
    pq_disconnect(c); /* *e is the reason that the server has sent */
    return -1;
}

struct statement {
    const char *sql;
    int n; /* parameters; 0: `sql` may contain several statements */
    const char *const *params;
};

static int send_and_read(struct pq_call *c, PGresult **out, const struct statement *s,
    const struct row_reader *reader, struct err *e)
{
    PGresult *last = NULL;

    if (!c->db && connect_again(c, e))
        return -1;
    int is_sent = s->n ? PQsendQueryParams(c->db, s->sql, s->n, NULL, s->params, NULL, NULL, 0)
                       : PQsendQuery(c->db, s->sql);
    if (!is_sent || (reader && !PQsetSingleRowMode(c->db)))
        return lose_connection(c, NULL, e);
    int failed = read_results(c, reader, &last, e);
    if (!failed && !last)
        failed = err_set(e, ERR_MEMORY, "no memory for a result of PostgreSQL");
    if (failed || !out)
        PQclear(last);
    else
        *out = last;
    return failed;
}

int pq_run(struct pq_call *c, const char *sql, struct err *e)
{
    return send_and_read(c, NULL, &(struct statement){ .sql = sql }, NULL, e);
}

int pq_ask(struct pq_call *c, PGresult **out, const char *sql, int n, const char *const *params,
    struct err *e)
{
    return send_and_read(c, out, &(struct statement){ sql, n, params }, NULL, e);
}

int pq_rows(struct pq_call *c, const char *sql,
    int (*row)(void *ctx, const PGresult *r, struct err *e), void *ctx, struct err *e)
{
    struct row_reader reader = { row, ctx };

    return send_and_read(c, NULL, &(struct statement){ .sql = sql }, &reader, e);
}
