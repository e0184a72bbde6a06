/* response_store_in.h: internal structures of the response store, shared by response_store.c and
 * live_response.c only. Any thread; response_store.mu guards all of it. */
#pragma once

#include "serve/responses/growing.h"

#include <pthread.h>

struct owner {
    struct owner *next;
    uint64_t id;
    size_t bytes;                  /* all live entries of this owner */
    size_t n_live;                 /* number of these entries */
    struct entry *newest, *oldest; /* LRU list of the entries that can be found and evicted */
};

struct growth { /* state of an entry that was created with live_response_begin */
    struct tape tape;
    enum kept_stage stage;
    /* After the end: the final response, in `reserve` or in `final_block`. */
    struct str final;
    char *final_block, *spare;
    size_t n_spare;
    uint64_t listeners;
    bool is_unwanted, is_cut;
};

/* One memory block holds this struct, the id, the response and the input; for a live response also
 * its struct live_state and the reserved bytes. */
struct entry {
    struct kept kept;
    struct owner *owner;
    struct entry *before; /* previous response; a reference */
    struct entry *chain;  /* next in the hash bucket, or in the list of entries to free */
    struct entry *newer, *older;
    uint64_t hash, used_ns;
    size_t bytes;
    int refs;
    bool is_found;         /* linked in its bucket, which holds one reference */
    bool is_listed;        /* in its owner's LRU list: can be found and is complete */
    struct growth *growth; /* NULL: stored complete with response_store_put */
};

struct shelf {
    pthread_mutex_t mu;
    struct shelf_options o;
    uint64_t seed; /* random, so that a client cannot construct ids that collide in one bucket */
    struct entry **buckets;
    size_t n_buckets;
    struct owner *owners;
    struct shelf_stats stats;
};

struct entry *shelf_entry(const struct kept *k);
/* Allocates an entry with `extra` bytes after its strings; *extra_at points to them, aligned. The
 * entry is not in the store yet. Returns NULL if memory is short. */
struct entry *shelf_new_entry(const struct kept *from, size_t extra, char **extra_at);
/* Inserts the entry with the references that it has. Returns false if the entry exceeds a limit,
 * memory is short, or the id exists; the caller still owns the entry then. */
bool shelf_bring_in(struct shelf *s, uint64_t owner, struct entry *take, uint64_t now_ns);

/* The caller holds the mutex. Entries to free are added to the list `gone`; the caller passes it to
 * response_store_free_entries after unlocking. */
bool shelf_claim(struct shelf *s, struct entry *k, size_t bytes, struct entry **gone);
void shelf_unclaim(struct shelf *s, struct entry *k, size_t bytes);
void shelf_list(struct entry *k, uint64_t now_ns);
void shelf_free_all(struct entry *gone);
