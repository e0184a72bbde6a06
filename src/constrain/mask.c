#include "constrain/mask.h"

#include "base/mem.h"
#include "constrain/mask_cache.h"

enum {
    /* A mask that takes fewer steps is computed again: 1,000 steps take about as long as a copy of
     * the mask of a vocabulary of 128,000 tokens. */
    CACHED_STEPS_MIN = 1000,
    IDS_SHARE = 50 /* a list has at most one in 50 tokens */
};

/* The parts of a mask, in this order. Each class is one part. */
enum part { PART_CLASSES, PART_WALK, PART_DONE };

/* A position on the path of the walk: after `depth` bytes. */
struct step {
    pos_id p;
    uint32_t mark;       /* newer positions are those of the bytes after it */
    struct byte_set may; /* bytes that may follow */
    struct acceptor_text text;
    bool is_text; /* inside of the text that the start is inside of */
};

struct mask {
    const struct vocab_tables *tables;
    struct acceptor *a;
    struct mask_cache *cache;
    uint32_t *tokens; /* [n_words] */
    size_t n_words;
    int32_t *ids;     /* [n_tokens / IDS_SHARE + 1] tokens in ascending order */
    int32_t *control; /* [n_tokens], or NULL: the acceptor has no control tokens */
    int n_ids;        /* above the size of the list: too many; -1: not listed yet */

    pos_id start;
    struct step *path; /* [depth_max + 1] after the bytes of the path; [0]: the start */
    /* The same inside of a text: states of an automaton, kept as its roots. */
    struct automaton *automaton; /* NULL: there are no texts */
    struct automaton_roots roots;
    state_id *states;    /* [depth_max + 1] */
    uint32_t text_depth; /* states[text_depth..] are in use */
    struct step after;   /* after the end of the text */
    uint32_t first_mark; /* before all positions of the mask */

    enum part part;
    enum token_class class; /* the next one to be examined */
    const struct token_trie *trie;
    uint32_t skipped;             /* marks of subtrees that were added by class */
    uint32_t at;                  /* node */
    uint32_t text_end, after_end; /* nodes up to these are inside of the text, or after its end */
    uint64_t steps;
    state_id not_all; /* a state that is known not to permit all texts */
};

/* ---- creation */

static int allocate(struct mask *m, size_t cache_bytes)
{
    size_t n_path = (size_t)m->tables->trie.depth_max + 1;
    size_t n_tokens = (size_t)m->tables->n_tokens;

    m->cache = mask_cache_new(m->n_words, cache_bytes);
    m->tokens = try_calloc(m->n_words, sizeof(*m->tokens));
    m->ids = try_malloc((n_tokens / IDS_SHARE + 1) * sizeof(*m->ids));
    m->path = try_calloc(n_path, sizeof(*m->path));
    if (m->automaton)
        m->states = try_calloc(n_path, sizeof(*m->states));
    if (m->a->ops->tokens)
        m->control = try_malloc(n_tokens * sizeof(*m->control));
    return m->cache && m->tokens && m->ids && m->path && (m->states || !m->automaton) &&
                   (m->control || !m->a->ops->tokens)
               ? 0
               : -1;
}

