/* grammar_random.h: random grammars for the oracle, and the same grammars for src/constrain.
 *
 * Owner: the test. */
#pragma once

#include "base/rng.h"
#include "support/grammar_oracle.h"

static inline int oracle_add(struct oracle *o, struct oracle_node d)
{
    EXPECT(o->n_nodes < ORACLE_NODES);
    o->nodes[o->n_nodes] = d;
    return o->n_nodes++;
}

static inline int oracle_random_node(struct oracle *o, struct rng *r, int depth)
{
    static const char *const literals[] = { "a", "b", "c", "ab", "ca", "bcb", "" };
    struct oracle_node d = { .kind = (enum oracle_kind)rng_below(r, 5) };
    static const uint32_t counts[][2] = { { 0, 1 }, { 0, REPEAT_INF }, { 1, REPEAT_INF }, { 0, 2 },
        { 2, 2 }, { 1, 3 }, { 3, 5 }, { 0, 0 }, { 0, 7 }, { 2, REPEAT_INF } };

    if (depth <= 0 && (d.kind != O_REF || rng_below(r, 2)))
        d.kind = rng_below(r, 3) ? O_LITERAL : O_REF;
    if (d.kind == O_LITERAL) {
        snprintf(
            d.literal, sizeof(d.literal), "%s", literals[rng_below(r, rng_below(r, 4) ? 3 : 7)]);
    } else if (d.kind == O_REF) {
        d.n = 1;
        d.args[0] = (int)rng_below(r, (uint64_t)o->n_rules);
    } else {
        d.n = d.kind == O_REPEAT ? 1 : 1 + (int)rng_below(r, 3);
        for (int k = 0; k < d.n; k++)
            d.args[k] = oracle_random_node(o, r, depth - 1);
    }
    if (d.kind == O_REPEAT) {
        size_t k = rng_below(r, sizeof(counts) / sizeof(counts[0]));
        d.min = counts[k][0];
        d.max = counts[k][1];
    }
    return oracle_add(o, d);
}

static inline void oracle_random(struct oracle *o, struct rng *r)
{
    memset(o, 0, sizeof(*o));
    o->n_rules = 1 + (int)rng_below(r, ORACLE_RULES);
    for (int k = 0; k < o->n_rules; k++)
        o->rules[k] = oracle_random_node(o, r, 2);
    oracle_find_productive(o);
}

/* The grammar of the oracle; rule 0 is the root. */
static inline rule_id oracle_build(const struct oracle *o, struct grammar *g)
{
    part_id parts[ORACLE_NODES];
    rule_id rules[ORACLE_RULES] = { 0 };

    for (int k = 0; k < o->n_rules; k++)
        rules[k] = grammar_rule(g, STR("rule"));
    for (int k = 0; k < o->n_nodes; k++) {
        const struct oracle_node *d = &o->nodes[k];
        part_id args[4];
        for (int j = 0; j < d->n && d->kind != O_REF; j++)
            args[j] = parts[d->args[j]];
        switch (d->kind) {
        case O_LITERAL:
            parts[k] = grammar_literal(g, str_of(d->literal));
            break;
        case O_CAT:
            parts[k] = grammar_cat_all(g, args, (size_t)d->n);
            break;
        case O_ALT:
            parts[k] = grammar_alt_all(g, args, (size_t)d->n);
            break;
        case O_REPEAT:
            parts[k] = grammar_repeat(g, args[0], d->min, d->max);
            break;
        case O_REF:
            parts[k] = grammar_ref(g, rules[d->args[0]]);
            break;
        }
    }
    for (int k = 0; k < o->n_rules; k++)
        grammar_define(g, rules[k], parts[o->rules[k]]);
    return rules[0];
}
