/* parsed.c: collects the callbacks of the output parser into struct parsed, so the result of a
 * whole text cannot differ from the streamed one. Owner: the caller; one thread at a time. */
#include "base/mem.h"
#include "output/parser.h"

static void append_text(struct parsed *r, struct buf *to, struct str text)
{
    buf_puts(to, text);
    r->failed |= !buf_ok(to);
}

static void on_content(void *ctx, int choice, struct str text)
{
    struct parsed *r = ctx;
    append_text(r, &r->content, text);
}

static void on_reasoning(void *ctx, int choice, struct str text)
{
    struct parsed *r = ctx;
    append_text(r, &r->reasoning, text);
}

static bool make_room(struct parsed *r)
{
    if (r->n_calls < r->cap_calls)
        return true;
    int cap = r->cap_calls ? r->cap_calls * 2 : 4;
    struct parsed_call *calls = try_realloc(r->calls, (size_t)cap * sizeof(*calls));
    if (!calls)
        return false;
    r->calls = calls;
    r->cap_calls = cap;
    return true;
}

static void on_call_begin(void *ctx, int choice, int call, struct str name)
{
    struct parsed *r = ctx;
    char *copy = try_malloc(name.n);

    buf_reset(&r->arguments);
    if (!copy || !make_room(r)) {
        mem_free(copy);
        r->failed = true;
        return;
    }
    memcpy(copy, name.p, name.n);
    r->calls[r->n_calls++] = (struct parsed_call){ .name = { copy, name.n } };
}

static void on_call_args(void *ctx, int choice, int call, struct str json)
{
    struct parsed *r = ctx;
    append_text(r, &r->arguments, json);
}

static struct parsed_call *open_call(struct parsed *r)
{
    return r->n_calls && !r->calls[r->n_calls - 1].is_complete ? &r->calls[r->n_calls - 1] : NULL;
}

static void on_call_end(void *ctx, int choice, int call)
{
    struct parsed *r = ctx;
    struct parsed_call *c = open_call(r);

    if (!c)
        return; /* allocation failed in on_call_begin */
    size_t max = r->arguments.max;
    c->arguments = buf_steal(&r->arguments);
    buf_init(&r->arguments, max);
    c->is_complete = true;
}

static void on_call_broken(void *ctx, int choice, int call)
{
    struct parsed *r = ctx;
    struct parsed_call *c = open_call(r);

    if (!c)
        return;
    mem_free((void *)(uintptr_t)c->name.p);
    r->n_calls--;
}

const struct output_ops parsed_ops = { on_content, on_reasoning, on_call_begin, on_call_args,
    on_call_end, on_call_broken };

void parsed_init(struct parsed *r, size_t max_bytes)
{
    *r = (struct parsed){ .calls = NULL };
    buf_init(&r->content, max_bytes);
    buf_init(&r->reasoning, max_bytes);
    buf_init(&r->arguments, max_bytes);
}

void parsed_clear(struct parsed *r)
{
    for (int i = 0; i < r->n_calls; i++) {
        mem_free((void *)(uintptr_t)r->calls[i].name.p);
        mem_free((void *)(uintptr_t)r->calls[i].arguments.p);
    }
    mem_free(r->calls);
    buf_clear(&r->content);
    buf_clear(&r->reasoning);
    buf_clear(&r->arguments);
    r->calls = NULL;
    r->n_calls = r->cap_calls = 0;
}

int parse_text(struct parsed *out, const struct parser_format *f, const struct parser_options *o,
    struct str text, struct err *e)
{
    parsed_init(out, PARSER_TEXT_MAX);
    struct parser *p = parser_new(f, o, &parsed_ops, out);
    if (!p)
        return err_set(e, ERR_MEMORY, "no memory for a parser");
    int rc = parser_put(p, text, e) || parser_end(p, e) ? -1 : 0;
    parser_free(p);
    if (!rc && out->failed)
        rc = err_set(e, ERR_MEMORY, "no memory for a response");
    return rc;
}

bool parser_has_call(const struct parser_format *f, struct str text, struct str function)
{
    struct parsed r;
    struct err e;
    bool found = false;

    if (!parse_text(&r, f, NULL, text, &e))
        for (int i = 0; i < r.n_calls; i++)
            found |= str_eq(r.calls[i].name, function);
    parsed_clear(&r);
    return found;
}
