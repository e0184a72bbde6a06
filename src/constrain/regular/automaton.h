/* automaton.h: lazy deterministic automaton of a regular language of bytes.
 *
 * A state is an expression (expr.h): the language of the texts that may follow. Equal languages of
 * equal structure are one state, so masks can be cached by state id. Transitions are computed when
 * they are first used and are stored per class of bytes. A state is entered only if a text can
 * still be completed, so STATE_DEAD is exact.
 *
 * Memory is bounded by `bytes_max` and is reserved at creation: a step allocates nothing. If it is
 * full, the automaton is flushed: all states are dropped
 * except the start, the argument of the call, and the states in registered lists of roots. The ids
 * of those do not change; ids of dropped states are used again, and `automaton_generation`
 * increases. A flush never changes an answer. A step fails only if one state and its successors
 * exceed a bound, and the error stays.
 *
 * Owner: one thread at a time. The expressions are copied, so that automata of several threads can
 * be made from one compiled language. */
#pragma once

#include "constrain/regular/expr.h"

typedef struct state_id {
    uint32_t i;
} state_id;

#define STATE_DEAD  ((state_id){ 0 }) /* no text can be completed */
#define STATE_START ((state_id){ 1 })

struct automaton_limits {
    size_t bytes_max;
    uint64_t step_work_max; /* work of one transition (exprs_work) */
};

struct automaton;

/* States which a flush keeps. `ids` and `n` belong to the caller, which changes them freely. */
struct automaton_roots {
    struct automaton_roots *next;
    const state_id *ids;
    size_t n;
};

/* -1: out of memory, or a bound is exceeded. `root` is pure. */
int automaton_new(struct automaton **out, const struct exprs *x, expr_id root,
    struct automaton_limits limits, struct err *e) MUST_CHECK;
/* The same with `n` starts: root k has the state STATE_START.i + k, also if it is empty; n > 0. A
 * flush keeps the first of them; the caller registers those that it needs. The roots must be known
 * to be live, and those that are not are EXPR_NONE. */
int automaton_new_many(struct automaton **out, const struct exprs *x, const expr_id *roots,
    uint32_t n, struct automaton_limits limits, struct err *e) MUST_CHECK;
void automaton_free(struct automaton *a); /* accepts NULL */
void automaton_add_roots(struct automaton *a, struct automaton_roots *r);
void automaton_remove_roots(struct automaton *a, struct automaton_roots *r);

/* STATE_START, or STATE_DEAD if the language is empty. */
state_id automaton_start(const struct automaton *a);
/* STATE_DEAD if no text continues with the byte, or if a bound is exceeded (automaton_check). */
state_id automaton_step(struct automaton *a, state_id s, uint8_t byte);
/* The state after all bytes of `text`. */
state_id automaton_run(struct automaton *a, state_id s, struct str text);
bool automaton_accepts(const struct automaton *a, state_id s);
/* True if only the empty text may follow. */
bool automaton_is_final(const struct automaton *a, state_id s);
/* No accepted text is shorter; UINT32_MAX: there is none. */
uint32_t automaton_min_length(const struct automaton *a, state_id s);
/* True if all texts may follow. False does not exclude it: other forms of this language exist. */
bool automaton_permits_all(const struct automaton *a, state_id s);
/* The bytes that do not lead to STATE_DEAD. */
struct byte_set automaton_next_bytes(struct automaton *a, state_id s);
/* The only byte that can follow if the state does not accept; otherwise -1. */
int automaton_forced_byte(struct automaton *a, state_id s);

int automaton_check(const struct automaton *a, struct err *e); /* -1 after an exceeded bound */
uint64_t automaton_generation(const struct automaton *a);      /* number of flushes */
size_t automaton_bytes(const struct automaton *a); /* in use; the rest has not been written */
size_t automaton_states(const struct automaton *a);
