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
 *     shared   refs >= 2: nobody writes to it
 *     idle     refs == 1 and kept: only the prefix cache holds it, and would give it back
 *
 * A page remembers whose keys and values it holds, also when it is free: before it passes to
 * another tenant it is cleared (page_claim). */
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

/* Of the prefix cache (cache/tree.h), which has a reference of its own to each page that it keeps.
 * `watch` is told when one of them becomes idle or stops being it; it may not call back. */
void page_keep(struct page_pool *p, page_id id);   /* shared or private before */
void page_unkeep(struct page_pool *p, page_id id); /* its reference is still there */
bool page_is_kept(const struct page_pool *p, page_id id);
uint32_t page_n_idle(const struct page_pool *p);
void page_pool_watch(
    struct page_pool *p, void (*watch)(void *arg, page_id id, bool is_idle), void *arg);

/* `tenant` is about to write here. True: what another tenant left must be cleared first. */
bool page_claim(struct page_pool *p, page_id id, uint64_t tenant) MUST_CHECK;

void page_pool_check(const struct page_pool *p); /* walk everything; aborts on a lie */
