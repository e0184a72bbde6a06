/* arena.h: memory of one lifetime, freed by one call.
 *
 * A request's parse tree, prompt and tokens live in one of these. Sized from outside, so it
 * has a cap: arena_alloc returns NULL over the cap or when memory is gone, and the caller
 * returns ERR_MEMORY or ERR_TOO_LARGE. Memory is 16-byte aligned and not zeroed.
 *
 * Owner: whoever holds it; one thread at a time. */
#pragma once

#include "base/str.h"

struct arena;

struct arena *arena_new(size_t max_bytes) MUST_CHECK; /* NULL when memory is gone */
void arena_free(struct arena *a);                     /* runs the cleanups, last first */

void *arena_alloc(struct arena *a, size_t n) MUST_CHECK;
/* n * size, checked, zeroed */
void *arena_zalloc(struct arena *a, size_t n, size_t size) MUST_CHECK;
/* A copy, with a NUL behind; .p NULL when full. */
struct str arena_str(struct arena *a, struct str s) MUST_CHECK;

/* Grows the newest allocation in place where it can, else copies. */
void *arena_realloc(struct arena *a, void *p, size_t old, size_t n) MUST_CHECK;

/* fn(arg) runs in arena_free: for the odd descriptor or heap block. -1 when full. */
int arena_cleanup(struct arena *a, void (*fn)(void *arg), void *arg) MUST_CHECK;

size_t arena_used(const struct arena *a);
