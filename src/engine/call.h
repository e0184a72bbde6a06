/* call.h: runs a function on the engine thread between two steps; the caller waits. */
#pragma once

#include "engine/core.h"

/* Any thread except the engine thread. The reply arrives in the mailbox of the caller, which
 * receives no other messages meanwhile. */
void engine_call(
    struct engine *en, struct mailbox *reply, void (*fn)(struct core *c, void *arg), void *arg);

const struct engine_options *engine_settings(const struct engine *en); /* any thread */
