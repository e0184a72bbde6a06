#include "base/mem.h"
#include "constrain/json/json_program_in.h"
#include "constrain/regular/live.h"

#include <stdlib.h>

enum {
    APPLIED_MAX = 256, /* subschemas of the value of one key */
    CLASSES_MAX = 64,
    WORDS_MAX = 255, /* counted keys of a class */
    PLAN_MEMBERS_MAX = 16,
    PLAN_WORK_MAX = 2000, /* combinations of failures that are tried */
    NEED_WORDS = 128
};

/* ---- subschemas of a key */

/* A key by its rank, or NO_ITEM and the bits of a class. */
struct member_key {
    uint32_t key;
    uint64_t bits;
};

struct lit_list {
    json_lit all[APPLIED_MAX + 64];
    uint32_t n;
};

static struct member_key key_of(
    const struct shape *s, uint32_t entry, const struct shape_class *class)
{
    return (struct member_key){ entry == NO_ITEM ? NO_ITEM : s->entries[entry].key,
        class ? class->bits : 0 };
}

static void add_lit(struct json_program *p, struct lit_list *l, json_lit lit)
{
    if (l->n < APPLIED_MAX)
        l->all[l->n++] = lit;
    else
        json_fail(p, ERR_TOO_LARGE, "too many subschemas apply to one property");
}

static bool matches_pattern(
    struct json_program *p, const struct shape *s, uint32_t pattern, const struct member_key *key)
{
    if (key->key != NO_ITEM)
        return json_pattern_matches(p, pattern, key->key);
    for (uint32_t k = 0; k < s->n_patterns; k++)
        if (s->patterns[k] == pattern)
            return key->bits >> k & 1;
    return false;
}

/* Adds the subschemas that the node applies to the value. True: a keyword applies to the key. */
static bool key_schemas(struct json_program *p, const struct shape *s, uint32_t node,
    const struct member_key *k, struct lit_list *l)
{
    const struct schema_node *n = json_node(p, node);
    uint32_t at = k->key == NO_ITEM ? NO_ITEM : json_property(p, node, k->key);
    bool is_found = false;

    if (at != NO_ITEM && n->properties[at].is_declared) {
        add_lit(p, l, n->properties[at].value.i * 2);
        is_found = true;
    }
    for (uint32_t j = 0; j < n->n_pattern_properties; j++)
        if (matches_pattern(p, s, p->nodes[node].patterns[j], k)) {
            add_lit(p, l, n->pattern_properties[j].value.i * 2);
            is_found = true;
        }
    if (!is_found && n->has_additional)
        add_lit(p, l, n->additional_properties.i * 2);
    return is_found || n->has_additional;
}

/* Whether the key satisfies propertyNames of the node. */
static bool has_name(
    struct json_program *p, const struct shape *s, uint32_t node, const struct member_key *m)
{
    uint32_t key = m->key;
    uint64_t bits = m->bits;
    uint32_t names = json_node(p, node)->property_names.i;

    if (!names)
        return true;
    for (uint32_t k = 0; k < s->n_names && key == NO_ITEM; k++)
        if (s->names[k] == names)
            return bits >> (s->n_patterns + k) & 1;
    if (key == NO_ITEM)
        return false;
    uint64_t id = (uint64_t)1 << 63 | (uint64_t)names << 32 | key;
    uint32_t known = 0;
    if (u64_map_get(p->match_of, id, &known) || p->is_frozen)
        return known;
    struct json_scalar only = { .part[PART_STRING] =
                                    json_scalar_of(p, names * 2, 0).part[PART_STRING] };
    known = json_expr_matches(p, json_scalar_text(p, &only), p->keys[key].spelled);
    if (u64_map_put(p->match_of, id, known) < 0)
        json_fail(p, ERR_MEMORY, "no memory");
    return known;
}

/* Bits of unevaluated nodes for which another one, in their scope, evaluates all members. */
uint64_t json_inner_scopes(const struct shape *s)
{
    uint64_t scopes = 0;

    for (uint32_t j = 0; j < s->n_unevaluated; j++)
        for (uint32_t k = 0; k < s->n_lits; k++)
            if (s->lits[k] == s->unevaluated[j] * 2)
                scopes |= s->scopes[k] & ~((uint64_t)1 << j);
    return scopes;
}

