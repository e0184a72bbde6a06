#include "api/openai/openai.h"

/* openai_messages.c: `messages` of a chat. Messages from earlier turns were stored by other
 * programs and are read leniently: arguments as an object, a tool call or a text part without its
 * type, null content. Other errors are reported with their path: "messages[3].content[1].type". Any
 * thread. */

/* ---- content ---- */

static const struct {
    const char *type, *text; /* text: name of the member with the text */
    enum part_kind kind;
} part_types[] = {
    { "text", "text", PART_TEXT },
    { "input_text", "text", PART_TEXT },
    { "output_text", "text", PART_TEXT },
    { "refusal", "refusal", PART_REFUSAL },
    { "image_url", NULL, PART_IMAGE },
    { "input_image", NULL, PART_IMAGE },
    { "input_audio", NULL, PART_AUDIO },
    { "audio_url", NULL, PART_AUDIO },
    { "video_url", NULL, PART_OTHER },
    { "file", NULL, PART_FILE },
    { "input_file", NULL, PART_FILE },
};

static int read_part(
    struct fields *f, const struct path *where, const struct json *v, struct content_part *p)
{
    struct str type;

    if (v->kind == JSON_STRING) {
        *p = (struct content_part){ .kind = PART_TEXT, .text = v->s, .raw = v };
        return 0;
    }
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    *p = (struct content_part){ .raw = v };
    const struct json *text = json_get(v, "text"), *t = json_get(v, "type");
    if (json_is_null(t) && !json_is_null(text))
        return path_need_text(f, AT(where, "text"), text, &p->text);
    if (path_need_text(f, AT(where, "type"), t, &type))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(part_types); i++) {
        if (!str_is(type, part_types[i].type))
            continue;
        p->kind = part_types[i].kind;
        const char *member = part_types[i].text;
        if (!member)
            return path_unsupported(f, where, "this model accepts only text");
        return path_need_text(f, AT(where, member), json_get(v, member), &p->text);
    }
    struct path_text at = path_format(AT(where, "type"));
    return err_param(f->e, ERR_INVALID, at.z,
        "'%s' is '%.*s', which is not a supported content type.", at.z,
        (int)MIN(type.n, (size_t)40), type.p);
}

static int read_parts(
    struct fields *f, const struct path *where, const struct json *content, struct message *m)
{
    m->parts = arena_zalloc(f->arena, MAX(content->n, 1u), sizeof(*m->parts));
    if (!m->parts)
        return field_no_memory(f);
    for (const struct json *c = content->child; c; c = c->next, m->n_parts++)
        if (read_part(f, AT_INDEX(where, "content", m->n_parts), c, &m->parts[m->n_parts]))
            return -1;
    return 0;
}

static int read_content(struct fields *f, const struct path *where, struct message *m)
{
    const struct json *content = json_get(m->raw, "content");
    bool is_optional =
        m->role == ROLE_ASSISTANT || m->role == ROLE_TOOL || m->role == ROLE_FUNCTION;

    if (json_is_null(content))
        return is_optional ? 0 : path_missing(f, AT(where, "content"));
    m->has_content = true;
    if (content->kind == JSON_ARRAY)
        return read_parts(f, where, content, m);
    if (content->kind != JSON_STRING)
        return path_wrong_kind(f, AT(where, "content"), "a string or an array of parts", content);
    m->is_plain = true;
    m->parts = arena_zalloc(f->arena, 1, sizeof(*m->parts));
    if (!m->parts)
        return field_no_memory(f);
    m->parts[0] = (struct content_part){ .kind = PART_TEXT, .text = content->s };
    m->n_parts = 1;
    return 0;
}

/* ---- tool calls of earlier turns ---- */

static int read_arguments(
    struct fields *f, const struct path *at, const struct json *v, struct str *out)
{
    struct buf b;
    struct jw w;

    if (json_is_null(v)) {
        *out = STR("{}");
        return 0;
    }
    if (v->kind == JSON_STRING) {
        *out = v->s;
        return 0;
    }
    if (v->kind != JSON_OBJECT && v->kind != JSON_ARRAY)
        return path_wrong_kind(f, at, "a string of JSON", v);
    buf_init(&b, 2 * v->raw.n + 16);
    jw_init(&w, &b);
    jw_json(&w, v);
    *out = buf_ok(&b) ? arena_str(f->arena, buf_str(&b)) : STR_NONE;
    buf_clear(&b);
    return out->p ? 0 : field_no_memory(f);
}

