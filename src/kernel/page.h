/* page.h: numbers of KV pages and of state slots, and the positions that a window covers. Kernels
 * read page tables, the model writes pages, and the cache (cache/pages.h) counts references; they
 * share only this number. */
#pragma once

#include "base/base.h"
#include "base/limits.h"

typedef struct {
    uint32_t i;
} page_id; /* a struct, so that a token cannot be passed as a page */

#define PAGE_NONE ((page_id){ UINT32_MAX })

typedef page_id state_id; /* state slot of recurrent layers: counted and evicted as pages are */

#define STATE_NONE PAGE_NONE

/* Attention window of some layers (model/lm.h). A row attends to the last `size` positions, its own
 * included, and reads whole blocks of `align` positions. */
struct kv_window {
    int size; /* 0: no layer has a window */
    int align;
};

/* First position that a row at `pos` reads. Never decreases with pos. */
static inline int kv_window_from(const struct kv_window *w, int pos)
{
    return MAX(pos + 1 - w->size, 0) / w->align * w->align;
}
