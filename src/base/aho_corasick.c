#include "base/aho_corasick.h"

#include "base/mem.h"

enum { TABLE_CELLS_MAX = 32 * 1024, ROW_CELLS_MAX = 256 * 1024 };

static uint32_t find_child(const struct aho_corasick *m, uint32_t state, char byte)
{
    uint32_t c = m->nodes[state].child;

    while (c && m->nodes[c].byte != byte)
        c = m->nodes[c].sibling;
    return c;
}

/* The transition without the table. Each failure link shortens the state by a byte or more, and
 * each call extends it by one at most, so the number of links is at most that of the bytes. */
uint32_t aho_corasick_search(const struct aho_corasick *m, uint32_t state, char byte)
{
    uint32_t next;

    for (;;) {
        if (state < m->n_rows)
            return m->rows[((size_t)state << m->shift) + m->class_of[(unsigned char)byte]];
        next = find_child(m, state, byte);
        if (next || state == AHO_CORASICK_ROOT)
            return next;
        state = m->nodes[state].fail;
    }
}

static void add_string(struct aho_corasick *m, int index)
{
    struct str s = m->strings[index];
    uint32_t state = AHO_CORASICK_ROOT;

    for (size_t i = 0; i < s.n; i++) {
        uint32_t next = find_child(m, state, s.p[i]);
        if (!next) {
            next = m->n_nodes++;
            m->nodes[next] = (struct aho_corasick_node){ .sibling = m->nodes[state].child,
                .depth = (uint16_t)(i + 1),
                .string_index = (uint32_t)index,
                .hit = -1,
                .byte = s.p[i] };
            m->nodes[state].child = next;
        }
        state = next;
    }
    if (s.n)
        m->starts[(unsigned char)s.p[0]] = true;
    if (s.n && m->nodes[state].hit < 0)
        m->nodes[state].hit = index;
}

/* Breadth first: a failure link points to a node nearer to the root, which is already complete.
 * `queue` [n_nodes] returns the states in this order. */
static void link_failures(struct aho_corasick *m, uint32_t *queue)
{
    size_t head = 0, tail = 0;

    queue[tail++] = AHO_CORASICK_ROOT;
    while (head < tail) {
        uint32_t state = queue[head++];
        struct aho_corasick_node *n = &m->nodes[state];
        n->end = n->hit >= 0 ? state : m->nodes[n->fail].end;
        if (n->hit < 0)
            n->hit = m->nodes[n->fail].hit;
        for (uint32_t c = n->child; c; c = m->nodes[c].sibling) {
            if (state != AHO_CORASICK_ROOT)
                m->nodes[c].fail = aho_corasick_search(m, n->fail, m->nodes[c].byte);
            queue[tail++] = c;
        }
    }
}

static unsigned count_classes(struct aho_corasick *m)
{
    unsigned n = 1;

    for (uint32_t i = 1; i < m->n_nodes; i++) {
        unsigned char *c = &m->class_of[(unsigned char)m->nodes[i].byte];
        if (!*c)
            *c = (unsigned char)n++;
    }
    return n;
}

/* The row of a state is that of its failure link, except for its children. False: no memory. */
static bool build_table(struct aho_corasick *m, struct arena *a, const uint32_t *order)
{
    uint16_t *cells = arena_zalloc(a, (size_t)m->n_nodes << m->shift, sizeof(*cells));

    if (!cells)
        return false;
    for (uint32_t i = 0; i < m->n_nodes; i++) {
        const struct aho_corasick_node *n = &m->nodes[order[i]];
        uint16_t *row = cells + ((size_t)order[i] << m->shift);
        if (order[i] != AHO_CORASICK_ROOT)
            memcpy(row, cells + ((size_t)n->fail << m->shift), sizeof(*row) << m->shift);
        for (uint32_t c = n->child; c; c = m->nodes[c].sibling)
            row[m->class_of[(unsigned char)m->nodes[c].byte]] = (uint16_t)c;
    }
    m->next = cells;
    return true;
}

/* Numbers the states breadth first, so that those near the root have the lowest numbers. `number`
 * [n_nodes] becomes the new number of each state. */
