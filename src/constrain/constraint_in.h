/* constraint_in.h: kinds of constraints, for constraint.c and its factories.
 *
 * A kind compiles a source to a program, which is read-only, and makes an acceptor of it for each
 * choice. A new kind is a row of the table in constraint.c.
 *
 * Any thread. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/constraint.h"

enum { CONSTRAINT_BYTES_DEFAULT = 16 * 1024 };

/* Memory: of a compiled constraint, of the acceptor of a choice. */
#define CONSTRAINT_BYTES_CAP (32 * MB)
#define ACCEPTOR_BYTES_CAP   (6 * MB)

enum {
    COMPILE_WORK_MAX = 1000000, /* visits of expressions (exprs_work) */
    STEP_WORK_MAX = 1000000     /* visits for one byte of a text */
};

struct constraint_program; /* defined by each kind */

struct constraint_kind_ops {
    const char *name;
    /* *work: work of the compilation. */
    int (*compile)(struct constraint_program **out, const struct constraint_source *src,
        const struct vocab_tables *t, uint64_t *work, struct err *e);
    int (*acceptor)(struct acceptor **out, const struct constraint_program *p, struct err *e);
    size_t (*bytes)(const struct constraint_program *p);
    void (*free)(struct constraint_program *p); /* accepts NULL */
};

/* regular_program.c */
extern const struct constraint_kind_ops constraint_kind_regex, constraint_kind_choice;

/* json_constraint.c: schemas and JSON mode */
extern const struct constraint_kind_ops constraint_kind_json;

/* grammar_program.c */
extern const struct constraint_kind_ops constraint_kind_gbnf, constraint_kind_lark,
    constraint_kind_structural_tag;

/* tools/tool_program.c */
extern const struct constraint_kind_ops constraint_kind_tools;

/* For constraint_state.c. */
const struct vocab_tables *constraint_tables(const struct constraint *c);
int constraint_acceptor(
    struct acceptor **out, const struct constraint *c, struct err *e) MUST_CHECK;
/* A state that was kept, which the caller owns; NULL: none. */
struct constraint_state *constraint_take_state(struct constraint *c);
/* False: the state is not kept. */
bool constraint_keep_state(struct constraint *c, struct constraint_state *s);
void constraint_state_delete(struct constraint_state *s); /* does not release the constraint */
