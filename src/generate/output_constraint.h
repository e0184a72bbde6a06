/* output_constraint.h: compiles the constraint of a request and makes the states of its choices.
 *
 * Compilation takes up to 100 ms and belongs to a worker thread. Errors of the client's text are
 * ERR_INVALID or ERR_UNSUPPORTED, also if a bound is exceeded, and name the field and the place:
 *
 *     response_format.json_schema.schema#/properties/a/pattern: lookbehind is not supported
 *
 * Any thread; struct choice_constraints belongs to the owner of the request, and its states to the
 * engine while a session uses them. */
#pragma once

#include "base/budget.h"
#include "constrain/compile_cache.h"
#include "generate/request.h"
#include "registry/model.h"

struct constraint_compiler {
    const struct model *model;   /* outlives the compiled constraints */
    struct compile_cache *cache; /* NULL = none */
    uint64_t tenant;             /* which alone finds its constraints in the cache */
};

/* `field`: name of the request field that contains src->text. */
int output_constraint_compile(struct constraint **out, const struct constraint_source *src,
    const char *field, const struct constraint_compiler *compiler, struct err *e);

/* The states of the choices of one prompt. */
struct choice_constraints;

struct choice_constraints_ctx {
    const struct model *model;
    enum parser_start start; /* state of the output parser at the end of the prompt */
    bool is_free;            /* the constraint permits text and calls (call_gate.h) */
    int max_tokens;          /* of a choice; for close_at_limit */
    struct charge charge;    /* for the memory of the states, with its budget and owner */
};

/* One state for each of request->best_of choices. In a chat the reasoning of the model precedes the
 * constrained output (reasoning_gate.h); calls in text: call_gate.h. An assistant message that the
 * model continues is read first; ERR_INVALID, "messages", if the constraint does not permit it.
 * With close_at_limit the output is completed within max_tokens; ERR_INVALID,
 * "x_constraint.close_at_limit", if the shortest output has more. ERR_MEMORY; if the budget refused
 * the memory, ctx->charge.refusal is set. */
int choice_constraints_new(struct choice_constraints **out, const struct request *request,
    struct constraint *c, struct choice_constraints_ctx *ctx, struct err *e);
void choice_constraints_free(struct choice_constraints *c); /* accepts NULL */
/* For gen_input.constraints; NULL if `c` is NULL. */
const struct sample_constraint *choice_constraints_list(const struct choice_constraints *c);
