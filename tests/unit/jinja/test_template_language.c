/* Template language: output, errors and limits. tests/golden/test_templates.py compares it with
 * jinja2; these tests need no reference. */
#include "support/template_kit.h"

#include <pthread.h>
#include <time.h>

static void text_and_expressions_are_rendered(void)
{
    kit_expect("a{{ 1 + 2 * 3 }}b{{ messages[0].content | upper }}{# c #}", "a7bHI");
    kit_expect("", "");
    kit_expect("\n", "");
    kit_expect("x\r\ny\rz\n\n", "x\ny\nz\n");
}

static void blanks_around_tags_are_trimmed_like_jinja(void)
{
    kit_expect("  {% if true %}\n  a\n  {% endif %}\n  b", "  a\n  b");
    kit_expect("a \n {%- if true -%} \n b {%+ endif %} c", "ab  c");
    kit_expect("{% raw %}{{ x }}{% endraw %}", "{{ x }}");
}

static void values_print_as_python_prints_them(void)
{
    kit_expect(
        "{{ [none, true, 1.0, 'a\\'b', {'k': (1,)}] }}", "[None, True, 1.0, \"a'b\", {'k': (1,)}]");
    kit_expect("{{ {'b': [1, 'é']} | tojson }}", "{\"b\": [1, \"\xC3\xA9\"]}");
    kit_expect("{{ 1e16 }} {{ 0.1 + 0.2 }}", "1e+16 0.30000000000000004");
}

static void scopes_end_where_jinja_ends_them(void)
{
    kit_expect(
        "{% set a = 1 %}{% for x in [1, 2] %}{% set a = a + x %}{{ a }}{% endfor %}{{ a }}", "231");
    kit_expect(
        "{% set n = namespace(a=1) %}{% for x in [1, 2] %}{% set n.a = n.a + x %}{% endfor %}"
        "{{ n.a }}",
        "4");
    kit_expect(
        "{% macro f(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{{ f(1) }}{{ f(y=3, x=0) }}", "1203");
}

static void slices_of_lists_keep_their_values(void)
{
    kit_expect("{% set a = [1, 2, 3] %}{% set b = a[1:] %}{% set _ = a.append(4) %}"
               "{% set _ = a.pop(0) %}{% set _ = b.append(9) %}{{ a }}{{ b }}",
        "[2, 3, 4][2, 3, 9]");
    kit_expect("{% set a = [1, 2, 3] %}{% set b = a[:2] %}{% set _ = a.pop() %}"
               "{% set _ = a.pop() %}{% set _ = a.append(7) %}{{ a }}{{ b }}",
        "[1, 7][1, 2]");
    kit_expect("{% set a = [1, 2, 3] %}{% set b = a[:] %}{% set c = b[1:2] %}"
               "{% set _ = b.reverse() %}{% set _ = a.clear() %}{% set _ = a.append(5) %}"
               "{% set _ = c.insert(0, 8) %}{{ a }}{{ b }}{{ c }}",
        "[5][3, 2, 1][8, 2]");
    kit_expect(
        "{% set a = (1, 2, 3)[1:] %}{{ a }}{{ a[5:] }}{{ [][0:] }}{{ range(5)[1:3] | list }}",
        "(2, 3)()[][1, 2]");
    kit_expect("{% set n = namespace(m=[1, 2, 3]) %}{% for x in n.m %}{% set n.m = n.m[1:] %}"
               "{{ x }}{{ n.m }}{% endfor %}",
        "1[2, 3]2[3]3[]");
}

