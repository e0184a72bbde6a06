#include "chat/template_probe.h"
#include "base/mem.h"
#include "output/parser.h"
#include "chat/reasoning_markers.h"

#include <stdio.h>

#define FUNCTION       "zqx_look_up"
#define ARGUMENTS      "{\"zqxcity\": \"Zqxpolis\", \"zqxdays\": 3}"
#define WORD           "Zqxword."
#define REASONING_TEXT "Zqxthought."

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"" FUNCTION "\",\"description\":\"D\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"zqxcity\":{\"type\":\"string\","
    "\"description\":\"c\"},\"zqxdays\":{\"type\":\"integer\",\"description\":\"d\"}},"
    "\"required\":[\"zqxcity\"]}}}]";

static const struct template_limits small_limits = { 200 * 1000, MB, 8 * MB, 500 };

struct probe_ctx {
    const struct chat_template *t;
    const struct template_env *env;
    const struct chat_family *family;
    struct arena *a;
    const struct json *tools;
    struct err *e;
    bool failed; /* no memory */
};

/* ---- small conversations */

static struct message text_message(enum role role, struct content_part *part)
{
    return (struct message){
        .role = role, .has_content = true, .is_plain = true, .parts = part, .n_parts = 1
    };
}

static struct content_part text_part(const char *text)
{
    return (struct content_part){ .kind = PART_TEXT, .text = str_of(text) };
}

/* A rejection by the template is a result of the probe; ERR_MEMORY is a failure. */
static void note_no_memory(struct probe_ctx *l, const struct err *e)
{
    if (e->code == ERR_MEMORY && !l->failed) {
        l->failed = true;
        *l->e = *e;
    }
}

/* .p is NULL if the template rejects the conversation. */
static struct str render(struct probe_ctx *l, const struct convo *c)
{
    struct rendered r;
    struct err e;

    if (!chat_template_render(l->t, c, l->env, &small_limits, l->a, &r, &e))
        return (struct str){ r.n_spans ? r.spans[0].text.p : "", r.n_bytes };
    note_no_memory(l, &e);
    return STR_NONE;
}

static struct str render_messages(
    struct probe_ctx *l, struct message *m, int n, const struct json *tools, bool begins)
{
    struct convo c = {
        .messages = m, .n_messages = n, .tools = tools, .add_generation_prompt = begins
    };
    return render(l, &c);
}

static struct str render_with(struct probe_ctx *l, const char *kwargs, const char *system)
{
    struct content_part s = text_part(system), u = text_part("hi");
    struct message m[] = { text_message(ROLE_SYSTEM, &s), text_message(ROLE_USER, &u) };
    struct convo c = { .messages = *system ? m : m + 1,
        .n_messages = *system ? 2 : 1,
        .add_generation_prompt = true };
    struct json *j;
    struct err e;

    if (*kwargs && json_parse(&j, str_of(kwargs), l->a, NULL, &e))
        note_no_memory(l, &e);
    else if (*kwargs)
        c.template_kwargs = j;
    return render(l, &c);
}

static bool shows(struct str text, const char *word)
{
    return text.p && str_find(text, str_of(word)) >= 0;
}

/* ---- the parser that reads the rendering back */

/* The assistant's text: the part after `head`, or after the prefix common with it. */
static struct str assistant_text_after(struct str text, struct str head)
{
    size_t n = 0;

    if (head.n && str_starts(text, head))
        return str_skip(text, head.n);
    while (n < text.n && n < head.n && text.p[n] == head.p[n])
        n++;
    while (n && text.p[n - 1] != '>' && text.p[n - 1] != ']' && text.p[n - 1] != '\n')
        n--; /* do not cut a marker with which both begin */
    return str_skip(text, n);
}

static bool is_our_call(struct probe_ctx *l, const struct parsed *r)
{
    struct json *got, *want;
    struct err e;

    if (r->n_calls != 1 || !str_is(r->calls[0].name, FUNCTION))
        return false;
    if (json_parse(&got, r->calls[0].arguments, l->a, NULL, &e) ||
        json_parse(&want, STR(ARGUMENTS), l->a, NULL, &e)) {
        note_no_memory(l, &e);
        return false;
    }
    return json_equal(got, want);
}

struct readback {
    bool is_good;
    size_t left_over; /* bytes that are neither the call nor the reasoning */
    size_t n_forced;  /* bytes of the rendering which a forced call of the format has too */
};

static struct readback read_back(
    struct probe_ctx *l, struct str text, const char *tool, const char *reasoning)
{
    struct parser_options o = { .tools = l->tools, .start = PARSER_START_CONTENT };
    struct parser_format *f = NULL;
    struct readback out = { 0 };
    struct parsed r;
    struct err e;

    if (parser_format_new(&f, str_of(tool), str_of(reasoning), &e)) {
        note_no_memory(l, &e);
        return out;
    }
    if (parse_text(&r, f, &o, text, &e)) {
        note_no_memory(l, &e);
    } else {
        out.left_over = r.content.n;
        out.is_good = *tool ? is_our_call(l, &r)
                            : str_eq(str_trim(buf_str(&r.reasoning)), STR(REASONING_TEXT)) &&
                                  shows(buf_str(&r.content), WORD);
    }
    parsed_clear(&r);
    parser_format_free(f);
    return out;
}

