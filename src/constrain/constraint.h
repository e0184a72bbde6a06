/* constraint.h: a compiled constraint, shared by requests, and its state in one choice.
 *
 *   constraint_new          source + vocabulary -> compiled, on a worker thread
 *   constraint_state_new    one per choice, with all memory that it may use
 *   constraint_ops          the interface of the engine (engine/sample/sample_constraint.h)
 *
 * The language is that of the bytes of the tokens (token_source.h). An SPM detokenizer drops the
 * blank of the first token; for a constrained choice the caller sets detok.has_begun, so that the
 * response is the text that the constraint has read.
 *
 * A compiled constraint is read-only and counts its references: any thread. A state has one owner
 * at a time. */
#pragma once

#include "constrain/vocab/vocab_tables.h"
#include "engine/sample/sample_constraint.h"

enum constraint_kind {
    CONSTRAINT_JSON,        /* `text` is empty: any JSON object (JSON mode) */
    CONSTRAINT_JSON_SCHEMA, /* `text`: the schema */
    CONSTRAINT_GBNF,        /* `text`: the grammar */
    CONSTRAINT_LARK,
    CONSTRAINT_REGEX,          /* `text`: ECMA-262, matches the whole output */
    CONSTRAINT_CHOICE,         /* `text`: JSON array of strings */
    CONSTRAINT_STRUCTURAL_TAG, /* `text`: JSON object */
    CONSTRAINT_TOOLS           /* `text`: JSON object (tools/tool_grammar.h) */
};

enum json_whitespace { JSON_WS_DEFAULT, JSON_WS_COMPACT, JSON_WS_ANY };

struct constraint_source { /* plain data; texts are borrowed for the call */
    enum constraint_kind kind;
    struct str text;
    bool any_order;      /* property order is free */
    bool closed_objects; /* schema_options.closed_objects */
    enum json_whitespace whitespace;
    size_t bytes_max; /* limit of `text`; 0 = default of 16 KB */
};

struct constraint;

enum { CONSTRAINT_IDLE_STATES = 4, CONSTRAINT_IDLE_BYTES = 512 * 1024 };

/* The error begins with the JSON pointer or the offset of the place in `text`. `t` outlives the
 * constraint. */
int constraint_new(struct constraint **out, const struct constraint_source *src,
    const struct vocab_tables *t, struct err *e) MUST_CHECK;
struct constraint *constraint_ref(struct constraint *c);
void constraint_unref(struct constraint *c); /* accepts NULL */
size_t constraint_bytes(const struct constraint *c);
uint64_t constraint_work(const struct constraint *c); /* work of the compilation */
/* From now on states that are freed are kept for the next choices, which find their transitions and
 * masks: at most CONSTRAINT_IDLE_STATES with CONSTRAINT_IDLE_BYTES together. For the compile cache,
 * which counts these bytes. */
void constraint_keep_states(struct constraint *c);

struct constraint_state;

int constraint_state_new(
    struct constraint_state **out, struct constraint *c, struct err *e) MUST_CHECK;
void constraint_state_free(struct constraint_state *s); /* accepts NULL */
size_t constraint_state_bytes(const struct constraint_state *s);
/* For struct gen_input: `ops` and `self` of the state. */
struct sample_constraint constraint_state_ops(struct constraint_state *s);
/* Reads bytes that precede the output, such as an assistant prefix, before the first push. Returns
 * the number of accepted bytes; all of them unless the text is not permitted. */
size_t constraint_state_read(struct constraint_state *s, struct str text);
/* The output so far is accepted. */
bool constraint_state_accepts(const struct constraint_state *s);

/* The output is completed within the limit of tokens: after creation, before the first push. A
 * position from which the output can be completed in the tokens that remain is never left for one
 * from which it cannot (token_limit.h). -1: ERR_UNSUPPORTED, ERR_MEMORY. */
int constraint_state_limit(struct constraint_state *s, int tokens_max, struct err *e) MUST_CHECK;
/* With a limit: changes the number of tokens, with those that were pushed. */
void constraint_state_set_limit(struct constraint_state *s, int tokens_max);
/* With a limit: tokens that complete the output; UINT32_MAX: more than the first limit, or no
 * completion was found. */
uint32_t constraint_state_cost(struct constraint_state *s);
