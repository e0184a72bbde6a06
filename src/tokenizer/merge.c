#include "tokenizer/merge.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"

enum {
    MERGE_NEVER = UINT32_MAX,
    FEW = 64,    /* at most this many pairs are sorted by insertion */
    MANY = 1024, /* from this many pairs on, sorting is faster than popping one by one */
    DIGIT_BITS = 11,
};

void merge_clear(struct merge *m)
{
    mem_free(m->symbols);
    mem_free(m->queue);
    mem_free(m->heap);
    mem_free(m->memo);
    *m = (struct merge){ 0 };
}

void merge_enable_memo(struct merge *m, size_t n_bytes)
{
    if (n_bytes >= MERGE_MEMO_FROM && !m->memo)
        m->memo = try_calloc(MERGE_MEMO, sizeof(*m->memo));
}

static int reserve_pairs(struct merge_pair **p, size_t *cap, size_t n)
{
    if (n <= *cap)
        return 0;
    size_t more = MAX(n, *cap * 2);
    struct merge_pair *q = try_realloc(*p, more * sizeof(**p));
    if (!q)
        return -1;
    *p = q;
    *cap = more;
    return 0;
}

/* ---- new pairs: a heap, followed by fresh pairs that are not yet ordered */

static int push_pair(struct merge *m, struct merge_pair p)
{
    size_t n = m->n_heap + m->n_fresh;

    if (reserve_pairs(&m->heap, &m->cap_heap, n + 1))
        return -1;
    m->heap[n] = p;
    m->least_fresh = m->n_fresh ? MIN(m->least_fresh, p.key) : p.key;
    m->n_fresh++;
    return 0;
}

static void heapify_fresh(struct merge *m)
{
    for (; m->n_fresh; m->n_fresh--, m->n_heap++) {
        size_t i = m->n_heap;
        struct merge_pair p = m->heap[i];
        for (; i && p.key < m->heap[(i - 1) / 2].key; i = (i - 1) / 2, m->n_steps++)
            m->heap[i] = m->heap[(i - 1) / 2];
        m->heap[i] = p;
    }
}

static struct merge_pair pop_pair(struct merge *m)
{
    struct merge_pair least = m->heap[0], moving = m->heap[--m->n_heap];
    size_t i = 0;

    for (size_t child = 1; child < m->n_heap; child = 2 * i + 1, m->n_steps++) {
        child += child + 1 < m->n_heap && m->heap[child + 1].key < m->heap[child].key;
        if (moving.key <= m->heap[child].key)
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = moving;
    return least;
}

/* ---- queue of sorted pairs */

static void sort_few(struct merge_pair *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct merge_pair moving = p[i];
        size_t k = i;
        for (; k && moving.key < p[k - 1].key; k--)
            p[k] = p[k - 1];
        p[k] = moving;
    }
}

/* Radix sort by the key bits from `shift` on, lowest digit first; a digit that is equal in all keys
 * costs one pass. `spare` has room for n pairs; the result is in p. */