static bool is_better(struct readback a, struct readback b)
{
    return a.left_over < b.left_over || (a.left_over == b.left_over && a.n_forced > b.n_forced);
}

/* Length of the beginning of a forced call of this format, if the rendering has it; else 0. */
static size_t forced_prefix_length(struct str text, const char *id)
{
    const struct tool_format *t = tool_format_find(str_of(id));
    char prefix[256];

    if (!t || !t->before_name)
        return 0;
    snprintf(prefix, sizeof(prefix), "%s" FUNCTION "%s", t->before_name, t->after_name);
    return shows(text, prefix) ? strlen(prefix) : 0;
}

/* The parser with the fewest left-over bytes; of equal ones the family's, then the one whose forced
 * calls share the longest beginning with the rendering, then the first. */
static const char *best_parser(struct probe_ctx *l, struct str text, bool of_tools)
{
    const char *usual = of_tools ? l->family->tool : l->family->reasoning;
    const char *(*at)(size_t) = of_tools ? parser_tool_id : parser_reasoning_id;
    struct readback best = read_back(l, text, of_tools ? usual : "", of_tools ? "" : usual);
    const char *id = best.is_good ? usual : NULL;

    best.n_forced = SIZE_MAX;

    for (size_t i = 0; at(i) && !l->failed; i++) {
        struct readback r = read_back(l, text, of_tools ? at(i) : "", of_tools ? "" : at(i));
        if (!r.is_good)
            continue;
        r.n_forced = of_tools ? forced_prefix_length(text, at(i)) : 0;
        if (id && !is_better(r, best))
            continue;
        best = r;
        id = at(i);
    }
    return id;
}

/* ---- tools */

static void probe_tools(struct probe_ctx *l, struct template_features *out)
{
    struct content_part hi = text_part("hi"), empty = text_part(""),
                        result = text_part("Zqxresult");
    struct tool_call call = {
        .id = STR("zqxcall12"), .name = STR(FUNCTION), .arguments = STR(ARGUMENTS)
    };
    struct message m[3] = { text_message(ROLE_USER, &hi), text_message(ROLE_ASSISTANT, &empty),
        text_message(ROLE_TOOL, &result) };
    struct str head = render_messages(l, m, 1, l->tools, true);
    struct str text = STR_NONE, last = STR_NONE;

    out->supports_tools = shows(head, FUNCTION);
    m[1].tool_calls = &call;
    m[1].n_tool_calls = 1;
    m[2].tool_call_id = call.id;
    m[2].name = call.name;
    for (int empty_content = 0; empty_content < 2 && !out->supports_tool_calls; empty_content++) {
        m[1].has_content = empty_content;
        text = render_messages(l, m, 2, l->tools, false);
        out->needs_content |= empty_content && text.p && !last.p;
        last = text;
        out->supports_tool_calls |= shows(text, "Zqxpolis");
        if (shows(text, "Zqxpolis"))
            out->tool = best_parser(l, assistant_text_after(text, head), true);
        out->supports_tool_results |= shows(render_messages(l, m, 3, l->tools, true), "Zqxresult");
    }
    out->has_unknown_calls = out->supports_tool_calls && !out->tool;
}

/* ---- reasoning */

static bool matches_format(const struct probe_ctx *l, const struct reasoning_format *r,
    const struct str prompts[2], bool by_end)
{
    if (!by_end)
        return reasoning_marker_is_in(r, chat_template_source(l->t), MARK_REASONING_END);
    for (int i = 0; i < 2; i++)
        if (reasoning_marker_ends_prompt(r, prompts[i], MARK_REASONING) ||
            reasoning_marker_ends_prompt(r, prompts[i], MARK_REASONING_END))
            return true;
    return false;
}

/* Finds the format by the marker at the end of a prompt, or else by markers in the template source;
 * the family's format has precedence. */
static const char *reasoning_by_markers(const struct probe_ctx *l, const struct str prompts[2])
{
    for (int by_end = 1; by_end >= 0; by_end--) {
        const struct reasoning_format *r, *first = NULL;
        for (size_t i = 0; (r = reasoning_format_at(i)); i++) {
            if (!matches_format(l, r, prompts, by_end))
                continue;
            if (!strcmp(r->id, l->family->reasoning))
                return r->id;
            first = first ? first : r;
        }
        if (first)
            return first->id;
    }
    return NULL;
}