/* The conjunction for the value of a key: the subschemas of all nodes that must hold. */
static conj_id child_of(
    struct json_program *p, const struct shape *s, uint32_t entry, const struct shape_class *class)
{
    struct member_key key = key_of(s, entry, class);
    struct lit_list l;
    uint64_t evaluated = 0;

    l.n = 0;
    for (uint32_t k = 0; k < s->n_lits; k++) {
        if (s->lits[k] & 1)
            continue;
        if (!has_name(p, s, s->lits[k] >> 1, &key))
            return CONJ_FALSE;
        if (key_schemas(p, s, s->lits[k] >> 1, &key, &l))
            evaluated |= s->scopes[k];
    }
    evaluated |= json_inner_scopes(s);
    for (uint32_t k = 0; k < s->n_unevaluated; k++)
        if (!(evaluated >> k & 1))
            l.all[l.n++] = json_node(p, s->unevaluated[k])->unevaluated_properties.i * 2;
    return json_conj(p, l.all, l.n);
}

/* ---- entries */

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static uint32_t find_entry(const struct shape *s, uint32_t key)
{
    uint32_t lo = 0, hi = s->n_entries;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->entries[mid].key < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n_entries && s->entries[lo].key == key ? lo : NO_ITEM;
}

uint32_t json_entry(const struct shape *s, uint32_t key)
{
    return find_entry(s, key);
}

static void collect_entries(struct json_program *p, struct shape *s)
{
    uint32_t n = 0, m = 0, *keys;

    for (uint32_t k = 0; k < s->n_lits; k++) {
        const struct schema_node *node = json_node(p, s->lits[k] >> 1);
        n += node->n_properties + node->n_dependencies;
        for (uint32_t j = 0; j < node->n_dependencies; j++)
            n += node->dependencies[j].n_required;
    }
    keys = json_alloc(p, n + 1, sizeof(*keys));
    if (!keys || !json_work(p, n))
        return;
    n = 0;
    for (uint32_t k = 0; k < s->n_lits; k++) {
        const struct jnode *node = &p->nodes[s->lits[k] >> 1];
        for (uint32_t j = 0; j < node->s->n_properties; j++)
            keys[n++] = node->keys[j];
        for (uint32_t j = 0; j < node->s->n_dependencies; j++) {
            keys[n++] = node->dep_keys[j];
            for (uint32_t i = 0; i < node->s->dependencies[j].n_required; i++)
                keys[n++] = node->dep_required[j][i];
        }
    }
    qsort(keys, n, sizeof(*keys), ascending);
    for (uint32_t k = 0; k < n; k++)
        if (!m || keys[m - 1] != keys[k])
            keys[m++] = keys[k];
    s->entries = json_alloc(p, m + 1, sizeof(*s->entries));
    for (uint32_t k = 0; k < m && s->entries; k++)
        s->entries[s->n_entries++] = (struct shape_entry){ .key = keys[k], .order = ORDER_TAIL };
}

/* Declared properties in the order of the schema; the first occurrence counts. */
static void order_entries(struct json_program *p, struct shape *s)
{
    uint32_t next = 0;

    s->by_order = json_alloc(p, s->n_entries + 1, sizeof(uint32_t));
    s->required = json_alloc(p, s->n_entries + 1, sizeof(uint32_t));
    for (uint32_t k = 0; k < s->n_lits && !p->is_failed; k++) {
        const struct jnode *node = &p->nodes[s->lits[k] >> 1];
        for (uint32_t j = 0; j < node->s->n_properties && !(s->lits[k] & 1); j++) {
            uint32_t at = find_entry(s, node->keys[j]);
            struct shape_entry *e = &s->entries[at];
            if (node->s->properties[j].is_declared && e->order == ORDER_TAIL) {
                e->order = next;
                s->by_order[next++] = at;
            }
            e->is_required = e->is_required || node->s->properties[j].is_required;
        }
    }
}

