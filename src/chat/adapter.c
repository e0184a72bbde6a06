#include "chat/adapter.h"
#include "base/mem.h"
#include "chat/learn.h"
#include "chat/thinking.h"

struct adapter {
    const struct chat_template *template;
    struct template_env env;
    const struct chat_family *family;
    const struct thinking_row *thinking;
    struct learned learned;
    struct parser_format *format;
    struct adapter_info info;
};

static bool is_said(const char *z)
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

static int choose_parsers(struct adapter *a, const struct adapter_options *o, struct err *e)
{
    const struct learned *l = &a->learned;
    const char *tool = is_said(o->tool) ? o->tool : l->tool ? l->tool : a->family->tool;
    const char *thinking = is_said(o->thinking) ? o->thinking
                           : l->thinking        ? l->thinking
                                                : a->family->thinking;

    if (parser_format_new(&a->format, str_of(tool), str_of(thinking), e))
        return -1;
    a->info.tool_parser = parser_format_tool(a->format);
    a->info.thinking_parser = parser_format_thinking(a->format);
    a->thinking = thinking_find(a->info.thinking_parser);
    return 0;
}

int adapter_open(struct adapter **out, const struct adapter_options *o, struct err *e)
{
    struct adapter *a = xcalloc(1, sizeof(*a));
    struct learned *l = &a->learned;

    a->template = o->template;
    a->env = *o->env;
    if (find_family(a, o, e) || (o->template && chat_learn(l, o->template, o->env, a->family, e)) ||
        choose_parsers(a, o, e)) {
        adapter_close(a);
        return -1;
    }
    bool reads_calls = strcmp(a->info.tool_parser, "null") != 0;
    bool reads_thoughts = strcmp(a->info.thinking_parser, "null") != 0;
    a->info.family = a->family->name;
    a->info.has_native_tools = l->takes_tools;
    a->info.can_call_tools = l->takes_tools && reads_calls;
    a->info.can_think = reads_thoughts && (l->thinking || is_said(o->thinking) ||
                                              a->thinking->flags & THINKING_IS_CHANNEL);
    a->info.can_toggle_thinking = a->info.can_think && l->toggle != TOGGLE_NONE;
    a->info.thinks_by_default = l->thinks_by_default;
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

int adapter_render(const struct adapter *a, const struct convo *c, int64_t now, struct arena *to,
    struct rendered *out, struct err *e)
{
    struct template_env env = a->env;

    if (!a->template)
        return err_param(
            e, ERR_UNSUPPORTED, "messages", "The model has no chat template; use /v1/completions.");
    env.now = now;
    return chat_template_render(a->template, c, &env, &template_limits_default, to, out, e);
}

/* ---- how an answer begins */

static struct str last_text(const struct convo *c)
{
    const struct message *m = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;

    for (int i = m ? m->n_parts : 0; i-- > 0;)
        if (m->parts[i].kind == PART_TEXT)
            return m->parts[i].text;
    return STR("");
}

enum parser_start adapter_start(
    const struct adapter *a, const struct convo *c, const struct rendered *prompt)
{
    const struct span *last = prompt->n_spans ? &prompt->spans[prompt->n_spans - 1] : NULL;
    struct str begun = c->continue_final_message ? str_trim(last_text(c)) : STR("");

    if (begun.n)
        return thinking_is_open(a->thinking, begun) ? PARSER_START_THINKING : PARSER_START_CONTENT;
    /* What a user wrote does not open a thinking. */
    if (!last || !last->is_trusted)
        return PARSER_START_DEFAULT;
    if (thinking_ends_prompt(a->thinking, last->text, MARK_THINK))
        return PARSER_START_THINKING;
    return thinking_ends_prompt(a->thinking, last->text, MARK_THINK_END) ? PARSER_START_CONTENT
                                                                         : PARSER_START_DEFAULT;
}
