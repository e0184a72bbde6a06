/* gguf_write.c: gguf.c describes the layout. The file is written as PATH.part and renamed, so that
 * no reader sees an incomplete file. */
#include "testing/gguf_write.h"
#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { MAX_HEADER = 1 << 30 };

struct gguf_writer {
    struct buf kv, tensors; /* records in file format */
    uint64_t n_kv, n_tensors;
    uint32_t alignment;
    bool is_impossible; /* a tensor has an impossible shape */
    uint64_t *ends;     /* end of each tensor, from the start of the data, without padding */
    uint64_t next;      /* start of the next tensor */
    /* state of the file */
    char *path, *part;
    FILE *f;
    uint64_t at;     /* bytes of data written, including padding */
    uint64_t filled; /* number of complete tensors */
};

struct gguf_writer *gguf_writer_new(uint32_t alignment)
{
    struct gguf_writer *w = try_calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    w->alignment = alignment ? alignment : 32;
    buf_init(&w->kv, MAX_HEADER);
    buf_init(&w->tensors, MAX_HEADER);
    if (alignment)
        gguf_put_u32(w, "general.alignment", alignment);
    return w;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    if (w->f) {
        fclose(w->f);
        unlink(w->part);
    }
    mem_free(w->path);
    mem_free(w->part);
    mem_free(w->ends);
    buf_clear(&w->kv);
    buf_clear(&w->tensors);
    mem_free(w);
}

/* ---- records */

static void append_uint(struct buf *b, uint64_t v, size_t n)
{
    uint8_t le[8];

    for (size_t i = 0; i < n; i++)
        le[i] = (uint8_t)(v >> 8 * i);
    buf_put(b, le, n);
}

static void append_string(struct buf *b, struct str s)
{
    append_uint(b, s.n, 8);
    buf_puts(b, s);
}

static void append_key(struct gguf_writer *w, struct str key, enum gguf_kind kind)
{
    append_string(&w->kv, key);
    append_uint(&w->kv, (uint64_t)kind, 4);
    w->n_kv++;
}

static void append_number(
    struct gguf_writer *w, const char *key, enum gguf_kind kind, uint64_t v, size_t n)
{
    append_key(w, str_of(key), kind);
    append_uint(&w->kv, v, n);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    append_number(w, key, GGUF_U32, v, 4);
}

void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v)
{
    append_number(w, key, GGUF_U64, v, 8);
}

void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v)
{
    append_number(w, key, GGUF_I32, (uint32_t)v, 4);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, 4);
    append_number(w, key, GGUF_F32, bits, 4);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    append_number(w, key, GGUF_BOOL, v, 1);
}

void gguf_put_str(struct gguf_writer *w, const char *key, struct str v)
{
    append_key(w, str_of(key), GGUF_STR);
    append_string(&w->kv, v);
}

static size_t kind_size(enum gguf_kind kind)
{
    switch (kind) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_BOOL:
        return 1;
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    case GGUF_STR:
    case GGUF_ARR:
        break;
    }
    return 0;
}

static void append_array_head(
    struct gguf_writer *w, struct str key, enum gguf_kind kind, uint64_t n)
{
    append_key(w, key, GGUF_ARR);
    append_uint(&w->kv, (uint64_t)kind, 4);
    append_uint(&w->kv, n, 8);
}

void gguf_put_arr(
    struct gguf_writer *w, const char *key, enum gguf_kind kind, const void *p, size_t n)
{
    CHECK(kind_size(kind));
    append_array_head(w, str_of(key), kind, n);
    buf_put(&w->kv, p, n * kind_size(kind));
}

void gguf_put_strs(struct gguf_writer *w, const char *key, const struct str *v, size_t n)
{
    append_array_head(w, str_of(key), GGUF_STR, n);
    for (size_t i = 0; i < n; i++)
        append_string(&w->kv, v[i]);
}

void gguf_put_value(struct gguf_writer *w, struct str key, const struct gguf_value *v)
{
    uint64_t bits = v->u;

    if (v->kind == GGUF_ARR) {
        append_array_head(w, key, v->arr.kind, v->arr.n);
        buf_put(&w->kv, v->arr.data, (size_t)v->arr.bytes);
        return;
    }
    append_key(w, key, v->kind);
    if (v->kind == GGUF_STR) {
        append_string(&w->kv, v->s);
        return;
    }
    if (v->kind == GGUF_F32) {
        float f = (float)v->f;
        bits = 0;
        memcpy(&bits, &f, 4);
    }
    append_uint(&w->kv, bits, kind_size(v->kind));
}

static uint64_t align_up(const struct gguf_writer *w, uint64_t n)
{
    return (n + w->alignment - 1) / w->alignment * w->alignment;
}