static void add_dependencies(struct json_program *p, struct shape *s)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < s->n_lits; k++)
        for (uint32_t j = 0; j < json_node(p, s->lits[k] >> 1)->n_dependencies; j++)
            n += json_node(p, s->lits[k] >> 1)->dependencies[j].n_required;
    s->deps = json_alloc(p, n + 1, sizeof(*s->deps));
    for (uint32_t k = 0; k < s->n_lits && s->deps; k++) {
        const struct jnode *node = &p->nodes[s->lits[k] >> 1];
        for (uint32_t j = 0; j < node->s->n_dependencies && !(s->lits[k] & 1); j++)
            for (uint32_t i = 0; i < node->s->dependencies[j].n_required; i++)
                s->deps[s->n_deps++] = (struct shape_dependency){ find_entry(s, node->dep_keys[j]),
                    find_entry(s, node->dep_required[j][i]) };
    }
    if ((s->n_deps || s->n_pending) && s->n_seen_words > NEED_WORDS)
        json_fail(p, ERR_TOO_LARGE, "an object with dependencies has too many properties");
}

/* ---- classes of other keys */

/* Splits the last classes from..n by the keys. */
static void split_classes(
    struct json_program *p, struct shape *s, expr_id keys, expr_id others, uint32_t bit)
{
    uint32_t n = s->n_classes;

    for (uint32_t k = 0; k < n && !p->is_failed; k++) {
        struct shape_class *c = &s->classes[k];
        expr_id in = expr_and(p->x, c->keys, keys), out = expr_and(p->x, c->keys, others);
        bool has_in = expr_is_live(p->x, in), has_out = expr_is_live(p->x, out);
        if (has_in && has_out && s->n_classes == CLASSES_MAX) {
            json_fail(p, ERR_TOO_LARGE, "the patterns of an object overlap in too many ways");
            return;
        }
        if (has_in && has_out)
            s->classes[s->n_classes++] = (struct shape_class){ .keys = out, .bits = c->bits };
        if (has_in) {
            c->keys = in;
            c->bits |= (uint64_t)1 << bit;
        } else if (has_out) {
            c->keys = out;
        }
    }
}

static void add_number(uint32_t *all, uint32_t *n, uint32_t number)
{
    for (uint32_t k = 0; k < *n; k++)
        if (all[k] == number)
            return;
    all[(*n)++] = number;
}

static void collect_patterns(struct json_program *p, struct shape *s)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < s->n_lits; k++)
        n += json_node(p, s->lits[k] >> 1)->n_pattern_properties;
    s->patterns = json_alloc(p, n + 1, sizeof(uint32_t));
    s->names = json_alloc(p, s->n_lits + 1, sizeof(uint32_t));
    for (uint32_t k = 0; k < s->n_lits && !p->is_failed; k++) {
        const struct jnode *node = &p->nodes[s->lits[k] >> 1];
        for (uint32_t j = 0; j < node->s->n_pattern_properties; j++)
            add_number(s->patterns, &s->n_patterns, node->patterns[j]);
        if (node->s->property_names.i)
            add_number(s->names, &s->n_names, node->s->property_names.i);
    }
    if (s->n_patterns + s->n_names > 60)
        json_fail(p, ERR_TOO_LARGE, "too many patterns apply to one object");
}

static bool permits_others(struct json_program *p, const struct shape *s)
{
    for (uint32_t k = 0; k < s->n_lits; k++) {
        const struct schema_node *n = json_node(p, s->lits[k] >> 1);
        if (!(s->lits[k] & 1) && n->has_additional && !n->n_pattern_properties &&
            n->additional_properties.i == NODE_FALSE.i)
            return false;
    }
    return true;
}

