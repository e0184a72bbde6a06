#include "format/safetensors.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/cursor.h"

#include <stdlib.h>

enum {
    HEADER_MAX = 100 * 1000 * 1000, /* bytes; limit of the format */
    TREE_MAX = 1 << 30,             /* bytes of the parsed header */
    TENSORS_MAX = 1 << 18,          /* real files have fewer than 100,000 */
    NAME_MAX_BYTES = 255,
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[N_ST_DTYPES] = {
    [ST_BOOL] = { "BOOL", 1 },
    [ST_U8] = { "U8", 1 },
    [ST_I8] = { "I8", 1 },
    [ST_F8_E5M2] = { "F8_E5M2", 1 },
    [ST_F8_E4M3] = { "F8_E4M3", 1 },
    [ST_F8_E8M0] = { "F8_E8M0", 1 },
    [ST_I16] = { "I16", 2 },
    [ST_U16] = { "U16", 2 },
    [ST_F16] = { "F16", 2 },
    [ST_BF16] = { "BF16", 2 },
    [ST_I32] = { "I32", 4 },
    [ST_U32] = { "U32", 4 },
    [ST_F32] = { "F32", 4 },
    [ST_F64] = { "F64", 8 },
    [ST_I64] = { "I64", 8 },
    [ST_U64] = { "U64", 8 },
};

const char *st_dtype_name(enum st_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t st_dtype_bytes(enum st_dtype dtype)
{
    return dtypes[dtype].bytes;
}

#define SHORT_ARG(s) (int)MIN((s).n, (size_t)64), (s).p

/* Source text of a value for an error message of one line. */
#define RAW_ARG(j) (int)MIN((j)->raw.n, (size_t)24), utf8_is_printable((j)->raw) ? (j)->raw.p : "?"

static bool json_u64(const struct json *j, uint64_t *out)
{
    return j && j->kind == JSON_NUMBER && j->is_int && str_to_u64(j->s, out);
}

static int read_dtype(struct st_tensor *t, const struct json *j, struct err *e)
{
    if (!j || j->kind != JSON_STRING)
        return err_set(e, ERR_CORRUPT, "tensor %.*s: dtype is not a string", SHORT_ARG(t->name));
    for (int i = 0; i < N_ST_DTYPES; i++)
        if (str_is(j->s, dtypes[i].name)) {
            t->dtype = (enum st_dtype)i;
            return 0;
        }
    return err_set(e, ERR_UNSUPPORTED, "tensor %.*s has the unknown type %.*s", SHORT_ARG(t->name),
        RAW_ARG(j));
}

/* Sets bytes to the size of type and shape. */
static int read_shape(struct st_tensor *t, const struct json *j, struct err *e)
{
    if (!j || j->kind != JSON_ARRAY)
        return err_set(e, ERR_CORRUPT, "tensor %.*s: shape is not an array", SHORT_ARG(t->name));
    if (j->n > ST_DIMS_MAX)
        return err_set(e, ERR_UNSUPPORTED, "tensor %.*s has %u dimensions, supported are up to %d",
            SHORT_ARG(t->name), j->n, ST_DIMS_MAX);
    t->bytes = dtypes[t->dtype].bytes;
    for (int i = 0; i < ST_DIMS_MAX; i++)
        t->dims[i] = 1;
    for (const struct json *d = j->child; d; d = d->next) {
        uint64_t *dim = &t->dims[t->n_dims++];
        if (!json_u64(d, dim) || *dim > INT64_MAX ||
            __builtin_mul_overflow(t->bytes, *dim, &t->bytes))
            return err_set(e, ERR_CORRUPT, "tensor %.*s: invalid dimension %.*s",
                SHORT_ARG(t->name), RAW_ARG(d));
    }
    return 0;
}

static int read_offsets(struct st_tensor *t, const struct json *j, struct str data, struct err *e)
{
    uint64_t begin, end;

    if (!j || j->kind != JSON_ARRAY || j->n != 2 || !json_u64(j->child, &begin) ||
        !json_u64(j->child->next, &end))
        return err_set(
            e, ERR_CORRUPT, "tensor %.*s: data_offsets are not two numbers", SHORT_ARG(t->name));
    if (begin > end || end > data.n)
        return err_set(e, ERR_CORRUPT,
            "tensor %.*s: bytes %llu to %llu are not in the file, which has %zu bytes of data",
            SHORT_ARG(t->name), (unsigned long long)begin, (unsigned long long)end, data.n);
    if (end - begin != t->bytes)
        return err_set(e, ERR_CORRUPT,
            "tensor %.*s has %llu bytes, its type and shape require %llu", SHORT_ARG(t->name),
            (unsigned long long)(end - begin), (unsigned long long)t->bytes);
    t->data = (const uint8_t *)data.p + begin;
    return 0;
}

static int read_tensor(struct st_tensor *t, const struct json *j, struct str data, struct err *e)
{
    t->name = j->key;
    if (!t->name.n || t->name.n > NAME_MAX_BYTES || !utf8_is_printable(t->name))
        return err_set(
            e, ERR_CORRUPT, "the name of a tensor is empty, too long or not printable UTF-8");
    if (j->kind != JSON_OBJECT)
        return err_set(e, ERR_CORRUPT, "tensor %.*s is not an object", SHORT_ARG(t->name));
    return read_dtype(t, json_get(j, "dtype"), e) || read_shape(t, json_get(j, "shape"), e) ||
                   read_offsets(t, json_get(j, "data_offsets"), data, e)
               ? -1
               : 0;
}

static int compare_data(const void *a, const void *b)
{
    const struct st_tensor *const *x = a, *const *y = b;

    if ((*x)->data != (*y)->data)
        return (*x)->data > (*y)->data ? 1 : -1;
    return ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes);
}

/* The tensors fill the data: overlapping ones would allow a small file to require any amount of
 * packed memory, and gaps may contain anything. */
static int check_contiguous(const struct safetensors *s, struct str data, struct err *e)
{
    const struct st_tensor **order = try_malloc(MAX(s->n, (size_t)1) * sizeof(*order));
    const uint8_t *at = (const uint8_t *)data.p;
    int rc = 0;

    if (!order)
        return err_set(e, ERR_MEMORY, "no memory for %zu tensors", s->n);
    for (size_t i = 0; i < s->n; i++)
        order[i] = &s->tensors[i];
    qsort(order, s->n, sizeof(*order), compare_data);
    for (size_t i = 0; i < s->n && !rc; i++) {
        if (order[i]->data != at)
            rc = err_set(e, ERR_CORRUPT, "tensor %.*s begins at byte %llu, %s %llu",
                SHORT_ARG(order[i]->name),
                (unsigned long long)(order[i]->data - (const uint8_t *)data.p),
                order[i]->data < at ? "inside a tensor that ends at" : "after a gap from",
                (unsigned long long)(at - (const uint8_t *)data.p));
        at = order[i]->data + order[i]->bytes;
    }
    mem_free(order);
    if (!rc && at != (const uint8_t *)data.p + data.n)
        rc = err_set(e, ERR_CORRUPT, "the tensors end at byte %llu, the data has %zu bytes",
            (unsigned long long)(at - (const uint8_t *)data.p), data.n);
    return rc;
}

static int read_tensors(
    struct safetensors *s, const struct json *header, struct str data, struct err *e)
{
    struct str_map *names = str_map_new(header->n);
    int rc = 0;

