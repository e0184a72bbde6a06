/* Compiles folded parts to rules, alternatives and symbols, and these to the tables of a grammar.
 *
 * A repetition of a symbol X that is not regular becomes rules of logarithmic number:
 *
 *     X{k}    = X{k/2} X{k/2}                    X*       = empty | X X*
 *     X{0,k}  = X{0,h-1} | X{h} X{0,k-h}         h: the largest power of two <= k */
#include "base/hash.h"
#include "base/mem.h"
#include "constrain/regular/derive.h"
#include "constrain/regular/expr_in.h"
#include "constrain/grammar/grammar_in.h"
#include "constrain/regular/live.h"
#include "constrain/grammar/scc.h"

enum counted_kind { COUNTED_PART, COUNTED_POWER, COUNTED_UP_TO };

/* A rule before the tables are made. */
struct draft_rule {
    enum counted_kind kind;
    uint32_t part;        /* COUNTED_PART */
    struct symbol symbol; /* the others: repeated symbol */
    uint32_t count;
    bool is_productive, is_reachable, is_nullable;
};

struct alternative {
    uint32_t rule;
    uint32_t first, n;       /* symbols */
    uint32_t n_unproductive; /* symbols that are not known to produce a text */
    uint32_t n_consuming;    /* symbols that are not known to be nullable */
};

struct builder {
    struct grammar *g;
    struct draft_rule *rules;
    uint32_t n_rules, cap_rules;
    struct alternative *alts;
    uint32_t n_alts, cap_alts;
    struct symbol *symbols;
    uint32_t n_symbols, cap_symbols;
    uint32_t *exprs;
    uint32_t n_exprs, cap_exprs;
    uint32_t *stack; /* parts of a sequence or of a union, in reverse order */
    uint32_t n_stack, cap_stack;
    struct u64_map *number_of_expr; /* expression -> number */
    struct u64_map *counted;        /* symbol, kind, count -> rule */
    uint32_t *uses, *first_use;     /* alternatives by the rules that they contain */
    uint32_t *queue;
    struct err missing; /* first expression that the vocabulary cannot produce */
};

static void fail_memory(struct builder *b)
{
    grammar_fail(b->g, ERR_MEMORY, "no memory for a grammar");
}

#define GROW(b, array, n, cap)                                                                     \
    grammar_grow((b)->g, (void **)&(b)->array, (b)->n, &(b)->cap, sizeof(*(b)->array))

static void push(struct builder *b, uint32_t part)
{
    if (GROW(b, stack, n_stack, cap_stack))
        b->stack[b->n_stack++] = part;
}

/* ---- symbols */

static uint32_t add_rule(struct builder *b, struct draft_rule r)
{
    if (!GROW(b, rules, n_rules, cap_rules))
        return 0;
    b->rules[b->n_rules] = r;
    return b->n_rules++;
}

static struct symbol expr_symbol(struct builder *b, expr_id expr)
{
    uint32_t k = b->n_exprs;

    if (u64_map_get(b->number_of_expr, expr.i, &k))
        return (struct symbol){ SYMBOL_EXPR, k };
    if (!GROW(b, exprs, n_exprs, cap_exprs))
        return (struct symbol){ 0 };
    if (u64_map_put(b->number_of_expr, expr.i, k) < 0)
        fail_memory(b);
    b->exprs[b->n_exprs++] = expr.i;
    return (struct symbol){ SYMBOL_EXPR, k };
}

static struct symbol symbol_of(struct builder *b, uint32_t part)
{
    struct part *p = &b->g->parts[part];

    if (p->kind == PART_REF) {
        part = b->g->rules[p->value].body;
        p = &b->g->parts[part];
    }
    if (p->folded != NOT_REGULAR)
        return expr_symbol(b, (expr_id){ p->folded });
    if (p->kind == PART_JSON)
        return (struct symbol){ SYMBOL_JSON, p->value };
    if (p->kind == PART_TOKENS)
        return (struct symbol){ SYMBOL_TOKENS, p->value };
    if (!p->rule)
        p->rule = 1 + add_rule(b, (struct draft_rule){ .part = part });
    return (struct symbol){ SYMBOL_RULE, p->rule - 1 };
}

