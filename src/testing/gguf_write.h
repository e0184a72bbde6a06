/* gguf_write.h: makes GGUF v3 files: the metadata and the tensors' shapes first, then the
 * tensors' bytes in the order they were declared, streamed.
 *
 *     w = gguf_writer_new(0);
 *     gguf_put_str(w, "general.architecture", STR("llama"));
 *     gguf_put_tensor(w, STR("output.weight"), Q_F32, 2, dims);
 *     gguf_writer_open(w, path, e);       the header goes out; nothing can be put any more
 *     gguf_writer_data(w, p, n, e);       any pieces; padding between tensors puts itself
 *     gguf_writer_finish(w, e);           the file appears under its name, or not at all
 *     gguf_writer_free(w);
 *
 * Puts do not fail one by one: what went wrong is said by gguf_writer_open or _header. Keys and
 * names are the caller's constants; giving one twice is the caller's fault and aborts nothing,
 * but no reader will take the file. Owner: whoever holds it. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "format/gguf.h"

struct gguf_writer;

struct gguf_writer *gguf_writer_new(uint32_t alignment) MUST_CHECK; /* 0 = 32; NULL: no memory */
void gguf_writer_free(struct gguf_writer *w); /* an unfinished file is removed */

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_str(struct gguf_writer *w, const char *key, struct str v);
/* n packed little-endian elements of a kind that is neither STR nor ARR. */
void gguf_put_arr(
    struct gguf_writer *w, const char *key, enum gguf_kind kind, const void *p, size_t n);
void gguf_put_strs(struct gguf_writer *w, const char *key, const struct str *v, size_t n);
/* A value as another file holds it. */
void gguf_put_value(struct gguf_writer *w, struct str key, const struct gguf_value *v);

/* Returns the bytes the tensor takes; 0 (and the writer failed) for an impossible shape. */
uint64_t gguf_put_tensor(
    struct gguf_writer *w, struct str name, enum qtype type, int n_dims, const uint64_t *dims);

/* The header with its padding, without a file: for tests. ERR_MEMORY, ERR_INVALID. */
int gguf_writer_header(struct gguf_writer *w, struct buf *out, struct err *e);
uint64_t gguf_writer_data_bytes(const struct gguf_writer *w); /* of all tensors, with padding */

int gguf_writer_open(struct gguf_writer *w, const char *path, struct err *e);
int gguf_writer_data(struct gguf_writer *w, const void *p, size_t n, struct err *e);
int gguf_writer_finish(struct gguf_writer *w, struct err *e); /* ERR_INVALID: bytes are missing */