/* A scope is reused after its end, unless a macro has captured it. */
static void reused_scopes_are_independent(void)
{
    kit_expect("{% set n = namespace(f=[]) %}{% for x in [1, 2] %}{% for y in [x] %}"
               "{% macro g() %}{{ x }}{{ y }}{% endmacro %}{% set n.f = n.f + [g] %}{% endfor %}"
               "{% for z in [7, 8] %}{% set y = z %}{% endfor %}{% endfor %}"
               "{% for g in n.f %}{% set x = 5 %}{{ g() }}{% endfor %}",
        "1122");
    kit_expect("{% macro f(n) %}{% for i in range(n) %}{{ i }}{{ f(i) }}{% endfor %}{% endmacro %}"
               "{{ f(3) }}",
        "0102010"); /* values: 0, 1 and its nested scope, 2 and its nested scope */
}

static void macros_capture_their_defining_scope(void)
{
    kit_expect("{% set n = namespace(f=[]) %}{% for x in [1, 2, 3] %}{% macro g() %}{{ x }}"
               "{% endmacro %}{% set n.f = n.f + [g] %}{% endfor %}"
               "{% for g in n.f %}{{ g() }}{% endfor %}",
        "123");
}

static void an_error_names_its_line(void)
{
    kit_expect_error("a\n{{ x.y }}", ERR_INVALID, "line 2: 'x' is undefined");
    kit_expect_error("a\n\n{{ 1 + }}", ERR_SYNTAX, "line 3: expected an expression");
    kit_expect_error("{{ 1 | nope }}", ERR_SYNTAX, "line 1: unknown filter 'nope'");
    kit_expect_error("\n{{ 1 is nope }}", ERR_SYNTAX, "line 2: unknown test 'nope'");
    kit_expect_error("{% nope %}", ERR_SYNTAX, "line 1: unknown statement 'nope'");
    kit_expect_error(
        "{% for x in [] %}", ERR_SYNTAX, "line 1: the template ends where endfor is expected");
    kit_expect_error("\n{{ 'a'.encode() }}", ERR_INVALID, "line 2: encode() is not supported");
    kit_expect_error("{{ 'abc", ERR_SYNTAX, "line 1: a string has no end");
    kit_expect_error("{% break %}", ERR_SYNTAX, "line 1: break outside a loop");
    kit_expect_error("\xFF", ERR_SYNTAX, "line 1: the template is not UTF-8");
}

static void raise_exception_sets_the_message(void)
{
    kit_expect_error("{{ raise_exception('Roles must alternate: ' ~ messages[0].role) }}",
        ERR_INVALID, "Roles must alternate: user");
}

