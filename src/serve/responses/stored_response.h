/* stored_response.h: connects requests of the Responses API (api/responses/responses.h) with the
 * response store (response_store.h): resolves previous_response_id and stores finished responses.
 * Any thread. */
#pragma once

#include "api/common/response.h"
#include "serve/responses/response_store.h"

struct stored_response_ctx {
    struct response_store *response_store; /* NULL: responses are not stored */
    uint64_t owner;
    struct arena *arena;
};

/* Resolves previous_response_id and references to stored items, and completes the conversation.
 * *previous: a reference to the previous response, or NULL; also set on error; the request's tree
 * points into it. ERR_UNSUPPORTED without a store, ERR_NOT_FOUND if the response does not exist or
 * has another owner, ERR_INVALID if it has not completed. Also clears `store` of the request if
 * there is no store, and rejects a background request that would not be stored. */
int stored_response_recall(const struct stored_response **previous, struct request *request,
    const struct stored_response_ctx *ctx, struct err *e);

/* Stores a finished response if the request has `store`. */
void stored_response_put(struct response_store *response_store, uint64_t owner,
    const struct request *request, const struct response *a,
    const struct stored_response *previous);
