#include "constrain/compile_cache.h"

#include "base/list.h"
#include "base/mem.h"

#include <openssl/sha.h>
#include <pthread.h>

enum { N_BUCKETS = 1024, DIGEST_BYTES = SHA256_DIGEST_LENGTH };

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

/* Compiling: `constraint` is NULL, and the entry is in its bucket only. Stored: in `used`. Failed,
 * or evicted with waiting threads: in no list; the last thread frees it. */
struct entry {
    struct list_link used;
    struct entry *chain; /* bucket */
    struct digest key, tenant;
    uint64_t tables; /* vocab_tables.id */
    struct constraint *constraint;
    size_t bytes;
    uint32_t n_users; /* threads that compile or wait */
    bool is_done, keeps_states;
    struct err error; /* error of the compilation */
};

struct compile_cache {
    pthread_mutex_t mu; /* guards all fields and entries */
    pthread_cond_t done;
    size_t bytes_max;
    struct list used; /* most recently used first */
    struct entry *buckets[N_BUCKETS];
    struct compile_cache_stats stats;
};

struct compile_cache *compile_cache_new(size_t bytes_max)
{
    struct compile_cache *c = try_calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->bytes_max = bytes_max;
    CHECK(!pthread_mutex_init(&c->mu, NULL) && !pthread_cond_init(&c->done, NULL));
    return c;
}

/* ---- keys */

static struct digest digest_of(const void *bytes, size_t n)
{
    struct digest out;

    CHECK(SHA256(n ? bytes : "", n, out.bytes));
    return out;
}

static struct digest digest_of_source(
    const struct constraint_source *src, uint64_t tables, const struct digest *tenant)
{
    struct {
        uint64_t kind, any_order, closed_objects, whitespace, bytes_max, tables;
        struct digest tenant, text;
    } all = { src->kind, src->any_order, src->closed_objects, src->whitespace, src->bytes_max,
        tables, *tenant, digest_of(src->text.p, src->text.n) };

    _Static_assert(sizeof(all) == 6 * sizeof(uint64_t) + 2 * DIGEST_BYTES, "no padding");
    return digest_of(&all, sizeof(all));
}

