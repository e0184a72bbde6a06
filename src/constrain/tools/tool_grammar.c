#include "constrain/tools/tool_grammar.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/json.h"
#include "constrain/constraint.h"
#include "constrain/grammar/gbnf.h"
#include "constrain/grammar/lark.h"
#include "constrain/grammar/structural_tag.h"
#include "constrain/regular/pattern.h"
#include "constrain/tools/tool_arguments.h"
#include "constrain/tools/tool_frame.h"
#include "constrain/tools/tool_triggers.h"

#include <stdio.h>

enum {
    TOOLS_ARENA_MAX = 64 << 20,
    NAME_TEXT_MAX = 8 * PARSER_NAME_MAX,
    PARSER_MARKS_MAX = 32,
    MESSAGES_MAX = 16
};

struct reader {
    struct grammar *g;
    const struct tool_format *f;
    const struct json *doc;
    struct err *e;
};

bool tool_grammar_exists(const struct tool_format *f)
{
    return f && f->before_name && f->after_args;
}

/* ---- frames */

static part_id frame_of(const struct reader *r, const char *text, unsigned flags)
{
    return text ? tool_frame(r->g, r->f, str_of(text), flags) : PART_EMPTY;
}

/* The tag between a name and an id (TAG_SKIP); .p NULL: none. */
static struct str id_tag(const struct tool_format *f)
{
    for (int i = 0; i < f->n_edges; i++)
        if (f->edges[i].from == TAG_NAME && f->edges[i].to == TAG_SKIP)
            return f->edges[i].literal;
    return STR_NONE;
}

/* An id of a call, which the model chooses. */
static part_id call_id(const struct reader *r)
{
    expr_id id = EXPR_NONE;

    if (pattern_compile(
            grammar_exprs(r->g), STR("[A-Za-z0-9_-]{1,40}"), TEXT_UTF8, PATTERN_FULL, &id, r->e))
        return PART_NEVER;
    return grammar_expr(r->g, id);
}

/* CALL_IDS_NAME: the number of the call; or the tag of an id before the tag of the arguments. */
static part_id id_after_name(const struct reader *r)
{
    const struct str skipped = tool_arguments_are_tagged(r->f) ? STR_NONE : id_tag(r->f);
    struct exprs *x = grammar_exprs(r->g);

    if (r->f->ids == CALL_IDS_NAME)
        return grammar_cat(r->g, grammar_literal(r->g, STR(":")),
            grammar_expr(r->g, expr_repeat(x, expr_range(x, '0', '9'), 1, 9)));
    if (!skipped.p)
        return PART_EMPTY;
    return grammar_alt(
        r->g, PART_EMPTY, grammar_cat(r->g, tool_frame(r->g, r->f, skipped, 0), call_id(r)));
}

/* From the name to the arguments. A newline that ends the name is exact unless a tag may follow the
 * name directly. */
static part_id after_name(const struct reader *r)
{
    bool is_json = r->f->body == BODY_JSON, is_tagged = tool_arguments_are_tagged(r->f);
    unsigned flags = is_json ? FRAME_IN_STRING : is_tagged ? 0 : FRAME_KEEP_FIRST;
    part_id parts[] = { id_after_name(r), frame_of(r, r->f->after_name, flags),
        is_tagged ? tool_frame_blanks(r->g) : PART_EMPTY };

    return grammar_cat_all(r->g, parts, ARRAY_LEN(parts));
}

/* From the arguments to the end of the call; JSON may have an id after the arguments. */
static part_id after_arguments(const struct reader *r)
{
    part_id end = frame_of(r, r->f->after_args, r->f->next_call ? 0 : FRAME_IS_LAST);

    if (r->f->body != BODY_JSON || r->f->flags & TOOL_KEY_IS_NAME)
        return end;
    part_id parts[] = { tool_frame(r->g, r->f, STR(", \"id\": \""), 0), call_id(r),
        tool_frame(r->g, r->f, STR("\""), FRAME_IN_STRING) };
    part_id id = grammar_cat_all(r->g, parts, ARRAY_LEN(parts));
    return grammar_cat(r->g, grammar_alt(r->g, PART_EMPTY, id), end);
}

/* ---- tools */

