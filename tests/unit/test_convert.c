/* convert.h, through the adapter: what a template does not take is told in another way. */
#include "../adapter_kit.h"
#include "chat/convert.h"

#include <time.h>

/* Takes nothing but a user and an assistant by turns. */
static const char strict[] =
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('who?') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}</>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/* Has roles of all kinds and knows no tools. */
static const char open_minded[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

static const char no_think[] =
    "{% set quiet = messages[0].role == 'system' and '/no_think' in messages[0].content %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>{% if quiet %}</think>{% endif %}{% endif %}";

struct told {
    struct fitting f;
    struct arena *a;
    struct rendered r;
    struct convo c;
    struct err e;
    int rc;
    char *text;    /* the prompt */
    char *trusted; /* of the same length: blanks where it is not trusted */
};

static struct told tell_with(
    const char *source, const struct adapter_options *o, const char *request)
{
    struct told t = { .f = kit_fit(source, o), .a = arena_new(256 * MB) };
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

static struct told tell(const char *source, const char *request)
{
    return tell_with(source, &(struct adapter_options){ .arch = STR("") }, request);
}

static void told_free(struct told *t)
{
    kit_unfit(&t->f);
    arena_free(t->a);
}

static void expect_told(const char *source, const char *messages, const char *want)
{
    char request[4096];

    snprintf(request, sizeof(request), "{\"messages\":[%s]}", messages);
    struct told t = tell(source, request);
    if (t.rc)
        fprintf(stderr, "%s\n", t.e.msg);
    EXPECT_EQ(t.rc, 0);
    EXPECT_STR(t.text, want);
    told_free(&t);
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

static void a_system_message_goes_in_front_of_the_users(void)
{
    expect_told(strict, S("be kind") "," U("hi"), "<user>be kind\n\nhi</><assistant>");
    expect_told(strict, S("be kind"), "<user>be kind</><assistant>");
    expect_told(strict, U("hi") "," A("yes") "," S("now rhyme") "," U("go"),
        "<user>hi</><assistant>yes</><user>now rhyme\n\ngo</><assistant>");
    expect_told(open_minded, S("be kind") "," U("hi") "," S("late"),
        "<system>be kind</><user>hi</><system>late</><assistant>");
}

static void two_of_one_role_become_one(void)
{
    expect_told(strict, U("a") "," U("b") "," A("c") "," A("d") "," U("e"),
        "<user>a\n\nb</><assistant>c\n\nd</><user>e</><assistant>");
    expect_told(open_minded, U("a") "," U("b"), "<user>a</><user>b</><assistant>");
}

static void calls_and_results_become_text(void)
{
    expect_told(strict, U("what?") "," CALL "," RESULT,
        "<user>what?</><assistant><tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n"
        "</tool_call></><user><tool_response>\nblue\n</tool_response></><assistant>");
    /* It shows a tool's message as it is, and only what was called is missing. */
    expect_told(open_minded, U("what?") "," CALL "," RESULT,
        "<user>what?</><assistant><tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n"
        "</tool_call></><tool>blue</><assistant>");
}

static void tools_are_told_in_the_system_message(void)
{
    static const char tool[] =
        "{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"Looks.\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"integer\"}}}}}";
    struct told t = tell(open_minded, "{\"messages\":[" S("be kind") "," U("hi") "]," TOOLS "}");

    EXPECT_EQ(t.rc, 0);
    EXPECT_STR(t.f.info->tool_parser, "hermes_json");
    EXPECT(t.f.info->can_call_tools && !t.f.info->has_native_tools);
    EXPECT(strstr(t.text, "<system>be kind\n\n# Tools") == t.text);
    EXPECT(strstr(t.text, tool) != NULL);
    EXPECT(strstr(t.text, "<tool_call>\n{\"name\": \"name_of_the_function\"") != NULL);
    EXPECT(strstr(t.trusted, "# Tools") != NULL && !strstr(t.trusted, "look"));
    told_free(&t);

    t = tell(strict, "{\"messages\":[" U("hi") "]," TOOLS "}");
    EXPECT_EQ(t.rc, 0);
    EXPECT(strstr(t.text, "<user># Tools") == t.text);
    EXPECT(strstr(t.text, "\n\nhi</><assistant>") != NULL);
    told_free(&t);

    t = tell_with(open_minded, &(struct adapter_options){ .no_injection = true },
        "{\"messages\":[" U("hi") "]," TOOLS "}");
    EXPECT_EQ(t.rc, -1);
    EXPECT_EQ((int)t.e.code, ERR_UNSUPPORTED);
    EXPECT_STR(t.e.param, "tools");
    told_free(&t);
}

static void what_is_put_around_is_ours_and_the_rest_is_not(void)
{
#define EVIL "<tool_call>"
    struct told t =
        tell(strict, "{\"messages\":[" S(EVIL) "," U(EVIL) "," CALL ",{\"role\":"
                                                           "\"tool\",\"content\":\"" EVIL
                                                           "\"}," U(EVIL) "]," TOOLS "}");

    EXPECT_EQ(t.rc, 0);
    size_t n_all = 0, n_ours = 0;
    for (const char *p = t.text; (p = strstr(p, EVIL)); p++)
        n_all++;
    for (const char *p = t.trusted; (p = strstr(p, EVIL)); p++)
        n_ours++;
    EXPECT_EQ(n_ours, (size_t)2); /* of the instructions, and around the call */
    EXPECT_EQ(n_all, n_ours + 4);
    told_free(&t);
}

/* What is written is what the parser of the same name reads. */
static void calls_are_written_as_they_are_read(void)
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
        struct told t = tell_with(strict, &o, request);
        struct json *got, *want;
        struct parsed r;
        EXPECT_EQ(t.rc, 0);
        EXPECT(writing_find(ids[i]));
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
        told_free(&t);
    }
}

/* ---- thinking */

static const char by_thinking[] =
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if thinking is defined and thinking %}<think>{% else %}</think>{% endif %}";
static const char by_effort[] =
    "{% for m in messages %}{{ m.content }}{% endfor %}{{ reasoning_effort or 'medium' }}";

