#include "serve/responses/shelf_in.h"

#include "base/mem.h"
#include "base/rng.h"

enum { BUCKETS_LEAST = 64, BUCKETS_MOST = 1 << 16, BYTES_PER_BUCKET = 4096 };

/* ---- open */

int shelf_open(struct shelf **out, const struct shelf_options *o, struct err *e)
{
    struct shelf *s = xcalloc(1, sizeof(*s));
    size_t n = BUCKETS_LEAST;

    while (n < BUCKETS_MOST && n * BYTES_PER_BUCKET < o->max_bytes)
        n *= 2;
    s->o = *o;
    s->seed = rng_entropy();
    s->n_buckets = n;
    s->buckets = try_calloc(n, sizeof(struct entry *));
    if (!s->buckets) {
        mem_free(s);
        return err_set(e, ERR_MEMORY, "no memory for a table of %zu answers", n);
    }
    pthread_mutex_init(&s->mu, NULL);
    *out = s;
    return 0;
}

struct entry *shelf_entry(const struct kept *k)
{
    return container_of((struct kept *)(uintptr_t)k, struct entry, kept);
}

/* ---- under the mutex; entries to free are collected in a list and freed after unlocking */

static void remove_owner(struct shelf *s, struct owner *o)
{
    struct owner **at = &s->owners;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    mem_free(o);
}

/* Drops one reference. A freed entry drops its reference to the previous response in the same way;
 * this is a loop, not a recursion, because chains are long. */
static void unref(struct shelf *s, struct entry *k, struct entry **gone)
{
    while (k && --k->refs == 0) {
        struct entry *before = k->before;
        struct owner *o = k->owner;
        o->bytes -= k->bytes;
        s->stats.bytes -= k->bytes;
        if (!--o->n_live)
            remove_owner(s, o);
        k->chain = *gone;
        *gone = k;
        k = before;
    }
}

void shelf_free_all(struct entry *gone)
{
    for (struct entry *next; gone; gone = next) {
        next = gone->chain;
        if (gone->growth) {
            tape_clear(&gone->growth->tape);
            mem_free(gone->growth->final_block);
        }
        mem_free(gone);
    }
}