static int put_name(const struct reader *r, struct str name, part_id *names)
{
    struct buf b;

    for (size_t i = 0; i < name.n && r->f->body == BODY_TAGS; i++)
        if (strchr(" <>{}[]()\"'", name.p[i]))
            return err_set(r->e, ERR_UNSUPPORTED,
                "tool '%.*s': the tool call format of this model cannot write this name",
                (int)MIN(name.n, (size_t)64), name.p);
    buf_init(&b, NAME_TEXT_MAX);
    if (r->f->body == BODY_JSON)
        json_escape(&b, name);
    else
        buf_puts(&b, name);
    bool ok = buf_ok(&b);
    if (ok)
        *names = grammar_alt(r->g, *names, grammar_literal(r->g, buf_str(&b)));
    buf_clear(&b);
    return ok ? 0 : err_set(r->e, ERR_MEMORY, "no memory for the name of a tool");
}

/* schema NULL: any arguments */
static int arguments_of(const struct reader *r, const struct json *schema, part_id *out)
{
    if (tool_arguments_are_tagged(r->f))
        return tool_arguments_tagged(r->g, r->f, schema, out, r->e);
    *out = grammar_json(r->g, schema ? schema->raw : STR("{\"type\": \"object\"}"));
    return 0;
}

/* The tool is not strict. */
static bool is_optional(const struct json *tool)
{
    const struct json *v = json_get(tool, "optional");

    return v && v->kind == JSON_BOOL && v->b;
}

static void forgive(const struct reader *r)
{
    *r->e = (struct err){ 0 };
}

/* Tools with these arguments, from the name to after_args. */
static int put_call(
    const struct reader *r, part_id names, const struct json *schema, part_id *calls)
{
    part_id arguments;

    if (arguments_of(r, schema, &arguments))
        return -1;
    part_id parts[] = { names, after_name(r), arguments, after_arguments(r) };
    *calls = grammar_alt(r->g, *calls, grammar_cat_all(r->g, parts, ARRAY_LEN(parts)));
    return 0;
}

static int wrap_tool(const struct reader *r, struct str name)
{
    return err_wrap(r->e, "tool '%.*s'", (int)MIN(name.n, (size_t)64), name.p);
}

/* Arguments of an optional tool that cannot be enforced between tags. */
static bool is_unwritable(const struct reader *r, const struct json *tool)
{
    part_id ignored;

    if (!is_optional(tool) || !tool_arguments_are_tagged(r->f))
        return false;
    bool is_refused = arguments_of(r, json_get(tool, "parameters"), &ignored);
    if (is_refused)
        forgive(r);
    return is_refused;
}

/* All tools that take any arguments are one alternative. */
static int one_call(const struct reader *r, part_id *out)
{
    const struct json *tools = json_get(r->doc, "tools");
    part_id free_names = PART_NEVER;

    *out = PART_NEVER;
    for (const struct json *t = tools ? tools->child : NULL; t; t = t->next) {
        const struct json *name = json_get(t, "name"), *schema = json_get(t, "parameters");
        part_id names = PART_NEVER;
        if (!name || name->kind != JSON_STRING)
            return err_set(r->e, ERR_INVALID, "#/tools: a tool has no name");
        bool is_free = !schema || is_unwritable(r, t);
        if (put_name(r, name->s, is_free ? &free_names : &names))
            return -1;
        if (!is_free && put_call(r, names, schema, out))
            return wrap_tool(r, name->s);
    }
    return free_names.i == PART_NEVER.i ? 0 : put_call(r, free_names, NULL, out);
}

/* ---- calls */

static uint32_t calls_max(const struct reader *r)
{
    const struct json *max = json_get(r->doc, "max_calls");
    bool is_one = max && str_is(max->raw, "1");

    return is_one || !r->f->next_call ? 1 : PARSER_CALLS_MAX;
}

/* One call, and the calls that may follow it. */
static int read_calls(const struct reader *r, part_id *out)
{
    part_id one, more = PART_EMPTY;

    if (one_call(r, &one))
        return -1;
    rule_id call = grammar_rule(r->g, STR("call"));
    grammar_define(r->g, call, one);
    part_id ref = grammar_ref(r->g, call);
    uint32_t max = calls_max(r);
    if (max > 1) {
        part_id next = grammar_cat(r->g, frame_of(r, r->f->next_call, 0), ref);
        more = grammar_repeat(r->g, next, 0, max - 1);
    }
    *out = grammar_cat(r->g, ref, more);
    return 0;
}

