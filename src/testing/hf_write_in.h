/* hf_write_in.h: parts of hf_write.c and hf_write_quant.c that only these files use. Owner: the
 * caller of hf_write; one thread. */
#pragma once

#include "base/json.h"
#include "format/hf/hf_family.h"
#include "testing/hf_write.h"

enum { FILE_MAX = 1 << 30, SHARDS_MAX = 8, NAME_MAX_BYTES = 160 };

struct shard {
    struct buf header, data;
    struct jw w;
};

struct writer {
    const struct gguf *g;
    const char *dir;
    const struct hf_write_options *o;
    const struct hf_family *family;
    char arch[32];
    uint64_t n_heads, n_kv_heads, n_experts;
    struct shard shards[SHARDS_MAX];
    int n_shards;
    struct buf index;
    struct jw index_json;
    size_t n_written;
};

/* Begins a tensor of n_dims dimensions, outermost first; the caller appends `bytes` bytes to the
 * returned buffer. */
struct buf *hf_write_begin(struct writer *w, const char *name, const char *dtype, int n_dims,
    const uint64_t *dims, uint64_t bytes);
/* Rows of a head if the rows of this tensor are reordered, otherwise 0; and the row in GGUF terms
 * that is row r of the directory. */
uint64_t hf_write_head_rows(const struct writer *w, const struct hf_tensor_row *row, uint64_t n);
uint64_t hf_write_gguf_row(const struct hf_tensor_row *row, uint64_t r, uint64_t head_rows);

/* Matrices first .. first + n - 1 of a tensor, which become the tensors stem.weight, ... */
struct hf_write_matrices {
    const char *stem;
    const struct hf_tensor_row *row;
    const struct gguf_tensor *t;
    uint64_t first, n;
};

/* ---- hf_write_quant.c */

/* Writes the matrices with codes and scales; false: they are written as they are. */
bool hf_write_quantised(struct writer *w, const struct hf_write_matrices *m);
/* Whether the tensor has been written with that of gate: up of gpt-oss. */
bool hf_write_is_interleaved(const struct writer *w, const struct gguf_tensor *t);
/* The factors NAME.scale and NAME.input_scale of NVFP4, in the layout of ModelOpt. */
void hf_write_factor(struct writer *w, const struct hf_write_matrices *m, const char *end);
/* The member of config.json. */
void hf_write_quantization(const struct writer *w, struct jw *j);
