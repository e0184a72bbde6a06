/* draft.h: the small model that guesses for a large one, from its file.
 *
 * Both must mean the same by every token: their vocabularies are compared, token by token. One may
 * have up to VOCAB_PADDING tokens more at its end, as where embeddings were rounded up.
 *
 * Thread: the one that opens the model. */
#pragma once

#include "format/gguf.h"
#include "registry/pool.h"

enum { VOCAB_PADDING = 128 };

/* Do both files mean the same by their tokens? ERR_INVALID names the first that differs. */
int draft_check(const struct gguf *large, const struct gguf *small, struct err *e);

/* m->vocab and m->n_ctx are set, m->spec->draft_path names the file. ERR_INVALID names the first
 * token that differs; else what is wrong with the file, or ERR_MEMORY. */
int draft_open(struct drafter **out, const struct model *m, const struct kernels *k, struct err *e);
