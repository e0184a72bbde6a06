#include "api/anthropic/anthropic.h"
#include "api/common/path.h"

/* anthropic_messages.c: messages with content blocks -> messages for chat templates:
 *
 *   user       text ...                   one user message
 *              tool_result ...            one tool message each, before the user message
 *   assistant  text, tool_use, thinking   one assistant message: content, tool_calls, reasoning
 *
 * Consecutive messages of the same role are merged. All parts are in one array in their order, so a
 * merge only increases the part count of the first message. The time is linear in the number of
 * messages. Any thread. */

struct block_reader {
    struct fields *f;
    struct convo *c;
    struct content_part *parts;     /* next free element */
    struct tool_call *calls;        /* next free element */
    const struct tool_call *called; /* tool calls of the last assistant message that has any */
    int n_called, next_called;
};

static const char *const text_only = "this model accepts only text";

/* ---- allocation */

struct block_counts {
    size_t messages, parts, calls;
};

static bool is_block(const struct json *b, const char *type)
{
    const struct json *t = json_get(b, "type");

    return t && t->kind == JSON_STRING && str_is(t->s, type);
}

static size_t n_items(const struct json *v)
{
    return v && v->kind == JSON_ARRAY ? v->n : 1;
}

/* A document and a search result have up to two heading parts before their text. */
static size_t n_parts(const struct json *b)
{
    const struct json *source = json_get(b, "source");

    if (is_block(b, "document"))
        return 2 + n_items(json_get(source, "content"));
    return is_block(b, "search_result") ? 2 + n_items(json_get(b, "content")) : 1;
}

/* Counts no more than the parser fills: an invalid block is an error before it is stored. */
static void count_content(struct block_counts *block_counts, const struct json *content)
{
    if (!content || content->kind != JSON_ARRAY) {
        block_counts->parts++;
        return;
    }
    for (const struct json *b = content->child; b; b = b->next) {
        const struct json *inner = is_block(b, "tool_result") ? json_get(b, "content") : NULL;
        block_counts->messages += is_block(b, "tool_result");
        block_counts->calls += is_block(b, "tool_use");
        block_counts->parts += b->kind == JSON_OBJECT && b->n ? n_parts(b) : 0;
        for (const struct json *i = inner && inner->kind == JSON_ARRAY ? inner->child : NULL; i;
             i = i->next)
            block_counts->parts += n_parts(i);
    }
}

static int allocate_blocks(
    struct block_reader *r, const struct json *system, const struct json *messages)
{
    struct block_counts block_counts = { .messages = messages->n + 1 };

    count_content(&block_counts, system);
    for (const struct json *m = messages->child; m; m = m->next)
        count_content(&block_counts, json_get(m, "content"));
    r->parts = arena_zalloc(r->f->arena, block_counts.parts + 1, sizeof(*r->parts));
    r->calls = arena_zalloc(r->f->arena, block_counts.calls + 1, sizeof(*r->calls));
    r->c->messages = arena_zalloc(r->f->arena, block_counts.messages, sizeof(*r->c->messages));
    return r->parts && r->calls && r->c->messages ? 0 : field_no_memory(r->f);
}

/* ---- construction of messages */

static struct message *open_message(struct block_reader *r, enum role role)
{
    struct message *m = &r->c->messages[r->c->n_messages++];

    *m = (struct message){ .role = role, .parts = r->parts, .tool_calls = r->calls };
    return m;
}

/* Returns the last message if it has this role, else a new one. */
static struct message *continue_message(struct block_reader *r, enum role role)
{
    struct convo *c = r->c;

    if (c->n_messages && c->messages[c->n_messages - 1].role == role)
        return &c->messages[c->n_messages - 1];
    return open_message(r, role);
}

static void add_text(struct block_reader *r, struct message *m, struct str text)
{
    *r->parts++ = (struct content_part){ .kind = PART_TEXT, .text = text };
    m->n_parts++;
    m->has_content = true;
    m->is_plain = m->n_parts == 1; /* a string is equivalent to a single text block */
}

/* ---- blocks */

static int read_type(struct fields *f, const struct path *at, const struct json *v, struct str *out)
{
    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(f, at, "an object", v);
    return path_need_text(f, AT(at, "type"), json_get(v, "type"), out);
}

