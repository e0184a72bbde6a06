/* vocab.h: tokenizer: text <-> token ids, with the vocabulary of a model file.
 *
 * Byte-level BPE (pre-tokenizers gpt2, llama3, qwen2 and similar), BPE on characters with byte
 * tokens (gemma4) and SentencePiece (SPM). Special
 * tokens are recognised in trusted spans only: text of a user, a tool or a document never becomes a
 * control token. Read-only after vocab_open: any thread. struct tokens and struct detok belong to
 * their caller. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "format/gguf.h"

enum { TOKEN_NONE = -1 };

enum token_attr {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
};

struct vocab;

/* `g` is borrowed for the call only. */
int vocab_open(struct vocab **out, const struct gguf *g, struct err *e);
void vocab_close(struct vocab *v);

const char *vocab_kind(const struct vocab *v); /* "bpe" or "spm" */
const char *vocab_pre(const struct vocab *v);  /* "gpt-2", "llama-bpe", "qwen2", ... "" for SPM */
int32_t vocab_n_tokens(const struct vocab *v);
int32_t vocab_bos(const struct vocab *v); /* TOKEN_NONE if there is none */
int32_t vocab_eos(const struct vocab *v);
bool vocab_add_bos(const struct vocab *v);
bool vocab_add_eos(const struct vocab *v);
/* True for end-of-generation tokens: eos, eot, eom, <|im_end|> ... */
bool vocab_is_end(const struct vocab *v, int32_t id);
enum token_attr vocab_attr(const struct vocab *v, int32_t id);

/* Control tokens of a fill-in-the-middle prompt; TOKEN_NONE if the model has none. */
enum fim { FIM_PRE, FIM_SUF, FIM_MID, FIM_REP, FIM_SEP, N_FIM };
int32_t vocab_fim(const struct vocab *v, enum fim which);

/* Text of the token as in the file: "<|im_end|>", "Ġhello", "▁hello". Borrowed. */
struct str vocab_text(const struct vocab *v, int32_t id);
/* Bytes which the token decodes to: " hello". Empty for unknown and unused tokens; the text for
 * control tokens. Borrowed. STR_NONE for an id out of range. */
struct str vocab_bytes(const struct vocab *v, int32_t id);
/* The token with exactly this text; TOKEN_NONE if there is none. */
int32_t vocab_find(const struct vocab *v, struct str text);

struct span { /* part of a prompt with one origin */
    struct str text;
    bool is_trusted; /* template text: control tokens are recognised in it */
};

struct tokens { /* list that grows in its arena */
    int32_t *ids;
    size_t n, cap;
    struct arena *arena;
    const _Atomic bool *stop; /* checked at every word: true cancels encoding. May be NULL */
};

int tokens_push(struct tokens *t, int32_t id, struct err *e); /* ERR_MEMORY */

/* Appends the tokens of the spans. Adjacent spans without a special token at their border are
 * joined before splitting, so that cutting a text into spans does not change its tokens. with_bos:
 * begins with BOS if the vocabulary requires it (the caller appends EOS: vocab_add_eos). Invalid
 * UTF-8 is encoded byte by byte. Time is O(n log n) for any input. ERR_MEMORY: heap or arena
 * exhausted; ERR_TOO_LARGE: over 1 GB of text, or a word of over 2 MB; ERR_CANCELLED: `stop`.
 * Tokens appended before an error remain. */
int vocab_encode(const struct vocab *v, const struct span *spans, size_t n_spans, bool with_bos,
    struct tokens *out, struct err *e);

/* Lower bound on the tokens of this text as part of any prompt: one pass over its bytes. Blanks are
 * not counted, since a template may drop them. 0: no bound is known. */
size_t vocab_min_tokens(const struct vocab *v, struct str text);

/* Decodes tokens to whole characters. Bytes of an incomplete character are held back; invalid bytes
 * become U+FFFD. Zeroed = ready. The leading blank of SPM is dropped at the start of a text if the
 * vocabulary specifies it; a caller that continues an existing text sets has_begun. */
struct detok {
    char held[4];
    uint8_t n_held;
    bool has_begun;
};
/* Appends to out at most 3 * token bytes + 12; control tokens are skipped unless show_control. */
void detok_put(
    struct detok *d, const struct vocab *v, int32_t id, bool show_control, struct buf *out);
void detok_end(struct detok *d, struct buf *out); /* held bytes become U+FFFD */
