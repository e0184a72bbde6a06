#include "constrain/tools/tool_arguments.h"

#include "base/buf.h"
#include "constrain/regular/pattern.h"
#include "constrain/tools/tool_frame.h"
#include "constrain/tools/tool_text.h"
#include "output/coerce.h"

enum { SCHEMA_TEXT_MAX = 1 << 20 };

struct writer {
    struct grammar *g;
    struct exprs *x;
    const struct tool_format *f;
    const struct json *root; /* NULL: any arguments */
    struct err *e;
};

/* ---- edges */

/* The first edge between two states; NULL if there is none. */
static const struct tag_edge *edge_of(
    const struct tool_format *f, enum tag_state from, enum tag_state to)
{
    for (int i = 0; i < f->n_edges; i++)
        if (f->edges[i].from == from && f->edges[i].to == to)
            return &f->edges[i];
    return NULL;
}

bool tool_arguments_are_tagged(const struct tool_format *f)
{
    return f->body == BODY_TAGS && edge_of(f, TAG_GAP, TAG_KEY);
}

static part_id frame(const struct writer *w, const struct tag_edge *edge)
{
    return tool_frame(w->g, w->f, edge->literal, 0);
}

static bool is_verbatim(const struct writer *w)
{
    return w->f->flags & TOOL_VERBATIM;
}

/* ---- texts of values */

/* Text without the literals that the parser looks for in this state. */
static expr_id raw_text(const struct writer *w, enum tag_state state)
{
    expr_id found = EXPR_NONE;

    for (int i = 0; i < w->f->n_edges; i++) {
        const struct tag_edge *edge = &w->f->edges[i];
        if (edge->from != state)
            continue;
        expr_id rest = expr_cat(w->x, expr_literal(w->x, edge->literal), EXPR_ALL);
        found = expr_or(w->x, found, expr_cat(w->x, EXPR_ALL, rest));
    }
    return expr_and(w->x, text_any_star(w->x, TEXT_UTF8), expr_not(w->x, found));
}

/* A text in the layout of the format: the parser drops one newline at the beginning, and then one
 * at the end. */
static part_id laid_out(const struct writer *w, enum tag_state state, expr_id text)
{
    struct exprs *x = w->x;
    expr_id newline = expr_literal(x, STR("\n")), raw = raw_text(w, state);

    if (is_verbatim(w))
        return grammar_expr(w->g, expr_and(x, text, raw));
    expr_id own_line = expr_cat(x, newline, expr_cat(x, text, newline));
    expr_id direct = expr_and(x, text, expr_not(x, expr_cat(x, newline, EXPR_ALL)));
    return grammar_expr(w->g, expr_and(x, raw, expr_or(x, own_line, direct)));
}

/* A JSON value of the schema that is not a string, or any. */
static part_id json_value(const struct writer *w, const struct json *schema, bool may_be_string)
{
    static const char *const copied[] = { "$schema", "$defs", "definitions" };
    struct buf b;

    buf_init(&b, SCHEMA_TEXT_MAX);
    buf_putz(&b, "{");
    for (size_t i = 0; i < ARRAY_LEN(copied); i++) {
        const struct json *v = json_get(w->root, copied[i]);
        if (v)
            buf_printf(&b, "\"%s\": %.*s, ", copied[i], STR_ARG(v->raw));
    }
    buf_printf(&b, "\"allOf\": [%.*s", STR_ARG(schema->raw));
    if (!may_be_string)
        buf_putz(&b, ", {\"type\": [\"null\", \"boolean\", \"number\", \"array\", \"object\"]}");
    buf_putz(&b, "]}");
    part_id value = buf_ok(&b) ? grammar_json(w->g, buf_str(&b)) : PART_NEVER;
    buf_clear(&b);
    if (is_verbatim(w))
        return value;
    part_id blanks = tool_frame_blanks(w->g);
    return grammar_cat(w->g, blanks, grammar_cat(w->g, value, blanks));
}

/* Value of a type by the schema (TAG_VALUE). */
static int typed_value(
    const struct writer *w, const struct json *schema, unsigned types, part_id *out)
{
    expr_id text;

    if (types && !(types & TYPE_STRING)) {
        *out = json_value(w, schema, true);
        return 0;
    }
    if (tool_text_of_schema(w->x, w->root, schema, &text, w->e))
        return -1;
    if (types == TYPE_STRING) {
        *out = laid_out(w, TAG_VALUE, text);
        return 0;
    }
    text = expr_and(w->x, text, expr_not(w->x, tool_text_like_json(w->x)));
    *out = grammar_alt(w->g, laid_out(w, TAG_VALUE, text), json_value(w, schema, false));
    return 0;
}

