/* prefix.h: connects a sequence with the prefix cache (a radix tree of KV pages).
 *
 * A sequence matches the prefix cache at admission, also after preemption, and takes over pages
 * that other sequences compute for the same prefix. Its full pages, generated tokens included, are
 * inserted while it runs, and its last page, full or not, when it releases its pages, so that the
 * next turn of a conversation starts there.
 *
 * All functions do nothing for a sequence without prefix caching (root is TREE_NONE). Pure, like
 * the rest of the scheduler. Owner: the engine thread. */
#pragma once

#include "engine/seq.h"

/* Maximum cached length: the last row and rows with prompt logprobs are always computed. */
int prefix_limit(const struct seq *s);

void prefix_match(struct seq *s, struct tree *t);       /* requires a sequence without pages */
void prefix_count(const struct seq *s, struct tree *t); /* statistics at admission */
void prefix_drop_tail(struct seq *s, struct page_pool *pool); /* releases a shared last page */
/* For a prefilling sequence that is not planned yet. */
void prefix_catch_up(struct seq *s, struct tree *t);
/* Inserts the full pages; positions below n_kv are final. */
void prefix_insert(struct seq *s, struct tree *t);
/* Before the pages are released: inserts the last page too, and makes n_kv a checkpoint. */
void prefix_insert_all(struct seq *s, struct tree *t);
/* For a model with state slots or windowed layers, after each run from `pos` on: makes checkpoints
 * at the end of the prompt, at the end of what another sequence had in common with it, and every
 * CHECKPOINT_TOKENS tokens of the prompt. With state slots the run ends there, and the slot is
 * shared with the prefix cache from then on. */
void prefix_checkpoint(struct seq *s, struct tree *t, int pos);
/* First position of such a checkpoint after `pos`, apart from the end of the prompt. */
int prefix_next_checkpoint(const struct seq *s, int pos);

/* For a model with state slots: number of tokens from the start that `s`, which has computed
 * nothing, has in common with `f`, which computes them now; 0 if they are not worth a wait. */
int prefix_common(const struct seq *f, const struct seq *s);

/* Distance of checkpoints within a prompt; smallest distance of one at the end of a common prefix
 * from the checkpoint before it. */
enum { CHECKPOINT_TOKENS = 4096, CHECKPOINT_TOKENS_MIN = 2 * PAGE_TOKENS };

/* A run of `f` in the plan being made computes the next page of `s`, and nothing delays it. */
bool prefix_computes_next(const struct seq *f, const struct seq *s);
