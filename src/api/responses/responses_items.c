#include "api/common/path.h"
#include "api/responses/responses.h"
#include "base/base64.h"

/* responses_items.c: items -> messages for chat templates:
 *
 *     message                       a message of its role
 *     reasoning, function_call ...  merged with the assistant's message next to them into one
 *                                   message with reasoning, content and calls
 *     function_call_output          a tool message
 *
 * Items of server-side tools (searches, images) are skipped, since this server has no such tools.
 * Items of earlier turns were stored by other programs and are read leniently. All parts are in one
 * array, and all calls in another, in their order, so a merge only increases a count: the time is
 * linear in the number of items. Any thread. */

struct item_reader {
    struct fields *f;
    struct convo *c;
    struct content_part *parts; /* next free element */
    struct tool_call *calls;    /* next free element */
    bool is_assistant_open;     /* the last message is the assistant's */
};

static const char *const text_only = "this model accepts only text";

static bool is_type(const struct json *v, const char *type)
{
    const struct json *t = json_get(v, "type");

    return t && t->kind == JSON_STRING && str_is(t->s, type);
}

/* ---- allocation */

struct item_counts {
    size_t messages, parts, calls;
};

static void count_list(struct item_counts *item_counts, const struct json *list)
{
    item_counts->messages++;
    item_counts->parts++;
    if (list->kind != JSON_ARRAY)
        return;
    for (const struct json *v = list->child; v; v = v->next) {
        const struct json *content = json_get(v, "content"), *output = json_get(v, "output");
        item_counts->messages++;
        item_counts->calls++;
        item_counts->parts += 1 + (content && content->kind == JSON_ARRAY ? content->n : 0) +
                              (output && output->kind == JSON_ARRAY ? output->n : 0);
    }
}

static int allocate_items(struct item_reader *r, const struct item_counts *item_counts)
{
    if (item_counts->messages > REQUEST_MESSAGES_MAX)
        return err_param(r->f->e, ERR_RANGE, "input",
            "'input' and the stored items before it may have at most %d items.",
            REQUEST_MESSAGES_MAX);
    r->parts = arena_zalloc(r->f->arena, item_counts->parts, sizeof(*r->parts));
    r->calls = arena_zalloc(r->f->arena, item_counts->calls + 1, sizeof(*r->calls));
    r->c->messages = arena_zalloc(r->f->arena, item_counts->messages, sizeof(*r->c->messages));
    r->c->n_messages = 0;
    return r->parts && r->calls && r->c->messages ? 0 : field_no_memory(r->f);
}

/* ---- construction of messages */

static struct message *open_message(struct item_reader *r, enum role role)
{
    struct message *m = &r->c->messages[r->c->n_messages++];

    *m = (struct message){ .role = role, .parts = r->parts, .tool_calls = r->calls };
    r->is_assistant_open = role == ROLE_ASSISTANT;
    return m;
}

static struct message *last_message(struct item_reader *r)
{
    return &r->c->messages[r->c->n_messages - 1];
}

static void add_text(struct item_reader *r, struct message *m, enum part_kind kind, struct str text)
{
    *r->parts++ = (struct content_part){ .kind = kind, .text = text };
    m->n_parts++;
    m->has_content = true;
    m->is_plain = m->n_parts == 1 && kind == PART_TEXT;
}

/* ---- content */

static int read_part(
    struct item_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    static const char *const texts[] = { "input_text", "output_text", "text", "summary_text" };
    static const char *const refused[] = { "input_image", "input_file", "input_audio",
        "computer_screenshot" };
    struct str type, text = STR_NONE;

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(r->f, at, "an object", v);
    if (path_need_text(r->f, AT(at, "type"), json_get(v, "type"), &type))
        return -1;
    bool is_refusal = str_is(type, "refusal"), is_text = is_refusal;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        is_text = is_text || str_is(type, texts[i]);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (str_is(type, refused[i]))
            return path_unsupported(r->f, at, text_only);
    if (!is_text) {
        struct path_text name = path_format(AT(at, "type"));
        return err_param(r->f->e, ERR_INVALID, name.z,
            "'%s' is '%.*s', which is not a supported content type.", name.z,
            (int)MIN(type.n, (size_t)40), type.p);
    }
    const char *member = is_refusal ? "refusal" : "text";
    if (path_need_text(r->f, AT(at, member), json_get(v, member), &text))
        return -1;
    add_text(r, m, is_refusal ? PART_REFUSAL : PART_TEXT, text);
    return 0;
}