static void add_classes(struct json_program *p, struct shape *s)
{
    uint32_t kept = 0;

    collect_patterns(p, s);
    if (p->is_failed || !permits_others(p, s))
        return;
    s->classes = json_alloc(p, CLASSES_MAX, sizeof(*s->classes));
    if (!s->classes)
        return;
    s->classes[s->n_classes++].keys = p->any_key;
    for (uint32_t k = 0; k < s->n_patterns; k++) {
        expr_id keys = p->pattern_exprs[s->patterns[k]];
        split_classes(p, s, keys, expr_not(p->x, keys), k);
    }
    for (uint32_t k = 0; k < s->n_names; k++) {
        struct json_scalar only = { .part[PART_STRING] =
                                        json_scalar_of(p, s->names[k] * 2, 0).part[PART_STRING] };
        expr_id keys = json_scalar_text(p, &only);
        only.part[PART_STRING] = json_scalar_of(p, s->names[k] * 2 + 1, 0).part[PART_STRING];
        split_classes(p, s, keys, json_scalar_text(p, &only), s->n_patterns + k);
    }
    for (uint32_t k = 0; k < s->n_classes && !p->is_failed; k++) {
        struct shape_class c = s->classes[k];
        c.child = child_of(p, s, NO_ITEM, &c);
        if (c.child == CONJ_FALSE)
            continue;
        c.is_infinite = !s->n_patterns && !s->n_names;
        if (!c.is_infinite) {
            c.n_words = json_count_words(p, c.keys, WORDS_MAX);
            c.is_infinite = c.n_words > WORDS_MAX;
        }
        c.root = json_root(p, c.keys);
        s->classes[kept++] = c;
    }
    s->n_classes = kept;
    for (uint32_t k = 0; k < kept; k++)
        if (!s->classes[k].is_infinite) /* extra_cost compares counts with the number of words */
            s->n_cap = MAX(s->n_cap, WORDS_MAX + s->n_entries);
}

/* ---- the shape */

static void count_limits(struct json_program *p, struct shape *s)
{
    s->n_max = UINT64_MAX;
    for (uint32_t k = 0; k < s->n_lits; k++) {
        const struct schema_node *n = json_node(p, s->lits[k] >> 1);
        uint64_t max = n->max_properties == UINT64_MAX ? 0 : n->max_properties;
        s->n_cap = MAX(s->n_cap, MAX(n->min_properties, max));
        if (s->lits[k] & 1) {
            s->pending[s->n_pending++] = s->lits[k];
            continue;
        }
        s->n_min = MAX(s->n_min, n->min_properties);
        s->n_max = MIN(s->n_max, n->max_properties);
    }
    s->n_cap = MIN(s->n_cap, UINT32_MAX) + 1;
    if (s->n_pending > 64)
        json_fail(p, ERR_TOO_LARGE, "too many negated subschemas apply to one object");
}

struct shape *json_object_shape(struct json_program *p, const struct alternative *a)
{
    struct shape *s = json_alloc(p, 1, sizeof(*s));

    if (!s)
        return NULL;
    *s = (struct shape){ .kind = KIND_OBJECT,
        .lits = a->lits,
        .scopes = a->scopes,
        .n_lits = a->n,
        .unevaluated = a->unevaluated,
        .n_unevaluated = a->n_unevaluated };
    s->pending = json_alloc(p, a->n + 1, sizeof(json_lit));
    if (p->is_failed)
        return NULL;
    count_limits(p, s);
    collect_entries(p, s);
    s->n_seen_words = (s->n_entries + 63) / 64;
    s->n_words = s->n_seen_words;
    if (p->is_failed)
        return NULL;
    order_entries(p, s);
    add_dependencies(p, s);
    add_classes(p, s);
    for (uint32_t k = 0; k < s->n_entries && !p->is_failed; k++) {
        s->entries[k].child = child_of(p, s, k, NULL);
        if (s->entries[k].is_required)
            s->required[s->n_required++] = k;
    }
    return p->is_failed ? NULL : s;
}

/* ---- members */

/* Adds the literals which the pending node applies to the key; LIT_FALSE: the key makes it fail. */
static void applied(struct json_program *p, const struct shape *s, uint32_t node,
    const struct member_key *key, struct lit_list *l)
{
    if (has_name(p, s, node, key))
        key_schemas(p, s, node, key, l);
    else
        add_lit(p, l, LIT_FALSE);
}

