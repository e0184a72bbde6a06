/* mask_cache.h: masks of a constraint by key of the position (acceptor.h), least recently used
 * evicted first.
 *
 * All memory is allocated at creation. Keys are valid for one generation of the acceptor: calls
 * with another generation drop all masks.
 *
 * Owner: that of the acceptor. */
#pragma once

#include "base/base.h"

struct mask_cache;

/* Masks have n_words words. If bytes_max is below the size of one mask, none is stored. NULL: out
 * of memory. */
struct mask_cache *mask_cache_new(size_t n_words, size_t bytes_max) MUST_CHECK;
void mask_cache_free(struct mask_cache *c); /* accepts NULL */
size_t mask_cache_bytes(const struct mask_cache *c);

/* Borrowed until the next call; NULL if absent. */
const uint32_t *mask_cache_find(struct mask_cache *c, uint64_t generation, uint64_t key);
void mask_cache_put(struct mask_cache *c, uint64_t generation, uint64_t key, const uint32_t *mask);
