/* pq_call.h: a connection to PostgreSQL whose calls have a time limit, for backend_postgres.c.
 *
 *     not connected --> connected --> not connected: calls fail for RETRY_MS, then connect again
 *
 * A failure of the connection closes it: ERR_UNAVAILABLE. The same code means that the database
 * cannot execute a statement at present (full disk, locked, shutting down). ERR_PRECONDITION: the
 * transaction conflicts with another one. ERR_IO: any other error of a statement.
 *
 * Owner: as for the backend. The calls block for at most CALL_MS without a reply. */
#pragma once

#include "policy/backend.h"

#define PQ_CHANNEL "inferflux_policy" /* NOTIFY, by each change */

/* PGconn and PGresult of libpq */
struct pg_conn;
struct pg_result;

struct pq_call {
    struct pg_conn *db; /* NULL: not connected */
    char *url;
    uint64_t retry_ns; /* clock_ns: no attempt to connect before */
    struct err last;   /* why there is no connection */
};

/* Copies the URL and connects. ERR_INVALID: not a URL, ERR_MEMORY, ERR_UNAVAILABLE. */
int pq_init(struct pq_call *c, const char *url, struct err *e) MUST_CHECK;
void pq_clear(struct pq_call *c);
bool pq_is_connected(const struct pq_call *c);
void pq_disconnect(struct pq_call *c);
/* Readable when a notification has arrived or the connection has ended; -1: not connected. The next
 * statement reads the notification. */
int pq_fd(const struct pq_call *c);

/* Executes statements without parameters. */
int pq_run(struct pq_call *c, const char *sql, struct err *e) MUST_CHECK;
/* Executes one statement with n parameters as text. *out (NULL: not wanted) is the result, which
 * the caller releases by PQclear; NULL after an error. */
int pq_ask(struct pq_call *c, struct pg_result **out, const char *sql, int n,
    const char *const *params, struct err *e) MUST_CHECK;
/* Calls `row` with each row of a SELECT as a result of one row, until `row` fails. */
int pq_rows(struct pq_call *c, const char *sql,
    int (*row)(void *ctx, const struct pg_result *r, struct err *e), void *ctx,
    struct err *e) MUST_CHECK;