static void sort_many(struct merge_pair *p, size_t n, unsigned shift, struct merge_pair *spare)
{
    struct merge_pair *from = p, *to = spare;

    for (; shift < 64; shift += DIGIT_BITS) {
        uint32_t starts[1 << DIGIT_BITS] = { 0 }, mask = (1 << DIGIT_BITS) - 1, sum = 0;
        for (size_t i = 0; i < n; i++)
            starts[from[i].key >> shift & mask]++;
        if (starts[from[0].key >> shift & mask] == n)
            continue;
        for (uint32_t d = 0; d <= mask; d++) {
            uint32_t count = starts[d];
            starts[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            to[starts[from[i].key >> shift & mask]++] = from[i];
        struct merge_pair *swap = from;
        from = to;
        to = swap;
    }
    if (from != p)
        memcpy(p, from, n * sizeof(*p));
}

/* The queue is empty: all waiting pairs become the next queue, sorted at once. A pair passes here
 * at most once, so the time stays linear; popping from a large heap costs a cache miss per
 * level. */
static int refill(struct merge *m)
{
    struct merge_pair *swap = m->queue;
    size_t cap = m->cap_queue, n = m->n_heap + m->n_fresh;

    if (reserve_pairs(&swap, &cap, n)) {
        m->queue = swap;
        m->cap_queue = cap;
        return -1;
    }
    sort_many(m->heap, n, 0, swap);
    m->n_steps += n;
    m->queue = m->heap;
    m->cap_queue = m->cap_heap;
    m->n_queue = n;
    m->at_queue = 0;
    m->heap = swap;
    m->cap_heap = cap;
    m->n_heap = m->n_fresh = 0;
    return 0;
}

/* 1 and *out; 0: no pair is left; -1: no memory. */
static int next_pair(struct merge *m, struct merge_pair *out)
{
    if (m->at_queue == m->n_queue && m->n_heap + m->n_fresh >= MANY && refill(m))
        return -1;
    m->n_steps++;
    uint64_t known = m->at_queue < m->n_queue ? m->queue[m->at_queue].key : UINT64_MAX;
    bool needs_fresh = m->n_fresh && m->least_fresh < known;
    bool needs_heap = m->n_heap && m->heap[0].key < known;
    if (needs_fresh || needs_heap)
        heapify_fresh(m); /* popping moves the border between heap and fresh pairs */
    if (needs_fresh || needs_heap)
        *out = pop_pair(m);
    else if (m->at_queue < m->n_queue)
        *out = m->queue[m->at_queue++];
    else
        return 0;
    return 1;
}

/* ---- rank of a pair */

/* Converts a score to a rank, best score first: float bits sort like integers once those of
 * negative values are inverted. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;

    score = score == 0 ? 0 : score; /* -0 equals 0 */
    memcpy(&bits, &score, 4);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return ~bits;
}

static struct merge_memo_entry look_up(const struct vocab *v, uint64_t pair, struct str both)
{
    struct merge_memo_entry k = { ~pair, 0, MERGE_NEVER };

    if (vocab_has_merges(v)) {
        if (u64_map_get(v->merges, pair, &k.rank))
            k.id = v->merged[k.rank];
    } else if (both.n <= v->longest && str_map_get(v->by_bytes, both, &k.id)) {
        k.rank = rank_of_score(v->scores[k.id]);
    }
    return k;
}

static struct merge_memo_entry look_up_cached(
    struct merge *m, const struct vocab *v, uint64_t pair, struct str both)
{
    if (!m->memo)
        return look_up(v, pair, both);
    struct merge_memo_entry *k = &m->memo[(hash_step(0, pair) >> 32) % MERGE_MEMO];
    if (k->not_pair != ~pair)
        *k = look_up(v, pair, both);
    return *k;
}

/* The pair that begins at symbol `left`, if the vocabulary merges it. */
static bool pair_at(
    struct merge *m, const struct vocab *v, const char *word, int32_t left, struct merge_pair *out)
{
    const struct merge_symbol *a = &m->symbols[left], *b = &m->symbols[a->next];
    struct str both = { word + left, a->n + b->n };

    /* characters without a token: SPM may have a token for both together */
    if (a->id < 0 || b->id < 0) {
        struct merge_memo_entry k = look_up(v, UINT64_MAX, both);
        if (vocab_has_merges(v) || k.id == MERGE_NEVER)
            return false;
        *out =
            (struct merge_pair){ (uint64_t)k.rank << 32 | (uint32_t)left, k.id, (uint32_t)both.n };
        return true;
    }
    uint64_t pair = (uint64_t)a->id << 32 | (uint32_t)b->id;
    struct merge_memo_entry k = look_up_cached(m, v, pair, both);
    *out = (struct merge_pair){ (uint64_t)k.rank << 32 | (uint32_t)left, k.id, (uint32_t)both.n };
    return k.id != MERGE_NEVER;
}

/* ---- a word */

/* Initial symbols: bytes for byte-level BPE, else characters. A symbol's number is the offset of
 * its first byte in the word; the other numbers are unused. */
static void first_symbols(struct merge *m, const struct vocab *v, struct str word)
{
    int32_t prev = -1;

    for (size_t i = 0; i < word.n;) {
        uint32_t cp, id, n = 1;
        int32_t found = v->byte_symbol[(unsigned char)word.p[i]];
        if (vocab_has_plain_texts(v)) {
            int len = utf8_decode(str_skip(word, i), &cp);
            n = len > 0 ? (uint32_t)len : 1;
            found = str_map_get(v->by_bytes, (struct str){ word.p + i, n }, &id) ? (int32_t)id
                                                                                 : TOKEN_NONE;
        }
        size_t next = i + n;
        m->symbols[i] = (struct merge_symbol){ prev, next < word.n ? (int32_t)next : -1, found, n };
        prev = (int32_t)i;
        i = next;
    }
}

static int first_pairs(struct merge *m, const struct vocab *v, struct str word)
{
    struct merge_pair p;

    m->at_queue = m->n_queue = m->n_heap = m->n_fresh = 0;
    if (reserve_pairs(&m->queue, &m->cap_queue, word.n))
        return -1;
    for (int32_t i = 0; m->symbols[i].next >= 0; i = m->symbols[i].next)
        if (pair_at(m, v, word.p, i, &p))
            m->queue[m->n_queue++] = p;
    if (m->n_queue <= FEW) {
        sort_few(m->queue, m->n_queue);
        return 0;
    }
    if (reserve_pairs(&m->heap, &m->cap_heap, m->n_queue))
        return -1;
    sort_many(
        m->queue, m->n_queue, 32, m->heap); /* sorts by rank; the positions are already in order */
    return 0;
}

static int merge_pair_of(
    struct merge *m, const struct vocab *v, const char *word, struct merge_pair p)
{
    struct merge_symbol *s = m->symbols;
    int32_t i = (int32_t)(uint32_t)p.key, j = s[i].next;
    struct merge_pair more;

    if (!s[i].n || j < 0 || s[i].n + s[j].n != p.n)
        return 0; /* one of the halves has changed */
    s[i].id = (int32_t)p.id;
    s[i].n = p.n;
    s[i].next = s[j].next;
    s[j].n = 0;
    int32_t next = s[i].next, prev = s[i].prev;
    if (next >= 0)
        s[next].prev = i;
    if (prev >= 0 && pair_at(m, v, word, prev, &more) && push_pair(m, more))
        return -1;
    if (next >= 0 && pair_at(m, v, word, i, &more) && push_pair(m, more))
        return -1;
    return 0;
}

int merge_word(struct merge *m, const struct vocab *v, struct str word)
{
    struct merge_pair p;

    CHECK(word.n && word.n <= MERGE_MAX_WORD);
    if (word.n > m->cap_symbols) {
        size_t cap = MAX(word.n, m->cap_symbols * 2);
        struct merge_symbol *s = try_realloc(m->symbols, cap * sizeof(*s));
        if (!s)
            return -1;
        m->symbols = s;
        m->cap_symbols = cap;
    }
    first_symbols(m, v, word);
    if (first_pairs(m, v, word))
        return -1;
    int rc;
    while ((rc = next_pair(m, &p)) > 0)
        if (merge_pair_of(m, v, word.p, p))
            return -1;
    return rc;
}
