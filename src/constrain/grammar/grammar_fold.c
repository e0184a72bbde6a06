/* Folds regular parts into one expression each, from the leaves to the root.
 *
 * Parts that contain themselves stay as they are, and so does a part whose expression would be
 * nested too deeply: a chain of thousands of rules becomes several expressions. */
#include "base/mem.h"
#include "constrain/regular/expr_in.h"
#include "constrain/grammar/grammar_in.h"
#include "constrain/grammar/scc.h"

struct fold {
    struct grammar *g;
    uint32_t *first, *to;  /* graph of the parts: args, and the body of a reference */
    uint32_t *component;   /* one number per part */
    uint32_t *order;       /* parts, those of lower components first */
    uint32_t *component_n; /* parts per component */
    bool *is_reachable;
};

static uint32_t target_of(const struct grammar *g, const struct part *p, uint32_t k)
{
    return p->kind == PART_REF ? g->rules[p->value].body : g->args[p->first + k];
}

static uint32_t n_targets(const struct part *p)
{
    return p->kind == PART_REF ? 1 : p->n;
}

/* Fills `first` and `to`, and marks the parts that `root` reaches; `order` is the stack. */
static void build_graph(struct fold *f, uint32_t root)
{
    struct grammar *g = f->g;
    uint32_t at = 0, n = 0;

    for (uint32_t k = 0; k < g->n_parts; k++) {
        f->first[k] = at;
        for (uint32_t j = 0; j < n_targets(&g->parts[k]); j++)
            f->to[at++] = target_of(g, &g->parts[k], j);
    }
    f->first[g->n_parts] = at;
    f->is_reachable[root] = true;
    f->order[n++] = root;
    while (n) {
        uint32_t k = f->order[--n];
        for (uint32_t j = f->first[k]; j < f->first[k + 1]; j++)
            if (!f->is_reachable[f->to[j]]) {
                f->is_reachable[f->to[j]] = true;
                f->order[n++] = f->to[j];
            }
    }
}

/* Sorts the parts by component; component_n[c] becomes the number of parts of c. */
static void sort_by_component(struct fold *f, uint32_t n_components)
{
    uint32_t n = f->g->n_parts, at = 0;

    for (uint32_t k = 0; k < n; k++)
        f->component_n[f->component[k]]++;
    for (uint32_t c = 0; c < n_components; c++) {
        uint32_t count = f->component_n[c];
        f->component_n[c] = at;
        at += count;
    }
    for (uint32_t k = 0; k < n; k++)
        f->order[f->component_n[f->component[k]]++] = k;
    for (uint32_t c = n_components; c-- > 1;)
        f->component_n[c] -= f->component_n[c - 1];
}

static bool is_recursive(const struct fold *f, uint32_t k)
{
    for (uint32_t j = f->first[k]; j < f->first[k + 1]; j++)
        if (f->to[j] == k)
            return true;
    return f->component_n[f->component[k]] > 1;
}

static expr_id folded_arg(const struct fold *f, uint32_t k, uint32_t j)
{
    return (expr_id){ f->g->parts[f->to[f->first[k] + j]].folded };
}

/* The expression of a part whose parts are all folded. */
static expr_id folded(const struct fold *f, uint32_t k)
{
    const struct grammar *g = f->g;
    const struct part *p = &g->parts[k];
    struct exprs *x = g->x;
    uint32_t start = x->n_stack;
    expr_id all = EXPR_EPS;

    switch ((enum part_kind)p->kind) {
    case PART_CAT:
        for (uint32_t j = p->n; j-- > 0;)
            all = expr_cat(x, folded_arg(f, k, j), all);
        return all;
    case PART_ALT:
        for (uint32_t j = 0; j < p->n; j++)
            expr_push(x, folded_arg(f, k, j).i);
        if (!exprs_failed(x))
            all = expr_or_all(x, (const expr_id *)(const void *)(x->stack + start), p->n);
        x->n_stack = start;
        return all;
    case PART_REPEAT:
        return expr_repeat(x, folded_arg(f, k, 0), p->min, p->max);
    case PART_REF:
        return folded_arg(f, k, 0);
    case PART_EXPR:
        return (expr_id){ p->folded };
    case PART_JSON:
    case PART_TOKENS:
        break;
    }
    return EXPR_NONE;
}

static void fold_part(struct fold *f, uint32_t k)
{
    struct grammar *g = f->g;
    struct part *p = &g->parts[k];

    if (p->kind == PART_EXPR || p->kind == PART_JSON || p->kind == PART_TOKENS ||
        is_recursive(f, k))
        return;
    for (uint32_t j = 0; j < n_targets(p); j++)
        if (folded_arg(f, k, j).i == NOT_REGULAR)
            return;
    expr_id all = folded(f, k);
    if (!exprs_failed(g->x) && node_of(g->x, all)->depth <= GRAMMAR_FOLD_DEPTH_MAX)
        p->folded = all.i;
}

int grammar_fold(struct grammar *g, uint32_t root)
{
    struct fold f = { .g = g };
    size_t n = g->n_parts, n_edges = g->n_args + n;
    uint32_t *memory = try_calloc(4 * n + 1 + n_edges, sizeof(*memory));

    f.is_reachable = try_calloc(n, sizeof(bool));
    if (!memory || !f.is_reachable)
        goto no_memory;
    f.first = memory;
    f.component = f.first + n + 1;
    f.order = f.component + n;
    f.component_n = f.order + n;
    f.to = f.component_n + n;
    build_graph(&f, root);
    struct graph graph = { (uint32_t)n, f.first, f.to };
    uint32_t n_components = graph_components(&graph, f.component);
    if (n_components == UINT32_MAX)
        goto no_memory;
    sort_by_component(&f, n_components);
    for (size_t k = 0; k < n && expr_work(g->x, 1); k++)
        if (f.is_reachable[f.order[k]])
            fold_part(&f, f.order[k]);
    mem_free(memory);
    mem_free(f.is_reachable);
    return exprs_failed(g->x) ? -1 : 0;
no_memory:
    mem_free(memory);
    mem_free(f.is_reachable);
    grammar_fail(g, ERR_MEMORY, "no memory for a grammar");
    return -1;
}
