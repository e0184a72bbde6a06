/* synth.h: synthetic models of a given shape with seeded random weights, for tests and benchmarks.
 *
 * The file is complete: metadata like that of real models, a byte-level BPE vocabulary of printable
 * pieces with a ChatML template (or the vocabulary of another file), and weights scaled like those
 * of a freshly initialised network, so that activations and logits stay in a normal range.
 * Quantised blocks are drawn directly instead of being quantised from floats. The file is written
 * as a stream; the model is never in memory as a whole. The same shape and seed give the same bytes
 * on every machine.
 *
 * Owner: the caller; one thread. */
#pragma once

#include "base/err.h"
#include "format/gguf.h"

struct synth {
    const char *arch; /* a family of model/family.h */
    const char *name; /* general.name */
    enum qtype type;  /* type of the layers' matrices */
    /* V and down matrices of some layers are Q6_K, as in files called Q4_K_M or Q5_K_M */
    bool is_mixed;
    enum qtype head_type; /* type of the embedding and the head */
    uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab, n_ctx;
    uint32_t n_experts, n_experts_used; /* 0: dense; otherwise d_ff is that of one expert */
    float rope_base, rms_eps;
    float rope_scale; /* if above 1: a rope_freqs tensor like that of Llama 3.2, with this factor */
    bool is_tied;
    uint64_t seed;
    /* "KEY=VALUE": metadata with the prefix of the architecture, in addition to that of the fields
     * above or instead of it. A value is a whole number, a number with a point, true, false, a
     * string, or a list of whole numbers or booleans such as [1,2]. */
    const char *const *settings;
    size_t n_settings;
    bool fuses_experts;            /* one tensor with gate and up of all experts */
    bool has_scales;               /* a factor NAME.scale of each matrix that may have one */
    bool has_optional;             /* with biases and norms that the family does not require */
    float vector_sigma;            /* deviation of biases and of norms from 1; 0: 0.02 */
    const struct gguf *vocab_from; /* NULL: a generated vocabulary; requires n_vocab >= 259 */
    void (*progress)(void *arg, uint64_t done, uint64_t all); /* bytes; may be NULL */
    void *progress_arg;
};

/* The names of synth_presets.c: "tiny", "llama-3.2-1b", "tiny-glm4"...; NULL at the end. */
const char *synth_preset_name(size_t i);
/* False for an unknown name. The type is Q4_0; the seed is 1 except for some. */
bool synth_preset(struct synth *s, const char *name);

/* Type that real files of this quantisation use for a matrix with rows of n_cols elements: formats
 * whose block does not divide n_cols are replaced by Q8_0, and that by F16. */
enum qtype synth_type_for(enum qtype wanted, uint32_t n_cols);

/* Whether a mixed file uses the finer type in a layer: in the first and last eighth of the layers
 * and in every third layer between (like the quantiser of llama.cpp). */
bool synth_use_more_bits(uint32_t layer, uint32_t n_layers);

/* ERR_INVALID: an impossible shape; ERR_IO, ERR_MEMORY. */
int synth_write(const struct synth *s, const char *path, struct err *e);
