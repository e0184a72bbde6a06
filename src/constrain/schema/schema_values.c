#include "base/hash.h"
#include "constrain/schema/schema_keyword.h"

/* schema_values.c: enum and const. Equal values are found by a hash of their canonical form. */

static int hash_value(struct schema_reading *k, const struct json *v, uint64_t *out);

static int hash_number(struct schema_reading *k, const struct json *v, uint64_t *out)
{
    struct decimal d;

    if (decimal_parse(&d, v->s, k->r->e))
        return -1;
    *out = hash_bytes((uint64_t)d.exponent * 2 + d.is_negative, d.digits, d.n);
    return 0;
}

/* The hash of an object does not depend on the order of its members. Recursion depth is that of the
 * document. */
static int hash_members(struct schema_reading *k, const struct json *v, uint64_t *out)
{
    for (const struct json *m = v->child; m; m = m->next) {
        uint64_t h;
        if (hash_value(k, m, &h))
            return -1;
        if (v->kind == JSON_OBJECT)
            *out += hash_mix(hash_bytes(h, m->key.p, m->key.n));
        else
            *out = hash_fold(*out, h);
    }
    return 0;
}

static int hash_value(struct schema_reading *k, const struct json *v, uint64_t *out)
{
    *out = (uint64_t)v->kind << 1 | v->b;
    switch (v->kind) {
    case JSON_NULL:
    case JSON_BOOL:
        return 0;
    case JSON_NUMBER:
        return hash_number(k, v, out);
    case JSON_STRING:
        *out = hash_bytes(*out, v->s.p, v->s.n);
        return 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    return hash_members(k, v, out);
}

/* Sets the values of the node to those of the list `v`, without duplicates. */
static int set_values(struct schema_reading *k, const struct json *v, uint32_t n)
{
    struct u64_map *by_hash = u64_map_new(n);
    const struct json **list;
    uint32_t at = 0, other;
    int rc = -1;

    if (!by_hash) {
        schema_no_memory(k->r);
        goto done;
    }
    if (schema_alloc(k->r, (void **)&list, n, sizeof(*list)))
        goto done;
    for (uint32_t left = n; left; left--, v = v->next) {
        uint64_t hash;
        if (hash_value(k, v, &hash))
            goto done;
        if (u64_map_get(by_hash, hash, &other) && json_equal(list[other], v))
            continue;
        list[at] = json_copy(v, k->r->schema->arena);
        if (!list[at] || u64_map_put(by_hash, hash, at)) {
            schema_no_memory(k->r);
            goto done;
        }
        at++;
    }
    k->node->has_enum = true;
    k->node->values = list;
    k->node->n_values = at;
    rc = 0;
done:
    u64_map_free(by_hash);
    return rc;
}

/* The value of another keyword of the same object, if the draft has that keyword. */
static const struct json *sibling(struct schema_reading *k, const char *name)
{
    return schema_keyword_find(k->version, str_of(name)) ? json_get(k->object, name) : NULL;
}

int schema_read_enum(struct schema_reading *k, const struct json *v)
{
    if (v->kind != JSON_ARRAY)
        return err_set(k->r->e, ERR_INVALID, "an array was expected");
    return sibling(k, "const") ? 0 : set_values(k, v->child, v->n);
}

int schema_read_const(struct schema_reading *k, const struct json *v)
{
    const struct json *list = sibling(k, "enum");
    bool is_listed = !list;

    for (const struct json *m = list ? list->child : NULL; m && !is_listed; m = m->next)
        is_listed = json_equal(m, v);
    return set_values(k, v, is_listed);
}
