#include "base/mem.h"
#include "constrain/schema/schema_in.h"

/* schema_graph.c: checks of the graph as a whole. An edge leads to a node that is applied to the
 * same value. */

struct edges { /* iterator */
    const struct schema_node *node;
    uint32_t list, at;
};

static bool next_edge(struct edges *s, node_id *out)
{
    const struct schema_node *n = s->node;
    const node_id single[] = { n->not_of, n->if_of, n->then_of, n->else_of };
    const struct node_list lists[] = { n->all_of, n->any_of, n->one_of,
        { single, ARRAY_LEN(single) } };

    for (; s->list < ARRAY_LEN(lists); s->list++, s->at = 0)
        if (s->at < lists[s->list].n) {
            *out = lists[s->list].ids[s->at++];
            return true;
        }
    if (s->at >= n->n_dependencies)
        return false;
    *out = n->dependencies[s->at++].schema;
    return true;
}

struct walk {
    struct edges *path; /* from the first node to the current one */
    uint32_t *path_ids;
    uint32_t *order; /* each node after the targets of its edges */
    uint32_t n_order;
    uint8_t *states;
    bool *declares; /* the node or a target lists properties */
};

enum { NODE_NEW, NODE_OPEN, NODE_DONE };

/* Depth-first search from `id`; refuses a cycle. */
static int walk_from(struct schema_reader *r, struct walk *w, uint32_t id)
{
    uint32_t depth = 0;
    node_id next = { id };

    for (;;) {
        if (w->states[next.i] == NODE_OPEN)
            return err_set(r->e, ERR_INVALID,
                STR_FMT ": the schema refers to itself for the same value",
                STR_ARG(r->nodes.at[next.i].pointer));
        if (w->states[next.i] == NODE_NEW) {
            w->states[next.i] = NODE_OPEN;
            w->path_ids[depth] = next.i;
            w->path[depth++] = (struct edges){ &r->nodes.at[next.i], 0, 0 };
        }
        while (!next_edge(&w->path[depth - 1], &next)) {
            w->states[w->path_ids[--depth]] = NODE_DONE;
            w->order[w->n_order++] = w->path_ids[depth];
            if (!depth)
                return 0;
        }
    }
}

/* schema_options.closed_objects: closes the union of the schemas that list properties. */
static void close_unions(struct schema_reader *r, struct walk *w)
{
    for (uint32_t k = 0; k < w->n_order; k++) {
        uint32_t id = w->order[k];
        struct schema_node *n = &r->nodes.at[id];
        struct edges s = { n, 0, 0 };
        node_id next;
        for (uint32_t l = 0; l < n->n_properties; l++)
            w->declares[id] |= n->properties[l].is_declared;
        while (next_edge(&s, &next))
            w->declares[id] |= next.i != n->not_of.i && w->declares[next.i];
        if (r->todo.at[id].closes_union && w->declares[id]) {
            n->has_unevaluated_properties = true;
            n->unevaluated_properties = NODE_FALSE;
        }
    }
}

int schema_graph_check(struct schema_reader *r)
{
    uint32_t n = r->nodes.n;
    struct walk w = { .path = try_calloc(n, sizeof(*w.path)),
        .path_ids = try_calloc(n, sizeof(*w.path_ids)),
        .order = try_calloc(n, sizeof(*w.order)),
        .states = try_calloc(n, sizeof(*w.states)),
        .declares = try_calloc(n, sizeof(*w.declares)) };
    int rc = 0;

    if (!w.path || !w.path_ids || !w.order || !w.states || !w.declares)
        rc = schema_no_memory(r);
    else
        w.states[NODE_TRUE.i] = w.states[NODE_FALSE.i] = NODE_DONE;
    for (uint32_t k = 2; k < n && !rc; k++)
        if (w.states[k] == NODE_NEW)
            rc = walk_from(r, &w, k);
    if (!rc)
        close_unions(r, &w);
    mem_free(w.path);
    mem_free(w.path_ids);
    mem_free(w.order);
    mem_free(w.states);
    mem_free(w.declares);
    return rc;
}