/* ---- limits */

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static const char *const hostile[] = {
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{{ range(10 ** 9) }}",
    "{{ 'a' * 10 ** 12 }}",
    "{% set x = 'a' * 1000000 %}{% for i in range(100000) %}{{ x }}{% endfor %}",
    "{% set n = namespace(s='a') %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "{% set n = namespace(s=[1]) %}{% for i in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
    "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
    "{% set a = [] %}{% set b = [] %}{% set _ = a.append(a) %}{% set _ = b.append(b) %}{{ a == b "
    "}}",
    "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
    "{% set n = namespace(x=[]) %}{% for i in range(100000) %}{% set n.x = [n.x] %}{% endfor %}"
    "{{ n.x }}",
    "{% set x = 'ab' * 500000 %}{% for i in range(100000) %}{{ x.find('ba' * 9000 ~ 'c') }}"
    "{% endfor %}",
    "{% set x = 'a' * 500000 %}{% for i in range(1000) %}{{ x.rfind('a' * 1000 ~ 'b') }}"
    "{% endfor %}",
    "{% set x = '\xC3\xA9' * 500000 %}{% for i in range(100000) %}{{ x[400000] }}{% endfor %}",
    "{% set x = 'a ' * 500000 %}{% for i in range(1000) %}{% set y = x.split() %}{% endfor %}",
    "{% set x = 'a' * 500000 %}{% for i in range(1000) %}{% set y = x.replace('a', 'bb') %}"
    "{% endfor %}",
    "{% set x = '\xCE\xA3' * 200000 %}{{ x.lower() }}{{ x | title }}",
    "{% set x = '\xCE\xA3' * 200000 %}{{ x | title }}",
    "{% set x = 'x' * 500000 %}{{ (x * 10) | indent(900, true) }}",
    "{% set x = '\\n' * 500000 %}{{ x | indent(900, blank=true) }}",
    "{% set x = range(100000) | list %}{% for i in range(1000) %}{{ x | sort | first }}{% endfor "
    "%}",
    "{% set x = range(100000) | list %}{{ (x | map('string') | list) == (x | map('string') | list) "
    "}}"
    "{% for i in range(1000) %}{{ x == (x + []) }}{% endfor %}",
    "{% set d = {} %}{% for i in range(100000) %}{% set _ = d.update({i: d.copy()}) %}{% endfor %}",
    "{% set x = 'a' * 1000000 %}{{ '%1000000000s' % x }}",
    "{{ '{:>1000000000}'.format('x') }}",
    "{{ 'x'.ljust(10 ** 12) }}",
    "{{ 'x'.zfill(10 ** 12) }}",
    "{{ [0] * 10 ** 12 }}",
    "{% set s = '[' * 100000 %}{{ s | from_json }}",
    "{% for i in range(100000) %}{{ '1,' * 10000 }}{% endfor %}",
    "{% set x = 'ab' * 100000 %}{{ x.strip(x) }}{% for i in range(9999) %}{{ x.strip(x) }}{% "
    "endfor %}",
    "{{ raise_exception('a' * 1000000) }}",
    "{% set c = ['a' * 100000] * 10000 %}{{ c | join }}",
    "{% set c = ['a' * 100000] * 10000 %}{{ c | tojson }}",
    "{% set c = 'a' * 100000 %}{% for i in range(100000) %}{% set d = {c: 1} %}{% endfor %}",
};

static void hostile_template_fails_within_its_limits(void)
{
    double worst = 0;

    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        double begun = cpu_ms();
        struct rendering x =
            kit_render_with(hostile[i], "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
                &kit_env, &template_limits_default);
        double ms = cpu_ms() - begun;
        if (!x.rc)
            fprintf(stderr, "%s: rendered\n", hostile[i]);
        if (ms > 60)
            printf("%.1f ms: %.90s: %s\n", ms, hostile[i], x.e.msg);
        EXPECT(x.rc != 0);
        EXPECT(x.e.code == ERR_TOO_LARGE || x.e.code == ERR_INVALID);
        worst = MAX(worst, ms);
        kit_free(&x);
    }
    printf("worst: %.1f ms\n", worst);
#ifndef TESTING
    EXPECT(worst < 500); /* on a loaded machine; a tenth of this on an idle one */
#endif
}

/* Makes head, then `link` n times, then tail. */
static struct str repeated(
    struct buf *b, const char *head, const char *link, int n, const char *tail)
{
    buf_init(b, MB);
    buf_putz(b, head);
    for (int i = 0; i < n; i++)
        buf_putz(b, link);
    buf_putz(b, tail);
    EXPECT(buf_ok(b));
    return buf_str(b);
}

static void nesting_is_capped_in_the_source_too(void)
{
    static const char *const openers[] = { "(", "[", "{'a':", "-", "not ", "a.b(", "a[", "1 if ",
        "1 if 1 else " };
    struct chat_template *t;
    struct buf b;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(openers); i++) {
        EXPECT(chat_template_compile(&t, repeated(&b, "{{ ", openers[i], 20000, " }}"), &e));
        EXPECT_STR(errcode_name(e.code), errcode_name(ERR_SYNTAX));
        buf_clear(&b);
    }
    EXPECT(chat_template_compile(&t, repeated(&b, "", "{% if 1 %}", 20000, ""), &e));
    EXPECT_STR(errcode_name(e.code), errcode_name(ERR_SYNTAX));
    buf_clear(&b);
}

