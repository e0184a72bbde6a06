/* code_points.h: sets of Unicode code points as sorted lists of ranges.
 *
 * The ranges of a set that is not `is_dirty` are sorted, disjoint and not adjacent. Adding is
 * amortised O(1); the first query afterwards sorts. Memory is bounded by RANGES_MAX; beyond it, or
 * without memory, the set is `failed` and remains so.
 *
 * Owner: the caller; plain data, cleared with code_points_clear. */
#pragma once

#include "base/base.h"

enum { CODE_POINT_MAX = 0x10FFFF, RANGES_MAX = 20000 };

struct code_range {
    uint32_t from, to; /* inclusive */
};

struct code_points {
    struct code_range *r;
    uint32_t n, cap;
    bool is_dirty, is_failed;
};

void code_points_clear(struct code_points *s); /* {0} is the empty set */
void code_points_add(struct code_points *s, uint32_t from, uint32_t to);
void code_points_add_all(struct code_points *s, const struct code_points *from);
void code_points_invert(struct code_points *s); /* complement in 0..10FFFF */
void code_points_remove(struct code_points *s, uint32_t from, uint32_t to);
/* Adds the characters that differ from those of the set only in case: simple case folding, as in
 * ECMA-262 patterns with the flags `i` and `u` (case_folding.c). */
void code_points_fold(struct code_points *s);
void code_points_sort(struct code_points *s);

/* Number of code points of from..to in the set; the set is sorted. */
uint32_t code_points_count(const struct code_points *s, uint32_t from, uint32_t to);
