#include "api/ollama/ollama.h"
#include "api/openai/openai.h"
#include "api/common/common_fields.h"
#include "api/common/constraint_fields.h"
#include "api/common/tools.h"

#include <stdio.h>

/* ollama_request.c: field tables of the two routes. /api/chat has a conversation. /api/generate has
 * a prompt, which is put into the chat template unless it is `raw`, or has a `suffix`
 * (fill-in-the-middle). Sampling parameters are in the object `options` and have their own
 * defaults. A request without messages or prompt only loads the model. Any thread. */

static int read_keep_alive(struct fields *f, const char *name, const struct json *v);
static int read_num_predict(struct fields *f, const char *name, const struct json *v);
static int read_options(struct fields *f, const char *name, const struct json *v);
static int read_think(struct fields *f, const char *name, const struct json *v);
static int read_tools(struct fields *f, const char *name, const struct json *v);

enum { ON = 1 << REQUEST_CHAT };

/* clang-format off */
#define TO(member)            offsetof(struct request, member)
#define FLAG(name, member)    { name, FIELD_BOOL, ON, .to = TO(member) }
#define FLOAT(name, lo, hi, m) { name, FIELD_FLOAT, ON, { lo, hi }, TO(m) }
#define INT(name, lo, hi, m)  { name, FIELD_INT, ON, { lo, hi }, TO(m) }
#define READ(name, fn)        { name, FIELD_CUSTOM, ON, .read = fn }
#define LATER(name)           { name, FIELD_DEFERRED, ON }
#define REFUSE(name, what)    { name, FIELD_UNSUPPORTED, ON, .text = what }
/* clang-format on */

static const struct field chat_table[] = {
    READ("format", constraint_field_format),
    READ("keep_alive", read_keep_alive),
    FLAG("logprobs", want_logprobs),
    LATER("messages"),
    { "model", FIELD_TEXT, ON, { 0, 1024 }, TO(model) },
    READ("options", read_options),
    READ("script", common_field_script),
    FLAG("stream", stream),
    READ("think", read_think),
    READ("tools", read_tools),
    INT("top_logprobs", 0, TOP_LOGPROBS_MAX, sample.n_top),
    /* default false here: messages are dropped only if the client allows it */
    FLAG("truncate", may_truncate),
    READ("x_constraint", constraint_field_options),
    { "x_timeout", FIELD_DOUBLE, ON, { 0, 86400 }, TO(timeout_s) },
};

static const struct field generate_table[] = {
    REFUSE("context", "use /api/chat with the whole conversation"),
    READ("format", constraint_field_format),
    REFUSE("images", "this model accepts only text"),
    READ("keep_alive", read_keep_alive),
    FLAG("logprobs", want_logprobs),
    { "model", FIELD_TEXT, ON, { 0, 1024 }, TO(model) },
    READ("options", read_options),
    LATER("prompt"),
    LATER("raw"),
    READ("script", common_field_script),
    FLAG("stream", stream),
    LATER("suffix"),
    LATER("system"),
    REFUSE("template", "the template is part of the model"),
    READ("think", read_think),
    INT("top_logprobs", 0, TOP_LOGPROBS_MAX, sample.n_top),
    READ("x_constraint", constraint_field_options),
    { "x_timeout", FIELD_DOUBLE, ON, { 0, 86400 }, TO(timeout_s) },
};

/* Options for memory and threads (num_ctx, num_batch, ...) are ignored: the operator sets them. */
static const struct field option_table[] = {
    FLOAT("frequency_penalty", -2, 2, sample.frequency_penalty),
    FLOAT("min_p", 0, 1, sample.min_p),
    REFUSE("mirostat", "the sampler does not implement it"),
    READ("num_predict", read_num_predict),
    FLOAT("presence_penalty", -2, 2, sample.presence_penalty),
    INT("repeat_last_n", -1, INT32_MAX, sample.repeat_last_n),
    FLOAT("repeat_penalty", 0.001, 100, sample.repeat_penalty),
    READ("seed", common_field_seed),
    READ("stop", common_field_stop),
    FLOAT("temperature", 0, 2, sample.temperature),
    INT("top_k", -1, INT32_MAX, sample.top_k),
    FLOAT("top_p", 0, 1, sample.top_p),
    FLOAT("typical_p", 0, 1, sample.typical_p),
};

/* ---- fields with their own reader */

/* Seconds or "5m". Only checked: the operator sets how long a model stays loaded. */
static int read_keep_alive(struct fields *f, const char *name, const struct json *v)
{
    if (v->kind != JSON_NUMBER && v->kind != JSON_STRING)
        return field_wrong_kind(f, name, "a number of seconds or a duration", v);
    return 0;
}

