/* pool/parts.c: what is said, told as text, thoughts and calls; where a choice is full. */
#include "generate/parts.h"
#include "../text_kit.h"

static struct buf told; /* "t:text|r:thought|<name|a:{}|>|!|" */

static void put(const char *kind, struct str s)
{
    buf_putz(&told, kind);
    buf_puts(&told, s);
    buf_putc(&told, '|');
}

static void on_text(void *ctx, int choice, struct str text)
{
    EXPECT_EQ(choice, 3);
    put("t:", text);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    put("r:", text);
}

static void on_begin(void *ctx, int choice, int call, struct str name)
{
    put("<", name);
}

static void on_args(void *ctx, int choice, int call, struct str json)
{
    put("a:", json);
}

static void on_end(void *ctx, int choice, int call)
{
    put(">", STR(""));
}

static void on_broken(void *ctx, int choice, int call)
{
    put("!", STR(""));
}

static const struct parts_ops all = { on_text, on_reasoning, on_begin, on_args, on_end, on_broken };
static const struct parts_ops words = { .text = on_text };

static struct reading open_reading(void)
{
    struct parser_format *f;
    struct kit_vocab k = { 0 };
    struct vocab *v;
    struct reading r;
    struct err e;

    kit_bytes(&k, true);
    EXPECT_EQ(kit_make(&v, &k, "gpt2", gguf_writer_new(32), &e), 0);
    EXPECT_EQ(parser_format_new(&f, STR("hermes_json"), STR("think_tag"), &e), 0);
    EXPECT_EQ(reading_open(&r, f, READ_CALLS | READ_THOUGHTS, v, &e), 0);
    parser_format_free(f);
    vocab_close(v);
    return r;
}

/* Pieces, each of one token; ends when the choice is full. */
static struct parts say(
    const struct parts_params *p, const struct parts_ops *ops, const char *const *pieces)
{
    struct parts t;
    struct err e;

    buf_clear(&told);
    buf_init(&told, MB);
    EXPECT_EQ(parts_init(&t, p, 3, ops, NULL, &e), 0);
    for (; *pieces && !t.is_full; pieces++) {
        parts_token(&t);
        EXPECT_EQ(parts_put(&t, str_of(*pieces), &e), 0);
    }
    if (!t.is_full)
        EXPECT_EQ(parts_end(&t, &e), 0);
    parts_clear(&t);
    return t;
}

static void told_is(const char *want)
{
    buf_putc(&told, '\0');
    EXPECT_STR(told.p, want);
    buf_clear(&told);
}

#define CALL(name) "<tool_call>{\"name\": \"" name "\", \"arguments\": {}}</tool_call>"

static void without_a_reading_all_is_text(void)
{
    static const struct reading nothing;
    struct parts_params none = { 0 }, empty = { .reading = &nothing };
    static const char *const said[] = { "<think>a</think>", CALL("f"), "", NULL };

    say(&none, &all, said);
    told_is("t:<think>a</think>|t:" CALL("f") "|");
    say(&empty, &all, said);
    told_is("t:<think>a</think>|t:" CALL("f") "|");
}

static void parts_are_told_apart_and_counted(void)
{
    struct reading r = open_reading();
    struct parts_params p = { .reading = &r };
    static const char *const said[] = { "<think>", "a", "b", "</think>", "c", CALL("f"), CALL("g"),
        NULL };

    struct parts t = say(&p, &all, said);
    told_is("r:a|r:b|t:c|<f|a:{}|>|<g|a:{}|>|");
    EXPECT_EQ(t.n_reasoning, 4);
    EXPECT_EQ(t.n_calls, 2);
    say(&p, &words, said); /* who does not ask is not told */
    told_is("t:c|");
    reading_close(&r);
}

static void the_opening_is_read_and_not_counted(void)
{
    struct reading r = open_reading();
    struct parts_params p = { .reading = &r,
        .opening = STR("\n</think>\n\n<tool_call>{\"name\": \"f\", \"arguments\": "),
        .parse = { .start = PARSER_START_THINKING } };
    static const char *const said[] = { "{\"a\":", "1}}", NULL }, *const nothing[] = { NULL };

    struct parts t = say(&p, &all, said);
    told_is("<f|a:{\"a\":|a:1}|>|");
    EXPECT_EQ(t.n_reasoning, 0);
    t = say(&p, &all, nothing); /* it never came to its arguments */
    told_is("t:{\"name\": \"f\", \"arguments\": |");
    EXPECT_EQ(t.n_calls, 0);
    reading_close(&r);
}

static void a_full_choice_tells_nothing_more(void)
{
    struct reading r = open_reading();
    struct parts_params p = { .reading = &r, .max_calls = 1 };
    static const char *const said[] = { "a" CALL("f") "b" CALL("g"), "c", NULL };

    struct parts t = say(&p, &all, said);
    told_is("t:a|<f|a:{}|>|");
    EXPECT(t.is_full && t.n_calls == 1);
    reading_close(&r);
}

static void a_call_of_another_name_is_text(void)
{
    static const struct str names[] = { { "f", 1 }, { "g", 1 } };
    struct reading r = open_reading();
    struct parts_params p = { .reading = &r, .parse = { .names = names, .n_names = 2 } };
    static const char text[] = CALL("f") CALL("x") CALL("g");

    for (size_t cut = 0; cut < sizeof(text); cut++) {
        char front[sizeof(text)];
        memcpy(front, text, cut);
        front[cut] = '\0';
        const char *const said[] = { front, text + cut, NULL };
        struct parts t = say(&p, &all, said);
        EXPECT_EQ(t.n_calls, 2);
        EXPECT(str_find(buf_str(&told), STR("<x|")) < 0);
        EXPECT(str_find(buf_str(&told), STR("<g|")) > 0);
    }
    buf_clear(&told);
    reading_close(&r);
}

TESTS(TEST(without_a_reading_all_is_text), TEST(parts_are_told_apart_and_counted),
    TEST(the_opening_is_read_and_not_counted), TEST(a_full_choice_tells_nothing_more),
    TEST(a_call_of_another_name_is_text))
