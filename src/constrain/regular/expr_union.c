/* expr_union.c: normal forms of unions and intersections, and scopes, which distribute over both.
 *
 * A union is a list of concatenations (head, tail). Concatenations with equal heads are merged by a
 * union of their tails, which turns a list of strings into a trie; those with equal tails whose
 * heads repeat the same expression are merged by a union of the intervals of counts, so that the
 * many counters of (.*a){30} remain one expression. */
#include "constrain/regular/expr_in.h"

#include <stdlib.h>

/* Factoring recurses along a common prefix; beyond this the members stay separate. */
enum { FACTOR_DEPTH_MAX = 100 };

struct product { /* head tail; base{min,max} is the head */
    uint32_t head, tail, base, min, max;
};

static int by_id(const void *a, const void *b)
{
    uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;

    return (p > q) - (p < q);
}

/* Pushes the members of `a`, or `a` itself. */
static void push_members(struct exprs *x, expr_id a, enum expr_kind kind)
{
    const struct node *d = node_of(x, a);
    uint32_t n = d->kind == kind ? d->n : 1;

    expr_work(x, n);
    for (uint32_t k = 0; k < n && !exprs_failed(x); k++)
        expr_push(x, d->kind == kind ? arg_of(x, a, k).i : a.i);
}

/* Pushes the members of n expressions, which may themselves be on the stack. */
static void push_all(struct exprs *x, const expr_id *e, size_t n, enum expr_kind kind)
{
    const uint32_t *ids = (const uint32_t *)(const void *)e;
    bool is_inside = x->stack && ids >= x->stack && ids < x->stack + x->n_stack;
    size_t at = is_inside ? (size_t)(ids - x->stack) : 0;

    for (size_t k = 0; k < n && !exprs_failed(x); k++)
        push_members(x, is_inside ? (expr_id){ x->stack[at + k] } : e[k], kind);
}

/* Sorts the ids from `start` and removes duplicates. */
static void sort_unique(struct exprs *x, uint32_t start)
{
    uint32_t *m = x->stack + start, n = x->n_stack - start, used = 0;

    for (uint32_t k = 1; k < n; k++)
        if (m[k] <= m[k - 1]) {
            qsort(m, n, sizeof(*m), by_id);
            break;
        }
    for (uint32_t k = 0; k < n; k++)
        if (!k || m[k] != m[k - 1])
            m[used++] = m[k];
    x->n_stack = start + used;
}

static bool contains(const struct exprs *x, uint32_t start, uint32_t id)
{
    for (uint32_t k = start; k < x->n_stack; k++)
        if (x->stack[k] == id)
            return true;
    return false;
}

/* The text modes of which the members contain all texts, as flags. */
static unsigned any_star_modes(const struct exprs *x, uint32_t start)
{
    unsigned modes = 0;

    for (unsigned m = 0; m < N_TEXT_MODES; m++)
        if (x->any_star[m] && contains(x, start, x->any_star[m]))
            modes |= F_TEXT << m;
    return modes;
}

/* ---- unions */

/* Replaces the byte sets by their union; removes what another member contains. */
static void merge_small(struct exprs *x, uint32_t start)
{
    unsigned modes = any_star_modes(x, start), accepts = 0;
    struct byte_set bytes = { 0 };
    uint32_t used = start, n_bytes = 0;

    for (uint32_t k = start; k < x->n_stack; k++) {
        const struct node *d = &x->nodes[x->stack[k]];
        bool is_star = false;
        for (unsigned m = 0; m < N_TEXT_MODES; m++)
            is_star |= x->any_star[m] == x->stack[k];
        if (d->kind == K_NONE || (d->flags & modes && !is_star))
            continue;
        if (d->kind != K_EPS && !(d->flags & F_IMPURE))
            accepts |= d->flags & F_ACCEPTS;
        if (d->kind == K_BYTES) {
            for (int w = 0; w < 4; w++)
                bytes.w[w] |= x->sets[x->args[d->first]].w[w];
            if (n_bytes++)
                continue;
        }
        x->stack[used++] = x->stack[k];
    }
    x->n_stack = used;
    for (uint32_t k = start; k < x->n_stack && n_bytes > 1; k++)
        if (x->nodes[x->stack[k]].kind == K_BYTES)
            x->stack[k] = expr_bytes(x, &bytes).i;
    for (uint32_t k = start; k < x->n_stack && accepts; k++)
        if (x->stack[k] == EXPR_EPS.i) {
            x->stack[k] = x->stack[--x->n_stack];
            break;
        }
}

