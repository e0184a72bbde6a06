/* grammar_program.h: a compiled grammar with the JSON values in it, for the kinds of constraints
 * that are grammars (constraint_in.h).
 *
 * Any thread. */
#pragma once

#include "constrain/constraint_in.h"
#include "constrain/grammar/grammar.h"

struct grammar_language {
    const struct vocab_tables *tables;
    int (*read)(struct grammar *g, struct str text, rule_id *root, struct err *e);
    /* A schema in the text does not compile: 0 = any object is permitted instead; -1: the error,
     * with its place. NULL: always -1. */
    int (*name_schema)(struct str text, struct str schema, struct err *e);
};

int grammar_program_compile(struct constraint_program **out, const struct constraint_source *src,
    const struct grammar_language *l, uint64_t *work, struct err *e) MUST_CHECK;
int grammar_program_acceptor(
    struct acceptor **out, const struct constraint_program *p, struct err *e) MUST_CHECK;
size_t grammar_program_bytes(const struct constraint_program *p);
void grammar_program_free(struct constraint_program *p); /* accepts NULL */
