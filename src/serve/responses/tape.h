/* tape.h: what is told while it is made, so that it can be told again from any place: bytes that
 * grow at their end and stay where they are.
 *
 *     reel -> reel -> reel        each twice as large as the one before, up to REEL_MOST
 *
 * It is written frame by frame; a frame ends with an empty line ("\n\n"), has no other, and does
 * not span reels.
 *
 * Owner: whoever guards it, for all functions here. The bytes that a read has given never change,
 * and are read without a guard as long as the tape lives. */
#pragma once

#include "base/str.h"

struct reel;

struct tape { /* zeroed: empty */
    struct reel *first, *last;
    struct reel *spare; /* for the last words */
    uint64_t n_frames;
};

struct tape_place { /* zeroed: the beginning */
    const struct reel *reel;
    size_t at;
};

void tape_clear(struct tape *t);
/* Bytes of memory that a put of n more would take. */
size_t tape_cost(const struct tape *t, size_t n);
/* Whole frames. False: no memory, nothing was put. */
bool tape_put(struct tape *t, struct str frames) MUST_CHECK;

/* Room for last words of n bytes, which is there when no other is: once. The memory it takes; 0:
 * there is none. */
size_t tape_reserve(struct tape *t, size_t n) MUST_CHECK;
/* False: they are more, or were said. */
bool tape_put_reserved(struct tape *t, struct str frames) MUST_CHECK;

/* What follows the place, `most` bytes of it or fewer; the place moves on. Empty: there is no
 * more of it yet. */
struct str tape_read(const struct tape *t, struct tape_place *p, size_t most);
/* To the beginning of a frame, counted from 0. False: it is not there yet. */
bool tape_seek(const struct tape *t, struct tape_place *p, uint64_t frame);
