/* compile_cache.h: compiled constraints by source, least recently used evicted first.
 *
 * The key is the SHA-256 (FIPS 180-4) of kind, text, options, vocabulary and tenant. An entry is
 * visible only to its tenant, so neither content nor compile time reveals to one tenant what
 * another one uses. A tenant has at most a quarter of the memory: above it, its own entries are
 * evicted. An entry holds a reference to the constraint; a caller's reference stays valid after the
 * eviction.
 *
 * Threads that need the same constraint at the same time wait for one compilation. Errors are not
 * stored.
 *
 * Any thread. The mutex is not held while a constraint is compiled. */
#pragma once

#include "constrain/constraint.h"

enum { COMPILE_CACHE_SHARES = 4 }; /* a tenant has one share of the memory */
#define COMPILE_CACHE_BYTES_DEFAULT (64 * MB)

struct compile_cache_stats {
    uint64_t n_hits, n_misses, n_waits, n_evictions; /* a wait counts as a hit, too */
    size_t n_entries, bytes;
};

struct compile_cache;

/* bytes_max 0: nothing is stored. NULL: out of memory. */
struct compile_cache *compile_cache_new(size_t bytes_max) MUST_CHECK;
/* Accepts NULL. No call is in progress. */
void compile_cache_free(struct compile_cache *c);

/* Finds the constraint, or compiles it with constraint_new and its errors. The caller owns a
 * reference. */
int compile_cache_get(struct compile_cache *c, struct constraint **out,
    const struct constraint_source *src, const struct vocab_tables *t, struct str tenant,
    struct err *e) MUST_CHECK;
/* Drops the constraints of a vocabulary before its tables are freed. No call for these tables is in
 * progress. */
void compile_cache_drop(struct compile_cache *c, const struct vocab_tables *t);

struct compile_cache_stats compile_cache_stats(struct compile_cache *c);
