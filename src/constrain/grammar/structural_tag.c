#include "constrain/grammar/structural_tag.h"

#include "base/json.h"
#include "constrain/grammar/gbnf.h"
#include "constrain/regular/pattern.h"

#include <stdio.h>

enum { TAG_ARENA_MAX = 16 << 20, LIST_MAX = 256 /* texts or tokens of one list */ };

/* Place in the document: member `key`, or element `index` of an array. */
struct place {
    const struct place *up; /* NULL: the document */
    const char *key;        /* NULL: an element */
    size_t index;
};

struct tag_reader {
    struct grammar *g;
    struct arena *arena;
    struct err *e;
    bool is_failed;
};

/* A format, and the end of the innermost tag around it. */
struct context {
    const struct place *at;
    const struct json *end; /* NULL: no tag */
};

typedef part_id (*format_fn)(struct tag_reader *r, const struct json *f, struct context c);

static part_id format(struct tag_reader *r, const struct json *f, struct context c);

/* ---- errors */

static void write_place(struct buf *b, const struct place *at)
{
    const struct place *path[256];
    size_t n = 0;

    for (; at && n < ARRAY_LEN(path); at = at->up)
        path[n++] = at;
    buf_putc(b, '#');
    while (n-- > 0)
        if (path[n]->key)
            buf_printf(b, "/%s", path[n]->key);
        else
            buf_printf(b, "/%zu", path[n]->index);
}

static part_id refuse(
    struct tag_reader *r, enum errcode code, const struct place *at, const char *what)
{
    struct buf b;

    buf_init(&b, 4096);
    write_place(&b, at);
    if (!r->is_failed)
        err_set(r->e, code, "%.*s: %s", (int)MIN(b.n, (size_t)400), b.p ? b.p : "", what);
    buf_clear(&b);
    r->is_failed = true;
    return PART_NEVER;
}

/* Reports the error of a part at its place. */
static part_id checked(struct tag_reader *r, part_id p, const struct place *at)
{
    struct err e = { 0 };

    return !r->is_failed && grammar_failed(r->g, &e) ? refuse(r, e.code, at, e.msg) : p;
}

/* ---- members */

static const struct json *member(
    struct tag_reader *r, const struct json *f, struct context c, const char *key)
{
    const struct json *v = json_get(f, key);

    if (!v)
        refuse(r, ERR_MISSING, &(struct place){ c.at, key, 0 }, "is missing");
    return v;
}

static struct str text_of(struct tag_reader *r, const struct json *v, const struct place *at)
{
    if (v && v->kind == JSON_STRING)
        return v->s;
    if (v)
        refuse(r, ERR_INVALID, at, "must be a string");
    return STR_NONE;
}

static struct str text_member(
    struct tag_reader *r, const struct json *f, struct context c, const char *key)
{
    return text_of(r, member(r, f, c, key), &(struct place){ c.at, key, 0 });
}

static bool flag_member(
    struct tag_reader *r, const struct json *f, struct context c, const char *key, bool value)
{
    const struct json *v = json_get(f, key);

    if (json_is_null(v))
        return value;
    if (v->kind != JSON_BOOL)
        refuse(r, ERR_INVALID, &(struct place){ c.at, key, 0 }, "must be true or false");
    return v->b;
}

/* An array, which may be absent unless it is required. */
static const struct json *array_member(
    struct tag_reader *r, const struct json *f, struct context c, const char *key, bool is_required)
{
    const struct json *v = is_required ? member(r, f, c, key) : json_get(f, key);

    if (json_is_null(v) && !is_required)
        return NULL;
    if (v && v->kind != JSON_ARRAY) {
        refuse(r, ERR_INVALID, &(struct place){ c.at, key, 0 }, "must be an array");
        return NULL;
    }
    return v;
}

/* ---- lists of texts and of tokens */

struct texts {
    struct str s[LIST_MAX];
    size_t n;
};

static struct texts *texts_new(struct tag_reader *r, const struct place *at)
{
    struct texts *t = arena_alloc(r->arena, sizeof(*t));

    if (t)
        t->n = 0;
    else
        refuse(r, ERR_TOO_LARGE, at, "the structural tag needs too much memory");
    return t;
}