static void long_operator_chains_never_overflow_the_stack(void)
{
    static const char *const links[] = { " + 1", " ~ 1", ".a", "|trim", "[0]", " and 1", " == 1",
        " is defined", "()" };

    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        struct buf b;
        repeated(&b, "{{ 1", links[i], 9000, " }}");
        buf_putc(&b, '\0');
        struct rendering x =
            kit_render_with(b.p, "{\"messages\":[]}", &kit_env, &template_limits_default);
        EXPECT(!x.rc || x.e.code == ERR_TOO_LARGE || x.e.code == ERR_SYNTAX ||
               x.e.code == ERR_INVALID);
        kit_free(&x);
        buf_clear(&b);
    }
}

static void a_source_that_is_too_large_is_refused(void)
{
    static char source[300 * 1024];
    struct chat_template *t;
    struct err e;

    memset(source, ' ', sizeof(source));
    EXPECT(chat_template_compile(&t, (struct str){ source, sizeof(source) }, &e));
    EXPECT_STR(errcode_name(e.code), errcode_name(ERR_TOO_LARGE));
}

/* ---- memory */

static void every_failed_allocation_is_reported(void)
{
    static const char source[] =
        "{%- macro f(a, b=1) -%}{{ a ~ b }}{{ caller() }}{%- endmacro -%}"
        "{%- set ns = namespace(n=0, l=[]) -%}"
        "{%- for m in messages if m.role != 'x' -%}"
        "{%- set ns.n = ns.n + 1 -%}{%- set ns.l = ns.l + [m.content | trim | upper] -%}"
        "<|{{ m.role }}|>{{ m | tojson(indent=2) }}{{ m.tool_calls }}{{ '%5d' % ns.n }}"
        "{%- call f(m.content.split(' ')) -%}x{%- endcall -%}"
        "{%- endfor -%}{{ ns.l | sort | join('-') }}{{ tools | tojson }}"
        "{{ {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, 'i': 9} | dictsort }}";
    static const char request[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a b c\"},"
        "{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":\"{\\\"k\\\":[1,2]}\"}}]}],\"tools\":[{\"a\":1}]}";
    uint64_t n_failed = 0;

    for (uint64_t nth = 1;; nth++) {
        struct arena *a = arena_new(MB);
        struct chat_template *t = NULL;
        struct rendered r;
        struct json *j;
        struct convo c;
        struct err e = { 0 };
        EXPECT(a && !json_parse(&j, str_of(request), a, &json_limits_default, &e));
        EXPECT(cj_convo(j, &c, a));
        uint64_t before = mem_failures();
        mem_fail_after(nth);
        int rc = chat_template_compile(&t, str_of(source), &e);
        if (!rc)
            rc = chat_template_render(t, &c, &kit_env, &template_limits_default, a, &r, &e);
        mem_fail_after(0);
        bool failed = mem_failures() > before;
        if (failed) {
            EXPECT(rc != 0);
            EXPECT_STR(errcode_name(e.code), errcode_name(ERR_MEMORY));
            n_failed++;
        } else {
            EXPECT_EQ(rc, 0);
        }
        chat_template_free(t);
        arena_free(a);
        if (!failed)
            break;
    }
#ifdef TESTING
    EXPECT(n_failed > 10);
#endif
}

/* ---- cancelled requests */

#define COUNT(n) "{% for i in range(" n ") %}{{ 'ab' }}{% endfor %}"

static void rendering_checks_for_cancellation(void)
{
    static const char again[] =
        "{%- for m in messages -%}{%- if m.tool_calls is defined and m.tool_calls[0].function"
        ".arguments is mapping -%}" COUNT("100000") "{{ raise_exception('no') }}{%- endif -%}"
                                                    "{%- endfor -%}";
    static const char calls[] =
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}}]}]}";
    static const char hi[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    static const struct {
        const char *source, *request;
    } rows[] = { { COUNT("100000"), hi }, { again, calls } };
    _Atomic bool stop = true;
    struct template_env env = kit_env;

    env.stop = &stop;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        stop = true;
        struct rendering x =
            kit_render_with(rows[i].source, rows[i].request, &env, &template_limits_default);
        EXPECT(x.rc != 0);
        EXPECT_STR(errcode_name(x.e.code), errcode_name(ERR_CANCELLED));
        kit_free(&x);
        stop = false;
        x = kit_render_with(rows[i].source, rows[i].request, &env, &template_limits_default);
        EXPECT_EQ(x.rc, 0);
        kit_free(&x);
    }
}

