/* pack.h: location of the packed-weights file, and the policy when to write one.
 *
 * The file is MODEL.pack next to MODEL; if that folder is not writable, it is in the cache
 * directory ($XDG_CACHE_HOME, else ~/.cache), in inferflux/. For a model in several parts, MODEL is
 * the first part. When a file is written into the cache directory, files that no start has used for
 * 90 days are deleted.
 *
 * Owner: the loader thread, unless stated otherwise. */
#pragma once

#include "registry/model.h"

enum { PACK_PATH_MAX = 4096 };

enum pack_mode pack_mode_of(const char *name); /* "off", "ram", "file" */

/* Writes the path to `out`. Returns false if the model uses no such file, because of its spec or
 * because it is small. bytes: size of all files of the model. Any thread. */
bool pack_path(char out[PACK_PATH_MAX], const struct model_spec *spec, uint64_t bytes);

/* Writes the packed-weights file if it is missing. Called once, when the model is ready. Errors are
 * logged. The duration depends on the disk; *stop aborts it. */
void pack_write(const struct model *m, const _Atomic bool *stop);
