/* mask_cache.h: masks of a constraint by state of its automaton, least recently used evicted first.
 *
 * All memory is allocated at creation. State ids are valid for one generation of the automaton:
 * calls with another generation drop all masks.
 *
 * Owner: that of the automaton. */
#pragma once

#include "constrain/automaton.h"

struct mask_cache;

/* Masks have n_words words. If bytes_max is below the size of one mask, none is stored. NULL: out
 * of memory. */
struct mask_cache *mask_cache_new(size_t n_words, size_t bytes_max) MUST_CHECK;
void mask_cache_free(struct mask_cache *c); /* accepts NULL */
size_t mask_cache_bytes(const struct mask_cache *c);

/* Borrowed until the next call; NULL if absent. */
const uint32_t *mask_cache_find(struct mask_cache *c, uint64_t generation, state_id s);
void mask_cache_put(struct mask_cache *c, uint64_t generation, state_id s, const uint32_t *mask);
