#include "chat/template.h"
#include "base/mem.h"
#include "chat/template_context.h"

static const size_t COMPILE_MAX = 64 * MB;

#define LIMITS                                                                                     \
    .max_steps = 1500 * 1000, .max_output = 32 * MB, .max_memory = 128 * MB, .max_depth = 500

const struct template_limits template_limits_request = { LIMITS };
const struct template_limits template_limits_default = { LIMITS, .steps_per_message = 50,
    .steps_per_kb = 600, .steps_per_pair = 8, .max_pair_steps = 100 * 1000 * 1000 };

struct chat_template {
    struct arena *a;
    struct jinja jinja;
    /* Form of messages which the template expects, detected by test renderings. */
    bool takes_parts;     /* content as a list of parts */
    bool needs_parts;     /* content only as such a list */
    bool drops_developer; /* developer messages are not rendered */
    bool wants_text_args; /* arguments of tool calls as JSON text */
    bool wants_no_tools;  /* without tools, `tools` must be undefined, not none */
};

/* ---- rendering */

/* Finds the end of the last message's content in the output: the last occurrence that consists of
 * untrusted text, cut as in transformers. */
static int end_of_final(struct rt *rt, const struct text *out, struct str content, size_t *end)
{
    struct str bare = str_skip(content, leading_space(content));
    bool has_head = bare.n < content.n;
    struct str whole = bare;

    bare.n -= trailing_space(bare);
    if (rt_spend(rt, out->n / 8))
        return -1;
    for (size_t at = out->n + 1; bare.n <= out->n && at-- > 0;) {
        size_t run_end;
        if (at + bare.n > out->n || out->p[at] != bare.p[0] ||
            !str_starts(str_skip(text_str(out), at), bare))
            continue;
        bool trusted = text_origin(out, at, &run_end);
        if (trusted || run_end < at + bare.n)
            continue;
        bool keeps_tail = !has_head && str_starts(str_skip(text_str(out), at), whole);
        *end = at + (keeps_tail ? whole.n : bare.n);
        return 0;
    }
    return err_set(rt->e, ERR_INVALID,
        "continue_final_message: the template does not render the last message unchanged");
}

static struct str final_content(const struct convo *c)
{
    const struct message *m = c->n_messages ? &c->messages[c->n_messages - 1] : NULL;

    for (int i = m ? m->n_parts : 0; i-- > 0;)
        if (m->parts[i].kind == PART_TEXT)
            return m->parts[i].text;
    return STR("");
}

/* Copies the first n bytes of the output as spans into the caller's arena. */
static int copy_spans(
    struct rt *rt, const struct text *t, size_t n, struct arena *a, struct rendered *out)
{
    size_t n_spans = 0, end;

    for (size_t i = 0; i < n; i = end, n_spans++)
        text_origin(t, i, &end);
    struct str bytes = arena_str(a, (struct str){ t->p, n });
    struct span *spans = arena_zalloc(a, MAX(n_spans, (size_t)1), sizeof(*spans));
    if (!bytes.p || !spans)
        return err_set(rt->e, ERR_MEMORY, "no memory for the prompt");
    n_spans = 0;
    for (size_t i = 0; i < n; i = end) {
        bool trusted = text_origin(t, i, &end);
        end = MIN(end, n);
        spans[n_spans++] = (struct span){ { bytes.p + i, end - i }, trusted };
    }
    *out = (struct rendered){ spans, n_spans, n };
    return 0;
}

struct render_job {
    const struct chat_template *t;
    const struct convo *c;
    const struct template_env *env;
    const struct template_limits *limits;
    struct arena *a;
};

static int render_into(
    struct rt *rt, const struct render_job *j, int variant_flags, struct rendered *out)
{
    rt->variables = rt_alloc(rt, MAX(j->t->jinja.n_names, 1u) * sizeof(*rt->variables));
    rt->texts = rt_alloc(rt, MAX(j->t->jinja.n_texts, 1u) * sizeof(*rt->texts));
    rt->out = blob_new(rt);
    if (!rt->variables || !rt->texts || !rt->out ||
        template_context_set(rt, j->c, j->env, variant_flags) || exec(rt, j->t->jinja.root) < 0)
        return -1;
    struct text *t = blob_text(rt, rt->out);
    if (!t)
        return -1;
    size_t n = t->n;
    if (j->c->continue_final_message && !(variant_flags & VARIANT_WITHOUT_LAST) &&
        end_of_final(rt, t, final_content(j->c), &n))
        return -1;
    return copy_spans(rt, t, n, j->a, out);
}

