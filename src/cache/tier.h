/* tier.h: KV offload tier: evicted pages and checkpoints of the prefix cache on disk.
 *
 * A thread writes and reads; the engine thread never waits for it and keeps the index. A record is
 * a full page, with its window page if it has one, or a checkpoint of a model with state slots: the
 * slot, and the page and window page of the token before its position, which need not be full. All
 * are found by the hash of their prefix (tree_tokens_hash). The tokens of a read record are
 * compared with the requested ones, so a hash collision is a miss.
 *
 *   evicted page -> tier_write_begin, filled by the engine -> tier_send ... message: tier_write_end
 *   prompt       -> tier_chain, tier_read_begin, taken pages -> tier_send ... message: n_ok pages
 *
 * A read job with a checkpoint reads it first, since pages without it are of no use. Several pages
 * of a job are in progress at a time. A failed read or write is a miss; it is counted, and the
 * first of consecutive failures is logged.
 *
 * All memory is allocated by tier_open, in particular the state slots of three records: two being
 * written, one being read. If all write jobs are in use, a page or checkpoint is dropped; if all
 * read jobs are in use, a prompt is computed. Any damage, from one byte to all files, is a miss.
 *
 * Owner: the engine thread. The tier thread owns sent jobs until their message arrives. */
#pragma once

#include "cache/disk.h"
#include "model/lm.h"
#include "os/mailbox.h"

/* TIER_AHEAD: pages of a read job in progress. */
enum { TIER_WRITES = 8, TIER_CHECKPOINT_WRITES = 2, TIER_READS = 4, TIER_AHEAD = 8 };

/* TIER_WINDOW: pages with their window page, which are also of the kind TIER_PAGE. */
enum tier_kind { TIER_PAGE, TIER_CHECKPOINT, TIER_WINDOW, TIER_KINDS };

struct tier_options {
    const char *dir;
    uint64_t max_bytes;
    struct record_kind kind;
    int max_tokens;        /* maximum tokens of a sequence */
    struct lm *lm;         /* reads and writes pages and slots; must outlive the tier */
    struct mailbox *reply; /* receives completed jobs, as messages of the following kinds */
    int written_kind, read_kind;
    enum aio_kind aio;
    bool is_manual; /* no thread: tests call tier_work */
};

struct tier_write { /* a page or checkpoint to be written */
    struct msg msg;
    struct tier_write *next_free;
    enum tier_kind kind; /* TIER_PAGE or TIER_CHECKPOINT */
    bool has_window;     /* the record of a page has its window page */
    uint8_t *bytes;      /* the record without checksums */
    size_t n_bytes;
    uint64_t hash;
    uint64_t took_ns;
    struct disk_pos at;
    bool is_done;
};

struct tier_checkpoint { /* checkpoint of a read job */
    int n;               /* position; 0 = the job has none */
    struct disk_pos at;
    state_id state; /* slot to be filled, from tree_take_state */
    int n_min;      /* result: first position at which the slot can resume */
    bool is_ok;     /* result: the slot and the page were read */
};

struct tier_read { /* pages to be read */
    struct msg msg;
    struct tier_read *next_free;
    struct cache_scope scope;
    int32_t *tokens; /* [max_tokens] the whole prefix, for the comparison */
    int first_page, n_pages, n_ok;
    struct tier_checkpoint checkpoint; /* after these pages */
    /* [n_pages] pages to be filled, from tree_take_page; after them the page of the checkpoint.
     * PAGE_NONE: only its window page is read. */
    page_id *pages;
    /* The same for window pages, from tree_take_window; PAGE_NONE: it is not read. NULL: the model
     * has no windowed layers. */
    page_id *windows;
    struct disk_pos *at; /* [n_pages] n_bytes 0: nothing of this page is read */
    uint64_t took_ns;
    void *user, *choice; /* the waiting request or choice; used by the engine */
    page_id *held;       /* [n_held] pages of the prefix that the engine holds */
    int n_held;
    /* Window pages of the whole prefix, like `windows` indexed from position 0: the engine holds
     * those from first_window on; and their records. */
    page_id *path_windows;
    struct disk_pos *window_at;
    int first_window;
};

struct tier_stats {
    uint64_t n_written, n_lost, n_read, n_failed;       /* records; n_lost: not written */
    uint64_t n_checkpoints_written, n_checkpoints_read; /* records with a state */
    uint64_t n_bytes;                                   /* on disk */
};

struct tier;

/* Scans the existing files on the calling thread. ERR_IO, ERR_MEMORY. */
int tier_open(struct tier **out, const struct tier_options *o, struct err *e) MUST_CHECK;
/* Requires tier_stop, so that no job is in progress. */
void tier_close(struct tier *t); /* accepts NULL */
/* Ends the thread after all sent jobs are completed. Later jobs are executed immediately by the
 * caller. */
void tier_stop(struct tier *t);

bool tier_has(const struct tier *t, enum tier_kind kind, uint64_t hash);
/* Until the process ends. tier_remove_after: everything that ends at from + 1 .. n. */
void tier_remove(struct tier *t, enum tier_kind kind, uint64_t hash);
void tier_remove_after(
    struct tier *t, const struct cache_scope *scope, const int32_t *tokens, int from, int n);
/* Number of consecutive pages on disk: of the tokens after a prefix with this hash. Sets their
 * positions. */
int tier_chain(
    const struct tier *t, uint64_t hash, const int32_t *tokens, int n_pages, struct disk_pos *at);
/* Sets the position of a record; n_bytes 0 = it is not on disk. */
void tier_find(const struct tier *t, enum tier_kind kind, uint64_t hash, struct disk_pos *at);
/* Deepest checkpoint on disk at a position from + 1 .. n; 0 = none. Sets its position on disk. */
int tier_find_checkpoint(const struct tier *t, const struct cache_scope *scope,
    const int32_t *tokens, int from, int n, struct disk_pos *at);

/* NULL = all of this kind are in use. */
struct tier_write *tier_write_begin(struct tier *t, enum tier_kind kind); /* not TIER_WINDOW */
struct tier_read *tier_read_begin(struct tier *t); /* NULL = all in use; without a checkpoint */
void tier_put_write(struct tier *t, struct tier_write *w); /* collected until tier_send */
void tier_put_read(struct tier *t, struct tier_read *f);
/* Posts the collected jobs; may write an eventfd, so not within a step. */
void tier_send(struct tier *t);
void tier_work(struct tier *t);                     /* is_manual: executes the posted jobs */
void tier_write_end(struct tier *t, struct msg *m); /* handles a completed write */
void tier_read_end(struct tier *t, struct tier_read *f);

/* Lowers the estimated read time a little, since reading was rejected as too slow: after many calls
 * it is tried again. */
void tier_lower_estimate(struct tier *t);
/* Predicted time to read records of n_bytes in all, from a moving average; 0 = unknown. */
double tier_read_ns(const struct tier *t, uint64_t n_bytes);
const struct tier_stats *tier_stats_get(struct tier *t);
const char *tier_aio(const struct tier *t); /* name of the asynchronous I/O method, for the log */
