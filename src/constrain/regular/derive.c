#include "constrain/regular/derive.h"

#include "base/hash.h"
#include "constrain/regular/expr_in.h"

static const struct byte_set word_bytes = { { 0x03ff000000000000, 0x07fffffe87fffffe, 0, 0 } };
static const struct byte_set backslash = { { 0, (uint64_t)1 << ('\\' - 64), 0, 0 } };
static const struct byte_set newline = { { (uint64_t)1 << '\n', 0, 0, 0 } };

/* Context after `byte`. */
static unsigned next_ctx(unsigned ctx, uint8_t byte)
{
    unsigned json = ctx & CTX_JSON, lines = ctx & CTX_LINES;

    if (ctx == (CTX_ESCAPE | CTX_JSON))
        return CTX_OTHER | json;
    if (json && byte == '\\')
        return CTX_ESCAPE | json;
    if (lines && byte == '\n')
        return CTX_START | lines;
    return (byte_set_has(&word_bytes, byte) ? CTX_WORD : CTX_OTHER) | json | lines;
}

static bool is_zero_width(const struct node *d)
{
    return d->kind == K_LOOK || d->kind == K_CARET || d->kind == K_BOUNDARY;
}

/* Rests at which the next character is a word character and the previous one is not, or the
 * reverse. In a JSON string an escape sequence begins with a backslash, which is no word byte. */
static expr_id boundary_rest(struct exprs *x, bool is_negated, unsigned ctx)
{
    expr_id word = expr_cat(x, expr_bytes(x, &word_bytes), EXPR_ALL);
    bool is_after_word = (ctx & 3) == CTX_WORD;

    return is_after_word == is_negated ? word : expr_not(x, word);
}

/* N(a) in a context. */
static expr_id empty_rest(struct exprs *x, expr_id a, unsigned ctx)
{
    const struct node *d = node_of(x, a);
    uint32_t n = d->n;
    expr_id all;

    if (!expr_work(x, 1))
        return EXPR_NONE;
    if (!(d->flags & F_IMPURE))
        return d->flags & F_ACCEPTS ? EXPR_ALL : EXPR_NONE;
    switch ((enum expr_kind)d->kind) {
    case K_LOOK:
        return arg_of(x, a, 0);
    case K_CARET:
        return (ctx & 3) == CTX_START ? EXPR_ALL : EXPR_NONE;
    case K_BOUNDARY:
        return boundary_rest(x, arg_of(x, a, 0).i, ctx);
    case K_REPEAT:
        return arg_of(x, a, 1).i ? empty_rest(x, arg_of(x, a, 0), ctx) : EXPR_ALL;
    case K_NOT:
        return expr_not(x, empty_rest(x, arg_of(x, a, 0), ctx));
    case K_CAT:
        all = empty_rest(x, arg_of(x, a, 0), ctx);
        /* The right side may be a long list. */
        while (!expr_eq(all, EXPR_NONE) && node_of(x, arg_of(x, a, 1))->kind == K_CAT) {
            a = arg_of(x, a, 1);
            all = expr_and(x, all, empty_rest(x, arg_of(x, a, 0), ctx));
        }
        return expr_eq(all, EXPR_NONE) ? all
                                       : expr_and(x, all, empty_rest(x, arg_of(x, a, 1), ctx));
    case K_OR:
    case K_AND:
        all = d->kind == K_OR ? EXPR_NONE : EXPR_ALL;
        for (uint32_t k = 0; k < n; k++) {
            expr_id rest = empty_rest(x, arg_of(x, a, k), ctx);
            all = node_of(x, a)->kind == K_OR ? expr_or(x, all, rest) : expr_and(x, all, rest);
        }
        return all;
    default:
        return EXPR_NONE; /* the other kinds are pure */
    }
}

/* True if `a` contains (empty, empty) in a context. */
static bool accepts_in(struct exprs *x, expr_id a, unsigned ctx)
{
    const struct node *d = node_of(x, a);
    bool found = d->kind != K_OR;

    if (!(d->flags & (F_HAS_CARET | F_HAS_BOUND)))
        return d->flags & F_ACCEPTS;
    if (!expr_work(x, 1))
        return false;
    switch ((enum expr_kind)d->kind) {
    case K_CARET:
        return (ctx & 3) == CTX_START;
    case K_BOUNDARY: /* at the end: the next character is none */
        return ((ctx & 3) == CTX_WORD) != (arg_of(x, a, 0).i != 0);
    case K_LOOK:
        return accepts_in(x, arg_of(x, a, 0), ctx);
    case K_REPEAT:
        return !arg_of(x, a, 1).i || accepts_in(x, arg_of(x, a, 0), ctx);
    case K_NOT:
        return !accepts_in(x, arg_of(x, a, 0), ctx);
    case K_CAT:
        for (; node_of(x, a)->kind == K_CAT; a = arg_of(x, a, 1))
            if (!accepts_in(x, arg_of(x, a, 0), ctx))
                return false;
        return accepts_in(x, a, ctx);
    case K_OR:
    case K_AND:
        for (uint32_t k = 0; k < d->n; k++)
            if (accepts_in(x, arg_of(x, a, k), ctx) != found)
                return !found;
        return found;
    default:
        return false; /* the other kinds do not depend on the context */
    }
}

