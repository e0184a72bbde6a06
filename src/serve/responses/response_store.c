#include "serve/responses/response_store_in.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum { BUCKETS_LEAST = 64, BUCKETS_MOST = 1 << 16, BYTES_PER_BUCKET = 4096 };

/* ---- open */

int response_store_open(
    struct response_store **out, const struct response_store_options *o, struct err *e)
{
    struct response_store *s = xcalloc(1, sizeof(*s));
    size_t n = BUCKETS_LEAST;

    while (n < BUCKETS_MOST && n * BYTES_PER_BUCKET < o->max_bytes)
        n *= 2;
    s->o = *o;
    s->seed = rng_entropy();
    s->n_buckets = n;
    s->buckets = try_calloc(n, sizeof(struct store_entry *));
    if (!s->buckets) {
        mem_free(s);
        return err_set(e, ERR_MEMORY, "no memory for a table of %zu responses", n);
    }
    pthread_mutex_init(&s->mu, NULL);
    *out = s;
    return 0;
}

struct store_entry *response_store_entry(const struct stored_response *k)
{
    return container_of(
        (struct stored_response *)(uintptr_t)k, struct store_entry, stored_response);
}

/* ---- under the mutex; entries to free are collected in a list and freed after unlocking */

static void remove_owner(struct response_store *s, struct store_owner *o)
{
    list_remove(&o->in_store);
    mem_free(o);
}

/* Drops one reference. A freed entry drops its reference to the previous response in the same way;
 * this is a loop, not a recursion, because chains are long. */
static void unref(struct response_store *s, struct store_entry *k, struct store_entry **gone)
{
    while (k && --k->refs == 0) {
        struct store_entry *previous = k->previous;
        struct store_owner *o = k->owner;
        o->bytes -= k->bytes;
        s->stats.bytes -= k->bytes;
        if (!--o->n_live)
            remove_owner(s, o);
        k->chain = *gone;
        *gone = k;
        k = previous;
    }
}

void response_store_free_entries(struct store_entry *gone)
{
    for (struct store_entry *next; gone; gone = next) {
        next = gone->chain;
        if (gone->live_state) {
            event_log_clear(&gone->live_state->event_log);
            mem_free(gone->live_state->final_block);
        }
        mem_free(gone);
    }
}

static uint64_t hash_of(const struct response_store *s, uint64_t owner, struct str id)
{
    return hash_bytes(hash_fold(s->seed, owner), id.p, id.n);
}

static struct store_entry **bucket_of(struct response_store *s, uint64_t hash)
{
    return &s->buckets[hash & (s->n_buckets - 1)];
}

static struct store_owner *find_owner(struct response_store *s, uint64_t id)
{
    LIST_EACH (struct store_owner, o, &s->owners, in_store)
        if (o->id == id)
            return o;
    return NULL;
}

static bool is_listed(const struct store_entry *k)
{
    return list_has(&k->owner->by_use, &k->in_owner);
}

static struct store_entry *least_recent(const struct store_owner *o)
{
    return LIST_ELEMENT(o->by_use.last, struct store_entry, in_owner);
}

/* Removes the entry from its bucket and its LRU list, so that it cannot be found. */
static void unlink_entry(struct response_store *s, struct store_entry *k, struct store_entry **gone)
{
    struct store_entry **at = bucket_of(s, k->hash);

    while (*at != k)
        at = &(*at)->chain;
    *at = k->chain;
    if (is_listed(k))
        list_remove(&k->in_owner);
    k->is_found = false;
    s->stats.entries--;
    unref(s, k, gone);
}

static void evict(struct response_store *s, struct store_entry *k, struct store_entry **gone)
{
    s->stats.evicted++;
    unlink_entry(s, k, gone);
}

/* The previous responses become newer than the entry, so that the end of an unused conversation is
 * evicted first. */