uint64_t gguf_put_tensor(
    struct gguf_writer *w, struct str name, enum qtype type, int n_dims, const uint64_t *dims)
{
    uint64_t rows = 1, row = 0, bytes = 0;
    bool is_valid = n_dims >= 1 && n_dims <= 4 && qtype_bytes(type, dims[0], &row);

    for (int i = 1; is_valid && i < n_dims; i++)
        is_valid = dims[i] && !__builtin_mul_overflow(rows, dims[i], &rows);
    is_valid = is_valid && row && !__builtin_mul_overflow(row, rows, &bytes) &&
               bytes < INT64_MAX - w->next;
    uint64_t *ends = is_valid ? try_realloc(w->ends, (w->n_tensors + 1) * sizeof(*ends)) : NULL;
    if (!ends) {
        w->is_impossible |= !is_valid;
        w->tensors.failed = true;
        return 0;
    }
    w->ends = ends;
    append_string(&w->tensors, name);
    append_uint(&w->tensors, (uint64_t)n_dims, 4);
    for (int i = 0; i < n_dims; i++)
        append_uint(&w->tensors, dims[i], 8);
    append_uint(&w->tensors, (uint64_t)type, 4);
    append_uint(&w->tensors, w->next, 8);
    ends[w->n_tensors++] = w->next + bytes;
    w->next = align_up(w, w->next + bytes);
    return bytes;
}

int gguf_writer_header(struct gguf_writer *w, struct buf *out, struct err *e)
{
    static const char zeros[64];

    if (w->is_impossible)
        return err_set(e, ERR_INVALID, "a tensor has an invalid shape");
    buf_put(out, "GGUF", 4);
    append_uint(out, 3, 4);
    append_uint(out, w->n_tensors, 8);
    append_uint(out, w->n_kv, 8);
    buf_puts(out, buf_str(&w->kv));
    buf_puts(out, buf_str(&w->tensors));
    for (uint64_t pad = align_up(w, out->n) - out->n; pad;) {
        size_t n = (size_t)MIN(pad, sizeof(zeros));
        buf_put(out, zeros, n);
        pad -= n;
    }
    if (!buf_ok(&w->kv) || !buf_ok(&w->tensors) || !buf_ok(out))
        return err_set(e, ERR_MEMORY, "no memory for the header");
    return 0;
}

uint64_t gguf_writer_data_bytes(const struct gguf_writer *w)
{
    return w->next;
}

/* ---- the file */

static int write_failed(struct gguf_writer *w, struct err *e)
{
    return err_set(e, ERR_IO, "%s: %s", w->part, strerror(errno));
}

int gguf_writer_open(struct gguf_writer *w, const char *path, struct err *e)
{
    struct buf head;
    size_t n = strlen(path);
    int rc = -1;

    CHECK(!w->f);
    buf_init(&head, MAX_HEADER);
    w->path = xstrdup(path);
    w->part = xmalloc(n + sizeof(".part"));
    memcpy(w->part, path, n);
    memcpy(w->part + n, ".part", sizeof(".part"));
    if (gguf_writer_header(w, &head, e))
        goto out;
    w->f = fopen(w->part, "wb");
    if (!w->f || fwrite(head.p, 1, head.n, w->f) != head.n) {
        write_failed(w, e);
        goto out;
    }
    rc = 0;
out:
    buf_clear(&head);
    return rc;
}

/* Writes the padding after each complete tensor. */
static int write_padding(struct gguf_writer *w, struct err *e)
{
    while (w->filled < w->n_tensors && w->at == w->ends[w->filled]) {
        for (uint64_t end = align_up(w, w->at); w->at < end; w->at++)
            if (putc(0, w->f) == EOF)
                return write_failed(w, e);
        w->filled++;
    }
    return 0;
}

int gguf_writer_data(struct gguf_writer *w, const void *p, size_t n, struct err *e)
{
    const uint8_t *bytes = p;

    CHECK(w->f);
    while (n) {
        if (w->filled == w->n_tensors)
            return err_set(e, ERR_INVALID, "%s: more data than declared", w->path);
        size_t now = (size_t)MIN(n, w->ends[w->filled] - w->at);
        if (fault_hit(FAULT_WRITE) ? (errno = EIO) : fwrite(bytes, 1, now, w->f) != now)
            return write_failed(w, e);
        w->at += now;
        bytes += now;
        n -= now;
        if (write_padding(w, e))
            return -1;
    }
    return 0;
}

int gguf_writer_finish(struct gguf_writer *w, struct err *e)
{
    CHECK(w->f);
    if (w->filled != w->n_tensors)
        return err_set(e, ERR_INVALID, "%s: only %llu of %llu tensors were written", w->path,
            (unsigned long long)w->filled, (unsigned long long)w->n_tensors);
    FILE *f = w->f;
    w->f = NULL;
    if (fclose(f) || rename(w->part, w->path)) {
        write_failed(w, e);
        unlink(w->part);
        return -1;
    }
    return 0;
}
