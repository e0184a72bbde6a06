#include "constrain/vocab/token_source.h"

static struct str bytes_of_text(const void *ctx, int32_t id)
{
    const struct vocab *v = ctx;

    return vocab_attr(v, id) == TOKEN_CONTROL || vocab_is_end(v, id) ? STR_NONE
                                                                     : vocab_bytes(v, id);
}

static bool ends_text(const void *ctx, int32_t id)
{
    return vocab_is_end(ctx, id);
}

static int32_t find_text(const void *ctx, struct str text)
{
    return vocab_find(ctx, text);
}

struct token_source token_source_of_vocab(const struct vocab *v)
{
    return (struct token_source){ v, vocab_n_tokens(v), bytes_of_text, ends_text, find_text };
}
