#include "chat/convo_convert.h"

#define BAR            "\xEF\xBD\x9C"
#define LOW            "\xE2\x96\x81"
#define DEEPSEEK(word) "<" BAR "tool" LOW word BAR ">"

static const struct call_syntax call_syntaxes[] = {
    { "hermes_json", "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", true,
        false },
    { "glm4_xml", "<tool_call><name>", "</name><arguments>", "</arguments></tool_call>", false,
        false },
    { "llama_xml", "<function=", ">", "</function>", false, false },
    { "granite", "<|tool_call|>[{\"name\": \"", "\", \"arguments\": ", "}]", true, false },
    { "lfm2", "<|tool_call_start|>[", "(", ")]<|tool_call_end|>", false, true },
    { "deepseek_v3",
        DEEPSEEK("calls" LOW "begin") DEEPSEEK("call" LOW "begin") "function" DEEPSEEK("sep"),
        "\n```json\n", "\n```" DEEPSEEK("call" LOW "end") DEEPSEEK("calls" LOW "end"), false,
        false },
    { "deepseek_v31", DEEPSEEK("calls" LOW "begin") DEEPSEEK("call" LOW "begin"), DEEPSEEK("sep"),
        DEEPSEEK("call" LOW "end") DEEPSEEK("calls" LOW "end"), false, false },
};

const struct call_syntax *call_syntax_find(const char *tool)
{
    for (size_t i = 0; i < ARRAY_LEN(call_syntaxes); i++)
        if (!strcmp(call_syntaxes[i].tool, tool))
            return &call_syntaxes[i];
    return NULL;
}

/* ---- content as a list of trusted and untrusted parts */

struct part_list {
    struct arena *a;
    struct content_part *v;
    int n, cap;
    bool failed; /* no memory; further additions are ignored */
};

static void part_list_add(struct part_list *p, struct content_part part)
{
    if (p->n == p->cap && !p->failed) {
        int cap = MAX(2 * p->cap, 8);
        struct content_part *v =
            arena_realloc(p->a, p->v, (size_t)p->cap * sizeof(*v), (size_t)cap * sizeof(*v));
        p->failed = !v;
        p->v = v ? v : p->v;
        p->cap = v ? cap : p->cap;
    }
    if (!p->failed)
        p->v[p->n++] = part;
}

static void put_trusted(struct part_list *p, const char *text)
{
    part_list_add(
        p, (struct content_part){ .kind = PART_TEXT, .text = str_of(text), .is_trusted = true });
}

static void put_untrusted(struct part_list *p, struct str text)
{
    if (text.n)
        part_list_add(p, (struct content_part){ .kind = PART_TEXT, .text = text });
}

/* The parts of a client's message are separated by newlines, as in message_text. */
static void put_content(struct part_list *p, const struct message *m)
{
    bool is_first = true;

    for (int i = 0; i < m->n_parts; i++) {
        if (!is_first && !m->parts[i].is_trusted && !m->parts[i - 1].is_trusted)
            put_trusted(p, "\n");
        is_first = false;
        part_list_add(p, m->parts[i]);
    }
}

static bool has_any_content(const struct message *m)
{
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].kind != PART_TEXT || m->parts[i].text.n)
            return true;
    return false;
}

/* Replaces the content of the message by the list, and drops its raw JSON. */
static void set_content(struct message *m, const struct part_list *p)
{
    m->parts = p->v;
    m->n_parts = p->n;
    m->has_content = true;
    m->is_plain = true;
    m->raw = NULL;
    for (int i = 0; i < p->n; i++)
        m->is_plain &= p->v[i].kind == PART_TEXT;
}

/* Appends the contents of a buffer as an untrusted part, and frees the buffer. */
static void put_written(struct part_list *p, struct buf *b)
{
    struct str s = buf_ok(b) ? arena_str(p->a, buf_str(b)) : STR_NONE;

    p->failed |= !s.p;
    if (s.p)
        put_untrusted(p, s);
    buf_clear(b);
}

/* ---- calls and results as text */

static void python_value(struct buf *b, const struct json *j)
{
    bool is_first = true;

    switch (j->kind) {
    case JSON_NULL:
        buf_putz(b, "None");
        return;
    case JSON_BOOL:
        buf_putz(b, j->b ? "True" : "False");
        return;
    case JSON_NUMBER:
    case JSON_STRING:
        buf_puts(b, j->raw);
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        buf_putc(b, j->kind == JSON_ARRAY ? '[' : '{');
        for (const struct json *c = j->child; c; c = c->next, is_first = false) {
            buf_putz(b, is_first ? "" : ", ");
            if (j->kind == JSON_OBJECT) {
                buf_putc(b, '"');
                json_escape(b, c->key);
                buf_putz(b, "\": ");
            }
            python_value(b, c); /* depth is bounded by the limits of json_parse */
        }
        buf_putc(b, j->kind == JSON_ARRAY ? ']' : '}');
        return;
    }
}

