/* tree.h: prefix cache: a radix tree of KV pages, keyed by token prefixes.
 *
 * The edges are cut at page boundaries: a node is a page, its edge the tokens in the page, and its
 * path from a root is the prefix for which its KV was computed. Node i is page i, so all memory is
 * allocated by tree_new. A match compares every token.
 *
 *     root (scope) --- 32 tokens --- 32 tokens --- 32 tokens
 *                          |             \-------- 11 tokens     a page that is not full is
 *                          \---- 32 tokens                       a leaf
 *
 * The tree holds one reference to each of its pages, and one more for each pin. A page without
 * other references is idle: it counts as available, and tree_evict frees it, leaves first. A holder
 * of a page also holds all pages before it, so every idle page can be evicted.
 *
 * Scopes are isolated: a root is compared in full, and a page is computed and found in one scope
 * only.
 *
 * Owner: the engine thread. Nothing allocates after tree_new, reads a clock or fails. A match costs
 * a hash and a comparison per page. */
#pragma once

#include "base/histogram.h"
#include "cache/evict.h"
#include "cache/pages.h"

struct cache_scope {  /* isolation scope of cached pages; all zero: anonymous, no salt */
    uint64_t tenant;  /* for quotas, and for clearing pages that change tenants */
    uint8_t salt[32]; /* digest of everything else that must be equal */
};

struct tree_options {
    enum evict_policy policy;
    uint32_t n_users; /* maximum number of entered roots */
    /* Eviction weight that a page gains per page before it; unit of EVICT_WEIGHT. */
    uint32_t depth_weight;
    uint32_t quota; /* pages; pages of a tenant above its quota are evicted first */
    /* Maximum numbers of pinned pages, state slots and window pages. */
    uint32_t n_pinned, n_pinned_states, n_pinned_windows;
    struct tree_ages *ages; /* borrowed; NULL = not recorded */
    /* State slots, borrowed: only a position with a checkpoint can be matched. NULL = the model has
     * no recurrent state: every position can be matched. */
    struct page_pool *states;
    /* Window pages, borrowed: only a position before which they exist can be matched. NULL = the
     * model has no windowed layers. */
    struct page_pool *windows;
    struct kv_window window; /* if there are windowed layers */
};

struct tree_ages {           /* ages of pages in seconds; any thread may read them */
    struct histogram lived;  /* evicted pages: time since insertion */
    struct histogram idled;  /* evicted pages: time since the last use */
    struct histogram reused; /* reused pages: time since the last use */
};

struct tree_stats {
    uint64_t n_matches, n_hits, n_partial; /* n_partial: matches of a part of the possible tokens */
    uint64_t n_matched_tokens, n_asked_tokens;
    uint64_t n_inserted, n_evicted, n_evicted_for_quota; /* pages */
    uint64_t n_checkpoints_made, n_checkpoints_evicted;
    uint64_t n_windows_evicted; /* window pages */
};

struct tree;
typedef struct {
    uint32_t i; /* a page number; roots follow after the pages */
} tree_node;

#define TREE_NONE ((tree_node){ UINT32_MAX })

/* Borrows the pool and registers its watch callback. ERR_MEMORY. */
int tree_new(struct tree **out, struct page_pool *pool, const struct tree_options *o,
    struct err *e) MUST_CHECK;
/* Accepts NULL; frees all pages; requires that no root is entered. */
void tree_free(struct tree *t);
void tree_set_time(struct tree *t, uint64_t now_ns); /* for tree_ages */

/* Root of a scope; exists while it has users or pages. */
tree_node tree_enter(struct tree *t, const struct cache_scope *scope);
void tree_leave(struct tree *t, tree_node root);

/* Longest match of tokens[0 .. n-1] after *at, which is a root or a full page that the caller
 * holds. Returns the matched length; the caller gets a reference to each page. The last page may
 * continue with other tokens. *at becomes the last fully matched node. */
int tree_match(struct tree *t, tree_node *at, const int32_t *tokens, int n, page_id *pages);
/* Statistics: tokens found and possible at the admission of a request; tokens found later. */
void tree_count(struct tree *t, int n_found, int n_asked);
void tree_count_more(struct tree *t, int n_found);

/* Inserts a page with n tokens (1 .. PAGE_TOKENS) after `at`, a root or a full page; the caller
 * holds both. If the tree has these tokens already, *page and the reference of the caller are
 * replaced by that page. Returns the node of a full page, TREE_NONE otherwise. */
tree_node tree_insert(struct tree *t, tree_node at, const int32_t *tokens, int n, page_id *page);
tree_node tree_parent(const struct tree *t, tree_node at);

/* Checkpoint: a state slot (model/lm.h) at a position of a cached prefix, where a sequence can
 * resume. The tree holds one reference to the slot; a slot without other references is idle, and
 * tree_evict_checkpoint frees it.
 *
 * tree_resume is tree_match for a model with state slots or windowed layers: the longest match at a
 * position with a checkpoint and with the window pages before it. The caller gets references to the
 * pages after *at, to those window pages, and to the slot. *at is a root or, without state slots, a
 * full page; the caller then holds the window pages from windows_from to the end of that page.
 * Tokens, positions and tables begin at position 0. */
struct resume_pages {
    page_id *pages;   /* out */
    page_id *windows; /* out; PAGE_NONE before the window; NULL = no windowed layers */
    int windows_from; /* ignored for a root */
};
struct resume_point {
    state_id state; /* can resume at n_min .. n; STATE_NONE = none */
    int n_min, n;   /* n: matched length, at least that of *at */
    int n_cached;   /* length that tree_match would return */
};
struct resume_point tree_resume(
    struct tree *t, tree_node *at, const int32_t *tokens, int n, const struct resume_pages *out);
