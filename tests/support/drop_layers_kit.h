/* drop_layers_kit.h: makes a draft model from a model by leaving out a layer, for tests of
 * speculative decoding. */
#pragma once

#include "testing/drop_layers.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KIT_LAYERS_MAX = 64 };

static inline uint32_t gguf_n_tokens(const struct gguf *g)
{
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");

    EXPECT(tokens && tokens->kind == GGUF_ARR);
    return (uint32_t)tokens->arr.n;
}

static inline uint32_t gguf_n_layers(const struct gguf *g)
{
    struct str arch;
    char key[128];
    uint64_t n = 0;

    EXPECT(gguf_get_str(g, "general.architecture", &arch));
    snprintf(key, sizeof(key), STR_FMT ".block_count", STR_ARG(arch));
    EXPECT(gguf_get_u64(g, key, &n) && n > 1 && n <= KIT_LAYERS_MAX);
    return (uint32_t)n;
}

/* Writes the model without its last layer but one to a new file: path ends in XXXXXX, the caller
 * unlinks it. */
static inline void drop_layers_make(const struct gguf *g, char *path)
{
    uint32_t keep[KIT_LAYERS_MAX], n = gguf_n_layers(g), n_keep = 0;
    struct err e;

    for (uint32_t i = 0; i < n; i++)
        if (i != n - 2)
            keep[n_keep++] = i;
    int fd = mkstemp(path);
    EXPECT(fd >= 0);
    close(fd);
    EXPECT_EQ(drop_layers_write(g, keep, n_keep, path, &e), 0);
}