void json_object_options(struct json_program *p, const struct branch *b, uint32_t entry,
    const struct shape_class *class, struct member_options *out)
{
    const struct shape *s = b->shape;
    struct member_key key = key_of(s, entry, class);
    struct lit_list l;
    uint32_t n_lits[64] = { 0 };

    l.n = 0;
    out->n = 0;
    out->is_full = false;
    out->all[out->n++] =
        (struct member_option){ .child = class ? class->child : s->entries[entry].child,
            .pending = b->pending };
    if (!b->pending)
        return;
    for (uint32_t k = 0; k < s->n_pending; k++) {
        uint32_t before = l.n;
        if (b->pending >> k & 1)
            applied(p, s, s->pending[k] >> 1, &key, &l);
        n_lits[k] = l.n - before;
    }
    json_split_pending(p, s, l.all, n_lits, out);
}

void json_split_pending(struct json_program *p, const struct shape *s, const json_lit *applied,
    const uint32_t *n_applied, struct member_options *o)
{
    struct member_option made[OPTIONS_MAX];

    for (uint32_t k = 0; k < s->n_pending; applied += n_applied[k++]) {
        uint32_t n = 0;
        if (!n_applied[k])
            continue;
        for (uint32_t i = 0; i < o->n; i++) {
            struct member_option one = o->all[i], fails = one;
            for (uint32_t j = 0; j < n_applied[k] && one.pending >> k & 1; j++) {
                json_lit no = lit_not(applied[j]);
                fails.child = json_conj_add(p, one.child, &no, 1);
                fails.pending = one.pending & ~((uint64_t)1 << k);
                if (json_cost(p, fails.child) != COST_NONE && n < OPTIONS_MAX)
                    made[n++] = fails;
                one.child = json_conj_add(p, one.child, &applied[j], 1);
            }
            if (one.child == CONJ_FALSE || json_cost(p, one.child) == COST_NONE)
                continue;
            o->is_full = o->is_full || n == OPTIONS_MAX;
            if (n < OPTIONS_MAX)
                made[n++] = one;
        }
        memcpy(o->all, made, n * sizeof(*made));
        o->n = n;
    }
}

/* ---- completions */

/* Requirements on the rest of an object, so that pending nodes fail. */
struct plan {
    uint64_t need[NEED_WORDS], absent[NEED_WORDS]; /* entries */
    struct {
        uint32_t entry, class;
        conj_id child;
    } members[PLAN_MEMBERS_MAX];
    uint32_t n_members;
    uint64_t n_min, n_max;
    uint32_t *work;
};

static bool bit_of(const uint64_t *bits, uint32_t k)
{
    return bits[k >> 6] >> (k & 63) & 1;
}
static void set_bit(uint64_t *bits, uint32_t k)
{
    bits[k >> 6] |= (uint64_t)1 << (k & 63);
}

static bool is_in_order(const struct json_program *p, const struct branch *b, uint32_t entry)
{
    return p->options.any_order || b->shape->entries[entry].order >= b->order;
}

/* Cost of `count` more members besides those that are needed. */
static unsigned extra_cost(struct json_program *p, const struct branch *b, uint64_t n,
    const struct plan *plan, uint64_t count)
{
    const struct shape *s = b->shape;
    uint64_t supply[JSON_DEPTH_MAX + 1] = { 0 };

    for (uint32_t k = 0; k < s->n_entries; k++) {
        bool is_free = !branch_seen(b, k) && is_in_order(p, b, k) && !s->entries[k].is_required;
        if (is_free && plan)
            is_free = !bit_of(plan->need, k) && !bit_of(plan->absent, k);
        for (uint32_t j = 0; j < s->n_deps && is_free; j++)
            is_free = s->deps[j].key != k;
        unsigned cost = is_free ? json_cost(p, s->entries[k].child) : COST_NONE;
        if (cost != COST_NONE)
            supply[cost]++;
    }
    for (uint32_t k = 0; k < s->n_classes; k++) {
        unsigned cost = json_cost(p, s->classes[k].child);
        uint64_t used = n + s->n_entries, words = s->classes[k].n_words;
        if (cost != COST_NONE && s->classes[k].is_infinite)
            supply[cost] = UINT32_MAX;
        else if (cost != COST_NONE && words > used)
            supply[cost] += words - used;
    }
    for (unsigned cost = 0; cost <= JSON_DEPTH_MAX; cost++) {
        count -= MIN(count, supply[cost]);
        /* An infinite class has keys for every count. */
        if (!count || supply[cost] >= UINT32_MAX)
            return cost;
    }
    return COST_NONE;
}

