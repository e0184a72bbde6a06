/* token_kit.h: vocabularies of byte strings, and masks by their definition, for tests of
 * src/constrain.
 *
 * Owner: the test. */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "constrain/acceptor.h"
#include "constrain/vocab/vocab_tables.h"
#include "support/check.h"

struct token_kit {
    struct str *tokens;
    char (*text)[16]; /* text of random tokens */
    int32_t n, end;   /* `end`: the end token; -1: none */
};

static inline struct str token_kit_bytes(const void *ctx, int32_t id)
{
    const struct token_kit *k = ctx;

    return id == k->end ? STR_NONE : k->tokens[id];
}

static inline bool token_kit_is_end(const void *ctx, int32_t id)
{
    return id == ((const struct token_kit *)ctx)->end;
}

static inline struct token_source token_kit_source(const struct token_kit *k)
{
    return (struct token_source){ k, k->n, token_kit_bytes, token_kit_is_end };
}

/* n tokens of 0 to 8 letters; the last one is the end token. If has_bytes, the first 256 are the
 * bytes. */
static inline struct token_kit token_kit_random(
    int32_t n, const char *letters, bool has_bytes, uint64_t seed)
{
    struct rng r = { .key = seed };
    struct token_kit k = { .n = n, .end = n - 1 };
    size_t n_letters = strlen(letters);

    k.tokens = xcalloc((size_t)n, sizeof(*k.tokens));
    k.text = xcalloc((size_t)n, sizeof(*k.text));
    for (int32_t id = 0; id < n; id++) {
        size_t length = has_bytes && id < 256 ? 1 : rng_below(&r, 9);
        for (size_t c = 0; c < length; c++)
            k.text[id][c] = letters[rng_below(&r, n_letters)];
        if (has_bytes && id < 256)
            k.text[id][0] = (char)id;
        k.tokens[id] = (struct str){ k.text[id], length };
    }
    return k;
}

static inline void token_kit_clear(struct token_kit *k)
{
    mem_free(k->tokens);
    mem_free(k->text);
    *k = (struct token_kit){ 0 };
}

static inline struct vocab_tables *token_kit_tables(const struct token_source *src)
{
    struct vocab_tables *t = NULL;
    struct err e = { 0 };

    if (vocab_tables_new(&t, src, &e))
        fprintf(stderr, "%s\n", e.msg);
    EXPECT(t != NULL);
    return t;
}

/* The definition of a mask: each token alone, byte by byte. */
static inline bool token_kit_permits(
    const struct token_source *src, struct acceptor *a, pos_id p, int32_t id)
{
    struct str bytes = src->bytes(src->ctx, id);
    uint32_t mark = a->ops->mark(a);
    pos_id q = bytes.n ? p : POS_DEAD;

    if (src->is_end(src->ctx, id))
        return a->ops->accepts(a, p);
    for (size_t k = 0; k < bytes.n && q.i; k++)
        q = a->ops->step(a, q, (uint8_t)bytes.p[k]);
    if (!q.i && a->ops->step_token)
        q = a->ops->step_token(a, p, id);
    a->ops->release(a, mark);
    return q.i != 0;
}