/* The rule of symbol{count} or symbol{0,count}. */
static struct symbol counted_symbol(
    struct builder *b, enum counted_kind kind, struct symbol s, uint32_t count)
{
    uint64_t key =
        ((uint64_t)s.kind << 57) | ((uint64_t)kind << 55) | ((uint64_t)count << 24) | s.value;
    uint32_t rule = 0;

    if (kind == COUNTED_POWER && count == 1)
        return s;
    if (!u64_map_get(b->counted, key, &rule)) {
        rule = add_rule(b, (struct draft_rule){ .kind = kind, .symbol = s, .count = count });
        if (u64_map_put(b->counted, key, rule) < 0)
            fail_memory(b);
    }
    return (struct symbol){ SYMBOL_RULE, rule };
}

/* ---- alternatives */

static void begin_alternative(struct builder *b, uint32_t rule)
{
    if (GROW(b, alts, n_alts, cap_alts))
        b->alts[b->n_alts++] = (struct alternative){ .rule = rule, .first = b->n_symbols };
}

static void add_symbol(struct builder *b, struct symbol s)
{
    if (b->g->is_failed || !GROW(b, symbols, n_symbols, cap_symbols))
        return;
    b->symbols[b->n_symbols++] = s;
    b->alts[b->n_alts - 1].n++;
}

/* A symbol for the expression, joined with the symbol before if this is an expression, too. */
static void add_expr(struct builder *b, expr_id expr)
{
    struct exprs *x = b->g->x;
    const struct alternative *a = &b->alts[b->n_alts - 1];
    struct symbol *last = a->n ? &b->symbols[b->n_symbols - 1] : NULL;

    if (last && last->kind == SYMBOL_EXPR) {
        expr_id joined = expr_cat(x, (expr_id){ b->exprs[last->value] }, expr);
        if (!exprs_failed(x) && node_of(x, joined)->depth <= GRAMMAR_FOLD_DEPTH_MAX) {
            struct symbol s = expr_symbol(b, joined);
            if (!b->g->is_failed)
                b->symbols[b->n_symbols - 1] = s;
            return;
        }
    }
    add_symbol(b, expr_symbol(b, expr));
}

static bool is_kind(const struct builder *b, uint32_t part, enum part_kind kind)
{
    const struct part *p = &b->g->parts[part];

    return p->folded == NOT_REGULAR && p->kind == kind;
}

static void push_args(struct builder *b, uint32_t part)
{
    const struct part *p = &b->g->parts[part];

    for (uint32_t k = p->n; k-- > 0;)
        push(b, b->g->args[p->first + k]);
}

/* One alternative for the part; nested concatenations are flattened. */
static void add_sequence(struct builder *b, uint32_t rule, uint32_t part)
{
    uint32_t bottom = b->n_stack;

    begin_alternative(b, rule);
    push(b, part);
    while (b->n_stack > bottom && !b->g->is_failed) {
        part = b->stack[--b->n_stack];
        if (is_kind(b, part, PART_CAT))
            push_args(b, part);
        else if (b->g->parts[part].folded != NOT_REGULAR)
            add_expr(b, (expr_id){ b->g->parts[part].folded });
        else
            add_symbol(b, symbol_of(b, part));
    }
}

/* An alternative for each member; regular members become one. */
static void add_union(struct builder *b, uint32_t rule, uint32_t part)
{
    struct exprs *x = b->g->x;
    uint32_t bottom = b->n_stack, start = x->n_stack;

    push_args(b, part);
    while (b->n_stack > bottom && !b->g->is_failed) {
        part = b->stack[--b->n_stack];
        if (is_kind(b, part, PART_ALT))
            push_args(b, part);
        else if (b->g->parts[part].folded != NOT_REGULAR)
            expr_push(x, b->g->parts[part].folded);
        else
            add_sequence(b, rule, part);
    }
    if (exprs_failed(x) || b->g->is_failed)
        return;
    if (x->n_stack > start) {
        expr_id all =
            expr_or_all(x, (const expr_id *)(const void *)(x->stack + start), x->n_stack - start);
        begin_alternative(b, rule);
        if (!b->g->is_failed)
            add_expr(b, all);
    }
    x->n_stack = start;
}

