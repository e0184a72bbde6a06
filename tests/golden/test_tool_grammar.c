/* Grammars of tool calls (constrain/tools): random walks under the mask are read by the parser as
 * calls with valid arguments, and the calls of tests/golden/parser.txt are accepted. */
#include "base/rng.h"
#include "constrain/constraint.h"
#include "constrain/tools/tool_grammar.h"
#include "constrain/tools/tool_triggers.h"
#include "support/parser_kit.h"
#include "testing/schema_validate.h"

#include <stdio.h>

#ifdef TESTING
enum { WALKS = 12 };
#else
enum { WALKS = 60 };
#endif
enum { CALLS_IN_TEXT = 1000 }; /* max_calls: text and calls */
enum { STEPS_MAX = 3000, TOKENS_MAX = 400, END = 256, FIRST_LITERAL = 257 };

/* ---- a vocabulary: bytes, an end token, and literals of a format, as control tokens or not */

struct vocab_kit {
    struct str texts[TOKENS_MAX];
    char bytes[256];
    int32_t n;
    bool are_control;
};

static struct str kit_bytes(const void *ctx, int32_t id)
{
    const struct vocab_kit *k = ctx;
    bool is_control = id >= FIRST_LITERAL && k->are_control;

    return id == END || is_control ? STR_NONE : k->texts[id];
}

static bool kit_is_end(const void *ctx, int32_t id)
{
    (void)ctx;
    return id == END;
}

static int32_t kit_find(const void *ctx, struct str text)
{
    const struct vocab_kit *k = ctx;

    for (int32_t id = FIRST_LITERAL; id < k->n; id++)
        if (str_eq(k->texts[id], text))
            return id;
    return -1;
}

static void kit_add(struct vocab_kit *k, struct str text)
{
    if (text.n > 1 && k->n < TOKENS_MAX && kit_find(k, text) < 0)
        k->texts[k->n++] = text;
}

static void kit_init(struct vocab_kit *k, const struct tool_format *f, bool are_control)
{
    *k = (struct vocab_kit){ .n = FIRST_LITERAL, .are_control = are_control };
    for (int b = 0; b < 256; b++) {
        k->bytes[b] = (char)b;
        k->texts[b] = (struct str){ &k->bytes[b], 1 };
    }
    for (int i = 0; i < f->n_marks; i++)
        if (f->marks[i].text.p[f->marks[i].text.n - 1] != '"')
            kit_add(k, f->marks[i].text);
    for (int i = 0; i < f->n_edges; i++)
        if (!are_control)
            kit_add(k, f->edges[i].literal);
}

static struct vocab_tables *kit_tables(const struct vocab_kit *k)
{
    struct token_source src = { k, k->n, kit_bytes, kit_is_end, kit_find };
    struct vocab_tables *t = NULL;
    struct err e = { 0 };

    EXPECT_EQ(vocab_tables_new(&t, &src, &e), 0);
    return t;
}

/* ---- sources */

#define WEATHER                                                                                    \
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": "         \
    "{\"type\": \"integer\", \"minimum\": 1}, \"unit\": {\"enum\": [\"c\", \"f\"]}}, "             \
    "\"required\": [\"city\", \"days\"], \"additionalProperties\": false}"
#define PLAN                                                                                       \
    "{\"type\": \"object\", \"properties\": {\"where\": {\"anyOf\": [{\"type\": \"string\", "      \
    "\"maxLength\": 5}, {\"type\": \"null\"}]}, \"list\": {\"type\": \"array\", \"items\": "       \
    "{\"$ref\": \"#/$defs/item\"}, \"maxItems\": 3}, \"code\": {\"type\": \"string\", "            \
    "\"pattern\": \"^[a-z]{2,4}$\"}}, \"required\": [\"where\", \"list\"], \"$defs\": {\"item\": " \
    "{\"type\": [\"boolean\", \"number\"]}}, \"additionalProperties\": false}"
#define TOOLS                                                                                      \
    "[{\"name\": \"get_weather\", \"parameters\": " WEATHER "}, {\"name\": \"plan\", "             \
    "\"parameters\": " PLAN "}, {\"name\": \"free\"}]"
#define PARSER_TOOLS                                                                               \
    "[{\"name\": \"get_weather\", \"parameters\": " WEATHER "}, {\"name\": \"plan\", "             \
    "\"parameters\": " PLAN "}, {\"name\": \"free\", \"parameters\": {}}]"

