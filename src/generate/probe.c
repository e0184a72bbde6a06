#include "generate/probe.h"

#include "base/log.h"
#include "base/mem.h"
#include "chat/reasoning_markers.h"
#include "os/clock.h"
#include "os/mailbox.h"
#include "registry/model_capabilities.h"
#include "generate/prompt.h"

#include <stdio.h>

enum { DEFAULT_MAX_TOKENS = 512, POLL_MS = 100, ANSWER_MAX = 1 << 20 };

#define FUNCTION "get_weather"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"" FUNCTION "\","
    "\"description\":\"Tells the weather of a place.\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"location\":{\"type\":\"string\",\"description\":\"Name of the place.\"}},"
    "\"required\":[\"location\"]}}}]";

struct probe {
    struct model *m;
    const struct probe_options *o;
    struct mailbox *box;
    struct err *e;
    /* The current generation: */
    struct buf text;
    enum finish finish;
    bool is_over;
    struct err why; /* error of that generation */
};

/* ---- one generation */

static void on_content(void *ctx, int choice, struct str text)
{
    struct probe *p = ctx;

    buf_puts(&p->text, text);
}

static void on_choice_end(void *ctx, const struct choice_end *c)
{
    struct probe *p = ctx;

    p->finish = c->finish;
}

static void on_end(void *ctx, const struct session_end *s)
{
    struct probe *p = ctx;

    p->is_over = true;
    p->why = *s->err;
}

static const struct session_ops ops = { .choice_end = on_choice_end, .end = on_end };
static const struct output_ops output_ops = { .content = on_content };

static int wait_for_end(struct probe *p, struct session *s)
{
    bool is_cancelled = false;
    struct msg *next;

    while (!p->is_over) {
        mailbox_wait(p->box, clock_ns() + POLL_MS * 1000000ull);
        if (p->o->stop && *p->o->stop && !is_cancelled) {
            session_cancel(s);
            is_cancelled = true;
        }
        for (struct msg *m = mailbox_drain(p->box); m; m = next) {
            next = m->next;
            session_event(container_of(m, struct gen_event, msg));
        }
    }
    if (is_cancelled)
        return err_set(p->e, ERR_CANCELLED, "the probe was stopped");
    if (p->why.code) {
        *p->e = p->why;
        return -1;
    }
    return buf_ok(&p->text) ? 0 : err_set(p->e, ERR_MEMORY, "no memory for a response");
}

static int script_of(struct probe *p, enum probe_step step, const struct rendered *prompt,
    struct arena *a, struct gen_script *out)
{
    struct span span = { p->o->script ? p->o->script(p->o->ctx, step, prompt) : STR(""), false };
    struct tokens t = { .arena = a };

    if (span.text.n && vocab_encode(p->m->vocab, &span, 1, false, &t, p->e))
        return -1;
    *out = (struct gen_script){ .tokens = t.ids, .n_tokens = (int)t.n };
    return 0;
}

/* Generates the response to a rendered conversation. Afterwards p->text contains it, with
 * markers. */
static int generate(
    struct probe *p, enum probe_step step, const struct rendered *prompt, struct arena *a)
{
    struct tokens t = { .arena = a };
    struct gen_script script;
    struct session *s;
    int max = p->o->max_tokens ? p->o->max_tokens : DEFAULT_MAX_TOKENS;

    if (prompt_encode_chat(&t, prompt, true, p->m, p->e) || script_of(p, step, prompt, a, &script))
        return -1;
    if ((int64_t)t.n + 16 > p->m->n_ctx)
        return err_set(
            p->e, ERR_CONTEXT, "the context of %d tokens is too short for the probe", p->m->n_ctx);
    struct session_params params = {
        .gen = { .prompt = t.ids,
            .n_prompt = (int)t.n,
            .max_tokens = MIN(max, p->m->n_ctx - (int)t.n),
            .n_choices = 1,
            .sample = { .top_p = 1 },
            .cache_prompt = true,
            .name = "probe",
            .deadline_ns = UINT64_MAX,
            .script = p->m->spec->backend == BACKEND_SCRIPT ? &script : NULL },
    };
    struct session_ctx at = { p->m, a, p->box, &ops, p, &output_ops, p };
    buf_reset(&p->text);
    p->is_over = false;
    return session_open(&s, &params, &at, p->e) || wait_for_end(p, s) ? -1 : 0;
}

/* ---- test prompts */

struct test_prompt {
    struct content_part part;
    struct message message;
    struct convo convo;
    struct rendered prompt;
    struct arena *a;
};

static int set_thinking(struct test_prompt *q, bool thinks, struct err *e)
{
    struct json *kwargs;
    const char *text = thinks ? "{\"enable_thinking\":true}" : "{\"enable_thinking\":false}";

    if (json_parse(&kwargs, str_of(text), q->a, NULL, e))
        return -1;
    q->convo.template_kwargs = kwargs;
    return 0;
}

