/* convo_json.h: makes a conversation from JSON in the form of OpenAI's chat requests. The JSON
 * must be valid; errors are not reported. */
#pragma once

#include "chat/convo.h"

static inline struct str cj_str(const struct json *o, const char *key)
{
    const struct json *j = json_get(o, key);

    return j && j->kind == JSON_STRING ? j->s : STR_NONE;
}

static inline void cj_content(const struct json *content, struct message *m, struct arena *a)
{
    m->has_content = !json_is_null(content);
    m->is_plain = m->has_content && content->kind == JSON_STRING;
    if (!m->has_content)
        return;
    m->n_parts = m->is_plain ? 1 : (int)content->n;
    m->parts = arena_zalloc(a, (size_t)MAX(m->n_parts, 1), sizeof(*m->parts));
    if (m->is_plain) {
        m->parts[0] = (struct content_part){ .kind = PART_TEXT, .text = content->s };
        return;
    }
    struct content_part *p = m->parts;
    for (const struct json *j = content->child; j; j = j->next, p++) {
        bool is_text = str_is(cj_str(j, "type"), "text");
        *p = (struct content_part){
            .kind = is_text ? PART_TEXT : PART_OTHER, .raw = j, .text = cj_str(j, "text")
        };
    }
}

static inline void cj_calls(const struct json *calls, struct message *m, struct arena *a)
{
    if (json_is_null(calls) || !calls->n)
        return;
    m->n_tool_calls = (int)calls->n;
    m->tool_calls = arena_zalloc(a, calls->n, sizeof(*m->tool_calls));
    struct tool_call *t = m->tool_calls;
    for (const struct json *j = calls->child; j; j = j->next, t++) {
        const struct json *f = json_get(j, "function");
        const struct json *args = f ? json_get(f, "arguments") : NULL;
        *t = (struct tool_call){ .id = cj_str(j, "id"), .name = cj_str(f, "name"), .raw = j };
        if (args)
            t->arguments = args->kind == JSON_STRING ? args->s : args->raw;
    }
}

static inline bool cj_convo(const struct json *request, struct convo *c, struct arena *a)
{
    const struct json *messages = json_get(request, "messages");
    const struct json *add = json_get(request, "add_generation_prompt");
    const struct json *cont = json_get(request, "continue_final_message");

    *c = (struct convo){ .tools = json_get(request, "tools"),
        .template_kwargs = json_get(request, "chat_template_kwargs"),
        .add_generation_prompt = add && add->b,
        .continue_final_message = cont && cont->b };
    if (!messages || messages->kind != JSON_ARRAY)
        return false;
    c->n_messages = (int)messages->n;
    c->messages = arena_zalloc(a, MAX(messages->n, 1u), sizeof(*c->messages));
    if (!c->messages)
        return false;
    struct message *m = c->messages;
    for (const struct json *j = messages->child; j; j = j->next, m++) {
        if (!role_parse(cj_str(j, "role"), &m->role))
            return false;
        m->raw = j;
        m->name = cj_str(j, "name");
        m->tool_call_id = cj_str(j, "tool_call_id");
        m->reasoning = cj_str(j, "reasoning_content");
        cj_content(json_get(j, "content"), m, a);
        cj_calls(json_get(j, "tool_calls"), m, a);
    }
    return true;
}
