/* gguf.c: opens a GGUF file and validates everything except the weights.
 *
 *     "GGUF" | u32 version | u64 n_tensors | u64 n_kv
 *     n_kv       x  str key | u32 kind | value           an array: u32 kind | u64 n | elements
 *     n_tensors  x  str name | u32 n_dims | u64 dims[] | u32 type | u64 offset
 *     padding to `alignment`, then the tensor data; offsets are relative to its start
 *
 * After gguf_open every returned view is inside the mapping, tensors are disjoint, and every value
 * matches its kind: readers need no further checks. */
#include "format/gguf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/cursor.h"
#include "os/mapfile.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_KV = 1 << 16,      /* real files have fewer than 100 */
    MAX_TENSORS = 1 << 18, /* real models have fewer than 10,000 in all parts */
    MAX_PARTS = 4096,
    MAX_KEY = 65535, /* bytes; limit of the format */
    MAX_NAME = 255,  /* the format specifies 64; some converters write more */
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 16,
    KV_MIN_BYTES = 8 + 1 + 4 + 1, /* a one-byte key with a one-byte value */
    TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
};

struct gguf_part {
    struct mapfile map; /* empty if the bytes are borrowed */
    char *path;         /* NULL if the bytes are borrowed */
    struct cursor c;    /* cursor in the mapped file or, in a translated model, in its keys */
    uint32_t version;
    struct gguf_kv *kv;
    size_t n_kv;
    struct str_map *keys;
    uint64_t n_tensors;
    size_t first_tensor; /* index of this part's first tensor in g->tensors */
};

struct gguf {
    struct gguf_part *parts;
    size_t n_parts;
    /* tensors of all parts; data contains the offset until the part is checked */
    struct gguf_tensor *tensors;
    size_t n_tensors;
    struct str_map *names;
    atomic_int n_owners;
    bool is_translated;
    struct gguf_translation from; /* keys and recipes of a translated model */
};

static const uint8_t kind_bytes[] = {
    [GGUF_U8] = 1,
    [GGUF_I8] = 1,
    [GGUF_U16] = 2,
    [GGUF_I16] = 2,
    [GGUF_U32] = 4,
    [GGUF_I32] = 4,
    [GGUF_F32] = 4,
    [GGUF_BOOL] = 1,
    [GGUF_STR] = 0,
    [GGUF_ARR] = 0,
    [GGUF_U64] = 8,
    [GGUF_I64] = 8,
    [GGUF_F64] = 8,
};

static const char *const kind_names[] = {
    [GGUF_U8] = "u8",
    [GGUF_I8] = "i8",
    [GGUF_U16] = "u16",
    [GGUF_I16] = "i16",
    [GGUF_U32] = "u32",
    [GGUF_I32] = "i32",
    [GGUF_F32] = "f32",
    [GGUF_BOOL] = "bool",
    [GGUF_STR] = "str",
    [GGUF_ARR] = "arr",
    [GGUF_U64] = "u64",
    [GGUF_I64] = "i64",
    [GGUF_F64] = "f64",
};

const char *gguf_kind_name(enum gguf_kind kind)
{
    return (size_t)kind < ARRAY_LEN(kind_names) ? kind_names[kind] : "unknown";
}

#define SHORT_ARG(s) (int)MIN((s).n, (size_t)64), (s).p

/* ---- metadata */

static int64_t sign_extend(uint64_t v, size_t bytes)
{
    unsigned shift = 64 - 8 * (unsigned)bytes;

    return (int64_t)(v << shift) >> shift;
}

static void set_number(struct gguf_value *v, uint64_t raw)
{
    uint32_t raw32 = (uint32_t)raw;
    float f32;

    switch (v->kind) {
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        v->i = sign_extend(raw, kind_bytes[v->kind]);
        return;
    case GGUF_F32:
        memcpy(&f32, &raw32, 4);
        v->f = (double)f32;
        return;
    case GGUF_F64:
        memcpy(&v->f, &raw, 8);
        return;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
    case GGUF_BOOL:
        v->u = raw;
        return;
    case GGUF_STR:
    case GGUF_ARR:
        break;
    }
    CHECK(!"a number's kind");
}

