/* fuzz_grammar.h: fuzzes a reader of grammars. Compilation and steps stay within their bounds; each
 * position has a continuation or accepts; a kept position equals the one it was made from.
 *
 * The input is a grammar, a zero byte, and a text. */
#pragma once

#include "base/mem.h"
#include "constrain/grammar/grammar_acceptor.h"
#include "support/grammar_kit.h"

enum { FUZZ_TEXT_MAX = 100 };

static const struct grammar_limits fuzz_grammar_limits = { 4 * MB, 100000, 20000 };
static const struct grammar_acceptor_limits fuzz_acceptor_limits = { 512 * KB, { 1 * MB, 100000 } };

static inline bool has_continuation(struct acceptor *a, pos_id p)
{
    struct byte_set next = a->ops->next_bytes(a, p);
    int32_t id;

    return a->ops->accepts(a, p) || !byte_set_is_empty(&next) || a->ops->tokens(a, p, &id, 1) > 0;
}

static inline void fuzz_steps(struct acceptor *a, struct str text)
{
    pos_id p = POS_START;
    struct err e;

    for (size_t k = 0; k < MIN(text.n, (size_t)FUZZ_TEXT_MAX); k++) {
        uint8_t byte = (uint8_t)text.p[k];
        uint32_t mark = a->ops->mark(a);
        pos_id to = byte < 8 ? a->ops->step_token(a, p, byte) : a->ops->step(a, p, byte);
        if (a->ops->check(a, &e))
            return;
        CHECK(!to.i || has_continuation(a, to) || a->ops->check(a, &e));
        uint64_t key = a->ops->key(a, to), generation = a->ops->generation(a);
        bool accepts = a->ops->accepts(a, to);
        to = a->ops->keep(a, mark, to);
        CHECK(a->ops->key(a, to) == key || a->ops->generation(a) != generation);
        CHECK(a->ops->accepts(a, to) == accepts);
        p = to.i ? to : p;
    }
    CHECK(a->ops->bytes(a) < 4 * MB);
}

static inline int fuzz_grammar(grammar_read_fn read, const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    struct grammar *g = grammar_new(&fuzz_grammar_limits, &kit_vocab);
    struct acceptor *a = NULL;
    struct err e = { 0 };
    rule_id root;

    CHECK(g);
    if (read(g, (struct str){ (const char *)data, n }, &root, &e) || grammar_finish(g, root, &e)) {
        CHECK(e.code != ERR_NONE && e.msg[0]);
    } else if (!grammar_json_count(g)) {
        if (grammar_acceptor_new(&a, g, &fuzz_acceptor_limits, NULL, &e))
            CHECK(e.code != ERR_NONE && e.msg[0]);
        else
            fuzz_steps(a, str_skip((struct str){ (const char *)data, size }, n + 1));
    }
    if (a)
        a->ops->free(a);
    CHECK(grammar_bytes(g) < 32 * MB);
    CHECK(grammar_work(g) <= fuzz_grammar_limits.work_max + 100000);
    grammar_free(g);
    return 0;
}
