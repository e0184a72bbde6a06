/* tool_program.c: the kind of constraint for tool calls. Owner: see constraint_in.h. */
#include "constrain/grammar/grammar_program.h"
#include "constrain/tools/tool_grammar.h"

static int compile(struct constraint_program **out, const struct constraint_source *src,
    const struct vocab_tables *t, uint64_t *work, struct err *e)
{
    struct grammar_language l = { t, tool_grammar_read, tool_grammar_name_schema };

    return grammar_program_compile(out, src, &l, work, e);
}

const struct constraint_kind_ops constraint_kind_tools = { "list of tools", compile,
    grammar_program_acceptor, grammar_program_bytes, grammar_program_free };
