/* tier.h: pages of the prefix cache that were evicted, on disk.
 *
 * A thread writes and reads; the engine never waits for it. The engine keeps the index: a page is
 * found by the name of its prefix (tree_name), a hash; what is read is compared token by token
 * with what was asked, so that two prefixes of one name are a miss.
 *
 *   evicted page -> tier_write_begin, filled by the engine -> tier_send ... home: tier_written
 *   prompt       -> tier_chain, tier_fetch_begin, blank pages -> tier_send ... home: n_ok of them
 *
 * Pages of a fetch are read several at a time, so that the next ones are on their way while one is
 * looked through. What can not be read or written is a miss, a line in the log when it begins, and
 * counted.
 *
 * Everything is sized when it is opened; when all writes are under way, a page is not kept, and
 * when all fetches are, a prompt is computed. Any damage, of a byte or of all files, is a miss.
 *
 * Owner: the engine thread; what is sent belongs to the tier's thread until it comes home. */
#pragma once

#include "cache/disk.h"
#include "model/lm.h"
#include "os/mailbox.h"

enum { TIER_WRITES = 8, TIER_FETCHES = 4, TIER_AHEAD = 8 }; /* ahead: pages of a fetch */

struct tier_options {
    const char *dir;
    uint64_t max_bytes;
    struct record_kind kind;
    int max_tokens;       /* of a sequence */
    struct lm *lm;        /* for its pages; outlives the tier */
    struct mailbox *home; /* messages come back there, of these kinds */
    int written_kind, fetched_kind;
    enum aio_kind aio;
    bool is_manual; /* no thread: tier_work does what is to be done (tests) */
};

struct tier_write { /* a page on its way out */
    struct msg msg;
    struct tier_write *next_free;
    uint8_t *bytes; /* the record, but for its sums */
    size_t n_bytes;
    uint64_t name;
    uint64_t took_ns;
    struct disk_at at;
    bool is_done;
};

struct tier_fetch { /* pages on their way in */
    struct msg msg;
    struct tier_fetch *next_free;
    struct cache_scope scope;
    int32_t *tokens; /* [max_tokens]: of the whole prefix, to compare with */
    int first_page, n_pages, n_ok;
    page_id *pages;     /* [n_pages] to be filled: blanks of the tree */
    struct disk_at *at; /* [n_pages] */
    uint64_t took_ns;
    void *user, *choice; /* whom it is for; the engine's */
    page_id *held;       /* [first_page] the user's own */
};

struct tier_stats {
    uint64_t n_written, n_lost, n_fetched, n_failed; /* pages; lost: no time to write them */
    uint64_t n_bytes;                                /* on disk */
};

struct tier;

/* Reads what there is, on the calling thread. ERR_IO, ERR_MEMORY. */
int tier_open(struct tier **out, const struct tier_options *o, struct err *e) MUST_CHECK;
/* Everything has come home before (tier_stop). */
void tier_close(struct tier *t); /* NULL is fine */
/* Ends the thread after what was sent; it is all home then. What is sent from now on is done at
 * once, by the caller. */
void tier_stop(struct tier *t);

bool tier_has(const struct tier *t, uint64_t name);
void tier_forget(struct tier *t, uint64_t name); /* until the process ends */
/* How many pages follow one another from here: of the tokens behind a prefix of this name. */
int tier_chain(
    const struct tier *t, uint64_t name, const int32_t *tokens, int n_pages, struct disk_at *at);

struct tier_write *tier_write_begin(struct tier *t);       /* NULL: not now */
struct tier_fetch *tier_fetch_begin(struct tier *t);       /* NULL: not now */
void tier_put_write(struct tier *t, struct tier_write *w); /* kept until tier_send */
void tier_put_fetch(struct tier *t, struct tier_fetch *f);
void tier_send(struct tier *t); /* all that was put; takes a lock: not in a step */
void tier_work(struct tier *t); /* is_manual: the thread's part */
void tier_written(struct tier *t, struct msg *m); /* came home */
void tier_fetch_end(struct tier *t, struct tier_fetch *f);

/* Reading seems to take too long: it will be tried again when this was said often enough. */
void tier_doubt(struct tier *t);
double tier_page_ns(const struct tier *t); /* what reading a page has taken lately; 0: unknown */
const struct tier_stats *tier_numbers(struct tier *t);
const char *tier_aio(const struct tier *t); /* how files are read: for the log */
