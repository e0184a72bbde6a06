/* fake.h: a language model that is a hash function, for testing everything around a real one.
 *
 * What it "knows" of a token is one 64-bit number, stored in the page slot of its position. The
 * number of a row is a hash of its token, its position and the numbers of *all* positions before
 * it, read back through the page table; the logits are a hash of that. So a wrong page table, a
 * forgotten copy-on-write, a page given away too early or a row computed twice differently
 * changes the tokens that come out, and comparing tokens finds it.
 *
 * Same contract as lm.h, including `stop`: an interrupted pass leaves rubbish behind. It has layers
 * that do nothing: a run that pauses leaves rubbish behind, too, until it has passed them all. */
#pragma once

#include "model/lm.h"

struct fake_options {
    int n_vocab; /* >= 2 */
    int n_ctx_train;
    int max_rows; /* per forward, also the most logits */
    uint32_t n_pages;
    uint64_t seed; /* another seed is another model */
    int n_layers;  /* a run may pause between them; 0 = 1 */
    int n_threads; /* that it says it has: the caller is all of them in turn; 0 = 1 */
};

int lm_open_fake(struct lm **out, const struct fake_options *o, struct err *e) MUST_CHECK;

/* The logits after `n` tokens, computed without pages: what forward must agree with. scratch:
 * n numbers. */
void fake_logits(
    const struct fake_options *o, const int32_t *tokens, int n, uint64_t *scratch, float *logits);
