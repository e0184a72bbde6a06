/* kv_export.h: export and import of a model's prefix cache as byte records, for files and other
 * processes; erase and pinning of cached prefixes.
 *
 * Any thread except the engine thread, which continues to run: it only takes and releases the
 * pages, and no sequence writes to a held page. The caller copies the page contents. */
#pragma once

#include "engine/engine.h"

struct token_list {
    const int32_t *tokens;
    int n;
};

struct kv_prefix {         /* a token prefix in the prefix cache of a model */
    const uint8_t *digest; /* [32] of the model file */
    struct cache_scope scope;
    struct token_list list;
};

struct kv_record { /* record of cache/record.h; memory aligned to RECORD_ALIGN */
    uint8_t *bytes;
    size_t n_bytes;
    int n_tokens; /* saved or restored tokens */
};

/* Exports the cached part of these tokens (prompt and output) as a record in *out; the caller frees
 * its bytes with mem_free. ERR_NOT_FOUND: none is cached. ERR_UNSUPPORTED: the KV of this model
 * cannot be saved. ERR_MEMORY. */
int engine_kv_export(
    struct engine *en, const struct kv_prefix *p, struct kv_record *out, struct err *e);
/* Size of a record of n_tokens. */
size_t engine_kv_record_bytes(const struct engine *en, int n_tokens);

/* Imports a record of a whole sequence into the prefix cache, as far as unused pages are available.
 * p->digest and p->scope.tenant are the required owner; the rest of *p is set from the record, with
 * tokens in the bytes of *r. The bytes are untrusted. ERR_CORRUPT; ERR_UNSUPPORTED: other model or
 * layout; ERR_FORBIDDEN: other tenant; ERR_MEMORY. */
int engine_kv_import(struct engine *en, struct kv_prefix *p, struct kv_record *r, struct err *e);

/* Removes the pages of these tokens from the prefix cache, from the last one backwards, as long as
 * they are unused and have no successors; this process does not read them from disk any more
 * either. *n_erased in tokens. ERR_UNSUPPORTED: no prefix cache. */
int engine_kv_erase(struct engine *en, const struct kv_prefix *p, int *n_erased, struct err *e);

/* Pins the full pages of these tokens in the prefix cache, once per call, until as many unpins; for
 * a model with recurrent or windowed layers up to the deepest position where a request can resume,
 * with the state slot and the window pages. *n_pinned in tokens; 0: none is cached, or a limit is
 * reached, which is half of the pages that one request of maximum length leaves, and likewise of
 * slots and window pages. ERR_UNSUPPORTED: no prefix cache. */
int engine_kv_pin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_pinned, struct err *e);
int engine_kv_unpin(struct engine *en, const struct cache_scope *scope, struct token_list list,
    int *n_unpinned, struct err *e);
