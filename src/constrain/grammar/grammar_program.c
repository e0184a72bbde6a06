#include "base/mem.h"
#include "constrain/automaton_acceptor.h"
#include "constrain/constraint_in.h"
#include "constrain/grammar/gbnf.h"
#include "constrain/grammar/grammar_acceptor.h"
#include "constrain/grammar/grammar_program.h"
#include "constrain/grammar/lark.h"
#include "constrain/grammar/structural_tag.h"

/* A compiled grammar and the JSON values in it. */
struct constraint_program {
    struct grammar *g;
    struct constraint_program **values; /* [n_values], of constraint_kind_json */
    uint32_t n_values;
};

void grammar_program_free(struct constraint_program *p)
{
    if (!p)
        return;
    for (uint32_t k = 0; k < p->n_values; k++)
        constraint_kind_json.free(p->values[k]);
    mem_free(p->values);
    grammar_free(p->g);
    mem_free(p);
}

size_t grammar_program_bytes(const struct constraint_program *p)
{
    size_t bytes = sizeof(*p) + grammar_bytes(p->g);

    for (uint32_t k = 0; k < p->n_values; k++)
        bytes += sizeof(struct constraint_program *) + constraint_kind_json.bytes(p->values[k]);
    return bytes;
}

static int32_t find_no_token(const void *ctx, struct str text)
{
    return TOKEN_NONE;
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_MEMORY, "no memory for a constraint");
}

/* Compiles the schemas of the JSON values, with the options of the grammar. */
static int compile_values(struct constraint_program *p, const struct constraint_source *src,
    const struct grammar_language *l, uint64_t *work, struct err *e)
{
    struct constraint_source value = *src;
    uint32_t n = grammar_json_count(p->g);

    value.kind = CONSTRAINT_JSON_SCHEMA;
    p->values = try_calloc(MAX(n, 1u), sizeof(struct constraint_program *));
    if (!p->values)
        return no_memory(e);
    for (; p->n_values < n; p->n_values++) {
        uint64_t more = 0;
        value.text = grammar_json_text(p->g, p->n_values);
        struct constraint_program **one = &p->values[p->n_values];
        if (constraint_kind_json.compile(one, &value, l->tables, &more, e)) {
            if (!l->name_schema || l->name_schema(src->text, value.text, e))
                return -1;
            *e = (struct err){ 0 };
            value.text = STR("{\"type\": \"object\"}");
            if (constraint_kind_json.compile(one, &value, l->tables, &more, e))
                return -1;
        }
        *work += more;
    }
    return 0;
}

int grammar_program_compile(struct constraint_program **out, const struct constraint_source *src,
    const struct grammar_language *l, uint64_t *work, struct err *e)
{
    const struct vocab_tables *t = l->tables;
    struct grammar_vocab vocab = { t->source, t->source.find ? t->source.find : find_no_token,
        &t->producible };
    struct constraint_program *p = try_calloc(1, sizeof(*p));
    rule_id root;

    if (p)
        p->g = grammar_new(&grammar_limits_default, &vocab);
    if (!p || !p->g) {
        grammar_program_free(p);
        return no_memory(e);
    }
    if (l->read(p->g, src->text, &root, e) || grammar_finish(p->g, root, e) ||
        compile_values(p, src, l, work, e)) {
        grammar_program_free(p);
        return -1;
    }
    *work += grammar_work(p->g);
    *out = p;
    return 0;
}

int grammar_program_acceptor(
    struct acceptor **out, const struct constraint_program *p, struct err *e)
{
    struct automaton_limits limits = { ACCEPTOR_BYTES_CAP, STEP_WORK_MAX };
    expr_id root;

    if (grammar_is_regular(p->g, &root))
        return automaton_acceptor_new(out, grammar_exprs(p->g), root, limits, e);
    struct acceptor **values = try_calloc(MAX(p->n_values, 1u), sizeof(struct acceptor *));
    int rc = values ? 0 : no_memory(e);
    uint32_t n = 0;
    while (!rc && n < p->n_values) {
        rc = constraint_kind_json.acceptor(&values[n], p->values[n], e);
        n += !rc;
    }
    if (!rc)
        rc = grammar_acceptor_new(out, p->g, &grammar_acceptor_limits_default, values, e);
    else
        while (n > 0) {
            n--;
            values[n]->ops->free(values[n]);
        }
    mem_free(values);
    return rc;
}

/* One kind: name for messages and reader. */
#define GRAMMAR_KIND(kind, text, read)                                                             \
    static int compile_##kind(struct constraint_program **out,                                     \
        const struct constraint_source *src, const struct vocab_tables *t, uint64_t *work,         \
        struct err *e)                                                                             \
    {                                                                                              \
        struct grammar_language l = { t, read, NULL };                                             \
        return grammar_program_compile(out, src, &l, work, e);                                     \
    }                                                                                              \
    const struct constraint_kind_ops constraint_kind_##kind = { text, compile_##kind,              \
        grammar_program_acceptor, grammar_program_bytes, grammar_program_free }

GRAMMAR_KIND(gbnf, "grammar", gbnf_read);
GRAMMAR_KIND(lark, "grammar", lark_read);
GRAMMAR_KIND(structural_tag, "structural tag", structural_tag_read);
