/* model_file.h: opens a model by its path: a GGUF file (the first part of a split one), or a
 * directory with config.json, tokenizer.json and *.safetensors, as written by Hugging Face and MLX,
 * or in a hub cache. All are read in the terms of GGUF.
 *
 * Owner: the caller; see gguf.h. */
#pragma once

#include "format/gguf.h"

/* Other formats are rejected with a list of those that are read. Errors as of gguf_open and
 * hf_open. */
int model_file_open(struct gguf **out, const char *path, struct err *e);
