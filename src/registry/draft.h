/* draft.h: loads the draft model for speculative decoding from its file.
 *
 * Draft and target model must use the same token ids: their vocabularies are compared token by
 * token. One vocabulary may have up to VOCAB_PADDING more tokens at its end, which occurs if the
 * number of embeddings was rounded up.
 *
 * Owner: the thread that opens the model. */
#pragma once

#include "format/gguf.h"
#include "registry/model.h"

enum { VOCAB_PADDING = 128 };

/* Compares the vocabularies of both files. ERR_INVALID names the first token that differs. */
int draft_check(const struct gguf *large, const struct gguf *small, struct err *e);

/* Finds the errors of draft_open that are known without the weights. m->vocab is set. */
int draft_check_file(const struct model *m, struct err *e);

/* m->vocab and m->n_ctx are set, and m->spec->draft_path names the file. ERR_INVALID names the
 * first token that differs; other errors describe the file, or are ERR_MEMORY. */
int draft_open(struct drafter **out, const struct model *m, const struct kernels *k, struct err *e);
