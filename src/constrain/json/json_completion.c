/* Completions of JSON values (acceptor_ops.completion).
 *
 * The next byte is chosen by an estimate of the bytes that remain, and steps of the acceptor decide
 * whether the byte is permitted:
 *
 *     size(c)   bytes of a short value of a conjunction: a least fixpoint over the required members
 *     rest(b)   bytes that a branch of an open array or object still needs
 *
 * An array or object is closed as soon as it may be. Of the members that may follow, the first
 * required one of the branch with the least rest is chosen. Where the chosen byte is not permitted,
 * which happens for keys and items that must differ from earlier ones, it is the first permitted
 * one in the order of byte_rank. */
#include "base/mem.h"
#include "constrain/json/json_acceptor_in.h"

enum {
    SIZE_NONE = 1 << 28, /* no value, or it is too long */
    UNMET = 1 << 16,     /* estimate for a negated node or `contains` that is not satisfied */
    ITEMS_MAX = 1 << 16,
    ROUNDS_MAX = 2 * JSON_DEPTH_MAX
};

struct json_sizes {
    struct shortest *shortest;
    uint32_t *conjs, *shapes; /* sizes; of a shape: from its initial state, with brackets */
};

static uint32_t add(uint32_t a, uint32_t b)
{
    return MIN(a + b, (uint32_t)SIZE_NONE);
}

/* ---- sizes */

static uint32_t size_of(const struct json_acceptor *a, conj_id c)
{
    return a->sizes->conjs[c];
}

static uint32_t entry_size(const struct json_acceptor *a, const struct shape_entry *e)
{
    /* with colon and comma */
    return add((uint32_t)a->p->keys[e->key].spelled.n + 2, size_of(a, e->child));
}

/* The smallest member that is not required. */
static uint32_t least_member(const struct json_acceptor *a, const struct shape *s)
{
    uint32_t least = SIZE_NONE;

    for (uint32_t k = 0; k < s->n_entries; k++)
        if (!s->entries[k].is_required)
            least = MIN(least, entry_size(a, &s->entries[k]));
    for (uint32_t k = 0; k < s->n_classes; k++) {
        state_id keys = a->starts[s->classes[k].root];
        uint32_t key = automaton_min_length(a->a, keys);
        least = MIN(least, add(MIN(key, (uint32_t)SIZE_NONE) + 2, size_of(a, s->classes[k].child)));
    }
    return least;
}

static uint32_t times(uint32_t size, uint64_t n)
{
    return (uint32_t)MIN(size * MIN(n, (uint64_t)ITEMS_MAX), (uint64_t)SIZE_NONE);
}

static uint32_t object_size(const struct json_acceptor *a, const struct shape *s)
{
    uint32_t sum = 2;

    for (uint32_t k = 0; k < s->n_required; k++)
        sum = add(sum, entry_size(a, &s->entries[s->required[k]]));
    if (s->n_min > s->n_required)
        sum = add(sum, times(least_member(a, s), s->n_min - s->n_required));
    return sum;
}

/* Items from number n on. */
static uint32_t items_size(const struct json_acceptor *a, const struct shape *s, uint64_t n)
{
    uint32_t sum = 0;

    for (; n < s->n_min && n < s->n_prefix; n++)
        sum = add(sum, add(1, size_of(a, s->items[n])));
    if (n < s->n_min)
        sum = add(sum, times(add(1, size_of(a, s->items[s->n_prefix])), s->n_min - n));
    return sum;
}

static uint32_t shape_size(const struct json_acceptor *a, const struct shape *s)
{
    return s->kind == KIND_OBJECT ? object_size(a, s) : add(2, items_size(a, s, 0));
}

static uint32_t scalar_size(const struct json_acceptor *a, const struct conj *c)
{
    return c->root == NO_ITEM
               ? (uint32_t)SIZE_NONE
               : MIN(automaton_min_length(a->a, a->starts[c->root]), (uint32_t)SIZE_NONE);
}

static uint32_t least_shape(
    const struct json_acceptor *a, struct shape *const *shapes, uint32_t n, uint32_t depth)
{
    uint32_t least = SIZE_NONE;

    for (uint32_t k = 0; k < n; k++)
        if (fits_depth(shapes[k]->cost, depth))
            least = MIN(least, a->sizes->shapes[shapes[k]->number]);
    return least;
}

