#include "constrain/grammar/grammar.h"

#include "constrain/grammar/grammar_acceptor.h"
#include "constrain/grammar/gbnf.h"
#include "support/grammar_kit.h"
#include "support/grammar_random.h"

static struct acceptor *acceptor_of(const struct grammar *g)
{
    struct acceptor *a = NULL;
    struct err e = { 0 };

    if (grammar_acceptor_new(&a, g, &grammar_acceptor_limits_default, NULL, &e))
        printf("%s\n", e.msg);
    EXPECT(a != NULL);
    return a;
}

/* ---- random grammars */

/* Compares all texts of at most n more letters with the oracle. */
static void compare_texts(struct oracle *o, struct acceptor *a, pos_id p, char *text, int n)
{
    size_t length = strlen(text);

    oracle_read(o, text);
    bool is_right = !p.i == !oracle_is_viable(o) && a->ops->accepts(a, p) == oracle_accepts(o);
    if (!is_right)
        printf("text \"%s\": viable %d accepted %d, oracle %d %d\n", text, !!p.i,
            a->ops->accepts(a, p), oracle_is_viable(o), oracle_accepts(o));
    EXPECT(is_right);
    if (!p.i || !n)
        return;
    uint32_t mark = a->ops->mark(a);
    struct byte_set next = a->ops->next_bytes(a, p);
    for (int k = 0; k < 3; k++) {
        text[length] = (char)('a' + k);
        pos_id to = a->ops->step(a, p, (uint8_t)text[length]);
        EXPECT_EQ(byte_set_has(&next, (uint8_t)text[length]), to.i != 0);
        compare_texts(o, a, to, text, n - 1);
        text[length] = 0;
        a->ops->release(a, mark);
    }
}

static void random_grammars_equal_their_definition(void)
{
    static struct oracle o;
    int n_productive = 0, n_irregular = 0;

    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct rng r = { .key = seed };
        struct grammar *g = grammar_new(&grammar_limits_default, NULL);
        char text[ORACLE_TEXT + 1] = "";
        struct err e = { 0 };
        oracle_random(&o, &r);
        rule_id root = oracle_build(&o, g);
        bool is_productive = o.is_productive[o.rules[0]];
        if (grammar_finish(g, root, &e)) {
            if (is_productive)
                printf("seed %d: %s\n", (int)seed, e.msg);
            EXPECT(!is_productive);
            EXPECT(strstr(e.msg, "rule \"rule\"") != NULL);
            grammar_free(g);
            continue;
        }
        EXPECT(is_productive);
        n_productive++;
        expr_id regular;
        n_irregular += !grammar_is_regular(g, &regular);
        struct acceptor *a = acceptor_of(g);
        compare_texts(&o, a, POS_START, text, 5);
        EXPECT_EQ(a->ops->check(a, &e), 0);
        a->ops->free(a);
        grammar_free(g);
    }
    EXPECT(n_productive > 150);
    EXPECT(n_irregular > 80);
}

/* ---- positions */

static void begin(struct grammar_kit *k, const char *grammar)
{
    if (grammar_kit_begin(k, gbnf_read, str_of(grammar)))
        printf("%s\n", k->e.msg);
    EXPECT(k->a != NULL);
}

static const char expressions[] = "root ::= expr\n"
                                  "expr ::= expr \"+\" term | term\n"
                                  "term ::= [0-9]+ | \"(\" expr \")\" | f \"(\" args? \")\"\n"
                                  "args ::= expr \",\" args | expr\n"
                                  "f ::= \"f\" | \"g\" f\n";

static void old_positions_stay_valid(void)
{
    struct grammar_kit k;
    static const char text[] = "f((1+22)+3,gf(),4)+5";
    pos_id at[sizeof(text)];

    begin(&k, expressions);
    for (int round = 0; round < 2; round++) {
        at[0] = POS_START;
        for (size_t j = 0; text[j]; j++) {
            at[j + 1] = k.a->ops->step(k.a, at[j], (uint8_t)text[j]);
            EXPECT(at[j + 1].i);
        }
        for (size_t j = 0; text[j]; j++) {
            uint32_t mark = k.a->ops->mark(k.a);
            EXPECT(k.a->ops->accepts(k.a, grammar_kit_run(&k, at[j], text + j)));
            EXPECT_EQ(k.a->ops->step(k.a, at[j], (uint8_t)text[j]).i, at[j + 1].i);
            EXPECT(!grammar_kit_run(&k, at[j], "*").i);
            k.a->ops->release(k.a, mark);
        }
        k.a->ops->release(k.a, 2); /* all but the start */
    }
    grammar_kit_end(&k);
}

