/* reasoning_gate.h: lets the reasoning of a model precede its constrained output.
 *
 * A gate wraps the constraint of a choice (sample_constraint.h). Reasoning is free text up to its
 * end marker; the constraint begins after it:
 *
 *     START      the constraint, or the marker that opens reasoning
 *     OPENING    inside that marker
 *     REASONING  any token but end tokens, until the text contains an end marker
 *     HEADER     the token that follows the end marker in formats with channels
 *     GAP        blanks, which the output parser drops, or the constraint
 *     OPEN       the constraint
 *
 * A token may contain an end marker and blanks after it, but no byte of the constrained output.
 *
 * struct reasoning_gates has the tables of one model: read-only, any thread. A gate has one owner
 * at a time, like the constraint that it wraps. */
#pragma once

#include "constrain/constraint.h"
#include "output/format_table.h"

struct reasoning_gates;

/* NULL in *out: the model has no reasoning that could precede the output. ERR_MEMORY. The format
 * and the vocabulary outlive *out. */
int reasoning_gates_new(struct reasoning_gates **out, const struct parser_format *format,
    const struct vocab *v, struct err *e);
void reasoning_gates_free(struct reasoning_gates *g); /* accepts NULL */

struct reasoning_gate;

/* `start`: of the output parser at the end of the prompt. `may_open`: the model may open reasoning
 * by itself. The gate borrows the tables and `inner`. NULL: out of memory. */
struct reasoning_gate *reasoning_gate_new(const struct reasoning_gates *g,
    struct constraint_state *inner, enum parser_start start, bool may_open) MUST_CHECK;
void reasoning_gate_free(struct reasoning_gate *gate); /* accepts NULL */
/* Reasoning and output are completed within the limit of tokens (constraint_state_limit): the end
 * marker is forced when only it and the shortest output fit. Before the first push and before text
 * is read. -1: ERR_UNSUPPORTED, ERR_MEMORY. */
int reasoning_gate_limit(struct reasoning_gate *gate, int tokens_max, struct err *e) MUST_CHECK;
/* With a limit, before the first push: tokens that complete the output. */
int64_t reasoning_gate_cost(const struct reasoning_gate *gate);
/* Reads text that precedes the output, reasoning included, like constraint_state_read. */
size_t reasoning_gate_read(struct reasoning_gate *gate, struct str text);
struct sample_constraint reasoning_gate_ops(struct reasoning_gate *gate);
