/* paths.h: names that programs derive from paths and from the environment. Any thread. */
#pragma once

#include <stddef.h>

/* "models/Llama-3.2-1B-Q4_0.gguf" -> "Llama-3.2-1B-Q4_0": what a model is called. Returns out. */
const char *model_id_of_path(const char *path, char *out, size_t size);

/* The file of what is known about models: what the option says; for "auto" inferflux/inferflux.db
 * in $XDG_STATE_HOME or else in ~/.local/state; "" for "none" and where there is no home. */
const char *store_path(const char *option, char *out, size_t size);