static int read_array(struct cursor *c, struct gguf_value *v, struct str key, struct err *e)
{
    size_t start = c->at;
    uint32_t kind = cursor_u32(c);

    v->arr.n = cursor_u64(c);
    if (!c->failed && (kind >= ARRAY_LEN(kind_bytes) || kind == GGUF_ARR))
        return err_set(e, ERR_CORRUPT, "offset %zu: key %.*s is an array of kind %u, which %s",
            start, SHORT_ARG(key), kind, kind == GGUF_ARR ? "is not supported" : "does not exist");
    v->arr.kind = (enum gguf_kind)kind;
    v->arr.data = c->p + c->at;
    size_t left = cursor_left(c), from = c->at;
    uint64_t least = c->failed ? 1 : kind_bytes[kind] ? kind_bytes[kind] : 8;
    if (v->arr.n > left / least || c->failed)
        return err_set(e, ERR_CORRUPT, "offset %zu: key %.*s: an array of %llu in %zu bytes", start,
            SHORT_ARG(key), (unsigned long long)v->arr.n, left);
    if (kind_bytes[kind])
        (void)cursor_take(c, v->arr.n * kind_bytes[kind]);
    for (uint64_t i = 0; !kind_bytes[kind] && i < v->arr.n; i++) {
        (void)cursor_str(c);
        if (c->failed)
            return err_set(e, ERR_CORRUPT,
                "offset %zu: key %.*s: string %llu of the array extends beyond the file", c->at,
                SHORT_ARG(key), (unsigned long long)i);
    }
    v->arr.bytes = c->at - from;
    for (uint64_t i = 0; kind == GGUF_BOOL && i < v->arr.n; i++)
        if (v->arr.data[i] > 1)
            return err_set(e, ERR_CORRUPT, "offset %llu: key %.*s: %u is not a boolean",
                (unsigned long long)(from + i), SHORT_ARG(key), v->arr.data[i]);
    return 0;
}

static int read_value(struct cursor *c, struct gguf_value *v, struct str key, struct err *e)
{
    size_t start = c->at;
    uint32_t kind = cursor_u32(c);

    if (!c->failed && kind >= ARRAY_LEN(kind_bytes))
        return err_set(e, ERR_CORRUPT, "offset %zu: key %.*s has kind %u, which does not exist",
            start, SHORT_ARG(key), kind);
    v->kind = (enum gguf_kind)kind;
    if (kind == GGUF_ARR && !c->failed)
        return read_array(c, v, key, e);
    if (kind == GGUF_STR)
        v->s = cursor_str(c);
    else if (!c->failed)
        set_number(v, cursor_uint(c, kind_bytes[kind]));
    if (c->failed)
        return err_set(e, ERR_CORRUPT, "offset %zu: the value of key %.*s extends beyond the file",
            start, SHORT_ARG(key));
    if (kind == GGUF_BOOL && v->u > 1)
        return err_set(e, ERR_CORRUPT, "offset %zu: key %.*s: %u is not a boolean", start + 4,
            SHORT_ARG(key), (unsigned)v->u);
    return 0;
}

static int read_kv(struct gguf_part *p, size_t i, struct err *e)
{
    struct cursor *c = &p->c;
    size_t start = c->at;
    struct gguf_kv *kv = &p->kv[i];

    kv->key = cursor_str(c);
    if (c->failed)
        return err_set(e, ERR_CORRUPT, "offset %zu: key %zu extends beyond the file", start, i);
    if (!kv->key.n || kv->key.n > MAX_KEY || !utf8_is_printable(kv->key))
        return err_set(e, ERR_CORRUPT,
            "offset %zu: key %zu is empty, too long or not printable UTF-8", start, i);
    if (read_value(c, &kv->value, kv->key, e))
        return -1;
    int n_inserted = str_map_put(p->keys, kv->key, (uint32_t)i);
    if (n_inserted == 0)
        return err_set(
            e, ERR_CORRUPT, "offset %zu: key %.*s is duplicated", start, SHORT_ARG(kv->key));
    return n_inserted < 0 ? err_set(e, ERR_MEMORY, "no memory for %zu keys", p->n_kv) : 0;
}