static int unknown_type(struct fields *f, const struct path *at, struct str type)
{
    struct path_text name = path_format(AT(at, "type"));

    return err_param(f->e, ERR_INVALID, name.z,
        "'%s' is '%.*s', which is not a supported block type.", name.z,
        (int)MIN(type.n, (size_t)40), type.p);
}

static int read_text_block(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    struct str text = STR_NONE;

    if (path_need_text(r->f, AT(at, "text"), json_get(v, "text"), &text))
        return -1;
    add_text(r, m, text);
    return 0;
}

/* Adds the headings of a quotation as text: title, source or context. */
static int read_headings(struct block_reader *r, const struct path *at, const struct json *v,
    const char *const *names, struct message *m)
{
    for (; *names; names++) {
        struct str text = STR("");
        if (path_take_text(r->f, AT(at, *names), json_get(v, *names), &text))
            return -1;
        if (text.n)
            add_text(r, m, text);
    }
    return 0;
}

/* Reads the text of a document or search result: a string, or text blocks. */
static int read_quoted(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    struct str text = STR_NONE, type;
    int i = 0;

    if (json_is_null(v) || v->kind != JSON_ARRAY) {
        if (path_need_text(r->f, at, v, &text))
            return -1;
        add_text(r, m, text);
        return 0;
    }
    for (const struct json *b = v->child; b; b = b->next, i++) {
        struct path *here = &(struct path){ at->up, at->member, i };
        if (read_type(r->f, here, b, &type))
            return -1;
        if (!str_is(type, "text"))
            return path_unsupported(r->f, here, text_only);
        if (read_text_block(r, here, b, m))
            return -1;
    }
    return 0;
}

/* Reads a document with text; other sources need a vision model. */
static int read_document(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    static const char *const headings[] = { "title", "context", NULL };
    const struct json *source = json_get(v, "source");
    struct str type;

    if (json_is_null(source))
        return path_missing(r->f, AT(at, "source"));
    if (read_type(r->f, AT(at, "source"), source, &type))
        return -1;
    const char *member = str_is(type, "text") ? "data" : str_is(type, "content") ? "content" : NULL;
    if (!member)
        return path_unsupported(r->f, at, text_only);
    if (read_headings(r, at, v, headings, m))
        return -1;
    return read_quoted(r, AT(AT(at, "source"), member), json_get(source, member), m);
}

static int read_search_result(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    static const char *const headings[] = { "title", "source", NULL };

    if (read_headings(r, at, v, headings, m))
        return -1;
    return read_quoted(r, AT(at, "content"), json_get(v, "content"), m);
}

/* Reads a block that is allowed in a user message, a tool result and the system prompt. */
static int read_content_block(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    static const char *const refused[] = { "image", "container_upload", "tool_reference" };
    struct str type;

    if (read_type(r->f, at, v, &type))
        return -1;
    if (str_is(type, "text"))
        return read_text_block(r, at, v, m);
    if (str_is(type, "document"))
        return read_document(r, at, v, m);
    if (str_is(type, "search_result"))
        return read_search_result(r, at, v, m);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (str_is(type, refused[i]))
            return path_unsupported(r->f, at, text_only);
    return unknown_type(r->f, at, type);
}

/* Reads a string or an array of blocks into m. */
static int read_content(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    int i = 0;

    if (v->kind == JSON_STRING) {
        add_text(r, m, v->s);
        return 0;
    }
    if (v->kind != JSON_ARRAY)
        return path_wrong_kind(r->f, at, "a string or an array of blocks", v);
    m->has_content = true;
    for (const struct json *b = v->child; b; b = b->next, i++)
        if (read_content_block(r, &(struct path){ at->up, at->member, i }, b, m))
            return -1;
    return 0;
}

/* ---- user messages */

/* Returns the name of the tool that was called. Results are mostly in the order of their calls, so
 * the search starts after the last match. */
static struct str find_call_name(struct block_reader *r, struct str id)
{
    enum { SEARCH_MAX = 64 };

