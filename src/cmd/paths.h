/* paths.h: names derived from file paths and the environment. Any thread. */
#pragma once

#include <stddef.h>

/* Derives a model name from a path: "models/Llama-3.2-1B-Q4_0.gguf" -> "Llama-3.2-1B-Q4_0". Returns
 * out. */
const char *model_id_of_path(const char *path, char *out, size_t size);

/* Path of the SQLite file with model capabilities: the option's value; for "auto"
 * inferflux/inferflux.db in $XDG_STATE_HOME, else in ~/.local/state; "" for "none" and without a
 * home directory. */
const char *store_path(const char *option, char *out, size_t size);