static int test_prompt_new(struct test_prompt *q, const char *text, bool has_tools, struct err *e)
{
    struct json *tools = NULL;

    *q = (struct test_prompt){ .a = arena_new(64 * MB) };
    if (!q->a)
        return err_set(e, ERR_MEMORY, "no memory for a probe prompt");
    q->part = (struct content_part){ .kind = PART_TEXT, .text = str_of(text) };
    q->message = (struct message){
        .role = ROLE_USER, .has_content = true, .is_plain = true, .parts = &q->part, .n_parts = 1
    };
    if (has_tools && json_parse(&tools, str_of(tools_text), q->a, NULL, e))
        return -1;
    q->convo = (struct convo){
        .messages = &q->message, .n_messages = 1, .tools = tools, .add_generation_prompt = true
    };
    return set_thinking(q, !has_tools, e);
}

static int generate_test(
    struct probe *p, struct test_prompt *q, const struct adapter *adapter, enum probe_step step)
{
    struct render_options when = { .now = clock_wall_s() };

    return adapter_render(adapter, &q->convo, &when, q->a, &q->prompt, p->e) ||
                   generate(p, step, &q->prompt, q->a)
               ? -1
               : 0;
}

/* ---- tools */

static int reads_call(struct probe *p, const struct test_prompt *q, const char *tool, bool *out)
{
    const char *thinking = adapter_info(p->m->adapter)->thinking_parser;
    struct parser_format *f = NULL;
    struct parsed r;

    struct parser_options o = { .tools = q->convo.tools,
        .start = adapter_start_for_format(
            reasoning_format_find(str_of(thinking)), &q->convo, &q->prompt) };
    if (parser_format_new(&f, str_of(tool), str_of(thinking), p->e))
        return -1;
    int rc = parse_text(&r, f, &o, buf_str(&p->text), p->e);
    *out = !rc && r.n_calls > 0 && str_is(r.calls[0].name, FUNCTION);
    parsed_clear(&r);
    parser_format_free(f);
    return rc;
}

/* *id: the parser that reads a tool call, or NULL. */
static int find_tool_parser(
    struct probe *p, const struct test_prompt *q, const char *default_id, const char **id)
{
    bool reads = false;

    *id = NULL;
    if (reads_call(p, q, default_id, &reads))
        return -1;
    if (reads)
        *id = default_id;
    for (size_t i = 0; !*id && parser_tool_id(i); i++) {
        if (reads_call(p, q, parser_tool_id(i), &reads))
            return -1;
        if (reads)
            *id = parser_tool_id(i);
    }
    return 0;
}

static int test_tool_call(
    struct probe *p, const struct adapter *adapter, enum probe_step step, const char **id)
{
    struct test_prompt q;
    int rc = test_prompt_new(&q, "What is the weather in Paris right now?", true, p->e) ||
             generate_test(p, &q, adapter, step) ||
             find_tool_parser(p, &q, adapter_info(adapter)->tool_parser, id);

    arena_free(q.a);
    return rc ? -1 : 0;
}

/* Opens an adapter of the same model that puts the tools into the system message. */
static int open_injecting_adapter(struct adapter **out, const struct model *m, struct err *e)
{
    struct model_capabilities capabilities = { .tool_parser_id = "hermes_json",
        .tool_format = "injection" };
    const struct adapter_info *info = adapter_info(m->adapter);

    snprintf(capabilities.thinking_parser_id, sizeof(capabilities.thinking_parser_id), "%s",
        info->thinking_parser);
    struct adapter_options o = { .arch = str_of(m->arch),
        .family = str_of(m->spec->family),
        .template = m->template,
        .env = &m->env,
        .vocab = m->vocab,
        .known = &capabilities };
    return adapter_open(out, &o, e);
}

static int probe_tools(struct probe *p, struct model_capabilities *out)
{
    const struct adapter_info *info = adapter_info(p->m->adapter);
    struct adapter *injecting = NULL;
    const char *id = NULL;
    bool is_native = info->has_native_tools && !info->injects_tools;

    if (is_native && test_tool_call(p, p->m->adapter, PROBE_NATIVE, &id))
        return -1;
    const char *format = id ? "native" : "injection";
    if (!id && !p->m->spec->no_injection) {
        if (open_injecting_adapter(&injecting, p->m, p->e))
            return -1;
        int rc =
            test_tool_call(p, info->injects_tools ? p->m->adapter : injecting, PROBE_INJECTED, &id);
        adapter_close(injecting);
        if (rc)
            return -1;
    }
    out->supports_native_tools = id && !strcmp(format, "native");
    snprintf(out->tool_parser_id, sizeof(out->tool_parser_id), "%s", id ? id : "null");
    snprintf(out->tool_format, sizeof(out->tool_format), "%s", id ? format : "");
    return 0;
}