/* Calls with the text before the first and after the last. */
static part_id frame_calls(const struct reader *r, part_id calls)
{
    part_id parts[] = { frame_of(r, r->f->before_name, 0), calls,
        frame_of(r, r->f->after_calls, FRAME_IS_LAST) };

    return grammar_cat_all(r->g, parts, ARRAY_LEN(parts));
}

/* ---- text and calls */

static bool is_auto(const struct reader *r)
{
    const struct json *v = json_get(r->doc, "text");

    return v && v->kind == JSON_BOOL && v->b;
}

/* Text without a trigger, and calls after each trigger. What follows calls that begin in the middle
 * of before_name is text, since the beginning of their list may be missing. */
static int text_and_calls(const struct reader *r, part_id calls, part_id *out)
{
    struct tool_trigger triggers[TOOL_TRIGGERS_MAX];
    struct str markers[TOOL_TRIGGERS_MAX];
    part_id group = frame_calls(r, calls);
    int n = tool_triggers(r->f, triggers);

    if (!n)
        return err_set(r->e, ERR_UNSUPPORTED, "#/text: calls of this format have no marker");
    for (int i = 0; i < n; i++)
        markers[i] = triggers[i].text;
    for (int i = 1; i < n; i++) {
        struct str before = str_skip(str_of(r->f->before_name), triggers[i].at);
        part_id one = grammar_cat(r->g, tool_frame(r->g, r->f, before, 0), calls);
        group = grammar_alt(r->g, group, one);
    }
    rule_id rule = grammar_rule(r->g, STR("text"));
    part_id again = calls_max(r) > 1 ? grammar_ref(r->g, rule) : PART_EMPTY;
    part_id rest = grammar_alt(r->g, PART_EMPTY, grammar_cat(r->g, group, again));
    part_id text = grammar_text_until(r->g, markers, (size_t)n);
    grammar_define(r->g, rule, grammar_cat(r->g, text, rest));
    *out = grammar_ref(r->g, rule);
    return 0;
}

/* ---- a value instead of calls */

static int put_choices(const struct reader *r, struct str text, part_id *out)
{
    struct json_limits limits = json_limits_default;
    struct arena *a = arena_new(TOOLS_ARENA_MAX);
    struct json *list = NULL;
    int rc = a ? json_parse(&list, text, a, &limits, r->e)
               : err_set(r->e, ERR_MEMORY, "no memory for a constraint");

    *out = PART_NEVER;
    for (const struct json *v = !rc && list->kind == JSON_ARRAY ? list->child : NULL; v;
         v = v->next)
        if (v->kind == JSON_STRING)
            *out = grammar_alt(r->g, *out, grammar_literal(r->g, v->s));
    arena_free(a);
    return rc;
}

static int put_regex(const struct reader *r, struct str text, part_id *out)
{
    expr_id x;

    if (pattern_compile(grammar_exprs(r->g), text, TEXT_UTF8, PATTERN_FULL, &x, r->e))
        return -1;
    *out = grammar_expr(r->g, x);
    return 0;
}

static int put_value(
    const struct reader *r, enum constraint_kind kind, struct str text, part_id *out)
{
    rule_id root;
    int rc = 0;

    switch (kind) {
    case CONSTRAINT_JSON:
        *out = grammar_json(r->g, STR("{\"type\": \"object\"}"));
        return 0;
    case CONSTRAINT_JSON_SCHEMA:
        *out = grammar_json(r->g, text);
        return 0;
    case CONSTRAINT_REGEX:
        return put_regex(r, text, out);
    case CONSTRAINT_CHOICE:
        return put_choices(r, text, out);
    case CONSTRAINT_GBNF:
        rc = gbnf_read(r->g, text, &root, r->e);
        break;
    case CONSTRAINT_LARK:
        rc = lark_read(r->g, text, &root, r->e);
        break;
    case CONSTRAINT_STRUCTURAL_TAG:
        rc = structural_tag_read(r->g, text, &root, r->e);
        break;
    case CONSTRAINT_TOOLS:
        return err_set(r->e, ERR_INVALID, "#/value: must not contain tool calls");
    }
    if (!rc)
        *out = grammar_ref(r->g, root);
    return rc;
}

static enum constraint_kind kind_of(const struct json *value)
{
    const struct json *kind = json_get(value, "kind");

