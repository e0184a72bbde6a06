#include "base/aho_corasick.h"

enum { TABLE_CELLS_MAX = 32 * 1024 };

static uint16_t find_child(const struct aho_corasick *m, uint16_t state, char byte)
{
    uint16_t c = m->nodes[state].child;

    while (c && m->nodes[c].byte != byte)
        c = m->nodes[c].sibling;
    return c;
}

/* The transition without the table. Each failure link shortens the state by a byte or more, and
 * each call extends it by one at most, so the number of links is at most that of the bytes. */
uint16_t aho_corasick_search(const struct aho_corasick *m, uint16_t state, char byte)
{
    uint16_t next;

    while (!(next = find_child(m, state, byte)) && state != AHO_CORASICK_ROOT)
        state = m->nodes[state].fail;
    return next;
}

static void add_string(struct aho_corasick *m, int index)
{
    struct str s = m->strings[index];
    uint16_t state = AHO_CORASICK_ROOT;

    for (size_t i = 0; i < s.n; i++) {
        uint16_t next = find_child(m, state, s.p[i]);
        if (!next) {
            next = m->n_nodes++;
            m->nodes[next] = (struct aho_corasick_node){ .sibling = m->nodes[state].child,
                .depth = (uint16_t)(i + 1),
                .string_index = (uint16_t)index,
                .hit = -1,
                .byte = s.p[i] };
            m->nodes[state].child = next;
        }
        state = next;
    }
    if (s.n)
        m->starts[(unsigned char)s.p[0]] = true;
    if (s.n && m->nodes[state].hit < 0)
        m->nodes[state].hit = (int16_t)index;
}

/* Breadth first: a failure link points to a node nearer to the root, which is already complete.
 * `queue` [n_nodes] returns the states in this order. */
static void link_failures(struct aho_corasick *m, uint16_t *queue)
{
    size_t head = 0, tail = 0;

    queue[tail++] = AHO_CORASICK_ROOT;
    while (head < tail) {
        uint16_t state = queue[head++];
        struct aho_corasick_node *n = &m->nodes[state];
        if (n->hit < 0)
            n->hit = m->nodes[n->fail].hit;
        for (uint16_t c = n->child; c; c = m->nodes[c].sibling) {
            if (state != AHO_CORASICK_ROOT)
                m->nodes[c].fail = aho_corasick_search(m, n->fail, m->nodes[c].byte);
            queue[tail++] = c;
        }
    }
}

/* The row of a state is that of its failure link, except for its children. False: no memory. */
static bool build_table(struct aho_corasick *m, struct arena *a, const uint16_t *order)
{
    unsigned n_classes = 1;

    for (uint16_t i = 1; i < m->n_nodes; i++) {
        unsigned char *c = &m->class_of[(unsigned char)m->nodes[i].byte];
        if (!*c)
            *c = (unsigned char)n_classes++;
    }
    while (1u << m->shift < n_classes)
        m->shift++;
    if (n_classes > 256 || (size_t)m->n_nodes << m->shift > TABLE_CELLS_MAX)
        return true;
    uint16_t *cells = arena_zalloc(a, (size_t)m->n_nodes << m->shift, sizeof(*cells));
    if (!cells)
        return false;
    for (uint16_t i = 0; i < m->n_nodes; i++) {
        const struct aho_corasick_node *n = &m->nodes[order[i]];
        uint16_t *row = cells + ((size_t)order[i] << m->shift);
        if (order[i] != AHO_CORASICK_ROOT)
            memcpy(row, cells + ((size_t)n->fail << m->shift), n_classes * sizeof(*row));
        for (uint16_t c = n->child; c; c = m->nodes[c].sibling)
            row[m->class_of[(unsigned char)m->nodes[c].byte]] = c;
    }
    m->next = cells;
    return true;
}

struct aho_corasick *aho_corasick_new(struct arena *a, const struct str *strings, int n)
{
    struct aho_corasick *m = arena_zalloc(a, 1, sizeof(*m));
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += strings[i].n;
    CHECK(n <= AHO_CORASICK_MAX_STRINGS && bytes <= AHO_CORASICK_MAX_BYTES);
    if (!m)
        return NULL;
    m->strings = strings;
    m->nodes = arena_zalloc(a, bytes + 1, sizeof(*m->nodes));
    uint16_t *queue = arena_zalloc(a, bytes + 1, sizeof(*queue));
    if (!m->nodes || !queue)
        return NULL;
    m->nodes[AHO_CORASICK_ROOT].hit = -1;
    m->n_nodes = 1;
    for (int i = 0; i < n; i++)
        add_string(m, i);
    link_failures(m, queue);
    m->starts_blank = m->starts[' '] || m->starts['\t'] || m->starts['\n'] || m->starts['\r'];
    return build_table(m, a, queue) ? m : NULL;
}

size_t aho_corasick_find(const struct aho_corasick *m, uint16_t *state, struct str text, int *hit)
{
    uint16_t at = *state;
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