static unsigned entry_cost(
    struct json_program *p, const struct branch *b, uint32_t entry, conj_id child)
{
    if (branch_seen(b, entry) || !is_in_order(p, b, entry))
        return COST_NONE;
    return json_cost(p, child);
}

/* Without dependencies and pending nodes. */
static unsigned simple_rest(struct json_program *p, const struct branch *b, uint64_t n)
{
    const struct shape *s = b->shape;
    unsigned most = 0;

    for (uint32_t k = 0; k < s->n_required && most != COST_NONE; k++) {
        uint32_t entry = s->required[k];
        if (branch_seen(b, entry))
            continue;
        unsigned cost = entry_cost(p, b, entry, s->entries[entry].child);
        most = MAX(most, cost);
        n++;
    }
    if (MAX(n, s->n_min) > s->n_max || most == COST_NONE)
        return COST_NONE;
    if (n >= s->n_min)
        return most;
    return MAX(most, extra_cost(p, b, n, NULL, s->n_min - n));
}

/* Required entries and those which they require in turn. */
static void close_needs(const struct branch *b, struct plan *plan)
{
    const struct shape *s = b->shape;
    bool has_changed = true;

    while (has_changed) {
        has_changed = false;
        for (uint32_t k = 0; k < s->n_deps; k++) {
            uint32_t key = s->deps[k].key, other = s->deps[k].required;
            if (!(branch_seen(b, key) || bit_of(plan->need, key)) || branch_seen(b, other) ||
                bit_of(plan->need, other))
                continue;
            set_bit(plan->need, other);
            has_changed = true;
        }
    }
}

static unsigned plan_cost(
    struct json_program *p, const struct branch *b, uint64_t n, const struct plan *wanted)
{
    const struct shape *s = b->shape;
    struct plan plan = *wanted;
    unsigned most = 0;
    uint64_t total = n;

    if (!json_work(p, 1 + s->n_entries / 16) || ++*plan.work > PLAN_WORK_MAX)
        return COST_NONE;
    for (uint32_t k = 0; k < s->n_required; k++)
        if (!branch_seen(b, s->required[k]))
            set_bit(plan.need, s->required[k]);
    close_needs(b, &plan);
    for (uint32_t k = 0; k < plan.n_members; k++) {
        unsigned cost = json_cost(p, plan.members[k].child);
        most = MAX(most, cost);
        total += plan.members[k].entry == NO_ITEM;
    }
    for (uint32_t k = 0; k < s->n_entries && most != COST_NONE; k++) {
        if (!bit_of(plan.need, k))
            continue;
        unsigned cost =
            bit_of(plan.absent, k) ? COST_NONE : entry_cost(p, b, k, s->entries[k].child);
        most = MAX(most, cost);
        total++;
    }
    uint64_t n_min = MAX(s->n_min, plan.n_min), n_max = MIN(s->n_max, plan.n_max);
    if (most == COST_NONE || total > n_max)
        return COST_NONE;
    if (total >= n_min)
        return most;
    return n_min > n_max ? COST_NONE : MAX(most, extra_cost(p, b, total, &plan, n_min - total));
}

/* The state that is to be completed. */
struct rest {
    struct json_program *p;
    const struct branch *b;
    uint64_t n;     /* members that were read */
    unsigned least; /* cost without pending nodes: no plan costs less */
};

static unsigned pending_rest(const struct rest *r, const struct plan *plan, uint64_t pending);

