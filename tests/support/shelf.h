/* response_store_kit.h: opens a response store for a test, and returns its size. */
#pragma once

#include "check.h"
#include "serve/responses/shelf.h"

enum { SECOND = 1000000000 };

/* Responses that are not used for ten seconds expire. */
static inline struct shelf *new_shelf(size_t most, size_t owner_most)
{
    struct shelf_options o = { most, owner_most, 10 * (uint64_t)SECOND };
    struct shelf *s;
    struct err e;

    EXPECT_EQ(shelf_open(&s, &o, &e), 0);
    return s;
}

static inline size_t bytes_of(struct shelf *s)
{
    struct shelf_stats n;

    shelf_stats(s, &n);
    return n.bytes;
}