static struct constraint *compile(
    const struct vocab_tables *t, const char *format, const char *tools, int max_calls)
{
    struct constraint_source src = { .kind = CONSTRAINT_TOOLS, .bytes_max = MB };
    struct constraint *c = NULL;
    struct err e = { 0 };
    struct buf b;

    buf_init(&b, MB);
    buf_printf(&b, "{\"format\": \"%s\", \"max_calls\": %d, \"tools\": %s%s}", format, max_calls,
        tools, max_calls == CALLS_IN_TEXT ? ", \"text\": true" : "");
    src.text = buf_str(&b);
    if (constraint_new(&c, &src, t, &e))
        fprintf(stderr, "%s: %s\n", format, e.msg);
    EXPECT(c != NULL);
    buf_clear(&b);
    return c;
}

static struct constraint_state *new_state(struct constraint *c)
{
    struct constraint_state *s = NULL;
    struct err e = { 0 };

    EXPECT_EQ(constraint_state_new(&s, c, &e), 0);
    return s;
}

/* ---- random walks */

static bool is_permitted(const struct token_mask *m, int32_t id)
{
    for (int i = 0; m->form == MASK_FORM_IDS && i < m->n_ids; i++)
        if (m->ids[i] == id)
            return true;
    return m->form == MASK_FORM_ALL ||
           (m->form == MASK_FORM_BITS && m->bits[id / 32] >> id % 32 & 1);
}

/* A permitted token: often one that ends a text or a container. */
static int32_t choose(const struct vocab_kit *k, const struct token_mask *m, struct rng *r)
{
    int32_t all[TOKENS_MAX], ends[TOKENS_MAX];
    size_t n = 0, n_ends = 0;

    for (int32_t id = 0; id < k->n; id++) {
        if (!is_permitted(m, id))
            continue;
        all[n++] = id;
        bool is_ascii = id >= 0x20 && id < 0x7f;
        if (id >= END || strchr("\"}]>,:", id) || (is_ascii && rng_below(r, 30) == 0))
            ends[n_ends++] = id;
    }
    EXPECT(n > 0);
    if (n_ends && rng_below(r, 3))
        return ends[rng_below(r, n_ends)];
    return all[rng_below(r, n)];
}

/* Appends a walk to the text; false: it is not finished after STEPS_MAX tokens. */
static bool walk(const struct vocab_kit *k, struct constraint *c, struct rng *r, struct buf *out)
{
    struct constraint_state *s = new_state(c);
    struct sample_constraint o = constraint_state_ops(s);
    bool is_finished = false;

    for (int i = 0; i < STEPS_MAX && !is_finished; i++) {
        struct token_mask m;
        struct err e = { 0 };
        EXPECT_EQ((int)o.ops->mask(o.self, UINT64_MAX, &m, &e), (int)MASK_DONE);
        int32_t id = choose(k, &m, r);
        is_finished = id == END;
        if (is_finished)
            break;
        EXPECT(o.ops->push(o.self, id));
        buf_puts(out, k->texts[id]);
        is_finished = o.ops->is_complete(o.self);
    }
    constraint_state_free(s);
    return is_finished;
}

static bool is_valid(const char *schema, struct str arguments)
{
    struct schema_options options = schema_options_default;
    struct arena *a = arena_new(16 * MB);
    struct schema *s = NULL;
    struct schema_validator *v = NULL;
    struct json *value = NULL;
    struct err e = { 0 };

    EXPECT_EQ(schema_new(&s, str_of(schema), &options, &e), 0);
    EXPECT_EQ(schema_validator_new(&v, s, &e), 0);
    bool ok = !json_parse(&value, arguments, a, NULL, &e) && schema_validate(v, value, &e) == 1;
    schema_validator_free(v);
    schema_free(s);
    arena_free(a);
    return ok;
}

static bool is_right_call(const struct parsed_call *call)
{
    bool is_weather = str_is(call->name, "get_weather"), is_plan = str_is(call->name, "plan");
    const char *schema = is_weather ? WEATHER : is_plan ? PLAN : "{\"type\": \"object\"}";

    return call->is_complete && (is_weather || is_plan || str_is(call->name, "free")) &&
           is_valid(schema, call->arguments);
}

/* The number of calls that the parser reads; -1: invalid arguments; without has_text also other
 * text or a broken call. */
