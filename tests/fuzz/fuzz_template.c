/* Fuzzes chat templates, rendered over one conversation: rendering stays within its limits, the
 * spans add up, and client text is never trusted. */
#include "support/convo_json.h"
#include "base/mem.h"
#include "chat/template.h"

#define WORD "q7#Vx(9!Kz@2pL"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char request[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"" WORD "\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" WORD " \xC3\xA9\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" WORD "\",\"function\":"
    "{\"name\":\"" WORD "\",\"arguments\":\"{\\\"a\\\": [1, 2.5, null, \\\"" WORD "\\\"]}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"" WORD "\",\"content\":\"" WORD "\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"x\":{\"type\":\"integer\",\"maximum\":18446744073709551615}}}}}],"
    "\"add_generation_prompt\":true,\"chat_template_kwargs\":{\"x\":\"" WORD "\",\"n\":7}}";

static void check_spans(const struct rendered *r, bool knows_word)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_spans; i++) {
        const struct span *s = &r->spans[i];
        CHECK(s->text.n > 0);
        CHECK(!i || s->is_trusted != s[-1].is_trusted);
        CHECK(knows_word || !s->is_trusted || str_find(s->text, STR(WORD)) < 0);
        n += s->text.n;
    }
    CHECK(n == r->n_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct template_limits limits = { 20000, MB, 8 * MB, 200 };
    struct template_env env = { .bos_token = STR("<s>"), .eos_token = STR("</s>") };
    struct chat_template *t = NULL;
    struct arena *a = arena_new(64 * MB);
    struct rendered r;
    struct json *j;
    struct convo c;
    struct err e;

    /* A template that contains the marker itself may output it as trusted text. */
    bool knows_word = str_find((struct str){ (const char *)data, size }, STR("V")) >= 0 &&
                      str_find((struct str){ (const char *)data, size }, STR("K")) >= 0;
    CHECK(a && !json_parse(&j, str_of(request), a, &json_limits_default, &e) && cj_convo(j, &c, a));
    if (!chat_template_compile(&t, (struct str){ (const char *)data, size }, &e)) {
        for (int round = 0; round < 3; round++) {
            env.no_variants = round == 1;
            c.continue_final_message = round == 2;
            if (!chat_template_render(t, &c, &env, &limits, a, &r, &e))
                check_spans(&r, knows_word);
            else
                CHECK(e.code == ERR_INVALID || e.code == ERR_TOO_LARGE);
        }
    } else {
        CHECK(e.code == ERR_SYNTAX || e.code == ERR_TOO_LARGE);
    }
    chat_template_free(t);
    arena_free(a);
    return 0;
}
