/* eval.c: evaluates expressions and calls callables. rt_enter limits the recursion. Owner: the
 * thread that renders. */
#include "jinja/ast.h"

/* ---- arguments and calls */

int eval_args(struct rt *rt, const struct ast_node *n, struct args *args)
{
    uint32_t n_all = n->n - 1;

    *args = (struct args){ .n = (int)(n_all - n->n_kw), .n_kw = n->n_kw };
    if (!n_all)
        return 0;
    struct val *v = rt_alloc(rt, n_all * sizeof(*v));
    struct kwarg *kw = n->n_kw ? rt_alloc(rt, n->n_kw * sizeof(*kw)) : NULL;
    if (!v || (n->n_kw && !kw))
        return -1;
    for (uint32_t i = 0; i < n_all; i++)
        if (eval(rt, n->kid[i + 1], &v[i]))
            return -1;
    for (int i = 0; i < args->n_kw; i++)
        kw[i] = (struct kwarg){ n->kw[i], v[args->n + i] };
    args->v = v;
    args->kw = kw;
    return 0;
}

/* Index of a parameter in a list such as "chars count", or -1. */
static int param_at(const char *params, struct str name)
{
    int at = 0;

    for (const char *p = params; *p; at++) {
        size_t n = strcspn(p, " ");
        if (str_eq(name, (struct str){ p, n }))
            return at;
        p += n + (p[n] == ' ');
    }
    return -1;
}

static int n_params(const char *params)
{
    int n = *params ? 1 : 0;

    for (const char *p = params; *p; p++)
        n += *p == ' ';
    return n;
}

int callable_call(struct rt *rt, const struct callable *c, struct val self, const struct args *args,
    struct val *out)
{
    struct val in[PARAMS_MAX + 1] = { 0 };
    int max;

    if (rt_spend(rt, 1))
        return -1;
    if (c->raw)
        return c->raw(rt, self, args, out);
    if (!c->fn)
        return rt_fail(rt, "%s() is not supported", c->name);
    max = n_params(c->params);
    if (args->n > max)
        return rt_fail(rt, "%s takes at most %d arguments", c->name, max);
    in[0] = self;
    for (int i = 0; i < args->n; i++)
        in[i + 1] = args->v[i];
    for (int i = 0; i < args->n_kw; i++) {
        int at = param_at(c->params, args->kw[i].name);
        if (at < 0 || in[at + 1].type != T_MISSING)
            return rt_fail(
                rt, "%s takes no argument '" STR_FMT "'", c->name, STR_ARG(args->kw[i].name));
        in[at + 1] = args->kw[i].v;
    }
    for (int i = 0; i < c->min; i++)
        if (in[i + 1].type == T_MISSING)
            return rt_fail(rt, "%s needs %d arguments", c->name, c->min);
    return c->fn(rt, in, out);
}

static int call_joiner(struct rt *rt, struct val_list *l, struct val *out)
{
    struct text *empty = text_new(rt, STR(""), true);

    if (!empty)
        return -1;
    *out = l->at++ ? l->v[0] : V_STR(empty);
    return 0;
}

int call_value(struct rt *rt, struct val f, const struct args *args, struct val *out)
{
    switch (f.type) {
    case T_METHOD:
        return callable_call(rt, f.u.bound->method, f.u.bound->self, args, out);
    case T_FUNCTION:
        return callable_call(rt, &f.u.function->c, V_NONE, args, out);
    case T_MACRO:
        return macro_call(rt, f.u.macro, args, out);
    case T_JOINER:
        return call_joiner(rt, f.u.list, out);
    case T_UNDEFINED:
        return fail_undefined(rt, f);
    default:
        return rt_fail(rt, "'%s' object is not callable", type_name(f));
    }
}

