#include "generate/output_constraint.h"

#include <stdio.h>

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
    const char *field, const struct model *m, struct err *e)
{
    if (!m->vocab_tables)
        return err_param(e, ERR_UNSUPPORTED, field, "'%s' is not supported by this model: %s.",
            field, m->why_unconstrained.msg);
    return constraint_new(out, src, m->vocab_tables, e) ? name_field(field, e) : 0;
}
