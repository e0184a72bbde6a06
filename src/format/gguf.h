/* gguf.h: GGUF v2 and v3 files, read with suspicion (format: github.com/ggml-org/ggml,
 * docs/gguf.md; little-endian only).
 *
 * The file is mapped, never copied. Every count is bounded by the bytes that are left before
 * anything is allocated; every offset is checked against the file; a string or array is handed
 * out as a borrowed view. What is wrong is said in one line: what, and at which offset.
 * A model split in parts (`NAME-00001-of-00003.gguf`, split.count) is opened by its first part.
 *
 * Read-only after gguf_open: any thread. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "format/qtype.h"
#include "os/mapfile.h"

enum { GGUF_PATH_MAX = 4096 };

enum gguf_kind { /* as numbered in the file */
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARR,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_value {
    enum gguf_kind kind;
    union {
        uint64_t u; /* unsigned kinds and bool */
        int64_t i;  /* signed kinds */
        double f;   /* F32, F64 */
        struct str s;
        struct {
            enum gguf_kind kind; /* of the elements; never ARR */
            uint64_t n;
            const uint8_t *data; /* packed as in the file, unaligned */
            uint64_t bytes;
        } arr;
    };
};

struct gguf_kv {
    struct str key;
    struct gguf_value value;
};

struct gguf_tensor {
    struct str name;
    enum qtype type;
    int n_dims;       /* 1..4 */
    uint64_t dims[4]; /* dims[0] is the row length (ggml order); 1 beyond n_dims */
    const uint8_t *data;
    uint64_t bytes;
};

struct gguf;

/* ERR_NOT_FOUND, ERR_IO; ERR_CORRUPT (damaged or hostile), ERR_UNSUPPORTED (a version, byte order
 * or tensor type that nobody here reads), ERR_TOO_LARGE (counts beyond any real model),
 * ERR_MEMORY. */
int gguf_open(struct gguf **out, const char *path, struct err *e);
/* The same from memory, which must outlive g. A part of a split model is refused. */
int gguf_open_bytes(struct gguf **out, const uint8_t *p, size_t n, struct err *e);
void gguf_close(struct gguf *g); /* NULL is fine */

uint32_t gguf_version(const struct gguf *g);
size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
uint64_t gguf_file_bytes(const struct gguf *g); /* all parts */
size_t gguf_n_parts(const struct gguf *g);      /* 1 unless the model is split */
/* The path of part i, from 0, of n, made from the first one's. ERR_INVALID: it has no such name. */
int gguf_part_path(char out[GGUF_PATH_MAX], const char *first, size_t i, uint64_t n, struct err *e);
const struct file_id *gguf_part_id(const struct gguf *g, size_t i); /* NULL: not from a file */
bool gguf_is_unchanged(const struct gguf *g);    /* its files are those that were opened */
const char *gguf_kind_name(enum gguf_kind kind); /* "u32", "str", "arr" ... */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL when absent */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Typed reads: true when present and of a kind that converts without loss; *out is else left
 * alone, so that it can hold the default. */
bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out);
bool gguf_get_f64(const struct gguf *g, const char *key, double *out);
bool gguf_get_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_get_str(const struct gguf *g, const char *key, struct str *out);

/* Walks an array of strings; `at` starts at 0 and is the walk's own. False at the end, and at
 * once when it is no array of strings. The next two are false beyond the end as well. */
bool gguf_arr_next_str(const struct gguf_value *arr, uint64_t *at, struct str *out);
bool gguf_arr_i64(const struct gguf_value *arr, uint64_t i, int64_t *out);
bool gguf_arr_f64(const struct gguf_value *arr, uint64_t i, double *out);

/* The pages of a tensor that has been packed elsewhere go back to the system. */
void gguf_tensor_done(const struct gguf *g, const struct gguf_tensor *t);
