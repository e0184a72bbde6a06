#include "cache/pages.h"
#include "base/mem.h"

/* Free pages form a stack through next_free[], the most recently freed on top, since its bytes are
 * most likely still in the CPU cache. */
struct page_pool {
    uint32_t n_total, n_free;
    uint32_t free_top; /* top of the free stack; NO_PAGE = empty */
    uint32_t *refs;
    uint32_t *next_free; /* next free page; valid while refs == 0 */
    uint32_t n_idle;
    bool *is_cached;
    struct page_owner *owner;
    void (*watch)(void *arg, page_id id, bool is_idle);
    void *watch_arg;
};

struct page_owner {
    bool is_set;
    uint64_t tenant;
};

#define NO_PAGE UINT32_MAX

int page_pool_new(struct page_pool **out, uint32_t n_pages, struct err *e)
{
    struct page_pool *p = xcalloc(1, sizeof(*p));

    if (n_pages == 0 || n_pages == NO_PAGE) {
        page_pool_free(p);
        return err_set(e, ERR_RANGE, "a page pool cannot have %u pages", n_pages);
    }
    p->refs = try_calloc(n_pages, sizeof(*p->refs));
    p->next_free = try_calloc(n_pages, sizeof(*p->next_free));
    p->is_cached = try_calloc(n_pages, sizeof(*p->is_cached));
    p->owner = try_calloc(n_pages, sizeof(*p->owner));
    if (!p->refs || !p->next_free || !p->is_cached || !p->owner) {
        page_pool_free(p);
        return err_set(e, ERR_MEMORY, "no memory for a page pool of %u pages", n_pages);
    }
    p->n_total = n_pages;
    p->n_free = n_pages;
    p->free_top = 0;
    for (uint32_t i = 0; i < n_pages; i++)
        p->next_free[i] = i + 1 < n_pages ? i + 1 : NO_PAGE;
    *out = p;
    return 0;
}

void page_pool_free(struct page_pool *p)
{
    if (!p)
        return;
    CHECK(p->n_free == p->n_total);
    mem_free(p->refs);
    mem_free(p->next_free);
    mem_free(p->is_cached);
    mem_free(p->owner);
    mem_free(p);
}

static void set_idle(struct page_pool *p, page_id id, bool is_idle)
{
    p->n_idle += is_idle ? 1 : UINT32_MAX;
    if (p->watch)
        p->watch(p->watch_arg, id, is_idle);
}

page_id page_take(struct page_pool *p)
{
    if (p->free_top == NO_PAGE)
        return PAGE_NONE;

    page_id id = { p->free_top };
    CHECK(p->refs[id.i] == 0);
    p->free_top = p->next_free[id.i];
    p->refs[id.i] = 1;
    p->n_free--;
    return id;
}

void page_ref(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0 && p->refs[id.i] < UINT32_MAX);
    if (p->refs[id.i]++ == 1 && p->is_cached[id.i])
        set_idle(p, id, false);
}

bool page_unref(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0);
    if (--p->refs[id.i] > 0) {
        if (p->refs[id.i] == 1 && p->is_cached[id.i])
            set_idle(p, id, true);
        return false;
    }
    CHECK(!p->is_cached[id.i]);
    p->next_free[id.i] = p->free_top;
    p->free_top = id.i;
    p->n_free++;
    return true;
}

uint32_t page_refs(const struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    return p->refs[id.i];
}

uint32_t page_n_free(const struct page_pool *p)
{
    return p->n_free;
}

uint32_t page_n_total(const struct page_pool *p)
{
    return p->n_total;
}

void page_set_cached(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0 && !p->is_cached[id.i]);
    p->is_cached[id.i] = true;
    if (p->refs[id.i] == 1)
        set_idle(p, id, true);
}

void page_unset_cached(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0 && p->is_cached[id.i]);
    p->is_cached[id.i] = false;
    if (p->refs[id.i] == 1)
        set_idle(p, id, false);
}

bool page_is_cached(const struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    return p->is_cached[id.i];
}

uint32_t page_n_idle(const struct page_pool *p)
{
    return p->n_idle;
}

void page_pool_watch(
    struct page_pool *p, void (*watch)(void *arg, page_id id, bool is_idle), void *arg)
{
    p->watch = watch;
    p->watch_arg = arg;
}

bool page_claim(struct page_pool *p, page_id id, uint64_t tenant)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0);
    struct page_owner *o = &p->owner[id.i];
    bool is_foreign = o->is_set && o->tenant != tenant;

    *o = (struct page_owner){ true, tenant };
    return is_foreign;
}

void page_pool_check(const struct page_pool *p)
{
    uint32_t n_listed = 0, n_unreferenced = 0, n_idle = 0;

    for (uint32_t i = p->free_top; i != NO_PAGE; i = p->next_free[i]) {
        CHECK(i < p->n_total);
        CHECK(p->refs[i] == 0);
        CHECK(++n_listed <= p->n_total); /* no cycle */
    }
    for (uint32_t i = 0; i < p->n_total; i++) {
        n_unreferenced += p->refs[i] == 0;
        n_idle += p->refs[i] == 1 && p->is_cached[i];
        CHECK(p->refs[i] > 0 || !p->is_cached[i]);
    }
    CHECK(n_idle == p->n_idle);
    CHECK(n_listed == p->n_free);
    CHECK(n_unreferenced == p->n_free);
}
