/* Provenance: client text stays untrusted whatever the template does with it, and text of the
 * template stays trusted. */
#include "support/template_kit.h"

#define MARK "<|evil|>"

/* Checks that every byte of every MARK is untrusted, and that there are `n` MARKs (-1: at least
 * one). */
static void expect_untrusted_marks(const struct rendering *x, int n)
{
    const char *text = x->text;
    int found = 0;

    for (const char *p = text; (p = strstr(p, MARK)); p++, found++) {
        size_t from = (size_t)(p - text), at = 0;
        for (size_t i = 0; i < x->r.n_spans; i++) {
            size_t end = at + x->r.spans[i].text.n;
            bool overlaps = at < from + strlen(MARK) && end > from;
            if (overlaps && x->r.spans[i].is_trusted)
                fprintf(stderr, "trusted: ...%.60s\n", text + at);
            EXPECT(!overlaps || !x->r.spans[i].is_trusted);
            at = end;
        }
    }
    if (n < 0 ? !found : found != n)
        fprintf(stderr, "%d marks in: %s\n", found, text);
    EXPECT(n < 0 ? found > 0 : found == n);
}

static const char *const filters[] = {
    "{{ x }}",
    "{{ x | trim }}",
    "{{ x | string }}",
    "{{ x | safe }}",
    "{{ x | lower }}",
    "{{ x | upper | lower }}",
    "{{ x.strip() }}",
    "{{ x.replace('a', 'b') }}",
    "{{ x | replace('zz', 'yy') }}",
    "{{ 'a' + x + 'b' }}",
    "{{ 'a' ~ x ~ 'b' }}",
    "{{ 'QQ'.replace('QQ', x) }}",
    "{{ 'a QQ b' | replace('QQ', x) }}",
    "{{ '%s' % x }}",
    "{{ 'a %s b'|format(x) }}",
    "{{ 'a {} b'.format(x) }}",
    "{{ '{k}'.format(k=x) }}",
    "{{ '{:>20}'.format(x) }}",
    "{{ [x] | join(', ') }}",
    "{{ ['a', 'b'] | join(x) }}",
    "{{ ', '.join(['a', x]) }}",
    "{{ x.join(['a', 'b']) }}",
    "{{ x | tojson }}",
    "{{ [x] | tojson }}",
    "{{ {'k': x} | tojson(indent=2) }}",
    "{{ {x: 1} | tojson }}",
    "{{ [x] }}",
    "{{ {x: x} }}",
    "{{ x[0:] }}",
    "{{ x[::-1][::-1] }}",
    "{{ x | list | join }}",
    "{{ x | reverse | reverse }}",
    "{{ x.split('e')[0] ~ 'e' ~ x.split('e')[1] if false else x }}",
    "{{ (x ~ '\\nb').splitlines()[0] }}",
    "{{ x | indent }}",
    "{{ ('a\\n' ~ x) | indent }}",
    "{{ x.center(40) }}",
    "{{ x.partition('zz')[0] }}",
    "{{ x | default('d') }}",
    "{{ missing | default(x) }}",
    "{{ x if true else 'y' }}",
    "{{ x or 'y' }}",
    "{{ x | truncate(100) }}",
    "{{ [x] | first }}",
    "{{ [x] | map('trim') | first }}",
    "{{ [{'a': x}] | map(attribute='a') | join }}",
    "{{ [x] | sort | last }}",
    "{{ [x] | unique | first }}",
    "{{ {'a': x}.items() | list }}",
    "{{ {'a': x} | dictsort }}",
    "{% set y = x %}{{ y }}",
    "{% set y %}a{{ x }}b{% endset %}{{ y }}",
    "{% set y %}a{{ x }}b{% endset %}{{ y | trim | lower }}",
    "{% set n = namespace(s='') %}{% for i in 'ab' %}{% set n.s = n.s + x %}{% endfor %}{{ n.s }}",
    "{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(x) }}{{ f(x) | lower }}",
    "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}{{ x }}{% endcall %}",
    "{% filter lower %}A{{ x }}{% endfilter %}",
    "{% for c in x %}{{ c }}{% endfor %}",
    "{% with y = x %}{{ y }}{% endwith %}",
    "{% generation %}{{ x }}{% endgeneration %}",
    "{{ x | from_json if false else x }}",
    "{{ ('\"' ~ x ~ '\"') | from_json }}",
    "{{ (x ~ '!').removesuffix('!') }}",
    "{{ x * 2 }}",
    "{{ strftime_now(x) }}",
    "{{ messages }}",
    "{{ messages | tojson }}",
    "{{ messages[0] | string }}",
    "{{ messages[0].get('content') }}",
    "{{ messages[0]['content'] }}",
    "{{ messages | map(attribute='content') | join }}",
    "{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | list }}",
};

static void no_filter_makes_input_trusted(void)
{
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"" MARK "\"}]}";

    for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
        char source[600];
        snprintf(source, sizeof(source), "{%% set x = messages[0].content %%}%s", filters[i]);
        struct rendering x = kit_render_with(source, request, &kit_env, &template_limits_default);
        if (x.rc)
            fprintf(stderr, "%s: %s\n", filters[i], x.e.msg);
        EXPECT_EQ(x.rc, 0);
        expect_untrusted_marks(&x, -1);
        kit_free(&x);
    }
}

