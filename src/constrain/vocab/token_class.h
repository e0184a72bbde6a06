/* token_class.h: classes of tokens that many states of constraints permit as a whole.
 *
 *   STRING   plain characters of a JSON string: valid UTF-8, whole characters, no control
 *            character, quotation mark or backslash
 *   DIGITS   0 to 9
 *   BLANKS   blanks and tabs
 *
 * A token belongs to a class if it has 1 to TOKEN_CLASS_CHARS_MAX characters and all are of the
 * class. The tokens are stored by number of characters, cumulative: a state that permits n more
 * characters takes those of at most n at once.
 *
 * Read-only after creation: any thread. */
#pragma once

#include "constrain/vocab/token_trie.h"

enum token_class { CLASS_STRING, CLASS_DIGITS, CLASS_BLANKS, N_TOKEN_CLASSES };

enum { TOKEN_CLASS_CHARS_MAX = 32 };

/* The characters of a class as bytes: a first byte in from..to, and n_tail continuation bytes, of
 * which the first is in tail_from..tail_to. */
struct class_bytes {
    uint8_t from, to;
    uint8_t n_tail, tail_from, tail_to;
};
enum { N_CLASS_BYTES = 14 };
extern const struct class_bytes class_bytes[N_CLASS_BYTES];
/* Rows of a class: from class_rows[class] to class_rows[class + 1]. */
extern const uint8_t class_rows[N_TOKEN_CLASSES + 1];

struct token_classes {
    size_t n_words;         /* words of a set of tokens */
    uint32_t *string_masks; /* [n_chars_max[CLASS_STRING]][n_words] */
    int32_t *ids[N_TOKEN_CLASSES];
    uint32_t n_ids[N_TOKEN_CLASSES][TOKEN_CLASS_CHARS_MAX + 1]; /* index: number of characters */
    uint32_t n_chars_max[N_TOKEN_CLASSES]; /* characters of the longest token */
};

/* Number of characters if all are of the class and there are at most TOKEN_CLASS_CHARS_MAX;
 * otherwise 0. */
uint32_t token_class_length(enum token_class class, struct str bytes);

int token_classes_init(
    struct token_classes *c, const struct token_source *src, struct err *e) MUST_CHECK;
void token_classes_clear(struct token_classes *c); /* accepts zeroed classes */
size_t token_classes_bytes(const struct token_classes *c);
/* Adds the tokens of at most n characters to the set. */
void token_classes_add(
    const struct token_classes *c, enum token_class class, uint32_t n, uint32_t *set);
