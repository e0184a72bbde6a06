/* call_gate.h: enforces the tool calls of a model that may also generate text (tool_choice auto).
 *
 * A gate wraps the constraint of a choice, which permits text and calls (tool_grammar.h, "text").
 * The constraint reads only tokens from which a call may begin:
 *
 *     START      blanks, before any other text; the marker that opens reasoning counts here
 *     TEXT       any token, except tokens that begin a call which the constraint does not permit
 *     REASONING  any token, up to the end marker; a call does not begin here
 *
 * If the text ends with the beginning of a trigger (tool_triggers.h), or if a call has begun, the
 * constraint determines the next token. In TEXT the constraint permits any text, so tokens that it
 * does not read do not change it. The mask of TEXT is therefore made once, and ordinary text costs
 * no work of the constraint.
 *
 * struct call_gates has the tables of one model: read-only, any thread. A gate has one owner at a
 * time, like the constraint that it wraps. */
#pragma once

#include "constrain/constraint.h"
#include "output/format_table.h"

struct call_gates;

/* NULL in *out: calls of the format have no trigger, or the vocabulary divides a trigger into
 * several control tokens. ERR_MEMORY. The format and the vocabulary outlive *out. */
int call_gates_new(struct call_gates **out, const struct parser_format *format,
    const struct vocab *v, struct err *e);
void call_gates_free(struct call_gates *g); /* accepts NULL */

struct call_gate;

/* `start`: of the output parser at the end of the prompt. `is_unparsed`: the output parser does not
 * look for reasoning. The gate borrows the tables and `inner`, before its first push. NULL: out of
 * memory. */
struct call_gate *call_gate_new(const struct call_gates *g, struct constraint_state *inner,
    enum parser_start start, bool is_unparsed) MUST_CHECK;
void call_gate_free(struct call_gate *gate); /* accepts NULL */
size_t call_gate_bytes(const struct call_gate *gate);
struct sample_constraint call_gate_ops(struct call_gate *gate);