/* ---- one argument */

/* A value after the tag `edge` of a key, with its end tag. */
static part_id closed(const struct writer *w, const struct tag_edge *edge, part_id value)
{
    part_id parts[] = { frame(w, edge), value, frame(w, edge_of(w->f, edge->to, TAG_GAP)) };

    return grammar_cat_all(w->g, parts, ARRAY_LEN(parts));
}

static bool has_value(const struct tag_edge *edge)
{
    return edge->to == TAG_VALUE || edge->to == TAG_STRING || edge->to == TAG_ANY;
}

/* A tag that names a type which the schema excludes: type="number". */
static bool is_other_type(const struct tag_edge *edge, unsigned types)
{
    static const struct {
        const char *word;
        unsigned type;
    } words[] = { { "\"number\"", TYPE_NUMBER }, { "\"boolean\"", TYPE_BOOLEAN },
        { "\"null\"", TYPE_NULL }, { "\"array\"", TYPE_ARRAY }, { "\"object\"", TYPE_OBJECT } };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (types && str_find(edge->literal, str_of(words[i].word)) >= 0)
            return !(types & words[i].type);
    return false;
}

/* Value of a schema after the tag of its key. A value after TAG_ANY is JSON, whatever the schema
 * specifies, so any schema can be enforced there. */
static int value_of_schema(
    const struct writer *w, const struct json *schema, enum tag_state from, part_id *out)
{
    unsigned types = schema_types(w->root, schema);
    bool has_any = edge_of(w->f, from, TAG_ANY);

    *out = PART_NEVER;
    for (int i = 0; i < w->f->n_edges; i++) {
        const struct tag_edge *edge = &w->f->edges[i];
        part_id value = PART_NEVER;
        expr_id text;
        if (edge->from != from || !has_value(edge) || (has_any && edge->to == TAG_VALUE))
            continue;
        if (edge->to == TAG_STRING && types == TYPE_STRING) {
            if (tool_text_of_schema(w->x, w->root, schema, &text, w->e))
                return -1;
            value = laid_out(w, TAG_STRING, text);
        } else if (edge->to == TAG_ANY && types != TYPE_STRING && !is_other_type(edge, types)) {
            value = json_value(w, schema, true);
        } else if (edge->to == TAG_VALUE && typed_value(w, schema, types, &value)) {
            return -1;
        } else if (edge->to != TAG_VALUE) {
            continue;
        }
        *out = grammar_alt(w->g, *out, closed(w, edge, value));
    }
    return 0;
}

static part_id any_value(const struct writer *w, enum tag_state from)
{
    part_id all = PART_NEVER;

    for (int i = 0; i < w->f->n_edges; i++) {
        const struct tag_edge *edge = &w->f->edges[i];
        if (edge->from == from && has_value(edge))
            all =
                grammar_alt(w->g, all, closed(w, edge, grammar_expr(w->g, raw_text(w, edge->to))));
    }
    return all;
}

/* The tags before and after a key, up to the state from which the value begins. */
static part_id key_of(const struct writer *w, part_id name, enum tag_state *from)
{
    const struct tag_edge *mid = edge_of(w->f, TAG_KEY, TAG_MID);
    part_id key = grammar_cat(w->g, frame(w, edge_of(w->f, TAG_GAP, TAG_KEY)), name);

    *from = mid ? TAG_MID : TAG_KEY;
    if (!mid)
        return key;
    part_id parts[] = { key, frame(w, mid), tool_frame_blanks(w->g) };
    return grammar_cat_all(w->g, parts, ARRAY_LEN(parts));
}

static part_id any_key(const struct writer *w)
{
    static const char pattern[] = "[^\\x00-\\x20\\x22<>=]([^\\x00-\\x1F\\x22<>=]{0,126}"
                                  "[^\\x00-\\x20\\x22<>=])?";
    expr_id key = EXPR_NONE;

    if (pattern_compile(w->x, str_of(pattern), TEXT_UTF8, PATTERN_FULL, &key, w->e))
        return PART_NEVER;
    return grammar_expr(w->g, key);
}

/* ---- all arguments */

