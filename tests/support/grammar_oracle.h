/* grammar_oracle.h: a parser of context-free grammars by tables over all spans of a text (compare
 * Cocke, Younger, Kasami), as a reference for src/constrain. It also decides whether a text is a
 * prefix of a text of the grammar.
 *
 * The tables are least fixed points, computed by repeated passes, so that empty rules and all
 * kinds of recursion need no special case. Owner: the test. */
#pragma once

#include "constrain/grammar/grammar.h"
#include "support/check.h"

enum { ORACLE_NODES = 160, ORACLE_TEXT = 10, ORACLE_RULES = 5 };

enum oracle_kind { O_LITERAL, O_CAT, O_ALT, O_REPEAT, O_REF };

struct oracle_node {
    enum oracle_kind kind;
    char literal[4];
    int args[4], n; /* O_REF: args[0] is the rule */
    uint32_t min, max;
};

struct oracle {
    struct oracle_node nodes[ORACLE_NODES];
    int n_nodes, rules[ORACLE_RULES], n_rules;
    bool is_productive[ORACLE_NODES];
    /* for the current text */
    const char *text;
    int n;
    bool derives[ORACLE_NODES][ORACLE_TEXT + 1][ORACLE_TEXT + 1];
    bool extends[ORACLE_NODES][ORACLE_TEXT + 1]; /* text[i..n) is a prefix of a word */
};

typedef uint32_t position_set; /* bit i: position i of the text */

static inline position_set after_all(const struct oracle *o, int node, position_set from)
{
    position_set to = 0;

    for (int i = 0; i <= o->n; i++)
        for (int j = i; from >> i & 1 && j <= o->n; j++)
            if (o->derives[node][i][j])
                to |= 1u << j;
    return to;
}

static inline bool extends_any(const struct oracle *o, int node, position_set from)
{
    for (int i = 0; i <= o->n; i++)
        if (from >> i & 1 && o->extends[node][i])
            return true;
    return false;
}

/* Ends of the words of a node from position i, and whether one goes beyond the text. */
static inline position_set ends_of(const struct oracle *o, int node, int i, bool *extends)
{
    const struct oracle_node *d = &o->nodes[node];
    position_set at = 1u << i, all = 0;
    size_t n = strlen(d->literal);

    *extends = false;
    switch (d->kind) {
    case O_LITERAL:
        *extends = (int)n >= o->n - i && !strncmp(o->text + i, d->literal, (size_t)(o->n - i));
        if (i + (int)n <= o->n && !strncmp(o->text + i, d->literal, n))
            all = 1u << (i + (int)n);
        return all;
    case O_CAT:
        for (int k = 0; k < d->n; k++) {
            bool can_end = true;
            for (int j = k + 1; j < d->n; j++)
                can_end = can_end && o->is_productive[d->args[j]];
            *extends = *extends || (can_end && extends_any(o, d->args[k], at));
            at = after_all(o, d->args[k], at);
        }
        *extends = *extends || at >> o->n & 1;
        return at;
    case O_ALT:
        for (int k = 0; k < d->n; k++) {
            *extends = *extends || o->extends[d->args[k]][i];
            all |= after_all(o, d->args[k], at);
        }
        return all;
    case O_REPEAT:
        for (uint32_t k = 0; k <= d->max && k <= d->min + ORACLE_TEXT + 2; k++) {
            if (k >= d->min)
                all |= at;
            if (k < d->max)
                *extends = *extends || extends_any(o, d->args[0], at);
            at = k < d->max ? after_all(o, d->args[0], at) : 0;
        }
        *extends = *extends || all >> o->n & 1;
        return all;
    case O_REF:
        *extends = o->extends[o->rules[d->args[0]]][i];
        return after_all(o, o->rules[d->args[0]], at);
    }
    return 0;
}

static inline void oracle_find_productive(struct oracle *o)
{
    bool is_changed = true;

    memset(o->is_productive, 0, sizeof(o->is_productive));
    while (is_changed) {
        is_changed = false;
        for (int k = 0; k < o->n_nodes; k++) {
            const struct oracle_node *d = &o->nodes[k];
            bool all = true, any = false;
            for (int j = 0; j < d->n; j++) {
                int arg = d->kind == O_REF ? o->rules[d->args[j]] : d->args[j];
                all = all && o->is_productive[arg];
                any = any || o->is_productive[arg];
            }
            bool now = d->kind == O_ALT ? any : d->kind == O_REPEAT ? all || !d->min : all;
            is_changed = is_changed || now != o->is_productive[k];
            o->is_productive[k] = now;
        }
    }
}

static inline void oracle_read(struct oracle *o, const char *text)
{
    bool is_changed = true;

    o->text = text;
    o->n = (int)strlen(text);
    EXPECT(o->n <= ORACLE_TEXT);
    memset(o->derives, 0, sizeof(o->derives));
    memset(o->extends, 0, sizeof(o->extends));
    while (is_changed) {
        is_changed = false;
        for (int k = 0; k < o->n_nodes; k++)
            for (int i = o->n; i >= 0; i--) {
                bool extends;
                position_set ends = ends_of(o, k, i, &extends);
                for (int j = i; j <= o->n; j++)
                    if (ends >> j & 1 && !o->derives[k][i][j])
                        is_changed = o->derives[k][i][j] = true;
                if (extends && !o->extends[k][i])
                    is_changed = o->extends[k][i] = true;
            }
    }
}

static inline bool oracle_accepts(const struct oracle *o)
{
    return o->derives[o->rules[0]][0][o->n];
}

static inline bool oracle_is_viable(const struct oracle *o)
{
    return o->extends[o->rules[0]][0];
}