static struct product product_of(const struct exprs *x, uint32_t id)
{
    const struct node *d = &x->nodes[id];
    bool is_cat = d->kind == K_CAT;
    struct product p = { .head = is_cat ? x->args[d->first] : id,
        .tail = is_cat ? x->args[d->first + 1] : EXPR_EPS.i };
    const struct node *h = &x->nodes[p.head];
    bool is_repeat = h->kind == K_REPEAT;

    p.base = is_repeat ? x->args[h->first] : p.head;
    p.min = is_repeat ? x->args[h->first + 1] : 1;
    p.max = is_repeat ? x->args[h->first + 2] : 1;
    return p;
}

static int by_head(const void *a, const void *b)
{
    const struct product *p = a, *q = b;

    if (p->head != q->head)
        return p->head < q->head ? -1 : 1;
    return (p->tail > q->tail) - (p->tail < q->tail);
}

static int by_tail_and_base(const void *a, const void *b)
{
    const struct product *p = a, *q = b;

    if (p->tail != q->tail)
        return p->tail < q->tail ? -1 : 1;
    if (p->base != q->base)
        return p->base < q->base ? -1 : 1;
    return (p->min > q->min) - (p->min < q->min);
}

/* The products in a block of the stack, which moves when it grows. */
static struct product *products_at(struct exprs *x, uint32_t at)
{
    return (struct product *)(void *)(x->stack + at);
}

/* Union of the tails of the products from..from + n - 1 in a block, which have one head. */
static uint32_t union_of_tails(struct exprs *x, uint32_t at, uint32_t from, uint32_t n)
{
    uint32_t start = x->n_stack;

    if (n == 1)
        return products_at(x, at)[from].tail;
    for (uint32_t k = 0; k < n; k++)
        if (!expr_push(x, products_at(x, at)[from + k].tail))
            return 0;
    expr_id *tails = (expr_id *)(void *)(x->stack + start);
    x->or_depth++;
    expr_id all = expr_or_all(x, tails, n);
    x->or_depth--;
    x->n_stack = start;
    return all.i;
}

/* Merges products with equal tails and bases; returns their new number. */
static uint32_t merge_counters(const struct exprs *x, struct product *p, uint32_t n)
{
    uint32_t used = 0;

    qsort(p, n, sizeof(*p), by_tail_and_base);
    for (uint32_t k = 0; k < n; k++) {
        struct product *last = used ? &p[used - 1] : NULL;
        bool is_same = last && last->tail == p[k].tail && last->base == p[k].base &&
                       (last->max == REPEAT_INF || p[k].min <= last->max + 1);
        if (is_same)
            last->max = MAX(last->max, p[k].max);
        else
            p[used++] = p[k];
    }
    /* The tail itself is the repetition with count 0. */
    for (uint32_t k = 0; k < used; k++)
        if (p[k].tail == EXPR_EPS.i && p[k].head == EXPR_EPS.i)
            for (uint32_t j = 0; j < used; j++)
                if (j != k && p[j].tail == EXPR_EPS.i && p[j].min <= 1) {
                    p[j].min = 0;
                    p[k] = p[--used];
                    return used;
                }
    return used;
}

