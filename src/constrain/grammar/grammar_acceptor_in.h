/* grammar_acceptor_in.h: the state of a grammar acceptor, for the modules that implement it.
 *
 * Owner: that of the acceptor. */
#pragma once

#include "constrain/grammar/grammar_acceptor.h"
#include "constrain/grammar/grammar_positions.h"

enum {
    VISITED_SLOTS = 8192, /* at least twice GRAMMAR_TASKS_MAX */
    GRAMMAR_TASKS_MAX = 4000,
    CLOSURE_WORK_MAX = 200000, /* visits of callers per step */
    REACH_SLOTS = 512,
    NO_RULE = UINT32_MAX
};

/* Work of a closure: a slot that was reached, or a call of a rule. */
struct task {
    uint32_t rule; /* NO_RULE: a slot that was reached */
    uint32_t slot, unit;
};

struct visited {
    struct task task;
    uint32_t step; /* number of the closure; others are unused */
};

struct call {
    uint32_t component;
    struct caller caller;
};

/* A sub-acceptor's step in the step in progress: equal positions stay equal. */
struct sub_step {
    uint32_t sub;
    pos_id from, to;
};

struct reach_entry {
    uint64_t key, generation;
    uint8_t class, next; /* enum reach_next */
};

struct grammar_acceptor {
    struct acceptor base;
    const struct grammar *g;
    struct automaton *automaton;
    struct automaton_roots position_roots, start_roots, new_roots;
    state_id *starts; /* one state per expression; STATE_DEAD: not computed */
    struct acceptor **subs;
    struct positions p;

    /* The step in progress. */
    struct heights below;
    struct item *items; /* [GRAMMAR_ITEMS_MAX] */
    state_id *states;   /* their states, as roots */
    uint32_t n_items;
    bool accepts;
    struct task *tasks;
    uint32_t n_tasks;
    struct visited *visited;
    uint32_t n_visited, n_steps, work;
    struct call *calls; /* heap: the highest component first */
    uint32_t n_calls;
    struct caller *callers; /* callers of the unit in progress */
    struct sub_step *sub_steps;
    uint32_t n_sub_steps;

    struct reach_entry *reach;
    struct grammar_lengths *lengths; /* NULL: completions are not needed */
    bool is_failed;
    struct err err;
};

/* Sets the error, unless there is one. */
void grammar_acceptor_fail(struct grammar_acceptor *a, enum errcode code, const char *what);

/* Begins a new position. */
void closure_begin(struct grammar_acceptor *a);
void closure_add_item(struct grammar_acceptor *a, struct item i);
/* The slot of the unit was reached. */
void closure_reach(struct grammar_acceptor *a, uint32_t slot, uint32_t unit);
/* The new position; POS_DEAD if it has no item and does not accept, or after a failure. */
pos_id closure_end(struct grammar_acceptor *a);

/* The first state of an expression; STATE_DEAD: a bound of the automaton is exceeded. */
state_id grammar_expr_start(struct grammar_acceptor *a, uint32_t k);

/* acceptor.h (grammar_completion.c) */
int grammar_completion_new(struct acceptor *base, struct err *e);
int32_t grammar_completion(struct acceptor *base, pos_id p);
void grammar_completion_free(struct grammar_acceptor *a);
size_t grammar_completion_bytes(const struct grammar_acceptor *a);

/* acceptor.h (grammar_reach.c) */
uint32_t grammar_acceptor_reach(
    struct acceptor *base, pos_id p, enum token_class class, uint32_t n_max);
