/* shelf.h: answers that are kept for a while under their ids, so that a client may look at one
 * again or go on from it.
 *
 * An entry belongs to its owner (who asked): to anybody else it does not exist. It never changes,
 * but for those that stand here while they are made (growing.h), until their end. One that went on
 * from another holds it, so a conversation stays whole as long as its last answer is there; a front
 * of it that was dropped is only no longer found by its own id.
 *
 * What happens at the caps: an owner with too many bytes loses what it has not used for longest,
 * its last answers first; when all owners together have too many, the one that has most. What was
 * not used for `ttl_ns` is found no more, and goes when the next entry comes. An entry larger than
 * an owner may have is not taken.
 *
 * Any thread; shelf.mu guards all of it, reference counts too. */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct shelf;

enum { SHELF_DEPTH_MAX = 4096 }; /* answers that go on from each other */

struct shelf_options {
    size_t max_bytes, max_owner_bytes;
    uint64_t ttl_ns;
};

enum kept_stage { KEPT_ENDED, KEPT_WAITS, KEPT_RUNS, KEPT_FAILED, KEPT_CANCELLED };

struct kept { /* bytes live as long as a reference to it; nothing here changes */
    struct str id, answer, input; /* answer: of one that grows, as it began; see shelf_look */
    const struct kept *before;    /* what it went on from; NULL: nothing */
    int depth;                    /* how many there are before it */
    bool is_grown;                /* it is, or was, made on the shelf (growing.h) */
    bool is_told;                 /* ... and has a tape of what was told */
    int maker;                    /* ... by whom; the maker's own number */
};

struct kept_view { /* texts as those of the entry */
    enum kept_stage stage;
    struct str answer; /* as it ended; before that, as it began */
    bool is_cut;       /* ended, and its tape does not say how */
    uint64_t n_frames; /* on its tape */
};

struct shelf_stats {
    uint64_t hits, misses, evicted; /* evicted: for room, or too old */
    size_t entries, bytes;          /* bytes: also of what is only held by others */
};

int shelf_open(struct shelf **out, const struct shelf_options *o, struct err *e);
void shelf_close(struct shelf *s); /* NULL is fine; every reference must have come home */

/* Copies. `before` may be NULL. False: it is not kept, for it is too large or too deep, memory is
 * short, or the id is there already. */
bool shelf_put(struct shelf *s, uint64_t owner, const struct kept *k, uint64_t now_ns);
/* A reference; NULL when this owner has no such entry. It counts as a use of all before it. */
const struct kept *shelf_take(struct shelf *s, uint64_t owner, struct str id, uint64_t now_ns);
/* Another reference to what is held. */
const struct kept *shelf_ref(struct shelf *s, const struct kept *k);
/* How it stands now. */
void shelf_look(struct shelf *s, const struct kept *k, struct kept_view *out);
void shelf_unref(struct shelf *s, const struct kept *k); /* NULL is fine */
/* False: there was none. */
bool shelf_drop(struct shelf *s, uint64_t owner, struct str id, uint64_t now_ns);

void shelf_stats(struct shelf *s, struct shelf_stats *out);
void shelf_check(struct shelf *s); /* walks everything; aborts on a lie. For tests and soaks */