bool expr_accepts(const struct exprs *x, expr_id a)
{
    return node_of(x, a)->flags & F_ACCEPTS;
}

/* ---- scopes */

/* Scope of each member. */
static expr_id scope_members(struct exprs *x, expr_id a, unsigned ctx)
{
    uint32_t n = node_of(x, a)->n, start = x->n_stack;
    bool is_or = node_of(x, a)->kind == K_OR;

    for (uint32_t k = 0; k < n && !exprs_failed(x); k++)
        expr_push(x, expr_scope(x, arg_of(x, a, k), ctx).i);
    if (exprs_failed(x)) {
        x->n_stack = start;
        return EXPR_NONE;
    }
    expr_id all = is_or ? EXPR_NONE : EXPR_ALL;
    if (is_or)
        all = expr_or_all(x, (const expr_id *)(const void *)(x->stack + start), n);
    for (uint32_t k = 0; k < n && !is_or; k++)
        all = expr_and(x, all, (expr_id){ x->stack[start + k] });
    x->n_stack = start;
    return all;
}

/* The scope is pushed towards the leaves, and disappears at pure expressions. */
expr_id expr_scope(struct exprs *x, expr_id a, unsigned ctx)
{
    const struct node *d = node_of(x, a);

    if (!expr_work(x, 1))
        return EXPR_NONE;
    if (!(d->flags & F_IMPURE))
        return a;
    if (d->kind == K_OR || d->kind == K_AND)
        return scope_members(x, a, ctx);
    if (d->kind == K_NOT)
        return expr_not(x, expr_scope(x, arg_of(x, a, 0), ctx));
    if (is_zero_width(d))
        return accepts_in(x, a, ctx) ? EXPR_EPS : EXPR_NONE;
    if (d->kind == K_CAT) {
        expr_id head = arg_of(x, a, 0), tail = arg_of(x, a, 1);
        const struct node *h = node_of(x, head), *t = node_of(x, tail);
        if (is_zero_width(h)) {
            expr_id rest = empty_rest(x, head, ctx);
            return expr_and(x, expr_scope(x, rest, ctx), expr_scope(x, tail, ctx));
        }
        if (!(h->flags & F_IMPURE) && !(t->flags & (F_HAS_CARET | F_HAS_BOUND)))
            return expr_cat(x, head, expr_scope(x, tail, ctx));
    }
    /* Contexts that the expression does not distinguish are one. */
    if (!(d->flags & F_HAS_CARET))
        ctx &= ~(unsigned)CTX_LINES;
    if (!(d->flags & F_HAS_BOUND) && (ctx & 3) != CTX_START)
        ctx = CTX_OTHER | (ctx & CTX_LINES);
    if (!(d->flags & F_HAS_CARET) && (ctx & 3) == CTX_START)
        ctx = CTX_OTHER | (ctx & CTX_JSON);
    if (!(d->flags & F_HAS_BOUND))
        ctx &= ~(unsigned)CTX_JSON;
    bool accepts = accepts_in(x, a, ctx);
    expr_id scope = expr_intern(x, K_SCOPE, (uint32_t[]){ a.i, ctx }, 2);
    if (accepts && !exprs_failed(x))
        x->nodes[scope.i].flags |= F_ACCEPTS | F_LIVE;
    return scope;
}

/* ---- derivatives */

static expr_id derive(struct exprs *x, expr_id a, uint8_t byte, unsigned ctx);

/* D(look(N(a))) b */
static expr_id after_empty(struct exprs *x, expr_id rest, expr_id b, uint8_t byte, unsigned ctx)
{
    return expr_cat(x, expr_look(x, derive(x, rest, byte, ctx)), b);
}

/* The elements of the list a b c .. are processed by a loop while they accept the empty word. */
static expr_id derive_cat(struct exprs *x, expr_id a, uint8_t byte, unsigned ctx)
{
    expr_id all = EXPR_NONE, rest = EXPR_ALL;

    for (;;) {
        bool is_cat = node_of(x, a)->kind == K_CAT;
        expr_id head = is_cat ? arg_of(x, a, 0) : a, tail = is_cat ? arg_of(x, a, 1) : EXPR_EPS;
        expr_id one = expr_cat(x, derive(x, head, byte, ctx), tail);
        if (!expr_eq(one, EXPR_NONE))
            all = expr_or(x, all, after_empty(x, rest, one, byte, ctx));
        if (!is_cat)
            return all;
        rest = expr_and(x, rest, empty_rest(x, head, ctx));
        if (expr_eq(rest, EXPR_NONE) || exprs_failed(x))
            return all;
        a = tail;
    }
}

