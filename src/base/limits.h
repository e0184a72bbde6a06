/* limits.h: sizes that are tiny in a SMALL=1 build, so that every test covers wraps, splits and
 * stalls.
 *
 * Constant data. */
#pragma once

#ifndef SMALL
#define SMALL 0
#endif

#if SMALL
enum {
    PAGE_TOKENS = 2,       /* tokens per KV page */
    MAX_BATCH_DEFAULT = 2, /* sequences decoded together */
    READ_CHUNK = 7,        /* bytes per read(2) from a socket */
    ARENA_CHUNK = 256,     /* first chunk of an arena */
    BUF_FIRST = 1,         /* first capacity of a growing buffer */
    SEQ_EVENTS = 2,        /* token events of one sequence in flight */
    MAILBOX_BATCH = 2,     /* messages handled per round of an event loop */
    PREFILL_CHUNK = 3,     /* prompt tokens of one sequence per step */
    MASK_STEPS = 20,       /* byte steps of one constraint mask per step */
};
#else
enum {
    PAGE_TOKENS = 32,
    MAX_BATCH_DEFAULT = 4,
    READ_CHUNK = 16384,
    ARENA_CHUNK = 4096,
    BUF_FIRST = 64,
    SEQ_EVENTS = 256,
    MAILBOX_BATCH = 1024,
    PREFILL_CHUNK = 512,
    MASK_STEPS = 200000,
};
#endif