/* Reads {"name", "arguments"}: the function of a tool call, or the deprecated function_call. */
static int read_function(
    struct fields *f, const struct path *where, const struct json *v, struct tool_call *call)
{
    if (json_is_null(v))
        return path_missing(f, where);
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    if (path_need_text(f, AT(where, "name"), json_get(v, "name"), &call->name))
        return -1;
    return read_arguments(f, AT(where, "arguments"), json_get(v, "arguments"), &call->arguments);
}

static int read_tool_call(
    struct fields *f, const struct path *where, const struct json *v, struct tool_call *call)
{
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    *call = (struct tool_call){ .raw = v };
    if (path_take_text(f, AT(where, "id"), json_get(v, "id"), &call->id))
        return -1;
    return read_function(f, AT(where, "function"), json_get(v, "function"), call);
}

int openai_read_tool_calls(struct fields *f, const struct path *where, struct message *m)
{
    const struct json *calls = json_get(m->raw, "tool_calls");
    const struct json *function_call = json_get(m->raw, "function_call");

    if (json_is_null(calls) && json_is_null(function_call))
        return 0;
    if (!json_is_null(calls) && calls->kind != JSON_ARRAY)
        return path_wrong_kind(f, AT(where, "tool_calls"), "an array", calls);
    uint32_t n = json_is_null(calls) ? 1 : calls->n;
    m->tool_calls = arena_zalloc(f->arena, MAX(n, 1u), sizeof(*m->tool_calls));
    if (!m->tool_calls)
        return field_no_memory(f);
    if (json_is_null(calls)) {
        m->n_tool_calls = 1;
        m->tool_calls[0].raw = function_call;
        return read_function(f, AT(where, "function_call"), function_call, &m->tool_calls[0]);
    }
    for (const struct json *c = calls->child; c; c = c->next, m->n_tool_calls++)
        if (read_tool_call(f, AT_INDEX(where, "tool_calls", m->n_tool_calls), c,
                &m->tool_calls[m->n_tool_calls]))
            return -1;
    return 0;
}

/* ---- messages ---- */

static const struct {
    const char *name;
    size_t to;
} text_members[] = {
    { "name", offsetof(struct message, name) },
    { "tool_call_id", offsetof(struct message, tool_call_id) },
    { "reasoning_content", offsetof(struct message, reasoning) },
};

static int read_message(
    struct fields *f, const struct path *where, const struct json *v, struct message *m)
{
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, where, "an object", v);
    m->raw = v;
    if (path_need_role(f, where, "system, developer, user, assistant, tool, function", m) ||
        read_content(f, where, m) || openai_read_tool_calls(f, where, m))
        return -1;
    for (size_t k = 0; k < ARRAY_LEN(text_members); k++) {
        struct str *to = (struct str *)(void *)((char *)m + text_members[k].to);
        if (path_take_text(
                f, AT(where, text_members[k].name), json_get(v, text_members[k].name), to))
            return -1;
    }
    /* `reasoning` is a newer name of `reasoning_content`. It can also be an object of another
     * server, which stays in raw. */
    const struct json *reasoning = json_get(v, "reasoning");
    if (reasoning && reasoning->kind == JSON_STRING && !m->reasoning.n)
        m->reasoning = reasoning->s;
    if (m->role == ROLE_TOOL && !m->tool_call_id.p)
        return path_missing(f, AT(where, "tool_call_id"));
    if (m->role == ROLE_FUNCTION && !m->name.p)
        return path_missing(f, AT(where, "name"));
    return 0;
}

int openai_read_messages(struct fields *f, const char *name, const struct json *v)
{
    struct convo *c = &f->request->convo;

    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array", v);
    if (!v->n)
        return err_param(f->e, ERR_INVALID, name, "'messages' must not be empty.");
    if (v->n > REQUEST_MESSAGES_MAX)
        return err_param(f->e, ERR_RANGE, name, "'messages' may have at most %d entries, not %u.",
            REQUEST_MESSAGES_MAX, v->n);
    c->messages = arena_zalloc(f->arena, v->n, sizeof(*c->messages));
    if (!c->messages)
        return field_no_memory(f);
    for (const struct json *m = v->child; m; m = m->next, c->n_messages++)
        if (read_message(f, AT_INDEX(NULL, name, c->n_messages), m, &c->messages[c->n_messages]))
            return -1;
    return 0;
}
