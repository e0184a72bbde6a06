/* prefix.h: a sequence and the prefix cache: what it finds there, and what it leaves.
 *
 * A sequence finds pages when it comes in (also again, after preemption), and catches up with
 * others that compute the same before it. What it has computed it puts there page by page while
 * it runs, generated tokens too, and its last page, full or not, when it gives up its pages: so
 * the next turn of a conversation starts where this one ended.
 *
 * All of it may be called for a sequence that takes no part (root is TREE_NONE), and does nothing
 * then. Pure, as the rest of the scheduler. Owner: the engine thread. */
#pragma once

#include "engine/seq.h"

/* How far pages may be found: the last row always runs, and rows to be scored do. */
int prefix_limit(const struct seq *s);

void prefix_find(struct seq *s, struct tree *t);              /* has no pages */
void prefix_count(const struct seq *s, struct tree *t);       /* it comes in: for the statistics */
void prefix_drop_tail(struct seq *s, struct page_pool *pool); /* does without a page it shares */
void prefix_catch_up(struct seq *s, struct tree *t); /* is filling, and not in a plan yet */
void prefix_keep(struct seq *s, struct tree *t); /* full pages: everything below n_kv is final */
void prefix_keep_all(struct seq *s, struct tree *t); /* about to give them up: the last one, too */

/* `f` computes in the step being planned what `s` needs next, and nothing holds it up. */
bool prefix_is_ahead(const struct seq *f, const struct seq *s);