static bool is_same(const struct digest *a, const struct digest *b)
{
    return !memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

/* ---- entries; the caller holds the mutex */

static struct entry **bucket_of(struct compile_cache *c, const struct digest *key)
{
    uint64_t n;

    memcpy(&n, key->bytes, sizeof(n));
    return &c->buckets[n % N_BUCKETS];
}

static struct entry *find(struct compile_cache *c, const struct digest *key)
{
    struct entry *k = *bucket_of(c, key);

    while (k && !is_same(&k->key, key))
        k = k->chain;
    return k;
}

static void remove_from_bucket(struct compile_cache *c, struct entry *k)
{
    struct entry **at = bucket_of(c, &k->key);

    while (*at != k)
        at = &(*at)->chain;
    *at = k->chain;
}

static void free_entry(struct entry *k)
{
    constraint_unref(k->constraint);
    mem_free(k);
}

/* Removes a stored entry; threads that wait for it still use it. */
static void evict(struct compile_cache *c, struct entry *k)
{
    remove_from_bucket(c, k);
    list_remove(&k->used);
    c->stats.bytes -= k->bytes;
    c->stats.n_entries--;
    c->stats.n_evictions++;
    if (!k->n_users)
        free_entry(k);
}

static struct entry *oldest(struct compile_cache *c)
{
    return LIST_ELEMENT(c->used.last, struct entry, used);
}

/* Evicts the oldest entries of a tenant, until `more` bytes fit into its share. */
static void make_room_in_share(struct compile_cache *c, const struct digest *tenant, size_t more)
{
    size_t share = c->bytes_max / COMPILE_CACHE_SHARES, bytes = more;

    LIST_EACH (struct entry, k, &c->used, used)
        bytes += is_same(&k->tenant, tenant) ? k->bytes : 0;
    for (struct entry *k = oldest(c), *before; k && bytes > share; k = before) {
        before = LIST_ELEMENT(k->used.prev, struct entry, used);
        if (is_same(&k->tenant, tenant)) {
            bytes -= k->bytes;
            evict(c, k);
        }
    }
}

/* Stores a compiled entry if it fits. */
static void store(struct compile_cache *c, struct entry *k)
{
    if (k->bytes > c->bytes_max / COMPILE_CACHE_SHARES) {
        remove_from_bucket(c, k);
        return;
    }
    make_room_in_share(c, &k->tenant, k->bytes);
    while (c->stats.bytes + k->bytes > c->bytes_max)
        evict(c, oldest(c));
    list_add_first(&c->used, &k->used);
    c->stats.bytes += k->bytes;
    c->stats.n_entries++;
}

/* Takes the result for a thread that compiled or waited. */
static int take_result(struct entry *k, struct constraint **out, struct err *e)
{
    int rc = k->constraint ? 0 : -1;

    if (rc)
        *e = k->error;
    else
        *out = constraint_ref(k->constraint);
    if (!--k->n_users && !k->used.list)
        free_entry(k);
    return rc;
}

/* The entry becomes the newest. A constraint that is used again keeps the states of ended choices,
 * whose memory is counted from then on. */
static void use_again(struct compile_cache *c, struct entry *k, bool is_new)
{
    size_t more = is_new || k->keeps_states ? 0 : CONSTRAINT_IDLE_BYTES;

    list_remove(&k->used);
    c->stats.bytes -= k->bytes;
    c->stats.n_entries--;
    if (more && k->bytes + more <= c->bytes_max / COMPILE_CACHE_SHARES) {
        k->bytes += more;
        k->keeps_states = true;
        constraint_keep_states(k->constraint);
    }
    store(c, k);
}

/* ---- calls */

/* The entry of a key, which the calling thread uses. *is_new: it must be compiled. NULL: out of
 * memory. */
static struct entry *open_entry(
    struct compile_cache *c, const struct digest *key, const struct digest *tenant, bool *is_new)
{
    struct entry *k = find(c, key);

    *is_new = !k;
    if (k) {
        c->stats.n_hits++;
        c->stats.n_waits += !k->is_done;
    } else {
        k = try_calloc(1, sizeof(*k));
        if (!k)
            return NULL;
        c->stats.n_misses++;
        k->key = *key;
        k->tenant = *tenant;
        k->chain = *bucket_of(c, key);
        *bucket_of(c, key) = k;
    }
    k->n_users++;
    return k;
}

int compile_cache_get(struct compile_cache *c, struct constraint **out,
    const struct constraint_source *src, const struct vocab_tables *t, struct str tenant,
    struct err *e)
{
    struct digest of_tenant = digest_of(tenant.p, tenant.n);
    struct digest key = digest_of_source(src, t->id, &of_tenant);
    bool is_new;

    pthread_mutex_lock(&c->mu);
    struct entry *k = open_entry(c, &key, &of_tenant, &is_new);
    if (!k) {
        pthread_mutex_unlock(&c->mu);
        return err_set(e, ERR_MEMORY, "no memory for a constraint");
    }
    if (is_new) {
        pthread_mutex_unlock(&c->mu);
        struct constraint *made = NULL;
        struct err error = { 0 };
        int rc = constraint_new(&made, src, t, &error);
        pthread_mutex_lock(&c->mu);
        k->constraint = made;
        k->error = error;
        k->tables = t->id;
        k->bytes = rc ? 0 : sizeof(*k) + constraint_bytes(made);
        k->is_done = true;
        if (rc)
            remove_from_bucket(c, k);
        else
            store(c, k);
        pthread_cond_broadcast(&c->done);
    }
    while (!k->is_done)
        pthread_cond_wait(&c->done, &c->mu);
    if (k->used.list)
        use_again(c, k, is_new);
    int rc = take_result(k, out, e);
    pthread_mutex_unlock(&c->mu);
    return rc;
}

static void evict_all(struct compile_cache *c, const uint64_t *tables)
{
    LIST_EACH (struct entry, k, &c->used, used)
        if (!tables || k->tables == *tables)
            evict(c, k);
}

void compile_cache_drop(struct compile_cache *c, const struct vocab_tables *t)
{
    pthread_mutex_lock(&c->mu);
    evict_all(c, &t->id);
    pthread_mutex_unlock(&c->mu);
}

void compile_cache_free(struct compile_cache *c)
{
    if (!c)
        return;
    evict_all(c, NULL);
    pthread_mutex_destroy(&c->mu);
    pthread_cond_destroy(&c->done);
    mem_free(c);
}

struct compile_cache_stats compile_cache_stats(struct compile_cache *c)
{
    pthread_mutex_lock(&c->mu);
    struct compile_cache_stats s = c->stats;
    pthread_mutex_unlock(&c->mu);
    return s;
}
