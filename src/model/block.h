/* block.h: a large piece of memory of the process's lifetime: weights, keys and values.
 *
 * A token reads every weight once; with huge pages that is 500 times fewer page walks. Where the
 * system has none to give, small ones do. Any thread. */
#pragma once

#include "base/base.h"

void *block_take(size_t bytes) MUST_CHECK; /* 64-byte aligned, not zeroed; NULL: no memory */
void block_give(void *block);              /* NULL is fine */