/* Reads a string or an array of parts. */
static int read_content(
    struct item_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    int i = 0;

    if (v->kind == JSON_STRING) {
        add_text(r, m, PART_TEXT, v->s);
        return 0;
    }
    if (v->kind != JSON_ARRAY)
        return path_wrong_kind(r->f, at, "a string or an array of parts", v);
    m->has_content = true;
    for (const struct json *p = v->child; p; p = p->next, i++)
        if (read_part(r, &(struct path){ at->up, at->member, i }, p, m))
            return -1;
    return 0;
}

/* ---- items */

/* Returns the message for content or reasoning of a role. Reasoning is merged with the content
 * after it; a message that has content or calls is complete. */
static struct message *message_for_content(struct item_reader *r, enum role role)
{
    if (role != ROLE_ASSISTANT || !r->is_assistant_open)
        return open_message(r, role);
    struct message *m = last_message(r);
    return m->has_content || m->n_tool_calls ? open_message(r, role) : m;
}

static int read_message(struct item_reader *r, const struct path *at, const struct json *v)
{
    static const enum role roles[] = { ROLE_USER, ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_DEVELOPER };
    const struct json *content = json_get(v, "content");
    struct str name;

    if (path_need_text(r->f, AT(at, "role"), json_get(v, "role"), &name))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(roles); i++) {
        if (!str_is(name, role_name(roles[i])))
            continue;
        struct message *m = message_for_content(r, roles[i]);
        if (json_is_null(content))
            return path_missing(r->f, AT(at, "content"));
        return read_content(r, AT(at, "content"), content, m);
    }
    struct path_text where = path_format(AT(at, "role"));
    return err_param(r->f->e, ERR_INVALID, where.z,
        "'%s' must be one of user, assistant, system, developer, not '%.*s'.", where.z,
        (int)MIN(name.n, (size_t)40), name.p);
}

/* Returns a call's arguments as JSON text. The text of a custom tool becomes {"input": "..."}. */
static int read_arguments(struct item_reader *r, const struct json *v, struct str *out)
{
    const struct json *text = json_get(v, "input");
    struct buf b;

    if (!is_type(v, "custom_tool_call") || !text || text->kind != JSON_STRING) {
        const struct json *args =
            json_get(v, is_type(v, "local_shell_call") ? "action" : "arguments");
        *out = json_is_null(args) ? STR("{}") : args->kind == JSON_STRING ? args->s : args->raw;
        return 0;
    }
    buf_init(&b, 6 * text->s.n + 64);
    buf_putz(&b, "{\"input\": \"");
    json_escape(&b, text->s);
    buf_putz(&b, "\"}");
    *out = buf_ok(&b) ? arena_str(r->f->arena, buf_str(&b)) : STR_NONE;
    buf_clear(&b);
    return out->p ? 0 : field_no_memory(r->f);
}

/* A call belongs to the assistant message before it, after its content. */
static int read_call(struct item_reader *r, const struct path *at, const struct json *v)
{
    struct tool_call *call = r->calls;

    *call = (struct tool_call){ .name = STR("local_shell") };
    if (path_need_text(r->f, AT(at, "call_id"), json_get(v, "call_id"), &call->id))
        return -1;
    if (!is_type(v, "local_shell_call") &&
        path_need_text(r->f, AT(at, "name"), json_get(v, "name"), &call->name))
        return -1;
    if (read_arguments(r, v, &call->arguments))
        return -1;
    struct message *m = r->is_assistant_open ? last_message(r) : open_message(r, ROLE_ASSISTANT);
    r->calls++;
    m->n_tool_calls++;
    return 0;
}

static int read_output(struct item_reader *r, const struct path *at, const struct json *v)
{
    const char *id = is_type(v, "local_shell_call_output") ? "id" : "call_id";
    const struct json *output = json_get(v, "output");
    struct message *m = open_message(r, ROLE_TOOL);

    if (path_need_text(r->f, AT(at, id), json_get(v, id), &m->tool_call_id))
        return -1;
    if (json_is_null(output))
        return path_missing(r->f, AT(at, "output"));
    return read_content(r, AT(at, "output"), output, m);
}

/* Decodes reasoning that this server has sent as encrypted_content. */
static bool decode_sealed(struct buf *out, const struct json *sealed)
{
    static const char mark[] = "v1.";

    return sealed && sealed->kind == JSON_STRING && str_starts(sealed->s, str_of(mark)) &&
           base64_decode(out, str_skip(sealed->s, strlen(mark)));
}

static void join_texts(struct buf *out, const struct json *parts)
{
    if (!parts || parts->kind != JSON_ARRAY)
        return;
    for (const struct json *p = parts->child; p; p = p->next) {
        const struct json *text = json_get(p, "text");
        if (!text || text->kind != JSON_STRING)
            continue;
        if (out->n)
            buf_putc(out, '\n');
        buf_puts(out, text->s);
    }
}

