/* shelf_in.h: the inside of a shelf, for shelf.c and growing.c only. shelf.mu guards all of it. */
#pragma once

#include "serve/responses/growing.h"

#include <pthread.h>

struct owner {
    struct owner *next;
    uint64_t id;
    size_t bytes;                  /* of all its entries that live */
    size_t n_live;                 /* how many those are */
    struct entry *newest, *oldest; /* those that are found and may go, by use */
};

struct growth { /* of an entry that is, or was, made under our eyes */
    struct tape tape;
    enum kept_stage stage;
    struct str
        final; /* ended: the answer; in the spare room of the block, or in a block of its own */
    char *final_block, *spare;
    size_t n_spare;
    uint64_t listeners;
    bool is_unwanted, is_cut;
};

/* One block: this, the id, the answer, the input; of one that grows, its growth and spare room. */
struct entry {
    struct kept kept;
    struct owner *owner;
    struct entry *before; /* a reference */
    struct entry *chain;  /* of the bucket; of a list that is let go of */
    struct entry *newer, *older;
    uint64_t hash, used_ns;
    size_t bytes;
    int refs;
    bool is_found;         /* in its bucket: that is one reference */
    bool is_listed;        /* in its owner's list: found, and complete */
    struct growth *growth; /* NULL: it was put here as it is */
};

struct shelf {
    pthread_mutex_t mu;
    struct shelf_options o;
    uint64_t seed; /* so that nobody can choose ids that meet in one bucket */
    struct entry **buckets;
    size_t n_buckets;
    struct owner *owners;
    struct shelf_stats stats;
};

struct entry *shelf_entry(const struct kept *k);
/* A block for an entry with `extra` bytes behind its texts, which *extra_at points to, aligned; not
 * on the shelf yet. NULL: no memory. */
struct entry *shelf_new_entry(const struct kept *from, size_t extra, char **extra_at);
/* The entry comes in, with as many references as it has. False: no room, no memory, or the id is
 * there; it is still the caller's. */
bool shelf_bring_in(struct shelf *s, uint64_t owner, struct entry *take, uint64_t now_ns);

/* Under the mutex; what is to be freed when it is free again is put on `gone`. */
bool shelf_claim(struct shelf *s, struct entry *k, size_t bytes, struct entry **gone);
void shelf_unclaim(struct shelf *s, struct entry *k, size_t bytes);
void shelf_list(struct entry *k, uint64_t now_ns);
void shelf_free_all(struct entry *gone);