    for (int k = 0; kind && k < CONSTRAINT_TOOLS; k++) {
        char text[8];
        snprintf(text, sizeof(text), "%d", k);
        if (str_is(kind->raw, text))
            return (enum constraint_kind)k;
    }
    return CONSTRAINT_TOOLS;
}

static int add_value(const struct reader *r, part_id *out)
{
    const struct json *value = json_get(r->doc, "value"), *text = json_get(value, "text");
    part_id part;

    if (!value)
        return 0;
    if (!text || text->kind != JSON_STRING)
        return err_set(r->e, ERR_INVALID, "#/value/text: must be a string");
    if (put_value(r, kind_of(value), text->s, &part))
        return -1;
    if (r->f->text_name) {
        part_id name = grammar_literal(r->g, str_of(r->f->text_name));
        part = grammar_cat(r->g, name, grammar_cat(r->g, grammar_literal(r->g, STR("\n")), part));
    }
    if (r->f->body == BODY_CHANNELS)
        part = grammar_cat(r->g, frame_of(r, "<|channel|>final<|message|>", 0), part);
    *out = grammar_alt(r->g, *out, part);
    return 0;
}

/* ---- messages */

/* Messages with reasoning, which precede the call (BODY_CHANNELS). The text of a message contains
 * no marker; control tokens are not text anyway. */
static part_id reasoning_messages(const struct reader *r)
{
    struct str markers[PARSER_MARKS_MAX];
    size_t n = 0;

    for (int i = 0; i < r->f->n_marks && n < PARSER_MARKS_MAX; i++)
        markers[n++] = r->f->marks[i].text;
    part_id parts[] = { frame_of(r, "<|channel|>analysis<|message|>", 0),
        grammar_text_until(r->g, markers, n), frame_of(r, "<|end|><|start|>assistant", 0) };
    return grammar_repeat(r->g, grammar_cat_all(r->g, parts, ARRAY_LEN(parts)), 0, MESSAGES_MAX);
}

/* ---- the document */

static int read_document(struct reader *r, rule_id *root)
{
    const struct json *format = json_get(r->doc, "format");
    part_id out;

    r->f = format && format->kind == JSON_STRING ? tool_format_find(format->s) : NULL;
    if (!tool_grammar_exists(r->f))
        return err_set(r->e, ERR_UNSUPPORTED, "#/format: there is no grammar for this format");
    if (read_calls(r, &out))
        return -1;
    if (is_auto(r)) {
        if (text_and_calls(r, out, &out))
            return -1;
    } else {
        out = frame_calls(r, out);
    }
    if (add_value(r, &out))
        return -1;
    if (r->f->body == BODY_CHANNELS)
        out = grammar_cat(r->g, reasoning_messages(r), out);
    *root = grammar_rule(r->g, STR("tool calls"));
    grammar_define(r->g, *root, out);
    return grammar_failed(r->g, r->e) ? -1 : 0;
}

int tool_grammar_read(struct grammar *g, struct str text, rule_id *root, struct err *e)
{
    struct json_limits limits = json_limits_default;
    struct arena *a = arena_new(TOOLS_ARENA_MAX);
    struct json *doc = NULL;

    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the tools");
    struct reader r = { .g = g, .e = e };
    int rc = json_parse(&doc, text, a, &limits, e);
    r.doc = doc;
    if (!rc)
        rc = read_document(&r, root);
    arena_free(a);
    return rc;
}

int tool_grammar_name_schema(struct str text, struct str schema, struct err *e)
{
    struct json_limits limits = json_limits_default;
    struct arena *a = arena_new(TOOLS_ARENA_MAX);
    struct json *doc = NULL;
    struct err ignored = { 0 };
    bool is_found = false, is_strict = false;

    if (a && !json_parse(&doc, text, a, &limits, &ignored)) {
        const struct json *tools = json_get(doc, "tools");
        for (const struct json *t = tools ? tools->child : NULL; t && !is_strict; t = t->next) {
            const struct json *name = json_get(t, "name"), *own = json_get(t, "parameters");
            bool is_this = name && own && str_eq(own->raw, schema);
            is_found = is_found || is_this;
            is_strict = is_this && !is_optional(t);
            if (is_strict)
                err_wrap(e, "tool '%.*s'", (int)MIN(name->s.n, (size_t)64), name->s.p);
        }
    }
    arena_free(a);
    return is_found && !is_strict && e->code != ERR_MEMORY ? 0 : -1;
}
