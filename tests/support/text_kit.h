/* text_kit.h: vocabularies for tests: opened from files, or small ones made by the test. */
#pragma once

#include "support/check.h"

#include "base/mem.h"
#include "testing/gguf_write.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>

/* Path of a file below the shared test data; returns false, with a message, if it is missing. */
static inline bool kit_data_path(char out[512], const char *name)
{
    const char *dir = getenv("SHARED_DATA");
    FILE *f;

    snprintf(out, 512, "%s/%s", dir && *dir ? dir : "../shared/data", name);
    f = fopen(out, "rb");
    if (!f) {
        printf("skipped: no %s\n", out);
        return false;
    }
    fclose(f);
    return true;
}

/* Reads a whole file; the caller frees p. */
static inline struct str kit_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *p = NULL;
    size_t n = 0, got;

    EXPECT(f);
    do {
        p = xrealloc(p, n + 65536);
        got = fread(p + n, 1, 65536, f);
        n += got;
    } while (got);
    fclose(f);
    return (struct str){ p, n };
}

static inline struct vocab *kit_open_vocab(const char *path)
{
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, &e) || vocab_open(&v, g, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(v);
    gguf_close(g);
    return v;
}

/* ---- made by the test */

enum { KIT_MAX = 600 };

struct kit_vocab {
    struct str tokens[KIT_MAX];
    int32_t types[KIT_MAX];
    float scores[KIT_MAX];
    struct str merges[KIT_MAX];
    char bytes[256][8];
    size_t n, n_merges;
};

static inline int32_t kit_add_token(struct kit_vocab *k, const char *text, enum token_attr type)
{
    EXPECT(k->n < KIT_MAX);
    k->tokens[k->n] = str_of(text);
    k->types[k->n] = (int32_t)type;
    return (int32_t)k->n++;
}

static inline int32_t kit_add_scored(struct kit_vocab *k, const char *text, float score)
{
    k->scores[k->n] = score;
    return kit_add_token(k, text, TOKEN_NORMAL);
}

/* Adds the merge "l o" and its result "lo" as a token. */
static inline void kit_add_merge(struct kit_vocab *k, const char *pair, const char *token)
{
    k->merges[k->n_merges++] = str_of(pair);
    if (token)
        kit_add_token(k, token, TOKEN_NORMAL);
}

/* Adds the 256 bytes as byte-level BPE tokens (ids 0..255) or as byte tokens of SPM. */
static inline void kit_add_bytes(struct kit_vocab *k, bool bpe)
{
    for (int b = 0; b < 256; b++) {
        if (bpe)
            k->bytes[b][bytelevel_encode((uint8_t)b, k->bytes[b])] = '\0';
        else
            snprintf(k->bytes[b], sizeof(k->bytes[b]), "<0x%02X>", (unsigned)b);
        kit_add_token(k, k->bytes[b], bpe ? TOKEN_NORMAL : TOKEN_BYTE);
    }
}

/* Opens the vocabulary. w may contain other keys, or be NULL; it is freed. */
static inline int kit_make_vocab(struct vocab **out, const struct kit_vocab *k, const char *model,
    struct gguf_writer *w, struct err *e)
{
    struct gguf *g = NULL;
    struct buf b;

    buf_init(&b, 64 * MB);
    gguf_put_str(w, "tokenizer.ggml.model", str_of(model));
    gguf_put_strs(w, "tokenizer.ggml.tokens", k->tokens, k->n);
    gguf_put_arr(w, "tokenizer.ggml.token_type", GGUF_I32, k->types, k->n);
    gguf_put_arr(w, "tokenizer.ggml.scores", GGUF_F32, k->scores, k->n);
    gguf_put_strs(w, "tokenizer.ggml.merges", k->merges, k->n_merges);
    int rc = gguf_writer_header(w, &b, e);
    gguf_writer_free(w);
    rc = rc ? rc : gguf_open_bytes(&g, (const uint8_t *)b.p, b.n, e);
    rc = rc ? rc : vocab_open(out, g, e);
    gguf_close(g);
    buf_clear(&b); /* the vocabulary does not refer to it */
    return rc;
}

/* ---- encoding */

static inline struct tokens kit_encode_spans(
    const struct vocab *v, const struct span *s, size_t n, bool with_bos)
{
    struct tokens t = { .arena = arena_new(256 * MB) };
    struct err e = { 0 };

    if (vocab_encode(v, s, n, with_bos, &t, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(e.code == ERR_NONE);
    return t;
}

static inline struct tokens kit_encode(const struct vocab *v, struct str text, bool is_trusted)
{
    return kit_encode_spans(v, &(struct span){ text, is_trusted }, 1, false);
}

static inline void kit_free_tokens(struct tokens *t)
{
    arena_free(t->arena);
    *t = (struct tokens){ 0 };
}

/* Decodes with the streaming detokenizer, token by token. The caller clears the buffer. */
static inline struct buf kit_decode(const struct vocab *v, const int32_t *ids, size_t n)
{
    struct detok d = { 0 };
    struct buf out;

    buf_init(&out, 64 * MB);
    for (size_t i = 0; i < n; i++)
        detok_put(&d, v, ids[i], true, &out);
    detok_end(&d, &out);
    EXPECT(buf_ok(&out));
    return out;
}
