/* pages.h: the KV cache as fixed-size pages with reference counts.
 *
 * A page is named by number, not by pointer, so that page tables are small, survive a move of
 * the arena, and can be range-checked. What is in a page is the model's business: this is the
 * book-keeping. A page holds PAGE_TOKENS positions of one sequence, all layers.
 *
 * Owner: the engine thread. No function here may be called from another one.
 *
 *     free     refs == 0, on the free list
 *     private  refs == 1, one sequence writes to it
 *     shared   refs >= 2, or held by the prefix cache: nobody writes to it */
#pragma once

#include "base/err.h"
#include "kernel/page.h"

struct page_pool;

int page_pool_new(struct page_pool **out, uint32_t n_pages, struct err *e) MUST_CHECK;
void page_pool_free(struct page_pool *p); /* every page must have come home */

page_id page_take(struct page_pool *p) MUST_CHECK; /* refs = 1; PAGE_NONE when full */
void page_ref(struct page_pool *p, page_id id);
bool page_unref(struct page_pool *p, page_id id); /* true: that was the last one */
uint32_t page_refs(const struct page_pool *p, page_id id);
uint32_t page_n_free(const struct page_pool *p);
uint32_t page_n_total(const struct page_pool *p);

void page_pool_check(const struct page_pool *p); /* walk everything; aborts on a lie */
