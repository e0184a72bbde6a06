/* vocab_in.h: internals of a vocabulary, for the files of this folder only.
 *
 * Merging works on symbols: the tokens, and for BPE also intermediate results of merges which are
 * not in the vocabulary. All data is written by vocab_open and read-only afterwards: any thread. */
#pragma once

#include "base/map.h"
#include "tokenizer/pretok.h"
#include "tokenizer/special.h"
#include "tokenizer/vocab.h"

/* VOCAB_CHAR_BPE: BPE that begins with characters, not with bytes; tokens are written as in SPM,
 * with U+2581 for a blank and byte tokens for characters without a token */
enum vocab_type { VOCAB_BPE, VOCAB_CHAR_BPE, VOCAB_SPM };

enum {
    VOCAB_MAX_TOKENS = 1 << 20, /* the largest known vocabularies have 2^18 */
    VOCAB_TEXT_MAX = 64 * 1024, /* bytes of one token */
    VOCAB_MAX_BYTES = 1 << 28,  /* text of all tokens */
};

/* Array of strings in one block, with a size known in advance. */
struct string_table {
    char *data;
    uint32_t *ends; /* string i is data[ends[i - 1] .. ends[i]) */
    size_t n, cap, bytes, cap_bytes;
};

static inline struct str string_table_at(const struct string_table *s, size_t i)
{
    uint32_t from = i ? s->ends[i - 1] : 0;
    return (struct str){ s->data + from, s->ends[i] - from };
}
int string_table_init(
    struct string_table *s, size_t cap, size_t cap_bytes) MUST_CHECK; /* -1: no memory */
void string_table_clear(struct string_table *s);
void string_table_put(
    struct string_table *s, const void *p, size_t n); /* the capacity must suffice */

/* Control tokens by name, for files without token types. */
bool vocab_names_control(struct str text);

/* vocab_load.c: the steps of vocab_open, in call order. */
int vocab_load_tokens(struct vocab *v, const struct gguf *g, struct err *e);
int vocab_load_merges(struct vocab *v, const struct gguf *g, struct err *e);
int vocab_load_self_merging(struct vocab *v, struct err *e);

struct vocab {
    enum vocab_type type;
    char pre_name[32];
    const struct pretok *pre;  /* not SPM */
    struct string_table text;  /* texts as in the file */
    struct string_table bytes; /* bytes that a token decodes to */
    uint8_t *attr;             /* enum token_attr */
    uint8_t *is_end;
    int32_t n;
    struct str_map *by_text;
    struct str_map *by_bytes; /* only tokens that text may become: never control tokens */
    size_t longest;           /* bytes of the longest key in by_bytes */
    bool splits_at_word_ends; /* no key of by_bytes has a blank after a printable ASCII character */
    int32_t byte_token[256];  /* TOKEN_NONE if there is none */
    int32_t bos, eos, unk;
    int32_t fim[N_FIM];
    bool add_bos, add_eos;
    struct special special;

    /* not SPM */
    struct u64_map *merges; /* left symbol << 32 | right -> rank */
    uint32_t *merged;       /* resulting symbol by rank; from n on, it is not a token */
    int32_t byte_symbol[256];
    bool ignores_merges;

    /* not BPE on bytes: no token, and no result of a merge, has a blank after another character */
    bool splits_at_blanks;

    /* SPM only */
    float *scores;
    bool add_space_prefix;
    bool squeezes_blanks; /* remove_extra_whitespaces */

    /* One bit per token: merging its bytes gives exactly this token. */
    uint8_t *merges_to_self;
};

/* Merges have ranks; else the scores of tokens decide. */
static inline bool vocab_has_merges(const struct vocab *v)
{
    return v->type != VOCAB_SPM;
}

/* Texts of tokens are UTF-8 with U+2581 for a blank, not in the byte-level alphabet. */
static inline bool vocab_has_plain_texts(const struct vocab *v)
{
    return v->type != VOCAB_BPE;
}

/* A printable ASCII character followed by a blank. */
static inline bool vocab_ends_word(char last, char next)
{
    return next == ' ' && (unsigned char)last > ' ' && (unsigned char)last < 0x7F;
}

static inline bool vocab_merges_to_self(const struct vocab *v, uint32_t id)
{
    return v->merges_to_self[id >> 3] >> (id & 7) & 1;
}