/* The number of steps is the same with and without a cancellation flag. */
static void cancellation_checks_cost_no_steps(void)
{
    _Atomic bool stop = false;
    struct template_env env = kit_env;
    static const char source[] = COUNT("99999") COUNT("7");
    static const char hi[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

    struct rendering x = kit_render_with(source, hi, &env, &template_limits_default);
    env.stop = &stop;
    struct rendering y = kit_render_with(source, hi, &env, &template_limits_default);
    EXPECT(!x.rc && !y.rc);
    EXPECT_EQ(x.r.n_steps, y.r.n_steps);
    EXPECT(x.r.n_steps > 100 * 1000);

    struct template_limits just = { x.r.n_steps, MB, 16 * MB, 500 }, less = just;
    less.max_steps--;
    struct rendering fits = kit_render_with(source, hi, &env, &just);
    struct rendering lacks = kit_render_with(source, hi, &env, &less);
    EXPECT_EQ(fits.rc, 0);
    EXPECT_STR(errcode_name(lacks.e.code), errcode_name(ERR_TOO_LARGE));
    kit_free(&x);
    kit_free(&y);
    kit_free(&fits);
    kit_free(&lacks);
}

/* ---- threads */

static struct chat_template *shared;

static void *render_often(void *arg)
{
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"h\xC3\xA9\"}]}";
    int *failed = arg;

    for (int i = 0; i < 200; i++) {
        struct arena *a = arena_new(MB);
        struct rendered r;
        struct json *j;
        struct convo c;
        struct err e;
        bool ok = a && !json_parse(&j, str_of(request), a, &json_limits_default, &e) &&
                  cj_convo(j, &c, a) &&
                  !chat_template_render(shared, &c, &kit_env, &template_limits_default, a, &r, &e);
        *failed += !ok || r.n_bytes != strlen("<|user|>H\xC3\x89 H\xC3\x89!\xC3\xA4");
        arena_free(a);
    }
    return NULL;
}

static void threads_share_a_template(void)
{
    pthread_t threads[4];
    int failed[4] = { 0 };
    struct err e;

    EXPECT(!chat_template_compile(&shared,
        STR("{% macro f(x) %}{{ x | upper }}{% endmacro %}<|{{ messages[0].role }}|>"
            "{% for m in messages %}{{ f(m.content) ~ ' ' ~ f(m.content) }}{% endfor %}"
            "{{ '!\xC3\xA4\xC3\xB6'[:2] }}"),
        &e));
    for (int i = 0; i < 4; i++)
        EXPECT(!pthread_create(&threads[i], NULL, render_often, &failed[i]));
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        EXPECT_EQ(failed[i], 0);
    }
    chat_template_free(shared);
}

TESTS(TEST(text_and_expressions_are_rendered), TEST(blanks_around_tags_are_trimmed_like_jinja),
    TEST(values_print_as_python_prints_them), TEST(scopes_end_where_jinja_ends_them),
    TEST(slices_of_lists_keep_their_values), TEST(reused_scopes_are_independent),
    TEST(macros_capture_their_defining_scope), TEST(an_error_names_its_line),
    TEST(raise_exception_sets_the_message), TEST(hostile_template_fails_within_its_limits),
    TEST(nesting_is_capped_in_the_source_too), TEST(long_operator_chains_never_overflow_the_stack),
    TEST(a_source_that_is_too_large_is_refused), TEST(every_failed_allocation_is_reported),
    TEST(rendering_checks_for_cancellation), TEST(cancellation_checks_cost_no_steps),
    TEST(threads_share_a_template))