/* Keeps one position at each byte, as a choice does for its tokens. */
static void a_kept_position_equals_the_released_one(void)
{
    struct grammar_kit k;
    struct rng r = { .key = 3 };
    static const char *const pieces[] = { "f(", "gg", "f(", "(", "1", "+2", ",3", ")", "),", "+(" };

    begin(&k, expressions);
    for (int round = 0; round < 300; round++) {
        char text[512] = "";
        pos_id p = POS_START;
        for (int j = 0; j < 60; j++) {
            const char *piece = pieces[rng_below(&r, ARRAY_LEN(pieces))];
            uint32_t mark = k.a->ops->mark(k.a);
            pos_id to = grammar_kit_run(&k, p, piece);
            uint64_t key = k.a->ops->key(k.a, to);
            to = k.a->ops->keep(k.a, mark, to);
            EXPECT_EQ(k.a->ops->key(k.a, to), key);
            EXPECT(k.a->ops->mark(k.a) <= mark + 1);
            if (!to.i)
                continue;
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", piece);
            p = to;
        }
        struct byte_set kept = k.a->ops->next_bytes(k.a, p);
        k.a->ops->release(k.a, 2);
        pos_id again = grammar_kit_run(&k, POS_START, text);
        struct byte_set fresh = k.a->ops->next_bytes(k.a, again);
        EXPECT(again.i && !memcmp(&kept, &fresh, sizeof(kept)));
        k.a->ops->release(k.a, 2);
    }
    grammar_kit_end(&k);
}

/* Reads `text` n times from the position, and expects the same position each time. */
static void expect_loop(const char *grammar, const char *start, const char *text)
{
    struct grammar_kit k;

    begin(&k, grammar);
    pos_id p = grammar_kit_run(&k, POS_START, start);
    pos_id q = grammar_kit_run(&k, p, text);
    if (grammar_kit_run(&k, q, text).i != q.i)
        printf("%s\n", grammar);
    EXPECT(q.i != 0);
    EXPECT_EQ(grammar_kit_run(&k, q, text).i, q.i);
    EXPECT_EQ(k.a->ops->key(k.a, q), k.a->ops->key(k.a, grammar_kit_run(&k, q, text)));
    grammar_kit_end(&k);
}

static void repetitions_need_no_memory(void)
{
    expect_loop("root ::= \"a\" root | \"b\"", "a", "a");
    expect_loop("root ::= root \"a\" | \"b\"", "b", "a");
    expect_loop("root ::= x \"a\" root | \"b\"\nx ::= \"(\" x \")\" | \"1\"", "", "(1)a");
    expect_loop("root ::= (x \"a\" | \"c\")*\nx ::= \"(\" x \")\" | \"1\"", "", "((1))a");
    expect_loop("root ::= a | \"x\"\na ::= \"1\" b\nb ::= \"2\" root", "", "12");
    expect_loop(expressions, "1", "+f(1,2)");
    expect_loop(expressions, "f(1", ",f(1,2)+3");
}

static void the_reach_is_the_number_of_characters(void)
{
    struct grammar_kit k;
    static const struct {
        const char *grammar, *start;
        enum token_class class;
        uint32_t reach;
    } rows[] = {
        { "root ::= [^\"\\\\\\x00-\\x1F]*", "", CLASS_STRING, 32 },
        { "root ::= [^\"\\\\\\x00-\\x1F]{0,5} \"\\\"\"", "a", CLASS_STRING, 4 },
        { "root ::= x | \"(\" root \")\"\nx ::= [0-9]{3}", "", CLASS_DIGITS, 3 },
        { "root ::= x | \"(\" root \")\"\nx ::= [0-9]{3}", "((12", CLASS_DIGITS, 1 },
        { "root ::= x | \"(\" root \")\"\nx ::= [0-9]{3}", "", CLASS_STRING, 0 },
        { "root ::= [0-8]* root | \"x\"", "", CLASS_DIGITS, 0 },
        { "root ::= \"(\" root \")\" | [ \\t] root | \"x\"", "( ", CLASS_BLANKS, 32 },
    };

    for (size_t j = 0; j < ARRAY_LEN(rows); j++) {
        begin(&k, rows[j].grammar);
        pos_id p = grammar_kit_run(&k, POS_START, rows[j].start);
        for (int round = 0; round < 2; round++)
            EXPECT_EQ(k.a->ops->reach(k.a, p, rows[j].class, 32), rows[j].reach);
        grammar_kit_end(&k);
    }
}

