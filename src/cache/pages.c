#include "cache/pages.h"
#include "base/mem.h"

/* refs[i] counts the holders of page i. Free pages form a stack through link[], the most
 * recently freed on top: its bytes are the ones still in the processor's cache. */
struct page_pool {
    uint32_t n_total, n_free;
    uint32_t top; /* of the free stack; NO_PAGE when empty */
    uint32_t *refs;
    uint32_t *link; /* next free page; meaningful while refs == 0 */
    uint32_t n_idle;
    bool *is_kept;
    struct last_owner *owner;
    void (*watch)(void *arg, page_id id, bool is_idle);
    void *watch_arg;
};

struct last_owner {
    bool is_set;
    uint64_t tenant;
};

#define NO_PAGE UINT32_MAX

int page_pool_new(struct page_pool **out, uint32_t n_pages, struct err *e)
{
    struct page_pool *p = xcalloc(1, sizeof(*p));

    if (n_pages == 0 || n_pages == NO_PAGE) {
        page_pool_free(p);
        return err_set(e, ERR_RANGE, "a page pool of %u pages", n_pages);
    }
    p->refs = try_calloc(n_pages, sizeof(*p->refs));
    p->link = try_calloc(n_pages, sizeof(*p->link));
    p->is_kept = try_calloc(n_pages, sizeof(*p->is_kept));
    p->owner = try_calloc(n_pages, sizeof(*p->owner));
    if (!p->refs || !p->link || !p->is_kept || !p->owner) {
        page_pool_free(p);
        return err_set(e, ERR_MEMORY, "no memory to count %u pages", n_pages);
    }
    p->n_total = n_pages;
    p->n_free = n_pages;
    p->top = 0;
    for (uint32_t i = 0; i < n_pages; i++)
        p->link[i] = i + 1 < n_pages ? i + 1 : NO_PAGE;
    *out = p;
    return 0;
}

void page_pool_free(struct page_pool *p)
{
    if (!p)
        return;
    CHECK(p->n_free == p->n_total);
    mem_free(p->refs);
    mem_free(p->link);
    mem_free(p->is_kept);
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
    if (p->top == NO_PAGE)
        return PAGE_NONE;

    page_id id = { p->top };
    CHECK(p->refs[id.i] == 0);
    p->top = p->link[id.i];
    p->refs[id.i] = 1;
    p->n_free--;
    return id;
}

void page_ref(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0 && p->refs[id.i] < UINT32_MAX);
    if (p->refs[id.i]++ == 1 && p->is_kept[id.i])
        set_idle(p, id, false);
}

bool page_unref(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0);
    if (--p->refs[id.i] > 0) {
        if (p->refs[id.i] == 1 && p->is_kept[id.i])
            set_idle(p, id, true);
        return false;
    }
    CHECK(!p->is_kept[id.i]);
    p->link[id.i] = p->top;
    p->top = id.i;
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

void page_keep(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0 && !p->is_kept[id.i]);
    p->is_kept[id.i] = true;
    if (p->refs[id.i] == 1)
        set_idle(p, id, true);
}

void page_unkeep(struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    CHECK(p->refs[id.i] > 0 && p->is_kept[id.i]);
    p->is_kept[id.i] = false;
    if (p->refs[id.i] == 1)
        set_idle(p, id, false);
}

bool page_is_kept(const struct page_pool *p, page_id id)
{
    CHECK(id.i < p->n_total);
    return p->is_kept[id.i];
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
    struct last_owner *o = &p->owner[id.i];
    bool is_foreign = o->is_set && o->tenant != tenant;

    *o = (struct last_owner){ true, tenant };
    return is_foreign;
}

void page_pool_check(const struct page_pool *p)
{
    uint32_t n_listed = 0, n_unheld = 0, n_idle = 0;

    for (uint32_t i = p->top; i != NO_PAGE; i = p->link[i]) {
        CHECK(i < p->n_total);
        CHECK(p->refs[i] == 0);
        CHECK(++n_listed <= p->n_total); /* no ring */
    }
    for (uint32_t i = 0; i < p->n_total; i++) {
        n_unheld += p->refs[i] == 0;
        n_idle += p->refs[i] == 1 && p->is_kept[i];
        CHECK(p->refs[i] > 0 || !p->is_kept[i]);
    }
    CHECK(n_idle == p->n_idle);
    CHECK(n_listed == p->n_free);
    CHECK(n_unheld == p->n_free);
}
