/* pretok.h: pre-tokenizers: split text into words, across which byte-level BPE does not merge.
 *
 * A model file names the pre-tokenizer, which is a set of regular expressions. Each is a
 * hand-written state machine here, equivalent to the expressions (tests/golden/test_pretok.py
 * compares them with an independent regex engine). Linear in the text. Pure functions; any
 * thread. */
#pragma once

#include "base/str.h"

struct pretok;

/* Lookup by the name in tokenizer.ggml.pre; NULL if it is not supported. */
const struct pretok *pretok_find(struct str name);
bool pretok_ignores_merges(const struct pretok *p); /* a word that is a token is not merged */
bool pretok_adds_bos(const struct pretok *p);       /* default if the file does not specify it */

/* Calls fn with every word in order; the words together are the text. A nonzero result of fn ends
 * the iteration and is returned. */
typedef int pretok_fn(void *ctx, struct str word);
int pretok_split(const struct pretok *p, struct str text, pretok_fn *fn, void *ctx);