static expr_id derive_repeat(struct exprs *x, expr_id a, uint8_t byte, unsigned ctx)
{
    expr_id base = arg_of(x, a, 0), d = derive(x, base, byte, ctx);
    uint32_t min = arg_of(x, a, 1).i, max = arg_of(x, a, 2).i;
    uint32_t max_left = max == REPEAT_INF ? max : max - 1;

    if (expr_eq(d, EXPR_NONE))
        return d;
    expr_id all = expr_cat(x, d, expr_repeat(x, base, min ? min - 1 : 0, max_left));
    if (min > 1 && node_of(x, base)->flags & F_IMPURE) {
        expr_id rest = empty_rest(x, base, ctx);
        expr_id one = expr_cat(x, d, expr_repeat(x, base, 0, max_left));
        if (!expr_eq(rest, EXPR_NONE))
            all = expr_or(x, all, after_empty(x, rest, one, byte, ctx));
    }
    return all;
}

static expr_id derive_members(struct exprs *x, expr_id a, uint8_t byte, unsigned ctx)
{
    uint32_t n = node_of(x, a)->n, start = x->n_stack;
    bool is_or = node_of(x, a)->kind == K_OR;
    expr_id all = EXPR_NONE;

    for (uint32_t k = 0; k < n && !exprs_failed(x); k++) {
        expr_id d = derive(x, arg_of(x, a, k), byte, ctx);
        if (is_or && expr_eq(d, EXPR_NONE))
            continue;
        if (!is_or && expr_eq(d, EXPR_NONE)) {
            x->n_stack = start;
            return EXPR_NONE;
        }
        expr_push(x, d.i);
    }
    if (!exprs_failed(x)) {
        n = x->n_stack - start;
        if (is_or)
            all = expr_or_all(x, (const expr_id *)(const void *)(x->stack + start), n);
        else
            all = expr_and_all(x, (const expr_id *)(const void *)(x->stack + start), n);
    }
    x->n_stack = start;
    return all;
}

static expr_id derive_number(struct exprs *x, expr_id a, uint8_t byte)
{
    const struct node *d = node_of(x, a);
    uint32_t spec = x->args[d->first];
    struct number_state s;

    memcpy(&s, &x->args[d->first + 1], sizeof(s));
    if (!number_step(&x->numbers[spec], &s, byte))
        return EXPR_NONE;
    return expr_number_leaf(x, spec, &s);
}

static expr_id derive_kind(struct exprs *x, expr_id a, uint8_t byte, unsigned ctx)
{
    const struct node *d = node_of(x, a);

    switch ((enum expr_kind)d->kind) {
    case K_NONE:
    case K_EPS:
    case K_LOOK:
    case K_CARET:
    case K_BOUNDARY:
        return EXPR_NONE;
    case K_ALL:
        return EXPR_ALL;
    case K_BYTES:
        return byte_set_has(&x->sets[x->args[d->first]], byte) ? EXPR_EPS : EXPR_NONE;
    case K_CAT:
        return derive_cat(x, a, byte, ctx);
    case K_OR:
    case K_AND:
        return derive_members(x, a, byte, ctx);
    case K_NOT:
        return expr_not(x, derive(x, arg_of(x, a, 0), byte, ctx));
    case K_REPEAT:
        return derive_repeat(x, a, byte, ctx);
    case K_SCOPE:
        ctx = arg_of(x, a, 1).i;
        return expr_scope(x, derive(x, arg_of(x, a, 0), byte, ctx), next_ctx(ctx, byte));
    case K_NUMBER:
        return derive_number(x, a, byte);
    }
    return EXPR_NONE;
}

static expr_id derive(struct exprs *x, expr_id a, uint8_t byte, unsigned ctx)
{
    const struct node *d = node_of(x, a);
    uint64_t before = x->work;

    if (!expr_work(x, 1))
        return EXPR_NONE;
    if (d->kind < K_CAT)
        return derive_kind(x, a, byte, ctx);
    if (!(d->flags & (F_HAS_CARET | F_HAS_BOUND)))
        ctx = 0;
    uint16_t byte_ctx = (uint16_t)(byte + 256 * ctx);
    struct derivative *c =
        &x->cache[hash_mix((uint64_t)a.i << 16 | byte_ctx) & (DERIVATIVE_CACHE - 1)];
    if (c->of == a.i && c->byte_ctx == byte_ctx) {
        expr_work(x, c->work);
        return (expr_id){ exprs_failed(x) ? 0 : c->result };
    }
    expr_id result = derive_kind(x, a, byte, ctx);
    uint64_t work = x->work - before - 1;
    if (!exprs_failed(x) && work <= UINT32_MAX)
        *c = (struct derivative){
            .of = a.i, .result = result.i, .byte_ctx = byte_ctx, .work = (uint32_t)work
        };
    return exprs_failed(x) ? EXPR_NONE : result;
}

