#include "constrain/vocab/token_trie.h"

#include "base/mem.h"

#include <stdlib.h>

/* A token while the trie is built. */
struct sorted_token {
    uint64_t prefix; /* first eight bytes, big-endian, padded with zeros */
    struct str bytes;
    int32_t id;
};

static uint64_t prefix_of(struct str s)
{
    uint64_t prefix = 0;

    for (size_t k = 0; k < 8; k++)
        prefix = prefix << 8 | (k < s.n ? (uint8_t)s.p[k] : 0);
    return prefix;
}

/* Orders tokens by their bytes, tokens with equal bytes by id. */
static int compare_tokens(const void *x, const void *y)
{
    const struct sorted_token *a = x, *b = y;

    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    int d = memcmp(a->bytes.p, b->bytes.p, MIN(a->bytes.n, b->bytes.n));
    if (d)
        return d;
    if (a->bytes.n != b->bytes.n)
        return a->bytes.n < b->bytes.n ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static size_t common_prefix(struct str a, struct str b)
{
    size_t n = 0;

    while (n < MIN(a.n, b.n) && a.p[n] == b.p[n])
        n++;
    return n;
}

/* Fills `sorted`, which has room for all tokens. */
static void collect_tokens(struct token_trie *t, const struct token_source *src,
    const uint32_t *chosen, struct sorted_token *sorted)
{
    for (int32_t id = 0; id < src->n_tokens; id++) {
        if (chosen && !token_set_has(chosen, id))
            continue;
        struct str s = src->bytes(src->ctx, id);
        if (s.n > TOKEN_TRIE_DEPTH_MAX)
            t->n_long++;
        else if (s.n)
            sorted[t->n_ids++] = (struct sorted_token){ prefix_of(s), s, id };
    }
    qsort(sorted, t->n_ids, sizeof(*sorted), compare_tokens);
}

static uint64_t count_nodes(const struct sorted_token *sorted, uint32_t n)
{
    struct str last = STR_NONE;
    uint64_t n_nodes = 0;

    for (uint32_t k = 0; k < n; k++) {
        n_nodes += sorted[k].bytes.n - common_prefix(last, sorted[k].bytes);
        last = sorted[k].bytes;
    }
    return n_nodes;
}

/* Sets the sizes of the nodes at the end of `path`, down to the given depth. */
static void close_path(struct token_trie *t, const uint32_t *path, size_t from, size_t to)
{
    for (size_t d = to; d < from; d++)
        t->nodes[path[d]].byte_size |= (t->n_nodes - path[d]) << 8;
}

static void fill_nodes(struct token_trie *t, const struct sorted_token *sorted)
{
    uint32_t path[TOKEN_TRIE_DEPTH_MAX];
    struct str last = STR_NONE;

    for (uint32_t k = 0; k < t->n_ids; k++) {
        struct str s = sorted[k].bytes;
        size_t shared = common_prefix(last, s);
        close_path(t, path, last.n, shared);
        for (size_t d = shared; d < s.n; d++) {
            path[d] = t->n_nodes;
            t->nodes[t->n_nodes++] =
                (struct trie_node){ (uint8_t)s.p[d], k | (uint32_t)(d + 1) << 21 };
        }
        t->ids[k] = sorted[k].id;
        t->depth_max = (uint32_t)MAX(t->depth_max, s.n);
        last = s;
    }
    close_path(t, path, last.n, 0);
    t->nodes[t->n_nodes] = (struct trie_node){ 0, t->n_ids };
    memset(t->top, 0xff, sizeof(t->top));
    for (uint32_t i = 0; i < t->n_nodes; i += trie_size(&t->nodes[i]))
        t->top[trie_byte(&t->nodes[i])] = i;
}

int token_trie_init(
    struct token_trie *t, const struct token_source *src, const uint32_t *chosen, struct err *e)
{
    *t = (struct token_trie){ 0 };
    if (src->n_tokens < 1 || src->n_tokens > TOKEN_IDS_MAX)
        return err_set(e, ERR_TOO_LARGE, "a vocabulary of %d tokens: 1 to %d are supported",
            src->n_tokens, TOKEN_IDS_MAX);
    struct sorted_token *sorted = try_malloc((size_t)src->n_tokens * sizeof(*sorted));
    if (!sorted)
        goto no_memory;
    collect_tokens(t, src, chosen, sorted);
    uint64_t n_nodes = count_nodes(sorted, t->n_ids);
    if (n_nodes > TOKEN_TRIE_NODES_MAX) {
        mem_free(sorted);
        return err_set(e, ERR_TOO_LARGE,
            "the tokens of the vocabulary have %llu prefixes, more "
            "than %d",
            (unsigned long long)n_nodes, TOKEN_TRIE_NODES_MAX);
    }
    t->nodes = try_malloc((n_nodes + 1) * sizeof(*t->nodes));
    t->ids = try_malloc(MAX(t->n_ids, 1u) * sizeof(*t->ids));
    if (!t->nodes || !t->ids)
        goto no_memory;
    fill_nodes(t, sorted);
    mem_free(sorted);
    return 0;
no_memory:
    mem_free(sorted);
    token_trie_clear(t);
    return err_set(e, ERR_MEMORY, "no memory for the tables of the vocabulary");
}

void token_trie_clear(struct token_trie *t)
{
    mem_free(t->nodes);
    mem_free(t->ids);
    *t = (struct token_trie){ 0 };
}

size_t token_trie_bytes(const struct token_trie *t)
{
    return (t->n_nodes + 1) * sizeof(*t->nodes) + t->n_ids * sizeof(*t->ids);
}

int token_trie_mark(struct token_trie *t, unsigned mark, const uint32_t *set)
{
    uint32_t *n_before = try_malloc(((size_t)t->n_ids + 1) * sizeof(*n_before));

    CHECK(mark < N_TRIE_MARKS);
    if (!n_before)
        return -1;
    n_before[0] = 0;
    for (uint32_t k = 0; k < t->n_ids; k++)
        n_before[k + 1] = n_before[k] + token_set_has(set, t->ids[k]);
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        struct trie_node *k = &t->nodes[i];
        uint32_t from = trie_first(k), to = trie_first(k + trie_size(k));
        if (n_before[to] - n_before[from] == to - from)
            k->first_depth_mark |= (uint32_t)1 << (30 + mark);
    }
    mem_free(n_before);
    return 0;
}

