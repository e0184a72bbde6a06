/* hooked.h: model that runs a function after each forward pass of another model.
 *
 * A test double is another model (script.h, fake.h) and a hook with the difference: the duration of
 * a pass, other logits. KV pages and threads are those of the other model.
 *
 * Owner: the engine thread. */
#pragma once

#include "model/lm.h"

/* Called after each forward pass that was not stopped; may change the logits of the runs. */
typedef void (*hook_fn)(void *ctx, const struct lm *m, struct lm_run *runs, int n_runs);

/* Owns `take` and closes it; ctx outlives the model, unless free_ctx releases it at close (NULL: it
 * does not). The fields of the result, but not its ops, may be changed before it is used. */
struct lm *lm_hooked(struct lm *take, hook_fn hook, void *ctx, void (*free_ctx)(void *ctx));