static void add_repetition(struct builder *b, uint32_t rule, const struct part *p)
{
    struct symbol s = symbol_of(b, b->g->args[p->first]);

    if (p->min) {
        begin_alternative(b, rule);
        if (b->g->is_failed)
            return;
        add_symbol(b, counted_symbol(b, COUNTED_POWER, s, p->min));
        if (p->max > p->min) {
            uint32_t rest = p->max == REPEAT_INF ? 0 : p->max - p->min;
            add_symbol(b, counted_symbol(b, COUNTED_UP_TO, s, rest));
        }
        return;
    }
    uint32_t rest = p->max == REPEAT_INF ? 0 : p->max;
    struct symbol all = counted_symbol(b, COUNTED_UP_TO, s, rest);
    begin_alternative(b, rule);
    if (!b->g->is_failed && p->max)
        add_symbol(b, all);
}

static void add_counted(struct builder *b, uint32_t rule)
{
    struct draft_rule r = b->rules[rule];
    struct symbol half, rest, self = { SYMBOL_RULE, rule };

    if (r.kind == COUNTED_POWER) {
        half = counted_symbol(b, COUNTED_POWER, r.symbol, r.count / 2);
        begin_alternative(b, rule);
        if (b->g->is_failed)
            return;
        add_symbol(b, half);
        add_symbol(b, half);
        if (r.count % 2)
            add_symbol(b, r.symbol);
        return;
    }
    uint32_t h = 1;
    while (r.count && h <= r.count / 2)
        h *= 2;
    begin_alternative(b, rule); /* fewer than h; h = 1: none */
    if (h > 1 && !b->g->is_failed)
        add_symbol(b, counted_symbol(b, COUNTED_UP_TO, r.symbol, h - 1));
    half = counted_symbol(b, COUNTED_POWER, r.symbol, h);
    rest = !r.count      ? self /* no limit */
           : r.count > h ? counted_symbol(b, COUNTED_UP_TO, r.symbol, r.count - h)
                         : (struct symbol){ 0 };
    begin_alternative(b, rule);
    if (b->g->is_failed)
        return;
    add_symbol(b, half);
    if (rest.kind)
        add_symbol(b, rest);
}

/* Rule 0 is the start; compiling a rule adds the rules that it contains. */
static void add_rules(struct builder *b, uint32_t body)
{
    begin_alternative(b, add_rule(b, (struct draft_rule){ 0 }));
    if (b->g->is_failed)
        return;
    add_symbol(b, symbol_of(b, body));
    for (uint32_t r = 1; r < b->n_rules && !b->g->is_failed && expr_work(b->g->x, 1); r++) {
        uint32_t part = b->rules[r].part;
        const struct part *p = &b->g->parts[part];
        if (b->rules[r].kind != COUNTED_PART)
            add_counted(b, r);
        else if (p->kind == PART_ALT)
            add_union(b, r, part);
        else if (p->kind == PART_REPEAT)
            add_repetition(b, r, p);
        else
            add_sequence(b, r, part);
    }
}

/* ---- expressions */

/* Restricts the expressions to texts of the vocabulary; those without a text become EXPR_NONE. */
static void check_exprs(struct builder *b)
{
    struct grammar *g = b->g;
    const struct producible *p = g->has_vocab ? g->vocab.producible : NULL;

    for (uint32_t k = 0; k < b->n_exprs && !exprs_failed(g->x); k++) {
        expr_id e = { b->exprs[k] };
        struct err why;
        if (p && producible_restrict(p, g->x, e, &e, &why)) {
            b->missing = b->missing.code == ERR_NONE ? why : b->missing;
            e = EXPR_NONE;
        }
        b->exprs[k] = expr_is_live(g->x, e) ? e.i : EXPR_NONE.i;
    }
    if (g->regular != NOT_REGULAR)
        g->regular = b->exprs[0]; /* the symbol of the start */
}

static bool is_productive(const struct builder *b, struct symbol s)
{
    return s.kind == SYMBOL_RULE   ? b->rules[s.value].is_productive
           : s.kind == SYMBOL_EXPR ? b->exprs[s.value] != EXPR_NONE.i
                                   : true;
}

static bool is_nullable(const struct builder *b, struct symbol s)
{
    return s.kind == SYMBOL_RULE
               ? b->rules[s.value].is_nullable
               : s.kind == SYMBOL_EXPR && expr_accepts(b->g->x, (expr_id){ b->exprs[s.value] });
}

/* ---- properties of rules */

