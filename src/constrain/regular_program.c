#include "base/json.h"
#include "base/mem.h"
#include "constrain/automaton_acceptor.h"
#include "constrain/constraint_in.h"
#include "constrain/regular/live.h"
#include "constrain/regular/pattern.h"

#include <stdlib.h>

/* A compiled regular language. */
struct constraint_program {
    struct exprs *x;
    expr_id root;
};

static int no_memory(struct err *e)
{
    return err_set(e, ERR_MEMORY, "no memory for a constraint");
}

static void free_program(struct constraint_program *p)
{
    if (!p)
        return;
    exprs_free(p->x);
    mem_free(p);
}

static size_t program_bytes(const struct constraint_program *p)
{
    return sizeof(*p) + exprs_bytes(p->x);
}

static int make_acceptor(struct acceptor **out, const struct constraint_program *p, struct err *e)
{
    struct automaton_limits limits = { ACCEPTOR_BYTES_CAP, STEP_WORK_MAX };

    return automaton_acceptor_new(out, p->x, p->root, limits, e);
}

/* Restricts the language to the texts of the vocabulary. */
static int finish(struct constraint_program *p, const struct vocab_tables *t, struct err *e)
{
    if (exprs_check(p->x, e) || producible_restrict(&t->producible, p->x, p->root, &p->root, e))
        return -1;
    bool is_live = expr_is_live(p->x, p->root);
    if (exprs_check(p->x, e))
        return -1;
    return is_live ? 0 : err_set(e, ERR_INVALID, "no text satisfies the constraint");
}

typedef int build_fn(struct exprs *x, struct str text, expr_id *out, struct err *e);

static int compile(struct constraint_program **out, const struct constraint_source *src,
    const struct vocab_tables *t, uint64_t *work, build_fn *build, struct err *e)
{
    struct constraint_program *p = try_calloc(1, sizeof(*p));

    if (p)
        p->x = exprs_new((struct expr_limits){ CONSTRAINT_BYTES_CAP, COMPILE_WORK_MAX });
    if (!p || !p->x) {
        free_program(p);
        return no_memory(e);
    }
    if (build(p->x, src->text, &p->root, e) || finish(p, t, e)) {
        free_program(p);
        return -1;
    }
    *work = exprs_work(p->x);
    exprs_seal(p->x);
    *out = p;
    return 0;
}

/* ---- regex */

static int build_regex(struct exprs *x, struct str text, expr_id *out, struct err *e)
{
    return pattern_compile(x, text, TEXT_UTF8, PATTERN_FULL, out, e);
}

static int compile_regex(struct constraint_program **out, const struct constraint_source *src,
    const struct vocab_tables *t, uint64_t *work, struct err *e)
{
    return compile(out, src, t, work, build_regex, e);
}

const struct constraint_kind_ops constraint_kind_regex = { "pattern", compile_regex, make_acceptor,
    program_bytes, free_program };

/* ---- choice
 *
 * The strings are sorted and joined to a trie. The stack has the ends of the strings that were read
 * and the nodes whose subtrees are complete, each with its depth in bytes: those of one depth have
 * one parent. */

struct tail {
    size_t depth;
    expr_id texts; /* texts after the node */
};

struct choice {
    struct exprs *x;
    struct str *strings; /* sorted */
    struct tail *stack;
    size_t n_strings, n_stack;
};

static int compare_strings(const void *a, const void *b)
{
    const struct str *s = a, *t = b;
    size_t n = MIN(s->n, t->n);
    int order = n ? memcmp(s->p, t->p, n) : 0;

    return order ? order : (s->n > t->n) - (s->n < t->n);
}

/* Replaces all nodes deeper than `depth` by their ancestor at this depth. `s` is the last string
 * read. */
static void close_nodes(struct choice *c, struct str s, size_t depth)
{
    expr_id members[257];

    while (c->n_stack && c->stack[c->n_stack - 1].depth > depth) {
        size_t d = c->stack[c->n_stack - 1].depth, n = 0;
        while (c->n_stack && c->stack[c->n_stack - 1].depth == d && n < ARRAY_LEN(members))
            members[n++] = c->stack[--c->n_stack].texts;
        expr_id rest = expr_or_all(c->x, members, n);
        uint8_t byte = (uint8_t)s.p[d - 1];
        rest = expr_cat(c->x, expr_range(c->x, byte, byte), rest);
        c->stack[c->n_stack++] = (struct tail){ d - 1, rest };
    }
}

static size_t common_prefix(struct str a, struct str b)
{
    size_t n = 0;

    while (n < a.n && n < b.n && a.p[n] == b.p[n])
        n++;
    return n;
}

static expr_id join_strings(struct choice *c)
{
    expr_id members[257];
    struct str before = STR_NONE;
    size_t n = 0;

    for (size_t k = 0; k < c->n_strings && !exprs_failed(c->x); k++) {
        struct str s = c->strings[k];
        if (k && str_eq(s, before))
            continue;
        close_nodes(c, before, common_prefix(s, before));
        c->stack[c->n_stack++] = (struct tail){ s.n, EXPR_EPS };
        before = s;
    }
    close_nodes(c, before, 0);
    while (c->n_stack && n < ARRAY_LEN(members))
        members[n++] = c->stack[--c->n_stack].texts;
    return expr_or_all(c->x, members, n);
}

static int list_strings(struct choice *c, const struct json *all, struct err *e)
{
    if (all->kind != JSON_ARRAY || !all->n)
        return err_set(e, ERR_INVALID, "#: a choice is an array of at least one string");
    c->strings = try_malloc(all->n * sizeof(*c->strings));
    /* The stack has at most one end per string and one node per byte value at each open depth; a
     * node replaces the ends and nodes below it, so the number of ends bounds it. */
    c->stack = try_malloc(((size_t)all->n + 1) * sizeof(*c->stack));
    if (!c->strings || !c->stack)
        return no_memory(e);
    for (const struct json *j = all->child; j; j = j->next) {
        if (j->kind != JSON_STRING)
            return err_set(e, ERR_INVALID, "#/%zu: a choice is a string", c->n_strings);
        c->strings[c->n_strings++] = j->s;
    }
    qsort(c->strings, c->n_strings, sizeof(*c->strings), compare_strings);
    return 0;
}

static int build_choice(struct exprs *x, struct str text, expr_id *out, struct err *e)
{
    struct arena *arena = arena_new(CONSTRAINT_BYTES_CAP);
    struct choice c = { .x = x };
    struct json *all;

    if (!arena)
        return no_memory(e);
    int rc = json_parse(&all, text, arena, &json_limits_default, e) || list_strings(&c, all, e);
    if (!rc)
        *out = join_strings(&c);
    mem_free(c.strings);
    mem_free(c.stack);
    arena_free(arena);
    return rc ? -1 : 0;
}

static int compile_choice(struct constraint_program **out, const struct constraint_source *src,
    const struct vocab_tables *t, uint64_t *work, struct err *e)
{
    return compile(out, src, t, work, build_choice, e);
}

const struct constraint_kind_ops constraint_kind_choice = { "choice", compile_choice, make_acceptor,
    program_bytes, free_program };
