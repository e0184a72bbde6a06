/* response_store.h: memory for the stored objects of the Responses API. A client can read a stored
 * response by its id, or continue the conversation with it as `previous_response_id`.
 *
 * An entry belongs to one owner (the tenant that sent the request); other owners cannot find it. An
 * entry is immutable, except a live response (live_response.h), which changes until it ends. An
 * entry holds a reference to its previous response. Therefore a conversation stays complete while
 * its last response is stored: removing an earlier entry only means that its own id is no longer
 * found.
 *
 * Limits: if an owner exceeds `max_owner_bytes`, its least recently used entries are evicted;
 * within a conversation the last response is evicted first. If the sum over all owners exceeds
 * `max_bytes`, the owner with the most bytes loses its least recently used entry. An entry that was
 * not used for `ttl_ns` is not found any more and is freed at the next insertion. An entry larger
 * than `max_owner_bytes` is rejected.
 *
 * Any thread. One mutex guards all state, including the reference counts. */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct response_store;

enum { RESPONSE_STORE_DEPTH_MAX = 4096 }; /* responses in a chain of previous responses */

struct response_store_options {
    size_t max_bytes, max_owner_bytes;
    uint64_t ttl_ns;
};

enum stored_stage {
    STORED_COMPLETED,
    STORED_QUEUED,
    STORED_RUNNING,
    STORED_FAILED,
    STORED_CANCELLED
};

/* All fields are immutable; the bytes are valid while the caller holds a reference. */
struct stored_response {
    /* `response`: the response object, for a live response as it was at the start (see
     * response_store_view); `input`: the input items */
    struct str id, response, input;
    const struct stored_response *previous; /* previous response; NULL: none */
    int depth;                              /* number of previous responses in the chain */
    bool is_background;                     /* created with live_response_begin */
    bool has_event_log;                     /* ... and has an event log of its stream */
    int producer; /* ... io thread that generates it (index in the service) */
};

struct stored_response_view { /* snapshot; the strings are valid as long as those of the entry */
    enum stored_stage stage;
    struct str response;   /* final response object; before the end, the initial one */
    bool is_log_truncated; /* the response has ended and its event log lacks the final event */
    uint64_t n_frames;     /* in the event log */
};

struct response_store_stats {
    uint64_t hits, misses, evicted; /* `evicted`: because of a limit or of `ttl_ns` */
    size_t entries, bytes; /* `bytes` includes entries that are only referenced by others */
};

int response_store_open(
    struct response_store **out, const struct response_store_options *o, struct err *e);
void response_store_close(
    struct response_store *s); /* accepts NULL; the caller has returned all references */

/* Copies `k`. `previous` may be NULL. Returns false, and stores nothing, if the entry is too large,
 * the chain is too deep, memory is short, or the id exists. */
bool response_store_put(
    struct response_store *s, uint64_t owner, const struct stored_response *k, uint64_t now_ns);
/* Returns a reference, or NULL if this owner has no such entry. Marks the entry and all previous
 * responses as used. */
const struct stored_response *response_store_take(
    struct response_store *s, uint64_t owner, struct str id, uint64_t now_ns);
/* Returns another reference to an entry that the caller holds. */
const struct stored_response *response_store_ref(
    struct response_store *s, const struct stored_response *k);
/* Writes the current state of the entry to *out. */
void response_store_view(
    struct response_store *s, const struct stored_response *k, struct stored_response_view *out);
void response_store_unref(
    struct response_store *s, const struct stored_response *k); /* accepts NULL */
/* Returns false if there was no such entry. */
bool response_store_remove(
    struct response_store *s, uint64_t owner, struct str id, uint64_t now_ns);

void response_store_stats(struct response_store *s, struct response_store_stats *out);
/* Checks all invariants; aborts on a violation. For tests. */
void response_store_check(struct response_store *s);
