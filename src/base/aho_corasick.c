#include "base/aho_corasick.h"

static uint16_t *table_cell(const struct aho_corasick *m, uint16_t state, char byte)
{
    return &m->next[((size_t)state << m->shift) + m->class_of[(unsigned char)byte]];
}

static void add_string(struct aho_corasick *m, int index)
{
    struct str s = m->strings[index];
    uint16_t state = AHO_CORASICK_ROOT;

    CHECK(s.n > 0);
    m->starts[(unsigned char)s.p[0]] = true;
    for (size_t i = 0; i < s.n; i++) {
        uint16_t *next = table_cell(m, state, s.p[i]);
        if (!*next) {
            *next = m->n_nodes++;
            m->nodes[*next] = (struct aho_corasick_node){ (uint16_t)(i + 1), (uint16_t)index, -1 };
        }
        state = *next;
    }
    if (m->nodes[state].hit < 0)
        m->nodes[state].hit = (int16_t)index;
}

/* Breadth first, so that the failure link of a state is complete before the state itself: the empty
 * cells of the state get the transitions of its failure link, and the links are not needed
 * afterwards. */
static void link_failures(struct aho_corasick *m, uint16_t *queue, uint16_t *fail)
{
    size_t head = 0, tail = 0;

    queue[tail++] = AHO_CORASICK_ROOT;
    while (head < tail) {
        uint16_t state = queue[head++];
        uint16_t *row = m->next + ((size_t)state << m->shift);
        const uint16_t *other = m->next + ((size_t)fail[state] << m->shift);
        if (m->nodes[state].hit < 0 && state != AHO_CORASICK_ROOT)
            m->nodes[state].hit = m->nodes[fail[state]].hit;
        for (uint16_t c = 1; c < m->n_classes; c++) {
            bool is_child = row[c] && m->nodes[row[c]].depth == m->nodes[state].depth + 1;
            if (is_child) {
                fail[row[c]] = state == AHO_CORASICK_ROOT ? (uint16_t)AHO_CORASICK_ROOT : other[c];
                queue[tail++] = row[c];
            } else if (state != AHO_CORASICK_ROOT) {
                row[c] = other[c];
            }
        }
    }
}

static size_t classify(struct aho_corasick *m, int n)
{
    size_t bytes = 0;

    m->n_classes = 1;
    for (int i = 0; i < n; i++) {
        bytes += m->strings[i].n;
        for (size_t k = 0; k < m->strings[i].n; k++) {
            unsigned char *c = &m->class_of[(unsigned char)m->strings[i].p[k]];
            if (!*c)
                *c = (unsigned char)m->n_classes++;
        }
    }
    return bytes;
}

struct aho_corasick *aho_corasick_new(struct arena *a, const struct str *strings, int n)
{
    struct aho_corasick *m = arena_zalloc(a, 1, sizeof(*m));

    if (!m)
        return NULL;
    m->strings = strings;
    size_t n_nodes = classify(m, n) + 1;
    while (1 << m->shift < m->n_classes)
        m->shift++;
    CHECK(n <= AHO_CORASICK_MAX_STRINGS && n_nodes <= AHO_CORASICK_MAX_BYTES + 1 &&
          m->n_classes < 256);
    m->nodes = arena_zalloc(a, n_nodes, sizeof(*m->nodes));
    m->next = arena_zalloc(a, n_nodes << m->shift, sizeof(*m->next));
    uint16_t *queue = arena_zalloc(a, 2 * n_nodes, sizeof(*queue));
    if (!m->nodes || !m->next || !queue)
        return NULL;
    m->nodes[AHO_CORASICK_ROOT].hit = -1;
    m->n_nodes = 1;
    for (int i = 0; i < n; i++)
        add_string(m, i);
    link_failures(m, queue, queue + n_nodes);
    m->starts_blank = m->starts[' '] || m->starts['\t'] || m->starts['\n'] || m->starts['\r'];
    return m;
}
