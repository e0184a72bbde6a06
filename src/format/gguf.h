/* gguf.h: a model in GGUF terms: metadata keys, and tensors by name; and the reader of GGUF v2 and
 * v3 files, which are untrusted (format: github.com/ggml-org/ggml, docs/gguf.md; little-endian
 * only). Models of other formats are translated to the same terms (gguf_open_translated,
 * model_file.h).
 *
 * The file is mapped, not copied. Every count is bounded by the remaining bytes before an
 * allocation; every offset is checked against the file; strings and arrays are borrowed views. An
 * error is one line with the defect and its offset. A split model (`NAME-00001-of-00003.gguf`,
 * split.count) is opened by its first part.
 *
 * Read-only after gguf_open: any thread. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "format/qtype.h"
#include "os/mapfile.h"

enum { GGUF_PATH_MAX = 4096 };

enum gguf_kind { /* values of the file format */
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
            enum gguf_kind kind; /* kind of the elements; never ARR */
            uint64_t n;
            const uint8_t *data; /* packed and unaligned, in the file format */
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
    int n_dims;          /* 1..4 */
    uint64_t dims[4];    /* dims[0] is the row length (ggml order); 1 beyond n_dims */
    const uint8_t *data; /* NULL: gguf_read_rows computes the bytes from `recipe` */
    uint64_t bytes;
    const void *recipe;
};

struct gguf;

/* ERR_NOT_FOUND, ERR_IO; ERR_CORRUPT (damaged or hostile), ERR_UNSUPPORTED (an unknown version,
 * byte order or tensor type), ERR_TOO_LARGE (counts beyond any real model), ERR_MEMORY. */
int gguf_open(struct gguf **out, const char *path, struct err *e);
/* The same from memory, which must outlive g. A part of a split model is rejected. */
int gguf_open_bytes(struct gguf **out, const uint8_t *p, size_t n, struct err *e);
void gguf_close(struct gguf *g); /* accepts NULL */
/* A reference for another owner: each owner calls gguf_close, and the file stays mapped until the
 * last one has. Any thread. */
struct gguf *gguf_retain(const struct gguf *g);

struct gguf_file { /* file of a translated model */
    char *path;    /* heap */
    struct mapfile map;
};

/* A model of another format in GGUF terms. All memory is of the heap and is moved into the
 * struct gguf. */
struct gguf_translation {
    uint8_t *keys; /* a GGUF file with metadata and without tensors (gguf_keys.h) */
    size_t n_key_bytes;
    struct gguf_file *files; /* all files that were read, at least one */
    size_t n_files;
    struct gguf_tensor *tensors; /* data is in a file, or recipe is set */
    size_t n_tensors;
    void *recipes;
    void (*free_recipes)(void *recipes);
    /* Checks the values of the sources of a tensor. Any thread. ERR_CORRUPT. */
    int (*check)(const struct gguf_tensor *t, struct err *e);
    /* Writes n rows of a tensor, from row `first` on, in the format of its type. Any thread. */
    void (*read_rows)(const struct gguf_tensor *t, uint64_t first, uint64_t n, uint8_t *to);
    /* Returns the pages of the sources of a tensor to the system, by gguf_release. */
    void (*release)(const struct gguf *g, const struct gguf_tensor *t);
};

/* Takes *take, on failure too, and leaves it empty. */
int gguf_open_translated(struct gguf **out, struct gguf_translation *take, struct err *e);
void gguf_translation_clear(struct gguf_translation *t);

uint32_t gguf_version(const struct gguf *g);
bool gguf_is_translated(const struct gguf *g); /* not from a GGUF file */
size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
uint64_t gguf_file_bytes(const struct gguf *g); /* all parts */
size_t gguf_n_parts(const struct gguf *g);      /* 1 unless the model is split */
/* Identity and path of a file of the model; NULL: not opened from a file. */
const struct file_id *gguf_part_id(const struct gguf *g, size_t i);
const char *gguf_part_path(const struct gguf *g, size_t i);
bool gguf_is_lost(const struct gguf *g);         /* a file was truncated or could not be read */
bool gguf_is_unchanged(const struct gguf *g);    /* the files on disk are those that were opened */
const char *gguf_kind_name(enum gguf_kind kind); /* "u32", "str", "arr" ... */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL: absent */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Typed reads: true if the key is present and its kind converts without loss; otherwise *out is
 * unchanged, so it can contain the default. */
bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out);
bool gguf_get_f64(const struct gguf *g, const char *key, double *out);
bool gguf_get_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_get_str(const struct gguf *g, const char *key, struct str *out);

/* Iterates over an array of strings; `at` starts at 0 and is the state of the iteration. False at
 * the end, and immediately if it is not an array of strings. The next two functions also return
 * false beyond the end. */
bool gguf_arr_next_str(const struct gguf_value *arr, uint64_t *at, struct str *out);
bool gguf_arr_i64(const struct gguf_value *arr, uint64_t i, int64_t *out);
bool gguf_arr_f64(const struct gguf_value *arr, uint64_t i, double *out);

/* Checks the values of a tensor without data, such as NaN among its scales, which would spread to
 * all outputs. Reads all scales. Any thread. ERR_CORRUPT. */
int gguf_check_rows(const struct gguf *g, const struct gguf_tensor *t, struct err *e);
/* Writes n rows of a tensor without data, from row `first` on; rows are counted over all dimensions
 * above the first. Any thread. */
void gguf_read_rows(
    const struct gguf *g, const struct gguf_tensor *t, uint64_t first, uint64_t n, uint8_t *to);
/* Returns the pages of a tensor that has been packed to the system. */
void gguf_tensor_release(const struct gguf *g, const struct gguf_tensor *t);
/* The same for bytes of a file of the model. */
void gguf_release(const struct gguf *g, const uint8_t *p, uint64_t n);
