#include "format/gguf_keys.h"

#include <stdio.h>

enum { HEADER_BYTES = 24, KEYS_MAX = 1 << 30 };

static void put_u32(struct gguf_keys *k, uint32_t v)
{
    buf_put(&k->b, &v, sizeof(v));
}

static void put_u64(struct gguf_keys *k, uint64_t v)
{
    buf_put(&k->b, &v, sizeof(v));
}

void gguf_keys_init(struct gguf_keys *k)
{
    *k = (struct gguf_keys){ .arch = "" };
    buf_init(&k->b, KEYS_MAX);
    buf_put(&k->b, (const char[HEADER_BYTES]){ 0 }, HEADER_BYTES);
}

void gguf_keys_clear(struct gguf_keys *k)
{
    buf_clear(&k->b);
}

static void begin_value(struct gguf_keys *k, const char *key, enum gguf_kind kind)
{
    char name[128];
    int n = snprintf(name, sizeof(name), "%s%s", *key == '.' ? k->arch : "", key);

    CHECK(n > 0 && n < (int)sizeof(name));
    gguf_keys_item(k, (struct str){ name, (size_t)n });
    put_u32(k, kind);
    k->n++;
}

void gguf_keys_u32(struct gguf_keys *k, const char *key, uint32_t v)
{
    begin_value(k, key, GGUF_U32);
    put_u32(k, v);
}

void gguf_keys_f32(struct gguf_keys *k, const char *key, float v)
{
    begin_value(k, key, GGUF_F32);
    buf_put(&k->b, &v, sizeof(v));
}

void gguf_keys_bool(struct gguf_keys *k, const char *key, bool v)
{
    begin_value(k, key, GGUF_BOOL);
    buf_putc(&k->b, v);
}

void gguf_keys_str(struct gguf_keys *k, const char *key, struct str v)
{
    begin_value(k, key, GGUF_STR);
    gguf_keys_item(k, v);
}

void gguf_keys_arr(struct gguf_keys *k, const char *key, enum gguf_kind kind, uint64_t n)
{
    begin_value(k, key, GGUF_ARR);
    put_u32(k, kind);
    put_u64(k, n);
}

void gguf_keys_item(struct gguf_keys *k, struct str s)
{
    put_u64(k, s.n);
    buf_puts(&k->b, s);
}

int gguf_keys_end(struct gguf_keys *k, uint8_t **bytes, size_t *n, struct err *e)
{
    static const uint32_t version = 3;

    if (!buf_ok(&k->b))
        return err_set(e, ERR_MEMORY, "no memory for the metadata of a model");
    memcpy(k->b.p, "GGUF", 4);
    memcpy(k->b.p + 4, &version, 4);
    memcpy(k->b.p + 16, &k->n, 8);
    struct str all = buf_steal(&k->b);
    *bytes = (uint8_t *)(uintptr_t)all.p;
    *n = all.n;
    return 0;
}
