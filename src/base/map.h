/* map.h: open-addressing hash map from bytes or integers to a 32-bit value.
 *
 * Strings are borrowed: their bytes must outlive the map. Grows by doubling; the caller bounds
 * the number of entries. Keys are mixed with a per-process random seed, so that a file or a
 * client cannot choose colliding ones. Owner: whoever holds it. */
#pragma once

#include "base/str.h"

struct str_map;

struct str_map *str_map_new(size_t expected) MUST_CHECK; /* NULL when memory is gone */
void str_map_free(struct str_map *m);
/* 1 = put, 0 = the key was there already (value unchanged), -1 = memory is gone */
int str_map_put(struct str_map *m, struct str key, uint32_t value) MUST_CHECK;
bool str_map_get(const struct str_map *m, struct str key, uint32_t *value);
size_t str_map_count(const struct str_map *m);

struct u64_map;

struct u64_map *u64_map_new(size_t expected) MUST_CHECK;
void u64_map_free(struct u64_map *m);
int u64_map_put(struct u64_map *m, uint64_t key, uint32_t value) MUST_CHECK; /* replaces; 0 or -1 */
bool u64_map_get(const struct u64_map *m, uint64_t key, uint32_t *value);
size_t u64_map_count(const struct u64_map *m);
