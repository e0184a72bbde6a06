/* template: benchmark of compiling chat templates and rendering a conversation.
 *
 *     build/bench/template [FILE.jinja...]      without files: the built-in chatml template
 *
 * Prints the compile time and the p50 and p99 of the render time, in microseconds. */
#include "support/convo_json.h"
#include "base/mem.h"
#include "chat/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 2000, TEMPLATE_MAX = 1 << 20 };

static const char request[] =
    "{\"add_generation_prompt\": true, \"tools\": [{\"type\": \"function\", \"function\": {"
    "\"name\": \"get_weather\", \"description\": \"Get the weather\", \"parameters\": {"
    "\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"description\":"
    "\"The city\"}}, \"required\": [\"city\"]}}}],"
    "\"messages\": [{\"role\": \"system\", \"content\": \"You are a helpful assistant.\"},"
    "{\"role\": \"user\", \"content\": \"What is the weather in Bern?\"},"
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"abc123def\","
    "\"type\": \"function\", \"function\": {\"name\": \"get_weather\","
    "\"arguments\": \"{\\\"city\\\": \\\"Bern\\\"}\"}}]},"
    "{\"role\": \"tool\", \"tool_call_id\": \"abc123def\", \"content\": \"sunny, 21 degrees\"},"
    "{\"role\": \"assistant\", \"content\": \"It is sunny and 21 degrees.\"},"
    "{\"role\": \"user\", \"content\": \"And what should I wear for a walk?\"},"
    "{\"role\": \"assistant\", \"content\": \"A light jacket will do.\"},"
    "{\"role\": \"user\", \"content\": \"Thanks. Write a poem about the Aare.\"},"
    "{\"role\": \"assistant\", \"content\": \"The Aare is green and cold and fast.\"},"
    "{\"role\": \"user\", \"content\": \"One more line, please.\"}]}";

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure_template(const char *name, struct str source)
{
    static double us[ROUNDS];
    struct template_env env = { .bos_token = STR("<s>"), .eos_token = STR("</s>") };
    struct chat_template *t;
    struct arena *a = arena_new(MB);
    struct json *j;
    struct convo c;
    struct err e;

    CHECK(a && !json_parse(&j, str_of(request), a, &json_limits_default, &e) && cj_convo(j, &c, a));
    double start_us = now_us();
    if (chat_template_compile(&t, source, &e)) {
        printf("%-56s %s\n", name, e.msg);
        return;
    }
    double compile_us = now_us() - start_us;
    size_t bytes = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct arena *out = arena_new(MB);
        struct rendered r;
        start_us = now_us();
        int rc = chat_template_render(t, &c, &env, &template_limits_default, out, &r, &e);
        us[i] = now_us() - start_us;
        bytes = rc ? 0 : r.n_bytes;
        arena_free(out);
    }
    qsort(us, ROUNDS, sizeof(us[0]), compare_doubles);
    printf("%-56.56s compile %7.1f  render p50 %6.1f  p99 %6.1f us  %zu bytes\n", name, compile_us,
        us[ROUNDS / 2], us[ROUNDS * 99 / 100], bytes);
    chat_template_free(t);
    arena_free(a);
}

int main(int argc, char **argv)
{
    static char text[TEMPLATE_MAX];

    if (argc < 2)
        measure_template("chatml", str_of(chat_template_builtin("chatml")));
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        size_t n = f ? fread(text, 1, sizeof(text), f) : 0;
        if (f)
            fclose(f);
        const char *slash = strrchr(argv[i], '/');
        measure_template(slash ? slash + 1 : argv[i], (struct str){ text, n });
    }
    return 0;
}
