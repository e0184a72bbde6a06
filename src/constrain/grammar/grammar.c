#include "constrain/grammar/grammar.h"

#include "base/mem.h"
#include "constrain/regular/derive.h"
#include "constrain/regular/expr_in.h"
#include "constrain/grammar/grammar_in.h"
#include "constrain/regular/live.h"
#include "constrain/regular/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const struct grammar_limits grammar_limits_default = { 16 * MB, 1000000, 200000 };

static int32_t find_in_vocab(const void *ctx, struct str text)
{
    return vocab_find(ctx, text);
}

struct grammar_vocab grammar_vocab_of(const struct vocab *v, const struct producible *p)
{
    return (struct grammar_vocab){ token_source_of_vocab(v), find_in_vocab, p };
}

void grammar_fail(struct grammar *g, enum errcode code, const char *fmt, ...)
{
    char what[sizeof(g->err.msg)];
    va_list args;

    if (g->is_failed)
        return;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    g->is_failed = true;
    err_set(&g->err, code, "%s", what);
}

static void fail_memory(struct grammar *g)
{
    grammar_fail(g, ERR_MEMORY, "no memory for a grammar");
}

bool grammar_grow(struct grammar *g, void **array, uint32_t n, uint32_t *cap, size_t size)
{
    if (g->is_failed || n < *cap)
        return !g->is_failed;
    if (n >= g->limits.parts_max) {
        grammar_fail(g, ERR_TOO_LARGE, "the grammar has more than %u parts", g->limits.parts_max);
        return false;
    }
    uint32_t bigger = MIN(MAX(*cap * 2, 32u), g->limits.parts_max);
    void *p = try_realloc(*array, bigger * size);
    if (!p) {
        fail_memory(g);
        return false;
    }
    *array = p;
    *cap = bigger;
    return true;
}

struct grammar *grammar_new(const struct grammar_limits *l, const struct grammar_vocab *v)
{
    struct grammar *g = try_calloc(1, sizeof(*g));

    if (!g)
        return NULL;
    g->limits = *l;
    g->has_vocab = v != NULL;
    if (v)
        g->vocab = *v;
    g->regular = NOT_REGULAR;
    g->x = exprs_new((struct expr_limits){ l->bytes_max, l->work_max });
    g->arena = arena_new(l->bytes_max);
    g->schema_of = str_map_new(16);
    if (!g->x || !g->arena || !g->schema_of) {
        grammar_free(g);
        return NULL;
    }
    grammar_expr(g, EXPR_NONE);
    grammar_expr(g, EXPR_EPS);
    return g;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    exprs_free(g->x);
    arena_free(g->arena);
    str_map_free(g->schema_of);
    mem_free(g->parts);
    mem_free(g->args);
    mem_free(g->rules);
    mem_free(g->sets);
    mem_free(g->schemas);
    mem_free(g);
}

struct exprs *grammar_exprs(struct grammar *g)
{
    return g->x;
}

/* ---- parts */

static part_id add_part(struct grammar *g, struct part p)
{
    if (!grammar_grow(g, (void **)&g->parts, g->n_parts, &g->cap_parts, sizeof(p)))
        return PART_NEVER;
    g->parts[g->n_parts] = p;
    return (part_id){ g->n_parts++ };
}

part_id grammar_expr(struct grammar *g, expr_id pure)
{
    if (exprs_failed(g->x))
        return PART_NEVER;
    CHECK(expr_is_pure(g->x, pure));
    return add_part(g, (struct part){ .kind = PART_EXPR, .folded = pure.i });
}

part_id grammar_literal(struct grammar *g, struct str bytes)
{
    return grammar_expr(g, expr_literal(g->x, bytes));
}

static part_id add_list(struct grammar *g, enum part_kind kind, const part_id *members, size_t n)
{
    uint32_t first = g->n_args;

    for (size_t k = 0; k < n; k++) {
        if (!grammar_grow(g, (void **)&g->args, g->n_args, &g->cap_args, sizeof(*g->args)))
            return PART_NEVER;
        g->args[g->n_args++] = members[k].i;
    }
    return add_part(
        g, (struct part){
               .kind = (uint8_t)kind, .first = first, .n = (uint32_t)n, .folded = NOT_REGULAR });
}

part_id grammar_cat_all(struct grammar *g, const part_id *members, size_t n)
{
    return n == 1 ? members[0] : !n ? PART_EMPTY : add_list(g, PART_CAT, members, n);
}

