#include "engine/spec/ngram.h"

#include "base/hash.h"

#include <string.h>

size_t ngram_slots(int n_tokens, size_t most)
{
    size_t n = 16;

    while (n < 2 * (size_t)n_tokens && n < most)
        n *= 2;
    return n;
}

void ngram_init(struct ngram *g, uint32_t *slots, size_t n_slots)
{
    CHECK(n_slots && !(n_slots & (n_slots - 1)));
    memset(slots, 0, n_slots * sizeof(*slots));
    *g = (struct ngram){ slots, (uint32_t)(n_slots - 1), 0 };
}

static uint32_t *slot_of(const struct ngram *g, const int32_t *end, int len)
{
    uint64_t h = (uint64_t)len;

    for (int i = 1; i <= len; i++)
        h = hash_step(h, (uint32_t)end[-i]);
    return &g->slots[(uint32_t)(h >> 32) & g->mask];
}

void ngram_add(struct ngram *g, const int32_t *tokens, int from, int upto)
{
    for (int at = from; g->slots && at < upto; at++) {
        if (at >= NGRAM_SHORT)
            *slot_of(g, tokens + at, NGRAM_SHORT) = (uint32_t)at + 1;
        if (at >= NGRAM_LONG)
            *slot_of(g, tokens + at, NGRAM_LONG) = (uint32_t)at + 1;
    }
    g->n = MAX(g->n, upto);
}

int ngram_find(const struct ngram *g, const int32_t *tokens, const int32_t *end, int len)
{
    if (!g->slots)
        return -1;
    int at = (int)*slot_of(g, end, len) - 1;
    if (at < len || memcmp(tokens + at - len, end - len, (size_t)len * sizeof(*end)) != 0)
        return -1;
    return at;
}
