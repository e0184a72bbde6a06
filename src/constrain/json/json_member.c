#include "base/hash.h"
#include "constrain/json/json_acceptor_in.h"

/* ---- building */

struct frame *json_frame_begin(
    struct json_acceptor *a, uint32_t parent, uint32_t kind, uint32_t depth)
{
    struct frame *f = json_blob(&a->s, BLOB_FRAME, sizeof(*f), parent);

    if (!f)
        return NULL;
    f->kind = kind;
    f->depth = depth;
    return f;
}

static bool is_same_branch(const struct branch *b, const struct branch *c)
{
    return b->shape == c->shape && b->pending == c->pending && b->order == c->order &&
           !memcmp(b->words, c->words, b->shape->n_words * sizeof(*b->words));
}

int json_frame_add(struct json_acceptor *a, struct frame *f)
{
    struct branch *b = first_branch(f);
    size_t bytes = branch_bytes(a->next->shape);
    uint32_t at = a->s.blobs_end;

    for (uint32_t k = 0; k < f->n_branches; k++, b = next_branch(b))
        if (is_same_branch(b, a->next)) {
            b->parents |= a->next->parents;
            return (int)k;
        }
    if (f->n_branches == JSON_BRANCHES_MAX) {
        a->error = "a value has more than 64 alternatives";
        return -1;
    }
    if (!json_blob(&a->s, BLOB_FRAME, bytes, 0))
        return -1;
    memcpy(json_at(&a->s, at), a->next, bytes);
    f->blob.size += (uint32_t)bytes;
    return (int)f->n_branches++;
}

void json_frame_end(struct json_acceptor *a, struct frame *f)
{
    const struct frame *parent = frame_at(a, f->blob.link);
    uint64_t n_cap = 0, h;

    struct branch *b = first_branch(f);
    for (uint32_t k = 0; k < f->n_branches; k++, b = next_branch(b))
        n_cap = MAX(n_cap, b->shape->n_cap);
    f->n = MIN(f->n, n_cap);
    h = hash_bytes(a->seed, f + 1, f->blob.size - sizeof(*f));
    h = hash_fold(h ^ f->n, (uint64_t)f->depth << 8 | f->kind);
    if (f->is_canonical)
        h = hash_fold(h ^ f->digest, f->key_digest);
    if (f->seen)
        h = hash_fold(h, ((struct seen *)json_at(&a->s, f->seen))->hash);
    f->hash = hash_fold(h, parent ? parent->hash : a->seed);
}

/* A copy of the frame's head, without branches. */
static struct frame *begin_like(struct json_acceptor *a, const struct frame *f, uint32_t seen)
{
    struct frame *g = json_frame_begin(a, f->blob.link, f->kind, f->depth);

    if (!g)
        return NULL;
    g->seen = seen;
    g->n = f->n;
    g->digest = f->digest;
    g->key_digest = f->key_digest;
    g->is_unique = f->is_unique;
    g->is_canonical = f->is_canonical;
    g->is_partial = f->is_partial;
    return g;
}

uint32_t json_frame_filter(struct json_acceptor *a, const struct frame *f, uint64_t set)
{
    struct frame *g = begin_like(a, f, f->seen);
    const struct branch *b = first_branch(f);

    for (uint32_t k = 0; k < f->n_branches && g; k++, b = next_branch(b)) {
        if (!(set >> k & 1))
            continue;
        memcpy(a->next, b, branch_bytes(b->shape));
        if (json_frame_add(a, g) < 0)
            return 0;
    }
    if (!g)
        return 0;
    json_frame_end(a, g);
    return json_offset(&a->s, g);
}

/* ---- values */

static void values_begin(struct json_acceptor *a)
{
    a->n_values = 0;
}

static bool values_add(struct json_acceptor *a, conj_id child, uint32_t branch)
{
    uint64_t bit = (uint64_t)1 << branch;

    for (uint32_t k = 0; k < a->n_values; k++)
        if (a->values[k].child == child) {
            a->values[k].branches |= bit;
            return true;
        }
    if (a->n_values == VALUES_MAX) {
        a->error = "a value has more than 512 alternatives";
        return false;
    }
    a->values[a->n_values++] = (struct value_entry){ .branches = bit, .child = child };
    return true;
}

static uint32_t values_end(struct json_acceptor *a, uint32_t frame)
{
    size_t bytes = a->n_values * sizeof(*a->values);
    struct values *v = json_blob(&a->s, BLOB_VALUES, sizeof(*v) + bytes, frame);

    if (!v)
        return 0;
    v->n = a->n_values;
    memcpy(v->all, a->values, bytes);
    return json_offset(&a->s, v);
}

