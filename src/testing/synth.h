/* synth.h: models of a chosen shape with seeded random weights, for tests and benchmarks.
 *
 * The file is complete: metadata as real models carry it, a byte-level BPE vocabulary of printable
 * pieces with a ChatML template (or another file's vocabulary), weights scaled like those of a
 * freshly initialised network, so that activations and logits stay sane. Quantised blocks are
 * drawn directly, not quantised from floats; written in a stream, never the whole model in memory.
 * The same shape and seed give the same bytes on every machine.
 *
 * Owner: the caller; one thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"

struct synth {
    const char *arch;     /* "llama", "qwen2", "qwen3", "qwen3moe" */
    const char *name;     /* general.name */
    enum qtype type;      /* of the layers' matrices */
    bool is_mixed;        /* values and down projections of some layers are Q6_K, as in files that
                             are called Q4_K_M or Q5_K_M */
    enum qtype head_type; /* of the embedding and the head */
    uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab, n_ctx;
    uint32_t n_experts, n_experts_used; /* 0: none; d_ff is one expert's */
    float rope_base, rms_eps;
    float rope_scale; /* over 1: a rope_freqs tensor as Llama 3.2's, with this factor */
    bool is_tied;
    uint64_t seed;
    const struct gguf *vocab_from; /* NULL: one is made up; n_vocab >= 259 then */
    void (*progress)(void *arg, uint64_t done, uint64_t all); /* bytes; may be NULL */
    void *progress_arg;
};

/* "tiny", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "qwen3-moe-1b"; NULL at the end. */
const char *synth_preset_name(size_t i);
/* False for a name that is none. Type is Q4_0, seed 1. */
bool synth_preset(struct synth *s, const char *name);

/* The type that real files of this quantisation use for a matrix with rows of n: formats with
 * larger blocks fall back to Q8_0, that to F16. */
enum qtype synth_type_for(enum qtype wanted, uint32_t n_cols);

/* Whether a mixed file has the finer type in a layer: in the first and last eighth of them and in
 * every third between (as llama.cpp's quantiser chooses). */
bool synth_is_finer(uint32_t layer, uint32_t n_layers);

/* ERR_INVALID: a shape that cannot be; ERR_IO, ERR_MEMORY. */
int synth_write(const struct synth *s, const char *path, struct err *e);