static int n_calls_read(
    const struct tool_format *f, struct str text, const struct json *tools, bool has_text)
{
    struct parser_options o = { .tools = tools };
    struct parser_format *format = NULL;
    struct parsed p;
    struct err e = { 0 };

    struct str reasoning = f->body == BODY_CHANNELS ? STR("harmony") : STR("null");
    EXPECT_EQ(parser_format_new(&format, str_of(f->id), reasoning, &e), 0);
    EXPECT_EQ(parse_text(&p, format, &o, text, &e), 0);
    int n = p.content.n && !has_text ? -1 : p.n_calls;
    for (int i = 0; i < p.n_calls && n >= 0; i++)
        if (!is_right_call(&p.calls[i])) {
            fprintf(stderr, "%s: " STR_FMT " " STR_FMT "\n", f->id, STR_ARG(p.calls[i].name),
                STR_ARG(p.calls[i].arguments));
            n = -1;
        }
    if (n < 1 && !has_text)
        fprintf(stderr, "%s: content '" STR_FMT "'\n", f->id, STR_ARG(buf_str(&p.content)));
    parsed_clear(&p);
    parser_format_free(format);
    return n;
}

static int walk_format(
    const struct tool_format *f, bool are_control, int max_calls, const struct json *tools)
{
    struct vocab_kit k;
    struct rng r = { .key = 17 };
    int n_finished = 0, n_bad = 0, n_calls = 0;

    kit_init(&k, f, are_control);
    struct vocab_tables *t = kit_tables(&k);
    struct constraint *c = compile(t, f->id, TOOLS, max_calls);
    const int n_walks = max_calls == CALLS_IN_TEXT ? WALKS / 4 : WALKS;
    for (int i = 0; i < n_walks; i++) {
        struct buf text;
        buf_init(&text, MB);
        if (walk(&k, c, &r, &text)) {
            n_finished++;
            bool has_text = max_calls == CALLS_IN_TEXT;
            int n = n_calls_read(f, buf_str(&text), tools, has_text);
            bool is_right = n >= !has_text && (!max_calls || n <= max_calls);
            n_calls += n;
            if (!is_right)
                fprintf(
                    stderr, "%s: %d calls in\n" STR_FMT "\n", f->id, n, STR_ARG(buf_str(&text)));
            n_bad += !is_right;
        }
        buf_clear(&text);
    }
    constraint_unref(c);
    vocab_tables_free(t);
    printf("%s%s: %d of %d walks finished, %d bad, %d calls\n", f->id, are_control ? " by id" : "",
        n_finished, n_walks, n_bad, n_calls);
    return n_finished ? n_bad : 1;
}

static void walks_are_read_back_as_valid_calls(void)
{
    struct arena *a = arena_new(MB);
    struct json *tools = NULL;
    struct err e;
    int n_bad = 0, n = 0, n_in_text = 0;

    EXPECT(a && !json_parse(&tools, STR(PARSER_TOOLS), a, NULL, &e));
    for (size_t i = 0; tool_format_at(i); i++) {
        const struct tool_format *f = tool_format_at(i);
        if (!tool_grammar_exists(f))
            continue;
        n++;
        n_bad += walk_format(f, false, 0, tools);
        n_bad += walk_format(f, true, 1, tools);
        struct tool_trigger ignored[TOOL_TRIGGERS_MAX];
        if (!tool_triggers(f, ignored))
            continue;
        n_in_text++;
        n_bad += walk_format(f, false, CALLS_IN_TEXT, tools);
        n_bad += walk_format(f, true, CALLS_IN_TEXT, tools);
    }
    arena_free(a);
    EXPECT(n >= 30 && n_in_text >= 28);
    EXPECT_EQ(n_bad, 0);
}

/* ---- tests/golden/parser.txt */

enum { LINE_MAX_BYTES = 8192 };

/* One case: calls as the whole output. */
struct golden {
    char format[32], name[80], text[LINE_MAX_BYTES];
    size_t n_text;
    int n_calls;
    bool is_excluded; /* reasoning, content, broken calls, other tools */
};

static size_t unescape(char *to, const char *from)
{
    size_t n = 0;

    for (; *from && *from != '\n'; from++) {
        if (*from == '\\')
            to[n++] = *++from == 'n' ? '\n' : *from;
        else
            to[n++] = *from;
    }
    to[n] = '\0';
    return n;
}