static const struct gguf_value *part_find(const struct gguf_part *p, const char *key)
{
    uint32_t i;

    return str_map_get(p->keys, str_of(key), &i) ? &p->kv[i].value : NULL;
}

static bool value_to_u64(const struct gguf_value *v, uint64_t *out)
{
    if (!v)
        return false;
    switch (v->kind) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        *out = v->u;
        return true;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        if (v->i < 0)
            return false;
        *out = (uint64_t)v->i;
        return true;
    default:
        return false;
    }
}

/* ---- tensors */

/* Reads one record; data contains the offset until the whole part has been read. */
static int read_tensor(struct cursor *c, struct gguf_tensor *t, struct err *e)
{
    size_t start = c->at;
    uint64_t row, n = 1;

    t->name = cursor_str(c);
    uint32_t n_dims = cursor_u32(c);
    if (c->failed)
        return err_set(
            e, ERR_CORRUPT, "offset %zu: a tensor record extends beyond the file", start);
    if (!t->name.n || t->name.n > MAX_NAME || !utf8_is_printable(t->name))
        return err_set(e, ERR_CORRUPT,
            "offset %zu: the name of a tensor is empty, too long or not printable UTF-8", start);
    if (n_dims < 1 || n_dims > 4)
        return err_set(e, ERR_CORRUPT, "offset %zu: tensor %.*s has %u dimensions", start,
            SHORT_ARG(t->name), n_dims);
    t->n_dims = (int)n_dims;
    bool is_valid = true;
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = i < n_dims ? cursor_u64(c) : 1;
        is_valid &=
            t->dims[i] > 0 && t->dims[i] <= INT64_MAX && !__builtin_mul_overflow(n, t->dims[i], &n);
    }
    uint32_t type = cursor_u32(c);
    t->data = (const uint8_t *)(uintptr_t)cursor_u64(c);
    if (c->failed)
        return err_set(e, ERR_CORRUPT,
            "offset %zu: the record of tensor %.*s extends beyond the file", start,
            SHORT_ARG(t->name));
    if (!is_valid)
        return err_set(e, ERR_CORRUPT, "offset %zu: tensor %.*s: invalid dimensions", start,
            SHORT_ARG(t->name));
    if (!qtype_info(type) || !qtype_info(type)->is_ggml)
        return err_set(e, ERR_UNSUPPORTED, "offset %zu: tensor %.*s has the unknown type %u", start,
            SHORT_ARG(t->name), type);
    t->type = (enum qtype)type;
    if (!qtype_bytes(t->type, t->dims[0], &row) ||
        __builtin_mul_overflow(row, n / t->dims[0], &t->bytes))
        return err_set(e, ERR_CORRUPT, "offset %zu: tensor %.*s: rows of %llu do not fit type %s",
            start, SHORT_ARG(t->name), (unsigned long long)t->dims[0], qtype_info(type)->name);
    return 0;
}

