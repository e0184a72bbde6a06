/* tests.c: tests of the `is` operator and of the filters select and reject. Owner: the thread that
 * renders. */
#include "jinja/ast.h"

#define TYPE_TEST(name, holds)                                                                     \
    static int name(struct rt *rt, const struct val *in, struct val *out)                          \
    {                                                                                              \
        struct val v = in[0];                                                                      \
        (void)rt;                                                                                  \
        *out = V_BOOL(holds);                                                                      \
        return 0;                                                                                  \
    }
TYPE_TEST(test_defined, v.type != T_UNDEFINED)
TYPE_TEST(test_undefined, v.type == T_UNDEFINED)
TYPE_TEST(test_none, v.type == T_NONE)
TYPE_TEST(test_boolean, v.type == T_BOOL)
TYPE_TEST(test_true, v.type == T_BOOL && v.u.b)
TYPE_TEST(test_false, v.type == T_BOOL && !v.u.b)
TYPE_TEST(test_integer, v.type == T_INT || v.type == T_BIG)
TYPE_TEST(test_float, v.type == T_FLOAT)
TYPE_TEST(test_number, val_is_number(v) || v.type == T_BIG)
TYPE_TEST(test_string, v.type == T_STR)
TYPE_TEST(test_mapping, v.type == T_DICT)
TYPE_TEST(test_iterable, v.type == T_STR || v.type == T_DICT || v.type == T_UNDEFINED ||
                             v.type == T_LOOP || val_has_list(v))
TYPE_TEST(test_sequence, v.type == T_STR || v.type == T_DICT || v.type == T_UNDEFINED ||
                             v.type == T_LIST || v.type == T_TUPLE || v.type == T_RANGE)
TYPE_TEST(test_callable, v.type == T_MACRO || v.type == T_FUNCTION || v.type == T_METHOD ||
                             v.type == T_JOINER || v.type == T_UNDEFINED)
TYPE_TEST(test_escaped, false && v.type)
TYPE_TEST(test_filter, v.type == T_STR && filter_find(text_str(v.u.s)))
TYPE_TEST(test_test, v.type == T_STR && test_find(text_str(v.u.s)))
TYPE_TEST(test_sameas, val_same(v, in[1]))

/* True if v % by equals `what`. */
static int remainder_is(struct rt *rt, struct val v, struct val by, int64_t what, struct val *out)
{
    struct val r;
    bool equal;

    if (op_binary(rt, OP_MOD, v, by, &r) || val_equal(rt, r, V_INT(what), &equal))
        return -1;
    *out = V_BOOL(equal);
    return 0;
}

static int test_divisibleby(struct rt *rt, const struct val *in, struct val *out)
{
    return remainder_is(rt, in[0], in[1], 0, out);
}

static int test_odd(struct rt *rt, const struct val *in, struct val *out)
{
    return remainder_is(rt, in[0], V_INT(2), 1, out);
}

static int test_even(struct rt *rt, const struct val *in, struct val *out)
{
    return remainder_is(rt, in[0], V_INT(2), 0, out);
}

static int test_eq(struct rt *rt, const struct val *in, struct val *out)
{
    bool equal;

    if (val_equal(rt, in[0], in[1], &equal))
        return -1;
    *out = V_BOOL(equal);
    return 0;
}

static int test_ne(struct rt *rt, const struct val *in, struct val *out)
{
    if (test_eq(rt, in, out))
        return -1;
    out->u.b = !out->u.b;
    return 0;
}

#define ORDER_TEST(name, holds)                                                                    \
    static int name(struct rt *rt, const struct val *in, struct val *out)                          \
    {                                                                                              \
        int order;                                                                                 \
        if (val_order(rt, in[0], in[1], &order))                                                   \
            return -1;                                                                             \
        *out = V_BOOL(holds);                                                                      \
        return 0;                                                                                  \
    }
ORDER_TEST(test_lt, order < 0)
ORDER_TEST(test_le, order <= 0)
ORDER_TEST(test_gt, order > 0)
ORDER_TEST(test_ge, order >= 0)

static int test_in(struct rt *rt, const struct val *in, struct val *out)
{
    bool found;

    if (val_contains(rt, in[1], in[0], &found))
        return -1;
    *out = V_BOOL(found);
    return 0;
}

static int case_test(struct rt *rt, struct val v, enum char_class cls, struct val *out)
{
    struct text *t;

    if (val_text(rt, v, &t) || rt_spend_bytes(rt, t->n * 4))
        return -1;
    *out = V_BOOL(str_is_class(text_str(t), cls));
    return 0;
}

static int test_lower(struct rt *rt, const struct val *in, struct val *out)
{
    return case_test(rt, in[0], CLASS_LOWER, out);
}

static int test_upper(struct rt *rt, const struct val *in, struct val *out)
{
    return case_test(rt, in[0], CLASS_UPPER, out);
}

static const struct callable tests[] = {
    { "defined", test_defined, "", 0, NULL },
    { "undefined", test_undefined, "", 0, NULL },
    { "none", test_none, "", 0, NULL },
    { "boolean", test_boolean, "", 0, NULL },
    { "true", test_true, "", 0, NULL },
    { "false", test_false, "", 0, NULL },
    { "integer", test_integer, "", 0, NULL },
    { "float", test_float, "", 0, NULL },
    { "number", test_number, "", 0, NULL },
    { "string", test_string, "", 0, NULL },
    { "mapping", test_mapping, "", 0, NULL },
    { "iterable", test_iterable, "", 0, NULL },
    { "sequence", test_sequence, "", 0, NULL },
    { "callable", test_callable, "", 0, NULL },
    { "escaped", test_escaped, "", 0, NULL },
    { "filter", test_filter, "", 0, NULL },
    { "test", test_test, "", 0, NULL },
    { "sameas", test_sameas, "other", 1, NULL },
    { "divisibleby", test_divisibleby, "num", 1, NULL },
    { "odd", test_odd, "", 0, NULL },
    { "even", test_even, "", 0, NULL },
    { "lower", test_lower, "", 0, NULL },
    { "upper", test_upper, "", 0, NULL },
    { "in", test_in, "seq", 1, NULL },
    { "eq", test_eq, "_", 1, NULL },
    { "equalto", test_eq, "_", 1, NULL },
    { "==", test_eq, "_", 1, NULL },
    { "ne", test_ne, "_", 1, NULL },
    { "!=", test_ne, "_", 1, NULL },
    { "lt", test_lt, "_", 1, NULL },
    { "lessthan", test_lt, "_", 1, NULL },
    { "<", test_lt, "_", 1, NULL },
    { "le", test_le, "_", 1, NULL },
    { "<=", test_le, "_", 1, NULL },
    { "gt", test_gt, "_", 1, NULL },
    { "greaterthan", test_gt, "_", 1, NULL },
    { ">", test_gt, "_", 1, NULL },
    { "ge", test_ge, "_", 1, NULL },
    { ">=", test_ge, "_", 1, NULL },
};

const struct callable *test_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(tests); i++)
        if (str_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}