/* The member makes the pending node fail. */
static unsigned with_member(
    const struct rest *r, const struct plan *plan, uint64_t pending, uint32_t member, json_lit lit)
{
    const struct shape *s = r->b->shape;
    uint32_t entry = member < s->n_entries ? member : NO_ITEM;
    uint32_t class = member < s->n_entries ? NO_ITEM : member - s->n_entries, at = 0;
    struct plan next = *plan;

    while (at < next.n_members && !(entry != NO_ITEM && next.members[at].entry == entry))
        at++;
    if (at == PLAN_MEMBERS_MAX)
        return COST_NONE;
    if (at == next.n_members) {
        next.members[next.n_members].entry = entry;
        next.members[next.n_members].class = class;
        next.members[next.n_members++].child =
            entry != NO_ITEM ? s->entries[entry].child : s->classes[class].child;
    }
    next.members[at].child = json_conj_add(r->p, next.members[at].child, &lit, 1);
    if (json_cost(r->p, next.members[at].child) == COST_NONE)
        return COST_NONE;
    if (entry != NO_ITEM)
        set_bit(next.need, entry);
    return pending_rest(r, &next, pending);
}

/* A planned member of a class makes this node fail, too. */
static unsigned by_planned(
    const struct rest *r, const struct plan *plan, uint64_t pending, uint32_t node)
{
    const struct shape *s = r->b->shape;
    unsigned best = COST_NONE;

    for (uint32_t k = 0; k < plan->n_members && best > r->least; k++) {
        struct lit_list l;
        if (plan->members[k].entry != NO_ITEM)
            continue;
        struct member_key key = key_of(s, NO_ITEM, &s->classes[plan->members[k].class]);
        l.n = 0;
        applied(r->p, s, node, &key, &l);
        for (uint32_t j = 0; j < l.n && best > r->least; j++) {
            struct plan next = *plan;
            json_lit no = lit_not(l.all[j]);
            next.members[k].child = json_conj_add(r->p, next.members[k].child, &no, 1);
            if (l.all[j] && json_cost(r->p, next.members[k].child) != COST_NONE)
                best = MIN(best, pending_rest(r, &next, pending));
        }
    }
    return best;
}

static unsigned by_members(
    const struct rest *r, const struct plan *plan, uint64_t pending, uint32_t node)
{
    const struct shape *s = r->b->shape;
    unsigned best = by_planned(r, plan, pending, node);

    for (uint32_t k = 0; k < s->n_entries + s->n_classes && best > r->least && !r->p->is_failed;
         k++) {
        bool is_entry = k < s->n_entries;
        struct lit_list l;
        if (is_entry &&
            (branch_seen(r->b, k) || !is_in_order(r->p, r->b, k) || bit_of(plan->absent, k)))
            continue;
        struct member_key key =
            is_entry ? key_of(s, k, NULL) : key_of(s, NO_ITEM, &s->classes[k - s->n_entries]);
        l.n = 0;
        applied(r->p, s, node, &key, &l);
        for (uint32_t j = 0; j < l.n && best > r->least; j++)
            if (l.all[j]) /* not `true` */
                best = MIN(best, with_member(r, plan, pending, k, lit_not(l.all[j])));
    }
    return best;
}

static unsigned by_absence(
    const struct rest *r, const struct plan *plan, uint64_t pending, uint32_t node)
{
    const struct jnode *j = &r->p->nodes[node];
    unsigned best = COST_NONE;

    for (uint32_t k = 0; k < j->s->n_properties && best > r->least; k++) {
        uint32_t entry = find_entry(r->b->shape, j->keys[k]);
        if (!j->s->properties[k].is_required || branch_seen(r->b, entry) ||
            bit_of(plan->need, entry))
            continue;
        if (json_cost(r->p, r->b->shape->entries[entry].child) == COST_NONE)
            return pending_rest(r, plan, pending); /* the key is always absent */
        struct plan next = *plan;
        set_bit(next.absent, entry);
        best = MIN(best, pending_rest(r, &next, pending));
    }
    for (uint32_t k = 0; k < j->s->n_dependencies && best > r->least; k++)
        for (uint32_t i = 0; i < j->s->dependencies[k].n_required && best > r->least; i++) {
            uint32_t key = find_entry(r->b->shape, j->dep_keys[k]);
            uint32_t other = find_entry(r->b->shape, j->dep_required[k][i]);
            if (branch_seen(r->b, other) || bit_of(plan->need, other))
                continue;
            struct plan next = *plan;
            set_bit(next.absent, other);
            if (!branch_seen(r->b, key))
                set_bit(next.need, key);
            best = MIN(best, pending_rest(r, &next, pending));
        }
    return best;
}

