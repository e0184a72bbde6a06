/* token_source.h: the tokens of a vocabulary as the tables of constrained decoding need them.
 *
 * A token is matched by the bytes that it decodes to: tokens of byte-level BPE, SPM tokens with a
 * blank for U+2581, byte tokens, and tokens that end inside a character. Control tokens and end
 * tokens have no bytes here, since they are matched by id only.
 *
 * Any thread. */
#pragma once

#include "base/str.h"
#include "tokenizer/vocab.h"

enum { TOKEN_IDS_MAX = 1 << 20 }; /* tokens of one vocabulary */

struct token_source {
    const void *ctx;
    int32_t n_tokens;
    /* Borrowed; empty: the token is not matched by bytes. */
    struct str (*bytes)(const void *ctx, int32_t id);
    /* True for tokens that end the text. */
    bool (*is_end)(const void *ctx, int32_t id);
    /* The token with this text, also a control token; TOKEN_NONE if there is none. NULL: tokens
     * have no text. */
    int32_t (*find)(const void *ctx, struct str text);
};

struct token_source token_source_of_vocab(const struct vocab *v);
