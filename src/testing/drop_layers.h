/* drop_layers.h: writes a copy of a model without some of its layers.
 *
 * The result is smaller and faster and has the same vocabulary. Its output resembles that of the
 * full model, so it can be the draft model of speculative decoding (engine/spec/draft_lm.h), and
 * tests and benchmarks have a pair of models that match. All other data is copied unchanged.
 *
 * Owner: the caller; one thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"

/* keep: layers of g in ascending order, at least one. ERR_INVALID (no such layer, not ascending, no
 * layers in the file, arrays with one value per layer), ERR_IO, ERR_MEMORY. */
int drop_layers_write(
    const struct gguf *g, const uint32_t *keep, size_t n_keep, const char *path, struct err *e);
