/* tensor_bytes.h: bytes of a tensor in the format of its type: in the mapped file, or computed by
 * the thread pool into a buffer that the next tensor reuses.
 *
 * Owner: one thread, the caller of the thread pool. */
#pragma once

#include "format/gguf.h"
#include "os/thread_pool.h"

struct tensor_bytes {
    const struct gguf *g;
    struct thread_pool *thread_pool;
    uint8_t *buf; /* NULL until a tensor is computed */
    size_t cap;
};

/* Valid until the next call. ERR_MEMORY. */
int tensor_bytes_get(
    struct tensor_bytes *b, const struct gguf_tensor *t, const uint8_t **out, struct err *e);
void tensor_bytes_clear(struct tensor_bytes *b);
