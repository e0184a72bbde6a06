/* language_kit.h: compiles a language and compares texts with it, for tests of src/constrain.
 *
 * Owner: the test. */
#pragma once

#include "constrain/regular/automaton.h"
#include "constrain/regular/pattern.h"
#include "support/check.h"

struct language {
    struct exprs *x;
    struct automaton *a;
    struct err e;
};

static const struct expr_limits kit_limits = { 32 * MB, 1000000 };
static const struct automaton_limits kit_automaton_limits = { 32 * MB, 1000000 };

static inline void language_begin(struct language *l)
{
    *l = (struct language){ .x = exprs_new(kit_limits) };
    EXPECT(l->x != NULL);
}

static inline int language_start(struct language *l, expr_id root)
{
    return automaton_new(&l->a, l->x, root, kit_automaton_limits, &l->e);
}

/* -1 with l->e if the pattern is refused */
static inline int language_of_pattern(struct language *l, const char *pattern, enum text_mode mode)
{
    expr_id root;

    language_begin(l);
    if (pattern_compile(l->x, str_of(pattern), mode, PATTERN_SEARCH, &root, &l->e))
        return -1;
    return language_start(l, root);
}

static inline bool language_has(struct language *l, const char *text)
{
    return automaton_accepts(l->a, automaton_run(l->a, automaton_start(l->a), str_of(text)));
}

static inline void language_end(struct language *l)
{
    automaton_free(l->a);
    exprs_free(l->x);
    *l = (struct language){ 0 };
}