/* Lists the alternatives that contain each rule. */
static bool list_uses(struct builder *b)
{
    b->uses = try_malloc(MAX(b->n_symbols, 1u) * sizeof(*b->uses));
    b->first_use = try_calloc(b->n_rules + 2, sizeof(*b->first_use));
    b->queue = try_malloc(MAX(b->n_rules, 1u) * sizeof(*b->queue));
    if (!b->uses || !b->first_use || !b->queue) {
        fail_memory(b);
        return false;
    }
    for (uint32_t k = 0; k < b->n_symbols; k++)
        if (b->symbols[k].kind == SYMBOL_RULE)
            b->first_use[b->symbols[k].value + 2]++;
    for (uint32_t r = 2; r < b->n_rules + 2; r++)
        b->first_use[r] += b->first_use[r - 1];
    for (uint32_t a = 0; a < b->n_alts; a++)
        for (uint32_t k = b->alts[a].first; k < b->alts[a].first + b->alts[a].n; k++)
            if (b->symbols[k].kind == SYMBOL_RULE)
                b->uses[b->first_use[b->symbols[k].value + 1]++] = a;
    return true;
}

/* Marks the rules that produce a text, or with `want_empty` those that produce the empty text. */
static void mark_rules(struct builder *b, bool want_empty)
{
    uint32_t n_queue = 0;

    for (uint32_t k = 0; k < b->n_alts; k++) {
        struct alternative *a = &b->alts[k];
        uint32_t *count = want_empty ? &a->n_consuming : &a->n_unproductive;
        for (uint32_t j = a->first; j < a->first + a->n; j++)
            *count += !(want_empty
                            ? is_nullable(b, b->symbols[j])
                            : is_productive(b, b->symbols[j]) && b->symbols[j].kind != SYMBOL_RULE);
    }
    for (uint32_t k = 0; k < b->n_alts; k++) {
        const struct alternative *a = &b->alts[k];
        struct draft_rule *r = &b->rules[a->rule];
        bool *mark = want_empty ? &r->is_nullable : &r->is_productive;
        if (!(want_empty ? a->n_consuming : a->n_unproductive) && !*mark) {
            *mark = true;
            b->queue[n_queue++] = a->rule;
        }
    }
    while (n_queue) {
        uint32_t rule = b->queue[--n_queue];
        for (uint32_t k = b->first_use[rule]; k < b->first_use[rule + 1]; k++) {
            struct alternative *a = &b->alts[b->uses[k]];
            struct draft_rule *r = &b->rules[a->rule];
            bool *mark = want_empty ? &r->is_nullable : &r->is_productive;
            if (--*(want_empty ? &a->n_consuming : &a->n_unproductive) || *mark)
                continue;
            *mark = true;
            b->queue[n_queue++] = a->rule;
        }
    }
}

/* Drops alternatives that produce no text, and sorts the others by rule; then marks the rules that
 * the start reaches. */
static void keep_productive(struct builder *b)
{
    uint32_t n = 0, n_queue = 0;

    for (uint32_t k = 0; k < b->n_alts; k++)
        if (!b->alts[k].n_unproductive)
            b->alts[n++] = b->alts[k]; /* they are made in the order of the rules */
    b->n_alts = n;
    for (uint32_t r = 0, k = 0; r <= b->n_rules; r++) {
        while (k < n && b->alts[k].rule < r)
            k++;
        b->first_use[r] = k; /* from here on: first alternative of the rule */
    }
    b->rules[0].is_reachable = true;
    b->queue[n_queue++] = 0;
    while (n_queue) {
        uint32_t rule = b->queue[--n_queue];
        for (uint32_t k = b->first_use[rule]; k < b->first_use[rule + 1]; k++) {
            const struct alternative *a = &b->alts[k];
            for (uint32_t j = a->first; j < a->first + a->n; j++) {
                struct symbol s = b->symbols[j];
                if (s.kind == SYMBOL_RULE && !b->rules[s.value].is_reachable) {
                    b->rules[s.value].is_reachable = true;
                    b->queue[n_queue++] = s.value;
                }
            }
        }
    }
}

/* ---- tables */

static void *table(struct builder *b, size_t n, size_t size)
{
    void *p = arena_zalloc(b->g->arena, MAX(n, (size_t)1), size);

    if (!p)
        grammar_fail(b->g, ERR_TOO_LARGE, "the tables of the grammar exceed %zu bytes",
            b->g->limits.bytes_max);
    return p;
}

