/* usage.h: sums of requests, tokens and cost by hour, key, tenant and model, in an SQLite database.
 *
 *     usage_open -> usage_restore -> usage_start -> usage_add, usage_post -> usage_close
 *
 * Sums of the last second are in memory. The usage thread stores them in one transaction, once a
 * second, before each query and at the end, so the database is consistent after a crash, which
 * loses at most a second. If a write fails, the sums remain in memory and are stored later. Hours
 * that are older than USAGE_DAYS are removed.
 *
 * Any thread for usage_add and usage_post, the main thread for the rest; a mutex guards the sums
 * that are not stored, and is not held during a call of SQLite. */
#pragma once

#include "limits/limiter.h"
#include "os/mailbox.h"

struct usage;

enum { USAGE_DAYS = 400, USAGE_PAGE_MAX = 500 };

struct usage_row {
    int64_t id;                     /* number of the row in the database; ascending */
    int64_t hour;                   /* since 1970 */
    char key[2 * KEY_ID_BYTES + 1]; /* "" = anonymous */
    char tenant[KEY_GROUP_MAX + 1]; /* "" = none */
    char model[LIMIT_NAME_MAX + 1];
    int64_t requests, prompt, output;
    int64_t cost; /* millionths of millionths of the currency */
};

/* path: "" = in memory, until usage_close. ERR_IO, ERR_CORRUPT, ERR_MEMORY, ERR_INVALID. */
int usage_open(struct usage **out, const char *path, struct err *e) MUST_CHECK;
/* Adds the sums of this day and month to the budgets. Before usage_start. */
int usage_restore(
    struct usage *u, struct limiter *l, const struct limit_time *t, struct err *e) MUST_CHECK;
int usage_start(struct usage *u, struct err *e) MUST_CHECK;
void usage_close(struct usage *u); /* stores the sums; accepts NULL */

/* Adds the numbers of `row` to the sums of its hour, key, tenant and model; id is ignored. Without
 * memory they are lost, which is logged. */
void usage_add(struct usage *u, const struct usage_row *row);

struct usage_query {
    struct msg msg; /* kind: of the reply */
    struct mailbox *reply_to;
    int64_t from_hour, to_hour; /* hours from <= hour < to */
    int64_t after_id;           /* rows with a higher id; 0 = all */
    char key[2 * KEY_ID_BYTES + 1], tenant[KEY_GROUP_MAX + 1],
        model[LIMIT_NAME_MAX + 1]; /* "": all */
    int n_max;                     /* rows, at most USAGE_PAGE_MAX */
    struct usage_row *rows;        /* [n_max], of the caller; result, in the order of the ids */
    int n;
    bool has_more;
    struct err err; /* code ERR_NONE: success */
};

/* The query is owned by the usage thread until it is posted to reply_to. After usage_start. */
void usage_post(struct usage *u, struct usage_query *take);
