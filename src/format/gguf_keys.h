/* gguf_keys.h: writer of metadata in the encoding of GGUF v3, in memory: for models of other
 * formats, whose properties are translated to GGUF keys.
 *
 * Puts do not fail one by one: gguf_keys_end reports the error. Keys are distinct; the caller takes
 * care of that. Owner: one thread at a time. */
#pragma once

#include "base/buf.h"
#include "format/gguf.h"

struct gguf_keys {
    struct buf b;
    uint64_t n;
    const char *arch; /* prefix of keys that begin with a dot */
};

void gguf_keys_init(struct gguf_keys *k);
void gguf_keys_clear(struct gguf_keys *k);

void gguf_keys_u32(struct gguf_keys *k, const char *key, uint32_t v);
void gguf_keys_f32(struct gguf_keys *k, const char *key, float v);
void gguf_keys_bool(struct gguf_keys *k, const char *key, bool v);
void gguf_keys_str(struct gguf_keys *k, const char *key, struct str v);
/* An array of n elements; the elements follow: strings by gguf_keys_item, others by buf_put. */
void gguf_keys_arr(struct gguf_keys *k, const char *key, enum gguf_kind kind, uint64_t n);
void gguf_keys_item(struct gguf_keys *k, struct str s);

/* Completes the header and moves the bytes out. ERR_MEMORY. */
int gguf_keys_end(struct gguf_keys *k, uint8_t **bytes, size_t *n, struct err *e);
