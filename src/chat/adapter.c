#include "chat/adapter.h"
#include "base/mem.h"
#include "chat/call_ids.h"
#include "chat/convo_convert.h"
#include "jinja/text.h"
#include "chat/reasoning_markers.h"

enum { END_TOKENS_MAX = 4 };

struct adapter {
    const struct chat_template *template;
    const struct vocab *vocab;
    struct template_env env;
    const struct chat_family *family;
    const struct reasoning_format *reasoning;
    struct template_features template_features;
    const struct call_syntax *call_syntax; /* for tool calls which the template does not render */
    bool injects;                          /* tools are listed in the system message */
    struct parser_format *format;
    int32_t end_tokens[END_TOKENS_MAX];
    int n_end_tokens;
    struct str turn_end; /* see adapter_turn_end */
    struct adapter_info info;
};

static bool is_set(const char *z)
{
    return z && *z;
}

static int find_family(struct adapter *a, const struct adapter_options *o, struct err *e)
{
    struct str source = o->template ? chat_template_source(o->template) : STR_NONE;

    a->family =
        o->family.n ? chat_family_find(o->family) : chat_family_detect(o->arch, source, o->vocab);
    return a->family
               ? 0
               : err_set(e, ERR_NOT_FOUND, "no chat family '" STR_FMT "'", STR_ARG(o->family));
}

/* The format of the model's family, unless the template disproves it. Families with other formats
 * have markers of their own; those with hermes_json share theirs with models of any format, so that
 * the template must mention it. */
static const char *family_tool(const struct adapter *a, const struct adapter_options *o)
{
    struct str source = o->template ? chat_template_source(o->template) : STR("");
    bool is_hermes = !strcmp(a->family->tool, "hermes_json");
    bool shows_hermes =
        str_find(source, STR("<tool_call>")) >= 0 && str_find(source, STR("arguments")) >= 0;

    if (a->template_features.has_unknown_calls || (is_hermes && !shows_hermes))
        return "null";
    return a->family->tool;
}

/* Tools in the system prompt need a call syntax. If the model has none of its own, or one that
 * cannot be written here, it is hermes_json, which most models were trained on. */
static const char *choose_tool(struct adapter *a, const struct adapter_options *o)
{
    const struct template_features *l = &a->template_features;
    const char *shown = l->tool ? l->tool : family_tool(a, o);
    const char *usual = o->known ? o->known->tool_parser_id : shown;
    const char *id = is_set(o->tool) ? o->tool : usual;

    a->info.has_unknown_calls = !a->injects && !is_set(o->tool) && !strcmp(shown, "null") &&
                                !strcmp(usual, "null") &&
                                (l->supports_tools || l->has_unknown_calls);

    a->call_syntax = call_syntax_find(id);
    if (a->injects && !a->call_syntax && !is_set(o->tool) && !o->known)
        id = "hermes_json";
    a->call_syntax = a->call_syntax ? a->call_syntax : call_syntax_find("hermes_json");
    return id;
}

/* The reasoning format of the family, if the model's own template mentions it: models of one
 * family exist with and without reasoning, and text that looks like a marker must not be taken for
 * one. */
static const char *family_reasoning(const struct adapter *a, const struct adapter_options *o)
{
    const struct reasoning_format *r = reasoning_format_find(str_of(a->family->reasoning));
    struct str source = o->template ? chat_template_source(o->template) : STR("");
    bool is_own = !a->family->source || !str_is(source, a->family->source);

    if (!r || !is_own || r->flags & REASONING_IS_CHANNEL ||
        reasoning_marker_is_in(r, source, MARK_REASONING) ||
        reasoning_marker_is_in(r, source, MARK_REASONING_END))
        return a->family->reasoning;
    return "null";
}

static int choose_parsers(struct adapter *a, const struct adapter_options *o, struct err *e)
{
    const struct template_features *l = &a->template_features;
    const char *reasoning = is_set(o->reasoning) ? o->reasoning
                            : o->known           ? o->known->thinking_parser_id
                            : l->reasoning       ? l->reasoning
                                                 : family_reasoning(a, o);
    bool wants_injection = o->known && !is_set(o->tool)
                               ? !strcmp(o->known->tool_format, "injection")
                               : !l->supports_tools;

    a->injects = o->template && wants_injection && !o->no_injection;
    if (parser_format_new(&a->format, str_of(choose_tool(a, o)), str_of(reasoning), e))
        return -1;
    a->info.tool_parser = parser_format_tool(a->format);
    a->info.thinking_parser = parser_format_reasoning(a->format);
    a->reasoning = reasoning_format_find(str_of(a->info.thinking_parser));
    return 0;
}

static void add_end_token(struct adapter *a, const struct vocab *v, struct str name)
{
    int32_t id = v && name.n ? vocab_find(v, name) : TOKEN_NONE;
    bool is_marker = id != TOKEN_NONE && (vocab_attr(v, id) == TOKEN_CONTROL ||
                                             vocab_attr(v, id) == TOKEN_USER_DEFINED);

    if (is_marker && a->n_end_tokens < END_TOKENS_MAX)
        a->end_tokens[a->n_end_tokens++] = id;
}

