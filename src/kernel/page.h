/* page.h: numbers of KV pages and of state slots. Kernels read page tables, the model writes pages,
 * and the cache (cache/pages.h) counts references; they share only this number. */
#pragma once

#include "base/limits.h"

#include <stdint.h>

typedef struct {
    uint32_t i;
} page_id; /* a struct, so that a token cannot be passed as a page */

#define PAGE_NONE ((page_id){ UINT32_MAX })

typedef page_id state_id; /* state slot of recurrent layers: counted and evicted as pages are */

#define STATE_NONE PAGE_NONE
