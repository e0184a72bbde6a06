#include "text/merge.h"
#include "base/mem.h"
#include "base/utf8.h"

void merge_clear(struct merge *m)
{
    mem_free(m->symbols);
    mem_free(m->heap);
    *m = (struct merge){ 0 };
}

/* ---- the heap: a plain binary one over (rank, place) */

static void sift_down(struct merge_pair *heap, size_t n, size_t i)
{
    struct merge_pair moving = heap[i];

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        child += child + 1 < n && heap[child + 1].key < heap[child].key;
        if (moving.key <= heap[child].key)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static int reserve(struct merge *m, size_t n)
{
    if (n <= m->cap_heap)
        return 0;
    size_t cap = MAX(n, m->cap_heap * 2);
    struct merge_pair *p = try_realloc(m->heap, cap * sizeof(*p));
    if (!p)
        return -1;
    m->heap = p;
    m->cap_heap = cap;
    return 0;
}

static int push(struct merge *m, struct merge_pair p)
{
    if (reserve(m, m->n_heap + 1))
        return -1;
    size_t i = m->n_heap++;
    while (i && p.key < m->heap[(i - 1) / 2].key) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = p;
    return 0;
}

static struct merge_pair pop(struct merge *m)
{
    struct merge_pair least = m->heap[0];

    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap)
        sift_down(m->heap, m->n_heap, 0);
    return least;
}

/* ---- what a pair is worth */

/* Scores, best first, as numbers that grow: the bits of a float sort like integers once the
 * negative ones are turned round. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;

    score = score == 0 ? 0 : score; /* -0 is not less than 0 */
    memcpy(&bits, &score, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~bits;
}

bool merge_ranks_pair(const struct vocab *v, uint32_t left, uint32_t right, uint32_t *rank)
{
    return u64_map_get(v->merges, (uint64_t)left << 32 | right, rank);
}

/* The pair that begins at symbol `left`, if the vocabulary merges it. */
static bool pair_at(const struct merge *m, const struct vocab *v, const char *at, int32_t left,
    struct merge_pair *out)
{
    const struct merge_symbol *a = &m->symbols[left], *b = &m->symbols[a->next];
    uint32_t n = a->n + b->n, rank;

    if (v->type == VOCAB_BPE) {
        if (a->id < 0 || b->id < 0 ||
            !merge_ranks_pair(v, (uint32_t)a->id, (uint32_t)b->id, &rank))
            return false;
        *out = (struct merge_pair){ (uint64_t)rank << 32 | (uint32_t)left, v->merged[rank], n };
        return true;
    }
    uint32_t id;
    if (n > v->longest || !str_map_get(v->by_bytes, (struct str){ at, n }, &id))
        return false;
    *out = (struct merge_pair){ (uint64_t)rank_of_score(v->scores[id]) << 32 | (uint32_t)left, id,
        n };
    return true;
}

/* ---- a word */

/* Bytes for BPE, characters for SPM. Symbol i of BPE begins at byte i; SPM's at the byte of the
 * same number too, the numbers in between stay unused. So a symbol's number is its place. */
static void first_symbols(struct merge *m, const struct vocab *v, struct str word)
{
    int32_t prev = -1;

    for (size_t i = 0; i < word.n;) {
        uint32_t cp, id, n = 1;
        int32_t found = v->byte_symbol[(unsigned char)word.p[i]];
        if (v->type == VOCAB_SPM) {
            int len = utf8_decode(str_skip(word, i), &cp);
            n = len > 0 ? (uint32_t)len : 1;
            found = str_map_get(v->by_bytes, (struct str){ word.p + i, n }, &id) ? (int32_t)id
                                                                                 : TOKEN_NONE;
        }
        size_t next = i + n;
        m->symbols[i] = (struct merge_symbol){ prev, next < word.n ? (int32_t)next : -1, found,
            n };
        prev = (int32_t)i;
        i = next;
    }
}

static int first_pairs(struct merge *m, const struct vocab *v, struct str word)
{
    struct merge_pair p;

    m->n_heap = 0;
    if (reserve(m, word.n))
        return -1;
    for (int32_t i = 0; m->symbols[i].next >= 0; i = m->symbols[i].next)
        if (pair_at(m, v, word.p + i, i, &p))
            m->heap[m->n_heap++] = p;
    for (size_t i = m->n_heap / 2; i-- > 0;)
        sift_down(m->heap, m->n_heap, i);
    return 0;
}

int merge_word(struct merge *m, const struct vocab *v, struct str word)
{
    struct merge_symbol *s;

    CHECK(word.n && word.n <= MERGE_MAX_WORD);
    if (word.n > m->cap_symbols) {
        size_t cap = MAX(word.n, m->cap_symbols * 2);
        s = try_realloc(m->symbols, cap * sizeof(*s));
        if (!s)
            return -1;
        m->symbols = s;
        m->cap_symbols = cap;
    }
    first_symbols(m, v, word);
    if (first_pairs(m, v, word))
        return -1;
    s = m->symbols;
    while (m->n_heap) {
        struct merge_pair p = pop(m);
        int32_t i = (int32_t)(uint32_t)p.key, j = s[i].next;
        m->n_steps++;
        if (!s[i].n || j < 0 || s[i].n + s[j].n != p.n)
            continue; /* one of the halves is not what it was */
        s[i].id = (int32_t)p.id;
        s[i].n = p.n;
        s[i].next = s[j].next;
        s[j].n = 0;
        if (s[i].next >= 0)
            s[s[i].next].prev = i;
        struct merge_pair more;
        if (s[i].next >= 0 && pair_at(m, v, word.p + i, i, &more) && push(m, more))
            return -1;
        if (s[i].prev >= 0 && pair_at(m, v, word.p + s[i].prev, s[i].prev, &more) &&
            push(m, more))
            return -1;
    }
    return 0;
}
