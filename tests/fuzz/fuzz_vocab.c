/* Fuzzes the tokenizers: decoding returns the bytes, cuts into spans change nothing, and
 * untrusted bytes never become a control token.
 *
 * Input: byte 0 selects the vocabulary, byte 1 the trust and the cuts, the rest is the text. */
#include "base/mem.h"
#include "base/utf8.h"
#include "testing/gguf_write.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/vocab.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const pres[] = { "gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder",
    "smollm", "default", "" /* SPM */ };

static const char *const merges[] = { "a b", "ab c", "e r", "h e", "\xC4\xA0 h", "\xC4\xA0h e",
    "\xC4\xA0 \xC4\xA0", "1 2", "12 3", "< |", "\xC3\x83 \xC2\xA9" };
static const char *const pieces[] = { "ab", "abc", "er", "he", "\xC4\xA0h", "\xC4\xA0he",
    "\xC4\xA0\xC4\xA0", "12", "123", "<|", "\xC3\x83\xC2\xA9" };
static const char *const spm_pieces[] = { "\xE2\x96\x81", "h", "e", "he", "\xE2\x96\x81h",
    "\xE2\x96\x81he", "\xE2\x96\x81\xE2\x96\x81", "\xC3\xA9", "a", "b", "ab" };

static struct vocab *make_vocab(const char *pre)
{
    static char bytes[256][8];
    struct str tokens[300], pairs[ARRAY_LEN(merges)];
    int32_t types[300];
    float scores[300] = { 0 };
    size_t n = 0;
    struct gguf_writer *w = gguf_writer_new(0);
    struct gguf *g;
    struct vocab *v = NULL;
    struct err e;
    struct buf b;

    CHECK(w);
    for (int i = 0; i < 256; i++, n++) {
        if (*pre)
            bytes[i][bytelevel_encode((uint8_t)i, bytes[i])] = '\0';
        else
            snprintf(bytes[i], sizeof(bytes[i]), "<0x%02X>", (unsigned)i);
        tokens[n] = str_of(bytes[i]);
        types[n] = *pre ? TOKEN_NORMAL : TOKEN_BYTE;
    }
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++, n++) {
        tokens[n] = str_of(*pre ? pieces[i] : spm_pieces[i]);
        types[n] = TOKEN_NORMAL;
        scores[n] = -(float)((i * 7) % 11);
        pairs[i] = str_of(merges[i]);
    }
    tokens[n] = STR("<|x|>");
    types[n++] = TOKEN_CONTROL;
    tokens[n] = STR("<tool>");
    types[n++] = TOKEN_USER_DEFINED;
    tokens[n] = STR("\n\n");
    types[n++] = TOKEN_USER_DEFINED;
    gguf_put_str(w, "tokenizer.ggml.model", *pre ? STR("gpt2") : STR("llama"));
    gguf_put_str(w, "tokenizer.ggml.pre", str_of(pre));
    gguf_put_strs(w, "tokenizer.ggml.tokens", tokens, n);
    gguf_put_arr(w, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    gguf_put_arr(w, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    gguf_put_strs(w, "tokenizer.ggml.merges", pairs, ARRAY_LEN(pairs));
    buf_init(&b, MB);
    CHECK(gguf_writer_header(w, &b, &e) == 0);
    CHECK(gguf_open_bytes(&g, (uint8_t *)b.p, b.n, &e) == 0);
    CHECK(vocab_open(&v, g, &e) == 0);
    gguf_close(g);
    gguf_writer_free(w);
    buf_clear(&b);
    return v;
}

static struct tokens encode(const struct vocab *v, const struct span *spans, size_t n)
{
    struct tokens t = { .arena = arena_new(64 * MB) };
    struct err e;

    CHECK(t.arena && vocab_encode(v, spans, n, false, &t, &e) == 0);
    return t;
}

/* Checks the streamed text, and that it consists of whole characters. */
static void check_text(const struct vocab *v, const struct tokens *t, struct str text)
{
    struct detok d = { 0 };
    struct buf out;

    buf_init(&out, 64 * MB);
    for (size_t i = 0; i < t->n; i++) {
        size_t before = out.n;
        detok_put(&d, v, t->ids[i], true, &out);
        CHECK(utf8_valid(str_skip(buf_str(&out), before)));
    }
    detok_end(&d, &out);
    CHECK(buf_ok(&out) && utf8_valid(buf_str(&out)));
    if (utf8_valid(text))
        CHECK(str_eq(buf_str(&out), text));
    buf_clear(&out);
}

static void check_bytes(const struct vocab *v, const struct tokens *t, struct str text)
{
    for (size_t i = 0; i < t->n; i++) {
        struct str s = vocab_bytes(v, t->ids[i]);
        CHECK(str_starts(text, s));
        text = str_skip(text, s.n);
    }
    CHECK(text.n == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct vocab *vocabs[ARRAY_LEN(pres)];

    if (n < 2)
        return 0;
    size_t which = data[0] % ARRAY_LEN(pres);
    bool is_bpe = *pres[which] != '\0';
    if (!vocabs[which])
        vocabs[which] = make_vocab(pres[which]);
    const struct vocab *v = vocabs[which];
    struct str text = { (const char *)data + 2, n - 2 };
    size_t cut = data[1] % (text.n + 1);
    struct span whole = { text, false };
    struct span cuts[] = { { { text.p, cut }, false }, { str_skip(text, cut), false } };
    struct span trusted[] = { { { text.p, cut }, true }, { str_skip(text, cut), false } };

    struct tokens a = encode(v, &whole, 1), b = encode(v, cuts, 2), c = encode(v, trusted, 2);
    CHECK(a.n == b.n && (a.n == 0 || !memcmp(a.ids, b.ids, a.n * sizeof(*a.ids))));
    for (size_t i = 0; i < a.n; i++)
        CHECK(vocab_attr(v, a.ids[i]) != TOKEN_CONTROL);
    check_text(v, &a, text);
    if (is_bpe) { /* SPM inserts blanks at the beginning and after special tokens */
        check_bytes(v, &a, text);
        check_bytes(v, &c, text);
        check_text(v, &c, text);
    }
    arena_free(a.arena);
    arena_free(b.arena);
    arena_free(c.arena);
    return 0;
}
