#include "constrain/constraint_in.h"

#include "base/mem.h"

#include <stdatomic.h>

struct constraint {
    _Atomic uint32_t n_refs;
    const struct constraint_kind_ops *ops;
    struct constraint_program *program;
    const struct vocab_tables *tables;
    uint64_t work;
    _Atomic bool keeps_states;
    _Atomic size_t idle_bytes; /* of the states below, and of one that is being added */
    _Atomic(struct constraint_state *) idle[CONSTRAINT_IDLE_STATES];
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
    for (int k = 0; k < CONSTRAINT_IDLE_STATES; k++)
        constraint_state_delete(atomic_load(&c->idle[k]));
    c->ops->free(c->program);
    mem_free(c);
}

/* ---- states that wait for the next choice */

void constraint_keep_states(struct constraint *c)
{
    atomic_store(&c->keeps_states, true);
}

struct constraint_state *constraint_take_state(struct constraint *c)
{
    struct constraint_state *s = NULL;

    for (int k = 0; k < CONSTRAINT_IDLE_STATES && !s; k++)
        s = atomic_exchange(&c->idle[k], NULL);
    if (s)
        atomic_fetch_sub(&c->idle_bytes, constraint_state_bytes(s));
    return s;
}

bool constraint_keep_state(struct constraint *c, struct constraint_state *s)
{
    size_t bytes = constraint_state_bytes(s);

    if (!atomic_load(&c->keeps_states))
        return false;
    if (atomic_fetch_add(&c->idle_bytes, bytes) + bytes <= CONSTRAINT_IDLE_BYTES)
        for (int k = 0; k < CONSTRAINT_IDLE_STATES; k++) {
            struct constraint_state *none = NULL;
            if (atomic_compare_exchange_strong(&c->idle[k], &none, s))
                return true;
        }
    atomic_fetch_sub(&c->idle_bytes, bytes);
    return false;
}

/* ---- queries */

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
