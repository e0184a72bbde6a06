#include "constrain/regular/live.h"

#include "constrain/regular/derive.h"
#include "constrain/regular/expr_in.h"

/* A frame on the stack of the pool: size of the frame below, expression, its successors that
 * remain. Successors are taken from the end. */
enum { FRAME_BELOW, FRAME_EXPR, FRAME_FIRST };

struct search {
    struct exprs *x;
    uint32_t bottom; /* bottom of the stack of this search */
    uint32_t top;    /* start of the newest frame */
};

static bool is_marked_live(const struct exprs *x, uint32_t id)
{
    return x->nodes[id].flags & F_LIVE;
}

static bool has_dead_member(const struct exprs *x, const struct node *d)
{
    for (uint32_t k = 0; d->kind == K_AND && k < d->n; k++)
        if (x->nodes[x->args[d->first + k]].flags & F_DEAD)
            return true;
    return d->flags & F_DEAD;
}

/* Inserts a successor, so that the one with the smallest minimal length is last. */
static void push_successor(struct exprs *x, uint32_t first, uint32_t id)
{
    if (!expr_push(x, id))
        return;
    for (uint32_t k = x->n_stack - 1; k > first; k--) {
        if (x->nodes[x->stack[k - 1]].min_len >= x->nodes[id].min_len)
            break;
        x->stack[k] = x->stack[k - 1];
        x->stack[k - 1] = id;
    }
}

/* Pushes expressions of which one is live if and only if `a` is. */
static void push_successors(struct exprs *x, expr_id a)
{
    const struct node *d = node_of(x, a);
    uint32_t first = x->n_stack;
    struct byte_partition p;

    if (d->kind == K_OR) {
        for (uint32_t k = 0; k < node_of(x, a)->n; k++)
            push_successor(x, first, arg_of(x, a, k).i);
        return;
    }
    if (d->kind == K_REPEAT || (d->kind == K_CAT && is_marked_live(x, arg_of(x, a, 1).i))) {
        expr_push(x, arg_of(x, a, 0).i);
        return;
    }
    expr_partition(x, a, &p);
    for (uint32_t k = 0; k < p.n && !exprs_failed(x); k++) {
        expr_id next = expr_derive(x, a, p.first[k]);
        if (is_marked_live(x, next.i)) {
            expr_push(x, next.i);
            return;
        }
        if (!expr_eq(next, EXPR_NONE))
            push_successor(x, first, next.i);
    }
}

/* Opens a frame for the expression. */
static void enter(struct search *s, uint32_t id)
{
    struct exprs *x = s->x;
    uint32_t start = x->n_stack;

    if (x->n_visited >= LIVE_SEARCH_MAX)
        expr_fail(x, FAIL_SEARCH);
    if (!expr_visit(x, (expr_id){ id }) || !expr_push(x, s->top) || !expr_push(x, id))
        return;
    push_successors(x, (expr_id){ id });
    s->top = start;
}

/* Removes the marks of the search. Without a path to a word, what it visited is dead. */
static void finish(struct exprs *x, bool is_dead)
{
    for (uint32_t k = 0; k < x->n_visited; k++) {
        struct node *d = &x->nodes[x->visited[k]];
        d->flags &= (uint16_t)~F_VISITED;
        if (is_dead)
            d->flags |= F_DEAD;
    }
    x->n_visited = 0;
}

bool expr_is_live(struct exprs *x, expr_id a)
{
    struct search s = { .x = x, .bottom = x->n_stack, .top = UINT32_MAX };
    bool is_found = false;

    if (is_marked_live(x, a.i) || node_of(x, a)->flags & F_DEAD || exprs_failed(x))
        return is_marked_live(x, a.i) && !exprs_failed(x);
    enter(&s, a.i);
    while (s.top != UINT32_MAX && !exprs_failed(x) && !is_found) {
        if (x->n_stack == s.top + FRAME_FIRST) { /* no successor is left */
            x->n_stack = s.top;
            s.top = x->stack[s.top + FRAME_BELOW];
            continue;
        }
        uint32_t id = x->stack[--x->n_stack];
        is_found = is_marked_live(x, id);
        if (!is_found && !(x->nodes[id].flags & F_VISITED) && !has_dead_member(x, &x->nodes[id]))
            enter(&s, id);
    }
    for (uint32_t at = s.top; is_found && at != UINT32_MAX; at = x->stack[at + FRAME_BELOW])
        x->nodes[x->stack[at + FRAME_EXPR]].flags |= F_LIVE;
    x->n_stack = s.bottom;
    finish(x, !is_found && !exprs_failed(x));
    return is_found && !exprs_failed(x);
}
