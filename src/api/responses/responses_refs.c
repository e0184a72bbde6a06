#include "api/common/path.h"
#include "api/responses/responses.h"
#include "base/map.h"

#include <stdio.h>

/* responses_refs.c: resolves item references. Some clients send the id of an item instead of its
 * content. The id contains the id of its response; each response is looked up once, and all its
 * items are indexed. Any thread. */

struct ref_resolver {
    struct fields *f;
    const struct responses_lookup *lookup;
    struct str_map *index; /* ids of items, and of responses that were looked up */
    struct buf items;      /* array of const struct json *, indexed by the map's values */
    struct json *out, **tail;
};

bool responses_is_reference(const struct json *v)
{
    const struct json *type = json_get(v, "type");

    if (json_is_null(type))
        return json_is_null(json_get(v, "role")) && !json_is_null(json_get(v, "id"));
    return type->kind == JSON_STRING && str_is(type->s, "item_reference");
}

bool responses_id_of_item(struct str item, char out[RESPONSES_ID_MAX])
{
    size_t from = 0, to = item.n;

    while (from < item.n && item.p[from] != '_')
        from++;
    while (to > 0 && item.p[to - 1] != '_')
        to--;
    if (to < from + 3 || to - from - 2 >= RESPONSES_ID_MAX - sizeof("resp_"))
        return false;
    snprintf(out, RESPONSES_ID_MAX, "resp_%.*s", (int)(to - from - 2), item.p + from + 1);
    return true;
}

/* ---- index of items */

static int index_item(struct ref_resolver *r, struct str id, const struct json *item)
{
    uint32_t at = (uint32_t)(r->items.n / sizeof(const struct json *));

    if (str_map_put(r->index, id, at) < 0)
        return field_no_memory(r->f);
    buf_put(&r->items, &item, sizeof(const struct json *));
    return buf_ok(&r->items) ? 0 : field_no_memory(r->f);
}

static const struct json *find_item(const struct ref_resolver *r, struct str id)
{
    const struct json *item = NULL;
    uint32_t at;

    if (str_map_get(r->index, id, &at))
        memcpy(&item, r->items.p + at * sizeof(const struct json *), sizeof(const struct json *));
    return item;
}

static int index_list(struct ref_resolver *r, const struct json *list)
{
    if (!list || list->kind != JSON_ARRAY)
        return 0;
    for (const struct json *v = list->child; v; v = v->next) {
        const struct json *id = json_get(v, "id");
        if (id && id->kind == JSON_STRING && index_item(r, id->s, v))
            return -1;
    }
    return 0;
}

/* Looks up a response and indexes its items. Each response is looked up once, found or not. */
static int index_response(struct ref_resolver *r, struct str id)
{
    struct responses_stored k;
    struct json *response, *input;
    struct str own = arena_str(r->f->arena, id);
    uint32_t ignored;
    struct err e;

    if (str_map_get(r->index, id, &ignored))
        return 0;
    if (!own.p)
        return field_no_memory(r->f);
    if (index_item(r, own, NULL))
        return -1;
    if (!r->lookup->find(r->lookup->ctx, own, &k) ||
        json_parse(&response, k.response, r->f->arena, NULL, &e) ||
        json_parse(&input, k.input, r->f->arena, NULL, &e))
        return 0;
    return index_list(r, json_get(response, "output")) || index_list(r, input) ? -1 : 0;
}

/* ---- the list */

static int append_item(struct ref_resolver *r, const struct json *v)
{
    struct json *copy = arena_alloc(r->f->arena, sizeof(*copy));

    if (!copy)
        return field_no_memory(r->f);
    *copy = *v;
    json_append(r->out, &r->tail, copy);
    return 0;
}

static int append_reference(struct ref_resolver *r, const struct path *at, const struct json *v)
{
    struct path_text where = path_format(AT(at, "id"));
    char response_id[RESPONSES_ID_MAX];
    const struct json *item = NULL;
    struct str id;

    if (path_need_text(r->f, AT(at, "id"), json_get(v, "id"), &id))
        return -1;
    if (!r->lookup) {
        r->f->request->needs_response_store = true;
        return append_item(r, v);
    }
    if (responses_id_of_item(id, response_id)) {
        if (index_response(r, str_of(response_id)))
            return -1;
        item = find_item(r, id);
    }
    if (item)
        return append_item(r, item);
    return err_param(r->f->e, ERR_NOT_FOUND, where.z, "Item with id '%.*s' not found.",
        (int)MIN(id.n, (size_t)RESPONSES_ID_MAX), id.p);
}

static int append_list(struct ref_resolver *r, const char *name, const struct json *list)
{
    const struct json *v = list->child;

    for (int i = 0; v; v = v->next, i++) {
        const struct path *at = AT_INDEX(NULL, name, i);
        if (v->kind != JSON_OBJECT)
            return path_wrong_kind(r->f, at, "an object", v);
        if (responses_is_reference(v) ? append_reference(r, at, v) : append_item(r, v))
            return -1;
    }
    return 0;
}

int responses_resolve(struct fields *f, const char *name, const struct json *list,
    const struct responses_lookup *lookup, const struct json **out)
{
    struct ref_resolver r = { .f = f, .lookup = lookup };
    int rc;

    *out = list;
    if (list->kind == JSON_STRING)
        return 0;
    if (list->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "a string or an array of items", list);
    r.out = arena_zalloc(f->arena, 1, sizeof(*r.out));
    r.index = str_map_new(16);
    buf_init(&r.items, 256 * MB);
    if (!r.out || !r.index) {
        rc = field_no_memory(f);
    } else {
        r.out->kind = JSON_ARRAY;
        r.out->raw = list->raw;
        r.tail = &r.out->child;
        rc = append_list(&r, name, list);
    }
    str_map_free(r.index);
    buf_clear(&r.items);
    *out = r.out;
    return rc;
}
