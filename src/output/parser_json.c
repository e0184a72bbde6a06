/* parser_json.c: body reader of BODY_JSON: {"name": .., "arguments": {..}} with the members in any
 * order; the arguments may be a string of JSON, or the object may be inside {"type": "function",
 * "function": {..}}. Calls are single, in a list, or separated by semicolons. Owner: see
 * parser.h. */
#include "output/parser_in.h"

enum state {
    START,      /* '{', or '[' if the format has lists */
    FENCE,      /* inside ```json, if the format has fences */
    FIRST_ITEM, /* after '[' */
    ITEM,       /* after ',' or ';' */
    FIRST_KEY,
    KEY,
    KEY_TEXT,
    COLON,
    VALUE,
    NAME,
    ARGS,      /* an object, copied */
    ARGS_TEXT, /* an object in a string */
    OTHER,     /* an ignored value */
    AFTER,     /* after a member */
    BETWEEN    /* after a call */
};

enum key { KEY_OTHER, KEY_NAME, KEY_ARGS, KEY_FUNCTION };

static void begin_reader(struct parser *p)
{
    struct buf word = p->json.word;

    buf_reset(&word);
    p->json = (struct json_reader){ .state = START, .word = word };
}

static void begin_next_call(struct parser *p)
{
    buf_reset(&p->raw);
    p->is_between = p->json.has_args = false;
    p->json.n_nested = 0;
    p->json.state = FIRST_KEY;
}

static enum verdict read_start(struct parser *p, char c)
{
    struct json_reader *j = &p->json;

    if (is_blank(c))
        return READ_MORE;
    if (c == '`' && p->f->tool->flags & TOOL_FENCE && !j->n_fence) {
        j->n_fence = 1;
        j->state = FENCE;
        return READ_MORE;
    }
    if (c == '{') {
        j->n_nested = 0;
        j->state = FIRST_KEY;
        return READ_MORE;
    }
    j->in_list = c == '[' && p->f->tool->flags & TOOL_LIST;
    j->state = FIRST_ITEM;
    return j->in_list ? READ_MORE : READ_BAD;
}

static enum verdict read_fence(struct parser *p, char c, size_t *used)
{
    static const char text[] = "```json";
    struct json_reader *j = &p->json;

    *used = c == text[j->n_fence];
    j->n_fence += *used;
    if (*used)
        return READ_MORE;
    j->state = START;
    return j->n_fence == 3 || j->n_fence == sizeof(text) - 1 ? READ_MORE : READ_BAD;
}

static void begin_text(struct json_reader *j, enum state state)
{
    buf_reset(&j->word);
    j->text = (struct json_string){ .state = JSON_STRING_PLAIN };
    j->state = (uint8_t)state;
}

static enum key key_of(struct str word)
{
    static const struct {
        const char *word;
        enum key key;
    } keys[] = { { "name", KEY_NAME }, { "tool_name", KEY_NAME }, { "arguments", KEY_ARGS },
        { "parameters", KEY_ARGS }, { "function", KEY_FUNCTION } };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_is(word, keys[i].word))
            return keys[i].key;
    return KEY_OTHER;
}

/* A call without a marker must have a call's first key: other JSON text must not be held back. */
static bool may_be_first(struct str word)
{
    static const char *const words[] = { "id", "type", "tool_call_id", "index" };
    bool may = key_of(word) != KEY_OTHER;

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        may |= str_is(word, words[i]);
    return may;
}

static enum verdict end_key(struct parser *p)
{
    struct json_reader *j = &p->json;
    struct str word = buf_str(&j->word);

    if (p->f->tool->flags & TOOL_KEY_IS_NAME) {
        j->key = KEY_ARGS;
        return parser_set_call_name(p, word) ? READ_MORE : READ_BAD;
    }
    j->key = (uint8_t)key_of(word);
    if (parser_call_is_bare(p) && !j->n_nested && j->is_first && !may_be_first(word))
        return READ_BAD;
    j->is_first = false;
    return READ_MORE;
}

/* One step of a key or name string; *is_over is set at the closing quote. */
static enum verdict string_step(struct parser *p, struct str in, size_t *used, bool *is_over)
{
    struct json_reader *j = &p->json;