    for (int i = 0; i < SEARCH_MAX && i < r->n_called; i++) {
        const struct tool_call *call = &r->called[(r->next_called + i) % r->n_called];
        if (!str_eq(call->id, id))
            continue;
        r->next_called = (r->next_called + i + 1) % r->n_called;
        return call->name;
    }
    return STR_NONE;
}

static int read_result(struct block_reader *r, const struct path *at, const struct json *v)
{
    const struct json *content = json_get(v, "content"), *failed = json_get(v, "is_error");
    struct message *m = open_message(r, ROLE_TOOL);

    if (path_need_text(r->f, AT(at, "tool_use_id"), json_get(v, "tool_use_id"), &m->tool_call_id))
        return -1;
    if (!json_is_null(failed) && failed->kind != JSON_BOOL)
        return path_wrong_kind(r->f, AT(at, "is_error"), "a boolean", failed);
    m->is_error = failed && failed->b;
    m->name = find_call_name(r, m->tool_call_id);
    if (json_is_null(content)) {
        add_text(r, m, STR(""));
        return 0;
    }
    return read_content(r, AT(at, "content"), content, m);
}

static int read_user(struct block_reader *r, const struct path *where, const struct json *content)
{
    int i = 0, n_results = 0;

    if (content->kind == JSON_ARRAY)
        for (const struct json *b = content->child; b; b = b->next, i++)
            if (is_block(b, "tool_result")) {
                n_results++;
                if (read_result(r, AT_INDEX(where, "content", i), b))
                    return -1;
            }
    if (n_results && (uint32_t)n_results == content->n)
        return 0;
    struct message *m = continue_message(r, ROLE_USER);
    if (!n_results)
        return read_content(r, AT(where, "content"), content, m);
    i = 0;
    for (const struct json *b = content->child; b; b = b->next, i++)
        if (!is_block(b, "tool_result") &&
            read_content_block(r, AT_INDEX(where, "content", i), b, m))
            return -1;
    return 0;
}

/* ---- assistant messages */

static int read_tool_use(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    const struct json *input = json_get(v, "input");
    struct tool_call *call = r->calls;

    *call = (struct tool_call){ .arguments = STR("{}") };
    if (path_need_text(r->f, AT(at, "id"), json_get(v, "id"), &call->id) ||
        path_need_text(r->f, AT(at, "name"), json_get(v, "name"), &call->name))
        return -1;
    if (!json_is_null(input)) {
        if (input->kind != JSON_OBJECT)
            return path_wrong_kind(r->f, AT(at, "input"), "an object", input);
        call->arguments = input->raw;
    }
    r->calls++;
    m->n_tool_calls++;
    r->called = m->tool_calls;
    r->n_called = m->n_tool_calls;
    r->next_called = 0;
    return 0;
}

/* A block without a valid signature is used, but counted: blocks of other servers are valid
 * context, and blocks of this server are unverified after a restart. */
static int read_thinking(struct block_reader *r, const struct path *at, const struct json *v)
{
    struct str thinking = STR_NONE, signature = STR("");

    if (path_need_text(r->f, AT(at, "thinking"), json_get(v, "thinking"), &thinking) ||
        path_take_text(r->f, AT(at, "signature"), json_get(v, "signature"), &signature))
        return -1;
    r->f->request->n_unverified_reasoning += !anthropic_signature_is_valid(thinking, signature);
    return 0;
}

static bool is_servers_block(struct str type)
{
    return str_is(type, "server_tool_use") || str_is(type, "container_upload") ||
           str_ends(type, STR("_tool_result"));
}

static int read_assistant_block(
    struct block_reader *r, const struct path *at, const struct json *v, struct message *m)
{
    struct str type;

    if (read_type(r->f, at, v, &type))
        return -1;
    if (str_is(type, "text"))
        return read_text_block(r, at, v, m);
    if (str_is(type, "tool_use"))
        return read_tool_use(r, at, v, m);
    if (str_is(type, "thinking"))
        return read_thinking(r, at, v);
    if (str_is(type, "redacted_thinking"))
        return 0; /* encrypted by another server */
    if (is_servers_block(type))
        return path_unsupported(r->f, at, "results of server-side tools are not accepted");
    return unknown_type(r->f, at, type);
}

/* Joins all thinking blocks of a message, separated by line breaks. The blocks have been
 * checked. */
