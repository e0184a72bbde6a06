/* vocab_in.h: what the files of text/ know about a vocabulary; nobody else includes this.
 *
 * Symbols are what merging works on: the tokens, and beyond them (BPE only) the pieces that
 * merges pass through although the vocabulary has no token for them. All of it is written by
 * vocab_open and never again. */
#pragma once

#include "base/map.h"
#include "tokenizer/pretok.h"
#include "tokenizer/special.h"
#include "tokenizer/vocab.h"

enum vocab_type { VOCAB_BPE, VOCAB_SPM };

enum {
    VOCAB_MAX_TOKENS = 1 << 20, /* the largest real ones have 2^18 */
    VOCAB_MAX_BYTES = 1 << 28,  /* of all tokens' text */
};

/* Strings one behind the other in one block whose size is known before. */
struct strings {
    char *data;
    uint32_t *ends; /* string i is data[ends[i - 1] .. ends[i]) */
    size_t n, cap, bytes, cap_bytes;
};

static inline struct str strings_at(const struct strings *s, size_t i)
{
    uint32_t from = i ? s->ends[i - 1] : 0;
    return (struct str){ s->data + from, s->ends[i] - from };
}
int strings_init(struct strings *s, size_t cap, size_t cap_bytes) MUST_CHECK; /* -1: no memory */
void strings_clear(struct strings *s);
void strings_put(struct strings *s, const void *p, size_t n); /* there is room */

/* A file without token types has its control tokens among the others: by their names, then. */
bool vocab_names_control(struct str text);

/* vocab_load.c: the parts of vocab_open, in the order they are called. */
int vocab_load_tokens(struct vocab *v, const struct gguf *g, struct err *e);
int vocab_load_merges(struct vocab *v, const struct gguf *g, struct err *e);
int vocab_load_whole(struct vocab *v, struct err *e);

struct vocab {
    enum vocab_type type;
    char pre_name[32];
    const struct pretok *pre; /* BPE */
    struct strings text;      /* as in the file */
    struct strings bytes;     /* what a token stands for */
    uint8_t *attr;            /* enum token_attr */
    uint8_t *is_end;
    int32_t n;
    struct str_map *by_text;
    struct str_map *by_bytes; /* only tokens that text may become: never control ones */
    size_t longest;           /* bytes of the longest key in by_bytes */
    bool cuts_at_words;       /* no key there has a blank behind a printable ASCII character */
    int32_t byte_token[256];  /* TOKEN_NONE where there is none */
    int32_t bos, eos, unk;
    int32_t fim[N_FIM];
    bool add_bos, add_eos;
    struct special special;

    /* BPE */
    struct u64_map *merges; /* left symbol << 32 | right -> rank */
    uint32_t *merged;       /* by rank: the symbol that comes out; from n on, no token */
    int32_t byte_symbol[256];
    bool ignores_merges;

    /* SPM */
    float *scores;
    bool add_space_prefix;
    bool squeezes_blanks; /* remove_extra_whitespaces */
    bool cuts_at_blanks;  /* no token has a blank behind something else */

    /* Bit per token: merging its bytes gives just this token. */
    uint8_t *is_whole;
};

/* A printable ASCII character, then a blank. */
static inline bool vocab_ends_word(char last, char next)
{
    return next == ' ' && (unsigned char)last > ' ' && (unsigned char)last < 0x7F;
}

static inline bool vocab_is_whole(const struct vocab *v, uint32_t id)
{
    return v->is_whole[id >> 3] >> (id & 7) & 1;
}