static int eval_call(struct rt *rt, const struct ast_node *n, struct val *out)
{
    const struct ast_node *callee = n->kid[0];
    struct args args;
    struct val f;

    /* A method call, without creating a bound method. */
    if (callee->kind == K_ATTR) {
        struct val self;
        if (eval(rt, callee->kid[0], &self))
            return -1;
        const struct callable *m = method_find(self, text_str(&callee->text));
        if (m)
            return eval_args(rt, n, &args) ? -1 : callable_call(rt, m, self, &args, out);
        struct text name = callee->text;
        if (self.type == T_CYCLER && str_is(text_str(&name), "next")) {
            struct val_list *l = self.u.list;
            *out = l->v[l->at];
            l->at = (l->at + 1) % l->n;
            return 0;
        }
        struct text *copy = text_part(rt, &name, 0, name.n);
        if (!copy || op_attr(rt, self, copy, &f))
            return -1;
    } else if (eval(rt, callee, &f)) {
        return -1;
    }
    return eval_args(rt, n, &args) ? -1 : call_value(rt, f, &args, out);
}

/* ---- node kinds */

static int eval_sequence(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val_list *l = list_new(rt, n->n);

    if (!l)
        return -1;
    for (uint32_t i = 0; i < n->n; i++) {
        struct val v;
        if (eval(rt, n->kid[i], &v) || list_push(rt, l, v))
            return -1;
    }
    *out = V(n->kind == K_LIST ? T_LIST : T_TUPLE, list, l);
    return 0;
}

static int eval_dict(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct dict *d = dict_new(rt);

    if (!d)
        return -1;
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct val key, v;
        if (eval(rt, n->kid[i], &key) || eval(rt, n->kid[i + 1], &v) || dict_put(rt, d, key, v))
            return -1;
    }
    *out = V(T_DICT, dict, d);
    return 0;
}

static int eval_slice(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val v, part[3] = { 0 };

    if (eval(rt, n->kid[0], &v))
        return -1;
    for (int i = 0; i < 3; i++)
        if (n->kid[i + 1] && eval(rt, n->kid[i + 1], &part[i]))
            return -1;
    return op_slice(rt, v, part, out);
}

struct text *node_text(struct rt *rt, const struct ast_node *n)
{
    struct text **t = &rt->texts[n->text_at];

    if (*t)
        return *t;
    *t = rt_alloc(rt, sizeof(**t));
    if (*t)
        **t = n->text;
    return *t;
}

static int eval_attr(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val v;

    if (eval(rt, n->kid[0], &v))
        return -1;
    struct text *name = node_text(rt, n);
    return name ? op_attr(rt, v, name, out) : -1;
}

static int eval_concat(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct blob *b = blob_new(rt);
    struct text *t;

    if (!b)
        return -1;
    for (uint32_t i = 0; i < n->n; i++) {
        struct val v;
        if (eval(rt, n->kid[i], &v) || val_print(rt, v, b))
            return -1;
    }
    if (!(t = blob_text(rt, b)))
        return -1;
    *out = V_STR(t);
    return 0;
}

static int compare(struct rt *rt, int op, struct val a, struct val b, bool *out)
{
    int order;

    if (op == OP_EQ || op == OP_NE) {
        if (val_equal(rt, a, b, out))
            return -1;
        *out = *out == (op == OP_EQ);
        return 0;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        if (val_contains(rt, b, a, out))
            return -1;
        *out = *out == (op == OP_IN);
        return 0;
    }
    if (val_order(rt, a, b, &order))
        return -1;
    *out = op == OP_LT   ? order < 0
           : op == OP_LE ? order <= 0
           : op == OP_GT ? order > 0
                         : order >= 0;
    return 0;
}

static int eval_compare(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val left, right;
    bool holds = true;

    if (eval(rt, n->kid[0], &left))
        return -1;
    for (uint32_t i = 1; holds && i < n->n; i++) {
        const struct ast_node *operand = n->kid[i];
        if (eval(rt, operand->kid[0], &right) || compare(rt, operand->op, left, right, &holds))
            return -1;
        left = right;
    }
    *out = V_BOOL(holds);
    return 0;
}