int mask_new(struct mask **out, const struct vocab_tables *t, struct acceptor *a,
    size_t cache_bytes, struct err *e)
{
    struct mask *m = try_calloc(1, sizeof(*m));

    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for the masks of a constraint");
    m->tables = t;
    m->a = a;
    m->automaton = a->ops->texts ? a->ops->texts(a) : NULL;
    m->n_words = token_set_words(t->n_tokens);
    m->part = PART_DONE;
    int rc = allocate(m, cache_bytes);
    m->roots.ids = m->states;
    if (m->automaton)
        automaton_add_roots(m->automaton, &m->roots);
    if (rc) {
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
    mask_drop(m);
    if (m->automaton)
        automaton_remove_roots(m->automaton, &m->roots);
    mask_cache_free(m->cache);
    mem_free(m->tokens);
    mem_free(m->ids);
    mem_free(m->control);
    mem_free(m->states);
    mem_free(m->path);
    mem_free(m);
}

size_t mask_bytes(const struct mask *m)
{
    size_t n_tokens = (size_t)m->tables->n_tokens;

    return sizeof(*m) + mask_cache_bytes(m->cache) + m->n_words * sizeof(*m->tokens) +
           (n_tokens / IDS_SHARE + 1) * sizeof(*m->ids) +
           (m->control ? n_tokens * sizeof(*m->control) : 0) +
           ((size_t)m->tables->trie.depth_max + 1) *
               (sizeof(*m->path) + (m->states ? sizeof(*m->states) : 0));
}

/* ---- parts */

/* Adds the tokens ids[from..to) of the trie. */
static void add_range(struct mask *m, uint32_t from, uint32_t to)
{
    for (uint32_t k = from; k < to; k++)
        token_set_add(m->tokens, m->trie->ids[k]);
}

static void add_ids(struct mask *m, const int32_t *ids, size_t n)
{
    for (size_t k = 0; k < n; k++)
        token_set_add(m->tokens, ids[k]);
}

/* Adds the tokens of a class if the position permits them by their number of characters. */
static void add_class(struct mask *m, enum token_class class)
{
    const struct token_classes *c = &m->tables->classes;
    uint32_t n = m->a->ops->reach(m->a, m->start, class, c->n_chars_max[class]);

    m->steps = MIN(m->steps + n, (uint64_t)MASK_STEPS_MAX);
    if (!n)
        return;
    token_classes_add(c, class, n, m->tokens);
    if (class == CLASS_STRING)
        m->trie = &m->tables->irregular;
    else
        m->skipped |= 1u << (class == CLASS_DIGITS ? MARK_DIGITS : MARK_BLANKS);
}

/* A state whose language contains all texts. */
static bool state_permits_all(struct mask *m, state_id s)
{
    if (s.i == m->not_all.i)
        return false;
    if (automaton_permits_all(m->automaton, s))
        return true;
    m->not_all = s;
    return false;
}

static void set_step(struct mask *m, struct step *k, pos_id p, bool is_text)
{
    const struct acceptor_ops *ops = m->a->ops;

    k->p = p;
    k->mark = ops->mark(m->a);
    if (!p.i)
        k->may = (struct byte_set){ 0 };
    else if (ops->may_follow)
        k->may = ops->may_follow(m->a, p);
    else
        memset(&k->may, 0xff, sizeof(k->may));
    k->is_text = is_text && ops->text(m->a, p, &k->text);
}

/* Reads the tokens from..to of the trie one by one. */
static void read_tokens(struct mask *m, uint32_t from, uint32_t to)
{
    const struct acceptor_ops *ops = m->a->ops;
    const struct token_source *src = &m->tables->source;
    uint32_t mark = ops->mark(m->a);

    for (; from < to; from++) {
        int32_t id = m->trie->ids[from];
        struct str bytes = src->bytes(src->ctx, id);
        pos_id p = m->start;
        for (size_t k = 0; k < bytes.n && p.i; k++)
            p = ops->step(m->a, p, (uint8_t)bytes.p[k]);
        if (p.i)
            token_set_add(m->tokens, id);
        ops->release(m->a, mark);
        m->steps = MIN(m->steps + bytes.n, (uint64_t)MASK_STEPS_MAX);
    }
}

/* The nodes of the subtree are inside of the text, from the position before them. */
static void enter_text(struct mask *m, uint32_t depth, uint32_t skip_to)
{
    m->text_depth = depth;
    m->states[depth] = m->path[depth].text.state;
    m->roots.ids = m->states + depth;
    m->roots.n = 1;
    m->text_end = skip_to;
}

/* Steps the acceptor along the nodes up to `end`, until `limit` steps are done or a text begins. */
static void walk_positions(struct mask *m, uint32_t end, uint64_t limit)
{
    const struct acceptor_ops *ops = m->a->ops;
    const struct trie_node *nodes = m->trie->nodes;
    uint32_t at = m->at, top = UINT32_MAX;
    bool is_after = at < m->after_end;

    while (at < end && m->steps < limit) {
        const struct trie_node *k = &nodes[at];
        uint32_t depth = trie_depth(k), skip_to = at + trie_size(k);
        const struct step *before = &m->path[depth - 1];
        if (!byte_set_has(&before->may, trie_byte(k)) || trie_marks(k) & m->skipped) {
            at = skip_to;
            continue;
        }
        if (before->is_text && !byte_set_has(&before->text.except, trie_byte(k))) {
            enter_text(m, depth - 1, skip_to);
            break;
        }
        m->steps++;
        if (top >= depth) /* positions of bytes that are not on the path */
            ops->release(m->a, before->mark);
        pos_id p = ops->step(m->a, before->p, trie_byte(k));
        top = depth;
        if (!p.i) {
            at = skip_to;
        } else if (is_after && ops->is_unsure && ops->is_unsure(m->a, p)) {
            read_tokens(m, trie_first(k), trie_first(&nodes[skip_to]));
            at = skip_to;
        } else if (ops->permits_all(m->a, p)) {
            add_range(m, trie_first(k), trie_first(&nodes[skip_to]));
            at = skip_to;
        } else {
            add_range(m, trie_first(k), trie_first(k + 1));
            at++;
            if (at < skip_to)
                set_step(m, &m->path[depth], p, before->is_text);
        }
    }
    m->at = at;
}

/* The text ends before or at this node: the rest of its subtree is walked from the position after
 * the text. */
static void leave_text(struct mask *m, uint32_t depth, uint32_t skip_to)
{
    m->path[depth] = m->after;
    m->path[depth].mark = m->a->ops->mark(m->a); /* positions before the text stay */
    m->after_end = skip_to;
}

/* Steps the automaton of the text along the trie until `limit` steps are done or the text ends. */
static void walk_text(struct mask *m, uint64_t limit)
{
    const struct trie_node *nodes = m->trie->nodes;
    uint32_t at = m->at, first = m->text_depth;

    while (at < m->text_end && m->steps < limit && at >= m->after_end) {
        const struct trie_node *k = &nodes[at];
        uint32_t depth = trie_depth(k), skip_to = at + trie_size(k);
        if (trie_marks(k) & m->skipped) {
            at = skip_to;
            continue;
        }
        m->steps++;
        m->roots.n = depth - first; /* the states before this byte */
        state_id before = m->states[depth - 1];
        state_id s = automaton_step(m->automaton, before, trie_byte(k));
        if (!s.i && byte_set_has(&m->after.may, trie_byte(k)) &&
            automaton_accepts(m->automaton, before)) {
            leave_text(m, depth - 1, skip_to);
        } else if (!s.i) {
            at = skip_to;
        } else if (s.i != before.i && automaton_is_final(m->automaton, s)) {
            add_range(m, trie_first(k), trie_first(k + 1));
            leave_text(m, depth, skip_to);
            at = m->after.p.i ? at + 1 : skip_to;
        } else if (s.i == before.i && state_permits_all(m, s)) {
            add_range(m, trie_first(k), trie_first(&nodes[skip_to]));
            at = skip_to;
        } else {
            m->states[depth] = s;
            add_range(m, trie_first(k), trie_first(k + 1));
            at++;
        }
    }
    m->at = at;
    if (at >= m->text_end)
        m->roots.n = 0;
    else if (at >= m->after_end)
        m->roots.n = trie_depth(&nodes[at]) - first;
}

static bool has_failed(const struct mask *m)
{
    return m->a->ops->check(m->a, &(struct err){ 0 }) != 0;
}

static void finish(struct mask *m)
{
    uint64_t key = m->a->ops->key(m->a, m->start);

    if (m->control) {
        size_t cap = (size_t)m->tables->n_tokens;
        size_t n = m->a->ops->tokens(m->a, m->start, m->control, cap);
        add_ids(m, m->control, MIN(n, cap));
    }
    if (m->a->ops->accepts(m->a, m->start))
        add_ids(m, m->tables->ends, m->tables->n_ends);
    if (m->steps >= CACHED_STEPS_MIN && key && !has_failed(m))
        mask_cache_put(m->cache, m->a->ops->generation(m->a), key, m->tokens);
    mask_drop(m);
}

/* Lists the permitted tokens if they are few. */
static void list_tokens(struct mask *m)
{
    int n = 0, n_max = m->tables->n_tokens / IDS_SHARE;

    for (size_t w = 0; w < m->n_words && n <= n_max; w++)
        for (uint32_t word = m->tokens[w]; word && n <= n_max; word &= word - 1)
            m->ids[n++] = (int32_t)(w * 32) + __builtin_ctz(word);
    m->n_ids = n;
}

static bool has_all_tokens(const struct mask *m)
{
    uint32_t n_last = (uint32_t)m->tables->n_tokens % 32;
    size_t n_full = m->n_words - (n_last > 0);

    for (size_t w = 0; w < n_full; w++)
        if (m->tokens[w] != UINT32_MAX)
            return false;
    return !n_last || m->tokens[n_full] == ((uint32_t)1 << n_last) - 1;
}

/* ---- calls */

void mask_drop(struct mask *m)
{
    if (m->part != PART_DONE)
        m->a->ops->release(m->a, m->first_mark);
    m->roots.n = 0;
    m->part = PART_DONE;
}

void mask_begin(struct mask *m, pos_id p)
{
    mask_drop(m);
    uint64_t key = p.i ? m->a->ops->key(m->a, p) : 0;
    const uint32_t *found =
        key ? mask_cache_find(m->cache, m->a->ops->generation(m->a), key) : NULL;

    m->start = p;
    m->n_ids = -1;
    m->steps = 0;
    m->part = found || !p.i ? PART_DONE : PART_CLASSES;
    m->class = 0;
    m->trie = &m->tables->trie;
    m->skipped = 0;
    m->at = m->text_end = m->after_end = 0;
    m->not_all = STATE_DEAD;
    if (found)
        memcpy(m->tokens, found, m->n_words * sizeof(*found));
    else
        memset(m->tokens, 0, m->n_words * sizeof(*m->tokens));
    if (m->part == PART_DONE)
        return;
    m->first_mark = m->a->ops->mark(m->a);
    set_step(m, &m->path[0], p, m->automaton != NULL);
    if (m->path[0].is_text) {
        set_step(m, &m->after, m->a->ops->text_end(m->a, p), false);
        m->path[0].mark = m->after.mark; /* `after` is used to the end */
    }
}

/* Takes the tokens of all texts, or examines the next class. */
static void run_classes(struct mask *m)
{
    if (!m->class && m->a->ops->permits_all(m->a, m->start)) {
        add_ids(m, m->trie->ids, m->trie->n_ids);
        m->at = m->trie->n_nodes;
        m->part = PART_WALK;
    } else if (m->class < N_TOKEN_CLASSES && m->trie == &m->tables->trie) {
        /* A position inside a string is not examined for digits or blanks: `irregular` contains
         * neither. */
        add_class(m, m->class ++);
    } else {
        m->part = PART_WALK;
        if (m->path[0].is_text && byte_set_is_empty(&m->path[0].text.except))
            enter_text(m, 0, m->trie->n_nodes);
    }
}

enum mask_progress mask_run(struct mask *m, uint64_t steps, struct err *e)
{
    uint64_t limit = m->steps + MIN(MAX(steps, 1u), MASK_STEPS_MAX - m->steps);

    while (m->part != PART_DONE && m->steps < limit) {
        if (m->part == PART_CLASSES)
            run_classes(m);
        else if (m->at < m->after_end)
            walk_positions(m, m->after_end, limit);
        else if (m->at < m->text_end)
            walk_text(m, limit);
        else
            walk_positions(m, m->trie->n_nodes, limit);
        if (m->part == PART_WALK && m->at == m->trie->n_nodes)
            finish(m);
    }
    if (m->a->ops->check(m->a, e)) {
        mask_drop(m);
        return MASK_ERROR;
    }
    if (m->part != PART_DONE && m->steps == MASK_STEPS_MAX) {
        mask_drop(m);
        err_set(
            e, ERR_TOO_LARGE, "a mask of the constraint needs more than %d steps", MASK_STEPS_MAX);
        return MASK_ERROR;
    }
    if (m->part == PART_DONE && m->n_ids < 0)
        list_tokens(m);
    return m->part == PART_DONE ? MASK_DONE : MASK_MORE;
}

const uint32_t *mask_tokens(const struct mask *m)
{
    return m->tokens;
}

struct token_mask mask_form(const struct mask *m)
{
    if (m->n_ids <= m->tables->n_tokens / IDS_SHARE)
        return (struct token_mask){ .form = MASK_FORM_IDS, .ids = m->ids, .n_ids = m->n_ids };
    if (has_all_tokens(m))
        return (struct token_mask){ .form = MASK_FORM_ALL };
    return (struct token_mask){ .form = MASK_FORM_BITS, .bits = m->tokens };
}

uint64_t mask_steps(const struct mask *m)
{
    return m->steps;
}
