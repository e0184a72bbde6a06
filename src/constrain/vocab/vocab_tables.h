/* vocab_tables.h: the tables of a vocabulary for constrained decoding, built once per model.
 *
 *   trie        all tokens; subtrees that consist of digits or of blanks are marked
 *   irregular   the tokens that are not of CLASS_STRING: the only ones which a state inside a JSON
 *               string has to try
 *   classes     sets of frequent tokens by number of characters
 *   producible  texts that the tokens can produce
 *   ends        tokens that end the text
 *
 * The vocabulary (token_source.ctx) outlives its tables.
 *
 * Read-only after creation, and shared between threads. */
#pragma once

#include "constrain/vocab/producible.h"
#include "constrain/vocab/token_class.h"

enum { MARK_DIGITS, MARK_BLANKS }; /* marks of `trie`; one bit each */

struct vocab_tables {
    uint64_t id; /* unique in the process */
    struct token_source source;
    int32_t n_tokens;
    struct token_trie trie, irregular;
    struct token_classes classes;
    struct producible producible;
    int32_t *ends;
    uint32_t n_ends;
};

int vocab_tables_new(
    struct vocab_tables **out, const struct token_source *src, struct err *e) MUST_CHECK;
void vocab_tables_free(struct vocab_tables *t); /* accepts NULL */
size_t vocab_tables_bytes(const struct vocab_tables *t);
