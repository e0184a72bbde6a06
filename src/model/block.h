/* block.h: large memory blocks with the lifetime of a model: weights, KV arena, scratch memory.
 *
 * Each token reads every weight once; huge pages reduce the number of page-table walks by a factor
 * of 500. If the system has no huge pages, normal pages are used.
 *
 * Any thread. */
#pragma once

#include "base/base.h"

void *block_alloc(size_t bytes) MUST_CHECK; /* 64-byte aligned, not zeroed; NULL: out of memory */
void block_free(void *block);               /* accepts NULL */