    /* The size limit must apply at the same byte, however the text is cut. */
    in.n = MIN(in.n, j->word.max + 1 - j->word.n);
    *used = json_string_step(&j->text, in, &j->word);
    if (!buf_ok(&j->word)) {
        buf_reset(&j->word);
        return READ_BAD;
    }
    *is_over = j->text.state == JSON_STRING_END;
    return *used ? READ_MORE : READ_BAD;
}

static enum verdict read_key_text(struct parser *p, struct str in, size_t *used)
{
    bool is_over = false;
    enum verdict v = string_step(p, in, used, &is_over);

    if (v != READ_MORE || !is_over)
        return v;
    p->json.state = COLON;
    return end_key(p);
}

static enum verdict read_name_text(struct parser *p, struct str in, size_t *used)
{
    bool is_over = false;
    enum verdict v = string_step(p, in, used, &is_over);

    if (v != READ_MORE || !is_over)
        return v;
    p->json.state = AFTER;
    return parser_set_call_name(p, buf_str(&p->json.word)) ? READ_MORE : READ_BAD;
}

static enum verdict begin_args(struct parser *p, char c)
{
    struct json_reader *j = &p->json;

    if (p->call.has_args || p->args.n)
        return READ_BAD; /* a second arguments member */
    json_walk_begin(&p->walk);
    if (c == '{') {
        j->state = ARGS;
        return READ_MORE;
    }
    if (c == '"') {
        begin_text(j, ARGS_TEXT);
        return READ_MORE;
    }
    j->state = OTHER;
    return c == 'n' ? READ_MORE : READ_BAD; /* null: no arguments */
}

/* Selects the state by the first byte of a value; consumes only quotes and an inner brace. */
static enum verdict read_value(struct parser *p, char c, size_t *used)
{
    struct json_reader *j = &p->json;

    *used = 1;
    if (is_blank(c))
        return READ_MORE;
    if (j->key == KEY_ARGS) {
        j->has_args = true;
        *used = c == '"';
        return begin_args(p, c);
    }
    if (j->key == KEY_FUNCTION && c == '{' && !j->n_nested) {
        j->n_nested = 1;
        j->state = FIRST_KEY;
        return READ_MORE;
    }
    if ((j->key == KEY_NAME || j->key == KEY_FUNCTION) && c == '"') {
        begin_text(j, NAME);
        return READ_MORE;
    }
    *used = 0;
    j->state = OTHER;
    json_walk_begin(&p->walk);
    return j->key == KEY_NAME || j->key == KEY_FUNCTION ? READ_BAD : READ_MORE;
}

static enum verdict validate_value(struct parser *p, struct str in, struct buf *out, size_t *used)
{
    enum walk_result result;

    *used = json_walk_put(&p->walk, in, out, &result);
    if (result == WALK_DONE)
        p->json.state = AFTER;
    return result == WALK_BAD ? READ_BAD : READ_MORE;
}

/* Decoded bytes go through the validator one step at a time, so that the byte at which an error is
 * found does not depend on how the text is cut. */
static enum verdict read_args_text(struct parser *p, struct str in, size_t *used)
{
    struct json_reader *j = &p->json;
    enum walk_result result = WALK_MORE;

    buf_reset(&p->scratch);
    bool is_plain = j->text.state == JSON_STRING_PLAIN && in.p[0] != '"' && in.p[0] != '\\';
    *used = json_string_step(&j->text, in, &p->scratch);
    if (!*used)
        return READ_BAD;
    struct str text = buf_str(&p->scratch);
    size_t n = json_walk_put(&p->walk, text, &p->args, &result);
    while (result == WALK_DONE && n < text.n && is_blank(text.p[n]))
        n++;
    if (n < text.n) {
        /* bytes of an unpaired surrogate before the run */
        size_t before = text.n - MIN(text.n, *used);
        if (is_plain)
            *used = n - MIN(n, before);
        return READ_BAD;
    }
    if (j->text.state != JSON_STRING_END)
        return READ_MORE;
    j->state = AFTER;
    bool is_nothing = !p->args.n && !p->call.has_args;
    return result == WALK_DONE || is_nothing || json_walk_end(&p->walk) ? READ_MORE : READ_BAD;
}

