/* parser_format.c: compiles a tool format and a reasoning format into a struct parser_format.
 * Read-only afterwards; any thread. */
#include "base/suggest.h"
#include "base/mem.h"
#include "output/parser_in.h"

#include <stdio.h>

enum { FORMAT_BYTES_MAX = 8 * 1024 * 1024 };

const char *parser_tool_id(size_t i)
{
    const struct tool_format *r = tool_format_at(i);

    return r ? r->id : NULL;
}

const char *parser_reasoning_id(size_t i)
{
    const struct reasoning_format *r = reasoning_format_at(i);

    return r ? r->id : NULL;
}

static int unknown_id_error(
    struct err *e, const char *param, struct str id, const char *(*at)(size_t))
{
    struct suggestion s = suggest_for(id);
    char known[sizeof(e->msg)] = "";
    size_t n = 0;

    for (size_t i = 0; at(i); i++)
        suggest_offer(&s, str_of(at(i)));
    if (s.best.p)
        return err_param(e, ERR_INVALID, param,
            "'" STR_FMT "' is no known parser; did you mean '" STR_FMT "'?", STR_ARG(id),
            STR_ARG(s.best));
    for (size_t i = 0; at(i) && n < sizeof(known); i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "", at(i));
    id.n = MIN(id.n, (size_t)40);
    return err_param(e, ERR_INVALID, param, "'" STR_FMT "' is not one of: %s", STR_ARG(id), known);
}

/* A marker of both formats counts as the tool format's. */
static void add_marks(struct parser_format *f, const struct marker *rows, int n, bool is_tool)
{
    for (int i = 0; i < n; i++) {
        bool is_known = false;
        for (int k = 0; k < f->n_marks; k++)
            is_known |= str_eq(f->texts[k], rows[i].text);
        if (is_known)
            continue;
        CHECK(f->n_marks < AHO_CORASICK_MAX_STRINGS);
        f->texts[f->n_marks] = rows[i].text;
        f->is_tool[f->n_marks] = is_tool;
        f->rows[f->n_marks++] = rows[i];
    }
}

static bool compile_tags(struct parser_format *f)
{
    int n[N_TAG_STATES] = { 0 };

    for (int i = 0; i < f->tool->n_edges; i++) {
        const struct tag_edge *e = &f->tool->edges[i];
        int k = n[e->from]++;
        CHECK(k < TAG_EDGES_MAX);
        f->tag_texts[e->from][k] = e->literal;
        f->tag_to[e->from][k] = e->to;
    }
    for (int s = 0; s < N_TAG_STATES; s++) {
        if (!n[s])
            continue;
        f->tags[s] = aho_corasick_new(f->arena, f->tag_texts[s], n[s]);
        if (!f->tags[s])
            return false;
    }
    return true;
}

static const struct body_reader *reader_of(enum body body)
{
    switch (body) {
    case BODY_NONE:
        return NULL;
    case BODY_JSON:
        return &reader_json;
    case BODY_TAGS:
        return &reader_tags;
    case BODY_ELEMENTS:
        return &reader_elements;
    case BODY_PYTHON:
        return &reader_python;
    case BODY_CHANNELS:
        return &reader_channels;
    }
    return NULL;
}

int parser_format_new(
    struct parser_format **out, struct str tool, struct str reasoning, struct err *e)
{
    const struct tool_format *t = tool_format_find(tool.n ? tool : STR("null"));
    const struct reasoning_format *k = reasoning_format_find(reasoning.n ? reasoning : STR("null"));

    if (!t)
        return unknown_id_error(e, "tool_parser", tool, parser_tool_id);
    if (!k)
        return unknown_id_error(e, "thinking_parser", reasoning, parser_reasoning_id);
    struct arena *a = arena_new(FORMAT_BYTES_MAX);
    struct parser_format *f = a ? arena_zalloc(a, 1, sizeof(*f)) : NULL;
    if (!f)
        goto no_memory;
    *f = (struct parser_format){ .arena = a, .tool = t, .reasoning = k };
    f->reader = reader_of(t->body);
    add_marks(f, t->marks, t->n_marks, true);
    add_marks(f, k->marks, k->n_marks, false);
    f->marks = aho_corasick_new(a, f->texts, f->n_marks);
    if (!f->marks || !compile_tags(f))
        goto no_memory;
    *out = f;
    return 0;

no_memory:
    arena_free(a);
    return err_set(e, ERR_MEMORY, "no memory for a parser");
}

void parser_format_free(struct parser_format *f)
{
    if (f)
        arena_free(f->arena);
}

const char *parser_format_tool(const struct parser_format *f)
{
    return f->tool->id;
}

const char *parser_format_reasoning(const struct parser_format *f)
{
    return f->reasoning->id;
}

bool parser_can_toggle_reasoning(const struct parser_format *f)
{
    return f->reasoning->flags & REASONING_TOGGLE;
}

bool parser_format_has_marker(const struct parser_format *f, struct str token)
{
    bool found = !token.n ? false : str_find(f->tool->quote, token) >= 0;

    for (int i = 0; i < f->n_marks && token.n; i++)
        found |= str_find(f->texts[i], token) >= 0;
    for (int s = 0; s < N_TAG_STATES && token.n; s++)
        for (int k = 0; k < TAG_EDGES_MAX; k++)
            found |= f->tag_texts[s][k].n && str_find(f->tag_texts[s][k], token) >= 0;
    return found;
}

enum call_id_form parser_format_ids(const struct parser_format *f)
{
    return f->tool->ids;
}
