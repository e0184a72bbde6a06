/* index_store.h: SQLite database with the columns by which lines of the audit log are searched, and
 * the place of each line in its file. It contains nothing that the log does not contain: it may be
 * deleted at any time.
 *
 * Owner: one thread; the calls block. ERR_CORRUPT: the database is damaged and must be deleted. */
#pragma once

#include "audit/audit_index.h"

struct index_store;

struct index_row { /* strings: "" = the line has no such member */
    uint64_t seq;
    int64_t time_s, status; /* status 0: none */
    struct str key, tenant, model, action;
    uint64_t file, offset; /* first line of its file; bytes before the line */
    uint32_t bytes;        /* with the newline */
};

struct index_file { /* state of one file of the log */
    uint64_t first;
    uint64_t done;           /* bytes whose lines are in the index */
    char mac[AUDIT_HEX + 1]; /* MAC of the last of these lines */
};

/* Creates the file (mode 0600) if it is absent. ERR_IO, ERR_CORRUPT. */
int index_store_open(struct index_store **out, const char *path, struct err *e) MUST_CHECK;
void index_store_close(struct index_store *s); /* accepts NULL */
void index_store_remove(const char *path);     /* deletes the database */

int index_store_begin(struct index_store *s, struct err *e) MUST_CHECK;
int index_store_commit(struct index_store *s, struct err *e) MUST_CHECK;
void index_store_rollback(struct index_store *s);

int index_store_add(struct index_store *s, const struct index_row *row, struct err *e) MUST_CHECK;
/* The files in the index, in the order of their first lines. *out is freed by the caller. */
int index_store_files(
    struct index_store *s, struct index_file **out, int *n, struct err *e) MUST_CHECK;
int index_store_put_file(
    struct index_store *s, const struct index_file *f, struct err *e) MUST_CHECK;
/* Removes the file and its lines. */
int index_store_drop_file(struct index_store *s, uint64_t first, struct err *e) MUST_CHECK;

/* Finds up to f->limit + 1 lines, the newest first; only the places and numbers of rows[] are set.
 * ERR_TIMEOUT: more than a few seconds were needed. */
int index_store_find(struct index_store *s, const struct audit_filter *f, struct index_row rows[],
    int *n, struct err *e) MUST_CHECK;