static void add_text(struct tag_reader *r, struct texts *t, struct str s, const struct place *at)
{
    if (r->is_failed || !t)
        return;
    if (!s.n)
        refuse(r, ERR_INVALID, at, "must not be empty");
    else if (t->n == LIST_MAX)
        refuse(r, ERR_TOO_LARGE, at, "the list is too long");
    else
        t->s[t->n++] = s;
}

static void add_texts(
    struct tag_reader *r, struct texts *t, const struct json *f, struct context c, const char *key)
{
    const struct json *list = array_member(r, f, c, key, false);
    struct place at = { c.at, key, 0 }, element = { &at, NULL, 0 };

    for (const struct json *v = list ? list->child : NULL; v && !r->is_failed; v = v->next) {
        add_text(r, t, text_of(r, v, &element), &element);
        element.index++;
    }
}

/* The end strings of the tag around a format. */
static void add_ends(struct tag_reader *r, struct texts *t, struct context c)
{
    if (!c.end)
        return;
    if (c.end->kind == JSON_STRING && c.end->s.n)
        add_text(r, t, c.end->s, c.at);
    for (const struct json *v = c.end->kind == JSON_ARRAY ? c.end->child : NULL; v; v = v->next)
        if (v->kind == JSON_STRING && v->s.n)
            add_text(r, t, v->s, c.at);
}

static part_id free_text(struct tag_reader *r, const struct texts *t, const struct place *at)
{
    return r->is_failed ? PART_NEVER : checked(r, grammar_text_until(r->g, t->s, t->n), at);
}

/* A token by id or text; -1 after an error. */
static int32_t token_id(struct tag_reader *r, const struct json *v, const struct place *at)
{
    int64_t id = -1;

    if (!v || r->is_failed)
        return -1;
    if (v->kind == JSON_STRING)
        id = grammar_find_token(r->g, v->s);
    else if (v->kind != JSON_NUMBER || !json_i64(v, &id) || id < 0 || id > INT32_MAX)
        refuse(r, ERR_INVALID, at, "must be a token id or the text of a token");
    if (id < 0)
        refuse(r, ERR_NOT_FOUND, at, "the vocabulary has no such token");
    return r->is_failed ? -1 : (int32_t)id;
}

struct token_list {
    int32_t ids[LIST_MAX];
    size_t n;
};

static void add_token(
    struct tag_reader *r, struct token_list *t, const struct json *v, const struct place *at)
{
    int32_t id = token_id(r, v, at);

    if (r->is_failed || !t)
        return;
    if (t->n == LIST_MAX)
        refuse(r, ERR_TOO_LARGE, at, "the list is too long");
    else
        t->ids[t->n++] = id;
}

/* The tokens of member `key`, and the end token of the tag around the format. */
static struct token_list *excluded_tokens(
    struct tag_reader *r, const struct json *f, struct context c, const char *key)
{
    const struct json *list = array_member(r, f, c, key, false);
    struct place at = { c.at, key, 0 }, element = { &at, NULL, 0 };
    struct token_list *t = arena_alloc(r->arena, sizeof(*t));

    if (!t) {
        refuse(r, ERR_TOO_LARGE, c.at, "the structural tag needs too much memory");
        return NULL;
    }
    t->n = 0;
    for (const struct json *v = list ? list->child : NULL; v && !r->is_failed; v = v->next) {
        add_token(r, t, v, &element);
        element.index++;
    }
    if (c.end && c.end->kind == JSON_OBJECT)
        add_token(r, t, json_get(c.end, "token"), c.at);
    return t;
}

static part_id free_tokens(struct tag_reader *r, const struct token_list *t, uint32_t min,
    uint32_t max, const struct place *at)
{
    if (r->is_failed)
        return PART_NEVER;
    part_id one = checked(r, grammar_token_except(r->g, t->ids, t->n), at);
    return grammar_repeat(r->g, one, min, max);
}

/* ---- basic formats */

static part_id const_string(struct tag_reader *r, const struct json *f, struct context c)
{
    const char *key = json_get(f, "text") ? "text" : "value";

    return grammar_literal(r->g, text_member(r, f, c, key));
}

