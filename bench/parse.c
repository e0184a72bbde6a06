/* parse: benchmark of the output parser (reasoning and tool calls) for every tool-call format.
 *
 *     build/bench/parse
 *
 * Three texts of 1 MiB: plain text without markers, many small tool calls, and one tool call with a
 * long argument. Each is parsed as a whole and in pieces of four bytes. Prints the median CPU time
 * in milliseconds. */
#include "base/mem.h"
#include "output/forced_call.h"
#include "output/format_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, TEXT = 1024 * 1024 };

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static size_t n_output_bytes;

static void on_text(void *ctx, int choice, struct str text)
{
    n_output_bytes += text.n;
}

static void on_begin(void *ctx, int choice, int call, struct str name)
{
    n_output_bytes += name.n;
}

static void on_args(void *ctx, int choice, int call, struct str json)
{
    n_output_bytes += json.n;
}

static void on_call(void *ctx, int choice, int call)
{
    n_output_bytes++;
}

static const struct output_ops ops = { on_text, on_text, on_begin, on_args, on_call, on_call };

static double parse_ms(const struct parser_format *f, struct str text, size_t piece)
{
    struct err e;
    double began = now_ms();
    struct parser *p = parser_new(f, NULL, &ops, NULL);

    CHECK(p);
    while (text.n) {
        size_t n = MIN(piece, text.n);
        CHECK(!parser_put(p, (struct str){ text.p, n }, &e));
        text = str_skip(text, n);
    }
    CHECK(!parser_end(p, &e));
    parser_free(p);
    return now_ms() - began;
}

static double median_ms(const struct parser_format *f, struct str text, size_t piece)
{
    double ms[ROUNDS];

    for (int i = 0; i < ROUNDS; i++)
        ms[i] = parse_ms(f, text, piece);
    qsort(ms, ROUNDS, sizeof(*ms), compare_doubles);
    return ms[ROUNDS / 2];
}

static void fill_repeated(struct buf *b, const char *phrase)
{
    buf_init(b, 2 * TEXT);
    while (b->n < TEXT)
        buf_putz(b, phrase);
}

/* One tool call with an argument of TEXT bytes, in JSON. */
static void fill_long_call(struct buf *b, struct str opening)
{
    buf_init(b, 2 * TEXT);
    buf_puts(b, opening);
    buf_putz(b, "{\"a\": \"");
    while (b->n < TEXT)
        buf_putz(b, "a long argument, \\\"quoted\\\" and \xC3\xA9 ");
    buf_putz(b, "\"}}");
}

int main(void)
{
    struct buf plain, many, long_call;
    double worst = 0;

    fill_repeated(
        &plain, "Some words, as a model writes them; a < b and { c }. \xC3\xA9t\xC3\xA9\n");
    printf("%-16s %8s %8s %8s %8s %8s %8s   ms for 1 MiB\n", "format", "text", "by 4", "calls",
        "by 4", "long", "by 4");
    for (size_t i = 0; tool_format_at(i); i++) {
        const char *id = tool_format_at(i)->id;
        struct parser_format *f;
        struct forced_call o = { .text = STR("") };
        struct arena *a = arena_new(MB);
        struct err e;
        CHECK(a && !parser_format_new(&f, str_of(id), STR("think_tag"), &e));
        if (tool_format_at(i)->before_name)
            CHECK(!forced_call_build(
                &o, f, &(struct forced_call_options){ .name = STR("f") }, a, &e));
        fill_long_call(&long_call, o.text);
        struct buf call;
        buf_init(&call, MB);
        buf_puts(&call, o.text);
        buf_putz(&call, "{\"a\": 1}}\n</tool_call>\n");
        buf_putc(&call, 0);
        fill_repeated(&many, call.p);
        const struct buf *texts[] = { &plain, &many, &long_call };
        printf("%-16s", id);
        for (size_t k = 0; k < ARRAY_LEN(texts); k++) {
            double whole = median_ms(f, buf_str(texts[k]), SIZE_MAX);
            double split = median_ms(f, buf_str(texts[k]), 4);
            worst = MAX(worst, MAX(whole, split));
            printf(" %8.2f %8.2f", whole, split);
        }
        printf("\n");
        buf_clear(&call);
        buf_clear(&many);
        buf_clear(&long_call);
        arena_free(a);
        parser_format_free(f);
    }
    printf("worst %.2f ms\n", worst);
    buf_clear(&plain);
    return n_output_bytes == 0;
}