part_id grammar_alt_all(struct grammar *g, const part_id *members, size_t n)
{
    return n == 1 ? members[0] : !n ? PART_NEVER : add_list(g, PART_ALT, members, n);
}

part_id grammar_cat(struct grammar *g, part_id a, part_id b)
{
    return grammar_cat_all(g, (part_id[]){ a, b }, 2);
}

part_id grammar_alt(struct grammar *g, part_id a, part_id b)
{
    return grammar_alt_all(g, (part_id[]){ a, b }, 2);
}

part_id grammar_repeat(struct grammar *g, part_id a, uint32_t min, uint32_t max)
{
    CHECK(min <= max && min <= REPEAT_MAX && (max <= REPEAT_MAX || max == REPEAT_INF));
    if (min == 1 && max == 1)
        return a;
    part_id p = add_list(g, PART_REPEAT, &a, 1);
    if (!g->is_failed) {
        g->parts[p.i].min = min;
        g->parts[p.i].max = max;
    }
    return p;
}

part_id grammar_json(struct grammar *g, struct str schema)
{
    uint32_t k = 0;

    if (!str_map_get(g->schema_of, schema, &k)) {
        if (!grammar_grow(
                g, (void **)&g->schemas, g->n_schemas, &g->cap_schemas, sizeof(*g->schemas)))
            return PART_NEVER;
        struct str copy = arena_str(g->arena, schema);
        k = g->n_schemas;
        if (!copy.p || str_map_put(g->schema_of, copy, k) < 0) {
            fail_memory(g);
            return PART_NEVER;
        }
        g->schemas[g->n_schemas++] = copy;
    }
    return add_part(g, (struct part){ .kind = PART_JSON, .value = k, .folded = NOT_REGULAR });
}

/* ---- tokens */

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* `ids` is in the arena and becomes sorted without duplicates. */
static part_id add_set(struct grammar *g, int32_t *ids, size_t n)
{
    uint32_t n_distinct = 0;

    if (!n)
        return PART_NEVER;
    qsort(ids, n, sizeof(*ids), by_id);
    for (size_t k = 0; k < n; k++)
        if (!k || ids[k] != ids[n_distinct - 1])
            ids[n_distinct++] = ids[k];
    if (!grammar_grow(g, (void **)&g->sets, g->n_sets, &g->cap_sets, sizeof(*g->sets)))
        return PART_NEVER;
    g->sets[g->n_sets] = (struct token_set){ ids, n_distinct };
    return add_part(
        g, (struct part){ .kind = PART_TOKENS, .value = g->n_sets++, .folded = NOT_REGULAR });
}

static bool is_control(const struct grammar *g, int32_t id)
{
    const struct token_source *t = &g->vocab.tokens;

    return !t->bytes(t->ctx, id).n && !t->is_end(t->ctx, id);
}

/* The id has to be in the vocabulary. */
static bool check_token(struct grammar *g, int32_t id)
{
    const struct token_source *t = &g->vocab.tokens;

    if (!g->has_vocab || id < 0 || id >= t->n_tokens)
        grammar_fail(g, ERR_INVALID, "token %d is not in the vocabulary", id);
    else if (t->is_end(t->ctx, id))
        grammar_fail(g, ERR_INVALID, "token %d ends the text and cannot be part of it", id);
    return !g->is_failed;
}

part_id grammar_tokens(struct grammar *g, const int32_t *ids, size_t n)
{
    int32_t *control = arena_alloc(g->arena, MAX(n, (size_t)1) * sizeof(*control));
    size_t n_control = 0;
    part_id all = PART_NEVER;

    if (!control) {
        fail_memory(g);
        return PART_NEVER;
    }
    for (size_t k = 0; k < n; k++) {
        if (!check_token(g, ids[k]))
            return PART_NEVER;
        if (is_control(g, ids[k]))
            control[n_control++] = ids[k];
        else
            all = grammar_alt(
                g, all, grammar_literal(g, g->vocab.tokens.bytes(g->vocab.tokens.ctx, ids[k])));
    }
    part_id set = add_set(g, control, n_control);
    return !n_control ? all : n_control == n ? set : grammar_alt(g, all, set);
}

part_id grammar_token(struct grammar *g, int32_t id)
{
    return grammar_tokens(g, &id, 1);
}

