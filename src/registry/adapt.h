/* adapt.h: a model's adapter, what its answers are read with and its end tokens, from what is known
 * of it; and what is known, from the store or by asking the model.
 *
 * Part of model_open, on its thread. */
#pragma once

#include "registry/pool.h"

/* With the row that the store has of this file, if any; `known`, `is_probed` say so. A store that
 * cannot be read is logged. vocab, template, arch, name and sizes are there. ERR_ as
 * adapter_open. */
int model_adapt_known(struct model *m, struct err *e);
void model_unadapt(struct model *m); /* zeroed is fine */

/* Where the spec says so and nothing is known: asks the model (probe.h), adapts it anew and keeps
 * the row. What goes wrong with asking and keeping is logged; only what leaves the model unusable
 * is an error. */
int model_probe_new(struct model *m, struct err *e);
/* The same whatever is known. ERR_IO when the row cannot be kept; it is m->known all the same. */
int model_probe_again(struct model *m, probe_fn *probe, struct err *e);

void model_log_adapter(const struct model *m);

/* What tells its file from others well enough to see that a row is of another one. */
void model_fingerprint(const struct model *m, char out[65]);
