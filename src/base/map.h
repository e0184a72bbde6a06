/* map.h: open-addressing hash maps from byte strings or integers to a 32-bit value.
 *
 * String keys are borrowed: their bytes must outlive the map. A map doubles when full; the caller
 * bounds the number of entries. Hashes use a per-process random seed, so that a file or a client
 * cannot choose colliding keys.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/str.h"

struct str_map;

struct str_map *str_map_new(size_t expected) MUST_CHECK; /* NULL: out of memory */
void str_map_free(struct str_map *m);
/* 1 = inserted, 0 = the key exists (value unchanged), -1 = out of memory */
int str_map_put(struct str_map *m, struct str key, uint32_t value) MUST_CHECK;
bool str_map_get(const struct str_map *m, struct str key, uint32_t *value);
size_t str_map_count(const struct str_map *m);

struct u64_map;

struct u64_map *u64_map_new(size_t expected) MUST_CHECK;
void u64_map_free(struct u64_map *m);
/* replaces an existing value; 0 or -1 */
int u64_map_put(struct u64_map *m, uint64_t key, uint32_t value) MUST_CHECK;
bool u64_map_get(const struct u64_map *m, uint64_t key, uint32_t *value);
size_t u64_map_count(const struct u64_map *m);