/* ---- opening and closing */

static void initial_branch(struct branch *b, struct shape *s, uint64_t parents)
{
    memset(b, 0, branch_bytes(s));
    b->shape = s;
    b->parents = parents;
    b->pending = s->n_pending == 64 ? UINT64_MAX : ((uint64_t)1 << s->n_pending) - 1;
}

static bool add_initial(struct json_acceptor *a, struct frame *f, const struct value_entry *v)
{
    const struct conj *c = a->p->conjs[v->child];
    struct shape **shapes = f->kind == KIND_OBJECT ? c->objects : c->arrays;
    uint32_t n = f->kind == KIND_OBJECT ? c->n_objects : c->n_arrays;

    for (uint32_t k = 0; k < n; k++) {
        if (!fits_depth(shapes[k]->cost, f->depth))
            continue;
        initial_branch(a->next, shapes[k], v->branches);
        if (json_frame_add(a, f) < 0)
            return false;
        f->is_unique = f->is_unique || shapes[k]->is_unique;
    }
    return true;
}

bool json_open(struct json_acceptor *a, struct pos *q, uint32_t kind)
{
    const struct values *v = json_at(&a->s, q->aux);
    const struct frame *parent = frame_at(a, v->blob.link);
    struct frame *f = json_frame_begin(a, v->blob.link, kind, parent ? parent->depth + 1 : 1);

    if (!f || f->depth > JSON_DEPTH_MAX)
        return false;
    f->is_canonical = parent && (parent->is_unique || parent->is_canonical);
    for (uint32_t k = 0; k < v->n; k++)
        if (!add_initial(a, f, &v->all[k]))
            return false;
    if (!f->n_branches)
        return false;
    json_frame_end(a, f);
    q->frame = json_offset(&a->s, f);
    return true;
}

uint64_t json_close(struct json_acceptor *a, const struct frame *f)
{
    const struct branch *b = first_branch(f);
    uint64_t parents = 0;

    for (uint32_t k = 0; k < f->n_branches; k++, b = next_branch(b)) {
        bool closes = f->kind == KIND_OBJECT ? json_object_closes(a->p, b, f->n)
                                             : json_array_closes(a->p, b, f->n);
        parents |= closes ? b->parents : 0;
    }
    return parents;
}

/* ---- items */

/* Adds the branches after one more item. */
static bool add_items(
    struct json_acceptor *a, struct frame *g, const struct frame *f, const struct branch *b)
{
    json_array_options(a->p, b, f->n, &a->options);
    for (uint32_t k = 0; k < a->options.n; k++) {
        const struct member_option *o = &a->options.all[k];
        if (!fits_depth(json_cost(a->p, o->child), f->depth))
            continue;
        memcpy(a->next, b, branch_bytes(b->shape));
        a->next->pending = o->pending;
        for (uint32_t j = 0; j < b->shape->n_contains; j++)
            if (o->matches >> j & 1)
                a->next->words[j] = json_array_count(b->shape, j, b->words[j] + 1);
        if (!fits_depth(json_array_rest(a->p, &a->search, a->next, f->n + 1), f->depth))
            continue;
        int at = json_frame_add(a, g);
        if (at < 0 || !values_add(a, o->child, (uint32_t)at))
            return false;
    }
    return true;
}

/* Removes values of which every text is already an item. */
static void drop_used(struct json_acceptor *a, const struct frame *f)
{
    uint32_t kept = 0;

    for (uint32_t k = 0; k < a->n_values && f->is_unique && f->seen; k++) {
        const struct conj *c = a->p->conjs[a->values[k].child];
        const struct pos start = { 0 };
        bool has_prefix;
        if (c->n_arrays || c->n_objects ||
            (c->canonical_root != NO_ITEM &&
                json_other_text(
                    a, &start, a->starts[c->canonical_root], NULL, f->seen, &has_prefix)))
            a->values[kept++] = a->values[k];
    }
    if (f->is_unique && f->seen)
        a->n_values = kept;
}

bool json_next_item(struct json_acceptor *a, struct pos *q)
{
    const struct frame *f = frame_at(a, q->frame);
    struct frame *g = begin_like(a, f, f->seen);
    const struct branch *b = first_branch(f);

    if (!g)
        return false;
    values_begin(a);
    for (uint32_t k = 0; k < f->n_branches; k++, b = next_branch(b))
        if (!add_items(a, g, f, b))
            return false;
    g->n++;
    json_frame_end(a, g);
    drop_used(a, f);
    q->aux = a->n_values ? values_end(a, json_offset(&a->s, g)) : 0;
    return q->aux != 0;
}

