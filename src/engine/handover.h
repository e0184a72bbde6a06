/* handover.h: what a model's prefix cache holds, as bytes: for files, and for other processes;
 * and what of it has to stay.
 *
 * Any thread but the engine's, which goes on meanwhile: it only says which pages, and nobody writes
 * to a page that is held. */
#pragma once

#include "engine/engine.h"

struct token_list {
    const int32_t *tokens;
    int n;
};

/* What there is of these tokens, prompt and answer alike, as a record (cache/record.h) in *bytes,
 * for mem_free. ERR_NOT_FOUND: nothing. ERR_UNSUPPORTED: the model has no digest or no cache.
 * ERR_MEMORY. */
int engine_save(struct engine *en, const struct cache_scope *scope, struct token_list list,
    uint8_t **bytes, size_t *n_bytes, struct err *e);

/* A record of a whole sequence goes to the prefix cache, in its own scope, as far as there is room
 * that nobody uses: *n_restored tokens. The bytes may be anything, aligned to RECORD_ALIGN.
 * ERR_CORRUPT; ERR_UNSUPPORTED: of another model or layout. */
int engine_restore(
    struct engine *en, uint8_t *bytes, size_t n_bytes, int *n_restored, struct err *e);

/* The full pages of these tokens stay in the prefix cache, until the same is unpinned, as often as
 * it was pinned. *n_pinned tokens; 0: nothing of it is there, or half of what one request at most
 * leaves is pinned already. ERR_UNSUPPORTED: there is no cache. */
int engine_pin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_pinned, struct err *e);
int engine_unpin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_unpinned, struct err *e);