static void put_python(struct part_list *p, struct str arguments)
{
    static const struct json_limits limits = { .max_depth = 64, .max_nodes = 100000 };
    struct json *j = NULL;
    struct buf b;
    struct err e;

    buf_init(&b, 64 * MB);
    if (!json_parse(&j, arguments, p->a, &limits, &e) && j->kind == JSON_OBJECT)
        for (const struct json *c = j->child; c; c = c->next) {
            buf_puts(&b, c->key);
            buf_putc(&b, '=');
            python_value(&b, c);
            buf_putz(&b, c->next ? ", " : "");
        }
    else
        buf_puts(&b, arguments);
    put_written(p, &b);
}

static void put_call(
    struct part_list *p, const struct call_syntax *w, struct str name, struct str args)
{
    struct buf b;

    put_trusted(p, w->open);
    buf_init(&b, 64 * MB);
    if (w->is_json)
        json_escape(&b, name);
    else
        buf_puts(&b, name);
    put_written(p, &b);
    put_trusted(p, w->mid);
    if (w->is_python)
        put_python(p, args);
    else
        put_untrusted(p, args.n ? args : STR("{}"));
    put_trusted(p, w->close);
}

static void calls_become_text(struct message *m, const struct call_syntax *w, struct part_list *p)
{
    put_content(p, m);
    for (int i = 0; i < m->n_tool_calls; i++) {
        if (i || has_any_content(m))
            put_trusted(p, "\n");
        put_call(p, w, m->tool_calls[i].name, m->tool_calls[i].arguments);
    }
    m->n_tool_calls = 0;
    set_content(m, p);
}

static void result_becomes_text(struct message *m, struct part_list *p)
{
    put_trusted(p, "<tool_response>\n");
    put_content(p, m);
    put_trusted(p, "\n</tool_response>");
    m->role = ROLE_USER;
    m->name = m->tool_call_id = STR_NONE;
    set_content(m, p);
}

/* ---- tools in the system message */

static void put_tools(struct part_list *p, const struct json *tools, const struct call_syntax *w)
{
    put_trusted(p,
        "# Tools\n\nYou can call functions. Each line between the tags describes one, as "
        "JSON:\n<tools>\n");
    for (const struct json *t = tools->child; t; t = t->next) {
        struct buf b;
        struct jw out;
        buf_init(&b, 64 * MB);
        jw_init(&out, &b);
        jw_json(&out, t);
        put_written(p, &b);
        put_trusted(p, "\n");
    }
    put_trusted(p,
        "</tools>\n\nTo call a function, write its name and arguments like this, once for "
        "each call:\n");
    put_call(p, w, STR("name_of_the_function"), STR("{\"name_of_an_argument\": \"its value\"}"));
    put_trusted(p,
        "\nWhat it answers comes back between <tool_response> and </tool_response>. When "
        "no function helps, answer without one.");
}

/* ---- list of messages */

struct message_list {
    struct arena *a;
    struct message *v;
    int n;
    bool failed;
};

static struct part_list new_part_list(const struct message_list *l)
{
    return (struct part_list){ .a = l->a };
}

static bool is_system(const struct message *m)
{
    return m->role == ROLE_SYSTEM || m->role == ROLE_DEVELOPER;
}

static void messages_become_text(struct message_list *l, const struct convert_options *o)
{
    for (int i = 0; i < l->n; i++) {
        struct message *m = &l->v[i];
        struct part_list p = new_part_list(l);
        bool is_result = m->role == ROLE_TOOL || m->role == ROLE_FUNCTION;
        if (!m->has_content && o->template_features->needs_content)
            m->has_content = m->is_plain = true;
        if (is_result && !o->template_features->supports_tool_results)
            result_becomes_text(m, &p);
        else if (m->n_tool_calls && !o->template_features->supports_tool_calls)
            calls_become_text(m, o->call_syntax, &p);
        l->failed |= p.failed;
    }
}

/* The list has room for one more message. */
static struct message *first_system(struct message_list *l)
{
    if (!l->n || !is_system(&l->v[0])) {
        memmove(l->v + 1, l->v, (size_t)l->n * sizeof(*l->v));
        l->v[0] = (struct message){ .role = ROLE_SYSTEM, .has_content = true, .is_plain = true };
        l->n++;
    }
    return &l->v[0];
}

