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

struct shelf;

enum { SHELF_DEPTH_MAX = 4096 }; /* responses in a chain of previous responses */

struct shelf_options {
    size_t max_bytes, max_owner_bytes;
    uint64_t ttl_ns;
};

enum kept_stage { KEPT_ENDED, KEPT_WAITS, KEPT_RUNS, KEPT_FAILED, KEPT_CANCELLED };

/* All fields are immutable; the bytes are valid while the caller holds a reference. */
struct kept {
    /* `response`: the response object, for a live response as it was at the start (see
     * response_store_view); `input`: the input items */
    struct str id, answer, input;
    const struct kept *before; /* previous response; NULL: none */
    int depth;                 /* number of previous responses in the chain */
    bool is_grown;             /* created with live_response_begin */
    bool is_told;              /* ... and has an event log of its stream */
    int maker;                 /* ... io thread that generates it (index in the service) */
};

struct kept_view { /* snapshot; the strings are valid as long as those of the entry */
    enum kept_stage stage;
    struct str answer; /* final response object; before the end, the initial one */
    bool is_cut;       /* the response has ended and its event log lacks the final event */
    uint64_t n_frames; /* in the event log */
};

struct shelf_stats {
    uint64_t hits, misses, evicted; /* `evicted`: because of a limit or of `ttl_ns` */
    size_t entries, bytes; /* `bytes` includes entries that are only referenced by others */
};

int shelf_open(struct shelf **out, const struct shelf_options *o, struct err *e);
void shelf_close(struct shelf *s); /* accepts NULL; the caller has returned all references */

/* Copies `k`. `previous` may be NULL. Returns false, and stores nothing, if the entry is too large,
 * the chain is too deep, memory is short, or the id exists. */
bool shelf_put(struct shelf *s, uint64_t owner, const struct kept *k, uint64_t now_ns);
/* Returns a reference, or NULL if this owner has no such entry. Marks the entry and all previous
 * responses as used. */
const struct kept *shelf_take(struct shelf *s, uint64_t owner, struct str id, uint64_t now_ns);
/* Returns another reference to an entry that the caller holds. */
const struct kept *shelf_ref(struct shelf *s, const struct kept *k);
/* Writes the current state of the entry to *out. */
void shelf_look(struct shelf *s, const struct kept *k, struct kept_view *out);
void shelf_unref(struct shelf *s, const struct kept *k); /* accepts NULL */
/* Returns false if there was no such entry. */
bool shelf_drop(struct shelf *s, uint64_t owner, struct str id, uint64_t now_ns);

void shelf_stats(struct shelf *s, struct shelf_stats *out);
/* Checks all invariants; aborts on a violation. For tests. */
void shelf_check(struct shelf *s);