static uint64_t hash_of(const struct shelf *s, uint64_t owner, struct str id)
{
    uint64_t h = s->seed ^ owner;

    for (size_t i = 0; i < id.n; i++) {
        h = (h ^ (unsigned char)id.p[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return h;
}

static struct entry **bucket_of(struct shelf *s, uint64_t hash)
{
    return &s->buckets[hash & (s->n_buckets - 1)];
}

static struct owner *find_owner(struct shelf *s, uint64_t id)
{
    struct owner *o = s->owners;

    while (o && o->id != id)
        o = o->next;
    return o;
}

static void unlink_use(struct entry *k)
{
    struct owner *o = k->owner;

    *(k->newer ? &k->newer->older : &o->newest) = k->older;
    *(k->older ? &k->older->newer : &o->oldest) = k->newer;
}

static void link_newest(struct entry *k)
{
    struct owner *o = k->owner;

    k->newer = NULL;
    k->older = o->newest;
    *(o->newest ? &o->newest->newer : &o->oldest) = k;
    o->newest = k;
}

/* Removes the entry from its bucket and its LRU list, so that it cannot be found. */
static void unlink_entry(struct shelf *s, struct entry *k, struct entry **gone)
{
    struct entry **at = bucket_of(s, k->hash);

    while (*at != k)
        at = &(*at)->chain;
    *at = k->chain;
    if (k->is_listed)
        unlink_use(k);
    k->is_found = k->is_listed = false;
    s->stats.entries--;
    unref(s, k, gone);
}

static void evict(struct shelf *s, struct entry *k, struct entry **gone)
{
    s->stats.evicted++;
    unlink_entry(s, k, gone);
}

/* The previous responses become newer than the entry, so that the end of an unused conversation is
 * evicted first. */
static void touch(struct entry *k, uint64_t now_ns)
{
    for (; k; k = k->before) {
        k->used_ns = now_ns;
        if (k->is_listed) {
            unlink_use(k);
            link_newest(k);
        }
    }
}

/* Marks the entry as complete: from now on it can expire and be evicted. */
void shelf_list(struct entry *k, uint64_t now_ns)
{
    k->is_listed = true;
    link_newest(k);
    touch(k, now_ns);
}

static bool is_too_old(const struct shelf *s, const struct entry *k, uint64_t now_ns)
{
    return k->is_listed && now_ns > k->used_ns && now_ns - k->used_ns > s->o.ttl_ns;
}

static struct entry *find(
    struct shelf *s, uint64_t owner, struct str id, uint64_t now_ns, struct entry **gone)
{
    uint64_t hash = hash_of(s, owner, id);

    for (struct entry *k = *bucket_of(s, hash); k; k = k->chain) {
        if (k->hash != hash || k->owner->id != owner || !str_eq(k->kept.id, id))
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
static bool evict_one(struct shelf *s, struct owner *o, struct entry **gone)
{
    uint64_t id = o->id;

    if (!o->oldest)
        return false;
    evict(s, o->oldest, gone);
    return find_owner(s, id) != NULL;
}

static void evict_old(struct shelf *s, uint64_t now_ns, struct entry **gone)
{
    for (struct owner *o = s->owners, *next; o; o = next) {
        next = o->next;
        while (o->oldest && is_too_old(s, o->oldest, now_ns) && evict_one(s, o, gone))
            continue;
    }
}

/* The owner with the most bytes among those that have an evictable entry. */
static struct owner *largest_owner(struct shelf *s)
{
    struct owner *most = NULL;

    for (struct owner *o = s->owners; o; o = o->next)
        if (o->oldest && (!most || o->bytes > most->bytes))
            most = o;
    return most;
}

static void make_room(struct shelf *s, struct owner *o, size_t bytes, struct entry **gone)
{
    while (o->bytes + bytes > s->o.max_owner_bytes && evict_one(s, o, gone))
        continue;
    for (struct owner *most; s->stats.bytes + bytes > s->o.max_bytes && (most = largest_owner(s));)
        evict(s, most->oldest, gone);
}

/* ---- insert, find, remove */

void shelf_close(struct shelf *s)
{
    struct entry *gone = NULL;

    if (!s)
        return;
    for (struct owner *most; (most = largest_owner(s));)
        unlink_entry(s, most->oldest, &gone);
    CHECK(!s->owners && !s->stats.bytes);
    shelf_free_all(gone);
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

struct entry *shelf_new_entry(const struct kept *from, size_t extra, char **extra_at)
{
    size_t texts = from->id.n + from->answer.n + from->input.n, align = _Alignof(struct entry);
    size_t at_extra = (sizeof(struct entry) + texts + align - 1) / align * align;
    size_t bytes = extra ? at_extra + extra : sizeof(struct entry) + texts;
    struct entry *k = try_malloc(bytes);

    if (!k)
        return NULL;
    memset(k, 0, sizeof(*k));
    char *at = (char *)(k + 1);
    k->kept.id = copy_to(&at, from->id);
    k->kept.answer = copy_to(&at, from->answer);
    k->kept.input = copy_to(&at, from->input);
    k->kept.before = from->before;
    k->kept.depth = from->before ? from->before->depth + 1 : 0;
    k->before = from->before ? shelf_entry(from->before) : NULL;
    k->bytes = bytes;
    k->refs = 1;
    if (extra_at)
        *extra_at = (char *)k + at_extra;
    return k;
}

/* Links the entry and counts it, which keeps the owner alive. */
static void link_entry(struct shelf *s, struct owner *o, struct entry *k, uint64_t now_ns)
{
    CHECK(!k->before || k->before->owner == o);
    k->owner = o;
    o->n_live++;
    o->bytes += k->bytes;
    s->stats.bytes += k->bytes;
    k->chain = *bucket_of(s, k->hash);
    *bucket_of(s, k->hash) = k;
    k->is_found = true;
    s->stats.entries++;
    if (k->before)
        k->before->refs++;
    if (!k->growth)
        shelf_list(k, now_ns);
}

static bool has_room(const struct shelf *s, const struct owner *o, size_t bytes)
{
    return o->bytes + bytes <= s->o.max_owner_bytes && s->stats.bytes + bytes <= s->o.max_bytes;
}

bool shelf_claim(struct shelf *s, struct entry *k, size_t bytes, struct entry **gone)
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

void shelf_unclaim(struct shelf *s, struct entry *k, size_t bytes)
{
    k->bytes -= bytes;
    k->owner->bytes -= bytes;
    s->stats.bytes -= bytes;
}

/* The temporary increment of n_live keeps `o` alive while entries are evicted. */
static bool try_insert(
    struct shelf *s, struct owner *o, struct entry *k, uint64_t now_ns, struct entry **gone)
{
    bool is_ok = false;

    o->n_live++;
    evict_old(s, now_ns, gone);
    if (!find(s, o->id, k->kept.id, now_ns, gone)) {
        make_room(s, o, k->bytes, gone);
        is_ok = has_room(s, o, k->bytes);
    }
    if (is_ok)
        link_entry(s, o, k, now_ns);
    if (!--o->n_live)
        remove_owner(s, o);
    return is_ok;
}

bool shelf_bring_in(struct shelf *s, uint64_t owner, struct entry *k, uint64_t now_ns)
{
    struct entry *gone = NULL;

    if (k->bytes > MIN(s->o.max_owner_bytes, s->o.max_bytes) || k->kept.depth >= SHELF_DEPTH_MAX)
        return false;
    struct owner *fresh = try_calloc(1, sizeof(*fresh));
    if (!fresh)
        return false;
    pthread_mutex_lock(&s->mu);
    k->hash = hash_of(s, owner, k->kept.id);
    struct owner *o = find_owner(s, owner);
    if (!o) {
        o = fresh;
        fresh = NULL;
        o->id = owner;
        o->next = s->owners;
        s->owners = o;
    }
    bool is_ok = try_insert(s, o, k, now_ns, &gone);
    pthread_mutex_unlock(&s->mu);
    mem_free(fresh);
    shelf_free_all(gone);
    return is_ok;
}

bool shelf_put(struct shelf *s, uint64_t owner, const struct kept *from, uint64_t now_ns)
{
    size_t most = MIN(s->o.max_owner_bytes, s->o.max_bytes);

    if (from->id.n + from->answer.n + from->input.n > most)
        return false; /* checked before the copy is made */
    struct entry *k = shelf_new_entry(from, 0, NULL);
    if (k && shelf_bring_in(s, owner, k, now_ns))
        return true;
    mem_free(k);
    return false;
}

void shelf_look(struct shelf *s, const struct kept *k, struct kept_view *out)
{
    const struct growth *g = shelf_entry(k)->growth;

    *out = (struct kept_view){ .stage = KEPT_ENDED, .answer = k->answer };
    if (!g)
        return;
    pthread_mutex_lock(&s->mu);
    out->stage = g->stage;
    out->is_cut = g->is_cut;
    out->n_frames = g->tape.n_frames;
    if (g->final.p)
        out->answer = g->final;
    pthread_mutex_unlock(&s->mu);
}

const struct kept *shelf_take(struct shelf *s, uint64_t owner, struct str id, uint64_t now_ns)
{
    struct entry *gone = NULL;

    pthread_mutex_lock(&s->mu);
    struct entry *k = find(s, owner, id, now_ns, &gone);
    if (k) {
        k->refs++;
        touch(k, now_ns);
    }
    *(k ? &s->stats.hits : &s->stats.misses) += 1;
    pthread_mutex_unlock(&s->mu);
    shelf_free_all(gone);
    return k ? &k->kept : NULL;
}

const struct kept *shelf_ref(struct shelf *s, const struct kept *k)
{
    pthread_mutex_lock(&s->mu);
    shelf_entry(k)->refs++;
    pthread_mutex_unlock(&s->mu);
    return k;
}

void shelf_unref(struct shelf *s, const struct kept *k)
{
    struct entry *gone = NULL;

    if (!k)
        return;
    pthread_mutex_lock(&s->mu);
    unref(s, shelf_entry(k), &gone);
    pthread_mutex_unlock(&s->mu);
    shelf_free_all(gone);
}

bool shelf_drop(struct shelf *s, uint64_t owner, struct str id, uint64_t now_ns)
{
    struct entry *gone = NULL;

    pthread_mutex_lock(&s->mu);
    struct entry *k = find(s, owner, id, now_ns, &gone);
    if (k)
        unlink_entry(s, k, &gone);
    pthread_mutex_unlock(&s->mu);
    shelf_free_all(gone);
    return k != NULL;
}

void shelf_stats(struct shelf *s, struct shelf_stats *out)
{
    pthread_mutex_lock(&s->mu);
    *out = s->stats;
    pthread_mutex_unlock(&s->mu);
}

static void check_owner(const struct owner *o, size_t *n_listed)
{
    const struct entry *newer = NULL;

    CHECK(o->n_live);
    for (const struct entry *k = o->newest; k; newer = k, k = k->older) {
        CHECK(k->is_found && k->is_listed && k->owner == o && k->newer == newer && k->refs >= 1);
        CHECK(!k->before || k->before->refs >= 1);
        *n_listed += 1;
    }
    CHECK(o->oldest == newer);
}

void shelf_check(struct shelf *s)
{
    size_t bytes = 0, n_listed = 0, n_growing = 0, in_buckets = 0;

    pthread_mutex_lock(&s->mu);
    for (const struct owner *o = s->owners; o; o = o->next) {
        bytes += o->bytes;
        check_owner(o, &n_listed);
    }
    for (size_t i = 0; i < s->n_buckets; i++)
        for (const struct entry *k = s->buckets[i]; k; k = k->chain) {
            in_buckets++;
            n_growing += !k->is_listed;
            CHECK(k->is_found && (k->is_listed || k->growth));
        }
    CHECK(in_buckets == s->stats.entries && n_listed + n_growing == in_buckets);
    CHECK(bytes == s->stats.bytes && bytes <= s->o.max_bytes);
    pthread_mutex_unlock(&s->mu);
}