static int compare_data(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;

    return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

/* Overlapping tensors would allow a small file to require any amount of packed memory. */
static int check_disjoint(struct gguf_tensor *t, size_t n, struct err *e)
{
    struct gguf_tensor **order = try_malloc(n * sizeof(struct gguf_tensor *));
    int rc = 0;

    if (!order)
        return err_set(e, ERR_MEMORY, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        order[i] = &t[i];
    qsort(order, n, sizeof(struct gguf_tensor *), compare_data);
    for (size_t i = 1; i < n && !rc; i++)
        if ((uint64_t)(order[i]->data - order[i - 1]->data) < order[i - 1]->bytes)
            rc = err_set(e, ERR_CORRUPT, "tensors %.*s and %.*s overlap",
                SHORT_ARG(order[i - 1]->name), SHORT_ARG(order[i]->name));
    mem_free(order);
    return rc;
}

static int part_alignment(const struct gguf_part *p, uint64_t *out, struct err *e)
{
    const struct gguf_value *v = part_find(p, "general.alignment");

    *out = 32;
    if (v && (!value_to_u64(v, out) || *out < MIN_ALIGNMENT || *out > MAX_ALIGNMENT ||
                 (*out & (*out - 1))))
        return err_set(e, ERR_CORRUPT, "general.alignment is not a power of two from %d to %d",
            MIN_ALIGNMENT, MAX_ALIGNMENT);
    return 0;
}

/* After all records: converts offsets to addresses and checks them against the file. */
static int place_tensors(struct gguf *g, struct gguf_part *p, struct err *e)
{
    struct gguf_tensor *t = g->tensors + p->first_tensor;
    uint64_t align, start;

    if (part_alignment(p, &align, e))
        return -1;
    if (!p->n_tensors)
        return 0;
    start = (p->c.at + align - 1) & ~(align - 1);
    if (start > p->c.n)
        return err_set(e, ERR_CORRUPT, "offset %zu: the file ends before the tensor data", p->c.at);
    for (size_t i = 0; i < p->n_tensors; i++) {
        uint64_t off = (uintptr_t)t[i].data, room = p->c.n - start;
        if (off % align)
            return err_set(e, ERR_CORRUPT,
                "tensor %.*s starts at %llu, which is not aligned to %llu", SHORT_ARG(t[i].name),
                (unsigned long long)off, (unsigned long long)align);
        if (off > room || t[i].bytes > room - off)
            return err_set(e, ERR_CORRUPT,
                "tensor %.*s: %llu bytes at %llu extend beyond the file of %zu bytes: the file is "
                "truncated or damaged",
                SHORT_ARG(t[i].name), (unsigned long long)t[i].bytes,
                (unsigned long long)(start + (off > room ? room : off)), p->c.n);
        t[i].data = p->c.p + start + off;
    }
    return check_disjoint(t, p->n_tensors, e);
}

static int read_tensors(struct gguf *g, struct gguf_part *p, struct err *e)
{
    struct cursor *c = &p->c;

    p->first_tensor = g->n_tensors;
    if (p->n_tensors > MAX_TENSORS - g->n_tensors)
        return err_set(e, ERR_TOO_LARGE, "offset 8: more than %d tensors", MAX_TENSORS);
    if (p->n_tensors > cursor_left(c) / TENSOR_MIN_BYTES)
        return err_set(e, ERR_CORRUPT, "offset 8: %llu tensors in %zu bytes",
            (unsigned long long)p->n_tensors, cursor_left(c));
    struct gguf_tensor *more =
        try_realloc(g->tensors, (g->n_tensors + (size_t)p->n_tensors) * sizeof(*more));
    if (!more)
        return err_set(
            e, ERR_MEMORY, "no memory for %llu tensors", (unsigned long long)p->n_tensors);
    g->tensors = more;
    for (size_t i = 0; i < p->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[g->n_tensors];
        size_t start = c->at;
        if (read_tensor(c, t, e))
            return -1;
        int n_inserted = str_map_put(g->names, t->name, (uint32_t)g->n_tensors);
        if (n_inserted == 0)
            return err_set(
                e, ERR_CORRUPT, "offset %zu: tensor %.*s is duplicated", start, SHORT_ARG(t->name));
        if (n_inserted < 0)
            return err_set(e, ERR_MEMORY, "no memory for the tensor names");
        g->n_tensors++;
    }
    return place_tensors(g, p, e);
}

/* ---- a part */

static int read_magic(struct gguf_part *p, struct err *e)
{
    struct cursor *c = &p->c;
    const uint8_t *magic = cursor_take(c, 4);

    if (!magic || memcmp(magic, "GGUF", 4))
        return err_set(e, ERR_CORRUPT, "offset 0: not a GGUF file%s",
            magic && (!memcmp(magic, "tjgg", 4) || !memcmp(magic, "lmgg", 4))
                ? " (an older ggml format: convert the file)"
                : "");
    p->version = cursor_u32(c);
    if (c->failed)
        return err_set(e, ERR_CORRUPT, "offset 4: the file ends in the header");
    if (p->version && !(p->version & 0xFFFF))
        return err_set(e, ERR_UNSUPPORTED,
            "offset 4: a big-endian GGUF file; only little-endian files are supported");
    if (p->version != 2 && p->version != 3)
        return err_set(e, ERR_UNSUPPORTED,
            "offset 4: GGUF version %u; versions 2 and 3 are supported", p->version);
    return 0;
}

static int read_part(struct gguf *g, struct gguf_part *p, struct err *e)
{
    struct cursor *c = &p->c;

    if (read_magic(p, e))
        return -1;
    p->n_tensors = cursor_u64(c);
    uint64_t n_kv = cursor_u64(c);
    if (c->failed)
        return err_set(e, ERR_CORRUPT, "offset 8: the file ends in the header");
    if (n_kv > cursor_left(c) / KV_MIN_BYTES)
        return err_set(e, ERR_CORRUPT, "offset 16: %llu keys in %zu bytes",
            (unsigned long long)n_kv, cursor_left(c));
    if (n_kv > MAX_KV)
        return err_set(e, ERR_TOO_LARGE, "offset 16: more than %d keys", MAX_KV);
    p->kv = try_calloc((size_t)n_kv, sizeof(*p->kv));
    p->keys = str_map_new((size_t)n_kv);
    if (!p->kv || !p->keys)
        return err_set(e, ERR_MEMORY, "no memory for %llu keys", (unsigned long long)n_kv);
    for (p->n_kv = 0; p->n_kv < n_kv; p->n_kv++)
        if (read_kv(p, p->n_kv, e))
            return -1;
    return read_tensors(g, p, e);
}

/* ---- split models: NAME-00001-of-00003.gguf */

static uint64_t split_count(const struct gguf_part *p)
{
    uint64_t n = 1;

    (void)value_to_u64(part_find(p, "split.count"), &n);
    return n;
}

static int split_path(
    char out[GGUF_PATH_MAX], const char *first, size_t i, uint64_t count, struct err *e)
{
    char tail[64];
    size_t n = strlen(first);

    snprintf(tail, sizeof(tail), "-00001-of-%05llu.gguf", (unsigned long long)count);
    size_t n_tail = strlen(tail);
    if (n < n_tail || n >= GGUF_PATH_MAX || strcmp(first + n - n_tail, tail))
        return err_set(e, ERR_INVALID,
            "a model in %llu parts: the name of the first part must end with %s",
            (unsigned long long)count, tail);
    snprintf(out, GGUF_PATH_MAX, "%.*s-%05zu-of-%05llu.gguf", (int)(n - n_tail), first, i + 1,
        (unsigned long long)count);
    return 0;
}

static bool same_model(const struct gguf_part *a, const struct gguf_part *b)
{
    static const char *const keys[] = { "general.architecture", "general.name",
        "split.tensors.count" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct gguf_value *x = part_find(a, keys[i]), *y = part_find(b, keys[i]);
        uint64_t u = 0, v = 0;
        if (!x || !y)
            continue; /* later parts usually contain only the split.* keys */
        if (x->kind == GGUF_STR ? y->kind != GGUF_STR || !str_eq(x->s, y->s)
                                : !value_to_u64(x, &u) || !value_to_u64(y, &v) || u != v)
            return false;
    }
    return true;
}

static int open_part(struct gguf *g, size_t i, const char *path, struct err *e)
{
    struct gguf_part *p = &g->parts[i];

    if (mapfile_open(&p->map, path, e))
        return -1;
    p->c = (struct cursor){ .p = p->map.p, .n = p->map.n };
    g->n_parts = i + 1;
    p->path = try_malloc(strlen(path) + 1);
    if (!p->path)
        return err_set(e, ERR_MEMORY, "%.120s: no memory to open the file", path);
    memcpy(p->path, path, strlen(path) + 1);
    if (read_part(g, p, e))
        return err_wrap(e, "%.120s", path);
    uint64_t no = 0;
    (void)value_to_u64(part_find(p, "split.no"), &no);
    if (split_count(p) > 1 && no != i)
        return err_set(e, ERR_INVALID, "%.120s: part %llu of a split model, expected part %zu",
            path, (unsigned long long)no + 1, i + 1);
    if (i > 0 && (split_count(p) != split_count(&g->parts[0]) || !same_model(&g->parts[0], p)))
        return err_set(e, ERR_CORRUPT, "%.120s: not a part of the same model", path);
    return 0;
}

static int open_other_parts(struct gguf *g, const char *path, struct err *e)
{
    uint64_t count = split_count(&g->parts[0]), total = 0;
    char part[GGUF_PATH_MAX];

    if (count < 2)
        return 0;
    if (count > MAX_PARTS)
        return err_set(e, ERR_TOO_LARGE, "%.120s: a model in %llu parts is not supported", path,
            (unsigned long long)count);
    struct gguf_part *parts = try_realloc(g->parts, (size_t)count * sizeof(*parts));
    if (!parts)
        return err_set(e, ERR_MEMORY, "no memory for %llu parts", (unsigned long long)count);
    memset(parts + 1, 0, (size_t)(count - 1) * sizeof(*parts));
    g->parts = parts;
    for (size_t i = 1; i < count; i++) {
        if (split_path(part, path, i, count, e))
            return err_wrap(e, "%.120s", path);
        if (open_part(g, i, part, e))
            return -1;
    }
    if (value_to_u64(part_find(&g->parts[0], "split.tensors.count"), &total) &&
        total != g->n_tensors)
        return err_set(e, ERR_CORRUPT, "%.120s: the parts contain %zu tensors, expected %llu", path,
            g->n_tensors, (unsigned long long)total);
    return 0;
}

/* ---- opening and closing */

static struct gguf *gguf_new(void)
{
    struct gguf *g = try_calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    atomic_init(&g->n_owners, 1);
    g->parts = try_calloc(1, sizeof(*g->parts));
    g->names = str_map_new(256);
    if (!g->parts || !g->names) {
        gguf_close(g);
        return NULL;
    }
    return g;
}

int gguf_open(struct gguf **out, const char *path, struct err *e)
{
    struct gguf *g = gguf_new();

    if (!g)
        return err_set(e, ERR_MEMORY, "%.120s: no memory to open the file", path);
    if (open_part(g, 0, path, e) || open_other_parts(g, path, e)) {
        gguf_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

int gguf_open_bytes(struct gguf **out, const uint8_t *p, size_t n, struct err *e)
{
    struct gguf *g = gguf_new();

    if (!g)
        return err_set(e, ERR_MEMORY, "no memory to open a model");
    g->n_parts = 1;
    g->parts[0].c = (struct cursor){ .p = p, .n = n };
    int rc = read_part(g, &g->parts[0], e);
    if (!rc && split_count(&g->parts[0]) > 1)
        rc = err_set(e, ERR_INVALID, "a part of a split model cannot be opened from memory");
    if (rc) {
        gguf_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

struct gguf *gguf_retain(const struct gguf *g)
{
    struct gguf *owned = (struct gguf *)(uintptr_t)g;

    atomic_fetch_add_explicit(&owned->n_owners, 1, memory_order_relaxed);
    return owned;
}

void gguf_translation_clear(struct gguf_translation *t)
{
    for (size_t i = 0; i < t->n_files; i++) {
        mem_free(t->files[i].path);
        mapfile_close(&t->files[i].map);
    }
    mem_free(t->files);
    mem_free(t->tensors);
    mem_free(t->keys);
    if (t->recipes)
        t->free_recipes(t->recipes);
    *t = (struct gguf_translation){ 0 };
}

/* Moves the files and tensors to g. */
static int take_translation(struct gguf *g, struct gguf_translation *t, struct err *e)
{
    struct gguf_part *parts = try_realloc(g->parts, t->n_files * sizeof(*parts));

    CHECK(t->n_files > 0);
    if (!parts)
        return err_set(e, ERR_MEMORY, "no memory for %zu files", t->n_files);
    g->parts = parts;
    memset(parts, 0, t->n_files * sizeof(*parts));
    for (size_t i = 0; i < t->n_files; i++)
        parts[i] = (struct gguf_part){ .map = t->files[i].map, .path = t->files[i].path };
    g->n_parts = t->n_files;
    t->n_files = 0;
    g->from = *t;
    *t = (struct gguf_translation){ 0 };
    parts[0].c = (struct cursor){ .p = g->from.keys, .n = g->from.n_key_bytes };
    if (read_part(g, &parts[0], e))
        return -1;
    CHECK(!g->n_tensors);
    mem_free(g->tensors);
    g->tensors = g->from.tensors;
    g->n_tensors = g->from.n_tensors;
    g->from.tensors = NULL;
    for (size_t i = 0; i < g->n_tensors; i++) {
        int n_inserted = str_map_put(g->names, g->tensors[i].name, (uint32_t)i);
        CHECK(n_inserted);
        if (n_inserted < 0)
            return err_set(e, ERR_MEMORY, "no memory for the tensor names");
    }
    return 0;
}

int gguf_open_translated(struct gguf **out, struct gguf_translation *take, struct err *e)
{
    struct gguf *g = gguf_new();
    int rc = g ? 0 : err_set(e, ERR_MEMORY, "no memory to open a model");

    if (g)
        g->is_translated = true;
    if (rc || take_translation(g, take, e)) {
        gguf_translation_clear(take);
        gguf_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

void gguf_close(struct gguf *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->n_owners, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < g->n_parts; i++) {
        mem_free(g->parts[i].kv);
        str_map_free(g->parts[i].keys);
        mem_free(g->parts[i].path);
        mapfile_close(&g->parts[i].map);
    }
    gguf_translation_clear(&g->from);
    str_map_free(g->names);
    mem_free(g->tensors);
    mem_free(g->parts);
    mem_free(g);
}

/* ---- reading */

uint32_t gguf_version(const struct gguf *g)
{
    return g->parts[0].version;
}

bool gguf_is_translated(const struct gguf *g)
{
    return g->is_translated;
}

size_t gguf_n_parts(const struct gguf *g)
{
    return g->n_parts;
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->parts[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    CHECK(i < g->parts[0].n_kv);
    return &g->parts[0].kv[i];
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    CHECK(i < g->n_tensors);
    return &g->tensors[i];
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t n = 0;

    for (size_t i = 0; i < g->n_parts; i++)
        n += g->is_translated ? g->parts[i].map.n : g->parts[i].c.n;
    return n;
}

const struct file_id *gguf_part_id(const struct gguf *g, size_t i)
{
    CHECK(i < g->n_parts);
    return g->parts[i].path ? &g->parts[i].map.id : NULL;
}

const char *gguf_part_path(const struct gguf *g, size_t i)
{
    CHECK(i < g->n_parts);
    return g->parts[i].path;
}

bool gguf_is_lost(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_parts; i++)
        if (mapfile_is_lost(&g->parts[i].map))
            return true;
    return false;
}

bool gguf_is_unchanged(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_parts; i++)
        if (!g->parts[i].path || !mapfile_is_unchanged(&g->parts[i].map, g->parts[i].path))
            return false;
    return true;
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    return part_find(&g->parts[0], key);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    uint32_t i;

    return str_map_get(g->names, str_of(name), &i) ? &g->tensors[i] : NULL;
}

bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out)
{
    return value_to_u64(gguf_find(g, key), out);
}

/* NULL: the data is not of a file. */
static const struct mapfile *map_of(const struct gguf *g, const uint8_t *data)
{
    for (size_t i = 0; i < g->n_parts; i++) {
        const struct mapfile *map = &g->parts[i].map;
        if (map->p && data >= map->p && data < map->p + map->n)
            return map;
    }
    return NULL;
}

int gguf_check_rows(const struct gguf *g, const struct gguf_tensor *t, struct err *e)
{
    return g->from.check(t, e);
}

void gguf_read_rows(
    const struct gguf *g, const struct gguf_tensor *t, uint64_t first, uint64_t n, uint8_t *to)
{
    CHECK(!t->data && t->recipe);
    g->from.read_rows(t, first, n, to);
}

void gguf_release(const struct gguf *g, const uint8_t *data, uint64_t n)
{
    const struct mapfile *map = map_of(g, data);

    if (map)
        mapfile_dontneed(map, (size_t)(data - map->p), (size_t)n);
}

void gguf_tensor_release(const struct gguf *g, const struct gguf_tensor *t)
{
    if (t->data)
        gguf_release(g, t->data, t->bytes);
    else
        g->from.release(g, t);
}
