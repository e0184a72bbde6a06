/* Fuzzes the output parser with any pair of formats: cuts do not change the result, no marker
 * reaches the content, arguments are JSON, and the work is linear.
 *
 * The first four bytes select the tool format, the reasoning format, the start state and the
 * cuts. */
#define KIT_FUZZ
#include "support/parser_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CUTS_MAX = 65536 };

static size_t count_marker(const char *(*at)(size_t))
{
    size_t n = 0;

    while (at(n))
        n++;
    return n;
}

static void expect_same(const struct parser_format *f, const struct parser_options *o,
    struct str text, const size_t *cuts, size_t n, const struct parser_log *whole)
{
    struct parser_log t;

    parser_log_run(&t, f, o, text, cuts, n);
    CHECK(str_eq(buf_str(&t.log), buf_str(&whole->log)));
    CHECK(str_eq(buf_str(&t.whole.content), buf_str(&whole->whole.content)));
    parser_log_clear(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t cuts[CUTS_MAX];
    struct parser_format *f = NULL;
    struct json *tools = NULL;
    struct parser_log whole;
    struct err e;

    if (size < 4 || size > CUTS_MAX)
        return 0;
    size_t tool = data[0] % count_marker(parser_tool_id),
           thinking = data[1] % count_marker(parser_reasoning_id);
    struct str text = { (const char *)data + 4, size - 4 };
    struct arena *a = arena_new(MB);
    uint64_t x = data[3];

    CHECK(a && !json_parse(&tools, STR(KIT_TOOLS), a, NULL, &e));
    struct parser_options o = { data[2] & 4 ? tools : NULL, (enum parser_start)(data[2] % 3) };
    CHECK(!parser_format_new(
        &f, str_of(parser_tool_id(tool)), str_of(parser_reasoning_id(thinking)), &e));
    parser_log_run(&whole, f, &o, text, NULL, 0);
    parser_log_check(&whole);
    for (size_t i = 0; i < text.n; i++)
        cuts[i] = i;
    expect_same(f, &o, text, cuts, text.n, &whole);
    for (int round = 0; round < 4; round++) {
        size_t n = 0;
        for (size_t i = 0; i < text.n; i++)
            if (kit_random(&x) % (uint64_t)(2 << round) == 0)
                cuts[n++] = i;
        expect_same(f, &o, text, cuts, n, &whole);
    }
    parser_log_clear(&whole);
    parser_format_free(f);
    arena_free(a);
    return 0;
}
