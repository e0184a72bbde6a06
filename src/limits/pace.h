/* pace.h: sizes of the slices in which a paced request reserves output tokens.
 *
 * The engine generates a token only if it has a free event of the choice (engine.h), so the
 * reserved tokens of a choice are its events: at most PACE_SLICE. An event whose token was
 * processed is returned only after another token was reserved for it, in groups of a quarter of
 * the events, since that is where the engine continues a parked sequence. Therefore at most
 * PACE_SLICE tokens are reserved and not used, and a choice without reserved tokens is parked.
 *
 * Pure; any thread. */
#pragma once

#include "base/base.h"

enum {
    PACE_SLICE = 64,
    PACE_SETTLE = 4 /* used tokens that are settled together */
};

/* Events of each choice. room: tokens that the limits can grant to all choices together, at least
 * n_choices. Sizes between 32 and 64 are not used: their quarter is not a multiple of the groups in
 * which events are returned. */
static inline int pace_slice(int64_t room, int n_choices, int max_tokens)
{
    int64_t n = MIN(MIN(room / n_choices, max_tokens), PACE_SLICE);

    return n == PACE_SLICE || n == max_tokens ? (int)n : (int)MAX(MIN(n, PACE_SLICE / 2), 1);
}

/* Events that are returned together. */
static inline int pace_group(int slice)
{
    return (slice + 3) / 4;
}
