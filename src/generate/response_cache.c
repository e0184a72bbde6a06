#include "generate/response_cache.h"

#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/rng.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MIN_BUCKETS = 64, MAX_BUCKETS = 1 << 16, BYTES_PER_BUCKET = 2048, MAX_SHARE = 8 };

struct cached_token {
    int32_t id;
    float logprob;
    int32_t n_top;
};

/* One memory block holds this struct, the token offsets, the tokens and the key. */
struct cached_response {
    _Atomic int refs;
    struct cached_response *chain; /* next in the bucket */
    struct list_link in_cache;     /* in by_use */
    uint64_t hash, born_ns;
    size_t bytes;
    struct str key;
    const char *tokens;
    int n;
    enum finish finish;
    int32_t stop_id;
    uint32_t at[]; /* [n]: offset of token i in `tokens` */
};

struct response_cache {
    pthread_mutex_t mu;
    struct response_cache_options o;
    uint64_t seed; /* random, so that a client cannot construct keys that collide in one bucket */
    struct cached_response **buckets;
    size_t n_buckets;
    struct list by_use; /* most recently used first */
    struct response_cache_stats stats;
};

/* ---- open, close */

int response_cache_open(
    struct response_cache **out, const struct response_cache_options *o, struct err *e)
{
    struct response_cache *x = xcalloc(1, sizeof(*x));
    size_t n = MIN_BUCKETS;

    while (n < MAX_BUCKETS && n * BYTES_PER_BUCKET < o->max_bytes)
        n *= 2;
    x->o = *o;
    x->seed = rng_entropy();
    x->n_buckets = n;
    x->buckets = try_calloc(n, sizeof(*x->buckets));
    if (!x->buckets) {
        mem_free(x);
        return err_set(e, ERR_MEMORY, "no memory for a table of %zu responses", n);
    }
    pthread_mutex_init(&x->mu, NULL);
    *out = x;
    return 0;
}

void response_cache_close(struct response_cache *x)
{
    if (!x)
        return;
    response_cache_flush(x);
    pthread_mutex_destroy(&x->mu);
    mem_free(x->buckets);
    mem_free(x);
}

void cached_response_unref(const struct cached_response *a)
{
    struct cached_response *mine = (struct cached_response *)(uintptr_t)a;

    if (mine && atomic_fetch_sub(&mine->refs, 1) == 1)
        mem_free(mine);
}

/* ---- table; all functions hold the mutex */

static struct cached_response **bucket_of(struct response_cache *x, uint64_t hash)
{
    return &x->buckets[hash & (x->n_buckets - 1)];
}

static struct cached_response *find(struct response_cache *x, struct str key, uint64_t hash)
{
    for (struct cached_response *a = *bucket_of(x, hash); a; a = a->chain)
        if (a->hash == hash && str_eq(a->key, key))
            return a;
    return NULL;
}

static struct cached_response *least_recent(const struct response_cache *x)
{
    return LIST_ELEMENT(x->by_use.last, struct cached_response, in_cache);
}

/* Removes an entry from the table and adds it to a list that is released after unlocking. */
static void remove_entry(
    struct response_cache *x, struct cached_response *a, struct cached_response **gone)
{
    struct cached_response **at = bucket_of(x, a->hash);

    while (*at != a)
        at = &(*at)->chain;
    *at = a->chain;
    list_remove(&a->in_cache);
    x->stats.entries--;
    x->stats.bytes -= a->bytes;
    a->chain = *gone;
    *gone = a;
}

static void unref_all(struct cached_response *gone)
{
    for (struct cached_response *next; gone; gone = next) {
        next = gone->chain;
        cached_response_unref(gone);
    }
}

static bool serves(const struct cached_response *a, int max_tokens)
{
    return a->finish == FINISH_STOP || max_tokens <= a->n;
}

const struct cached_response *response_cache_take(
    struct response_cache *x, struct str key, int max_tokens, uint64_t now_ns)
{
    uint64_t hash = hash_bytes(x->seed, key.p, key.n);
    struct cached_response *gone = NULL;

    pthread_mutex_lock(&x->mu);
    struct cached_response *a = find(x, key, hash);
    if (a && now_ns - a->born_ns > x->o.ttl_ns) {
        remove_entry(x, a, &gone);
        x->stats.evicted++;
        a = NULL;
    }
    if (a && !serves(a, max_tokens))
        a = NULL;
    if (a) {
        a->refs++;
        list_remove(&a->in_cache);
        list_add_first(&x->by_use, &a->in_cache);
    }
    *(a ? &x->stats.hits : &x->stats.misses) += 1;
    pthread_mutex_unlock(&x->mu);
    unref_all(gone);
    return a;
}

