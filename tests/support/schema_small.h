/* schema_small.h: schemas that the validator of src/testing reads in bounded time, for fuzz
 * targets.
 *
 * Any thread. */
#pragma once

#include "constrain/schema/schema.h"

/* A validation visits all paths of edges, of which there may be 2^k: only graphs with few edges are
 * validated. */
static inline bool schema_is_small(const struct schema *s)
{
    uint32_t n_lists = 0;

    for (uint32_t k = 0; k < schema_count(s); k++) {
        const struct schema_node *n = schema_node(s, (node_id){ k });
        n_lists += n->all_of.n + n->any_of.n + n->one_of.n + n->n_dependencies + 4u * n->has_if;
        n_lists += n->n_patterns + n->n_pattern_properties;
        n_lists += n->not_of.i != NODE_FALSE.i;
    }
    return n_lists < 12;
}
