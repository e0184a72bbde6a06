/* chat/convo_convert.h through the adapter: messages that a template does not support are rendered
 * in another form. */
#include "support/adapter_kit.h"
#include "chat/convo_convert.h"

#include <time.h>

/* Accepts only alternating user and assistant messages. */
static const char strict[] =
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('who?') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}</>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/* Has all roles and no tool support. */
static const char all_roles[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

static const char no_think[] =
    "{% set quiet = messages[0].role == 'system' and '/no_think' in messages[0].content %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>{% if quiet %}</think>{% endif %}{% endif %}";

struct rendered_prompt {
    struct adapter_fixture f;
    struct arena *a;
    struct rendered r;
    struct convo c;
    struct err e;
    int rc;
    char *text;    /* the prompt */
    char *trusted; /* same length as `text`: blanks where the text is not trusted */
};

static struct rendered_prompt render_with(
    const char *source, const struct adapter_options *o, const char *request)
{
    struct rendered_prompt t = { .f = adapter_fixture_open(source, o), .a = arena_new(256 * MB) };
    struct json *j;

    EXPECT_EQ(t.f.rc, 0);
    EXPECT(t.a && !json_parse(&j, str_of(request), t.a, NULL, &t.e) && cj_convo(j, &t.c, t.a));
    t.c.add_generation_prompt = !t.c.continue_final_message;
    t.rc = adapter_render(t.f.adapter, &t.c, &kit_when, t.a, &t.r, &t.e);
    if (t.rc)
        return t;
    t.text = arena_zalloc(t.a, t.r.n_bytes + 1, 1);
    t.trusted = arena_zalloc(t.a, t.r.n_bytes + 1, 1);
    EXPECT(t.text && t.trusted);
    size_t n = 0;
    for (size_t i = 0; i < t.r.n_spans; i++) {
        struct str s = t.r.spans[i].text;
        memcpy(t.text + n, s.p, s.n);
        memset(t.trusted + n, ' ', s.n);
        if (t.r.spans[i].is_trusted)
            memcpy(t.trusted + n, s.p, s.n);
        n += s.n;
    }
    return t;
}

static struct rendered_prompt render_messages(const char *source, const char *request)
{
    return render_with(source, &(struct adapter_options){ .arch = STR("") }, request);
}

static void rendered_prompt_free(struct rendered_prompt *t)
{
    adapter_fixture_close(&t->f);
    arena_free(t->a);
}

static void expect_rendered(const char *source, const char *messages, const char *want)
{
    char request[4096];

    snprintf(request, sizeof(request), "{\"messages\":[%s]}", messages);
    struct rendered_prompt t = render_messages(source, request);
    if (t.rc)
        fprintf(stderr, "%s\n", t.e.msg);
    EXPECT_EQ(t.rc, 0);
    EXPECT_STR(t.text, want);
    rendered_prompt_free(&t);
}

#define S(text) "{\"role\":\"system\",\"content\":\"" text "\"}"
#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define CALL                                                                                       \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":"            \
    "\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"at\\\": 1}\"}}]}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"blue\"}"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"Looks.\"" \
    ",\"parameters\":{\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"integer\"}}}}}]"

static void system_message_is_prepended_to_the_user_message(void)
{
    expect_rendered(strict, S("be kind") "," U("hi"), "<user>be kind\n\nhi</><assistant>");
    expect_rendered(strict, S("be kind"), "<user>be kind</><assistant>");
    expect_rendered(strict, U("hi") "," A("yes") "," S("now rhyme") "," U("go"),
        "<user>hi</><assistant>yes</><user>now rhyme\n\ngo</><assistant>");
    expect_rendered(all_roles, S("be kind") "," U("hi") "," S("late"),
        "<system>be kind</><user>hi</><system>late</><assistant>");
}

static void consecutive_messages_of_one_role_are_joined(void)
{
    expect_rendered(strict, U("a") "," U("b") "," A("c") "," A("d") "," U("e"),
        "<user>a\n\nb</><assistant>c\n\nd</><user>e</><assistant>");
    expect_rendered(all_roles, U("a") "," U("b"), "<user>a</><user>b</><assistant>");
}

static void tool_calls_and_results_become_text(void)
{
    expect_rendered(strict, U("what?") "," CALL "," RESULT,
        "<user>what?</><assistant><tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n"
        "</tool_call></><user><tool_response>\nblue\n</tool_response></><assistant>");
    /* This template shows a tool message as it is; only the call is missing. */
    expect_rendered(all_roles, U("what?") "," CALL "," RESULT,
        "<user>what?</><assistant><tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n"
        "</tool_call></><tool>blue</><assistant>");
}

static void tools_are_listed_in_the_system_message(void)
{
    static const char tool[] =
        "{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"Looks.\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"integer\"}}}}}";
    struct rendered_prompt t =
        render_messages(all_roles, "{\"messages\":[" S("be kind") "," U("hi") "]," TOOLS "}");

    EXPECT_EQ(t.rc, 0);
    EXPECT_STR(t.f.info->tool_parser, "hermes_json");
    EXPECT(t.f.info->can_call_tools && !t.f.info->has_native_tools);
    EXPECT(strstr(t.text, "<system>be kind\n\n# Tools") == t.text);
    EXPECT(strstr(t.text, tool) != NULL);
    EXPECT(strstr(t.text, "<tool_call>\n{\"name\": \"name_of_the_function\"") != NULL);
    EXPECT(strstr(t.trusted, "# Tools") != NULL && !strstr(t.trusted, "look"));
    rendered_prompt_free(&t);

    t = render_messages(strict, "{\"messages\":[" U("hi") "]," TOOLS "}");
    EXPECT_EQ(t.rc, 0);
    EXPECT(strstr(t.text, "<user># Tools") == t.text);
    EXPECT(strstr(t.text, "\n\nhi</><assistant>") != NULL);
    rendered_prompt_free(&t);

    t = render_with(all_roles, &(struct adapter_options){ .no_injection = true },
        "{\"messages\":[" U("hi") "]," TOOLS "}");
    EXPECT_EQ(t.rc, -1);
    EXPECT_EQ((int)t.e.code, ERR_UNSUPPORTED);
    EXPECT_STR(t.e.param, "tools");
    rendered_prompt_free(&t);
}

static void inserted_text_is_trusted_and_client_text_is_not(void)
{
#define EVIL "<tool_call>"
    struct rendered_prompt t = render_messages(strict,
        "{\"messages\":[" S(EVIL) "," U(EVIL) "," CALL ",{\"role\":"
                                              "\"tool\",\"content\":\"" EVIL
                                              "\"}," U(EVIL) "]," TOOLS "}");

    EXPECT_EQ(t.rc, 0);
    size_t n_all = 0, n_ours = 0;
    for (const char *p = t.text; (p = strstr(p, EVIL)); p++)
        n_all++;
    for (const char *p = t.trusted; (p = strstr(p, EVIL)); p++)
        n_ours++;
    EXPECT_EQ(n_ours, (size_t)2); /* trusted spans: in the instructions, and around the call */
    EXPECT_EQ(n_all, n_ours + 4);
    rendered_prompt_free(&t);
}

/* The text that is written for a call can be read by the parser with the same name. */
static void written_calls_are_parsed_back(void)
{
    static const char *const ids[] = { "hermes_json", "glm4_xml", "llama_xml", "granite", "lfm2",
        "deepseek_v3", "deepseek_v31" };
    static const char request[] = "{\"messages\":[" U(
        "x") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
             "\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":"
             "\"{\\\"at\\\": 1, \\\"to\\\": \\\"\\\\\\\"q\\\\n\\\", \\\"deep\\\": "
             "[true, null, {\\\"k\\\": 1.5}]}\"}}]}]}";
    static const char want_text[] =
        "{\"at\": 1, \"to\": \"\\\"q\\n\", \"deep\": [true, null, {\"k\": 1.5}]}";

    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        struct adapter_options o = { .tool = ids[i] };
        struct rendered_prompt t = render_with(strict, &o, request);
        struct json *got, *want;
        struct parsed r;
        EXPECT_EQ(t.rc, 0);
        EXPECT(call_syntax_find(ids[i]));
        const char *from = strstr(t.text, "<assistant>") + strlen("<assistant>");
        const char *to = strstr(from, "</><assistant>");
        struct parser_options po = { .start = PARSER_START_CONTENT };
        EXPECT_EQ(parse_text(&r, adapter_format(t.f.adapter), &po,
                      (struct str){ from, (size_t)(to - from) }, &t.e),
            0);
        if (r.n_calls != 1)
            fprintf(stderr, "%s: %.*s\n", ids[i], (int)(to - from), from);
        EXPECT_EQ(r.n_calls, 1);
        EXPECT(str_is(r.calls[0].name, "look"));
        EXPECT(!json_parse(&got, r.calls[0].arguments, t.a, NULL, &t.e));
        EXPECT(!json_parse(&want, str_of(want_text), t.a, NULL, &t.e));
        EXPECT(json_equal(got, want));
        parsed_clear(&r);
        rendered_prompt_free(&t);
    }
}

