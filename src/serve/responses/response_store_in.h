/* response_store_in.h: internal structures of the response store, shared by response_store.c and
 * live_response.c only. Any thread; response_store.mu guards all of it. */
#pragma once

#include "base/list.h"
#include "serve/responses/live_response.h"

#include <pthread.h>

struct store_owner {
    struct list_link in_store;
    uint64_t id;
    size_t bytes;  /* all live entries of this owner */
    size_t n_live; /* number of these entries */
    /* Entries that can be found and are complete, so that they can be evicted; newest use first. */
    struct list by_use;
};

struct live_state { /* state of an entry that was created with live_response_begin */
    struct event_log event_log;
    enum stored_stage stage;
    /* After the end: the final response, in `reserve` or in `final_block`. */
    struct str final;
    char *final_block, *reserve;
    size_t reserve_bytes;
    uint64_t listeners;
    bool is_cancel_requested, is_log_truncated;
};

/* One memory block holds this struct, the id, the response and the input; for a live response also
 * its struct live_state and the reserved bytes. */
struct store_entry {
    struct stored_response stored_response;
    struct store_owner *owner;
    struct store_entry *previous; /* previous response; a reference */
    struct store_entry *chain;    /* next in the hash bucket, or in the list of entries to free */
    struct list_link in_owner;    /* in owner->by_use */
    uint64_t hash, used_ns;
    size_t bytes;
    int refs;
    bool is_found;                 /* linked in its bucket, which holds one reference */
    struct live_state *live_state; /* NULL: stored complete with response_store_put */
};

struct response_store {
    pthread_mutex_t mu;
    struct response_store_options o;
    uint64_t seed; /* random, so that a client cannot construct ids that collide in one bucket */
    struct store_entry **buckets;
    size_t n_buckets;
    struct list owners;
    struct response_store_stats stats;
};

struct store_entry *response_store_entry(const struct stored_response *k);
/* Allocates an entry with `extra` bytes after its strings; *extra_at points to them, aligned. The
 * entry is not in the store yet. Returns NULL if memory is short. */
struct store_entry *response_store_new_entry(
    const struct stored_response *from, size_t extra, char **extra_at);
/* Inserts the entry with the references that it has. Returns false if the entry exceeds a limit,
 * memory is short, or the id exists; the caller still owns the entry then. */
bool response_store_insert(
    struct response_store *s, uint64_t owner, struct store_entry *take, uint64_t now_ns);

/* The caller holds the mutex. Entries to free are added to the list `gone`; the caller passes it to
 * response_store_free_entries after unlocking. */
bool response_store_reserve(
    struct response_store *s, struct store_entry *k, size_t bytes, struct store_entry **gone);
void response_store_unreserve(struct response_store *s, struct store_entry *k, size_t bytes);
void response_store_set_complete(struct store_entry *k, uint64_t now_ns);
void response_store_free_entries(struct store_entry *gone);