static int eval_binary(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val a, b;

    return eval(rt, n->kid[0], &a) || eval(rt, n->kid[1], &b) ? -1
                                                              : op_binary(rt, n->op, a, b, out);
}

static int eval_sign(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val v;

    if (eval(rt, n->kid[0], &v))
        return -1;
    if (v.type == T_UNDEFINED)
        return fail_undefined(rt, v);
    if (!val_is_number(v))
        return rt_fail(rt, "bad operand type for unary sign: '%s'", type_name(v));
    if (v.type == T_FLOAT)
        *out = V_FLOAT(n->kind == K_NEG ? -v.u.f : v.u.f);
    else if (val_int(v) == INT64_MIN)
        return rt_fail(rt, "an integer does not fit 64 bits");
    else
        *out = V_INT(n->kind == K_NEG ? -val_int(v) : val_int(v));
    out->trusted = v.trusted;
    return 0;
}

/* and, or: the operand that decides. */
static int eval_logic(struct rt *rt, const struct ast_node *n, struct val *out)
{
    for (uint32_t i = 0; i < n->n; i++) {
        if (eval(rt, n->kid[i], out))
            return -1;
        if (val_truth(*out) == (n->kind == K_OR))
            break;
    }
    return 0;
}

static int eval_cond(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val test;

    if (eval(rt, n->kid[0], &test))
        return -1;
    const struct ast_node *chosen = n->kid[val_truth(test) ? 1 : 2];
    *out = V_UNDEFINED(NULL);
    return chosen ? eval(rt, chosen, out) : 0;
}

static int eval_filter_or_test(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct args args;
    struct val v;

    if (eval(rt, n->kid[0], &v) || eval_args(rt, n, &args))
        return -1;
    return callable_call(rt, n->callable, v, &args, out);
}

static int eval_name(struct rt *rt, const struct ast_node *n, struct val *out)
{
    *out = scope_get(rt, n->name);
    if (out->type != T_MISSING)
        return 0;
    struct text *name = text_new(rt, rt->t->names[n->name], true);
    *out = V_UNDEFINED(name);
    return name ? 0 : -1;
}

static int eval_kind(struct rt *rt, const struct ast_node *n, struct val *out)
{
    struct val a, b;

    switch (n->kind) {
    case K_LIST:
    case K_TUPLE:
        return eval_sequence(rt, n, out);
    case K_DICT:
        return eval_dict(rt, n, out);
    case K_ATTR:
        return eval_attr(rt, n, out);
    case K_ITEM:
        return eval(rt, n->kid[0], &a) || eval(rt, n->kid[1], &b) ? -1 : op_item(rt, a, b, out);
    case K_SLICE:
        return eval_slice(rt, n, out);
    case K_CALL:
        return eval_call(rt, n, out);
    case K_FILTER:
    case K_TEST:
        return eval_filter_or_test(rt, n, out);
    case K_NEG:
    case K_POS:
        return eval_sign(rt, n, out);
    case K_NOT:
        if (eval(rt, n->kid[0], &a))
            return -1;
        *out = V_BOOL(!val_truth(a));
        return 0;
    case K_AND:
    case K_OR:
        return eval_logic(rt, n, out);
    case K_COND:
        return eval_cond(rt, n, out);
    case K_CONCAT:
        return eval_concat(rt, n, out);
    case K_COMPARE:
        return eval_compare(rt, n, out);
    case K_BINARY:
        return eval_binary(rt, n, out);
    default:
        CHECK(!"an expression");
    }
}

int eval(struct rt *rt, const struct ast_node *n, struct val *out)
{
    if (n->kind == K_CONST) {
        *out = n->value;
        if (n->value.type != T_STR)
            return 0;
        struct text *t = node_text(rt, n);
        if (t)
            *out = V_STR(t);
        return t ? 0 : -1;
    }
    if (n->kind == K_NAME)
        return eval_name(rt, n, out);
    if (rt_enter(rt))
        return -1;
    int rc = eval_kind(rt, n, out);
    rt_leave(rt);
    return rc;
}
