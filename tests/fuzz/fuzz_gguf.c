/* Fuzzes GGUF files: a file is rejected with an error, or all its views are inside the file, it
 * can be described, and its vocabulary, if any, encodes and decodes. */
#include "base/mem.h"
#include "format/describe.h"
#include "tokenizer/vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t touch(const void *p, uint64_t n)
{
    const uint8_t *bytes = p;
    uint64_t sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += bytes[i];
    return sum;
}

static uint64_t read_all_views(const struct gguf *g, const uint8_t *data, size_t n)
{
    uint64_t sum = 0, total = 0;

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        struct str s;
        uint64_t at = 0;
        double f;
        CHECK(gguf_kv_at(g, i)->key.n > 0);
        sum += touch(kv->key.p, kv->key.n);
        if (kv->value.kind == GGUF_STR)
            sum += touch(kv->value.s.p, kv->value.s.n);
        while (gguf_arr_next_str(&kv->value, &at, &s))
            sum += touch(s.p, s.n);
        for (uint64_t k = 0; kv->value.kind == GGUF_ARR && k < kv->value.arr.n; k++)
            sum += gguf_arr_f64(&kv->value, k, &f);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        CHECK(t->data >= data && t->bytes <= (size_t)(data + n - t->data));
        sum += touch(t->data, t->bytes);
        total += t->bytes;
        gguf_tensor_release(g, t);
    }
    CHECK(total <= n); /* tensors do not overlap */
    return sum;
}

static void use_vocabulary(const struct gguf *g)
{
    static const struct span spans[] = { { { "<|im_start|>user\nHello  w\xC3\xB6rld 123", 33 },
                                             true },
        { { "'s <s> \xFF\xF0\x9F\x98\x80\n\n</s>", 18 }, false } };
    struct vocab *v;
    struct err e;
    struct detok d = { 0 };
    struct buf out;

    if (vocab_open(&v, g, &e)) {
        CHECK(e.msg[0]);
        return;
    }
    struct tokens t = { .arena = arena_new(MB) };
    CHECK(t.arena);
    CHECK(vocab_encode(v, spans, 2, true, &t, &e) == 0);
    buf_init(&out, 64 * MB);
    for (size_t i = 0; i < t.n; i++) {
        CHECK(t.ids[i] >= 0 && t.ids[i] < vocab_n_tokens(v));
        detok_put(&d, v, t.ids[i], true, &out);
        CHECK(vocab_text(v, t.ids[i]).p);
    }
    detok_end(&d, &out);
    for (int32_t i = 0; i < vocab_n_tokens(v); i++)
        (void)touch(vocab_bytes(v, i).p, vocab_bytes(v, i).n);
    buf_clear(&out);
    arena_free(t.arena);
    vocab_close(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct gguf *g;
    struct err e = { 0 };
    struct buf out;

    if (gguf_open_bytes(&g, data, n, &e)) {
        CHECK(e.code != ERR_NONE && e.msg[0] && !strchr(e.msg, '\n'));
        return 0;
    }
    (void)read_all_views(g, data, n);
    buf_init(&out, 16 * MB);
    gguf_describe(g, &(struct gguf_facts){ 0 }, false, &out);
    gguf_describe(g, &(struct gguf_facts){ .kv_bytes_per_token = 1 }, true, &out);
    buf_clear(&out);
    use_vocabulary(g);
    gguf_close(g);
    return 0;
}
