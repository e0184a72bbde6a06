/* describe.h: what is in a model file, for people and for programs (`inferctl inspect`).
 *
 * Metadata with long texts and arrays elided, every tensor with type, shape and bytes, totals by
 * type, the number of parameters, and whether a model of this kind is served. Text of the file is
 * escaped: it cannot move the cursor of a terminal. Any thread. */
#pragma once

#include "base/buf.h"
#include "format/gguf.h"

/* Appends; whether it fitted is asked of the buffer (buf_ok). As JSON it is one object:
 *   version, parts, bytes, architecture, parameters, served, reason (null when served),
 *   metadata {key: value; arrays of more than 16 are {kind, n, first}},
 *   tensors [{name, type, shape, bytes}], types [{type, tensors, parameters, bytes}] */
void gguf_describe(const struct gguf *g, bool as_json, struct buf *out);

uint64_t gguf_n_parameters(const struct gguf *g);

/* Can a file of this kind be served, going by what can be seen without loading it? If not, *why
 * says what stands against it (one line in *why). */
bool gguf_is_servable(const struct gguf *g, struct buf *why);

const char *gguf_served_arch(size_t i); /* NULL at the end; the families of model/ */
