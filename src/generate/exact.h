/* exact.h: answers that need not be computed again, because nothing about the question differs.
 *
 * An answer of a deterministic request is a function of its key: the loaded model, whose it is,
 * the prompt's tokens and every field that can matter (the caller writes them down, see
 * serve/remember.h). So the tokens of one answer serve the next question with the same key, byte
 * for byte as if they had been computed; keys are compared as a whole, not by a hash of them.
 *
 * The limit of tokens is not in the key:
 *     ended by itself after n tokens   serves any limit; one below n cuts it, as `length`
 *     cut at its limit after n tokens  serves limits up to n
 *
 * Least recently used answers go when there are too many bytes, any answer when it is too old.
 *
 * Any thread. The table and its list are guarded by exact.mu; an answer never changes and lives as
 * long as somebody refers to it. */
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
    uint64_t hits, misses, evicted; /* expired ones are evicted, too; replaced ones are not */
    size_t entries, bytes;
};

int exact_open(struct exact **out, const struct exact_options *o, struct err *e);
void exact_close(struct exact *x); /* NULL is fine; answers that are referred to live on */

/* One that serves a limit of max_tokens, with a reference; NULL. */
const struct exact_answer *exact_take(
    struct exact *x, struct str key, int max_tokens, uint64_t now_ns);
void exact_unref(const struct exact_answer *a); /* NULL is fine */

/* Forgets everything; how many answers that were. */
size_t exact_flush(struct exact *x);
void exact_stats(struct exact *x, struct exact_stats *out);

int exact_answer_n(const struct exact_answer *a); /* tokens */
void exact_answer_token(const struct exact_answer *a, int i, struct sampled *out);
/* How it ends when at most max_tokens may come: the tokens to be told are min(n, max_tokens). */
enum finish exact_answer_finish(const struct exact_answer *a, int max_tokens);
int32_t exact_answer_stop_id(const struct exact_answer *a); /* a client's; TOKEN_NONE (-1) */

/* An answer while it is being given; zeroed = empty. Owner: whoever holds it. */
struct exact_record {
    struct buf tokens; /* of struct exact_token, each followed by its alternatives */
    int n;
    bool is_too_large; /* it will not be remembered */
};
void exact_record_token(struct exact_record *r, const struct exact *x, const struct sampled *t);
/* finish is STOP or LENGTH. Remembers it, unless memory is short or what is there serves more.
 * Empties the record. */
struct exact_end {
    enum finish finish;
    int32_t stop_id;
};
void exact_put(struct exact *x, struct str key, struct exact_record *r, const struct exact_end *end,
    uint64_t now_ns);
void exact_record_clear(struct exact_record *r);
