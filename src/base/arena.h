/* arena.h: memory with one lifetime, freed by one call.
 *
 * The parse tree, prompt and tokens of a request are allocated in an arena. Their size comes from
 * outside, so an arena has a cap: arena_alloc returns NULL above the cap or without memory, and the
 * caller returns ERR_MEMORY or ERR_TOO_LARGE. Memory is aligned to 16 bytes and not zeroed. The
 * chunks of an arena may count against a budget, which can refuse more of them.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/budget.h"
#include "base/str.h"

struct arena;

struct arena *arena_new(size_t max_bytes) MUST_CHECK; /* NULL: out of memory */
void arena_free(struct arena *a); /* runs the cleanup functions, last registered first */

/* Counts the chunks of the arena, present and future, against `c`, which may itself be in the
 * arena; arena_free gives them back. Called once. False: refused; then nothing is counted. */
bool arena_charge(struct arena *a, struct charge *c) MUST_CHECK;

void *arena_alloc(struct arena *a, size_t n) MUST_CHECK;
/* n * size bytes, overflow-checked, zeroed */
void *arena_zalloc(struct arena *a, size_t n, size_t size) MUST_CHECK;
/* Copies s and appends a NUL; .p is NULL if the arena is full. */
struct str arena_str(struct arena *a, struct str s) MUST_CHECK;

/* Grows the newest allocation in place if possible, else copies. */
void *arena_realloc(struct arena *a, void *p, size_t old, size_t n) MUST_CHECK;

/* Registers fn(arg) for arena_free, for example to close a descriptor. -1: the arena is full. */
int arena_cleanup(struct arena *a, void (*fn)(void *arg), void *arg) MUST_CHECK;

size_t arena_used(const struct arena *a);