expr_id expr_derive(struct exprs *x, expr_id a, uint8_t byte)
{
    DCHECK(expr_is_pure(x, a));
    return derive(x, a, byte, 0);
}

/* ---- classes of bytes */

/* Disjoint sets that cover all bytes. */
struct classes {
    struct byte_set sets[256];
    uint32_t n;
};

/* Splits each class into the bytes inside and outside of `s`. */
static void refine(struct classes *c, const struct byte_set *s)
{
    for (uint32_t k = 0, n = c->n; k < n; k++) {
        struct byte_set inside, outside;
        for (int w = 0; w < 4; w++) {
            inside.w[w] = c->sets[k].w[w] & s->w[w];
            outside.w[w] = c->sets[k].w[w] & ~s->w[w];
        }
        if (byte_set_is_empty(&inside) || byte_set_is_empty(&outside))
            continue;
        c->sets[k] = outside;
        c->sets[c->n++] = inside;
    }
}

struct heads {
    struct exprs *x;
    struct classes *p;
    uint32_t start; /* index on the stack of the first set number */
};

static void refine_once(struct heads *h, uint32_t set)
{
    for (uint32_t k = h->start; k < h->x->n_stack; k++)
        if (h->x->stack[k] == set)
            return;
    expr_push(h->x, set);
    refine(h->p, &h->x->sets[set]);
}

static void refine_number(struct classes *p)
{
    static const char singles[] = "0123456789+-.eE";

    for (const char *c = singles; *c; c++) {
        struct byte_set s = { 0 };
        byte_set_add(&s, (uint8_t)*c);
        if (*c == 'e')
            byte_set_add(&s, (uint8_t) * ++c);
        refine(p, &s);
    }
}

/* Refines the classes by the byte sets at which `a` can begin. */
static void refine_heads(struct heads *h, expr_id a)
{
    struct exprs *x = h->x;
    const struct node *d = node_of(x, a);

    if (!expr_work(x, 1))
        return;
    while (d->kind == K_CAT) {
        refine_heads(h, arg_of(x, a, 0));
        d = node_of(x, arg_of(x, a, 0));
        /* An impure element may accept the empty word. */
        if (!(d->flags & (F_ACCEPTS | F_IMPURE)) || exprs_failed(x))
            return;
        a = arg_of(x, a, 1);
        d = node_of(x, a);
    }
    switch ((enum expr_kind)d->kind) {
    case K_BYTES:
        refine_once(h, arg_of(x, a, 0).i);
        break;
    case K_OR:
    case K_AND:
        for (uint32_t k = 0; k < node_of(x, a)->n && !exprs_failed(x); k++)
            refine_heads(h, arg_of(x, a, k));
        break;
    case K_SCOPE:
        if (node_of(x, arg_of(x, a, 0))->flags & F_HAS_BOUND) { /* next_ctx */
            refine(h->p, &backslash);
            refine(h->p, &word_bytes);
        }
        if (arg_of(x, a, 1).i & CTX_LINES)
            refine(h->p, &newline);
        refine_heads(h, arg_of(x, a, 0));
        break;
    case K_NOT:
    case K_REPEAT:
    case K_LOOK:
        refine_heads(h, arg_of(x, a, 0));
        break;
    case K_NUMBER:
        refine_number(h->p);
        break;
    default:
        break;
    }
}

void expr_partition(struct exprs *x, expr_id a, struct byte_partition *p)
{
    struct classes c;
    struct heads h = { .x = x, .p = &c, .start = x->n_stack };
    uint32_t n = 0;

    c.n = 1; /* the other sets are not read */
    memset(&c.sets[0], 0xff, sizeof(c.sets[0]));
    refine_heads(&h, a);
    x->n_stack = h.start;
    /* The class of the smallest byte that has none is next. */
    for (unsigned b = 0; b < 256 && c.n; b++) {
        uint32_t k = 0;
        while (k < c.n && !byte_set_has(&c.sets[k], (uint8_t)b))
            k++;
        if (k == c.n)
            continue; /* the class has a number */
        p->first[n] = (uint8_t)b;
        for (int w = 0; w < 4; w++)
            for (uint64_t bits = c.sets[k].w[w]; bits; bits &= bits - 1)
                p->class_of[w * 64 + __builtin_ctzll(bits)] = (uint8_t)n;
        c.sets[k] = c.sets[--c.n];
        n++;
    }
    p->n = n;
}