/* ---- keys */

/* Position of the first property that is required and was not read. */
static uint32_t first_required(const struct branch *b)
{
    uint32_t first = ORDER_TAIL;

    for (uint32_t k = 0; k < b->shape->n_required; k++)
        if (!branch_seen(b, b->shape->required[k]))
            first = MIN(first, b->shape->entries[b->shape->required[k]].order);
    return first;
}

/* a->next becomes the branch after the member. */
static void after_member(
    struct json_acceptor *a, const struct branch *b, uint32_t entry, const struct member_option *o)
{
    uint32_t order = entry == NO_ITEM ? ORDER_TAIL : b->shape->entries[entry].order;

    memcpy(a->next, b, branch_bytes(b->shape));
    a->next->pending = o->pending;
    if (entry != NO_ITEM)
        a->next->words[entry >> 6] |= (uint64_t)1 << (entry & 63);
    if (!a->p->options.any_order)
        a->next->order = order == ORDER_TAIL ? ORDER_TAIL : order + 1;
}

/* Whether the member may follow; adds the branches after it to `g`, unless NULL. */
static bool member_follows(struct json_acceptor *a, const struct frame *f, const struct branch *b,
    uint32_t entry, const struct shape_class *class, struct frame *g)
{
    bool follows = false;

    if (entry != NO_ITEM &&
        (branch_seen(b, entry) ||
            (!a->p->options.any_order && b->shape->entries[entry].order < b->order)))
        return false;
    json_object_options(a->p, b, entry, class, &a->options);
    for (uint32_t k = 0; k < a->options.n && (g || !follows) && !a->error; k++) {
        const struct member_option *o = &a->options.all[k];
        if (!fits_depth(json_cost(a->p, o->child), f->depth))
            continue;
        after_member(a, b, entry, o);
        if (!fits_depth(json_object_rest(a->p, a->next, f->n + 1), f->depth))
            continue;
        follows = true;
        int at = g ? json_frame_add(a, g) : 0;
        if (at < 0 || (g && !values_add(a, o->child, (uint32_t)at)))
            return false;
    }
    return follows;
}

/* The same for an entry, without looking at the member if that is certain. */
static bool entry_follows(struct json_acceptor *a, const struct frame *f, const struct branch *b,
    uint32_t entry, uint32_t first)
{
    const struct shape *s = b->shape;
    const struct shape_entry *e = &s->entries[entry];
    bool is_simple = !b->pending && !s->n_deps && !s->n_min && s->n_max == UINT64_MAX &&
                     !a->p->options.any_order;

    if (!is_simple)
        return member_follows(a, f, b, entry, NULL, NULL);
    return !branch_seen(b, entry) && e->order >= b->order && e->order <= first &&
           fits_depth(json_cost(a->p, e->child), f->depth);
}

static void sort_ranks(uint32_t *all, uint32_t *n)
{
    uint32_t m = 0;

    for (uint32_t k = 1; k < *n; k++) { /* nearly sorted: runs of a few branches */
        uint32_t moved = all[k], at = k;
        for (; at && all[at - 1] > moved; at--)
            all[at] = all[at - 1];
        all[at] = moved;
    }
    for (uint32_t k = 0; k < *n; k++)
        if (!m || all[m - 1] != all[k])
            all[m++] = all[k];
    *n = m;
}

/* The entries of all branches that may follow. */
static struct keys *named_keys(struct json_acceptor *a, const struct frame *f)
{
    const struct branch *b = first_branch(f);
    size_t n = 0;
    struct keys *keys;

    for (uint32_t k = 0; k < f->n_branches; k++, b = next_branch(b))
        n += b->shape->n_entries;
    keys = json_blob(&a->s, BLOB_KEYS, sizeof(*keys) + n * sizeof(uint32_t), 0);
    b = first_branch(f);
    for (uint32_t k = 0; k < f->n_branches && keys; k++, b = next_branch(b)) {
        uint32_t first = first_required(b);
        for (uint32_t j = 0; j < b->shape->n_entries; j++)
            if (entry_follows(a, f, b, j, first))
                keys->all[keys->n++] = b->shape->entries[j].key;
    }
    if (keys && f->n_branches > 1)
        sort_ranks(keys->all, &keys->n);
    if (keys) { /* gives back what is not used */
        size_t bytes = (sizeof(*keys) + keys->n * sizeof(uint32_t) + 7) & ~(size_t)7;
        a->s.blobs_end -= keys->blob.size - (uint32_t)bytes;
        keys->blob.size = (uint32_t)bytes;
    }
    return keys;
}