static enum verdict end_object(struct parser *p)
{
    struct json_reader *j = &p->json;

    if (j->n_nested) {
        j->n_nested = 0;
        j->state = AFTER;
        return READ_MORE;
    }
    j->state = BETWEEN;
    /* Without a marker, an object with a name is a call only if it has arguments. */
    return p->call.has_name && (j->has_args || !parser_call_is_bare(p)) ? READ_CALL : READ_BAD;
}

static enum verdict read_between(struct parser *p, char c, size_t *used)
{
    struct json_reader *j = &p->json;

    *used = 1;
    if (is_blank(c))
        return READ_MORE;
    if (c == '`' && j->n_fence)
        return READ_MORE;
    if (j->in_list && c == ']') {
        j->in_list = false;
        return j->n_fence ? READ_MORE : READ_LEAVE;
    }
    if (c == (j->in_list ? ',' : ';') && (j->in_list || p->f->tool->flags & TOOL_SEMICOLON)) {
        j->state = ITEM;
        return READ_MORE;
    }
    *used = 0;
    return READ_LEAVE;
}

static enum verdict read_item(struct parser *p, char c, size_t *used)
{
    if (is_blank(c)) {
        *used = 1;
        return READ_MORE;
    }
    if (c == '{') {
        if (p->json.state == ITEM)
            begin_next_call(p);
        p->json.state = FIRST_KEY;
        *used = 1;
        return READ_MORE;
    }
    bool is_empty_list = p->json.state == FIRST_ITEM && c == ']' && !parser_call_is_bare(p);
    *used = is_empty_list;
    return is_empty_list || p->is_between ? READ_LEAVE : READ_BAD;
}

static enum verdict read_structure(struct parser *p, char c, size_t *used)
{
    struct json_reader *j = &p->json;

    *used = 1;
    if (is_blank(c))
        return READ_MORE;
    switch (j->state) {
    case FIRST_KEY:
        j->is_first = true;
        if (c == '}')
            return end_object(p);
        begin_text(j, KEY_TEXT);
        break;
    case KEY:
        begin_text(j, KEY_TEXT);
        break;
    case COLON:
        j->state = VALUE;
        *used = c == ':';
        return c == ':' ? READ_MORE : READ_BAD;
    default: /* AFTER */
        if (c == '}')
            return end_object(p);
        j->state = KEY;
        *used = c == ',';
        return c == ',' ? READ_MORE : READ_BAD;
    }
    *used = c == '"';
    return c == '"' ? READ_MORE : READ_BAD;
}

static enum verdict read_step(struct parser *p, struct str in, size_t *used)
{
    char c = in.p[0];
    enum verdict v;

    switch ((enum state)p->json.state) {
    case START:
        v = read_start(p, c);
        *used = v == READ_MORE;
        return v;
    case FENCE:
        return read_fence(p, c, used);
    case FIRST_ITEM:
    case ITEM:
        return read_item(p, c, used);
    case FIRST_KEY:
    case KEY:
    case COLON:
    case AFTER:
        return read_structure(p, c, used);
    case KEY_TEXT:
        return read_key_text(p, in, used);
    case VALUE:
        return read_value(p, c, used);
    case NAME:
        return read_name_text(p, in, used);
    case ARGS:
        return validate_value(p, in, &p->args, used);
    case ARGS_TEXT:
        return read_args_text(p, in, used);
    case OTHER:
        return validate_value(p, in, NULL, used);
    case BETWEEN:
        break;
    }
    return read_between(p, c, used);
}

/* Reads until the end of a call, after which another one may begin. */
static enum verdict read_json(struct parser *p, struct str in, size_t *used)
{
    enum verdict v;
    size_t n = 0;

    do {
        v = read_step(p, str_skip(in, n), used);
        n += *used;
    } while (v == READ_MORE && n < in.n && p->json.state != ITEM && p->json.state != BETWEEN);
    *used = n;
    return v;
}

static bool is_walking(const struct parser *p)
{
    return p->json.state == ARGS;
}

const struct body_reader reader_json = { begin_reader, read_json, is_walking, NULL };
