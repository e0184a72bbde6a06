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

struct handover_part {     /* of what a prefix cache holds */
    const uint8_t *digest; /* [32] of the model's file */
    struct cache_scope scope;
    struct token_list list;
};

struct handover_record { /* cache/record.h; its memory is aligned to RECORD_ALIGN */
    uint8_t *bytes;
    size_t n_bytes;
    int n_tokens; /* that were saved, or restored */
};

/* What there is of these tokens, prompt and answer alike, as a record in *out, its bytes for
 * mem_free. ERR_NOT_FOUND: nothing. ERR_UNSUPPORTED: this model's keys and values can not be
 * saved. ERR_MEMORY. */
int engine_save(
    struct engine *en, const struct handover_part *p, struct handover_record *out, struct err *e);
size_t engine_record_bytes(const struct engine *en, int n_tokens); /* of a record of so many */

/* A record of a whole sequence goes to the prefix cache, as far as there is room that nobody uses.
 * p->digest and p->scope.tenant say whose it must be; the rest of *p is what was in it, the tokens
 * in r's bytes. Those may be anything. ERR_CORRUPT; ERR_UNSUPPORTED: of another model or layout;
 * ERR_FORBIDDEN: of another tenant; ERR_MEMORY. */
int engine_restore(
    struct engine *en, struct handover_part *p, struct handover_record *r, struct err *e);

/* Pages of these tokens are given up, from the last one back, as long as nobody uses them and
 * nothing else goes on from them; and this process does not find them on disk any more. *n_erased
 * tokens. ERR_UNSUPPORTED: there is no cache. */
int engine_erase(struct engine *en, const struct handover_part *p, int *n_erased, struct err *e);

/* The full pages of these tokens stay in the prefix cache, until the same is unpinned, as often as
 * it was pinned. *n_pinned tokens; 0: nothing of it is there, or half of what one request at most
 * leaves is pinned already. ERR_UNSUPPORTED: there is no cache. */
int engine_pin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_pinned, struct err *e);
int engine_unpin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_unpinned, struct err *e);