/* The left corners of an alternative: calls visit(slot) for each symbol after nullable ones. */
static uint32_t end_of_left_corners(const struct builder *b, const struct alternative *a)
{
    uint32_t j = 0;

    while (j < a->n && is_nullable(b, b->symbols[a->first + j]))
        j++;
    return MIN(j + 1, a->n);
}

/* Components of the left-corner relation. */
static bool number_components(struct builder *b)
{
    struct grammar_tables *t = &b->g->t;
    uint32_t *first = try_calloc(b->n_rules + 1, sizeof(*first)), n = 0;
    uint32_t *to = try_malloc(MAX(b->n_symbols, 1u) * sizeof(*to));
    uint32_t *component = try_malloc(MAX(b->n_rules, 1u) * sizeof(*component));

    t->n_components = UINT32_MAX;
    if (first && to && component) {
        for (uint32_t r = 0; r < b->n_rules; r++) {
            first[r] = n;
            for (uint32_t k = b->first_use[r]; k < b->first_use[r + 1]; k++) {
                const struct alternative *a = &b->alts[k];
                for (uint32_t j = 0; j < end_of_left_corners(b, a); j++)
                    if (b->symbols[a->first + j].kind == SYMBOL_RULE)
                        to[n++] = b->symbols[a->first + j].value;
            }
        }
        first[b->n_rules] = n;
        t->n_components = graph_components(&(struct graph){ b->n_rules, first, to }, component);
        for (uint32_t r = 0; r < b->n_rules && t->n_components != UINT32_MAX; r++)
            t->rules[r].component = component[r];
    }
    mem_free(first);
    mem_free(to);
    mem_free(component);
    if (t->n_components == UINT32_MAX)
        fail_memory(b);
    return !b->g->is_failed;
}

/* Writes the slots of the reachable rules, and for each slot its alternative to `alt_of`. */
static void write_slots(struct builder *b)
{
    struct grammar_tables *t = &b->g->t;

    for (uint32_t k = 0; k < b->n_alts; k++) {
        struct alternative *a = &b->alts[k];
        if (!b->rules[a->rule].is_reachable)
            continue;
        uint32_t first = t->n_slots;
        for (uint32_t j = 0; j < a->n; j++)
            t->slots[t->n_slots++] = b->symbols[a->first + j];
        t->slots[t->n_slots++] = (struct symbol){ SYMBOL_END, a->rule };
        a->n_consuming = first; /* from here on: first slot */
    }
}

enum list { LIST_ITEMS, LIST_CALLS, LIST_CALLERS };

/* Adds the left corners to the lists of their component or rule. Called twice: to count, with
 * arrays of NULL, and to write. */
static void list_left_corners(struct builder *b, bool is_counting)
{
    struct grammar_tables *t = &b->g->t;

    for (uint32_t k = 0; k < b->n_alts; k++) {
        const struct alternative *a = &b->alts[k];
        if (!b->rules[a->rule].is_reachable)
            continue;
        uint32_t c = t->rules[a->rule].component;
        for (uint32_t j = 0; j < end_of_left_corners(b, a); j++) {
            uint32_t slot = a->n_consuming + j;
            struct symbol s = t->slots[slot];
            struct component *own = &t->components[c];
            if (s.kind != SYMBOL_RULE) {
                if (!is_counting)
                    t->items[own->first_item + own->n_items] = slot;
                own->n_items++;
            } else if (t->rules[s.value].component != c) {
                if (!is_counting)
                    t->calls[own->first_call + own->n_calls] = slot;
                own->n_calls++;
            } else {
                struct compiled_rule *r = &t->rules[s.value];
                if (!is_counting)
                    t->callers[r->first_caller + r->n_callers] = slot + 1;
                r->n_callers++;
            }
        }
    }
}

/* Turns counts into positions. */
static void place_lists(struct grammar_tables *t, uint32_t n[3])
{
    for (uint32_t c = 0; c < t->n_components; c++) {
        struct component *own = &t->components[c];
        own->first_item = n[LIST_ITEMS];
        own->first_call = n[LIST_CALLS];
        n[LIST_ITEMS] += own->n_items;
        n[LIST_CALLS] += own->n_calls;
        own->n_items = own->n_calls = 0;
    }
    for (uint32_t r = 0; r < t->n_rules; r++) {
        t->rules[r].first_caller = n[LIST_CALLERS];
        n[LIST_CALLERS] += t->rules[r].n_callers;
        t->rules[r].n_callers = 0;
    }
}

