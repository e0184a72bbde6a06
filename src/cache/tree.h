/* tree.h: the prefix cache: which tokens lie in which pages, whoever computed them.
 *
 * A radix tree cut at pages: a node is a page, its edge the tokens in it, and what leads there
 * from a root is the prefix that its keys and values were computed behind. So node i is page i,
 * all memory is taken when it is opened, and a match compares every token.
 *
 *     root (scope) --- 32 tokens --- 32 tokens --- 32 tokens
 *                          |             \-------- 11 tokens     a page that is not full is
 *                          \---- 32 tokens                       a leaf
 *
 * The tree holds one reference to each of its pages (and one more for each pin). A page that
 * nobody else holds is idle: it counts as room, tree_evict gives it back, leaves first. Whoever
 * holds a page of the tree holds all pages before it, too, so that every idle page can be had.
 *
 * Scopes never mix: a root is compared in full, and every page below it was computed, and is
 * found, in its scope only.
 *
 * Owner: the engine thread. Nothing here allocates after tree_new, reads a clock or fails.
 * Cost: a hash and a comparison per page of a match. */
#pragma once

#include "base/histogram.h"
#include "cache/evict.h"
#include "cache/pages.h"

struct cache_scope {  /* who may find what was computed here; all zero: anonymous, no salt */
    uint64_t tenant;  /* whose pages count together, and are cleared before others get them */
    uint8_t salt[32]; /* a digest of whatever else must be equal */
};

struct tree_options {
    enum evict_policy policy;
    uint32_t n_users;       /* roots that may be entered at once */
    uint32_t depth_weight;  /* in evict.h's units: what each page before it adds to a page's cost */
    uint32_t quota;         /* pages; a tenant above it gives its own before others give theirs */
    uint32_t n_pinned;      /* pages, at most */
    struct tree_ages *ages; /* borrowed; NULL: nobody wants to know */
};

struct tree_ages {           /* of pages, in seconds; anyone may read them */
    struct histogram lived;  /* evicted ones: since they were put there */
    struct histogram idled;  /* likewise: since they were used last */
    struct histogram reused; /* used again: since then */
};

struct tree_stats {
    uint64_t n_matches, n_hits, n_partial; /* partial: some, but not all that could be */
    uint64_t n_matched_tokens, n_asked_tokens;
    uint64_t n_kept, n_evicted, n_evicted_for_quota; /* pages */
};

struct tree;
typedef struct {
    uint32_t i; /* a page, or a root behind them */
} tree_node;

#define TREE_NONE ((tree_node){ UINT32_MAX })

/* Borrows the pool and watches it. ERR_MEMORY. */
int tree_new(struct tree **out, struct page_pool *pool, const struct tree_options *o,
    struct err *e) MUST_CHECK;
void tree_free(struct tree *t); /* NULL is fine; gives all pages back; all roots must be left */
void tree_set_time(struct tree *t, uint64_t now_ns); /* for the ages */

/* The root of a scope; it stays while it has users or pages. */
tree_node tree_enter(struct tree *t, const struct cache_scope *scope);
void tree_leave(struct tree *t, tree_node root);

/* The longest prefix of tokens[0 .. n-1] behind *at (a root, or a full page that the caller
 * holds): how many, with a reference for the caller to each page that holds them; the last page
 * may go on with other tokens. *at becomes the last of those that match as a whole. */
int tree_match(struct tree *t, tree_node *at, const int32_t *tokens, int n, page_id *pages);
/* For the statistics: what a request found, out of what it could have; and what more on its way. */
void tree_count(struct tree *t, int n_found, int n_asked);
void tree_count_more(struct tree *t, int n_found);

/* Puts a page with n tokens (1 .. PAGE_TOKENS) behind `at`, a root or a full page, which the
 * caller holds, as it holds *page. When these tokens are there already, *page is exchanged for
 * the page that has them all, and the caller's reference with it. Returns the node of a full
 * page, TREE_NONE of others. */
tree_node tree_add(struct tree *t, tree_node at, const int32_t *tokens, int n, page_id *page);
tree_node tree_parent(const struct tree *t, tree_node at);
page_id tree_page(tree_node at); /* of a node that is not a root */

bool tree_evict(struct tree *t); /* gives back an idle page; false: there is none */
/* Lets go of a page whose only other holder wants to write to it: false when it has children, pins
 * or more holders, who may go on from it, or is not of the tree. */
bool tree_forget(struct tree *t, page_id page);
/* Full pages of this prefix stay, until unpinned, for which the same tokens are given. Returns
 * the tokens that are pinned: 0 when nothing is there, or too much is pinned already. */
int tree_pin(struct tree *t, tree_node root, const int32_t *tokens, int n);
int tree_unpin(struct tree *t, tree_node root, const int32_t *tokens, int n);
/* As tree_match from a root, and nobody can take the pages away, or replace the last one, until
 * they are let go. */
int tree_hold(struct tree *t, tree_node root, const int32_t *tokens, int n, page_id *pages);
void tree_let_go(struct tree *t, const page_id *pages, int n);
/* A page for the caller to fill, evicted if need be; PAGE_NONE when there is none. Then it goes
 * into the tree as by tree_add, or (TREE_NONE) back to the pool. */
page_id tree_take_blank(struct tree *t) MUST_CHECK;
tree_node tree_put_blank(struct tree *t, tree_node at, const int32_t *tokens, int n, page_id page);
void tree_flush(struct tree *t); /* all idle pages */
/* Pages of this prefix, from its end back, that nobody uses and nothing goes on from: given up,
 * unseen by tree_on_evict. *n_dropped tokens; returns how many of the prefix are still there. */
int tree_drop(struct tree *t, tree_node root, const int32_t *tokens, int n, int *n_dropped);

/* The name of a prefix: a hash, the same in every process. Of a scope, of what follows a name, and
 * of a page that is in the tree. */
uint64_t tree_scope_name(const struct cache_scope *scope);
uint64_t tree_name_after(uint64_t name, const int32_t *tokens, int n);
uint64_t tree_name(const struct tree *t, tree_node at);
int tree_depth(const struct tree *t, page_id page); /* tokens before a page of the tree */
/* All tokens up to the end of a page of the tree; returns how many. tokens: room for them. */
int tree_path(const struct tree *t, page_id page, int32_t *tokens);
/* Full pages that match, without taking any; *at as in tree_match. For a look only. */
int tree_peek(struct tree *t, tree_node *at, const int32_t *tokens, int n);
/* `gone` sees each full page before it is evicted; it may read the tree. */
void tree_on_evict(struct tree *t, void (*gone)(void *arg, page_id page), void *arg);
const struct cache_scope *tree_scope(const struct tree *t, page_id page);

uint32_t tree_n_pages(const struct tree *t);
uint32_t tree_refs(const struct tree *t, page_id page); /* how many of its references are ours */
const struct tree_stats *tree_stats(const struct tree *t);
uint64_t tree_tenant(const struct tree *t, tree_node root);
const char *tree_check(const struct tree *t); /* walks everything: what is wrong, or NULL */
