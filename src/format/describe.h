/* describe.h: description of a model file for `inferctl inspect`, as text or JSON.
 *
 * Metadata with long texts and arrays shortened, every tensor with type, shape and size, totals by
 * type, the number of parameters, and whether a model of this kind is supported. Text of the file
 * is escaped, so it cannot send control sequences to a terminal.
 *
 * Any thread. */
#pragma once

#include "base/buf.h"
#include "format/gguf.h"

/* The caller has found out these properties of the model by reading its hyper-parameters. */
struct gguf_facts {
    const char *reason;                 /* why it cannot be served; NULL: unknown or it can */
    uint64_t kv_bytes_per_token;        /* layers without a window; 0: unknown or none */
    int window;                         /* positions; 0: no layer has an attention window */
    uint64_t window_kv_bytes_per_token; /* windowed layers, for the last `window` tokens */
    uint64_t state_bytes;               /* recurrent state of a sequence; 0: none or unknown */
};

/* Appends the description; the caller checks buf_ok. The JSON form is one object:
 *   version (0: a directory), parts, bytes, architecture, parameters, served, reason (null if
 *   served), context, weights_bytes, kv_bytes_per_token, window, window_kv_bytes_per_token,
 *   state_bytes (null: unknown or none), is_moe,
 *   n_experts, n_active_experts, template (boolean),
 *   metadata {key: value; arrays of more than 16 are {kind, n, first}},
 *   tensors [{name, type, shape, bytes}], types [{type, tensors, parameters, bytes}] */
void gguf_describe(
    const struct gguf *g, const struct gguf_facts *facts, bool as_json, struct buf *out);

uint64_t gguf_n_parameters(const struct gguf *g);

/* Experts per layer, and those that a token uses; both 0 without experts. */
struct gguf_experts {
    uint32_t n, n_active;
};
struct gguf_experts gguf_experts_of(const struct gguf *g);

/* Whether a file of this kind is supported, as far as can be determined without loading it. If not,
 * *why contains the reason in one line. */
bool gguf_is_supported(const struct gguf *g, struct buf *why);

const char *gguf_supported_arch(size_t i); /* NULL at the end; the families of model/ */
