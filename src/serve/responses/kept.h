/* kept.h: answers that later ones go on from: between the wire that has them (api/responses.h) and
 * the shelf they stand on (store/shelf.h). Any thread. */
#pragma once

#include "api/common/answer.h"
#include "serve/responses/shelf.h"

struct kept_place {
    struct shelf *shelf; /* NULL: nothing is kept here */
    uint64_t owner;
    struct arena *arena;
};

/* A conversation that needs what is kept becomes complete. *before: what it goes on from, with a
 * reference, or NULL, also after an error; the request's tree points into it. ERR_UNSUPPORTED
 * without a shelf, ERR_NOT_FOUND when it is not there, or another's, ERR_INVALID when it has not
 * ended well. Also settles whether the answer is kept, as one in the background has to be. */
int kept_recall(
    const struct kept **before, struct ask *ask, const struct kept_place *at, struct err *e);

/* An answer that has ended, when its client wants it kept. */
void kept_put(struct shelf *shelf, uint64_t owner, const struct ask *ask, const struct answer *a,
    const struct kept *before);