    s->arena = arena_new(TREE_MAX);
    if (s->arena)
        s->tensors = arena_zalloc(s->arena, MAX(header->n, 1u), sizeof(*s->tensors));
    if (!names || !s->tensors)
        rc = err_set(e, ERR_MEMORY, "no memory for %u tensors", header->n);
    for (const struct json *j = header->child; j && !rc; j = j->next) {
        struct st_tensor *t = &s->tensors[s->n];
        if (str_is(j->key, "__metadata__"))
            continue;
        rc = read_tensor(t, j, data, e);
        t->name = rc ? STR_NONE : arena_str(s->arena, t->name);
        if (!rc && !t->name.p)
            rc = err_set(e, ERR_MEMORY, "no memory for the tensor names");
        int n_inserted = rc ? 1 : str_map_put(names, t->name, (uint32_t)s->n);
        if (n_inserted == 0)
            rc = err_set(e, ERR_CORRUPT, "tensor %.*s is duplicated", SHORT_ARG(t->name));
        else if (n_inserted < 0)
            rc = err_set(e, ERR_MEMORY, "no memory for the tensor names");
        s->n++;
    }
    str_map_free(names);
    return rc ? rc : check_contiguous(s, data, e);
}

/* Divides the file into header text and data. */
static int split_file(struct str file, struct str *text, struct str *data, struct err *e)
{
    struct cursor c = { .p = (const uint8_t *)file.p, .n = file.n };
    uint64_t n = cursor_u64(&c);

    if (c.failed)
        return err_set(e, ERR_CORRUPT, "the file has %zu bytes: no safetensors header", file.n);
    if (n > HEADER_MAX)
        return err_set(e, ERR_TOO_LARGE, "a header of %llu bytes, supported are up to %d",
            (unsigned long long)n, HEADER_MAX);
    if (n > cursor_left(&c))
        return err_set(e, ERR_CORRUPT, "a header of %llu bytes in a file of %zu bytes",
            (unsigned long long)n, file.n);
    *text = (struct str){ file.p + 8, (size_t)n };
    *data = str_skip(file, 8 + (size_t)n);
    return 0;
}

int safetensors_read(struct safetensors *s, struct str file, struct err *e)
{
    static const struct json_limits limits = { 8, 1 << 23 };
    struct str text, data;
    struct json *header;
    int rc = -1;

    *s = (struct safetensors){ 0 };
    if (split_file(file, &text, &data, e))
        return -1;
    struct arena *tree = arena_new(TREE_MAX); /* freed at once: a model may have many files */
    if (!tree)
        return err_set(e, ERR_MEMORY, "no memory for the header");
    if (json_parse(&header, text, tree, &limits, e))
        err_wrap(e, "header");
    else if (header->kind != JSON_OBJECT || header->n > TENSORS_MAX)
        err_set(e, ERR_CORRUPT, "the header is not an object of up to %d tensors", TENSORS_MAX);
    else
        rc = read_tensors(s, header, data, e);
    arena_free(tree);
    if (rc)
        safetensors_clear(s);
    return rc;
}

void safetensors_clear(struct safetensors *s)
{
    arena_free(s->arena);
    *s = (struct safetensors){ 0 };
}
