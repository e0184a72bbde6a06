#include "constrain/constraint_in.h"

#include "base/mem.h"

#include <stdatomic.h>

struct constraint {
    _Atomic uint32_t n_refs;
    const struct constraint_kind_ops *ops;
    struct constraint_program *program;
    const struct vocab_tables *tables;
    uint64_t work;
};

static const struct constraint_kind_ops *const kinds[] = {
    [CONSTRAINT_JSON] = &constraint_kind_json,
    [CONSTRAINT_JSON_SCHEMA] = &constraint_kind_json,
    [CONSTRAINT_GBNF] = &constraint_kind_gbnf,
    [CONSTRAINT_LARK] = &constraint_kind_lark,
    [CONSTRAINT_REGEX] = &constraint_kind_regex,
    [CONSTRAINT_CHOICE] = &constraint_kind_choice,
    [CONSTRAINT_STRUCTURAL_TAG] = &constraint_kind_structural_tag,
    [CONSTRAINT_TOOLS] = &constraint_kind_tools,
};

static int check_source(const struct constraint_source *src, struct err *e)
{
    size_t bytes_max = src->bytes_max ? src->bytes_max : CONSTRAINT_BYTES_DEFAULT;

    if ((size_t)src->kind >= ARRAY_LEN(kinds))
        return err_set(e, ERR_UNSUPPORTED, "constraints of this kind are not supported");
    if (src->text.n > bytes_max)
        return err_set(e, ERR_TOO_LARGE, "the %s has %zu bytes; at most %zu are permitted",
            kinds[src->kind]->name, src->text.n, bytes_max);
    return 0;
}

int constraint_new(struct constraint **out, const struct constraint_source *src,
    const struct vocab_tables *t, struct err *e)
{
    if (check_source(src, e))
        return -1;
    struct constraint *c = try_calloc(1, sizeof(*c));
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a constraint");
    atomic_init(&c->n_refs, 1);
    c->ops = kinds[src->kind];
    c->tables = t;
    if (c->ops->compile(&c->program, src, t, &c->work, e)) {
        mem_free(c);
        return -1;
    }
    if (c->ops->bytes(c->program) > CONSTRAINT_BYTES_CAP) {
        constraint_unref(c);
        return err_set(e, ERR_TOO_LARGE, "the compiled %s needs more than %zu bytes",
            kinds[src->kind]->name, CONSTRAINT_BYTES_CAP);
    }
    *out = c;
    return 0;
}

struct constraint *constraint_ref(struct constraint *c)
{
    atomic_fetch_add_explicit(&c->n_refs, 1, memory_order_relaxed);
    return c;
}

void constraint_unref(struct constraint *c)
{
    if (!c || atomic_fetch_sub_explicit(&c->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    c->ops->free(c->program);
    mem_free(c);
}

size_t constraint_bytes(const struct constraint *c)
{
    return sizeof(*c) + c->ops->bytes(c->program);
}

uint64_t constraint_work(const struct constraint *c)
{
    return c->work;
}

const struct vocab_tables *constraint_tables(const struct constraint *c)
{
    return c->tables;
}

int constraint_acceptor(struct acceptor **out, const struct constraint *c, struct err *e)
{
    return c->ops->acceptor(out, c->program, e);
}
