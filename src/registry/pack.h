/* pack.h: where packed weights are kept between two starts of the server, and when that pays.
 *
 * MODEL.pack beside MODEL; where that folder cannot be written, in the cache directory
 * ($XDG_CACHE_HOME, else ~/.cache), in inferflux/. Of a model in parts, MODEL is the first one.
 * When one is written into the cache directory, those that no start has used for 90 days go. */
#pragma once

#include "registry/pool.h"

enum { PACK_PATH_MAX = 4096 };

enum pack_mode pack_mode_of(const char *name); /* "off", "ram", "file" */

/* False when the model does without: by its spec, or because it is small; bytes: of all its files.
 * Any thread. */
bool pack_path(char out[PACK_PATH_MAX], const struct model_spec *spec, uint64_t bytes);

/* Writes what the next start will want, if it was not there: once, after the model is ready. When
 * it fails, the log says so. Takes as long as the disk; *stop ends it. */
void pack_write(const struct model *m, const _Atomic bool *stop);
