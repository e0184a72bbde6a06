/* call.h: a function run on the engine's thread, between two steps, for a caller who waits. */
#pragma once

#include "engine/core.h"

/* Any thread but the engine's; the reply comes to the caller's mailbox, which is drained for
 * nothing else meanwhile. */
void engine_call(
    struct engine *en, struct mailbox *reply, void (*fn)(struct core *c, void *arg), void *arg);

const struct engine_options *engine_settings(const struct engine *en); /* any thread */
