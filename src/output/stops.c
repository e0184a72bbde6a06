/* A trie of the strings with failure links. The state after a byte is the longest tail of the
 * text that is a prefix of some string; its bytes are known from the trie, so nothing that is
 * held back has to be stored. */
#include "output/stops.h"

enum { ROOT = 0, NONE = 0xFFFF };

struct node {
    uint16_t child, sibling; /* NONE: no such */
    uint16_t fail;           /* the longest proper tail that is in the trie */
    uint16_t hit;            /* the nearest state on the failure chain that ends a string; NONE */
    uint16_t depth;          /* bytes from the root */
    int16_t string;          /* the string that ends here, or -1 */
    uint16_t prefix_of;      /* any string whose first `depth` bytes lead here */
    unsigned char byte;
};

struct stops {
    struct node *nodes;
    struct str *strings;
    uint16_t n_nodes, state;
    bool is_over;
    uint16_t first[256]; /* the root's children, by byte: most text stays at the root */
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

static void add(struct stops *s, int index)
{
    struct str text = s->strings[index];
    uint16_t at = ROOT;

    for (size_t i = 0; i < text.n; i++) {
        unsigned char byte = (unsigned char)text.p[i];
        uint16_t next = child_of(s, at, byte);
        if (next == NONE) {
            next = s->n_nodes++;
            s->nodes[next] = (struct node){ .child = NONE,
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

static uint16_t step(const struct stops *s, uint16_t at, unsigned char byte)
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

/* Breadth first: a failure link leads to a node nearer to the root, which is done already. */
static void link_nodes(struct stops *s, uint16_t *queue)
{
    size_t head = 0, tail = 0;

    queue[tail++] = ROOT;
    while (head < tail) {
        uint16_t at = queue[head++];
        struct node *n = &s->nodes[at];
        n->hit = n->string >= 0 ? at : at == ROOT ? (uint16_t)NONE : s->nodes[n->fail].hit;
        for (uint16_t c = n->child; c != NONE; c = s->nodes[c].sibling) {
            s->nodes[c].fail = at == ROOT ? (uint16_t)ROOT : step(s, n->fail, s->nodes[c].byte);
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
    s->nodes[ROOT] = (struct node){ .child = NONE, .sibling = NONE, .hit = NONE, .string = -1 };
    s->n_nodes = 1;
    for (int i = 0; i < n; i++) {
        s->strings[i] = arena_str(a, strings[i]);
        if (!s->strings[i].p)
            return NULL;
        add(s, i);
    }
    link_nodes(s, queue);
    return s;
}

/* Shows the first `n` bytes of what was held back in state `held`, followed by `text`. */
static void show(const struct stops *s, uint16_t held, struct str text, size_t n, struct buf *out)
{
    const struct node *h = &s->nodes[held];
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
        at = step(s, at, (unsigned char)text.p[i]);
        uint16_t hit = s->nodes[at].hit;
        if (hit == NONE)
            continue;
        size_t end = s->nodes[held].depth + i + 1;
        s->is_over = true;
        show(s, held, text, include ? end : end - s->nodes[hit].depth, out);
        return s->nodes[hit].string;
    }
    show(s, held, text, s->nodes[held].depth + text.n - s->nodes[at].depth, out);
    s->state = at;
    return -1;
}

void stops_end(struct stops *s, struct buf *out)
{
    if (!s->is_over)
        show(s, s->state, STR(""), s->nodes[s->state].depth, out);
    s->is_over = true;
}
