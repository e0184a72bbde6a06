/* hf_tensors.h: the tensors of a model directory in GGUF terms.
 *
 * A tensor whose bytes are the same in both formats is a view of the mapped file. The others have a
 * recipe: vectors become F32 (some norms plus 1), the rows of rotated matrices are reordered, the
 * matrices of experts are stacked, and the codes, scales and offsets of quantised tensors are put
 * together to blocks. Factors of whole matrices become a tensor NAME.scale.
 *
 * Owner: one thread; after hf_tensors_end any thread may read rows. */
#pragma once

#include "format/gguf.h"
#include "format/hf/hf_config.h"
#include "format/hf/hf_quant.h"
#include "format/safetensors.h"

struct hf_tensors {
    const struct hf_config *config;
    struct hf_recipe *all; /* [n] */
    size_t n, cap;
    struct str_map *names;
    struct arena *arena;
    struct hf_quants quants;
};

/* `a` and the files must outlive the tensors. ERR_MEMORY; ERR_UNSUPPORTED and ERR_CORRUPT:
 * the quantization of config.json. Call hf_tensors_clear after an error too. */
int hf_tensors_init(
    struct hf_tensors *t, const struct hf_config *c, struct arena *a, struct err *e);
void hf_tensors_clear(struct hf_tensors *t);
/* Adds a tensor of a file. ERR_UNSUPPORTED: no family has such a tensor. */
int hf_tensors_add(struct hf_tensors *t, const struct st_tensor *from, struct err *e);
/* Checks the shapes and types of all tensors, and moves them to *out. */
int hf_tensors_end(struct hf_tensors *t, struct gguf_translation *out, struct err *e);

/* hf_rows.c: see struct gguf_translation */
int hf_check_rows(const struct gguf_tensor *t, struct err *e);
void hf_read_rows(const struct gguf_tensor *t, uint64_t first, uint64_t n, uint8_t *to);
void hf_release(const struct gguf *g, const struct gguf_tensor *t);
