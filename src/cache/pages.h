/* pages.h: reference-counted fixed-size pages of the KV cache.
 *
 * A page holds the KV of PAGE_TOKENS positions of one sequence, all layers. Pages are identified by
 * number: page tables stay small, remain valid if the arena moves, and can be range-checked. The
 * model owns the contents; this module counts references.
 *
 * Owner: the engine thread. A page is in one of four states:
 *
 *     free     refs == 0, on the free list
 *     private  refs == 1, one sequence writes to it
 *     shared   refs >= 2: read-only
 *     idle     refs == 1 and cached: only the prefix cache holds it, and can evict it
 *
 * A page records the tenant of its KV, also while it is free: before another tenant uses the page,
 * it is cleared (page_claim). */
#pragma once

#include "base/err.h"
#include "kernel/page.h"

struct page_pool;

int page_pool_new(struct page_pool **out, uint32_t n_pages, struct err *e) MUST_CHECK;
void page_pool_free(struct page_pool *p); /* all pages must be free */

page_id page_take(struct page_pool *p) MUST_CHECK; /* refs = 1; PAGE_NONE if the pool is empty */
void page_ref(struct page_pool *p, page_id id);
bool page_unref(struct page_pool *p, page_id id); /* true if this was the last reference */
uint32_t page_refs(const struct page_pool *p, page_id id);
uint32_t page_n_free(const struct page_pool *p);
uint32_t page_n_total(const struct page_pool *p);

/* For the prefix cache (cache/tree.h), which holds a reference to each cached page. `watch` is
 * called when a cached page becomes idle or stops being idle; it must not call back. */
void page_set_cached(
    struct page_pool *p, page_id id); /* marks a private or shared page as cached */
void page_unset_cached(struct page_pool *p, page_id id); /* the reference of the cache remains */
bool page_is_cached(const struct page_pool *p, page_id id);
uint32_t page_n_idle(const struct page_pool *p);
void page_pool_watch(
    struct page_pool *p, void (*watch)(void *arg, page_id id, bool is_idle), void *arg);

/* Before `tenant` writes to a page: true if it contains KV of another tenant and must be
 * cleared. */
bool page_claim(struct page_pool *p, page_id id, uint64_t tenant) MUST_CHECK;

void page_pool_check(const struct page_pool *p); /* checks all invariants; aborts on a violation */