static int join_thinking(struct block_reader *r, const struct json *content, struct message *m)
{
    size_t n = 0, at = 0;

    for (const struct json *b = content->child; b; b = b->next)
        n += is_block(b, "thinking") ? json_get(b, "thinking")->s.n + 1 : 0;
    if (!n)
        return 0;
    char *p = arena_alloc(r->f->arena, n);
    if (!p)
        return field_no_memory(r->f);
    for (const struct json *b = content->child; b; b = b->next) {
        if (!is_block(b, "thinking"))
            continue;
        struct str s = json_get(b, "thinking")->s;
        if (at)
            p[at++] = '\n';
        if (s.n)
            memcpy(p + at, s.p, s.n);
        at += s.n;
    }
    m->reasoning = (struct str){ p, at };
    return 0;
}

static bool has_thinking(const struct json *content)
{
    if (content->kind == JSON_ARRAY)
        for (const struct json *b = content->child; b; b = b->next)
            if (is_block(b, "thinking"))
                return true;
    return false;
}

/* A message with reasoning is not merged into the one before it, since that one can have reasoning
 * of its own. */
static int read_assistant(
    struct block_reader *r, const struct path *where, const struct json *content)
{
    struct message *m = has_thinking(content) ? open_message(r, ROLE_ASSISTANT)
                                              : continue_message(r, ROLE_ASSISTANT);
    int i = 0;

    if (content->kind != JSON_ARRAY)
        return read_content(r, AT(where, "content"), content, m);
    for (const struct json *b = content->child; b; b = b->next, i++)
        if (read_assistant_block(r, AT_INDEX(where, "content", i), b, m))
            return -1;
    return join_thinking(r, content, m);
}

/* ---- the conversation */

static int read_message(struct block_reader *r, const struct path *where, const struct json *v)
{
    struct str role;

    if (v->kind != JSON_OBJECT)
        return path_wrong_kind(r->f, where, "an object", v);
    const struct json *content = json_get(v, "content");
    if (path_need_text(r->f, AT(where, "role"), json_get(v, "role"), &role))
        return -1;
    if (json_is_null(content))
        return path_missing(r->f, AT(where, "content"));
    if (str_is(role, "user"))
        return read_user(r, where, content);
    if (str_is(role, "assistant"))
        return read_assistant(r, where, content);
    if (str_is(role, "system"))
        return read_content(r, AT(where, "content"), content, continue_message(r, ROLE_SYSTEM));
    struct path_text at = path_format(AT(where, "role"));
    return err_param(r->f->e, ERR_INVALID, at.z,
        "'%s' must be one of user, assistant, system, not '%.*s'.", at.z,
        (int)MIN(role.n, (size_t)40), role.p);
}

/* An empty system prompt counts as absent. */
static int read_system(struct block_reader *r, const struct json *system)
{
    if (!system || field_is_neutral(system))
        return 0;
    return read_content(r, AT(NULL, "system"), system, open_message(r, ROLE_SYSTEM));
}

int anthropic_read_convo(struct fields *f, const struct json *system, const struct json *messages)
{
    const char *name = "messages";
    struct block_reader r = { .f = f, .c = &f->request->convo };
    int i = 0;

    if (!messages)
        return field_missing(f, name);
    if (messages->kind != JSON_ARRAY)
        return field_wrong_kind(f, name, "an array", messages);
    if (!messages->n)
        return err_param(f->e, ERR_INVALID, name, "'messages' must not be empty.");
    if (messages->n > REQUEST_MESSAGES_MAX)
        return err_param(f->e, ERR_RANGE, name, "'messages' may have at most %d entries, not %u.",
            REQUEST_MESSAGES_MAX, messages->n);
    if (allocate_blocks(&r, system, messages) || read_system(&r, system))
        return -1;
    for (const struct json *m = messages->child; m; m = m->next, i++)
        if (read_message(&r, AT_INDEX(NULL, name, i), m))
            return -1;
    const struct message *last = &r.c->messages[r.c->n_messages - 1];
    r.c->continue_final_message = last->role == ROLE_ASSISTANT && !last->n_tool_calls;
    r.c->add_generation_prompt = !r.c->continue_final_message;
    return 0;
}