static void touch(struct store_entry *k, uint64_t now_ns)
{
    for (; k; k = k->previous) {
        k->used_ns = now_ns;
        if (is_listed(k)) {
            list_remove(&k->in_owner);
            list_add_first(&k->owner->by_use, &k->in_owner);
        }
    }
}

/* Marks the entry as complete: from now on it can expire and be evicted. */
void response_store_set_complete(struct store_entry *k, uint64_t now_ns)
{
    list_add_first(&k->owner->by_use, &k->in_owner);
    touch(k, now_ns);
}

static bool is_too_old(const struct response_store *s, const struct store_entry *k, uint64_t now_ns)
{
    return is_listed(k) && now_ns > k->used_ns && now_ns - k->used_ns > s->o.ttl_ns;
}

static struct store_entry *find(struct response_store *s, uint64_t owner, struct str id,
    uint64_t now_ns, struct store_entry **gone)
{
    uint64_t hash = hash_of(s, owner, id);

    for (struct store_entry *k = *bucket_of(s, hash); k; k = k->chain) {
        if (k->hash != hash || k->owner->id != owner || !str_eq(k->stored_response.id, id))
            continue;
        if (!is_too_old(s, k, now_ns))
            return k;
        evict(s, k, gone);
        return NULL;
    }
    return NULL;
}

/* Evicts the least recently used entry of the owner. Returns false if there is none, or if the
 * owner was freed with it. */
static bool evict_one(struct response_store *s, struct store_owner *o, struct store_entry **gone)
{
    uint64_t id = o->id;

    if (!o->by_use.last)
        return false;
    evict(s, least_recent(o), gone);
    return find_owner(s, id) != NULL;
}

static void evict_old(struct response_store *s, uint64_t now_ns, struct store_entry **gone)
{
    LIST_EACH (struct store_owner, o, &s->owners, in_store)
        while (o->by_use.last && is_too_old(s, least_recent(o), now_ns) && evict_one(s, o, gone))
            continue;
}

/* The owner with the most bytes among those that have an evictable entry. */
static struct store_owner *largest_owner(struct response_store *s)
{
    struct store_owner *most = NULL;

    LIST_EACH (struct store_owner, o, &s->owners, in_store)
        if (o->by_use.last && (!most || o->bytes > most->bytes))
            most = o;
    return most;
}

static void make_room(
    struct response_store *s, struct store_owner *o, size_t bytes, struct store_entry **gone)
{
    while (o->bytes + bytes > s->o.max_owner_bytes && evict_one(s, o, gone))
        continue;
    for (struct store_owner *most;
         s->stats.bytes + bytes > s->o.max_bytes && (most = largest_owner(s));)
        evict(s, least_recent(most), gone);
}

/* ---- insert, find, remove */

void response_store_close(struct response_store *s)
{
    struct store_entry *gone = NULL;

    if (!s)
        return;
    for (struct store_owner *most; (most = largest_owner(s));)
        unlink_entry(s, least_recent(most), &gone);
    CHECK(!s->owners.first && !s->stats.bytes);
    response_store_free_entries(gone);
    pthread_mutex_destroy(&s->mu);
    mem_free(s->buckets);
    mem_free(s);
}

static struct str copy_to(char **at, struct str from)
{
    struct str to = { *at, from.n };

    if (from.n)
        memcpy(*at, from.p, from.n);
    *at += from.n;
    return to;
}

struct store_entry *response_store_new_entry(
    const struct stored_response *from, size_t extra, char **extra_at)
{
    size_t texts = from->id.n + from->response.n + from->input.n,
           align = _Alignof(struct store_entry);
    size_t at_extra = (sizeof(struct store_entry) + texts + align - 1) / align * align;
    size_t bytes = extra ? at_extra + extra : sizeof(struct store_entry) + texts;
    struct store_entry *k = try_malloc(bytes);

    if (!k)
        return NULL;
    memset(k, 0, sizeof(*k));
    char *at = (char *)(k + 1);
    k->stored_response.id = copy_to(&at, from->id);
    k->stored_response.response = copy_to(&at, from->response);
    k->stored_response.input = copy_to(&at, from->input);
    k->stored_response.previous = from->previous;
    k->stored_response.depth = from->previous ? from->previous->depth + 1 : 0;
    k->previous = from->previous ? response_store_entry(from->previous) : NULL;
    k->bytes = bytes;
    k->refs = 1;
    if (extra_at)
        *extra_at = (char *)k + at_extra;
    return k;
}