static const char everywhere[] =
    "{\"messages\":["
    "{\"role\":\"system\",\"content\":\"s" MARK "\"},"
    "{\"role\":\"user\",\"name\":\"" MARK "\",\"content\":\"u" MARK "\",\"" MARK "\":\"" MARK "\"},"
    "{\"role\":\"assistant\",\"content\":\"a" MARK "\",\"reasoning_content\":\"" MARK "\","
    "\"tool_calls\":[{\"id\":\"" MARK "\",\"type\":\"" MARK "\",\"function\":{\"name\":\"" MARK
    "\","
    "\"arguments\":\"{\\\"" MARK "\\\":\\\"" MARK "\\\"}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"" MARK "\",\"content\":\"t" MARK "\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" MARK "\",\"description\":\"" MARK
    "\",\"parameters\":{\"type\":\"object\",\"properties\":{\"" MARK "\":{\"type\":\"" MARK
    "\",\"description\":\"" MARK "\"}}}}}],"
    "\"chat_template_kwargs\":{\"documents\":[{\"text\":\"" MARK "\"}],\"mode\":\"" MARK "\"},"
    "\"add_generation_prompt\":true}";

static void no_member_of_a_request_is_trusted(void)
{
    struct rendering x = kit_render_with(
        "{{ messages }}{{ tools | tojson }}{{ documents }}{{ mode }}"
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments }}"
        "{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }}{% endfor %}{% endfor %}"
        "{% for k, v in m.items() %}{{ k }}{{ v }}{% endfor %}{% endfor %}",
        everywhere, &kit_env, &template_limits_default);

    EXPECT_EQ(x.rc, 0);
    expect_untrusted_marks(&x, -1);
    kit_free(&x);
}

static void built_in_templates_separate_trusted_and_client_text(void)
{
    static const char *const names[] = { "chatml", "llama3", "llama2", "mistral", "gemma", "phi3",
        "zephyr", "vicuna", "deepseek" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *source = chat_template_builtin(names[i]);
        EXPECT(source);
        struct rendering x =
            kit_render_with(source, everywhere, &kit_env, &template_limits_default);
        if (x.rc)
            fprintf(stderr, "%s: %s\n", names[i], x.e.msg);
        EXPECT_EQ(x.rc, 0);
        expect_untrusted_marks(&x, 4);
        kit_free(&x);
    }
}

static void expect_trusted(const char *source, const char *request, const char *want)
{
    struct rendering x = kit_render_with(source, request, &kit_env, &template_limits_default);
    size_t at = 0;
    bool found = false;

    EXPECT_EQ(x.rc, 0);
    for (size_t i = 0; i < x.r.n_spans; i++) {
        struct str s = x.r.spans[i].text;
        found = found || (x.r.spans[i].is_trusted && str_find(s, str_of(want)) >= 0);
        at += s.n;
    }
    EXPECT(found);
    EXPECT_EQ(at, x.r.n_bytes);
    kit_free(&x);
}

static void template_text_is_trusted(void)
{
    static const char request[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";

    expect_trusted("<|im_start|>{{ messages[0].content }}", request, "<|im_start|>");
    expect_trusted("{{ '<|' + messages[0].role + '|>' }}", request, "<|user|>");
    expect_trusted("{{ '<|' ~ messages[0]['role'] | upper ~ '|>' }}", request, "<|USER|>");
    expect_trusted("{{ bos_token }}", request, "<s>");
    expect_trusted("{{ messages[0].content + eos_token }}", request, "</s>");
    expect_trusted("{% macro f(m) %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endmacro %}"
                   "{{ f(messages[0]) | trim }}",
        request, "<|end|>");
    expect_trusted(
        "{{ ('<|a|>' ~ messages[0].content).replace('hi', '<|b|>') }}", request, "<|a|><|b|>");
    expect_trusted("{{ {'type': '<|x|>', 'v': messages[0].content} | tojson }}", request, "<|x|>");
}

static void adjacent_pieces_are_one_span(void)
{
    struct rendering x = kit_render_with("{{ '<' }}{{ 'a' ~ '>' }}{{ messages[0].content }}"
                                         "{{ messages[0].content | trim }}|",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", &kit_env,
        &template_limits_default);

    EXPECT_EQ(x.rc, 0);
    EXPECT_EQ(x.r.n_spans, (size_t)3);
    EXPECT_STR(x.text, "<a>hihi|");
    kit_free(&x);
}

static void numbers_of_a_request_are_untrusted(void)
{
    struct rendering x = kit_render_with("{{ n }}{{ n + 1 }}{{ 1 + 1 }}",
        "{\"messages\":[],\"chat_template_kwargs\":{\"n\":7}}", &kit_env, &template_limits_default);

    EXPECT_EQ(x.rc, 0);
    EXPECT_STR(x.text, "782");
    EXPECT_EQ(x.r.n_spans, (size_t)2);
    EXPECT(!x.r.spans[0].is_trusted && x.r.spans[1].is_trusted);
    kit_free(&x);
}

TESTS(TEST(no_filter_makes_input_trusted), TEST(no_member_of_a_request_is_trusted),
    TEST(built_in_templates_separate_trusted_and_client_text), TEST(template_text_is_trusted),
    TEST(adjacent_pieces_are_one_span), TEST(numbers_of_a_request_are_untrusted))
