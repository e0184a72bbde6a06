/* parser_python.c: body reader of BODY_PYTHON: [f(a=1, b='x'), m.g()], and dialects such as f{a:1}.
 * Positional arguments get the names of the tool's schema, in its order. Owner: see parser.h. */
#include "output/parser_in.h"

enum state {
    START,  /* the prefix of a dialect, or '[', or a name */
    PREFIX, /* inside "call:" */
    CALLEE, /* before a name */
    NAME,
    ARG,  /* before an argument, or the end */
    WORD, /* an argument that begins with a word, which may be its name */
    WORD_GAP,
    VALUE,
    AFTER,
    BETWEEN,
    ITEM /* after a comma between calls */
};

static void begin_reader(struct parser *p)
{
    /* `literal` and `word` are initialised when they are used */
    struct python_reader *y = &p->python;

    y->state = START;
    y->n_prefix = 0;
    y->in_list = y->has_args = false;
    y->n_positional = 0;
    y->n_word = 0;
    y->schema = NULL;
}

static char open_of(const struct parser *p)
{
    return p->f->tool->open ? p->f->tool->open : '(';
}

static char close_of(const struct parser *p)
{
    return p->f->tool->close ? p->f->tool->close : ')';
}

static char assign_of(const struct parser *p)
{
    return p->f->tool->assign ? p->f->tool->assign : '=';
}

static bool is_first_of_name(char c)
{
    return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' || (c & 0x80);
}

