/* windows.h: pages of windowed layers in the prefix cache.
 *
 * A node of the tree may hold the window page of its tokens, with one reference. A match
 * (tree_resume) ends where the window pages of the positions before it exist. A window page without
 * other references is idle. One that belongs to a checkpoint stays until tree_evict_window frees
 * it; others are freed with their last reference, so that a long prompt leaves the window pages of
 * its checkpoints only.
 *
 * Owner: the engine thread. Nothing allocates after tree_new. */
#pragma once

#include "cache/tree.h"

/* For `page`, which is in the tree and has the n tokens of *window: gives its node the window page
 * or, if it has one, replaces *window and the reference of the caller by that. */
void tree_insert_window(struct tree *t, page_id page, int n, page_id *window);
/* Makes position n, in `page`, a checkpoint: keeps the window pages from tree_window_base(n) on. */
void tree_keep_windows(struct tree *t, page_id page, int n);
/* Position from which a sequence at n keeps its window pages: another one may resume at the page
 * boundary before n, or at the positions in the log of a state slot. */
int tree_window_base(int n);
/* First position that a row at `pos` reads in windowed layers. */
int tree_window_from(const struct tree *t, int pos);

void tree_unref_window(struct tree *t, page_id window); /* releases a reference of the caller */
bool tree_evict_window(struct tree *t); /* frees one idle window page; false = there is none */
/* `gone` is called before a window page is evicted alone, if `page`, whose node holds it, is full.
 * Before that of the page itself, the callback of tree_on_evict is called. */
void tree_on_evict_window(struct tree *t, void (*gone)(void *arg, page_id page), void *arg);
page_id tree_window_of(
    const struct tree *t, page_id page); /* window page of a page in the tree; PAGE_NONE */
/* Removes a window page whose only other holder will write to it; false if there are others. */
bool tree_remove_window(struct tree *t, page_id window);

/* Window pages that other threads read or fill. tree_take_window takes one to be filled by the
 * caller, by eviction if necessary; PAGE_NONE = none. */
page_id tree_take_window(struct tree *t) MUST_CHECK;
/* tree_peek, which also sets the window page of each full page; PAGE_NONE = it has none.
 * tree_acquire_windows takes those that are not PAGE_NONE until tree_release_windows. */
int tree_peek_windows(
    struct tree *t, tree_node *at, const int32_t *tokens, int n, page_id *windows);
void tree_acquire_windows(struct tree *t, const page_id *windows, int n);
/* Releases window pages of tree_acquire_resumable, tree_acquire_windows or tree_take_window;
 * PAGE_NONE is none. */
void tree_release_windows(struct tree *t, const page_id *windows, int n);
/* Gives the window pages of a prefix from page number `first` on, of tree_take_window or
 * tree_acquire_windows, to the nodes of the pages, and makes position n a checkpoint, as far as
 * these tokens are cached. Releases them. windows[i] is that of page i. */
void tree_insert_windows(struct tree *t, tree_node root, const int32_t *tokens, int n, int first,
    const page_id *windows);
/* References to the window page that the tree and other threads hold. */
uint32_t tree_window_refs(const struct tree *t, page_id window);
