/* window.h: counter of one limit over a sliding window: amounts that were used in the last
 * WINDOW_PARTS parts of the window, and amounts that are reserved.
 *
 *     reserved  counts until it is settled or refunded, however long that takes
 *     used      counts for the whole window after the call of window_settle, and for at most one
 *               part more
 *
 * An amount is settled after it was used, so it never leaves the counter before a whole window has
 * passed since its use. Hence a limit on used + reserved bounds the use in every window of time. An
 * amount is counted for at most 1 / WINDOW_PARTS of the window longer than necessary.
 *
 * The used amounts are a list of (part, amount), so an idle counter has no memory. If memory is
 * short, amounts are merged into one part, the latest, which counts them for longer.
 *
 * Pure: the caller passes the time (clock_ns, never decreasing). Owner: the lock of the limiter. */
#pragma once

#include "base/base.h"

enum { WINDOW_PARTS = 1024 };

struct window_entry {
    uint64_t part; /* number of the part, since the start of the clock */
    int64_t n;
};

struct window { /* zeroed: empty */
    int64_t used, reserved;
    struct window_entry *entries; /* [first .. first + n), in ascending order */
    int first, n, n_max;
    struct window_entry late; /* amounts for which there was no memory; .n 0: none */
};

void window_clear(struct window *w);
/* Removes what has left the window. width_ns: at least WINDOW_PARTS. */
void window_advance(struct window *w, uint64_t width_ns, uint64_t now_ns);
void window_reserve(struct window *w, int64_t n);
void window_refund(struct window *w, int64_t n); /* n <= reserved */
/* n of the reserved amounts were used until now. */
void window_settle(struct window *w, int64_t n, uint64_t width_ns, uint64_t now_ns);
/* The earliest time at which used + reserved <= limit - n, if nothing else is reserved and settled;
 * UINT64_MAX: the amounts that are reserved now do not permit it. */
uint64_t window_room_at(
    const struct window *w, int64_t n, int64_t limit, uint64_t width_ns, uint64_t now_ns);
