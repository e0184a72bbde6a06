/* call.h: runs a function on the engine thread between two steps, while the caller waits. KV export
 * and import use it to access the prefix cache without locks.
 *
 * Owner: the calling thread, which is any thread except the engine thread. */
#pragma once

#include "engine/core.h"

/* Any thread except the engine thread. The reply arrives in the mailbox of the caller, which
 * receives no other messages meanwhile. */
void engine_call(
    struct engine *en, struct mailbox *reply, void (*fn)(struct core *c, void *arg), void *arg);

const struct engine_options *engine_settings(const struct engine *en); /* any thread */
