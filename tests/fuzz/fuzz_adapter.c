/* Fuzzes a model's chat template: probing it stays within the limits, prompts are rendered from
 * a conversation with all features, and client text is never trusted. */
#include "support/convo_json.h"
#include "base/mem.h"
#include "chat/adapter.h"

#define WORD "q7#Vx(9!Kz@2pL"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char request[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"" WORD "\"},"
    "{\"role\":\"developer\",\"content\":\"" WORD "\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" WORD "\"}]},"
    "{\"role\":\"user\",\"content\":\"" WORD "\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"abcdefghi\",\"function\":"
    "{\"name\":\"" WORD "\",\"arguments\":\"{\\\"a\\\": [1, true, null, \\\"" WORD "\\\"]}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"content\":\"" WORD "\"},"
    "{\"role\":\"system\",\"content\":\"" WORD "\"},{\"role\":\"user\",\"content\":\"" WORD "\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" WORD "\",\"description\":\"" WORD
    "\"}}],\"add_generation_prompt\":true,\"chat_template_kwargs\":{\"enable_thinking\":false}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str source = { (const char *)data, size };
    struct template_env env = { .bos_token = STR("<s>"), .eos_token = STR("</s>") };
    struct render_options when = { .now = 1 };
    struct chat_template *t = NULL;
    struct adapter *adapter = NULL;
    struct arena *a = arena_new(256 * MB);
    struct rendered r;
    struct json *j;
    struct convo c;
    struct err e;

    /* A template that contains the marker itself may output it as trusted text. */
    bool knows_word = str_find(source, STR("V")) >= 0 && str_find(source, STR("K")) >= 0;
    CHECK(a && !json_parse(&j, str_of(request), a, &json_limits_default, &e) && cj_convo(j, &c, a));
    if (!chat_template_compile(&t, source, &e)) {
        struct adapter_options o = { .arch = STR("llama"), .template = t, .env = &env };
        CHECK(!adapter_open(&adapter, &o, &e));
        const struct adapter_info *info = adapter_info(adapter);
        CHECK(info->family && info->tool_parser && info->thinking_parser);
        if (!adapter_render(adapter, &c, &when, a, &r, &e)) {
            for (size_t i = 0; i < r.n_spans; i++)
                CHECK(knows_word || !r.spans[i].is_trusted ||
                      str_find(r.spans[i].text, STR(WORD)) < 0);
            (void)adapter_start(adapter, &c, &r);
        } else {
            CHECK(e.code == ERR_INVALID || e.code == ERR_TOO_LARGE || e.code == ERR_UNSUPPORTED);
        }
        adapter_close(adapter);
        chat_template_free(t);
    }
    arena_free(a);
    return 0;
}