/* Links the entry and counts it, which keeps the owner alive. */
static void link_entry(
    struct response_store *s, struct store_owner *o, struct store_entry *k, uint64_t now_ns)
{
    CHECK(!k->previous || k->previous->owner == o);
    k->owner = o;
    o->n_live++;
    o->bytes += k->bytes;
    s->stats.bytes += k->bytes;
    k->chain = *bucket_of(s, k->hash);
    *bucket_of(s, k->hash) = k;
    k->is_found = true;
    s->stats.entries++;
    if (k->previous)
        k->previous->refs++;
    if (!k->live_state)
        response_store_set_complete(k, now_ns);
}

static bool has_room(const struct response_store *s, const struct store_owner *o, size_t bytes)
{
    return o->bytes + bytes <= s->o.max_owner_bytes && s->stats.bytes + bytes <= s->o.max_bytes;
}

bool response_store_reserve(
    struct response_store *s, struct store_entry *k, size_t bytes, struct store_entry **gone)
{
    if (!bytes)
        return true;
    make_room(s, k->owner, bytes, gone); /* the owner is not freed: it has this entry */
    if (!has_room(s, k->owner, bytes))
        return false;
    k->bytes += bytes;
    k->owner->bytes += bytes;
    s->stats.bytes += bytes;
    return true;
}

void response_store_unreserve(struct response_store *s, struct store_entry *k, size_t bytes)
{
    k->bytes -= bytes;
    k->owner->bytes -= bytes;
    s->stats.bytes -= bytes;
}

/* The temporary increment of n_live keeps `o` alive while entries are evicted. */
static bool try_insert(struct response_store *s, struct store_owner *o, struct store_entry *k,
    uint64_t now_ns, struct store_entry **gone)
{
    bool is_ok = false;

    o->n_live++;
    evict_old(s, now_ns, gone);
    if (!find(s, o->id, k->stored_response.id, now_ns, gone)) {
        make_room(s, o, k->bytes, gone);
        is_ok = has_room(s, o, k->bytes);
    }
    if (is_ok)
        link_entry(s, o, k, now_ns);
    if (!--o->n_live)
        remove_owner(s, o);
    return is_ok;
}

bool response_store_insert(
    struct response_store *s, uint64_t owner, struct store_entry *k, uint64_t now_ns)
{
    struct store_entry *gone = NULL;

    if (k->bytes > MIN(s->o.max_owner_bytes, s->o.max_bytes) ||
        k->stored_response.depth >= RESPONSE_STORE_DEPTH_MAX)
        return false;
    struct store_owner *fresh = try_calloc(1, sizeof(*fresh));
    if (!fresh)
        return false;
    pthread_mutex_lock(&s->mu);
    k->hash = hash_of(s, owner, k->stored_response.id);
    struct store_owner *o = find_owner(s, owner);
    if (!o) {
        o = fresh;
        fresh = NULL;
        o->id = owner;
        list_add_first(&s->owners, &o->in_store);
    }
    bool is_ok = try_insert(s, o, k, now_ns, &gone);
    pthread_mutex_unlock(&s->mu);
    mem_free(fresh);
    response_store_free_entries(gone);
    return is_ok;
}

bool response_store_put(
    struct response_store *s, uint64_t owner, const struct stored_response *from, uint64_t now_ns)
{
    size_t most = MIN(s->o.max_owner_bytes, s->o.max_bytes);