/* End tokens: those of the family, and the text that the template puts after an assistant message,
 * unless it is a marker that a parser needs. */
static void find_end_tokens(struct adapter *a, const struct vocab *v)
{
    struct str name = str_of(a->family->end_tokens);

    while (name.n) {
        size_t n = MIN(strcspn(name.p, " "), name.n);
        add_end_token(a, v, (struct str){ name.p, n });
        name = str_skip(name, n + 1);
    }
    if (!parser_format_has_marker(a->format, str_of(a->template_features.end)))
        add_end_token(a, v, str_of(a->template_features.end));
}

/* Finds the end marker of a built-in template in the vocabulary. The vocabulary of a model that
 * brings its own template has the markers of that template. */
static void find_turn_end(struct adapter *a, const struct vocab *v)
{
    struct str end = str_of(a->template_features.end);
    bool is_built_in = a->template && a->family->source &&
                       str_is(chat_template_source(a->template), a->family->source);
    int32_t id = v && end.n ? vocab_find(v, end) : TOKEN_NONE;
    bool is_end = id != TOKEN_NONE && (vocab_is_end(v, id) || adapter_is_end(a, id));

    if (v && is_built_in && !is_end && !parser_format_has_marker(a->format, end))
        a->turn_end = end;
}

int adapter_open(struct adapter **out, const struct adapter_options *o, struct err *e)
{
    struct adapter *a = xcalloc(1, sizeof(*a));
    struct template_features *l = &a->template_features;

    a->template = o->template;
    a->vocab = o->vocab;
    a->env = *o->env;
    if (find_family(a, o, e) ||
        (o->template && template_probe(l, o->template, o->env, a->family, e)) ||
        choose_parsers(a, o, e)) {
        adapter_close(a);
        return -1;
    }
    find_end_tokens(a, o->vocab);
    find_turn_end(a, o->vocab);
    bool parses_calls = strcmp(a->info.tool_parser, "null") != 0;
    bool parses_reasoning = strcmp(a->info.thinking_parser, "null") != 0;
    a->info.family = a->family->name;
    a->info.injects_tools = a->injects;
    a->info.has_native_tools = l->supports_tools;
    a->info.can_call_tools = (l->supports_tools || a->injects) && parses_calls;
    a->info.can_reason = parses_reasoning && (l->reasoning || is_set(o->reasoning) ||
                                                 a->reasoning->flags & REASONING_IS_CHANNEL ||
                                                 (o->known && o->known->supports_thinking));
    a->info.can_toggle_reasoning = a->info.can_reason && l->toggle != TOGGLE_NONE;
    a->info.reasons_by_default = l->reasons_by_default;
    *out = a;
    return 0;
}

void adapter_close(struct adapter *a)
{
    if (!a)
        return;
    parser_format_free(a->format);
    mem_free(a);
}

const struct parser_format *adapter_format(const struct adapter *a)
{
    return a->format;
}

const struct adapter_info *adapter_info(const struct adapter *a)
{
    return &a->info;
}

bool adapter_is_end(const struct adapter *a, int32_t id)
{
    for (int i = 0; i < a->n_end_tokens; i++)
        if (a->end_tokens[i] == id)
            return true;
    return false;
}

struct str adapter_turn_end(const struct adapter *a)
{
    return a->turn_end;
}

/* ---- prompt */

enum reasoning_wish { WISH_NONE, WISH_THINK, WISH_NO_THINK };

static enum reasoning_wish wanted_reasoning(const struct json *kwargs)
{
    static const char *const names[] = { "enable_thinking", "thinking" };

    for (size_t i = 0; kwargs && i < ARRAY_LEN(names); i++) {
        const struct json *j = json_get(kwargs, names[i]);
        if (j && j->kind == JSON_BOOL)
            return j->b ? WISH_THINK : WISH_NO_THINK;
    }
    return WISH_NONE;
}

/* Inserts a member at the front: of two members with one name the last wins, which is the
 * client's. */
static int add_member(struct convo *c, struct json member, struct arena *a, struct err *e)
{
    const struct json *own = c->template_kwargs;
    struct json *all = arena_zalloc(a, 1, sizeof(*all)), *m = arena_alloc(a, sizeof(*m));

    if (!all || !m)
        return err_set(e, ERR_MEMORY, "no memory for the conversation");
    member.next = own ? own->child : NULL;
    *m = member;
    *all = (struct json){ .kind = JSON_OBJECT, .n = 1 + (own ? own->n : 0), .child = m };
    c->template_kwargs = all;
    return 0;
}

