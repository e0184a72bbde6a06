#include "policy/backend.h"

#include "base/mem.h"

int policy_list_add(struct policy_list *l, struct policy_key *take, struct err *e)
{
    if (l->n == POLICY_KEYS_MAX) {
        policy_key_unref(take);
        return err_set(e, ERR_RANGE, "more than %d API keys", POLICY_KEYS_MAX);
    }
    if (l->n == l->n_max) {
        int n_max = MAX(64, 2 * l->n_max);
        struct policy_key **keys = try_realloc(l->keys, (size_t)n_max * sizeof(*keys));
        if (!keys) {
            policy_key_unref(take);
            return err_set(e, ERR_MEMORY, "no memory for the API keys");
        }
        l->keys = keys;
        l->n_max = n_max;
    }
    l->keys[l->n++] = take;
    return 0;
}

int policy_list_put_limits(struct policy_list *l, const struct limit_entry *entry, struct err *e)
{
    struct limit_set *next;

    if (limit_set_find(l->limits, entry->kind, entry->name))
        return err_set(e, ERR_CORRUPT, "two entries have the limits of %s %s",
            limit_entry_kinds[entry->kind], entry->name);
    if (limit_set_put(&next, l->limits, entry, e))
        return -1;
    limit_set_unref(l->limits);
    l->limits = next;
    return 0;
}

int policy_list_put_object(struct policy_list *l, struct policy_object *take, struct err *e)
{
    struct object_set *next = NULL;
    int failed = -1;

    if (object_set_find(l->objects, take->kind, take->name))
        err_set(
            e, ERR_CORRUPT, "two objects are %s %s", policy_object_kinds[take->kind], take->name);
    else
        failed = object_set_put(&next, l->objects, take, e);
    policy_object_unref(take);
    if (failed)
        return -1;
    object_set_unref(l->objects);
    l->objects = next;
    return 0;
}

void policy_list_clear(struct policy_list *l)
{
    object_set_unref(l->objects);
    limit_set_unref(l->limits);
    for (int i = 0; i < l->n; i++)
        policy_key_unref(l->keys[i]);
    mem_free(l->keys);
    *l = (struct policy_list){ 0 };
}

int policy_backend_open(struct policy_backend **out, const char *name,
    const struct policy_backend_options *o, struct err *e)
{
    static const struct policy_backend_ops *const backends[] = { &policy_backend_ini,
        &policy_backend_sqlite, &policy_backend_postgres };

    for (size_t i = 0; i < ARRAY_LEN(backends); i++)
        if (!strcmp(name, backends[i]->name)) {
            bool is_remote = backends[i] == &policy_backend_postgres;
            const char *place = is_remote ? o->url : o->path;
            if (!place || !*place)
                return err_set(e, ERR_INVALID, "the policy backend %s needs policy.%s", name,
                    is_remote ? "url" : "path");
            return backends[i]->open(out, o, e);
        }
    return err_set(e, ERR_UNSUPPORTED,
        "the policy backend '%s' is not supported; ini, sqlite and postgres are", name);
}