static uint32_t conj_size(const struct json_acceptor *a, const struct conj *c)
{
    uint32_t least = scalar_size(a, c);

    least = MIN(least, least_shape(a, c->arrays, c->n_arrays, 0));
    return MIN(least, least_shape(a, c->objects, c->n_objects, 0));
}

static void compute_sizes(struct json_acceptor *a)
{
    struct json_sizes *z = a->sizes;
    bool has_changed = true;

    for (uint32_t k = 0; k < a->p->n_conjs; k++)
        z->conjs[k] = SIZE_NONE;
    for (int round = 0; round < ROUNDS_MAX && has_changed; round++) {
        has_changed = false;
        for (uint32_t k = 0; k < a->p->n_shapes; k++)
            z->shapes[k] = shape_size(a, a->p->shapes[k]);
        for (uint32_t k = 0; k < a->p->n_conjs; k++) {
            uint32_t size = conj_size(a, a->p->conjs[k]);
            has_changed = has_changed || size != z->conjs[k];
            z->conjs[k] = size;
        }
    }
}

int json_completion_new(struct acceptor *base, struct err *e)
{
    struct json_acceptor *a = (struct json_acceptor *)base;
    struct json_sizes *z = a->sizes = try_calloc(1, sizeof(*z));

    if (z) {
        z->conjs = try_calloc(MAX(a->p->n_conjs, 1u), sizeof(*z->conjs));
        z->shapes = try_calloc(MAX(a->p->n_shapes, 1u), sizeof(*z->shapes));
    }
    if (!z || !z->conjs || !z->shapes)
        return err_set(e, ERR_MEMORY, "no memory for the state of a constraint");
    compute_sizes(a);
    return shortest_new(&z->shortest, a->a, e);
}

void json_completion_free(struct json_acceptor *a)
{
    if (!a->sizes)
        return;
    shortest_free(a->sizes->shortest);
    mem_free(a->sizes->conjs);
    mem_free(a->sizes->shapes);
    mem_free(a->sizes);
}

size_t json_completion_bytes(const struct json_acceptor *a)
{
    return a->sizes ? sizeof(*a->sizes) + shortest_bytes() +
                          (a->p->n_conjs + (size_t)a->p->n_shapes) * sizeof(uint32_t)
                    : 0;
}

/* ---- branches */

static bool is_due(const struct branch *b, uint32_t entry)
{
    const struct shape *s = b->shape;
    bool is_due = s->entries[entry].is_required;

    for (uint32_t k = 0; k < s->n_deps && !is_due; k++)
        is_due = s->deps[k].required == entry && branch_seen(b, s->deps[k].key);
    return is_due && !branch_seen(b, entry);
}

static uint32_t object_rest(const struct json_acceptor *a, const struct branch *b, uint64_t n)
{
    const struct shape *s = b->shape;
    uint32_t sum = 0;

    for (uint32_t k = 0; k < s->n_entries; k++)
        if (is_due(b, k)) {
            sum = add(sum, entry_size(a, &s->entries[k]));
            n++;
        }
    if (n < s->n_min)
        sum = add(sum, times(least_member(a, s), s->n_min - n));
    return sum;
}

static uint32_t array_rest(const struct json_acceptor *a, const struct branch *b, uint64_t n)
{
    const struct shape *s = b->shape;
    uint32_t sum = items_size(a, s, n);

    for (uint32_t k = 0; k < s->n_contains; k++)
        if (s->contains[k].pending == NO_ITEM && b->words[k] < s->contains[k].min)
            sum = add(sum, times(UNMET, s->contains[k].min - b->words[k]));
    return sum;
}

/* Computes rest(b) for a branch of a frame with n members. */
static uint32_t branch_rest(const struct json_acceptor *a, const struct branch *b, uint64_t n)
{
    bool is_object = b->shape->kind == KIND_OBJECT;
    uint32_t rest = is_object ? object_rest(a, b, n) : array_rest(a, b, n);
    bool closes = is_object ? json_object_closes(a->p, b, n) : json_array_closes(a->p, b, n);

    return b->pending && !closes
               ? add(rest, times(UNMET, (unsigned)__builtin_popcountll(b->pending)))
               : rest;
}