/* The union of code(k) exprs[k], as a tree of unions by the bytes of the codes. */
static expr_id union_of_codes(struct builder *b, uint32_t from, uint32_t to, int level)
{
    struct exprs *x = b->g->x;
    expr_id members[256];
    size_t n = 0;
    uint32_t step = level == 0 ? 1 : level == 1 ? 256 : 65536;

    for (uint32_t k = from; k < to; k += step) {
        expr_id rest =
            level ? union_of_codes(b, k, MIN(k + step, to), level - 1) : (expr_id){ b->exprs[k] };
        uint8_t byte = (uint8_t)(k / step);
        members[n++] = expr_cat(x, expr_range(x, byte, byte), rest);
    }
    return expr_or_all(x, members, n);
}

static void write_tables(struct builder *b)
{
    struct grammar_tables *t = &b->g->t;
    uint32_t n[3] = { 0 };

    t->n_rules = b->n_rules;
    t->rules = table(b, b->n_rules, sizeof(*t->rules));
    t->slots = table(b, (size_t)b->n_symbols + b->n_alts, sizeof(*t->slots));
    if (!t->rules || !t->slots || !number_components(b))
        return;
    for (uint32_t r = 0; r < b->n_rules; r++)
        t->rules[r].is_nullable = b->rules[r].is_nullable;
    write_slots(b);
    t->components = table(b, t->n_components, sizeof(*t->components));
    if (!t->components)
        return;
    list_left_corners(b, true);
    place_lists(t, n);
    t->items = table(b, n[LIST_ITEMS], sizeof(*t->items));
    t->calls = table(b, n[LIST_CALLS], sizeof(*t->calls));
    t->callers = table(b, n[LIST_CALLERS], sizeof(*t->callers));
    t->exprs = table(b, b->n_exprs, sizeof(*t->exprs));
    t->expr_is_nullable = table(b, b->n_exprs, sizeof(*t->expr_is_nullable));
    if (b->g->is_failed)
        return;
    list_left_corners(b, false);
    t->n_exprs = b->n_exprs;
    for (uint32_t k = 0; k < b->n_exprs; k++) {
        t->exprs[k] = b->exprs[k];
        t->expr_is_nullable[k] = is_nullable(b, (struct symbol){ SYMBOL_EXPR, k });
    }
    t->codes = union_of_codes(b, 0, b->n_exprs, GRAMMAR_CODE_BYTES - 1).i;
}

int grammar_compile(struct grammar *g, rule_id root)
{
    struct builder b = { .g = g };

    b.number_of_expr = u64_map_new(64);
    b.counted = u64_map_new(16);
    if (!b.number_of_expr || !b.counted)
        fail_memory(&b);
    else
        add_rules(&b, g->rules[root.i].body);
    /* The empty text has a number, too: its state has no continuation (grammar_acceptor.c). */
    if (!g->is_failed && !exprs_failed(g->x))
        g->t.empty = expr_symbol(&b, EXPR_EPS).value;
    if (!g->is_failed && !exprs_failed(g->x))
        check_exprs(&b);
    if (!g->is_failed && !exprs_failed(g->x) && list_uses(&b)) {
        mark_rules(&b, false);
        mark_rules(&b, true);
        keep_productive(&b);
        if (!b.rules[0].is_productive && b.missing.code != ERR_NONE)
            grammar_fail(g, b.missing.code, "%s", b.missing.msg);
        else if (!b.rules[0].is_productive)
            grammar_fail(g, ERR_INVALID, "no text satisfies the rule \"%.*s\"",
                (int)MIN(g->rules[root.i].name.n, (size_t)200), g->rules[root.i].name.p);
        else
            write_tables(&b);
    }
    u64_map_free(b.number_of_expr);
    u64_map_free(b.counted);
    mem_free(b.rules);
    mem_free(b.alts);
    mem_free(b.symbols);
    mem_free(b.exprs);
    mem_free(b.stack);
    mem_free(b.uses);
    mem_free(b.first_use);
    mem_free(b.queue);
    return g->is_failed || exprs_failed(g->x) ? -1 : 0;
}
