/* hf.h: opens a model directory in the layout of Hugging Face: config.json, *.safetensors,
 * tokenizer.json. Also directories that MLX has written, and snapshots of a hub cache.
 *
 * Owner: the caller; see gguf.h. */
#pragma once

#include "format/gguf.h"

/* ERR_NOT_FOUND, ERR_IO, ERR_CORRUPT, ERR_UNSUPPORTED, ERR_SYNTAX, ERR_TOO_LARGE, ERR_MEMORY. */
int hf_open(struct gguf **out, const char *dir, struct err *e);
