/* stored_response.h: connects requests of the Responses API (api/responses.h) with the response
 * store (response_store.h): resolves previous_response_id and stores finished responses. Any
 * thread. */
#pragma once

#include "api/common/answer.h"
#include "serve/responses/shelf.h"

struct kept_place {
    struct shelf *shelf; /* NULL: responses are not stored */
    uint64_t owner;
    struct arena *arena;
};

/* Resolves previous_response_id and references to stored items, and completes the conversation.
 * *previous: a reference to the previous response, or NULL; also set on error; the request's tree
 * points into it. ERR_UNSUPPORTED without a store, ERR_NOT_FOUND if the response does not exist or
 * has another owner, ERR_INVALID if it has not completed. Also clears `store` of the request if
 * there is no store, and rejects a background request that would not be stored. */
int kept_recall(
    const struct kept **before, struct ask *ask, const struct kept_place *ctx, struct err *e);

/* Stores a finished response if the request asks for it. */
void kept_put(struct shelf *shelf, uint64_t owner, const struct ask *ask, const struct answer *a,
    const struct kept *before);