/* *fuel: on entry the permitted steps, on return those left. */
static int render_once(const struct render_job *j, int variant_flags, uint64_t *fuel,
    struct rendered *out, struct err *e)
{
    const struct template_limits *l = j->limits;
    struct rt rt = { .e = e,
        .reserve = *fuel,
        .stop = j->env->stop,
        .max_depth = l->max_depth,
        .max_output = l->max_output,
        .max_memory = l->max_memory,
        .line = 1,
        .now = j->env->now,
        .t = &j->t->jinja };

    rt.a = arena_new(l->max_memory);
    if (!rt.a)
        return err_set(e, ERR_MEMORY, "no memory to render the template");
    int rc = render_into(&rt, j, variant_flags, out);
    *fuel = rt.fuel + rt.reserve;
    arena_free(rt.a);
    return rc;
}

/* Bytes of text that a template may have to read. */
static size_t convo_bytes(const struct convo *c)
{
    size_t n = c->tools ? c->tools->raw.n : 0;

    for (int i = 0; i < c->n_messages; i++) {
        const struct message *m = &c->messages[i];
        n += m->reasoning.n;
        for (int k = 0; k < m->n_parts; k++)
            n += m->parts[k].text.n;
        for (int k = 0; k < m->n_tool_calls; k++)
            n += m->tool_calls[k].name.n + m->tool_calls[k].arguments.n;
    }
    return n;
}

static uint64_t steps_for(const struct template_limits *l, const struct convo *c)
{
    uint64_t n = (uint64_t)c->n_messages;
    uint64_t steps = l->steps_per_message * n + MIN(l->steps_per_pair * n * n, l->max_pair_steps);

    return l->max_steps + steps + (l->steps_per_kb ? convo_bytes(c) / KB * l->steps_per_kb : 0);
}

/* Variant flags detected at compilation. */
static int default_variant(const struct chat_template *t)
{
    return (t->takes_parts ? 0 : VARIANT_CONTENT_AS_STRING) |
           (t->needs_parts ? VARIANT_CONTENT_AS_PARTS : 0) |
           (t->drops_developer ? VARIANT_DEVELOPER_AS_SYSTEM : 0) |
           (t->wants_text_args ? VARIANT_TEXT_ARGS : 0) |
           (t->wants_no_tools ? VARIANT_TOOLS_UNDEFINED : 0);
}

static bool has_calls(const struct convo *c)
{
    for (int i = 0; i < c->n_messages; i++)
        if (c->messages[i].n_tool_calls)
            return true;
    return false;
}

static bool has_tools(const struct convo *c)
{
    return !json_is_null(c->tools) && c->tools->n > 0;
}

static bool has_developer(const struct convo *c)
{
    for (int i = 0; i < c->n_messages; i++)
        if (c->messages[i].role == ROLE_DEVELOPER)
            return true;
    return false;
}

/* check-size: chat_template_render parameters=7: template, input and limits, memory, result,
 * error */
int chat_template_render(const struct chat_template *t, const struct convo *c,
    const struct template_env *env, const struct template_limits *l, struct arena *a,
    struct rendered *out, struct err *e)
{
    const struct render_job j = { t, c, env, l, a };
    struct err first = { 0 }, again;
    struct str content = final_content(c);
    int variant_flags = env->no_variants ? 0 : default_variant(t);
    uint64_t steps = steps_for(l, c), fuel = steps; /* for all attempts together */

    if (c->continue_final_message && leading_space(content) == content.n)
        variant_flags |= VARIANT_WITHOUT_LAST;
    int rc = render_once(&j, variant_flags, &fuel, out, &first);
    const int others[] = { has_calls(c) ? VARIANT_TEXT_ARGS : 0,
        has_developer(c) && !(variant_flags & VARIANT_DEVELOPER_AS_SYSTEM)
            ? VARIANT_DEVELOPER_AS_SYSTEM
            : 0,
        has_tools(c) ? VARIANT_TOOL_DEFAULTS : 0 };
    bool may_try = rc && !env->no_variants && first.code == ERR_INVALID;
    for (unsigned set = 1; rc && may_try && set < 1u << ARRAY_LEN(others); set++) {
        int changes = 0;
        bool is_possible = true;
        for (size_t i = 0; i < ARRAY_LEN(others); i++)
            if (set >> i & 1) {
                changes |= others[i];
                is_possible &= others[i] != 0;
            }
        if (!is_possible)
            continue;
        rc = render_once(&j, variant_flags ^ changes, &fuel, out, &again);
        if (rc && again.code == ERR_MEMORY)
            first = again;
    }
    if (rc)
        *e = first;
    else
        out->n_steps = steps - fuel;
    return rc;
}

/* ---- detection of the variant, by rendering small conversations */

static const char probe_word[] = "zqxprobe";