/* 0 and negative values mean up to the context limit. */
static int read_num_predict(struct fields *f, const char *name, const struct json *v)
{
    const struct range in = { INT32_MIN, INT32_MAX };
    int n;

    if (field_int(f, name, v, in, &n))
        return -1;
    f->request->max_tokens = n > 0 ? n : -1;
    return 0;
}

static int read_options(struct fields *f, const char *name, const struct json *v)
{
    struct fields options = { f->request, f->arena, f->e, option_table, ARRAY_LEN(option_table),
        { NULL } };

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, name, "an object", v);
    return fields_read(&options, v);
}

static int read_think(struct fields *f, const char *name, const struct json *v)
{
    bool is_on = true;

    if (v->kind == JSON_STRING &&
        field_enum(f, name, v, "low|medium|high|max", &f->request->reasoning_effort))
        return -1;
    if (v->kind != JSON_STRING && field_bool(f, name, v, &is_on))
        return -1;
    f->request->thinking = is_on ? THINKING_ON : THINKING_OFF;
    return 0;
}

/* Ollama has no tool choice: the model decides. */
static int read_tools(struct fields *f, const char *name, const struct json *v)
{
    f->request->tool_choice = TOOL_CHOICE_AUTO;
    return tools_read(f, name, v);
}

/* ---- messages */

static int set_text(struct fields *f, struct message *m, struct str text)
{
    m->parts = arena_zalloc(f->arena, 1, sizeof(*m->parts));
    if (!m->parts)
        return field_no_memory(f);
    m->parts[0] = (struct content_part){ .kind = PART_TEXT, .text = text };
    m->n_parts = 1;
    m->has_content = true;
    m->is_plain = true;
    return 0;
}

static int read_message(
    struct fields *f, const struct path *where, const struct json *v, struct message *m)
{
    const struct json *images = json_get(v, "images");
    struct str text = STR_NONE;

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    /* Set only while the message is read: templates see the members that all dialects have. */
    m->raw = v;
    if (path_need_role(f, where, "system, user, assistant, tool", m) ||
        path_take_text(f, AT(where, "content"), json_get(v, "content"), &text) ||
        path_take_text(f, AT(where, "thinking"), json_get(v, "thinking"), &m->reasoning) ||
        path_take_text(f, AT(where, "tool_name"), json_get(v, "tool_name"), &m->name) ||
        path_take_text(
            f, AT(where, "tool_call_id"), json_get(v, "tool_call_id"), &m->tool_call_id) ||
        openai_read_tool_calls(f, where, m))
        return -1;
    m->raw = NULL;
    if (!field_is_neutral(images))
        return path_unsupported(f, AT(where, "images"), "this model accepts only text");
    return text.p || !m->n_tool_calls ? set_text(f, m, text.p ? text : STR("")) : 0;
}

/* Ollama's clients identify calls by order and tool name. Templates can require ids, and some of
 * them ids of exactly nine letters and digits. */
struct call_history {
    const struct message *message; /* last message with tool calls; NULL: none */
    int next, n_all;
};

static int assign_call_ids(struct fields *f, struct message *m, struct call_history *c)
{
    enum { ID = 9 };

    for (int i = 0; i < m->n_tool_calls; i++, c->n_all++) {
        if (m->tool_calls[i].id.p)
            continue;
        char *id = arena_alloc(f->arena, ID + 1);
        if (!id)
            return field_no_memory(f);
        snprintf(id, ID + 1, "call%05d", c->n_all % 100000);
        m->tool_calls[i].id = (struct str){ id, ID };
    }
    c->message = m;
    c->next = 0;
    return 0;
}

/* Finds the next call of this tool; without a name, the next call. */
static void find_call(struct message *m, struct call_history *c)
{
    enum { SEARCH_MAX = 64 };
    int n = c->message ? c->message->n_tool_calls : 0;

    for (int i = 0; i < MIN(n, (int)SEARCH_MAX); i++) {
        const struct tool_call *call = &c->message->tool_calls[(c->next + i) % n];
        if (m->name.p && !str_eq(m->name, call->name))
            continue;
        m->tool_call_id = call->id;
        c->next = (c->next + i + 1) % n;
        return;
    }
}

static int link_calls(struct fields *f, struct message *m, struct call_history *c)
{
    if (m->n_tool_calls)
        return assign_call_ids(f, m, c);
    if (m->role == ROLE_TOOL && !m->tool_call_id.p)
        find_call(m, c);
    return 0;
}

static struct message *new_messages(struct fields *f, size_t n)
{
    f->request->convo.messages = arena_zalloc(f->arena, n, sizeof(*f->request->convo.messages));
    return f->request->convo.messages;
}