static bool is_of_name(char c)
{
    return is_first_of_name(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

static bool word_add(struct python_reader *y, char c)
{
    if (y->n_word == sizeof(y->word))
        return false;
    y->word[y->n_word++] = c;
    return true;
}

/* Changes the state without consuming the byte. */
static enum verdict enter_state(struct parser *p, enum state state, size_t *used)
{
    p->python.state = (uint8_t)state;
    *used = 0;
    return READ_MORE;
}

static enum verdict read_start(struct parser *p, char c, size_t *used)
{
    struct python_reader *y = &p->python;
    const char *want = p->f->tool->prefix;

    if (is_blank(c))
        return READ_MORE;
    if (want)
        return enter_state(p, PREFIX, used);
    if (c != '[')
        return enter_state(p, CALLEE, used);
    y->in_list = true;
    y->state = CALLEE;
    return READ_MORE;
}

static enum verdict read_prefix(struct parser *p, char c, size_t *used)
{
    struct python_reader *y = &p->python;
    const char *want = p->f->tool->prefix;

    if (c != want[y->n_prefix]) {
        *used = 0;
        return READ_BAD;
    }
    if (!want[++y->n_prefix])
        y->state = CALLEE;
    return READ_MORE;
}

static enum verdict read_callee(struct parser *p, char c, size_t *used)
{
    struct python_reader *y = &p->python;

    if (is_blank(c))
        return READ_MORE;
    *used = 0;
    if (!is_first_of_name(c))
        return READ_BAD;
    y->n_word = 0;
    return enter_state(p, NAME, used);
}

static enum verdict read_name(struct parser *p, char c, size_t *used)
{
    struct python_reader *y = &p->python;

    if (is_of_name(c) && word_add(y, c))
        return READ_MORE;
    if (c != open_of(p) || !parser_set_call_name(p, (struct str){ y->word, y->n_word })) {
        *used = 0;
        return READ_BAD;
    }
    y->schema = parser_call_schema(p);
    y->has_args = false;
    y->n_positional = 0;
    y->state = ARG;
    return READ_MORE;
}

static void put_key(struct parser *p, struct str key)
{
    buf_putz(&p->args, p->python.has_args ? ",\"" : "{\"");
    json_text_put(&p->args, key);
    buf_putz(&p->args, "\":");
    p->python.has_args = true;
    literal_begin(&p->python.literal);
}

static enum verdict end_call(struct parser *p)
{
    if (p->python.has_args)
        buf_putc(&p->args, '}');
    p->python.state = BETWEEN;
    return READ_CALL;
}

/* Takes the name of a positional argument from the schema; false if there is none. */
static bool put_positional_key(struct parser *p)
{
    struct str key = parser_call_argument_name(p, p->python.schema, p->python.n_positional++);

    if (key.p)
        put_key(p, key);
    return key.p != NULL;
}

static enum verdict read_arg(struct parser *p, char c, size_t *used)
{
    struct python_reader *y = &p->python;

    if (is_blank(c))
        return READ_MORE;
    if (c == close_of(p))
        return end_call(p);
    y->n_word = 0;
    if (is_first_of_name(c))
        return enter_state(p, WORD, used);
    *used = 0;
    if (!put_positional_key(p))
        return READ_BAD;
    return enter_state(p, VALUE, used);
}

/* The word is not an argument name but the beginning of a value. */
static enum verdict word_is_value(struct parser *p, size_t *used)
{
    struct python_reader *y = &p->python;
    struct str word = { y->word, y->n_word };
    enum walk_result result = WALK_MORE;

    *used = 0;
    if (!put_positional_key(p))
        return READ_BAD;
    literal_put(&y->literal, word, &p->args, &result);
    return result == WALK_BAD ? READ_BAD : enter_state(p, VALUE, used);
}

static enum verdict read_word(struct parser *p, char c, size_t *used)
{
    struct python_reader *y = &p->python;

    if (y->state == WORD && is_of_name(c) && word_add(y, c))
        return READ_MORE;
    if (c == assign_of(p)) {
        put_key(p, (struct str){ y->word, y->n_word });
        y->state = VALUE;
        return READ_MORE;
    }
    if (is_blank(c)) {
        y->state = WORD_GAP;
        return READ_MORE;
    }
    return word_is_value(p, used);
}

static enum verdict read_value(struct parser *p, struct str in, size_t *used)
{
    enum walk_result result;

    *used = literal_put(&p->python.literal, in, &p->args, &result);
    if (result == WALK_DONE)
        p->python.state = AFTER;
    return result == WALK_BAD ? READ_BAD : READ_MORE;
}

static enum verdict read_after(struct parser *p, char c, size_t *used)
{
    if (is_blank(c))
        return READ_MORE;
    if (c == close_of(p))
        return end_call(p);
    p->python.state = ARG;
    *used = c == ',';
    return c == ',' ? READ_MORE : READ_BAD;
}

static enum verdict read_between(struct parser *p, char c, size_t *used)
{
    struct python_reader *y = &p->python;
    bool may_follow = y->in_list || p->f->tool->flags & TOOL_MANY;

    if (is_blank(c))
        return READ_MORE;
    if (y->in_list && c == ']')
        return READ_LEAVE;
    if (c == '`' && p->f->tool->flags & TOOL_FENCE)
        return READ_MORE;
    if (may_follow && y->state == BETWEEN && (c == ',' || c == ';')) {
        y->state = ITEM;
        return READ_MORE;
    }
    *used = 0;
    bool follows = y->state == ITEM || (may_follow && !y->in_list);
    if (!follows || !is_first_of_name(c))
        return READ_LEAVE;
    buf_reset(&p->raw);
    p->is_between = false;
    y->n_word = 0;
    return enter_state(p, NAME, used);
}

static enum verdict read_step(struct parser *p, struct str in, size_t *used)
{
    char c = in.p[0];

    *used = 1;
    switch ((enum state)p->python.state) {
    case START:
        return read_start(p, c, used);
    case PREFIX:
        return read_prefix(p, c, used);
    case CALLEE:
        return read_callee(p, c, used);
    case NAME:
        return read_name(p, c, used);
    case ARG:
        return read_arg(p, c, used);
    case WORD:
    case WORD_GAP:
        return read_word(p, c, used);
    case VALUE:
        return read_value(p, in, used);
    case AFTER:
        return read_after(p, c, used);
    case BETWEEN:
    case ITEM:
        break;
    }
    return read_between(p, c, used);
}

/* Reads until the end of a call, after which another one may begin. */
static enum verdict read_python(struct parser *p, struct str in, size_t *used)
{
    enum verdict v;
    size_t n = 0;

    do {
        v = read_step(p, str_skip(in, n), used);
        n += *used;
    } while (v == READ_MORE && n < in.n && p->python.state < BETWEEN);
    *used = n;
    return v;
}

const struct body_reader reader_python = { begin_reader, read_python, NULL, NULL };