uint32_t token_trie_child(const struct token_trie *t, uint32_t node, uint8_t byte)
{
    if (node == TRIE_ROOT)
        return t->top[byte];
    uint32_t end = node + trie_size(&t->nodes[node]);
    for (uint32_t i = node + 1; i < end; i += trie_size(&t->nodes[i]))
        if (trie_byte(&t->nodes[i]) == byte)
            return i;
    return TRIE_NONE;
}

uint32_t token_trie_find(const struct token_trie *t, struct str bytes)
{
    uint32_t node = TRIE_ROOT;

    for (size_t k = 0; k < bytes.n; k++) {
        node = token_trie_child(t, node, (uint8_t)bytes.p[k]);
        if (node == TRIE_NONE)
            return node;
    }
    return node;
}

int32_t token_trie_longest(const struct token_trie *t, struct str text, size_t *n)
{
    uint32_t node = TRIE_ROOT;
    int32_t id = TOKEN_NONE;

    *n = 0;
    for (size_t k = 0; k < text.n; k++) {
        node = token_trie_child(t, node, (uint8_t)text.p[k]);
        if (node == TRIE_NONE)
            break;
        if (trie_first(&t->nodes[node]) < trie_first(&t->nodes[node + 1])) {
            id = t->ids[trie_first(&t->nodes[node])];
            *n = k + 1;
        }
    }
    return id;
}
