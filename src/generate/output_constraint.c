#include "generate/output_constraint.h"

#include "base/mem.h"

#include <stdio.h>

/* ---- compilation */

/* Puts the field in front of the place. A text that exceeds a bound of the compiler is the client's
 * error, which a retry repeats. */
static int name_field(const char *field, struct err *e)
{
    char reason[sizeof(e->msg)];

    if (e->code == ERR_MEMORY || e->code == ERR_CANCELLED)
        return -1;
    memcpy(reason, e->msg, sizeof(reason));
    bool is_pointer = reason[0] == '#';
    return err_param(e, e->code == ERR_UNSUPPORTED ? ERR_UNSUPPORTED : ERR_INVALID, field, "%s%s%s",
        field, is_pointer ? "" : ": ", reason);
}

int output_constraint_compile(struct constraint **out, const struct constraint_source *src,
    const char *field, const struct constraint_compiler *compiler, struct err *e)
{
    const struct model *m = compiler->model;
    struct str tenant = { (const char *)&compiler->tenant, sizeof(compiler->tenant) };

    if (!m->vocab_tables)
        return err_param(e, ERR_UNSUPPORTED, field, "'%s' is not supported by this model: %s.",
            field, m->why_unconstrained.msg);
    int rc = compiler->cache
                 ? compile_cache_get(compiler->cache, out, src, m->vocab_tables, tenant, e)
                 : constraint_new(out, src, m->vocab_tables, e);
    return rc ? name_field(field, e) : 0;
}

/* ---- states */

struct choice_constraints {
    int n;
    struct sample_constraint *list;    /* [n] */
    struct constraint_state *states[]; /* [n]; NULL from the first one that was not made */
};

/* Reads the text that the model continues. */
static int read_prefix(struct constraint_state *s, const struct request *request, struct err *e)
{
    const struct convo *c = &request->convo;

    if (request->kind != REQUEST_CHAT || !c->continue_final_message || !c->n_messages)
        return 0;
    const struct message *m = &c->messages[c->n_messages - 1];
    size_t at = 0;
    for (int i = 0; i < m->n_parts; i++) {
        size_t n = constraint_state_read(s, m->parts[i].text);
        at += n;
        if (n < m->parts[i].text.n)
            return err_param(e, ERR_INVALID, "messages",
                "'%s' does not permit the last message, which the model continues: the byte at "
                "offset %zu is not permitted.",
                request->constraint.field, at);
    }
    return 0;
}

int choice_constraints_new(struct choice_constraints **out, const struct request *request,
    struct constraint *c, struct err *e)
{
    int n = request->best_of;
    struct choice_constraints *all =
        try_calloc(1, sizeof(*all) + (size_t)n * sizeof(all->states[0]));

    if (!all)
        return err_set(e, ERR_MEMORY, "no memory for %d choices", n);
    all->n = n;
    all->list = try_calloc((size_t)n, sizeof(*all->list));
    if (!all->list) {
        err_set(e, ERR_MEMORY, "no memory for %d choices", n);
        goto fail;
    }
    for (int i = 0; i < n; i++) {
        if (constraint_state_new(&all->states[i], c, e) || read_prefix(all->states[i], request, e))
            goto fail;
        all->list[i] = constraint_state_ops(all->states[i]);
    }
    *out = all;
    return 0;

fail:
    choice_constraints_free(all);
    return -1;
}

void choice_constraints_free(struct choice_constraints *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n; i++)
        constraint_state_free(c->states[i]);
    mem_free(c->list);
    mem_free(c);
}

const struct sample_constraint *choice_constraints_list(const struct choice_constraints *c)
{
    return c ? c->list : NULL;
}
