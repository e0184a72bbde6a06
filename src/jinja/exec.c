/* exec.c: executes statements: output, branches, loops, assignments, macros, and their scopes.
 *
 * A for loop, a macro, and a call, set, filter or with block each open a scope; `if` does not.
 * Variables set in a scope end with it, in a loop with each iteration. A loop iterates over a list
 * that is complete before the first iteration, including the `if` of a for. Owner: the thread that
 * renders. */
#include "jinja/ast.h"

/* ---- scopes */

struct val scope_get(struct rt *rt, uint32_t name)
{
    for (struct scope *s = rt->scope; s; s = s->up)
        for (uint32_t i = s->n; i-- > 0;)
            if (s->vars[i].name == name)
                return s->vars[i].v;
    return rt->variables[name];
}

int scope_set(struct rt *rt, uint32_t name, struct val v)
{
    struct scope *s = rt->scope;

    if (!s) {
        rt->variables[name] = v;
        return 0;
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (s->vars[i].name == name) {
            s->vars[i].v = v;
            return 0;
        }
    if (s->n == s->cap) {
        uint32_t cap = MAX(s->cap * 2, 4u);
        struct var *vars = rt_alloc(rt, cap * sizeof(*vars));
        if (!vars)
            return -1;
        if (s->n)
            memcpy(vars, s->vars, s->n * sizeof(*vars));
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (struct var){ name, v };
    return 0;
}

static struct scope *scope_new(struct rt *rt, struct scope *up)
{
    struct scope *s = rt->free_scopes;

    if (s)
        rt->free_scopes = s->up;
    else
        s = rt_alloc(rt, sizeof(*s));
    if (s)
        s->up = up;
    return s;
}

/* Returns to the outer scope. The inner scope is reused unless a macro refers to it. */
static void scope_leave(struct rt *rt, struct scope *outer)
{
    struct scope *s = rt->scope;

    if (s && s != outer && !s->is_captured) {
        s->n = 0;
        s->up = rt->free_scopes;
        rt->free_scopes = s;
    }
    rt->scope = outer;
}

/* Executes a body in a new scope. */
static int exec_scoped(struct rt *rt, const struct ast_node *body)
{
    struct scope *outer = rt->scope;

    if (!(rt->scope = scope_new(rt, outer))) {
        rt->scope = outer;
        return -1;
    }
    int rc = exec(rt, body);
    scope_leave(rt, outer);
    return rc;
}

/* Like exec_scoped, with the output captured in *out. */
static int capture_output(struct rt *rt, const struct ast_node *body, struct val *out)
{
    struct blob *outer = rt->out;
    struct text *t = NULL;

    if (!(rt->out = blob_new(rt))) {
        rt->out = outer;
        return -1;
    }
    int rc = exec_scoped(rt, body);
    if (rc >= 0 && !(t = blob_text(rt, rt->out)))
        rc = -1;
    rt->out = outer;
    if (t)
        *out = V_STR(t);
    return rc;
}

/* ---- assignment */

static int assign(struct rt *rt, const struct ast_node *target, struct val v)
{
    struct val_list *l;

    if (target->kind == K_NAME)
        return scope_set(rt, target->name, v);
    if (target->kind == K_NAMESPACE_REF) {
        struct val ns = scope_get(rt, target->name);
        if (ns.type != T_NAMESPACE)
            return rt_fail(rt, "cannot assign to a member of a value that is not a namespace");
        struct text *key = node_text(rt, target);
        return key ? dict_put(rt, ns.u.dict, V_STR(key), v) : -1;
    }
    if (v.type == T_UNDEFINED)
        return rt_fail(rt, "nothing to unpack");
    if (rt_enter(rt) || val_iterate(rt, v, &l))
        return -1;
    if (l->n != target->n)
        return rt_fail(rt, "%u values expected, %zu to unpack", target->n, l->n);
    for (uint32_t i = 0; i < target->n; i++)
        if (assign(rt, target->kid[i], l->v[i]))
            return -1;
    rt_leave(rt);
    return 0;
}

static int exec_set(struct rt *rt, const struct ast_node *n)
{
    struct val v;

    return eval(rt, n->kid[1], &v) ? -1 : assign(rt, n->kid[0], v);
}

/* Applies a chain of filters to *v, innermost first. */
static int apply_filters(struct rt *rt, const struct ast_node *n, struct val *v)
{
    struct args args;

    if (n->kid[0]) {
        if (rt_enter(rt) || apply_filters(rt, n->kid[0], v))
            return -1;
        rt_leave(rt);
    }
    struct val self = *v;
    return eval_args(rt, n, &args) ? -1 : callable_call(rt, n->callable, self, &args, v);
}

static int exec_set_block(struct rt *rt, const struct ast_node *n)
{
    struct val v;
    int rc = capture_output(rt, n->kid[2], &v);

    if (rc != FLOW_NEXT)
        return rc;
    if (n->kid[1] && apply_filters(rt, n->kid[1], &v))
        return -1;
    return assign(rt, n->kid[0], v);
}

static int exec_filter_block(struct rt *rt, const struct ast_node *n)
{
    struct val v;
    int rc = capture_output(rt, n->kid[1], &v);

    if (rc != FLOW_NEXT)
        return rc;
    return apply_filters(rt, n->kid[0], &v) ? -1 : val_print(rt, v, rt->out);
}

/* ---- loops */

static int loop_member(struct rt *rt, struct for_loop *l, struct str name, struct val *out)
{
    int64_t n = (int64_t)l->items->n, i = (int64_t)l->i;
    const struct {
        const char *name;
        struct val v;
    } members[] = {
        { "index0", V_INT(i) },
        { "index", V_INT(i + 1) },
        { "first", V_BOOL(i == 0) },
        { "last", V_BOOL(i + 1 >= n) },
        { "length", V_INT(n) },
        { "revindex", V_INT(n - i) },
        { "revindex0", V_INT(n - i - 1) },
        { "depth", V_INT((int64_t)l->depth0 + 1) },
        { "depth0", V_INT((int64_t)l->depth0) },
        { "previtem", i > 0 ? l->items->v[i - 1] : V_UNDEFINED(NULL) },
        { "nextitem", i + 1 < n ? l->items->v[i + 1] : V_UNDEFINED(NULL) },
    };

    (void)rt;
    for (size_t k = 0; k < ARRAY_LEN(members); k++)
        if (str_is(name, members[k].name)) {
            *out = members[k].v;
            break;
        }
    return 0;
}

int loop_attr(struct rt *rt, struct for_loop *l, struct str name, struct val *out)
{
    *out = (struct val){ .type = T_MISSING };
    return loop_member(rt, l, name, out);
}

/* The items that pass the `if` of a for loop. */
static int filter_items(
    struct rt *rt, const struct ast_node *n, struct val_list *all, struct val_list **out)
{
    struct scope *outer = rt->scope;
    int rc = 0;

    if (!(*out = list_new(rt, 0)) || !(rt->scope = scope_new(rt, outer))) {
        rt->scope = outer;
        return -1;
    }
    for (size_t i = 0; !rc && i < all->n; i++) {
        struct val item = all->v[i], keep;
        rc = assign(rt, n->kid[0], item) || eval(rt, n->kid[2], &keep) ||
             (val_truth(keep) && list_push(rt, *out, item));
    }
    scope_leave(rt, outer);
    return rc ? -1 : 0;
}

/* Scope of the next iteration: the previous one, emptied, unless a macro refers to it. */
static int fresh_scope(struct rt *rt, struct scope *outer)
{
    if (rt->scope != outer && !rt->scope->is_captured) {
        rt->scope->n = 0;
        return 0;
    }
    struct scope *s = scope_new(rt, outer);
    if (!s)
        return -1;
    rt->scope = s;
    return 0;
}

static int run_loop(struct rt *rt, const struct ast_node *n, struct val_list *items)
{
    struct scope *outer = rt->scope;
    struct for_loop *loop = rt_alloc(rt, sizeof(*loop));
    int rc = loop ? FLOW_NEXT : -1;

    if (!loop)
        return -1;
    loop->items = items;
    for (; rc >= 0 && rc != FLOW_BREAK && loop->i < items->n; loop->i++) {
        rc = -1;
        if (rt_spend(rt, 1) || fresh_scope(rt, outer) || assign(rt, n->kid[0], items->v[loop->i]) ||
            scope_set(rt, NAME_LOOP, V(T_LOOP, loop, loop)))
            break;
        rc = exec(rt, n->kid[3]);
    }
    scope_leave(rt, outer);
    return rc < 0 ? -1 : FLOW_NEXT;
}

static int exec_for(struct rt *rt, const struct ast_node *n)
{
    struct val_list *items;
    struct val v;

    if (eval(rt, n->kid[1], &v) || val_iterate(rt, v, &items))
        return -1;
    if (n->kid[2] && filter_items(rt, n, items, &items))
        return -1;
    if (!items->n)
        return n->kid[4] ? exec_scoped(rt, n->kid[4]) : FLOW_NEXT;
    return run_loop(rt, n, items);
}

/* ---- macros */

static struct macro *macro_new(struct rt *rt, const struct ast_node *n)
{
    struct macro *m = rt_alloc(rt, sizeof(*m));

    if (!m)
        return NULL;
    *m = (struct macro){ n, rt->scope };
    for (struct scope *s = rt->scope; s && !s->is_captured; s = s->up)
        s->is_captured = true;
    return m;
}

static bool take_keyword(const struct args *args, bool *used, struct str name, struct val *out)
{
    for (int i = 0; i < args->n_kw; i++)
        if (!used[i] && str_eq(args->kw[i].name, name)) {
            used[i] = true;
            *out = args->kw[i].v;
            return true;
        }
    return false;
}

/* Sets caller, varargs and kwargs if the body uses them; otherwise remaining arguments are an
 * error. */
static int bind_rest(
    struct rt *rt, const struct ast_node *n, const struct args *args, bool *used, int n_params)
{
    struct val caller = V_UNDEFINED(NULL);
    struct dict *kwargs = dict_new(rt);
    struct val_list *varargs = list_new(rt, 0);

    if (!kwargs || !varargs)
        return -1;
    if (n->op & MACRO_CALLER) {
        take_keyword(args, used, STR("caller"), &caller);
        if (scope_set(rt, NAME_CALLER, caller))
            return -1;
    }
    for (int i = 0; i < args->n_kw; i++) {
        if (used[i])
            continue;
        if (!(n->op & MACRO_KWARGS))
            return rt_fail(
                rt, "the macro takes no argument '" STR_FMT "'", STR_ARG(args->kw[i].name));
        struct text *key = text_new(rt, args->kw[i].name, true);
        if (!key || dict_put(rt, kwargs, V_STR(key), args->kw[i].v))
            return -1;
    }
    for (int i = n_params; i < args->n; i++)
        if (list_push(rt, varargs, args->v[i]))
            return -1;
    if (varargs->n && !(n->op & MACRO_VARARGS))
        return rt_fail(rt, "the macro takes at most %d arguments", n_params);
    if ((n->op & MACRO_KWARGS) && scope_set(rt, NAME_KWARGS, V(T_DICT, dict, kwargs)))
        return -1;
    if ((n->op & MACRO_VARARGS) && scope_set(rt, NAME_VARARGS, V(T_TUPLE, list, varargs)))
        return -1;
    return 0;
}

static int bind_params(struct rt *rt, const struct ast_node *n, const struct args *args)
{
    int n_params = (int)(n->n - 1 - n->n_kw), n_required = n_params - n->n_kw;
    bool used[ARGS_MAX + 1] = { 0 };

    for (int i = 0; i < n_params; i++) {
        uint32_t name = n->kid[i]->name;
        struct val v = V_UNDEFINED(NULL);
        if (i < args->n)
            v = args->v[i];
        else if (!take_keyword(args, used, rt->t->names[name], &v) && i >= n_required &&
                 eval(rt, n->kid[n_params + i - n_required], &v))
            return -1;
        if (scope_set(rt, name, v))
            return -1;
    }
    return bind_rest(rt, n, args, used, n_params);
}

int macro_call(struct rt *rt, struct macro *m, const struct args *args, struct val *out)
{
    struct scope *outer = rt->scope;
    struct scope *s = scope_new(rt, m->scope);
    int rc = -1;

    if (!s || rt_enter(rt))
        return -1;
    rt->scope = s;
    if (!bind_params(rt, m->node, args))
        rc = capture_output(rt, m->node->kid[m->node->n - 1], out);
    scope_leave(rt, outer);
    rt_leave(rt);
    return rc < 0 ? -1 : 0;
}

static int exec_macro(struct rt *rt, const struct ast_node *n)
{
    struct macro *m = macro_new(rt, n);

    return m ? scope_set(rt, n->name, V(T_MACRO, macro, m)) : -1;
}

static int exec_call_block(struct rt *rt, const struct ast_node *n)
{
    const struct ast_node *call = n->kid[0];
    struct macro *caller = macro_new(rt, n->kid[1]);
    struct val f, out;
    struct args args;

    if (!caller || eval(rt, call->kid[0], &f) || eval_args(rt, call, &args))
        return -1;
    if (args.n_kw >= ARGS_MAX)
        return rt_fail(rt, "too many arguments");
    struct kwarg *kw = rt_alloc(rt, ((size_t)args.n_kw + 1) * sizeof(*kw));
    if (!kw)
        return -1;
    for (int i = 0; i < args.n_kw; i++)
        kw[i] = args.kw[i];
    kw[args.n_kw++] = (struct kwarg){ STR("caller"), V(T_MACRO, macro, caller) };
    args.kw = kw;
    return call_value(rt, f, &args, &out) || val_print(rt, out, rt->out) ? -1 : 0;
}

/* ---- other statements */

static int exec_if(struct rt *rt, const struct ast_node *n)
{
    uint32_t i = 0;

    for (; i + 1 < n->n; i += 2) {
        struct val test;
        if (eval(rt, n->kid[i], &test))
            return -1;
        if (val_truth(test))
            return exec(rt, n->kid[i + 1]);
    }
    return i < n->n ? exec(rt, n->kid[i]) : FLOW_NEXT;
}

static int exec_with(struct rt *rt, const struct ast_node *n)
{
    struct scope *outer = rt->scope, *inner = scope_new(rt, outer);
    int rc = inner ? 0 : -1;

    for (uint32_t i = 0; !rc && i + 1 < n->n; i += 2) {
        struct val v;
        rc = eval(rt, n->kid[i + 1], &v); /* evaluated in the outer scope */
        rt->scope = inner;
        rc = rc || assign(rt, n->kid[i], v) ? -1 : 0;
        rt->scope = outer;
    }
    if (rc)
        return -1;
    rt->scope = inner;
    rc = exec(rt, n->kid[n->n - 1]);
    scope_leave(rt, outer);
    return rc;
}

static int exec_out(struct rt *rt, const struct ast_node *n)
{
    struct val v;

    return eval(rt, n->kid[0], &v) ? -1 : val_print(rt, v, rt->out);
}

static int exec_body(struct rt *rt, const struct ast_node *n)
{
    int rc = FLOW_NEXT;

    for (uint32_t i = 0; rc == FLOW_NEXT && i < n->n; i++)
        rc = exec(rt, n->kid[i]);
    return rc;
}

static int exec_kind(struct rt *rt, const struct ast_node *n)
{
    switch (n->kind) {
    case K_TEXT:
        return blob_put(rt, rt->out, text_str(&n->text), true);
    case K_OUT:
        return exec_out(rt, n);
    case K_IF:
        return exec_if(rt, n);
    case K_FOR:
        return exec_for(rt, n);
    case K_SET:
        return exec_set(rt, n);
    case K_SET_BLOCK:
        return exec_set_block(rt, n);
    case K_MACRO:
        return exec_macro(rt, n);
    case K_CALL_BLOCK:
        return exec_call_block(rt, n);
    case K_FILTER_BLOCK:
        return exec_filter_block(rt, n);
    case K_WITH:
        return exec_with(rt, n);
    case K_BREAK:
        return FLOW_BREAK;
    case K_CONTINUE:
        return FLOW_CONTINUE;
    case K_BODY:
        return exec_body(rt, n);
    case K_SCOPE:
        return exec_scoped(rt, n->kid[0]);
    default:
        CHECK(!"a statement");
    }
}

int exec(struct rt *rt, const struct ast_node *n)
{
    rt->line = n->line;
    if (rt_enter(rt))
        return -1;
    int rc = exec_kind(rt, n);
    rt_leave(rt);
    return rc;
}
