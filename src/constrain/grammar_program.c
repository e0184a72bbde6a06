#include "base/mem.h"
#include "constrain/automaton_acceptor.h"
#include "constrain/constraint_in.h"
#include "constrain/gbnf.h"
#include "constrain/grammar_acceptor.h"

/* A compiled grammar. */
struct constraint_program {
    struct grammar *g;
};

typedef int read_fn(struct grammar *g, struct str text, rule_id *root, struct err *e);

static void free_program(struct constraint_program *p)
{
    if (!p)
        return;
    grammar_free(p->g);
    mem_free(p);
}

static size_t program_bytes(const struct constraint_program *p)
{
    return sizeof(*p) + grammar_bytes(p->g);
}

static int32_t find_no_token(const void *ctx, struct str text)
{
    return TOKEN_NONE;
}

static int compile(struct constraint_program **out, const struct constraint_source *src,
    const struct vocab_tables *t, uint64_t *work, read_fn *read, struct err *e)
{
    struct grammar_vocab vocab = { t->source, t->source.find ? t->source.find : find_no_token,
        &t->producible };
    struct constraint_program *p = try_calloc(1, sizeof(*p));
    rule_id root;

    if (p)
        p->g = grammar_new(&grammar_limits_default, &vocab);
    if (!p || !p->g) {
        free_program(p);
        return err_set(e, ERR_MEMORY, "no memory for a constraint");
    }
    if (read(p->g, src->text, &root, e) || grammar_finish(p->g, root, e)) {
        free_program(p);
        return -1;
    }
    *work = grammar_work(p->g);
    *out = p;
    return 0;
}

static int make_acceptor(struct acceptor **out, const struct constraint_program *p, struct err *e)
{
    struct automaton_limits limits = { ACCEPTOR_BYTES_CAP, STEP_WORK_MAX };
    expr_id root;

    if (grammar_is_regular(p->g, &root))
        return automaton_acceptor_new(out, grammar_exprs(p->g), root, limits, e);
    return grammar_acceptor_new(out, p->g, &grammar_acceptor_limits_default, NULL, e);
}

static int compile_gbnf(struct constraint_program **out, const struct constraint_source *src,
    const struct vocab_tables *t, uint64_t *work, struct err *e)
{
    return compile(out, src, t, work, gbnf_read, e);
}

const struct constraint_kind_ops constraint_kind_gbnf = { "grammar", compile_gbnf, make_acceptor,
    program_bytes, free_program };
