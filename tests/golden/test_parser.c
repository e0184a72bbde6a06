/* Output of models in every format, parsed whole and with all cuts: tests/golden/parser.txt. */
#include "support/parser_kit.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef TESTING
enum { GROUPINGS = 128 }; /* number of groupings per case; a format has more than eight cases */
#else
enum { GROUPINGS = 1000 };
#endif

enum { LINE_MAX_BYTES = 8192, CALLS_MAX = 8, SEED = 20260902 };

struct golden {
    char tool[32], thinking[32], name[80];
    char text[LINE_MAX_BYTES], content[LINE_MAX_BYTES], reasoning[LINE_MAX_BYTES];
    size_t n_text;
    char calls[CALLS_MAX][LINE_MAX_BYTES];
    int n_calls, n_broken;
    enum parser_start start;
    bool has_tools;
};

static int failures;

static void report(const struct golden *g, const char *what, struct str got, struct str want)
{
    fprintf(stderr, "%s %s: %s: %s\n  in:   %s\n  got:  " STR_FMT "\n  want: " STR_FMT "\n",
        g->tool, g->thinking, g->name, what, g->text, STR_ARG(got), STR_ARG(want));
    failures++;
}

static bool same_json(struct str a, struct str b)
{
    struct arena *arena = arena_new(16 * MB);
    struct json *x, *y;
    struct err e;

    bool same = arena && !json_parse(&x, a, arena, NULL, &e) &&
                !json_parse(&y, b, arena, NULL, &e) && json_equal(x, y);
    arena_free(arena);
    return same;
}

static void expect_calls(const struct golden *g, const struct parsed *r)
{
    char count[64];

    if (r->n_calls != g->n_calls) {
        snprintf(count, sizeof(count), "%d instead of %d", r->n_calls, g->n_calls);
        report(g, "number of calls", buf_str(&r->content), str_of(count));
        return;
    }
    for (int i = 0; i < r->n_calls; i++) {
        struct str want = str_of(g->calls[i]);
        ptrdiff_t gap = str_find(want, STR(" "));
        struct str name = { want.p, (size_t)gap }, args = str_skip(want, (size_t)gap + 1);
        if (!str_eq(r->calls[i].name, name))
            report(g, "name", r->calls[i].name, name);
        if (!same_json(r->calls[i].arguments, args))
            report(g, "arguments", r->calls[i].arguments, args);
    }
}

static void expect_golden(const struct golden *g, const struct parser_log *t)
{
    char count[64];

    if (!str_is(buf_str(&t->whole.content), g->content))
        report(g, "content", buf_str(&t->whole.content), str_of(g->content));
    if (!str_is(buf_str(&t->whole.reasoning), g->reasoning))
        report(g, "reasoning", buf_str(&t->whole.reasoning), str_of(g->reasoning));
    expect_calls(g, &t->whole);
    snprintf(count, sizeof(count), "%d", g->n_broken);
    if (t->n_broken != g->n_broken)
        report(g, "broken", buf_str(&t->log), str_of(count));
}

static void expect_cut(const struct golden *g, const struct parser_format *f,
    const struct parser_options *o, const struct parser_log *whole, const size_t *cuts, size_t n)
{
    struct parser_log t;

    parser_log_run(&t, f, o, (struct str){ g->text, g->n_text }, cuts, n);
    if (!str_eq(buf_str(&t.log), buf_str(&whole->log))) {
        fprintf(stderr, "cut in %zu pieces, first at %zu:\n", n + 1, n ? cuts[0] : 0);
        report(g, "depends on the cut", buf_str(&t.log), buf_str(&whole->log));
    }
    parser_log_clear(&t);
}

static void run_golden(const struct golden *g, const struct json *tools, uint64_t *seed)
{
    struct parser_options o = { g->has_tools ? tools : NULL, g->start };
    size_t cuts[LINE_MAX_BYTES];
    struct parser_format *f = NULL;
    struct parser_log whole;
    struct err e;

    EXPECT(!parser_format_new(&f, str_of(g->tool), str_of(g->thinking), &e));
    parser_log_run(&whole, f, &o, (struct str){ g->text, g->n_text }, NULL, 0);
    expect_golden(g, &whole);
    parser_log_check(&whole);
    for (size_t i = 0; i <= g->n_text && !failures; i++)
        expect_cut(g, f, &o, &whole, &i, 1);
    for (size_t i = 0; i < g->n_text; i++)
        cuts[i] = i;
    expect_cut(g, f, &o, &whole, cuts, g->n_text);
    for (int round = 0; round < GROUPINGS && !failures; round++) {
        size_t n = 0;
        uint64_t every = 1 + kit_random(seed) % 16;
        for (size_t i = 1; i < g->n_text; i++)
            if (kit_random(seed) % every == 0)
                cuts[n++] = i;
        expect_cut(g, f, &o, &whole, cuts, n);
    }
    parser_log_clear(&whole);
    parser_format_free(f);
}