static part_id json_schema(struct tag_reader *r, const struct json *f, struct context c)
{
    const struct json *schema = member(r, f, c, "json_schema"), *style = json_get(f, "style");
    struct place at = { c.at, "json_schema", 0 }, style_at = { c.at, "style", 0 };
    struct str name = style ? text_of(r, style, &style_at) : STR("json");
    char what[100];

    if (!str_is(name, "json")) {
        snprintf(what, sizeof(what), "the style \"%.*s\" is not supported, only \"json\"",
            (int)MIN(name.n, (size_t)40), name.p ? name.p : "");
        return refuse(r, ERR_UNSUPPORTED, &style_at, what);
    }
    if (schema && schema->kind != JSON_OBJECT && schema->kind != JSON_BOOL)
        return refuse(r, ERR_INVALID, &at, "must be an object, true or false");
    return schema ? grammar_json(r->g, schema->raw) : PART_NEVER;
}

static part_id embedded_grammar(struct tag_reader *r, const struct json *f, struct context c)
{
    struct str text = text_member(r, f, c, "grammar");
    struct err e = { 0 };
    rule_id root;

    if (r->is_failed)
        return PART_NEVER;
    if (gbnf_read(r->g, text, &root, &e))
        return refuse(r, e.code, &(struct place){ c.at, "grammar", 0 }, e.msg);
    return grammar_ref(r->g, root);
}

static part_id regex(struct tag_reader *r, const struct json *f, struct context c)
{
    struct str pattern = text_member(r, f, c, "pattern");
    struct err e = { 0 };
    expr_id expr = EXPR_NONE;

    if (r->is_failed)
        return PART_NEVER;
    if (pattern_compile(grammar_exprs(r->g), pattern, TEXT_UTF8, PATTERN_FULL, &expr, &e))
        return refuse(r, e.code, &(struct place){ c.at, "pattern", 0 }, e.msg);
    return grammar_expr(r->g, expr);
}

static part_id any_text(struct tag_reader *r, const struct json *f, struct context c)
{
    struct texts *t = texts_new(r, c.at);

    add_texts(r, t, f, c, "excludes");
    add_texts(r, t, f, c, "excluded_str");
    add_ends(r, t, c);
    return free_text(r, t, c.at);
}

static part_id token(struct tag_reader *r, const struct json *f, struct context c)
{
    struct place at = { c.at, "token", 0 };
    int32_t id = token_id(r, member(r, f, c, "token"), &at);

    return id < 0 ? PART_NEVER : checked(r, grammar_token(r->g, id), &at);
}

static part_id exclude_token(struct tag_reader *r, const struct json *f, struct context c)
{
    return free_tokens(r, excluded_tokens(r, f, c, "exclude_tokens"), 1, 1, c.at);
}

static part_id any_tokens(struct tag_reader *r, const struct json *f, struct context c)
{
    return free_tokens(r, excluded_tokens(r, f, c, "exclude_tokens"), 0, REPEAT_INF, c.at);
}

/* ---- combinations */

/* The formats of an array, as alternatives or as a sequence. */
static part_id elements(struct tag_reader *r, const struct json *list, struct context c,
    const char *key, bool is_sequence)
{
    struct place at = { c.at, key, 0 }, element = { &at, NULL, 0 };
    size_t n = 0;

    if (!list)
        return PART_NEVER;
    part_id *parts = arena_alloc(r->arena, MAX(list->n, 1u) * sizeof(*parts));
    if (!parts)
        return refuse(r, ERR_TOO_LARGE, &at, "the structural tag needs too much memory");
    for (const struct json *v = list->child; v && !r->is_failed; v = v->next) {
        parts[n++] = format(r, v, (struct context){ &element, c.end });
        element.index++;
    }
    if (!n)
        return refuse(r, ERR_INVALID, &at, "must not be empty");
    return is_sequence ? grammar_cat_all(r->g, parts, n) : grammar_alt_all(r->g, parts, n);
}

static part_id sequence(struct tag_reader *r, const struct json *f, struct context c)
{
    return elements(r, array_member(r, f, c, "elements", true), c, "elements", true);
}

static part_id one_of(struct tag_reader *r, const struct json *f, struct context c)
{
    return elements(r, array_member(r, f, c, "elements", true), c, "elements", false);
}

static part_id content(struct tag_reader *r, const struct json *f, struct context c)
{
    struct place at = { c.at, "content", 0 };
    const struct json *v = member(r, f, c, "content");

    return v ? format(r, v, (struct context){ &at, c.end }) : PART_NEVER;
}

