/* growing.h: answers that stand on the shelf while they are made.
 *
 *     growing_begin -> KEPT_WAITS -> growing_runs -> KEPT_RUNS -> growing_end
 *                                                  -> KEPT_ENDED | KEPT_FAILED | KEPT_CANCELLED
 *
 * One thread makes it: who called growing_begin, whose reference it holds until after growing_end.
 * Any thread looks at it, reads what it has told so far, waits for more, or says that nobody wants
 * it any more. Nobody is called from here: who makes it gets the listeners with every growth, and
 * tells them; who listens first and reads then misses nothing.
 *
 * It is found from its beginning, and neither grows old nor goes for room before its end. Its bytes
 * count as they come: where there is no room for more, growing_put says so.
 *
 * Guarded by shelf.mu, like everything of the shelf; a copy of what is told is the longest it is
 * held. */
#pragma once

#include "serve/responses/shelf.h"
#include "serve/responses/tape.h"

enum { GROWING_SPARE = 4 * 1024 }; /* bytes that the last words may have more than the first */

/* What k->answer says is how it begins. NULL: no room, no memory, or the id is there. */
const struct kept *growing_begin(
    struct shelf *s, uint64_t owner, const struct kept *k, uint64_t now_ns);
void growing_runs(struct shelf *s, const struct kept *k);

/* Whole frames of its tape. False: there is no room, nothing was put. *listeners: whom to tell. */
bool growing_put(
    struct shelf *s, const struct kept *k, struct str frames, uint64_t *listeners) MUST_CHECK;

struct growing_last {
    enum kept_stage stage; /* not WAITS, not RUNS */
    struct str answer;     /* as it is from now on */
    struct str frames;     /* the last ones of the tape */
    bool is_cut;           /* the tape has no end that says so */
};
/* All at once. False: there is no room, nothing has changed; an answer of at most GROWING_SPARE
 * bytes more than the first one, with as many bytes of frames, always has room. */
bool growing_end(struct shelf *s, const struct kept *k, const struct growing_last *last,
    uint64_t now_ns, uint64_t *listeners) MUST_CHECK;

/* From now on `listener` (0 to 63) is among those who are told. */
void growing_listen(struct shelf *s, const struct kept *k, unsigned listener);
/* What the tape says behind the place, as in tape.h; the bytes live as long as the reference. */
struct str growing_read(struct shelf *s, const struct kept *k, struct tape_place *p, size_t most);
bool growing_seek(struct shelf *s, const struct kept *k, struct tape_place *p, uint64_t frame);

/* Nobody wants it: who makes it finds out with growing_is_unwanted. False: it has ended. */
bool growing_stop(struct shelf *s, const struct kept *k);
bool growing_is_unwanted(struct shelf *s, const struct kept *k);
