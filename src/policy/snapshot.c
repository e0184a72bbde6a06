#include "policy/snapshot.h"

#include "base/mem.h"

#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdlib.h>

struct policy_snapshot {
    _Atomic int n_refs;
    uint64_t version;
    const struct limit_set *limits;      /* a reference; NULL: none */
    const struct object_set *objects;    /* the same */
    const struct role_set *roles;        /* of the objects; the same */
    const struct guardrails *guardrails; /* of the objects; the same */
    int n;
    const struct policy_key **keys; /* references, in the order of the digests */
    uint32_t *slots;                /* open addressing: index + 1 into keys; 0 = empty */
    uint32_t mask;                  /* number of slots - 1; at most half of them are used */
};

/* Digests are uniformly distributed, and only keys of the policy are in the table, so a client
 * cannot make a chain longer. */
static uint32_t hash_of(const uint8_t digest[POLICY_DIGEST_BYTES])
{
    uint32_t h;

    memcpy(&h, digest + POLICY_DIGEST_BYTES - sizeof(h), sizeof(h));
    return h;
}

static int compare(const void *a, const void *b)
{
    const struct policy_key *const *x = a, *const *y = b;

    return memcmp((*x)->digest, (*y)->digest, POLICY_DIGEST_BYTES);
}

/* ---- life */

static struct policy_snapshot *new_empty(int n, uint64_t version)
{
    struct policy_snapshot *s = try_calloc(1, sizeof(*s));
    uint32_t n_slots = 16;

    if (!s)
        return NULL;
    while (n_slots < 2 * (uint32_t)n)
        n_slots *= 2;
    s->n_refs = 1;
    s->version = version;
    s->mask = n_slots - 1;
    s->keys = try_calloc((size_t)MAX(n, 1), sizeof(struct policy_key *));
    s->slots = try_calloc(n_slots, sizeof(*s->slots));
    if (s->keys && s->slots)
        return s;
    policy_snapshot_unref(s);
    return NULL;
}

/* The keys are complete and sorted. */
static int fill_slots(struct policy_snapshot *s, struct err *e)
{
    for (int i = 0; i < s->n; i++) {
        if (i && !strcmp(s->keys[i - 1]->id, s->keys[i]->id))
            return err_set(e, ERR_INVALID, "two API keys have the id %s", s->keys[i]->id);
        uint32_t slot = hash_of(s->keys[i]->digest) & s->mask;
        while (s->slots[slot])
            slot = (slot + 1) & s->mask;
        s->slots[slot] = (uint32_t)i + 1;
    }
    return 0;
}

static int finish(struct policy_snapshot **out, struct policy_snapshot *take, struct err *e)
{
    if (fill_slots(take, e)) {
        policy_snapshot_unref(take);
        return -1;
    }
    *out = take;
    return 0;
}

int policy_snapshot_new(struct policy_snapshot **out, const struct policy_key *const *take, int n,
    uint64_t version, struct err *e)
{
    struct policy_snapshot *s = n <= POLICY_KEYS_MAX ? new_empty(n, version) : NULL;

    if (!s) {
        for (int i = 0; i < n; i++)
            policy_key_unref(take[i]);
        if (n > POLICY_KEYS_MAX)
            return err_set(e, ERR_RANGE, "more than %d API keys", POLICY_KEYS_MAX);
        return err_set(e, ERR_MEMORY, "no memory for the API keys");
    }
    for (int i = 0; i < n; i++)
        s->keys[s->n++] = take[i];
    qsort(s->keys, (size_t)n, sizeof(s->keys[0]), compare);
    return finish(out, s, e);
}

/* Copies all keys except `gone`, and adds `key`; either may be NULL. */
static int derive(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct policy_key *gone, const struct policy_key *key, struct policy_snapshot *s,
    struct err *e)
{
    for (int i = 0; i < old->n; i++) {
        if (old->keys[i] == gone)
            continue;
        if (key && compare(&key, &old->keys[i]) < 0) {
            s->keys[s->n++] = policy_key_ref(key);
            key = NULL;
        }
        s->keys[s->n++] = policy_key_ref(old->keys[i]);
    }
    if (key)
        s->keys[s->n++] = policy_key_ref(key);
    s->limits = limit_set_ref(old->limits);
    s->objects = object_set_ref(old->objects);
    s->roles = role_set_ref(old->roles);
    s->guardrails = guardrails_ref(old->guardrails);
    return finish(out, s, e);
}

