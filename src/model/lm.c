#include "model/lm.h"

static uint8_t *page_at(const struct lm *m, page_id page)
{
    CHECK(page.i < m->n_pages);
    return m->arena ? m->arena + page.i * m->page_bytes : NULL;
}

void lm_copy_page(struct lm *m, page_id from, page_id to)
{
    const uint8_t *src = page_at(m, from);
    uint8_t *dst = page_at(m, to);

    OWNED(m->owner);
    CHECK(from.i != to.i);
    if (dst)
        memcpy(dst, src, m->page_bytes);
}

void lm_clear_page(struct lm *m, page_id page)
{
    uint8_t *p = page_at(m, page);

    OWNED(m->owner);
    if (p)
        memset(p, 0, m->page_bytes);
}

void lm_read_page(struct lm *m, page_id page, void *out)
{
    const uint8_t *p = page_at(m, page);

    if (p)
        memcpy(out, p, m->page_bytes);
}

void lm_write_page(struct lm *m, page_id page, const void *in)
{
    uint8_t *p = page_at(m, page);

    if (p)
        memcpy(p, in, m->page_bytes);
}
