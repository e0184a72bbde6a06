#include "constrain/mask.h"

#include "base/mem.h"
#include "constrain/class_reach.h"
#include "constrain/mask_cache.h"

/* A mask that takes fewer steps is computed again: 1,000 steps take about as long as a copy of the
 * mask of a vocabulary of 128,000 tokens. */
enum { CACHED_STEPS_MIN = 1000 };

/* The parts of a mask, in this order. Each class is one part. */
enum part { PART_CLASSES, PART_WALK, PART_DONE };

struct mask {
    const struct vocab_tables *tables;
    struct automaton *a;
    struct class_reach *reach;
    struct mask_cache *cache;
    uint32_t *tokens; /* [n_words] */
    size_t n_words;

    struct automaton_roots roots;
    state_id *path; /* [depth_max + 1] states after the bytes of the path; [0]: the state */

    enum part part;
    enum token_class class; /* the next one to be examined */
    const struct token_trie *trie;
    uint32_t skipped; /* marks of subtrees that were added by class */
    uint32_t at;      /* node */
    uint64_t steps;
    state_id not_all; /* a state that is known not to permit all texts */
};

/* ---- creation */

int mask_new(struct mask **out, const struct vocab_tables *t, struct automaton *a,
    size_t cache_bytes, struct err *e)
{
    struct mask *m = try_calloc(1, sizeof(*m));

    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for the masks of a constraint");
    m->tables = t;
    m->a = a;
    m->n_words = token_set_words(t->n_tokens);
    m->reach = class_reach_new(a);
    m->cache = mask_cache_new(m->n_words, cache_bytes);
    m->tokens = try_calloc(m->n_words, sizeof(*m->tokens));
    m->path = try_calloc((size_t)t->trie.depth_max + 1, sizeof(*m->path));
    m->roots.ids = m->path;
    m->part = PART_DONE;
    automaton_add_roots(a, &m->roots);
    if (!m->reach || !m->cache || !m->tokens || !m->path) {
        mask_free(m);
        return err_set(e, ERR_MEMORY, "no memory for the masks of a constraint");
    }
    *out = m;
    return 0;
}

void mask_free(struct mask *m)
{
    if (!m)
        return;
    automaton_remove_roots(m->a, &m->roots);
    class_reach_free(m->reach);
    mask_cache_free(m->cache);
    mem_free(m->tokens);
    mem_free(m->path);
    mem_free(m);
}

size_t mask_bytes(const struct mask *m)
{
    return sizeof(*m) + class_reach_bytes() + mask_cache_bytes(m->cache) +
           m->n_words * sizeof(*m->tokens) +
           ((size_t)m->tables->trie.depth_max + 1) * sizeof(*m->path);
}

/* ---- parts */

/* Adds the tokens ids[from..to) of the trie. */
static void add_range(struct mask *m, uint32_t from, uint32_t to)
{
    for (uint32_t k = from; k < to; k++)
        token_set_add(m->tokens, m->trie->ids[k]);
}

/* Adds the tokens of a class if the state permits them by their number of characters. */
static void add_class(struct mask *m, enum token_class class)
{
    const struct token_classes *c = &m->tables->classes;
    uint32_t n = class_reach_get(m->reach, m->path[0], class, c->n_chars_max[class], &m->steps);

    if (!n)
        return;
    token_classes_add(c, class, n, m->tokens);
    if (class == CLASS_STRING)
        m->trie = &m->tables->irregular;
    else
        m->skipped |= 1u << (class == CLASS_DIGITS ? MARK_DIGITS : MARK_BLANKS);
}

/* A state whose language contains all texts. */
static bool permits_all(struct mask *m, state_id s)
{
    if (s.i == m->not_all.i)
        return false;
    if (automaton_permits_all(m->a, s))
        return true;
    m->not_all = s;
    return false;
}

/* Steps the automaton along the trie until `limit` steps are done. */
static void walk(struct mask *m, uint64_t limit)
{
    const struct trie_node *nodes = m->trie->nodes;
    uint32_t at = m->at, n_nodes = m->trie->n_nodes;

    for (; at < n_nodes && m->steps < limit; m->steps++) {
        const struct trie_node *k = &nodes[at];
        uint32_t depth = trie_depth(k), skip_to = at + trie_size(k);
        if (trie_marks(k) & m->skipped) {
            at = skip_to;
            continue;
        }
        m->roots.n = depth; /* the states before this byte */
        state_id before = m->path[depth - 1], s = automaton_step(m->a, before, trie_byte(k));
        if (!s.i) {
            at = skip_to;
        } else if (s.i == before.i && permits_all(m, s)) {
            add_range(m, trie_first(k), trie_first(&nodes[skip_to]));
            at = skip_to;
        } else {
            m->path[depth] = s;
            add_range(m, trie_first(k), trie_first(k + 1));
            at++;
        }
    }
    m->at = at;
    m->roots.n = 1;
    if (at < n_nodes)
        m->roots.n = trie_depth(&nodes[at]);
}

static void finish(struct mask *m)
{
    if (automaton_accepts(m->a, m->path[0]))
        for (uint32_t k = 0; k < m->tables->n_ends; k++)
            token_set_add(m->tokens, m->tables->ends[k]);
    if (m->steps >= CACHED_STEPS_MIN && !automaton_check(m->a, &(struct err){ 0 }))
        mask_cache_put(m->cache, automaton_generation(m->a), m->path[0], m->tokens);
    m->part = PART_DONE;
}

/* ---- calls */

void mask_begin(struct mask *m, state_id s)
{
    const uint32_t *found = mask_cache_find(m->cache, automaton_generation(m->a), s);

    m->path[0] = s;
    m->roots.n = 1;
    m->steps = 0;
    m->part = found || !s.i ? PART_DONE : PART_CLASSES;
    m->class = 0;
    m->trie = &m->tables->trie;
    m->skipped = 0;
    m->at = 0;
    m->not_all = STATE_DEAD;
    if (found)
        memcpy(m->tokens, found, m->n_words * sizeof(*found));
    else
        memset(m->tokens, 0, m->n_words * sizeof(*m->tokens));
}

enum mask_status mask_run(struct mask *m, uint64_t steps, struct err *e)
{
    uint64_t limit = steps > UINT64_MAX - m->steps ? UINT64_MAX : m->steps + MAX(steps, 1u);

    while (m->part != PART_DONE && m->steps < limit) {
        if (m->part == PART_CLASSES) {
            /* A state inside a string is not examined for digits or blanks: `irregular` contains
             * neither. */
            if (m->class < N_TOKEN_CLASSES && m->trie == &m->tables->trie)
                add_class(m, m->class ++);
            else
                m->part = PART_WALK;
        } else {
            walk(m, limit);
            if (m->at == m->trie->n_nodes)
                finish(m);
        }
    }
    if (automaton_check(m->a, e))
        return MASK_FAILED;
    return m->part == PART_DONE ? MASK_READY : MASK_PAUSED;
}

const uint32_t *mask_tokens(const struct mask *m)
{
    return m->tokens;
}

uint64_t mask_steps(const struct mask *m)
{
    return m->steps;
}