int policy_snapshot_put(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct policy_key *key, uint64_t version, struct err *e)
{
    const struct policy_key *present = policy_snapshot_find(old, key->digest);
    int n = old->n + !present;

    if (n > POLICY_KEYS_MAX)
        return err_set(e, ERR_RANGE, "more than %d API keys", POLICY_KEYS_MAX);
    struct policy_snapshot *s = new_empty(n, version);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the API keys");
    return derive(out, old, present, key, s, e);
}

int policy_snapshot_delete(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct policy_key *key, uint64_t version, struct err *e)
{
    struct policy_snapshot *s = new_empty(old->n - 1, version);

    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the API keys");
    return derive(out, old, key, NULL, s, e);
}

int policy_snapshot_set_limits(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct limit_set *limits, uint64_t version, struct err *e)
{
    struct policy_snapshot *s = new_empty(old->n, version);

    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the API keys");
    if (derive(&s, old, NULL, NULL, s, e))
        return -1;
    limit_set_unref(s->limits);
    s->limits = limit_set_ref(limits);
    *out = s;
    return 0;
}

/* Replaces the keys that have roles by copies with the rights of the present roles. */
static int apply_roles(struct policy_snapshot *s, struct err *e)
{
    for (int i = 0; i < s->n; i++) {
        const struct policy_key *old = s->keys[i];
        if (!old->roles)
            continue;
        struct policy_key *k = policy_key_copy(old);
        if (!k)
            return err_set(e, ERR_MEMORY, "no memory for the API keys");
        s->keys[i] = k;
        policy_key_unref(old);
        if (role_set_apply(s->roles, k, e))
            return -1;
    }
    return 0;
}

/* The first object of the kind of guardrails. */
static int first_guardrail(const struct object_set *objects)
{
    return object_set_after(objects, OBJECT_GUARDRAIL, "");
}

static const struct policy_object *guardrail_at(const struct object_set *objects, int i)
{
    const struct policy_object *o =
        i < object_set_count(objects) ? object_set_at(objects, i) : NULL;

    return o && o->kind == OBJECT_GUARDRAIL ? o : NULL;
}

/* Both sets have the same objects of guardrails, so that these need not be compiled again. */
static bool has_same_guardrails(const struct object_set *a, const struct object_set *b)
{
    int i = first_guardrail(a), k = first_guardrail(b);

    for (; guardrail_at(a, i) && guardrail_at(a, i) == guardrail_at(b, k); i++)
        k++;
    return !guardrail_at(a, i) && !guardrail_at(b, k);
}

static int compile_guardrails(
    const struct guardrails **out, const struct object_set *objects, struct err *e)
{
    const struct guard_set *sets[GUARD_SETS_MAX + 1];
    const struct policy_object *o;
    struct guardrails *g = NULL;
    int n = 0, failed = 0;

    for (int i = first_guardrail(objects); !failed && (o = guardrail_at(objects, i)); i++) {
        struct guard_set *s = NULL;
        if (n == GUARD_SETS_MAX)
            failed = err_set(e, ERR_RANGE, "more than %d sets of guardrails", GUARD_SETS_MAX);
        else if (guard_set_parse(&s, str_of(o->name), o->body, e))
            failed = err_wrap(e, "guardrail %s", o->name);
        else
            sets[n++] = s;
    }
    if (failed)
        while (n)
            guard_set_unref(sets[--n]);
    else if (n)
        failed = guardrails_new(&g, sets, n, e);
    *out = g;
    return failed;
}

