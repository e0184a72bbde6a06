/* model_capabilities.h: sets a model's adapter, output parsers and end tokens from its
 * capabilities, and loads the capabilities from the store or runs the capability probe.
 *
 * Owner: the thread of model_open, which calls these functions. */
#pragma once

#include "registry/model.h"

/* Uses the stored row of this model file, if there is one, and sets `known` and `is_probed`. Errors
 * of the store are logged only. The caller has set vocab, template, arch, name and the sizes.
 * Returns the errors of adapter_open. */
int model_capabilities_load(struct model *m, struct err *e);
void model_capabilities_clear(struct model *m); /* accepts a zeroed model */

/* If the spec enables the probe and the capabilities are unknown: probes the model (probe.h),
 * reopens the adapter and stores the row. Errors of the probe and of the store are logged; an error
 * is returned only if the model is left unusable. */
int model_capabilities_probe_unknown(struct model *m, struct err *e);
/* Probes the model even if its capabilities are known. Returns ERR_IO if the row cannot be stored;
 * m->known is set nevertheless. */
int model_capabilities_probe(struct model *m, probe_fn *probe, struct err *e);

void model_capabilities_log(const struct model *m);

/* Hash of properties of the model file. It detects that a stored row belongs to another file. */
void model_fingerprint(const struct model *m, char out[65]);
