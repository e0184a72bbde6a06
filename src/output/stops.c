/* The strings form a trie with failure links (Aho-Corasick). The state after a byte is the longest
 * suffix of the text that is a prefix of some string. Held bytes are not stored, since they are
 * known from the trie. */
#include "output/stops.h"

enum { ROOT = 0, NONE = 0xFFFF };

struct stop_node {
    uint16_t child, sibling; /* NONE: there is none */
    uint16_t fail;           /* the longest proper suffix that is in the trie */
    uint16_t hit;            /* nearest state on the failure chain that ends a string; or NONE */
    uint16_t depth;          /* bytes from the root */
    int16_t string;          /* index of the string that ends here, or -1 */
    uint16_t prefix_of;      /* index of a string whose first `depth` bytes lead here */
    unsigned char byte;
};

struct stops {
    struct stop_node *nodes;
    struct str *strings;
    uint16_t n_nodes, state;
    bool is_over;
    uint16_t first[256]; /* children of the root by byte: most text stays at the root */
};

bool stops_fit(const struct str *strings, int n)
{
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        if (strings[i].n > STOP_BYTES_MAX)
            return false;
        bytes += strings[i].n;
    }
    return n <= STOPS_MAX && bytes <= STOP_BYTES_MAX;
}

static uint16_t child_of(const struct stops *s, uint16_t at, unsigned char byte)
{
    if (at == ROOT)
        return s->first[byte];
    for (uint16_t c = s->nodes[at].child; c != NONE; c = s->nodes[c].sibling)
        if (s->nodes[c].byte == byte)
            return c;
    return NONE;
}

static void add_string(struct stops *s, int index)
{
    struct str text = s->strings[index];
    uint16_t at = ROOT;

    for (size_t i = 0; i < text.n; i++) {
        unsigned char byte = (unsigned char)text.p[i];
        uint16_t next = child_of(s, at, byte);
        if (next == NONE) {
            next = s->n_nodes++;
            s->nodes[next] = (struct stop_node){ .child = NONE,
                .sibling = s->nodes[at].child,
                .fail = ROOT,
                .hit = NONE,
                .depth = (uint16_t)(i + 1),
                .string = -1,
                .prefix_of = (uint16_t)index,
                .byte = byte };
            s->nodes[at].child = next;
            if (at == ROOT)
                s->first[byte] = next;
        }
        at = next;
    }
    if (text.n && s->nodes[at].string < 0)
        s->nodes[at].string = (int16_t)index;
}

static uint16_t next_state(const struct stops *s, uint16_t at, unsigned char byte)
{
    for (;;) {
        uint16_t next = child_of(s, at, byte);
        if (next != NONE)
            return next;
        if (at == ROOT)
            return ROOT;
        at = s->nodes[at].fail;
    }
}

/* Breadth first: a failure link points to a node nearer to the root, which is already complete. */
static void link_nodes(struct stops *s, uint16_t *queue)
{
    size_t head = 0, tail = 0;

    queue[tail++] = ROOT;
    while (head < tail) {
        uint16_t at = queue[head++];
        struct stop_node *n = &s->nodes[at];
        n->hit = n->string >= 0 ? at : at == ROOT ? (uint16_t)NONE : s->nodes[n->fail].hit;
        for (uint16_t c = n->child; c != NONE; c = s->nodes[c].sibling) {
            s->nodes[c].fail =
                at == ROOT ? (uint16_t)ROOT : next_state(s, n->fail, s->nodes[c].byte);
            queue[tail++] = c;
        }
    }
}

struct stops *stops_new(struct arena *a, const struct str *strings, int n)
{
    size_t n_nodes = 1;

    if (!stops_fit(strings, n))
        return NULL;
    for (int i = 0; i < n; i++)
        n_nodes += strings[i].n;
    struct stops *s = arena_zalloc(a, 1, sizeof(*s));
    uint16_t *queue = arena_zalloc(a, n_nodes, sizeof(*queue));
    if (!s || !queue)
        return NULL;
    s->nodes = arena_zalloc(a, n_nodes, sizeof(*s->nodes));
    s->strings = arena_zalloc(a, (size_t)MAX(n, 1), sizeof(*s->strings));
    if (!s->nodes || !s->strings)
        return NULL;
    memset(s->first, 0xFF, sizeof(s->first));
    s->nodes[ROOT] =
        (struct stop_node){ .child = NONE, .sibling = NONE, .hit = NONE, .string = -1 };
    s->n_nodes = 1;
    for (int i = 0; i < n; i++) {
        s->strings[i] = arena_str(a, strings[i]);
        if (!s->strings[i].p)
            return NULL;
        add_string(s, i);
    }
    link_nodes(s, queue);
    return s;
}

/* Appends the first `n` of the bytes held in state `held` followed by `text`. */
static void append_held(
    const struct stops *s, uint16_t held, struct str text, size_t n, struct buf *out)
{
    const struct stop_node *h = &s->nodes[held];
    size_t old = MIN(n, (size_t)h->depth);

    if (old)
        buf_put(out, s->strings[h->prefix_of].p, old);
    buf_put(out, text.p, n - old);
}

int stops_put(struct stops *s, struct str text, bool include, struct buf *out)
{
    uint16_t held = s->state, at = s->state;

    if (s->is_over)
        return -1;
    for (size_t i = 0; i < text.n; i++) {
        at = next_state(s, at, (unsigned char)text.p[i]);
        uint16_t hit = s->nodes[at].hit;
        if (hit == NONE)
            continue;
        size_t end = s->nodes[held].depth + i + 1;
        s->is_over = true;
        append_held(s, held, text, include ? end : end - s->nodes[hit].depth, out);
        return s->nodes[hit].string;
    }
    append_held(s, held, text, s->nodes[held].depth + text.n - s->nodes[at].depth, out);
    s->state = at;
    return -1;
}

void stops_end(struct stops *s, struct buf *out)
{
    if (!s->is_over)
        append_held(s, s->state, STR(""), s->nodes[s->state].depth, out);
    s->is_over = true;
}
