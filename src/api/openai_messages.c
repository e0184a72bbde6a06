#include "api/openai.h"

#include <stdarg.h>
#include <stdio.h>

/* History is what other programs stored, so it is read leniently: arguments as an object, a tool
 * call or a text part without its type, content that is null. What is new in a turn must be
 * right. Fields are named by path: "messages[3].content[1].type". */

struct path {
    char text[48];
};

static struct path path_of(const char *fmt, ...) PRINTF(1, 2);

static struct path path_of(const char *fmt, ...)
{
    struct path p;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(p.text, sizeof(p.text), fmt, ap);
    va_end(ap);
    return p;
}

/* ---- content ---- */

static const struct {
    const char *type, *text; /* text: the member that holds it */
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

static int read_part_text(
    struct fields *f, const char *where, const char *member, struct part *p)
{
    const struct json *text = json_get(p->raw, member);
    struct path at = path_of("%s.%s", where, member);

    if (json_is_null(text))
        return field_missing(f, at.text);
    return field_text(f, at.text, text, SIZE_MAX, &p->text);
}

static int read_part(struct fields *f, const char *where, const struct json *v, struct part *p)
{
    if (v->kind == JSON_STRING) {
        *p = (struct part){ .kind = PART_TEXT, .text = v->s, .raw = v };
        return 0;
    }
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, where, "an object", v);
    *p = (struct part){ .raw = v };
    struct path at = path_of("%s.type", where);
    const struct json *type = json_get(v, "type");
    if (json_is_null(type)) {
        if (json_is_null(json_get(v, "text")))
            return field_missing(f, at.text);
        return read_part_text(f, where, "text", p);
    }
    if (type->kind != JSON_STRING)
        return field_wrong_kind(f, at.text, "a string", type);
    for (size_t i = 0; i < ARRAY_LEN(part_types); i++) {
        if (!str_is(type->s, part_types[i].type))
            continue;
        p->kind = part_types[i].kind;
        if (!part_types[i].text)
            return field_unsupported(f, where, "this model reads only text");
        return read_part_text(f, where, part_types[i].text, p);
    }
    return err_param(f->e, ERR_INVALID, at.text, "'%s' is '%.*s', which is no kind of content.",
        at.text, (int)MIN(type->s.n, (size_t)40), type->s.p);
}

static int read_parts(
    struct fields *f, const char *where, const struct json *content, struct message *m)
{
    m->parts = arena_zalloc(f->arena, MAX(content->n, 1u), sizeof(*m->parts));
    if (!m->parts)
        return field_no_memory(f);
    for (const struct json *c = content->child; c; c = c->next) {
        struct path at = path_of("%s[%d]", where, m->n_parts);
        if (read_part(f, at.text, c, &m->parts[m->n_parts++]))
            return -1;
    }
    return 0;
}

static int read_content(struct fields *f, const char *where, struct message *m)
{
    const struct json *content = json_get(m->raw, "content");
    struct path at = path_of("%s.content", where);
    bool may_lack = m->role == ROLE_ASSISTANT || m->role == ROLE_TOOL || m->role == ROLE_FUNCTION;

    if (json_is_null(content))
        return may_lack ? 0 : field_missing(f, at.text);
    m->has_content = true;
    if (content->kind == JSON_ARRAY)
        return read_parts(f, at.text, content, m);
    if (content->kind != JSON_STRING)
        return field_wrong_kind(f, at.text, "a string or an array of parts", content);
    m->is_plain = true;
    m->parts = arena_zalloc(f->arena, 1, sizeof(*m->parts));
    if (!m->parts)
        return field_no_memory(f);
    m->parts[0] = (struct part){ .kind = PART_TEXT, .text = content->s };
    m->n_parts = 1;
    return 0;
}

/* ---- tool calls of the history ---- */

static int read_arguments(
    struct fields *f, const char *where, const struct json *v, struct str *out)
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
        return field_wrong_kind(f, where, "a string of JSON", v);
    buf_init(&b, 2 * v->raw.n + 16);
    jw_init(&w, &b);
    jw_json(&w, v);
    *out = buf_ok(&b) ? arena_str(f->arena, buf_str(&b)) : STR_NONE;
    buf_clear(&b);
    return out->p ? 0 : field_no_memory(f);
}

/* {"name", "arguments"}: the inside of a tool call, or the old function_call. */
static int read_function(
    struct fields *f, const char *where, const struct json *v, struct tool_call *call)
{
    struct path name_at = path_of("%s.name", where), args_at = path_of("%s.arguments", where);

    if (json_is_null(v))
        return field_missing(f, where);
    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, where, "an object", v);
    const struct json *name = json_get(v, "name");
    if (json_is_null(name))
        return field_missing(f, name_at.text);
    if (field_text(f, name_at.text, name, SIZE_MAX, &call->name))
        return -1;
    return read_arguments(f, args_at.text, json_get(v, "arguments"), &call->arguments);
}

