/* shortest.h: shortest texts of the states of an automaton.
 *
 * If there are several shortest texts, the first one in the order of byte_rank is chosen. So the
 * text that follows its first byte is the one that is chosen after this byte.
 *
 * The search is depth-first with an increasing bound, guided by automaton_min_length. Results are
 * stored by state; they do not depend on earlier searches, except that a search which would exceed
 * its bound of work may find stored results.
 *
 * Owner: that of the automaton. Allocates only at creation. */
#pragma once

#include "constrain/regular/automaton.h"

enum { SHORTEST_MAX = 1024 }; /* bytes; states with longer texts have none */
#define SHORTEST_NONE UINT32_MAX

struct shortest;

/* Borrows the automaton until shortest_free. -1: out of memory. */
int shortest_new(struct shortest **out, struct automaton *a, struct err *e) MUST_CHECK;
void shortest_free(struct shortest *q); /* accepts NULL; precedes automaton_free */
size_t shortest_bytes(void);

/* Bytes of the shortest text; SHORTEST_NONE: it is too long, or not found within the bound of
 * work. */
uint32_t shortest_length(struct shortest *q, state_id s);
/* The first byte of the shortest text, whose length is neither 0 nor SHORTEST_NONE. */
uint8_t shortest_first(struct shortest *q, state_id s);

/* The order in which bytes are preferred: digits, letters, other characters. */
uint8_t byte_rank(uint8_t byte);
uint8_t byte_of_rank(uint8_t rank);