/* ---- reasoning */

/* *out: the parser finds reasoning, and content after it unless the generation ended at its
 * limit. */
static int reads_reasoning(struct probe *p, const struct test_prompt *q, const char *id, bool *out)
{
    struct parser_format *f = NULL;
    struct parsed r;

    struct parser_options o = { .start = adapter_start_for_format(
                                    reasoning_format_find(str_of(id)), &q->convo, &q->prompt) };
    if (parser_format_new(&f, STR("null"), str_of(id), p->e))
        return -1;
    int rc = parse_text(&r, f, &o, buf_str(&p->text), p->e);
    *out = !rc && r.reasoning.n && (r.content.n || p->finish == FINISH_LENGTH);
    parsed_clear(&r);
    parser_format_free(f);
    return rc;
}

static int find_thinking_parser(
    struct probe *p, const struct test_prompt *q, const char *default_id, const char **id)
{
    bool reads = false;

    *id = NULL;
    if (reads_reasoning(p, q, default_id, &reads))
        return -1;
    if (reads)
        *id = default_id;
    for (size_t i = 0; !*id && parser_reasoning_id(i); i++) {
        bool starts_inside = reasoning_format_at(i)->flags & REASONING_STARTS;
        if (reads_reasoning(p, q, parser_reasoning_id(i), &reads))
            return -1;
        /* A parser that takes the start of any text as reasoning proves nothing. */
        if (reads && !starts_inside)
            *id = parser_reasoning_id(i);
    }
    return 0;
}

/* If the template itself contains reasoning, the model supports it even if this response had
 * none. */
static int probe_thinking(struct probe *p, struct model_capabilities *out)
{
    const struct adapter_info *info = adapter_info(p->m->adapter);
    const char *default_id = info->thinking_parser, *id = NULL;
    struct test_prompt q;
    int rc = test_prompt_new(&q, "How many days are there in two weeks?", false, p->e) ||
             generate_test(p, &q, p->m->adapter, PROBE_THINKING) ||
             find_thinking_parser(p, &q, default_id, &id);

    arena_free(q.a);
    if (rc)
        return -1;
    out->supports_thinking = id != NULL;
    snprintf(out->thinking_parser_id, sizeof(out->thinking_parser_id), "%s",
        id                 ? id
        : info->can_reason ? default_id
                           : "null");
    return 0;
}

/* ---- other properties */

static const char *type_of(const struct model *m)
{
    static const char *const rows[][2] = {
        { "bert", "EMBEDDINGS" },
        { "nomic-bert", "EMBEDDINGS" },
        { "jina-bert-v2", "EMBEDDINGS" },
        { "gemma-embedding", "EMBEDDINGS" },
        { "qwen2vl", "VISION" },
        { "qwen3vl", "VISION" },
        { "qwen3vlmoe", "VISION" },
        { "mllama", "VISION" },
        { "whisper", "AUDIO" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!strcmp(rows[i][0], m->arch))
            return rows[i][1];
    return "TEXT_GEN";
}

static void set_properties(const struct model *m, struct model_capabilities *out)
{
    *out = (struct model_capabilities){ .is_normalized = UNKNOWN,
        .practical_max_tokens = m->n_ctx,
        .max_sequence_length = m->lm->n_ctx_train,
        .probed_at = clock_wall_s(),
        .probe_version = PROBE_VERSION };
    snprintf(out->model_id, sizeof(out->model_id), "%s", m->spec->id);
    snprintf(out->model_type, sizeof(out->model_type), "%s", type_of(m));
    snprintf(out->model_family, sizeof(out->model_family), "%s", adapter_info(m->adapter)->family);
    model_fingerprint(m, out->fingerprint);
}

int model_probe(
    struct model_capabilities *out, struct model *m, const struct probe_options *o, struct err *e)
{
    struct probe p = { .m = m, .o = o, .e = e };
    uint64_t began = clock_ns();

    if (mailbox_open(&p.box, e))
        return -1;
    buf_init(&p.text, ANSWER_MAX);
    set_properties(m, out);
    int rc = probe_tools(&p, out) || probe_thinking(&p, out);
    buf_clear(&p.text);
    mailbox_close(p.box);
    if (rc)
        return -1;
    log_info("generate", "probed",
        "model=%s type=%s family=%s tool_parser=%s tool_format=%s thinking_parser=%s ctx=%lld "
        "ms=%d",
        out->model_id, out->model_type, out->model_family, out->tool_parser_id,
        *out->tool_format ? out->tool_format : "none", out->thinking_parser_id,
        (long long)out->practical_max_tokens, (int)((clock_ns() - began) / NS_PER_MS));
    return 0;
}

int model_probe_default(
    struct model_capabilities *out, struct model *m, const _Atomic bool *stop, struct err *e)
{
    return model_probe(out, m, &(struct probe_options){ .stop = stop }, e);
}
