/* response_store_kit.h: opens a response store for a test, and returns its size. */
#pragma once

#include "support/check.h"
#include "serve/responses/response_store.h"

enum { SECOND = 1000000000 };

/* Responses that are not used for ten seconds expire. */
static inline struct response_store *new_response_store(size_t most, size_t owner_most)
{
    struct response_store_options o = { most, owner_most, 10 * (uint64_t)SECOND };
    struct response_store *s;
    struct err e;

    EXPECT_EQ(response_store_open(&s, &o, &e), 0);
    return s;
}

static inline size_t stored_bytes(struct response_store *s)
{
    struct response_store_stats n;

    response_store_stats(s, &n);
    return n.bytes;
}