/* Merges the concatenations among the members from `start`. */
static void factor(struct exprs *x, uint32_t start)
{
    uint32_t n = x->n_stack - start, used = 0, words = sizeof(struct product) / sizeof(uint32_t);
    uint32_t at = x->n_stack;

    if (x->or_depth > FACTOR_DEPTH_MAX)
        return;
    for (uint32_t k = 0; k < n * words; k++)
        if (!expr_push(x, 0))
            return;
    struct product *p = products_at(x, at);
    for (uint32_t k = 0; k < n; k++)
        p[k] = product_of(x, x->stack[start + k]);
    n = merge_counters(x, p, n);
    for (uint32_t k = 0; k < n && !exprs_failed(x); k++) {
        p = products_at(x, at);
        bool is_changed = p[k].base != p[k].head || p[k].min != 1 || p[k].max != 1;
        if (is_changed) {
            uint32_t head = expr_repeat(x, (expr_id){ p[k].base }, p[k].min, p[k].max).i;
            p = products_at(x, at);
            p[k].head = head;
        }
    }
    qsort(p, n, sizeof(*p), by_head);
    for (uint32_t k = 0, next; k < n && !exprs_failed(x); k = next) {
        p = products_at(x, at);
        for (next = k + 1; next < n && p[next].head == p[k].head;)
            next++;
        uint32_t head = p[k].head, tail = union_of_tails(x, at, k, next - k);
        expr_id product = expr_cat(x, (expr_id){ head }, (expr_id){ tail });
        x->stack[start + used++] = product.i;
    }
    x->n_stack = start + used;
}

/* One expression for the normalised members from `start`, which it pops. */
static expr_id intern_members(struct exprs *x, enum expr_kind kind, uint32_t start)
{
    uint32_t n = x->n_stack - start;
    expr_id all = EXPR_NONE;

    if (n > OR_MEMBERS_MAX)
        expr_fail(x, FAIL_MEMBERS);
    if (!exprs_failed(x) && n)
        all = n == 1 ? (expr_id){ x->stack[start] } : expr_intern(x, kind, x->stack + start, n);
    x->n_stack = start;
    return all;
}

expr_id expr_or_all(struct exprs *x, const expr_id *members, size_t n)
{
    uint32_t start = x->n_stack;

    push_all(x, members, n, K_OR);
    if (contains(x, start, EXPR_ALL.i)) {
        x->n_stack = start;
        return EXPR_ALL;
    }
    sort_unique(x, start);
    merge_small(x, start);
    if (x->n_stack - start > 1)
        factor(x, start);
    /* A merged member may itself be a union, or equal to another one. */
    uint32_t end = x->n_stack;
    for (uint32_t k = start; k < end && !exprs_failed(x); k++)
        push_members(x, (expr_id){ x->stack[k] }, K_OR);
    if (exprs_failed(x)) {
        x->n_stack = start;
        return EXPR_NONE;
    }
    memmove(x->stack + start, x->stack + end, (x->n_stack - end) * sizeof(*x->stack));
    x->n_stack -= end - start;
    sort_unique(x, start);
    merge_small(x, start);
    sort_unique(x, start);
    return intern_members(x, K_OR, start);
}

expr_id expr_or(struct exprs *x, expr_id a, expr_id b)
{
    if (expr_eq(a, b) || expr_eq(b, EXPR_NONE))
        return a;
    if (expr_eq(a, EXPR_NONE))
        return b;
    return expr_or_all(x, (expr_id[]){ a, b }, 2);
}

/* ---- intersections */

static bool is_pure_id(const struct exprs *x, uint32_t id)
{
    return !(x->nodes[id].flags & F_IMPURE);
}

