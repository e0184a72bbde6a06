#include "api/grammar_check.h"
#include "api/common/body.h"

#include <stdio.h>

enum { INSTANCE_BYTES_MAX = 64 * 1024 * 1024 };

static const struct json_limits limits = { .max_depth = GRAMMAR_CHECK_DEPTH_MAX,
    .max_nodes = 4 * 1024 * 1024 };

/* ---- the constraint */

static const struct {
    const char *field;
    enum constraint_kind kind;
    enum json_kind form; /* STRING: the text; otherwise JSON */
} sources[] = {
    { "schema", CONSTRAINT_JSON_SCHEMA, JSON_OBJECT },
    { "gbnf", CONSTRAINT_GBNF, JSON_STRING },
    { "lark", CONSTRAINT_LARK, JSON_STRING },
    { "regex", CONSTRAINT_REGEX, JSON_STRING },
    { "choice", CONSTRAINT_CHOICE, JSON_ARRAY },
    { "structural_tag", CONSTRAINT_STRUCTURAL_TAG, JSON_OBJECT },
};

static int read_source(struct grammar_check *out, const struct json *o, struct err *e)
{
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        const char *field = sources[i].field;
        const struct json *v = json_get(o, field);
        if (json_is_null(v))
            continue;
        bool is_schema = sources[i].kind == CONSTRAINT_JSON_SCHEMA && v->kind == JSON_BOOL;
        if (v->kind != sources[i].form && !is_schema)
            return err_param(e, ERR_INVALID, field, "'%s' must be %s.", field,
                sources[i].form == JSON_STRING  ? "a string"
                : sources[i].form == JSON_ARRAY ? "an array"
                                                : "an object");
        if (out->field)
            return err_param(
                e, ERR_INVALID, field, "'%s' and '%s' exclude each other.", field, out->field);
        out->field = field;
        out->source.kind = sources[i].kind;
        out->source.text = v->kind == JSON_STRING ? v->s : v->raw;
    }
    return out->field ? 0
                      : err_param(e, ERR_MISSING, "schema",
                            "One of schema, gbnf, lark, regex, choice and structural_tag is "
                            "required.");
}

static int read_whitespace(struct grammar_check *out, const struct json *o, struct err *e)
{
    static const char *const words[] = {
        [JSON_WS_DEFAULT] = "default", [JSON_WS_COMPACT] = "compact", [JSON_WS_ANY] = "any"
    };
    struct str word = STR_NONE;

    if (body_text(o, "whitespace", &word, e))
        return -1;
    for (size_t i = 0; word.p && i < ARRAY_LEN(words); i++)
        if (str_is(word, words[i])) {
            out->source.whitespace = (enum json_whitespace)i;
            return 0;
        }
    return word.p ? err_param(e, ERR_INVALID, "whitespace",
                        "'whitespace' must be default, compact or any.")
                  : 0;
}

/* ---- the instance */

static void put_number(struct buf *b, const struct json *v)
{
    int64_t i;

    if (json_i64(v, &i))
        buf_printf(b, "%lld", (long long)i);
    else
        buf_puts(b, v->s);
}

static void put_scalar(struct buf *b, const struct json *v)
{
    if (v->kind == JSON_STRING) {
        buf_putc(b, '"');
        json_escape(b, v->s);
        buf_putc(b, '"');
    } else if (v->kind == JSON_NUMBER) {
        put_number(b, v);
    } else {
        buf_puts(b, v->raw);
    }
}

static void put_key(struct buf *b, const struct json *v)
{
    buf_putc(b, '"');
    json_escape(b, v->key);
    buf_putz(b, "\":");
}

/* Writes a value without blanks. The depth is that of the parsed body. */
static void put_compact(struct buf *b, const struct json *root)
{
    const struct json *open[GRAMMAR_CHECK_DEPTH_MAX + 1];
    const struct json *v = root;
    int depth = 0;

    while (v) {
        bool is_object = depth && open[depth - 1]->kind == JSON_OBJECT;
        if (is_object)
            put_key(b, v);
        if (v->kind == JSON_OBJECT || v->kind == JSON_ARRAY)
            buf_putc(b, v->kind == JSON_OBJECT ? '{' : '[');
        else
            put_scalar(b, v);
        if (v->child) {
            CHECK(depth < (int)ARRAY_LEN(open));
            open[depth++] = v;
            v = v->child;
            continue;
        }
        if (v->kind == JSON_OBJECT || v->kind == JSON_ARRAY)
            buf_putc(b, v->kind == JSON_OBJECT ? '}' : ']');
        while (depth && !v->next) {
            v = open[--depth];
            buf_putc(b, v->kind == JSON_OBJECT ? '}' : ']');
        }
        v = depth ? v->next : NULL;
        if (v)
            buf_putc(b, ',');
    }
}

static int read_instance(
    struct grammar_check *out, const struct json *v, struct arena *a, struct err *e)
{
    struct buf b;

    if (out->source.kind != CONSTRAINT_JSON_SCHEMA)
        return err_param(e, ERR_INVALID, "instance", "'instance' requires 'schema'; use 'text'.");
    buf_init(&b, INSTANCE_BYTES_MAX);
    put_compact(&b, v);
    out->text = buf_ok(&b) ? arena_str(a, buf_str(&b)) : STR_NONE;
    buf_clear(&b);
    out->source.any_order = true;
    out->source.whitespace = JSON_WS_COMPACT;
    return out->text.p ? 0 : err_set(e, ERR_MEMORY, "no memory for the instance");
}

int grammar_check_read(struct grammar_check *out, struct str body, struct arena *a, struct err *e)
{
    struct json *o;

    *out = (struct grammar_check){ .text = STR_NONE };
    if (body_object(&o, body, &limits, a, e) || body_text(o, "model", &out->model, e) ||
        body_text(o, "text", &out->text, e) ||
        body_flag(o, "closed_objects", &out->source.closed_objects, e) ||
        body_flag(o, "any_order", &out->source.any_order, e) || read_whitespace(out, o, e) ||
        read_source(out, o, e))
        return -1;
    const struct json *instance = json_get(o, "instance"); /* null is an instance */
    if (!instance == !out->text.p)
        return err_param(e, instance ? ERR_INVALID : ERR_MISSING, "text",
            "Either 'text' or 'instance' is required.");
    return instance ? read_instance(out, instance, a, e) : 0;
}

/* ---- response */

static const char *reason_of(const struct grammar_check *request, size_t at)
{
    return at < request->text.n ? "the byte at this offset is not permitted"
                                : "the text ends before it is complete";
}

void grammar_check_put_response(
    struct buf *out, const struct grammar_check *request, const struct grammar_check_result *r)
{
    struct jw w;

    jw_init(&w, out);
    jw_object(&w);
    jw_member_bool(&w, "accepted", r->is_accepted);
    jw_key(&w, "at");
    if (r->is_accepted)
        jw_null(&w);
    else
        jw_u64(&w, r->at);
    jw_key(&w, "reason");
    jw_z(&w, r->is_accepted ? NULL : reason_of(request, r->at));
    jw_member_u64(&w, "compile_us", r->compile_ns / 1000);
    jw_member_u64(&w, "mask_us_max", r->mask_ns_max / 1000);
    jw_end_object(&w);
}