static void read_line(struct golden *g, const char *line)
{
    if (!strncmp(line, "in: ", 4))
        g->n_text = unescape(g->text, line + 4);
    else if (!strncmp(line, "call: ", 6))
        g->n_calls++;
    else if (line[0] != '#' && line[0] != '\n')
        g->is_excluded = true; /* tools, start, content, reasoning, broken */
}

/* Which tools take any arguments, so that the names and the frame are compared. */
#define GOLDEN_TOOLS                                                                               \
    "[{\"name\": \"get_weather\"}, {\"name\": \"now\"}, {\"name\": \"note\"}, {\"name\": "         \
    "\"plan\"}, "                                                                                  \
    "{\"name\": \"typed\"}, {\"name\": \"f\"}, {\"name\": \"g\"}, {\"name\": \"un.known-tool\"}]"

static bool is_accepted(const struct golden *g)
{
    struct vocab_kit k;

    kit_init(&k, tool_format_find(str_of(g->format)), false);
    struct vocab_tables *t = kit_tables(&k);
    struct constraint *c = compile(t, g->format, GOLDEN_TOOLS, 0);
    struct constraint_state *s = new_state(c);
    struct str text = str_trim((struct str){ g->text, g->n_text });
    size_t n = constraint_state_read(s, text);
    bool ok = n == text.n && constraint_state_accepts(s);
    if (!ok)
        fprintf(
            stderr, "%s: %s: rejected at %zu: " STR_FMT "\n", g->format, g->name, n, STR_ARG(text));
    constraint_state_free(s);
    constraint_unref(c);
    vocab_tables_free(t);
    return ok;
}

static void calls_of_models_are_accepted(void)
{
    static struct golden g;
    char line[LINE_MAX_BYTES];
    int n = 0, n_accepted = 0;
    FILE *in = fopen("tests/golden/parser.txt", "r");

    EXPECT(in != NULL);
    while (fgets(line, sizeof(line), in)) {
        if (line[0] == '\n' && g.n_calls && !g.is_excluded &&
            tool_grammar_exists(tool_format_find(str_of(g.format)))) {
            n++;
            n_accepted += is_accepted(&g);
        }
        if (line[0] == '\n' || !strncmp(line, "case ", 5))
            memset(&g, 0, sizeof(g));
        if (strncmp(line, "case ", 5))
            read_line(&g, line);
        else
            EXPECT_EQ(sscanf(line, "case %31s %*31[^:]: %79[^\n]", g.format, g.name), 2);
    }
    fclose(in);
    printf("%d of %d cases accepted\n", n_accepted, n);
    /* The others leave out a tag or a comma, or have another frame than the table entry. */
    EXPECT(n_accepted >= 241);
}

/* ---- many tools */

static void many_strict_tools_are_one_constraint(void)
{
    static const int counts[] = { 1, 20, 120 };
    struct vocab_kit k;

    kit_init(&k, tool_format_find(STR("hermes_json")), false);
    struct vocab_tables *t = kit_tables(&k);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        struct rng r = { .key = i };
        struct buf tools, text;
        buf_init(&tools, MB);
        buf_init(&text, MB);
        for (int j = 0; j < counts[i]; j++)
            buf_printf(&tools,
                "%s{\"name\": \"f%d\", \"parameters\": {\"type\": \"object\", \"properties\": "
                "{\"a%d\": {\"type\": \"integer\"}}, \"required\": [\"a%d\"], "
                "\"additionalProperties\": false}}",
                j ? ", " : "[", j, j, j);
        buf_putz(&tools, "]");
        buf_putc(&tools, '\0');
        struct constraint *c = compile(t, "hermes_json", tools.p, 1);
        struct constraint_state *s = new_state(c);
        printf("%d strict tools: %zu kB, %zu kB per choice\n", counts[i],
            constraint_bytes(c) / 1024, constraint_state_bytes(s) / 1024);
        EXPECT(constraint_state_bytes(s) < 3 * MB + (size_t)counts[i] * 200 * 1024);
        EXPECT(walk(&k, c, &r, &text));
        constraint_state_free(s);
        constraint_unref(c);
        buf_clear(&tools);
        buf_clear(&text);
    }
    vocab_tables_free(t);
}

TESTS(TEST(many_strict_tools_are_one_constraint), TEST(walks_are_read_back_as_valid_calls),
    TEST(calls_of_models_are_accepted))
