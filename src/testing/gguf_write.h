/* gguf_write.h: writer of GGUF v3 files: first the metadata and the tensor shapes, then the tensor
 * data in the order of declaration, as a stream.
 *
 *     w = gguf_writer_new(0);
 *     gguf_put_str(w, "general.architecture", STR("llama"));
 *     gguf_put_tensor(w, STR("output.weight"), Q_F32, 2, dims);
 *     gguf_writer_open(w, path, e);       writes the header; no further puts
 *     gguf_writer_data(w, p, n, e);       any pieces; padding between tensors is automatic
 *     gguf_writer_finish(w, e);           the file appears under its name, or not at all
 *     gguf_writer_free(w);
 *
 * Puts do not fail one by one: gguf_writer_open or gguf_writer_header reports the error. Keys and
 * names are constants of the caller; a duplicate is an error of the caller that is not detected
 * here, but no reader accepts the file.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "format/gguf.h"

struct gguf_writer;

/* 0 = 32; NULL: out of memory */
struct gguf_writer *gguf_writer_new(uint32_t alignment) MUST_CHECK;
void gguf_writer_free(struct gguf_writer *w); /* removes an unfinished file */

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_str(struct gguf_writer *w, const char *key, struct str v);
/* n packed little-endian elements of a kind other than STR and ARR. */
void gguf_put_arr(
    struct gguf_writer *w, const char *key, enum gguf_kind kind, const void *p, size_t n);
void gguf_put_strs(struct gguf_writer *w, const char *key, const struct str *v, size_t n);
/* Copies a value of another file. */
void gguf_put_value(struct gguf_writer *w, struct str key, const struct gguf_value *v);

/* Returns the size of the tensor in bytes; 0 (and the writer fails) for an impossible shape. */
uint64_t gguf_put_tensor(
    struct gguf_writer *w, struct str name, enum qtype type, int n_dims, const uint64_t *dims);

/* The header with its padding, without a file: for tests. ERR_MEMORY, ERR_INVALID. */
int gguf_writer_header(struct gguf_writer *w, struct buf *out, struct err *e);
uint64_t gguf_writer_data_bytes(const struct gguf_writer *w); /* all tensors, with padding */

int gguf_writer_open(struct gguf_writer *w, const char *path, struct err *e);
int gguf_writer_data(struct gguf_writer *w, const void *p, size_t n, struct err *e);
int gguf_writer_finish(struct gguf_writer *w, struct err *e); /* ERR_INVALID: bytes are missing */