static unsigned by_count(
    const struct rest *r, const struct plan *plan, uint64_t pending, uint32_t node)
{
    const struct schema_node *s = json_node(r->p, node);
    unsigned best = COST_NONE;

    if (s->min_properties) {
        struct plan next = *plan;
        next.n_max = MIN(next.n_max, s->min_properties - 1);
        best = pending_rest(r, &next, pending);
    }
    if (best > r->least && s->max_properties != UINT64_MAX) {
        struct plan next = *plan;
        next.n_min = MAX(next.n_min, s->max_properties + 1);
        best = MIN(best, pending_rest(r, &next, pending));
    }
    return best;
}

/* The recursion is bounded by the number of pending nodes. */
static unsigned pending_rest(const struct rest *r, const struct plan *plan, uint64_t pending)
{
    if (!pending || ++*plan->work > PLAN_WORK_MAX || !json_work(r->p, 1))
        return pending ? COST_NONE : plan_cost(r->p, r->b, r->n, plan);
    uint32_t k = (uint32_t)__builtin_ctzll(pending), node = r->b->shape->pending[k] >> 1;
    unsigned best;

    pending &= pending - 1;
    best = by_absence(r, plan, pending, node);
    if (best > r->least)
        best = MIN(best, by_count(r, plan, pending, node));
    if (best > r->least)
        best = MIN(best, by_members(r, plan, pending, node));
    return best;
}

unsigned json_object_rest(struct json_program *p, const struct branch *b, uint64_t n)
{
    struct plan plan;
    uint32_t work = 0;

    if (!b->shape->n_deps && !b->pending)
        return simple_rest(p, b, n);
    memset(&plan, 0, sizeof(plan));
    plan.n_max = UINT64_MAX;
    plan.work = &work;
    struct rest r = { p, b, n, plan_cost(p, b, n, &plan) };
    return r.least == COST_NONE ? COST_NONE : pending_rest(&r, &plan, b->pending);
}

/* ---- the end */

static bool is_seen(const struct branch *b, uint32_t key)
{
    uint32_t entry = find_entry(b->shape, key);

    return entry != NO_ITEM && branch_seen(b, entry);
}

/* Whether the object of n members violates the node's keywords that concern all members. */
static bool fails_at_end(
    const struct json_program *p, const struct branch *b, uint32_t node, uint64_t n)
{
    const struct jnode *j = &p->nodes[node];
    bool fails = n < j->s->min_properties || n > j->s->max_properties;

    for (uint32_t k = 0; k < j->s->n_properties && !fails; k++)
        fails = j->s->properties[k].is_required && !is_seen(b, j->keys[k]);
    for (uint32_t k = 0; k < j->s->n_dependencies && !fails; k++)
        for (uint32_t i = 0; i < j->s->dependencies[k].n_required && !fails; i++)
            fails = is_seen(b, j->dep_keys[k]) && !is_seen(b, j->dep_required[k][i]);
    return fails;
}

bool json_object_closes(struct json_program *p, const struct branch *b, uint64_t n)
{
    const struct shape *s = b->shape;

    if (n < s->n_min || n > s->n_max)
        return false;
    for (uint32_t k = 0; k < s->n_required; k++)
        if (!branch_seen(b, s->required[k]))
            return false;
    for (uint32_t k = 0; k < s->n_deps; k++)
        if (branch_seen(b, s->deps[k].key) && !branch_seen(b, s->deps[k].required))
            return false;
    for (uint32_t k = 0; k < s->n_pending; k++)
        if (b->pending >> k & 1 && !fails_at_end(p, b, s->pending[k] >> 1, n))
            return false;
    return true;
}