/* c{a,b} and c{d,e} is c{max(a,d), min(b,e)} if c is a prefix code. */
static bool intersect_repeats(struct exprs *x, uint32_t *p, uint32_t *q)
{
    const struct node *d = &x->nodes[*p], *f = &x->nodes[*q];

    if (d->kind != K_REPEAT || f->kind != K_REPEAT || x->args[d->first] != x->args[f->first] ||
        !(x->nodes[x->args[d->first]].flags & F_CODE))
        return false;
    uint32_t base = x->args[d->first];
    uint32_t min = MAX(x->args[d->first + 1], x->args[f->first + 1]);
    uint32_t max = MIN(x->args[d->first + 2], x->args[f->first + 2]);
    *p = min <= max ? expr_repeat(x, (expr_id){ base }, min, max).i : EXPR_NONE.i;
    *q = EXPR_ALL.i;
    return true;
}

/* Intersects byte sets and repetitions of characters; drops members that contain another one. */
static void merge_and(struct exprs *x, uint32_t start)
{
    uint32_t n = x->n_stack, used = start, first_bytes = UINT32_MAX;

    for (uint32_t k = start; k < n; k++) {
        uint32_t id = x->stack[k];
        if (x->nodes[id].kind == K_BYTES && first_bytes == UINT32_MAX)
            first_bytes = k;
        else if (x->nodes[id].kind == K_BYTES) {
            struct byte_set s = x->sets[x->args[x->nodes[id].first]];
            const struct node *f = &x->nodes[x->stack[first_bytes]];
            for (int w = 0; f->kind == K_BYTES && w < 4; w++)
                s.w[w] &= x->sets[x->args[f->first]].w[w];
            if (f->kind == K_BYTES)
                x->stack[first_bytes] = expr_bytes(x, &s).i;
            x->stack[k] = EXPR_ALL.i;
        } else {
            for (uint32_t j = start; j < k; j++)
                if (intersect_repeats(x, &x->stack[j], &x->stack[k]))
                    break;
        }
    }
    for (unsigned m = 0; m < N_TEXT_MODES; m++)
        for (uint32_t k = start; k < n; k++)
            for (uint32_t j = start; j < n && x->stack[k] == x->any_star[m] && x->any_star[m]; j++)
                if (j != k && x->nodes[x->stack[j]].flags & F_TEXT << m &&
                    is_pure_id(x, x->stack[j])) {
                    x->stack[k] = EXPR_ALL.i;
                    break;
                }
    for (uint32_t k = start; k < n; k++)
        if (x->stack[k] != EXPR_ALL.i)
            x->stack[used++] = x->stack[k];
    x->n_stack = used;
}

expr_id expr_and_all(struct exprs *x, const expr_id *members, size_t n)
{
    uint32_t start = x->n_stack;
    bool has_eps = false, all_accept = true;

    push_all(x, members, n, K_AND);
    sort_unique(x, start);
    if (x->n_stack - start > 1)
        merge_and(x, start);
    sort_unique(x, start);
    for (uint32_t k = start; k < x->n_stack; k++) {
        has_eps |= x->stack[k] == EXPR_EPS.i;
        all_accept &= is_pure_id(x, x->stack[k]) && x->nodes[x->stack[k]].flags & F_ACCEPTS;
    }
    bool is_none = contains(x, start, EXPR_NONE.i);
    bool all_pure = true;
    for (uint32_t k = start; k < x->n_stack; k++)
        all_pure &= is_pure_id(x, x->stack[k]);
    if (is_none || (has_eps && all_pure)) {
        x->n_stack = start;
        return is_none || !all_accept ? EXPR_NONE : EXPR_EPS;
    }
    if (x->n_stack == start)
        return exprs_failed(x) ? EXPR_NONE : EXPR_ALL;
    return intern_members(x, K_AND, start);
}

expr_id expr_and(struct exprs *x, expr_id a, expr_id b)
{
    if (expr_eq(a, b) || expr_eq(b, EXPR_ALL))
        return a;
    if (expr_eq(a, EXPR_ALL))
        return b;
    return expr_and_all(x, (expr_id[]){ a, b }, 2);
}
