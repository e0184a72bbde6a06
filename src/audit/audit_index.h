/* audit_index.h: search over the audit log (GET /v1/admin/audit).
 *
 *     audit log --read--> index thread --> PATH.index (index_store.h)
 *     query     --post--> index thread --> places of lines --> lines of the log
 *
 * The index thread follows the log: it reads the lines that were written since, at least once a
 * second and before each query, and forgets files that were removed. The log is the only source: a
 * query returns the bytes of the log, and the index is made again if it is missing, damaged or of
 * another log. Files that another program has renamed are not found. Neither the start of the
 * server nor an event loop waits for the index.
 *
 * Owner: the main thread opens and closes; any thread posts queries. */
#pragma once

#include "audit/audit.h"
#include "audit/audit_line.h"
#include "os/mailbox.h"

enum { AUDIT_PAGE_MAX = 500, AUDIT_FILTER_BYTES = 256 };

struct audit_filter_text {
    bool is_set;
    char text[AUDIT_FILTER_BYTES];
};

struct audit_filter {
    bool has_from, has_to, has_status, has_before;
    int64_t from_s, to_s; /* Unix time, both included */
    int64_t status;
    uint64_t before; /* only lines with a lower number */
    /* action: `action` of a line, else its `event` */
    struct audit_filter_text key, tenant, model, action;
    int limit; /* 1 to AUDIT_PAGE_MAX */
};

struct audit_query {
    struct msg msg; /* kind: of the reply */
    struct mailbox *reply_to;
    struct audit_filter filter;
    /* Result: `err`, or lines as JSON values, separated by commas, the newest first. */
    struct buf lines;
    int n_lines;
    uint64_t last; /* number of the last line; valid if n_lines > 0 */
    bool has_more;
    bool is_complete; /* false: the index is being made, and does not contain all lines yet */
    struct err err;
};

struct audit_index;

/* path: of the log; `log` outlives the index. Starts the thread. ERR_IO. */
int audit_index_open(
    struct audit_index **out, const char *path, struct audit *log, struct err *e) MUST_CHECK;
/* Answers the queries that were posted, and ends the thread. Accepts NULL. */
void audit_index_close(struct audit_index *x);

/* The query is owned by the index until it is posted to reply_to; then the caller clears
 * `lines`. */
void audit_index_post(struct audit_index *x, struct audit_query *take);
