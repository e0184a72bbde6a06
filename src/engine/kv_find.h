/* kv_find.h: which records on disk continue a prefix that is in memory.
 *
 * A sequence resumes at the end of a page, if the model has no state slots, or else at a
 * checkpoint; all pages before that position must be in memory or on disk, and with windowed layers
 * the window pages that the next row reads.
 *
 * Part of kv_load.c. Owner: the engine thread. Takes no references. */
#pragma once

#include "engine/core.h"

struct prefix_query { /* a prefix and how much of it may be read */
    const struct cache_scope *scope;
    tree_node root;
    const int32_t *tokens; /* [limit + 1] */
    int limit;
};

/* Tokens that would be computed again, and the bytes of the records that replace them. */
struct load_size {
    int pos, n_tokens;
    uint64_t n_bytes;
};

/* Sets what the job reads, apart from the pages to be filled: those on disk up to the deepest
 * position where a sequence can resume. n_tokens 0: none that is deeper than in memory. */
struct load_size kv_find(const struct core *c, const struct prefix_query *q, struct tier_read *f);
