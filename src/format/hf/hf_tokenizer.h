/* hf_tokenizer.h: translates tokenizer.json and the files around it to GGUF keys.
 *
 * Supported is byte-level BPE with a pre-tokenizer whose expression is known. Every other part of
 * tokenizer.json that would change the tokens is rejected with its name, except for the
 * normalisation to NFC, which leaves nearly all text unchanged and which GGUF files omit as well.
 *
 * Owner: one thread at a time. */
#pragma once

#include "base/json.h"
#include "format/gguf_keys.h"

struct hf_tokenizer_files {                /* contents; STR_NONE: there is no such file */
    struct str tokenizer;                  /* tokenizer.json */
    struct str config;                     /* tokenizer_config.json */
    struct str template;                   /* chat_template.jinja */
    const struct json *generation, *model; /* generation_config.json (NULL: none), config.json */
};

/* n_tokens: rows of the embedding, at most 2^24; ids without a token become unused ones.
 * ERR_UNSUPPORTED, ERR_CORRUPT, ERR_SYNTAX, ERR_TOO_LARGE, ERR_MEMORY. */
int hf_tokenizer_put(
    const struct hf_tokenizer_files *f, uint64_t n_tokens, struct gguf_keys *k, struct err *e);