static part_id optional(struct tag_reader *r, const struct json *f, struct context c)
{
    return grammar_repeat(r->g, content(r, f, c), 0, 1);
}

static part_id plus(struct tag_reader *r, const struct json *f, struct context c)
{
    return grammar_repeat(r->g, content(r, f, c), 1, REPEAT_INF);
}

static part_id star(struct tag_reader *r, const struct json *f, struct context c)
{
    return grammar_repeat(r->g, content(r, f, c), 0, REPEAT_INF);
}

/* A count of a repetition; -1 is REPEAT_INF if it is permitted. */
static uint32_t count_member(
    struct tag_reader *r, const struct json *f, struct context c, const char *key, int64_t smallest)
{
    const struct json *v = member(r, f, c, key);
    int64_t n = 0;

    if (v && (v->kind != JSON_NUMBER || !json_i64(v, &n) || n < smallest || n > REPEAT_MAX))
        refuse(r, ERR_RANGE, &(struct place){ c.at, key, 0 }, "must be a count up to 2^30");
    return n < 0 ? REPEAT_INF : (uint32_t)n;
}

static part_id repeat(struct tag_reader *r, const struct json *f, struct context c)
{
    uint32_t min = count_member(r, f, c, "min", 0), max = count_member(r, f, c, "max", -1);
    part_id one = content(r, f, c);

    if (max < min)
        return refuse(r, ERR_INVALID, &(struct place){ c.at, "max", 0 }, "is below min");
    return r->is_failed ? PART_NEVER : grammar_repeat(r->g, one, min, max);
}

/* ---- tags */

/* The begin or the end of a tag: a text or a token; an end may be a list of texts. */
static part_id mark(struct tag_reader *r, const struct json *v, const struct place *at, bool is_end)
{
    struct place element = { at, NULL, 0 };
    part_id all = PART_NEVER;

    if (!v)
        return PART_NEVER;
    if (v->kind == JSON_OBJECT && str_is(text_of(r, json_get(v, "type"), at), "token"))
        return token(r, v, (struct context){ at, NULL });
    if (v->kind == JSON_STRING)
        return grammar_literal(r->g, v->s);
    if (v->kind != JSON_ARRAY || !is_end || !v->n)
        return refuse(r, ERR_INVALID, at, "must be a string or a token");
    for (const struct json *one = v->child; one; one = one->next) {
        all = grammar_alt(r->g, all, grammar_literal(r->g, text_of(r, one, &element)));
        element.index++;
    }
    return all;
}

static part_id tag(struct tag_reader *r, const struct json *f, struct context c)
{
    struct place begin_at = { c.at, "begin", 0 }, end_at = { c.at, "end", 0 };
    const struct json *begin = member(r, f, c, "begin"), *end = member(r, f, c, "end");

    if (r->is_failed)
        return PART_NEVER;
    part_id parts[3];
    parts[0] = mark(r, begin, &begin_at, false);
    parts[1] = content(r, f, (struct context){ c.at, end });
    parts[2] = mark(r, end, &end_at, true);
    return grammar_cat_all(r->g, parts, 3);
}

/* One of the tags of an array. With triggers, each begins with one of them. */
static part_id one_tag(struct tag_reader *r, const struct json *f, struct context c,
    const struct texts *triggers, const struct token_list *trigger_tokens)
{
    const struct json *list = array_member(r, f, c, "tags", true);
    struct place at = { c.at, "tags", 0 }, element = { &at, NULL, 0 };
    part_id all = PART_NEVER;

    for (const struct json *v = list ? list->child : NULL; v && !r->is_failed; v = v->next) {
        const struct json *begin = json_get(v, "begin");
        bool has_trigger = !triggers && !trigger_tokens;
        for (size_t k = 0; triggers && k < triggers->n; k++)
            has_trigger = has_trigger || (begin && begin->kind == JSON_STRING &&
                                             str_starts(begin->s, triggers->s[k]));
        for (size_t k = 0; trigger_tokens && begin && k < trigger_tokens->n; k++)
            has_trigger = has_trigger ||
                          (begin->kind == JSON_OBJECT && token_id(r, json_get(begin, "token"),
                                                             &element) == trigger_tokens->ids[k]);
        if (v->kind != JSON_OBJECT)
            refuse(r, ERR_INVALID, &element, "must be a tag");
        else if (!has_trigger)
            refuse(r, ERR_INVALID, &(struct place){ &element, "begin", 0 },
                "does not begin with a trigger");
        else
            all = grammar_alt(r->g, all, tag(r, v, (struct context){ &element, c.end }));
        element.index++;
    }
    if (list && !list->n)
        refuse(r, ERR_INVALID, &at, "must not be empty");
    return all;
}

