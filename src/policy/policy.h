/* policy.h: the API keys of the server: those of the configuration, and those of a backend, which
 * an administrator changes while the server runs.
 *
 *     policy_open --> policy_start --> policy_stop --> policy_close
 *
 * The policy thread owns the backend and the current snapshot. It executes changes one after the
 * other: it makes the next snapshot, stores the change, publishes the snapshot by a callback, and
 * returns the change to its sender. So a change that was reported is on the disk, and every reader
 * has been sent it. Twice a second, and when the backend notifies it, the thread looks for changes
 * of other processes. If the backend fails, the last snapshot remains in use, and it is stale after
 * stale_ms.
 *
 * Owner: the main thread, for every function except policy_post and policy_is_stale. */
#pragma once

#include "os/mailbox.h"
#include "policy/backend.h"

struct policy;

struct policy_options {      /* borrowed for the life of the policy */
    const struct keys *keys; /* keys of the configuration */
    const char *backend;     /* "" = none: the keys of the configuration cannot be changed */
    struct policy_backend_options storage; /* the passphrase is used by policy_open only */
    int64_t stale_ms;                      /* 0 = a snapshot is never stale */
    /* Checks an object before it is stored, on the policy thread. NULL = no further check. */
    int (*check_object)(void *ctx, const struct policy_object *o, struct err *e);
    void *check_ctx;
};

/* Opens the backend and loads the keys. The errors are those of the backend; ERR_INVALID: a stored
 * key equals one of the configuration. */
int policy_open(struct policy **out, const struct policy_options *o, struct err *e) MUST_CHECK;
/* A reference to the snapshot of policy_open; before policy_start. */
struct policy_snapshot *policy_first(struct policy *p) MUST_CHECK;
/* The backend has failed for more than stale_ms, so that stored keys must not be used. Any thread;
 * accepts NULL. */
bool policy_is_stale(const struct policy *p);
bool policy_has_backend(const struct policy *p);
/* Starts the thread. It calls `publish` for each new snapshot, which the callback borrows. */
int policy_start(struct policy *p, void (*publish)(void *ctx, struct policy_snapshot *s), void *ctx,
    struct err *e) MUST_CHECK;
/* Executes the changes that were posted, and ends the thread, if it runs. Accepts NULL. */
void policy_stop(struct policy *p);
void policy_close(struct policy *p); /* accepts NULL */

enum policy_action {
    POLICY_CREATE,
    POLICY_PUT,
    POLICY_DELETE,
    POLICY_PUT_LIMITS,
    POLICY_DELETE_LIMITS,
    POLICY_PUT_OBJECT,
    POLICY_DELETE_OBJECT
};

struct policy_change {
    struct msg msg; /* kind: of the reply */
    struct mailbox *reply_to;
    enum policy_action action;
    char id[2 * KEY_ID_BYTES + 1]; /* id for PUT and DELETE */
    /* CREATE: the new key; PUT: the new attributes, with any digest. The policy takes it. */
    struct policy_key *key;
    /* PUT_LIMITS, DELETE_LIMITS: the subject, and the new values; then as stored or deleted */
    struct limit_entry limits;
    /* PUT_OBJECT: the new object, whose reference the policy takes. DELETE_OBJECT: its subject. */
    struct policy_object *object;
    enum policy_object_kind object_kind;
    char object_name[OBJECT_NAME_MAX + 1];
    /* Result of both: as stored or deleted, and before PUT; references, or NULL. */
    const struct policy_object *object_result, *object_before;
    bool has_version;
    uint64_t version; /* If-Match: only if the key, entry or object has this version */
    /* Result: NULL with `err`, or a reference: the key as it is stored or was deleted. */
    const struct policy_key *result;
    const struct policy_key *before; /* with a result: the key before PUT; a reference, or NULL */
    struct err err;                  /* code ERR_NONE: success */
};

/* The change is owned by the policy until it is posted to reply_to. Only after policy_start of a
 * policy that has a backend. Any thread. */
void policy_post(struct policy *p, struct policy_change *take);

/* A snapshot of the keys of the configuration alone. */
int policy_snapshot_of_keys(
    struct policy_snapshot **out, const struct keys *keys, struct err *e) MUST_CHECK;