/* Reads the full reasoning, else its summary, else encrypted_content. */
static int read_reasoning(struct item_reader *r, const struct json *v)
{
    struct buf text;
    int rc = 0;

    buf_init(&text, 2 * v->raw.n + 64);
    join_texts(&text, json_get(v, "content"));
    if (!text.n)
        join_texts(&text, json_get(v, "summary"));
    if (!text.n && !decode_sealed(&text, json_get(v, "encrypted_content")))
        buf_reset(&text);
    if (text.n) {
        struct message *m = message_for_content(r, ROLE_ASSISTANT);
        if (m->reasoning.n) /* belongs to a message without content */
            m = open_message(r, ROLE_ASSISTANT);
        m->reasoning = buf_ok(&text) ? arena_str(r->f->arena, buf_str(&text)) : STR_NONE;
        rc = m->reasoning.p ? 0 : field_no_memory(r->f);
    }
    buf_clear(&text);
    return rc;
}

/* Items of tools that other servers execute. */
static const char *const skipped_types[] = { "additional_tools", "apply_patch_call",
    "apply_patch_call_output", "code_interpreter_call", "compaction", "computer_call",
    "computer_call_output", "configuration_update", "file_search_call", "image_generation_call",
    "mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools", "program",
    "program_output", "shell_call", "shell_call_output", "tool_search_call", "tool_search_output",
    "web_search_call" };

static int read_item(struct item_reader *r, const struct path *at, const struct json *v)
{
    struct str type = STR("message");

    if (path_take_text(r->f, AT(at, "type"), json_get(v, "type"), &type))
        return -1;
    if (str_is(type, "message"))
        return read_message(r, at, v);
    if (str_is(type, "reasoning"))
        return read_reasoning(r, v);
    if (str_is(type, "function_call") || str_is(type, "custom_tool_call") ||
        str_is(type, "local_shell_call"))
        return read_call(r, at, v);
    if (str_is(type, "function_call_output") || str_is(type, "custom_tool_call_output") ||
        str_is(type, "local_shell_call_output"))
        return read_output(r, at, v);
    for (size_t i = 0; i < ARRAY_LEN(skipped_types); i++)
        if (str_is(type, skipped_types[i]))
            return 0;
    struct path_text where = path_format(AT(at, "type"));
    return err_param(r->f->e, ERR_INVALID, where.z,
        "'%s' is '%.*s', which is not a supported item type.", where.z,
        (int)MIN(type.n, (size_t)40), type.p);
}

/* ---- lists */

/* References have been replaced, or wait for the response store. */
static int read_list(struct item_reader *r, const struct json *list)
{
    const struct json *v = list->child;

    if (list->kind == JSON_STRING) {
        add_text(r, open_message(r, ROLE_USER), PART_TEXT, list->s);
        return 0;
    }
    for (int i = 0; v; v = v->next, i++)
        if (!responses_is_reference(v) && read_item(r, AT_INDEX(NULL, "input", i), v))
            return -1;
    return 0;
}

static int read_instructions(struct item_reader *r, const struct json *v)
{
    if (v->kind == JSON_ARRAY)
        return read_list(r, v);
    if (v->s.n)
        add_text(r, open_message(r, ROLE_SYSTEM), PART_TEXT, v->s);
    return 0;
}

/* Templates require at least one message that is not a system prompt. */
static void ensure_user_message(struct item_reader *r)
{
    struct convo *c = r->c;
    bool has_turn = false;

    for (int i = 0; i < c->n_messages && !has_turn; i++)
        has_turn = c->messages[i].role != ROLE_SYSTEM && c->messages[i].role != ROLE_DEVELOPER;
    if (!has_turn)
        add_text(r, open_message(r, ROLE_USER), PART_TEXT, STR(""));
}

int responses_read_items(struct fields *f, const struct items_source *want)
{
    struct item_reader r = { .f = f, .c = &f->request->convo };
    struct item_counts item_counts = { .messages = 1, .parts = 1 };
    const struct json *instructions = NULL;

    if (want->instructions &&
        responses_resolve(f, "instructions", want->instructions, want->lookup, &instructions))
        return -1;
    if (responses_resolve(f, "input", want->input, want->lookup, &f->request->items))
        return -1;
    count_list(&item_counts, f->request->items);
    if (instructions)
        count_list(&item_counts, instructions);
    for (size_t i = 0; i < want->n_before; i++)
        count_list(&item_counts, want->before[i]);
    if (allocate_items(&r, &item_counts) || (instructions && read_instructions(&r, instructions)))
        return -1;
    for (size_t i = 0; i < want->n_before; i++)
        if (read_list(&r, want->before[i]))
            return -1;
    if (read_list(&r, f->request->items))
        return -1;
    ensure_user_message(&r);
    return 0;
}