/* Free text and tags, by the flags at_least_one and stop_after_first. */
static part_id interleaved(
    struct tag_reader *r, part_id free, part_id one, bool at_least_one, bool stops)
{
    struct grammar *g = r->g;

    if (r->is_failed)
        return PART_NEVER;
    if (at_least_one && stops)
        return one;
    if (stops)
        return grammar_cat(g, free, grammar_repeat(g, one, 0, 1));
    part_id rest = grammar_repeat(g, grammar_cat(g, one, free), at_least_one, REPEAT_INF);
    return at_least_one ? rest : grammar_cat(g, free, rest);
}

static part_id triggered_tags(struct tag_reader *r, const struct json *f, struct context c)
{
    struct texts *t = texts_new(r, c.at);
    bool at_least_one = flag_member(r, f, c, "at_least_one", false);
    bool stops = flag_member(r, f, c, "stop_after_first", false);

    array_member(r, f, c, "triggers", true);
    add_texts(r, t, f, c, "triggers");
    if (!r->is_failed && !t->n)
        refuse(r, ERR_INVALID, &(struct place){ c.at, "triggers", 0 }, "must not be empty");
    part_id one = r->is_failed ? PART_NEVER : one_tag(r, f, c, t, NULL);
    add_texts(r, t, f, c, "excludes");
    add_ends(r, t, c);
    return interleaved(r, free_text(r, t, c.at), one, at_least_one, stops);
}

static part_id token_triggered_tags(struct tag_reader *r, const struct json *f, struct context c)
{
    struct context none = { c.at, NULL };
    bool at_least_one = flag_member(r, f, c, "at_least_one", false);
    bool stops = flag_member(r, f, c, "stop_after_first", false);

    array_member(r, f, c, "trigger_tokens", true);
    struct token_list *triggers = excluded_tokens(r, f, none, "trigger_tokens");
    struct token_list *t = excluded_tokens(r, f, c, "exclude_tokens");
    part_id one = r->is_failed ? PART_NEVER : one_tag(r, f, c, NULL, triggers);
    for (size_t k = 0; !r->is_failed && k < triggers->n; k++)
        if (t->n < LIST_MAX)
            t->ids[t->n++] = triggers->ids[k];
    return interleaved(r, free_tokens(r, t, 0, REPEAT_INF, c.at), one, at_least_one, stops);
}

static part_id tags_with_separator(struct tag_reader *r, const struct json *f, struct context c)
{
    struct grammar *g = r->g;
    struct str separator = text_member(r, f, c, "separator");
    bool at_least_one = flag_member(r, f, c, "at_least_one", false);
    bool stops = flag_member(r, f, c, "stop_after_first", false);
    part_id one = one_tag(r, f, c, NULL, NULL);

    if (r->is_failed)
        return PART_NEVER;
    part_id next = grammar_cat(g, grammar_literal(g, separator), one);
    part_id all = stops ? one : grammar_cat(g, one, grammar_repeat(g, next, 0, REPEAT_INF));
    return at_least_one ? all : grammar_repeat(g, all, 0, 1);
}

/* ---- dispatch */

/* A rule is an array of two elements; a pair is an object with trigger and content. */
static void rule_members(const struct json *v, const struct json **trigger, const struct json **to)
{
    bool is_pair = v->kind == JSON_ARRAY && v->n == 2;

    *trigger = is_pair ? v->child : json_get(v, "trigger");
    *to = is_pair ? v->child->next : json_get(v, "content");
}

/* Reads the rules of dispatch, and adds their triggers to `t` or `tokens`, of which one is NULL. */
static part_id dispatch_rules(struct tag_reader *r, const struct json *f, struct context c,
    struct texts *t, struct token_list *tokens)
{
    const char *key = json_get(f, "pairs") ? "pairs" : "rules";
    const struct json *list = array_member(r, f, c, key, true);
    struct place at = { c.at, key, 0 }, element = { &at, NULL, 0 };
    part_id all = PART_NEVER;