size_t response_cache_flush(struct response_cache *x)
{
    struct cached_response *gone = NULL;

    pthread_mutex_lock(&x->mu);
    size_t n = x->stats.entries;
    while (x->by_use.last)
        remove_entry(x, least_recent(x), &gone);
    pthread_mutex_unlock(&x->mu);
    unref_all(gone);
    return n;
}

void response_cache_stats(struct response_cache *x, struct response_cache_stats *out)
{
    pthread_mutex_lock(&x->mu);
    *out = x->stats;
    pthread_mutex_unlock(&x->mu);
}

/* ---- cached responses */

int cached_response_n_tokens(const struct cached_response *a)
{
    return a->n;
}

void cached_response_token(const struct cached_response *a, int i, struct sampled *out)
{
    struct cached_token t;

    CHECK(i >= 0 && i < a->n);
    memcpy(&t, a->tokens + a->at[i], sizeof(t));
    out->id = t.id;
    out->logprob = t.logprob;
    out->n_top = t.n_top;
    memcpy(out->top, a->tokens + a->at[i] + sizeof(t), (size_t)t.n_top * sizeof(out->top[0]));
}

/* The engine has the same rule: the limit has precedence over the token that would end it. */
enum finish cached_response_finish(const struct cached_response *a, int max_tokens)
{
    return max_tokens <= a->n ? FINISH_LENGTH : a->finish;
}

int32_t cached_response_stop_id(const struct cached_response *a)
{
    return a->stop_id;
}

/* ---- recording */

void response_cache_record_token(
    struct response_cache_record *r, const struct response_cache *x, const struct sampled *t)
{
    struct cached_token token = { t->id, t->logprob, t->n_top };

    if (r->is_too_large)
        return;
    if (!r->n)
        buf_init(&r->tokens, x->o.max_bytes / MAX_SHARE);
    buf_put(&r->tokens, &token, sizeof(token));
    buf_put(&r->tokens, t->top, (size_t)t->n_top * sizeof(t->top[0]));
    r->n++;
    if (!buf_ok(&r->tokens))
        r->is_too_large = true;
}

void response_cache_record_clear(struct response_cache_record *r)
{
    buf_clear(&r->tokens);
    *r = (struct response_cache_record){ 0 };
}

static struct cached_response *new_response(
    struct str key, const struct response_cache_record *r, const struct response_cache_end *end)
{
    size_t head = sizeof(struct cached_response) + (size_t)r->n * sizeof(uint32_t);
    size_t bytes = head + r->tokens.n + key.n, at = 0;
    struct cached_response *a = try_malloc(bytes);
    struct cached_token t;

    if (!a)
        return NULL;
    char *tokens = (char *)a + head, *copy = tokens + r->tokens.n;
    *a = (struct cached_response){ .refs = 1,
        .bytes = bytes,
        .key = { copy, key.n },
        .tokens = tokens,
        .n = r->n,
        .finish = end->finish,
        .stop_id = end->stop_id };
    if (r->tokens.n)
        memcpy(tokens, r->tokens.p, r->tokens.n);
    memcpy(copy, key.p, key.n);
    for (int i = 0; i < r->n; i++) {
        a->at[i] = (uint32_t)at;
        memcpy(&t, tokens + at, sizeof(t));
        at += sizeof(t) + (size_t)t.n_top * sizeof(struct token_logprob);
    }
    return a;
}

static bool is_better(const struct cached_response *a, const struct cached_response *old)
{
    return old->finish == FINISH_LENGTH && (a->finish == FINISH_STOP || a->n > old->n);
}

void response_cache_put(struct response_cache *x, struct str key, struct response_cache_record *r,
    const struct response_cache_end *end, uint64_t now_ns)
{
    struct cached_response *gone = NULL;
    struct cached_response *a = r->is_too_large ? NULL : new_response(key, r, end);

    response_cache_record_clear(r);
    if (!a || a->bytes > x->o.max_bytes / MAX_SHARE) {
        cached_response_unref(a);
        return;
    }
    a->hash = hash_bytes(x->seed, key.p, key.n);
    a->born_ns = now_ns;
    pthread_mutex_lock(&x->mu);
    struct cached_response *old = find(x, key, a->hash);
    bool is_wanted = !old || is_better(a, old) || now_ns - old->born_ns > x->o.ttl_ns;
    if (is_wanted && old)
        remove_entry(x, old, &gone);
    while (is_wanted && x->by_use.last && x->stats.bytes + a->bytes > x->o.max_bytes) {
        remove_entry(x, least_recent(x), &gone);
        x->stats.evicted++;
    }
    if (is_wanted) {
        a->chain = *bucket_of(x, a->hash);
        *bucket_of(x, a->hash) = a;
        list_add_first(&x->by_use, &a->in_cache);
        x->stats.entries++;
        x->stats.bytes += a->bytes;
    }
    pthread_mutex_unlock(&x->mu);
    unref_all(gone);
    if (!is_wanted)
        cached_response_unref(a);
}
