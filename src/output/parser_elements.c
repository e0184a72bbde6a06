/* parser_elements.c: body reader of BODY_ELEMENTS. After the name of the call, each argument is an
 * element whose tag is the argument's name. An element with elements inside is an object or, if its
 * schema specifies an array or its first child is named "item", an array; the names of the children
 * of an array have no meaning. Other elements are text, with the type of the schema.
 *
 * All tags begin with the literal of the format's only edge, so text needs no escapes. Owner: see
 * parser.h. */
#include "output/parser_in.h"

enum state { NAME, NAME_END, TEXT, TAG, OVER };
enum kind { LEAF, OBJECT, LIST };

static void begin_reader(struct parser *p)
{
    struct element_reader *r = &p->element;

    r->state = NAME;
    r->at = AHO_CORASICK_ROOT;
    r->depth = 0;
    buf_reset(&r->names);
    buf_reset(&r->tag);
    buf_reset(&r->text);
}

static struct element *top_element(struct element_reader *r)
{
    return &r->stack[r->depth - 1];
}

static bool push_element(struct element_reader *r, const struct json *schema, enum kind kind)
{
    if (r->depth == ELEMENT_DEPTH_MAX)
        return false;
    r->stack[r->depth++] =
        (struct element){ .name_at = r->names.n, .kind = (uint8_t)kind, .schema = schema };
    buf_puts(&r->names, buf_str(&r->tag));
    return true;
}

/* ---- name of the call ---- */

static enum verdict read_name(struct parser *p, char c)
{
    struct element_reader *r = &p->element;

    if (c == '"') {
        r->state = NAME_END;
        return parser_set_call_name(p, buf_str(&r->tag)) ? READ_MORE : READ_BAD;
    }
    if (r->tag.n == PARSER_NAME_MAX)
        return READ_BAD;
    buf_putc(&r->tag, c);
    return READ_MORE;
}

static enum verdict read_name_end(struct parser *p, char c)
{
    struct element_reader *r = &p->element;

    if (c != '>')
        return READ_BAD;
    buf_reset(&r->tag);
    push_element(r, parser_call_schema(p), OBJECT);
    r->state = TEXT;
    return READ_MORE;
}

/* ---- elements ---- */

/* Called at the first child of an element. */
static void open_container(struct parser *p, struct element *e, struct str child)
{
    unsigned types = parser_call_types(p, p->element.stack[0].schema, e->schema);
    bool is_list = types & TYPE_ARRAY ? !(types & TYPE_OBJECT) || str_is(child, "item")
                                      : !(types & TYPE_OBJECT) && str_is(child, "item");

    e->kind = is_list ? LIST : OBJECT;
    buf_putc(&p->args, is_list ? '[' : '{');
}

static enum verdict open_element(struct parser *p)
{
    struct element_reader *r = &p->element;
    struct element *parent = top_element(r);
    struct str name = buf_str(&r->tag);

    if (!name.n || str_trim(buf_str(&r->text)).n)
        return READ_BAD; /* text between elements */
    if (parent->kind == LEAF)
        open_container(p, parent, name);
    else if (r->depth == 1 && !parent->has_children)
        buf_putc(&p->args, '{');
    if (parent->has_children)
        buf_putc(&p->args, ',');
    parent->has_children = true;
    if (parent->kind == OBJECT) {
        buf_putc(&p->args, '"');
        json_text_put(&p->args, name);
        buf_putz(&p->args, "\":");
    }
    const struct json *schema =
        parser_call_child_schema(p, r->stack[0].schema, parent->schema, name, parent->kind == LIST);
    return push_element(r, schema, LEAF) ? READ_MORE : READ_BAD;
}

/* An empty element is an empty container if its schema allows no other value. */
static void put_leaf(struct parser *p, const struct element *e)
{
    struct str text = buf_str(&p->element.text);
    unsigned types = parser_call_types(p, p->element.stack[0].schema, e->schema);
    bool is_empty = !str_trim(text).n && types && !(types & TYPE_STRING);

    if (is_empty && types & (TYPE_ARRAY | TYPE_OBJECT))
        buf_putz(&p->args, types & TYPE_ARRAY ? "[]" : "{}");
    else
        coerce_put(&p->args, text, types);
    p->work += text.n;
}

static enum verdict close_call(struct parser *p, struct str name)
{
    struct element_reader *r = &p->element;

    if (!str_is(name, "invoke") || str_trim(buf_str(&r->text)).n)
        return READ_BAD;
    if (top_element(r)->has_children)
        buf_putc(&p->args, '}');
    r->state = OVER;
    return READ_CALL;
}

static enum verdict close_element(struct parser *p)
{
    struct element_reader *r = &p->element;
    struct element *e = top_element(r);
    struct str name = str_skip(buf_str(&r->tag), 1);

    if (r->depth == 1)
        return close_call(p, name);
    if (!str_eq(name, str_skip(buf_str(&r->names), e->name_at)))
        return READ_BAD;
    if (e->kind == LEAF)
        put_leaf(p, e);
    else if (str_trim(buf_str(&r->text)).n)
        return READ_BAD;
    else
        buf_putc(&p->args, e->kind == LIST ? ']' : '}');
    r->names.n = e->name_at;
    r->depth--;
    return READ_MORE;
}

static enum verdict read_tag(struct parser *p, char c)
{
    struct element_reader *r = &p->element;

    if (c != '>') {
        bool is_full = r->tag.n == PARSER_NAME_MAX;
        if (is_full || (unsigned char)c < 0x20)
            return READ_BAD;
        buf_putc(&r->tag, c);
        return READ_MORE;
    }
    r->state = TEXT;
    bool is_end = r->tag.n && r->tag.p[0] == '/';
    enum verdict v = is_end ? close_element(p) : open_element(p);
    buf_reset(&r->text);
    return v;
}

static enum verdict read_text(struct parser *p, char c)
{
    struct element_reader *r = &p->element;
    const struct aho_corasick *m = p->f->tags[TAG_VALUE];
    struct str held = aho_corasick_held(m, r->at);
    uint32_t next = aho_corasick_step(m, r->at, c);
    bool is_tag = aho_corasick_hit(m, next) >= 0;
    size_t n = held.n + 1 - aho_corasick_depth(m, next); /* bytes that begin no tag */

    buf_put(&r->text, held.p, MIN(n, held.n));
    if (n > held.n)
        buf_putc(&r->text, c);
    r->at = is_tag ? AHO_CORASICK_ROOT : next;
    if (is_tag) {
        buf_reset(&r->tag);
        r->state = TAG;
    }
    return READ_MORE;
}

static enum verdict read_byte(struct parser *p, char c)
{
    switch ((enum state)p->element.state) {
    case NAME:
        return read_name(p, c);
    case NAME_END:
        return read_name_end(p, c);
    case TEXT:
        return read_text(p, c);
    case TAG:
        return read_tag(p, c);
    case OVER:
        break;
    }
    return READ_LEAVE;
}

static enum verdict read_elements(struct parser *p, struct str in, size_t *used)
{
    enum verdict v = READ_MORE;
    size_t n = 0;

    while (v == READ_MORE && n < in.n)
        v = read_byte(p, in.p[n++]);
    /* the byte after the call, or the one that breaks it, is not part of it */
    *used = n - (v == READ_LEAVE || v == READ_BAD);
    return v;
}

const struct body_reader reader_elements = { begin_reader, read_elements, NULL, NULL };