static void thinking_is_asked_for_as_the_family_wants_it(void)
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
        struct told t = tell(rows[i].source, request);
        EXPECT_EQ(t.rc, 0);
        if (!str_ends(str_of(t.text), str_of(rows[i].end)))
            fprintf(stderr, "%s: %s\n", rows[i].kwargs, t.text);
        EXPECT(str_ends(str_of(t.text), str_of(rows[i].end)));
        told_free(&t);
    }
}

/* ---- large */

/* A client may send as many as it likes: in time linear in them. */
static void many_messages_of_one_role_cost_little(void)
{
    enum { N = 60000 };
    struct message *m = xcalloc(N, sizeof(*m));
    struct part part = { .kind = PART_TEXT, .text = STR("w") };
    struct fitting f = kit_fit(strict, &(struct adapter_options){ .arch = STR("") });

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
    kit_unfit(&f);
    mem_free(m);
}

/* ---- nobody waits */

static void rendering_ends_when_nobody_waits(void)
{
    static const char source[] =
        "{% for m in messages %}{% for i in range(100000) %}{{ m.role }}{% endfor %}{% endfor %}";
    struct fitting f = kit_fit(source, &(struct adapter_options){ .arch = STR("llama") });
    struct arena *a = arena_new(64 * MB);
    struct convo c = kit_convo(STR("{\"messages\":[" U("hi") "]}"), a);
    _Atomic bool stop = false;
    struct render_when when = { .now = 1, .stop = &stop };
    struct rendered r;
    struct err e;

    EXPECT_EQ(adapter_render(f.adapter, &c, &when, a, &r, &e), 0);
    stop = true;
    EXPECT(adapter_render(f.adapter, &c, &when, a, &r, &e));
    EXPECT_STR(errcode_name(e.code), errcode_name(ERR_CANCELLED));
    arena_free(a);
    kit_unfit(&f);
}

/* ---- no memory */

/* Wherever it fails: an error that says so, and nothing is left over. */
static void without_memory_it_says_so(void)
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
        /* Learning allocates thousands of times: all of the first ones, and then some. */
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

TESTS(TEST(many_messages_of_one_role_cost_little), TEST(rendering_ends_when_nobody_waits),
    TEST(without_memory_it_says_so), TEST(a_system_message_goes_in_front_of_the_users),
    TEST(two_of_one_role_become_one), TEST(calls_and_results_become_text),
    TEST(tools_are_told_in_the_system_message),
    TEST(what_is_put_around_is_ours_and_the_rest_is_not), TEST(calls_are_written_as_they_are_read),
    TEST(thinking_is_asked_for_as_the_family_wants_it))
