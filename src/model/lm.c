#include "model/lm.h"

struct arena {      /* one class of pages */
    uint8_t *pages; /* NULL: pages have no content */
    uint32_t n_pages;
    size_t page_bytes;
};

static struct arena full_arena(const struct lm *m)
{
    return (struct arena){ m->arena, m->n_pages, m->page_bytes };
}

static struct arena window_arena(const struct lm *m)
{
    return (struct arena){ m->window_arena, m->n_window_pages, m->window_page_bytes };
}

static uint8_t *page_at(struct arena a, page_id page)
{
    CHECK(page.i < a.n_pages);
    return a.pages ? a.pages + page.i * a.page_bytes : NULL;
}

static void copy_page(struct arena a, page_id from, page_id to)
{
    const uint8_t *src = page_at(a, from);
    uint8_t *dst = page_at(a, to);

    CHECK(from.i != to.i);
    if (dst)
        memcpy(dst, src, a.page_bytes);
}

static void clear_page(struct arena a, page_id page)
{
    uint8_t *p = page_at(a, page);

    if (p)
        memset(p, 0, a.page_bytes);
}

static void read_page(struct arena a, page_id page, void *out)
{
    const uint8_t *p = page_at(a, page);

    if (p)
        memcpy(out, p, a.page_bytes);
}

static void write_page(struct arena a, page_id page, const void *in)
{
    uint8_t *p = page_at(a, page);

    if (p)
        memcpy(p, in, a.page_bytes);
}

void lm_copy_page(struct lm *m, page_id from, page_id to)
{
    OWNED(m->owner);
    copy_page(full_arena(m), from, to);
}

void lm_clear_page(struct lm *m, page_id page)
{
    OWNED(m->owner);
    clear_page(full_arena(m), page);
}

void lm_read_page(struct lm *m, page_id page, void *out)
{
    read_page(full_arena(m), page, out);
}

void lm_write_page(struct lm *m, page_id page, const void *in)
{
    write_page(full_arena(m), page, in);
}

void lm_copy_window_page(struct lm *m, page_id from, page_id to)
{
    OWNED(m->owner);
    copy_page(window_arena(m), from, to);
}

void lm_clear_window_page(struct lm *m, page_id page)
{
    OWNED(m->owner);
    clear_page(window_arena(m), page);
}

void lm_read_window_page(struct lm *m, page_id page, void *out)
{
    read_page(window_arena(m), page, out);
}

void lm_write_window_page(struct lm *m, page_id page, const void *in)
{
    write_page(window_arena(m), page, in);
}