/* The classes of all branches that may follow, with their start states. */
static bool other_keys(struct json_acceptor *a, const struct frame *f, struct pos *q)
{
    const struct branch *b = first_branch(f);
    struct key_lanes *lanes = json_blob(&a->s, BLOB_KEY_LANES, sizeof(*lanes), 0);
    const struct pos start = { 0 };
    bool has_prefix;

    if (!lanes)
        return false;
    q->lanes = json_offset(&a->s, lanes);
    q->states = (uint32_t)a->s.held.n;
    q->n_states = 0;
    for (uint32_t k = 0; k < f->n_branches; k++, b = next_branch(b))
        for (uint32_t j = 0; j < b->shape->n_classes; j++) {
            const struct shape_class *c = &b->shape->classes[j];
            state_id s = a->starts[c->root];
            if (!member_follows(a, f, b, NO_ITEM, c, NULL) ||
                !json_other_text(a, &start, s, b->shape, f->seen, &has_prefix))
                continue;
            if (!json_blob(&a->s, BLOB_KEY_LANES, sizeof(struct key_lane), 0) ||
                !json_push_state(&a->s, s))
                return false;
            lanes->all[q->n_states++] = (struct key_lane){ k, j };
            lanes->blob.size += sizeof(struct key_lane);
        }
    return true;
}

bool json_next_keys(struct json_acceptor *a, struct pos *q)
{
    const struct frame *f = frame_at(a, q->frame);
    struct keys *keys = named_keys(a, f);

    if (!keys || !other_keys(a, f, q))
        return false;
    q->aux = json_offset(&a->s, keys);
    q->lo = q->at = q->text = 0;
    q->hi = keys->n;
    return keys->n || q->n_states;
}

/* The lane of the branch whose key is complete. */
static const struct shape_class *class_of_lane(
    const struct json_acceptor *a, const struct pos *q, uint32_t number, const struct branch *b)
{
    const struct key_lanes *lanes = json_at(&a->s, q->lanes);

    for (uint32_t k = 0; k < q->n_states; k++)
        if (lanes->all[k].branch == number && automaton_is_final(a->a, a->s.states[q->states + k]))
            return &b->shape->classes[lanes->all[k].class];
    return NULL;
}

/* The values after the key, as q->aux. */
static bool end_key_frame(struct json_acceptor *a, struct pos *q, struct frame *g)
{
    json_frame_end(a, g);
    q->frame = json_offset(&a->s, g);
    q->aux = a->n_values ? values_end(a, q->frame) : 0;
    q->lanes = q->text = q->states = q->n_states = q->lo = q->hi = q->at = 0;
    return q->aux && !a->error;
}

bool json_end_other_key(struct json_acceptor *a, struct pos *q)
{
    const struct frame *f = frame_at(a, q->frame);
    const struct branch *b = first_branch(f);
    const struct key_lane *lane = ((struct key_lanes *)json_at(&a->s, q->lanes))->all;
    struct frame *g = begin_like(a, f, f->seen);

    if (!g)
        return false;
    for (uint32_t k = 0; k < lane->branch; k++)
        b = next_branch(b);
    values_begin(a);
    member_follows(a, f, b, NO_ITEM, &b->shape->classes[lane->class], g);
    g->n++;
    g->is_partial = true;
    q->lex = LEX_COLON;
    q->space = 0;
    return end_key_frame(a, q, g);
}

bool json_end_key(struct json_acceptor *a, struct pos *q, uint32_t rank)
{
    const struct frame *f = frame_at(a, q->frame);
    const struct branch *b = first_branch(f);
    uint32_t seen = f->seen;

    if (q->n_states) {
        seen = json_seen_add(a, seen, q->text, 0);
        if (!seen)
            return false;
    }
    struct frame *g = begin_like(a, f, seen);
    if (!g)
        return false;
    values_begin(a);
    for (uint32_t k = 0; k < f->n_branches && !a->error; k++, b = next_branch(b)) {
        uint32_t entry = rank == NO_ITEM ? NO_ITEM : json_entry(b->shape, rank);
        const struct shape_class *class =
            entry == NO_ITEM && q->n_states ? class_of_lane(a, q, k, b) : NULL;
        if (entry != NO_ITEM || class)
            member_follows(a, f, b, entry, class, g);
    }
    g->n++;
    if (f->is_canonical)
        g->key_digest = rank == NO_ITEM ? json_text_hash(a, q->text)
                                        : hash_bytes(a->seed, a->p->keys[rank].spelled.p,
                                              a->p->keys[rank].spelled.n);
    return end_key_frame(a, q, g);
}
