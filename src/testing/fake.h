/* fake.h: model whose output is a hash function, for tests of the engine, scheduler and KV cache.
 *
 * The state of a token is one 64-bit number, stored in the KV page slot of its position. The number
 * of a row is a hash of its token, its position and the numbers of *all* preceding positions, read
 * through the page table; the logits are a hash of that number. A wrong page table, a missing
 * copy-on-write, a page freed too early, or a row computed twice with different results therefore
 * changes the generated tokens, and a comparison of tokens detects it.
 *
 * With a window, each position also has a number in a window page: a hash of the row's number and
 * of the window's numbers. It is added to the logits. So a row reads all pages of its window, and
 * one that was freed too early, or belongs to another prefix, changes all later tokens.
 *
 * With state slots, each layer also adds a hash of the tokens before the row to the logits, which
 * it reads from its part of the slot. A stale, mixed or missing state changes the next token.
 *
 * The contract is that of lm.h, including `stop`: a stopped pass leaves undefined data in the
 * pages, and in the slots that it only writes. A partial run leaves
 * undefined data in its pages until it has passed all layers.
 *
 * Owner: the engine thread. */
#pragma once

#include "model/lm.h"

struct fake_options {
    int n_vocab; /* >= 2 */
    int n_ctx_train;
    int max_rows; /* per forward pass, also the limit for logits */
    uint32_t n_pages;
    uint64_t seed; /* each seed defines a different model */
    int n_layers;  /* a partial run may stop between them; 0 = 1 */
    int window;    /* positions of a row's window, including its own; 0: no windowed layers */
    /* The number of a row is a hash of its window instead of all positions. */
    bool is_windowed_only;
    uint32_t n_window_pages; /* 0: n_pages */
    uint32_t n_states;       /* state slots, at least 2; 0: no recurrent layers */
    int n_threads; /* reported number of threads; the caller executes all of them in turn; 0 = 1 */
};

int lm_open_fake(struct lm **out, const struct fake_options *o, struct err *e) MUST_CHECK;

/* Logits after `n` tokens, computed without pages: the expected output of forward. scratch: n
 * numbers. */
void fake_reference_logits(
    const struct fake_options *o, const int32_t *tokens, int n, uint64_t *scratch, float *logits);
