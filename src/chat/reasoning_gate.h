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
 * struct reasoning_gates has the tables of one request: read-only, any thread. A gate has one owner
 * at a time, like the constraint that it wraps. */
#pragma once

#include "constrain/constraint.h"
#include "output/format_table.h"

struct reasoning_gates;

/* NULL in *out: no reasoning can precede the output. `may_open`: the model may open reasoning by
 * itself. ERR_MEMORY. The format and the vocabulary outlive *out. */
int reasoning_gates_new(struct reasoning_gates **out, const struct parser_format *format,
    enum parser_start start, bool may_open, const struct vocab *v, struct err *e);
void reasoning_gates_free(struct reasoning_gates *g); /* accepts NULL */

struct reasoning_gate;

/* The gate borrows all arguments. NULL: out of memory. */
struct reasoning_gate *reasoning_gate_new(
    const struct reasoning_gates *g, struct constraint_state *inner) MUST_CHECK;
void reasoning_gate_free(struct reasoning_gate *gate); /* accepts NULL */
/* As constraint_state_read. */
size_t reasoning_gate_read(struct reasoning_gate *gate, struct str text);
struct sample_constraint reasoning_gate_ops(struct reasoning_gate *gate);
