/* gguf_value.c: conversion of metadata values to the types of the callers (gguf.h). Any thread. */
#include "format/cursor.h"
#include "format/gguf.h"

bool gguf_get_f64(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_value *v = gguf_find(g, key);
    uint64_t u;

    if (v && (v->kind == GGUF_F32 || v->kind == GGUF_F64)) {
        *out = v->f;
        return true;
    }
    if (!gguf_get_u64(g, key, &u) || u > (1ull << 53))
        return false;
    *out = (double)u;
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_value *v = gguf_find(g, key);

    if (!v || v->kind != GGUF_BOOL)
        return false;
    *out = v->u != 0;
    return true;
}

bool gguf_get_str(const struct gguf *g, const char *key, struct str *out)
{
    const struct gguf_value *v = gguf_find(g, key);

    if (!v || v->kind != GGUF_STR)
        return false;
    *out = v->s;
    return true;
}

bool gguf_arr_next_str(const struct gguf_value *arr, uint64_t *at, struct str *out)
{
    if (arr->kind != GGUF_ARR || arr->arr.kind != GGUF_STR || *at >= arr->arr.bytes)
        return false;
    struct cursor c = { .p = arr->arr.data, .n = (size_t)arr->arr.bytes, .at = (size_t)*at };
    *out = cursor_str(&c);
    *at = c.at;
    return !c.failed;
}

/* Raw bits of element i of an array of numbers. */
static bool element_bits(const struct gguf_value *arr, uint64_t i, size_t size, uint64_t *bits)
{
    if (i >= arr->arr.n)
        return false;
    struct cursor c = { .p = arr->arr.data, .n = (size_t)arr->arr.bytes };
    c.at = (size_t)i * size;
    *bits = cursor_uint(&c, size);
    return !c.failed;
}

bool gguf_arr_i64(const struct gguf_value *arr, uint64_t i, int64_t *out)
{
    uint64_t bits;

    if (arr->kind != GGUF_ARR)
        return false;
    switch (arr->arr.kind) {
    case GGUF_BOOL:
    case GGUF_U8:
        return element_bits(arr, i, 1, &bits) && (*out = (int64_t)bits, true);
    case GGUF_I8:
        return element_bits(arr, i, 1, &bits) && (*out = (int8_t)bits, true);
    case GGUF_U16:
        return element_bits(arr, i, 2, &bits) && (*out = (int64_t)bits, true);
    case GGUF_I16:
        return element_bits(arr, i, 2, &bits) && (*out = (int16_t)bits, true);
    case GGUF_U32:
        return element_bits(arr, i, 4, &bits) && (*out = (int64_t)bits, true);
    case GGUF_I32:
        return element_bits(arr, i, 4, &bits) && (*out = (int32_t)bits, true);
    case GGUF_U64:
        return element_bits(arr, i, 8, &bits) && bits <= INT64_MAX && (*out = (int64_t)bits, true);
    case GGUF_I64:
        return element_bits(arr, i, 8, &bits) && (*out = (int64_t)bits, true);
    case GGUF_F32:
    case GGUF_F64:
    case GGUF_STR:
    case GGUF_ARR:
        break;
    }
    return false;
}

bool gguf_arr_f64(const struct gguf_value *arr, uint64_t i, double *out)
{
    uint64_t bits;
    int64_t n;

    if (arr->kind == GGUF_ARR && arr->arr.kind == GGUF_F32 && element_bits(arr, i, 4, &bits)) {
        uint32_t bits32 = (uint32_t)bits;
        float f;
        memcpy(&f, &bits32, 4);
        *out = (double)f;
        return true;
    }
    if (arr->kind == GGUF_ARR && arr->arr.kind == GGUF_F64 && element_bits(arr, i, 8, &bits)) {
        memcpy(out, &bits, 8);
        return true;
    }
    if (!gguf_arr_i64(arr, i, &n) || n > (1ll << 53) || n < -(1ll << 53))
        return false;
    *out = (double)n;
    return true;
}
