/* anthropic_models.c: GET /v1/models and /v1/models/{id} in Anthropic's format, with pages by id,
 * and the token count of count_tokens. Pure; any thread. */
#include "api/anthropic/anthropic.h"

static void put_text(struct jw *w, const char *key, const char *value)
{
    jw_key(w, key);
    jw_z(w, value);
}

static void put_model(struct jw *w, const struct model_info *m)
{
    jw_object(w);
    put_text(w, "type", "model");
    put_text(w, "id", m->id);
    put_text(w, "display_name", m->id);
    put_text(w, "created_at", models_time(m->created).z);
    put_text(w, "lifecycle", "active");
    jw_key(w, "max_input_tokens");
    jw_i64(w, m->n_ctx);
    jw_key(w, "max_tokens");
    jw_i64(w, m->n_ctx);
    put_text(w, "capabilities", NULL);
    jw_end_object(w);
}

/* Returns the index of an id, or `none` if no model has it. */
static size_t index_of_model(const struct model_info *m, size_t n, struct str id, size_t none)
{
    for (size_t i = 0; id.p && i < n; i++)
        if (str_is(id, m[i].id))
            return i;
    return none;
}

void anthropic_models(
    struct buf *out, const struct model_info *m, size_t n, const struct anthropic_page *page)
{
    size_t after = index_of_model(m, n, page->after, SIZE_MAX);
    size_t end = index_of_model(m, n, page->before, n);
    size_t from = after == SIZE_MAX ? 0 : after + 1;
    struct jw w;

    from = MIN(from, end);
    size_t all = end - from, shown = MIN(all, page->limit);
    if (page->before.p && !page->after.p)
        from = end - shown; /* a page before a bound ends at the bound */
    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "data");
    jw_array(&w);
    for (size_t i = 0; i < shown; i++)
        put_model(&w, &m[from + i]);
    jw_end_array(&w);
    jw_key(&w, "has_more");
    jw_bool(&w, shown < all);
    put_text(&w, "first_id", shown ? m[from].id : NULL);
    put_text(&w, "last_id", shown ? m[from + shown - 1].id : NULL);
    jw_end_object(&w);
}

void anthropic_model(struct buf *out, const struct model_info *m)
{
    struct jw w;

    jw_init(&w, out);
    put_model(&w, m);
}

void anthropic_count(struct buf *out, int n)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_key(&w, "input_tokens");
    jw_i64(&w, n);
    jw_end_object(&w);
}