static void a_text_without_markers_is_free(void)
{
    struct grammar *g = grammar_new(&grammar_limits_default, NULL);
    rule_id root = grammar_rule(g, STR("root"));
    struct err e = { 0 };

    grammar_define(g, root, grammar_text_until(g, (struct str[]){ STR("<a>"), STR("<b") }, 2));
    EXPECT_EQ(grammar_finish(g, root, &e), 0);
    struct grammar_kit k = { .g = g, .a = acceptor_of(g) };
    EXPECT(grammar_kit_has(&k, "x<a<a\xC3\xA9"));
    EXPECT(!grammar_kit_run(&k, POS_START, "x<a>").i);
    EXPECT(!grammar_kit_run(&k, POS_START, "<<b").i);
    EXPECT(!grammar_kit_has(&k, "\xC3"));
    grammar_kit_end(&k);
}

static void all_texts_may_follow_a_free_end(void)
{
    struct grammar *g = grammar_new(&grammar_limits_default, NULL);
    rule_id root = grammar_rule(g, STR("root"));
    struct err e = { 0 };

    grammar_define(
        g, root, grammar_cat(g, grammar_literal(g, STR("x")), grammar_expr(g, EXPR_ALL)));
    EXPECT_EQ(grammar_finish(g, root, &e), 0);
    struct grammar_kit k = { .g = g, .a = acceptor_of(g) };
    EXPECT(!k.a->ops->permits_all(k.a, POS_START));
    EXPECT(k.a->ops->permits_all(k.a, grammar_kit_run(&k, POS_START, "x\xFF")));
    grammar_kit_end(&k);
}

static void control_tokens_are_listed_once(void)
{
    struct grammar_kit k;
    int32_t ids[4];

    begin(&k, "root ::= <think> \"a\" | !<tool> \"b\" | (<think> root)");
    EXPECT_EQ(k.a->ops->tokens(k.a, POS_START, ids, 4), 5u); /* 0 2 3 6 7 */
    EXPECT_EQ(k.a->ops->tokens(k.a, grammar_kit_run(&k, POS_START, "\2a"), ids, 4), 0u);
    EXPECT(grammar_kit_has(&k, "\2b"));
    grammar_kit_end(&k);
}

/* ---- JSON values: here, another grammar is the acceptor of the value */

static void values_are_read_by_their_acceptor(void)
{
    struct grammar_kit value;
    struct grammar *g = grammar_new(&grammar_limits_default, NULL);
    rule_id root = grammar_rule(g, STR("root"));
    struct acceptor *a = NULL;
    struct err e = { 0 };

    begin(&value, "root ::= \"[\" (root (\",\" root)*)? \"]\" | [0-9]+");
    part_id item = grammar_cat(g, grammar_json(g, STR("{}")), grammar_literal(g, STR(";")));
    part_id pair = grammar_cat(g, grammar_json(g, STR("{}")), grammar_ref(g, root));
    grammar_define(g, root, grammar_alt(g, item, pair));
    EXPECT_EQ(grammar_finish(g, root, &e), 0);
    EXPECT_EQ(grammar_json_count(g), 1u);
    EXPECT_EQ(grammar_acceptor_new(&a, g, &grammar_acceptor_limits_default, &value.a, &e), 0);
    struct grammar_kit k = { .g = g, .a = a };
    EXPECT(grammar_kit_has(&k, "[1,[2]];"));
    EXPECT(grammar_kit_has(&k, "12;"));
    EXPECT(grammar_kit_has(&k, "12[3]45;"));
    EXPECT(!grammar_kit_run(&k, POS_START, ";").i);
    EXPECT(!grammar_kit_run(&k, POS_START, "[1;").i);
    EXPECT(!grammar_kit_has(&k, "12"));
    uint32_t mark = a->ops->mark(a), inner = value.a->ops->mark(value.a);
    for (int j = 0; j < 3; j++) {
        pos_id p = grammar_kit_run(&k, POS_START, "[[1,2],[[");
        p = a->ops->keep(a, mark, p);
        EXPECT_EQ(value.a->ops->mark(value.a), inner + 1);
        EXPECT(a->ops->accepts(a, grammar_kit_run(&k, p, "3]]];")));
        a->ops->release(a, mark);
        EXPECT_EQ(value.a->ops->mark(value.a), inner);
    }
    value.a = NULL;
    grammar_kit_end(&k);
    grammar_kit_end(&value);
}

/* ---- bounds */

