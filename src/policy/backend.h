/* backend.h: storage of the policy. A backend stores API keys, limits, objects (object_set.h), and
 * the version of the policy, which every change increments by 1.
 *
 *   ini     one encrypted file, which is replaced as a whole; for one server and up to a few
 *           thousand keys
 *   sqlite  a database, which several servers on one machine may share
 *   postgres  a PostgreSQL database, which servers on several machines may share
 *
 * A change is on the disk when its function returns 0. After an error it is not stored, except
 * that a power failure or the end of the connection at that moment may have stored it.
 *
 * Owner: the main thread until policy_start, then the policy thread. The calls block. */
#pragma once

#include "policy/snapshot.h"

struct policy_list {            /* references that a backend has loaded */
    struct limit_set *limits;   /* NULL: none */
    struct object_set *objects; /* NULL: none */
    struct policy_key **keys;
    int n, n_max; /* n_max: room in `keys` */
    uint64_t version;
};

/* Takes the reference, on failure, too. ERR_MEMORY; ERR_RANGE: more than POLICY_KEYS_MAX. */
int policy_list_add(struct policy_list *l, struct policy_key *take, struct err *e) MUST_CHECK;
/* Adds an entry of limits. ERR_MEMORY, ERR_RANGE; ERR_CORRUPT: two entries of one subject. */
int policy_list_put_limits(
    struct policy_list *l, const struct limit_entry *entry, struct err *e) MUST_CHECK;
/* Takes the reference, on failure, too. ERR_MEMORY, ERR_RANGE; ERR_CORRUPT: two objects of one kind
 * and name. */
int policy_list_put_object(
    struct policy_list *l, struct policy_object *take, struct err *e) MUST_CHECK;
void policy_list_clear(struct policy_list *l);

struct policy_backend {
    const struct policy_backend_ops *ops;
};

struct policy_backend_options {
    const char *path;      /* path of a file; "" = none */
    const char *url;       /* URL of a database server; NULL or "" = none; contains a password */
    struct str passphrase; /* passphrase of an encrypted backend; .n 0: none was given */
};

struct policy_backend_ops {
    const char *name;
    /* Creates the file or tables if they are absent. ERR_INVALID, ERR_IO, ERR_CORRUPT: not readable
     * with this passphrase, or changed. Every function: ERR_UNAVAILABLE: the database does not
     * respond; a later call may succeed. */
    int (*open)(struct policy_backend **out, const struct policy_backend_options *o, struct err *e);
    /* Adds all keys, limits and objects to the empty list. */
    int (*load)(struct policy_backend *b, struct policy_list *out, struct err *e);
    /* Store a change. `next`: the snapshot after the change, with the next version.
     * ERR_PRECONDITION: another process has changed the policy since version next - 1. */
    int (*put)(struct policy_backend *b, const struct policy_key *key,
        const struct policy_snapshot *next, struct err *e);
    int (*delete)(struct policy_backend *b, const struct policy_key *key,
        const struct policy_snapshot *next, struct err *e);
    /* Replaces the limits by those of `next`. */
    int (*put_limits)(struct policy_backend *b, const struct policy_snapshot *next, struct err *e);
    /* Store or remove an object of `next`. */
    int (*put_object)(struct policy_backend *b, const struct policy_object *object,
        const struct policy_snapshot *next, struct err *e);
    int (*delete_object)(struct policy_backend *b, const struct policy_object *object,
        const struct policy_snapshot *next, struct err *e);
    /* The stored version, which another process may have incremented. */
    int (*version)(struct policy_backend *b, uint64_t *out, struct err *e);
    /* A descriptor that becomes readable when another process may have changed the policy or the
     * connection has ended, until the next call of a function; -1: there is none at present. NULL:
     * the backend has none. */
    int (*fd)(struct policy_backend *b);
    void (*close)(struct policy_backend *b); /* accepts NULL */
};

extern const struct policy_backend_ops policy_backend_ini, policy_backend_sqlite,
    policy_backend_postgres;
/* ERR_INVALID; ERR_UNSUPPORTED: a backend that this version does not have. */
int policy_backend_open(struct policy_backend **out, const char *name,
    const struct policy_backend_options *o, struct err *e) MUST_CHECK;