static int read_tool_call(
    struct fields *f, const char *where, const struct json *v, struct tool_call *call)
{
    struct path id_at = path_of("%s.id", where), in = path_of("%s.function", where);

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, where, "an object", v);
    *call = (struct tool_call){ .raw = v };
    const struct json *id = json_get(v, "id");
    if (!json_is_null(id) && field_text(f, id_at.text, id, SIZE_MAX, &call->id))
        return -1;
    return read_function(f, in.text, json_get(v, "function"), call);
}

static int read_tool_calls(struct fields *f, const char *where, struct message *m)
{
    const struct json *calls = json_get(m->raw, "tool_calls");
    const struct json *old = json_get(m->raw, "function_call");
    struct path at = path_of("%s.tool_calls", where);

    if (json_is_null(calls) && json_is_null(old))
        return 0;
    if (!json_is_null(calls) && calls->kind != JSON_ARRAY)
        return field_wrong_kind(f, at.text, "an array", calls);
    uint32_t n = json_is_null(calls) ? 1 : calls->n;
    m->tool_calls = arena_zalloc(f->arena, MAX(n, 1u), sizeof(*m->tool_calls));
    if (!m->tool_calls)
        return field_no_memory(f);
    if (json_is_null(calls)) {
        at = path_of("%s.function_call", where);
        m->n_tool_calls = 1;
        m->tool_calls[0].raw = old;
        return read_function(f, at.text, old, &m->tool_calls[0]);
    }
    for (const struct json *c = calls->child; c; c = c->next) {
        at = path_of("%s.tool_calls[%d]", where, m->n_tool_calls);
        if (read_tool_call(f, at.text, c, &m->tool_calls[m->n_tool_calls++]))
            return -1;
    }
    return 0;
}

/* ---- messages ---- */

static const struct {
    const char *name;
    size_t to;
} texts[] = {
    { "name", offsetof(struct message, name) },
    { "tool_call_id", offsetof(struct message, tool_call_id) },
    { "reasoning_content", offsetof(struct message, reasoning) },
};

static int read_role(struct fields *f, const char *where, struct message *m)
{
    const struct json *role = json_get(m->raw, "role");
    struct path at = path_of("%s.role", where);

    if (json_is_null(role))
        return field_missing(f, at.text);
    if (role->kind != JSON_STRING)
        return field_wrong_kind(f, at.text, "a string", role);
    if (!role_parse(role->s, &m->role))
        return err_param(f->e, ERR_INVALID, at.text,
            "'%s' must be one of system, developer, user, assistant, tool, function, not '%.*s'.",
            at.text, (int)MIN(role->s.n, (size_t)40), role->s.p);
    return 0;
}

/* `reasoning` is newer than `reasoning_content`; it may also be an object that only some servers
 * understand, which is then left in raw. */
static void read_new_reasoning(struct message *m)
{
    const struct json *v = json_get(m->raw, "reasoning");

    if (v && v->kind == JSON_STRING && !m->reasoning.n)
        m->reasoning = v->s;
}

static int read_message(struct fields *f, int i, const struct json *v, struct message *m)
{
    struct path where = path_of("messages[%d]", i);

    if (v->kind != JSON_OBJECT)
        return field_wrong_kind(f, where.text, "an object", v);
    m->raw = v;
    if (read_role(f, where.text, m) || read_content(f, where.text, m) ||
        read_tool_calls(f, where.text, m))
        return -1;
    for (size_t k = 0; k < ARRAY_LEN(texts); k++) {
        struct path at = path_of("%s.%s", where.text, texts[k].name);
        const struct json *text = json_get(v, texts[k].name);
        struct str *to = (struct str *)(void *)((char *)m + texts[k].to);
        if (!json_is_null(text) && field_text(f, at.text, text, SIZE_MAX, to))
            return -1;
    }
    read_new_reasoning(m);
    struct path at = path_of("%s.%s", where.text, m->role == ROLE_TOOL ? "tool_call_id" : "name");
    if ((m->role == ROLE_TOOL && !m->tool_call_id.p) || (m->role == ROLE_FUNCTION && !m->name.p))
        return field_missing(f, at.text);
    return 0;
}

int openai_read_messages(struct fields *f, const char *name, const struct json *v)
{
    struct convo *c = &f->ask->convo;

    if (v->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array", v);
    if (!v->n)
        return err_param(f->e, ERR_INVALID, name, "'messages' must not be empty.");
    if (v->n > ASK_MESSAGES_MAX)
        return err_param(f->e, ERR_RANGE, name, "'messages' may have at most %d entries, not %u.",
            ASK_MESSAGES_MAX, v->n);
    c->messages = arena_zalloc(f->arena, v->n, sizeof(*c->messages));
    if (!c->messages)
        return field_no_memory(f);
    for (const struct json *m = v->child; m; m = m->next, c->n_messages++)
        if (read_message(f, c->n_messages, m, &c->messages[c->n_messages]))
            return -1;
    return 0;
}
