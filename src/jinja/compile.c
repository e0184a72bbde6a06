/* compile.c: entry point of the template compiler: normalises the source, runs lexer and parser.
 * Owner: the thread that compiles. */
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/parser.h"

enum { SOURCE_MAX = 256 * 1024 };
static const size_t SCRATCH_MAX = 64 * MB;

/* Copies the source with every line end as \n, and drops the one at the very end. */
static int copy_source(struct compiler *c, struct str source, struct str *out)
{
    char *p = compile_alloc(c, source.n + 1);
    size_t n = 0;

    if (!p)
        return -1;
    for (size_t i = 0; i < source.n; i++) {
        char b = source.p[i];
        if (b == '\r' && i + 1 < source.n && source.p[i + 1] == '\n')
            continue;
        p[n++] = b == '\r' ? '\n' : b;
    }
    if (n && p[n - 1] == '\n')
        n--;
    *out = (struct str){ p, n };
    return 0;
}

static int compile(struct jinja *t, struct compiler *c, struct str source)
{
    static const char *const fixed[N_FIXED_NAMES] = { "loop", "caller", "varargs", "kwargs" };
    uint32_t id;

    if (copy_source(c, source, &t->source))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (name_id(c, str_of(fixed[i]), &id))
            return -1;
    if (jinja_lex(c, t->source) || !(t->root = jinja_parse(c)))
        return -1;
    t->names = c->names;
    t->n_names = c->n_names;
    t->n_texts = c->n_texts;
    return 0;
}

int jinja_compile(struct jinja *out, struct str source, struct arena *a, struct err *e)
{
    struct compiler c = { .e = e, .a = a };
    int rc = -1;

    if (source.n > SOURCE_MAX)
        return err_set(e, ERR_TOO_LARGE, "a template of more than %d bytes", SOURCE_MAX);
    if (!utf8_valid(source))
        return err_set(e, ERR_SYNTAX, "line 1: the template is not UTF-8");
    c.scratch = arena_new(SCRATCH_MAX);
    c.name_ids = str_map_new(64);
    if (c.scratch && c.name_ids)
        rc = compile(out, &c, source);
    else
        err_set(e, ERR_MEMORY, "no memory to compile the template");
    str_map_free(c.name_ids);
    arena_free(c.scratch);
    return rc;
}