/* The model continues a last message of the assistant. */
static int read_messages(struct fields *f, const struct json *v)
{
    struct convo *c = &f->request->convo;
    const char *name = "messages";
    struct call_history call_history = { 0 };

    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array", v);
    if (v->n > REQUEST_MESSAGES_MAX)
        return err_param(f->e, ERR_RANGE, name, "'messages' may have at most %d entries, not %u.",
            REQUEST_MESSAGES_MAX, v->n);
    if (!new_messages(f, v->n))
        return field_no_memory(f);
    for (const struct json *j = v->child; j; j = j->next, c->n_messages++) {
        struct message *m = &c->messages[c->n_messages];
        if (read_message(f, AT_INDEX(NULL, name, c->n_messages), j, m) ||
            link_calls(f, m, &call_history))
            return -1;
    }
    const struct message *last = &c->messages[c->n_messages - 1];
    c->continue_final_message = last->role == ROLE_ASSISTANT && !last->n_tool_calls;
    c->add_generation_prompt = !c->continue_final_message;
    return 0;
}

/* ---- the two routes */

static void set_defaults(struct request *request)
{
    request->kind = REQUEST_CHAT;
    request->stream = true;
    request->sample.temperature = 0.8f;
    request->sample.top_k = 40;
    request->sample.top_p = 0.9f;
    request->sample.repeat_penalty = 1.1f;
}

static int finish_request(struct fields *f)
{
    struct request *request = f->request;

    request->n_prompts = 1;
    request->sample.top_k = MAX(request->sample.top_k, 0);
    request->sample.want_logprobs = request->want_logprobs;
    if (!request->want_logprobs)
        request->sample.n_top = 0;
    return common_field_set_template_kwargs(f);
}

int ollama_parse_chat(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    struct fields f = { request, a, e, chat_table, ARRAY_LEN(chat_table), { NULL } };

    set_defaults(request);
    if (fields_read(&f, body))
        return -1;
    const struct json *messages = field_get(&f, "messages");
    request->load_only = field_is_neutral(messages);
    if (!request->load_only && read_messages(&f, messages))
        return -1;
    return finish_request(&f);
}

/* Builds the conversation [system] user. */
static int set_chat_prompt(struct fields *f, struct str system, struct str prompt)
{
    struct convo *c = &f->request->convo;

    if (!new_messages(f, 2))
        return field_no_memory(f);
    if (system.n) {
        struct message *m = &c->messages[c->n_messages++];
        m->role = ROLE_SYSTEM;
        if (set_text(f, m, system))
            return -1;
    }
    struct message *m = &c->messages[c->n_messages++];
    m->role = ROLE_USER;
    return set_text(f, m, prompt);
}

static int set_infill_prompt(struct fields *f, struct str prompt, struct str suffix)
{
    struct infill infill = { .prefix = prompt, .suffix = suffix };

    f->request->kind = REQUEST_COMPLETION;
    return common_field_infill(f, &infill);
}

static int set_raw_prompt(struct fields *f, struct str prompt)
{
    struct request *request = f->request;

    request->kind = REQUEST_COMPLETION;
    request->prompts = arena_zalloc(f->arena, 1, sizeof(*request->prompts));
    if (!request->prompts)
        return field_no_memory(f);
    request->prompts[0].text = prompt;
    return 0;
}

int ollama_parse_generate(
    struct request *request, const struct json *body, struct arena *a, struct err *e)
{
    struct fields f = { request, a, e, generate_table, ARRAY_LEN(generate_table), { NULL } };
    struct str prompt = STR(""), system = STR(""), suffix = STR("");
    bool is_raw = false;

    set_defaults(request);
    if (fields_read(&f, body))
        return -1;
    const struct json *raw = field_get(&f, "raw"), *p = field_get(&f, "prompt");
    const struct json *s = field_get(&f, "system"), *end = field_get(&f, "suffix");
    if ((raw && field_bool(&f, "raw", raw, &is_raw)) ||
        (p && field_text(&f, "prompt", p, SIZE_MAX, &prompt)) ||
        (end && field_text(&f, "suffix", end, SIZE_MAX, &suffix)) ||
        (s && field_text(&f, "system", s, SIZE_MAX, &system)))
        return -1;
    request->load_only = !prompt.n && !suffix.n;
    if (request->load_only)
        return finish_request(&f);
    if (suffix.n ? set_infill_prompt(&f, prompt, suffix)
        : is_raw ? set_raw_prompt(&f, prompt)
                 : set_chat_prompt(&f, system, prompt))
        return -1;
    return finish_request(&f);
}