static int set_reasoning_toggle(
    const struct adapter *a, struct convo *c, struct arena *to, struct err *e)
{
    enum reasoning_wish reasoning_wish = wanted_reasoning(c->template_kwargs);
    struct json on = { .kind = JSON_BOOL, .b = reasoning_wish == WISH_THINK };
    struct json low = { .kind = JSON_STRING, .key = STR("reasoning_effort"), .s = STR("low") };

    if (reasoning_wish == WISH_NONE)
        return 0;
    switch (a->template_features.toggle) {
    case TOGGLE_ENABLE_THINKING:
        on.key = STR("enable_thinking");
        return add_member(c, on, to, e);
    case TOGGLE_THINKING:
        on.key = STR("thinking");
        return add_member(c, on, to, e);
    case TOGGLE_NO_THINK:
        return 0;
    case TOGGLE_NONE:
        break;
    }
    /* Reasoning cannot be turned off, but its effort can be reduced. */
    return reasoning_wish == WISH_NO_THINK && a->template_features.supports_reasoning_effort
               ? add_member(c, low, to, e)
               : 0;
}

int adapter_render(const struct adapter *a, const struct convo *c,
    const struct render_options *when, struct arena *to, struct rendered *out, struct err *e)
{
    struct template_env env = a->env;
    struct convo with_ids, converted;
    bool has_tools = !json_is_null(c->tools) && c->tools->n > 0;
    struct convert_options o = { &a->template_features, a->call_syntax, has_tools && a->injects,
        a->template_features.toggle == TOGGLE_NO_THINK &&
            wanted_reasoning(c->template_kwargs) == WISH_NO_THINK };

    if (!a->template)
        return err_param(
            e, ERR_UNSUPPORTED, "messages", "The model has no chat template; use /v1/completions.");
    if (has_tools && !a->template_features.supports_tools && !a->injects)
        return err_param(e, ERR_UNSUPPORTED, "tools", "The model does not support tools.");
    env.now = when->now;
    env.stop = when->stop;
    if (call_ids_convert(&with_ids, c, parser_format_ids(a->format), to, e) ||
        convo_convert(&converted, &with_ids, &o, to, e) ||
        set_reasoning_toggle(a, &converted, to, e))
        return -1;
    return chat_template_render(
        a->template, &converted, &env, &template_limits_default, to, out, e);
}

/* ---- lower bound of the prompt length */

/* Without blanks at both ends, which templates trim. */
static size_t text_min_tokens(const struct vocab *v, struct str s)
{
    s = str_skip(s, leading_space(s));
    s.n -= trailing_space(s);
    return vocab_min_tokens(v, s);
}

static bool is_user_text(const struct message *m, const struct content_part *p)
{
    return m->role == ROLE_USER && p->kind == PART_TEXT && !p->is_trusted;
}

size_t adapter_min_tokens(const struct adapter *a, const struct convo *c, size_t n_max)
{
    size_t n_bytes = 0, n = 0;

    if (!a->vocab || !a->template_features.shows_all_users)
        return 0;
    for (int i = 0; i < c->n_messages; i++)
        for (int k = 0; k < c->messages[i].n_parts; k++)
            if (is_user_text(&c->messages[i], &c->messages[i].parts[k]))
                n_bytes += c->messages[i].parts[k].text.n;
    if (n_bytes <= n_max) /* the common case */
        return 0;
    for (int i = 0; i < c->n_messages; i++)
        for (int k = 0; k < c->messages[i].n_parts; k++) {
            const struct content_part *p = &c->messages[i].parts[k];
            size_t more = is_user_text(&c->messages[i], p) ? text_min_tokens(a->vocab, p->text) : 0;
            n += more && n ? more - 1 : more; /* two texts may share a token */
        }
    return n;
}

/* ---- parser state at the first generated token */

static struct str last_text(const struct convo *c)
{
    const struct message *m = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;

    for (int i = m ? m->n_parts : 0; i-- > 0;)
        if (m->parts[i].kind == PART_TEXT)
            return m->parts[i].text;
    return STR("");
}

enum parser_start adapter_start_for_format(
    const struct reasoning_format *row, const struct convo *c, const struct rendered *prompt)
{
    const struct span *last = prompt->n_spans ? &prompt->spans[prompt->n_spans - 1] : NULL;
    struct str begun = c->continue_final_message ? str_trim(last_text(c)) : STR("");

    if (begun.n)
        return reasoning_is_open(row, begun) ? PARSER_START_REASONING : PARSER_START_CONTENT;
    /* Untrusted text does not open reasoning. */
    if (!last || !last->is_trusted)
        return PARSER_START_DEFAULT;
    if (reasoning_marker_ends_prompt(row, last->text, MARK_REASONING))
        return PARSER_START_REASONING;
    return reasoning_marker_ends_prompt(row, last->text, MARK_REASONING_END) ? PARSER_START_CONTENT
                                                                             : PARSER_START_DEFAULT;
}

enum parser_start adapter_start(
    const struct adapter *a, const struct convo *c, const struct rendered *prompt)
{
    return adapter_start_for_format(a->reasoning, c, prompt);
}
