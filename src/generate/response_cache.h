/* response_cache.h: exact-match cache of deterministic responses.
 *
 * The response to a deterministic request is a function of its key: the loaded model, the caller,
 * the prompt tokens and every field that can affect the output (the caller builds the key, see
 * response_cache_key.h). The cached tokens of one response are replayed for the next request with
 * the same key, with byte-identical output. Keys are compared in full, not by their hash.
 *
 * The token limit is not part of the key:
 *
 *     finished by itself after n tokens   serves any limit; a limit below n ends it with `length`
 *     ended at its limit after n tokens   serves limits up to n
 *
 * Limits: above `max_bytes` the least recently used responses are evicted; a response older than
 * `ttl_ns` is evicted when it is looked up.
 *
 * Any thread. response_cache.mu guards the table and its LRU list. A cached response is immutable
 * and lives while it is referenced. */
#pragma once

#include "base/buf.h"
#include "engine/engine.h"

struct response_cache;
struct cached_response;

struct response_cache_options {
    size_t max_bytes;
    uint64_t ttl_ns;
};

struct response_cache_stats {
    /* `evicted` includes expired responses, but not replaced ones */
    uint64_t hits, misses, evicted;
    size_t entries, bytes;
};

int response_cache_open(
    struct response_cache **out, const struct response_cache_options *o, struct err *e);
void response_cache_close(
    struct response_cache *x); /* accepts NULL; responses that are still referenced live on */

/* Returns a reference to a response that serves a limit of max_tokens, or NULL. */
const struct cached_response *response_cache_take(
    struct response_cache *x, struct str key, int max_tokens, uint64_t now_ns);
void cached_response_unref(const struct cached_response *a); /* accepts NULL */

/* Removes all responses and returns their number. */
size_t response_cache_flush(struct response_cache *x);
void response_cache_stats(struct response_cache *x, struct response_cache_stats *out);

int cached_response_n_tokens(const struct cached_response *a); /* number of tokens */
void cached_response_token(const struct cached_response *a, int i, struct sampled *out);
/* Finish reason under a limit of max_tokens; the caller replays min(n, max_tokens) tokens. */
enum finish cached_response_finish(const struct cached_response *a, int max_tokens);
/* the client's stop token that ended it; TOKEN_NONE (-1) */
int32_t cached_response_stop_id(const struct cached_response *a);

/* Tokens of a response while it is generated; zeroed = empty. Owner: the thread that owns the
 * request. */
struct response_cache_record {
    struct buf tokens; /* records of struct cached_token, each followed by its alternatives */
    int n;
    bool is_too_large; /* the response is not cached */
};
void response_cache_record_token(
    struct response_cache_record *r, const struct response_cache *x, const struct sampled *t);
/* Stores the response and empties the record. `finish` must be STOP or LENGTH. Nothing is stored if
 * memory is short, or if the cached response already serves more limits. */
struct response_cache_end {
    enum finish finish;
    int32_t stop_id;
};
void response_cache_put(struct response_cache *x, struct str key, struct response_cache_record *r,
    const struct response_cache_end *end, uint64_t now_ns);
void response_cache_record_clear(struct response_cache_record *r);
