/* pretok.h: cuts text into the words that byte-level BPE may not merge across.
 *
 * Every vocabulary comes with the name of its regular expressions; each is a hand-written state
 * machine here, equal to the expression (tests/golden/test_pretok.py compares them with an
 * independent engine). Linear in the text. Pure; any thread. */
#pragma once

#include "base/str.h"

struct pretok;

/* By the name in tokenizer.ggml.pre; NULL for one nobody here knows. */
const struct pretok *pretok_find(struct str name);
bool pretok_ignores_merges(const struct pretok *p); /* a word that is a token needs no merges */
bool pretok_adds_bos(const struct pretok *p);       /* unless the file says otherwise */

/* Calls fn with every word in order; together they are the text. A result other than 0 from fn
 * ends the walk and is returned. */
typedef int pretok_fn(void *ctx, struct str word);
int pretok_split(const struct pretok *p, struct str text, pretok_fn *fn, void *ctx);