static void hostile_grammars_end(void)
{
    enum { N = 60000 };
    struct buf b;
    struct grammar_kit k;

    for (int kind = 0; kind < 7; kind++) {
        buf_init(&b, 64 * N);
        buf_putz(&b, "root ::= ");
        for (int j = 0; j < N && kind < 3; j++)
            buf_putc(&b, '(');
        buf_putz(&b, kind == 0 ? "\"x\"" : kind < 3 ? "\"x\" root?" : "");
        for (int j = 0; j < N && kind < 3; j++)
            buf_putz(&b, kind == 0 ? ")*" : kind == 1 ? ")" : "\"y\"{0,2}){1,2}");
        for (int j = 0; j < 5000 && kind == 3; j++)
            buf_printf(&b, "r%d\nr%d ::= \"a\" ", j, j);
        for (int j = 0; j < 5000 && kind == 4; j++)
            buf_printf(&b, "\"(\" r%d \")\" | \"x\"\nr%d ::= ", j, j);
        for (int j = 0; j < 5000 && kind == 5; j++)
            buf_printf(&b, "\"(\" root \"%d\" | ", j);
        buf_putz(&b, kind == 3 || kind == 4 ? "\"z\"" : "");
        if (kind == 6)
            buf_putz(&b, "(a{0,1000000000} \";\"){1000000000}\na ::= \"(\" a \")\" | \"x\"");
        EXPECT(buf_ok(&b));
        if (grammar_kit_begin(&k, gbnf_read, buf_str(&b))) {
            printf("kind %d: %s\n", kind, k.e.msg);
        } else {
            pos_id p = grammar_kit_run(&k, POS_START, kind == 3 ? "aaa" : kind > 3 ? "((" : "xxx");
            EXPECT(p.i || k.a->ops->check(k.a, &k.e));
        }
        EXPECT(grammar_bytes(k.g) < 32 * MB);
        EXPECT(!k.a || k.a->ops->bytes(k.a) < 8 * MB);
        grammar_kit_end(&k);
        buf_clear(&b);
    }
}

static void ambiguity_is_bounded(void)
{
    struct grammar_kit k;
    pos_id p = POS_START;
    int n = 0;

    begin(&k, "root ::= \"a\" | root root | \"(\" root root | \"a\" root \"b\" root");
    for (; n < 2000 && p.i; n++)
        p = k.a->ops->keep(k.a, 2, k.a->ops->step(k.a, p, n % 3 ? '(' : 'a'));
    EXPECT(p.i || k.a->ops->check(k.a, &k.e));
    grammar_kit_end(&k);
}

static void full_memory_is_an_error_that_stays(void)
{
    struct grammar_kit k;
    struct acceptor *a = NULL;
    struct grammar_acceptor_limits l = grammar_acceptor_limits_default;
    pos_id p = POS_START;

    begin(&k, "root ::= \"(\" root \")\" | \"x\"");
    l.bytes_max = 100 * KB;
    EXPECT_EQ(grammar_acceptor_new(&a, k.g, &l, NULL, &k.e), 0);
    EXPECT_EQ(a->ops->check(a, &k.e), 0);
    for (int n = 0; n < 100000 && p.i; n++)
        p = a->ops->step(a, p, '(');
    EXPECT(!p.i);
    EXPECT_EQ(a->ops->check(a, &k.e), -1);
    EXPECT(k.e.code == ERR_TOO_LARGE);
    EXPECT(!a->ops->step(a, POS_START, '(').i);
    a->ops->free(a);
    grammar_kit_end(&k);
}

static void a_failed_allocation_is_an_error_without_a_leak(void)
{
    int n_failed = 0;

    for (uint64_t nth = 1; nth < 200; nth++) {
        struct err e = { 0 };
        struct acceptor *a = NULL;
        rule_id root = { 0 };
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        struct grammar *g = grammar_new(&grammar_limits_default, &kit_vocab);
        bool is_complete = g && !gbnf_read(g, str_of(expressions), &root, &e) &&
                           !grammar_finish(g, root, &e) &&
                           !grammar_acceptor_new(&a, g, &grammar_acceptor_limits_default, NULL, &e);
        if (is_complete) {
            struct grammar_kit k = { .g = g, .a = a };
            bool has = grammar_kit_has(&k, "f(1)+2");
            EXPECT(has || a->ops->check(a, &e));
            a->ops->free(a);
        } else {
            EXPECT(!g || e.code != ERR_NONE);
        }
        grammar_free(g);
        mem_fail_after(0);
        n_failed += mem_failures() > before;
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(60));
}

TESTS(TEST(random_grammars_equal_their_definition), TEST(old_positions_stay_valid),
    TEST(a_kept_position_equals_the_released_one), TEST(repetitions_need_no_memory),
    TEST(the_reach_is_the_number_of_characters), TEST(a_text_without_markers_is_free),
    TEST(all_texts_may_follow_a_free_end), TEST(control_tokens_are_listed_once),
    TEST(values_are_read_by_their_acceptor), TEST(hostile_grammars_end), TEST(ambiguity_is_bounded),
    TEST(full_memory_is_an_error_that_stays), TEST(a_failed_allocation_is_an_error_without_a_leak))