    if (from->id.n + from->response.n + from->input.n > most)
        return false; /* checked before the copy is made */
    struct store_entry *k = response_store_new_entry(from, 0, NULL);
    if (k && response_store_insert(s, owner, k, now_ns))
        return true;
    mem_free(k);
    return false;
}

void response_store_view(
    struct response_store *s, const struct stored_response *k, struct stored_response_view *out)
{
    const struct live_state *g = response_store_entry(k)->live_state;

    *out = (struct stored_response_view){ .stage = STORED_COMPLETED, .response = k->response };
    if (!g)
        return;
    pthread_mutex_lock(&s->mu);
    out->stage = g->stage;
    out->is_log_truncated = g->is_log_truncated;
    out->n_frames = g->event_log.n_frames;
    if (g->final.p)
        out->response = g->final;
    pthread_mutex_unlock(&s->mu);
}

const struct stored_response *response_store_take(
    struct response_store *s, uint64_t owner, struct str id, uint64_t now_ns)
{
    struct store_entry *gone = NULL;

    pthread_mutex_lock(&s->mu);
    struct store_entry *k = find(s, owner, id, now_ns, &gone);
    if (k) {
        k->refs++;
        touch(k, now_ns);
    }
    *(k ? &s->stats.hits : &s->stats.misses) += 1;
    pthread_mutex_unlock(&s->mu);
    response_store_free_entries(gone);
    return k ? &k->stored_response : NULL;
}

const struct stored_response *response_store_ref(
    struct response_store *s, const struct stored_response *k)
{
    pthread_mutex_lock(&s->mu);
    response_store_entry(k)->refs++;
    pthread_mutex_unlock(&s->mu);
    return k;
}

void response_store_unref(struct response_store *s, const struct stored_response *k)
{
    struct store_entry *gone = NULL;

    if (!k)
        return;
    pthread_mutex_lock(&s->mu);
    unref(s, response_store_entry(k), &gone);
    pthread_mutex_unlock(&s->mu);
    response_store_free_entries(gone);
}

bool response_store_remove(struct response_store *s, uint64_t owner, struct str id, uint64_t now_ns)
{
    struct store_entry *gone = NULL;

    pthread_mutex_lock(&s->mu);
    struct store_entry *k = find(s, owner, id, now_ns, &gone);
    if (k)
        unlink_entry(s, k, &gone);
    pthread_mutex_unlock(&s->mu);
    response_store_free_entries(gone);
    return k != NULL;
}

void response_store_stats(struct response_store *s, struct response_store_stats *out)
{
    pthread_mutex_lock(&s->mu);
    *out = s->stats;
    pthread_mutex_unlock(&s->mu);
}

static void check_owner(const struct store_owner *o, size_t *n_listed)
{
    const struct list_link *newer = NULL;

    CHECK(o->n_live);
    LIST_EACH (const struct store_entry, k, &o->by_use, in_owner) {
        CHECK(k->is_found && is_listed(k) && k->owner == o && k->refs >= 1);
        CHECK(k->in_owner.prev == newer);
        newer = &k->in_owner;
        CHECK(!k->previous || k->previous->refs >= 1);
        *n_listed += 1;
    }
    CHECK(o->by_use.last == newer);
}

void response_store_check(struct response_store *s)
{
    size_t bytes = 0, n_listed = 0, n_growing = 0, in_buckets = 0;

    pthread_mutex_lock(&s->mu);
    LIST_EACH (const struct store_owner, o, &s->owners, in_store) {
        bytes += o->bytes;
        check_owner(o, &n_listed);
    }
    for (size_t i = 0; i < s->n_buckets; i++)
        for (const struct store_entry *k = s->buckets[i]; k; k = k->chain) {
            in_buckets++;
            n_growing += !is_listed(k);
            CHECK(k->is_found && (is_listed(k) || k->live_state));
        }
    CHECK(in_buckets == s->stats.entries && n_listed + n_growing == in_buckets);
    CHECK(bytes == s->stats.bytes && bytes <= s->o.max_bytes);
    pthread_mutex_unlock(&s->mu);
}
