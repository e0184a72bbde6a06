/* sorted_ids.h: binary search in ascending token ids. Any thread. */
#pragma once

#include "base/base.h"

/* `ids` has `n` ids in ascending order; NULL if n is 0. */
static inline bool sorted_ids_has(const int32_t *ids, size_t n, int32_t id)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (ids[middle] < id)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < n && ids[lo] == id;
}
