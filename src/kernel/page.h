/* page.h: the name of a KV page. Kernels follow page tables, the model fills pages, the cache
 * (cache/pages.h) counts them; the number is all that they share. */
#pragma once

#include "base/limits.h"

#include <stdint.h>

typedef struct {
    uint32_t i;
} page_id; /* a struct, so that a token cannot pass for a page */

#define PAGE_NONE ((page_id){ UINT32_MAX })