static void extend_system(
    struct message_list *l, const struct convo *in, const struct convert_options *o)
{
    struct message *m = first_system(l);
    struct part_list p = new_part_list(l);

    put_content(&p, m);
    if (o->injects) {
        put_trusted(&p, p.n ? "\n\n" : "");
        put_tools(&p, in->tools, o->call_syntax);
    }
    if (o->no_think)
        put_trusted(&p, p.n ? "\n/no_think" : "/no_think");
    set_content(m, &p);
    l->failed |= p.failed;
}

/* Messages [from, to) as one: the first, with the content of all. */
static struct message join_messages(struct message_list *l, int from, int to)
{
    struct message all = l->v[from];
    struct part_list p = new_part_list(l);
    bool has_any = false;

    for (int i = from; i < to; i++) {
        bool has_some = has_any_content(&l->v[i]);
        if (has_any && has_some)
            put_trusted(&p, "\n\n");
        has_any |= has_some;
        put_content(&p, &l->v[i]);
    }
    set_content(&all, &p);
    l->failed |= p.failed;
    return all;
}

/* Replaces messages [from, to) by their join. */
static void join_in_place(struct message_list *l, int from, int to)
{
    l->v[from] = join_messages(l, from, to);
    memmove(l->v + from + 1, l->v + to, (size_t)(l->n - to) * sizeof(*l->v));
    l->n -= to - from - 1;
}

static void become_user(struct message *m)
{
    m->role = ROLE_USER;
    m->raw = NULL;
}

static void place_systems(struct message_list *l, const struct template_features *k)
{
    int n_front = 0;

    while (n_front < l->n && is_system(&l->v[n_front]))
        n_front++;
    if (n_front > 1 && !k->supports_late_system)
        join_in_place(l, 0, n_front);
    for (int i = 1; i < l->n && !k->supports_late_system; i++)
        if (is_system(&l->v[i]))
            become_user(&l->v[i]);
    if (!l->n || k->supports_system || !is_system(&l->v[0]))
        return;
    if (l->n > 1 && l->v[1].role == ROLE_USER)
        join_in_place(l, 0, 2);
    become_user(&l->v[0]);
}

static bool can_join(const struct message *a, const struct message *b)
{
    return a->role == b->role && (a->role == ROLE_USER || a->role == ROLE_ASSISTANT) &&
           !a->n_tool_calls && !b->n_tool_calls;
}

static void join_roles(struct message_list *l)
{
    int n = 0;

    for (int from = 0, to; from < l->n; from = to) {
        for (to = from + 1; to < l->n && can_join(&l->v[from], &l->v[to]);)
            to++;
        l->v[n++] = to > from + 1 ? join_messages(l, from, to) : l->v[from];
    }
    l->n = n;
}

static bool is_supported(const struct convo *c, const struct convert_options *o)
{
    const struct template_features *k = o->template_features;

    if (o->injects || o->no_think)
        return false;
    for (int i = 0; i < c->n_messages; i++) {
        const struct message *m = &c->messages[i];
        bool is_result = m->role == ROLE_TOOL || m->role == ROLE_FUNCTION;
        if ((!m->has_content && k->needs_content) || (is_result && !k->supports_tool_results) ||
            (m->n_tool_calls && !k->supports_tool_calls) ||
            (is_system(m) && !(i ? k->supports_late_system : k->supports_system)) ||
            (i && !k->supports_same_role && m->role == m[-1].role))
            return false;
    }
    return true;
}

int convo_convert(struct convo *out, const struct convo *in, const struct convert_options *o,
    struct arena *a, struct err *e)
{
    struct message_list l = { .a = a, .n = in->n_messages };

    *out = *in;
    if (is_supported(in, o))
        return 0;
    l.v = arena_zalloc(a, (size_t)in->n_messages + 1, sizeof(*l.v));
    if (!l.v)
        return err_set(e, ERR_MEMORY, "no memory for the conversation");
    if (in->n_messages)
        memcpy(l.v, in->messages, (size_t)in->n_messages * sizeof(*l.v));
    messages_become_text(&l, o);
    if (o->injects || o->no_think)
        extend_system(&l, in, o);
    place_systems(&l, o->template_features);
    if (!o->template_features->supports_same_role)
        join_roles(&l);
    if (l.failed)
        return err_set(e, ERR_MEMORY, "no memory for the conversation");
    out->messages = l.v;
    out->n_messages = l.n;
    out->tools = o->injects ? NULL : in->tools;
    return 0;
}