static size_t unescape(char *to, const char *from)
{
    size_t n = 0;

    for (; *from && *from != '\n'; from++) {
        if (*from == '\\')
            to[n++] = *++from == 'n' ? '\n' : *from;
        else
            to[n++] = *from;
    }
    to[n] = '\0';
    return n;
}

static void read_line(struct golden *g, const char *line)
{
    if (!strncmp(line, "start ", 6))
        g->start = line[6] == 't' ? PARSER_START_REASONING : PARSER_START_CONTENT;
    else if (!strncmp(line, "tools ", 6))
        g->has_tools = false;
    else if (!strncmp(line, "in: ", 4))
        g->n_text = unescape(g->text, line + 4);
    else if (!strncmp(line, "content: ", 9))
        unescape(g->content, line + 9);
    else if (!strncmp(line, "reasoning: ", 11))
        unescape(g->reasoning, line + 11);
    else if (!strncmp(line, "broken: ", 8))
        g->n_broken = line[8] - '0';
    else if (!strncmp(line, "call: ", 6) && g->n_calls < CALLS_MAX)
        snprintf(
            g->calls[g->n_calls++], LINE_MAX_BYTES, "%.*s", (int)strcspn(line + 6, "\n"), line + 6);
    else
        EXPECT(line[0] == '#' || line[0] == '\n');
}

static FILE *open_golden(void)
{
    FILE *in = fopen("tests/golden/parser.txt", "r");
    EXPECT(in != NULL);
    return in;
}

static bool begin_case(struct golden *g, const char *line)
{
    if (strncmp(line, "case ", 5))
        return false;
    memset(g, 0, sizeof(*g));
    g->has_tools = true;
    EXPECT_EQ(sscanf(line, "case %31s %31[^:]: %79[^\n]", g->tool, g->thinking, g->name), 3);
    return true;
}

static void every_case_parses_as_expected_for_all_cuts(void)
{
    static struct golden g;
    struct arena *a = arena_new(MB);
    char line[LINE_MAX_BYTES];
    struct json *tools = NULL;
    uint64_t seed = SEED;
    struct err e;
    int n = 0, bad = 0;
    bool is_open = false;
    FILE *in = open_golden();

    EXPECT(a && !json_parse(&tools, STR(KIT_TOOLS), a, NULL, &e));
    while (fgets(line, sizeof(line), in)) {
        if (is_open && line[0] == '\n') {
            failures = 0;
            run_golden(&g, tools, &seed);
            n++;
            bad += failures > 0;
            is_open = false;
        } else if (!is_open && begin_case(&g, line)) {
            is_open = true;
        } else {
            read_line(&g, line);
        }
    }
    fclose(in);
    arena_free(a);
    printf("%d cases, seed %d\n", n, SEED);
    EXPECT(n > 600);
    EXPECT_EQ(bad, 0);
}

static void every_format_has_at_least_eight_cases(void)
{
    static struct golden g;
    char line[LINE_MAX_BYTES];
    int tools[64] = { 0 }, thinkings[64] = { 0 };
    FILE *in = open_golden();

    while (fgets(line, sizeof(line), in)) {
        if (!begin_case(&g, line))
            continue;
        for (int i = 0; parser_tool_id((size_t)i); i++)
            tools[i] += !strcmp(parser_tool_id((size_t)i), g.tool);
        for (int i = 0; parser_reasoning_id((size_t)i); i++)
            thinkings[i] += !strcmp(parser_reasoning_id((size_t)i), g.thinking);
    }
    fclose(in);
    for (int i = 0; parser_tool_id((size_t)i); i++)
        EXPECT(tools[i] >= 8);
    for (int i = 0; parser_reasoning_id((size_t)i); i++)
        EXPECT(thinkings[i] >= 8);
}

TESTS(TEST(every_case_parses_as_expected_for_all_cuts), TEST(every_format_has_at_least_eight_cases))
