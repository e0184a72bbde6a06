#include "base/map.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

static uint64_t process_seed(void)
{
    static uint64_t value; /* written once, by the first thread */
    uint64_t v = __atomic_load_n(&value, __ATOMIC_RELAXED);

    if (!v) {
        uint64_t new_seed = rng_entropy() | 1, zero = 0;
        v = __atomic_compare_exchange_n(
                &value, &zero, new_seed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
                ? new_seed
                : zero; /* another thread was first: its seed is used */
    }
    return v;
}

static size_t capacity_for(size_t expected)
{
    size_t cap = 16;

    while (cap / 4 * 3 < expected)
        cap *= 2;
    return cap;
}

struct str_slot {
    struct str key; /* p == NULL: empty slot */
    uint64_t hash;
    uint32_t value;
};

struct str_map {
    struct str_slot *slots;
    size_t cap, n;
    uint64_t seed;
};

struct str_map *str_map_new(size_t expected)
{
    struct str_map *m = try_calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->cap = capacity_for(expected);
    m->seed = process_seed();
    m->slots = try_calloc(m->cap, sizeof(*m->slots));
    if (!m->slots) {
        mem_free(m);
        return NULL;
    }
    return m;
}

void str_map_free(struct str_map *m)
{
    if (!m)
        return;
    mem_free(m->slots);
    mem_free(m);
}

static struct str_slot *str_slot_for(const struct str_map *m, struct str key, uint64_t hash)
{
    size_t i = hash & (m->cap - 1);

    while (m->slots[i].key.p && (m->slots[i].hash != hash || !str_eq(m->slots[i].key, key)))
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static int str_map_grow(struct str_map *m)
{
    struct str_map bigger = { .cap = m->cap * 2, .seed = m->seed };

    bigger.slots = try_calloc(bigger.cap, sizeof(*bigger.slots));
    if (!bigger.slots)
        return -1;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key.p)
            *str_slot_for(&bigger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    mem_free(m->slots);
    m->slots = bigger.slots;
    m->cap = bigger.cap;
    return 0;
}

int str_map_put(struct str_map *m, struct str key, uint32_t value)
{
    if (m->n + 1 > m->cap / 4 * 3 && str_map_grow(m))
        return -1;
    if (!key.p)
        key = STR("");
    uint64_t hash = hash_bytes(m->seed, key.p, key.n);
    struct str_slot *s = str_slot_for(m, key, hash);
    if (s->key.p)
        return 0;
    *s = (struct str_slot){ key, hash, value };
    m->n++;
    return 1;
}

bool str_map_get(const struct str_map *m, struct str key, uint32_t *value)
{
    const struct str_slot *s = str_slot_for(m, key, hash_bytes(m->seed, key.p, key.n));

    if (!s->key.p)
        return false;
    *value = s->value;
    return true;
}

size_t str_map_count(const struct str_map *m)
{
    return m->n;
}

struct u64_slot {
    uint64_t key;
    uint32_t value;
    uint32_t is_used;
};

struct u64_map {
    struct u64_slot *slots;
    size_t cap, n;
    uint64_t seed;
};

struct u64_map *u64_map_new(size_t expected)
{
    struct u64_map *m = try_calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->cap = capacity_for(expected);
    m->seed = process_seed();
    m->slots = try_calloc(m->cap, sizeof(*m->slots));
    if (!m->slots) {
        mem_free(m);
        return NULL;
    }
    return m;
}

void u64_map_free(struct u64_map *m)
{
    if (!m)
        return;
    mem_free(m->slots);
    mem_free(m);
}

static struct u64_slot *u64_slot_for(const struct u64_map *m, uint64_t key)
{
    size_t i = hash_mix(key ^ m->seed) & (m->cap - 1);

    while (m->slots[i].is_used && m->slots[i].key != key)
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

static int u64_map_grow(struct u64_map *m)
{
    struct u64_map bigger = { .cap = m->cap * 2, .seed = m->seed };

    bigger.slots = try_calloc(bigger.cap, sizeof(*bigger.slots));
    if (!bigger.slots)
        return -1;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].is_used)
            *u64_slot_for(&bigger, m->slots[i].key) = m->slots[i];
    mem_free(m->slots);
    m->slots = bigger.slots;
    m->cap = bigger.cap;
    return 0;
}

int u64_map_put(struct u64_map *m, uint64_t key, uint32_t value)
{
    if (m->n + 1 > m->cap / 4 * 3 && u64_map_grow(m))
        return -1;
    struct u64_slot *s = u64_slot_for(m, key);
    m->n += !s->is_used;
    *s = (struct u64_slot){ key, value, 1 };
    return 0;
}

bool u64_map_get(const struct u64_map *m, uint64_t key, uint32_t *value)
{
    const struct u64_slot *s = u64_slot_for(m, key);

    if (!s->is_used)
        return false;
    *value = s->value;
    return true;
}

size_t u64_map_count(const struct u64_map *m)
{
    return m->n;
}