/* The least rest of the branches of the set; *best: the first of those. */
static uint32_t least_rest(
    const struct json_acceptor *a, const struct frame *f, uint64_t set, const struct branch **best)
{
    const struct branch *b = f ? first_branch(f) : NULL;
    uint32_t least = f ? (uint32_t)SIZE_NONE : 0;

    *best = b;
    for (uint32_t k = 0; f && k < f->n_branches; k++, b = next_branch(b)) {
        uint32_t rest = set >> k & 1 ? branch_rest(a, b, f->n) : (uint32_t)SIZE_NONE;
        if (rest < least) {
            least = rest;
            *best = b;
        }
    }
    return least;
}

/* ---- values */

static int32_t begin_value(const struct json_acceptor *a, const struct pos *q)
{
    const struct values *v = json_at(&a->s, q->aux);
    const struct frame *f = frame_at(a, v->blob.link);
    uint32_t least = UINT32_MAX, depth = f ? f->depth : 0;
    const struct conj *best = NULL;
    const struct branch *ignored;

    for (uint32_t k = 0; k < v->n; k++) {
        uint32_t size =
            add(size_of(a, v->all[k].child), least_rest(a, f, v->all[k].branches, &ignored));
        if (size < least) {
            least = size;
            best = a->p->conjs[v->all[k].child];
        }
    }
    if (!best)
        return COMPLETION_NONE;
    uint32_t scalar = scalar_size(a, best);
    uint32_t array = least_shape(a, best->arrays, best->n_arrays, depth + 1);
    uint32_t object = least_shape(a, best->objects, best->n_objects, depth + 1);
    bool is_object = q->lex == LEX_START && a->p->options.object_only;
    if (is_object || (object < scalar && object <= array))
        return '{';
    if (array < scalar)
        return '[';
    bool is_tracked = f && (f->is_unique || f->is_canonical);
    uint32_t root = is_tracked ? best->canonical_root : best->root;
    if (root == NO_ITEM || shortest_length(a->sizes->shortest, a->starts[root]) == SHORTEST_NONE)
        return COMPLETION_NONE;
    return shortest_first(a->sizes->shortest, a->starts[root]);
}

static bool is_live(struct json_acceptor *a, pos_id p, uint8_t byte)
{
    uint32_t mark = a->base.ops->mark(&a->base);
    bool is_live = a->base.ops->step(&a->base, p, byte).i;

    if (is_live)
        a->base.ops->release(&a->base, mark);
    return is_live;
}

static int32_t after_value(struct json_acceptor *a, pos_id p)
{
    if (is_live(a, p, '}'))
        return '}';
    return is_live(a, p, ']') ? ']' : ',';
}

static int32_t in_scalar(struct json_acceptor *a, pos_id p)
{
    const struct pos *q = &a->s.pos[p.i];
    const struct lanes *lanes = json_at(&a->s, q->aux);
    const struct frame *f = frame_at(a, q->frame);
    uint32_t least = UINT32_MAX, at = 0, length = SHORTEST_NONE;
    const struct branch *ignored;

    for (uint32_t k = 0; k < q->n_states; k++) {
        uint32_t n = shortest_length(a->sizes->shortest, a->s.states[q->states + k]);
        if (n == SHORTEST_NONE)
            continue;
        uint32_t size = add(n, least_rest(a, f, lanes->branches[k], &ignored));
        if (size < least) {
            least = size;
            at = k;
            length = n;
        }
    }
    if (length == SHORTEST_NONE)
        return COMPLETION_NONE;
    if (!length)
        return after_value(a, p);
    return shortest_first(a->sizes->shortest, a->s.states[q->states + at]);
}

/* ---- keys */

/* The key of the list which the branch needs first; NULL: none. */
static const struct shape_entry *due_key(
    const struct json_acceptor *a, const struct pos *q, const struct branch *b)
{
    const struct keys *keys = json_at(&a->s, q->aux);
    const struct shape_entry *first = NULL;

    for (uint32_t k = q->lo; k < q->hi; k++) {
        uint32_t at = json_entry(b->shape, keys->all[k]);
        if (at == NO_ITEM || !is_due(b, at))
            continue;
        const struct shape_entry *e = &b->shape->entries[at];
        if (!first || e->order < first->order)
            first = e;
    }
    return first;
}