part_id grammar_token_except(struct grammar *g, const int32_t *ids, size_t n)
{
    const struct token_source *t = &g->vocab.tokens;
    size_t n_control = 0, at = 0;

    for (size_t k = 0; k < n; k++) {
        if (!check_token(g, ids[k]))
            return PART_NEVER;
        if (!is_control(g, ids[k])) {
            grammar_fail(g, ERR_UNSUPPORTED,
                "token %d has a text; only control tokens can be excluded", ids[k]);
            return PART_NEVER;
        }
    }
    part_id character = grammar_expr(g, text_any(g->x, TEXT_UTF8));
    for (int32_t id = 0; g->has_vocab && id < t->n_tokens; id++)
        n_control += is_control(g, id);
    int32_t *rest = arena_alloc(g->arena, MAX(n_control, (size_t)1) * sizeof(*rest));
    if (!rest) {
        fail_memory(g);
        return PART_NEVER;
    }
    for (int32_t id = 0; g->has_vocab && id < t->n_tokens; id++) {
        bool is_listed = false;
        for (size_t k = 0; k < n; k++)
            is_listed = is_listed || ids[k] == id;
        if (!is_listed && is_control(g, id))
            rest[at++] = id;
    }
    return at ? grammar_alt(g, character, add_set(g, rest, at)) : character;
}

part_id grammar_text_until(struct grammar *g, const struct str *markers, size_t n)
{
    struct exprs *x = g->x;
    expr_id found = EXPR_NONE;

    for (size_t k = 0; k < n; k++) {
        expr_id rest = expr_cat(x, expr_literal(x, markers[k]), EXPR_ALL);
        found = expr_or(x, found, expr_cat(x, EXPR_ALL, rest));
    }
    return grammar_expr(g, expr_and(x, text_any_star(x, TEXT_UTF8), expr_not(x, found)));
}

int32_t grammar_find_token(const struct grammar *g, struct str text)
{
    return g->has_vocab ? g->vocab.find(g->vocab.tokens.ctx, text) : -1;
}

bool grammar_token_has_bytes(const struct grammar *g, int32_t id)
{
    return g->vocab.tokens.bytes(g->vocab.tokens.ctx, id).n > 0;
}

bool grammar_token_is_end(const struct grammar *g, int32_t id)
{
    return g->vocab.tokens.is_end(g->vocab.tokens.ctx, id);
}

/* ---- rules */

rule_id grammar_rule(struct grammar *g, struct str name)
{
    if (!grammar_grow(g, (void **)&g->rules, g->n_rules, &g->cap_rules, sizeof(*g->rules)))
        return (rule_id){ 0 };
    struct str copy = arena_str(g->arena, name);
    if (!copy.p)
        fail_memory(g);
    g->rules[g->n_rules] = (struct named_rule){ copy, PART_NEVER.i };
    return (rule_id){ g->n_rules++ };
}

void grammar_define(struct grammar *g, rule_id r, part_id body)
{
    if (!g->is_failed)
        g->rules[r.i].body = body.i;
}

part_id grammar_ref(struct grammar *g, rule_id r)
{
    return add_part(g, (struct part){ .kind = PART_REF, .value = r.i, .folded = NOT_REGULAR });
}

/* ---- the finished grammar */

bool grammar_failed(const struct grammar *g, struct err *e)
{
    if (g->is_failed)
        *e = g->err;
    return g->is_failed || (exprs_failed(g->x) && exprs_check(g->x, e));
}

int grammar_finish(struct grammar *g, rule_id root, struct err *e)
{
    if (!g->is_failed && !exprs_failed(g->x) && !grammar_fold(g, g->rules[root.i].body)) {
        g->regular = g->parts[g->rules[root.i].body].folded;
        if (grammar_compile(g, root))
            CHECK(g->is_failed || exprs_failed(g->x));
    }
    return grammar_failed(g, e) ? -1 : 0;
}

bool grammar_is_regular(const struct grammar *g, expr_id *root)
{
    root->i = g->regular;
    return g->regular != NOT_REGULAR;
}

uint32_t grammar_json_count(const struct grammar *g)
{
    return g->n_schemas;
}

struct str grammar_json_text(const struct grammar *g, uint32_t k)
{
    return g->schemas[k];
}

size_t grammar_bytes(const struct grammar *g)
{
    return sizeof(*g) + exprs_bytes(g->x) + arena_used(g->arena) +
           g->cap_parts * sizeof(*g->parts) + g->cap_args * sizeof(*g->args) +
           g->cap_rules * sizeof(*g->rules) + g->cap_sets * sizeof(*g->sets) +
           g->cap_schemas * sizeof(*g->schemas);
}

uint64_t grammar_work(const struct grammar *g)
{
    return exprs_work(g->x);
}