int policy_snapshot_set_objects(struct policy_snapshot **out, const struct policy_snapshot *old,
    const struct object_set *objects, uint64_t version, struct err *e)
{
    struct policy_snapshot *s = new_empty(old->n, version);
    struct role_set *roles = NULL;
    const struct guardrails *guardrails = NULL;

    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for the API keys");
    if (has_same_guardrails(old->objects, objects))
        guardrails = guardrails_ref(old->guardrails);
    else if (compile_guardrails(&guardrails, objects, e)) {
        policy_snapshot_unref(s);
        return -1;
    }
    if (role_set_new(&roles, objects, e)) {
        guardrails_unref(guardrails);
        policy_snapshot_unref(s);
        return -1;
    }
    if (derive(&s, old, NULL, NULL, s, e)) {
        role_set_unref(roles);
        guardrails_unref(guardrails);
        return -1;
    }
    object_set_unref(s->objects);
    role_set_unref(s->roles);
    guardrails_unref(s->guardrails);
    s->objects = object_set_ref(objects);
    s->roles = roles;
    s->guardrails = guardrails;
    if (apply_roles(s, e)) {
        policy_snapshot_unref(s);
        return -1;
    }
    *out = s;
    return 0;
}

const struct object_set *policy_snapshot_objects(const struct policy_snapshot *s)
{
    return s->objects;
}

const struct guardrails *policy_snapshot_guardrails(const struct policy_snapshot *s)
{
    return s->guardrails;
}

const struct role_set *policy_snapshot_roles(const struct policy_snapshot *s)
{
    return s->roles;
}

const struct limit_set *policy_snapshot_limits(const struct policy_snapshot *s)
{
    return s->limits;
}

struct policy_snapshot *policy_snapshot_ref(struct policy_snapshot *s)
{
    atomic_fetch_add_explicit(&s->n_refs, 1, memory_order_relaxed);
    return s;
}

void policy_snapshot_unref(struct policy_snapshot *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < s->n; i++)
        policy_key_unref(s->keys[i]);
    limit_set_unref(s->limits);
    object_set_unref(s->objects);
    role_set_unref(s->roles);
    guardrails_unref(s->guardrails);
    mem_free((void *)s->keys);
    mem_free(s->slots);
    mem_free(s);
}

/* ---- lookup */

uint64_t policy_snapshot_version(const struct policy_snapshot *s)
{
    return s->version;
}

int policy_snapshot_count(const struct policy_snapshot *s)
{
    return s->n;
}

const struct policy_key *policy_snapshot_at(const struct policy_snapshot *s, int i)
{
    CHECK(i >= 0 && i < s->n);
    return s->keys[i];
}

const struct policy_key *policy_snapshot_find(
    const struct policy_snapshot *s, const uint8_t digest[POLICY_DIGEST_BYTES])
{
    for (uint32_t slot = hash_of(digest) & s->mask; s->slots[slot]; slot = (slot + 1) & s->mask) {
        const struct policy_key *k = s->keys[s->slots[slot] - 1];
        if (!CRYPTO_memcmp(k->digest, digest, POLICY_DIGEST_BYTES))
            return k;
    }
    return NULL;
}

int policy_snapshot_after(const struct policy_snapshot *s, struct str id)
{
    int low = 0, high = s->n;

    while (low < high) {
        int mid = low + (high - low) / 2;
        struct str here = str_of(s->keys[mid]->id);
        int order = memcmp(here.p, id.p, MIN(here.n, id.n));
        if (order < 0 || (!order && here.n <= id.n))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct policy_key *policy_snapshot_find_id(const struct policy_snapshot *s, struct str id)
{
    int i = id.n ? policy_snapshot_after(s, id) : 0;

    return i > 0 && str_is(id, s->keys[i - 1]->id) ? s->keys[i - 1] : NULL;
}

int policy_snapshot_owner(const struct policy_snapshot *s, const char *tenant)
{
    uint8_t *is_used = xcalloc(1, POLICY_KEYS_MAX + 2);
    int owner = 0;

    for (int i = 0; i < s->n && !owner; i++) {
        if (*tenant && !strcmp(s->keys[i]->tenant, tenant))
            owner = s->keys[i]->owner;
        is_used[s->keys[i]->owner] = 1;
    }
    for (int i = 1; !owner; i++)
        if (!is_used[i])
            owner = i;
    mem_free(is_used);
    return owner;
}
