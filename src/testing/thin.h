/* thin.h: a model with some of its layers left out, as a file of its own: smaller, faster, and of
 * the same vocabulary. It says what the whole one says more or less often, so it can guess for it
 * (engine/draft_lm.h), and tests and benchmarks have a pair of models that belong together.
 *
 * Everything else is taken over byte by byte. Owner: the caller; one thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"

/* keep: layers of g in ascending order, at least one. ERR_INVALID (no such layer, not ascending, no
 * layers in the file, arrays of one value per layer), ERR_IO, ERR_MEMORY. */
int thin_write(
    const struct gguf *g, const uint32_t *keep, size_t n_keep, const char *path, struct err *e);
