/* content.h: a digest of all that a model's tensors are: names, types, shapes and every byte.
 *
 * SHA-256 (OpenSSL's, which has the processor's instructions) as a tree: of stretches of 1 MB, so
 * that the team shares a tensor; of their digests, for each tensor; and of these, in the order of
 * the file. Where the bytes lie, in how many parts, and what else is in the file does not count.
 *
 * Owner: one thread, the team's caller. */
#pragma once

#include "format/gguf.h"
#include "os/team.h"

#include <openssl/evp.h>

enum { CONTENT_BYTES = 32 };

struct content {
    const struct gguf *g; /* borrowed, and the team */
    struct team *team;
    uint8_t *sums;   /* of the tensors */
    uint8_t *leaves; /* of the stretches of one */
    EVP_MD_CTX *all; /* taken at the start, since the end cannot fail */
    size_t n_summed;
};

int content_init(struct content *c, const struct gguf *g, struct team *team, struct err *e);
void content_clear(struct content *c); /* an empty one is fine */

/* Every tensor of g once, in any order; then the end. */
void content_add(struct content *c, const struct gguf_tensor *t);
void content_end(struct content *c, uint8_t out[CONTENT_BYTES]);
