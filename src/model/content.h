/* content.h: SHA-256 digest of a model's tensors: names, types, shapes and all bytes.
 *
 * The digest (OpenSSL, which uses the SHA instructions of the processor) is a tree: digests of
 * chunks of 1 MB, so that the thread pool shares a tensor; a digest of these per tensor; and a
 * digest of the tensor digests in file order. The position of the data in the file, the division
 * into several files, and other file content do not change the digest.
 *
 * Owner: one thread, the caller of the thread pool. */
#pragma once

#include "format/gguf.h"
#include "os/thread_pool.h"

#include <openssl/evp.h>

enum { CONTENT_BYTES = 32 };

struct content {
    const struct gguf *g; /* borrowed, like the thread pool */
    struct thread_pool *thread_pool;
    uint8_t *sums;   /* [n_tensors] tensor digests */
    uint8_t *leaves; /* chunk digests of one tensor */
    EVP_MD_CTX *all; /* allocated by content_init, since content_end cannot fail */
    bool *is_summed; /* [n_tensors] */
    size_t n_summed;
};

int content_init(
    struct content *c, const struct gguf *g, struct thread_pool *thread_pool, struct err *e);
void content_clear(struct content *c); /* an empty one is allowed */

/* Adds a tensor with its bytes (tensor_bytes.h): each tensor of g exactly once, in any order; then
 * content_end. */
void content_add(struct content *c, const struct gguf_tensor *t, const uint8_t *bytes);
/* The same for a tensor without data (gguf_read_rows); one chunk per thread is in memory.
 * ERR_MEMORY. */
int content_add_rows(struct content *c, const struct gguf_tensor *t, struct err *e);
bool content_has(const struct content *c, size_t i); /* tensor i was added */
void content_end(struct content *c, uint8_t out[CONTENT_BYTES]);