/* The smallest member with a key of the list. */
static uint32_t least_key(
    const struct json_acceptor *a, const struct pos *q, const struct frame *f, uint32_t *rank)
{
    const struct keys *keys = json_at(&a->s, q->aux);
    const struct branch *b = first_branch(f);
    uint32_t least = SIZE_NONE;

    for (uint32_t n = 0; n < f->n_branches; n++, b = next_branch(b))
        for (uint32_t k = q->lo; k < q->hi; k++) {
            uint32_t at = json_entry(b->shape, keys->all[k]);
            uint32_t size =
                at == NO_ITEM ? (uint32_t)SIZE_NONE : entry_size(a, &b->shape->entries[at]);
            if (size < least) {
                least = size;
                *rank = keys->all[k];
            }
        }
    return least;
}

/* The smallest member with another key; *state: of its key. */
static uint32_t least_other(
    const struct json_acceptor *a, const struct pos *q, const struct frame *f, state_id *state)
{
    const struct key_lanes *lanes = json_at(&a->s, q->lanes);
    uint32_t least = SIZE_NONE;

    for (uint32_t k = 0; k < q->n_states; k++) {
        const struct branch *b = first_branch(f);
        for (uint32_t n = 0; n < lanes->all[k].branch; n++)
            b = next_branch(b);
        state_id s = a->s.states[q->states + k];
        uint32_t length = shortest_length(a->sizes->shortest, s);
        if (length == SHORTEST_NONE || !length)
            continue;
        uint32_t size =
            add(q->at + length + 2, size_of(a, b->shape->classes[lanes->all[k].class].child));
        if (size < least) {
            least = size;
            *state = s;
        }
    }
    return least;
}

static int32_t in_key(struct json_acceptor *a, const struct pos *q)
{
    const struct frame *f = frame_at(a, q->frame);
    const struct branch *b;
    uint32_t rank = 0;
    state_id state = STATE_DEAD;

    least_rest(a, f, UINT64_MAX, &b);
    const struct shape_entry *due = due_key(a, q, b);
    uint32_t named = least_key(a, q, f, &rank);
    uint32_t other = q->n_states ? least_other(a, q, f, &state) : (uint32_t)SIZE_NONE;
    if (due)
        rank = due->key;
    else if (other < named || (named == SIZE_NONE && state.i))
        return shortest_first(a->sizes->shortest, state);
    else if (named == SIZE_NONE)
        return COMPLETION_NONE;
    struct str text = a->p->keys[rank].spelled;
    return q->at < text.n ? (uint8_t)text.p[q->at] : COMPLETION_NONE;
}

/* ---- the next byte */

static int32_t choose(struct json_acceptor *a, pos_id p)
{
    const struct pos *q = &a->s.pos[p.i];

    switch ((enum lex)q->lex) {
    case LEX_START:
    case LEX_VALUE:
        return begin_value(a, q);
    case LEX_SCALAR:
        return in_scalar(a, p);
    case LEX_ARRAY_OPEN:
        return !q->aux || is_live(a, p, ']') ? ']' : begin_value(a, q);
    case LEX_OBJECT_OPEN:
        return is_live(a, p, '}') ? '}' : '"';
    case LEX_NEXT_KEY:
        return '"';
    case LEX_KEY:
        return in_key(a, q);
    case LEX_COLON:
        return ':';
    case LEX_AFTER:
        return after_value(a, p);
    case LEX_END:
    case LEX_UNSURE:
    case N_LEX:
        break;
    }
    return COMPLETION_NONE;
}

int32_t json_completion(struct acceptor *base, pos_id p)
{
    struct json_acceptor *a = (struct json_acceptor *)base;

    if (base->ops->accepts(base, p))
        return COMPLETION_END;
    int32_t byte = p.i ? choose(a, p) : COMPLETION_NONE;
    if (byte >= 0 && is_live(a, p, (uint8_t)byte))
        return byte;
    for (unsigned k = 0; k < 256 && p.i; k++)
        if (is_live(a, p, byte_of_rank((uint8_t)k)))
            return byte_of_rank((uint8_t)k);
    return COMPLETION_NONE;
}