    for (const struct json *v = list ? list->child : NULL; v && !r->is_failed; v = v->next) {
        const struct json *trigger, *to;
        rule_members(v, &trigger, &to);
        if (!trigger || !to)
            return refuse(r, ERR_INVALID, &element, "must have a trigger and a content");
        part_id begin = PART_NEVER;
        if (t) {
            add_text(r, t, text_of(r, trigger, &element), &element);
            begin = r->is_failed ? PART_NEVER : grammar_literal(r->g, trigger->s);
        } else {
            add_token(r, tokens, trigger, &element);
            if (!r->is_failed)
                begin = checked(r, grammar_token(r->g, tokens->ids[tokens->n - 1]), &element);
        }
        part_id rest = format(r, to, (struct context){ &element, c.end });
        all = grammar_alt(r->g, all, grammar_cat(r->g, begin, rest));
        element.index++;
    }
    if (list && !list->n)
        refuse(r, ERR_INVALID, &at, "must not be empty");
    return all;
}

static bool loops(struct tag_reader *r, const struct json *f, struct context c)
{
    return flag_member(r, f, c, json_get(f, "loop") ? "loop" : "loop_after_dispatch", true);
}

static part_id dispatch(struct tag_reader *r, const struct json *f, struct context c)
{
    struct texts *t = texts_new(r, c.at);
    part_id one = t ? dispatch_rules(r, f, c, t, NULL) : PART_NEVER;

    add_texts(r, t, f, c, "excludes");
    add_ends(r, t, c);
    return interleaved(r, free_text(r, t, c.at), one, false, !loops(r, f, c));
}

static part_id token_dispatch(struct tag_reader *r, const struct json *f, struct context c)
{
    struct token_list *t = excluded_tokens(r, f, c, "exclude_tokens");
    part_id one = t ? dispatch_rules(r, f, c, NULL, t) : PART_NEVER;

    return interleaved(r, free_tokens(r, t, 0, REPEAT_INF, c.at), one, false, !loops(r, f, c));
}

/* ---- formats by type */

static const struct {
    const char *type;
    format_fn read;
    const char *members[6]; /* besides `type` */
} formats[] = {
    { "const_string", const_string, { "value" } },
    { "literal", const_string, { "text" } },
    { "json_schema", json_schema, { "json_schema", "style" } },
    { "grammar", embedded_grammar, { "grammar" } },
    { "regex", regex, { "pattern" } },
    { "any_text", any_text, { "excludes", "excluded_str" } },
    { "wildcard_text", any_text, { NULL } },
    { "token", token, { "token" } },
    { "exclude_token", exclude_token, { "exclude_tokens" } },
    { "any_tokens", any_tokens, { "exclude_tokens" } },
    { "sequence", sequence, { "elements" } },
    { "or", one_of, { "elements" } },
    { "optional", optional, { "content" } },
    { "plus", plus, { "content" } },
    { "star", star, { "content" } },
    { "repeat", repeat, { "min", "max", "content" } },
    { "tag", tag, { "begin", "content", "end" } },
    { "triggered_tags", triggered_tags,
        { "triggers", "tags", "at_least_one", "stop_after_first", "excludes" } },
    { "token_triggered_tags", token_triggered_tags,
        { "trigger_tokens", "tags", "at_least_one", "stop_after_first", "exclude_tokens" } },
    { "tags_with_separator", tags_with_separator,
        { "tags", "separator", "at_least_one", "stop_after_first" } },
    { "dispatch", dispatch, { "rules", "loop", "excludes" } },
    { "tag_dispatch", dispatch, { "pairs", "loop_after_dispatch", "excludes" } },
    { "token_dispatch", token_dispatch, { "rules", "loop", "exclude_tokens" } },
    { "token_tag_dispatch", token_dispatch, { "pairs", "loop_after_dispatch", "exclude_tokens" } },
};

/* A member that the format does not have would be ignored otherwise. */
static void check_members(
    struct tag_reader *r, const struct json *f, size_t k, const struct place *at)
{
    char what[160];

