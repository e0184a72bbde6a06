#include "constrain/mask_cache.h"

#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"

enum { ENTRIES_MAX = 1 << 16 };

struct entry {
    uint64_t key;           /* 0: unused */
    struct index_link link; /* `used` */
    uint32_t chain;         /* next entry of the bucket, or INDEX_NONE */
};

struct mask_cache {
    size_t n_words;
    uint64_t generation;
    uint32_t n_entries;
    struct index_list used; /* most recently used first; all entries */
    struct entry *entries;
    uint32_t *buckets; /* [n_entries] first entry, or INDEX_NONE */
    uint32_t *masks;   /* [n_entries][n_words] */
};

static void drop_all(struct mask_cache *c)
{
    struct index_links links = INDEX_LINKS(c->entries, link);

    c->used = INDEX_LIST_EMPTY;
    for (uint32_t i = 0; i < c->n_entries; i++) {
        c->entries[i] = (struct entry){ .chain = INDEX_NONE };
        c->buckets[i] = INDEX_NONE;
        index_list_add_last(&c->used, links, i);
    }
}

struct mask_cache *mask_cache_new(size_t n_words, size_t bytes_max)
{
    struct mask_cache *c = try_calloc(1, sizeof(*c));
    size_t entry_bytes = n_words * sizeof(*c->masks) + sizeof(*c->entries) + sizeof(*c->buckets);

    if (!c)
        return NULL;
    c->n_words = n_words;
    c->n_entries = (uint32_t)MIN(bytes_max / entry_bytes, (size_t)ENTRIES_MAX);
    c->entries = try_malloc(MAX(c->n_entries, 1u) * sizeof(*c->entries));
    c->buckets = try_malloc(MAX(c->n_entries, 1u) * sizeof(*c->buckets));
    c->masks = try_malloc(MAX(c->n_entries, 1u) * n_words * sizeof(*c->masks));
    if (!c->entries || !c->buckets || !c->masks) {
        mask_cache_free(c);
        return NULL;
    }
    drop_all(c);
    return c;
}

void mask_cache_free(struct mask_cache *c)
{
    if (!c)
        return;
    mem_free(c->entries);
    mem_free(c->buckets);
    mem_free(c->masks);
    mem_free(c);
}

size_t mask_cache_bytes(const struct mask_cache *c)
{
    return sizeof(*c) + c->n_entries * (c->n_words * sizeof(*c->masks) + sizeof(*c->entries) +
                                           sizeof(*c->buckets));
}

static uint32_t *bucket_of(struct mask_cache *c, uint64_t key)
{
    return &c->buckets[hash_mix(key) % c->n_entries];
}

static void remove_from_bucket(struct mask_cache *c, uint32_t i)
{
    for (uint32_t *at = bucket_of(c, c->entries[i].key); *at != INDEX_NONE;
         at = &c->entries[*at].chain)
        if (*at == i) {
            *at = c->entries[i].chain;
            return;
        }
}

static void use_generation(struct mask_cache *c, uint64_t generation)
{
    if (c->generation != generation)
        drop_all(c);
    c->generation = generation;
}

/* Index of the entry, which becomes the most recently used one; INDEX_NONE if absent. */
static uint32_t find_entry(struct mask_cache *c, uint64_t key)
{
    uint32_t i = c->n_entries ? *bucket_of(c, key) : INDEX_NONE;

    while (i != INDEX_NONE && c->entries[i].key != key)
        i = c->entries[i].chain;
    if (i != INDEX_NONE) {
        index_list_remove(&c->used, INDEX_LINKS(c->entries, link), i);
        index_list_add_first(&c->used, INDEX_LINKS(c->entries, link), i);
    }
    return i;
}

const uint32_t *mask_cache_find(struct mask_cache *c, uint64_t generation, uint64_t key)
{
    use_generation(c, generation);
    uint32_t i = find_entry(c, key);
    return i == INDEX_NONE ? NULL : c->masks + i * c->n_words;
}

void mask_cache_put(struct mask_cache *c, uint64_t generation, uint64_t key, const uint32_t *mask)
{
    use_generation(c, generation);
    uint32_t i = find_entry(c, key);
    if (!c->n_entries)
        return;
    if (i == INDEX_NONE) {
        i = c->used.last;
        if (c->entries[i].key)
            remove_from_bucket(c, i);
        c->entries[i].key = key;
        c->entries[i].chain = *bucket_of(c, key);
        *bucket_of(c, key) = i;
        find_entry(c, key);
    }
    memcpy(c->masks + i * c->n_words, mask, c->n_words * sizeof(*mask));
}
