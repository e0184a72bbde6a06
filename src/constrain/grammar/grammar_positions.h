/* grammar_positions.h: memory of the positions of a grammar acceptor.
 *
 *   row     a position: the items that are in progress. An item is a slot (grammar_in.h), the
 *           position in its symbol, and the unit of its rule
 *   unit    a component of rules (grammar_in.h) that was predicted at one place, and its callers:
 *           what follows when one of its rules is complete. A unit corresponds to the item set in
 *           which Earley's algorithm predicts the rules
 *   caller  rule of the unit, slot after the call, unit of this slot
 *
 * Rows and units are hash-consed: equal contents have one number, also at different places of the
 * text. Callers have smaller numbers than the unit. All are on stacks; a release removes what is
 * above a height. Journal entries are marks of sub-acceptors, which are released with them.
 *
 * All memory is allocated at the start. Owner: the acceptor. */
#pragma once

#include "constrain/acceptor.h"
#include "constrain/regular/automaton.h"
#include "constrain/grammar/grammar_in.h"

struct item {
    uint32_t slot, unit;
    uint32_t pos; /* expression: state. JSON value: position. Tokens: 0 */
};

struct caller {
    uint32_t rule, slot, unit;
};

struct unit {
    uint64_t hash;                /* hash of the contents, independent of numbers of units */
    uint32_t component, first, n; /* callers */
};

struct heights {
    uint32_t items, units, callers, journal;
};

struct row {
    uint64_t hash;
    uint32_t first, n; /* items */
    bool accepts;
    struct heights top; /* after the row was made */
};

struct journal_entry {
    uint32_t sub, mark;
};

struct positions {
    uint64_t seed;
    struct row *rows;
    uint32_t n_rows, cap_rows;
    struct item *items;
    state_id *states; /* `pos` of the items: roots of the automaton. Positions of JSON values are
                       * also here, which at most keeps more states than necessary */
    struct unit *units;
    struct caller *callers;
    struct journal_entry *journal;
    struct heights n, cap;
    uint32_t *row_slots, *unit_slots; /* hash tables; 0: free */
    uint32_t row_mask, unit_mask;
    uint32_t *moved;              /* [cap.units]: new numbers */
    const struct symbol *symbols; /* one symbol per slot */
    struct acceptor **subs;       /* one acceptor per schema */
    uint32_t n_subs;
    bool *is_kept; /* [n_subs] */
    void *memory;
    size_t bytes;
};

/* -1: out of memory. Row 0 (POS_DEAD) is reserved. The arrays are borrowed. */
int positions_init(struct positions *p, size_t bytes_max, const struct symbol *symbols,
    struct acceptor **subs, uint32_t n_subs) MUST_CHECK;
void positions_clear(struct positions *p);

/* The number of the unit; UINT32_MAX: the memory is full. `callers` are sorted. */
uint32_t positions_unit(
    struct positions *p, uint32_t component, const struct caller *callers, uint32_t n);
/* A row of sorted items, made with what is above the heights `below`, which is removed if the row
 * exists. 0: the memory is full. */
uint32_t positions_row(struct positions *p, const struct item *items, uint32_t n, bool accepts,
    const struct heights *below);

/* Removes what is above the heights. */
void positions_cut(struct positions *p, const struct heights *to);
void positions_release(struct positions *p, uint32_t n_rows);
/* Removes the rows from number n_rows on, except `row`. Returns its new number. */
uint32_t positions_keep(struct positions *p, uint32_t n_rows, uint32_t row);
