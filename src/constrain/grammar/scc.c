#include "constrain/grammar/scc.h"

#include "base/mem.h"

#define UNNUMBERED UINT32_MAX

struct search {
    const struct graph *g;
    uint32_t *index, *low; /* order of the first visit; smallest index that the node reaches */
    uint32_t *open;        /* visited nodes without a component, in the order of the visit */
    uint32_t *path, *edge; /* nodes on the path of the search, next edge of each node */
    uint32_t n_open, n_path, n_visited, n_components;
};

static void visit(struct search *s, uint32_t v)
{
    s->index[v] = s->low[v] = s->n_visited++;
    s->edge[v] = s->g->first[v];
    s->open[s->n_open++] = v;
    s->path[s->n_path++] = v;
}

/* All edges of the node at the end of the path are done. */
static void leave(struct search *s, uint32_t *component)
{
    uint32_t v = s->path[--s->n_path];

    if (s->n_path) {
        uint32_t parent = s->path[s->n_path - 1];
        s->low[parent] = MIN(s->low[parent], s->low[v]);
    }
    if (s->low[v] != s->index[v])
        return;
    uint32_t w;
    do {
        w = s->open[--s->n_open];
        component[w] = s->n_components;
    } while (w != v);
    s->n_components++;
}

uint32_t graph_components(const struct graph *g, uint32_t *component)
{
    uint32_t *memory = try_malloc((size_t)MAX(g->n, 1u) * 5 * sizeof(*memory));
    struct search s = { .g = g };

    if (!memory)
        return UINT32_MAX;
    s.index = memory;
    s.low = s.index + g->n;
    s.open = s.low + g->n;
    s.path = s.open + g->n;
    s.edge = s.path + g->n;
    for (uint32_t v = 0; v < g->n; v++)
        s.index[v] = component[v] = UNNUMBERED;
    for (uint32_t root = 0; root < g->n; root++) {
        if (s.index[root] == UNNUMBERED)
            visit(&s, root);
        while (s.n_path) {
            uint32_t v = s.path[s.n_path - 1];
            if (s.edge[v] == g->first[v + 1]) {
                leave(&s, component);
                continue;
            }
            uint32_t w = g->to[s.edge[v]++];
            if (s.index[w] == UNNUMBERED)
                visit(&s, w);
            else if (component[w] == UNNUMBERED)
                s.low[v] = MIN(s.low[v], s.index[w]);
        }
    }
    mem_free(memory);
    return s.n_components;
}
