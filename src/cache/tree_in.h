/* tree_in.h: private state of the prefix cache, shared by its files.
 *
 *   tree.c         radix tree: roots, tenants, match, insertion, eviction
 *   checkpoints.c  positions where a sequence can resume: match; recurrent states at them
 *   windows.c      pages of windowed layers: insertion, eviction
 *   pins.c         pins of prefixes
 *
 * Owner: the engine thread. */
#pragma once

#include "base/list.h"
#include "cache/tree.h"

#define NONE UINT32_MAX

/* Indices below n_pages are pages, higher ones roots. Full pages are also in a hash table keyed by
 * (parent, tokens). */
struct node {
    uint32_t parent;
    struct index_list children;    /* newest first */
    struct index_list checkpoints; /* checkpoints in the children */
    struct index_link sibling;     /* in `children` of the parent */
    uint32_t chain;                /* next in the hash bucket; full pages */
    uint32_t root, depth;
    uint32_t n_pins;                    /* holders of the page: pins and other threads */
    uint32_t n_end_pins, n_window_pins; /* pins.c: pins that end here; of the window page */
    struct index_link idle;    /* in the list of idle leaves of the tenant, while evict_has() */
    int n_tokens;              /* 0 = not in the tree */
    uint64_t hash;             /* hash of the prefix up to the end of the page */
    uint64_t born_ns, used_ns; /* time of insertion; end of the last use */
    page_id window;            /* page of the windowed layers; PAGE_NONE = none */
    bool keeps_window;         /* the window page belongs to a checkpoint */
};

struct root {
    struct cache_scope scope;
    uint32_t chain; /* next in the hash bucket or free list */
    uint32_t tenant;
    uint32_t n_users, n_pages;
};

struct cache_tenant {
    uint64_t id;
    uint32_t chain; /* next in the hash bucket or free list */
    uint32_t n_roots, n_pages;
    struct index_list idle;       /* idle leaves in order of last use */
    struct index_link over_quota; /* in the list of tenants with n_pages > quota */
};

/* A state slot that the tree holds. Checkpoint i is slot i. */
struct checkpoint {
    uint32_t node; /* page that contains the token before position n; NONE: the slot is none */
    /* References of tree_acquire_resumable, tree_take_state and pins; of these only pins. */
    uint32_t n_readers, n_pins;
    int n_min, n;           /* a sequence can resume at these positions and those between them */
    struct index_link link; /* in `checkpoints` of the parent of the node */
};

struct tree {
    struct page_pool *pool;
    struct tree_options o;
    struct evict evict;
    uint64_t seed, now;
    uint32_t n_pages, n_roots, n_cached, n_pinned, n_tenants;
    uint32_t n_pinned_windows, n_pinned_states; /* pins.c */
    struct node *nodes;                         /* [n_pages + n_roots] */
    int32_t (*tokens)[PAGE_TOKENS];             /* [n_pages] */
    uint32_t *buckets;            /* three hash tables of n_buckets each: pages, roots, tenants */
    uint32_t n_buckets;           /* a power of two */
    struct root *roots;           /* [n_roots] each root in use has a page or a user */
    struct cache_tenant *tenants; /* [n_roots] */
    uint32_t free_root, free_tenant;
    struct index_list over_quota;          /* tenants with n_pages > quota */
    uint32_t n_seen_roots, n_seen_tenants; /* the memory of later entries was never touched */
    struct tree_stats stats;
    void (*gone)(void *arg, page_id page);
    void *gone_arg;
    void (*gone_checkpoint)(void *arg, page_id page, int n, state_id state);
    void *gone_checkpoint_arg;
    void (*gone_window)(void *arg, page_id page);
    void *gone_window_arg;
    struct checkpoint *checkpoints; /* [state slots] */
    struct evict evict_checkpoints; /* checkpoints whose slot has no other holder */
    uint32_t *window_nodes;         /* [window pages] node that holds it; NONE = none */
    uint32_t *window_readers;       /* [window pages] references of other threads */
    struct evict evict_windows;     /* window pages without other holders */
};

static inline bool tree_is_page(const struct tree *t, uint32_t i)
{
    return i < t->n_pages;
}

/* ---- tree.c */

/* Full page after `at` with these tokens; NONE = not cached. */
uint32_t tree_find_full(struct tree *t, uint32_t at, const int32_t *tokens);
/* Child with the longest common prefix, and its length; NONE if no first token matches. */
uint32_t tree_find_partial(struct tree *t, uint32_t at, const int32_t *tokens, int n, int *n_best);
/* Takes a reference to a page that was matched. */
void tree_ref_page(struct tree *t, uint32_t i);
void tree_pin_page(struct tree *t, uint32_t i); /* the caller has a reference */
void tree_unpin_page(struct tree *t, uint32_t i);
void tree_check_place(const struct tree *t, tree_node at); /* `at` is a root or a full page */

/* ---- windows.c */

void windows_add_reader(struct tree *t, page_id window); /* the caller has a reference */
int windows_init(struct tree *t, struct err *e) MUST_CHECK;
void windows_clear(struct tree *t);
void windows_drop(struct tree *t, uint32_t node); /* releases the window page of a node, if any */
const char *windows_check(const struct tree *t);  /* description of a violation, or NULL */

/* Positions of a path with window pages: all in [from, end), where the path ends at `end`. */
struct window_run {
    int from, end;
};
/* A sequence can resume at position n, which is after `run`, or in page `tail` after it (NONE: n is
 * not in another page). */
bool windows_reach(const struct tree *t, struct window_run run, uint32_t tail, int n);
void windows_extend(const struct tree *t, struct window_run *run, uint32_t node); /* next node */
/* Takes a reference to the window page of a node, if a sequence that resumes at n reads it. */
void windows_ref(struct tree *t, uint32_t node, int n, page_id *window);

/* ---- pins.c */

void pins_clear(struct tree *t);              /* releases all pins, and pages of other threads */
const char *pins_check(const struct tree *t); /* description of a violation, or NULL */

/* ---- checkpoints.c */

int checkpoints_init(struct tree *t, struct err *e) MUST_CHECK;
void checkpoints_clear(struct tree *t);
void checkpoints_drop(struct tree *t, uint32_t node);  /* before the node leaves the tree */
void checkpoints_evict(struct tree *t, uint32_t node); /* the same, if the node is evicted */
/* A longer page with the same first tokens replaces `from`. */
void checkpoints_move(struct tree *t, uint32_t from, uint32_t to);
const char *checkpoints_check(const struct tree *t); /* description of a violation, or NULL */