    for (const struct json *v = f->child; v && !r->is_failed; v = v->next) {
        bool is_known = str_is(v->key, "type");
        for (size_t j = 0; j < ARRAY_LEN(formats[k].members) && formats[k].members[j]; j++)
            is_known = is_known || str_is(v->key, formats[k].members[j]);
        if (is_known)
            continue;
        snprintf(what, sizeof(what), "the format %s has no member \"%.*s\"", formats[k].type,
            (int)MIN(v->key.n, (size_t)60), v->key.p);
        refuse(r, ERR_UNSUPPORTED, at, what);
    }
}

static part_id format(struct tag_reader *r, const struct json *f, struct context c)
{
    struct place at = { c.at, "type", 0 };
    char what[120];
    size_t k = 0;

    if (r->is_failed)
        return PART_NEVER;
    if (f->kind != JSON_OBJECT)
        return refuse(r, ERR_INVALID, c.at, "must be an object");
    struct str type = text_member(r, f, c, "type");
    if (r->is_failed)
        return PART_NEVER;
    while (k < ARRAY_LEN(formats) && !str_is(type, formats[k].type))
        k++;
    if (k == ARRAY_LEN(formats)) {
        snprintf(what, sizeof(what), "the format \"%.*s\" is not supported",
            (int)MIN(type.n, (size_t)60), type.p);
        return refuse(r, ERR_UNSUPPORTED, &at, what);
    }
    check_members(r, f, k, c.at);
    return r->is_failed ? PART_NEVER : formats[k].read(r, f, c);
}

/* ---- documents */

/* The older form: structures {begin, schema, end} and triggers. */
static part_id structures(struct tag_reader *r, const struct json *doc)
{
    struct context c = { NULL, NULL };
    const struct json *list = array_member(r, doc, c, "structures", true);
    struct place at = { NULL, "structures", 0 }, element = { &at, NULL, 0 };
    struct texts *t = texts_new(r, NULL);
    part_id one = PART_NEVER;

    array_member(r, doc, c, "triggers", true);
    add_texts(r, t, doc, c, "triggers");
    for (const struct json *v = list ? list->child : NULL; v && !r->is_failed; v = v->next) {
        struct context in = { &element, NULL };
        struct str begin = text_member(r, v, in, "begin"), end = text_member(r, v, in, "end");
        const struct json *schema = member(r, v, in, "schema");
        bool has_trigger = false;
        for (size_t k = 0; !r->is_failed && k < t->n; k++)
            has_trigger = has_trigger || str_starts(begin, t->s[k]);
        if (r->is_failed)
            break;
        if (!has_trigger)
            return refuse(r, ERR_INVALID, &(struct place){ &element, "begin", 0 },
                "does not begin with a trigger");
        part_id parts[] = { grammar_literal(r->g, begin),
            grammar_json(r->g, schema->kind == JSON_STRING ? schema->s : schema->raw),
            grammar_literal(r->g, end) };
        one = grammar_alt(r->g, one, grammar_cat_all(r->g, parts, 3));
        element.index++;
    }
    return interleaved(r, free_text(r, t, NULL), one, false, false);
}

static part_id document(struct tag_reader *r, const struct json *doc)
{
    struct place at = { NULL, "format", 0 };
    const struct json *f = json_get(doc, "format");

    if (doc->kind != JSON_OBJECT)
        return refuse(r, ERR_INVALID, NULL, "must be an object");
    if (json_get(doc, "structures"))
        return structures(r, doc);
    if (!f)
        return refuse(r, ERR_MISSING, &at, "is missing");
    return format(r, f, (struct context){ &at, NULL });
}

int structural_tag_read(struct grammar *g, struct str text, rule_id *root, struct err *e)
{
    struct json_limits limits = json_limits_default;
    struct tag_reader r = { .g = g, .e = e };
    struct json *doc = NULL;

    r.arena = arena_new(TAG_ARENA_MAX);
    if (!r.arena)
        return err_set(e, ERR_MEMORY, "no memory for a structural tag");
    limits.max_nodes = 100000;
    if (json_parse(&doc, text, r.arena, &limits, e)) {
        arena_free(r.arena);
        return -1;
    }
    part_id body = document(&r, doc);
    body = checked(&r, body, NULL);
    if (!r.is_failed) {
        *root = grammar_rule(g, STR("structural_tag"));
        grammar_define(g, *root, body);
    }
    arena_free(r.arena);
    return r.is_failed || grammar_failed(g, e) ? -1 : 0;
}