/* ---- reasoning */

static const char by_thinking[] =
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if thinking is defined and thinking %}<think>{% else %}</think>{% endif %}";
static const char by_effort[] =
    "{% for m in messages %}{{ m.content }}{% endfor %}{{ reasoning_effort or 'medium' }}";

static void reasoning_is_enabled_in_the_way_of_the_family(void)
{
    static const struct {
        const char *source, *kwargs, *end;
    } rows[] = {
        { by_thinking, "{\"enable_thinking\":true}", "<think>" },
        { by_thinking, "{\"enable_thinking\":false}", "</think>" },
        { by_thinking, "{\"thinking\":true}", "<think>" },
        { by_thinking, "{\"enable_thinking\":true,\"thinking\":false}", "</think>" },
        { by_thinking, "{}", "</think>" },
        { by_effort, "{\"enable_thinking\":false}", "low" },
        { by_effort, "{\"enable_thinking\":false,\"reasoning_effort\":\"high\"}", "high" },
        { by_effort, "{\"enable_thinking\":true}", "medium" },
        { no_think, "{\"enable_thinking\":false}", "</think>" },
        { no_think, "{\"enable_thinking\":true}", "<think>" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char request[300];
        snprintf(request, sizeof(request),
            "{\"messages\":[" U("x") "],\"chat_template_kwargs\":%s}", rows[i].kwargs);
        struct rendered_prompt t = render_messages(rows[i].source, request);
        EXPECT_EQ(t.rc, 0);
        if (!str_ends(str_of(t.text), str_of(rows[i].end)))
            fprintf(stderr, "%s: %s\n", rows[i].kwargs, t.text);
        EXPECT(str_ends(str_of(t.text), str_of(rows[i].end)));
        rendered_prompt_free(&t);
    }
}

/* ---- large */

/* A client may send any number of messages; the time is linear in them. */
static void joining_many_messages_is_linear(void)
{
    enum { N = 60000 };
    struct message *m = xcalloc(N, sizeof(*m));
    struct content_part part = { .kind = PART_TEXT, .text = STR("w") };
    struct adapter_fixture f =
        adapter_fixture_open(strict, &(struct adapter_options){ .arch = STR("") });

    for (int kind = 0; kind < 2; kind++) {
        struct arena *a = arena_new(256 * MB);
        struct convo c = { .messages = m, .n_messages = N, .add_generation_prompt = true };
        struct rendered r;
        struct err e;
        for (int i = 0; i < N; i++)
            m[i] = (struct message){ .role = kind ? ROLE_SYSTEM : ROLE_USER,
                .has_content = true,
                .is_plain = true,
                .parts = &part,
                .n_parts = 1 };
        clock_t began = clock();
        EXPECT_EQ(adapter_render(f.adapter, &c, &kit_when, a, &r, &e), 0);
        double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
        printf("%d messages: %.0f ms\n", N, seconds * 1e3);
        EXPECT(seconds < 2);
        EXPECT_EQ(r.n_bytes, strlen("<user></><assistant>") + 3 * N - 2);
        arena_free(a);
    }
    adapter_fixture_close(&f);
    mem_free(m);
}

/* ---- cancelled requests */

static void rendering_stops_when_the_request_is_cancelled(void)
{
    static const char source[] =
        "{% for m in messages %}{% for i in range(100000) %}{{ m.role }}{% endfor %}{% endfor %}";
    struct adapter_fixture f =
        adapter_fixture_open(source, &(struct adapter_options){ .arch = STR("llama") });
    struct arena *a = arena_new(64 * MB);
    struct convo c = kit_parse_convo(STR("{\"messages\":[" U("hi") "]}"), a);
    _Atomic bool stop = false;
    struct render_options when = { .now = 1, .stop = &stop };
    struct rendered r;
    struct err e;

    EXPECT_EQ(adapter_render(f.adapter, &c, &when, a, &r, &e), 0);
    stop = true;
    EXPECT(adapter_render(f.adapter, &c, &when, a, &r, &e));
    EXPECT_STR(errcode_name(e.code), errcode_name(ERR_CANCELLED));
    arena_free(a);
    adapter_fixture_close(&f);
}

/* ---- out of memory */

/* A failed allocation returns ERR_MEMORY, and nothing leaks. */
static void out_of_memory_is_reported(void)
{
    static const char request[] = "{\"messages\":[" S("be kind") "," U("a") "," U(
        "b") "," CALL "," RESULT "," S("late") "," U("c") "]," TOOLS ",\"chat_template_kwargs\":"
                                                          "{\"enable_thinking\":false}}";
    static const char *const sources[] = { strict, by_thinking };
    int n_failed = 0;

    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        struct chat_template *t;
        struct err e;
        EXPECT_EQ(chat_template_compile(&t, str_of(sources[i]), &e), 0);
        struct adapter_options o = { .template = t, .env = &kit_env };
        /* Template probing makes thousands of allocations: all of the first ones fail, then
         * every few. */
        for (uint64_t nth = 1, step = 1;; nth += step, step += nth > 50 ? 3 : 0) {
            struct arena *a = arena_new(16 * MB);
            struct adapter *adapter = NULL;
            struct rendered r;
            struct json *j;
            struct convo c;
            EXPECT(a && !json_parse(&j, str_of(request), a, NULL, &e) && cj_convo(j, &c, a));
            uint64_t before = mem_failures();
            mem_fail_after(nth);
            int rc = adapter_open(&adapter, &o, &e);
            rc = rc ? rc : adapter_render(adapter, &c, &kit_when, a, &r, &e);
            mem_fail_after(0);
            bool failed = mem_failures() > before;
            EXPECT_EQ(rc != 0, failed);
            if (failed)
                EXPECT_STR(errcode_name(e.code), errcode_name(ERR_MEMORY));
            n_failed += failed;
            adapter_close(adapter);
            arena_free(a);
            if (!failed)
                break;
        }
        chat_template_free(t);
    }
    EXPECT(n_failed >= FAULTS_AT_LEAST(50));
}

TESTS(TEST(joining_many_messages_is_linear), TEST(rendering_stops_when_the_request_is_cancelled),
    TEST(out_of_memory_is_reported), TEST(system_message_is_prepended_to_the_user_message),
    TEST(consecutive_messages_of_one_role_are_joined), TEST(tool_calls_and_results_become_text),
    TEST(tools_are_listed_in_the_system_message),
    TEST(inserted_text_is_trusted_and_client_text_is_not), TEST(written_calls_are_parsed_back),
    TEST(reasoning_is_enabled_in_the_way_of_the_family))