static void probe_toggle(struct probe_ctx *l, struct template_features *out, struct str prompts[2])
{
    static const struct {
        const char *on, *off;
        enum reasoning_toggle toggle;
    } variables[] = {
        { "{\"enable_thinking\":true}", "{\"enable_thinking\":false}", TOGGLE_ENABLE_THINKING },
        { "{\"thinking\":true}", "{\"thinking\":false}", TOGGLE_THINKING },
    };

    for (size_t i = 0; i < ARRAY_LEN(variables) && !out->toggle; i++) {
        struct str on = render_with(l, variables[i].on, "");
        struct str off = render_with(l, variables[i].off, "");
        if (!on.p || !off.p || str_eq(on, off))
            continue;
        out->toggle = variables[i].toggle;
        prompts[0] = on;
        prompts[1] = off;
    }
    if (!out->toggle && shows(chat_template_source(l->t), "/no_think")) {
        out->toggle = TOGGLE_NO_THINK;
        prompts[1] = render_with(l, "", "/no_think");
    }
    struct str low = render_with(l, "{\"reasoning_effort\":\"low\"}", "");
    struct str high = render_with(l, "{\"reasoning_effort\":\"high\"}", "");
    out->supports_reasoning_effort = low.p && high.p && !str_eq(low, high);
}

static void probe_reasoning(struct probe_ctx *l, struct template_features *out)
{
    struct content_part hi = text_part("hi"), word = text_part(WORD);
    struct message m[] = { text_message(ROLE_USER, &hi), text_message(ROLE_ASSISTANT, &word) };
    struct str plain = render_with(l, "", "");
    struct str prompts[2] = { plain, STR_NONE };

    probe_toggle(l, out, prompts);
    m[1].reasoning = STR(REASONING_TEXT);
    struct str text = render_messages(l, m, 2, NULL, false);
    if (shows(text, REASONING_TEXT))
        out->reasoning = best_parser(l, assistant_text_after(text, plain), false);
    if (!out->reasoning)
        out->reasoning = reasoning_by_markers(l, prompts);
    if (out->reasoning)
        out->reasons_by_default = reasoning_marker_ends_prompt(
            reasoning_format_find(str_of(out->reasoning)), plain, MARK_REASONING);
}

/* ---- roles */

static void probe_roles(struct probe_ctx *l, struct template_features *out)
{
    struct content_part word = text_part(WORD), hi = text_part("hi"), ho = text_part("ho");
    struct message front[] = { text_message(ROLE_SYSTEM, &word), text_message(ROLE_USER, &hi) };
    struct content_part first = text_part("Zqxfirst.");
    struct message late[] = { text_message(ROLE_SYSTEM, &first), text_message(ROLE_USER, &hi),
        text_message(ROLE_ASSISTANT, &ho), text_message(ROLE_SYSTEM, &word),
        text_message(ROLE_USER, &hi) };
    struct message same[] = { text_message(ROLE_USER, &word), text_message(ROLE_USER, &ho) };

    /* A template which rejects even a plain user message gets all conversations unchanged. */
    if (!shows(render_messages(l, front + 1, 1, NULL, true), "hi")) {
        out->supports_tools = out->supports_tool_calls = out->supports_tool_results = true;
        out->supports_system = out->supports_late_system = out->supports_same_role = true;
        return;
    }
    out->supports_system = shows(render_messages(l, front, 2, NULL, true), WORD);
    struct str twice = render_messages(l, late, 5, NULL, true);
    out->supports_late_system = shows(twice, "Zqxfirst.") && shows(twice, WORD);
    struct str both = render_messages(l, same, 2, NULL, true);
    out->supports_same_role = shows(both, WORD) && shows(both, "ho");
}

/* Finds the text after an assistant message, up to the end of its first token-like word, and
 * whether the whole text of an earlier user message is rendered. */
static void probe_turns(struct probe_ctx *l, struct template_features *out)
{
    struct content_part first = text_part("Zqxfirst, and " WORD " It is said."),
                        word = text_part(WORD), hi = text_part("hi");
    struct message m[] = { text_message(ROLE_USER, &first), text_message(ROLE_ASSISTANT, &word),
        text_message(ROLE_USER, &hi) };
    struct str text = render_messages(l, m, 3, NULL, true);
    ptrdiff_t user = text.p ? str_find(text, first.text) : -1;

    out->shows_all_users = user >= 0;
    if (user >= 0)
        text = str_skip(text, (size_t)user + first.text.n);
    ptrdiff_t at = text.p ? str_find(text, STR(WORD)) : -1;
    if (at < 0)
        return;
    struct str rest = str_trim(str_skip(text, (size_t)at + strlen(WORD)));
    size_t n = 0;
    while (n < rest.n && n < sizeof(out->end) - 1 && rest.p[n] != '\n' && rest.p[n] != ' ')
        if (rest.p[n++] == '>')
            break;
    memcpy(out->end, rest.p, n);
    out->end[n] = '\0';
}

int template_probe(struct template_features *out, const struct chat_template *t,
    const struct template_env *env, const struct chat_family *f, struct err *e)
{
    struct probe_ctx l = { .t = t, .env = env, .family = f, .e = e, .a = arena_new(64 * MB) };
    struct json *tools;

    *out = (struct template_features){ 0 };
    if (!l.a || json_parse(&tools, str_of(tools_text), l.a, NULL, e)) {
        arena_free(l.a);
        return err_set(e, ERR_MEMORY, "no memory to probe the template");
    }
    l.tools = tools;
    probe_tools(&l, out);
    probe_reasoning(&l, out);
    probe_roles(&l, out);
    probe_turns(&l, out);
    arena_free(l.a);
    return l.failed ? -1 : 0;
}
