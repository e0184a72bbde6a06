/* vocab.h: words <-> numbers, from a model's own vocabulary.
 *
 * Byte-level BPE (pre-tokenizers gpt2, llama3, qwen2 and their kin) and SentencePiece (SPM).
 * Special tokens are found only in trusted spans: bytes that came from a user, a tool or a
 * document can never become a control token. Read-only after vocab_open: any thread. */
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
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
};

struct vocab;

/* `g` is borrowed only during the call. */
int vocab_open(struct vocab **out, const struct gguf *g, struct err *e);
void vocab_close(struct vocab *v);

const char *vocab_kind(const struct vocab *v); /* "bpe" or "spm" */
const char *vocab_pre(const struct vocab *v);  /* "gpt-2", "llama-bpe", "qwen2", ... "" for SPM */
int32_t vocab_n(const struct vocab *v);
int32_t vocab_bos(const struct vocab *v); /* TOKEN_NONE when there is none */
int32_t vocab_eos(const struct vocab *v);
bool vocab_add_bos(const struct vocab *v);
bool vocab_add_eos(const struct vocab *v);
/* eos, eot, eom, <|im_end|> ...: generation ends */
bool vocab_is_end(const struct vocab *v, int32_t id);
enum token_attr vocab_attr(const struct vocab *v, int32_t id);

/* Tokens around the gap of a fill-in-the-middle prompt; TOKEN_NONE when the model has none. */
enum fim { FIM_PRE, FIM_SUF, FIM_MID, FIM_REP, FIM_SEP, N_FIM };
int32_t vocab_fim(const struct vocab *v, enum fim which);

/* The token as it stands in the file: "<|im_end|>", "Ġhello", "▁hello". Borrowed. */
struct str vocab_text(const struct vocab *v, int32_t id);
/* The bytes the token stands for: " hello". Empty for unknown and unused ones; for control
 * tokens their text. Borrowed. An id out of range: STR_NONE. */
struct str vocab_bytes(const struct vocab *v, int32_t id);
/* The token with exactly this text; TOKEN_NONE. */
int32_t vocab_find(const struct vocab *v, struct str text);

struct span { /* a piece of a prompt and where it came from */
    struct str text;
    bool is_trusted; /* template text: control tokens are recognised in it */
};

struct tokens { /* grows in the arena it was given */
    int32_t *ids;
    size_t n, cap;
    struct arena *arena;
    const _Atomic bool *stop; /* asked at every word: true ends it. May be NULL */
};

/* Appends the tokens of the spans. Spans that meet where no special token lies are joined
 * before splitting, so that cutting a text into spans does not change its tokens.
 * with_bos: the BOS first, if the vocabulary asks for one. (An EOS behind a text is the caller's
 * to put: vocab_add_eos.) Invalid UTF-8 is tokenised byte by byte. Time is O(n log n) for any
 * input. ERR_MEMORY: the heap or the arena is full; ERR_TOO_LARGE: over 1 GB of text, or a word
 * of over 2 MB; ERR_CANCELLED: `stop`. Tokens that were appended before an error stay. */
int vocab_encode(const struct vocab *v, const struct span *spans, size_t n_spans, bool with_bos,
    struct tokens *out, struct err *e);

/* As part of any prompt this text is at least so many tokens: a pass over its bytes. Blanks are not
 * counted: who writes the prompt may leave them out. 0 when nothing can be said. */
size_t vocab_min_tokens(const struct vocab *v, struct str text);

/* Turns tokens into whole characters. The bytes of a character that is still open are held
 * back; bytes that can never become a character come out as U+FFFD. Zeroed = ready.
 * SPM's leading blank is dropped at the start of a text when the vocabulary says so; whoever
 * goes on with a text that has begun elsewhere sets has_begun. */
struct detok {
    char held[4];
    uint8_t n_held;
    bool has_begun;
};
/* Writes to out (at most 3 * token bytes + 12); control tokens are skipped unless show_control. */
void detok_put(
    struct detok *d, const struct vocab *v, int32_t id, bool show_control, struct buf *out);
void detok_end(struct detok *d, struct buf *out); /* what is still held: U+FFFD */
