/* safetensors.h: reader of one safetensors file, which is untrusted (format:
 * github.com/huggingface/safetensors; little-endian only).
 *
 *     u64 n | n bytes of JSON: {name: {dtype, shape, data_offsets: [begin, end]}} | tensor data
 *
 * The header has at most 100 MB. The tensors fill the rest of the file without gaps and without
 * overlap, and the size of each is that of its type and shape. Other members of the header, and its
 * "__metadata__", are ignored. An error is one line with the tensor and the value.
 *
 * Read-only after safetensors_read: any thread. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum st_dtype {
    ST_BOOL,
    ST_U8,
    ST_I8,
    ST_F8_E5M2,
    ST_F8_E4M3,
    ST_F8_E8M0,
    ST_I16,
    ST_U16,
    ST_F16,
    ST_BF16,
    ST_I32,
    ST_U32,
    ST_F32,
    ST_F64,
    ST_I64,
    ST_U64,
    N_ST_DTYPES
};

enum { ST_DIMS_MAX = 8 };

struct st_tensor {
    struct str name; /* printable UTF-8 */
    enum st_dtype dtype;
    int n_dims;                 /* 0: one number */
    uint64_t dims[ST_DIMS_MAX]; /* the last one is contiguous; 1 beyond n_dims */
    const uint8_t *data;        /* unaligned */
    uint64_t bytes;
};

struct safetensors {
    struct arena *arena; /* names and tensors */
    struct st_tensor *tensors;
    size_t n;
};

/* `file` must outlive *s. On error *s is empty. ERR_CORRUPT, ERR_UNSUPPORTED (an unknown type),
 * ERR_TOO_LARGE, ERR_MEMORY. */
int safetensors_read(struct safetensors *s, struct str file, struct err *e);
void safetensors_clear(struct safetensors *s); /* an empty one is allowed */

const char *st_dtype_name(enum st_dtype dtype); /* "F32", "BF16", ... */
size_t st_dtype_bytes(enum st_dtype dtype);
