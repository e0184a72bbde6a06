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
/* Removes a window page whose only other holder will write to it; false if there are others. */
bool tree_remove_window(struct tree *t, page_id window);
