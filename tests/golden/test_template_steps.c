/* A conversation that fits into the largest context never exceeds the limits of a template:
 * every available template renders as many short messages as 128k tokens are, up to ten
 * thousand, as much text in every field that a client may fill, and a body of the maximum size. */
#include "support/adapter_kit.h"

#include <time.h>

#ifdef TESTING /* slow builds */
#define SHARE 4
#else
#define SHARE 1
#endif

/* PROMPT: bytes of 128k tokens, half of them markers. */
enum {
    MESSAGES = 10000 / SHARE,
    FEW = 40,
    PROMPT = 131072 * 5 / SHARE,
    TEXT = 1 << 20,
    ARGUMENTS = 1 << 19,
    TOOLS = 400,
    BODY = 15 << 20
};

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

#define SAID(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CALL                                                                                       \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefgh1\",\"type\":"     \
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
#define CALLED "}\"}}]}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\",\"content\":\"4\"}"
#define HI     SAID("user", "hi")
#define TOOL                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"A function.\","         \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","              \
    "\"description\":\"A word.\"}},\"required\":[\"a\"]}}}"

static void put_list(struct buf *b, const char *item, int n)
{
    for (int i = 0; i < n; i++) {
        buf_putz(b, i ? "," : "");
        buf_putz(b, item);
    }
}

static void put_text(struct buf *b, const char *words, size_t n)
{
    for (size_t end = b->n + n; b->n < end;)
        buf_putz(b, words);
}

/* ---- conversations */

static void short_messages(struct buf *b, int n)
{
    put_list(b, SAID("user", "Why?") "," SAID("assistant", "Well."), n / 2);
    buf_putz(b, "," HI);
}

static void short_calls(struct buf *b, int n)
{
    put_list(b, HI "," CALL "\\\"b\\\"" CALLED "," RESULT "," SAID("assistant", "It is 4."), n / 4);
    buf_putz(b, "," HI "],\"tools\":[" TOOL);
}

/* One turn with many calls: the last question is thousands of messages before the end. */
static void one_long_turn(struct buf *b, int n)
{
    buf_putz(b, HI ",");
    put_list(b, CALL "\\\"b\\\"" CALLED "," RESULT, n / 2);
    buf_putz(b, "],\"tools\":[" TOOL);
}

static void long_reasoning(struct buf *b, int n)
{
    put_list(b, HI "," SAID("assistant", "<think>\\nHm.\\n</think>\\n\\nYes."), n / 2);
    buf_putz(b, "," HI);
}

static void long_question(struct buf *b, int n)
{
    buf_putz(b, "{\"role\":\"user\",\"content\":\"");
    put_text(b, "Some words, and \xC3\xA9t\xC3\xA9.\\n", TEXT);
    buf_putz(b, "\"}");
}

static void long_answer(struct buf *b, int n)
{
    buf_putz(b, HI ",{\"role\":\"assistant\",\"content\":\"<think>\\n");
    put_text(b, "Some words.\\n", TEXT / 2);
    buf_putz(b, "</think>\\n\\n");
    put_text(b, "Others.\\n", TEXT / 2);
    buf_putz(b, "\"}," HI);
}

static void long_arguments(struct buf *b, int n)
{
    buf_putz(b, HI "," CALL "\\\"");
    put_text(b, "a long word, \xC3\xA9, ", ARGUMENTS);
    buf_putz(b, "\\\"" CALLED "," RESULT "],\"tools\":[" TOOL);
}

/* Lists of numbers, which a template prints one by one. */
static void many_arguments(struct buf *b, int n)
{
    buf_putz(b, HI "," CALL "[0");
    put_text(b, ", 17", ARGUMENTS / 2);
    buf_putz(b, "]" CALLED "," RESULT "],\"tools\":[" TOOL);
}

static void long_result(struct buf *b, int n)
{
    buf_putz(b,
        HI "," CALL "1" CALLED ",{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\",\"content\":\"");
    put_text(b, "Some words, { \\\"a\\\": 1 }.\\n", TEXT);
    buf_putz(b, "\"}],\"tools\":[" TOOL);
}

static void many_tools(struct buf *b, int n)
{
    buf_putz(b, HI "],\"tools\":[");
    put_list(b, TOOL, TOOLS);
}

static void whole_body(struct buf *b, int n)
{
    buf_putz(b, "{\"role\":\"user\",\"content\":\"");
    put_text(b, "Some words, one after the other.\\n", BODY);
    buf_putz(b, "\"}");
}

static const struct row {
    const char *name;
    void (*fill)(struct buf *b, int n); /* n messages, for conversations of many */
    bool is_many;
} rows[] = {
    { "short messages", short_messages, true },
    { "calls", short_calls, true },
    { "one long turn", one_long_turn, true },
    { "thoughts", long_reasoning, true },
    { "long question", long_question, false },
    { "long answer", long_answer, false },
    { "long arguments", long_arguments, false },
    { "many arguments", many_arguments, false },
    { "long result", long_result, false },
    { "many tools", many_tools, false },
    { "whole body", whole_body, false },
};

/* ---- every template with every conversation */

static int n_bad;

struct most {
    double steps, ms;
};

static size_t render_case(
    const struct adapter_fixture *f, const struct row *row, int n, const char *name, struct most *m)
{
    struct arena *a = arena_new(GB);
    struct rendered r = { 0 };
    struct json *j;
    struct convo c;
    struct buf b;
    struct err e;

    buf_init(&b, 64 * MB);
    buf_putz(&b, "{\"add_generation_prompt\":true,\"messages\":[");
    row->fill(&b, n);
    buf_putz(&b, "]}");
    EXPECT(a && buf_ok(&b));
    EXPECT(!json_parse(&j, buf_str(&b), a, &json_limits_default, &e) && cj_convo(j, &c, a));
    double began = cpu_ms();
    int rc = adapter_render(f->adapter, &c, &kit_when, a, &r, &e);
    *m = (struct most){ rc ? 0 : (double)r.n_steps, cpu_ms() - began };
    if (rc)
        fprintf(stderr, "%s, %s (%d): %s\n", name, row->name, n, e.msg);
    n_bad += rc || !r.n_bytes;
    buf_clear(&b);
    arena_free(a);
    return r.n_bytes;
}

static void with_template(const char *source, const char *name, void *ctx)
{
    struct most *most = ctx;
    struct adapter_fixture f =
        adapter_fixture_open(source, &(struct adapter_options){ .arch = STR("") });

    EXPECT_EQ(f.rc, 0);
    printf("%-28.28s", name);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct most m;
        size_t few = rows[i].is_many ? render_case(&f, &rows[i], FEW, name, &m) : 0;
        int n = few ? (int)MIN((size_t)MESSAGES, (size_t)PROMPT * FEW / few) : 0;
        render_case(&f, &rows[i], n, name, &m);
        if (n)
            printf(" %5d:", n);
        printf("%6.0fk", m.steps / 1000);
        most[i].steps = MAX(most[i].steps, m.steps);
        most[i].ms = MAX(most[i].ms, m.ms);
    }
    printf("\n");
    adapter_fixture_close(&f);
}

static void conversation_that_fits_is_rendered(void)
{
    struct most most[ARRAY_LEN(rows)] = { { 0 } };

    kit_each_template(with_template, most);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        printf("%-16s most %.0fk steps, %.1f ms\n", rows[i].name, most[i].steps / 1000, most[i].ms);
    EXPECT_EQ(n_bad, 0);
}

TESTS(TEST(conversation_that_fits_is_rendered))