/* Length of that match, without taking references. */
int tree_peek_resumable(struct tree *t, tree_node root, const int32_t *tokens, int n);
/* Makes `state`, which can resume at n_min .. n, a checkpoint. `page` is in the tree and contains
 * the token before position n. Does nothing if n has a checkpoint, or if `state` is one already. */
void tree_add_checkpoint(struct tree *t, page_id page, int n_min, int n, state_id state);
bool tree_has_states(const struct tree *t);
bool tree_has_windows(const struct tree *t); /* cache/windows.h */
/* The page is in the tree and contains the token before position n. */
bool tree_has_tokens(const struct tree *t, page_id page, int n);
bool tree_evict_checkpoint(struct tree *t); /* frees one idle slot; false = there is none */

page_id tree_page(tree_node at); /* for a node that is not a root */

bool tree_evict(struct tree *t); /* frees one idle page; false = there is none */
/* Removes a page whose only other holder will write to it. Returns false if the page has children,
 * pins or more holders, which may continue from it, or is not in the tree. */
bool tree_remove_page(struct tree *t, page_id page);
/* Pins the full pages of a prefix until tree_unpin with the same tokens; with state slots or
 * windowed layers up to the deepest position where a sequence can resume, together with the slot
 * and the window pages. Returns the pinned tokens: 0 if none are cached or a limit is reached. */
int tree_pin(struct tree *t, tree_node root, const int32_t *tokens, int n);
int tree_unpin(struct tree *t, tree_node root, const int32_t *tokens, int n);
uint32_t tree_n_pinned_windows(const struct tree *t);
uint32_t tree_n_pinned_states(const struct tree *t);
/* Like tree_match from a root; the pages can neither be evicted nor replaced until tree_release.
 * tree_acquire_resumable is the same for tree_resume. With windowed layers tree_acquire takes the
 * pages without their window pages. */
int tree_acquire(struct tree *t, tree_node root, const int32_t *tokens, int n, page_id *pages);
void tree_release(struct tree *t, const page_id *pages, int n);
struct resume_point tree_acquire_resumable(
    struct tree *t, tree_node root, const int32_t *tokens, int n, const struct resume_pages *out);
/* Takes a slot to be filled by the caller, by eviction if necessary; STATE_NONE = none. */
state_id tree_take_state(struct tree *t) MUST_CHECK;
/* For a slot of the two functions above. tree_insert_state makes a slot that can resume at
 * n_min .. n a checkpoint at position n, if these tokens are cached, or else returns it. */
void tree_release_state(struct tree *t, state_id state);
void tree_insert_state(
    struct tree *t, tree_node root, const int32_t *tokens, int n_min, int n, state_id state);
/* References to the slot that the tree holds. */
uint32_t tree_state_refs(const struct tree *t, state_id state);
/* Takes a page to be filled by the caller, by eviction if necessary; PAGE_NONE = none.
 * tree_insert_page inserts it like tree_insert or, with TREE_NONE, returns it to the pool. */
page_id tree_take_page(struct tree *t) MUST_CHECK;
tree_node tree_insert_page(
    struct tree *t, tree_node at, const int32_t *tokens, int n, page_id page);
void tree_flush(struct tree *t); /* evicts all idle pages */
/* Removes pages of this prefix from its end backwards while they are unused and have no successors,
 * without calling the eviction callback. Sets *n_dropped in tokens; returns the tokens that remain
 * cached. */
int tree_erase(struct tree *t, tree_node root, const int32_t *tokens, int n, int *n_dropped);

/* Hash of a prefix, equal in every process: of a scope, of a hash extended by tokens, and of a
 * node. */
uint64_t tree_scope_hash(const struct cache_scope *scope);
uint64_t tree_extend_hash(uint64_t hash, const int32_t *tokens, int n);
uint64_t tree_prefix_hash(const struct tree *t, tree_node at);
uint64_t tree_tokens_hash(const struct cache_scope *scope, const int32_t *tokens, int n);
/* Calls fn with the hash of each prefix of 1 .. n tokens, in this order. */
void tree_each_hash(const struct cache_scope *scope, const int32_t *tokens, int n,
    void (*fn)(void *arg, int n_tokens, uint64_t hash), void *arg);
int tree_depth(const struct tree *t, page_id page); /* tokens before a page in the tree */
/* Copies all tokens up to the end of a page in the tree; returns their number. */
int tree_path(const struct tree *t, page_id page, int32_t *tokens);
/* Length of the match in full pages, without taking references; *at as in tree_match. */
int tree_peek(struct tree *t, tree_node *at, const int32_t *tokens, int n);
/* `gone` is called for each full page before its eviction; it may read the tree. */
void tree_on_evict(struct tree *t, void (*gone)(void *arg, page_id page), void *arg);
/* `gone` is called for each checkpoint before its eviction, also by that of its page, which
 * contains the token before position n. */
void tree_on_evict_checkpoint(
    struct tree *t, void (*gone)(void *arg, page_id page, int n, state_id state), void *arg);
const struct cache_scope *tree_scope(const struct tree *t, page_id page);

uint32_t tree_n_pages(const struct tree *t);
/* References to the page that the tree holds. */
uint32_t tree_refs(const struct tree *t, page_id page);
const struct tree_stats *tree_stats(const struct tree *t);
uint64_t tree_tenant(const struct tree *t, tree_node root);
/* Checks all invariants; description of a violation, or NULL. */
const char *tree_check(const struct tree *t);