struct probe_result {
    bool renders, shows; /* renders: without an error; shows: the output contains the probe word */
    bool has_key;        /* the output also contains a Python or JSON key next to the word */
};

static bool contains(const struct rendered *r, const char *z)
{
    return r->n_bytes && str_find((struct str){ r->spans[0].text.p, r->n_bytes }, str_of(z)) >= 0;
}

static int render_probe(const struct chat_template *t, const struct convo *c, int variant_flags,
    struct probe_result *out, struct err *e)
{
    static const struct template_limits limits = { 100 * 1000, MB, 8 * MB, 500 };
    static const struct template_env env = { .bos_token = { "", 0 }, .eos_token = { "", 0 } };
    struct arena *a = arena_new(8 * MB);
    const struct render_job j = { t, c, &env, &limits, a };
    struct rendered r;
    struct err ignored;

    *out = (struct probe_result){ 0 };
    if (!a)
        return err_set(e, ERR_MEMORY, "no memory to compile the template");
    uint64_t fuel = limits.max_steps;
    int rc = render_once(&j, variant_flags, &fuel, &r, &ignored);
    if (!rc) {
        out->renders = true;
        out->shows = contains(&r, probe_word);
        out->has_key =
            contains(&r, "'text'") || contains(&r, "\"text\"") || contains(&r, "'zqxkey'");
    }
    arena_free(a);
    if (rc && ignored.code == ERR_MEMORY) {
        *e = ignored;
        return -1;
    }
    return 0;
}

static int detect_variants(struct chat_template *t, struct err *e)
{
    struct content_part hello = { .kind = PART_TEXT, .text = STR("hello") };
    struct content_part word = { .kind = PART_TEXT, .text = str_of(probe_word) };
    struct tool_call call = { .id = STR("call12345"),
        .name = STR("look_up"),
        .arguments = STR("{\"zqxkey\": \"zqxprobe\"}") };
    struct message m[3] = {
        { .role = ROLE_USER, .has_content = true, .parts = &word, .n_parts = 1, .is_plain = true }
    };
    struct convo c = { .messages = m, .n_messages = 1, .add_generation_prompt = true };
    struct probe_result plain, parts, system, developer, args;
    int variant_flags = 0;

    if (render_probe(t, &c, variant_flags, &plain, e))
        return -1;
    if (!plain.renders) {
        if (render_probe(t, &c, VARIANT_TOOLS_UNDEFINED, &plain, e))
            return -1;
        t->wants_no_tools = plain.renders;
        variant_flags = plain.renders ? VARIANT_TOOLS_UNDEFINED : 0;
    }
    if (render_probe(t, &c, variant_flags | VARIANT_CONTENT_AS_PARTS, &parts, e))
        return -1;
    t->takes_parts = parts.shows && !parts.has_key;
    t->needs_parts = t->takes_parts && !plain.shows;
    variant_flags |= t->needs_parts ? VARIANT_CONTENT_AS_PARTS : 0;

    m[1] = m[0];
    m[1].parts = &hello;
    c.n_messages = 2;
    m[0].role = ROLE_SYSTEM;
    if (render_probe(t, &c, variant_flags, &system, e))
        return -1;
    m[0].role = ROLE_DEVELOPER;
    if (render_probe(t, &c, variant_flags, &developer, e))
        return -1;
    t->drops_developer = system.shows && developer.renders && !developer.shows;

    m[0] = m[1];
    m[1] = (struct message){ .role = ROLE_ASSISTANT, .tool_calls = &call, .n_tool_calls = 1 };
    m[2] = (struct message){ .role = ROLE_TOOL,
        .has_content = true,
        .is_plain = true,
        .parts = &hello,
        .n_parts = 1,
        .tool_call_id = call.id };
    c.n_messages = 3;
    if (render_probe(t, &c, variant_flags, &args, e))
        return -1;
    t->wants_text_args = args.shows && args.has_key;
    return 0;
}

/* ---- compilation */

int chat_template_compile(struct chat_template **out, struct str source, struct err *e)
{
    struct arena *a = arena_new(COMPILE_MAX);
    struct chat_template *t = a ? arena_zalloc(a, 1, sizeof(*t)) : NULL;

    if (!t) {
        arena_free(a);
        return err_set(e, ERR_MEMORY, "no memory to compile the template");
    }
    t->a = a;
    if (jinja_compile(&t->jinja, source, a, e) || detect_variants(t, e)) {
        arena_free(a);
        return -1;
    }
    *out = t;
    return 0;
}

void chat_template_free(struct chat_template *t)
{
    if (t)
        arena_free(t->a);
}

struct str chat_template_source(const struct chat_template *t)
{
    return t->jinja.source;
}
