/* scc.h: strongly connected components of a directed graph (Tarjan 1972), without recursion.
 *
 * Owner: the caller. */
#pragma once

#include "base/base.h"

struct graph {             /* borrowed */
    uint32_t n;            /* nodes */
    const uint32_t *first; /* [n + 1]: edges of node v are to[first[v]] .. to[first[v + 1] - 1] */
    const uint32_t *to;
};

/* Sets component[v] for each node. Components are numbered from 0 so that an edge never leads from
 * a lower to a higher number. Returns their number, or UINT32_MAX if there is no memory. */
uint32_t graph_components(const struct graph *g, uint32_t *component) MUST_CHECK;
