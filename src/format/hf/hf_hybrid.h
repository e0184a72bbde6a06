/* hf_hybrid.h: config.json of families whose layers are of several kinds: attention, Mamba2, and in
 * Nemotron-H also a feed-forward network or experts alone.
 *
 * Each layer is named in layers_block_type or layer_types, or is a character of
 * hybrid_override_pattern. A parameter of these layers that is not known is refused by name, also
 * if its value may be without effect.
 *
 * Owner: one thread at a time. */
#pragma once

#include "format/hf/hf_config.h"

/* Sets n_layers, n_experts, n_groups and arch of *c. ERR_UNSUPPORTED, ERR_CORRUPT. */
int hf_hybrid_read(struct hf_config *c, struct err *e);
/* Writes the keys of the layers, the Mamba2 layers and the experts. */
int hf_hybrid_put(const struct hf_config *c, struct gguf_keys *k, struct err *e);
