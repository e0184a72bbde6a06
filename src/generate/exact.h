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

struct exact;
struct exact_answer;

struct exact_options {
    size_t max_bytes;
    uint64_t ttl_ns;
};

struct exact_stats {
    /* `evicted` includes expired responses, but not replaced ones */
    uint64_t hits, misses, evicted;
    size_t entries, bytes;
};

int exact_open(struct exact **out, const struct exact_options *o, struct err *e);
void exact_close(struct exact *x); /* accepts NULL; responses that are still referenced live on */

/* Returns a reference to a response that serves a limit of max_tokens, or NULL. */
const struct exact_answer *exact_take(
    struct exact *x, struct str key, int max_tokens, uint64_t now_ns);
void exact_unref(const struct exact_answer *a); /* accepts NULL */

/* Removes all responses and returns their number. */
size_t exact_flush(struct exact *x);
void exact_stats(struct exact *x, struct exact_stats *out);

int exact_answer_n(const struct exact_answer *a); /* number of tokens */
void exact_answer_token(const struct exact_answer *a, int i, struct sampled *out);
/* Finish reason under a limit of max_tokens; the caller replays min(n, max_tokens) tokens. */
enum finish exact_answer_finish(const struct exact_answer *a, int max_tokens);
/* the client's stop token that ended it; TOKEN_NONE (-1) */
int32_t exact_answer_stop_id(const struct exact_answer *a);

/* Tokens of a response while it is generated; zeroed = empty. Owner: the thread that owns the
 * request. */
struct exact_record {
    struct buf tokens; /* records of struct cached_token, each followed by its alternatives */
    int n;
    bool is_too_large; /* the response is not cached */
};
void exact_record_token(struct exact_record *r, const struct exact *x, const struct sampled *t);
/* Stores the response and empties the record. `finish` must be STOP or LENGTH. Nothing is stored if
 * memory is short, or if the cached response already serves more limits. */
struct exact_end {
    enum finish finish;
    int32_t stop_id;
};
void exact_put(struct exact *x, struct str key, struct exact_record *r, const struct exact_end *end,
    uint64_t now_ns);
void exact_record_clear(struct exact_record *r);