static bool renumber(struct aho_corasick *m, const uint32_t *order, uint32_t *number)
{
    struct aho_corasick_node *old = try_malloc(m->n_nodes * sizeof(*old));

    if (!old)
        return false;
    memcpy(old, m->nodes, m->n_nodes * sizeof(*old));
    for (uint32_t i = 0; i < m->n_nodes; i++)
        number[order[i]] = i;
    for (uint32_t i = 0; i < m->n_nodes; i++) {
        struct aho_corasick_node *n = &m->nodes[i];
        *n = old[order[i]];
        n->child = number[n->child];
        n->sibling = number[n->sibling];
        n->fail = number[n->fail];
        n->end = number[n->end];
    }
    mem_free(old);
    return true;
}

/* Rows of the first states. A failure link has a lower number, so its row is complete. */
static bool build_rows(struct aho_corasick *m, struct arena *a)
{
    uint32_t n = MIN(m->n_nodes, (uint32_t)ROW_CELLS_MAX >> m->shift);
    uint32_t *cells = arena_zalloc(a, (size_t)n << m->shift, sizeof(*cells));

    if (!cells)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *row = cells + ((size_t)i << m->shift);
        if (i != AHO_CORASICK_ROOT)
            memcpy(row, cells + ((size_t)m->nodes[i].fail << m->shift), sizeof(*row) << m->shift);
        for (uint32_t c = m->nodes[i].child; c; c = m->nodes[c].sibling)
            row[m->class_of[(unsigned char)m->nodes[c].byte]] = c;
    }
    m->rows = cells;
    m->n_rows = n;
    return true;
}

/* False: no memory. `order`: the states breadth first; `scratch` [n_nodes]. */
static bool build_transitions(
    struct aho_corasick *m, struct arena *a, const uint32_t *order, uint32_t *scratch)
{
    unsigned n_classes = count_classes(m);

    while (1u << m->shift < n_classes)
        m->shift++;
    if (n_classes > 256)
        return true;
    if ((size_t)m->n_nodes << m->shift <= TABLE_CELLS_MAX)
        return build_table(m, a, order);
    return renumber(m, order, scratch) && build_rows(m, a);
}

struct aho_corasick *aho_corasick_new(struct arena *a, const struct str *strings, int n)
{
    struct aho_corasick *m = arena_zalloc(a, 1, sizeof(*m));
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        CHECK(strings[i].n <= AHO_CORASICK_STRING_MAX);
        bytes += strings[i].n;
    }
    CHECK(n <= AHO_CORASICK_STRINGS_LIMIT && bytes <= AHO_CORASICK_BYTES_LIMIT);
    if (!m)
        return NULL;
    m->strings = strings;
    m->nodes = arena_zalloc(a, bytes + 1, sizeof(*m->nodes));
    uint32_t *scratch = try_calloc(2 * (bytes + 1), sizeof(*scratch));
    if (!m->nodes || !scratch) {
        mem_free(scratch);
        return NULL;
    }
    m->nodes[AHO_CORASICK_ROOT].hit = -1;
    m->n_nodes = 1;
    for (int i = 0; i < n; i++)
        add_string(m, i);
    link_failures(m, scratch);
    m->starts_blank = m->starts[' '] || m->starts['\t'] || m->starts['\n'] || m->starts['\r'];
    bool is_complete = build_transitions(m, a, scratch, scratch + bytes + 1);
    mem_free(scratch);
    return is_complete ? m : NULL;
}

size_t aho_corasick_find(const struct aho_corasick *m, uint32_t *state, struct str text, int *hit)
{
    uint32_t at = *state;
    size_t i = 0;

    for (*hit = -1; *hit < 0 && i < text.n;) {
        while (at == AHO_CORASICK_ROOT && i < text.n && !m->starts[(unsigned char)text.p[i]])
            i++;
        if (i == text.n)
            break;
        at = aho_corasick_step(m, at, text.p[i++]);
        *hit = aho_corasick_hit(m, at);
    }
    *state = at;
    return i;
}