static int check_key(const struct writer *w, const struct json *property)
{
    struct str key = property->key;
    bool is_valid = key.n && key.n <= PARSER_NAME_MAX && str_eq(key, str_trim(key));

    for (size_t i = 0; i < key.n; i++)
        is_valid = is_valid && (unsigned char)key.p[i] >= 0x20 && !strchr("<>\"", key.p[i]);
    return is_valid ? 0
                    : err_set(w->e, ERR_UNSUPPORTED,
                          "#/properties: the name '%.*s' cannot be written between tags",
                          (int)MIN(key.n, (size_t)60), key.p);
}

static bool is_required(const struct json *schema, struct str key)
{
    const struct json *list = json_get(schema, "required");

    for (const struct json *v = list && list->kind == JSON_ARRAY ? list->child : NULL; v;
         v = v->next)
        if (v->kind == JSON_STRING && str_eq(v->s, key))
            return true;
    return false;
}

static bool is_last_of_its_key(const struct json *properties, const struct json *p)
{
    for (const struct json *other = p->next; other; other = other->next)
        if (str_eq(other->key, p->key))
            return false;
    return properties->kind == JSON_OBJECT;
}

static int put_property(const struct writer *w, const struct json *property, part_id *all)
{
    enum tag_state from;
    part_id value;

    if (check_key(w, property))
        return -1;
    part_id key = key_of(w, grammar_literal(w->g, property->key), &from);
    if (value_of_schema(w, property, from, &value)) {
        char reason[sizeof(w->e->msg)];
        memcpy(reason, w->e->msg, sizeof(reason));
        return err_set(w->e, w->e->code, "#/properties/%.*s%s%s",
            (int)MIN(property->key.n, (size_t)60), property->key.p, *reason == '#' ? "" : ": ",
            *reason == '#' ? reason + 1 : reason);
    }
    part_id parts[] = { key, value, tool_frame_blanks(w->g) };
    part_id one = grammar_cat_all(w->g, parts, ARRAY_LEN(parts));
    if (!is_required(w->root, property->key))
        one = grammar_alt(w->g, one, PART_EMPTY);
    *all = grammar_cat(w->g, *all, one);
    return 0;
}

/* Keywords of the schema of all arguments. Keywords about objects as a whole are not supported:
 * arguments are enforced one by one. */
static int check_root(const struct writer *w)
{
    static const char *const known[] = { "type", "properties", "required", "additionalProperties",
        "$schema", "$id", "$defs", "definitions", "title", "description", "default", "examples",
        "$comment", "strict" };
    const struct json *properties = json_get(w->root, "properties"),
                      *required = json_get(w->root, "required");

    for (const struct json *m = w->root->child; m; m = m->next) {
        bool is_known = false;
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
            is_known = is_known || str_is(m->key, known[i]);
        if (!is_known)
            return err_set(w->e, ERR_UNSUPPORTED,
                "#/%.*s: is not supported for arguments between tags",
                (int)MIN(m->key.n, (size_t)60), m->key.p);
    }
    if (properties && properties->kind != JSON_OBJECT)
        return err_set(w->e, ERR_INVALID, "#/properties: must be an object");
    for (const struct json *v = required && required->kind == JSON_ARRAY ? required->child : NULL;
         v; v = v->next)
        if (v->kind != JSON_STRING || !properties || !tool_has_argument(w->root, v->s))
            return err_set(
                w->e, ERR_UNSUPPORTED, "#/required: lists a name that is not in 'properties'");
    return 0;
}

static int put_schema(const struct writer *w, part_id *out)
{
    const struct json *properties = json_get(w->root, "properties");

    *out = PART_EMPTY;
    if (w->root->kind != JSON_OBJECT)
        return err_set(w->e, ERR_INVALID, "#: must be an object");
    if (check_root(w))
        return -1;
    for (const struct json *p = properties ? properties->child : NULL; p; p = p->next)
        if (is_last_of_its_key(properties, p) && put_property(w, p, out))
            return -1;
    return 0;
}

int tool_arguments_tagged(struct grammar *g, const struct tool_format *f, const struct json *schema,
    part_id *out, struct err *e)
{
    struct writer w = { g, grammar_exprs(g), f, schema, e };
    enum tag_state from;

    if (schema)
        return put_schema(&w, out);
    part_id key = key_of(&w, any_key(&w), &from);
    part_id parts[] = { key, any_value(&w, from), tool_frame_blanks(g) };
    *out = grammar_repeat(g, grammar_cat_all(g, parts, ARRAY_LEN(parts)), 0, REPEAT_INF);
    return 0;
}
