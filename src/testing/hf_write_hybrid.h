/* hf_write_hybrid.h: the part of hf_write.h for families whose layers are of several kinds: the
 * inverse of format/hf/hf_hybrid.h.
 *
 * Owner: the caller; one thread. */
#pragma once

#include "base/json.h"
#include "format/gguf.h"
#include "format/hf/hf_family.h"

/* The members of config.json for the layers, the Mamba2 layers and the experts. */
void hf_write_hybrid(struct jw *j, const struct gguf *g, const struct hf_family *f);

/* The largest value of a key of a layer: a number, or an array with one for each layer. 0: none. */
uint64_t hf_write_largest(const struct gguf *g, const char *tail);

/* Whether a layer has the tensor, of which `tail` is the name after "blk.N.". */
bool hf_write_has_tensor(const struct gguf *g, const char *tail);
