/* json_program.h: the JSON values that satisfy a schema, compiled for acceptors.
 *
 * The compilation computes the conjunctions of subschemas that one value can have to satisfy, their
 * scalar texts as expressions, and their shapes of arrays and objects (json_program_in.h). A
 * conjunction that no value satisfies is found by a least fixpoint over nesting depths.
 *
 * Output policy: properties in the order of the schema, left to right through allOf, other keys
 * last, keys unique; whitespace as in json_space.h; at most JSON_DEPTH_MAX nested containers;
 * numbers and strings as in number.h and json_string.h.
 *
 * Read-only after creation: any thread. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/constraint.h"
#include "constrain/schema/schema.h"

enum {
    JSON_DEPTH_MAX = 128,
    JSON_BRANCHES_MAX = 64 /* alternatives that are tracked for one value */
};

struct json_program_options {
    bool any_order;   /* properties in any order */
    bool object_only; /* the value is an object: JSON mode */
    enum json_whitespace whitespace;
};

struct json_program;

/* `s` outlives the program; NULL: any value. -1: the schema is not satisfiable (ERR_INVALID with
 * the pointer), a pattern that is not supported, or a bound. */
int json_program_new(struct json_program **out, const struct schema *s,
    const struct json_program_options *o, struct err *e) MUST_CHECK;
void json_program_free(struct json_program *p); /* accepts NULL */
size_t json_program_bytes(const struct json_program *p);
uint64_t json_program_work(const struct json_program *p);

/* The acceptor of one choice; the program outlives it. Its memory is bounded by JSON_MEMORY_MAX:
 * the automaton is flushed, and a text whose positions need more ends with the error of the
 * acceptor. */
enum { JSON_MEMORY_MAX = 8 * 1024 * 1024 };
int json_acceptor_new(
    struct acceptor **out, const struct json_program *p, struct err *e) MUST_CHECK;
